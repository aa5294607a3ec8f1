"""The IPv4 identification that an ICRC covers is found from the ICRC alone."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from wire_samples import CAPTURES, FRAMINGS, routes, sample_route

from softhca.machine.primitives import address_of
from softhca.wire import icrc
from softhca.wire.captures import read_capture
from softhca.wire.identification import MAX_TRANSPORT_BYTES, multiply, power_of_x, recover
from softhca.wire.packet import decode
from softhca.wire.route import Route

IDS = st.integers(0, 0xFFFF)
LENGTHS = st.integers(4, MAX_TRANSPORT_BYTES // 4).map(lambda words: 4 * words)


def difference(route: Route, identification: int, length: int) -> int:
    """ICRC for ``identification`` XOR ICRC for the route's own, of a packet of zeros."""
    data = bytearray(length)
    ours = icrc.compute(route, address_of(data), length - 4)
    kept, route.identification = route.identification, identification
    theirs = icrc.compute(route, address_of(data), length - 4)
    route.identification = kept
    return ours ^ theirs


def test_all_identifications_are_found_and_nothing_else_is() -> None:
    route = sample_route()
    image = {}
    zero = bytearray(64)
    ours = icrc.compute(route, address_of(zero), 60)
    for identification in range(0x10000):
        route.identification = identification
        image[icrc.compute(route, address_of(zero), 60) ^ ours] = identification
    route.identification = 0
    assert len(image) == 0x10000
    for value, identification in image.items():
        assert recover(route, value, 64) == identification
    generator = random.Random(7)
    damaged = [generator.getrandbits(32) for _ in range(20_000)]
    assert [recover(route, value, 64) for value in damaged] == [image.get(value, -1) for value in damaged]


@given(routes("ipv4"), IDS, LENGTHS)
def test_it_is_found_at_every_length_from_every_supposition(
    route: Route, identification: int, length: int
) -> None:
    assert recover(route, difference(route, identification, length), length) == identification


@given(routes("ipv4"), IDS, st.integers(0, 8 * 100 - 1))
def test_one_damaged_bit_is_never_taken_for_an_identification(
    route: Route, identification: int, bit: int
) -> None:
    # a single bit behind the identification moves the syndrome out of the 16-dimensional image
    data = bytearray(104)
    kept, route.identification = route.identification, identification
    data[100:] = icrc.compute(route, address_of(data), 100).to_bytes(4, "little")
    route.identification = kept
    assert recover(route, icrc.syndrome(route, address_of(data), 104), 104) == identification
    if bit // 8 != 4:
        data[bit // 8] ^= 1 << bit % 8
        assert recover(route, icrc.syndrome(route, address_of(data), 104), 104) == -1


def test_a_hint_bounds_what_is_taken_only_with_a_window() -> None:
    route = sample_route()
    value = difference(route, 5, 64)
    assert recover(route, value, 64, 0x8000) == 5
    assert recover(route, value, 64, hint=5, window=0) == 5
    assert recover(route, value, 64, hint=4, window=0) == -1
    assert recover(route, value, 64, hint=0xFFFF, window=6) == 5
    assert recover(route, value, 64, hint=0xFFFF, window=5) == -1
    assert recover(route, value, 64, hint=11, window=6) == 5
    assert recover(route, value, 64, hint=11, window=5) == -1
    assert recover(route, value, 64, hint=-1, window=0) == 5


@pytest.mark.parametrize("kind", sorted(set(FRAMINGS) - {"ipv4"}))
def test_other_framings_have_no_identification(kind: str) -> None:
    assert recover(sample_route(kind), 0, 64) == -1


@pytest.mark.parametrize("length", [0, 15, MAX_TRANSPORT_BYTES + 1, 2**31])
def test_a_length_that_cannot_be_gives_nothing(length: int) -> None:
    assert recover(sample_route(), 0, length) == -1


@pytest.mark.parametrize("length", [16, MAX_TRANSPORT_BYTES])
def test_the_shortest_and_the_longest_packet_are_taken(length: int) -> None:
    assert recover(sample_route(), 0, length) == 0


def test_no_difference_is_the_supposed_identification() -> None:
    assert recover(sample_route(identification=77), 0, 64) == 77


@given(st.integers(0, 2**40), st.integers(0, 2**20))
def test_powers_multiply(a: int, b: int) -> None:
    assert multiply(power_of_x(a), power_of_x(b)) == power_of_x(a + b)


def test_the_generators_order_is_the_whole_group() -> None:
    one = 1 << 31
    assert power_of_x(0) == one
    assert power_of_x(2**32 - 1) == one
    assert all(power_of_x((2**32 - 1) // factor) != one for factor in (3, 5, 17, 257, 65537))


@pytest.mark.parametrize("name", ["rc_pingpong", "loss5", "atomic"])
def test_a_kernels_identifications_are_found_in_its_traffic(name: str) -> None:
    with (CAPTURES / f"{name}.pcap").open("rb") as stream:
        packets = [decode(captured.data, captured.link_type) for captured in read_capture(stream)]
    for packet in packets:
        ip, udp = packet.network
        prefix = bytes(10) + b"\xff\xff"
        route = Route(1, prefix + ip.source, prefix + ip.destination, source_port=udp.source_port)
        data = bytearray(packet.transport.encode())
        assert ip.identification != 0
        assert (
            recover(route, icrc.syndrome(route, address_of(data), len(data)), len(data)) == ip.identification
        )
