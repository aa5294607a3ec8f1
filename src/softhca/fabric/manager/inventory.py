"""What a manager knows after a sweep, as records of subnet administration (IBTA vol. 1, 15.2.5).

An `Inventory` belongs to one `Fabric`; it has no records of paths (`paths.py`), groups (`membership.py`) and
registrations (`registrations.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from softhca.fabric.manager.configuration import LINEAR_BLOCK, PKEY_BLOCK, Shadow
from softhca.fabric.manager.discovery import FoundNode
from softhca.fabric.routing import NO_ROUTE, Routes
from softhca.management import administration_tables as t
from softhca.management import constants as c
from softhca.management.administration_attributes import (
    LinkRecord,
    PortInfoRecord,
    SMInfoRecord,
    SwitchInfoRecord,
)
from softhca.management.attributes import NodeInfo, node_description
from softhca.management.subnet_attributes import SMInfo

if TYPE_CHECKING:
    from softhca.fabric.manager.manager import Fabric

FULL_MEMBER = 0x8000
M_KEY_BYTES = 8
MOST_ENTRIES = 0x3FFF
"""Multicast LIDs that there are."""


@dataclass(frozen=True, slots=True, eq=False)
class KnownPort:
    """A port that has LIDs: 2^``lmc`` from ``lid`` on.  ``switch`` is the number of the switch that it hangs
    on, `NO_SWITCH` where that is none; ``keys`` are its P_Keys by their lower 15 bits.
    """

    guid: int
    gid: bytes
    lid: int
    lmc: int
    node: FoundNode
    node_guid: int
    number: int
    switch: int
    keys: dict[int, int]

    @property
    def info(self) -> bytes:
        """Its PortInfo."""
        return self.node.ports[self.number]

    def sees(self, other: KnownPort) -> bool:
        """Whether it may know of another port: it is that port, or in a partition with it."""
        return other is self or self.shared_key(other) is not None

    def shared_key(self, other: KnownPort, wanted: int | None = None) -> int | None:
        """A P_Key by which it can send to another port: both are in that partition, one of them as a full
        member (10.9.3); with the membership that it has itself.  None: there is none.
        """
        for base, key in self.keys.items():
            there = other.keys.get(base)
            if there is None or not (key | there) & FULL_MEMBER:
                continue
            if wanted is None or wanted & ~FULL_MEMBER == base:
                return key
        return None


class Inventory:
    """The ports of a fabric, and its records.  ``shadow`` is what the manager has written into tables,
    ``alias_owner`` gives the GUID of the port that has another one beside it."""

    def __init__(
        self,
        fabric: Fabric,
        prefix: int,
        keys_of: Callable[[int], list[int]],
        shadow: Shadow,
        alias_owner: Callable[[int], int | None] = lambda guid: None,
    ) -> None:
        assert fabric.routes is not None
        self.fabric = fabric
        self.routes: Routes = fabric.routes
        self._shadow = shadow
        self._alias_owner = alias_owner
        self._prefix = prefix.to_bytes(8, "big")
        self._known_keys: dict[tuple[int, ...], dict[int, int]] = {}
        self.ports: list[KnownPort] = []
        self._by_owner: dict[int, KnownPort] = {}
        graph, lids = self.routes.graph, self.routes.lids
        ends = graph.endpoints
        rows = zip(
            ends.node.tolist(), ends.port.tolist(), ends.switch.tolist(), lids.base.tolist(),
            lids.lmc.tolist(), strict=True,
        )  # fmt: skip
        for place, (index, number, switch, lid, lmc) in enumerate(rows):
            node_guid = fabric.guids[index]
            node = fabric.nodes[node_guid]
            if number not in node.ports or number not in node.port_guids:
                continue
            guid = node.port_guids[number]
            port = KnownPort(
                guid, self.gid(guid), lid, lmc, node, node_guid, number, switch, self._keys(keys_of(guid))
            )
            self.ports.append(port)
            self._by_owner[place] = port
        self.by_guid = {port.guid: port for port in self.ports}
        self._by_end = {(port.node_guid, port.number): port for port in self.ports}

    def _keys(self, keys: list[int]) -> dict[int, int]:
        """P_Keys by their lower bits; ports with the same ones share them."""
        found = self._known_keys.get(tuple(keys))
        if found is None:
            found = self._known_keys[tuple(keys)] = {key & ~FULL_MEMBER: key for key in keys}
        return found

    @property
    def multicast_entries(self) -> int:
        """How many multicast LIDs all switches can forward."""
        switches = [node.switch for node in self.fabric.nodes.values() if node.switch is not None]
        return min((info.multicast_fdb_cap for info in switches), default=MOST_ENTRIES)

    def gid(self, guid: int) -> bytes:
        """The GID of a port's GUID."""
        return self._prefix + guid.to_bytes(8, "big")

    def at_lid(self, lid: int) -> KnownPort | None:
        """The port that has a LID."""
        lids = self.routes.lids
        owner = int(lids.owner[lid]) if 0 < lid <= lids.top else -1
        return self._by_owner.get(owner)

    def at_gid(self, gid: bytes) -> KnownPort | None:
        """The port that has a GID of this subnet, its own or an alias."""
        if gid[:8] != self._prefix:
            return None
        guid = int.from_bytes(gid[8:], "big")
        return self.by_guid.get(guid) or self.by_guid.get(self._alias_owner(guid) or 0)

    def of_node(self, node_guid: int, number: int) -> KnownPort | None:
        """The port with LIDs that stands for a port of a node: a switch's are all its port 0."""
        node = self.fabric.nodes.get(node_guid)
        return self._by_end.get((node_guid, 0 if node is not None and node.is_switch else number))

    # records: of one port, or of all

    def node_records(self, ports: Iterable[KnownPort]) -> Iterator[bytes]:
        """NodeRecords."""
        for port in ports:
            info = bytearray(port.node.info.encode())
            info[_PORT_GUID_AT : _PORT_GUID_AT + 8] = port.guid.to_bytes(8, "big")
            info[_LOCAL_PORT_AT] = port.number
            text = node_description(port.node.description)
            yield port.lid.to_bytes(2, "big") + b"\0\0" + bytes(info) + text

    def port_info_records(self, ports: Iterable[KnownPort], trusted: bool) -> Iterator[bytes]:
        """PortInfoRecords, of switches' external ports too; who is not trusted does not see M_Keys."""
        for port in ports:
            numbers = sorted(port.node.ports) if port.node.is_switch else [port.number]
            for number in numbers:
                data = port.node.ports[number]
                shown = data if trusted else bytes(M_KEY_BYTES) + data[M_KEY_BYTES:]
                yield PortInfoRecord(port.lid, number, 0, shown).encode()

    def switch_info_records(self, ports: Iterable[KnownPort]) -> Iterator[bytes]:
        """SwitchInfoRecords."""
        for port in ports:
            if port.node.switch is not None:
                yield SwitchInfoRecord(port.lid, 0, port.node.switch.encode()).encode()

    def link_records(self, ports: Iterable[KnownPort]) -> Iterator[bytes]:
        """LinkRecords: each link from both its ends."""
        for port in ports:
            peers = port.node.peers
            for number in sorted(peers) if port.node.is_switch else [port.number]:
                peer = self.of_node(*peers[number]) if number in peers else None
                if peer is not None:
                    yield LinkRecord(port.lid, number, peers[number][1], peer.lid).encode()

    def linear_records(self, ports: Iterable[KnownPort]) -> Iterator[bytes]:
        """The linear forwarding tables as they are written."""
        blocks = self.routes.lids.top // LINEAR_BLOCK + 1
        for port in ports:
            if not port.node.is_switch:
                continue
            row = np.full(blocks * LINEAR_BLOCK, NO_ROUTE, np.uint8)
            row[: self.routes.lids.top + 1] = self.routes.tables[port.switch]
            data = row.tobytes()
            for block in range(blocks):
                part = data[block * LINEAR_BLOCK : (block + 1) * LINEAR_BLOCK]
                yield t.LinearForwardingRecord(port.lid, block, 0, part).encode()

    def multicast_records(self, ports: Iterable[KnownPort]) -> Iterator[bytes]:
        """The blocks of multicast forwarding tables that have been written and are not empty."""
        by_guid: dict[int, list[tuple[int, bytes]]] = {}
        for (guid, attribute, modifier), data in self._shadow.items():
            if attribute == c.ATTRIBUTE_MULTICAST_FORWARDING and any(data):
                by_guid.setdefault(guid, []).append((modifier, data))
        for port in ports:
            for modifier, data in sorted(by_guid.get(port.node_guid, ())):
                place = modifier >> 28, 0, modifier & 0x1FF
                yield t.MulticastForwardingRecord(port.lid, *place, 0, data).encode()

    def pkey_records(self, ports: Iterable[KnownPort]) -> Iterator[bytes]:
        """P_Key tables of ports with LIDs."""
        for port in ports:
            keys = list(port.keys.values())
            for block in range(max(1, -(-len(keys) // PKEY_BLOCK))):
                part = keys[block * PKEY_BLOCK : (block + 1) * PKEY_BLOCK]
                data = b"".join(key.to_bytes(2, "big") for key in part).ljust(t.BLOCK_BYTES, b"\0")
                yield t.PKeyTableRecord(port.lid, block, port.number, 0, data).encode()

    def manager_records(self, managers: Iterable[SMInfo], trusted: bool) -> Iterator[bytes]:
        """SMInfoRecords of managers; who is not trusted does not see their keys."""
        for info in managers:
            port = self.by_guid.get(info.guid)
            if port is not None:
                key = info.sm_key if trusted else 0
                said = SMInfo(info.guid, key, info.act_count, info.priority, info.sm_state)
                yield SMInfoRecord(port.lid, 0, said.encode()).encode()


def _place_of(name: str) -> int:
    bits = 0
    for field in NodeInfo.LAYOUT:
        if field.name == name:
            return bits // 8
        bits += field.bits
    raise AssertionError(name)


_PORT_GUID_AT = _place_of("port_guid")
_LOCAL_PORT_AT = _place_of("local_port_num")
