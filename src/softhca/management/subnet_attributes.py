"""What switches and subnet managers have besides ports: SwitchInfo, SMInfo, Notice, LedInfo (IBTA vol. 1,
14.2.5, 13.4.8.2), and the tables that come in blocks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from softhca.management import constants as c
from softhca.wire.errors import WireError
from softhca.wire.layout import Field, Header, Octets


@dataclass(frozen=True, slots=True)
class SwitchInfo(Header):
    """What a switch can forward, and how its manager has configured it (14.2.5.4).  ``lifetime``: a packet
    stays 4.096 µs × 2^lifetime at most; ``port_state_change``: a port's state changed since it was cleared.
    """

    LENGTH_BYTES: ClassVar[int] = 20
    LAYOUT: ClassVar[tuple[Field, ...]] = (
        Field("linear_fdb_cap", 16),
        Field("random_fdb_cap", 16),
        Field("multicast_fdb_cap", 16),
        Field("linear_fdb_top", 16),
        Field("default_port", 8),
        Field("default_multicast_primary_port", 8),
        Field("default_multicast_not_primary_port", 8),
        Field("lifetime", 5),
        Field("port_state_change", 1),
        Field("optimized_sl_to_vl", 2),
        Field("lids_per_port", 16),
        Field("partition_enforcement_cap", 16),
        Field("inbound_enforcement_cap", 1),
        Field("outbound_enforcement_cap", 1),
        Field("filter_raw_inbound_cap", 1),
        Field("filter_raw_outbound_cap", 1),
        Field("enhanced_port_zero", 1),
        Field("reserved11", 11),
        Field("multicast_fdb_top", 16),
    )

    linear_fdb_cap: int = 0
    random_fdb_cap: int = 0
    multicast_fdb_cap: int = 0
    linear_fdb_top: int = 0
    default_port: int = 0
    default_multicast_primary_port: int = 0
    default_multicast_not_primary_port: int = 0
    lifetime: int = 0
    port_state_change: int = 0
    optimized_sl_to_vl: int = 0
    lids_per_port: int = 0
    partition_enforcement_cap: int = 0
    inbound_enforcement_cap: int = 0
    outbound_enforcement_cap: int = 0
    filter_raw_inbound_cap: int = 0
    filter_raw_outbound_cap: int = 0
    enhanced_port_zero: int = 0
    reserved11: int = 0
    multicast_fdb_top: int = 0


@dataclass(frozen=True, slots=True)
class SMInfo(Header):
    """A subnet manager: its port, key, how often it has acted, priority and state (14.2.5.13)."""

    LENGTH_BYTES: ClassVar[int] = 21
    LAYOUT: ClassVar[tuple[Field, ...]] = (
        Field("guid", 64),
        Field("sm_key", 64),
        Field("act_count", 32),
        Field("priority", 4),
        Field("sm_state", 4),
    )

    guid: int = 0
    sm_key: int = 0
    act_count: int = 0
    priority: int = 0
    sm_state: int = 0


NOTICE_URGENT, NOTICE_SECURITY, NOTICE_SUBNET, NOTICE_INFO = 0x01, 0x02, 0x03, 0x04
"""Types of generic notices (13.4.8.2)."""
TRAP_LINK_STATE = 128
TRAP_CAPABILITY = 144
TRAP_BAD_M_KEY = 256
"""Numbers of traps (14.2.5.1)."""


@dataclass(frozen=True, slots=True)
class Notice(Header):
    """What a trap tells (13.4.8.2), as subnet management has it; subnet administration's has the issuer's
    GID behind it.  ``producer_type`` and ``trap_number`` are those of a generic notice.
    """

    LENGTH_BYTES: ClassVar[int] = 64
    LAYOUT: ClassVar[tuple[Field, ...]] = (
        Field("is_generic", 1),
        Field("type", 7),
        Field("producer_type", 24),
        Field("trap_number", 16),
        Field("issuer_lid", 16),
        Field("notice_toggle", 1),
        Field("notice_count", 15),
        Field("data_details", 432, True),
    )

    is_generic: int = 1
    type: int = 0
    producer_type: int = 0
    trap_number: int = 0
    issuer_lid: int = 0
    notice_toggle: int = 0
    notice_count: int = 0
    data_details: bytes = bytes(54)


@dataclass(frozen=True, slots=True)
class LinkStateDetails(Header):
    """DataDetails of trap 128: the switch of which a port's link changed its state."""

    LENGTH_BYTES: ClassVar[int] = 54
    LAYOUT: ClassVar[tuple[Field, ...]] = (Field("lid", 16), Field("padding", 416, True))

    lid: int = 0
    padding: bytes = bytes(52)


@dataclass(frozen=True, slots=True)
class CapabilityDetails(Header):
    """DataDetails of trap 144: a port whose CapabilityMask changed."""

    LENGTH_BYTES: ClassVar[int] = 54
    LAYOUT: ClassVar[tuple[Field, ...]] = (
        Field("reserved16", 16),
        Field("lid", 16),
        Field("reserved8", 8),
        Field("other_changes", 8),
        Field("capability_mask", 32),
        Field("change_flags", 16),
        Field("padding", 336, True),
    )

    reserved16: int = 0
    lid: int = 0
    reserved8: int = 0
    other_changes: int = 0
    capability_mask: int = 0
    change_flags: int = 0
    padding: bytes = bytes(42)


DR_PATH_BYTES = 30


@dataclass(frozen=True, slots=True)
class BadMKeyDetails(Header):
    """DataDetails of trap 256: a packet that came with a wrong M_Key, and its way where that was a directed
    route.
    """

    LENGTH_BYTES: ClassVar[int] = 54
    LAYOUT: ClassVar[tuple[Field, ...]] = (
        Field("reserved16", 16),
        Field("lid", 16),
        Field("dr_slid", 16),
        Field("method", 8),
        Field("reserved8", 8),
        Field("attribute_id", 16),
        Field("attribute_modifier", 32),
        Field("m_key", 64),
        Field("dr_notice", 1),
        Field("dr_path_truncated", 1),
        Field("dr_hop_count", 6),
        Field("dr_return_path", 240, True),
        Field("padding", 8),
    )

    reserved16: int = 0
    lid: int = 0
    dr_slid: int = 0
    method: int = 0
    reserved8: int = 0
    attribute_id: int = 0
    attribute_modifier: int = 0
    m_key: int = 0
    dr_notice: int = 0
    dr_path_truncated: int = 0
    dr_hop_count: int = 0
    dr_return_path: bytes = bytes(DR_PATH_BYTES)
    padding: int = 0


@dataclass(frozen=True, slots=True)
class LedInfo(Header):
    """Whether a port's LED shows where it is (14.2.5.15)."""

    LENGTH_BYTES: ClassVar[int] = 4
    LAYOUT: ClassVar[tuple[Field, ...]] = (Field("led_mask", 1), Field("reserved31", 31))

    led_mask: int = 0
    reserved31: int = 0


class Table(NamedTuple):
    """A table that is read and written in blocks of 64 bytes: how many ``entries`` of ``bits`` a block has.
    What a block does not fill is zero.
    """

    entries: int
    bits: int

    def decode(self, data: Octets) -> tuple[int, ...]:
        """A block's entries; WireError when it is cut short."""
        length = self.entries * self.bits // 8
        if len(data) < length:
            raise WireError(f"a block has {length} bytes, not {len(data)}")
        whole = int.from_bytes(data[:length], "big")
        mask = (1 << self.bits) - 1
        return tuple(whole >> at & mask for at in range((self.entries - 1) * self.bits, -1, -self.bits))

    def encode(self, values: Sequence[int]) -> bytes:
        """The block; WireError for another number of entries, or one that does not fit."""
        if len(values) != self.entries:
            raise WireError(f"a block has {self.entries} entries, not {len(values)}")
        whole = 0
        for value in values:
            if value < 0 or value >> self.bits:
                raise WireError(f"{value} does not fit {self.bits} bits")
            whole = whole << self.bits | value
        return whole.to_bytes(self.entries * self.bits // 8, "big")


TABLES: dict[int, Table] = {
    c.ATTRIBUTE_GUID_INFO: Table(8, 64),
    c.ATTRIBUTE_PKEY_TABLE: Table(32, 16),
    c.ATTRIBUTE_SL_TO_VL_TABLE: Table(16, 4),
    c.ATTRIBUTE_VL_ARBITRATION: Table(32, 16),  # lane in the low half of the first byte, weight
    c.ATTRIBUTE_LINEAR_FORWARDING: Table(64, 8),
    c.ATTRIBUTE_MULTICAST_FORWARDING: Table(32, 16),
}
"""The blocks of the attributes that are tables (14.2.5.5, 14.2.5.7 to 14.2.5.12)."""
