"""Paths between ports, as PathRecords (IBTA vol. 1, 15.2.5.16): what routes, links and partitions allow, and
of that what a request wants.

MTUs and rates of a path are those of its narrowest link; a request that wants less gets less, one that wants
more gets no path.  A path is reversible where the way back has the same service level.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from softhca.fabric.graph import NO_SWITCH
from softhca.fabric.manager.configuration import PACKET_LIFETIME
from softhca.fabric.manager.discovery import link_rate
from softhca.fabric.manager.inventory import FULL_MEMBER, Inventory, KnownPort
from softhca.fabric.manager.packets import PORT
from softhca.fabric.routing_engine import RoutingError
from softhca.fabric.topology import LinkSpeed
from softhca.management.administration_attributes import (
    MULTI_PATH_GIDS,
    STATUS_INSUFFICIENT_COMPONENTS,
    STATUS_INVALID_GID,
    STATUS_NO_RECORDS,
    STATUS_REQUEST_INVALID,
    MultiPathRecord,
    PathRecord,
)
from softhca.management.administration_tables import component

GREATER, LESS, EXACT, BEST = range(4)
"""Selectors: of what a value is a bound."""
MOST_KNOWN = 1 << 16
LIFETIME_LAST = 63
MULTICAST_FIRST = 0xC000

RATES: tuple[tuple[float, int], ...] = (
    (2.5, 2), (5, 5), (10, 3), (14, 11), (20, 6), (25, 15), (28, 19), (30, 4), (40, 7), (50, 20), (56, 12),
    (60, 8), (80, 9), (100, 16), (112, 13), (120, 10), (168, 14), (200, 17), (300, 18), (400, 21), (600, 22),
    (800, 23), (1200, 24), (1600, 25),
)  # fmt: skip
"""Rates in Gb/s and their codes in records, from the slowest."""
RATE_CODES = tuple(code for _, code in RATES)
_LANES_GBPS = {
    LinkSpeed.SDR: 2.5, LinkSpeed.DDR: 5.0, LinkSpeed.QDR: 10.0, LinkSpeed.FDR: 14.0, LinkSpeed.EDR: 25.0,
    LinkSpeed.HDR: 50.0, LinkSpeed.NDR: 100.0, LinkSpeed.XDR: 200.0,
}  # fmt: skip

_BITS = {field.name: component(PathRecord, field.name) for field in PathRecord.LAYOUT}
_MULTI_BITS = {
    field.name: component(MultiPathRecord, field.name)
    for field in MultiPathRecord.LAYOUT
    if not field.name.startswith("reserved")
}


class RefusedError(Exception):
    """A query that cannot be answered; ``status`` says why."""

    def __init__(self, status: int) -> None:
        super().__init__(f"status {status:#06x}")
        self.status = status


class Quality(NamedTuple):
    """What all links of a way have: the MTU's code and the rate's place in `RATES`."""

    mtu: int
    rate: int

    def through(self, other: Quality) -> Quality:
        """This way, and another behind it."""
        return Quality(min(self.mtu, other.mtu), min(self.rate, other.rate))


def rate_place(code: int) -> int:
    """A rate's place in `RATES` by its code in records; −1: there is no such rate."""
    return RATE_CODES.index(code) if code in RATE_CODES else -1


def quality_of(info: bytes) -> Quality:
    """What the link of a port is good for, by its PortInfo."""
    width, speed = link_rate(info)
    gbps = int(width) * _LANES_GBPS[speed]
    place = max((at for at, (rate, _) in enumerate(RATES) if rate <= gbps), default=0)
    return Quality(PORT.get(info, "neighbor_mtu"), place)


def fit(selector: int, wanted: int, best: int, lowest: int) -> int | None:
    """The value that a path gets of which ``best`` is possible and everything down to ``lowest``."""
    if selector == GREATER:
        return best if best > wanted else None
    if selector == LESS:
        found = min(best, wanted - 1)
        return found if found >= lowest else None
    if selector == EXACT:
        return wanted if lowest <= wanted <= best else None
    return best


def fit_lifetime(selector: int, wanted: int, least: int) -> int | None:
    """The packet lifetime that a path gets: ``least``, or longer where that is wanted."""
    if selector == GREATER:
        found = max(least, wanted + 1)
        return found if found <= LIFETIME_LAST else None
    if selector == LESS:
        return least if least < wanted else None
    if selector == EXACT:
        return wanted if wanted >= least else None
    return least


class Paths:
    """The paths of one `Inventory`.  ``group_path(record)`` gives the path to a multicast group, None where
    there is no such group."""

    def __init__(
        self, inventory: Inventory, group_path: Callable[[PathRecord, int], PathRecord | None]
    ) -> None:
        self._inventory = inventory
        self._group_path = group_path
        self._routes = inventory.routes
        self._levels = inventory.routes.routing.service_levels()
        self._ways: dict[tuple[int, int], Quality | None] = {}
        self._links: dict[tuple[int, int], Quality] = {}
        self._guids = [inventory.fabric.guids[node] for node in self._routes.graph.switches.tolist()]

    def records(self, wanted: PathRecord, mask: int, requester: KnownPort, single: bool) -> Iterator[bytes]:
        """The records that a request is for; RefusedError where its ends cannot be.  ``single``: one is
        enough.  What is skipped is given as b"", so that the caller can count the work."""
        to_group = (mask & _BITS["dgid"] and wanted.dgid[0] == 0xFF) or (
            mask & _BITS["dlid"] and wanted.dlid >= MULTICAST_FIRST
        )
        sources = self._ends(wanted.sgid, wanted.slid, mask & _BITS["sgid"], mask & _BITS["slid"])
        if to_group:
            yield self._to_group(wanted, mask, sources[0] if len(sources) == 1 else requester, requester)
            return
        goals = self._ends(wanted.dgid, wanted.dlid, mask & _BITS["dgid"], mask & _BITS["dlid"])
        most = 1 if single else wanted.num_path if mask & _BITS["num_path"] else LIFETIME_LAST * 1000
        for source in sources:
            for goal in goals:
                left = most
                visible = requester.sees(source) and requester.sees(goal)
                for slid, dlid in self._lids(source, goal, wanted, mask) if visible else ():
                    if not left:
                        break
                    found = self._path(source, slid, goal, dlid, wanted, mask)
                    if found is not None:
                        left -= 1
                        yield found
                yield b""

    def _to_group(self, wanted: PathRecord, mask: int, source: KnownPort, requester: KnownPort) -> bytes:
        """The record of the path to a group: for who sees the source, and is in the group's partition as the
        source is, and as it is wanted."""
        found = self._group_path(wanted, mask)
        if found is None or not requester.sees(source):
            raise RefusedError(STATUS_NO_RECORDS)
        base = found.pkey & ~FULL_MEMBER
        if base not in source.keys or base not in requester.keys:
            raise RefusedError(STATUS_NO_RECORDS)
        is_wanted = all(
            getattr(found, name) == getattr(wanted, name) for name in _GROUP_SAME if mask & _BITS[name]
        ) and not (mask & _BITS["pkey"] and (wanted.pkey ^ found.pkey) & ~FULL_MEMBER)
        if not is_wanted:
            raise RefusedError(STATUS_NO_RECORDS)
        lid = wanted.slid if mask & _BITS["slid"] else source.lid
        values = {name: getattr(found, name) for name in _GROUP_FIELDS}
        return PathRecord(**values, sgid=source.gid, slid=lid).encode()

    def _ends(self, gid: bytes, lid: int, by_gid: int, by_lid: int) -> Sequence[KnownPort]:
        """The ports that one end of a request names: one, or all."""
        if not by_gid and not by_lid:
            return self._inventory.ports
        named = self._inventory.at_gid(gid) if by_gid else None
        if by_gid and named is None:
            raise RefusedError(STATUS_INVALID_GID)
        at_lid = self._inventory.at_lid(lid) if by_lid else named
        if at_lid is None:
            raise RefusedError(STATUS_NO_RECORDS)
        if named is not None and named is not at_lid:
            raise RefusedError(STATUS_REQUEST_INVALID)
        return (at_lid,)

    @staticmethod
    def _lids(source: KnownPort, goal: KnownPort, wanted: PathRecord, mask: int) -> Iterator[tuple[int, int]]:
        """Pairs of LIDs of two ports, those of the same number first."""
        slids = [wanted.slid] if mask & _BITS["slid"] else range(source.lid, source.lid + (1 << source.lmc))
        dlids = [wanted.dlid] if mask & _BITS["dlid"] else range(goal.lid, goal.lid + (1 << goal.lmc))
        for step in range(len(dlids)):
            for place, slid in enumerate(slids):
                yield slid, dlids[(place + step) % len(dlids)]

    def _path(
        self, source: KnownPort, slid: int, goal: KnownPort, dlid: int, wanted: PathRecord, mask: int
    ) -> bytes | None:
        """The record of one path; None: there is none, or not as it is wanted."""
        there, back = self._quality(source, goal, dlid), self._quality(goal, source, slid)
        if there is None:
            return None
        level = self._level(source, goal)
        reversible = back is not None and self._level(goal, source) == level
        key = source.shared_key(goal, wanted.pkey if mask & _BITS["pkey"] else None)
        refused = (
            key is None
            or (mask & _BITS["reversible"] and wanted.reversible and not reversible)
            or (mask & _BITS["sl"] and self._levels is not None and wanted.sl != level)
        )
        if refused:
            return None
        mtu: int | None = there.mtu
        rate: int | None = there.rate
        least = 0 if source is goal else PACKET_LIFETIME
        lifetime: int | None = least
        if _selected(mask, "mtu", wanted.mtu_selector):
            mtu = fit(wanted.mtu_selector, wanted.mtu, there.mtu, 1)
        if _selected(mask, "rate", wanted.rate_selector):
            rate = fit(wanted.rate_selector, rate_place(wanted.rate), there.rate, 0)
        if _selected(mask, "packet_lifetime", wanted.packet_lifetime_selector):
            lifetime = fit_lifetime(wanted.packet_lifetime_selector, wanted.packet_lifetime, least)
        if mtu is None or rate is None or lifetime is None:
            return None
        assert key is not None
        return PathRecord(
            dgid=wanted.dgid if mask & _BITS["dgid"] else goal.gid,
            sgid=wanted.sgid if mask & _BITS["sgid"] else source.gid,
            dlid=dlid, slid=slid, reversible=int(reversible), pkey=key,
            sl=wanted.sl if mask & _BITS["sl"] else level, mtu_selector=EXACT, mtu=mtu, rate_selector=EXACT,
            rate=RATE_CODES[rate], packet_lifetime_selector=EXACT, packet_lifetime=lifetime,
            flow_label=wanted.flow_label if mask & _BITS["flow_label"] else 0,
            hop_limit=wanted.hop_limit if mask & _BITS["hop_limit"] else 0,
            traffic_class=wanted.traffic_class if mask & _BITS["traffic_class"] else 0,
        ).encode()  # fmt: skip

    def _level(self, source: KnownPort, goal: KnownPort) -> int:
        if self._levels is None or NO_SWITCH in (source.switch, goal.switch):
            return 0
        return int(self._levels[source.switch, goal.switch])

    def _quality(self, source: KnownPort, goal: KnownPort, dlid: int) -> Quality | None:
        """What a way from a port to a LID of another is good for; None: there is no way."""
        first = quality_of(source.info)
        if source is goal:
            return first
        if source.switch == NO_SWITCH:
            ends = source.node.peers.get(source.number)
            return first if ends == (goal.node_guid, goal.number) else None
        key = source.switch, dlid
        if key not in self._ways:
            if len(self._ways) >= MOST_KNOWN:
                self._ways.clear()
            self._ways[key] = self._way(*key)
        way = self._ways[key]
        if way is None or source.node.is_switch:
            return way
        return first.through(way)

    def _way(self, switch: int, lid: int) -> Quality | None:
        try:
            hops = self._routes.way(switch, lid)
        except RoutingError:
            return None
        found = Quality(5, len(RATES) - 1)
        for number, port in hops:
            if not port:
                break  # the switch itself
            found = found.through(self._link(self._guids[number], port))
        return found

    def _link(self, guid: int, port: int) -> Quality:
        known = self._links.get((guid, port))
        if known is None:
            info = self._inventory.fabric.nodes[guid].ports.get(port)
            known = self._links[guid, port] = quality_of(info) if info is not None else Quality(1, 0)
        return known


def of_multi(wanted: MultiPathRecord, mask: int) -> tuple[list[tuple[bytes, bytes]], PathRecord, int]:
    """The pairs of GIDs that a question for many paths is about, and what each path shall be, as a PathRecord
    and its component mask.  RefusedError: the question cannot be."""
    for name in ("sgid_count", "dgid_count"):
        if not mask & _MULTI_BITS[name]:
            raise RefusedError(STATUS_INSUFFICIENT_COMPONENTS)
    sources, goals = wanted.sgid_count, wanted.dgid_count
    if not sources or not goals or sources + goals > MULTI_PATH_GIDS:
        raise RefusedError(STATUS_REQUEST_INVALID)
    if mask & _MULTI_BITS["independence_selector"] and wanted.independence_selector:
        raise RefusedError(STATUS_REQUEST_INVALID)  # paths without a link in common are not looked for
    gids = [wanted.gids[at : at + 16] for at in range(0, 16 * (sources + goals), 16)]
    bits = _BITS["sgid"] | _BITS["dgid"]
    for name in _MULTI_BITS.keys() & _BITS.keys():
        bits |= _BITS[name] if mask & _MULTI_BITS[name] else 0
    each = PathRecord(**{name: getattr(wanted, name) for name in _MULTI_BITS.keys() & _BITS.keys()})
    return [(one, other) for one in gids[:sources] for other in gids[sources:]], each, bits


_GROUP_FIELDS = (
    "dgid", "dlid", "flow_label", "hop_limit", "traffic_class", "pkey", "sl", "mtu_selector", "mtu",
    "rate_selector", "rate", "packet_lifetime_selector", "packet_lifetime",
)  # fmt: skip
_GROUP_SAME = ("dgid", "dlid", "flow_label", "hop_limit", "traffic_class", "sl")
"""What a path to a group has as it is wanted, or is not told."""


def _selected(mask: int, name: str, selector: int) -> bool:
    """Whether a request bounds a value: it names the selector, and the value where that is one."""
    if not mask & _BITS[f"{name}_selector"]:
        return False
    return selector == BEST or bool(mask & _BITS[name])
