"""Multicast groups of a subnet, by MCMemberRecords: who creates, joins and leaves them (IBTA vol. 1,
15.2.5.17).

A group comes with its first full member and goes with its last one.  Whoever joins must be in the group's
partition and reach its MTU and rate.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from softhca.fabric.lids import FIRST_MULTICAST_LID
from softhca.fabric.manager.configuration import PACKET_LIFETIME
from softhca.fabric.manager.inventory import FULL_MEMBER, Inventory, KnownPort
from softhca.fabric.manager.paths import (
    EXACT,
    RATE_CODES,
    Quality,
    RefusedError,
    fit,
    fit_lifetime,
    quality_of,
    rate_place,
)
from softhca.management.administration_attributes import (
    STATUS_INSUFFICIENT_COMPONENTS,
    STATUS_INVALID_GID,
    STATUS_NO_RESOURCES,
    STATUS_REQUEST_INVALID,
    MCMemberRecord,
    PathRecord,
)
from softhca.management.administration_tables import component

FULL, NON_MEMBER, SEND_ONLY = 1, 2, 4
STATES = FULL | NON_MEMBER | SEND_ONLY
MOST_GROUPS = 4096
MOST_MEMBERS = 1 << 17
"""Of all groups together."""
DEFAULT_MTU = 4
"""2,048 bytes: what a group has of which nobody says it."""
DEFAULT_RATE = 3
SITE = 5
OWN_SIGNATURE = b"\xa0\x1b"
"""What GIDs of groups that the manager chooses have behind their scope."""

_BITS = {each.name: component(MCMemberRecord, each.name) for each in MCMemberRecord.LAYOUT}
BOUNDS = sum(
    _BITS[f"{name}{what}"] for name in ("mtu", "rate", "packet_lifetime") for what in ("", "_selector")
)
"""Components that are compared by their selectors."""
_NEEDED = sum(_BITS[name] for name in ("qkey", "traffic_class", "pkey", "sl", "flow_label"))
"""What who creates a group must say."""
_WHO = _BITS["port_gid"] | _BITS["join_state"]
_SAME = ("qkey", "mlid", "traffic_class", "sl", "flow_label", "hop_limit")
"""What who joins a group may say, if it is right."""


@dataclass(slots=True)
class Group:
    """A group: ``facts`` are those of all its records, ``members`` JoinStates by the ports' GUIDs; in
    ``proxied`` are those that another port has let join.
    """

    facts: MCMemberRecord
    members: dict[int, int] = field(default_factory=dict)
    proxied: set[int] = field(default_factory=set)

    def record(self, prefix: bytes, guid: int) -> MCMemberRecord:
        """The membership of a port."""
        gid = prefix + guid.to_bytes(8, "big")
        state = self.members.get(guid, 0)
        return replace(self.facts, port_gid=gid, join_state=state, proxy_join=int(guid in self.proxied))


class Groups:
    """All groups by their GIDs.  ``changed(mlid, members, senders)`` is called when a group has other ports:
    the GUIDs of all, and of those that send only; ``on_change(mgid, is_there)`` when one comes or goes.
    """

    def __init__(
        self,
        changed: Callable[[int, frozenset[int], frozenset[int]], None],
        on_change: Callable[[bytes, bool], None],
        prefix: int,
    ) -> None:
        self.groups: dict[bytes, Group] = {}
        self._by_mlid: dict[int, Group] = {}
        self._changed = changed
        self._on_change = on_change
        self._prefix = prefix.to_bytes(8, "big")
        self._count = 0
        self._next = 1

    # joining

    def join(
        self, wanted: MCMemberRecord, mask: int, requester: KnownPort, inventory: Inventory
    ) -> MCMemberRecord:
        """A port joins a group, which is created where it is not there: the membership; RefusedError."""
        port = self._member(wanted, mask, requester, inventory)
        state = wanted.join_state & STATES
        if not state:
            raise RefusedError(STATUS_REQUEST_INVALID)
        group = self.groups.get(wanted.mgid) if mask & _BITS["mgid"] else None
        created = group is None
        if group is None:
            group = self._create(wanted, mask, port, requester, inventory)
        else:
            _check_speaks(group, port, requester)
            _check_joins(group.facts, wanted, mask, port)
        is_new = port.guid not in group.members
        if is_new and self._count >= MOST_MEMBERS:
            raise RefusedError(STATUS_NO_RESOURCES)
        self._count += is_new
        group.members[port.guid] = group.members.get(port.guid, 0) | state
        if port is not requester:
            group.proxied.add(port.guid)
        else:
            group.proxied.discard(port.guid)
        if created:
            self.groups[group.facts.mgid] = self._by_mlid[group.facts.mlid] = group
        self._write(group)
        if created:
            self._on_change(group.facts.mgid, True)
        return group.record(self._prefix, port.guid)

    def _member(
        self, wanted: MCMemberRecord, mask: int, requester: KnownPort, inventory: Inventory
    ) -> KnownPort:
        """The port that joins or leaves: the requester, or one that it may speak for."""
        if mask & _WHO != _WHO:
            raise RefusedError(STATUS_INSUFFICIENT_COMPONENTS)
        port = inventory.at_gid(wanted.port_gid)
        if port is None or not requester.sees(port):
            raise RefusedError(STATUS_INVALID_GID)
        return port

    def _create(
        self,
        wanted: MCMemberRecord,
        mask: int,
        port: KnownPort,
        requester: KnownPort,
        inventory: Inventory,
    ) -> Group:
        if not wanted.join_state & FULL:
            raise RefusedError(STATUS_REQUEST_INVALID)
        if mask & _NEEDED != _NEEDED:
            raise RefusedError(STATUS_INSUFFICIENT_COMPONENTS)
        if not in_partition(port, wanted.pkey) or not in_partition(requester, wanted.pkey):
            raise RefusedError(STATUS_REQUEST_INVALID)
        mgid = wanted.mgid if mask & _BITS["mgid"] and any(wanted.mgid) else b""
        if mgid and mgid[0] != 0xFF:
            raise RefusedError(STATUS_INVALID_GID)
        mgid = mgid or self._own_mgid(wanted.scope if mask & _BITS["scope"] else SITE)
        best = quality_of(port.info)
        mtu, rate, lifetime = _bounds(wanted, mask, best)
        facts = MCMemberRecord(
            mgid=mgid, qkey=wanted.qkey, mlid=self._free_mlid(inventory), mtu_selector=EXACT, mtu=mtu,
            traffic_class=wanted.traffic_class, pkey=wanted.pkey, rate_selector=EXACT, rate=RATE_CODES[rate],
            packet_lifetime_selector=EXACT, packet_lifetime=lifetime, sl=wanted.sl,
            flow_label=wanted.flow_label, hop_limit=wanted.hop_limit if mask & _BITS["hop_limit"] else 0,
            scope=mgid[1] & 0xF,
        )  # fmt: skip
        return Group(facts)

    def _own_mgid(self, scope: int) -> bytes:
        """A GID that no group has."""
        while True:
            number = self._next.to_bytes(4, "big")
            self._next = self._next % 0xFFFF_FFFF + 1
            mgid = bytes([0xFF, 0x10 | scope]) + OWN_SIGNATURE + self._prefix + number
            if mgid not in self.groups:
                return mgid

    def _free_mlid(self, inventory: Inventory) -> int:
        """The lowest multicast LID that no group has and all switches can forward."""
        most = min(MOST_GROUPS, inventory.multicast_entries)
        for mlid in range(FIRST_MULTICAST_LID, FIRST_MULTICAST_LID + most):
            if mlid not in self._by_mlid:
                return mlid
        raise RefusedError(STATUS_NO_RESOURCES)

    # leaving

    def leave(
        self, wanted: MCMemberRecord, mask: int, requester: KnownPort, inventory: Inventory
    ) -> MCMemberRecord:
        """A port leaves a group as what it says: what it was; RefusedError."""
        port = self._member(wanted, mask, requester, inventory)
        group = self.groups.get(wanted.mgid) if mask & _BITS["mgid"] else None
        before = group.members.get(port.guid, 0) if group is not None else 0
        gone = wanted.join_state & before
        if group is None or not gone:
            raise RefusedError(STATUS_REQUEST_INVALID)
        _check_speaks(group, port, requester)
        left = replace(group.record(self._prefix, port.guid), join_state=gone)
        self._remove(group, port.guid, gone)
        return left

    def _remove(self, group: Group, guid: int, states: int) -> None:
        kept = group.members[guid] & ~states
        if kept:
            group.members[guid] = kept
        else:
            del group.members[guid]
            group.proxied.discard(guid)
            self._count -= 1
        if any(state & FULL for state in group.members.values()):
            self._write(group)
            return
        self._count -= len(group.members)
        group.members.clear()
        del self.groups[group.facts.mgid], self._by_mlid[group.facts.mlid]
        self._changed(group.facts.mlid, frozenset(), frozenset())
        self._on_change(group.facts.mgid, False)

    def forget(self, guids: set[int]) -> None:
        """Ports have gone, and with them all that they are members of."""
        for group in list(self.groups.values()):
            for guid in guids & group.members.keys():
                if guid in group.members:  # the group may have gone with the last one
                    self._remove(group, guid, STATES)

    def _write(self, group: Group) -> None:
        senders = frozenset(guid for guid, state in group.members.items() if state == SEND_ONLY)
        self._changed(group.facts.mlid, frozenset(group.members), senders)

    # what is asked for

    def records(
        self, requester: KnownPort, trusted: bool, wanted: MCMemberRecord, mask: int
    ) -> Iterator[bytes]:
        """MCMemberRecords with MTUs and rates as they are wanted: who is not trusted sees the groups of its
        partitions, and not their members."""
        for group in self.groups.values():
            if not _within(group.facts, wanted, mask):
                continue
            if not trusted:
                if in_partition(requester, group.facts.pkey):
                    yield group.facts.encode()
                continue
            for guid in group.members:
                yield group.record(self._prefix, guid).encode()

    def path(self, wanted: PathRecord, mask: int, by_gid: int) -> PathRecord | None:
        """The path to a group, by its GID or else its LID."""
        group = self.groups.get(wanted.dgid) if mask & by_gid else self._by_mlid.get(wanted.dlid)
        if group is None:
            return None
        facts = group.facts
        return PathRecord(
            dgid=facts.mgid, dlid=facts.mlid, flow_label=facts.flow_label, hop_limit=facts.hop_limit,
            traffic_class=facts.traffic_class, pkey=facts.pkey, sl=facts.sl, mtu_selector=EXACT,
            mtu=facts.mtu, rate_selector=EXACT, rate=facts.rate, packet_lifetime_selector=EXACT,
            packet_lifetime=facts.packet_lifetime,
        )  # fmt: skip


def in_partition(port: KnownPort, pkey: int) -> bool:
    """Whether a port is in a partition, as a full or limited member."""
    return pkey & ~FULL_MEMBER in port.keys


def _bounds(wanted: MCMemberRecord, mask: int, best: Quality) -> tuple[int, int, int]:
    """MTU, place of the rate and lifetime of a new group, which its first member must reach."""
    mtu: int | None = min(DEFAULT_MTU, best.mtu)
    rate: int | None = min(rate_place(DEFAULT_RATE), best.rate)
    lifetime: int | None = PACKET_LIFETIME
    if mask & _BITS["mtu_selector"] and mask & _BITS["mtu"]:
        mtu = fit(wanted.mtu_selector, wanted.mtu, best.mtu, 1)
    if mask & _BITS["rate_selector"] and mask & _BITS["rate"]:
        rate = fit(wanted.rate_selector, rate_place(wanted.rate), best.rate, 0)
    if mask & _BITS["packet_lifetime_selector"] and mask & _BITS["packet_lifetime"]:
        lifetime = fit_lifetime(wanted.packet_lifetime_selector, wanted.packet_lifetime, PACKET_LIFETIME)
    if mtu is None or rate is None or lifetime is None:
        raise RefusedError(STATUS_REQUEST_INVALID)
    return mtu, rate, lifetime


def _check_speaks(group: Group, port: KnownPort, requester: KnownPort) -> None:
    """Nobody else lets a member leave, or join otherwise, that has joined by itself (ProxyJoin, 15.2.5.17);
    RefusedError."""
    if port.guid != requester.guid and port.guid in group.members and port.guid not in group.proxied:
        raise RefusedError(STATUS_REQUEST_INVALID)


def _check_joins(facts: MCMemberRecord, wanted: MCMemberRecord, mask: int, port: KnownPort) -> None:
    """A port can be in a group, and what it says of the group is right; RefusedError otherwise."""
    best = quality_of(port.info)
    right = (
        all(getattr(facts, name) == getattr(wanted, name) for name in _SAME if mask & _BITS[name])
        and (not mask & _BITS["pkey"] or (facts.pkey ^ wanted.pkey) & ~FULL_MEMBER == 0)
        and in_partition(port, facts.pkey)
        and best.mtu >= facts.mtu
        and best.rate >= rate_place(facts.rate)
        and _within(facts, wanted, mask)
    )
    if not right:
        raise RefusedError(STATUS_REQUEST_INVALID)


def _within(facts: MCMemberRecord, wanted: MCMemberRecord, mask: int) -> bool:
    """Whether a group's MTU, rate and lifetime are within what somebody asks for."""
    lifetime = wanted.packet_lifetime
    return (
        _agrees(mask, "mtu", wanted.mtu_selector, wanted.mtu, facts.mtu)
        and _agrees(mask, "rate", wanted.rate_selector, rate_place(wanted.rate), rate_place(facts.rate))
        and _agrees(mask, "packet_lifetime", wanted.packet_lifetime_selector, lifetime, facts.packet_lifetime)
    )


def _agrees(mask: int, name: str, selector: int, wanted: int, value: int) -> bool:
    """Whether a group's value is within what who joins asks for."""
    if not (mask & _BITS[f"{name}_selector"] and mask & _BITS[name]):
        return True
    return (value > wanted, value < wanted, value == wanted, True)[selector]
