"""What the wire's oracle reads in packets: fields, lengths, tables of the standard, the ICRC.

Written from the standard alone, with slices of bytes: nothing here is shared with what makes the packets.
A *packet* is BTH … ICRC.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from isal import isal_zlib


def mask_of(codes: Iterable[int]) -> int:
    """A set of opcodes below 32 as bits: ``mask >> code & 1`` says whether one is in it."""
    return sum(1 << code for code in set(codes))


# the low five bits of opcodes (IBTA vol. 1, table 38)
SEND_FIRST, SEND_MIDDLE, SEND_LAST, SEND_ONLY = 0x00, 0x01, 0x02, 0x04
WRITE_FIRST, WRITE_MIDDLE, WRITE_LAST, WRITE_ONLY = 0x06, 0x07, 0x08, 0x0A
READ_REQUEST, ACKNOWLEDGE, ATOMIC_ACKNOWLEDGE = 0x0C, 0x11, 0x12
READ_FIRST, READ_MIDDLE, READ_LAST, READ_ONLY = 0x0D, 0x0E, 0x0F, 0x10
COMPARE_SWAP, FETCH_ADD = 0x13, 0x14
SENDS = frozenset({0x00, 0x01, 0x02, 0x03, 0x04, 0x05, 0x16, 0x17})
WRITES = frozenset({0x06, 0x07, 0x08, 0x09, 0x0A, 0x0B})
ATOMICS = frozenset({COMPARE_SWAP, FETCH_ADD})
ANSWERS = frozenset({READ_FIRST, READ_MIDDLE, READ_LAST, READ_ONLY, ACKNOWLEDGE, ATOMIC_ACKNOWLEDGE})
REQUESTS = SENDS | WRITES | ATOMICS | {READ_REQUEST}
MESSAGES = SENDS | WRITES
FIRSTS = frozenset({SEND_FIRST, WRITE_FIRST})
MIDDLES = frozenset({SEND_MIDDLE, WRITE_MIDDLE})
LASTS = frozenset({0x02, 0x03, 0x08, 0x09, 0x16})
ONLYS = frozenset({0x04, 0x05, 0x0A, 0x0B, 0x17})
ENDS = LASTS | ONLYS | ATOMICS | {READ_REQUEST}
"""The last packets of requests: what MSN and SSN count."""
WITH_IMMEDIATE_WRITES = frozenset({0x09, 0x0B})
TAKES = frozenset({SEND_FIRST, 0x04, 0x05, 0x17}) | WITH_IMMEDIATE_WRITES
"""Packets with which a message takes a receive."""
MAY_BE_SOLICITED = frozenset({0x02, 0x03, 0x04, 0x05, 0x09, 0x0B, 0x16, 0x17})

UNRELIABLE_CODES = frozenset(range(0x0C))
DATAGRAM_CODES = frozenset({0x04, 0x05})
BTH_BYTES, ICRC_BYTES = 12, 4
LRH_BYTES = 8
EXTENSIONS = {
    0x03: 4, 0x05: 4, 0x06: 16, 0x09: 4, 0x0A: 16, 0x0B: 20, 0x0C: 16, 0x0D: 4, 0x0F: 4, 0x10: 4, 0x11: 4,
    0x12: 12, 0x13: 28, 0x14: 28, 0x16: 4, 0x17: 4,
}  # fmt: skip
"""Bytes of extension headers behind the BTH."""
LENGTHS = {
    code: BTH_BYTES + EXTENSIONS[code] + ICRC_BYTES
    for code in (READ_REQUEST, ACKNOWLEDGE, ATOMIC_ACKNOWLEDGE, COMPARE_SWAP, FETCH_ADD)
}
"""Of packets without payload."""
NOTHING = 0x1F
"""In place of an opcode: none was sent."""

ACK, RNR_NAK, NAK = 0, 1, 3
NO_LIMIT = 31
RNR_TIMERS_US = (
    655_360, 10, 20, 30, 40, 60, 80, 120, 160, 240, 320, 480, 640, 960, 1_280, 1_920, 2_560, 3_840,
    5_120, 7_680, 10_240, 15_360, 20_480, 30_720, 40_960, 61_440, 81_920, 122_880, 163_840, 245_760,
    327_680, 491_520,
)  # fmt: skip
"""Table 45."""
CREDIT_COUNTS = (0, 1, *(count for power in range(1, 15) for count in (1 << power, 3 << power - 1)), 1 << 15)
"""Table 46."""
RESIDUE = 0x2144DF1C
"""The CRC-32 of whatever ends in its own CRC-32."""
TIMEOUT_UNIT_NS = 4_096
RNR_RETRY_INFINITE = 7

_EXTENSION_BYTES: bytes = bytes(EXTENSIONS.get(code, 0) for code in range(256))
_BEHIND_EXTENSION_BYTES: int = BTH_BYTES + ICRC_BYTES
_FULL: int = mask_of(FIRSTS | MIDDLES)
_LASTS: int = mask_of(LASTS)
_INNER: int = mask_of(MIDDLES | LASTS)
_OPEN_SENDS: int = mask_of({SEND_FIRST, SEND_MIDDLE})
_OPEN_WRITES: int = mask_of({WRITE_FIRST, WRITE_MIDDLE})
_SEND_PARTS: int = mask_of({0x01, 0x02, 0x03, 0x16})
_WRITE_PARTS: int = mask_of({0x07, 0x08, 0x09})


@dataclass(frozen=True, slots=True)
class Terms:
    """How one queue pair was connected, and what its world allows.

    ``psn`` is the first of its own requests, ``peer_psn`` of its peer's.  ``reads`` is max_rd_atomic.
    ``shared``: its receives are not its own, so that it has no credits to give.

    ``strict``: no end is taken down or stops to answer while the other talks.  ``quiet``: and receives are
    posted in time, so that nothing is sent again unless the links are to blame.  ``steady``: adapters never
    stand still.  ``skew_ppm``: how far their clocks are off at most.
    """

    name: str
    psn: int
    peer_psn: int
    mtu_bytes: int
    timeout: int = 8
    retries: int = 7
    rnr_retry: int = 7
    rnr_timer: int = 1
    reads: int = 1
    shared: bool = False
    quiet: bool = False
    strict: bool = True
    steady: bool = True
    skew_ppm: int = 0


@dataclass(slots=True)
class Links:
    """What links did to packets so far.  ``losses``: when packets for (adapter, queue pair) vanished or were
    damaged.  ``disorderly``: some arrived late, out of order or twice.
    """

    losses: dict[tuple[int, int], list[int]]
    disorderly: bool = False


@dataclass(slots=True)
class Hold:
    """Whether one adapter's registered memory may be touched.  ``last_ns``: when it last could not."""

    held: bool = False
    last_ns: int = -1

    def since(self, time_ns: int) -> bool:
        """Whether it was held at that moment or later."""
        return self.held or self.last_ns >= time_ns


def position_of(data: bytes, near: int) -> int:
    """The PSN of a packet, which has at least its BTH, without its wrap: the one nearest to ``near``."""
    return near_to(data[9] << 16 | data[10] << 8 | data[11], near)


def near_to(value: int, near: int) -> int:
    """A number of 24 bits without its wrap: the one nearest to ``near``."""
    gap = (value - near) & 0xFFFFFF
    return near + (gap - 0x1000000 if gap & 0x800000 else gap)


def packets_of(length_bytes: int, mtu_bytes: int) -> int:
    """How many packets carry a message of a length; none is one, too."""
    return (length_bytes + mtu_bytes - 1) // mtu_bytes or 1


def be(data: bytes, first: int, end: int) -> int:
    """A field of at most eight bytes; those behind the packet's end do not count."""
    value = 0
    for at in range(first, min(end, len(data))):
        value = value << 8 | data[at]
    return value


def payload_bytes(data: bytes, code: int) -> int:
    """Bytes of payload without pad; negative where the packet is too short."""
    return len(data) - _BEHIND_EXTENSION_BYTES - _EXTENSION_BYTES[code] - (data[1] >> 4 & 3)


def inside(before: int) -> bool:
    """Whether a message goes on behind a packet of this opcode."""
    return (_OPEN_SENDS | _OPEN_WRITES) >> before & 1 == 1


def follows(code: int, before: int) -> bool:
    """Whether an opcode may come behind another: inside a message its parts, elsewhere what begins one
    (tables 39, 40)."""
    if _OPEN_SENDS >> before & 1:
        return _SEND_PARTS >> code & 1 == 1
    if _OPEN_WRITES >> before & 1:
        return _WRITE_PARTS >> code & 1 == 1
    return _INNER >> code & 1 == 0


def wrong_length(data: bytes, code: int, mtu_bytes: int) -> str:
    """What is wrong with a data packet's length, or nothing.

    First and middle packets are full, the last one has at least a byte (9.7.4.1.6, 9.8.2.2).
    """
    count = payload_bytes(data, code)
    if count < 0 or len(data) & 3:
        return f"{len(data)} bytes with {data[1] >> 4 & 3} of pad"
    if _FULL >> code & 1:
        return "" if count == mtu_bytes else f"{count} bytes, the path MTU is {mtu_bytes}"
    if count > mtu_bytes:
        return f"{count} bytes, the path MTU is {mtu_bytes}"
    return "a last packet without payload" if not count and _LASTS >> code & 1 else ""


class Checksums:
    """The ICRC, with what it covers of the headers in front kept for each route and length.

    It takes byte 4 of the BTH as ones (7.8.1).  That byte is zero nearly always; so the CRC is made over the
    packet as it is, and the residue that is right for that, by length, is kept too: a CRC is linear.
    """

    KEPT = 4_096

    def __init__(self) -> None:
        self._known: dict[tuple[bytes, bytes, int, int], tuple[int, int]] = {}

    def is_right(self, data: bytes, route: Any) -> bool:
        """Whether a packet of at least a BTH between two GIDs (``route``) has its ICRC."""
        key = (route.source, route.destination, route.source_port, len(data))
        known = self._known.get(key)
        if known is None:
            if len(self._known) >= self.KEPT:
                self._known.clear()
            known = self._known[key] = isal_zlib.crc32(_front(*key)), RESIDUE ^ _ones(len(data))
        start, residue = known
        if data[4]:
            data = data[:4] + b"\0" + data[5:]
        found: int = isal_zlib.crc32(data, start)
        return found == residue


def _ones(packet_bytes: int) -> int:
    """What the CRC of a packet changes by when byte 4 of the BTH becomes ones."""
    zeros = bytes(packet_bytes)
    changed: int = isal_zlib.crc32(zeros[:4] + b"\xff" + zeros[5:])
    unchanged: int = isal_zlib.crc32(zeros)
    return changed ^ unchanged


def is_right_native(data: bytes, front: bytes) -> bool:
    """Whether a packet behind LRH, with or without GRH, has its ICRC (7.8.1).

    Of an LRH alone only the virtual lane may change; in front of a GRH it does not count, nor do traffic
    class, flow label and hop limit.
    """
    if len(front) == LRH_BYTES:
        masked = bytes([front[0] | 0xF0]) + front[1:]
    else:
        masked = b"\xff" * LRH_BYTES + b"\x6f\xff\xff\xff" + front[12:15] + b"\xff" + front[16:]
    return isal_zlib.crc32(data[:4] + b"\xff" + data[5:], isal_zlib.crc32(masked)) == RESIDUE


def icrc_of(source: bytes, destination: bytes, port: int, transport: bytes) -> int:
    """The ICRC of BTH … pad between two GIDs over IPv4 (mapped) or IPv6."""
    front = _front(source, destination, port, len(transport) + ICRC_BYTES)
    return isal_zlib.crc32(transport[:4] + b"\xff" + transport[5:], isal_zlib.crc32(front))


def _front(source: bytes, destination: bytes, port: int, packet_bytes: int) -> bytes:
    """What the ICRC covers before the BTH: 64 ones, IP and UDP header with ones for what routers change
    (A17.3.3); the identification of IPv4 is 0."""
    length = packet_bytes + 8
    udp = port.to_bytes(2, "big") + (4791).to_bytes(2, "big") + length.to_bytes(2, "big") + b"\xff\xff"
    if source.startswith(bytes(10) + b"\xff\xff"):
        total = (20 + length).to_bytes(2, "big")
        header = b"\x45\xff" + total + b"\x00\x00\x40\x00\xff\x11\xff\xff" + source[12:] + destination[12:]
    else:
        header = b"\x6f\xff\xff\xff" + length.to_bytes(2, "big") + b"\x11\xff" + source + destination
    return b"\xff" * 8 + header + udp
