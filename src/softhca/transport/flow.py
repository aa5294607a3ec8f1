"""A flow: whatever has packets to send along one route, and is given turns and time for it.

Scheduler, timers, the list of those that wait for memory, windows and `Environment` know flows, each by its
own identity, and nothing of what stands behind one.  A queue pair has a flow (`queue_pair_flow`).  Others may
come that are no queue pairs: an end-to-end context of reliable datagrams, the queues of a port's management.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from softhca.wire.burst import CAPACITY

if TYPE_CHECKING:
    from softhca.transport.congestion import CongestionControl
    from softhca.transport.environment import Environment
    from softhca.transport.pacing import PacketPacing
    from softhca.transport.window import DestinationWindow
    from softhca.wire.burst import Arrival, Burst
    from softhca.wire.packet_view import PacketView
    from softhca.wire.route import Route


class Flow:
    """Owns a ``route``, the ``window`` towards its destination, a place in a scheduler and one timer.

    ``number`` is for those who read of it, not for telling flows apart.  ``port_number`` names the port that
    its packets leave and arrive by, ``service_level`` in which queue of the port's scheduler it waits.
    ``shares_bursts``: other flows along the same route may write behind its packets, and it behind theirs;
    ``multicasts``: its packets may go to a group.  ``closed``: it has no turns any more.

    ``control``: its congestion control (`softhca.transport.congestion`), or None; ``pacing``: its rate limit
    (`softhca.transport.pacing`), or None.  What these have said in this turn is ``not_before_ns``, when data
    may leave, and ``burst_limit_bytes``, how much in one burst.

    ``scheduled`` is the scheduler's, ``armed_ns`` and ``armed_place`` the timers', ``waiting`` the window's,
    ``quick_replies`` the runtime's: how often in a row the consumer has answered a message at once.
    """

    route: Route
    window: DestinationWindow
    control: CongestionControl
    pacing: PacketPacing

    def __init__(
        self, environment: Environment, number: int, shares_bursts: bool = False, multicasts: bool = False
    ) -> None:
        self.environment = environment
        self.number = number
        self.port_number = 1
        self.route = None
        self.window = None
        self.control = None
        self.pacing = None
        self.not_before_ns = 0
        self.burst_limit_bytes = CAPACITY
        self.service_level = 0
        self.shares_bursts = shares_bursts
        self.multicasts = multicasts
        self.closed = False
        self.scheduled = False
        self.waiting = False
        self.armed_ns = 0
        self.armed_place = 0
        self.quick_replies = 0

    def receive(self, view: PacketView, arrival: Arrival, now: int) -> None:
        """Take a packet, decoded in ``view``, whose bytes stand in ``arrival``."""

    def produce(self, burst: Burst, now: int) -> int:
        """Write into an empty ``burst`` what may be sent, or behind what others along the same route have
        written; packets written, 0 when there is nothing to send now or (with work left) no place."""
        return 0

    def expire(self, now: int) -> None:
        """The deadline asked of `Environment.arm` may have come; an early call does no harm."""

    def resume(self, now: int) -> None:
        """Memory for which this flow has asked `Environment.wait_for_memory` may be there again."""

    def has_work(self) -> bool:
        """Whether `produce` may have something to send."""
        return False

    def has_requests(self) -> bool:
        """Whether that is more than answers to what has come in."""
        return False

    def may_delay_ack(self) -> bool:
        """Whether all that there is to send is a delayed acknowledgement, which may wait a moment for a
        request to go with."""
        return False
