"""What an adapter lets its peers on the same host know: regions and queue pairs, as they change.

The region table and the queue pairs say what has changed, and this turns it into entries of the adapter's
directory.  Whatever takes a right away returns only when no peer uses it any more.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, cast

from softhca.memory.regions import REMOTE_ATOMIC, REMOTE_READ, REMOTE_WRITE
from softhca.memory.shared_layout import FOREIGN_ARENA
from softhca.transport.same_host import SameHostExecutor
from softhca.transport.states import RC, RESET, RTR, RTS, SQD

if TYPE_CHECKING:
    from softhca.memory.regions import Region
    from softhca.memory.shared_directory import Directory
    from softhca.memory.shared_path import SharedPath
    from softhca.transport.connection import Connection
    from softhca.transport.context import QueuePair

REMOTE_RIGHTS = REMOTE_WRITE | REMOTE_READ | REMOTE_ATOMIC


class Sharing:
    """Keeps ``directory`` true.  ``path_to`` gives the path from a port, by its number, and the
    GID that is its end of a route, to the route's other end, alive or not yet; None where there can be none.

    ``foreign``: peers may be given memory outside of the directory's arenas, by its address in this
    process.
    """

    def __init__(
        self, directory: Directory, path_to: Callable[[int, bytes, bytes], SharedPath | None],
        foreign: bool = True,
    ) -> None:
        self.directory = directory
        self.path_to = path_to
        self.foreign = foreign

    # what RegionTable asks

    def grant(self, region: Region) -> None:
        """A region may be used by peers: let peers do so, if its bytes lie in one piece here."""
        rights = region.access & REMOTE_RIGHTS
        if not rights or not region.direct_address or region.direct_pid or region.paged:
            return
        arena, place = self._place(region.direct_address, region.length)
        if arena:
            self.directory.grant_region(
                region.key, region.va, region.length, rights, region.pd, arena, place
            )

    def _place(self, address: int, length: int) -> tuple[int, int]:
        """Arena and place of a range; arena 0 where peers cannot reach it, or map other pages there."""
        for number, arena in self.directory.arenas.items():
            if arena.holds(address, length):
                place = address - arena.base
                return (number, place) if arena.shares(place, length) else (0, 0)
        return (FOREIGN_ARENA, address) if self.foreign else (0, 0)

    def withdraw(self, region: Region) -> None:
        """No peer reaches the region any more when this returns."""
        self.directory.withdraw_region(region.key)

    def allow(self, allowed: bool) -> None:
        """Registered memory may be touched, or not: then no peer does when this returns."""
        self.directory.set_gate(allowed)

    # what queue pairs ask

    def publish(self, connection: Connection) -> None:
        """A queue pair has changed: give it its executor where its peer is a peer, and publish that
        one what it may do.  Peers elsewhere cost nothing."""
        if connection.service != RC:
            return
        queue_pair = cast("QueuePair", connection)
        if queue_pair.state == RESET:
            queue_pair.executor = None
        operations = self._operations(queue_pair)
        if not operations:
            self.directory.withdraw_queue_pair(queue_pair.number)
        if queue_pair.state not in (RTR, RTS, SQD) or queue_pair.flow.route is None:
            return
        route = queue_pair.flow.route
        executor = cast("SameHostExecutor | None", queue_pair.executor)
        path = self.path_to(queue_pair.flow.port_number, route.source, route.destination)
        if executor is None or executor.path is not path:
            queue_pair.executor = None if path is None else SameHostExecutor(queue_pair, path)
        if queue_pair.executor is None:
            self.directory.withdraw_queue_pair(queue_pair.number)
        elif operations:
            self.directory.grant_queue_pair(
                queue_pair.number, route.destination, queue_pair.dest_qp, operations, queue_pair.pkey,
                queue_pair.pd,
            )

    def _operations(self, queue_pair: QueuePair) -> int:
        """Which rights a peer has without the responder: none before it has heard of the connection (the
        first packet shows that in RTR), no READ or atomic where no resources for them are kept."""
        if queue_pair.state not in (RTS, SQD) and not (queue_pair.state == RTR and queue_pair.established):
            return 0
        operations = queue_pair.access & REMOTE_RIGHTS
        return operations if queue_pair.max_dest_rd_atomic else operations & REMOTE_WRITE
