"""What tests of real traffic share: one end of a connection, connecting two, and waiting with a bound.

Every wait is a loop of polls that ends with `Late` after `BOUND_S` by the monotonic clock; nothing sleeps.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass

from softhca.verbs import enums as e
from softhca.verbs.addr import AH, GID, AHAttr, GlobalRoute
from softhca.verbs.cq import CQ, WC, CompChannel
from softhca.verbs.device import Context
from softhca.verbs.mr import MR
from softhca.verbs.pd import PD
from softhca.verbs.qp import QP, QPAttr, QPCap, QPInitAttr
from softhca.verbs.srq import SRQ
from softhca.verbs.wr import SGE, RecvWR, SendWR

BOUND_S = 10.0
QKEY = 0x11111111
CLIENT_PSN, SERVER_PSN = 0xFFFFF0, 0x123  # the client's sequence numbers wrap early
ALL_ACCESS = (
    e.IBV_ACCESS_LOCAL_WRITE
    | e.IBV_ACCESS_REMOTE_WRITE
    | e.IBV_ACCESS_REMOTE_READ
    | e.IBV_ACCESS_REMOTE_ATOMIC
)
PATTERN = bytes(range(251))


class Late(AssertionError):
    """Something did not happen within `BOUND_S`."""


@dataclass
class End:
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

    def send(self, opcode: int = e.IBV_WR_SEND, length: int = 0, offset: int = 0, **arguments: int) -> None:
        """Post one send request from the region."""
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
        """The QP's state as the adapter says it."""
        return self.qp.query(e.IBV_QP_STATE)[0].qp_state


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
) -> End:
    """A domain, two CQs, a region of zeros and a QP in RESET."""
    pd = PD(context)
    send_cq, recv_cq = CQ(context, entries), CQ(context, entries, channel=channel)
    mr = MR(pd, size, access)
    shared = srq(pd) if srq is not None else None
    cap = cap or QPCap(64, 64, 8, 8, 128)
    qp = QP(pd, QPInitAttr(kind, scq=send_cq, rcq=recv_cq, srq=shared, cap=cap, sq_sig_all=signal_all))
    return End(context, pd, send_cq, recv_cq, mr, qp, shared)


def vector_to(end: End, context: Context) -> AHAttr:
    """The address vector from ``context`` to an end."""
    route = GlobalRoute(dgid=end.context.query_gid(1, 0), sgid_index=0, hop_limit=64)
    return AHAttr(is_global=1, port_num=1, gr=route)


def attributes(own: End, peer: End, sq_psn: int, rq_psn: int, **changes: int) -> QPAttr:
    """All attributes that take a QP of any service to RTS; ``changes`` replace some."""
    gid = str(peer.context.query_gid(1, 0))
    return attributes_of(own.context, gid, peer.qp.qp_num, sq_psn, rq_psn, **changes)


def attributes_of(
    context: Context, gid: str, qpn: int, sq_psn: int, rq_psn: int, **changes: int
) -> QPAttr:
    """The same, towards a peer that may be another process's."""
    attr = QPAttr(port_num=1, path_mtu=context.query_port(1).active_mtu)
    attr.qkey = QKEY
    attr.qp_access_flags = ALL_ACCESS
    attr.ah_attr = AHAttr(is_global=1, port_num=1, gr=GlobalRoute(dgid=GID(gid), sgid_index=0, hop_limit=64))
    attr.dest_qp_num, attr.sq_psn, attr.rq_psn = qpn, sq_psn, rq_psn
    attr.max_rd_atomic = attr.max_dest_rd_atomic = 4
    attr.min_rnr_timer, attr.timeout, attr.retry_cnt, attr.rnr_retry = 1, 14, 7, 7
    for name, value in changes.items():
        setattr(attr, name, value)
    return attr


def connect(client: End, server: End, **changes: int) -> None:
    """Take both ends to RTS, towards each other."""
    client.qp.to_rts(attributes(client, server, CLIENT_PSN, SERVER_PSN, **changes))
    server.qp.to_rts(attributes(server, client, SERVER_PSN, CLIENT_PSN, **changes))


def connected(
    pair: object, kind: int = e.IBV_QPT_RC, changes: dict | None = None, **arguments: object
) -> tuple[End, End]:
    """Two connected ends on the two contexts of a ``verbs_pair``."""
    client = make_end(pair.client, kind, **arguments)
    server = make_end(pair.server, kind, **arguments)
    connect(client, server, **(changes or {}))
    return client, server


def handle_to(own: End, peer: End) -> AH:
    """An address handle from one end to another."""
    return AH(own.pd, attr=vector_to(peer, own.context))


def wait_until(done: Callable[[], object], *ends: End) -> None:
    """Drive the ends' devices until ``done()``."""
    deadline = time.monotonic() + BOUND_S
    while not done():
        for end in ends:
            end.context.progress()
        if time.monotonic() > deadline:
            raise Late(f"nothing within {BOUND_S} s")


def poll(cq: CQ, count: int, *ends: End) -> list[WC]:
    """Exactly ``count`` completions of ``cq``, driving the ends' devices meanwhile."""
    found: list[WC] = []

    def enough() -> bool:
        found.extend(cq.poll(count - len(found))[1])
        return len(found) >= count

    wait_until(enough, *ends)
    return found


def settle(cq: CQ, client: End, server: End) -> list[WC]:
    """What is in ``cq`` once both devices have dealt with all that was sent before; to show that nothing
    comes.

    Messages between two other QPs are the mark: what one device sends to the other stays in its order.  They
    go to and fro twice, so that answers to what was under way have been dealt with, too.
    """
    here, there = make_end(client.context), make_end(server.context)
    connect(here, there)
    for sender, receiver in 2 * ((here, there), (there, here)):
        receiver.receive(1)
        sender.send(length=1)
        assert poll(receiver.recv_cq, 1, here, there)[0].status == e.IBV_WC_SUCCESS
        assert poll(sender.send_cq, 1, here, there)[0].status == e.IBV_WC_SUCCESS
    return cq.poll(16)[1]


def pattern(length: int) -> bytes:
    """``length`` bytes whose period fits no power of two."""
    return (PATTERN * (length // len(PATTERN) + 1))[:length]
