"""A port: its LIDs, P_Key and GID tables, what it knows of senders (``sources``), and the windows towards
destinations.

The table of windows is bounded, and the destination that has been idle for longest gives way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import cython

from softhca.adapter.config import (
    DEFAULT_GID_PREFIX,
    LID_LAST_MULTICAST,
    LID_LAST_UNICAST,
    MANAGEMENT_LANE,
    MTU_BYTES,
    MULTICAST_QPN,
    NATIVE,
    AdapterConfig,
    PortConfig,
    check_lid,
    check_prefix,
)
from softhca.adapter.counters import PortCounters
from softhca.adapter.gid_table import NO_GID, GidChanges, GidTable
from softhca.adapter.paths import ConnectionPaths, default_source_port
from softhca.adapter.scheduler import Scheduler
from softhca.adapter.sources import Sources
from softhca.transport.window import (
    DEFAULT_LIMIT_BYTES,
    DEFAULT_MAXIMUM_BYTES,
    FAR_MAXIMUM_BYTES,
    DestinationWindow,
)
from softhca.wire.drops import (
    DROP_DESTINATION,
    DROP_LANE,
    DROP_LENGTH,
    DROP_LINK_HEADER,
    DROP_PKEY,
    DROP_SOURCE,
)
from softhca.wire.lrh import LONGEST_HEADERS_BYTES

if TYPE_CHECKING:
    from softhca.adapter.management_flow import ManagementFlow
    from softhca.adapter.paths import SourcePortFor
    from softhca.adapter.segment import Segment
    from softhca.wire.link_view import LinkView
    from softhca.wire.route import Route

INFO_FIELDS = ("lid", "lmc", "sm_lid", "sm_sl", "subnet_timeout", "gid_prefix", "state")

# ibv_port_state
PORT_DOWN = 1
PORT_INIT = 2
PORT_ARMED = 3
PORT_ACTIVE = 4

_NATIVE_FRAMING = cython.declare(cython.int, 0)
_DROP_DESTINATION = cython.declare(cython.int, DROP_DESTINATION)
_DROP_LANE = cython.declare(cython.int, DROP_LANE)
_DROP_LENGTH = cython.declare(cython.int, DROP_LENGTH)
_DROP_LINK_HEADER = cython.declare(cython.int, DROP_LINK_HEADER)
_DROP_PKEY = cython.declare(cython.int, DROP_PKEY)
_DROP_SOURCE = cython.declare(cython.int, DROP_SOURCE)
_LAST_UNICAST = cython.declare(cython.uint, LID_LAST_UNICAST)
_LAST_MULTICAST = cython.declare(cython.uint, LID_LAST_MULTICAST)
_MANAGEMENT_LANE = cython.declare(cython.uint, MANAGEMENT_LANE)
_MULTICAST_QPN = cython.declare(cython.uint, MULTICAST_QPN)
_DEFAULT_PREFIX = cython.declare(bytes, DEFAULT_GID_PREFIX.to_bytes(8, "big"))


class Port:
    """Port ``number`` of an adapter.  ``config`` gives the limits, ``own`` (by default ``config`` too) the
    port's tables, ``overhead_for`` (GID → bytes) the cost of a datagram to a destination beyond its own bytes
    (see ``DestinationWindow``), or None.

    ``scheduler`` has the flows that wait for a turn, ``paths`` the routes of connections.
    ``source_port_for`` is the link's (entropy, destination GID or None, own GID → UDP source port);
    ``management`` are the flows of queue pairs 0 (None on RoCE) and 1, ``segment`` the Ethernet segment of
    a RoCE port (`adapter.segment`).  ``link_counters``, when set, gives
    counters of the link by name, which are shown with the port's.

    What a subnet manager may change stands here: ``state`` (``ibv_port_state``), ``lid`` (base LID, 0
    none), ``lmc``, ``sm_lid``, ``sm_sl``, ``subnet_timeout`` and ``gid_prefix``.  ``gid_table`` are the GIDs
    by index, the zero GID where an entry is empty; ``gids`` all that the port answers to: those with the
    default prefix too (IBTA vol. 1, 4.1.1).  A RoCE port's are its addresses, which `set_gids` changes.
    """

    source_port_for: SourcePortFor
    overhead_for: Callable[[bytes], int]
    link_counters: Callable[[], dict[str, int]]
    management: tuple[ManagementFlow, ManagementFlow]
    segment: Segment
    gids: frozenset[bytes]
    gid_table: tuple[bytes, ...]
    windows: dict[bytes, DestinationWindow]
    gid_prefix: int

    def __init__(
        self, config: AdapterConfig, overhead_for: Callable[[bytes], int] | None = None, number: int = 1,
        own: AdapterConfig | PortConfig | None = None, source_port_for: SourcePortFor | None = None,
    ) -> None:
        own = config if own is None else own
        self.number = number
        self.config = config
        self.own = own
        self.scheduler = Scheduler()
        self.paths = ConnectionPaths()
        self.source_port_for = default_source_port if source_port_for is None else source_port_for
        self.link_counters = None
        self.management = (None, None)
        self.segment = None
        self.counters = PortCounters()
        self.native = own.framing == NATIVE
        self.pkeys = own.pkeys
        self.overhead_for = overhead_for
        self.sources = Sources(config.max_sources, self.counters)
        self.windows = {}
        self.lid = own.lid
        self.lmc = own.lmc
        self.sm_lid = own.sm_lid
        self.sm_sl = 0
        self.subnet_timeout = 0
        self.state = PORT_INIT if self.native and own.lid == 0 else PORT_ACTIVE
        self.longest_packet_bytes = MTU_BYTES[own.active_mtu] + LONGEST_HEADERS_BYTES
        self._table = GidTable(own.gids, config.gid_entries, config.gid_table_length)
        self._name(int.from_bytes(own.gids[0][:8], "big"))

    def _name(self, prefix: int) -> None:
        """Fill the GID table for a subnet's prefix."""
        self.gid_prefix = prefix
        if self.native:
            self.gid_table = tuple([prefix.to_bytes(8, "big") + gid[8:] for gid in self.own.gids])
        else:
            self.gid_table = self._table.entries
        self.gids = frozenset(self.gid_table) - {NO_GID}
        if self.native:
            default = DEFAULT_GID_PREFIX.to_bytes(8, "big")
            self.gids |= {default + gid[8:] for gid in self.gid_table}

    def set_gids(self, gids: Iterable[bytes]) -> GidChanges:
        """From here on a RoCE port has these addresses (`GidTable.set`).  ValueError, and nothing has
        changed, for a native port, and for what is no unicast address.  Routes that exist are the caller's
        to renew (`Adapter.set_gids`).
        """
        if self.native:
            raise ValueError("a native port has the GIDs of its GUIDs")
        gids = tuple(gids)
        for gid in gids:
            if len(gid) != 16 or not any(gid) or gid[0] == 0xFF:
                raise ValueError(f"GID {gid.hex()}: expected 16 bytes of a unicast address")
        changes: GidChanges = self._table.set(gids)
        self._name(self.gid_prefix)
        return changes

    def set_info(
        self, lid: int | None = None, lmc: int | None = None, sm_lid: int | None = None,
        sm_sl: int | None = None, subnet_timeout: int | None = None, gid_prefix: int | None = None,
        state: int | None = None,
    ) -> bool:
        """Take what a subnet manager sets (PortInfo); what is None stays.  Whether anything has changed.

        ValueError, and nothing has changed, for a RoCE port and for values that cannot be. Routes that exist
        are the caller's to renew (`Adapter.set_port_info`).  A port that had no LID becomes active with its
        first one, and leaves that state with the last, unless ``state`` says otherwise.
        """
        if not self.native:
            raise ValueError("a RoCE port is not configured by a subnet manager (A17)")
        new_lid = self.lid if lid is None else lid
        new_lmc = self.lmc if lmc is None else lmc
        new_sm_lid = self.sm_lid if sm_lid is None else sm_lid
        new_sm_sl = self.sm_sl if sm_sl is None else sm_sl
        new_timeout = self.subnet_timeout if subnet_timeout is None else subnet_timeout
        new_prefix = self.gid_prefix if gid_prefix is None else gid_prefix
        check_lid(new_lid, new_lmc)
        check_lid(new_sm_lid, 0)
        check_prefix(new_prefix)
        if not 0 <= new_sm_sl <= 15 or not 0 <= new_timeout <= 31:
            raise ValueError("a service level is 0…15 and a subnet time-out 0…31")
        if state is None:
            state = self.state
            if (new_lid == 0) != (self.lid == 0):
                state = PORT_ACTIVE if new_lid else PORT_INIT
        if state not in (PORT_DOWN, PORT_INIT, PORT_ARMED, PORT_ACTIVE) or (
            state >= PORT_ARMED and not new_lid
        ):
            raise ValueError(f"a port with LID {new_lid} cannot be in state {state}")
        before = self.info()
        self.lid, self.lmc, self.sm_lid, self.sm_sl = new_lid, new_lmc, new_sm_lid, new_sm_sl
        self.subnet_timeout, self.state = new_timeout, state
        self._name(new_prefix)
        return self.info() != before

    def set_state(self, state: int) -> None:
        """The link has changed, and with it ``state``."""
        self.state = state

    def info(self) -> dict[str, int]:
        """What `set_info` sets, as a dictionary."""
        return {name: getattr(self, name) for name in INFO_FIELDS}

    def source_lid(self, path_bits: int) -> int:
        """The SLID of packets that leave with these path bits."""
        return self.lid | (path_bits & ((1 << self.lmc) - 1))

    def owns_lid(self, lid: int) -> bool:
        """Whether a unicast LID is this port's."""
        return self.lid != 0 and (lid >> self.lmc) == (self.lid >> self.lmc)

    def path_bits(self, dlid: int) -> int:
        """The bits of a DLID that the LMC leaves open; 0 of a group's."""
        return dlid & ((1 << self.lmc) - 1) if dlid <= _LAST_UNICAST else 0

    def is_own(self, route: Route) -> bool:
        """Whether packets on ``route`` come back to this port without a link: from a GID of its own to
        another, or to its LID.
        """
        if route.framing == _NATIVE_FRAMING:
            return self.owns_lid(route.dlid)
        return route.destination in self.gids and route.source in self.gids

    def admit(self, link: LinkView) -> int:
        """Whether a native packet, by its LRH, is one for this port; 0 or a drop reason.

        DLID (IBTA vol. 1, 4.1.3, 9.6.1.5): the port's own by LMC, a multicast LID for the multicast queue
        pair alone, the permissive LID for QP 0 alone.  VL 15 is QP 0's alone, and QP 0 has no other (7.6.3).
        """
        if link.packet_bytes > self.longest_packet_bytes:
            return _DROP_LENGTH
        if link.dlid <= _LAST_UNICAST:
            if not self.owns_lid(link.dlid) or link.dest_qp == _MULTICAST_QPN:
                return _DROP_DESTINATION
        elif link.dlid <= _LAST_MULTICAST:
            if link.dest_qp != _MULTICAST_QPN:
                return _DROP_DESTINATION
        elif link.dest_qp != 0:
            return _DROP_DESTINATION
        if (link.dest_qp == 0) != (link.vl == _MANAGEMENT_LANE):
            return _DROP_LANE
        if link.dest_qp != 0 and (link.slid == 0 or link.slid > _LAST_UNICAST):
            return _DROP_SOURCE
        return 0

    def admit_raw(self, link: LinkView) -> int:
        """The same of a raw packet, by its LRH: on a data lane, to one of the port's own LIDs.

        Raw multicast is not supported.
        """
        if link.packet_bytes > self.longest_packet_bytes:
            return _DROP_LENGTH
        if link.dlid > _LAST_UNICAST or not self.owns_lid(link.dlid):
            return _DROP_DESTINATION
        if link.vl == _MANAGEMENT_LANE:
            return _DROP_LANE
        if link.slid == 0 or link.slid > _LAST_UNICAST:
            return _DROP_SOURCE
        return 0

    def admit_global(self, link: LinkView) -> int:
        """The same by its GRH, whose fields have been checked: the DGID is the port's or a group's.

        A multicast packet always has a GRH, and a subnet management packet never.
        """
        if link.dest_qp == _MULTICAST_QPN:
            if link.destination is None or link.destination[0] != 0xFF:
                return _DROP_LINK_HEADER
            return 0
        if link.destination is None:
            return 0
        if link.dest_qp == 0:
            return _DROP_LINK_HEADER
        return 0 if link.destination in self.gids else _DROP_DESTINATION

    def window_for(self, peer: bytes) -> DestinationWindow:
        """The window towards a peer (``Route.peer``), one for all queue pairs.

        When there are too many, the one used longest ago in which nothing is in flight and nobody waits is
        forgotten here; its users keep theirs.  A busy one never is, so there are at most as many more as
        queue pairs that send.
        """
        window = self.windows.pop(peer, None)
        if window is None:
            if len(self.windows) >= self.config.max_windows:
                self._forget_window()
            overhead = 0
            if self.overhead_for is not None and not self.native:
                overhead = self.overhead_for(peer)
            configured_bytes = self.config.window_bytes
            # only a path that cuts bursts leaves this machine, and can be long
            window = DestinationWindow(
                configured_bytes or DEFAULT_LIMIT_BYTES,
                configured_bytes or DEFAULT_MAXIMUM_BYTES,
                overhead,
                far_maximum_bytes=FAR_MAXIMUM_BYTES if overhead and not configured_bytes else 0,
            )
        self.windows[peer] = window
        return window

    def _forget_window(self) -> None:
        for peer, window in self.windows.items():
            if window.in_flight_bytes == 0 and not window.waiters and window.turn is None:
                del self.windows[peer]
                return

    def bad_pkeys(self) -> int:
        """Packets whose P_Key did not match."""
        return self.counters.drops[_DROP_PKEY]

    def pkey(self, index: int) -> int:
        """The P_Key at ``index`` of the table; 0 (which matches nothing) beyond its end."""
        return self.pkeys[index] if 0 <= index < len(self.pkeys) else 0


def pkeys_match(ours: int, theirs: int) -> bool:
    """Whether two P_Keys name one partition and at least one is a full member (IBTA vol. 1, 10.9.1.2,
    C10-119).
    """
    if (ours ^ theirs) & 0x7FFF or not ours & 0x7FFF:
        return False
    return ((ours | theirs) & 0x8000) != 0


def same_port(route: Route, link: LinkView) -> bool:
    """Whether a native packet came from the port that a connection's route leads to, for the own end of it.

    SLID against the route's DLID, both GIDs against the route's; and a GRH exactly where the route has one
    (IBTA vol. 1, 9.6.1.2 and 9.6.1.5).  A GID with the default prefix is as good as the assigned one.
    """
    if link.slid != route.dlid:
        return False
    if not route.has_grh:
        return link.source is None
    if link.source is None:
        return False
    return same_gid(route.destination, link.source) and same_gid(route.source, link.destination)


def same_gid(ours: bytes, theirs: bytes) -> bool:
    """Whether ``theirs`` is the GID ``ours``, or its GUID with the default prefix."""
    return theirs == ours or (theirs[:8] == _DEFAULT_PREFIX and theirs[8:] == ours[8:])
