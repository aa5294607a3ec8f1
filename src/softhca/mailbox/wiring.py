"""What a mailbox has on its adapter: memory, one RC queue pair, and the operations that carry blocks."""

from __future__ import annotations

import ipaddress
import secrets
from collections import deque
from collections.abc import Sequence

from softhca.machine import deferred_signals
from softhca.mailbox.errors import MailboxError, OfferError
from softhca.mailbox.hashes import NONCE_BYTES
from softhca.mailbox.offer import Offer
from softhca.mailbox.terms import Terms
from softhca.verbs import enums as e
from softhca.verbs.addr import GID, AHAttr, GlobalRoute
from softhca.verbs.cq import CQ, cqe_status_to_str
from softhca.verbs.device import Context
from softhca.verbs.mr import MR
from softhca.verbs.pd import PD
from softhca.verbs.pyverbs_error import PyverbsRDMAError
from softhca.verbs.qp import QP, QPAttr, QPCap, QPInitAttr
from softhca.verbs.wr import SGE, SendWR

DEPTH = 128
"""Operations posted at a time."""
SIGNAL_EVERY = 16
READ_ID = 1 << 32
"""In wr_id: an RDMA READ."""
_HOP_LIMIT, _TIMEOUT_CODE, _RETRIES, _RNR_TIMER_CODE = 64, 14, 7, 12
_WRITE, _READ = int(e.IBV_WR_RDMA_WRITE), int(e.IBV_WR_RDMA_READ)
_SIGNALED, _INLINE = int(e.IBV_SEND_SIGNALED), int(e.IBV_SEND_INLINE)
_LOCAL = int(e.IBV_ACCESS_LOCAL_WRITE)
_PEER_WRITES = _LOCAL | int(e.IBV_ACCESS_REMOTE_WRITE)
_PEER_READS = _LOCAL | int(e.IBV_ACCESS_REMOTE_READ)

Range = tuple[int, int]
"""Offset in the ring, length in bytes."""


class Wiring:
    """Registered memory ``inbox``, ``outbox`` and ``cell``, and a queue pair to the peer once `connect` ran.

    ``writes`` counts the RDMA WRITEs of blocks.  The peer may write the inbox (mode ``write``) or read the
    outbox (mode ``read``), and write the cell; nothing else is granted.
    """

    def __init__(
        self, context: Context, terms: Terms, port: int = 1, gid_index: int = 0, service_level: int = 0
    ) -> None:
        self.context = context
        self.terms = terms
        self._port, self._gid_index, self._service_level = port, gid_index, service_level
        reading = terms.mode == "read"
        attributes = context.query_port(port)
        self._mtu_code, self._lid = int(attributes.active_mtu), int(attributes.lid)
        self.pd = PD(context)
        try:
            self.inbox = MR(
                self.pd,
                terms.slot_bytes if reading else terms.ring_bytes,
                _LOCAL if reading else _PEER_WRITES,
            )
            self.outbox = MR(self.pd, terms.ring_bytes, _PEER_READS if reading else _LOCAL)
            self.cell = MR(self.pd, -(-terms.credit_bytes // 8) * 8, _PEER_WRITES)
            self.cq = CQ(context, DEPTH)
            caps = QPCap(
                max_send_wr=DEPTH,
                max_recv_wr=1,
                max_send_sge=1,
                max_recv_sge=1,
                max_inline_data=terms.credit_bytes,
            )
            self.qp = QP(self.pd, QPInitAttr(e.IBV_QPT_RC, scq=self.cq, rcq=self.cq, cap=caps, sq_sig_all=0))
        except BaseException:
            self.pd.close()
            raise
        self.psn = secrets.randbits(24)
        self.nonce = secrets.token_bytes(NONCE_BYTES)
        self.peer: Offer | None = None
        self.reading = False
        self.writes = 0
        self._outstanding = 0
        self._unsignaled = 0
        self._waiting: deque[Range] = deque()
        self._outbox_va, self._outbox_lkey = self.outbox.buf, self.outbox.lkey
        self._request = SendWR(opcode=_WRITE, num_sge=1, sg=[SGE(self._outbox_va, 0, self._outbox_lkey)])

    def offer(self) -> Offer:
        """This end, for the peer."""
        ring = self.outbox if self.terms.mode == "read" else self.inbox
        gid = ipaddress.IPv6Address(str(self.context.query_gid(self._port, self._gid_index).gid)).packed
        return Offer(
            self.terms, self.qp.qp_num, self.psn, self._lid, gid, self._mtu_code, ring.buf, ring.rkey,
            self.cell.buf, self.cell.rkey, self.nonce,
        )  # fmt: skip

    def connect(self, peer: Offer) -> None:
        """Take the queue pair to RTS, towards ``peer``.  OfferError when it cannot be reached from here."""
        route = GlobalRoute(
            dgid=GID.from_bytes(peer.gid),
            sgid_index=self._gid_index,
            hop_limit=_HOP_LIMIT,
        )
        attributes = QPAttr(port_num=self._port)
        attributes.qp_access_flags = _PEER_WRITES | (_PEER_READS if self.terms.mode == "read" else 0)
        attributes.ah_attr = AHAttr(
            dlid=peer.lid, sl=self._service_level, is_global=1, port_num=self._port, gr=route
        )
        attributes.path_mtu = min(self._mtu_code, peer.mtu_code)
        attributes.dest_qp_num, attributes.rq_psn, attributes.sq_psn = peer.qpn, peer.psn, self.psn
        attributes.max_rd_atomic = attributes.max_dest_rd_atomic = 1
        attributes.min_rnr_timer, attributes.timeout = _RNR_TIMER_CODE, _TIMEOUT_CODE
        attributes.retry_cnt = attributes.rnr_retry = _RETRIES
        try:
            self.qp.to_rts(attributes)
        except PyverbsRDMAError as error:
            raise OfferError(f"the peer's address or queue pair cannot be: {error}") from None
        self.peer = peer

    # carrying blocks

    def carry(self, ranges: Sequence[Range]) -> None:
        """RDMA WRITE these ranges of the outbox into the peer's inbox, under one doorbell.

        What the send queue has no room for waits, and goes out in order with the
        next `carry` or `take_completions`.
        """
        if self._waiting or len(ranges) > 1 or self._outstanding >= DEPTH:
            self._waiting.extend(ranges)
            self._post_waiting()
            return
        offset, length = ranges[0]
        request = self._request
        request.sges = ((self._outbox_va + offset, length, self._outbox_lkey),)
        self._aim(request, offset)
        self.qp.post_send(request)

    def _aim(self, request: SendWR, offset: int) -> None:
        """The remote side of a write, and whether it is signaled."""
        peer = self._peer()
        request.remote_addr, request.remote_rkey = peer.ring_va + offset, peer.ring_rkey
        request.wr_id, request.send_flags = self._count()
        self.writes += 1

    def _count(self, signaled: bool = False) -> tuple[int, int]:
        """Count one more operation; how many its completion will retire, or 0, and its flags."""
        self._outstanding += 1
        self._unsignaled += 1
        if not signaled and self._unsignaled < SIGNAL_EVERY:
            return 0, 0
        retired, self._unsignaled = self._unsignaled, 0
        return retired, _SIGNALED

    def _post_waiting(self) -> None:
        """Post what waits, as a chain, as far as there is room."""
        if self._outstanding >= DEPTH:
            self.take_completions()
        chain: list[SendWR] = []
        while self._waiting and self._outstanding < DEPTH:
            offset, length = self._waiting.popleft()
            element = SGE(self._outbox_va + offset, length, self._outbox_lkey)
            request = SendWR(opcode=_WRITE, num_sge=1, sg=[element])
            self._aim(request, offset)
            if chain:
                chain[-1].next_wr = request
            chain.append(request)
        if chain:
            self.qp.post_send(chain[0])

    def write_credit(self, address: int, length: int) -> None:
        """RDMA WRITE a credit that stands at ``address`` into the peer's cell; it is taken here and now."""
        peer = self._peer()
        wr_id, flags = self._count()
        request = SendWR(wr_id, _WRITE, 1, sg=[SGE(address, length, 0)], send_flags=flags | _INLINE)
        request.set_wr_rdma(peer.cell_rkey, peer.cell_va)
        self.qp.post_send(request)

    def read(self, offset: int) -> None:
        """RDMA READ the slot at ``offset`` of the peer's outbox into the inbox; ``reading`` until that is
        done.
        """
        peer = self._peer()
        retired, flags = self._count(signaled=True)
        element = SGE(self.inbox.buf, self.terms.slot_bytes, self.inbox.lkey)
        request = SendWR(READ_ID | retired, _READ, 1, sg=[element], send_flags=flags)
        request.set_wr_rdma(peer.ring_rkey, peer.ring_va + offset)
        self.reading = True
        self.qp.post_send(request)

    @property
    def has_room(self) -> bool:
        """Whether one more operation can be posted at once."""
        return self._outstanding < DEPTH and not self._waiting

    def take_completions(self) -> None:
        """Take completions, and post what waits for room.  MailboxError when the connection is lost."""
        deferred_signals.begin()  # what is taken is counted, whatever signal comes
        try:
            self._take_completions()
        finally:
            deferred_signals.end()

    def _take_completions(self) -> None:
        count, completions = self.cq.poll(DEPTH)
        for completion in completions[:count]:
            if completion.status != e.IBV_WC_SUCCESS:
                raise MailboxError(f"the connection is lost: {cqe_status_to_str(completion.status)}")
            self._outstanding -= completion.wr_id & (READ_ID - 1)
            if completion.wr_id & READ_ID:
                self.reading = False
        if self._waiting and self._outstanding < DEPTH:
            self._post_waiting()

    def _peer(self) -> Offer:
        if self.peer is None:
            raise MailboxError("the mailbox has not joined a peer yet")
        return self.peer

    def close(self) -> None:
        """Close all that was made; what is under way is dropped."""
        for resource in (self.qp, self.cq, self.inbox, self.outbox, self.cell, self.pd):
            resource.close()
