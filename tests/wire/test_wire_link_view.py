"""The link view of native packets, held against the representation that tools decode."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from wire_samples import fields_of, routes, sample_route, transports

from softhca.machine.primitives import address_of
from softhca.wire import drops, vcrc
from softhca.wire.bth import Bth
from softhca.wire.grh import Grh
from softhca.wire.link_view import LinkView
from softhca.wire.lrh import Lrh
from softhca.wire.packet import Packet, assemble

LINK = LinkView()


def resealed(data: bytes) -> bytes:
    return data + vcrc.compute(data).to_bytes(2, "little")


def judge(data: bytes, before: bytes = b"", behind: bytes = b"") -> tuple[int, LinkView]:
    """The first reason that the three steps give."""
    buffer = bytearray(before + data + behind)
    reason = LINK.decode(memoryview(buffer), len(before), len(data))
    if reason == 0:
        reason = LINK.check_global(memoryview(buffer))
    if reason == 0:
        reason = LINK.check_icrc(memoryview(buffer), address_of(buffer))
    return reason, LINK


@st.composite
def natives(draw: st.DrawFn) -> Packet:
    """A sound native packet with any values in the fields that are free."""
    transport = draw(transports())
    route = draw(routes(draw(st.sampled_from(["native", "native_grh"]))))
    packet = assemble(route, transport.bth, transport.extensions, transport.payload, draw(st.integers(0, 15)))
    lrh = packet.network[0]
    assert isinstance(lrh, Lrh)
    lrh = replace(lrh, reserved2=draw(st.integers(0, 3)), reserved5=draw(st.integers(0, 31)))
    return replace(packet, network=(lrh, *packet.network[1:])).with_crcs()


@given(natives(), st.binary(max_size=70), st.binary(max_size=5))
def test_a_sound_packet_is_read_where_it_lies(packet: Packet, before: bytes, behind: bytes) -> None:
    reason, link = judge(packet.encode(), before, behind)
    lrh = packet.network[0]
    assert isinstance(lrh, Lrh)
    assert reason == 0
    assert (link.vl, link.sl, link.dlid, link.slid) == (lrh.vl, lrh.sl, lrh.dlid, lrh.slid)
    assert link.packet_bytes == 4 * lrh.packet_length_words == len(packet.encode()) - 2
    assert link.dest_qp == packet.transport.bth.dest_qp
    assert link.transport_bytes == len(packet.transport.encode())
    assert link.transport == len(before) + len(packet.encode()) - 2 - link.transport_bytes
    if len(packet.network) == 1:
        assert (link.grh, link.source, link.destination) == (-1, None, None)
    else:
        grh = packet.network[1]
        assert isinstance(grh, Grh)
        assert (link.grh, link.source, link.destination) == (len(before) + 8, grh.sgid, grh.dgid)


@given(natives(), st.data())
def test_every_bit_that_a_crc_covers_counts(packet: Packet, data: st.DataObject) -> None:
    whole = bytearray(packet.encode())
    bit = data.draw(st.integers(0, 8 * len(whole) - 1))
    whole[bit // 8] ^= 1 << bit % 8
    assert judge(bytes(whole))[0] == drops.DROP_VCRC
    good = replace(packet, vcrc=None).encode()
    changed = bytearray(good)
    bit = data.draw(st.integers(0, 8 * len(changed) - 1))
    changed[bit // 8] ^= 1 << bit % 8
    reason, _ = judge(resealed(bytes(changed)))
    variant = _variant_bits(len(packet.network) > 1)
    if (bit // 8, 1 << bit % 8) in variant or bit // 8 == len(good) - link_bytes(packet) + 4:
        assert reason == 0
    else:
        assert reason != 0


def link_bytes(packet: Packet) -> int:
    """BTH … ICRC."""
    return len(packet.transport.encode())


def _variant_bits(has_grh: bool) -> set[tuple[int, int]]:
    """Bits that may change on the way and that no other check looks at (7.8.1)."""
    if not has_grh:
        return {(0, 1 << bit) for bit in range(4, 8)}
    bits = {(offset, 1 << bit) for offset in (2, 3, 6, 7, 9, 10, 11, 15) for bit in range(8)}
    bits |= {(0, 1 << bit) for bit in range(4, 8)} | {(1, 1 << bit) for bit in range(2, 8)}
    return bits | {(8, 1 << bit) for bit in range(4)} | {(4, 1 << bit) for bit in range(3, 8)}


@given(st.sampled_from(["native", "native_grh"]), fields_of(Bth), st.integers(0, 200))
def test_no_prefix_of_a_packet_is_read(kind: str, bth: Bth, cut: int) -> None:
    packet = assemble(sample_route(kind), replace(bth, opcode=4, tver=0), (), bytes(40)).encode()
    short = packet[: min(cut, len(packet) - 1)]
    assert judge(short)[0] in (drops.DROP_TRUNCATED, drops.DROP_VCRC)
    assert judge(resealed(short[:-2]))[0] in (drops.DROP_TRUNCATED, drops.DROP_LENGTH)


@pytest.mark.parametrize("kind", ["native", "native_grh"])
def test_what_has_no_room_for_its_headers_and_both_crcs_is_cut_short(kind: str) -> None:
    """Sealed anew at each length, and with that length in its LRH where it can say so."""
    packet = assemble(sample_route(kind), Bth(4), (), b"").encode()
    for bytes_ in range(len(packet) - 2):
        data = bytearray(packet[:bytes_])
        if bytes_ >= 8:
            data[4:6] = (bytes_ // 4).to_bytes(2, "big")
        whole = resealed(bytes(data))
        if bytes_ >= 8 and bytes_ % 4:
            assert judge(whole)[0] == drops.DROP_LENGTH
        else:
            assert judge(whole)[0] == drops.DROP_TRUNCATED


@pytest.mark.parametrize(("offset", "length"), [(-1, 30), (0, 101), (71, 30), (100, 30), (1 << 40, 30)])
def test_a_packet_beyond_the_buffer_is_dropped(offset: int, length: int) -> None:
    assert LINK.decode(memoryview(bytearray(100)), offset, length) == drops.DROP_LENGTH


# two things wrong at once: which one is told shows the order of the checks
ORDER = [
    (drops.DROP_VCRC, {"vcrc", "lver", "length", "lnh", "grh", "icrc"}),
    (drops.DROP_LINK_HEADER, {"lver", "length", "lnh", "icrc"}),
    (drops.DROP_LENGTH, {"length", "lnh", "grh", "icrc"}),
    (drops.DROP_RAW, {"lnh", "grh", "icrc"}),
    (drops.DROP_LINK_HEADER, {"grh", "icrc"}),
    (drops.DROP_ICRC, {"icrc"}),
    (drops.DROP_NONE, set()),
]


@pytest.mark.parametrize(("reason", "wrong"), ORDER)
def test_the_checks_come_in_the_standards_order(reason: int, wrong: set[str]) -> None:
    packet = assemble(sample_route("native_grh"), Bth(4, dest_qp=7), (), b"four")
    data = bytearray(packet.encode()[:-2])
    for name, offset in (("lver", 0), ("length", 5), ("grh", 14), ("icrc", len(data) - 1)):
        if name in wrong:
            data[offset] ^= 1
    if "lnh" in wrong:
        data[1] &= 0xFC
    whole = resealed(bytes(data))
    if "vcrc" in wrong:
        whole = whole[:-1] + bytes([whole[-1] ^ 1])
    assert judge(whole)[0] == reason


def test_gids_of_packets_in_turn_are_each_their_own() -> None:
    packets = []
    for number in (1, 2, 1, 3, 3):
        sgid, dgid = bytes([number]) * 16, bytes([number, 0]) * 8
        route = sample_route("native_grh")
        packet = assemble(route, Bth(4), (), b"")
        grh = packet.network[1]
        assert isinstance(grh, Grh)
        grh = replace(grh, sgid=sgid, dgid=dgid)
        packets.append((sgid, dgid, replace(packet, network=(packet.network[0], grh)).with_crcs().encode()))
    for sgid, dgid, data in packets:
        reason, link = judge(data)
        assert (reason, link.source, link.destination) == (0, sgid, dgid)
    plain = assemble(sample_route("native"), Bth(4), (), b"").encode()
    reason, link = judge(plain)
    assert (reason, link.source, link.destination, link.grh) == (0, None, None, -1)
    reason, link = judge(packets[-1][2])
    assert (reason, link.source) == (0, packets[-1][0])


def test_a_byte_of_a_gid_that_changes_alone_is_seen() -> None:
    packet = assemble(sample_route("native_grh"), Bth(4), (), b"")
    for field in ("sgid", "dgid"):
        for offset in range(16):
            grh = packet.network[1]
            assert isinstance(grh, Grh)
            gid = bytearray(getattr(grh, field))
            gid[offset] ^= 1
            other = replace(packet, network=(packet.network[0], replace(grh, **{field: bytes(gid)})))
            judge(packet.encode())
            _, link = judge(other.with_crcs().encode())
            assert (link.source if field == "sgid" else link.destination) == bytes(gid)
