"""Rules of single fields, and numbers of standards: two ends of one make would agree on any others."""

from __future__ import annotations

import importlib
import socket
import sys
from dataclasses import replace

import pytest
from wire_samples import sample_route

from softhca.machine.primitives import address_of
from softhca.wire import build, drops, ethernet, icrc, opcodes, raw, vcrc
from softhca.wire.bth import Bth
from softhca.wire.burst import Burst
from softhca.wire.capture_file import LINKTYPE_ETHERNET, LINKTYPE_IPV6
from softhca.wire.errors import WireError
from softhca.wire.flows import source_port
from softhca.wire.framing import ROCE_V4, ROCE_V6
from softhca.wire.ip import ETHERTYPE_IPV6, ETHERTYPE_SERVICE_VLAN, ETHERTYPE_VLAN, Ethernet, Udp, Vlan
from softhca.wire.link_view import LinkView
from softhca.wire.lrh import Lrh
from softhca.wire.packet import assemble, decode, decode_transport
from softhca.wire.packet_view import PacketView
from softhca.wire.raw_packet import assemble_raw
from softhca.wire.reth import Reth
from softhca.wire.route import V4_MAPPED_PREFIX, Route

# IBTA vol. 1, 7.7.5, 8.3, 9.2.1, 9.3.5, A17, A19; IANA's protocols and ports; tcpdump's link types
NUMBERS: dict[str, dict[str, int]] = {
    "aeth": {
        "KIND_MASK": 0x60, "VALUE_MASK": 0x1F, "KIND_ACK": 0, "KIND_RNR_NAK": 0x20, "KIND_NAK": 0x60,
        "NAK_PSN_SEQUENCE": 0, "NAK_INVALID_REQUEST": 1, "NAK_REMOTE_ACCESS": 2,
        "NAK_REMOTE_OPERATIONAL": 3, "NAK_INVALID_RD_REQUEST": 4, "CREDITS_INVALID": 0x1F,
    },
    "bth": {
        "FECN_BIT": 0x80, "BECN_BIT": 0x40, "SOLICITED_BIT": 0x80, "MIGREQ_BIT": 0x40,
        "ACK_REQUEST_BIT": 0x80,
    },
    "feth": {"GLOBAL_VISIBILITY": 1, "PERSISTENCE": 2, "RANGE": 0, "REGION": 1},
    "grh": {"VERSION": 6, "NEXT_HEADER_IBA": 0x1B},
    "lrh": {
        "LNH_RAW": 0, "LNH_IPV6": 1, "LNH_LOCAL": 2, "LNH_GLOBAL": 3, "MAX_PACKET_LENGTH_WORDS": 0x7FF,
        "LONGEST_HEADERS_BYTES": 124,
    },
    "ip": {
        "ETHERTYPE_IPV4": 0x0800, "ETHERTYPE_VLAN": 0x8100, "ETHERTYPE_IPV6": 0x86DD,
        "ETHERTYPE_SERVICE_VLAN": 0x88A8, "PROTOCOL_UDP": 17, "IPV6_FRAGMENT": 44,
        "IPV6_AUTHENTICATION": 51, "ROCE_PORT": 4791, "DONT_FRAGMENT": 0x4000, "MORE_FRAGMENTS": 0x2000,
        "FRAGMENT_OFFSET_MASK": 0x1FFF, "ECN_MASK": 3, "ECT0": 2, "MARKED": 3,
    },
    "vxlan": {"VXLAN_PORT": 4789, "HEADER_BYTES": 8, "MOST_VNI": 0xFFFFFF},
    "flows": {"FIRST_SOURCE_PORT": 0xC000, "LAST_SOURCE_PORT": 0xFFFF},
    "capture_file": {
        "LINKTYPE_ETHERNET": 1, "LINKTYPE_RAW": 101, "LINKTYPE_LINUX_SLL": 113, "LINKTYPE_IPV4": 228,
        "LINKTYPE_IPV6": 229, "LINKTYPE_INFINIBAND": 247, "LINKTYPE_LINUX_SLL2": 276,
    },
    "pcap": {"MAGIC_US": 0xA1B2C3D4, "MAGIC_NS": 0xA1B23C4D},
    "pcapng": {
        "BLOCK_SECTION": 0x0A0D0D0A, "BLOCK_INTERFACE": 1, "BLOCK_PACKET": 2, "BLOCK_SIMPLE_PACKET": 3,
        "BLOCK_ENHANCED_PACKET": 6, "BYTE_ORDER_MAGIC": 0x1A2B3C4D, "OPTION_END": 0,
        "OPTION_INTERFACE_NAME": 2, "OPTION_USER_APPLICATION": 4, "OPTION_TIME_RESOLUTION": 9,
        "OPTION_TIME_OFFSET": 14,
    },
}  # fmt: skip


@pytest.mark.parametrize("module", NUMBERS)
def test_numbers_are_the_standards(module: str) -> None:
    loaded = importlib.import_module(f"softhca.wire.{module}")
    assert {name: getattr(loaded, name) for name in NUMBERS[module]} == NUMBERS[module]


@pytest.mark.parametrize("migreq", [False, True])
def test_a_bth_says_whether_its_path_has_migrated(migreq: bool) -> None:
    data = bytearray(12)
    build.put_bth(memoryview(data), 0, opcodes.RC_SEND_ONLY, False, 0, 0xFFFF, 5, False, 7, migreq=migreq)
    assert Bth.decode(data).migreq == migreq


def test_a_burst_that_is_emptied_is_no_counted_one() -> None:
    burst = Burst()
    burst.counted = burst.closed = True
    burst.has_icrc = False
    burst.reset()
    assert (burst.counted, burst.closed, burst.has_icrc) == (False, False, True)


def test_a_sealed_burst_has_icrcs() -> None:
    burst = Burst()
    burst.route = Route(ROCE_V6, bytes(15) + b"\1", bytes(15) + b"\2")
    burst.has_icrc = False
    burst.length = burst.stride = 16
    icrc.seal(burst)
    assert burst.has_icrc
    assert icrc.syndrome(burst.route, address_of(burst.buffer), 16) == 0


@pytest.mark.parametrize("words", range(5))
def test_an_ipv4_header_of_less_than_five_words_has_no_fields(words: int) -> None:
    header = bytes([0x40 | words, 0]) + bytes(7) + b"\x11" + bytes(10)
    frame = bytearray(bytes(12) + b"\x08\x00" + header + bytes(8))
    found = ethernet.frame_key(memoryview(frame), 0, len(frame))
    assert found[ethernet.L3] == found[ethernet.PROTOCOL] == found[ethernet.L4] == 0


@pytest.mark.parametrize(
    ("label", "port"),
    [(0, 0xC000), (1, 0xC001), (1 << 14, 0xC001), (1 << 28, 0xC001), (1 << 31, 0xC008), (0x10004001, 0xC001)],
)
def test_each_bit_of_a_label_is_in_its_source_port(label: int, port: int) -> None:
    assert source_port(label) == port


def test_a_native_packet_without_room_for_an_icrc_is_cut_short() -> None:
    for transport_bytes, reason in ((12, drops.DROP_TRUNCATED), (16, 0)):
        data = Lrh(packet_length_words=(8 + transport_bytes) // 4).encode() + bytes(transport_bytes)
        whole = bytearray(data + vcrc.compute(data).to_bytes(2, "little"))
        assert LinkView().decode(memoryview(whole), 0, len(whole)) == reason


def test_a_notification_carries_its_sixteen_bytes() -> None:
    view = PacketView()
    packet = bytearray(Bth(opcodes.CNP_PACKET, becn=1).encode() + bytes(16 + 4))
    assert view.decode(memoryview(packet), 0, len(packet)) == 0
    assert (view.operation, view.payload_bytes, view.becn) == (opcodes.CNP, 16, True)


@pytest.mark.parametrize(("tags", "found"), [(0, True), (3, True), (4, True), (5, False)])
def test_up_to_four_tags_stand_before_a_packet(tags: int, found: bool) -> None:
    packet = assemble(sample_route("ipv6"), Bth(opcodes.RC_SEND_ONLY), (), b"four")
    kinds = [ETHERTYPE_SERVICE_VLAN] + [ETHERTYPE_VLAN] * (tags - 1) if tags else []
    link = Ethernet(ethertype=[*kinds, ETHERTYPE_IPV6][0]).encode()
    for following in [*kinds, ETHERTYPE_IPV6][1:]:
        link += Vlan(5, following).encode()
    read = decode(link + packet.encode(), LINKTYPE_ETHERNET)
    assert (read is not None) == found
    if read is not None:
        assert len(read.link) == 1 + tags


def test_pad_where_no_payload_may_be_is_refused() -> None:
    read = Bth(opcodes.RC_RDMA_READ_REQUEST, pad=1).encode() + Reth().encode() + bytes(4)
    with pytest.raises(WireError, match="pad count 1"):
        decode_transport(read)
    assert decode_transport(Bth(opcodes.RC_RDMA_READ_REQUEST).encode() + Reth().encode() + bytes(4))


@pytest.mark.parametrize("version", range(16))
def test_raw_ipv6_is_of_version_6_and_no_other(version: int) -> None:
    data = bytearray(bytes([version << 4]) + bytes(39))
    assert raw.check_ipv6(memoryview(data), 0, 40) == (0 if version == 6 else drops.DROP_LINK_HEADER)


def test_a_raw_packet_goes_by_the_lane_of_its_level() -> None:
    packet = assemble_raw(1, 2, 0x9000, b"twelve bytes", sl=3)
    assert (packet.lrh.vl, packet.lrh.sl) == (3, 3)
    assert replace(packet, vcrc=0).with_vcrc() == packet


@pytest.mark.parametrize("counted", [False, True])
def test_each_packet_of_a_burst_is_sealed_for_its_identification(counted: bool) -> None:
    burst = Burst()
    burst.route = Route(
        ROCE_V4, V4_MAPPED_PREFIX + b"\x0a\0\0\1", V4_MAPPED_PREFIX + b"\x0a\0\0\2", identification=9
    )
    burst.counted = counted
    burst.length, burst.stride = 24 + 24 + 16, 24
    burst.data[burst.length] = 0x5A
    icrc.seal(burst)
    for place, (offset, length) in enumerate(((0, 24), (24, 24), (48, 16))):
        burst.route.identification = place if counted else 9
        assert icrc.syndrome(burst.route, burst.address + offset, length) == 0
    assert bytes(burst.data[burst.length : burst.length + 9]) == b"\x5a" + bytes(8)


@pytest.mark.parametrize("version", range(1, 16))
def test_a_link_version_other_than_0_is_refused(version: int) -> None:
    data = Lrh(lver=version, packet_length_words=6).encode() + bytes(16)
    whole = bytearray(data + vcrc.compute(data).to_bytes(2, "little"))
    assert LinkView().decode(memoryview(whole), 0, len(whole)) == drops.DROP_LINK_HEADER


@pytest.mark.parametrize("off", [-8, -1, 1, 8])
def test_udp_and_ip_say_the_same_length(off: int) -> None:
    packet = assemble(sample_route("ipv6"), Bth(opcodes.RC_SEND_ONLY), (), b"four")
    ip, udp = packet.network
    assert isinstance(udp, Udp)
    wrong = replace(packet, network=(ip, replace(udp, length_bytes=udp.length_bytes + off)))
    assert decode(packet.encode(), LINKTYPE_IPV6) == packet
    with pytest.raises(WireError, match="UDP length"):
        decode(wrong.encode(), LINKTYPE_IPV6)


def test_reserved_bits_of_a_flush_are_not_looked_at() -> None:
    view = PacketView()
    packet = bytearray(Bth(opcodes.RC_FLUSH).encode() + b"\xff" * 4 + bytes(16 + 4))
    assert view.decode(memoryview(packet), 0, len(packet)) == 0
    assert (view.selectivity, view.placement, view.reth_length) == (3, 15, 0)


def test_both_encodings_of_raw_ipv6_are_read_as_such() -> None:
    assert [service for service in (raw.RAW_IPV6, 0x86DD, 0x0800, 0x9000) if raw.is_ipv6(service)] == [
        0x10000, 0x86DD,
    ]  # fmt: skip
    packet = assemble_raw(1, 2, 0x86DD, bytes([0x40]) + bytes(39))
    data = bytearray(packet.encode())
    assert raw.RawView().decode(memoryview(data), 0, len(data) - 2) == drops.DROP_LINK_HEADER


def test_an_ipv6_destination_is_written_as_the_system_reads_it() -> None:
    destination = bytes.fromhex("fe80") + bytes(13) + b"\7"
    route = Route(ROCE_V6, bytes(15) + b"\1", destination, flow_label=0x12345, scope=0x102)
    family, port, label = route.socket_address[:2], route.socket_address[2:4], route.socket_address[4:8]
    assert (int.from_bytes(family, sys.byteorder), port) == (socket.AF_INET6, b"\x12\xb7")
    assert label == b"\0\x01\x23\x45"  # the only part besides address and port in network order
    assert route.socket_address[8:24] == destination
    assert int.from_bytes(route.socket_address[24:], sys.byteorder) == 0x102
