"""What the transport asks of the adapter that it lives in.

The adapter subclasses :class:`Environment`; tests give their own.  Nothing here blocks, sends or reads a
clock.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from softhca.memory.windows import WindowTable
from softhca.transport.ee_error_cache import EeErrorCache

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from softhca.memory.regions import RegionTable
    from softhca.transport.congestion import CongestionControl
    from softhca.transport.connection import Connection
    from softhca.transport.context import QueuePair
    from softhca.transport.counters import TransportCounters
    from softhca.transport.ee_context import EndToEndContext
    from softhca.transport.flow import Flow
    from softhca.transport.loopback import Loopback
    from softhca.transport.request import Request
    from softhca.transport.uniform import UniformBursts
    from softhca.transport.window import DestinationWindow
    from softhca.wire.route import Route

DEFAULT_READ_SLICE_BYTES = 29 * 4096  # two, with headers, fit into a window of four bursts (MTU ≥ 512)

# How soon memory that was held is tried again: well within the shortest usual time-out (timeout 8 is 2 ms)
MEMORY_RETRY_NS = 200_000


class AddressHandle:
    """A destination for datagrams, resolved once when the handle is made (IBTA 11.2.2.1).

    Attributes: ``number`` of the handle, ``pd`` it belongs to, ``route`` to the destination port, the
    ``window`` of the destination adapter and the ``service_level`` 0…15, and ``port_number``, the own port;
    ``vector``, the address vector that it was made of, is the adapter's.
    """

    def __init__(
        self, number: int, pd: int, route: Route, window: DestinationWindow, service_level: int = 0,
        vector: Mapping[str, Any] | None = None,
    ) -> None:
        self.number = number
        self.pd = pd
        self.route = route
        self.port_number = route.port_number
        self.window = window
        self.service_level = service_level
        self.vector = vector


class Environment:
    """Services of the adapter to its queue pairs and to flows (`softhca.transport.flow`).

    ``regions`` is the adapter's table of keys, ``memory_windows`` what can be withdrawn of them,
    ``counters`` its :class:`TransportCounters`.
    ``read_slice_bytes``: an RDMA READ longer than this goes out as several requests, so that the responses
    in flight stay bounded (a multiple of 4096).
    ``uniform_bursts``: which RDMA WRITEs and READs of reliable connections go as messages whose packets all
    have one length (`transport.uniform`); None: none.
    ``credits``: responders advertise their posted receives (IBTA 9.7.7.2); otherwise "no limit".
    ``withheld_operations``: bit n set where no queue pair has work request opcode n.
    ``observer``: None, or who is called with what happens inside (`softhca.transport.observation`).
    ``last_doorbell`` is the number of the queue pair whose doorbell was rung last.
    ``same_host``: None, or what gives queue pairs their executors and publishes them to peers on this host
    (`softhca.transport.loopback`, `softhca.transport.same_host_sharing`).
    ``queue_pairs`` and ``ee_contexts`` are those that there are, by
    number; ``ee_errors`` is the error cache of the latter (`softhca.transport.ee_error_cache`).
    """

    observer: Callable[[str, int, int, str, str], object] | None
    same_host: Loopback | None
    spare_requests: dict[tuple[int, int], list[Request]]

    def __init__(
        self,
        regions: RegionTable,
        counters: TransportCounters,
        read_slice_bytes: int = DEFAULT_READ_SLICE_BYTES,
        credits: bool = True,
        withheld_operations: int = 0,
        uniform_bursts: UniformBursts | None = None,
    ) -> None:
        if read_slice_bytes < 4096 or read_slice_bytes % 4096:
            raise ValueError(f"a READ's slices are multiples of 4096 bytes, not {read_slice_bytes}")
        self.regions = regions
        self.memory_windows = WindowTable(regions)
        self.counters = counters
        self.read_slice_bytes = read_slice_bytes
        self.credits = credits
        self.uniform_bursts = uniform_bursts
        self.withheld_operations = withheld_operations
        self.observer = None
        self.last_doorbell = 0
        self.same_host = None
        self.spare_requests = {}
        self.queue_pairs: dict[int, QueuePair] = {}
        self.ee_contexts: dict[int, EndToEndContext] = {}
        self.ee_errors = EeErrorCache(0)

    def requests_like(self, max_sge: int, inline_bytes: int) -> list[Request]:
        """Requests of this shape that no send queue uses at the moment: whose turn it is takes one here and
        gives it back, so there are as many as are under way, not as many as the queues could hold."""
        return self.spare_requests.setdefault((max_sge, inline_bytes), [])

    def schedule(self, flow: Flow) -> None:
        """Ask for a turn: ``flow`` may have something to transmit.  Calling it again before the turn
        is free."""

    def arm(self, flow: Flow, deadline_ns: int) -> None:
        """Call ``flow.expire(now)`` at ``deadline_ns`` or soon after.

        An earlier call may come and is ignored by the flow, which keeps its real deadline itself;
        asking again with a later deadline costs O(1).
        """

    def wait_for_memory(self, flow: Flow) -> None:
        """Registered memory that ``flow`` needs is held (its answer was −EAGAIN): call
        ``flow.resume(now)`` after ``MEMORY_RETRY_NS`` or soon after, and at once when the memory is known
        to be there.

        Asking again before that is free.
        """

    def event(self, kind: int, number: int) -> None:
        """Report asynchronous event ``kind`` (``control_fields.EVENT_``…) of the element with ``number``."""

    def wake_threads(self) -> None:
        """Something was written to the memory of a program here: its threads that sleep are to look."""

    def port_usable(self, number: int) -> bool:
        """Whether packets can leave by the port with this number."""
        return True

    def address_handle(self, number: int) -> AddressHandle:
        """The address handle with this ``number``, or None."""
        return None

    def frame_destinations(
        self, port_number: int, destination: bytes, source: bytes
    ) -> tuple[int, tuple[tuple[Route, DestinationWindow], ...]]:
        """Where an Ethernet frame goes that a queue pair of a port sends between two MAC addresses: the VNI
        of the port's segment, and each adapter's route and window."""
        return 0, ()

    def window_for(self, route: Route) -> DestinationWindow:
        """The one window that all flows of this adapter share towards the destination of ``route``."""
        raise LookupError("this environment has no windows")

    def control_for(self, connection: Connection, route: Route) -> CongestionControl | None:
        """The congestion control of a connection that goes along ``route`` from now on; None: it has none."""
        return None
