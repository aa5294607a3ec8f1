"""Turns of the ports behind the first: each takes and sends by its own link, and says whether it did."""

import pytest
from fake_engine import FakeEngine, Wire

from softhca.links.link import NEVER
from softhca.runtime.further_ports import FurtherPorts
from softhca.runtime.transmitter import BURSTS, RETRY_NS
from softhca.wire.burst import Arrival
from softhca.wire.framing import ROCE_V4
from softhca.wire.route import V4_MAPPED_PREFIX, Route

NOW = 1_000
ROUTE = Route(ROCE_V4, V4_MAPPED_PREFIX + bytes([127, 0, 0, 2]), V4_MAPPED_PREFIX + bytes([127, 0, 0, 3]))


class Holding(Wire):
    """Holds back what is due at ``held_ns``."""

    def __init__(self):
        super().__init__()
        self.held_ns = NEVER
        self.asked = 0

    def next_deadline(self):
        return self.held_ns

    def expire(self, now):
        self.asked += 1
        due = now >= self.held_ns
        if due:
            self.held_ns = NEVER
        return due


class Engine(FakeEngine):
    """Sends what ``due`` holds for each port; notes by which port something came."""

    def __init__(self):
        super().__init__()
        self.came = []
        self.due = {2: [], 3: []}

    def receive(self, port_number, arrival, now):
        self.came.append((port_number, arrival.source[0], now))

    def transmit(self, port_number, burst, now):
        if not self.due[port_number]:
            return False
        burst.length = self.due[port_number].pop(0)
        burst.route = ROUTE
        return True


class Bench:
    def __init__(self):
        self.engine, self.links = Engine(), [Holding(), Holding()]
        self.further = FurtherPorts(self.engine, self.links)
        self.arrival = Arrival()


@pytest.fixture
def bench():
    return Bench()


def test_what_comes_is_its_links_ports_and_a_turn_is_bounded(bench):
    assert not bench.further.receive(bench.arrival, NOW)
    for number in range(BURSTS + 1):
        bench.links[1].put(bytes([number]))
    bench.links[0].put(bytes([77]))
    assert bench.further.receive(bench.arrival, NOW)
    assert bench.engine.came == [(2, 77, NOW), *((3, number, NOW) for number in range(BURSTS))]
    assert bench.further.receive(bench.arrival, NOW)
    assert bench.engine.came[-1] == (3, BURSTS, NOW)
    assert not bench.further.receive(bench.arrival, NOW)


def test_every_port_sends_by_its_link_although_another_one_has_sent(bench):
    assert not bench.further.transmit(NOW)
    bench.engine.due = {2: [10], 3: [20, 21]}
    assert bench.further.transmit(NOW)
    assert [link.sent for link in bench.links] == [[10], [20, 21]]
    bench.engine.due[3] = [22]
    assert bench.further.transmit(NOW)
    assert bench.links[1].sent[-1] == 22
    assert not bench.further.transmit(NOW)


def test_the_earliest_of_what_is_held_back_and_what_found_no_room_is_the_deadline(bench):
    assert (bench.further.deadline(), bench.further.held_ns()) == (NEVER, NEVER)
    bench.links[1].refusals = 1
    bench.engine.due[3] = [20]
    assert not bench.further.transmit(NOW)
    assert (bench.further.deadline(), bench.further.held_ns()) == (NOW + RETRY_NS, NEVER)
    bench.links[0].held_ns = NOW + 5
    bench.links[1].held_ns = NOW + 9
    assert (bench.further.deadline(), bench.further.held_ns()) == (NOW + 5, NOW + 5)


def test_every_link_lets_go_of_what_is_due(bench):
    assert not bench.further.expire(NOW)
    bench.links[0].held_ns = NOW
    assert bench.further.expire(NOW)
    assert not bench.further.expire(NOW)
    assert [link.asked for link in bench.links] == [3, 3]
