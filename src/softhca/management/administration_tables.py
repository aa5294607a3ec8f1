"""Records of subnet administration that hold a block of a table (IBTA vol. 1, 15.2.5), and where the
components of all records stand.

Component n of a record, which bit n of the component mask stands for, is a range of the record's bits
(`COMPONENTS`): so a record is compared with what is wanted in one step (`mask_of`).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

from softhca.management import administration_attributes as a
from softhca.management.attributes import PortInfo
from softhca.management.subnet_attributes import SMInfo, SwitchInfo
from softhca.wire.layout import Field, Header

ATTRIBUTE_SL_TO_VL_RECORD = 0x0013
ATTRIBUTE_LINEAR_FORWARDING_RECORD = 0x0015
ATTRIBUTE_MULTICAST_FORWARDING_RECORD = 0x0017
ATTRIBUTE_GUID_INFO_RECORD = 0x0030
ATTRIBUTE_PKEY_TABLE_RECORD = 0x0033
ATTRIBUTE_VL_ARBITRATION_RECORD = 0x0036
ATTRIBUTE_INFORM_INFO_RECORD = 0x00F3
BLOCK_BYTES = 64


@dataclass(frozen=True, slots=True)
class SlToVlRecord(Header):
    """A port's SL-to-VL table, by the port of entrance (15.2.5.4)."""

    LENGTH_BYTES: ClassVar[int] = 16
    LAYOUT: ClassVar[tuple[Field, ...]] = (
        Field("lid", 16),
        Field("input_port", 8),
        Field("output_port", 8),
        Field("reserved32", 32),
        Field("table", 64, True),
    )

    lid: int = 0
    input_port: int = 0
    output_port: int = 0
    reserved32: int = 0
    table: bytes = bytes(8)


@dataclass(frozen=True, slots=True)
class LinearForwardingRecord(Header):
    """64 entries of a switch's linear forwarding table (15.2.5.6)."""

    LENGTH_BYTES: ClassVar[int] = 72
    LAYOUT: ClassVar[tuple[Field, ...]] = (
        Field("lid", 16),
        Field("block", 16),
        Field("reserved32", 32),
        Field("table", 8 * BLOCK_BYTES, True),
    )

    lid: int = 0
    block: int = 0
    reserved32: int = 0
    table: bytes = bytes(BLOCK_BYTES)


@dataclass(frozen=True, slots=True)
class MulticastForwardingRecord(Header):
    """32 entries of a switch's multicast forwarding table, for 16 ports from 16 × ``position`` (15.2.5.8)."""

    LENGTH_BYTES: ClassVar[int] = 72
    LAYOUT: ClassVar[tuple[Field, ...]] = (
        Field("lid", 16),
        Field("position", 4),
        Field("reserved3", 3),
        Field("block", 9),
        Field("reserved32", 32),
        Field("table", 8 * BLOCK_BYTES, True),
    )

    lid: int = 0
    position: int = 0
    reserved3: int = 0
    block: int = 0
    reserved32: int = 0
    table: bytes = bytes(BLOCK_BYTES)


@dataclass(frozen=True, slots=True)
class GuidInfoRecord(Header):
    """Eight GUIDs of a port (15.2.5.18)."""

    LENGTH_BYTES: ClassVar[int] = 72
    LAYOUT: ClassVar[tuple[Field, ...]] = (
        Field("lid", 16),
        Field("block", 8),
        Field("reserved8", 8),
        Field("reserved32", 32),
        Field("table", 8 * BLOCK_BYTES, True),
    )

    lid: int = 0
    block: int = 0
    reserved8: int = 0
    reserved32: int = 0
    table: bytes = bytes(BLOCK_BYTES)


@dataclass(frozen=True, slots=True)
class PKeyTableRecord(Header):
    """32 P_Keys of a port (15.2.5.11)."""

    LENGTH_BYTES: ClassVar[int] = 72
    LAYOUT: ClassVar[tuple[Field, ...]] = (
        Field("lid", 16),
        Field("block", 16),
        Field("port", 8),
        Field("reserved24", 24),
        Field("table", 8 * BLOCK_BYTES, True),
    )

    lid: int = 0
    block: int = 0
    port: int = 0
    reserved24: int = 0
    table: bytes = bytes(BLOCK_BYTES)


@dataclass(frozen=True, slots=True)
class VlArbitrationRecord(Header):
    """A block of a port's arbitration table: 1 and 2 of low, 3 and 4 of high priority (15.2.5.9)."""

    LENGTH_BYTES: ClassVar[int] = 72
    LAYOUT: ClassVar[tuple[Field, ...]] = (
        Field("lid", 16),
        Field("output_port", 8),
        Field("block", 8),
        Field("reserved32", 32),
        Field("table", 8 * BLOCK_BYTES, True),
    )

    lid: int = 0
    output_port: int = 0
    block: int = 0
    reserved32: int = 0
    table: bytes = bytes(BLOCK_BYTES)


@dataclass(frozen=True, slots=True)
class InformInfoRecord(Header):
    """A subscription: the subscriber's GID, a number, and its InformInfo as bytes (15.2.5.12)."""

    LENGTH_BYTES: ClassVar[int] = 60
    LAYOUT: ClassVar[tuple[Field, ...]] = (
        Field("subscriber_gid", 128, True),
        Field("enumeration", 16),
        Field("reserved48", 48),
        Field("inform_info", 8 * a.InformInfo.LENGTH_BYTES, True),
    )

    subscriber_gid: bytes = bytes(16)
    enumeration: int = 0
    reserved48: int = 0
    inform_info: bytes = bytes(a.InformInfo.LENGTH_BYTES)


RECORDS: dict[int, type[Header]] = {
    a.ATTRIBUTE_NODE_RECORD: a.NodeRecord,
    a.ATTRIBUTE_PORT_INFO_RECORD: a.PortInfoRecord,
    ATTRIBUTE_SL_TO_VL_RECORD: SlToVlRecord,
    a.ATTRIBUTE_SWITCH_INFO_RECORD: a.SwitchInfoRecord,
    ATTRIBUTE_LINEAR_FORWARDING_RECORD: LinearForwardingRecord,
    ATTRIBUTE_MULTICAST_FORWARDING_RECORD: MulticastForwardingRecord,
    a.ATTRIBUTE_SM_INFO_RECORD: a.SMInfoRecord,
    a.ATTRIBUTE_LINK_RECORD: a.LinkRecord,
    ATTRIBUTE_GUID_INFO_RECORD: GuidInfoRecord,
    a.ATTRIBUTE_SERVICE_RECORD: a.ServiceRecord,
    ATTRIBUTE_PKEY_TABLE_RECORD: PKeyTableRecord,
    a.ATTRIBUTE_PATH_RECORD: a.PathRecord,
    ATTRIBUTE_VL_ARBITRATION_RECORD: VlArbitrationRecord,
    a.ATTRIBUTE_MC_MEMBER_RECORD: a.MCMemberRecord,
    a.ATTRIBUTE_MULTI_PATH_RECORD: a.MultiPathRecord,
    ATTRIBUTE_INFORM_INFO_RECORD: InformInfoRecord,
}
"""Records by their attribute."""


def _widths(record: type[Header]) -> list[int]:
    return [field.bits for field in record.LAYOUT]


_REREGISTER = [field.name for field in PortInfo.LAYOUT].index("client_reregister")
_PORT_INFO = _widths(PortInfo)
_PORT_INFO[_REREGISTER : _REREGISTER + 2] = [sum(_PORT_INFO[_REREGISTER : _REREGISTER + 2])]

PORT_CAPABILITIES = 3 + [field.name for field in PortInfo.LAYOUT].index("capability_mask")
"""The component of a PortInfoRecord that is its CapabilityMask."""

COMPONENTS: dict[int, tuple[int, ...]] = {
    attribute: tuple(_widths(record)) for attribute, record in RECORDS.items()
} | {
    # attributes in them have a component for each field; two flags of PortInfo are one component
    a.ATTRIBUTE_PORT_INFO_RECORD: (16, 8, 8, *_PORT_INFO),
    a.ATTRIBUTE_SWITCH_INFO_RECORD: (16, 16, *_widths(SwitchInfo)),
    a.ATTRIBUTE_SM_INFO_RECORD: (16, 16, *_widths(SMInfo)),
    ATTRIBUTE_GUID_INFO_RECORD: (16, 8, 8, 32, *[64] * 8),
    a.ATTRIBUTE_SERVICE_RECORD: (64, 128, 16, 16, 32, 128, 512, *[8] * 16, *[16] * 8, *[32] * 4, 64, 64),
}  # fmt: skip
"""How many bits each component of a record has, in their order."""


@lru_cache(maxsize=1024)
def mask_of(attribute: int, component_mask: int) -> int:
    """The bits of a record, as one integer, that a component mask names."""
    found = 0
    widths = COMPONENTS[attribute]
    left = 8 * RECORDS[attribute].LENGTH_BYTES
    for number, width in enumerate(widths):
        left -= width
        if component_mask >> number & 1:
            found |= ((1 << width) - 1) << left
    return found


def component(record: type[Header], name: str) -> int:
    """The bit of the component mask that stands for a field of a record of `RECORDS`."""
    return 1 << [field.name for field in record.LAYOUT].index(name)
