"""Classic capture files (``.pcap``): both byte orders, microseconds or nanoseconds, one link type a file."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import BinaryIO

from softhca.wire.capture_file import MAX_PACKET_BYTES, CapturedPacket, Readable, read_exactly
from softhca.wire.errors import CaptureError

MAGIC_US = 0xA1B2C3D4
MAGIC_NS = 0xA1B23C4D

_LINK_TYPE_MASK = 0x03FFFFFF  # the bits above are about frame check sequences
_FILE_HEADER = "IHHiIII"  # magic, version 2.4, time zone, accuracy, snapshot length, link type
_RECORD_HEADER = "IIII"  # seconds, fraction, captured and original length
_ORDERS = ("<", ">")


def is_pcap(start: bytes) -> bool:
    """Whether a file that starts so is of this kind."""
    return any(int.from_bytes(start[:4], order) in (MAGIC_US, MAGIC_NS) for order in ("little", "big"))


def read_pcap(stream: Readable) -> Iterator[CapturedPacket]:
    """Packets in the file's order; CaptureError at the first damage, after the packets in front of it."""
    size = struct.calcsize("<" + _FILE_HEADER)
    header = read_exactly(stream, size, "the file header")
    if not header or not is_pcap(header):
        raise CaptureError("not a pcap file")
    order = next(o for o in _ORDERS if struct.unpack_from(o + "I", header)[0] in (MAGIC_US, MAGIC_NS))
    magic, major, _, _, _, _, link_type = struct.unpack(order + _FILE_HEADER, header)
    if major != 2:
        raise CaptureError(f"pcap version {major} is unknown")
    tick_ns = 1000 if magic == MAGIC_US else 1
    number = 0
    while record := read_exactly(stream, struct.calcsize("<" + _RECORD_HEADER), "a record header"):
        number += 1
        seconds, fraction, length, original = struct.unpack(order + _RECORD_HEADER, record)
        if length > MAX_PACKET_BYTES:
            raise CaptureError(f"packet {number} claims {length} bytes, more than {MAX_PACKET_BYTES}")
        data = read_exactly(stream, length, f"packet {number}")
        if len(data) != length:
            raise CaptureError(f"the file ends inside packet {number}")
        time_ns = seconds * 1_000_000_000 + fraction * tick_ns
        yield CapturedPacket(number, time_ns, link_type & _LINK_TYPE_MASK, data, original)


class PcapWriter:
    """Writes packets of one link type, in nanoseconds; its caller opens and closes the binary stream."""

    def __init__(self, stream: BinaryIO, link_type: int) -> None:
        self._stream = stream
        header = (MAGIC_NS, 2, 4, 0, 0, MAX_PACKET_BYTES, link_type)
        stream.write(struct.pack("<" + _FILE_HEADER, *header))

    def write(self, time_ns: int, data: bytes) -> None:
        """Append one packet; CaptureError when it is longer than any reader need take."""
        if len(data) > MAX_PACKET_BYTES:
            raise CaptureError(f"a packet of {len(data)} bytes is longer than {MAX_PACKET_BYTES}")
        seconds, fraction = divmod(time_ns, 1_000_000_000)
        self._stream.write(struct.pack("<" + _RECORD_HEADER, seconds, fraction, len(data), len(data)) + data)
