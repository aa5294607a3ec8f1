"""Bursts that were captured before they were cut, or after they were joined."""

from __future__ import annotations

import argparse
import io
from dataclasses import replace
from pathlib import Path

import pytest
from wire_samples import CAPTURES, sample_route

from softhca.cli import capture
from softhca.wire.aeth import Aeth
from softhca.wire.bth import Bth
from softhca.wire.capture_file import LINKTYPE_ETHERNET, LINKTYPE_RAW, CapturedPacket
from softhca.wire.captured_burst import cut_burst
from softhca.wire.captures import read_capture
from softhca.wire.ip import Ethernet, Ipv4, Udp, Vlan
from softhca.wire.opcodes import RC_ACKNOWLEDGE, RC_RDMA_WRITE_FIRST, RC_RDMA_WRITE_MIDDLE, RC_SEND_ONLY
from softhca.wire.packet import Packet, assemble, decode
from softhca.wire.reth import Reth


def burst_of(kind: str, payloads: list[bytes], identifications: list[int] | None = None) -> list[Packet]:
    """Packets of one burst; IPv4 identifications count up from 0xFFFF, unless they are given."""
    packets = []
    for number, payload in enumerate(payloads):
        counted = 0xFFFF + number & 0xFFFF
        identification = counted if identifications is None else identifications[number]
        route = sample_route(kind, identification=identification if kind == "ipv4" else 0, source_port=50_000)
        packets.append(assemble(route, Bth(RC_RDMA_WRITE_MIDDLE, dest_qp=5, psn=number), (), payload))
    return packets


def joined(packets: list[Packet]) -> bytes:
    """What a capture shows of them: one IP and UDP header."""
    transports = b"".join(packet.transport.encode() for packet in packets)
    ip, udp = packets[0].network
    assert isinstance(udp, Udp)
    udp = replace(udp, length_bytes=8 + len(transports))
    if isinstance(ip, Ipv4):
        ip = replace(ip, total_length_bytes=28 + len(transports)).with_checksum()
    else:
        ip = replace(ip, payload_length_bytes=8 + len(transports))
    return ip.encode() + udp.encode() + transports


@pytest.mark.parametrize("kind", ["ipv4", "ipv6"])
@pytest.mark.parametrize("sizes", [[1024] * 5, [256, 256, 8], [4096] * 3, [100, 100], [0, 0, 0, 0]])
def test_a_burst_is_the_packets_that_it_was_made_of(kind: str, sizes: list[int]) -> None:
    packets = burst_of(kind, [bytes([number + 1]) * size for number, size in enumerate(sizes)])
    assert cut_burst(joined(packets), LINKTYPE_RAW) == [packet.encode() for packet in packets]


def test_the_links_headers_stand_before_each_packet() -> None:
    packets = burst_of("ipv4", [bytes(512)] * 3)
    link = Ethernet(ethertype=0x8100).encode() + Vlan(7).encode()
    frames = cut_burst(link + joined(packets) + b"fill", LINKTYPE_ETHERNET)
    assert frames == [link + packet.encode() for packet in packets]


def test_packets_that_carry_no_payload_are_cut_too() -> None:
    packets = [
        assemble(sample_route("ipv6"), Bth(RC_ACKNOWLEDGE, dest_qp=5, psn=psn), (Aeth(msn=psn),))
        for psn in range(3)
    ]
    assert cut_burst(joined(packets), LINKTYPE_RAW) == [packet.encode() for packet in packets]


def test_the_first_packet_may_have_headers_that_those_behind_it_have_not() -> None:
    route = sample_route("ipv6")
    first = assemble(route, Bth(RC_RDMA_WRITE_FIRST, dest_qp=5), (Reth(0, 7, 3000),), bytes(1024))
    second = assemble(route, Bth(RC_SEND_ONLY, dest_qp=5, psn=1), (), bytes(40))
    assert cut_burst(joined([first, second]), LINKTYPE_RAW) == [first.encode(), second.encode()]


def test_identifications_that_do_not_count_up_are_found_from_the_icrc() -> None:
    packets = burst_of("ipv4", [bytes(256)] * 3, [7, 0x8123, 7])
    assert cut_burst(joined(packets), LINKTYPE_RAW) == [packet.encode() for packet in packets]


def test_a_packet_of_a_burst_that_was_damaged_stays_so_and_no_other() -> None:
    packets = burst_of("ipv4", [bytes(256)] * 3)
    data = bytearray(joined(packets))
    data[28 + 272 + 20] ^= 1
    cut = [decode(frame, LINKTYPE_RAW) for frame in cut_burst(bytes(data), LINKTYPE_RAW)]
    assert [packet is not None and packet.icrc_ok for packet in cut] == [True, False, True]


def test_what_is_no_burst_stays_as_it_is() -> None:
    with (CAPTURES / "mix.pcap").open("rb") as stream:
        kernels = list(read_capture(io.BytesIO(stream.read())))
    for captured in kernels:
        damaged = bytearray(captured.data)
        damaged[-1] ^= 0x10
        assert cut_burst(bytes(damaged), captured.link_type) == [bytes(damaged)]
        assert cut_burst(captured.data, captured.link_type) == [captured.data]
    for data in (b"", b"\x45", bytes(60), joined(burst_of("ipv4", [bytes(256)] * 2))[:-1]):
        assert cut_burst(data, LINKTYPE_RAW) == [data]
    short = bytes([0x45, 0, 0, 28]) + bytes(5) + b"\x11" + bytes(10) + b"\0\0\x12\xb7\0\x08\0\0"
    assert cut_burst(short, LINKTYPE_RAW) == [short]


def test_a_capture_shows_the_packets_of_a_burst_by_number_and_segment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packets = burst_of("ipv4", [bytes(256), bytes(256), bytes(12)])
    captured = [CapturedPacket(1, 5, LINKTYPE_RAW, packets[0].encode(), 0)]
    captured.append(CapturedPacket(2, 6, LINKTYPE_RAW, joined(packets), 0))
    records = list(capture.decoded(iter(captured)))
    assert [(r["number"], r.get("segment"), r["psn"], r["icrc_ok"], r["payload_bytes"]) for r in records] == [
        (1, None, 0, True, 256), (2, 1, 0, True, 256), (2, 2, 1, True, 256), (2, 3, 2, True, 12),
    ]  # fmt: skip
    rows: list[tuple[str, ...]] = []
    monkeypatch.setattr(capture, "print_table", lambda title, columns, found: rows.extend(found))
    monkeypatch.setattr(capture, "read_capture", lambda stream: iter(captured))
    (tmp_path / "any").touch()
    assert capture.run(words(tmp_path / "any")) == 0
    assert [row[0] for row in rows] == ["1", "2.1", "2.2", "2.3"]


def words(file: Path) -> argparse.Namespace:
    """What the command is given."""
    return argparse.Namespace(action="decode", file=file, json=False)
