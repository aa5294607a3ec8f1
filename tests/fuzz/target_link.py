"""One native packet LRH … VCRC, raw ones too, for the hot path's views and the tools' decoders: they must
agree.

Input: what is put right (VCRC, ICRC, lengths) and where it lies in the buffer, then the packet.
"""

from __future__ import annotations

from collections.abc import Iterator

from fuzz_choices import Choices
from fuzz_seeds import captured_transports

from softhca.machine.primitives import address_of
from softhca.wire import icrc, vcrc
from softhca.wire.drops import DROP_RAW, NAMES
from softhca.wire.errors import WireError
from softhca.wire.framing import NATIVE
from softhca.wire.grh import Grh
from softhca.wire.link_view import LinkView
from softhca.wire.lrh import LNH_GLOBAL, Lrh
from softhca.wire.packet import Packet, decode
from softhca.wire.packet_view import PacketView
from softhca.wire.raw import RAW_IPV6, RawView
from softhca.wire.raw_packet import assemble_raw, decode_raw
from softhca.wire.route import Route

LINKTYPE_INFINIBAND = 247
LINK, VIEW, RAW = LinkView(), PacketView(), RawView()


def one_input(data: bytes) -> None:
    choices = Choices(data)
    how = choices.byte()
    packet = bytearray(choices.rest())
    put_right(packet, how)
    offset = how >> 5
    buffer = bytearray(offset) + packet + bytes(how & 3)
    reason = by_views(buffer, offset, len(packet))
    assert 0 <= reason < len(NAMES)
    if reason == DROP_RAW:
        raw_input(buffer, bytes(packet), offset)
        return
    found = by_decoder(bytes(packet))
    assert (reason == 0) == (found is not None), f"view: {NAMES[reason]}, decoder: {found}"
    if found is not None:
        compare(found, offset)


def raw_input(buffer: bytearray, packet: bytes, offset: int) -> None:
    """A raw packet whose LRH and VCRC are sound: view and decoder agree on the rest."""
    assert by_decoder(packet) is None
    reason = RAW.decode(buffer, offset, LINK.packet_bytes)
    assert 0 <= reason < len(NAMES)
    try:
        found = decode_raw(packet)
    except WireError:
        found = None
    assert (reason == 0) == (found is not None), f"view: {NAMES[reason]}, decoder: {found}"
    if found is None:
        return
    lrh = found.lrh
    assert (LINK.vl, LINK.sl, LINK.dlid, LINK.slid) == (lrh.vl, lrh.sl, lrh.dlid, lrh.slid)
    assert (RAW.service, RAW.payload_bytes) == (found.service, len(found.payload))
    assert bytes(buffer[RAW.payload : RAW.payload + RAW.payload_bytes]) == found.payload
    assert found.encode() == packet


def put_right(packet: bytearray, how: int) -> None:
    """The length in the LRH, the one in the GRH, the ICRC and the VCRC, as the bits of ``how`` ask."""
    n = len(packet)
    if n < Lrh.LENGTH_BYTES + 16 + 2:
        return
    if how & 4:
        words = (n - 2) // 4
        packet[4], packet[5] = packet[4] & 0xF8 | words >> 8 & 7, words & 0xFF
    start = Lrh.LENGTH_BYTES
    if packet[1] & 3 == LNH_GLOBAL and n >= Lrh.LENGTH_BYTES + Grh.LENGTH_BYTES + 16 + 2:
        start += Grh.LENGTH_BYTES
        if how & 4:
            packet[12:14] = (n - 2 - start).to_bytes(2, "big")
    if how & 8:
        right = icrc.of_packet(NATIVE, bytes(packet[:start]), bytes(packet[start:-6]))
        packet[-6:-2] = right.to_bytes(4, "little")
    if how & 16:
        packet[-2:] = vcrc.compute(bytes(packet[:-2])).to_bytes(2, "little")


def by_views(buffer: bytearray, offset: int, length: int) -> int:
    """As the engine reads a packet: 0 or the first reason against it."""
    reason = LINK.decode(buffer, offset, length)
    assert LINK.decode(buffer, offset, len(buffer) - offset + 1), "a length beyond the buffer is taken"
    if reason == 0:
        assert LINK.decode(buffer, offset, length) == 0
        reason = LINK.check_global(buffer)
    if reason == 0:
        reason = LINK.check_icrc(buffer, address_of(buffer))
    if reason == 0:
        reason = VIEW.decode(buffer, LINK.transport, LINK.transport_bytes)
    return int(reason)


def by_decoder(packet: bytes) -> Packet | None:
    """The packet as the tools see it, with what they report but do not refuse refused: CRCs, link version."""
    try:
        found = decode(packet, LINKTYPE_INFINIBAND)
    except WireError:
        return None
    if found is None or not found.vcrc_ok or not found.icrc_ok or found.network[0].lver:  # type: ignore[attr-defined]
        return None
    return found


def compare(found: Packet, offset: int) -> None:
    """Field for field."""
    lrh = found.network[0]
    assert isinstance(lrh, Lrh)
    assert (LINK.vl, LINK.sl, LINK.dlid, LINK.slid) == (lrh.vl, lrh.sl, lrh.dlid, lrh.slid)
    assert LINK.packet_bytes == 4 * lrh.packet_length_words
    assert LINK.dest_qp == VIEW.dest_qp == found.transport.bth.dest_qp
    assert LINK.transport_bytes == len(found.transport.encode())
    if len(found.network) == 1:
        assert (LINK.grh, LINK.source, LINK.destination) == (-1, None, None)
        return
    grh = found.network[1]
    assert isinstance(grh, Grh)
    assert LINK.grh == offset + Lrh.LENGTH_BYTES
    assert (LINK.source, LINK.destination) == (grh.sgid, grh.dgid)


def seeds() -> Iterator[bytes]:
    """Captured transport packets with native headers, and raw ones."""
    ipv6 = bytes([0x60, 0, 0, 0, 0, 4, 59, 64]) + bytes(36)
    for service, payload in ((RAW_IPV6, ipv6), (0x86DD, ipv6), (0x88B5, b"payload"), (0, bytes(40))):
        for how in (0x10, 0x94, 0x00):
            yield bytes([how]) + assemble_raw(5, 6, service, payload).encode()
    gids = bytes(15) + b"\1", bytes(15) + b"\2"
    routes = [Route(NATIVE, *gids, slid=5, dlid=6, sl=3, has_grh=grh) for grh in (False, True)]
    for transport in captured_transports()[:40]:
        for route in routes:
            for how in (0x1C, 0x9E, 0x18, 0x10):
                yield bytes([how]) + route.headers(len(transport)) + transport + b"\0\0"
