"""The link of Ethernet frames: alone, and with the kernel at its other end."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import interop_cells_rc  # noqa: F401    (registers its cells)
import pytest
from interop_ethernet import AGAIN, SENT, EthernetLink
from interop_image import images
from interop_matrix import CELLS, DIRECTIONS, SETTINGS, attempt
from interop_neighbours import Neighbours
from interop_packages import Unavailable
from interop_user_world import UserWorld

from machine_speed import limit_s
from softhca.wire.burst import Arrival, Burst
from softhca.wire.icrc import of_packet
from softhca.wire.ip import Ethernet
from softhca.wire.route import Route

MACS = (bytes.fromhex("020000000001"), bytes.fromhex("020000000002"))
ADDRESSES = {4: ("192.0.2.1", "192.0.2.2"), 6: ("2001:db8::1", "2001:db8::2")}
VERSIONS = pytest.mark.parametrize("version", [4, 6])


def packed(version: int, number: int) -> bytes:
    return ipaddress.ip_address(ADDRESSES[version][number]).packed


def neighbours(version: int) -> tuple[Neighbours, Neighbours]:
    return Neighbours(MACS[0], packed(version, 0)), Neighbours(MACS[1], packed(version, 1))


def parts(frame: bytes) -> tuple[int, bytes]:
    return Ethernet.decode(frame).ethertype, frame[Ethernet.LENGTH_BYTES :]


@VERSIONS
def test_who_asks_learns_and_so_does_who_is_asked(version: int) -> None:
    left, right = neighbours(version)
    question = left.ask(right.address)
    assert Ethernet.decode(question).destination[0] & 1
    answer = right.take(*parts(question))
    assert answer is not None
    assert Ethernet.decode(answer).destination == left.mac
    assert left.take(*parts(answer)) is None
    assert left.known == {right.address: right.mac}
    assert right.known == {left.address: left.mac}


@VERSIONS
def test_questions_for_others_and_damaged_ones_are_not_answered(version: int) -> None:
    left, right = neighbours(version)
    other = packed(version, 1)[:-1] + b"\x09"
    assert right.take(*parts(left.ask(other))) is None
    kind, question = parts(left.ask(right.address))
    for length in range(len(question)):
        assert right.take(kind, question[:length]) is None
    if version == 6:
        for place in range(40, len(question)):
            damaged = bytearray(question)
            damaged[place] ^= 1
            assert right.take(kind, bytes(damaged)) is None
    assert right.known == {}


@pytest.fixture
def cable(tmp_path: Path) -> Callable[[int], tuple[EthernetLink, EthernetLink]]:
    with ExitStack() as stack:

        def lay(version: int) -> tuple[EthernetLink, EthernetLink]:
            ends = [str(tmp_path / name) for name in ("left", "right")]
            return tuple(
                stack.enter_context(
                    EthernetLink(ends[side], ends[1 - side], MACS[side], ADDRESSES[version][side])
                )
                for side in range(2)
            )

        yield lay


def route_between(left: EthernetLink, right: EthernetLink, **more: int) -> Route:
    return Route(left.framing, left.gid, right.gid, source_port=left.source_port_for(1), **more)


def packet(route: Route, number: int) -> bytes:
    """BTH … ICRC as an adapter makes it."""
    body = bytes([4, 0, 0xFF, 0xFF, 0, 0, 0, 5, 0, 0, 0, number]) + number.to_bytes(4, "big") * 5
    return body + of_packet(route.framing, route.headers(len(body) + 4), body).to_bytes(4, "little")


def burst_of(route: Route, packets: list[bytes]) -> Burst:
    burst, data = Burst(), b"".join(packets)
    burst.data[: len(data)] = memoryview(data)
    burst.length, burst.stride, burst.route, burst.packets = len(data), len(packets[0]), route, len(packets)
    return burst


def received(link: EthernetLink) -> list[bytes]:
    arrival, found = Arrival(), []
    while link.receive(arrival):
        assert arrival.stride == arrival.length
        found.append(bytes(arrival.data[: arrival.length]))
    return found


@VERSIONS
def test_a_burst_waits_for_the_neighbour_and_then_arrives(cable, version: int) -> None:
    left, right = cable(version)
    route = route_between(left, right)
    packets = [packet(route, number) for number in range(3)]
    assert left.send(burst_of(route, packets)) == SENT
    assert received(right) == []  # the question
    assert received(left) == []  # the answer
    assert received(right) == packets
    arrival = Arrival()
    left.send(burst_of(route, packets[:1]))
    assert right.receive(arrival)
    assert (arrival.source, arrival.destination) == (left.gid, right.gid)
    assert (arrival.framing, arrival.source_port) == (left.framing, route.source_port)


def frame(left: EthernetLink, right: EthernetLink, headers: bytes, payload: bytes) -> bytes:
    return Ethernet(right.neighbours.mac, left.neighbours.mac).encode() + headers + payload


def test_the_icrc_is_checked_with_the_identification_that_came(cable) -> None:
    left, right = cable(4)
    seven, none = (route_between(left, right, identification=number) for number in (7, 0))
    payload = packet(seven, 1)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as wire:
        for headers in (seven.headers(len(payload)), none.headers(len(payload))):
            wire.sendto(frame(left, right, headers, payload), right._socket.getsockname())
    assert received(right) == [payload]
    assert right.counters()["icrc_mismatches"] == 1


def test_what_is_for_others_or_broken_is_passed_over(cable) -> None:
    left, right = cable(4)
    route = route_between(left, right)
    payload = packet(route, 1)
    whole = frame(left, right, route.headers(len(payload)), payload)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as wire:
        wire.connect(right._socket.getsockname())
        for length in (*range(0, len(whole), 5), len(whole) - 1):
            wire.send(whole[:length])
            assert received(right) == []
        wire.send(bytes.fromhex("020000000009") + whole[6:])
        assert received(right) == []
        wire.send(whole)
        assert received(right) == [payload]


def test_a_burst_that_finds_no_room_goes_on_where_it_stopped(cable) -> None:
    left, right = cable(4)
    right.neighbours.known[left.neighbours.address] = left.neighbours.mac
    left.neighbours.known[right.neighbours.address] = right.neighbours.mac
    route = route_between(left, right)
    packets = [packet(route, number % 256) for number in range(1000)]
    burst = burst_of(route, packets)
    found, rounds = [], 0
    while left.send(burst) == AGAIN:
        rounds += 1
        found += received(right)
    found += received(right)
    assert found == packets
    assert rounds


@pytest.mark.timeout(limit_s(900))  # the first time, the guest is built
def test_the_kernel_and_our_adapter_meet_without_any_privilege() -> None:
    try:
        found = images(print)
        kernel = next(iter(found.kernels.values()))
        with UserWorld(found, kernel) as world:
            outcomes = [
                attempt(CELLS[name], world.sides.case(setting, direction), direction)
                for name in ("RC SEND", "RC RDMA WRITE")
                for setting in SETTINGS
                for direction in DIRECTIONS
            ]
    except Unavailable as reason:
        pytest.skip(f"no guest: {reason}")
    assert [outcome for outcome in outcomes if outcome.reason] == []
    assert len(outcomes) == 2 * len(SETTINGS) * len(DIRECTIONS)
