"""Link types that are another one in a wrapping: what is inside is read as that.

NULL and LOOP (BSD's and macOS's loopback) are an address family before an IP packet, DLT_RAW has other
numbers on some systems, and ERF (Endace's extensible record format, which ``ibdump`` and taps write) has a
header of its own before a native InfiniBand packet, an Ethernet frame or an IP packet.
"""

from __future__ import annotations

from dataclasses import replace

from softhca.wire.capture_file import (
    LINKTYPE_ETHERNET,
    LINKTYPE_INFINIBAND,
    LINKTYPE_RAW,
    CapturedPacket,
)

LINKTYPE_NULL = 0
LINKTYPE_LOOP = 108
LINKTYPE_ERF = 197
OTHER_RAW = (12, 14)
"""DLT_RAW of OpenBSD and of others, which some programs write into files as it is."""

_FAMILY_BYTES = 4
_ERF_BYTES = 16
_ERF_EXTENSION_BYTES = 8
_MORE = 0x80  # another extension header follows
_ERF_ETHERNET = (2, 11, 16, 20)
_ERF_ETHERNET_PAD_BYTES = 2
_ERF_INFINIBAND = 21
_ERF_IP = (22, 23)


def unwrapped(packet: CapturedPacket) -> CapturedPacket:
    """The packet as one of the link type inside; as it is where it is not wrapped, or cut short."""
    if packet.link_type in OTHER_RAW:
        return replace(packet, link_type=LINKTYPE_RAW)
    if packet.link_type in (LINKTYPE_NULL, LINKTYPE_LOOP):
        return _inside(packet, LINKTYPE_RAW, _FAMILY_BYTES, packet.original_bytes - _FAMILY_BYTES)
    if packet.link_type == LINKTYPE_ERF:
        return _unwrapped_erf(packet)
    return packet


def _unwrapped_erf(packet: CapturedPacket) -> CapturedPacket:
    data, start = packet.data, _ERF_BYTES
    if len(data) < start:
        return packet
    kind, more = data[8] & ~_MORE, data[8] & _MORE
    while more:
        if len(data) < start + _ERF_EXTENSION_BYTES:
            return packet
        more = data[start] & _MORE
        start += _ERF_EXTENSION_BYTES
    on_wire = int.from_bytes(data[14:16], "big")
    if kind == _ERF_INFINIBAND:
        return _inside(packet, LINKTYPE_INFINIBAND, start, on_wire)
    if kind in _ERF_ETHERNET:
        return _inside(packet, LINKTYPE_ETHERNET, start + _ERF_ETHERNET_PAD_BYTES, on_wire)
    if kind in _ERF_IP:
        return _inside(packet, LINKTYPE_RAW, start, on_wire)
    return packet


def _inside(packet: CapturedPacket, link_type: int, start: int, on_wire: int) -> CapturedPacket:
    """From byte ``start`` on, at most ``on_wire`` bytes: what is behind them is a record's padding."""
    if len(packet.data) < start:
        return packet
    data = packet.data[start : start + max(on_wire, 0)]
    return replace(packet, link_type=link_type, data=data, original_bytes=max(on_wire, len(data)))
