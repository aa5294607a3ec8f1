"""GUIDs that ports have beside their own (alias GUIDs): GUIDInfoRecords that are set and deleted (IBTA
vol. 1, 15.2.5.18).

A port's table is written at its node; the answer tells what stands there then.  The first GUID is the port's
own and stays.  A GUID of 0 that is set asks for one that nobody has.
"""

from __future__ import annotations

from collections.abc import Iterator

from softhca.fabric.manager.inventory import Inventory, KnownPort
from softhca.fabric.manager.packets import PORT
from softhca.fabric.manager.paths import RefusedError
from softhca.management import administration_tables as t
from softhca.management.administration_attributes import (
    STATUS_DENIED,
    STATUS_INSUFFICIENT_COMPONENTS,
    STATUS_NO_RECORDS,
    STATUS_NO_RESOURCES,
    STATUS_REQUEST_INVALID,
)

GUIDS_A_BLOCK = 8
GUID_BYTES = 8
FIRST_COMPONENT = 4
"""Bit of the component mask that stands for the first GUID of the block."""
MOST_ALIASES = 1 << 16
ASSIGNED = 0x0215 << 48
"""GUIDs that the manager makes are behind this one: locally administered ones."""


class Aliases:
    """Of all ports, by the GUID of each: which alias stands at which place of its table."""

    def __init__(self) -> None:
        self._tables: dict[int, dict[int, int]] = {}
        self._owners: dict[int, int] = {}
        self._next = 1

    def owner(self, alias: int) -> int | None:
        """The port GUID of who has an alias."""
        return self._owners.get(alias)

    def of(self, guid: int) -> list[int]:
        """The aliases of a port."""
        return list(self._tables.get(guid, {}).values())

    def block(self, guid: int, block: int) -> bytes:
        """A block of a port's table, as it is written; the port's own GUID is not in it."""
        table = self._tables.get(guid, {})
        first = block * GUIDS_A_BLOCK
        places = range(first, first + GUIDS_A_BLOCK)
        return b"".join(table.get(place, 0).to_bytes(GUID_BYTES, "big") for place in places)

    def blocks(self, guid: int) -> Iterator[int]:
        """The blocks of a port's table in which there is an alias."""
        return iter(sorted({place // GUIDS_A_BLOCK for place in self._tables.get(guid, ())}))

    def place(
        self, wanted: t.GuidInfoRecord, mask: int, requester: KnownPort, trusted: bool, inventory: Inventory
    ) -> KnownPort:
        """The port that a record is about.  RefusedError: it cannot be, or is another's whom the requester,
        who is not trusted, may not change."""
        needed = t.component(t.GuidInfoRecord, "lid") | t.component(t.GuidInfoRecord, "block")
        if mask & needed != needed:
            raise RefusedError(STATUS_INSUFFICIENT_COMPONENTS)
        port = inventory.at_lid(wanted.lid)
        if port is None or not (trusted or requester.sees(port)):
            raise RefusedError(STATUS_NO_RECORDS)
        if port is not requester and not trusted:
            raise RefusedError(STATUS_DENIED)
        if wanted.block * GUIDS_A_BLOCK >= PORT.get(port.info, "guid_cap"):
            raise RefusedError(STATUS_NO_RECORDS)
        if not wanted.block and mask >> FIRST_COMPONENT & 1:
            raise RefusedError(STATUS_REQUEST_INVALID)  # the port's own GUID
        return port

    def put(self, wanted: t.GuidInfoRecord, mask: int, port: KnownPort, inventory: Inventory) -> None:
        """Give a port the GUIDs that the mask names; one that somebody has already is not given.
        RefusedError: there would be too many, and all is as it was."""
        table = dict(self._tables.get(port.guid, {}))
        unused, self._tables[port.guid] = self._next, table
        before = dict(table)
        for place, asked in _named(wanted, mask, PORT.get(port.info, "guid_cap")):
            guid = asked or self._unused(inventory)
            if table.get(place) == guid:
                continue
            if guid in self._owners or guid in inventory.by_guid:
                self._drop(table, place)
                continue
            if len(self._owners) - (place in table) >= MOST_ALIASES:
                self._restore(port.guid, before, unused)
                raise RefusedError(STATUS_NO_RESOURCES)
            self._drop(table, place)
            table[place] = guid
            self._owners[guid] = port.guid

    def _restore(self, guid: int, before: dict[int, int], unused: int) -> None:
        """A port has what it had before."""
        for alias in self._tables[guid].values():
            del self._owners[alias]
        self._tables[guid] = before
        self._owners.update((alias, guid) for alias in before.values())
        self._next = unused

    def remove(self, wanted: t.GuidInfoRecord, mask: int, port: KnownPort) -> None:
        """Take the GUIDs at the places that the mask names from a port."""
        table = self._tables.get(port.guid, {})
        for place, _ in _named(wanted, mask, PORT.get(port.info, "guid_cap")):
            self._drop(table, place)

    def _drop(self, table: dict[int, int], place: int) -> None:
        self._owners.pop(table.pop(place, 0), None)

    def _unused(self, inventory: Inventory) -> int:
        while (guid := ASSIGNED | self._next) in self._owners or guid in inventory.by_guid:
            self._next += 1
        self._next += 1
        return guid


def _named(wanted: t.GuidInfoRecord, mask: int, cap: int) -> Iterator[tuple[int, int]]:
    """Place in the port's table and GUID of each that a component mask names."""
    for number in range(GUIDS_A_BLOCK):
        place = wanted.block * GUIDS_A_BLOCK + number
        if mask >> (FIRST_COMPONENT + number) & 1 and place < cap:
            data = wanted.table[number * GUID_BYTES : (number + 1) * GUID_BYTES]
            yield place, int.from_bytes(data, "big")
