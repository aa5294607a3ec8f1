"""Raw datagrams: the hot path's view against the tools' representation, and what tools show of them."""

import argparse
import json
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from machine_speed import limit_s
from softhca.cli import capture
from softhca.wire import drops, vcrc
from softhca.wire.capture_file import LINKTYPE_INFINIBAND, LINKTYPE_RAW
from softhca.wire.errors import WireError
from softhca.wire.link_view import LinkView
from softhca.wire.packet import decode
from softhca.wire.pcapng import PcapngWriter
from softhca.wire.raw import RAW_IPV6, RawView, check_ipv6
from softhca.wire.raw_packet import RawPacket, assemble_raw, decode_raw
from softhca.wire.rwh import Rwh

IPV6_TYPE, ETHERTYPE = 0x86DD, 0x88B5
LINK, RAW = LinkView(), RawView()


def ipv6(length: int = 0, next_header: int = 59, version: int = 6) -> bytes:
    front = bytes([version << 4, 0, 0, 0]) + length.to_bytes(2, "big") + bytes([next_header, 64])
    return front + bytes(15) + b"\1" + bytes(15) + b"\2" + bytes(7 * n & 0xFF for n in range(length))


def judge(data: bytes, before: bytes = b"") -> int:
    """The first reason that the hot path's views give, beyond that it is raw."""
    buffer = memoryview(bytearray(before + data))
    reason = LINK.decode(buffer, len(before), len(data))
    assert reason != 0
    return RAW.decode(buffer, len(before), LINK.packet_bytes) if reason == drops.DROP_RAW else reason


@st.composite
def raws(draw: st.DrawFn) -> RawPacket:
    """A sound raw packet with any values in the fields that are free."""
    service = draw(st.one_of(st.sampled_from([RAW_IPV6, IPV6_TYPE, ETHERTYPE]), st.integers(0, 0xFFFF)))
    body = draw(st.binary(max_size=70))
    payload = ipv6() + body if service in (RAW_IPV6, IPV6_TYPE) else body
    lids = st.integers(0, 0xFFFF)
    packet = assemble_raw(draw(lids), draw(lids), service, payload, draw(st.integers(0, 15)))
    lrh = replace(packet.lrh, reserved2=draw(st.integers(0, 3)), reserved5=draw(st.integers(0, 31)))
    rwh = packet.rwh and replace(packet.rwh, reserved16=draw(st.integers(0, 0xFFFF)))
    return replace(packet, lrh=lrh, rwh=rwh).with_vcrc()


@given(raws(), st.binary(max_size=40))
def test_a_sound_packet_is_read_where_it_lies(packet: RawPacket, before: bytes) -> None:
    data = packet.encode()
    assert judge(data, before) == 0
    assert (LINK.vl, LINK.sl, LINK.dlid, LINK.slid) == (
        packet.lrh.vl,
        packet.lrh.sl,
        packet.lrh.dlid,
        packet.lrh.slid,
    )
    assert (RAW.service, RAW.payload_bytes) == (packet.service, len(packet.payload))
    assert RAW.payload == len(before) + 8 + (0 if packet.rwh is None else 4)
    assert decode_raw(data) == packet
    assert packet.vcrc_ok is True
    assert decode(data, LINKTYPE_INFINIBAND) is None
    assert decode_raw(data[:-2]) == replace(packet, vcrc=None)
    assert decode_raw(data, LINKTYPE_RAW) is None


@given(raws(), st.data())
def test_view_and_decoder_agree_on_any_bytes(packet: RawPacket, data: st.DataObject) -> None:
    frame = bytearray(packet.encode()[:-2])
    for _ in range(data.draw(st.integers(1, 4))):
        frame[data.draw(st.integers(0, len(frame) - 1))] = data.draw(st.integers(0, 255))
    frame = frame[: data.draw(st.integers(0, len(frame)))]
    if data.draw(st.booleans()) and len(frame) >= 6:
        frame[4:6] = (len(frame) // 4).to_bytes(2, "big")
    whole = bytes(frame) + vcrc.compute(bytes(frame)).to_bytes(2, "little")
    try:
        found = decode_raw(whole)
    except WireError:
        found = None
    if found is not None:
        assert found.encode() == whole
    if found is not None and found.lrh.lver == 0 and found.vcrc is not None:
        assert judge(whole) == 0
        assert RAW.service == found.service
    elif len(frame) < 8 or frame[1] & 3 < 2:
        assert judge(whole) != 0


@pytest.mark.parametrize(
    ("length", "service", "total"),
    [(0, ETHERTYPE, 20), (8, ETHERTYPE, 20), (9, ETHERTYPE, 24), (12, ETHERTYPE, 24), (40, RAW_IPV6, 48),
     (41, RAW_IPV6, 52)],
)  # fmt: skip
def test_a_packet_is_whole_words_and_twenty_bytes_at_least(length: int, service: int, total: int) -> None:
    packet = assemble_raw(1, 2, service, ipv6()[:length].ljust(length, b"x"))
    assert len(packet.encode()) == total + 2
    assert packet.lrh.packet_length_words == total // 4


@pytest.mark.parametrize(
    ("n", "packet", "reason"),
    [
        (40, ipv6(), 0),
        (39, ipv6(), drops.DROP_TRUNCATED),
        (0, ipv6(), drops.DROP_TRUNCATED),
        (44, ipv6(4, version=5), drops.DROP_LINK_HEADER),
        (44, ipv6(4, next_header=0x1B), drops.DROP_RAW_TRANSPORT),
        (44, ipv6(4, next_header=0x1A), 0),
        (44, ipv6(4, version=4, next_header=0x1B), drops.DROP_LINK_HEADER),
    ],
)
def test_what_may_go_as_ipv6_c9_208(n: int, packet: bytes, reason: int) -> None:
    assert check_ipv6(memoryview(bytearray(b"\x1b" * 3 + packet)), 3, n) == reason


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (assemble_raw(1, 2, RAW_IPV6, ipv6(4, next_header=0x1B)).encode(), "C9-208"),
        (assemble_raw(1, 2, IPV6_TYPE, ipv6(4, next_header=0x1B)).encode(), "C9-208"),
        (assemble_raw(1, 2, RAW_IPV6, ipv6(4, version=4)).encode(), "version 4"),
        (assemble_raw(1, 2, RAW_IPV6, ipv6()[:30]).encode(), "Ipv6"),
        (assemble_raw(1, 2, ETHERTYPE, b"x").encode()[:-1], "captured"),
        (bytes.fromhex("0000000100030002" + "000088b5"), "20 bytes"),
        (b"\0\0\0", "Lrh"),
    ],
)
def test_a_damaged_packet_says_what_is_wrong(data: bytes, message: str) -> None:
    with pytest.raises(WireError, match=message):
        decode_raw(data)


def test_headers_and_ends() -> None:
    packet = assemble_raw(5, 6, IPV6_TYPE, ipv6(8))
    assert [name for name, _ in packet.headers()] == ["lrh", "rwh", "ipv6"]
    assert (packet.source, packet.destination) == ("lid 5", "lid 6")
    assert packet.rwh == Rwh(ethertype=IPV6_TYPE)
    assert replace(packet, vcrc=packet.vcrc ^ 1 if packet.vcrc else 0).vcrc_ok is False
    assert replace(packet, vcrc=None).vcrc_ok is None


@pytest.fixture
def captured(tmp_path: Path) -> Path:
    """A capture with a datagram of each encoding, one with a wrong VCRC and one that breaks C9-208."""
    packets = [
        assemble_raw(5, 6, RAW_IPV6, ipv6(10)),
        assemble_raw(5, 6, IPV6_TYPE, ipv6(10)),
        assemble_raw(5, 6, ETHERTYPE, b"experiment"),
        replace(assemble_raw(5, 6, ETHERTYPE, b"damaged"), vcrc=1),
        assemble_raw(5, 6, RAW_IPV6, ipv6(10, next_header=0x1B)),
    ]
    return write(tmp_path / "raw.pcapng", LINKTYPE_INFINIBAND, packets)


def write(path: Path, link_type: int, packets: list[RawPacket]) -> Path:
    with path.open("wb") as stream:
        writer = PcapngWriter(stream)
        number = writer.add_interface(link_type)
        for index, packet in enumerate(packets):
            writer.write(number, 1_000 + index, packet.encode())
    return path


def run(*words: str) -> int:
    parser = argparse.ArgumentParser()
    capture.add_options(parser)
    return capture.run(parser.parse_args(["decode", *words]))


def test_capture_decode_shows_raw_datagrams(captured: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(str(captured), "--json") == 0
    records = json.loads(capsys.readouterr().out)
    names = ["RAW_IPV6", "RAW_ETHERTYPE_0x86dd", "RAW_ETHERTYPE_0x88b5", "RAW_ETHERTYPE_0x88b5"]
    assert [record.get("opcode") for record in records] == [*names, None]
    assert [record["vcrc_ok"] for record in records[:4]] == [True, True, True, False]
    assert [record["payload_bytes"] for record in records[:4]] == [52, 52, 12, 8]
    assert {(record["icrc_ok"], record["dest_qp"], record["psn"]) for record in records[:4]} == {(None,) * 3}
    assert records[0]["headers"]["lrh"]["lnh"] == 1
    assert records[1]["headers"]["rwh"]["ethertype"] == IPV6_TYPE
    assert "C9-208" in records[4]["error"]
    assert run(str(captured)) == 0
    text = capsys.readouterr().out
    assert "lid 5" in text
    assert "ipv6 ::1 > ::2 next header 59" in text
    assert text.count("BAD") == 1


def test_tshark_finds_nothing_malformed_in_raw_datagrams(tmp_path: Path) -> None:
    program = shutil.which("tshark")
    if program is None:
        pytest.skip("tshark is not installed (Debian package tshark)")
    packets = [
        assemble_raw(5, 6, RAW_IPV6, ipv6(12)),
        assemble_raw(5, 6, IPV6_TYPE, ipv6(12)),
        assemble_raw(5, 6, ETHERTYPE, b"experiment"),
    ]
    path = write(tmp_path / "raw.pcapng", 147, packets)
    native = 'uat:user_dlts:"User 0 (DLT=147)","infiniband","0","","0",""'
    command = [program, "-r", str(path), "-o", native]
    shown = subprocess.run(
        [*command, "-V"], capture_output=True, text=True, timeout=limit_s(60), check=True
    ).stdout
    assert "alformed" not in shown
    fields = ("infiniband.lrh.lnh", "infiniband.lrh.slid", "infiniband.rwh.etype", "ipv6.dst", "ipv6.plen")
    asked = [word for field in fields for word in ("-e", field)]
    done = subprocess.run(
        [*command, "-T", "fields", *asked], capture_output=True, text=True, timeout=limit_s(60), check=True
    )
    assert [line.split("\t") for line in done.stdout.splitlines()] == [
        ["0x01", "5", "", "::2", "12"],
        ["0x00", "5", "0x86dd", "::2", "12"],
        ["0x00", "5", "0x88b5", "", ""],
    ]
    for packet in packets:
        assert packet.vcrc is not None
        seen = packet.vcrc.to_bytes(2, "little").hex()
        assert f"Variant CRC: 0x{seen}" in shown
