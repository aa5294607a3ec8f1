"""Ends of connections at the driver's level: for tests of what stands below the verbs.

::

    network, left, left_qp, right, right_qp = pair(RC)
    post(left_qp, WRITE, [left.sge(0, 100)], va=right.va, rkey=right.key.rkey)
    assert [done.status for done in left.poll(1)] == [0]

Registered memory has the same addresses in every run, so that the same calls give the same packets.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from softhca.driver import services
from softhca.driver.device import Completion, CqHandle, QpHandle
from softhca.machine.primitives import address_of
from softhca.testing.network import Network
from softhca.testing.node import Node

RC, UC, UD, RAW = 2, 3, 4, 8
"""Types of queue pairs (``ibv_qp_type``)."""

LOCAL_WRITE, REMOTE_WRITE, REMOTE_READ, REMOTE_ATOMIC = 1, 2, 4, 8
ALL_RIGHTS = 15
SIGNALED = 2
WRITE, WRITE_IMM, SEND, SEND_IMM, READ, COMPARE_SWAP, FETCH_ADD = range(7)
"""Work requests (``ibv_wr_opcode``)."""

QKEY = 0x1234567
MEMORY_BYTES = 1 << 16
FIRST_VA = 0x10000
LEFT_PSN, RIGHT_PSN = 100, 0xFFFFF0
"""Where the PSNs of the two directions begin; the right end's wrap soon."""


class Region(NamedTuple):
    """Registered memory: ``offset`` in its end's ``memory``, ``va`` of its first byte, its keys."""

    handle: int
    offset: int
    length: int
    va: int
    lkey: int
    rkey: int


class End:
    """A device with a domain, a completion queue and registered ``memory``; queue pairs are made on demand,
    with room for ``work_requests`` of each kind.

    ``key`` is the registration of all of it; ``va`` names memory[0] in work requests.
    """

    def __init__(
        self,
        node: Node,
        memory_bytes: int = MEMORY_BYTES,
        entries: int = 64,
        fill: int = 0,
        work_requests: int = 16,
    ) -> None:
        self.node = node
        self.network = node.network
        self.work_requests = work_requests
        self.device = node.open()
        self.pd = self.device.alloc_pd()
        self.cq = self.device.create_cq(entries, "channel")
        self.memory = bytearray([fill]) * memory_bytes
        self.key = self.region(0, memory_bytes)
        self.va = self.key.va

    def region(
        self, offset: int, length: int, access: int = ALL_RIGHTS, pd: int = 0, va: int | None = None
    ) -> Region:
        """Register a part of the memory (once more), by default under its place's usual address."""
        name = FIRST_VA + offset if va is None else va
        address = address_of(self.memory) + offset
        key = self.device.reg_mr(pd or self.pd, address, length, access, name, self.memory)
        return Region(key.handle, offset, length, name, key.lkey, key.rkey)

    def sge(self, offset: int, length: int) -> tuple[int, int, int]:
        """An element of the registered memory."""
        return (self.va + offset, length, self.key.lkey)

    def qp(
        self,
        kind: int = RC,
        cq: CqHandle | None = None,
        srq: Any = None,
        signal_all: bool = True,
        send: int | None = None,
        receive: int | None = None,
        sge: int = 2,
        inline: int = 64,
        pd: int = 0,
    ) -> QpHandle:
        """A queue pair in RESET; ``send`` and ``receive`` work requests, by default the end's."""
        cq = cq or self.cq
        send = self.work_requests if send is None else send
        receive = self.work_requests if receive is None else receive
        return self.device.create_qp(
            pd or self.pd, kind, cq, cq, srq, send, receive, sge, sge, inline, signal_all
        )

    def poll(self, count: int, cq: CqHandle | None = None) -> list[Completion]:
        """``count`` completions, or fewer when nothing more happens."""
        found: list[Completion] = []
        queue = cq or self.cq

        def enough() -> bool:
            found.extend(queue.poll(count - len(found)))
            return len(found) >= count

        self.network.run(enough)
        return found


def post(
    qp: QpHandle,
    opcode: int,
    sges: list[tuple[int, int, int]],
    *,
    wr_id: int = 0,
    flags: int = SIGNALED,
    imm: int = 0,
    va: int = 0,
    rkey: int = 0,
    compare: int = 0,
    swap: int = 0,
    ah: int = 0,
    qpn: int = 0,
    qkey: int = 0,
    inline: bytes | None = None,
    ring: bool = True,
) -> None:
    """Post one send work request and, unless told otherwise, ring."""
    qp.post_send(opcode, flags, imm, wr_id, va, rkey, compare, swap, ah, qpn, qkey, sges, inline)
    if ring:
        qp.ring()


def connect(
    left: tuple[End, QpHandle],
    right: tuple[End, QpHandle],
    kind: int = RC,
    *,
    access: int = ALL_RIGHTS,
    sl: int = 0,
    psns: tuple[int, int] = (LEFT_PSN, RIGHT_PSN),
    there: dict[str, Any] | None = None,
    back: dict[str, Any] | None = None,
    **reliability: int,
) -> None:
    """Connect two queue pairs, both to RTS.

    ``there`` and ``back`` are details of the two paths, fields of `services.Path` and, on native links,
    ``grh``; ``reliability`` are fields of `services.Reliability`, for RC.
    """
    how = services.Reliability(**reliability) if kind == RC else None
    for (end, qp), (peer, peer_qp), (psn, peer_psn), details in (
        (left, right, psns, there),
        (right, left, psns[::-1], back),
    ):
        own = {"sl": sl, "mtu": end.node.adapter.config.active_mtu}
        path = end.network.addressing.path(peer.node, **{**own, **(details or {})})
        services.connect(qp, path, peer_qp.number, peer_psn, psn, access, how)


def pair(
    kind: int = RC,
    network: Network | None = None,
    memory_bytes: int = MEMORY_BYTES,
    config: dict[str, Any] | None = None,
    **options: Any,
) -> tuple[Network, End, QpHandle, End, QpHandle]:
    """A network with two connected queue pairs; ``config`` is for both adapters, ``options`` are
    `connect`'s.
    """
    network = network or Network()
    left, right = (End(network.add(**(config or {})), memory_bytes) for _ in range(2))
    left_qp, right_qp = left.qp(kind), right.qp(kind)
    connect((left, left_qp), (right, right_qp), kind, **options)
    return network, left, left_qp, right, right_qp
