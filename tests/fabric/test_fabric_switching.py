"""Packets through switches: when they arrive, in which order, what is lost, and that no credit is."""

from collections import Counter, defaultdict
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from softhca.fabric.switching.congestion import RateControl, TableControl
from softhca.fabric.switching.end_node import DELIVER
from softhca.fabric.switching.events import PS_PER_US
from softhca.fabric.switching.fabric import SwitchedFabric
from softhca.fabric.switching.packet import MANAGEMENT_VL, FlowControl, Packet
from softhca.fabric.switching.port import (
    BLOCKED,
    CREDITS,
    MANAGEMENT_BLOCKS,
    STALL_FACTOR,
    TRANSMIT,
    PortSettings,
)
from softhca.fabric.topology import End, Link, LinkSpeed, LinkWidth, NodeKind, Topology, make_node
from softhca.transport.congestion import DcqcnSettings
from suite_plan import random_inputs

PLAIN = PortSettings()
SDR = 8000 * 1000 // 8000  # picoseconds a byte of a 4x SDR link: 8 Gb/s of data
EVENTS = 2_000_000


def star(hosts, speed=LinkSpeed.SDR, slow=None):
    """Hosts 1 … N with LID 1 … N around switch 0; the link of host ``slow`` is a quarter as wide."""
    numbers = range(1, hosts + 1)
    nodes = [make_node("switch", NodeKind.SWITCH, hosts, 0x100)]
    nodes += [make_node(f"host{n}", NodeKind.CHANNEL_ADAPTER, 1, 0x1000 + 16 * n) for n in numbers]
    links = [
        Link(End(0, n), End(n, 1), LinkWidth.X1 if n == slow else LinkWidth.X4, speed) for n in numbers
    ]
    return Topology(tuple(nodes), tuple(links)), {0: [255, *numbers]}


def line(hosts):
    """A switch for each host, in a line; host N has LID N, is node N − 1 + hosts, at port 3 of its switch."""
    numbers = range(hosts)
    nodes = [make_node(f"switch{n}", NodeKind.SWITCH, 3, 0x100 + n) for n in numbers]
    nodes += [make_node(f"host{n}", NodeKind.CHANNEL_ADAPTER, 1, 0x1000 + 16 * n) for n in numbers]
    links = [Link(End(n, 3), End(hosts + n, 1), speed=LinkSpeed.SDR) for n in numbers]
    links += [Link(End(n, 2), End(n + 1, 1), speed=LinkSpeed.SDR) for n in numbers[:-1]]
    tables = {n: [255, *(3 if to == n else 2 if to > n else 1 for to in numbers)] for n in numbers}
    return Topology(tuple(nodes), tuple(links)), tables


class Run:
    """A fabric, and what arrived: (node, packet, time)."""

    def __init__(self, shape, port_settings=PLAIN, **options):
        self.arrived = []
        self.lost = Counter()
        self.fabric = SwitchedFabric(
            *shape, lambda node, packet, now: self.arrived.append((node, packet, now)),
            settings=port_settings, lost=lambda packet, reason: self.lost.update([reason]), **options,
        )  # fmt: skip
        self.sent = 0

    def send(self, source, target, length=2048, slid=None, **fields):
        self.sent += 1
        self.fabric.send(source, Packet(slid or source, target, length, message=self.sent, **fields))

    def finish(self):
        assert self.fabric.events.run_all(EVENTS)
        return self.arrived

    def counted(self, name):
        return sum(getattr(port.counters, name) for port in self.fabric.ports())

    def assert_whole(self):
        """Everything is empty, and every sender may use all of its receiver's buffer."""
        assert self.fabric.stuck() == []
        for port in self.fabric.ports():
            assert port.receiver.used == [0] * 15
            if port.up:
                capacity = port.receiver.capacity_blocks[0]
                assert port.peer.credits.allows(0, capacity)
                assert not port.peer.credits.allows(0, capacity + 1)


def in_order(arrived):
    """Whether the packets of each source and destination arrived as they were sent."""
    streams = defaultdict(list)
    for node, packet, _ in arrived:
        streams[packet.slid, node].append(packet.message)
    return all(stream == sorted(stream) for stream in streams.values())


def test_a_packet_takes_its_own_length_once_and_each_switch_its_latency():
    run = Run(star(2))
    run.send(1, 2, 2048)
    ((node, packet, now),) = run.finish()
    assert (node, packet.hops) == (2, 2)
    header = 8 * SDR
    assert now == (5_000 + header) + 100_000 + 2048 * SDR + 5_000
    run.assert_whole()


def test_behind_a_slow_link_a_fast_one_waits_until_it_has_enough_of_the_packet():
    run = Run(star(2, slow=1))
    run.send(1, 2, 2048)
    ((_, _, now),) = run.finish()
    assert now == 2048 * 4 * SDR + 5_000 + 5_000  # the tail goes through at once
    run = Run(star(2, slow=2))
    run.send(1, 2, 2048)
    ((_, _, now),) = run.finish()
    assert now == (5_000 + 8 * SDR) + 100_000 + 2048 * 4 * SDR + 5_000


def test_a_link_is_full_when_buffers_cover_the_round_trip():
    run = Run(star(2))
    for _ in range(200):
        run.send(1, 2, 2048)
    arrived = run.finish()
    gaps = {later[2] - earlier[2] for earlier, later in pairwise(arrived)}
    assert gaps == {2048 * SDR}
    assert in_order(arrived)
    run.assert_whole()


def test_too_little_buffer_costs_bandwidth_and_nothing_else():
    run = Run(star(2), replace(PLAIN, buffer_blocks=32, propagation_ps=2 * PS_PER_US))
    for _ in range(50):
        run.send(1, 2, 2048)
    arrived = run.finish()
    assert len(arrived) == 50
    gap = arrived[40][2] - arrived[39][2]
    assert gap > 4 * PS_PER_US + 2048 * SDR  # a packet, and its credits back, over both links' length
    assert run.fabric.ends[1].port.counters.waited_ps > 40 * 4 * PS_PER_US
    run.assert_whole()


def test_incast_loses_nothing_and_is_fair():
    run = Run(star(9))
    for _ in range(100):
        for source in range(1, 9):
            run.send(source, 9)
    arrived = run.finish()
    assert len(arrived) == 800
    assert in_order(arrived)
    first_half = Counter(packet.slid for _, packet, _ in arrived[:400])
    assert max(first_half.values()) - min(first_half.values()) <= 4
    assert run.counted("discarded") == run.counted("overruns") == 0
    assert arrived[-1][2] - arrived[0][2] == 799 * 2048 * SDR  # the last link is never idle
    run.assert_whole()


def test_a_lane_that_is_blocked_keeps_no_other_waiting():
    settings = replace(PLAIN, lanes=2, buffer_blocks=64)
    run = Run(star(3, slow=2), settings)
    for _ in range(60):
        run.send(1, 2, sl=0)  # to the slow host: lane 0 of the first link is soon without credits
    for _ in range(60):
        run.send(1, 3, sl=1)
    arrived = run.finish()
    last = {sl: max(now for _, packet, now in arrived if packet.sl == sl) for sl in (0, 1)}
    assert last[1] < 130 * 2048 * SDR < 60 * 4 * 2048 * SDR < last[0]
    one = Run(star(3, slow=2), replace(settings, lanes=1))  # without lanes it waits behind the slow ones
    for _ in range(60):
        one.send(1, 2)
        one.send(1, 3)
    assert max(now for node, _, now in one.finish() if node == 3) > 50 * 4 * 2048 * SDR


def test_management_packets_need_no_credits_and_go_first():
    run = Run(star(3), replace(PLAIN, buffer_blocks=32))
    for _ in range(20):
        run.send(1, 3)
        run.send(2, 3)
    run.fabric.events.run(20 * PS_PER_US)
    before = len(run.arrived)
    run.send(1, 3, 290, vl=MANAGEMENT_VL)
    arrived = run.finish()
    assert [packet.vl for _, packet, _ in arrived[before : before + 3]].count(MANAGEMENT_VL) == 1
    assert len(arrived) == 41
    run.assert_whole()


def test_segments_stay_whole_only_where_the_switch_preserves_them():
    def runs_of(port_settings):
        run = Run(star(5), port_settings)
        for _ in range(10):
            for source in range(1, 5):
                for part in range(8):
                    run.send(source, 5, begins=part == 0, ends=part == 7)
        arrived = run.finish()
        assert len(arrived) == 320
        assert in_order(arrived)
        run.assert_whole()
        changes = sum(
            earlier[1].slid != later[1].slid for earlier, later in pairwise(arrived)
        )
        began, took = {}, []
        for _, packet, now in arrived:
            if packet.begins:
                began[packet.slid] = now
            if packet.ends:
                took.append(now - began[packet.slid])
        return changes, sum(took) / len(took)

    changes, took = runs_of(PLAIN)
    kept_changes, kept_took = runs_of(replace(PLAIN, segment_timeout_ps=100 * PS_PER_US))
    assert kept_changes == 39  # a change between two segments, none within one
    assert changes > 150
    assert kept_took == 7 * 2048 * SDR
    assert took > 3 * kept_took


def test_a_segment_whose_rest_does_not_come_holds_others_up_for_the_time_out_only():
    run = Run(star(3), replace(PLAIN, segment_timeout_ps=50 * PS_PER_US))
    run.send(1, 3, ends=False)
    run.fabric.events.run(10 * PS_PER_US)
    run.send(2, 3)
    arrived = run.finish()
    assert len(arrived) == 2
    assert 50 * PS_PER_US <= arrived[1][2] - arrived[0][2] < 54 * PS_PER_US


def test_what_waits_too_long_at_the_head_is_discarded_and_the_lane_stalls():
    settings = replace(PLAIN, buffer_blocks=32, head_of_queue_ps=PS_PER_US, stall_count=2)
    run = Run(star(3, slow=3), settings)
    for _ in range(100):
        run.send(1, 3)
        run.send(2, 3)
    arrived = run.finish()
    reasons = Counter()
    for port in run.fabric.ports():
        reasons.update(port.counters.reasons)
    assert set(reasons) == {"head of queue", "lane stalled"}
    assert len(arrived) + sum(reasons.values()) == 200
    assert in_order(arrived)
    assert run.lost == reasons
    run.assert_whole()


def test_a_link_that_fails_loses_what_is_on_it_and_begins_anew():
    run = Run(line(3))
    for _ in range(100):
        run.send(3, 3, slid=1)
        run.send(5, 1, slid=3)
    run.fabric.events.run(30 * PS_PER_US)
    middle = next(n for n, link in enumerate(run.fabric.topology.links) if link.end_a == End(0, 2))
    run.fabric.fail(middle)
    run.fabric.fail(middle)
    run.fabric.events.run(60 * PS_PER_US)
    at_failure = len(run.arrived)
    run.fabric.restore(middle)
    run.fabric.restore(middle)
    arrived = run.finish()
    assert at_failure < len(arrived) < 200
    assert in_order(arrived)
    assert set(run.lost) == {"link down"}
    on_the_cable = run.lost["link down"] - run.counted("discarded")
    assert 0 <= on_the_cable <= 4
    assert len(arrived) + run.lost["link down"] == 200
    run.assert_whole()


def test_what_was_on_a_link_does_not_arrive_when_it_is_back_at_once():
    run = Run(star(2), replace(PLAIN, propagation_ps=20 * PS_PER_US))
    for _ in range(5):
        run.send(1, 2)
    run.fabric.events.run(11 * PS_PER_US)
    run.fabric.fail(0)
    run.fabric.restore(0)
    assert run.finish() == []
    run.send(1, 2)
    assert len(run.finish()) == 1
    run.assert_whole()


def test_a_link_that_is_up_is_not_restored():
    run = Run(star(2), replace(PLAIN, buffer_blocks=64))
    for _ in range(20):
        run.send(1, 2)
    run.fabric.events.run(10 * PS_PER_US)
    for link in (0, 1):
        run.fabric.restore(link)
    assert len(run.finish()) == 20
    assert run.lost == {}
    run.assert_whole()


def test_what_is_under_way_is_told_by_port_and_lane():
    run = Run(star(3, slow=2), replace(PLAIN, lanes=2))
    for _ in range(20):
        run.send(1, 2, sl=1)
    run.fabric.events.run(20 * PS_PER_US)
    stuck = run.fabric.stuck()
    assert "packets are left in a port 1 on VL 1" in stuck
    assert not [text for text in stuck if "VL 0" in text]
    run.finish()
    run.assert_whole()


def test_waiting_for_credits_is_counted_on_every_lane():
    run = Run(star(3, slow=2), replace(PLAIN, lanes=2, buffer_blocks=64))
    for _ in range(50):
        run.send(1, 2, sl=1)
    run.finish()
    assert run.fabric.ends[1].port.counters.waited_ps > 0
    run.assert_whole()


def test_a_node_without_its_link_discards():
    run = Run(star(2))
    run.fabric.fail(0)
    run.send(1, 2)
    run.send(2, 1)
    assert run.finish() == []
    assert run.fabric.ends[1].port.counters.reasons == {"link down": 1}
    assert run.fabric.counters(End(0, 1)).reasons == {"link down": 1}
    with pytest.raises(KeyError):
        run.fabric.counters(End(1, 2))


@pytest.mark.parametrize("loss", [0.02, 0.3, 0.9])
def test_lost_packets_take_no_credits_along(loss):
    run = Run(star(2), replace(PLAIN, buffer_blocks=64), seed=3)
    run.fabric.degrade(1, loss)  # between the switch and host 2
    for _ in range(400):
        run.send(1, 2)
    arrived = run.finish()
    assert run.counted("errors") + len(arrived) == 400
    assert run.lost == {"error": run.counted("errors")}
    assert 0.3 * loss < run.counted("errors") / 400 < min(2.2 * loss, 1)
    for wrong in (1.5, -0.1):
        with pytest.raises(ValueError, match="probability"):
            run.fabric.degrade(0, wrong)
    before = len(arrived)
    run.fabric.degrade(1, 1)
    run.send(1, 2)
    assert len(run.finish()) == before
    run.fabric.degrade(1, 0)
    for _ in range(50):
        run.send(1, 2)
    assert len(run.finish()) == before + 50


def test_what_has_no_way_or_no_lane_is_discarded_where_it_is():
    run = Run(star(3), replace(PLAIN, lanes=2))
    switch = run.fabric.switches[0]
    run.send(1, 9)  # beyond the table
    run.send(1, 0)  # no port
    run.send(1, 1)  # back to where it came from
    switch.sl_to_vl[1, 2] = [15] * 16
    run.send(1, 2)
    switch.sl_to_vl[1, 3] = [2] * 16  # of two lanes, 0 and 1
    run.send(1, 3)
    assert run.finish() == []
    assert run.fabric.counters(End(0, 1)).reasons == {"no route": 3}
    assert run.fabric.counters(End(0, 2)).reasons == {"no lane": 1}
    assert run.fabric.counters(End(0, 3)).reasons == {"no lane": 1}
    switch.sl_to_vl[1, 3] = [1] * 16
    run.send(1, 3)
    assert len(run.finish()) == 1
    run.assert_whole()


def test_switches_enforce_partitions():
    run = Run(star(3))
    switch = run.fabric.switches[0]
    switch.pkeys[2] = frozenset({0x1234})
    run.send(1, 2, pkey=0x1234)
    run.send(1, 2, pkey=0x9234)  # a full member
    run.send(1, 2, pkey=0xFFFF)
    run.send(2, 3, pkey=0xFFFF)
    run.send(2, 3, pkey=0x9234)
    run.send(1, 3, pkey=0xFFFF)
    run.send(1, 2, 290, pkey=0xFFFF, vl=MANAGEMENT_VL)
    arrived = run.finish()
    assert sorted((node, packet.pkey) for node, packet, _ in arrived) == [
        (2, 0x1234), (2, 0x9234), (2, 0xFFFF), (3, 0x9234), (3, 0xFFFF),
    ]  # fmt: skip
    assert run.fabric.counters(End(0, 2)).reasons == {"P_Key": 2}
    assert run.fabric.counters(End(0, 2)).refused_pkeys == 1
    run.assert_whole()


def test_a_group_gets_a_copy_each_and_the_buffer_is_free_behind_the_last():
    run = Run(star(4, slow=4), multicast={0: {0xC000: [1, 2, 3, 4]}})
    for _ in range(30):
        run.send(1, 0xC000)
    run.send(1, 0xC002)  # no such group
    arrived = run.finish()
    assert Counter(node for node, _, _ in arrived) == {2: 30, 3: 30, 4: 30}
    assert in_order(arrived)
    assert run.fabric.counters(End(0, 1)).reasons == {"no route": 1}
    run.assert_whole()
    run = Run(star(4, slow=4), replace(PLAIN, buffer_blocks=32), multicast={0: {0xC001: [1, 2, 3, 4]}})
    for _ in range(10):
        run.send(1, 0xC001)
    times = [now for node, _, now in run.finish() if node == 2]
    # A buffer of one packet: the next one waits for the copy to the slow host.
    assert all(later - earlier >= 4 * 2048 * SDR for earlier, later in pairwise(times))


def test_counters_count_packets_and_words():
    run = Run(star(2))
    run.send(1, 2, 2050)
    run.send(1, 2, 290, vl=MANAGEMENT_VL)
    run.finish()
    counters = run.fabric.counters(End(1, 1))
    assert (counters.transmitted_packets, counters.transmitted_data) == (1, 512)
    counters = run.fabric.counters(End(2, 1))
    assert (counters.received_packets, counters.received_data) == (1, 512)


def victim_finishes(congestion, mark_blocks):
    """Six senders to host 8 over the cable between two switches, and host 7's packets to host 9, which only
    share that cable: when the latter have arrived, with so many notifications."""
    nodes = [make_node("left", NodeKind.SWITCH, 9, 0x100), make_node("right", NodeKind.SWITCH, 3, 0x101)]
    nodes += [make_node(f"host{n}", NodeKind.CHANNEL_ADAPTER, 1, 0x1000 + 16 * n) for n in range(1, 10)]
    links = [Link(End(0, n), End(n + 1, 1), speed=LinkSpeed.SDR) for n in range(1, 8)]
    links += [Link(End(0, 8), End(1, 1), LinkWidth.X12, LinkSpeed.QDR)]
    links += [Link(End(1, n - 6), End(n + 1, 1), speed=LinkSpeed.SDR) for n in (8, 9)]
    tables = {0: [255, *range(1, 8), 8, 8], 1: [255, *[1] * 7, 2, 3]}
    run = Run(
        (Topology(tuple(nodes), tuple(links)), tables),
        replace(PLAIN, buffer_blocks=256, mark_blocks=mark_blocks),
        congestion=congestion, notify_ps=5 * PS_PER_US,
    )  # fmt: skip
    for _ in range(200):
        for source in range(1, 7):
            run.send(source + 1, 8, slid=source)
        run.send(8, 9, slid=7)
    arrived = run.finish()
    assert len(arrived) == 1400
    assert in_order(arrived)
    notified = sum(end.notifications for end in run.fabric.ends.values())
    return max(now for node, _, now in arrived if node == 10), max(now for *_, now in arrived), notified


@pytest.mark.parametrize(
    "congestion",
    [lambda: TableControl(increase=2, timer_ps=30 * PS_PER_US),
     lambda: RateControl(8000, DcqcnSettings(additive_mbps=200, cut_ns=5_000))],
)  # fmt: skip
def test_congestion_control_frees_those_that_only_share_a_link(congestion):
    without, whole, notified = victim_finishes(None, None)
    assert notified == 0
    assert whole == pytest.approx(1200 * 2048 * SDR, rel=0.01)
    with_control, whole_with, notified = victim_finishes(congestion, 64)
    assert notified > 10
    assert with_control < 0.75 * without
    assert whole_with < 2 * whole


SENDS = st.tuples(st.integers(0, 4), st.integers(0, 4), st.integers(30, 4200), st.integers(0, 3))


@settings(max_examples=random_inputs(40), deadline=None)
@given(
    st.integers(2, 5),
    st.lists(SENDS, max_size=120),
    st.sampled_from([66, 128, 512]),
    st.sampled_from([None, 5 * PS_PER_US]),
    st.integers(1, 4),
)
def test_every_packet_arrives_once_and_in_order_without_faults(hosts, packets, blocks, segments, lanes):
    port_settings = replace(PLAIN, buffer_blocks=blocks, segment_timeout_ps=segments, lanes=lanes)
    run = Run(line(hosts), port_settings)
    wanted = Counter()
    for source, target, length, sl in packets:
        source, target = source % hosts, target % hosts
        if source != target:
            run.send(hosts + source, target + 1, length, slid=source + 1, sl=sl, ends=length % 3 == 0)
            wanted[hosts + target] += 1
    arrived = run.finish()
    assert Counter(node for node, _, _ in arrived) == wanted
    streams = defaultdict(list)
    for node, packet, _ in arrived:
        streams[packet.slid, node, packet.sl].append(packet.message)
    assert all(stream == sorted(stream) for stream in streams.values())
    assert run.counted("discarded") == run.counted("overruns") == run.counted("errors") == 0
    run.assert_whole()


def test_a_source_is_told_of_marks_once_in_each_interval():
    run = Run(star(3), notify_ps=100)
    end = run.fabric.ends[1]

    def told(slid, now, fecn=True):
        before = end.notifications
        packet = Packet(slid, 1, 64)
        packet.fecn = fecn
        end.fire(DELIVER, packet, now)
        return end.notifications - before

    assert [told(2, now) for now in (0, 1, 99, 100, 199, 200, 1000)] == [1, 0, 0, 1, 0, 1, 1]
    assert [told(3, 1050), told(3, 1050), told(2, 1050)] == [1, 0, 0]  # each source by itself
    assert told(2, 5000, fecn=False) == 0
    assert told(2, 5001) == 1


def test_packets_are_marked_where_congestion_begins_and_not_where_they_wait_for_credits():
    nodes = [make_node("left", NodeKind.SWITCH, 2, 0x100), make_node("right", NodeKind.SWITCH, 2, 0x101)]
    nodes += [make_node(f"host{n}", NodeKind.CHANNEL_ADAPTER, 1, 0x1000 + 16 * n) for n in range(1, 3)]
    links = (
        Link(End(0, 1), End(2, 1), speed=LinkSpeed.SDR),
        Link(End(0, 2), End(1, 1), speed=LinkSpeed.SDR),
        Link(End(1, 2), End(3, 1), LinkWidth.X1, LinkSpeed.SDR),  # what is behind it is slow
    )
    tables = {0: [255, 1, 2], 1: [255, 1, 2]}
    run = Run((Topology(tuple(nodes), links), tables), replace(PLAIN, buffer_blocks=128, mark_blocks=1))
    for _ in range(100):
        run.send(2, 2, 2048, slid=1)
    run.finish()
    assert run.fabric.counters(End(0, 2)).marked == 0
    assert run.fabric.counters(End(1, 2)).marked > 50


@pytest.mark.parametrize("waited", [False, True])
@pytest.mark.parametrize("blocked", [False, True])
def test_a_packet_whose_port_or_lane_had_no_credits_is_not_marked(waited, blocked):
    run = Run(star(2), replace(PLAIN, mark_blocks=1))
    port = run.fabric.switches[0].ports[2]
    port._busy_until_ps = 1
    for _ in range(3):
        port.send(Packet(1, 2, 2048), 0)
    packet = port.queues[0].head(0)
    if waited:
        port._waiting_since_ps = 0
    if blocked:
        port._blocked_since_ps = [0, *port._blocked_since_ps[1:]]
    port._send_now(packet, 0, 10)
    assert packet.fecn is not (waited or blocked)
    assert port.counters.marked == int(packet.fecn)


def test_copies_for_a_group_are_what_their_packet_is():
    run = Run(star(4), multicast={0: {0xC000: [1, 2, 3, 4]}})
    run.fabric.switches[0].pkeys[4] = frozenset({0x1234})
    packet = Packet(1, 0xC000, 2048, pkey=0x9234, message=7)
    packet.fecn = True  # it has met congestion on its way
    run.fabric.send(1, packet)
    arrived = run.finish()
    assert sorted((node, each.pkey, each.fecn, each.message) for node, each, _ in arrived) == [
        (node, 0x9234, True, 7) for node in (2, 3, 4)
    ]  # fmt: skip


class Told:
    """Congestion control that counts what it is told."""

    def __init__(self):
        self.times = 0

    def notified(self, now_ps):
        self.times += 1

    def pause_ps(self, length_bytes, transmission_ps, now_ps):
        return 0


def test_a_notification_is_for_the_flow_to_who_sends_it():
    made = []
    run = Run(star(3), congestion=lambda: made.append(Told()) or made[-1])
    for target in (2, 3):
        run.send(1, target)
    run.finish()
    for source in (3, 3, 2, 1):  # there is no flow to LID 1
        run.fabric.ends[1].fire(DELIVER, Packet(source, 1, 42, becn=True), 0)
    assert [each.times for each in made] == [1, 2]


LIFE_PS = 1000


def held_port(packets, stall_count=2):
    """A switch's port that is busy for ever, and so many packets behind that."""
    run = Run(star(2), replace(PLAIN, head_of_queue_ps=LIFE_PS, stall_count=stall_count))
    port = run.fabric.switches[0].ports[2]
    port._busy_until_ps = 1 << 60
    for _ in range(packets):
        port.send(Packet(1, 2, 64), 0)
    return run, port


def expire(port, since_ps):
    """The lane was blocked since then, for the life of a packet at the head."""
    port._blocked_since_ps = [since_ps, *port._blocked_since_ps[1:]]
    port.fire(BLOCKED, (0, since_ps), since_ps + LIFE_PS)


def test_a_packet_has_its_own_time_at_the_head():
    _, port = held_port(2)
    port._blocked_since_ps = [50, *port._blocked_since_ps[1:]]
    port.fire(BLOCKED, (0, 10), 10 + LIFE_PS)  # that of one that has left
    assert port.counters.reasons == {}
    port.fire(BLOCKED, (0, 50), 50 + LIFE_PS)
    assert port.counters.reasons == {"head of queue": 1}
    assert port.queued_blocks(0) == 1


def test_a_lane_stalls_when_so_many_in_a_row_were_discarded():
    run, port = held_port(6)
    expire(port, 10)
    busy_ps, port._busy_until_ps = port._busy_until_ps, 0
    port._send_now(port.queues[0].head(20), 0, 20)  # one has left in between
    port._busy_until_ps = busy_ps
    expire(port, 30)
    assert port.counters.reasons == {"head of queue": 2}
    expire(port, 40)
    assert port.counters.reasons == {"head of queue": 3, "lane stalled": 2}
    over_ps = 40 + LIFE_PS + STALL_FACTOR * LIFE_PS
    for now_ps, discarded in ((over_ps - 1, 3), (over_ps, 3)):
        run.fabric.events.run(now_ps)
        port.send(Packet(1, 2, 64), 0)
        assert port.counters.reasons["lane stalled"] == discarded
    assert port.queued_blocks(0) == 1


def test_credits_of_before_a_link_failed_mean_nothing():
    run = Run(star(2))
    port = run.fabric.switches[0].ports[2]
    run.fabric.fail(1)
    run.fabric.restore(1)
    before = port.credits.limit[0]
    for epoch, limit in ((port.peer._epoch - 1, before), (port.peer._epoch, before - 1)):
        port.fire(CREDITS, FlowControl(0, 0, before - 1, epoch), 0)
        assert port.credits.limit[0] == limit


def test_a_lane_that_waits_for_credits_leaves_the_others_what_they_are():
    run = Run(star(2), replace(PLAIN, lanes=2, mark_blocks=0))
    port = run.fabric.switches[0].ports[2]
    port.credits.hear(1, port.credits.sent[1])
    port._busy_until_ps = 100
    for vl in (1, 0, 0):
        port.send(Packet(1, 2, 64, vl=vl), 0)
    port.fire(TRANSMIT, None, 100)
    assert port.counters.marked == 1  # the congestion of lane 0 is here


def test_management_packets_that_nobody_takes_have_an_end():
    _, port = held_port(0)
    for _ in range(MANAGEMENT_BLOCKS + 2):
        port.send(Packet(1, 2, 64, vl=MANAGEMENT_VL), 0)
    assert port.queued_blocks(MANAGEMENT_VL) == MANAGEMENT_BLOCKS
    assert port.counters.reasons == {"VL 15 full": 2}


def test_what_is_told_of_a_link_comes_behind_what_is_on_it():
    run = Run(star(2))
    port = run.fabric.switches[0].ports[2]
    for busy_ps in (0, 50_000):
        run.fabric.events.run(busy_ps // 2)
        now_ps = run.fabric.events.now_ps
        port._busy_until_ps = busy_ps
        assert port.receiver.take(0, 4)
        port.freed(0, 4)
        told_ps = run.fabric.events.next_ps()
        assert told_ps == max(busy_ps, now_ps) + PLAIN.propagation_ps + port.transmission_ps(8)
        run.fabric.events.run(told_ps)


def test_a_link_that_is_down_waits_for_no_credits():
    run = Run(star(2))
    port = run.fabric.switches[0].ports[2]
    port.credits.hear(0, port.credits.sent[0])
    port.send(Packet(1, 2, 64), 0)
    run.fabric.events.run(20)
    run.fabric.fail(1)
    run.fabric.events.run(PS_PER_US)
    run.fabric.restore(1)
    run.send(1, 2)
    assert len(run.finish()) == 1
    assert port.counters.waited_ps == 20
