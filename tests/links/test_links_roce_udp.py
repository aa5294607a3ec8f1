"""Two links on this machine exchange bursts: what arrives, and what of its route each packet bears."""

from __future__ import annotations

import errno
import os
import random
import socket
import struct
from typing import Any

import pytest
from roce_links import PAIRS, V4, Open, ScriptedLink, burst_of, needs_ipv6, route_between, wait_and_receive

from softhca.links import paths, roce_udp
from softhca.links.roce_udp import SENT
from softhca.wire.burst import Arrival
from softhca.wire.route import NATIVE, ROCE_V4, ROCE_V6, V4_MAPPED_PREFIX, Route


@PAIRS
def test_a_burst_arrives_with_all_that_the_core_needs(open_link: Open, addresses: tuple[str, str]) -> None:
    left, right = (open_link(address) for address in addresses)
    route = route_between(left, right, traffic_class=0xBA)
    data = random.Random(1).randbytes(14 * 4112 + 100)
    assert left.send(burst_of(route, data, 4112)) == SENT
    arrival = Arrival()
    assert wait_and_receive(right, arrival) == data
    assert right.merges
    assert (arrival.length, arrival.stride) == (len(data), 4112)
    assert arrival.framing == (ROCE_V4 if addresses == V4 else ROCE_V6)
    assert (arrival.source, arrival.destination) == (left.gid, right.gid)
    assert arrival.source_port == route.source_port
    assert arrival.traffic_class == 0xBA
    assert not right.receive(arrival)
    assert left.counters() == dict.fromkeys(left.counters(), 0) | {
        "datagrams_sent": 15, "bursts_sent": 1, "bytes_sent": len(data), "send_calls": 1}
    assert right.counters() == dict.fromkeys(right.counters(), 0) | {
        "datagrams_received": 15, "bursts_received": 1, "bytes_received": len(data), "receive_calls": 2}


@PAIRS
def test_a_single_datagram_has_its_length_as_stride(open_link: Open, addresses: tuple[str, str]) -> None:
    left, right = (open_link(address) for address in addresses)
    left.send(burst_of(route_between(left, right), b"one datagram", 4112))
    arrival = Arrival()
    assert wait_and_receive(right, arrival) == b"one datagram"
    assert (arrival.stride, arrival.traffic_class) == (12, 0)


def test_the_gid_of_an_ipv4_link_is_the_mapped_address(open_link: Open) -> None:
    link = open_link("127.9.1.1")
    assert link.gid == bytes(10) + b"\xff\xff\x7f\x09\x01\x01"
    assert (link.address, link.interface, link.active_mtu) == ("127.9.1.1", "lo", 4096)
    assert open_link("::ffff:127.9.1.3").framing == ROCE_V4


@needs_ipv6
def test_the_gid_of_an_ipv6_link_is_its_address(open_link: Open) -> None:
    link = open_link("::1")
    assert (link.gid, link.framing) == (bytes(15) + b"\x01", ROCE_V6)


def test_senders_are_told_apart(open_link: Open) -> None:
    receiver, arrival = open_link("127.9.1.1"), Arrival()
    for address in ("127.9.1.2", "127.9.1.3", "127.9.1.2"):
        sender = open_link(address)
        sender.send(burst_of(route_between(sender, receiver), address.encode(), 64))
        assert wait_and_receive(receiver, arrival) == address.encode()
        assert arrival.source == sender.gid


@needs_ipv6
def test_ipv6_bursts_stay_whole_on_any_path(open_link: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paths, "cutting", lambda *_: paths.UNKNOWN)
    left, right = open_link("::1"), open_link("::1")
    route = route_between(left, right)
    assert left.send(burst_of(route, bytes(3000), 1000)) == SENT
    assert left.is_segmenting(route)
    assert (left.send_calls, left.datagrams_sent) == (1, 3)


def test_many_small_segments_take_calls_of_at_most_64(open_link: Open) -> None:
    left, right = (open_link(address) for address in V4)
    data = random.Random(3).randbytes(200 * 44)
    assert left.send(burst_of(route_between(left, right), data, 44)) == SENT
    assert (left.send_calls, left.datagrams_sent) == (4, 200)
    arrival, received = Arrival(), b""
    while len(received) < len(data):
        received += wait_and_receive(right, arrival)
        assert arrival.stride == 44
    assert received == data
    assert right.datagrams_received == 200


@PAIRS
def test_a_full_buffer_takes_two_calls(open_link: Open, addresses: tuple[str, str]) -> None:
    left, right = (open_link(address) for address in addresses)
    data = random.Random(4).randbytes(65_536)
    assert left.send(burst_of(route_between(left, right), data, 4096)) == SENT
    assert left.send_calls == 2
    arrival = Arrival()
    assert wait_and_receive(right, arrival) + wait_and_receive(right, arrival) == data


def test_a_label_that_is_left_out_changes_nothing_else() -> None:
    own = bytes(range(16))
    labelled, plain = (Route(ROCE_V6, own, own, 0xC123, flow_label=each, scope=3) for each in (0xABCDE, 0))
    path = roce_udp.Path(labelled, paths.UNKNOWN)
    assert path.socket_address == labelled.socket_address != plain.socket_address
    path.leave_label_out()
    assert path.socket_address == plain.socket_address


def test_routes_that_the_link_cannot_serve_are_refused(open_link: Open) -> None:
    left, right = (open_link(address) for address in V4)
    unknown = Route(ROCE_V4, left.gid, right.gid, source_port=0xC123, destination_port=right.port)
    assert left.send(burst_of(unknown, b"x", 1)) == -errno.EADDRNOTAVAIL
    port = left.source_port_for(1)
    own = bytes(15) + b"\x01"
    six = Route(ROCE_V6, own, own, source_port=port, destination_port=right.port)
    assert left.send(burst_of(six, b"x", 1)) == -errno.EAFNOSUPPORT
    native = Route(NATIVE, left.gid, right.gid, source_port=port)
    assert left.send(burst_of(native, b"x", 1)) == -errno.EAFNOSUPPORT
    long = burst_of(route_between(left, right), b"x", 1)
    long.length = 65_537
    assert left.send(long) == -errno.EMSGSIZE
    assert left.send_errors == 4
    assert left.send_calls == 0


def test_empty_datagrams_are_dropped_and_cannot_keep_the_engine(open_link: Open) -> None:
    link = open_link("127.9.1.1", gro=False)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as unknown:
        for _ in range(40):
            unknown.sendto(b"", (link.address, link.port))
        unknown.sendto(b"real", (link.address, link.port))
    arrival = Arrival()
    assert not link.receive(arrival)  # passed over a bounded number
    assert link.receive_drops == 17
    rounds = [link.receive(arrival) for _ in range(3)]
    assert True in rounds
    assert bytes(arrival.data[: arrival.length]) == b"real"
    assert (link.receive_drops, link.bursts_received) == (40, 1)


def test_packets_leave_with_the_source_port_of_their_route(open_link: Open) -> None:
    left, right = (open_link(address) for address in V4)
    arrival = Arrival()
    for entropy in (1, 2, 3, 1):
        route = route_between(left, right, entropy)
        left.send(burst_of(route, b"x", 1))
        wait_and_receive(right, arrival)
        assert arrival.source_port == route.source_port == left.source_port_for(entropy)


@needs_ipv6
@pytest.mark.skipif(os.geteuid() != 0, reason="a raw socket takes root")
def test_ipv6_datagrams_without_udp_checksum_are_taken(open_link: Open) -> None:
    link = open_link("::1")
    with socket.socket(socket.AF_INET6, socket.SOCK_RAW, socket.IPPROTO_UDP) as raw:
        raw.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_CHECKSUM, -1)
        payload = b"checksum zero"
        raw.sendto(struct.pack("!HHHH", 0xC001, link.port, 8 + len(payload), 0) + payload, ("::1", 0))
    arrival = Arrival()
    assert wait_and_receive(link, arrival) == payload
    assert arrival.source_port == 0xC001


@PAIRS
def test_paths_within_this_machine_segment(open_link: Open, addresses: tuple[str, str]) -> None:
    left, right = (open_link(address) for address in addresses)
    assert left.is_segmenting(route_between(left, right))


_FLOW_INFO = 11  # Linux's numbers; the socket module does not name them all
_ASKED = {
    socket.AF_INET: ((socket.IPPROTO_IP, 13), (socket.IPPROTO_IP, 12)),  # ToS, TTL
    socket.AF_INET6: (
        (socket.IPPROTO_IPV6, socket.IPV6_RECVTCLASS),
        (socket.IPPROTO_IPV6, socket.IPV6_RECVHOPLIMIT),
        (socket.IPPROTO_IPV6, _FLOW_INFO),
    ),
}


class Witness:
    """A plain socket that sees the IP headers' fields."""

    def __init__(self, address: str) -> None:
        self.family = socket.AF_INET6 if ":" in address else socket.AF_INET
        self.socket = socket.socket(self.family, socket.SOCK_DGRAM)
        self.socket.bind((address, 0))
        self.socket.settimeout(5)
        for level, option in _ASKED[self.family]:
            self.socket.setsockopt(level, option, 1)
        self.port = self.socket.getsockname()[1]

    def see(self) -> dict[str, int]:
        """Traffic class, hop limit and flow label of the next datagram."""
        _, extra, _, _ = self.socket.recvmsg(65536, 256)
        found = {(level, kind): data for level, kind, data in extra}
        if self.family == socket.AF_INET:
            return {"traffic_class": found[0, 1][0], "hop_limit": int.from_bytes(found[0, 2], "little")}
        whole = int.from_bytes(found.get((41, _FLOW_INFO), bytes(4)), "big")
        return {
            "traffic_class": int.from_bytes(found[41, socket.IPV6_TCLASS], "little"),
            "hop_limit": int.from_bytes(found[41, socket.IPV6_HOPLIMIT], "little"),
            "flow_label": whole & 0xFFFFF,
        }


FIELDS = ({}, {"hop_limit": 9}, {"hop_limit": 255, "traffic_class": 0x6A}, {"traffic_class": 1})
LABELS = ({"flow_label": 0x12345, "hop_limit": 9}, {"flow_label": 0xFFFFF, "traffic_class": 0xB8}, {})


@PAIRS
@pytest.mark.parametrize("packets", [1, 5])
def test_what_the_address_vector_says_is_what_leaves(
    open_link: Open, addresses: tuple[str, str], packets: int
) -> None:
    left, witness = open_link(addresses[0]), Witness(addresses[1])
    for fields in FIELDS + (LABELS if addresses != V4 else ()):
        to = V4_MAPPED_PREFIX + socket.inet_aton(addresses[1]) if addresses == V4 else left.gid
        route = Route(
            left.framing, left.gid, to, left.source_port_for(1), destination_port=witness.port, **fields)
        assert left.send(burst_of(route, bytes(100 * packets), 100)) == SENT
        usual = {"traffic_class": 0, "hop_limit": 64}
        if addresses != V4:
            usual["flow_label"] = 0
        for _ in range(packets):
            assert witness.see() == usual | fields
    assert left.label_refusals == 0
    witness.socket.close()


@needs_ipv6
def test_a_flow_label_that_the_kernel_refuses_is_left_out(open_link: Open) -> None:
    left: Any = open_link("::1", kind=ScriptedLink)
    left.script.append(errno.EINVAL)
    witness = Witness("::1")
    for _ in range(2):
        route = Route(ROCE_V6, left.gid, left.gid, left.source_port_for(1), flow_label=0x777, hop_limit=5,
                      destination_port=witness.port)
        assert left.send(burst_of(route, bytes(300), 100)) == SENT
        for _ in range(3):
            assert witness.see() == {"traffic_class": 0, "hop_limit": 5, "flow_label": 0}
    assert (left.label_refusals, left.send_calls, left.segmentation_refusals) == (1, 3, 0)
    witness.socket.close()


def test_what_is_longer_than_there_is_room_is_dropped(open_link: Open) -> None:
    left, right = (open_link(address) for address in V4)
    arrival = Arrival()
    try:
        arrival.capacity = 64
    except AttributeError:
        pytest.skip("a compiled buffer has always the same room")
    for length in (65, 64):
        assert left.send(burst_of(route_between(left, right), bytes(length), length)) == SENT
    assert wait_and_receive(right, arrival) == bytes(64)
    assert (right.receive_drops, right.bursts_received) == (1, 1)


def test_a_label_of_0_is_none(open_link: Open) -> None:
    for label, labelled in ((0, False), (5, True)):
        gid = bytes(15) + b"\1"
        route = Route(ROCE_V6, gid, gid, source_port=1, destination_port=2, flow_label=label)
        assert roce_udp.Path(route, paths.UNCUT).labelled == labelled
