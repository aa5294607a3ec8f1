"""One end of a connection: what its program is to post, where those bytes are, and who judges them."""

from __future__ import annotations

from dataclasses import dataclass, field

from softhca.driver.device import QpHandle
from softhca.simulation.arena import ATOMIC_BYTES, LENT, OPEN, PRIVATE, Buffer
from softhca.simulation.host import Host
from softhca.simulation.kinds import (
    ATOMICS,
    BOARD_READ,
    BOARD_WRITE,
    OVERWRITE,
    READ,
    READ_BACK,
    RELAY,
    WRITES,
)
from softhca.simulation.node import Node
from softhca.simulation.operations import Operation
from softhca.simulation.oracle import CompletionOrder
from softhca.simulation.oracle_rc import BoardOracle, CounterOracle, ReliableOracle
from softhca.simulation.oracle_uc import UnreliableOracle
from softhca.simulation.oracle_ud import GROUP_QP, DatagramOracle
from softhca.simulation.poller import Poller
from softhca.simulation.scenarios import Scenario

QKEY = 0x11111111
DEPTH = 8
"""Send requests under way at once."""


@dataclass
class Receives:
    """The receive buffers of one queue, posted in order, at most ``room`` at a time; ``done`` completed.

    ``elements`` overrides those of a buffer, ``short`` its length.
    """

    buffers: list[Buffer]
    room: int
    posted: int = 0
    done: set[int] = field(default_factory=set)
    elements: dict[int, list[tuple[int, int, int]]] = field(default_factory=dict)
    short: dict[int, int] = field(default_factory=dict)

    @property
    def taken(self) -> int:
        """How many completed."""
        return len(self.done)

    def complete(self, index: int) -> bool:
        """Receive ``index`` completes; False: it cannot, as it was not posted or has completed before."""
        if index in self.done or index >= self.posted:
            return False
        self.done.add(index)
        return True


@dataclass
class RequestBuffers:
    """Where a request's bytes are: in the requester's memory, and at the peer's."""

    local: Buffer
    remote: Buffer | None


@dataclass
class Oracles:
    """The oracles of one direction; those of other services are None."""

    order: CompletionOrder
    rc: ReliableOracle | None = None
    uc: UnreliableOracle | None = None
    ud: DatagramOracle | None = None
    counter: CounterOracle | None = None
    board: BoardOracle | None = None


@dataclass(eq=False)
class Endpoint:
    """A queue pair with its requests and receives; `prepare` reserves memory for them.

    ``oracles`` judge what it sends; ``raw_services`` are those that it receives.  Its peer, its queues (and
    for datagrams its address handles) come when memory is laid out.
    """

    host: Host
    name: str
    scenario: Scenario
    operations: list[Operation]
    receives: Receives
    oracles: Oracles
    sights: list[RequestBuffers] = field(default_factory=list)
    peer: Endpoint = field(init=False)
    qp: QpHandle = field(init=False)
    send_poller: Poller = field(init=False)
    receive_poller: Poller = field(init=False)
    ah: int = 0
    foreign_ah: int = 0
    destroyed: bool = False
    raw_services: tuple[int, ...] = ()

    @property
    def node(self) -> Node:
        """The adapter that it uses."""
        return self.host.node

    @property
    def address(self) -> tuple[int, int]:
        """Adapter and queue pair, by which the world knows it."""
        return self.node.number, self.qp.number

    @property
    def destination_qp(self) -> int:
        """The queue pair that its datagrams name: the peer's, or a group's."""
        return GROUP_QP if self.scenario.group else self.peer.qp.number

    @property
    def internal(self) -> bool:
        """Whether its peer is on the same host, so that its packets pass no wire."""
        return self.peer.host is self.host

    def target(self, operation: Operation) -> int:
        """What a request names at its peer: the queue pair, or one of its raw services."""
        services = self.peer.raw_services
        return services[operation.index % len(services)] if services else self.destination_qp

    def prepare(self) -> None:
        """Reserve the buffers of every request, here and at the peer."""
        for operation in self.operations:
            self.sights.append(self._reserve(operation))

    def _reserve(self, operation: Operation) -> RequestBuffers:
        here, there = self.host.arena, self.peer.host.arena
        length, earlier = len(operation.data), operation.earlier
        if operation.violation is not None:
            return RequestBuffers(here.reserve(length, operation.data, operation.kind in ATOMICS), None)
        if operation.kind in ATOMICS:
            return RequestBuffers(here.reserve(ATOMIC_BYTES), self.peer.host.counter)
        if operation.kind == BOARD_READ:
            return RequestBuffers(here.reserve(length, aligned=True), self.peer.host.board)
        if operation.kind == BOARD_WRITE:
            return RequestBuffers(here.reserve(length, operation.data, aligned=True), self.peer.host.board)
        lent = LENT if self.scenario.revoke and operation.index % 2 else OPEN
        if operation.kind == READ:
            remote = there.reserve(length, operation.data, region=lent)
            return RequestBuffers(here.scatter(length, operation.elements), remote)
        if operation.kind == READ_BACK:
            return RequestBuffers(here.scatter(length, operation.elements), self.sights[earlier].remote)
        if operation.kind == RELAY:
            return RequestBuffers(self.sights[earlier].local, None)
        # what is only sent needs no right but to be read by its owner
        region = PRIVATE if operation.index % 2 else OPEN
        local = here.scatter(length, operation.elements, operation.data, region)
        if operation.kind == OVERWRITE:
            return RequestBuffers(local, self.sights[earlier].remote)
        return RequestBuffers(local, there.reserve(length, region=lent) if operation.kind in WRITES else None)

    def destroy(self) -> None:
        """Destroy the queue pair and its address handles, if it is still there."""
        if self.destroyed:
            return
        self.destroyed = True
        self.qp.destroy()
        for handle in filter(None, (self.ah, self.foreign_ah)):
            self.host.device.destroy_ah(handle)
