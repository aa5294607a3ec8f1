"""Ethernet switches in virtual time: queues, tail drop, marks, priorities, pauses, ways."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from softhca.fabric.ethernet.network import FULL_HOST, MOST_WAITING_BYTES, Cabling, EthernetNetwork
from softhca.fabric.ethernet.port import GAP_BYTES, LINK_DOWN, PAUSE_BYTES, PAUSED, QUANTUM_BITS, Frame
from softhca.fabric.ethernet.settings import Marking, Pausing, SwitchSettings
from softhca.fabric.ethernet.switch import FULL_BUFFER, FULL_QUEUE, LOOP, MOST_HOPS, NO_WAY

ECT0, CE = 2, 3
NS, US = 1_000, 1_000_000


class Lab:
    """A network, and what has arrived (host, frame, time) and been lost."""

    def __init__(self, cabling: Cabling, seed: int = 1, **settings: object) -> None:
        self.got: list[tuple[int, Frame, int]] = []
        self.lost: Counter[str] = Counter()
        made = SwitchSettings(**{"marking": None, **settings})  # type: ignore[arg-type]
        self.net = EthernetNetwork(
            cabling, lambda host, frame, now: self.got.append((host, frame, now)), settings=made,
            lost=lambda frame, why: self.lost.update([why]), seed=seed,
        )  # fmt: skip

    def send(self, source: int, destination: int, length: int = 1_000, **more: int) -> Frame:
        frame = Frame(source, destination, length, **more)
        self.net.send(frame)
        return frame

    def end(self) -> None:
        assert self.net.events.run_all(2_000_000)
        assert self.net.stuck() == []


def star(hosts: int = 3, **more: int) -> Cabling:
    return Cabling((0,) * hosts, host_mbps=8_000, **more)  # type: ignore[arg-type]


def test_a_frame_is_stored_and_forwarded() -> None:
    lab = Lab(star(delay_ns=500))
    lab.send(1, 2, 1_000)
    lab.end()
    (host, frame, now) = lab.got[0]
    one_link_ps = (1_000 + GAP_BYTES) * 1_000 + 500 * NS  # 8 Gb/s: a nanosecond a byte
    assert (host, frame.hops, now) == (2, 2, 2 * one_link_ps)


def test_frames_of_one_priority_keep_their_order_and_higher_priorities_overtake() -> None:
    lab = Lab(star())
    sent = [lab.send(1, 2, 1_000 + n, priority=6 if n == 9 else n % 2) for n in range(10)]
    lab.end()
    order = [sent.index(frame) for _, frame, _ in lab.got]
    assert order[0] == 0  # on the wire already
    assert order[1] == 9
    assert order[2:] == [1, 3, 5, 7, 2, 4, 6, 8]


def test_what_does_not_fit_a_queue_is_dropped_at_its_tail() -> None:
    lab = Lab(star(4), queue_bytes=5_000)
    for n in range(12):
        lab.send(1, 4, 1_000)
        lab.send(2, 4, 1_000)
        if n < 3:
            lab.send(3, 2, 1_000)  # another queue has room
    lab.end()
    port = lab.net.toward(4)
    assert lab.lost == {FULL_QUEUE: port.counters.drops}
    assert 0 < port.counters.drops < 24
    assert len(lab.got) == 24 + 3 - port.counters.drops
    assert port.most_queued == 5_000
    assert sum(host == 2 for host, _, _ in lab.got) == 3


def test_the_buffer_is_shared_by_all_queues() -> None:
    lab = Lab(star(5), buffer_bytes=6_000, queue_bytes=5_000)
    for _ in range(8):
        for source, destination in ((1, 4), (2, 4), (1, 5), (2, 5), (3, 4), (3, 5)):
            lab.send(source, destination, 1_000)
    lab.end()
    assert lab.lost[FULL_BUFFER] > 0
    assert lab.net.switches[0].most_used_bytes == 6_000
    assert lab.net.switches[0].used_bytes == 0
    assert len(lab.got) + sum(lab.lost.values()) == 48


@pytest.mark.parametrize("ecn", [0, 1, ECT0, CE])
def test_only_what_is_capable_is_marked_and_only_behind_a_queue(ecn: int) -> None:
    lab = Lab(star(4), marking=Marking(3_000, 3_000, 1.0))
    for _ in range(10):
        lab.send(1, 4, 1_000, ecn=ecn)
        lab.send(2, 4, 1_000, ecn=ecn)
        lab.send(3, 2, 1_000, ecn=ecn)
    lab.end()
    marked = [frame for host, frame, _ in lab.got if host == 4 and frame.marked]
    if ecn in (1, ECT0):
        assert 5 < len(marked) < 20
        assert lab.net.toward(4).counters.frames_marked == len(marked)
        assert not [frame for host, frame, _ in lab.got if host == 2 and frame.marked]
    else:
        assert lab.net.toward(4).counters.frames_marked == 0
        assert len(marked) == (20 if ecn == CE else 0)


def test_the_share_of_marks_rises_between_two_lengths() -> None:
    marking = Marking(10_000, 30_000, 0.2)
    assert Marking(3_000, 3_000, 0.5).share(3_000) == 1.0
    shares = {length: marking.share(length) for length in (0, 9_999, 10_000, 20_000, 29_999, 30_000, 10**9)}
    assert shares[0] == shares[9_999] == shares[10_000] == 0
    assert shares[20_000] == pytest.approx(0.1)
    assert shares[29_999] == pytest.approx(0.2, rel=0.001)
    assert shares[30_000] == shares[10**9] == 1


def test_marks_come_by_chance_and_the_seed_decides() -> None:
    def marks(seed: int) -> list[bool]:
        lab = Lab(star(3), seed, marking=Marking(0, 10**9, 1.0), queue_bytes=1 << 28)
        for n in range(400):
            lab.net.events.run(n * 1_000 * NS)
            lab.send(1, 3, 1_000, ecn=ECT0)
            lab.send(2, 3, 1_000, ecn=ECT0)
        lab.end()
        return [frame.marked for _, frame, _ in lab.got]

    assert marks(1) == marks(1)
    half = Lab(star(3), 3, marking=Marking(0, 200_000, 1.0), queue_bytes=1 << 28)
    port = half.net.toward(3)
    port.queued[0] = 100_000  # as long all the time: half of all are marked
    for _ in range(1_000):
        half.send(1, 3, 100, ecn=ECT0)
    half.net.events.run_all(10**6)
    assert 400 < sum(frame.marked for _, frame, _ in half.got) < 600


def test_the_published_defaults() -> None:
    assert Marking() == Marking(5_000, 200_000, 0.01)
    assert SwitchSettings().marking == Marking()
    assert SwitchSettings().pausing is None


# pauses


def flood(lab: Lab, senders: int, frames: int, goal: int, priority: int = 0) -> None:
    for _ in range(frames):
        for source in range(1, senders + 1):
            lab.send(source, goal, 1_000, priority=priority)


def test_with_pauses_nothing_is_lost() -> None:
    settings = {"buffer_bytes": 60_000, "queue_bytes": 60_000}
    plain = Lab(star(5), **settings)
    flood(plain, 4, 100, 5)
    plain.end()
    assert plain.lost
    paused = Lab(star(5), **settings, pausing=Pausing(8_000, 4_000))
    flood(paused, 4, 100, 5)
    paused.end()
    assert not paused.lost
    assert len(paused.got) == 400
    switch = paused.net.switches[0]
    assert 8_000 < switch.most_held_bytes < 8_000 + 4_000  # what a round trip of the link lets through
    told = [port.counters.pauses_sent for port in switch.ports]
    assert min(told[:4]) >= 2
    assert told[4] == 0
    assert [host.port.counters.pauses_received for host in paused.net.hosts.values()] == told
    assert paused.got[-1][2] < 430 * US  # a pause without an end would last 4 ms
    by_source = Counter(frame.source for _, frame, _ in paused.got)
    assert set(by_source.values()) == {100}


def test_other_priorities_are_not_paused() -> None:
    lab = Lab(star(3), pausing=Pausing(4_000, 1_000, (3,)), queue_bytes=1 << 20)
    flood(lab, 2, 40, 3, priority=3)
    lab.net.events.run(30 * US)
    port = lab.net.hosts[1].port
    assert port.paused_until_ps[3] > lab.net.events.now_ps
    urgent = lab.send(1, 3, 100, priority=6)
    before = lab.net.events.now_ps
    lab.net.events.run(before + 3 * US)
    assert urgent in [frame for _, frame, _ in lab.got]
    assert port.queued[3] > 0
    lab.end()
    assert len(lab.got) == 81


def test_a_pause_is_over_by_itself_and_renewed_while_it_must_be() -> None:
    """The goal's own port is paused by hand, as by a receiver that has stopped; quanta are 64 ns."""
    lab = Lab(star(2), pausing=Pausing(3_000, 1_000, quanta=100), queue_bytes=1 << 20)
    pause_ps = 100 * 64 * NS
    out = lab.net.toward(2)
    lab.net.hosts[2].port.pause(0, 0xFFFF, 0)
    for _ in range(20):
        lab.send(1, 2, 1_000)
    lab.net.events.run(100 * US)
    switch, sender = lab.net.switches[0], lab.net.hosts[1].port
    renewals = switch.ports[0].counters.pauses_sent
    assert renewals >= 100 * US // pause_ps  # one for each half, less the first microseconds
    assert renewals <= 2 * 100 * US // pause_ps + 2
    assert not [host for host, _, _ in lab.got if host == 2]
    held = switch.used_bytes
    assert 3_000 < held <= 6_000
    assert sender.queued[0] == 20_000 - held
    lab.net.hosts[2].port.pause(0, 0, lab.net.events.now_ps)  # go on
    lab.end()
    assert len(lab.got) == 20
    assert out.counters.pauses_received == 2
    assert not lab.lost


def test_a_pause_waits_for_no_frame_but_that_on_the_wire() -> None:
    lab = Lab(star(2))
    port = lab.net.hosts[1].port
    for _ in range(10):
        lab.send(1, 2, 1_000)
    port.pause(0, 5, 0)
    lab.net.events.run((1_000 + GAP_BYTES + PAUSE_BYTES + GAP_BYTES) * NS + 500 * NS)
    assert lab.net.toward(1).counters.pauses_received == 1
    assert port.counters.frames_sent == 1
    lab.end()


def test_a_pause_spreads_to_whoever_feeds_the_queue_through_other_switches() -> None:
    cabling = Cabling((0, 0, 1, 1), ((0, 1),), host_mbps=8_000, trunk_mbps=8_000)
    lab = Lab(cabling, buffer_bytes=40_000, queue_bytes=40_000, pausing=Pausing(6_000, 3_000))
    for _ in range(100):
        lab.send(1, 4, 1_000)
        lab.send(3, 4, 1_000)
    lab.end()
    assert not lab.lost
    assert len(lab.got) == 200
    assert lab.net.hosts[1].port.counters.pauses_received > 0  # by its switch, which the other one paused


# ways


def test_ways_are_the_shortest_and_flows_stay_on_one() -> None:
    """Two leaves, two spines, and a third switch that is a detour."""
    lab = Lab(Cabling((0, 1), ((0, 2), (2, 1), (0, 3), (3, 1), (2, 4), (4, 1)), host_mbps=8_000))
    for flow in range(32):
        lab.send(1, 2, flow=flow)
        lab.send(1, 2, flow=flow)
    lab.end()
    assert {frame.hops for _, frame, _ in lab.got} == {4}
    sent = [sum(port.counters.frames_sent for port in lab.net.switches[at].ports) for at in (2, 3, 4)]
    assert sent == [32, 32, 0]
    for flow in range(32):
        assert len([1 for _, frame, _ in lab.got if frame.flow == flow]) == 2


def test_parallel_trunks_are_all_used() -> None:
    lab = Lab(Cabling((0, 1), ((0, 1), (1, 0), (0, 1)), host_mbps=8_000))
    for flow in range(30):
        lab.send(1, 2, flow=flow)
    lab.end()
    ports = lab.net.switches[0].ports[1:]
    assert [port.counters.frames_sent for port in ports] == [10, 10, 10]


def test_a_host_that_cannot_be_reached_and_a_loop_lose_frames() -> None:
    lab = Lab(Cabling((0, 1), (), host_mbps=8_000))
    lab.send(1, 2)
    lab.send(1, 77)
    lab.end()
    assert lab.lost == {NO_WAY: 2}
    lab = Lab(Cabling((0, 1), ((0, 1),), host_mbps=8_000))
    lab.net.switches[1].ways[2] = [1]  # back where it came from
    lab.send(1, 2)
    lab.end()
    assert lab.lost == {LOOP: 1}


def test_slow_links_are_as_slow_as_they_are_said_to_be() -> None:
    lab = Lab(Cabling((0, 0), host_mbps=8_000, slow=((2, 800),), delay_ns=0))
    lab.send(1, 2, 980)
    lab.end()
    assert lab.got[0][2] == 1_000 * NS + 10_000 * NS


def test_a_host_does_not_take_more_than_it_can_hold() -> None:
    lab = Lab(star(2))
    lab.net.hosts[1].port.queued[5] = MOST_WAITING_BYTES - 1_500
    lab.send(1, 2, 1_000)
    lab.send(1, 2, 1_000)
    assert lab.lost == {FULL_HOST: 1}
    assert lab.net.drops == {FULL_HOST: 1}


def test_what_is_left_is_told() -> None:
    lab = Lab(star(2))
    lab.send(1, 2)
    lab.send(1, 2)
    lab.net.events.run(1_200 * NS)
    assert lab.net.stuck()
    lab.end()


@pytest.mark.parametrize("make", [
    lambda: Marking(5, 4), lambda: Marking(-1, 4), lambda: Marking(1, 4, 0), lambda: Marking(1, 4, 1.1),
    lambda: Pausing(5, 5), lambda: Pausing(5, -1), lambda: Pausing(priorities=(8,)),
    lambda: Pausing(quanta=1), lambda: SwitchSettings(buffer_bytes=0),
    lambda: SwitchSettings(queue_bytes=0), lambda: Cabling(()),
    lambda: Cabling((-1,)), lambda: Cabling((0,), ((1, 1),)), lambda: Cabling((0,), host_mbps=0),
    lambda: Cabling((0,), slow=((1, 0),)), lambda: Cabling((0,), delay_ns=-1),
])  # fmt: skip
def test_what_cannot_be_is_refused(make: object) -> None:
    with pytest.raises(ValueError, match=r"expected|stand|joins|carry|hold|are 0"):
        make()  # type: ignore[operator]


@pytest.mark.parametrize("seed", range(4))
def test_every_frame_arrives_or_is_lost_once_and_everything_comes_to_rest(seed: int) -> None:
    dice = Random(seed)
    cabling = Cabling((0, 0, 1, 1, 2), ((0, 1), (1, 2), (2, 0)), host_mbps=8_000, trunk_mbps=4_000)
    pausing = dice.choice((None, Pausing(dice.randrange(3_000, 9_000), 2_000, (0, 5), 200)))
    lab = Lab(cabling, seed, buffer_bytes=dice.choice((20_000, 1 << 20)), queue_bytes=15_000,
              marking=Marking(2_000, 8_000, 0.5), pausing=pausing)  # fmt: skip
    sent = []
    for n in range(600):
        lab.net.events.run(n * 700 * NS)
        source, destination = dice.sample(range(1, 6), 2)
        sent.append(lab.send(source, destination, dice.randrange(64, 1_500), priority=dice.choice((0, 5, 7)),
                             ecn=dice.randrange(3), flow=dice.randrange(9)))  # fmt: skip
    lab.end()
    assert len(lab.got) + sum(lab.lost.values()) == len(sent)
    assert len({id(frame) for _, frame, _ in lab.got}) == len(lab.got)
    assert all(host == frame.destination for host, frame, _ in lab.got)
    orders: dict[tuple[int, ...], list[int]] = {}
    for _, frame, _ in lab.got:
        key = frame.source, frame.destination, frame.priority, frame.flow
        orders.setdefault(key, []).append(sent.index(frame))
    assert all(order == sorted(order) for order in orders.values())


# links that fail, and what links do to frames


def two_ways() -> Lab:
    """Host 1 at switch 0, host 2 at switch 1, and two trunks between these: cables 0 and 1, 2 and 3."""
    return Lab(Cabling((0, 1), ((0, 1), (0, 1)), host_mbps=8_000, trunk_mbps=8_000))


def test_a_link_that_fails_loses_what_is_there_and_others_take_over() -> None:
    lab = two_ways()
    for _ in range(10):
        lab.send(1, 2, flow=0)
    lab.net.events.run(3 * US)  # some are in front of trunk 2, one is on it
    trunk = lab.net.links[2][0]
    waiting = len(trunk.queues[0])
    assert lab.net.set_link(2, False)
    assert not lab.net.set_link(2, False)
    lab.end()
    assert set(lab.lost) == {LINK_DOWN}
    assert waiting < lab.lost[LINK_DOWN] <= waiting + 2
    assert len(lab.got) == 10 - lab.lost[LINK_DOWN]
    assert lab.net.links[3][0].counters.frames_sent > 0


def test_a_link_that_is_back_carries_frames_again_and_nobody_is_paused() -> None:
    lab = two_ways()
    port = lab.net.links[0][1]
    port.paused_until_ps[0] = 1 << 60
    assert lab.net.set_link(0, False)
    lab.send(1, 2)
    assert lab.lost == {LINK_DOWN: 1}
    assert lab.net.set_link(0, True)
    lab.send(1, 2)
    lab.end()
    assert len(lab.got) == 1


def test_without_any_link_to_a_host_there_is_no_way() -> None:
    lab = two_ways()
    for link in (2, 3):
        lab.net.set_link(link, False)
    lab.send(1, 2)
    lab.end()
    assert lab.lost == {NO_WAY: 1}


def test_pauses_end_with_the_link_that_they_were_for() -> None:
    cabling = Cabling((0, 0), host_mbps=8_000, slow=((2, 80),))
    lab = Lab(cabling, buffer_bytes=60_000, queue_bytes=60_000, pausing=Pausing(6_000, 3_000))
    for _ in range(40):
        lab.send(1, 2)
    lab.net.events.run(200 * US)
    assert lab.net.hosts[1].port.paused_until_ps[0] > lab.net.events.now_ps
    lab.net.set_link(0, False)
    lab.net.set_link(0, True)
    lab.send(1, 2)
    lab.end()
    assert set(lab.lost) == {LINK_DOWN}
    assert len(lab.got) + lab.lost[LINK_DOWN] == 41


class Doubling:
    """Each frame comes out twice, the second copy a microsecond later; the third and fourth never."""

    def __init__(self) -> None:
        self.count = 0

    def carry(self, frame: Frame, now_ps: int) -> list[int]:
        self.count += 1
        return [now_ps, now_ps + US] if self.count < 3 else []


def test_what_a_link_does_to_frames_befalls_them() -> None:
    lab = Lab(star(2))
    lab.net.links[0][1].carrier = Doubling()  # by which host 1 sends
    for _ in range(4):
        lab.send(1, 2)
    lab.end()
    assert [(host, frame.hops) for host, frame, _ in lab.got] == [(2, 2)] * 4
    assert lab.net.links[1][1].counters.frames_received == 4


@pytest.mark.parametrize("hops", [MOST_HOPS, MOST_HOPS + 1])
def test_a_frame_has_so_many_hops(hops: int) -> None:
    lab = Lab(star(2))
    frame = Frame(1, 2, 1_000)
    frame.hops = hops
    switch = lab.net.switches[0]
    switch.arrived(switch.ports[0], frame, 0)
    lab.end()
    assert (len(lab.got), lab.lost) == ((1, {}) if hops == MOST_HOPS else (0, {LOOP: 1}))


def test_copies_are_as_their_frame() -> None:
    frame = Frame(1, 2, 1_000, priority=3, ecn=CE, flow=5, content="content", group=frozenset({2, 3}))
    frame.hops = 7
    copy = frame.copy()
    for name in set(Frame.__slots__) - {"entered"}:
        assert getattr(copy, name) == getattr(frame, name), name


def test_who_was_paused_goes_on_in_the_priority_that_was() -> None:
    settings = {"buffer_bytes": 60_000, "queue_bytes": 60_000, "pausing": Pausing(8_000, 4_000, (3,))}
    lab = Lab(star(5), **settings)
    flood(lab, 4, 100, 5, priority=3)
    lab.end()
    assert (len(lab.got), lab.lost) == (400, {})
    assert lab.got[-1][2] < 430 * US


def test_a_sender_is_paused_beyond_so_many_bytes() -> None:
    lab = Lab(star(2), pausing=Pausing(3_000, 1_000))
    switch = lab.net.switches[0]
    pausing = switch.settings.pausing
    assert pausing is not None
    for length, paused in ((3_000, False), (1, True)):
        switch._enter(pausing, switch.ports[0], 0, length, 0)
        assert switch._held[0].paused[0] is paused


def test_pauses_that_were_not_sent_end_with_the_link() -> None:
    lab = Lab(star(2))
    port = lab.net.hosts[1].port
    lab.send(1, 2)  # it is on the wire
    port.pause(0, 5, 0)
    port.take_down(0)
    port.bring_up()
    lab.end()
    assert port.counters.pauses_sent == 1
    assert lab.net.toward(1).counters.pauses_received == 0


def test_how_long_a_port_was_paused_counts_each_moment_once() -> None:
    """At 8 Gb/s a quantum is 64 ns; a pause that is told again begins anew."""
    lab = Lab(star(2))
    port = lab.net.hosts[1].port
    quanta_ps = 100 * QUANTUM_BITS * 1_000_000 // port.mbps
    port.fire(PAUSED, (0, 100), 0)
    port.fire(PAUSED, (0, 100), quanta_ps // 2)
    assert port.counters.paused_ps == quanta_ps + quanta_ps // 2
    port.fire(PAUSED, (0, 0), quanta_ps)  # half of it was left
    assert port.counters.paused_ps == quanta_ps
    port.fire(PAUSED, (0, 100), 3 * quanta_ps)
    assert port.counters.paused_ps == 2 * quanta_ps


def test_a_pause_that_was_on_a_link_that_failed_is_not_heard() -> None:
    lab = Lab(star(2))
    port = lab.net.hosts[1].port
    port.take_down(0)
    port.fire(PAUSED, (0, 100), 1)
    assert (port.counters.pauses_received, port.counters.paused_ps) == (0, 0)
