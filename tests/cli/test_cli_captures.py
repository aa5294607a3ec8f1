"""Captures: what the tap writes, and how the captures of several processes become one."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from softhca.cli.errors import CommandError
from softhca.cli.merge import merge_captures, source_address
from softhca.links import tap
from softhca.links.tap import (
    LINK_TYPE_RAW_IP,
    CaptureFile,
    TapLink,
    packet_of,
    packets_of,
    tapped,
    udp_checksum,
)
from softhca.wire.burst import Arrival, Burst
from softhca.wire.framing import ROCE_V4, ROCE_V6
from softhca.wire.ip import internet_checksum
from softhca.wire.pcapng import PcapngWriter, read_pcapng
from softhca.wire.route import Route


def gid4(host):
    return bytes(10) + b"\xff\xff" + bytes((127, 0, 0, host))


ROUTE = Route(ROCE_V4, gid4(2), gid4(3), source_port=0xC123, traffic_class=0x68)
ROUTE6 = Route(ROCE_V6, bytes(15) + b"\x02", bytes(15) + b"\x03", source_port=0xC123)


def filled(kind, length, stride):
    burst = kind()
    burst.buffer[:length] = bytes(index & 0xFF for index in range(length))
    burst.length, burst.stride = length, stride
    return burst


def outgoing(length=250, stride=100, route=ROUTE):
    burst = filled(Burst, length, stride)
    burst.route = route
    return burst


class FakeLink:
    framing = ROCE_V4
    address = "127.0.0.2"
    other = "kept"

    def __init__(self, results=(1,)):
        self.results = list(results)

    def send(self, burst):
        return self.results.pop(0)

    def close(self):
        self.results.append(1)

    def receive(self, arrival):
        arrival.length, arrival.stride, arrival.framing = 6, 4, ROCE_V4
        arrival.buffer[:6] = b"abcdef"
        arrival.source, arrival.destination, arrival.source_port = gid4(9), gid4(2), 0xD000
        return self.results.pop(0)


def read(path):
    with path.open("rb") as stream:
        return list(read_pcapng(stream))


def test_every_segment_of_a_burst_is_a_packet():
    packets = packets_of(outgoing(250, 100), ROUTE)
    assert [packet[28:] for packet in packets] == [
        bytes(range(100)),
        bytes(range(100, 200)),
        bytes(range(200, 250)),
    ]


def test_burst_without_stride_is_one_packet():
    assert [len(packet) for packet in packets_of(outgoing(100, 0), ROUTE)] == [128]


def test_ipv4_packet_has_right_header_and_identification_0():
    packet = packet_of(ROUTE, b"payload")
    version, tos, length, identification, fragment, ttl, protocol = struct.unpack_from(">BBHHHBB", packet)
    assert (version, tos, length, identification, fragment, ttl, protocol) == (
        0x45,
        0x68,
        35,
        0,
        0x4000,
        64,
        17,
    )
    assert internet_checksum(packet[:20]) == 0
    assert packet[12:20] == bytes((127, 0, 0, 2, 127, 0, 0, 3))
    assert struct.unpack_from(">HHH", packet, 20) == (0xC123, 4791, 15)
    assert packet[28:] == b"payload"


@pytest.mark.parametrize("route", [ROUTE, ROUTE6])
@pytest.mark.parametrize("payload", [b"", b"odd", b"even"])
def test_udp_checksum_is_right(route, payload):
    packet = packet_of(route, payload)
    addresses, udp = (packet[12:20], packet[20:]) if route is ROUTE else (packet[8:40], packet[40:])
    pseudo = addresses + struct.pack(">HH", 17, len(udp))
    assert internet_checksum(pseudo + udp) in (0, 0xFFFF)


@given(st.binary(min_size=1, max_size=300))
def test_checksum_equals_the_sum_of_words(data):
    assert udp_checksum(data) == (internet_checksum(data) or 0xFFFF)


def test_tap_writes_what_was_sent_and_what_was_received(tmp_path):
    capture = CaptureFile(tmp_path / "x.pcapng")
    link = TapLink(FakeLink([1, 1]), capture, capture)
    assert link.send(outgoing()) == 1
    assert link.receive(Arrival()) == 1
    packets = read(tmp_path / "x.pcapng")
    assert [packet.link_type for packet in packets] == [LINK_TYPE_RAW_IP] * 5
    assert [packet.data[12:16] for packet in packets] == [bytes((127, 0, 0, 2))] * 3 + [
        bytes((127, 0, 0, 9))
    ] * 2
    assert [packet.data[28:] for packet in packets[3:]] == [b"abcd", b"ef"]
    assert packets[4].data[20:24] == struct.pack(">HH", 0xD000, 4791)
    times = [packet.time_ns for packet in packets]
    assert times == sorted(times)


@pytest.mark.parametrize("result", [0, -11, -101])
def test_tap_writes_nothing_for_what_did_not_pass(tmp_path, result):
    capture = CaptureFile(tmp_path / "x.pcapng")
    link = TapLink(FakeLink([result, False]), capture, capture)
    assert link.send(outgoing()) == result
    assert not link.receive(Arrival())
    assert read(tmp_path / "x.pcapng") == []


def test_tap_has_all_else_that_the_link_has(tmp_path):
    capture = CaptureFile(tmp_path / "x.pcapng")
    assert TapLink(FakeLink(), capture, capture).other == "kept"


def test_link_is_left_alone_without_the_variable():
    link = FakeLink()
    assert tapped(link, {}) is link
    assert tapped(link, {"SOFTHCA_CAPTURE": ""}) is link


def test_links_of_a_process_share_the_named_file(tmp_path):
    path = tmp_path / "all.pcapng"
    for _ in range(2):
        tapped(FakeLink([1]), {"SOFTHCA_CAPTURE": str(path)}).send(outgoing(10, 10))
    assert len(read(path)) == 2


def test_forked_child_writes_a_file_of_its_own(tmp_path, monkeypatch):
    path = tmp_path / "all.pcapng"
    tapped(FakeLink([1]), {"SOFTHCA_CAPTURE": str(path)}).send(outgoing(10, 10))
    monkeypatch.setattr(tap.os, "getpid", lambda: 4242)
    tapped(FakeLink([1]), {"SOFTHCA_CAPTURE": str(path)}).send(outgoing(20, 10))
    assert len(read(path)) == 1
    assert len(read(tmp_path / "all.pcapng.4242")) == 2


def test_folder_gets_two_files_a_link(tmp_path):
    for _ in range(2):
        link = tapped(FakeLink([1, 1]), {"SOFTHCA_CAPTURE": str(tmp_path)})
        link.send(outgoing())
        link.receive(Arrival())
    assert len(list(tmp_path.glob("*.sent.pcapng"))) == 2
    assert [len(read(path)) for path in tmp_path.glob("*.received.pcapng")] == [2, 2]


def test_folders_files_are_closed_with_the_link(tmp_path):
    link = tapped(FakeLink([1, 1]), {"SOFTHCA_CAPTURE": str(tmp_path)})
    link.send(outgoing())
    link.close()
    link.send(outgoing())
    assert [len(read(path)) for path in tmp_path.glob("*.sent.pcapng")] == [3]


def test_named_file_outlives_one_link(tmp_path):
    path = tmp_path / "all.pcapng"
    tapped(FakeLink(), {"SOFTHCA_CAPTURE": str(path)}).close()
    tapped(FakeLink([1]), {"SOFTHCA_CAPTURE": str(path)}).send(outgoing(10, 10))
    assert len(read(path)) == 1


def test_capture_that_cannot_go_on_does_not_disturb_the_traffic(tmp_path, monkeypatch, caplog):
    capture = CaptureFile(tmp_path / "x.pcapng")
    link = TapLink(FakeLink([1, 1]), capture, capture)

    def full(fd, data):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(tap.os, "write", full)
    assert [link.send(outgoing()), link.send(outgoing())] == [1, 1]
    assert len(caplog.records) == 1


def test_partial_writes_are_completed(tmp_path, monkeypatch):
    real = tap.os.write
    monkeypatch.setattr(tap.os, "write", lambda fd, data: real(fd, bytes(data[:7])))
    capture = CaptureFile(tmp_path / "x.pcapng")
    TapLink(FakeLink(), capture, capture).send(outgoing())
    assert len(read(tmp_path / "x.pcapng")) == 3


def write(path, packets):
    with path.open("wb") as stream:
        writer = PcapngWriter(stream)
        interface = writer.add_interface(LINK_TYPE_RAW_IP)
        for time_ns, data in packets:
            writer.write(interface, time_ns, data)
    return path


def packet(source, payload):
    return packet_of(Route(ROCE_V4, gid4(source), gid4(8), source_port=0xC000), payload)


def test_captures_are_merged_by_time(tmp_path):
    first = write(tmp_path / "1.sent.pcapng", [(1, packet(2, b"a")), (5, packet(2, b"c"))])
    second = write(tmp_path / "2.sent.pcapng", [(3, packet(3, b"b")), (9, packet(3, b"d"))])
    assert merge_captures([first, second], tmp_path / "out.pcapng") == 4
    merged = read(tmp_path / "out.pcapng")
    assert [(one.time_ns, one.data[28:]) for one in merged] == [(1, b"a"), (3, b"b"), (5, b"c"), (9, b"d")]


def test_each_packet_keeps_its_link_type_and_a_longer_capture_does_not_go_first(tmp_path):
    native, ip = tmp_path / "1.sent.pcapng", tmp_path / "2.sent.pcapng"
    for path, link_type, times in ((native, 247, (2, 4, 9)), (ip, LINK_TYPE_RAW_IP, (8,))):
        with path.open("wb") as stream:
            writer = PcapngWriter(stream)
            interface = writer.add_interface(link_type, "x")
            for time_ns in times:
                writer.write(interface, time_ns, packet(2, b"p"))
    assert merge_captures([native, ip], tmp_path / "out.pcapng") == 4
    found = [(one.time_ns, one.link_type) for one in read(tmp_path / "out.pcapng")]
    assert found == [(2, 247), (4, 247), (8, LINK_TYPE_RAW_IP), (9, 247)]


def test_packet_between_two_copies_is_there_once(tmp_path):
    sent = write(tmp_path / "1.sent.pcapng", [(1, packet(2, b"a"))])
    received = write(tmp_path / "2.received.pcapng", [(2, packet(2, b"a")), (4, packet(77, b"unrelated"))])
    merge_captures([sent, received], tmp_path / "out.pcapng")
    assert [one.data[28:] for one in read(tmp_path / "out.pcapng")] == [b"a", b"unrelated"]


def test_capture_that_ends_early_gives_what_it_has(tmp_path):
    whole = write(tmp_path / "1.sent.pcapng", [(1, packet(2, b"a")), (2, packet(2, b"b"))])
    whole.write_bytes(whole.read_bytes()[:-6])
    assert merge_captures([whole], tmp_path / "out.pcapng") == 1


def test_merging_nothing_is_an_empty_capture(tmp_path):
    assert merge_captures([], tmp_path / "out.pcapng") == 0
    assert read(tmp_path / "out.pcapng") == []


def test_merge_into_what_cannot_be_written_is_an_error(tmp_path):
    with pytest.raises(CommandError, match="cannot write"):
        merge_captures([], tmp_path / "missing" / "out.pcapng")


def test_source_of_what_is_no_ip_packet_is_empty():
    assert source_address(b"") == b""
    assert source_address(b"\x10" + bytes(40)) == b""
    assert source_address(packet_of(ROUTE6, b"")) == bytes(15) + b"\x02"
