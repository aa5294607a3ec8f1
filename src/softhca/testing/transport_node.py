"""Queue pairs without an adapter: for tests of the transport alone.

A `Node` is the environment of its queue pairs (`softhca.transport.environment`), an `End` one queue pair with
the host's half of its queues.  Rings, regions, completion queues and packets with their ICRC are the real
ones; `transport_pair` has the link between two nodes, and the time.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterable
from typing import Any

from softhca.machine import primitives
from softhca.memory.host import HostMemory
from softhca.memory.regions import RegionTable
from softhca.memory.tpt import TranslationTable
from softhca.queues import cqe, wqe
from softhca.queues.completion import CompletionQueue, CompletionReader, pages_for
from softhca.queues.layout import SIGNALED
from softhca.queues.ring import RingConsumer, RingLayout, RingProducer, plan
from softhca.queues.shared_receive import SharedReceiveQueue
from softhca.transport.context import QueuePair
from softhca.transport.counters import TransportCounters
from softhca.transport.environment import MEMORY_RETRY_NS, AddressHandle, Environment
from softhca.transport.flow import Flow
from softhca.transport.services import SERVICES
from softhca.transport.states import RC
from softhca.transport.window import DestinationWindow
from softhca.wire.route import V4_MAPPED_PREFIX, Route

HOST = HostMemory(1 << 30)
PD = 7
ALL_ACCESS = 1 | 2 | 4 | 8
CQ_ENTRIES = 256
MAX_SGE = 4
MAX_INLINE = 256


def gid(last: int) -> bytes:
    """The GID of 192.0.2.``last``."""
    return V4_MAPPED_PREFIX + bytes((192, 0, 2, last))


class Completion(dict[str, int]):
    """A completion by its fields' names."""

    def __getattr__(self, name: str) -> int:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None


class Region:
    """Registered memory of a node, its bytes in ``data``."""

    def __init__(self, node: Node, size: int, access: int = ALL_ACCESS, fill: bytes | None = None) -> None:
        self.node = node
        self.data = bytearray(size)
        if fill is not None:
            self.data[:] = fill
        first, offset = HOST.attach_buffer(self.data)
        self.first = first
        self.va = primitives.address_of(self.data)
        self.region = node.regions.register(
            HOST.address_map, PD, self.va, size, access, [(first, -(-(offset + size) // 4096))], offset
        )
        node.owned.append(self)

    @property
    def key(self) -> int:
        """L_Key and R_Key."""
        return self.region.key

    def sge(self, offset: int = 0, length: int | None = None) -> tuple[int, int, int]:
        """A scatter/gather element: ``length`` bytes at ``offset``, by default all from there."""
        return (self.va + offset, len(self.data) - offset if length is None else length, self.key)

    def deregister(self) -> None:
        """End the registration."""
        if self.region.valid:
            self.node.regions.deregister(self.region)

    def close(self) -> None:
        """End the registration, and give the memory back."""
        self.deregister()
        HOST.detach(self.first)


class Node(Environment):
    """One side: the environment of its queue pairs, its completion queues, timers and events.

    ``options`` are `Environment`'s.  ``events`` are the asynchronous ones that were raised; ``cq_events``
    counts those of completion queues, ``limits`` those of shared receive queues.
    """

    def __init__(self, name: str, address: int, seed: int, **options: Any) -> None:
        super().__init__(
            RegionTable(TranslationTable(1 << 16), random.Random(seed)), TransportCounters(), **options
        )
        self.name = name
        self.gid = gid(address)
        self.queue: deque[Flow] = deque()
        self.deadlines: dict[Flow, int] = {}
        self.held: dict[Flow, int] = {}
        self.now = 0
        self.events: list[tuple[int, int]] = []
        self.handles: dict[int, AddressHandle] = {}
        self.windows: dict[bytes | None, DestinationWindow] = {}
        self.owned: list[Region] = []
        self.frames: list[int] = []
        self.cq_events = 0
        self.limits = 0

    def schedule(self, flow: Flow) -> None:
        """`Environment.schedule`."""
        if not flow.scheduled:
            flow.scheduled = True
            self.queue.append(flow)

    def arm(self, flow: Flow, deadline_ns: int) -> None:
        """As the adapter's timers: who waits for an earlier moment is called then, and asks again."""
        self.deadlines[flow] = min(self.deadlines.get(flow, deadline_ns), deadline_ns)

    def wait_for_memory(self, flow: Flow) -> None:
        """`Environment.wait_for_memory`."""
        self.held.setdefault(flow, self.now + MEMORY_RETRY_NS)

    def data_access(self, allowed: bool) -> None:
        """The adapter's mode bit; lifting it lets all that wait try at once."""
        self.regions.tpt.stopped = not allowed
        if allowed:
            held, self.held = self.held, {}
            for flow in held:
                flow.resume(self.now)

    def event(self, kind: int, number: int) -> None:
        """`Environment.event`."""
        self.events.append((kind, number))

    def address_handle(self, number: int) -> AddressHandle:
        """`Environment.address_handle`."""
        return self.handles.get(number)  # type: ignore[return-value]

    def window_for(self, route: Route) -> DestinationWindow:
        """`Environment.window_for`."""
        return self.windows.setdefault(route.destination, DestinationWindow())

    # what queues report

    def completion_event(self, cq: CompletionQueue) -> None:
        """An armed completion queue has a completion."""
        self.cq_events += 1

    def overflow(self, cq: CompletionQueue) -> None:
        """A completion queue has overrun."""
        self.events.append((0, cq.number))

    def limit_reached(self, srq: SharedReceiveQueue) -> None:
        """An armed shared receive queue has fewer receives than its limit."""
        self.limits += 1

    def srq_error(self, srq: SharedReceiveQueue) -> None:
        """A shared receive queue is broken."""
        self.events.append((14, srq.number))

    # queues

    def ring(self, entries: int, body_bytes: int) -> RingLayout:
        """A work queue's ring in host memory."""
        frames = HOST.allocate(plan(entries, body_bytes))
        self.frames.extend(frames)
        layout = RingLayout.over(frames, HOST.address_map, entries, body_bytes)
        layout.clear()
        return layout

    def completion_queue(
        self, number: int, entries: int = CQ_ENTRIES
    ) -> tuple[CompletionQueue, CompletionReader]:
        """A completion queue, the adapter's half and the host's."""
        frames = HOST.allocate(pages_for(entries))
        self.frames.extend(frames)
        layout = RingLayout.over(frames, HOST.address_map, entries, entries * cqe.CQE_BYTES)
        layout.clear()
        return CompletionQueue(number, layout, self), CompletionReader(layout)

    def shared_receive_queue(self, number: int, entries: int = 64) -> tuple[SharedReceiveQueue, RingProducer]:
        """A shared receive queue, the adapter's half and the host's."""
        layout = self.ring(entries, entries * wqe.receive_bytes(MAX_SGE))
        return SharedReceiveQueue(number, PD, layout, MAX_SGE, self), RingProducer(layout)

    def close(self) -> None:
        """Give all memory back."""
        for key in sorted(self.memory_windows.members.values(), key=lambda key: not key.window):
            self.memory_windows.deallocate(key)
        for owned in self.owned:
            owned.close()
        HOST.free(self.frames)


class End:
    """One queue pair of a node and the host's half of it."""

    def __init__(
        self,
        node: Node,
        number: int,
        service: int = RC,
        entries: int = 64,
        cq_entries: int = CQ_ENTRIES,
        srq: tuple[SharedReceiveQueue, RingProducer] | None = None,
        signal_all: bool = False,
    ) -> None:
        self.node = node
        self.number = number
        send = node.ring(entries, entries * wqe.send_bytes(MAX_SGE, MAX_INLINE))
        receive = node.ring(entries, entries * wqe.receive_bytes(MAX_SGE))
        self.send_producer = RingProducer(send)
        self.receive_producer = RingProducer(receive)
        self.send_cq, self.send_reader = node.completion_queue(number * 2, cq_entries)
        self.receive_cq, self.receive_reader = node.completion_queue(number * 2 + 1, cq_entries)
        shared = None
        if srq is not None:
            shared, self.receive_producer = srq
        self.qp = QueuePair(
            node,
            number,
            SERVICES[service],
            PD,
            RingConsumer(send),
            None if srq else RingConsumer(receive),
            self.send_cq,
            self.receive_cq,
            shared_receive=shared,
            max_send_wr=entries,
            max_recv_wr=entries,
            max_send_sge=MAX_SGE,
            max_recv_sge=MAX_SGE,
            max_inline_bytes=MAX_INLINE,
            signal_all=signal_all,
        )
        self.scratch = bytearray(4096)
        self.address = primitives.address_of(self.scratch)

    def region(self, size: int, access: int = ALL_ACCESS, fill: bytes | None = None) -> Region:
        """Registered memory of this end's node."""
        return Region(self.node, size, access, fill)

    def post(
        self,
        opcode: int,
        sges: Iterable[tuple[int, int, int]] = (),
        wr_id: int = 1,
        flags: int = SIGNALED,
        imm: int = 0,
        remote: Region | None = None,
        offset: int = 0,
        compare: int = 0,
        swap: int = 0,
        ah: int = 0,
        qpn: int = 0,
        qkey: int = 0,
        inline: bytes | None = None,
        rkey: int | None = None,
        va: int | None = None,
        ring: bool = True,
    ) -> bool:
        """Post a send work request and, unless ``ring`` is false, ring its doorbell; False: the ring is full.

        ``remote`` and ``offset`` say where in the peer's memory; ``va`` and ``rkey`` replace what they say.
        """
        remote_va = (remote.va + offset if remote is not None else 0) if va is None else va
        key = (remote.key if remote is not None else 0) if rkey is None else rkey
        n = wqe.encode_send(
            self.scratch,
            opcode,
            flags,
            imm,
            wr_id,
            remote_va,
            key,
            compare,
            swap,
            ah,
            qpn,
            qkey,
            list(sges),
            inline,
        )
        pushed = self.send_producer.push(self.address, n)
        if ring:
            self.qp.doorbell(self.node.now)
        return pushed

    def post_raw(self, body: bytes) -> None:
        """Post whatever bytes as a send work request."""
        self.scratch[: len(body)] = body
        self.send_producer.push(self.address, len(body))
        self.qp.doorbell(self.node.now)

    def post_receive(self, sges: Iterable[tuple[int, int, int]] = (), wr_id: int = 100) -> bool:
        """Post a receive; False: the ring is full."""
        n = wqe.encode_receive(self.scratch, wr_id, list(sges))
        return self.receive_producer.push(self.address, n)

    def sent(self) -> list[Completion]:
        """Completions of send work requests."""
        return [Completion(zip(cqe.FIELDS, row, strict=True)) for row in self.send_reader.poll(1 << 20)]

    def received(self) -> list[Completion]:
        """Completions of receives."""
        return [Completion(zip(cqe.FIELDS, row, strict=True)) for row in self.receive_reader.poll(1 << 20)]
