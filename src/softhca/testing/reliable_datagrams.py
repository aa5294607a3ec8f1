"""Ends of reliable datagrams at the driver's level, as `testing.ends` has them of connections.

::

    network = Network()
    left, right = DatagramEnd(network.add()), DatagramEnd(network.add())
    channel = join(left, right)
    a, b = left.queue_pair(), right.queue_pair()
    b.post_recv(1, [right.sge(0, 100)])
    send(a, SEND, [left.sge(0, 100)], channel[0], b)
"""

from __future__ import annotations

from typing import Any

from softhca.driver.device import EeHandle, QpHandle
from softhca.driver.services import Reliability
from softhca.queues.control_fields import QPT_RD
from softhca.queues.states import INIT, RTR, RTS
from softhca.testing.ends import ALL_RIGHTS, LEFT_PSN, QKEY, RIGHT_PSN, End, post
from softhca.testing.node import Node


class DatagramEnd(End):
    """An end with a reliable datagram domain, ``rdd``."""

    def __init__(self, node: Node, *details: Any, **options: Any) -> None:
        End.__init__(self, node, *details, **options)
        self.rdd = self.device.alloc_rdd()

    def queue_pair(
        self, *, qkey: int = QKEY, access: int = ALL_RIGHTS, rdd: int = 0, min_rnr_timer: int = 12,
        send: int = 0, receive: int = 0, ready: bool = True, cq: Any = None, pd: int = 0,
    ) -> QpHandle:  # fmt: skip
        """A queue pair of reliable datagrams, in RTS where it is ``ready``."""
        cq = cq or self.cq
        qp = self.device.create_qp(
            pd or self.pd, QPT_RD, cq, cq, None, send or self.work_requests, receive or self.work_requests,
            2, 2, 64, True, rdd=rdd or self.rdd,
        )  # fmt: skip
        if ready:
            qp.modify({"qp_state": INIT, "qkey": qkey, "qp_access_flags": access})
            qp.modify({"qp_state": RTR, "min_rnr_timer": min_rnr_timer})
            qp.modify({"qp_state": RTS})
        return qp


def establish(
    end: DatagramEnd, ee: EeHandle, peer: DatagramEnd, peer_number: int, psn: int, peer_psn: int,
    reliability: Reliability | None = None, mtu: int = 0,
) -> None:  # fmt: skip
    """Take an EE context from RESET to RTS, towards the peer's."""
    how = reliability or Reliability()
    mtu = mtu or end.node.adapter.config.active_mtu
    path = end.network.addressing.path(peer.node, mtu=mtu)
    ee.modify({"qp_state": INIT, "pkey_index": 0, "port_num": path.port_num})
    ee.modify({
        "qp_state": RTR, "ah_attr": path.vector(), "path_mtu": mtu, "dest_qp_num": peer_number,
        "rq_psn": peer_psn, "max_dest_rd_atomic": how.max_dest_rd_atomic,
    })  # fmt: skip
    ee.modify({
        "qp_state": RTS, "sq_psn": psn, "timeout": how.timeout, "retry_cnt": how.retry_cnt,
        "rnr_retry": how.rnr_retry, "max_rd_atomic": how.max_rd_atomic,
    })  # fmt: skip


def join(
    left: DatagramEnd, right: DatagramEnd, *, psns: tuple[int, int] = (LEFT_PSN, RIGHT_PSN), mtu: int = 0,
    rdds: tuple[int, int] = (0, 0), **reliability: int,
) -> tuple[EeHandle, EeHandle]:  # fmt: skip
    """A pair of EE contexts, one of each end, both in RTS."""
    ees = left.device.create_ee(rdds[0] or left.rdd), right.device.create_ee(rdds[1] or right.rdd)
    how = Reliability(**reliability)
    establish(left, ees[0], right, ees[1].number, *psns, how, mtu)
    establish(right, ees[1], left, ees[0].number, *psns[::-1], how, mtu)
    return ees


def send(
    qp: QpHandle, opcode: int, sges: list[tuple[int, int, int]], ee: EeHandle, peer: QpHandle, *,
    qkey: int = QKEY, qpn: int = 0, **fields: Any,
) -> None:  # fmt: skip
    """Post one work request by an EE context to the queue pair ``peer``, and ring."""
    post(qp, opcode, sges, ah=ee.number, qpn=qpn or peer.number, qkey=qkey, **fields)
