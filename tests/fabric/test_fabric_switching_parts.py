"""Credits, arbitration, orders of sending and congestion control, each by itself."""

import weakref
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from softhca.fabric.switching.arbitration import Arbiter
from softhca.fabric.switching.congestion import RateControl, TableControl, linear_table
from softhca.fabric.switching.credits import CreditReceiver, CreditSender
from softhca.fabric.switching.events import PS_PER_US, EventQueue
from softhca.fabric.switching.packet import MANAGEMENT_VL, Packet, PacketLine, blocks_of
from softhca.fabric.switching.transmit_queues import NEVER_PS, ArrivalOrder, SegmentOrder
from softhca.transport.congestion import DcqcnSettings


class Recorder:
    def __init__(self):
        self.seen = []

    def fire(self, what, argument, now_ps):
        self.seen.append((now_ps, what, argument))


def test_events_come_in_the_order_of_time_and_of_planning():
    events, recorder = EventQueue(), Recorder()
    events.plan(20, recorder, 1, "b")
    events.plan(10, recorder, 2)
    events.plan(20, recorder, 3, "a")
    assert events.next_ps() == 10
    events.run(15)
    assert recorder.seen == [(10, 2, None)]
    assert events.now_ps == 15
    events.plan(3, recorder, 4)  # past: now
    assert not events.run_all(2)
    assert recorder.seen[1:] == [(15, 4, None), (20, 1, "b")]
    assert events.run_all(5)
    assert (events.now_ps, events.executed, events.next_ps()) == (20, 4, None)


class Planner:
    """Each event plans those that are given for it, so long after it."""

    def __init__(self, events, following):
        self.events = events
        self.following = following
        self.seen = []
        self.count = 0

    def plan(self, time_ps):
        self.count += 1
        self.events.plan(time_ps, self, self.count % 7, self.count)

    def fire(self, what, argument, now_ps):
        assert what == argument % 7
        assert now_ps == self.events.now_ps
        self.seen.append((now_ps, argument))
        for pause_ps in self.following.pop(argument, ()):
            self.plan(now_ps + pause_ps)


def expected_order(times, following):
    """The same by a list that is sorted anew for each event."""
    following = dict(following)
    planned = [(time_ps, number) for number, time_ps in enumerate(times, 1)]
    seen, count = [], len(planned)
    while planned:
        planned.sort()
        now_ps, number = planned.pop(0)
        seen.append((now_ps, number))
        for pause_ps in following.pop(number, ()):
            count += 1
            planned.append((now_ps + pause_ps, count))
    return seen


@given(
    st.lists(st.integers(0, 6), min_size=1, max_size=12),
    st.dictionaries(st.integers(1, 30), st.lists(st.integers(0, 3), max_size=3), max_size=20),
    st.lists(
        st.one_of(
            st.tuples(st.just("all"), st.integers(1, 5)), st.tuples(st.just("until"), st.integers(0, 3))
        )
    ),
)
def test_events_plan_others_also_for_now_and_a_run_ends_between_two_of_one_time(times, following, steps):
    events = EventQueue()
    planner = Planner(events, dict(following))
    for time_ps in times:
        planner.plan(time_ps)
    expected = expected_order(times, following)
    for how, number in steps:
        before = len(planner.seen)
        if how == "all":
            finished = events.run_all(number)
            assert len(planner.seen) == min(before + number, len(expected))
            assert finished is (len(planner.seen) == len(expected))
        else:
            until_ps = events.now_ps + number
            events.run(until_ps)
            assert events.now_ps == until_ps
            assert len(planner.seen) == sum(time_ps <= until_ps for time_ps, _ in expected)
        left = expected[len(planner.seen) :]
        assert events.next_ps() == (left[0][0] if left else None)
    assert events.run_all(1000)
    assert planner.seen == expected
    assert events.executed == len(expected)


# lines of packets


@given(st.lists(st.one_of(st.just("take"), st.just("take all"), st.integers(1, 60)), max_size=60))
def test_a_line_of_packets_is_first_come_first_served(steps):
    line, expected = PacketLine(), []
    count = 0
    for step in steps:
        if step == "take" and expected:
            assert line.take().message == expected.pop(0)
        elif step == "take all":
            assert [packet.message for packet in line.take_all()] == expected
            expected = []
        elif step != "take":
            for _ in range(step):
                count += 1
                line.append(Packet(1, 2, 64, message=count))
                expected.append(count)
            for _ in range(step * 2 // 3):
                assert line.take().message == expected.pop(0)
        first = line.first()
        assert (first.message if first is not None else None) == (expected[0] if expected else None)
        assert len(line) == len(expected)


def test_nobody_leaves_an_empty_line():
    line = PacketLine()
    with pytest.raises(IndexError):
        line.take()
    line.append(Packet(1, 2, 64))
    line.take()
    with pytest.raises(IndexError):
        line.take()


def test_packets_that_have_left_a_line_are_not_kept():
    line = PacketLine()
    contents = [Content() for _ in range(100)]
    kept = weakref.WeakSet(contents)
    for content in contents:
        line.append(Packet(1, 2, 64, content=content))
    del content
    contents.clear()
    for left in range(99, -1, -1):
        line.take()
        assert len(kept) == left


class Content:
    """What a weak reference can tell of."""


# credits


@given(
    st.lists(st.tuples(st.integers(1, 33), st.integers(0, 3), st.booleans()), max_size=300),
    st.integers(33, 2048),
)
def test_credits_never_overrun_a_buffer_and_are_never_lost(packets, capacity):
    """Over wraps of the 12-bit counts, and with packets that are lost on the way."""
    sender, receiver = CreditSender(), CreditReceiver(capacity, 1)
    sender.hear(0, receiver.limit(0))
    held = []
    for blocks, leaving, lost in packets:
        if sender.allows(0, blocks):
            sender.send(0, blocks)
            if not lost:
                assert receiver.take(0, blocks)
                held.append(blocks)
        for _ in range(min(leaving, len(held))):
            receiver.free(0, held.pop(0))
        receiver.hear(0, sender.sent[0])
        sender.hear(0, receiver.limit(0))
        room = capacity - sum(held)
        assert sender.allows(0, room) if room else not sender.allows(0, 1)
        assert not sender.allows(0, room + 1)


def test_a_receiver_knows_what_it_has_not_told():
    receiver = CreditReceiver(100, 2)
    assert receiver.unadvertised(0) == 100
    assert receiver.advertise(0) == 100
    assert receiver.unadvertised(0) == 0
    assert receiver.take(0, 60)
    assert not receiver.take(0, 41)  # a sender that does not heed its limit
    assert receiver.unadvertised(0) == 0
    receiver.free(0, 60)
    assert receiver.unadvertised(0) == 60
    assert receiver.hear(0, 63) == 3
    assert not receiver.take(2, 1)  # a lane that has no buffer


@pytest.mark.parametrize(("length", "blocks"), [(1, 1), (64, 1), (65, 2), (128, 2), (129, 3), (4224, 66)])
def test_a_credit_is_a_block_of_64_bytes_begun(length, blocks):
    assert blocks_of(length) == blocks


# arbitration


def shares(arbiter, lanes, rounds, length=64):
    """How often each of the lanes is chosen when all of them always have packets."""
    counted = Counter()
    mask = sum(1 << vl for vl in lanes)
    for _ in range(rounds):
        vl = arbiter.choose(mask)
        arbiter.sent(vl, length)
        counted[vl] += 1
    return counted


def test_lanes_of_a_table_share_by_weight():
    arbiter = Arbiter(low=((0, 10), (1, 30), (2, 0), (0, 5)))
    assert shares(arbiter, (0, 1, 2), 450) == {0: 150, 1: 300}
    assert shares(arbiter, (0,), 7) == {0: 7}
    assert arbiter.choose(1 << 2) == -1  # of weight 0: never
    assert arbiter.choose(0) == -1


def test_a_packet_of_any_length_goes_while_there_is_weight_left():
    arbiter = Arbiter(low=((0, 2), (1, 2)))
    order = []
    for _ in range(6):
        vl = arbiter.choose(3)
        arbiter.sent(vl, 4096 if vl else 64)
        order.append(vl)
    assert order == [0, 0, 1, 0, 0, 1]


@pytest.mark.parametrize(
    ("limit", "length", "highs"), [(0, 1024, 1), (1, 1024, 4), (1, 1025, 4), (2, 4096, 2), (3, 1024, 12)]
)
def test_the_low_table_gets_a_packet_when_the_limit_is_used_up(limit, length, highs):
    arbiter = Arbiter(high=((1, 255),), low=((0, 1),), high_limit=limit)
    order = []
    for _ in range(2 * highs + 2):
        order.append(arbiter.choose(3))
        arbiter.sent(order[-1], length)
    assert order == ([1] * highs + [0]) * 2
    assert shares(arbiter, (1,), 50, length) == {1: 50}  # where the low table has nothing, it loses its turn


def test_without_a_limit_the_high_table_always_goes_first_and_vl_15_before_it():
    arbiter = Arbiter(high=((1, 1), (2, 1)), low=((0, 255),), high_limit=255)
    assert shares(arbiter, (0, 1, 2), 100) == {1: 50, 2: 50}
    assert arbiter.choose(0b111 | 1 << MANAGEMENT_VL) == MANAGEMENT_VL
    arbiter.sent(MANAGEMENT_VL, 290)
    assert shares(arbiter, (0,), 3) == {0: 3}


def test_no_limit_is_none_however_much_is_sent():
    arbiter = Arbiter(high=[(0, 1)], low=[(1, 1)], high_limit=255)
    for _ in range(255 + 10):
        assert arbiter.choose(0b11) == 0
        arbiter.sent(0, 4096)


def test_where_the_low_table_has_nothing_the_high_one_begins_its_limit_anew():
    arbiter = Arbiter(high=((1, 255),), low=((0, 1),), high_limit=1)
    for _ in range(4):  # 4 KiB: the limit
        assert arbiter.choose(1 << 1) == 1
        arbiter.sent(1, 1024)
    assert arbiter.choose(1 << 1) == 1  # nothing else is there
    arbiter.sent(1, 1024)
    order = []
    for _ in range(4):
        order.append(arbiter.choose(3))
        arbiter.sent(order[-1], 1024)
    assert order == [1, 1, 1, 0]


def test_management_packets_use_up_no_weight():
    arbiter = Arbiter(low=((0, 2), (1, 2)))
    assert arbiter.choose(3) == 0
    arbiter.sent(0, 64)
    assert arbiter.choose(3 | 1 << MANAGEMENT_VL) == MANAGEMENT_VL
    arbiter.sent(MANAGEMENT_VL, 4096)
    assert arbiter.choose(3) == 0


@pytest.mark.parametrize(
    "tables",
    [{"low": ((15, 1),)}, {"low": ((-1, 1),)}, {"high": ((0, 256),)}, {"high": ((0, -1),)},
     {"low": ((0, 1),) * 65}, {"high_limit": 256}, {"high_limit": -1}],
)  # fmt: skip
def test_tables_that_cannot_be_are_refused(tables):
    with pytest.raises(ValueError, match=r"VL arbitration|high priority"):
        Arbiter(**tables)


# orders of sending


def packet(source, number, begins=True, ends=True, ready_ps=0):
    made = Packet(source, 99, 64, message=number, begins=begins, ends=ends)
    made.ready_ps = ready_ps
    return made


def sent(queue, now_ps=0):
    """All that can be sent at once: (source, number)."""
    found = []
    while (first := queue.head(now_ps)) is not None:
        queue.pop(now_ps, 1)
        found.append((first.slid, first.message))
    return found


def test_packets_leave_in_the_order_of_arrival_each_when_it_is_ready():
    queue = ArrivalOrder()
    assert (queue.head(0), queue.wake_ps) == (None, NEVER_PS)
    for number, ready_ps in enumerate([5, 0, 9]):
        queue.push(packet(number, 0, ready_ps=ready_ps), 2)
    assert queue.blocks == 6
    assert (queue.head(4), queue.wake_ps) == (None, 5)
    assert sent(queue, 5) == [(0, 0), (1, 0)]
    assert queue.wake_ps == 9
    assert [each.slid for each in queue.drain()] == [2]
    assert (queue.blocks, queue.head(100), queue.wake_ps) == (0, None, NEVER_PS)
    assert queue.drain() == []


def test_segments_of_concurrent_messages_alternate_and_do_not_break_up():
    queue = SegmentOrder(1000)
    for number in range(4):  # two sources, two segments of two packets each, packet by packet
        for source in (1, 2):
            queue.push(packet(source, number, begins=number % 2 == 0, ends=number % 2 == 1), 1)
    assert queue.blocks == 8
    assert sent(queue) == [(1, 0), (1, 1), (2, 0), (2, 1), (1, 2), (1, 3), (2, 2), (2, 3)]
    assert queue.blocks == queue.timeouts == 0


def test_a_segment_that_stalls_is_left_after_the_time_out():
    queue = SegmentOrder(1000)
    queue.push(packet(1, 0, ends=False), 1)
    assert sent(queue, 50) == [(1, 0)]
    assert queue.wake_ps == NEVER_PS  # nothing else waits
    queue.push(packet(2, 0), 1)
    assert (queue.head(1049), queue.wake_ps) == (None, 1050)
    assert queue.timeouts == 0
    assert sent(queue, 1050) == [(2, 0)]
    assert queue.timeouts == 1
    queue.push(packet(1, 1, begins=False), 1)  # the rest comes late, and is sent like a segment
    queue.push(packet(2, 1), 1)
    assert sent(queue, 1051) == [(1, 1), (2, 1)]


def test_the_open_segment_goes_before_others_as_soon_as_its_packet_is_there():
    queue = SegmentOrder(1000)
    queue.push(packet(1, 0, ends=False), 1)
    assert sent(queue, 0) == [(1, 0)]
    queue.push(packet(2, 0), 1)
    queue.push(packet(1, 1, begins=False, ready_ps=20), 1)
    assert (queue.head(10), queue.wake_ps) == (None, 20)
    assert sent(queue, 20) == [(1, 1), (2, 0)]
    assert queue.wake_ps == NEVER_PS
    queue.push(packet(3, 0, ends=False), 1)
    assert sent(queue, 21) == [(3, 0)]
    assert queue.drain() == []
    queue.push(packet(4, 0), 1)
    assert sent(queue, 22) == [(4, 0)]  # what was open is forgotten with the link
    queue.push(packet(5, 0), 1)
    assert [each.slid for each in queue.drain()] == [5]
    assert (queue.drain(), queue.blocks) == ([], 0)


# congestion control


def test_a_table_slows_a_flow_down_and_time_speeds_it_up():
    control = TableControl(linear_table(10), increase=4, timer_ps=100)
    assert control.pause_ps(64, 7, 0) == 0
    control.notified(1000)
    assert control.pause_ps(64, 7, 1000) == 4 * 7
    control.notified(1050)
    control.notified(1051)
    assert control.index == 9  # the end of the table
    assert control.pause_ps(64, 7, 1099) == 9 * 7
    assert control.pause_ps(64, 7, 1350) == 6 * 7
    assert control.pause_ps(64, 7, 9999) == 0


def test_time_before_a_notification_takes_nothing_off_it():
    control = TableControl(linear_table(10), increase=4, timer_ps=100)
    control.notified(1050)
    assert [control.pause_ps(64, 1, now) for now in (1149, 1150, 1249, 1250)] == [4, 3, 3, 2]
    control.notified(1260)  # while it recovers the steps stay where they are
    assert [control.pause_ps(64, 1, now) for now in (1349, 1350)] == [6, 5]
    for wrong in ({"table": ()}, {"increase": 0}, {"timer_ps": 0}):
        with pytest.raises(ValueError, match="are needed"):
            TableControl(**wrong)


def test_a_rate_is_cut_by_half_at_first_and_comes_back():
    control = RateControl(100_000)
    assert control.pause_ps(4096, 327_680, 0) == 0
    now = PS_PER_US
    control.notified(now)
    assert control.rate_mbps == 50_000
    assert control.pause_ps(4096, 327_680, now) == 327_680
    control.notified(now + 49 * PS_PER_US)  # too soon
    assert control.rate_mbps == 50_000
    now += 50 * PS_PER_US
    control.notified(now)
    assert 25_000 <= control.rate_mbps < 25_200
    rates = []
    for _ in range(400):
        now += 55 * PS_PER_US
        control.pause_ps(64, 1, now)
        rates.append(control.rate_mbps)
    assert rates == sorted(rates)  # fast recovery, then additive steps
    assert rates[4] == pytest.approx(50_000, rel=0.02)
    assert rates[-1] > 55_000
    now += 10**12 * 20
    assert control.pause_ps(64, 1, now) == 0
    assert control.rate_mbps == 100_000


def test_a_rate_has_a_floor_and_bytes_speed_it_up_too():
    settings = DcqcnSettings(least_mbps=1000, increase_bytes=4096)
    control = RateControl(10_000, settings)
    now = 0
    for _ in range(100):
        now += 51 * PS_PER_US
        control.notified(now)
    assert control.rate_mbps == 1000
    control = RateControl(10_000, settings)
    control.notified(now)
    control.pause_ps(4095, 1, now)
    assert control.rate_mbps == 5000
    control.pause_ps(1, 1, now)
    assert control.rate_mbps == 7500


def test_a_rate_recovers_first_then_rises_by_steps_and_then_by_ever_larger_ones():
    """DCQCN's three phases, by bytes and by time."""
    settings = DcqcnSettings(
        increase_bytes=1000, fast_stages=2, additive_mbps=100, hyper_mbps=1000, increase_ns=10**9,
        alpha_ns=10**10,
    )  # fmt: skip
    control, now = RateControl(1_000_000, settings), 10 * PS_PER_US
    for _ in range(3):
        control.notified(now)
        now += 60 * PS_PER_US
    target, rate = control.target_mbps, control.rate_mbps

    def step(more):
        nonlocal target, rate
        target += more
        rate = (rate + target) / 2
        assert (control.target_mbps, control.rate_mbps) == (pytest.approx(target), pytest.approx(rate))

    for stage in range(1, 6):
        control.pause_ps(1000, 1, now)
        step(0 if stage <= 2 else 100)
    for stage in range(1, 5):
        now += 10**12
        control.pause_ps(1, 1, now)
        step(100 if stage <= 2 else 1000 * (stage - 2))
