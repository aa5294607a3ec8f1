"""Two links on this machine exchange bursts; what a link does when the kernel refuses or is full."""

from __future__ import annotations

import errno
import os
import random
import resource
import select
import socket
import stat
import struct
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from softhca.links import paths, roce_udp, sockets
from softhca.links.roce_udp import AGAIN, SENT, RoceUdpLink
from softhca.wire.burst import Arrival, Burst
from softhca.wire.flows import FIRST_SOURCE_PORT, LAST_SOURCE_PORT, flow_label, source_port
from softhca.wire.route import NATIVE, ROCE_V4, ROCE_V6, V4_MAPPED_PREFIX, Route

Open = Callable[..., RoceUdpLink]
V4 = ("127.9.1.1", "127.9.1.2")
def has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


needs_ipv6 = pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6 loopback")
PAIRS = pytest.mark.parametrize(
    "addresses", [V4, pytest.param(("::1", "::1"), marks=needs_ipv6)], ids=["ipv4", "ipv6"])


@pytest.fixture
def open_link() -> Iterator[Open]:
    with ExitStack() as stack:
        def make(address: str, port: int = 0, kind: Any = RoceUdpLink, **options: Any) -> Any:
            return stack.enter_context(kind(address, port, **options))
        yield make


def route_between(
    sender: RoceUdpLink, receiver: RoceUdpLink, entropy: int = 1, traffic_class: int = 0
) -> Route:
    return Route(sender.framing, sender.gid, receiver.gid, source_port=sender.source_port_for(entropy),
                 destination_port=receiver.port, traffic_class=traffic_class)


def burst_of(route: Route, data: bytes, stride: int) -> Burst:
    burst = Burst()
    burst.data[: len(data)] = memoryview(data)
    burst.length, burst.stride, burst.route = len(data), stride, route
    burst.packets = -(-len(data) // stride) if stride else 1
    return burst


def wait_and_receive(link: RoceUdpLink, arrival: Arrival) -> bytes:
    assert select.select([link], [], [], 5.0)[0], "nothing arrived"
    assert link.receive(arrival)
    return bytes(arrival.data[: arrival.length])


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


def test_an_ipv4_path_that_cuts_gets_plain_datagrams(
    open_link: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(paths, "cutting", lambda *_: paths.UNKNOWN)
    left, right = (open_link(address) for address in V4)
    route = route_between(left, right)
    data = random.Random(2).randbytes(3 * 1000 + 7)
    assert left.send(burst_of(route, data, 1000)) == SENT
    assert not left.is_segmenting(route)
    assert (left.send_calls, left.datagrams_sent, left.bytes_sent) == (4, 4, 3007)
    arrival, received = Arrival(), b""
    while len(received) < len(data):
        received += wait_and_receive(right, arrival)
        assert arrival.stride <= 1000
    assert received == data


def test_a_marked_peer_gets_whole_bursts_until_unmarked(
    open_link: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(paths, "cutting", lambda *_: paths.UNKNOWN)
    left, right = (open_link(address) for address in V4)
    route = route_between(left, right)
    assert not left.is_segmenting(route)
    left.mark_segmenting(right.gid)
    assert left.is_segmenting(route)
    left.send(counted(burst_of(route, bytes(3000), 1000)))
    assert left.send_calls == 1
    left.mark_segmenting(right.gid, False)
    left.send(burst_of(route, bytes(3000), 1000))
    assert left.send_calls == 4


def counted(burst: Burst) -> Burst:
    burst.counted = True
    return burst


def test_where_the_kernel_cuts_bursts_go_whole_when_they_were_made_for_it(
    open_link: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(paths, "cutting", lambda *_: paths.COUNTING)
    left, right = (open_link(address) for address in V4)
    route = route_between(left, right)
    assert left.send(burst_of(route, bytes(3000), 1000)) == SENT
    assert (route.counted, left.send_calls) == (True, 3)  # its ICRCs were for 0, and so is each datagram
    assert left.send(counted(burst_of(route, bytes(3000), 1000))) == SENT
    assert left.send_calls == 4
    assert route.counted


def test_a_route_whose_path_no_longer_counts_is_told(open_link: Open) -> None:
    left, right = (open_link(address) for address in V4)
    route = route_between(left, right)
    route.counted, route.identification = True, 5
    assert left.send(counted(burst_of(route, bytes(3000), 1000))) == SENT
    assert (route.counted, route.identification, left.send_calls) == (False, 0, 3)


def test_a_refused_burst_is_the_last_that_is_made_for_counted_identifications(
    open_link: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(paths, "cutting", lambda *_: paths.COUNTING)
    left, right, asked = scripted(open_link, errno.EIO)
    route = route_between(left, right)
    route.counted, route.identification = True, 2
    assert left.send(counted(burst_of(route, bytes(3000), 1000))) == SENT
    assert [n for _, _, n, _ in asked] == [3000, 1000, 1000, 1000]
    assert (route.counted, route.identification, left.is_segmenting(route)) == (False, 0, False)


def test_a_link_told_not_to_count_never_does(open_link: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paths, "cutting", lambda *_: paths.COUNTING)
    left, right = (open_link(address) for address in V4)
    left.counts = False
    left.mark_segmenting(right.gid)
    route = route_between(left, right)
    assert left.send(burst_of(route, bytes(3000), 1000)) == SENT
    assert (route.counted, left.send_calls, left.is_segmenting(route)) == (False, 3, False)


def test_paths_are_looked_up_once_and_again_when_forgotten(
    open_link: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[bytes, bytes, int]] = []
    monkeypatch.setattr(paths, "cutting", lambda *question: asked.append(question) or paths.UNCUT)
    left, right = (open_link(address) for address in V4)
    burst = burst_of(route_between(left, right), bytes(10), 10)
    left.send(burst)
    left.send(burst)
    assert asked == [(bytes((127, 9, 1, 1)), bytes((127, 9, 1, 2)))]
    left.forget_paths()
    left.send(burst)
    assert len(asked) == 2


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


class ScriptedLink(RoceUdpLink):
    """Answers system calls from a script of errors (None: make the call) and notes what was asked."""

    def __init__(self, address: str, port: int = 0, **options: Any) -> None:
        super().__init__(address, port, **options)
        self.script: list[int | None] = []
        self.asked: list[tuple[int, int, int, int]] = []

    def transmit(self, fd: int, address: int, n: int, segment: int, path: Any, route: Route) -> int:
        self.asked.append((fd, address, n, segment))
        error = self.script.pop(0) if self.script else None
        if error is not None:
            return -error
        return super().transmit(fd, address, n, segment, path, route)


def scripted(open_link: Open, *script: int | None) -> tuple[Any, Any, list[tuple[int, int, int, int]]]:
    """A link with that script, its peer, and the list of what was asked of the kernel."""
    left: Any = open_link("127.9.1.1", kind=ScriptedLink)
    left.script.extend(script)
    return left, open_link("127.9.1.2"), left.asked


@pytest.mark.parametrize("full", [errno.EAGAIN, errno.ENOBUFS])
def test_a_full_socket_keeps_the_burst_and_names_its_socket(open_link: Open, full: int) -> None:
    left, right, asked = scripted(open_link, full)
    burst = burst_of(route_between(left, right), b"keep me" * 3, 7)
    assert left.send(burst) == AGAIN
    assert (left.send_blocked, left.bursts_sent, left.datagrams_sent, left.send_errors) == (1, 0, 0, 0)
    assert left.blocked_fileno == asked[0][0]
    assert left.send(burst) == SENT
    assert left.blocked_fileno == -1
    assert wait_and_receive(right, Arrival()) == b"keep me" * 3


def test_a_burst_that_met_a_full_socket_goes_on_where_it_was(
    open_link: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(paths, "cutting", lambda *_: paths.UNKNOWN)
    left, right, asked = scripted(open_link, None, None, errno.EAGAIN, errno.EAGAIN)
    data = random.Random(5).randbytes(4500)
    burst = burst_of(route_between(left, right), data, 1000)
    assert [left.send(burst) for _ in range(3)] == [AGAIN, AGAIN, SENT]
    offsets = [address - burst.address for _, address, _, _ in asked]
    assert offsets == [0, 1000, 2000, 2000, 2000, 3000, 4000]
    assert (left.datagrams_sent, left.bytes_sent, left.bursts_sent, left.send_blocked) == (5, 4500, 1, 2)
    arrival, received = Arrival(), b""
    while len(received) < 4500:
        received += wait_and_receive(right, arrival)
    assert received == data
    assert left.send(burst) == SENT  # and from the start when it is sent anew
    assert left.bytes_sent == 9000


def test_an_abandoned_burst_starts_anew(open_link: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paths, "cutting", lambda *_: paths.UNKNOWN)
    left, right, asked = scripted(open_link, None, errno.EAGAIN)
    burst = burst_of(route_between(left, right), bytes(2000), 1000)
    assert left.send(burst) == AGAIN
    left.abandon(Burst())
    assert left.blocked_fileno >= 0
    left.abandon(burst)
    assert left.blocked_fileno == -1
    assert left.send(burst) == SENT
    assert [address - burst.address for _, address, _, _ in asked] == [0, 1000, 0, 1000]


def test_progress_belongs_to_its_burst(open_link: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paths, "cutting", lambda *_: paths.UNKNOWN)
    left, right, asked = scripted(open_link, None, errno.EAGAIN)
    route = route_between(left, right)
    assert left.send(burst_of(route, bytes(2000), 1000)) == AGAIN
    other = burst_of(route, bytes(2000), 1000)
    assert left.send(other) == SENT
    assert [address - other.address for _, address, _, _ in asked[2:]] == [0, 1000]


@pytest.mark.parametrize("refusal", [errno.EIO, errno.EINVAL, errno.EOPNOTSUPP])
def test_a_kernel_that_refuses_segmentation_gets_plain_datagrams(open_link: Open, refusal: int) -> None:
    left, right, asked = scripted(open_link, refusal)
    route = route_between(left, right)
    data = random.Random(6).randbytes(2500)
    assert left.send(burst_of(route, data, 1000)) == SENT
    assert [n for _, _, n, _ in asked] == [2500, 1000, 1000, 500]
    assert (left.segmentation_refusals, left.send_errors, left.datagrams_sent) == (1, 0, 3)
    assert not left.is_segmenting(route)
    arrival, received = Arrival(), b""
    while len(received) < 2500:
        received += wait_and_receive(right, arrival)
    assert received == data


def test_a_refused_plain_datagram_is_dropped_and_counted(open_link: Open) -> None:
    left, right, asked = scripted(open_link, errno.EINVAL, errno.EPERM)
    route = route_between(left, right)
    assert left.send(burst_of(route, bytes(100), 100)) == -errno.EINVAL
    assert left.segmentation_refusals == 0
    assert left.send(burst_of(route, bytes(300), 100)) == -errno.EPERM
    assert (left.send_errors, left.bursts_sent, len(asked)) == (2, 0, 2)
    assert left.send(burst_of(route, b"after", 5)) == SENT
    assert wait_and_receive(right, Arrival()) == b"after"


def test_an_error_in_the_middle_drops_the_rest_and_forgets_the_place(
    open_link: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(paths, "cutting", lambda *_: paths.UNKNOWN)
    left, right, asked = scripted(open_link, None, errno.EAGAIN, errno.ENETUNREACH)
    burst = burst_of(route_between(left, right), bytes(3000), 1000)
    assert left.send(burst) == AGAIN
    assert left.send(burst) == -errno.ENETUNREACH
    assert left.datagrams_sent == 1
    assert left.send(burst) == SENT
    assert asked[3][1] == burst.address


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


def test_a_closed_link_is_quiet(open_link: Open) -> None:
    left, right = (open_link(address) for address in V4)
    burst = burst_of(route_between(left, right), b"late", 4)
    descriptors = [left.fileno(), *senders_of(left, burst.route.source_port)]
    assert left.send(burst) == SENT
    left.close()
    left.close()
    assert left.fileno() == -1
    assert not left.receive(Arrival())
    assert left.send(burst) == -errno.EBADF
    assert left.send_calls == 1, "a descriptor that is closed may be somebody else's by now"
    with pytest.raises(OSError, match="closed"):
        left.source_port_for(1)
    for descriptor in descriptors:
        with pytest.raises(OSError, match="descriptor"):
            os.fstat(descriptor)


def senders_of(link: RoceUdpLink, port: int) -> list[int]:
    """Descriptors of this process's sockets bound to that source port of the link."""
    found = []
    for name in os.listdir("/proc/self/fd"):
        try:
            if not stat.S_ISSOCK(os.fstat(int(name)).st_mode):
                continue
            bound = socket.socket(fileno=os.dup(int(name)))
        except OSError:
            continue
        with bound:
            if bound.family == socket.AF_INET and bound.getsockname() == (link.address, port):
                found.append(int(name))
    assert found
    return found


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


def test_queue_pairs_have_source_ports_of_their_own(open_link: Open) -> None:
    link = open_link("127.9.1.1")
    labels = [flow_label(0x31 + number, 0x9D + number) for number in range(64)]
    ports = [link.source_port_for(label) for label in labels]
    assert len(set(ports)) >= 63
    assert all(FIRST_SOURCE_PORT <= port <= LAST_SOURCE_PORT for port in ports)
    assert [link.source_port_for(label) for label in labels] == ports


def test_another_address_has_ports_of_its_own(open_link: Open) -> None:
    first, second = open_link("127.9.1.1"), open_link("127.9.1.2")
    assert first.source_port_for(5) == second.source_port_for(5) == source_port(5)


def test_flows_share_ports_where_a_process_has_its_number_of_sockets(
    open_link: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = open_link("127.9.1.1"), open_link("127.9.1.2")
    before = len(os.listdir("/proc/self/fd"))
    monkeypatch.setattr(sockets, "most_senders", lambda: sockets.open_senders.count + room)
    room = 7
    link_ports = [first.source_port_for(label) for label in range(7)]
    room = 0
    assert {first.source_port_for(label) for label in range(7, 500)} == set(link_ports)
    ports = {label: first.source_port_for(label) for label in range(500)}
    # each link has one at least
    assert len({second.source_port_for(label) for label in range(100)}) == 1
    assert len(os.listdir("/proc/self/fd")) == before + 8
    room = 100
    assert {label: first.source_port_for(label) for label in range(500)} == ports, "a flow keeps its port"
    assert first.source_port_for(500) == source_port(500)


def test_the_number_of_sockets_follows_the_descriptors(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = iter(((1024, 4096), (64, 64), (1 << 20, 1 << 20), (resource.RLIM_INFINITY,) * 2))
    monkeypatch.setattr(resource, "getrlimit", lambda _: next(limits))
    assert [sockets.most_senders() for _ in range(4)] == [128, 8, 512, 512]


def test_closed_links_give_their_sockets_back(open_link: Open) -> None:
    before = sockets.open_senders.count
    link = open_link("127.9.1.1")
    for label in range(5):
        link.source_port_for(label)
    assert sockets.open_senders.count == before + 5
    link.close()
    link.close()
    assert sockets.open_senders.count == before


def test_flows_share_ports_where_there_are_no_more_descriptors(
    open_link: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = open_link("127.9.1.1")
    port = link.source_port_for(1)

    def none_left(*_: Any) -> socket.socket:
        raise OSError(errno.EMFILE, "too many open files")

    monkeypatch.setattr(sockets, "open_sender", none_left)
    assert link.source_port_for(2) == port
    with pytest.raises(OSError, match="too many"):
        open_link("127.9.1.2").source_port_for(1)


def test_a_source_port_in_use_is_passed_over(open_link: Open) -> None:
    first, second = open_link("127.9.1.1"), open_link("127.9.1.1")
    taken, other = first.source_port_for(9), second.source_port_for(9)
    assert (taken, other) == (source_port(9), source_port(9) + 1)
    assert second.source_port_for(9) == other
    assert second.source_port_for(10) == source_port(10) + 1  # the next flow's port is taken by now


def test_behind_the_last_source_port_comes_the_first(open_link: Open) -> None:
    last = 0x3FFF
    assert source_port(last) == 0xFFFF
    taken = [open_link("127.9.1.3").source_port_for(last) for _ in range(3)]
    assert taken == [0xFFFF, 0xC000, 0xC001]


def test_packets_leave_with_the_source_port_of_their_route(open_link: Open) -> None:
    left, right = (open_link(address) for address in V4)
    arrival = Arrival()
    for entropy in (1, 2, 3, 1):
        route = route_between(left, right, entropy)
        left.send(burst_of(route, b"x", 1))
        wait_and_receive(right, arrival)
        assert arrival.source_port == route.source_port == left.source_port_for(entropy)


def test_the_receive_buffer_is_what_was_asked_doubled_by_the_kernel(open_link: Open) -> None:
    assert open_link("127.9.1.1", receive_buffer_bytes=106_496).receive_buffer_bytes == 212_992
    assert open_link("127.9.1.1").receive_buffer_bytes >= 212_992


def test_the_receive_buffer_bounds_what_waits(open_link: Open) -> None:
    right = open_link("127.9.1.2", receive_buffer_bytes=106_496)
    left = open_link("127.9.1.1")
    burst = burst_of(route_between(left, right), bytes(61_680), 4112)
    assert [left.send(burst) for _ in range(50)] == [SENT] * 50  # UDP: the sender is not told
    arrival, waiting = Arrival(), 0
    while right.receive(arrival):
        waiting += 1
    assert 3 <= waiting < 10


def test_a_port_in_use_is_an_error_and_leaks_nothing(open_link: Open) -> None:
    link = open_link("127.9.1.1")
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(OSError, match="in use"):
        RoceUdpLink("127.9.1.1", link.port)
    with pytest.raises(OSError, match="no interface"):
        RoceUdpLink("192.0.2.1")
    with pytest.raises(ValueError, match="does not appear"):
        RoceUdpLink("nonsense")
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_link_that_can_have_no_groups_keeps_no_descriptor(monkeypatch: pytest.MonkeyPatch) -> None:
    def none_left(*_: object) -> None:
        raise OSError(errno.EMFILE, "too many open files")

    monkeypatch.setattr(roce_udp, "GroupSockets", none_left)
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(OSError, match="too many") as refused:
        RoceUdpLink("127.9.1.1", 0)
    assert len(os.listdir("/proc/self/fd")) == before, refused


def test_the_first_free_loopback_address_is_taken_by_the_bind() -> None:
    with ExitStack() as stack:
        def take() -> RoceUdpLink:
            return stack.enter_context(roce_udp.open_first_free_loopback(first=240, last=242))
        links = [take(), take()]
        hosts = [int(link.address.rpartition(".")[2]) for link in links]
        assert 240 <= hosts[0] < hosts[1] <= 242
        assert {link.port for link in links} == {sockets.ROCE_PORT}
        with pytest.raises(OSError, match="taken on all") as caught:
            take(), take()
        assert caught.value.errno == errno.EADDRINUSE
        links[0].close()
        assert take().address == links[0].address


def test_send_only_sockets_hold_next_to_no_memory_for_receiving(open_link: Open) -> None:
    link = open_link("127.9.1.1")
    (descriptor,) = senders_of(link, link.source_port_for(1))
    with socket.socket(fileno=os.dup(descriptor)) as sender:
        assert sender.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) < 8192
        assert sender.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) >= 212_992


def test_descriptors_do_not_survive_an_exec(open_link: Open) -> None:
    link = open_link("127.9.1.1")
    link.source_port_for(1)
    assert not os.get_inheritable(link.fileno())


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


def test_far_flows_have_ports_of_their_own_and_near_ones_share_one(
    open_link: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[bytes] = []
    far = V4_MAPPED_PREFIX + bytes((192, 0, 2, 1))
    near = V4_MAPPED_PREFIX + bytes((127, 9, 1, 2))

    def uncut(_: bytes, there: bytes) -> bool:
        asked.append(there)
        return there == near[12:]

    monkeypatch.setattr(paths, "leaves_bursts_uncut", uncut)
    link = open_link("127.9.1.1")
    for destination, ports in ((far, 2), (near, 1)):
        assert len({link.source_port_for(flow, destination) for flow in (1, 2)}) == ports
        assert link.preserves_bursts(destination) == (destination == near)
    assert asked == [far[12:], near[12:]]  # each is looked up once
    link.forget_paths()
    assert link.preserves_bursts(near)
    assert asked[2:] == [near[12:]]


def test_what_is_known_of_destinations_is_bounded(open_link: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bytes] = []
    monkeypatch.setattr(roce_udp, "_MAX_PATHS", 2)
    monkeypatch.setattr(paths, "leaves_bursts_uncut", lambda _, there: asked.append(there) or False)
    monkeypatch.setattr(paths, "cutting", lambda _, there: asked.append(there) or paths.UNCUT)
    link = open_link("127.9.1.1")
    gids = [V4_MAPPED_PREFIX + bytes((192, 0, 2, number)) for number in range(3)]
    routes = [Route(ROCE_V4, link.gid, gid, source_port=1, destination_port=2) for gid in gids]
    for look, what in ((link.preserves_bursts, gids), (link.is_segmenting, routes)):
        asked.clear()
        for number in (0, 1, 0, 1, 2, 2, 0):
            look(what[number])  # type: ignore[operator]
        assert [each[-1] for each in asked] == [0, 1, 2, 0]


def test_a_path_that_was_refused_is_made_for_no_more(
    open_link: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(paths, "cutting", lambda *_: paths.COUNTING)
    refusals = [errno.EIO]

    class Refusing(RoceUdpLink):
        def transmit(self, fd: int, address: int, n: int, segment: int, path: Any, route: Route) -> int:
            return -refusals.pop() if refusals else n

    left, right = open_link("127.9.1.1", kind=Refusing), open_link("127.9.1.2")
    route = route_between(left, right)
    for number in range(3):
        burst = burst_of(route, bytes(300), 100)
        burst.counted = route.counted = number == 0
        assert left.send(burst) == SENT
        assert not route.counted
    assert left.segmentation_refusals == 1


def test_the_largest_datagram_is_one_call(open_link: Open) -> None:
    class Counting(RoceUdpLink):
        def transmit(self, fd: int, address: int, n: int, segment: int, path: Any, route: Route) -> int:
            sizes.append(n)
            return n or -errno.EBADMSG

    sizes: list[int] = []
    left, right = open_link("127.9.1.1", kind=Counting), open_link("127.9.1.2")
    for length in (65_486, 65_487, 65_488):
        assert left.send(burst_of(route_between(left, right), bytes(length), length)) == SENT
    assert sizes == [65_486, 65_487, 65_488]


def test_a_mark_counts_where_nothing_else_is_known(open_link: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    left, right = (open_link(address) for address in V4)
    left.mark_segmenting(right.gid)
    for known, segmenting, counted in (
        (paths.UNCUT, True, False), (paths.UNKNOWN, True, True), (paths.COUNTING, True, True),
    ):  # fmt: skip
        monkeypatch.setattr(paths, "cutting", lambda *_, known=known: known)
        left.forget_paths()
        route = route_between(left, right)
        assert left.is_segmenting(route) == segmenting
        assert left.send(burst_of(route, bytes(100), 100)) == SENT
        assert route.counted == counted


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


def test_a_closed_link_that_had_frames_and_groups_is_quiet(open_link: Open) -> None:
    link = open_link("127.9.1.1")
    for number in (1, 2):
        link.join(V4_MAPPED_PREFIX + bytes((239, 9, 1, number)))
    link.leave(V4_MAPPED_PREFIX + bytes((239, 9, 1, 1)))
    link.close()
    assert not link.receive(Arrival())
    assert link.group_fileno() == -1


def test_loopback_addresses_are_tried_up_to_the_last_and_for_this_reason_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tried: list[str] = []

    def taken(code: int) -> Callable[..., Any]:
        def fails(address: str, *_: Any, **__: Any) -> None:
            tried.append(address)
            raise OSError(code, os.strerror(code))

        return fails

    for code, addresses in ((errno.EADDRINUSE, ["127.0.0.5", "127.0.0.6"]), (errno.EPERM, ["127.0.0.5"])):
        tried.clear()
        monkeypatch.setattr(sockets, "open_receiver", taken(code))
        with pytest.raises(OSError, match=r"taken on all|not permitted") as told:
            roce_udp.open_first_free_loopback(0, 5, 6)
        assert (told.value.errno, tried) == (code, addresses)
