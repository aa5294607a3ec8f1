"""Ports of switches and end nodes: links that fail under way, lanes that stall, what is told, and bounds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import pytest

from softhca.fabric.switching.congestion import CongestionControl, TableControl
from softhca.fabric.switching.credits import CreditReceiver, CreditSender
from softhca.fabric.switching.events import PS_PER_US
from softhca.fabric.switching.fabric import SwitchedFabric
from softhca.fabric.switching.packet import MANAGEMENT_VL, Packet
from softhca.fabric.switching.port import BLOCKED, HEAD, TRANSMIT, Port, PortSettings
from softhca.fabric.topology import End, Link, LinkSpeed, NodeKind, Topology, make_node

PLAIN = PortSettings()
BYTE_PS = 1000
"""On a link of four SDR lanes."""
HOSTS = 3
LIFE_PS = 1000


class Star:
    """Hosts 1 … 3 with LID 1 … 3 around switch 0: what arrives, and what is lost and why."""

    def __init__(
        self, settings: PortSettings = PLAIN, congestion: Callable[[], CongestionControl] | None = None
    ) -> None:
        numbers = range(1, HOSTS + 1)
        nodes = [make_node("switch", NodeKind.SWITCH, HOSTS, 0x100)]
        nodes += [make_node(f"host{n}", NodeKind.CHANNEL_ADAPTER, 1, 0x1000 + 16 * n) for n in numbers]
        links = [Link(End(0, n), End(n, 1), speed=LinkSpeed.SDR) for n in numbers]
        self.arrived: list[tuple[int, Packet, int]] = []
        self.lost: Counter[str] = Counter()
        self.fabric = SwitchedFabric(
            Topology(tuple(nodes), tuple(links)),
            {0: [255, *numbers]},
            lambda node, packet, now_ps: self.arrived.append((node, packet, now_ps)),
            settings=settings,
            congestion=congestion,
            lost=lambda packet, reason: self.lost.update([reason]),
        )
        self.events = self.fabric.events

    def port(self, number: int) -> Port:
        """The switch's port to a host."""
        return self.fabric.switches[0].ports[number]

    def finish(self) -> list[tuple[int, Packet, int]]:
        assert self.events.run_all(1_000_000)
        return self.arrived


class Told:
    """Congestion control that notes when it is told."""

    def __init__(self, times_ps: list[int]) -> None:
        self.times_ps = times_ps

    def notified(self, now_ps: int) -> None:
        self.times_ps.append(now_ps)

    def pause_ps(self, length_bytes: int, transmission_ps: int, now_ps: int) -> int:
        return 0


def without_credits(port: Port, vl: int = 0) -> None:
    """The peer has no room on a lane."""
    port.credits.hear(vl, port.credits.sent[vl])


# links that fail


def test_a_link_that_is_back_is_free_at_once() -> None:
    star = Star()
    star.fabric.send(1, Packet(1, 2, 4096))  # what is on the link is lost, and takes no more time of it
    star.events.run(10)
    star.fabric.fail(0)
    star.fabric.restore(0)
    star.fabric.send(1, Packet(1, 3, 64))
    ((node, _, now_ps),) = star.finish()
    assert node == 3
    assert now_ps == 10 + (5_000 + 8 * BYTE_PS) + 100_000 + 64 * BYTE_PS + 5_000


def test_packets_of_all_flows_are_lost_where_the_link_is_down() -> None:
    star = Star()
    without_credits(star.fabric.ends[1].port)
    for dlid in (2, 3, 4, 2, 3, 4):
        star.fabric.send(1, Packet(1, dlid, 64))
    star.events.run(PS_PER_US)  # all wait for the port
    assert star.fabric.ends[1].waiting() == 5
    star.fabric.fail(0)
    star.finish()
    assert star.fabric.ends[1].waiting() == 0
    assert star.lost == {"link down": 6}


def test_a_lane_that_is_blocked_anew_after_a_failure_has_its_whole_time() -> None:
    star = Star(replace(PLAIN, head_of_queue_ps=LIFE_PS, mark_blocks=0))
    port = star.port(2)
    without_credits(port)
    port.send(Packet(1, 2, 64), 0)
    star.events.run(LIFE_PS // 2)
    star.fabric.fail(1)
    star.fabric.restore(1)
    without_credits(port)
    port.send(Packet(1, 2, 64), 0)
    begun_ps = star.events.now_ps
    star.events.run(begun_ps + LIFE_PS - 1)
    assert port.counters.reasons == {"link down": 1}
    star.events.run(begun_ps + LIFE_PS)
    assert port.counters.reasons == {"link down": 1, "head of queue": 1}


# lanes that stall


def test_a_lane_that_has_stalled_counts_its_discards_anew() -> None:
    star = Star(replace(PLAIN, head_of_queue_ps=LIFE_PS, stall_count=2))
    port = star.port(2)
    port._busy_until_ps = 1 << 60

    def discard(since_ps: int) -> None:
        port.send(Packet(1, 2, 64), 0)
        port._blocked_since_ps = [since_ps, *port._blocked_since_ps[1:]]
        port.fire(BLOCKED, (0, since_ps), since_ps + LIFE_PS)

    discard(0)
    discard(0)
    over_ps = LIFE_PS + 8 * LIFE_PS
    star.events.run(over_ps - 1)
    port.send(Packet(1, 2, 64), 0)
    assert port.counters.reasons == {"head of queue": 2, "lane stalled": 1}
    star.events.run(over_ps)
    discard(over_ps)
    port.send(Packet(1, 2, 64), 0)
    assert port.counters.reasons == {"head of queue": 3, "lane stalled": 1}
    assert port.queued_blocks(0) == 1


def test_a_flow_goes_on_where_a_packet_of_another_one_was_discarded() -> None:
    star = Star(replace(PLAIN, head_of_queue_ps=LIFE_PS, stall_count=100))
    without_credits(star.fabric.ends[1].port)
    for dlid in (2, 3, 2, 3):
        star.fabric.send(1, Packet(1, dlid, 64))
    star.events.run(100 * LIFE_PS)
    assert star.fabric.ends[1].waiting() == 0
    assert star.lost == {"head of queue": 4}


def test_what_there_are_credits_for_leaves_as_soon_as_what_was_before_it_is_discarded() -> None:
    star = Star(replace(PLAIN, head_of_queue_ps=LIFE_PS))
    port = star.port(2)
    port.credits.hear(0, port.credits.sent[0] + 1)
    for length in (4096, 64):
        port.send(Packet(1, 2, length), 0)
    star.events.run(LIFE_PS)
    assert port.counters.reasons == {"head of queue": 1}
    assert port.counters.transmitted_packets == 1


def test_no_flow_waits_while_the_others_send_and_send() -> None:
    goals = range(4, 10)  # LIDs to which the switch has no way
    star = Star()
    seen: list[int] = []
    star.port(1).lost = lambda packet, reason: seen.append(packet.dlid)
    for dlid in goals:
        for _ in range(20):
            star.fabric.send(1, Packet(1, dlid, 64))
    star.finish()
    for count in range(len(seen)):
        counts = [seen[:count].count(dlid) for dlid in goals]
        assert max(counts) - min(counts) <= 2
    assert len(seen) == 20 * len(goals)


# what is looked at and counted


def test_the_lane_whose_packet_is_ready_first_is_looked_at_then() -> None:
    star = Star(replace(PLAIN, lanes=2))
    port = star.port(2)
    for vl, ready_ps in ((0, 1000), (1, 500)):
        port.send(Packet(1, 2, 64, vl=vl), ready_ps)
    star.events.run(500)
    assert (port.queued_blocks(0), port.queued_blocks(1)) == (1, 0)


def test_a_port_marks_no_packet_that_another_one_has_marked() -> None:
    star = Star(replace(PLAIN, mark_blocks=0))
    port = star.port(2)
    port._busy_until_ps = 1
    star.events.plan(1, port, TRANSMIT)
    for fecn in (True, False, False):
        packet = Packet(1, 2, 64)
        packet.fecn = fecn
        port.send(packet, 0)
    star.finish()
    assert port.counters.marked == 1  # nothing is behind the last
    assert sum(packet.fecn for _, packet, _ in star.arrived) == 2


def test_a_packet_without_room_is_lost_and_told() -> None:
    star = Star()
    port = star.port(1)
    assert port.peer is not None
    assert port.receiver.take(0, PLAIN.buffer_blocks)
    packet = Packet(1, 2, 64)
    packet.epoch = port.peer._epoch
    port.fire(HEAD, packet, 0)
    assert port.counters.overruns == 1
    assert port.counters.received_packets == 0
    assert star.lost == {"overrun": 1}


def test_a_notification_is_of_the_partition_of_the_packet_that_was_marked() -> None:
    told: list[int] = []
    star = Star(congestion=lambda: Told(told))
    star.fabric.switches[0].pkeys[1] = frozenset({0x12})
    packet = Packet(1, 2, 64, pkey=0x8012, sl=3)
    packet.fecn = True
    star.fabric.send(1, packet)
    star.finish()
    assert len(told) == 1
    assert star.lost == {}


def test_copies_for_a_group_have_come_as_far_as_their_packet() -> None:
    star = Star()
    star.fabric.switches[0].multicast[0xC000] = (1, 2, 3)
    star.fabric.send(1, Packet(1, 0xC000, 64))
    assert [(node, packet.hops) for node, packet, _ in star.finish()] == [(2, 2), (3, 2)]


def test_a_fabric_at_rest_tells_of_room_that_a_port_does_not_know() -> None:
    star = Star()
    assert star.fabric.stuck() == []
    port = star.port(2)
    port.credits.hear(0, port.credits.limit[0] - 1)
    assert star.fabric.stuck() == ["a port 2 does not know all of its peer's room on VL 0"]


def test_time_does_not_go_back() -> None:
    star = Star()
    for until_ps in (100, 50):
        star.events.run(until_ps)
        assert star.events.now_ps == 100


def test_packets_of_management_are_in_one_line_whatever_segments_they_are_of() -> None:
    star = Star(replace(PLAIN, segment_timeout_ps=PS_PER_US))
    port = star.port(2)
    for slid, ends in ((1, False), (3, True)):
        port.send(Packet(slid, 2, 64, vl=MANAGEMENT_VL, ends=ends), 0)
    star.finish()
    assert [packet.slid for _, packet, _ in star.arrived] == [1, 3]
    assert star.arrived[1][2] - star.arrived[0][2] == 64 * BYTE_PS


def test_packets_of_management_pass_whatever_their_partition() -> None:
    star = Star()
    star.fabric.switches[0].pkeys.update({1: frozenset({0x12}), 2: frozenset({0x12})})
    for vl in (0, MANAGEMENT_VL):
        star.fabric.send(1, Packet(1, 2, 64, vl=vl, pkey=0x34))
    assert [packet.vl for _, packet, _ in star.finish()] == [MANAGEMENT_VL]
    assert star.lost == {"P_Key": 1}


# numbers


@pytest.mark.parametrize(
    "wrong", [{"lanes": 0}, {"lanes": 16}, {"buffer_blocks": 0}, {"buffer_blocks": 2049}]
)
def test_ports_have_so_many_lanes_and_blocks(wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=r"data lanes|count 1"):
        PortSettings(**wrong)  # type: ignore[arg-type]
    PortSettings(lanes=15, buffer_blocks=2048)


def test_c7_56_a_limit_is_2048_blocks_ahead_at_most() -> None:
    sender, receiver = CreditSender(), CreditReceiver(2048, 1)
    for sent in (0, 4000):
        for _ in range(sent // 2000):
            sender.send(0, 2000)
        sender.hear(0, sent + 2049 & 0xFFF)
        assert sender.allows(0, 1)  # 2048 behind it
        sender.hear(0, sent + 2050 & 0xFFF)
        assert not sender.allows(0, 1)  # that is one in the past
    assert receiver.limit(0) == CreditReceiver(4000, 1).limit(0) == 2048


def test_a_table_forgets_no_time_between_two_looks() -> None:
    control = TableControl(tuple(range(100)), increase=10, timer_ps=100)
    control.notified(0)
    for now_ps in range(150, 901, 150):  # one and a half of the timer's times
        assert control.pause_ps(64, 1, now_ps) == 10 - now_ps // 100


def test_time_is_over_before_a_notification_counts() -> None:
    control = TableControl(tuple(range(14)), increase=10, timer_ps=100)
    for now_ps in (0, 500):
        control.notified(now_ps)
    assert control.pause_ps(64, 1, 500) == 13
