"""The Linux kernel's own RoCEv2 traffic decodes, its ICRCs verify, and it encodes to the same bytes."""

import pytest
from wire_samples import CAPTURES

from softhca.machine.primitives import address_of
from softhca.wire import icrc
from softhca.wire.aeth import (
    CREDITS_INVALID,
    KIND_ACK,
    KIND_MASK,
    KIND_NAK,
    KIND_RNR_NAK,
    NAK_PSN_SEQUENCE,
    NAK_REMOTE_ACCESS,
)
from softhca.wire.captures import read_capture
from softhca.wire.packet import Packet, decode
from softhca.wire.packet_view import PacketView
from softhca.wire.route import ROCE_V4, V4_MAPPED_PREFIX, Route

PACKETS = {
    "atomic": 14,
    "bad_rkey": 2,
    "ib_read_bw": 25,
    "ib_send_bw_odd": 20,
    "ib_write_bw": 25,
    "loss5": 152,
    "mix": 32,
    "mix_ipv6": 32,
    "psn_wrap": 16,
    "rc_pingpong": 50,
    "rnr": 63,
    "rping": 41,
    "send_inv": 6,
    "uc_pingpong": 20,
    "ucmatose": 34,
    "ud_pingpong": 10,
    "ud_pingpong_ipv6": 6,
}
every_capture = pytest.mark.parametrize("name", PACKETS)


def load(name: str) -> list[tuple[bytes, Packet]]:
    with (CAPTURES / f"{name}.pcap").open("rb") as stream:
        return [
            (captured.data, decode(captured.data, captured.link_type)) for captured in read_capture(stream)
        ]


def test_every_capture_is_listed() -> None:
    assert {path.stem for path in CAPTURES.glob("*.pcap")} == set(PACKETS)


@every_capture
def test_every_packet_decodes_and_encodes_to_the_same_bytes(name: str) -> None:
    packets = load(name)
    assert len(packets) == PACKETS[name]
    for frame, packet in packets:
        assert packet is not None
        assert packet.encode() == frame


@every_capture
def test_every_icrc_verifies_both_ways(name: str) -> None:
    for _, packet in load(name):
        assert packet.icrc_ok
        ip, udp = packet.network
        prefix = V4_MAPPED_PREFIX if packet.framing == ROCE_V4 else b""
        route = Route(
            packet.framing, prefix + ip.source, prefix + ip.destination, source_port=udp.source_port
        )
        if packet.framing == ROCE_V4:
            route.identification = ip.identification
        data = bytearray(packet.transport.encode())
        assert icrc.syndrome(route, address_of(data), len(data)) == 0


@every_capture
def test_the_hot_paths_view_takes_every_packet(name: str) -> None:
    view = PacketView()
    for _, packet in load(name):
        data = bytearray(packet.transport.encode())
        assert view.decode(data, 0, len(data)) == 0
        assert (view.opcode, view.psn, view.dest_qp) == (
            packet.transport.bth.opcode,
            packet.transport.bth.psn,
            packet.transport.bth.dest_qp,
        )
        assert data[view.payload : view.payload + view.payload_bytes] == packet.transport.payload


def syndromes(name: str) -> set[int]:
    headers = (dict(packet.headers()) for _, packet in load(name))
    return {found["aeth"].syndrome for found in headers if "aeth" in found}


def test_the_captures_hold_what_their_index_says() -> None:
    seen = {name: {packet.transport.opcode.name for _, packet in load(name)} for name in PACKETS}
    assert {"RC_COMPARE_SWAP", "RC_FETCH_ADD", "RC_ATOMIC_ACKNOWLEDGE"} <= seen["atomic"]
    assert "RC_SEND_ONLY_WITH_INVALIDATE" in seen["send_inv"]
    assert "UD_SEND_ONLY" in seen["ud_pingpong"] & seen["ud_pingpong_ipv6"] & seen["rping"] & seen["ucmatose"]
    assert {opcode.partition("_")[0] for opcode in seen["uc_pingpong"]} == {"UC"}
    for name in ("mix", "mix_ipv6"):
        assert {packet.transport.bth.pad for _, packet in load(name)} == {0, 1, 2, 3}
    assert {0, 0xFFFFFF} <= {packet.transport.bth.psn for _, packet in load("psn_wrap")}


def test_the_captures_hold_naks_of_each_kind() -> None:
    sequence, remote_access = (KIND_NAK | code for code in (NAK_PSN_SEQUENCE, NAK_REMOTE_ACCESS))
    assert syndromes("bad_rkey") == {remote_access}
    assert remote_access in syndromes("send_inv")
    assert sequence in syndromes("loss5")
    assert KIND_RNR_NAK in {syndrome & KIND_MASK for syndrome in syndromes("rnr")}
    # this kernel gives no credits
    assert syndromes("mix") == {KIND_ACK | CREDITS_INVALID}
