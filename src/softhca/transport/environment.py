"""What the transport asks of the adapter that it lives in.

The adapter subclasses :class:`Environment`; tests give their own.  Nothing here blocks, sends or reads a clock.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from softhca.memory.regions import RegionTable
    from softhca.transport.context import QueuePair
    from softhca.transport.window import DestinationWindow
    from softhca.wire.route import Route


class AddressHandle:
    """A destination for datagrams, resolved once when the handle is made (IBTA 11.2.2.1).

    Attributes: ``number`` of the handle, ``pd`` it belongs to, ``route`` to the destination port, the ``window`` of
    the destination adapter and the ``service_level`` 0…15.
    """

    def __init__(self, number: int, pd: int, route: Route, window: DestinationWindow, service_level: int = 0) -> None:
        self.number = number
        self.pd = pd
        self.route = route
        self.window = window
        self.service_level = service_level


class Environment:
    """Services of the adapter to its queue pairs.

    ``regions`` is the adapter's table of keys; ``counters`` an object whose integer attributes the transport adds to.
    """

    def __init__(self, regions: RegionTable, counters: object) -> None:
        self.regions = regions
        self.counters = counters

    def schedule(self, queue_pair: QueuePair) -> None:
        """Ask for a turn: ``queue_pair`` may have something to transmit.  Calling it again before the turn is free."""

    def arm(self, queue_pair: QueuePair, deadline_ns: int) -> None:
        """Call ``queue_pair.expire(now)`` at ``deadline_ns`` or soon after.

        An earlier call may come and is ignored by the queue pair, which keeps its real deadline itself; asking again
        with a later deadline costs O(1).
        """

    def event(self, kind: int, number: int) -> None:
        """Report asynchronous event ``kind`` (``ibv_event_type``) of the element with ``number``."""

    def address_handle(self, number: int) -> AddressHandle | None:
        """The address handle with this ``number``, or None."""
        return None

    def window_for(self, route: Route) -> DestinationWindow:
        """The one window that all queue pairs of this adapter share towards the destination of ``route``."""
        raise LookupError("this environment has no windows")
