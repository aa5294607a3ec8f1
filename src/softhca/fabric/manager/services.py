"""ServiceRecords: what ports say that they offer, for as long as they say (IBTA vol. 1, 15.2.5.14)."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

from softhca.fabric.manager.inventory import Inventory, KnownPort
from softhca.fabric.manager.membership import in_partition
from softhca.fabric.manager.paths import RefusedError
from softhca.fabric.manager.requests import NEVER_NS
from softhca.management.address_queries import SERVICE_ID, SERVICE_NAME, service_data
from softhca.management.administration_attributes import (
    STATUS_DENIED,
    STATUS_INSUFFICIENT_COMPONENTS,
    STATUS_INVALID_GID,
    STATUS_NO_RECORDS,
    STATUS_NO_RESOURCES,
    STATUS_REQUEST_INVALID,
    ServiceRecord,
)
from softhca.management.administration_tables import component

MOST_SERVICES = 8192
MOST_OF_A_PORT = 1024
"""That a port has registered, for whomever."""
FOR_EVER = 0xFFFF_FFFF
SECOND_NS = 1_000_000_000
DEFAULT_PKEY = 0xFFFF
NO_KEY = bytes(16)

_BITS = {each.name: component(ServiceRecord, each.name) for each in ServiceRecord.LAYOUT[:7]}
_RID = ("service_id", "service_gid", "service_pkey")

Name = tuple[int, bytes, int]


class Services:
    """All that are registered, by service ID, GID and P_Key."""

    def __init__(self) -> None:
        self._records: dict[Name, ServiceRecord] = {}
        self._ends_ns: dict[Name, int] = {}
        self._owners: dict[Name, int] = {}  # the GUIDs of the ports that have registered them
        self._of_port: Counter[int] = Counter()
        self.next_deadline_ns = NEVER_NS

    def __len__(self) -> int:
        return len(self._records)

    def register(
        self, wanted: ServiceRecord, mask: int, requester: KnownPort, inventory: Inventory, now: int
    ) -> ServiceRecord:
        """A service is offered from now on, or for longer: its record; RefusedError."""
        record = self._named(wanted, mask, requester, inventory)
        name = _name(record)
        before = self._records.get(name)
        if before is not None and before.key not in (NO_KEY, record.key):
            raise RefusedError(STATUS_DENIED)
        if before is None:
            full = self._of_port[requester.guid] >= MOST_OF_A_PORT
            if full or len(self._records) >= MOST_SERVICES:
                raise RefusedError(STATUS_NO_RESOURCES)
            self._owners[name] = requester.guid
            self._of_port[requester.guid] += 1
        self._records[name] = record
        self._ends_ns[name] = NEVER_NS if record.lease == FOR_EVER else now + record.lease * SECOND_NS
        self._plan()
        return record

    def register_address(self, port: KnownPort, address: bytes, inventory: Inventory, now: int) -> None:
        """As the port's host would register it; where that is refused there is no such record."""
        mask = sum(_BITS[each] for each in _RID)
        with contextlib.suppress(RefusedError):
            self.register(address_record(port, address), mask, port, inventory, now)

    def withdraw(
        self, wanted: ServiceRecord, mask: int, requester: KnownPort, inventory: Inventory
    ) -> ServiceRecord:
        """A service is offered no more: its record; RefusedError."""
        record = self._named(wanted, mask, requester, inventory)
        found = self._records.get(_name(record))
        if found is None:
            raise RefusedError(STATUS_NO_RECORDS)
        if found.key not in (NO_KEY, record.key):
            raise RefusedError(STATUS_DENIED)
        self._remove(_name(record))
        self._plan()
        return found

    def _named(
        self, wanted: ServiceRecord, mask: int, requester: KnownPort, inventory: Inventory
    ) -> ServiceRecord:
        """The record that a request is about, with what it leaves out."""
        if not mask & _BITS["service_id"] or not mask & _BITS["service_gid"]:
            raise RefusedError(STATUS_INSUFFICIENT_COMPONENTS)
        port = inventory.at_gid(wanted.service_gid)
        if port is None or not requester.sees(port):
            raise RefusedError(STATUS_INVALID_GID)
        pkey = wanted.service_pkey if mask & _BITS["service_pkey"] else DEFAULT_PKEY
        if not in_partition(port, pkey):
            raise RefusedError(STATUS_REQUEST_INVALID)
        return replace(
            wanted,
            service_pkey=pkey,
            reserved16=0,
            lease=wanted.lease if mask & _BITS["lease"] else FOR_EVER,
            key=wanted.key if mask & _BITS["key"] else NO_KEY,
        )

    def records(self, requester: KnownPort, trusted: bool, now: int) -> Iterator[bytes]:
        """Those of the requester's partitions, with what is left of their leases; who is not trusted does
        not see their keys."""
        for name, record in self._records.items():
            if not trusted and not in_partition(requester, record.service_pkey):
                continue
            end_ns = self._ends_ns[name]
            left = FOR_EVER if end_ns == NEVER_NS else max(0, end_ns - now) // SECOND_NS
            yield replace(record, lease=left, key=record.key if trusted else NO_KEY).encode()

    def expire(self, now: int) -> None:
        """Leases end."""
        if now >= self.next_deadline_ns:
            for name in [name for name, end_ns in self._ends_ns.items() if end_ns <= now]:
                self._remove(name)
            self._plan()

    def _remove(self, name: Name) -> None:
        del self._records[name], self._ends_ns[name]
        owner = self._owners.pop(name)
        self._of_port[owner] -= 1
        if not self._of_port[owner]:
            del self._of_port[owner]

    def _plan(self) -> None:
        self.next_deadline_ns = min(self._ends_ns.values(), default=NEVER_NS)


def address_record(port: KnownPort, address: bytes) -> ServiceRecord:
    """That ``port`` has an IP address, in the form of a GID: in the default partition where it is in it."""
    keys = port.keys.values()
    key = DEFAULT_PKEY if DEFAULT_PKEY in keys else next(iter(keys), DEFAULT_PKEY)
    data = service_data(address).ljust(64, b"\0")
    return ServiceRecord(
        SERVICE_ID, port.gid, key, lease=FOR_EVER, name=SERVICE_NAME.ljust(64, b"\0"), data=data
    )


def _name(record: ServiceRecord) -> Name:
    return record.service_id, record.service_gid, record.service_pkey
