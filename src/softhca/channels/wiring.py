"""Queue pairs of a connection: made, brought to RTS, given receives."""

from __future__ import annotations

import contextlib
import itertools
import mmap
import secrets

from softhca.channels.errors import failed
from softhca.channels.messages import ACKNOWLEDGED, End
from softhca.channels.registration import LOCAL
from softhca.machine import primitives
from softhca.verbs import enums as e
from softhca.verbs.cmid import CMID
from softhca.verbs.cq import CQ
from softhca.verbs.mr import MR
from softhca.verbs.pd import PD
from softhca.verbs.pyverbs_error import PyverbsError
from softhca.verbs.qp import QP, QPAttr, QPCap, QPInitAttr
from softhca.verbs.wr import SGE, RecvWR, SendWR

_STATES = int(e.IBV_QPS_INIT), int(e.IBV_QPS_RTR), int(e.IBV_QPS_RTS)
_ERROR, _STATE = int(e.IBV_QPS_ERR), int(e.IBV_QP_STATE)
_SERVICES = {1: int(e.IBV_QPT_RC), 2: int(e.IBV_QPT_UC)}
_RELIABLE_ALONE = int(
    e.IBV_QP_MAX_DEST_RD_ATOMIC
    | e.IBV_QP_MIN_RNR_TIMER
    | e.IBV_QP_TIMEOUT
    | e.IBV_QP_RETRY_CNT
    | e.IBV_QP_RNR_RETRY
    | e.IBV_QP_MAX_QP_RD_ATOMIC
)
"""Attributes that an unreliable queue pair has not."""
INLINE_BYTES = 128
SIGNALED, INLINE = int(e.IBV_SEND_SIGNALED), int(e.IBV_SEND_INLINE)
SEND, SEND_IMM = int(e.IBV_WR_SEND), int(e.IBV_WR_SEND_WITH_IMM)
RDMA_WRITE, RDMA_READ = int(e.IBV_WR_RDMA_WRITE), int(e.IBV_WR_RDMA_READ)
RECV_BIT = int(e.IBV_WC_RECV)


class Slots:
    """``count`` slots of ``slot_bytes`` registered bytes: ``view``, ``address``, ``lkey``."""

    def __init__(self, pd: PD, count: int, slot_bytes: int) -> None:
        self.count = count
        self.slot_bytes = slot_bytes
        try:
            self.view = memoryview(mmap.mmap(-1, count * slot_bytes))
        except OSError as error:
            raise failed(error, "making room for messages") from error
        self.address = primitives.address_of(self.view)
        self.mr = MR(pd, access=LOCAL, buffer=self.view)
        self.lkey = self.mr.lkey

    def receives(self) -> list[RecvWR]:
        """A receive for each slot, whose number it has."""
        return [
            RecvWR(slot, 1, [SGE(self.address + slot * self.slot_bytes, self.slot_bytes, self.lkey)])
            for slot in range(self.count)
        ]

    def part(self, slot: int, length: int) -> memoryview:
        """The first ``length`` bytes of a slot."""
        start = slot * self.slot_bytes
        return self.view[start : start + length]

    def close(self) -> None:
        """Deregister."""
        self.mr.close()


class Wire:
    """A queue pair of ``pd``, whose completions go to ``cq``.  ``psn`` is the first that it sends."""

    def __init__(self, pd: PD, cq: CQ, service: int, sends: int, receives: int) -> None:
        self.service = service
        caps = QPCap(
            max_send_wr=sends, max_recv_wr=receives, max_send_sge=1, max_recv_sge=1,
            max_inline_data=INLINE_BYTES,
        )  # fmt: skip
        attributes = QPInitAttr(_SERVICES[service], scq=cq, rcq=cq, cap=caps, sq_sig_all=0)
        self.qp = QP(pd, attributes)
        self.number = self.qp.qp_num
        self.psn = secrets.randbits(24)

    def begin(self, cmid: CMID) -> None:
        """To INIT: receives can be posted."""
        self._to(cmid, _STATES[0], None)

    def connect(self, cmid: CMID, peer: End | None) -> None:
        """From INIT to RTS, towards ``peer``, or (None) the queue pair that the connection names."""
        for state in _STATES[1:]:
            self._to(cmid, state, peer)

    def _to(self, cmid: CMID, state: int, peer: End | None) -> None:
        attributes, mask = cmid.init_qp_attr(state)
        if self.service != ACKNOWLEDGED:
            mask &= ~_RELIABLE_ALONE
        if peer is not None:
            attributes.dest_qp_num, attributes.rq_psn, attributes.sq_psn = peer.qp_num, peer.psn, self.psn
        self.qp.modify(attributes, mask)

    def post_receives(self, receives: list[RecvWR]) -> None:
        """Post them, under one call."""
        if receives:
            for each, following in itertools.pairwise(receives):
                each.following = following
            receives[-1].following = None
            self.qp.post_recv(receives[0])

    def probe(self, number: int) -> SendWR:
        """A WRITE of no bytes: it is acknowledged when all before it is, and touches no memory."""
        request = SendWR(number, RDMA_WRITE, 1, sg=[SGE(0, 0, 0)], send_flags=SIGNALED)
        request.set_wr_rdma(0, 0)
        return request

    def stop(self) -> None:
        """To ERR: what is posted completes, flushed."""
        attributes = QPAttr()
        attributes.qp_state = _ERROR
        with contextlib.suppress(PyverbsError):
            self.qp.modify(attributes, _STATE)

    def close(self) -> None:
        """Destroy it: what is under way is dropped."""
        self.qp.close()
