"""RoCEv2 adapters share a bottleneck: two flows, a third joins and leaves; thirty-two to one."""

from __future__ import annotations

import pytest

from softhca.fabric.ethernet.settings import Marking, Pausing, SwitchSettings
from softhca.simulation.contest import Contest, ContestSettings, jain
from softhca.transport.congestion import DcqcnSettings

MBPS = 8_000
FEW = DcqcnSettings(
    line_mbps=MBPS, gain=1 / 16, alpha_ns=20_000, increase_ns=40_000, increase_bytes=1 << 18,
    additive_mbps=100, hyper_mbps=200,
)  # fmt: skip


def test_fairness_is_measured_by_jains_index() -> None:
    assert jain([3, 3, 3]) == 1
    assert jain([1, 0]) == 0.5
    assert jain([0, 0]) == 1
    assert jain([4, 2]) == pytest.approx(0.9)


def test_two_flows_share_a_bottleneck_and_a_third_joins_and_leaves() -> None:
    marks = SwitchSettings(marking=Marking(40_000, 200_000, 0.1))
    contest = Contest(ContestSettings(3, marks, FEW, MBPS, 32_768, 2))
    contest.start(1)
    alone = contest.run(500)
    assert contest.load(alone, 500) > 0.85
    assert alone[1:] == [0, 0]
    contest.start(2)  # beside one that has it all
    contest.run(700)
    two = contest.run(1_200)
    assert jain(two[:2]) >= 0.95
    assert contest.load(two, 1_200) > 0.85
    contest.start(3)
    contest.run(1_000)
    three = contest.run(1_800)
    assert jain(three) >= 0.95
    assert contest.load(three, 1_800) > 0.85
    contest.stop(3)
    contest.run(700)
    again = contest.run(1_200)
    assert again[2] == 0
    assert jain(again[:2]) >= 0.95
    assert contest.load(again, 1_200) > 0.85  # they have taken its share
    assert min(contest.rates_mbps()[:2]) < MBPS
    contest.finish()
    counters = contest.counters()
    assert 0 < counters["cnps_sent"] == counters["cnps_received"] + counters["cnps_ignored"]
    assert counters["frames_lost"] == counters["retransmissions"] == contest.errors == 0
    assert contest.ethernet.fabric.stuck() == []
    contest.close()


def test_thirty_two_to_one_do_not_collapse_where_senders_are_paused() -> None:
    pausing = Pausing(15_000, 8_000)
    settings = SwitchSettings(2 << 20, 2 << 20, Marking(), pausing)
    contest = Contest(ContestSettings(32, settings, DcqcnSettings(line_mbps=MBPS), MBPS, 16_384, 2))
    for sender in range(1, 33):
        contest.start(sender)
    contest.run(600)
    shares = contest.run(900)
    assert contest.load(shares, 900) > 0.8
    assert jain(shares) >= 0.9
    counters = contest.counters()
    assert counters["frames_lost"] == counters["timeouts"] == contest.errors == 0
    assert counters["pauses"] > 32
    assert counters["cnps_sent"] > 32
    contest.close()


def test_with_short_queues_and_nothing_else_thirty_two_to_one_lose_much() -> None:
    contest = Contest(ContestSettings(32, SwitchSettings(200_000, 200_000, None), None, MBPS, 16_384, 2))
    for sender in range(1, 33):
        contest.start(sender)
    contest.run(500)
    shares = contest.run(700)
    counters = contest.counters()
    assert counters["frames_lost"] > 100
    assert jain(shares) < 0.9
    assert contest.rates_mbps() == [MBPS] * 32
    contest.close()
