"""Worlds on Ethernet switches: what they suffer, and what the oracle of congestion control notices."""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from typing import Any

import pytest

from softhca.adapter.engine import Adapter
from softhca.fabric.ethernet.network import EthernetNetwork
from softhca.simulation import ethernet_paths, node, world
from softhca.simulation.ethernet_paths import DCQCN, LAYOUTS, RULES, EthernetPaths
from softhca.simulation.oracle import Report
from softhca.simulation.oracle_congestion import RULES as CONGESTION_RULES
from softhca.simulation.oracle_congestion import CongestionOracle
from softhca.simulation.runner import run_world
from softhca.simulation.scenarios import SCENARIOS
from softhca.simulation.trace import Trace
from softhca.transport.congestion import DcqcnSettings

NAMES = [name for name, scenario in SCENARIOS.items() if scenario.ethernet]
MARKS_TOLD, INTERVAL, FORMAT, CAPABLE, RATES = CONGESTION_RULES


def test_each_layout_is_used() -> None:
    assert {SCENARIOS[name].ethernet for name in NAMES} == set(LAYOUTS)


@pytest.mark.parametrize("name", ["lossy-incast", "pfc-incast"])
def test_a_seed_says_all_that_happens(name: str) -> None:
    assert run_world(name, 2) == run_world(name, 2)
    assert run_world(name, 2).digest != run_world(name, 3).digest


def watched(name: str, seed: int, monkeypatch: pytest.MonkeyPatch) -> tuple[Any, Counter[str], Any]:
    """A world, why it lost packets, and itself."""
    worlds = []

    def paths(made: Any, layout: str, dice: Any) -> EthernetPaths:
        worlds.append(made)
        return EthernetPaths(made, layout, dice)

    monkeypatch.setattr(world, "EthernetPaths", paths)
    lines: list[dict[str, Any]] = []
    outcome = run_world(name, seed, trace=Trace(lambda line: lines.append(json.loads(line))))
    lost = Counter(line["reason"] for line in lines if line["event"] == "lost")
    return outcome, lost, worlds[0]


def test_short_queues_lose_packets_and_programs_do_not_notice(monkeypatch: pytest.MonkeyPatch) -> None:
    found = [watched("lossy-incast", seed, monkeypatch) for seed in (1, 2, 3)]
    assert all(outcome.violations == () for outcome, _, _ in found)
    assert sum(lost["queue full"] for _, lost, _ in found) > 10
    assert found[0][2].congestion is None


@pytest.mark.parametrize("name", ["ecn-incast", "ecn-uc", "pfc-incast"])
def test_marks_slow_senders_down(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    marked = told = slowed = 0
    for seed in (1, 2):
        outcome, lost, made = watched(name, seed, monkeypatch)
        assert outcome.violations == ()
        assert not lost["queue full"]
        marked += made.congestion.marked
        told += made.congestion.told
        slowed += made.congestion.slowed
    assert marked > told > 10
    assert slowed > 30 or name == "ecn-uc"  # where all has left before anybody tells of anything


def test_switches_pause_senders(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses = 0
    for seed in (1, 2):
        _, lost, made = watched("pfc-incast", seed, monkeypatch)
        assert not lost
        pauses += sum(port.counters.pauses_sent for port in made.ethernet.network.ports())
    assert pauses > 4


# what the oracles notice


def broken_rules(name: str, seeds: range = range(1, 5)) -> set[str]:
    """Of the first seed that breaks any."""
    for seed in seeds:
        found = {violation.rule for violation in run_world(name, seed).violations}
        if found:
            return found
    return set()


@pytest.mark.parametrize(("changes", "rule"), [
    ({"notify_ns": DCQCN.notify_ns // 2}, INTERVAL),
    ({"notify_ns": 2 * DCQCN.notify_ns}, MARKS_TOLD),
    ({"cut_ns": 20 * DCQCN.cut_ns}, RATES),
    ({"gain": 0.9}, RATES),
    ({"increase_ns": DCQCN.increase_ns // 2}, RATES),
    ({"additive_mbps": 20 * DCQCN.additive_mbps, "fast_stages": 0}, RATES),
    ({"least_mbps": 5_000.0}, RATES),
])  # fmt: skip
def test_adapters_with_other_numbers_than_they_say_are_noticed(
    changes: dict[str, float], rule: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    layout = LAYOUTS["marks"]
    other = dataclasses.replace(DCQCN, **changes)  # type: ignore[arg-type]
    monkeypatch.setitem(LAYOUTS, "marks", dataclasses.replace(layout, dcqcn=other))
    monkeypatch.setattr(world, "CongestionOracle", lambda report, _: CongestionOracle(report, DCQCN))
    assert rule in broken_rules("ecn-incast") <= {rule, RATES}


def test_adapters_without_congestion_control_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def plain(config: Any, **more: Any) -> Adapter:
        return Adapter(dataclasses.replace(config, congestion=None), **more)

    monkeypatch.setattr(node, "_new_engine", plain)
    assert broken_rules("ecn-incast", range(1, 2)) == {CAPABLE}


def test_pauses_that_come_too_late_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    layout = LAYOUTS["marks and pauses"]
    short = dataclasses.replace(layout.settings, queue_bytes=10_000)
    monkeypatch.setitem(LAYOUTS, "marks and pauses", dataclasses.replace(layout, settings=short))
    assert broken_rules("pfc-incast") == {RULES[1]}


def test_what_is_left_in_a_switch_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(EthernetNetwork, "stuck", lambda self: ["a byte is left"])
    assert broken_rules("lossy-incast", range(1, 2)) == {RULES[0]}


class Told:
    """An oracle by itself: queue pair 5 of adapter 1 talks to 6 of adapter 2."""

    def __init__(self, **changes: float) -> None:
        self.report = Report()
        numbers = DcqcnSettings(**{"line_mbps": 8_000, "notify_ns": 1_000, "cut_ns": 1_000,
                                   "alpha_ns": 10**9, "increase_ns": 10**9, **changes})  # type: ignore[arg-type]
        self.oracle = CongestionOracle(self.report, numbers)
        self.oracle.connect((1, 5), (2, 6))
        self.oracle.connect((2, 6), (1, 5))
        self.burst = 0

    def data(self, now: int, length: int = 1_000, ecn: int = 2, burst: int = 0, code: int = 4) -> None:
        """From adapter 1 to adapter 2."""
        self.burst += 1
        packet = bytes((code, 0x40, 0xFF, 0xFF, 0, 0, 0, 6)) + bytes(length - 8)
        assert self.oracle.sent(now, 2, packet, ecn, burst or self.burst) is False

    def cnp(self, now: int, *, change: int = -1, traffic_class: int = 0xC0, length: int = 32) -> None:
        """From adapter 2 to adapter 1."""
        packet = bytearray((0x81, 0, 0xFF, 0xFF, 0x40, 0, 0, 5)) + bytes(length - 8)
        if change >= 0:
            packet[change] ^= 1
        assert self.oracle.sent(now, 1, bytes(packet), traffic_class, 0) is True

    def mark(self, now: int, alive: bool = True) -> None:
        """A marked packet comes to adapter 2."""
        self.oracle.arrives(now, 2, bytes((4, 0, 0, 0, 0, 0, 0, 6)) + bytes(8), 3, alive)

    def slow(self, now: int) -> None:
        """A notification comes to adapter 1."""
        self.oracle.arrives(now, 1, bytes((0x81, 0, 0, 0, 0x40, 0, 0, 5)) + bytes(24), 0xC0, True)

    @property
    def rules(self) -> list[str]:
        return [found.rule for found in self.report.violations]


def test_a_mark_is_told_of_at_once() -> None:
    told = Told()
    told.mark(100)
    told.cnp(100)
    told.oracle.settled(100, 2)
    told.mark(1_099)  # too soon for another one
    told.oracle.settled(1_099, 2)
    told.mark(1_100)
    told.cnp(1_100)
    told.oracle.settled(1_100, 2)
    assert told.rules == []
    told.mark(5_000)
    told.oracle.settled(5_000, 1)  # another adapter
    assert told.rules == []
    told.oracle.settled(5_000, 2)
    assert told.rules == [MARKS_TOLD]


def test_who_is_not_alive_need_not_tell() -> None:
    told = Told()
    told.mark(100, alive=False)
    told.oracle.settled(100, 2)
    assert told.rules == []
    assert told.oracle.marked == 0


def test_a_notification_without_a_mark_or_too_soon_is_noticed() -> None:
    told = Told()
    told.cnp(100)
    assert told.rules == [MARKS_TOLD]
    told.mark(1_000)
    told.cnp(1_000)
    assert told.rules == [MARKS_TOLD, INTERVAL]


@pytest.mark.parametrize("change", [1, 2, 3, 4, *range(8, 28)])
def test_every_byte_of_a_notification_is_looked_at(change: int) -> None:
    told = Told()
    told.mark(100)
    told.cnp(100, change=change)
    assert told.rules == [FORMAT]


@pytest.mark.parametrize("wrong", [
    {"traffic_class": 2}, {"traffic_class": 0}, {"length": 28}, {"length": 36},
])  # fmt: skip
def test_class_and_length_of_a_notification_are_looked_at(wrong: dict[str, int]) -> None:
    told = Told()
    told.mark(100)
    told.cnp(100, **wrong)  # type: ignore[arg-type]
    assert told.rules == [FORMAT]


@pytest.mark.parametrize("ecn", [0, 1, 3])
def test_what_is_sent_is_capable_of_marks(ecn: int) -> None:
    told = Told()
    told.data(100, ecn=ecn)
    assert told.rules == [CAPABLE]


def test_a_rate_is_kept() -> None:
    told = Told()
    told.data(0)
    told.data(1)  # nothing has slowed it down
    told.slow(100_000)  # to 4 Gb/s: half a byte a nanosecond
    told.data(100_000, 1_954, burst=99)
    told.data(100_000, 954, burst=99)  # of one burst
    took = 2 * (1_954 + 954 + 2 * 46)
    told.data(100_000 + took)
    assert told.rules == []
    told.data(100_000 + took + 2 * 1_046 - 10)
    assert told.rules == [RATES]
    assert "10 ns too early at 4000 Mb/s" in told.report.violations[0].text


def test_answers_need_not_wait_and_do_not_count() -> None:
    told = Told()
    told.slow(100_000)
    told.data(100_000, 4_954)
    for now in range(100_001, 109_000, 100):
        told.data(now, 20, code=0x11)
        told.data(now, 28, code=0x12)
    told.data(110_000)
    assert told.rules == []


def test_queue_pairs_that_nobody_told_of_are_not_looked_at() -> None:
    told = Told()
    packet = bytes((4, 0x40, 0xFF, 0xFF, 0, 0, 0, 9)) + bytes(20)
    assert told.oracle.sent(1, 2, packet, 0, 1) is False
    told.oracle.arrives(1, 2, packet, 3, True)
    told.oracle.settled(1, 2)
    assert told.oracle.sent(1, 2, b"\x81" + packet[1:], 0, 1) is True
    assert told.rules == []


def test_the_oracle_knows_nothing_of_the_transport() -> None:
    source = (ethernet_paths.__file__ or "").replace("ethernet_paths", "oracle_congestion")
    with open(source) as text:
        imports = [line for line in text if line.startswith(("from softhca", "import softhca"))]
    assert imports == ["from softhca.simulation.oracle import Report\n"]
