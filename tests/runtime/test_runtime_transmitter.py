"""Which link carries a burst, and what comes of one that finds no room."""

import errno

import pytest
from fake_engine import FakeEngine

from softhca.links.link import AGAIN, SENT, Link
from softhca.runtime.transmitter import BURSTS, LIFETIME_NS, NEVER, RETRY_NS, Transmitter
from softhca.wire.framing import ROCE_V4
from softhca.wire.icrc import seal, syndrome
from softhca.wire.route import V4_MAPPED_PREFIX, Route

HERE, THERE, ELSEWHERE = (V4_MAPPED_PREFIX + bytes([127, 0, 0, last]) for last in (2, 3, 4))
RC, UC, UD = 0x04, 0x24, 0x64
"""Opcodes of packets of these services."""


class Noting(Link):
    """Takes every burst, or answers what ``answers`` says first."""

    def __init__(self, needs_icrc=True):
        super().__init__(needs_icrc=needs_icrc)
        self.answers = []
        self.sent = []
        self.sound = []
        self.abandoned = 0

    def send(self, burst):
        answer = self.answers.pop(0) if self.answers else SENT
        if answer == SENT:
            self.sent.append(burst.length)
            self.sound.append(burst.has_icrc and is_sound(burst))
        return answer

    def abandon(self, burst):
        self.abandoned += 1


def is_sound(burst):
    """Whether the packet in a burst has its ICRC."""
    return syndrome(burst.route, burst.address, burst.length) == 0


class Engine(FakeEngine):
    """Sends what ``outgoing`` holds: opcode, length and route of each burst."""

    def transmit(self, port_number, burst, now):
        if not self.outgoing:
            return False
        opcode, burst.length, burst.route = self.outgoing.popleft()
        burst.stride = burst.length
        burst.has_icrc = burst.route.needs_icrc or burst.length < 16
        burst.buffer[:32] = bytes([opcode]) + bytes(31)
        if burst.has_icrc and burst.length >= 16:
            seal(burst)
        return True


class Bench:
    def __init__(self):
        self.engine, self.link, self.ring = Engine(), Noting(), Noting(needs_icrc=False)
        self.transmitter = Transmitter(self.engine, self.link)
        self.near, self.far = Route(ROCE_V4, HERE, THERE), Route(ROCE_V4, HERE, ELSEWHERE)
        self.rings = {THERE: self.ring}
        self.asked = []

    def has_rings(self):
        def ring_of(route):
            self.asked.append(route.destination)
            return self.rings.get(route.destination)

        self.transmitter.ring_of = ring_of
        self.transmitter.links_changed()

    def send(self, *bursts, now=1_000):
        self.engine.outgoing.extend(bursts)
        return self.transmitter.transmit(now)


@pytest.fixture
def bench():
    made = Bench()
    made.has_rings()
    return made


def test_without_rings_all_goes_by_the_ports_link():
    bench = Bench()
    assert bench.send((RC, 10, bench.near), (UD, 20, bench.far))
    assert (bench.link.sent, bench.transmitter.deadline()) == ([10, 20], NEVER)
    assert not bench.send()


def test_a_call_sends_a_bounded_number_of_bursts():
    bench = Bench()
    bench.send(*[(RC, number, bench.far) for number in range(3 * BURSTS)])
    assert bench.link.sent == list(range(BURSTS))


@pytest.mark.parametrize("opcode", [RC, UC, UD])
def test_the_link_is_the_routes_and_is_looked_for_once(bench, opcode):
    for length in (10, 11, 12):
        bench.send((opcode, length, bench.near), (opcode, 10 * length, bench.far))
    assert (bench.ring.sent, bench.link.sent) == ([10, 11, 12], [100, 110, 120])
    assert bench.asked == [THERE, ELSEWHERE]


def test_when_the_links_have_changed_each_route_looks_again(bench):
    bench.send((RC, 1, bench.near))
    bench.rings = {ELSEWHERE: bench.ring}
    bench.send((RC, 2, bench.near))
    bench.transmitter.links_changed()
    bench.send((RC, 3, bench.near), (RC, 4, bench.far))
    assert (bench.ring.sent, bench.link.sent) == ([1, 2, 4], [3])


@pytest.mark.parametrize("opcode", [RC, UC])
def test_a_closed_ring_is_nobodys_way(bench, opcode):
    bench.ring.answers = [-errno.EPIPE]
    assert bench.send((opcode, 1, bench.near))
    assert (bench.ring.sent, bench.link.sent, bench.ring.abandoned) == ([], [1], 0)


@pytest.mark.parametrize("answer", [AGAIN, -errno.ENOBUFS])
def test_what_is_reliable_and_finds_no_room_goes_by_the_ports_link(bench, answer):
    bench.ring.answers = [answer]
    assert bench.send((RC, 1, bench.near), (RC, 2, bench.near))
    assert (bench.link.sent, bench.ring.sent, bench.transmitter.pending) == ([1], [2], False)


def test_what_is_not_reliable_waits_for_room_and_keeps_its_place(bench):
    bench.ring.answers = [AGAIN, AGAIN]
    assert not bench.send((UC, 1, bench.near), (UC, 2, bench.near), (RC, 3, bench.far))
    assert bench.transmitter.pending
    assert bench.transmitter.deadline() == 1_000 + RETRY_NS
    assert not bench.send(now=1_000 + LIFETIME_NS)
    assert bench.send(now=1_001 + LIFETIME_NS)
    assert (bench.ring.sent, bench.link.sent, bench.ring.abandoned) == ([1, 2], [3], 0)
    assert not bench.transmitter.pending


def test_one_that_has_waited_too_long_is_dropped_and_the_others_go_on(bench):
    bench.ring.answers = [AGAIN, AGAIN, -errno.ENOBUFS]
    bench.send((UD, 1, bench.near), (UD, 2, bench.near), (UD, 3, bench.far), now=5)
    assert bench.send(now=6 + LIFETIME_NS)
    assert (bench.ring.sent, bench.link.sent) == ([], [3])
    assert (bench.transmitter.dropped, bench.transmitter.pending) == (2, False)
    assert bench.ring.abandoned == 2, "so that the next ones do not wait there as long"


def test_how_often_it_was_tried_does_not_lengthen_its_life(bench):
    bench.ring.answers = [AGAIN] * 4
    bench.send((UD, 1, bench.near), now=0)
    for eighths in (3, 6, 9):
        assert bench.transmitter.pending
        assert not bench.send(now=eighths * LIFETIME_NS // 8) or eighths == 9
    assert (bench.transmitter.dropped, bench.transmitter.pending) == (1, False)


def test_a_burst_that_the_ports_link_has_begun_is_finished_there(bench):
    """The link may have sent a part of it already."""
    bench.rings = {}
    bench.link.answers = [AGAIN]
    bench.send((RC, 1, bench.near))
    bench.rings = {THERE: bench.ring}
    bench.transmitter.links_changed()
    assert bench.send((RC, 2, bench.near))
    assert (bench.link.sent, bench.ring.sent) == ([1], [2])


def test_a_burst_that_went_over_to_the_ports_link_stays_there(bench):
    bench.ring.answers, bench.link.answers = [AGAIN], [AGAIN]
    assert not bench.send((RC, 1, bench.near), (RC, 2, bench.near))
    assert bench.send()
    assert (bench.link.sent, bench.ring.sent) == ([1], [2])


def test_a_pending_burst_whose_ring_closes_goes_by_the_ports_link(bench):
    bench.ring.answers = [AGAIN, -errno.EPIPE]
    bench.send((UC, 1, bench.near))
    assert bench.send()
    assert (bench.link.sent, bench.transmitter.pending) == ([1], False)


def test_a_ring_is_told_that_it_gets_no_icrcs_and_the_ports_link_gets_them(bench):
    """The first burst along a route is written before anybody has looked for its link."""
    for _ in range(2):
        bench.send((RC, 20, bench.near), (RC, 20, bench.far))
    assert bench.ring.sound == [True, False]
    assert bench.link.sound == [True, True]
    assert not bench.near.needs_icrc
    assert bench.far.needs_icrc


@pytest.mark.parametrize("answer", [AGAIN, -errno.EPIPE])
def test_what_was_written_without_icrcs_for_a_ring_has_them_by_the_ports_link(bench, answer):
    bench.send((RC, 20, bench.near))
    bench.ring.answers = [answer]
    bench.send((RC, 24, bench.near))
    assert (bench.link.sent, bench.link.sound) == ([24], [True])


def test_when_a_ring_has_gone_what_was_written_for_it_gets_its_icrcs(bench):
    bench.send((RC, 20, bench.near))
    bench.rings = {}
    bench.transmitter.links_changed()
    bench.send((RC, 20, bench.near), (RC, 20, bench.near))
    assert bench.link.sound == [True, True]
    assert bench.near.needs_icrc
