"""Sockets, ports and descriptors of a link: which it takes, shares and gives back."""

from __future__ import annotations

import errno
import os
import resource
import socket
import stat
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import pytest
from roce_links import V4, Open, burst_of, route_between

from softhca.links import paths, roce_udp, sockets
from softhca.links.roce_udp import SENT, RoceUdpLink
from softhca.wire.burst import Arrival
from softhca.wire.flows import FIRST_SOURCE_PORT, LAST_SOURCE_PORT, flow_label, source_port
from softhca.wire.route import V4_MAPPED_PREFIX


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
