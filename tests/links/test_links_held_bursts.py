"""Long bursts to this machine are held in the sending socket for a while, so that the next ones take other
memory; when that begins and ends, and that nothing of it is seen.
"""

from __future__ import annotations

import errno
import os
import resource
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from softhca.links import paths, sockets
from softhca.links.held_bursts import (
    BURST_ROOM_BYTES,
    HELD_BYTES,
    HOLDERS,
    IDLE_NS,
    LEAST_HELD,
    MOST_HELD,
    STEP,
    HeldBursts,
)
from softhca.links.link import AGAIN, NEVER, SENT
from softhca.links.roce_udp import RoceUdpLink
from softhca.machine.primitives import address_of, drop_held, send_burst
from softhca.wire.burst import Arrival, Burst
from softhca.wire.route import Route

STRIDE = 4112
LONG = 15 * STRIDE


class ScriptedLink(RoceUdpLink):
    """Gives the errors of ``script`` in the place of system calls; counts calls."""

    script: tuple[int, ...] = ()
    calls = 0

    def transmit(self, fd: int, address: int, n: int, segment: int, path: Any, route: Route) -> int:
        self.calls += 1
        if self.script:
            error, *rest = self.script
            self.script = tuple(rest)
            if error:
                return -error
        return super().transmit(fd, address, n, segment, path, route)


@pytest.fixture
def ends(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[ScriptedLink, RoceUdpLink]]:
    """Two links, the first of which may hold, whatever this machine would say."""
    monkeypatch.setattr(sockets, "hold_bursts", lambda fd: ROOM)
    with ScriptedLink("127.9.8.1", 0) as left, RoceUdpLink("127.9.8.2", 0) as right:
        yield left, right


ROOM = (MOST_HELD + STEP) * BURST_ROOM_BYTES


def burst_to(left: RoceUdpLink, right: RoceUdpLink, length: int = LONG) -> Burst:
    burst = Burst()
    burst.route = Route(left.framing, left.gid, right.gid, source_port=left.source_port_for(1),
                        destination_port=right.port)
    burst.data[:length] = memoryview(os.urandom(length))
    burst.length, burst.stride, burst.packets = length, STRIDE, -(-length // STRIDE)
    return burst


def sender() -> socket.socket:
    return sockets.open_sender("127.9.8.1", 0, 0, 1 << 20)


def test_what_is_held_is_dropped_when_nothing_follows(ends: tuple[ScriptedLink, RoceUdpLink]) -> None:
    left, right = ends
    assert (left.held_bursts(), left.next_deadline()) == (0, NEVER)
    assert left.send(burst_to(left, right)) == SENT
    assert left.held_bursts() == 1
    assert left.next_deadline() <= 1_000
    assert not left.expire(1_000)
    assert left.next_deadline() == 1_000 + IDLE_NS
    assert left.send(burst_to(left, right)) == SENT
    assert not left.expire(1_000 + IDLE_NS)
    assert left.next_deadline() == 1_000 + 2 * IDLE_NS
    assert not left.expire(999 + 2 * IDLE_NS)
    assert left.held_bursts() == 2
    assert not left.expire(1_000 + 2 * IDLE_NS)
    assert (left.held_bursts(), left.next_deadline()) == (0, NEVER)


def test_bytes_arrive_as_ever_and_a_bounded_number_is_held(ends: tuple[ScriptedLink, RoceUdpLink]) -> None:
    left, right = ends
    arrival, burst = Arrival(), burst_to(left, right)
    for _ in range(2 * (MOST_HELD + STEP)):
        assert left.send(burst) == SENT
        assert left.held_bursts() < MOST_HELD + STEP
        assert right.receive(arrival)
        assert bytes(arrival.data[: arrival.length]) == bytes(burst.data[: burst.length])


@pytest.mark.parametrize(("length", "held"), [(HELD_BYTES - 1, 0), (HELD_BYTES, 1)])
def test_short_bursts_are_not_held(ends: tuple[ScriptedLink, RoceUdpLink], length: int, held: int) -> None:
    left, right = ends
    assert left.send(burst_to(left, right, length)) == SENT
    assert left.held_bursts() == held


def test_bursts_that_leave_this_machine_or_come_back_here_are_not_held(
    ends: tuple[ScriptedLink, RoceUdpLink], monkeypatch: pytest.MonkeyPatch
) -> None:
    left, right = ends
    assert left.send(burst_to(left, left)) == SENT
    monkeypatch.setattr(paths, "cutting", lambda *_: paths.COUNTING)
    burst = burst_to(left, right)
    burst.counted = burst.route.counted = True
    assert left.send(burst) == SENT
    assert left.held_bursts() == 0


def test_few_sockets_hold_until_all_is_idle(ends: tuple[ScriptedLink, RoceUdpLink]) -> None:
    left, right = ends

    def send(entropy: int) -> int:
        burst = burst_to(left, right)
        burst.route = Route(left.framing, left.gid, right.gid, source_port=left.source_port_for(entropy),
                            destination_port=right.port)
        assert left.send(burst) == SENT
        return left.held_bursts()

    assert [send(number) for number in range(HOLDERS + 2)] == [*range(1, HOLDERS + 1), HOLDERS, HOLDERS]
    left.expire(0)
    left.expire(IDLE_NS)
    assert [send(HOLDERS), send(HOLDERS)] == [1, 2]


def test_a_route_that_goes_on_after_an_idle_time_holds_anew(ends: tuple[ScriptedLink, RoceUdpLink]) -> None:
    left, right = ends
    burst = burst_to(left, right)
    assert left.send(burst) == SENT
    left.expire(0)
    left.expire(IDLE_NS)
    assert left.held_bursts() == 0
    assert left.send(burst) == SENT
    assert left.held_bursts() == 1


def test_a_socket_that_is_full_holds_nothing_while_room_is_waited_for(
    ends: tuple[ScriptedLink, RoceUdpLink]
) -> None:
    left, right = ends
    assert left.send(burst_to(left, right)) == SENT
    left.script = (errno.EAGAIN,)
    burst = burst_to(left, right)
    assert left.send(burst) == AGAIN
    assert (left.held_bursts(), left.next_deadline()) == (0, NEVER)
    assert left.send(burst) == SENT
    assert left.held_bursts() == 1


def test_a_kernel_that_refuses_time_stamps_gets_bursts_without(
    ends: tuple[ScriptedLink, RoceUdpLink]
) -> None:
    left, right = ends
    left.script = (errno.EINVAL,)
    assert [left.send(burst_to(left, right)) for _ in range(2)] == [SENT, SENT]
    assert (left.calls, left.segmentation_refusals, left.held_bursts()) == (3, 0, 0)


def test_room_decides_how_many_are_held() -> None:
    least = (LEAST_HELD + STEP) * BURST_ROOM_BYTES
    assert [HeldBursts(-1, room).most for room in (0, 425_984, least - 1, least, ROOM, 1 << 24)] == [
        0, 0, 0, LEAST_HELD, MOST_HELD, MOST_HELD,
    ]  # fmt: skip


def test_a_kernel_that_holds_nothing_is_believed() -> None:
    with sender() as endpoint:
        held = HeldBursts(endpoint.fileno(), ROOM)
        for _ in range(MOST_HELD + STEP):
            assert held.most == MOST_HELD
            held.sent()
        assert (held.most, held.count) == (0, 0)


def test_the_oldest_are_dropped_and_then_all() -> None:
    with sender() as endpoint:
        fd, data = endpoint.fileno(), bytearray(100)
        endpoint.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 200_000)
        held = HeldBursts(fd, ROOM)
        target = b"\2\0\0\x09" + bytes((127, 9, 8, 2)) + bytes(8)
        for _ in range(MOST_HELD + STEP):
            assert send_burst(fd, address_of(data), 100, 0, address_of(target, False), 16, 0, 0, True) == 100
            held.sent()
        assert (held.most, held.count) == (MOST_HELD, MOST_HELD)
        held.clear()
        assert (held.count, drop_held(fd, 1)) == (0, -errno.EAGAIN)


def test_one_processor_holds_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 1)
    with sender() as endpoint:
        before = sockets.receive_buffer_bytes(endpoint)
        assert sockets.hold_bursts(endpoint.fileno()) == 0
        assert sockets.receive_buffer_bytes(endpoint) == before


def test_a_socket_with_room_for_held_bursts_still_receives_nothing() -> None:
    with sender() as endpoint, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
        granted = sockets.hold_bursts(endpoint.fileno())
        assert granted == (0 if os.cpu_count() == 1 else sockets.receive_buffer_bytes(endpoint))
        if granted:
            other.sendto(b"unasked", endpoint.getsockname())  # loopback: it is there, or dropped, by now
            with pytest.raises(BlockingIOError):
                endpoint.recv(16)


def test_room_for_held_bursts_takes_no_descriptor() -> None:
    """A program that has none left sends all the same: the adapter asks in the middle of its work."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    with sender() as endpoint:
        free = os.dup(endpoint.fileno())
        os.close(free)
        resource.setrlimit(resource.RLIMIT_NOFILE, (free, limits[1]))  # the next one would be that
        try:
            granted = sockets.hold_bursts(endpoint.fileno())
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        assert granted == (0 if os.cpu_count() == 1 else sockets.receive_buffer_bytes(endpoint))
        endpoint.getsockname()  # it is open still
