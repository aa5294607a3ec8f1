"""Attributes of device management (IBTA vol. 1, 16.3.3): what an I/O unit and its I/O controllers are.

An *I/O unit* (IOU) has slots, numbered from 1; an *I/O controller* (IOC) sits in a slot and offers services,
each of which has a name and the service ID that connections are asked for with.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from softhca.wire.layout import Field, Header, Octets

ATTRIBUTE_IO_UNIT_INFO = 0x0010
ATTRIBUTE_IO_CONTROLLER_PROFILE = 0x0011
ATTRIBUTE_SERVICE_ENTRIES = 0x0012

STATUS_NO_IOC = 0x0100
"""Of the class (16.3.1.1): there is no controller in that slot."""

# what a slot holds, 4 bits of IOUnitInfo's list
SLOT_EMPTY = 0x0
SLOT_PRESENT = 0x1
SLOT_ABSENT = 0xF

MOST_SLOTS = 255
CONTROLLER_LIST_BYTES = 128

# IOControllerProfile ``operations``
SENDS_TO_IOC = 1 << 0
SENDS_FROM_IOC = 1 << 1
READS_FROM_IOC = 1 << 3
WRITES_FROM_IOC = 1 << 5

SERVICES_A_MAD = 4
SERVICE_NAME_BYTES = 40


@dataclass(frozen=True, slots=True)
class IoUnitInfo(Header):
    """How many slots a unit has and what is in them; ``change_id`` is another number after each change."""

    LENGTH_BYTES: ClassVar[int] = 132
    LAYOUT: ClassVar[tuple[Field, ...]] = (
        Field("change_id", 16),
        Field("max_controllers", 8),
        Field("reserved6", 6),
        Field("diag_device_id", 1),
        Field("option_rom", 1),
        Field("controller_list", CONTROLLER_LIST_BYTES * 8, True),
    )

    change_id: int = 0
    max_controllers: int = 0
    reserved6: int = 0
    diag_device_id: int = 0
    option_rom: int = 0
    controller_list: bytes = bytes(CONTROLLER_LIST_BYTES)

    def slot(self, number: int) -> int:
        """What slot 1 … ``max_controllers`` holds: `SLOT_EMPTY`, `SLOT_PRESENT`; else `SLOT_ABSENT`."""
        if not 1 <= number <= self.max_controllers:
            return SLOT_ABSENT
        pair = self.controller_list[(number - 1) // 2]
        return pair >> 4 if number & 1 else pair & 0xF

    @classmethod
    def of(cls, change_id: int, slots: list[bool]) -> IoUnitInfo:
        """That of a unit whose slots, from 1 on, have a controller or have none."""
        if len(slots) > MOST_SLOTS:
            raise ValueError(f"an I/O unit has {MOST_SLOTS} slots at most")
        codes = [SLOT_PRESENT if present else SLOT_EMPTY for present in slots]
        codes += [SLOT_ABSENT] * (2 * CONTROLLER_LIST_BYTES - len(codes))
        pairs = bytes(high << 4 | low for high, low in zip(codes[::2], codes[1::2], strict=True))
        return cls(change_id=change_id, max_controllers=len(slots), controller_list=pairs)


@dataclass(frozen=True, slots=True)
class IoControllerProfile(Header):
    """What a controller is: maker, kind and protocol, how much it takes at once, how many services it has."""

    LENGTH_BYTES: ClassVar[int] = 128
    LAYOUT: ClassVar[tuple[Field, ...]] = (
        Field("guid", 64),
        Field("vendor_id", 24),
        Field("reserved8", 8),
        Field("device_id", 32),
        Field("device_version", 16),
        Field("reserved16", 16),
        Field("subsystem_vendor_id", 24),
        Field("reserved8b", 8),
        Field("subsystem_id", 32),
        Field("io_class", 16),
        Field("io_subclass", 16),
        Field("protocol", 16),
        Field("protocol_version", 16),
        Field("service_connections", 16),
        Field("initiators_supported", 16),
        Field("send_queue_depth", 16),
        Field("reserved8c", 8),
        Field("rdma_read_depth", 8),
        Field("send_bytes", 32),
        Field("rdma_bytes", 32),
        Field("operations", 8),
        Field("services", 8),
        Field("service_entries", 8),
        Field("reserved72", 72, True),
        Field("id_string", 512, True),
    )

    guid: int = 0
    vendor_id: int = 0
    reserved8: int = 0
    device_id: int = 0
    device_version: int = 0
    reserved16: int = 0
    subsystem_vendor_id: int = 0
    reserved8b: int = 0
    subsystem_id: int = 0
    io_class: int = 0
    io_subclass: int = 0
    protocol: int = 0
    protocol_version: int = 0
    service_connections: int = 0
    initiators_supported: int = 0
    send_queue_depth: int = 0
    reserved8c: int = 0
    rdma_read_depth: int = 0
    send_bytes: int = 0
    rdma_bytes: int = 0
    operations: int = 0
    services: int = 0
    service_entries: int = 0
    reserved72: bytes = bytes(9)
    id_string: bytes = bytes(64)

    @property
    def name(self) -> str:
        """The ID string as text, up to its first zero."""
        return text_of(self.id_string)


@dataclass(frozen=True, slots=True)
class ServiceEntry(Header):
    """One service of a controller: its name and its service ID."""

    LENGTH_BYTES: ClassVar[int] = 48
    LAYOUT: ClassVar[tuple[Field, ...]] = (
        Field("service_name", SERVICE_NAME_BYTES * 8, True),
        Field("service_id", 64),
    )

    service_name: bytes = bytes(SERVICE_NAME_BYTES)
    service_id: int = 0

    @classmethod
    def named(cls, name: str, service_id: int) -> ServiceEntry:
        """An entry by its name in ASCII; ValueError where that is no name of 40 bytes at most."""
        data = name.encode("ascii")
        if not 0 < len(data) <= SERVICE_NAME_BYTES:
            raise ValueError(f"a service's name has 1…{SERVICE_NAME_BYTES} bytes")
        return cls(data.ljust(SERVICE_NAME_BYTES, b"\0"), service_id)

    @property
    def name(self) -> str:
        """The name as text, up to its first zero."""
        return text_of(self.service_name)


def service_modifier(slot: int, first: int, last: int) -> int:
    """The attribute modifier of ServiceEntries: those from ``first`` to ``last`` of the controller in
    ``slot``."""
    return slot << 16 | last << 8 | first


def service_entries(data: Octets, count: int) -> list[ServiceEntry]:
    """The first ``count`` (0 … 4) entries of the attribute ServiceEntries."""
    size = ServiceEntry.LENGTH_BYTES
    return [ServiceEntry.decode(data, number * size) for number in range(min(count, SERVICES_A_MAD))]


def text_of(data: bytes) -> str:
    """Text of a peer, up to its first zero; what is not printable ASCII becomes ``?``."""
    kept = data.split(b"\0", 1)[0]
    return "".join(chr(each) if 32 <= each < 127 else "?" for each in kept)
