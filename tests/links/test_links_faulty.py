"""Faults on a real link: which packets leave, when, in what bursts, and what is counted.

A recorder stands in for the link and time is a number; a script stands in for the dice where one certain
fate is wanted.
"""

import os
import random

import pytest

from softhca.links import fault_counters, faulty
from softhca.links.fault_counters import FaultCounters, counters_of, read_reports
from softhca.links.faults import Faults, FaultsError, Partition
from softhca.links.faulty import NEVER, RETRY_NS, FaultyLink, adapter_numbers, impaired, parse_faults
from softhca.links.impairment import PASSED, Delivery
from softhca.links.wrapped import WrappedLink
from softhca.wire.burst import Burst
from softhca.wire.framing import ROCE_V4
from softhca.wire.route import Route

AGAIN, SENT = 0, 1


def gid(host):
    return bytes(10) + b"\xff\xff" + bytes((127, 0, 0, host))


def route_to(host):
    return Route(ROCE_V4, gid(1), gid(host), source_port=0xC123)


ROUTE = route_to(2)


class Recorder:
    """A link that notes what it is given; ``answers`` are its first results."""

    framing = ROCE_V4
    address = "127.0.0.1"
    gid = gid(1)
    other = "kept"

    def __init__(self):
        self.answers = []
        self.objects = []
        self.bursts = []
        self.abandoned = []
        self.closed = 0

    def send(self, burst):
        result = self.answers.pop(0) if self.answers else SENT
        self.objects.append(burst)
        if result == SENT:
            stride = burst.stride or burst.length
            data = bytes(burst.data[: burst.length])
            segments = [data[at : at + stride] for at in range(0, len(data), stride)]
            assert burst.packets == len(segments)
            self.bursts.append((burst.route, segments))
        return result

    def abandon(self, burst):
        self.abandoned.append(burst)

    def counters(self):
        return {"datagrams_sent": 5}

    def close(self):
        self.closed += 1

    @property
    def segments(self):
        return [segment for _, segments in self.bursts for segment in segments]


def last_of_gid(address):
    return address[-1]


class Bench:
    """A faulty link over a recorder, and the clock."""

    def __init__(self, faults="", number=last_of_gid):
        self.now = 1_000
        self.link = Recorder()
        self.faulty = FaultyLink(self.link, parse_faults(faults), number, lambda: self.now)

    def send(self, segments, route=ROUTE):
        return self.faulty.send(burst_of(segments, route))

    def counts(self):
        return {name: number for name, number in self.faulty.fault_counters.as_dict().items() if number}


def burst_of(segments, route=ROUTE):
    burst = Burst()
    data = b"".join(segments)
    burst.buffer[: len(data)] = data
    burst.length, burst.stride, burst.packets, burst.route = len(data), len(segments[0]), len(segments), route
    return burst


def packets(count, length=100, start=0):
    return [bytes([start + number]) * length for number in range(count)]


@pytest.fixture
def scripted(monkeypatch):
    """A bench whose packets meet the fates that ``fates`` names by the packet's first byte."""
    fates = {}
    thrown = []

    class Script:
        def __init__(self, faults, seed, source, destination):
            pass

        def send(self, data, now):
            thrown.append(data[0])
            fate = fates.get(data[0], [(0, None, PASSED)])
            return [Delivery(now + late, data if new is None else new, what) for late, new, what in fate]

    monkeypatch.setattr(faulty, "Impairment", Script)
    made = Bench()
    made.fates = fates
    made.thrown = thrown
    return made


def held(late):
    return [(late, None, "reordered")]


def delayed(late):
    return [(late, None, PASSED)]


# What leaves


def test_a_burst_that_nothing_touches_is_handed_on_as_it_is(scripted):
    burst = burst_of(packets(5))
    assert scripted.faulty.send(burst) == SENT
    assert scripted.link.objects == [burst]
    assert scripted.counts() == {"packets": 5}


def test_a_burst_without_stride_is_one_packet(scripted):
    burst = burst_of(packets(1))
    burst.stride = 0
    assert scripted.faulty.send(burst) == SENT
    assert scripted.thrown == [0]
    scripted.fates[0] = []
    assert scripted.faulty.send(burst) == SENT
    assert scripted.counts() == {"packets": 2, "lost": 1}


def test_what_a_loss_leaves_of_a_burst_is_one_burst(scripted):
    scripted.fates[1] = []
    sent = [*packets(4), bytes([4]) * 30]
    assert scripted.send(sent) == SENT
    assert scripted.link.bursts == [(ROUTE, [sent[0], *sent[2:]])]
    assert scripted.counts() == {"packets": 5, "lost": 1}


def test_of_a_burst_that_is_lost_nothing_leaves(scripted):
    scripted.fates.update({0: [], 1: []})
    assert scripted.send(packets(2)) == SENT
    assert scripted.link.objects == []
    assert scripted.counts() == {"packets": 2, "lost": 2}


def test_a_damaged_packet_keeps_its_place(scripted):
    scripted.fates[1] = [(0, b"x" * 100, "corrupted")]
    scripted.send(packets(3))
    assert [segments for _, segments in scripted.link.bursts] == [[b"\0" * 100, b"x" * 100, b"\2" * 100]]
    assert scripted.counts() == {"packets": 3, "corrupted": 1}


def test_a_shortened_packet_ends_a_burst(scripted):
    scripted.fates[1] = [(0, b"x" * 37, "truncated")]
    scripted.send(packets(4))
    assert [[len(segment) for segment in segments] for _, segments in scripted.link.bursts] == [
        [100, 37], [100, 100],
    ]  # fmt: skip
    assert scripted.counts() == {"packets": 4, "truncated": 1}


def test_a_longer_packet_behind_a_short_one_begins_a_burst(scripted):
    scripted.fates[0] = [(0, b"x" * 37, "truncated")]
    scripted.send(packets(2))
    assert [len(segment) for _, (segment,) in scripted.link.bursts] == [37, 100]


def test_a_packet_that_is_cut_to_nothing_does_not_leave(scripted):
    scripted.fates.update({0: [(0, b"", "truncated")], 1: [(50, b"", "truncated")]})
    scripted.send(packets(3))
    assert scripted.link.segments == [b"\2" * 100]
    assert scripted.counts() == {"packets": 3, "truncated": 2, "delayed": 1}
    assert scripted.faulty.next_deadline() == NEVER


def test_a_second_copy_without_delay_follows_at_once(scripted):
    scripted.fates[0] = [(0, None, PASSED), (0, None, "duplicated")]
    scripted.send(packets(2))
    assert scripted.link.segments == [b"\0" * 100, b"\0" * 100, b"\1" * 100]
    assert scripted.counts() == {"packets": 2, "duplicated": 1}


def test_a_burst_is_not_packed_beyond_its_buffer(scripted):
    scripted.fates.update({number: [(0, None, PASSED), (0, None, "duplicated")] for number in range(9)})
    scripted.send(packets(9, 7_000))
    assert [len(segments) for _, segments in scripted.link.bursts] == [9, 9]
    assert scripted.link.segments == [packet for packet in packets(9, 7_000) for _ in range(2)]


# What leaves later


def test_a_late_packet_leaves_when_it_is_due_and_not_before(scripted):
    scripted.fates[1] = held(500)
    scripted.send(packets(3))
    assert scripted.link.segments == [b"\0" * 100, b"\2" * 100]
    assert scripted.faulty.next_deadline() == 1_500
    assert scripted.faulty.expire(1_499) is False
    assert len(scripted.link.segments) == 2
    assert scripted.faulty.expire(1_500) is True
    assert scripted.link.segments[2:] == [b"\1" * 100]
    assert scripted.faulty.next_deadline() == NEVER
    assert scripted.faulty.expire(9_999) is False
    assert scripted.counts() == {"packets": 3, "reordered": 1}


def test_only_what_is_delayed_and_nothing_else_counts_as_delayed(scripted):
    scripted.fates.update({0: delayed(5), 1: [(0, None, PASSED), (5, None, "duplicated")], 2: held(5),
                           3: [(5, b"x", "corrupted")]})  # fmt: skip
    scripted.send(packets(4))
    assert scripted.counts() == {
        "packets": 4, "duplicated": 1, "reordered": 1, "corrupted": 1, "delayed": 2,
    }  # fmt: skip


def test_late_packets_leave_in_the_order_of_their_moments_and_then_of_sending(scripted):
    scripted.fates.update({0: held(30), 1: held(20), 2: held(20), 3: held(10)})
    scripted.send(packets(4))
    scripted.faulty.expire(2_000)
    assert [segment[0] for segment in scripted.link.segments] == [3, 1, 2, 0]


def test_late_packets_of_one_route_leave_in_one_burst_and_of_two_in_two(scripted):
    scripted.fates.update({number: held(10) for number in range(4)})
    other = route_to(3)
    scripted.send(packets(2))
    scripted.send(packets(1, start=2), other)
    scripted.send(packets(1, start=3))
    scripted.faulty.expire(2_000)
    assert [(route, len(segments)) for route, segments in scripted.link.bursts] == [
        (ROUTE, 2), (other, 1), (ROUTE, 1),
    ]  # fmt: skip


def test_late_packets_fill_a_burst_to_its_last_byte(scripted):
    length = Burst().capacity // 8
    assert 8 * length == Burst().capacity
    scripted.fates.update({number: held(10) for number in range(9)})
    scripted.send(packets(8, length))
    scripted.send(packets(1, length, start=8))
    scripted.faulty.expire(2_000)
    assert [len(segments) for _, segments in scripted.link.bursts] == [8, 1]


def test_nothing_overtakes_a_packet_that_is_due(scripted):
    scripted.fates[0] = held(100)
    scripted.send(packets(1))
    scripted.now += 100
    scripted.send(packets(1, start=1))
    assert [segment[0] for segment in scripted.link.segments] == [0, 1]


def test_a_packet_that_is_not_due_yet_is_overtaken(scripted):
    scripted.fates[0] = held(100)
    scripted.send(packets(1))
    scripted.now += 99
    scripted.send(packets(1, start=1))
    assert [segment[0] for segment in scripted.link.segments] == [1]


def test_a_turn_is_bounded_and_a_sender_waits_for_the_rest(scripted, monkeypatch):
    monkeypatch.setattr(faulty, "TURN_PACKETS", 2)
    scripted.fates.update({number: held(10) for number in range(5)})
    scripted.send(packets(5))
    scripted.now += 10
    burst = burst_of(packets(1, start=9))
    assert scripted.faulty.send(burst) == AGAIN
    assert len(scripted.link.segments) == 2
    assert 9 not in scripted.thrown
    assert scripted.faulty.next_deadline() <= scripted.now
    assert scripted.faulty.expire(scripted.now)
    assert len(scripted.link.segments) == 4
    assert scripted.faulty.send(burst) == SENT
    assert [segment[0] for segment in scripted.link.segments] == [0, 1, 2, 3, 4, 9]


@pytest.mark.parametrize(
    ("name", "limit"), [("MAX_WAITING_PACKETS", 3), ("MAX_WAITING_BYTES", 201), ("MAX_WAITING_BYTES", 300)]
)
def test_what_waits_is_bounded_and_the_rest_is_dropped_and_counted(scripted, monkeypatch, name, limit):
    monkeypatch.setattr(faulty, name, limit)
    scripted.fates.update({number: held(10) for number in range(6)})
    scripted.send(packets(5))
    assert scripted.counts() == {"packets": 5, "reordered": 3, "overflowed": 2}
    assert scripted.thrown == [0, 1, 2]
    scripted.faulty.expire(2_000)
    assert len(scripted.link.segments) == 3
    scripted.send(packets(1, start=5))
    assert scripted.counts()["overflowed"] == 2
    assert scripted.faulty.next_deadline() == 1_010


def test_a_burst_for_which_there_is_no_room_at_all_is_dropped_whole(scripted, monkeypatch):
    monkeypatch.setattr(faulty, "MAX_WAITING_PACKETS", 1)
    scripted.fates[0] = held(10)
    scripted.send(packets(1))
    scripted.send(packets(2, start=1))
    assert scripted.counts() == {"packets": 3, "reordered": 1, "overflowed": 2}
    assert scripted.link.segments == []


def test_a_moment_beyond_all_time_is_never(scripted):
    scripted.fates[0] = delayed(1 << 70)
    scripted.send(packets(1))
    assert scripted.faulty.next_deadline() == NEVER


# A link without room


def test_a_whole_burst_without_room_is_given_again_and_meets_its_dice_once(scripted):
    scripted.fates[9] = held(10)
    scripted.send(packets(1, start=9))
    scripted.link.answers = [AGAIN, AGAIN]
    burst = burst_of(packets(2))
    assert scripted.faulty.send(burst) == AGAIN
    scripted.now += 100
    assert scripted.faulty.next_deadline() == NEVER
    assert scripted.faulty.expire(scripted.now) is False
    assert scripted.faulty.send(burst) == AGAIN
    assert scripted.faulty.send(burst) == SENT
    assert scripted.link.objects == [burst] * 3
    assert scripted.thrown == [9, 0, 1]
    assert scripted.faulty.next_deadline() == 1_010
    assert scripted.faulty.send(burst) == SENT
    assert scripted.thrown == [9, 0, 1, 0, 1]


def test_what_is_left_of_a_burst_waits_for_room_and_holds_the_next_burst_back(scripted):
    scripted.fates[0] = []
    scripted.link.answers = [AGAIN, AGAIN, AGAIN]
    first = burst_of(packets(2))
    assert scripted.faulty.send(first) == SENT
    first.buffer[:200] = b"z" * 200  # its owner may use it again
    assert scripted.faulty.next_deadline() == scripted.now + RETRY_NS
    next_burst = burst_of(packets(1, start=5))
    assert scripted.faulty.send(next_burst) == AGAIN
    assert 5 not in scripted.thrown
    scripted.now += RETRY_NS
    assert scripted.faulty.expire(scripted.now) is False
    assert scripted.faulty.next_deadline() == scripted.now + RETRY_NS
    assert len({id(given) for given in scripted.link.objects}) == 1
    assert scripted.faulty.expire(scripted.now) is True
    assert scripted.faulty.next_deadline() == NEVER
    assert scripted.faulty.send(next_burst) == SENT
    assert [segment[0] for segment in scripted.link.segments] == [1, 5]


def test_an_error_of_the_link_ends_one_burst_only(scripted):
    scripted.fates[1] = [(0, b"x" * 37, "truncated")]
    scripted.link.answers = [-101]
    assert scripted.send(packets(3)) == SENT
    assert scripted.link.segments == [b"\2" * 100]
    scripted.link.answers = [-101]
    assert scripted.send(packets(1, start=7)) == -101


def test_a_burst_that_is_given_up_is_forgotten(scripted):
    scripted.link.answers = [AGAIN]
    burst = burst_of(packets(1))
    assert scripted.faulty.send(burst) == AGAIN
    scripted.faulty.abandon(burst_of(packets(1)))
    assert scripted.link.abandoned == []
    scripted.faulty.abandon(burst)
    assert scripted.link.abandoned == [burst]
    assert scripted.faulty.send(burst) == SENT
    assert scripted.thrown == [0, 0]


# The end


def test_closing_sends_what_still_waits(scripted, monkeypatch):
    monkeypatch.setattr(faulty, "TURN_PACKETS", 2)
    scripted.fates.update({number: held(10 * number) for number in range(5)})
    scripted.send(packets(5))
    scripted.faulty.close()
    assert [segment[0] for segment in scripted.link.segments] == [0, 1, 2, 3, 4]
    scripted.faulty.close()
    assert scripted.link.closed == 2
    assert len(scripted.link.segments) == 5


def test_closing_sends_what_waits_behind_a_burst_without_room(scripted):
    scripted.fates[0] = held(10)
    scripted.send(packets(1))
    scripted.link.answers = [AGAIN]
    scripted.send(packets(1, start=5))
    scripted.faulty.close()
    assert scripted.link.segments == [b"\0" * 100]


def test_closing_does_not_wait_for_room(scripted, monkeypatch):
    scripted.fates.update({0: held(10), 1: held(20)})
    scripted.send(packets(2))
    monkeypatch.setattr(faulty, "TURN_PACKETS", 1)
    scripted.link.answers = [AGAIN] * 100
    scripted.faulty.close()
    assert scripted.link.closed == 1
    assert scripted.faulty.next_deadline() == NEVER


def test_a_forked_child_leaves_what_waits_to_its_parent(scripted, monkeypatch):
    scripted.fates[0] = held(10)
    scripted.send(packets(1))
    monkeypatch.setattr(os, "getpid", lambda: -1)
    scripted.faulty.close()
    assert scripted.link.segments == []
    assert scripted.link.closed == 1


# The dice


def fates(bench, count=300, route=ROUTE):
    """The numbers of the packets that get through, each sent in a burst of its own."""
    before = len(bench.link.segments)
    for number in range(count):
        bench.send([number.to_bytes(4, "big") * 10], route)
    return [int.from_bytes(segment[:4], "big") for segment in bench.link.segments[before:]]


def test_the_fate_of_the_nth_packet_is_the_same_in_every_run_and_with_any_burst():
    one, other = Bench("loss=20%,seed=7"), Bench("loss=20%,seed=7")
    passed = fates(one)
    assert 200 < len(passed) < 280
    for at in range(0, 300, 10):
        other.send([number.to_bytes(4, "big") * 10 for number in range(at, at + 10)])
    assert [int.from_bytes(segment[:4], "big") for segment in other.link.segments] == passed


def test_each_destination_has_dice_of_its_own():
    bench, alone = Bench("loss=20%"), Bench("loss=20%")
    passed = fates(alone)
    third = route_to(3)
    first, second = [], []
    for _ in range(3):
        first.append(fates(bench, 100))
        second.append(fates(bench, 100, third))
    assert [number + 100 * turn for turn in range(3) for number in first[turn]] == passed
    assert first != second


def test_both_ends_have_dice_of_their_own_and_the_seed_changes_them():
    def end(here, there, seed):
        numbers = {gid(1): here, gid(2): there}
        return fates(Bench(f"loss=20%,seed={seed}", numbers.__getitem__))

    assert end(1, 2, 7) == end(1, 2, 7)
    assert len({tuple(end(*words)) for words in ((1, 2, 7), (2, 1, 7), (1, 3, 7), (1, 2, 8))}) == 4


def test_destinations_are_bounded(monkeypatch):
    monkeypatch.setattr(faulty, "MAX_DESTINATIONS", 2)
    bench = Bench("loss=20%")
    passed = fates(bench, 100)
    for host in (3, 4):
        fates(bench, 100, route_to(host))
    kept = fates(bench, 100, route_to(3))
    assert kept != fates(Bench("loss=20%"), 100, route_to(3))
    assert fates(bench, 100) == passed  # forgotten, so its dice begin anew
    kept = fates(bench, 100, route_to(4))
    assert kept != fates(Bench("loss=20%"), 100, route_to(4))


@pytest.mark.parametrize(("faults", "name"), [
    ("loss=10%", "lost"), ("duplicate=10%", "duplicated"), ("reorder=10%", "reordered"),
    ("corrupt=10%", "corrupted"), ("truncate=10%", "truncated"), ("burst=10%", "lost"),
])  # fmt: skip
def test_every_kind_of_fault_acts_and_is_counted(faults, name):
    bench = Bench(faults)
    sent = []
    for number in range(300):
        data = random.Random(number).randbytes(60)
        sent.append(data)
        bench.send([data])
        bench.now += 10
    bench.faulty.expire(NEVER)
    counts = bench.counts()
    touched = counts[name]
    assert counts == {"packets": 300, name: touched}
    assert 5 < touched < 200
    got = bench.link.segments
    strange = [segment for segment in got if segment not in sent]
    if name == "lost":
        assert len(got) == 300 - touched
        assert not strange
    elif name == "duplicated":
        assert len(got) == 300 + touched
        assert not strange
    elif name == "reordered":
        assert sorted(got) == sorted(sent)
        assert got != sent
    else:
        assert len(strange) == touched
        assert all((len(segment) == 60) == (name == "corrupted") for segment in strange)


def test_jitter_and_delay_keep_the_order_and_hold_everything():
    bench = Bench("delay=10us,jitter=20us")
    bench.send(packets(50, 20))
    assert bench.link.segments == []
    assert bench.counts() == {"packets": 50, "delayed": 50}
    assert 11_000 <= bench.faulty.next_deadline() < 31_001
    bench.faulty.expire(31_000)
    assert bench.link.segments == packets(50, 20)


def test_bandwidth_spaces_packets():
    bench = Bench("bandwidth=1MB/s")
    bench.send(packets(3))
    moments = []
    while (moment := bench.faulty.next_deadline()) != NEVER:
        moments.append(moment)
        bench.faulty.expire(moment)
    assert moments == [101_000, 201_000, 301_000]
    assert bench.link.segments == packets(3)


def test_a_partition_counts_from_the_making_of_the_link_and_cuts_its_direction():
    bench = Bench("partition=1>2@100ns..200ns,partition=1>4@50ns..")
    passed = []
    for moment in range(0, 300, 50):
        bench.now = 1_000 + moment
        for host in (2, 3, 4):
            before = len(bench.link.segments)
            bench.send(packets(1), route_to(host))
            if len(bench.link.segments) > before:
                passed.append((moment, host))
    cut = {(100, 2), (150, 2), *((moment, 4) for moment in range(50, 300, 50))}
    assert set(passed) == {(m, h) for m in range(0, 300, 50) for h in (2, 3, 4)} - cut


def test_a_flap_takes_both_directions_down_at_the_same_moments():
    def down(here, there):
        bench = Bench("flap=1us/100ns", {gid(1): here, gid(2): there}.__getitem__)
        lost = []
        for moment in range(5_000, 7_000, 10):
            bench.now = moment
            before = len(bench.link.segments)
            bench.send(packets(1))
            lost += [moment] * (len(bench.link.segments) == before)
        return lost

    assert len(down(1, 2)) == 20
    assert down(1, 2) == down(2, 1)


# The options


def test_a_real_link_has_no_delay_unless_it_is_given_one():
    assert parse_faults("loss=1%") == Faults(loss=0.01, delay_ns=0)
    assert parse_faults("delay=5us").delay_ns == 5_000
    assert parse_faults("partition=1>2@5ns..9ns").partitions == (Partition(1, 2, 5, 9),)


@pytest.mark.parametrize("text", ["skew=200ppm", "loss=1%,stall=10ms/1ms", "los=1%"])
def test_words_that_real_links_do_not_know_are_refused_with_those_that_they_do(text):
    with pytest.raises(FaultsError) as error:
        parse_faults(text)
    bad = text.split(",")[-1].split("=")[0]
    said, _, good = str(error.value).partition(": expected one of ")
    assert f"{bad!r}" in said
    assert ("simulated worlds only" in said) == (bad != "los")
    assert set(good.split(", ")) >= {"loss", "partition", "flap", "seed"}
    assert not {"skew", "stall"} & set(good.split(", "))


def test_adapters_are_numbered_by_their_place_among_the_peers():
    number = adapter_numbers("127.0.0.9, 127.0.0.2,nonsense,::5,127.0.0.9")
    assert [number(gid(9)), number(gid(2)), number(bytes(15) + b"\5")] == [1, 2, 4]
    unknown, other = number(gid(77)), number(gid(78))
    assert unknown > 250
    assert unknown != other
    assert number(bytes(15) + b"\1") > 250  # not adapter 1, whose number its address resembles


def test_a_link_is_left_alone_without_the_variable():
    link = Recorder()
    for variables in ({}, {"SOFTHCA_FAULTS": " "}):
        assert impaired(link, lambda: 0, variables) is link


def test_a_link_has_the_faults_and_the_number_that_the_environment_gives_it(tmp_path):
    variables = {
        "SOFTHCA_FAULTS": "loss=20%,seed=7", "SOFTHCA_PEERS": "127.0.0.2,127.0.0.1", "SOFTHCA_RANK": "1",
        "SOFTHCA_FAULTS_REPORTS": str(tmp_path),
    }  # fmt: skip
    bench = Bench()
    bench.faulty = impaired(bench.link, lambda: 5, variables)
    passed = fates(bench)
    assert passed == fates(Bench("loss=20%,seed=7", {gid(1): 2, gid(2): 1}.__getitem__))
    (report,) = read_reports(tmp_path.iterdir())
    assert (report.rank, report.address) == (1, "127.0.0.1")
    assert report.counts["packets"] == 300
    assert report.counts["lost"] == 300 - len(passed)


@pytest.mark.parametrize(("variables", "error"), [
    ({"SOFTHCA_FAULTS": "los=1%"}, FaultsError),
    ({"SOFTHCA_FAULTS": "loss=1%", "SOFTHCA_FAULTS_REPORTS": "/nowhere"}, OSError),
])  # fmt: skip
def test_a_link_that_cannot_have_its_faults_is_closed(variables, error):
    link = Recorder()
    with pytest.raises(error):
        impaired(link, lambda: 0, variables)
    assert link.closed == 1


def test_who_reorders_keeps_the_link_below_a_capture_from_counting():
    """Packets that leave in any order must not be made for places in bursts, however links are stacked."""
    recorder = Recorder()
    recorder.counts = True
    FaultyLink(WrappedLink(recorder), parse_faults("loss=1%"), last_of_gid, lambda: 0)
    assert recorder.counts is False


def test_all_else_is_the_links():
    bench = Bench("loss=100%")
    bench.send(packets(3))
    assert bench.faulty.other == "kept"
    assert bench.faulty.counters()["datagrams_sent"] == 5
    assert bench.faulty.counters()["faults_lost"] == 3
    assert bench.faulty.shown_counters() == {
        f"faults_{name}": number for name, number in bench.faulty.fault_counters.as_dict().items()
    }


# The counters


def test_reports_are_summed_by_rank_and_address_whether_their_makers_live_or_not(tmp_path):
    environment = {"SOFTHCA_FAULTS_REPORTS": str(tmp_path)}
    kept = []
    two = "2", "127.0.0.2"
    for rank, address in (("10", "127.0.0.3"), two, two, ("", "::1"), ("x", "::1")):
        counters = counters_of(address, environment | {"SOFTHCA_RANK": rank})
        counters.count("packets", 5)
        counters.count("lost")
        kept.append(counters)
    del kept[0]
    (tmp_path / "unknown").write_bytes(b"x")
    (tmp_path / "1_127.0.0.1_5_1.faults").write_bytes(b"short")
    for name in ("y_z_5_1.faults", "-1_z_5_1.faults", "²_z_5_1.faults"):
        (tmp_path / name).write_bytes(bytes(8 * len(fault_counters.NAMES)))
    reports = read_reports(sorted(tmp_path.iterdir()))
    assert [(one.rank, one.address, one.counts["packets"], one.counts["lost"]) for one in reports] == [
        (-1, "::1", 10, 2), (2, "127.0.0.2", 10, 2), (10, "127.0.0.3", 5, 1),
    ]  # fmt: skip
    assert str(reports[0]).startswith("faults of ::1: 10 packets: 2 lost, 0 duplicated, ")
    assert str(reports[1]).startswith("faults of rank 2 (127.0.0.2): 10 packets: 2 lost, ")
    assert "packets" not in str(reports[0]).partition("packets: ")[2]


def test_an_interface_s_name_ends_no_part_of_a_report(tmp_path):
    counters = counters_of("fe80::1%my_if", {"SOFTHCA_FAULTS_REPORTS": str(tmp_path), "SOFTHCA_RANK": "0"})
    counters.count("packets", 5)
    (report,) = read_reports(tmp_path.iterdir())
    assert (report.rank, report.address, report.counts["packets"]) == (0, "fe80::1%my-if", 5)
    assert str(report).startswith("faults of rank 0 (fe80::1%my-if): 5 packets: ")


def test_counters_without_a_file_begin_at_nothing():
    counters = FaultCounters()
    assert counters.as_dict() == dict.fromkeys(fault_counters.NAMES, 0)
    counters.count("lost", 3)
    assert counters.as_dict() == {**dict.fromkeys(fault_counters.NAMES, 0), "lost": 3}
    assert counters_of("127.0.0.1", {}).as_dict()["lost"] == 0
