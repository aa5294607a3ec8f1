"""Attributes of performance management: counters of a port (IBTA vol. 1, 16.1.3.5, 16.1.4).

A set clears the counters whose bits ``counter_select`` has; ``port_select`` 255 means all ports at once.
Data are counted in units of four bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from softhca.wire.layout import Field, Header

ALL_PORTS = 0xFF

CAPABILITY_ALL_PORTS = 1 << 8
CAPABILITY_EXTENDED = 1 << 9
CAPABILITY_XMIT_WAIT = 1 << 12
"""Of a performance manager's ClassPortInfo: 255 is answered; PortCountersExtended; PortXmitWait."""


@dataclass(frozen=True, slots=True)
class PortCounters(Header):
    """Errors and traffic of a port; a counter that is full stays so."""

    LENGTH_BYTES: ClassVar[int] = 44
    LAYOUT: ClassVar[tuple[Field, ...]] = (
        Field("reserved8", 8),
        Field("port_select", 8),
        Field("counter_select", 16),
        Field("symbol_error", 16),
        Field("link_error_recovery", 8),
        Field("link_downed", 8),
        Field("rcv_errors", 16),
        Field("rcv_remote_physical_errors", 16),
        Field("rcv_switch_relay_errors", 16),
        Field("xmit_discards", 16),
        Field("xmit_constraint_errors", 8),
        Field("rcv_constraint_errors", 8),
        Field("counter_select2", 8),
        Field("local_link_integrity_errors", 4),
        Field("excessive_buffer_overruns", 4),
        Field("qp1_dropped", 16),
        Field("vl15_dropped", 16),
        Field("xmit_data", 32),
        Field("rcv_data", 32),
        Field("xmit_pkts", 32),
        Field("rcv_pkts", 32),
        Field("xmit_wait", 32),
    )

    reserved8: int = 0
    port_select: int = 0
    counter_select: int = 0
    symbol_error: int = 0
    link_error_recovery: int = 0
    link_downed: int = 0
    rcv_errors: int = 0
    rcv_remote_physical_errors: int = 0
    rcv_switch_relay_errors: int = 0
    xmit_discards: int = 0
    xmit_constraint_errors: int = 0
    rcv_constraint_errors: int = 0
    counter_select2: int = 0
    local_link_integrity_errors: int = 0
    excessive_buffer_overruns: int = 0
    qp1_dropped: int = 0
    vl15_dropped: int = 0
    xmit_data: int = 0
    rcv_data: int = 0
    xmit_pkts: int = 0
    rcv_pkts: int = 0
    xmit_wait: int = 0


SELECT: tuple[str, ...] = (
    "symbol_error",
    "link_error_recovery",
    "link_downed",
    "rcv_errors",
    "rcv_remote_physical_errors",
    "rcv_switch_relay_errors",
    "xmit_discards",
    "xmit_constraint_errors",
    "rcv_constraint_errors",
    "local_link_integrity_errors",
    "excessive_buffer_overruns",
    "vl15_dropped",
    "xmit_data",
    "rcv_data",
    "xmit_pkts",
    "rcv_pkts",
)
"""Which counter each bit of PortCounters' ``counter_select`` stands for, from the lowest; the lowest bit of
``counter_select2`` is ``xmit_wait``, the next one ``qp1_dropped``.
"""


@dataclass(frozen=True, slots=True)
class PortCountersExtended(Header):
    """Traffic of a port in 64 bits."""

    LENGTH_BYTES: ClassVar[int] = 72
    LAYOUT: ClassVar[tuple[Field, ...]] = (
        Field("reserved8", 8),
        Field("port_select", 8),
        Field("counter_select", 16),
        Field("reserved32", 32),
        Field("xmit_data", 64),
        Field("rcv_data", 64),
        Field("xmit_pkts", 64),
        Field("rcv_pkts", 64),
        Field("unicast_xmit_pkts", 64),
        Field("unicast_rcv_pkts", 64),
        Field("multicast_xmit_pkts", 64),
        Field("multicast_rcv_pkts", 64),
    )

    reserved8: int = 0
    port_select: int = 0
    counter_select: int = 0
    reserved32: int = 0
    xmit_data: int = 0
    rcv_data: int = 0
    xmit_pkts: int = 0
    rcv_pkts: int = 0
    unicast_xmit_pkts: int = 0
    unicast_rcv_pkts: int = 0
    multicast_xmit_pkts: int = 0
    multicast_rcv_pkts: int = 0


@dataclass(frozen=True, slots=True)
class PortRcvErrorDetails(Header):
    """Why packets that came in were no good: the parts of ``rcv_errors``."""

    LENGTH_BYTES: ClassVar[int] = 16
    LAYOUT: ClassVar[tuple[Field, ...]] = (
        Field("reserved8", 8),
        Field("port_select", 8),
        Field("counter_select", 16),
        Field("local_physical_errors", 16),
        Field("malformed_packet_errors", 16),
        Field("buffer_overrun_errors", 16),
        Field("dlid_mapping_errors", 16),
        Field("vl_mapping_errors", 16),
        Field("looping_errors", 16),
    )

    reserved8: int = 0
    port_select: int = 0
    counter_select: int = 0
    local_physical_errors: int = 0
    malformed_packet_errors: int = 0
    buffer_overrun_errors: int = 0
    dlid_mapping_errors: int = 0
    vl_mapping_errors: int = 0
    looping_errors: int = 0


@dataclass(frozen=True, slots=True)
class PortXmitDiscardDetails(Header):
    """Why packets did not go out: the parts of ``xmit_discards``."""

    LENGTH_BYTES: ClassVar[int] = 12
    LAYOUT: ClassVar[tuple[Field, ...]] = (
        Field("reserved8", 8),
        Field("port_select", 8),
        Field("counter_select", 16),
        Field("inactive_discards", 16),
        Field("neighbor_mtu_discards", 16),
        Field("sw_lifetime_limit_discards", 16),
        Field("sw_hoq_lifetime_limit_discards", 16),
    )

    reserved8: int = 0
    port_select: int = 0
    counter_select: int = 0
    inactive_discards: int = 0
    neighbor_mtu_discards: int = 0
    sw_lifetime_limit_discards: int = 0
    sw_hoq_lifetime_limit_discards: int = 0


@dataclass(frozen=True, slots=True)
class PortXmitDataSL(Header):
    """What was sent of each service level, in words of 4 bytes."""

    LENGTH_BYTES: ClassVar[int] = 68
    LAYOUT: ClassVar[tuple[Field, ...]] = (
        Field("reserved8", 8),
        Field("port_select", 8),
        Field("counter_select", 16),
        Field("xmit_data_sl0", 32),
        Field("xmit_data_sl1", 32),
        Field("xmit_data_sl2", 32),
        Field("xmit_data_sl3", 32),
        Field("xmit_data_sl4", 32),
        Field("xmit_data_sl5", 32),
        Field("xmit_data_sl6", 32),
        Field("xmit_data_sl7", 32),
        Field("xmit_data_sl8", 32),
        Field("xmit_data_sl9", 32),
        Field("xmit_data_sl10", 32),
        Field("xmit_data_sl11", 32),
        Field("xmit_data_sl12", 32),
        Field("xmit_data_sl13", 32),
        Field("xmit_data_sl14", 32),
        Field("xmit_data_sl15", 32),
    )

    reserved8: int = 0
    port_select: int = 0
    counter_select: int = 0
    xmit_data_sl0: int = 0
    xmit_data_sl1: int = 0
    xmit_data_sl2: int = 0
    xmit_data_sl3: int = 0
    xmit_data_sl4: int = 0
    xmit_data_sl5: int = 0
    xmit_data_sl6: int = 0
    xmit_data_sl7: int = 0
    xmit_data_sl8: int = 0
    xmit_data_sl9: int = 0
    xmit_data_sl10: int = 0
    xmit_data_sl11: int = 0
    xmit_data_sl12: int = 0
    xmit_data_sl13: int = 0
    xmit_data_sl14: int = 0
    xmit_data_sl15: int = 0


@dataclass(frozen=True, slots=True)
class PortRcvDataSL(Header):
    """What was received of each service level, in words of 4 bytes."""

    LENGTH_BYTES: ClassVar[int] = 68
    LAYOUT: ClassVar[tuple[Field, ...]] = (
        Field("reserved8", 8),
        Field("port_select", 8),
        Field("counter_select", 16),
        Field("rcv_data_sl0", 32),
        Field("rcv_data_sl1", 32),
        Field("rcv_data_sl2", 32),
        Field("rcv_data_sl3", 32),
        Field("rcv_data_sl4", 32),
        Field("rcv_data_sl5", 32),
        Field("rcv_data_sl6", 32),
        Field("rcv_data_sl7", 32),
        Field("rcv_data_sl8", 32),
        Field("rcv_data_sl9", 32),
        Field("rcv_data_sl10", 32),
        Field("rcv_data_sl11", 32),
        Field("rcv_data_sl12", 32),
        Field("rcv_data_sl13", 32),
        Field("rcv_data_sl14", 32),
        Field("rcv_data_sl15", 32),
    )

    reserved8: int = 0
    port_select: int = 0
    counter_select: int = 0
    rcv_data_sl0: int = 0
    rcv_data_sl1: int = 0
    rcv_data_sl2: int = 0
    rcv_data_sl3: int = 0
    rcv_data_sl4: int = 0
    rcv_data_sl5: int = 0
    rcv_data_sl6: int = 0
    rcv_data_sl7: int = 0
    rcv_data_sl8: int = 0
    rcv_data_sl9: int = 0
    rcv_data_sl10: int = 0
    rcv_data_sl11: int = 0
    rcv_data_sl12: int = 0
    rcv_data_sl13: int = 0
    rcv_data_sl14: int = 0
    rcv_data_sl15: int = 0


_NO_ERRORS = frozenset({
    "port_select", "counter_select", "counter_select2", "reserved8",
    "xmit_data", "rcv_data", "xmit_pkts", "rcv_pkts",
})  # fmt: skip
ERRORS = frozenset(
    field.name
    for layout in (PortCounters, PortRcvErrorDetails, PortXmitDiscardDetails)
    for field in layout.LAYOUT
    if field.name not in _NO_ERRORS
)
"""The counters of errors, by their names."""
