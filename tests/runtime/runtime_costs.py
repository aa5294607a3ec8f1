"""What tests of costs share: connected ends, and counting of copies and calls."""

import gc
import sys
from types import SimpleNamespace

import pytest

from softhca.machine import primitives
from softhca.machine.primitives import BODY
from softhca.runtime import devices
from softhca.verbs import enums as e
from softhca.verbs.addr import GID, AHAttr, GlobalRoute
from softhca.verbs.cq import CQ
from softhca.verbs.device import Context
from softhca.verbs.mr import MR
from softhca.verbs.pd import PD
from softhca.verbs.qp import QP, QPAttr, QPCap, QPInitAttr
from softhca.verbs.wr import SGE, RecvWR, SendWR

RIGHTS = (e.IBV_ACCESS_LOCAL_WRITE | e.IBV_ACCESS_REMOTE_WRITE | e.IBV_ACCESS_REMOTE_READ
          | e.IBV_ACCESS_REMOTE_ATOMIC)  # fmt: skip
MIB = 1 << 20
PMTU = 4096
DEPTH = 128


class End:
    """A device with memory, queues and one RC queue pair."""

    def __init__(self, name):
        self.name = name
        self.context = Context(name=name)
        self.pd = PD(self.context)
        self.cq, self.receive_cq = CQ(self.context, 4 * DEPTH), CQ(self.context, 4 * DEPTH)
        self.mr = MR(self.pd, MIB, RIGHTS)
        self.qp = self.queue_pair()
        self.more = []

    def queue_pair(self):
        caps = QPCap(max_send_wr=DEPTH, max_recv_wr=DEPTH, max_send_sge=1, max_recv_sge=1)
        init = QPInitAttr(e.IBV_QPT_RC, scq=self.cq, rcq=self.receive_cq, cap=caps, sq_sig_all=0)
        return QP(self.pd, init)

    def join(self, peer, qp=None, peer_qp=None):
        qp, peer_qp = qp or self.qp, peer_qp or peer.qp
        path = QPAttr(path_mtu=5)
        path.dest_qp_num, path.qp_access_flags = peer_qp.qp_num, RIGHTS
        path.ah_attr = AHAttr(is_global=1, gr=GlobalRoute(GID(str(peer.context.query_gid(1, 0)))))
        path.timeout, path.retry_cnt, path.rnr_retry = 0, 7, 7  # no time-out: nothing is sent twice here
        path.max_rd_atomic = path.max_dest_rd_atomic = 16
        qp.to_rts(path)

    def chain(self, peer, opcode, size, count):
        """``count`` requests, of which the last is signaled."""
        chain = None
        for position in range(count, 0, -1):
            flags = e.IBV_SEND_SIGNALED if position == count else 0
            element = SGE(self.mr.buf, size, self.mr.lkey)
            chain = SendWR(position, opcode, 1, 0, [element], flags, chain)
            chain.set_wr_rdma(peer.mr.rkey, peer.mr.buf)
        return chain

    def receives(self, size, count):
        chain = None
        for _ in range(count):
            chain = RecvWR(0, 1, [SGE(self.mr.buf, size, self.mr.lkey)], chain)
        return chain

    def counted(self):
        """What the link and the transport have counted so far."""
        engine = devices.find(self.name).engine
        link = engine.link
        return SimpleNamespace(
            calls=link.send_calls, datagrams=link.datagrams_sent, bytes=link.bytes_sent,
            again=engine.adapter.counters.retransmissions,
        )  # fmt: skip


def payload_copied(work, monkeypatch):
    """Bytes that ``work()`` copies between addresses, headers and queue entries not counted."""
    copied = []
    move = primitives._move

    def counted(target, source, n):
        copied.append(n if n >= PMTU else 0)
        return move(target, source, n)

    monkeypatch.setattr(primitives, "_move", counted)
    work()
    monkeypatch.setattr(primitives, "_move", move)
    return sum(copied)
COPIES_ARE_CALLS = pytest.mark.skipif(
    BODY == "compiled", reason="compiled, a copy is no call that could be counted; the source is the same"
)


def python_calls(work):
    """How many functions the interpreter has seen called in ``work()``."""
    calls = 0

    def count(frame, event, argument):
        nonlocal calls
        calls += event in ("call", "c_call")

    gc.disable()  # the collector would call its hooks
    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(None)
        gc.enable()
    return calls
