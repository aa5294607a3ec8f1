"""Buffers that cross between adapter and link."""

import pytest
from wire_samples import sample_route

from softhca.machine.primitives import address_of
from softhca.wire.burst import CAPACITY, Arrival, Burst
from softhca.wire.framing import NATIVE, ROCE_V6
from softhca.wire.route import Route


@pytest.mark.parametrize("kind", [Burst, Arrival])
def test_a_buffer_holds_one_64_kib_datagram_and_its_address_is_its_datas(kind: type) -> None:
    made = kind()
    assert len(made.data) == CAPACITY == made.capacity == 65_536
    assert (made.length, made.stride) == (0, 0)
    made.data[0], made.data[CAPACITY - 1] = 1, 2
    assert (made.buffer[0], made.buffer[-1]) == (1, 2)
    assert made.address == address_of(made.buffer)
    assert made.address % 4 == 0


def test_two_buffers_share_nothing() -> None:
    first, second = Burst(), Burst()
    assert abs(first.address - second.address) >= CAPACITY


def test_reset_forgets_the_last_run() -> None:
    burst = Burst()
    burst.length, burst.stride, burst.packets, burst.route = 100, 50, 2, sample_route()
    burst.reset()
    assert (burst.length, burst.stride, burst.packets, burst.route) == (0, 0, 0, None)


def test_an_arrival_says_where_it_came_from() -> None:
    arrival = Arrival()
    assert (arrival.source, arrival.destination) == (None, None)
    arrival.source, arrival.destination, arrival.source_port, arrival.traffic_class = (
        bytes(16),
        bytes(16),
        5,
        6,
    )
    arrival.framing = 2
    assert (arrival.source_port, arrival.traffic_class, arrival.framing) == (5, 6, 2)


def test_a_burst_that_is_emptied_has_icrcs_again():
    burst = Burst()
    burst.has_icrc = False
    burst.reset()
    assert burst.has_icrc


@pytest.mark.parametrize("framing", [NATIVE, ROCE_V6])
@pytest.mark.parametrize(("service", "reliable"), [
    (0, True), (1, False), (2, True), (3, False), (4, False), (5, True), (6, False), (7, False),
])  # fmt: skip
def test_a_burst_is_reliable_whose_sender_sends_again_what_is_lost(
    service: int, reliable: bool, framing: int
) -> None:
    """RC, RD and XRC; not UC, UD, the congestion notifications, nor what nobody knows."""
    burst = Burst()
    burst.route = Route(framing, bytes(16), bytes(15) + b"\x01", has_grh=True)
    burst.data[0] = (~service & 7) << 5
    burst.data[burst.route.prefix_bytes] = service << 5 | 0x1F
    assert burst.reliable() is reliable
