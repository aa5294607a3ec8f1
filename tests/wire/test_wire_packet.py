"""Whole packets in every framing: what comes out is what went in, or why not."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from wire_samples import FRAMINGS, packets, sample_route

from softhca.wire import vcrc
from softhca.wire.aeth import Aeth
from softhca.wire.bth import Bth
from softhca.wire.capture_file import (
    LINKTYPE_ETHERNET,
    LINKTYPE_INFINIBAND,
    LINKTYPE_IPV4,
    LINKTYPE_IPV6,
    LINKTYPE_LINUX_SLL,
    LINKTYPE_LINUX_SLL2,
    LINKTYPE_RAW,
)
from softhca.wire.errors import WireError
from softhca.wire.framing import NATIVE
from softhca.wire.ip import Ethernet, Ipv6, LinuxCooked, LinuxCooked2, Vlan
from softhca.wire.packet import Packet, assemble, captured, decode, decode_transport


def link_type_of(packet: Packet) -> int:
    return LINKTYPE_INFINIBAND if packet.framing == NATIVE else LINKTYPE_RAW


@given(packets())
def test_an_assembled_packet_is_sound_and_decodes_to_itself(packet: Packet) -> None:
    decoded = decode(packet.encode(), link_type_of(packet))
    assert decoded == packet
    assert decoded.icrc_ok
    assert decoded.vcrc_ok is (True if packet.framing == NATIVE else None)


@given(packets(), st.data())
def test_any_frame_decodes_to_itself_or_says_why_not(packet: Packet, data: st.DataObject) -> None:
    frame = bytearray(packet.encode())
    for _ in range(data.draw(st.integers(1, 4))):
        frame[data.draw(st.integers(0, len(frame) - 1))] = data.draw(st.integers(0, 255))
    frame = frame[: data.draw(st.integers(0, len(frame)))] + bytes(data.draw(st.integers(0, 3)))
    try:
        decoded = decode(bytes(frame), link_type_of(packet))
    except WireError:
        return
    assert decoded is None or decoded.encode() == frame


@given(st.binary(max_size=80), st.sampled_from([1, 101, 113, 228, 229, 247, 276]))
def test_any_bytes_decode_to_themselves_or_say_why_not(frame: bytes, link_type: int) -> None:
    try:
        decoded = decode(frame, link_type)
    except WireError:
        return
    assert decoded is None or decoded.encode() == frame


def sample(kind: str = "ipv4") -> Packet:
    return assemble(sample_route(kind), Bth(0x04, dest_qp=5, psn=6), (), b"payload")


@pytest.mark.parametrize(
    ("link", "link_type"),
    [
        ((Ethernet(),), LINKTYPE_ETHERNET),
        ((Ethernet(ethertype=0x8100), Vlan(7)), LINKTYPE_ETHERNET),
        ((Ethernet(ethertype=0x8100), Vlan(7, 0x8100), Vlan(8)), LINKTYPE_ETHERNET),
        ((Ethernet(ethertype=0x88A8), Vlan(7, 0x8100), Vlan(8)), LINKTYPE_ETHERNET),
        ((LinuxCooked(),), LINKTYPE_LINUX_SLL), ((LinuxCooked2(),), LINKTYPE_LINUX_SLL2),
        ((LinuxCooked(ethertype=0x8100), Vlan(7)), LINKTYPE_LINUX_SLL),
        ((LinuxCooked2(ethertype=0x88A8), Vlan(7, 0x8100), Vlan(8)), LINKTYPE_LINUX_SLL2),
        ((), LINKTYPE_RAW), ((), LINKTYPE_IPV4),
    ],
)  # fmt: skip
def test_a_packet_is_found_behind_every_link_header(link, link_type: int) -> None:
    packet = replace(sample(), link=link)
    assert decode(packet.encode(), link_type) == packet


def test_ipv6_is_found_behind_ethernet_and_raw() -> None:
    packet = sample("ipv6")
    assert decode(packet.encode(), LINKTYPE_IPV6) == packet
    framed = replace(packet, link=(Ethernet(ethertype=0x86DD),))
    assert decode(framed.encode(), LINKTYPE_ETHERNET) == framed


def behind_extensions(chain: bytes, port: int, *kinds: int) -> bytes:
    """The IPv6 sample with these extension headers before its UDP header."""
    packet = sample("ipv6")
    ip, udp = packet.network
    assert isinstance(ip, Ipv6)
    first = replace(ip, next_header=kinds[0], payload_length_bytes=ip.payload_length_bytes + len(chain))
    return first.encode() + chain + replace(udp, destination_port=port).encode() + packet.transport.encode()


@pytest.mark.parametrize(
    ("kinds", "chain"),
    [
        ((0,), bytes((17, 0)) + bytes(6)),  # hop-by-hop options of 8 bytes
        ((43,), bytes((17, 1)) + bytes(14)),  # routing
        ((44,), bytes((17, 0, 0, 1)) + bytes(4)),  # a first fragment
        ((51,), bytes((17, 4)) + bytes(22)),  # authentication, whose words are of four bytes
        ((0, 60), bytes((60, 0)) + bytes(6) + bytes((17, 2)) + bytes(22)),
    ],
)
def test_ipv6_extension_headers_before_rocev2_are_told(kinds: tuple[int, ...], chain: bytes) -> None:
    with pytest.raises(WireError, match="no IPv6 extension headers"):
        decode(behind_extensions(chain, 4791, *kinds), LINKTYPE_RAW)
    assert decode(behind_extensions(chain, 4790, *kinds), LINKTYPE_RAW) is None
    assert decode(behind_extensions(chain, 4791, *kinds)[:44], LINKTYPE_RAW) is None


def test_a_later_ipv6_fragment_is_no_rdma_packet() -> None:
    chain = bytes((17, 0, 0, 0x18)) + bytes(4)
    assert decode(behind_extensions(chain, 4791, 44), LINKTYPE_RAW) is None


def test_what_ethernet_fills_up_is_kept_as_trailer() -> None:
    packet = replace(sample(), link=(Ethernet(),), trailer=bytes(5))
    decoded = decode(packet.encode(), LINKTYPE_ETHERNET)
    assert decoded == packet
    assert decoded.transport.payload == b"payload"
    assert decoded.icrc_ok


def test_other_protocols_are_no_rdma_packets() -> None:
    packet = sample()
    ip, udp = packet.network
    for network in (
        (replace(ip, protocol=6), udp),
        (ip, replace(udp, destination_port=4790)),
        (replace(ip, fragment=3), udp),  # a later fragment has no UDP header
    ):
        assert decode(replace(packet, network=network).encode(), LINKTYPE_RAW) is None
    packet = sample("ipv6")
    ip, udp = packet.network
    for network in ((replace(ip, next_header=6), udp), (ip, replace(udp, destination_port=53))):
        assert decode(replace(packet, network=network).encode(), LINKTYPE_RAW) is None
    native = sample("native")
    for lnh in (0, 1):
        raw = replace(native, network=(replace(native.network[0], lnh=lnh),))
        assert decode(raw.encode(), LINKTYPE_INFINIBAND) is None
    assert decode(Ethernet(ethertype=0x0806).encode() + bytes(40), LINKTYPE_ETHERNET) is None
    assert decode(b"", LINKTYPE_RAW) is None


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"fragment": 0x2000}, "fragments"), ({"header_words": 4}, "words"),
        ({"total_length_bytes": 300}, "captured"), ({"total_length_bytes": 40}, "UDP length"),
    ],
)  # fmt: skip
def test_an_ipv4_header_that_contradicts_its_packet_is_refused(changes: dict, message: str) -> None:
    packet = sample()
    broken = replace(packet, network=(replace(packet.network[0], **changes), packet.network[1]))
    with pytest.raises(WireError, match=message):
        decode(broken.encode(), LINKTYPE_RAW)


def test_ipv4_options_are_refused() -> None:
    packet = sample()
    ip = replace(packet.network[0], header_words=6)
    frame = ip.encode() + bytes(4) + packet.encode()[20:]
    with pytest.raises(WireError, match="options"):
        decode(frame, LINKTYPE_RAW)


def test_an_ipv6_length_that_contradicts_its_packet_is_refused() -> None:
    packet = sample("ipv6")
    for length, message in ((200, "captured"), (28, "UDP length")):
        ip = replace(packet.network[0], payload_length_bytes=length)
        with pytest.raises(WireError, match=message):
            decode(replace(packet, network=(ip, packet.network[1])).encode(), LINKTYPE_RAW)


def test_a_version_that_contradicts_the_ethernet_type_is_refused() -> None:
    for kind, ethertype in (("ipv4", 0x86DD), ("ipv6", 0x0800)):
        framed = replace(sample(kind), link=(Ethernet(ethertype=ethertype),))
        with pytest.raises(WireError, match="version"):
            decode(framed.encode(), LINKTYPE_ETHERNET)


@pytest.mark.parametrize("change", [{"version": 5}, {"next_header": 17}, {"payload_length_bytes": 20}])
def test_a_grh_that_contradicts_its_packet_is_refused(change: dict) -> None:
    packet = sample("native_grh")
    broken = replace(packet, network=(packet.network[0], replace(packet.network[1], **change)))
    with pytest.raises(WireError, match="GRH"):
        decode(broken.encode(), LINKTYPE_INFINIBAND)


def test_an_lrh_length_that_contradicts_its_packet_is_refused() -> None:
    packet = sample("native")
    for frame in (packet.encode() + bytes(1), packet.encode()[:-1], packet.encode()[:-6]):
        with pytest.raises(WireError, match="LRH"):
            decode(frame, LINKTYPE_INFINIBAND)


def test_a_native_capture_without_vcrc_is_taken() -> None:
    frame = sample("native").encode()[: -vcrc.LENGTH_BYTES]
    decoded = decode(frame, LINKTYPE_INFINIBAND)
    assert (decoded.vcrc, decoded.vcrc_ok, decoded.icrc_ok) == (None, None, True)
    assert decoded.encode() == frame
    assert decoded.with_crcs() == decoded


def test_an_unknown_link_type_is_refused() -> None:
    with pytest.raises(WireError, match="link type 0"):
        decode(sample().encode(), 0)


def test_wrong_crcs_are_told_and_mended() -> None:
    packet = sample("native")
    broken = replace(packet, vcrc=packet.vcrc ^ 1, transport=replace(packet.transport, icrc=0))
    assert (broken.icrc_ok, broken.vcrc_ok) == (False, False)
    assert broken.with_crcs() == packet
    # the virtual lane changes on the way: only the VCRC notices
    moved = replace(packet, network=(replace(packet.network[0], vl=3),))
    assert (moved.icrc_ok, moved.vcrc_ok) == (True, False)


def test_addresses_are_told_as_people_write_them() -> None:
    assert (sample().source, sample().destination) == ("10.0.0.1", "10.0.0.2")
    assert sample("ipv6").source == "1:203:405:607:809:a0b:c0d:e0f"
    assert (sample("native").source, sample("native").destination) == ("lid 6098", "lid 14172")
    assert sample("native_grh").destination == "1011:1213:1415:1617:1819:1a1b:1c1d:1e1f"


def test_headers_come_by_name_outermost_first() -> None:
    packet = assemble(sample_route("native_grh"), Bth(0x11), (Aeth(0x1F, 3),))
    assert [name for name, _ in packet.headers()] == ["lrh", "grh", "bth", "aeth"]
    assert dict(packet.headers())["aeth"].as_dict() == {"syndrome": 0x1F, "msn": 3}


@pytest.mark.parametrize("kind", FRAMINGS)
def test_a_segment_from_a_link_becomes_the_frame_of_a_capture(kind: str) -> None:
    packet = sample(kind)
    segment = packet.encode() if packet.framing == NATIVE else packet.transport.encode()
    assert captured(sample_route(kind), segment) == packet.encode()


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (bytes([0x04, 0x40]) + bytes(15), "whole words"), (bytes(8), "needs 12"), (bytes(12), "no ICRC"),
        (bytes([0x15]) + bytes(15), "reserved opcode 0x15"), (bytes([0x04, 0x01]) + bytes(14), "version 1"),
        (bytes([0x04, 0x10]) + bytes(14), "pad count 1"), (bytes([0x11]) + bytes(23), "no payload may be"),
        (bytes([0x06]) + bytes(23), "needs 16"), (bytes([0x11]) + bytes(15), "no ICRC"),
    ],
)  # fmt: skip
def test_a_broken_transport_packet_says_what_is_wrong(data: bytes, message: str) -> None:
    with pytest.raises(WireError, match=message):
        decode_transport(data)
