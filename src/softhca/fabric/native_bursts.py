"""Bursts of native packets as a fabric sees them: what of each packet's headers leads it, and nothing else.

Every byte is hostile: a packet whose lengths do not fit is no packet.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from softhca.wire import vcrc
from softhca.wire.grh import LENGTH_BYTES as GRH_BYTES
from softhca.wire.lrh import LENGTH_BYTES as LRH_BYTES
from softhca.wire.lrh import LNH_GLOBAL, LNH_LOCAL, LONGEST_HEADERS_BYTES

VCRC_BYTES = vcrc.LENGTH_BYTES
LEAST_BYTES = LRH_BYTES + 12 + VCRC_BYTES
"""A raw packet is no shorter; those with a BTH have an ICRC besides."""
LEAST_TRANSPORT_BYTES = 16
MOST_BYTES = 4096 + LONGEST_HEADERS_BYTES + VCRC_BYTES
MOST_BURST_BYTES = 65_536
_PKEY = slice(2, 4)
_DEST_QP = slice(5, 8)
_MANAGEMENT_QPS = (b"\0\0\0", b"\0\0\1")


class Unit(NamedTuple):
    """A run of ``total`` packets of one length (the last may be shorter) on one way: ``data`` is LRH … VCRC
    of each, ``stride`` bytes apart.  ``transport``: where a packet has its BTH, 0: it is raw.
    ``is_management``: it is one packet, for queue pair 0 or 1."""

    data: memoryview
    stride: int
    total: int
    dlid: int
    slid: int
    sl: int
    transport: int
    is_management: bool

    def packets(self) -> Iterator[memoryview]:
        """Each packet."""
        for at in range(0, len(self.data), self.stride):
            yield self.data[at : at + self.stride]


def units(data: memoryview, stride: int) -> Iterator[Unit | None]:
    """The units of a burst in order; None for each segment that is no packet.

    Packets of one unit have the same LRH, but for the length of the last.
    """
    length = len(data)
    if not LEAST_BYTES <= stride <= MOST_BYTES or length > MOST_BURST_BYTES:
        yield None
        return
    at = 0
    while at < length:
        end = min(at + stride, length)
        transport = _transport_of(data[at:end])
        if transport < 0:
            yield None
            at = end
            continue
        front = data[at : at + LRH_BYTES]
        is_management = bool(transport) and _destination(data, at + transport) in _MANAGEMENT_QPS
        last = end
        while not is_management and last < length:
            following = min(last + stride, length)
            if not _continues(data[last:following], front, transport):
                break
            last = following
        yield Unit(
            data[at:last], min(stride, last - at), -(-(last - at) // stride), front[2] << 8 | front[3],
            front[6] << 8 | front[7], front[1] >> 4, transport, is_management,
        )  # fmt: skip
        at = last


def _destination(data: memoryview, transport: int) -> memoryview:
    return data[transport:][_DEST_QP]


def _transport_of(packet: memoryview) -> int:
    """Where its BTH is, 0 of a raw packet, −1: it is no packet (7.7, 7.8.2)."""
    n = len(packet)
    if n < LEAST_BYTES or packet[0] & 0x0F or packet[1] & 0x0C:
        return -1
    if (packet[4] << 8 | packet[5]) & 0x7FF != (n - VCRC_BYTES) >> 2 or (n - VCRC_BYTES) & 3:
        return -1
    header = packet[1] & 3
    if header not in (LNH_LOCAL, LNH_GLOBAL):
        return 0
    transport = LRH_BYTES + (GRH_BYTES if header == LNH_GLOBAL else 0)
    return transport if n >= transport + LEAST_TRANSPORT_BYTES + VCRC_BYTES else -1


def _continues(packet: memoryview, front: memoryview, transport: int) -> bool:
    """Whether a packet goes where the one before went, but is not for management."""
    if packet[:4] != front[:4] or packet[6:LRH_BYTES] != front[6:]:
        return False
    if _transport_of(packet) != transport:
        return False
    return not transport or _destination(packet, transport) not in _MANAGEMENT_QPS


def pkey_of(packet: memoryview | bytearray, transport: int) -> int:
    """The P_Key of a packet that is not raw."""
    return int.from_bytes(packet[transport:][_PKEY], "big")


_lane_changes: dict[tuple[int, int], int] = {}
_MOST_CHANGES = 65_536


def set_lane(packet: bytearray | memoryview, vl: int) -> None:
    """Let a packet be on a virtual lane; its VCRC stays as right or wrong as it was.

    A CRC is linear: what other bits in front make of it depends on their place alone.
    """
    difference = (packet[0] >> 4 ^ vl) << 4
    if not difference:
        return
    key = len(packet), difference
    change = _lane_changes.get(key)
    if change is None:
        if len(_lane_changes) >= _MOST_CHANGES:
            _lane_changes.clear()
        covered = bytearray(len(packet) - VCRC_BYTES)
        change = vcrc.compute(covered)
        covered[0] = difference
        change ^= vcrc.compute(covered)
        _lane_changes[key] = change
    packet[0] ^= difference
    packet[-2] ^= change & 0xFF
    packet[-1] ^= change >> 8
