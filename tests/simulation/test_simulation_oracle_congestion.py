"""The oracle of congestion control alone: each rule sees what breaks it and nothing else, and its rates are
DCQCN's.
"""

from types import SimpleNamespace

import pytest

from softhca.simulation.oracle_congestion import RULES, CongestionOracle, _Reaction

NUMBERS = SimpleNamespace(
    line_mbps=10_000, gain=1 / 256, alpha_ns=55_000, increase_ns=300_000, increase_bytes=100_000,
    fast_stages=2, additive_mbps=40.0, hyper_mbps=400.0, least_mbps=10.0, cut_ns=4_000, notify_ns=50_000,
)  # fmt: skip
LEFT, RIGHT = (1, 10), (2, 20)
ECT, CE = 2, 3


def packet(queue_pair, opcode=0x04, length=1454):
    return bytes((opcode, 0, 0xFF, 0xFF, 0)) + queue_pair.to_bytes(3, "big") + bytes(length - 8)


def notification(queue_pair):
    return bytes((0x81, 0, 0xFF, 0xFF, 0x40)) + queue_pair.to_bytes(3, "big") + bytes(20) + b"icrc"


class Watched:
    """An oracle of two flows, LEFT's and RIGHT's, and the rules that it has found broken."""

    def __init__(self):
        self.broken = []
        report = SimpleNamespace(fail=lambda rule, text: self.broken.append(rule))
        self.oracle = CongestionOracle(report, NUMBERS)
        self.oracle.connect(LEFT, RIGHT)
        self.oracle.connect(RIGHT, LEFT)

    def marked(self, now, alive=True, traffic_class=CE):
        self.oracle.arrives(now, RIGHT[0], packet(RIGHT[1]), traffic_class, alive)

    def tells(self, now, data=None, traffic_class=0xC0):
        assert self.oracle.sent(now, LEFT[0], data or notification(LEFT[1]), traffic_class, 0)

    def slow(self, now):
        """LEFT hears of a mark."""
        self.oracle.arrives(now, LEFT[0], notification(LEFT[1]), 0xC0, True)

    def sends(self, now, burst, traffic_class=ECT, opcode=0x04):
        assert not self.oracle.sent(now, RIGHT[0], packet(RIGHT[1], opcode), traffic_class, burst)


def test_a_mark_is_told_of_at_once_by_who_met_it():
    one = Watched()
    one.marked(100)
    one.tells(100)
    one.oracle.settled(100, RIGHT[0])
    assert (one.broken, one.oracle.told, one.oracle.marked) == ([], 1, 1)
    silent = Watched()
    silent.marked(100)
    silent.oracle.settled(100, LEFT[0])
    assert silent.broken == []
    silent.oracle.settled(100, RIGHT[0])
    silent.oracle.settled(200, RIGHT[0])
    assert silent.broken == [RULES[0]]


@pytest.mark.parametrize(("alive", "traffic_class"), [(False, CE), (True, ECT), (True, 1), (True, 0)])
def test_what_is_not_marked_or_not_taken_is_not_told_of(alive, traffic_class):
    one = Watched()
    one.marked(100, alive, traffic_class)
    one.oracle.settled(100, RIGHT[0])
    assert (one.broken, one.oracle.marked) == ([], 0)
    one.tells(100)
    assert one.broken == [RULES[0]]


def test_a_mark_is_told_of_when_it_comes_and_not_later():
    one = Watched()
    one.marked(100)
    one.tells(101)
    assert one.broken == [RULES[0]]


@pytest.mark.parametrize(("later", "owed"), [(49_999, []), (50_000, [RULES[0]])])
def test_marks_within_the_interval_need_not_be_told_of(later, owed):
    one = Watched()
    one.marked(100)
    one.tells(100)
    one.marked(100 + later)
    one.oracle.settled(100 + later, RIGHT[0])
    assert one.broken == owed


@pytest.mark.parametrize(("later", "broken"), [(49_999, [RULES[1]]), (50_000, [])])
def test_one_notification_goes_in_an_interval(later, broken):
    one = Watched()
    for now in (100, 100 + later):
        one.marked(now)
        one.tells(now)
    assert one.broken == broken


@pytest.mark.parametrize("place", [1, 2, 3, 4, 8, 27])
def test_each_byte_of_a_notification_is_looked_at(place):
    one = Watched()
    one.marked(100)
    data = bytearray(notification(LEFT[1]))
    data[place] ^= 1
    one.tells(100, bytes(data))
    assert one.broken == [RULES[2]]


@pytest.mark.parametrize("traffic_class", [0, ECT, 0xC2])
def test_a_notification_is_of_a_class_of_its_own(traffic_class):
    one = Watched()
    one.marked(100)
    one.tells(100, traffic_class=traffic_class)
    assert one.broken == [RULES[2]]


def test_packets_are_capable_of_marks():
    for traffic_class in range(4):
        one = Watched()
        one.sends(0, 1, traffic_class)
        assert one.broken == ([] if traffic_class == ECT else [RULES[3]])


def test_other_flows_are_not_looked_at():
    one = Watched()
    assert one.oracle.sent(0, 3, notification(10), 0, 0)
    assert not one.oracle.sent(0, 3, packet(10), 0, 0)
    one.oracle.arrives(0, 3, packet(10), CE, True)
    one.oracle.settled(0, 3)
    assert (one.broken, one.oracle.told, one.oracle.marked) == ([], 0, 0)


@pytest.mark.parametrize(("now", "broken"), [(2_397, [RULES[4]]), (2_398, [])])
def test_a_burst_waits_until_the_one_before_it_has_left_at_the_flows_rate(now, broken):
    one = Watched()
    one.slow(0)
    one.sends(1_000, 1)  # 1,500 bytes on the wire at 5 Gb/s
    one.sends(now, 2)
    assert (one.broken, one.oracle.slowed) == (broken, 2)


def test_packets_of_one_burst_leave_together_and_count_together():
    one = Watched()
    one.slow(0)
    one.sends(1_000, 1)
    one.sends(1_000, 1)
    assert one.broken == []
    one.sends(4_797, 2)
    assert one.broken == [RULES[4]]


def test_a_flow_that_nobody_slows_down_sends_at_once():
    one = Watched()
    for burst in range(5):
        one.sends(0, burst)
    assert (one.broken, one.oracle.slowed) == ([], 0)


@pytest.mark.parametrize("opcode", [0x11, 0x12])
def test_an_acknowledgement_does_not_wait_and_costs_nothing_then(opcode):
    one = Watched()
    one.slow(0)
    one.sends(1_000, 1)
    one.sends(1_500, 2, opcode=opcode)
    assert (one.broken, one.oracle.slowed) == ([], 1)
    one.sends(3_000, 3, opcode=opcode)  # nothing waits: it is a burst as any other
    assert one.oracle.slowed == 2
    one.sends(3_001, 4)
    assert one.broken == [RULES[4]]


def flow():
    return _Reaction(NUMBERS, 10_000.0, 10_000.0)


def test_a_notification_begins_to_count_bytes_and_steps_anew():
    one = flow()
    one.times, one.fills, one.filled = 3, 2, 999
    one.tell(1_000)
    assert (one.times, one.fills, one.filled) == (0, 0, 0)


def test_a_notification_halves_the_rate_and_the_next_one_within_the_cut_does_nothing():
    one = flow()
    one.tell(0)
    assert (one.rate, one.target, one.alpha, one.limited) == (5_000, 10_000, 1, True)
    one.tell(3_999)
    assert one.rate == 5_000
    one.tell(4_000)
    assert (one.rate, one.target) == (2_500, 5_000)
    for number in range(2, 40):
        one.tell(4_000 * number)
    assert one.rate == 10


def test_a_notification_that_comes_later_finds_the_rate_as_time_has_left_it():
    one = flow()
    one.tell(5_000)
    assert one.free_ns == 5_000
    one.tell(8_999)
    assert one.rate == 5_000
    one.tell(305_000)
    assert (one.target, one.alpha) == (7_500, pytest.approx(1 - (1 - (255 / 256) ** 5) * 255 / 256))
    assert one.rate == 7_500 - 7_500 * (255 / 256) ** 5 / 2
    assert one.free_ns == 5_000


def test_no_steps_lead_beyond_the_line():
    one = flow()
    one.tell(0)
    one.to(4 * 300_000)
    assert (one.target, one.rate) == (10_000, 10_000 - 5_000 / 16)


def test_who_asks_whether_a_flow_waits_asks_as_time_has_left_it():
    one = flow()
    one.tell(0)
    one.send(0, 1, 60_000)
    assert not one.waits(10**9, 2)
    assert not one.limited
    one.free_ns = 2 * 10**9
    assert not one.waits(10**9, 3)


@pytest.mark.parametrize("traffic_class", [0x20 | ECT, 0xFC | ECT])
def test_a_class_beside_the_bits_of_marks_is_any(traffic_class):
    one = Watched()
    one.sends(0, 1, traffic_class)
    one.marked(100, traffic_class=traffic_class | 1)
    one.oracle.settled(100, RIGHT[0])
    assert (one.broken, one.oracle.marked) == ([RULES[0]], 1)


def test_alpha_falls_in_its_time_and_is_raised_by_a_notification():
    one = flow()
    one.tell(0)
    one.to(54_999)
    assert one.alpha == 1
    one.to(55_000)
    assert one.alpha == 255 / 256
    one.tell(55_000)
    assert one.rate == 5_000 - 5_000 * (255 / 256) / 2
    assert one.alpha == pytest.approx(255 / 256 + 1 / 65_536)


def test_time_raises_the_rate_fast_then_by_steps_until_there_is_no_limit():
    one = flow()
    one.tell(0)
    one.tell(5_000)
    rates = []
    for number in range(1, 5):
        one.to(5_000 + 300_000 * number - 1)
        rates.append(one.rate)
    assert rates == [2_500, 3_750, 4_375, 4_375 + (5_040 - 4_375) / 2]
    one.to(10**9)
    assert (one.rate, one.limited) == (10_000, False)


def test_bytes_raise_the_rate_as_well_and_both_together_raise_it_most():
    one = flow()
    one.tell(0)
    one.tell(5_000)
    for burst in range(3):
        one.send(5_000, burst, 99_999)
        one.leave()
        one.send(5_000, 10 + burst, 1)
        one.leave()
    assert (one.fills, one.filled) == (3, 0)
    assert (one.target, one.rate) == (5_040, 4_375 + (5_040 - 4_375) / 2)
    before = one.rate
    one.to(5_000 + 3 * 300_000)
    # two steps of 40 with the fills, the third with both: 400
    assert one.target == 5_040 + 40 + 40 + 400
    assert one.rate > before
    one.tell(5_000 + 3 * 300_000)
    assert (one.times, one.fills, one.filled) == (0, 0, 0)


def test_what_was_not_sent_is_saved_for_a_while():
    one = flow()
    one.tell(0)
    one.send(1_000_000, 1, 1_500)
    one.leave()
    assert one.free_ns == 1_000_000 - 65_536 + 1_500 * 8_000 // int(one.rate)
    assert not one.waits(int(one.free_ns) - 2, 2)
    assert one.waits(int(one.free_ns) - 3, 2)


def test_the_burst_that_is_leaving_does_not_wait():
    one = flow()
    one.tell(0)
    one.send(0, 1, 60_000)
    assert not one.waits(0, 1)
    assert one.waits(0, 2)
