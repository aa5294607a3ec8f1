"""Capture files of the next generation (``.pcapng``, draft-ietf-opsawg-pcapng): several interfaces and link
types.

Read: section headers (either byte order, several a file), interface descriptions with their time resolution
and offset, enhanced, simple and the obsolete packet blocks; other blocks are passed over, however long.
Written: one section, enhanced packet blocks with nanoseconds.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import BinaryIO

from softhca.wire.capture_file import MAX_PACKET_BYTES, CapturedPacket, Readable, read_exactly
from softhca.wire.errors import CaptureError

BLOCK_SECTION = 0x0A0D0D0A
BLOCK_INTERFACE = 1
BLOCK_PACKET = 2
BLOCK_SIMPLE_PACKET = 3
BLOCK_ENHANCED_PACKET = 6
BYTE_ORDER_MAGIC = 0x1A2B3C4D

OPTION_END = 0
OPTION_INTERFACE_NAME = 2
OPTION_USER_APPLICATION = 4
OPTION_TIME_RESOLUTION = 9
OPTION_TIME_OFFSET = 14

MAX_BLOCK_BYTES = MAX_PACKET_BYTES + 65_536
MAX_INTERFACES = 1024

_BLOCK_HEADER_BYTES = 8
_BLOCK_TRAILER_BYTES = 4
_DEFAULT_TICKS_PER_SECOND = 1_000_000


@dataclass(frozen=True, slots=True)
class _Interface:
    link_type: int
    snapshot_bytes: int
    ticks_per_second: int
    offset_s: int

    def time_ns(self, ticks: int) -> int:
        return self.offset_s * 1_000_000_000 + ticks * 1_000_000_000 // self.ticks_per_second


@dataclass(slots=True)
class _Section:
    order: str  # struct's prefix
    interfaces: list[_Interface] = field(default_factory=list)

    def unpack(self, layout: str, body: bytes, offset: int = 0) -> tuple[int, ...]:
        """The integers of ``layout``; CaptureError when the block is too short for them."""
        if offset + struct.calcsize("=" + layout) > len(body):
            raise CaptureError("a block is too short for its fields")
        return struct.unpack_from(self.order + layout, body, offset)

    def interface(self, number: int) -> _Interface:
        if number >= len(self.interfaces):
            raise CaptureError(f"a packet of interface {number}, which was not described")
        return self.interfaces[number]


def is_pcapng(start: bytes) -> bool:
    """Whether a file that starts so is of this kind."""
    return start[:4] == BLOCK_SECTION.to_bytes(4, "big")


def read_pcapng(stream: Readable) -> Iterator[CapturedPacket]:
    """Packets in the file's order; CaptureError at the first damage, after the packets in front of it."""
    section: _Section | None = None
    number = 0
    while header := read_exactly(stream, _BLOCK_HEADER_BYTES, "a block header"):
        if is_pcapng(header):
            section = _begin_section(stream, header)
            continue
        if section is None:
            raise CaptureError("not a pcapng file")
        kind, length = section.unpack("II", header)
        if kind != BLOCK_INTERFACE and kind not in _PACKET_READERS:
            _pass_over(stream, section.order, length)
            continue
        body = _rest_of_block(stream, section.order, length, b"")
        if kind == BLOCK_INTERFACE:
            _add_interface(section, body)
        else:
            number += 1
            yield _PACKET_READERS[kind](section, number, body)
    if section is None:
        raise CaptureError("not a pcapng file")


def _begin_section(stream: Readable, header: bytes) -> _Section:
    """Read the rest of a section header block; its body begins with the byte-order magic."""
    magic = read_exactly(stream, 4, "a section header")
    orders = {BYTE_ORDER_MAGIC.to_bytes(4, "little"): "<", BYTE_ORDER_MAGIC.to_bytes(4, "big"): ">"}
    if magic not in orders:
        raise CaptureError("a section header without its byte-order magic")
    section = _Section(orders[magic])
    body = _rest_of_block(stream, section.order, section.unpack("II", header)[1], magic)
    major = section.unpack("IHHq", body)[1]
    if major != 1:
        raise CaptureError(f"pcapng version {major} is unknown")
    return section


def _rest_of_block(stream: Readable, order: str, length: int, begun: bytes) -> bytes:
    """The body of a block of ``length`` bytes whose header, and ``begun`` of its body, were read."""
    frame = _BLOCK_HEADER_BYTES + _BLOCK_TRAILER_BYTES
    if length % 4 or not frame + len(begun) <= length <= MAX_BLOCK_BYTES:
        raise CaptureError(f"a block claims {length} bytes")
    wanted = length - _BLOCK_HEADER_BYTES - len(begun)
    rest = read_exactly(stream, wanted, "a block")
    if len(rest) != wanted:
        raise CaptureError("the file ends inside a block")
    if struct.unpack_from(order + "I", rest, wanted - _BLOCK_TRAILER_BYTES)[0] != length:
        raise CaptureError("a block's two lengths differ")
    return begun + rest[: wanted - _BLOCK_TRAILER_BYTES]


def _pass_over(stream: Readable, order: str, length: int) -> None:
    """Leave out the rest of a block of ``length`` bytes, of any length, whose header was read."""
    rest = length - _BLOCK_HEADER_BYTES - _BLOCK_TRAILER_BYTES
    if length % 4 or rest < 0:
        raise CaptureError(f"a block claims {length} bytes")
    while rest:
        part = stream.read(min(rest, MAX_BLOCK_BYTES))
        if not part:
            raise CaptureError("the file ends inside a block")
        rest -= len(part)
    trailer = read_exactly(stream, _BLOCK_TRAILER_BYTES, "a block")
    if not trailer:
        raise CaptureError("the file ends inside a block")
    if struct.unpack(order + "I", trailer)[0] != length:
        raise CaptureError("a block's two lengths differ")


def _options(section: _Section, body: bytes, offset: int) -> Iterator[tuple[int, bytes]]:
    """Options from ``offset`` to the end mark or the block's end."""
    while offset + 4 <= len(body):
        code, length = section.unpack("HH", body, offset)
        offset += 4
        if code == OPTION_END:
            return
        if offset + length > len(body):
            raise CaptureError("an option runs beyond its block")
        yield code, body[offset : offset + length]
        offset += length + -length % 4


def _add_interface(section: _Section, body: bytes) -> None:
    if len(section.interfaces) >= MAX_INTERFACES:
        raise CaptureError(f"more than {MAX_INTERFACES} interfaces")
    link_type, _, snapshot_bytes = section.unpack("HHI", body)
    ticks_per_second = _DEFAULT_TICKS_PER_SECOND
    offset_s = 0
    for code, value in _options(section, body, 8):
        if code == OPTION_TIME_RESOLUTION and len(value) == 1:
            exponent = value[0] & 0x7F
            ticks_per_second = 2**exponent if value[0] & 0x80 else 10**exponent
        elif code == OPTION_TIME_OFFSET and len(value) == 8:
            offset_s = section.unpack("q", value)[0]
    section.interfaces.append(_Interface(link_type, snapshot_bytes, ticks_per_second, offset_s))


def _packet_data(body: bytes, offset: int, length: int, number: int) -> bytes:
    if length > MAX_PACKET_BYTES or offset + length > len(body):
        raise CaptureError(f"packet {number} claims {length} bytes, its block has {len(body) - offset}")
    return body[offset : offset + length]


def _enhanced_packet(section: _Section, number: int, body: bytes) -> CapturedPacket:
    index, high, low, length, original = section.unpack("IIIII", body)
    interface = section.interface(index)
    data = _packet_data(body, 20, length, number)
    return CapturedPacket(number, interface.time_ns(high << 32 | low), interface.link_type, data, original)


def _obsolete_packet(section: _Section, number: int, body: bytes) -> CapturedPacket:
    index, _, high, low, length, original = section.unpack("HHIIII", body)
    interface = section.interface(index)
    data = _packet_data(body, 20, length, number)
    return CapturedPacket(number, interface.time_ns(high << 32 | low), interface.link_type, data, original)


def _simple_packet(section: _Section, number: int, body: bytes) -> CapturedPacket:
    """No time, no captured length: that follows from the original and interface 0's snapshot length."""
    interface = section.interface(0)
    original = section.unpack("I", body)[0]
    length = min(original, interface.snapshot_bytes) if interface.snapshot_bytes else original
    return CapturedPacket(number, 0, interface.link_type, _packet_data(body, 4, length, number), original)


_PACKET_READERS = {
    BLOCK_ENHANCED_PACKET: _enhanced_packet,
    BLOCK_SIMPLE_PACKET: _simple_packet,
    BLOCK_PACKET: _obsolete_packet,
}


class PcapngWriter:
    """Writes one section, times in nanoseconds since 1970; its caller opens and closes the binary stream."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._interfaces = 0
        body = struct.pack("<IHHq", BYTE_ORDER_MAGIC, 1, 0, -1)  # −1: the section's length is not given
        options = _option(OPTION_USER_APPLICATION, b"softhca") + _option(OPTION_END, b"")
        self._block(BLOCK_SECTION, body + options)

    def add_interface(self, link_type: int, name: str = "") -> int:
        """Describe an interface; its number is given to :meth:`write`."""
        if self._interfaces >= MAX_INTERFACES:
            raise CaptureError(f"more than {MAX_INTERFACES} interfaces")
        options = _option(OPTION_INTERFACE_NAME, name.encode()) if name else b""
        options += _option(OPTION_TIME_RESOLUTION, b"\x09") + _option(OPTION_END, b"")
        self._block(BLOCK_INTERFACE, struct.pack("<HHI", link_type, 0, 0) + options)
        self._interfaces += 1
        return self._interfaces - 1

    def write(self, interface: int, time_ns: int, data: bytes) -> None:
        """Append one packet; CaptureError for an unknown interface or a packet that is too long."""
        if not 0 <= interface < self._interfaces:
            raise CaptureError(f"interface {interface} was not added")
        if len(data) > MAX_PACKET_BYTES:
            raise CaptureError(f"a packet of {len(data)} bytes is longer than {MAX_PACKET_BYTES}")
        high, low = time_ns >> 32 & 0xFFFFFFFF, time_ns & 0xFFFFFFFF
        head = struct.pack("<IIIII", interface, high, low, len(data), len(data))
        self._block(BLOCK_ENHANCED_PACKET, head + data + bytes(-len(data) % 4))

    def _block(self, kind: int, body: bytes) -> None:
        length = _BLOCK_HEADER_BYTES + len(body) + _BLOCK_TRAILER_BYTES
        self._stream.write(struct.pack("<II", kind, length) + body + struct.pack("<I", length))


def _option(code: int, value: bytes) -> bytes:
    return struct.pack("<HH", code, len(value)) + value + bytes(-len(value) % 4)
