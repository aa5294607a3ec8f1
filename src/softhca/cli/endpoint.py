"""One end of a test: device, memory, completion queues and queue pairs, through the public verbs."""

from __future__ import annotations

import ctypes
import os
import secrets
import time
from dataclasses import dataclass, field
from typing import Any

from softhca.cli.device_names import device_name, gid_bytes
from softhca.cli.errors import CommandError
from softhca.verbs import enums as e
from softhca.verbs.addr import AH, GID, AHAttr, GlobalRoute
from softhca.verbs.cq import CQ, CompChannel
from softhca.verbs.device import Context
from softhca.verbs.mr import MR
from softhca.verbs.pd import PD
from softhca.verbs.qp import QP, QPAttr, QPCap, QPInitAttr
from softhca.verbs.srq import SRQ, SrqAttr, SrqInitAttr
from softhca.verbs.wr import SGE, RecvWR, SendWR

QKEY = 0x11111111
TIMEOUT_CODE = 14  # 4.096 µs · 2^14 = 67 ms
RETRIES = 7
RNR_TIMER_CODE = 12  # 0.64 ms
MTU_CODES = {256: 1, 512: 2, 1024: 3, 2048: 4, 4096: 5}
QP_TYPES = {"rc": e.IBV_QPT_RC, "uc": e.IBV_QPT_UC, "ud": e.IBV_QPT_UD}
HOP_LIMIT = 64
LET_PASS = "does UDP port 4791 pass between both ends, in both directions (softhca doctor)?"

_POLLS_A_CLOCK = 256


@dataclass(frozen=True)
class Peer:
    """The other end's queue pair; ``reads`` reads and atomics at a time are welcome there."""

    qpn: int
    psn: int
    gid: bytes
    lid: int = 0
    reads: int = 1


@dataclass(frozen=True)
class Needs:
    """What a test needs of its end.

    The memory is two areas of ``area_bytes`` a queue pair: one to send from, one that the peer fills; with
    ``areas`` so many of each, which the queue pairs share.
    ``shared``: it stands where peers on this host can map it.  ``allocated``: it is the library's, which
    an adapter in a process of its own reaches without system calls.  ``shared_receives``: the queue pairs
    have one receive queue of ``receive_depth``.  ``timeout_code``: the local ACK timeout is 4.096 µs · 2 to
    it.
    """

    service: str
    area_bytes: int
    queue_pairs: int = 1
    areas: int = 0
    send_depth: int = 1
    receive_depth: int = 1
    access: int = e.IBV_ACCESS_LOCAL_WRITE
    inline_bytes: int = 0
    reads: int = 1
    device: str = ""
    port: int = 1
    gid_index: int = 0
    service_level: int = 0
    events: bool = False
    silence_s: float = 30.0
    shared: bool = False
    allocated: bool = False
    shared_receives: bool = False
    timeout_code: int = TIMEOUT_CODE


@dataclass
class Link:
    """How a queue pair is joined to its peer: the path's MTU code and what a UD sender needs besides."""

    qp: Any
    psn: int
    address_handle: Any = None
    peer: Peer | None = field(default=None)


class Endpoint:
    """Makes all that ``needs`` names; closes it all at once.

    ``memory`` is the registered buffer, ``address`` its address, ``srq`` the shared receive queue or None.
    """

    def __init__(self, needs: Needs) -> None:
        self.needs = needs
        self.context = Context(name=device_name(needs.device))
        try:
            self._make()
        except BaseException:
            self.context.close()
            raise

    def _make(self) -> None:
        needs = self.needs
        port = self.context.query_port(needs.port)
        self.active_mtu_code = int(port.active_mtu)
        self.lid = int(port.lid)
        self.gid = gid_bytes(self.context.query_gid(needs.port, needs.gid_index))
        self.pd = PD(self.context)
        self.areas = needs.areas or needs.queue_pairs
        size_bytes = 2 * needs.area_bytes * self.areas
        self.memory: Any
        if needs.shared or needs.allocated:
            self.mr = MR(self.pd, size_bytes, needs.access)
            self.memory = memoryview((ctypes.c_ubyte * size_bytes).from_address(self.mr.buf)).cast("B")
        else:
            self.memory = bytearray(size_bytes)
            self.mr = MR(self.pd, size_bytes, needs.access, buffer=self.memory)
        self.address = int(self.mr.buf)
        self.srq: Any = None
        if needs.shared_receives:
            self.srq = SRQ(self.pd, SrqInitAttr(SrqAttr(max_wr=needs.receive_depth, max_sge=1)))
        self.send_cq = self._completion_queue(needs.send_depth)
        self.receive_cq = self._completion_queue(needs.receive_depth)
        self.links = [Link(self._queue_pair(), secrets.randbits(24)) for _ in range(needs.queue_pairs)]

    def _completion_queue(self, depth: int) -> Any:
        """Room for all queue pairs' completions; a channel of its own, so that only its events arrive
        there.
        """
        channel = CompChannel(self.context) if self.needs.events else None
        return CQ(self.context, max(1, depth * self.needs.queue_pairs), channel=channel)

    def _queue_pair(self) -> Any:
        needs = self.needs
        caps = QPCap(
            max_send_wr=needs.send_depth,
            max_recv_wr=needs.receive_depth,
            max_send_sge=1,
            max_recv_sge=1,
            max_inline_data=needs.inline_bytes,
        )
        init = QPInitAttr(
            qp_type=QP_TYPES[needs.service], scq=self.send_cq, rcq=self.receive_cq, srq=self.srq, cap=caps,
            sq_sig_all=0,
        )  # fmt: skip
        qp = QP(self.pd, init)
        attributes = QPAttr(port_num=needs.port)
        if needs.service == "ud":
            attributes.qkey = QKEY
        else:
            attributes.qp_access_flags = needs.access
        qp.to_init(attributes)
        return qp

    def send_area(self, index: int = 0) -> int:
        """Offset in ``memory`` of queue pair ``index``'s area to send from."""
        return index % self.areas * self.needs.area_bytes

    def receive_area(self, index: int = 0) -> int:
        """Offset in ``memory`` of queue pair ``index``'s area that its peer fills."""
        return (self.areas + index % self.areas) * self.needs.area_bytes

    def sge(self, offset: int, length_bytes: int) -> Any:
        """A scatter/gather element over ``length_bytes`` bytes at ``offset`` of the memory."""
        return SGE(self.address + offset, length_bytes, self.mr.lkey)

    def connect(self, index: int, peer: Peer, mtu_code: int) -> None:
        """Take queue pair ``index`` to RTS, towards ``peer``."""
        needs, link = self.needs, self.links[index]
        route = GlobalRoute(
            dgid=GID.from_bytes(peer.gid),
            sgid_index=needs.gid_index,
            hop_limit=HOP_LIMIT,
        )
        handle = AHAttr(dlid=peer.lid, sl=needs.service_level, is_global=1, port_num=needs.port, gr=route)
        attributes = QPAttr(port_num=needs.port)
        attributes.sq_psn = link.psn
        if needs.service == "ud":
            attributes.qkey = QKEY
            link.qp.to_rts(attributes)
            link.address_handle = AH(self.pd, attr=handle)
        else:
            attributes.qp_access_flags = needs.access
            attributes.ah_attr = handle
            attributes.path_mtu = min(mtu_code, self.active_mtu_code)
            attributes.dest_qp_num = peer.qpn
            attributes.rq_psn = peer.psn
            if needs.service == "rc":
                attributes.max_rd_atomic = min(needs.reads, peer.reads)
                attributes.max_dest_rd_atomic = needs.reads
                attributes.min_rnr_timer = RNR_TIMER_CODE
                attributes.timeout = needs.timeout_code
                attributes.retry_cnt = attributes.rnr_retry = RETRIES
            link.qp.to_rts(attributes)
        link.peer = peer

    def send_request(
        self,
        index: int,
        opcode: int,
        element: Any,
        *,
        wr_id: int = 0,
        signaled: bool = True,
        inline: bool = False,
        following: Any = None,
    ) -> Any:
        """A send work request for queue pair ``index``; a datagram is addressed to the peer."""
        flags = (e.IBV_SEND_SIGNALED if signaled else 0) | (e.IBV_SEND_INLINE if inline else 0)
        request = SendWR(
            wr_id=wr_id, opcode=opcode, num_sge=1, sg=[element], send_flags=flags, next_wr=following
        )
        link = self.links[index]
        if self.needs.service == "ud" and link.peer is not None:
            request.set_wr_ud(link.address_handle, link.peer.qpn, QKEY)
        return request

    def receive_chain(self, index: int, element: Any, count: int) -> Any:
        """``count`` receive work requests in a chain, into the same ``element``; their wr_id is ``index``."""
        chain = None
        for _ in range(count):
            chain = RecvWR(wr_id=index, num_sge=1, sg=[element], next_wr=chain)
        return chain

    def wait(self, cq: Any, most: int = 1) -> list[Any]:
        """At least one completion of ``cq``, at most ``most``.

        Raises :class:`CommandError` for a completion in error, or when nothing happens for ``silence_s``.
        """
        count, completions = cq.poll(most)
        if not count:
            completions = self._wait_longer(cq, most)
        return self._checked(completions)

    def poll(self, cq: Any, most: int = 1) -> list[Any]:
        """The completions that ``cq`` has now, at most ``most``.

        Raises :class:`CommandError` for one in error.
        """
        return self._checked(cq.poll(most)[1])

    @staticmethod
    def _checked(completions: list[Any]) -> list[Any]:
        for completion in completions:
            if completion.status:
                raise CommandError(
                    f"work request {completion.wr_id} of queue pair {completion.qp_num:#x} completed "
                    f"with status {completion.status} ({status_name(completion.status)})",
                    LET_PASS if completion.status == e.IBV_WC_RETRY_EXC_ERR else "",
                )
        return completions

    def _wait_longer(self, cq: Any, most: int) -> list[Any]:
        deadline_s = time.monotonic() + self.needs.silence_s
        while True:
            for _ in range(_POLLS_A_CLOCK):
                count, completions = cq.poll(most)
                if count:
                    return list(completions)
            self.check_silence(deadline_s)

    def check_silence(self, deadline_s: float) -> None:
        """Let others run; raises :class:`CommandError` when the monotonic clock has passed ``deadline_s``."""
        if time.monotonic() > deadline_s:
            raise CommandError(f"no completion for {self.needs.silence_s:g} s", LET_PASS)
        os.sched_yield()

    def wait_event(self, cq: Any, most: int = 1) -> list[Any]:
        """As :meth:`wait`, but asleep on the queue's channel.  TypeError without ``events``."""
        channel = cq.comp_channel
        if channel is None:
            raise TypeError("this end has no completion channels")
        while True:
            cq.req_notify()
            count, completions = cq.poll(most)
            if count:
                return self._checked(completions)
            channel.get_cq_event(cq, self.needs.silence_s)
            cq.ack_events(1)

    def close(self) -> None:
        """Close the device with all that was made on it."""
        self.links.clear()
        self.context.close()

    def __enter__(self) -> Endpoint:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def status_name(status: int) -> str:
    """The standard's words for a completion status."""
    from softhca.verbs.cq import cqe_status_to_str

    return str(cqe_status_to_str(status))
