"""A captured frame of any link type for the tools' decoder: refused, passed over, or the same bytes again.

Input: link type, what to put right, then the frame, or the transport packet that goes into a right frame.
"""

from __future__ import annotations

from collections.abc import Iterator

from fuzz_choices import Choices
from fuzz_seeds import captured_frames, captured_transports

from softhca.wire import capture_file as files
from softhca.wire.errors import WireError
from softhca.wire.packet import captured, decode
from softhca.wire.route import NATIVE, ROCE_V4, ROCE_V6, V4_MAPPED_PREFIX, Route

LINK_TYPES = (
    files.LINKTYPE_ETHERNET, files.LINKTYPE_RAW, files.LINKTYPE_LINUX_SLL, files.LINKTYPE_LINUX_SLL2,
    files.LINKTYPE_INFINIBAND, files.LINKTYPE_IPV4, files.LINKTYPE_IPV6, 99,
)  # fmt: skip
HERE, THERE = V4_MAPPED_PREFIX + b"\x0a\x00\x00\x01", V4_MAPPED_PREFIX + b"\x0a\x00\x00\x02"
ROUTES = (
    Route(ROCE_V4, HERE, THERE),
    Route(ROCE_V6, bytes(15) + b"\x01", bytes(15) + b"\x02"),
    Route(NATIVE, HERE, THERE, slid=1, dlid=2),
    Route(NATIVE, HERE, THERE, slid=1, dlid=2, has_grh=True),
)
LINKS = {
    files.LINKTYPE_ETHERNET: (bytes(12) + b"\x08\x00", bytes(12) + b"\x86\xdd"),
    files.LINKTYPE_LINUX_SLL: (bytes(14) + b"\x08\x00", bytes(14) + b"\x86\xdd"),
    files.LINKTYPE_LINUX_SLL2: (b"\x08\x00" + bytes(18), b"\x86\xdd" + bytes(18)),
}
RDMA_OFFSETS = {"lrh", "grh", "ipv4", "ipv6", "udp", "bth"}


def one_input(data: bytes) -> None:
    choices = Choices(data)
    link_type = choices.pick(LINK_TYPES)
    wrapped = choices.below(8)
    frame = wrap(choices, link_type, wrapped) if wrapped > 3 else choices.rest()
    try:
        packet = decode(frame, link_type)
    except WireError:
        return
    if packet is None:
        return
    assert packet.encode() == frame
    names = [name for name, header in packet.headers() if header.as_dict() is not None]
    assert RDMA_OFFSETS & set(names)
    assert isinstance(packet.source, str)
    assert isinstance(packet.destination, str)
    assert packet.icrc_ok in (True, False)
    sealed = packet.with_crcs()
    assert sealed.icrc_ok
    assert sealed.vcrc_ok in (True, None)
    again = decode(sealed.encode(), link_type)
    assert again is not None
    assert again == sealed


def wrap(choices: Choices, link_type: int, which: int) -> bytes:
    """The rest of the input behind right headers of the link type, of which one byte may be wrong."""
    route = ROUTES[which - 4]
    at, change = choices.byte(), choices.byte()
    transport = choices.rest()[:4096]
    transport = transport[: len(transport) & ~3]
    front = b""
    if route.framing != NATIVE and link_type in LINKS:
        front = LINKS[link_type][route.framing == ROCE_V6]
    if route.framing == NATIVE:
        frame = bytearray(front + route.headers(len(transport)) + transport + bytes(2 * (change & 1)))
    else:
        frame = bytearray(front + captured(route, transport))
    if at < len(frame):
        frame[at] ^= change
    return bytes(frame)


def seeds() -> Iterator[bytes]:
    """Captured frames, and captured packets in every framing."""
    for frame in captured_frames():
        if len(frame) < 300:
            yield b"\x00\x00" + frame
            yield b"\x01\x00" + frame[14:]
    for transport in captured_transports()[:30]:
        for which in range(4, 8):
            for link_type in range(len(LINK_TYPES)):
                yield bytes([link_type, which, 255, 1]) + transport
