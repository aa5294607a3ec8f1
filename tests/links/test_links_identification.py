"""The identification that datagrams of a link bear, seen by a raw socket, and the opt-in check itself."""

from __future__ import annotations

import collections
import os
import select
import socket
import struct
from types import SimpleNamespace

import pytest

from softhca.links import identification_check
from softhca.links.identification_check import CheckedLink, RawIdentificationCheck
from softhca.links.roce_udp import RoceUdpLink
from softhca.machine.primitives import address_of
from softhca.wire.burst import Arrival, Burst
from softhca.wire.icrc import compute
from softhca.wire.route import V4_MAPPED_PREFIX, Route

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="a raw socket takes root")
HERE, THERE = "127.9.2.1", "127.9.2.2"


def send(left: RoceUdpLink, right: RoceUdpLink, data: bytes) -> None:
    burst = Burst()
    burst.data[: len(data)] = memoryview(data)
    burst.length = burst.stride = len(data)
    burst.route = Route(left.framing, left.gid, right.gid, source_port=left.source_port_for(3),
                        destination_port=right.port)
    assert left.send(burst) == 1


def received(link: RoceUdpLink) -> Arrival:
    arrival = Arrival()
    assert select.select([link], [], [], 5.0)[0]
    assert link.receive(arrival)
    return arrival


@needs_root
def test_what_a_link_sends_has_identification_zero_and_df() -> None:
    with RoceUdpLink(HERE, 0) as left, RoceUdpLink(THERE, 0, gro=False) as right, \
            RawIdentificationCheck(THERE, right.port) as check:
        for number in range(5):
            send(left, right, bytes((number,)) * 20)
            assert select.select([check], [], [], 5.0)[0]
            seen = check.next_datagram()
            assert seen is not None
            assert (seen.identification, seen.dont_fragment) == (0, True)
            assert (seen.source, seen.source_port) == (socket.inet_aton(HERE), left.source_port_for(3))
            assert seen.payload == bytes((number,)) * 20


@needs_root
def test_the_check_finds_the_identification_of_each_arrival() -> None:
    with RoceUdpLink(THERE, 0, gro=False) as right, RawIdentificationCheck(THERE, right.port) as check, \
            socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW) as raw:
        for identification, payload in ((0x1234, b"lost by the link"), (0xFFFF, b"first"), (1, b"second")):
            udp = struct.pack("!HHHH", 0xC005, right.port, 8 + len(payload), 0) + payload
            header = struct.pack("!BBHHHBBH4s4s", 0x45, 0, 20 + len(udp), identification, 0x4000, 64, 17, 0,
                                 socket.inet_aton(HERE), socket.inet_aton(THERE))
            raw.sendto(header + udp, (THERE, 0))
        received(right)
        assert check.identification_of(received(right)) == 0xFFFF
        arrival = received(right)
        assert check.identification_of(arrival) == 1
        assert check.identification_of(arrival) is None  # each header answers once


@needs_root
def test_the_check_passes_over_what_is_not_for_its_port() -> None:
    with RoceUdpLink(HERE, 0) as left, RoceUdpLink(THERE, 0) as right, RoceUdpLink(THERE, 0) as other, \
            RawIdentificationCheck(THERE, right.port) as check:
        send(left, other, b"not ours")
        send(left, right, b"ours")
        received(right)
        seen = check.next_datagram()
        assert seen is not None
        assert seen.payload == b"ours"
        assert check.next_datagram() is None


@needs_root
def test_a_merged_arrival_cannot_be_checked() -> None:
    arrival = Arrival()
    arrival.length, arrival.stride = 200, 100
    with RawIdentificationCheck(THERE, 4791) as check, pytest.raises(ValueError, match="gro=False"):
        check.identification_of(arrival)


@needs_root
@pytest.mark.parametrize("packet", [
    bytes(19), b"\x45" + bytes(26),
    b"\x4f" + bytes(60),
    struct.pack("!BBHHHBBH4s4sHHHH", 0x45, 0, 28, 5, 0x2000, 64, 17, 0, bytes(4), bytes(4), 1, 4791, 8, 0),
    struct.pack("!BBHHHBBH4s4sHHHH", 0x45, 0, 28, 5, 0x0001, 64, 17, 0, bytes(4), bytes(4), 1, 4791, 8, 0),
    struct.pack("!BBHHHBBH4s4sHHHH", 0x45, 0, 28, 5, 0x4000, 64, 17, 0, bytes(4), bytes(4), 1, 4791, 9, 0),
    struct.pack("!BBHHHBBH4s4sHHHH", 0x45, 0, 28, 5, 0x4000, 64, 17, 0, bytes(4), bytes(4), 1, 4791, 7, 0),
])
def test_malformed_packets_are_passed_over(packet: bytes) -> None:
    with RawIdentificationCheck(THERE, 4791) as check:
        assert check._parse(packet) is None


def test_ipv6_has_nothing_to_check() -> None:
    with pytest.raises(ValueError, match="IPv4"):
        RawIdentificationCheck("::1", 4791)


def test_without_the_privilege_the_error_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> socket.socket:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(socket, "socket", refuse)
    with pytest.raises(PermissionError, match="CAP_NET_RAW"):
        RawIdentificationCheck(HERE, 4791)


@needs_root
def test_a_checked_link_counts_identifications_that_the_icrc_does_not_cover() -> None:
    with RoceUdpLink(THERE, 0, gro=False) as right, \
            socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW) as raw:
        checked = CheckedLink(right)
        route = Route(right.framing, V4_MAPPED_PREFIX + socket.inet_aton(HERE), right.gid, source_port=0xC005,
                      destination_port=right.port, identification=5)
        body = bytearray(bytes(range(32)))
        data = bytes(body) + compute(route, address_of(body), len(body)).to_bytes(4, "little")
        for borne, payload in ((5, data), (7, data), (5, b"short"), (5, data[:-1] + bytes((data[-1] ^ 1,)))):
            udp = struct.pack("!HHHH", 0xC005, right.port, 8 + len(payload), 0) + payload
            header = struct.pack("!BBHHHBBH4s4s", 0x45, 0, 20 + len(udp), borne, 0x4000, 64, 17, 0,
                                 socket.inet_aton(HERE), socket.inet_aton(THERE))
            raw.sendto(header + udp, (THERE, 0))
        for _ in range(4):
            assert select.select([checked], [], [], 5.0)[0]
            assert checked.receive(Arrival())
        counters = checked.counters()
        assert counters["identifications_checked"] == 4
        assert counters["identification_mismatches"] == 3
        assert counters["datagrams_received"] == 4
        checked.close()


@needs_root
def test_a_check_keeps_a_bounded_number_of_routes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(identification_check, "_MAX_ROUTES", 2)
    with RoceUdpLink(HERE, 0) as left, RoceUdpLink(THERE, 0, gro=False) as right:
        checked = CheckedLink(right)
        for flow in range(5):
            burst = Burst()
            burst.data[:32] = bytes(32)
            burst.length = burst.stride = 32
            burst.route = Route(left.framing, left.gid, right.gid, source_port=left.source_port_for(flow),
                                destination_port=right.port)
            assert left.send(burst) == 1
            assert select.select([checked], [], [], 5.0)[0]
            assert checked.receive(Arrival())
            assert len(checked._routes) <= 2
        assert checked.counters()["identifications_checked"] == 5
        checked.close()


def test_ethernet_frames_have_no_icrc_to_compare_with():
    link, compared = CheckedLink.__new__(CheckedLink), []
    link._link = SimpleNamespace(receive=lambda arrival: True)
    link._compare = compared.append
    arrivals = [SimpleNamespace(frames=frames) for frames in (True, False)]
    assert [link.receive(each) for each in arrivals] == [True, True]
    assert compared == arrivals[1:]


def packet_to(port: int, payload: bytes, source_port: int = 0xC005, identification: int = 5,
              options: bytes = b"", behind: bytes = b"") -> bytes:
    udp = struct.pack("!HHHH", source_port, port, 8 + len(payload), 0) + payload
    length = 20 + len(options) + len(udp)
    header = struct.pack("!BBHHHBBH4s4s", 0x45 + len(options) // 4, 0, length, identification, 0x4000, 64,
                         17, 0, socket.inet_aton(HERE), socket.inet_aton(THERE))
    return header + options + udp + behind


@pytest.fixture
def unopened() -> RawIdentificationCheck:
    """A check for port 4791 without its socket, which takes a privilege."""
    check = RawIdentificationCheck.__new__(RawIdentificationCheck)
    check._port = 4791
    check._kept = collections.deque()
    return check


@pytest.mark.parametrize(("options", "behind"), [(b"", b""), (bytes(40), b""), (b"", bytes(6))])
def test_a_datagram_is_what_lies_between_its_headers_and_its_end(
    unopened: RawIdentificationCheck, options: bytes, behind: bytes
) -> None:
    seen = unopened._parse(packet_to(4791, b"payload", options=options, behind=behind))
    assert seen is not None
    assert (seen.payload, seen.source_port, seen.identification) == (b"payload", 0xC005, 5)


def test_equal_payloads_from_two_ports_have_identifications_of_their_own(
    unopened: RawIdentificationCheck, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = [unopened._parse(packet_to(4791, b"same", port, port)) for port in (7, 8)]
    monkeypatch.setattr(unopened, "next_datagram", lambda: seen.pop(0) if seen else None)
    arrival = Arrival()
    arrival.data[:4] = memoryview(b"same")
    arrival.length = arrival.stride = 4
    arrival.source, arrival.source_port = V4_MAPPED_PREFIX + socket.inet_aton(HERE), 8
    assert unopened.identification_of(arrival) == 8


def test_what_the_check_has_missed_is_not_checked() -> None:
    link = CheckedLink.__new__(CheckedLink)
    link._check = SimpleNamespace(identification_of=lambda arrival: None)
    link._link = SimpleNamespace(counters=dict)
    link.identifications_checked = link.identification_mismatches = link.identifications_missed = 0
    link._compare(Arrival())
    assert sorted(link.counters().values()) == [0, 0, 1]
    assert link.identifications_missed == 1


@needs_root
def test_a_check_that_cannot_be_bound_leaves_no_descriptor() -> None:
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(OSError, match="assign"):
        RawIdentificationCheck("192.0.2.1", 4791)
    assert len(os.listdir("/proc/self/fd")) == before
