"""Link types in whose packets another one's stand."""

from __future__ import annotations

import io
import struct

import pytest
from wire_samples import sample_route

from softhca.wire.bth import Bth
from softhca.wire.capture_file import (
    LINKTYPE_ETHERNET,
    LINKTYPE_INFINIBAND,
    LINKTYPE_RAW,
    CapturedPacket,
)
from softhca.wire.capture_links import LINKTYPE_ERF, LINKTYPE_LOOP, LINKTYPE_NULL, unwrapped
from softhca.wire.captures import read_capture
from softhca.wire.ip import Ethernet
from softhca.wire.opcodes import RC_SEND_ONLY
from softhca.wire.packet import assemble, decode
from softhca.wire.pcap import PcapWriter

BTH = Bth(RC_SEND_ONLY, dest_qp=5, psn=9)


def sample(kind: str) -> bytes:
    return assemble(sample_route(kind), BTH, (), b"0123").encode()


def erf(kind: int, data: bytes, extensions: int = 0, on_wire: int | None = None, padding: int = 0) -> bytes:
    """A record of the extensible record format, with so many extension headers and bytes behind it."""
    more = 0x80 if extensions else 0
    record = bytes(8) + bytes([kind | more, 4]) + struct.pack("!HHH", 16, 0, on_wire or len(data))
    for number in range(extensions):
        record += bytes([3 | (0x80 if number + 1 < extensions else 0)]) + bytes(7)
    return record + data + bytes(padding)


def read(link_type: int, data: bytes) -> CapturedPacket:
    """As a file has it."""
    stream = io.BytesIO()
    PcapWriter(stream, link_type).write(5, data)
    stream.seek(0)
    (found,) = read_capture(stream)
    assert (found.number, found.time_ns) == (1, 5)
    return found


ETHERNET = Ethernet().encode() + sample("ipv4")
WRAPPED = [
    (12, sample("ipv4"), LINKTYPE_RAW, sample("ipv4")),
    (14, sample("ipv6"), LINKTYPE_RAW, sample("ipv6")),
    (LINKTYPE_NULL, b"\2\0\0\0" + sample("ipv4"), LINKTYPE_RAW, sample("ipv4")),
    (LINKTYPE_NULL, b"\0\0\0\x1e" + sample("ipv6"), LINKTYPE_RAW, sample("ipv6")),
    (LINKTYPE_LOOP, b"\0\0\0\2" + sample("ipv4"), LINKTYPE_RAW, sample("ipv4")),
    (LINKTYPE_ERF, erf(21, sample("native")), LINKTYPE_INFINIBAND, sample("native")),
    (LINKTYPE_ERF, erf(21, sample("native"), 1), LINKTYPE_INFINIBAND, sample("native")),
    (LINKTYPE_ERF, erf(21, sample("native"), 3, padding=6), LINKTYPE_INFINIBAND, sample("native")),
    (LINKTYPE_ERF, erf(2, bytes(2) + ETHERNET, on_wire=len(ETHERNET)), LINKTYPE_ETHERNET, ETHERNET),
    (LINKTYPE_ERF, erf(22, sample("ipv4")), LINKTYPE_RAW, sample("ipv4")),
    (LINKTYPE_ERF, erf(23, sample("ipv6")), LINKTYPE_RAW, sample("ipv6")),
]


@pytest.mark.parametrize(("link_type", "data", "inner", "inside"), WRAPPED, ids=range(len(WRAPPED)))
def test_what_is_wrapped_is_read_as_what_is_inside(
    link_type: int, data: bytes, inner: int, inside: bytes
) -> None:
    found = read(link_type, data)
    assert (found.link_type, found.data, found.original_bytes) == (inner, inside, len(inside))
    packet = decode(found.data, found.link_type)
    assert packet is not None
    assert packet.transport.bth == BTH


def test_a_record_that_was_cut_says_how_long_its_packet_was() -> None:
    found = read(LINKTYPE_ERF, erf(21, sample("native")[:30], on_wire=len(sample("native"))))
    assert (len(found.data), found.original_bytes) == (30, len(sample("native")))


@pytest.mark.parametrize(
    ("link_type", "data"),
    [(LINKTYPE_ERF, erf(21, b"")[:15]), (LINKTYPE_ERF, erf(21, b"", 2)[:31]), (LINKTYPE_ERF, erf(5, b"atm")),
     (LINKTYPE_ERF, erf(2, b"x")), (LINKTYPE_NULL, b"\2\0\0"), (LINKTYPE_ETHERNET, ETHERNET)],
    ids=range(6),
)  # fmt: skip
def test_what_is_cut_short_or_something_else_stays_as_it_is(link_type: int, data: bytes) -> None:
    packet = CapturedPacket(1, 5, link_type, data, len(data))
    assert unwrapped(packet) is packet
