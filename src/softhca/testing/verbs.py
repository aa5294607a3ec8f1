"""Ends of connections at the level of the verbs: for tests of programs.

An end is a protection domain, queues, a region and a queue pair; two of them are connected in one call.
They work on any open contexts, also on those of real devices.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from softhca.testing.network import Network
from softhca.verbs import enums as e
from softhca.verbs.addr import AH, GID, AHAttr, GlobalRoute
from softhca.verbs.cq import CQ, WC, CompChannel
from softhca.verbs.device import Context
from softhca.verbs.mr import MR
from softhca.verbs.pd import PD
from softhca.verbs.qp import QP, QPAttr, QPCap, QPInitAttr
from softhca.verbs.srq import SRQ
from softhca.verbs.wr import SGE, RecvWR, SendWR

QKEY = 0x11111111
CLIENT_PSN, SERVER_PSN = 0xFFFFF0, 0x123
"""Where the sequence numbers of the two directions begin; the client's wrap early."""

ALL_ACCESS = (
    e.IBV_ACCESS_LOCAL_WRITE
    | e.IBV_ACCESS_REMOTE_WRITE
    | e.IBV_ACCESS_REMOTE_READ
    | e.IBV_ACCESS_REMOTE_ATOMIC
)


@dataclass
class VerbsEnd:
    """One end: its context and everything that was made from it."""

    context: Context
    pd: PD
    send_cq: CQ
    recv_cq: CQ
    mr: MR
    qp: QP
    srq: SRQ | None = None

    def sge(self, length: int, offset: int = 0) -> SGE:
        """``length`` bytes at ``offset`` of the region."""
        return SGE(self.mr.buf + offset, length, self.mr.lkey)

    def receive(self, length: int = 0, offset: int = 0, wr_id: int = 0) -> None:
        """Post a receive into the region."""
        (self.srq or self.qp).post_recv(RecvWR(wr_id, 1, [self.sge(length, offset)]))

    def send(self, opcode: int = e.IBV_WR_SEND, length: int = 0, offset: int = 0, **arguments: Any) -> None:
        """Post one send request from the region; ``arguments`` as `request` has them."""
        self.qp.post_send(self.request(opcode, length, offset, **arguments))

    def request(
        self,
        opcode: int = e.IBV_WR_SEND,
        length: int = 0,
        offset: int = 0,
        *,
        to: tuple[int, int] = (0, 0),
        operands: tuple[int, int] = (0, 0),
        wr_id: int = 0,
        flags: int = e.IBV_SEND_SIGNALED,
        imm_data: int = 0,
    ) -> SendWR:
        """A send request: ``to`` is the remote key and address, ``operands`` are an atomic's."""
        wr = SendWR(wr_id, opcode, 1, imm_data, [self.sge(length, offset)], flags)
        wr.set_wr_atomic(*to, *operands)
        return wr

    def state(self) -> int:
        """The queue pair's state as the adapter says it."""
        state: int = self.qp.query(e.IBV_QP_STATE)[0].qp_state
        return state


def make_end(
    context: Context,
    kind: int = e.IBV_QPT_RC,
    *,
    size: int = 1 << 16,
    access: int = ALL_ACCESS,
    cap: QPCap | None = None,
    entries: int = 256,
    signal_all: int = 0,
    channel: CompChannel | None = None,
    srq: Callable[[PD], SRQ] | None = None,
) -> VerbsEnd:
    """A domain, two CQs, a region of ``size`` zeros and a queue pair in RESET."""
    pd = PD(context)
    send_cq, recv_cq = CQ(context, entries), CQ(context, entries, channel=channel)
    mr = MR(pd, size, access)
    shared = srq(pd) if srq is not None else None
    cap = cap or QPCap(64, 64, 8, 8, 128)
    qp = QP(pd, QPInitAttr(kind, scq=send_cq, rcq=recv_cq, srq=shared, cap=cap, sq_sig_all=signal_all))
    return VerbsEnd(context, pd, send_cq, recv_cq, mr, qp, shared)


def _vector(gid: GID, lid: int) -> AHAttr:
    """The address vector to a port; ``lid`` counts on native links."""
    route = GlobalRoute(dgid=gid, sgid_index=0, hop_limit=64)
    return AHAttr(dlid=lid, is_global=1, port_num=1, gr=route)


def vector_to(peer: VerbsEnd) -> AHAttr:
    """The address vector to an end."""
    return _vector(peer.context.query_gid(1, 0), peer.context.query_port(1).lid)


def attributes_of(
    context: Context, gid: str, qpn: int, sq_psn: int, rq_psn: int, lid: int = 0, **changes: int
) -> QPAttr:
    """All attributes that take a queue pair of any service to RTS, towards queue pair ``qpn`` at ``gid``;
    ``changes`` replace some.
    """
    attr = QPAttr(port_num=1, path_mtu=context.query_port(1).active_mtu)
    attr.qkey = QKEY
    attr.qp_access_flags = ALL_ACCESS
    attr.ah_attr = _vector(GID(gid), lid)
    attr.dest_qp_num, attr.sq_psn, attr.rq_psn = qpn, sq_psn, rq_psn
    attr.max_rd_atomic = attr.max_dest_rd_atomic = 4
    attr.min_rnr_timer, attr.timeout, attr.retry_cnt, attr.rnr_retry = 1, 14, 7, 7
    for name, value in changes.items():
        setattr(attr, name, value)
    return attr


def attributes(own: VerbsEnd, peer: VerbsEnd, sq_psn: int, rq_psn: int, **changes: int) -> QPAttr:
    """The same, towards an end of this process."""
    gid, lid = str(peer.context.query_gid(1, 0)), peer.context.query_port(1).lid
    return attributes_of(own.context, gid, peer.qp.qp_num, sq_psn, rq_psn, lid, **changes)


def connect(client: VerbsEnd, server: VerbsEnd, **changes: int) -> None:
    """Take both ends to RTS, towards each other."""
    client.qp.to_rts(attributes(client, server, CLIENT_PSN, SERVER_PSN, **changes))
    server.qp.to_rts(attributes(server, client, SERVER_PSN, CLIENT_PSN, **changes))


def handle_to(own: VerbsEnd, peer: VerbsEnd) -> AH:
    """An address handle from one end to another."""
    return AH(own.pd, attr=vector_to(peer))


def connected(network: Network, kind: int = e.IBV_QPT_RC, **arguments: Any) -> tuple[VerbsEnd, VerbsEnd]:
    """Two more adapters with an end each, connected; ``arguments`` are `make_end`'s."""
    client, server = (make_end(network.add().context(), kind, **arguments) for _ in range(2))
    connect(client, server)
    return client, server


def completions(network: Network, cq: CQ, count: int = 1) -> list[WC]:
    """``count`` completions of ``cq``, letting time go on; fewer when nothing more happens."""
    found: list[WC] = []

    def enough() -> bool:
        found.extend(cq.poll(count - len(found))[1])
        return len(found) >= count

    network.run(enough)
    return found
