"""Campaigns: order, counts, bounds and ends are the same whoever runs the worlds."""

import json
import os
import signal
from collections import deque

import pytest

from softhca.cli.main import main
from softhca.simulation import campaign
from softhca.simulation.campaign import CampaignError, Count, Local, Tally, run_campaign
from softhca.simulation.oracle import Violation
from softhca.simulation.runner import Outcome


def outcome(name, seed, violations=()):
    return Outcome(name, seed, "", 0, 10, "", tuple(violations))


@pytest.fixture
def no_worlds(monkeypatch):
    """Worlds cost nothing; "bad" with seed 20 breaks a rule.  Gives the list of those that ran."""
    ran = []

    def run_world(name, seed, faults):
        assert campaign._one_at_a_time.locked()
        ran.append((name, seed, faults))
        broken = [Violation(5, "a rule", "was broken")] if (name, seed) == ("bad", 20) else []
        return outcome(name, seed, broken)

    monkeypatch.setattr(campaign, "run_world", run_world)
    return ran


class Later:
    """Runs a chunk only when its outcomes are asked for, and counts what is on its way."""

    in_flight = 5

    def __init__(self):
        self.waiting = deque()
        self.most = 0
        self.entered = self.left = 0

    def __enter__(self):
        self.entered += 1
        return self

    def __exit__(self, *error):
        self.left += 1

    def submit(self, chunk):
        self.waiting.append(chunk)
        self.most = max(self.most, len(self.waiting))
        return self

    def result(self):
        return campaign.run_chunk(self.waiting.popleft())


def test_every_seed_of_every_scenario_runs_once_in_order(no_worlds):
    later = Later()
    tally = run_campaign(["a", "b"], range(1, 41), "loss=1%", later)
    assert no_worlds == [(name, seed, "loss=1%") for seed in range(1, 41) for name in ("a", "b")]
    assert {name: (count.worlds, count.packets) for name, count in tally.scenarios.items()} == {
        "a": (40, 400), "b": (40, 400),
    }  # fmt: skip
    assert (tally.worlds, tally.packets, tally.failures) == (80, 800, [])
    assert (later.most, later.entered, later.left) == (5, 1, 1)


def test_a_part_of_a_chunk_at_the_end_is_not_forgotten(no_worlds):
    assert run_campaign(["a"], range(campaign.CHUNK + 1), executor=Later()).worlds == campaign.CHUNK + 1
    assert run_campaign(["a"], range(3)).worlds == 3
    assert run_campaign(["a"], []).worlds == 0


@pytest.mark.parametrize("executor", [None, Later()])
def test_the_first_violation_is_the_last_world(no_worlds, executor):
    told = []
    seeds = range(1, 1000)
    tally = run_campaign(["a", "bad"], seeds, "loss=1%", executor, lambda now: told.append(now.worlds))
    assert (tally.worlds, tally.scenarios) == (40, {"a": Count(20, 200), "bad": Count(20, 200)})
    (failure,) = tally.failures
    assert (failure.scenario, failure.seed, failure.rules) == ("bad", 20, ("a rule",))
    assert failure.command == "softhca simulate --scenario bad --seed 20 --faults loss=1%"
    assert told == list(range(1, 41))
    if executor is not None:
        assert (executor.left, len(no_worlds) <= 40 + campaign.CHUNK) == (1, True)


def test_a_tally_says_times_but_is_equal_without_them():
    one, other = Tally(), Tally()
    for tally, seconds in ((one, 0.5), (other, 2.0)):
        tally.add(outcome("a", 1), "", seconds)
        tally.add(outcome("a", 2), "", seconds)
        tally.wall_s = seconds
    assert one == other
    document = other.document()
    assert document == {
        "worlds": 2, "packets": 20, "wall_s": 2.0, "violations": 0, "failures": [],
        "scenarios": {"a": {"worlds": 2, "packets": 20, "wall_s": 4.0, "packets_per_s": 5}},
    }  # fmt: skip
    other.add(outcome("b", 2), "", 0)
    assert one != other


def test_the_time_of_each_world_is_taken(monkeypatch):
    clock = iter(range(100))
    monkeypatch.setattr(campaign.time, "perf_counter", lambda: next(clock))
    monkeypatch.setattr(campaign, "run_world", lambda name, seed, faults: outcome(name, seed))
    assert campaign.run_chunk((("a", 1, ""), ("a", 2, ""))) == [(outcome("a", 1), 1), (outcome("a", 2), 1)]


class Mortal(Local):
    """`Local` with one process, which is killed when the first chunk is done."""

    def submit(self, chunk):
        self.pids = list(self._pool._processes)
        return super().submit(chunk)


def test_when_a_process_is_killed_nobody_waits_for_it_for_ever():
    mortal, killed = Mortal(1), []

    def kill(tally):
        if not killed:
            killed.extend(mortal.pids)
            os.kill(killed[0], signal.SIGKILL)

    with pytest.raises(CampaignError, match="was killed or died"):
        run_campaign(["ud-mix"], range(10_000), executor=mortal, advance=kill)
    assert len(killed) == 1


def test_a_lost_campaign_is_exit_status_1(monkeypatch, capsys):
    def lost(*arguments):
        raise CampaignError("gone")

    monkeypatch.setattr(campaign, "run_campaign", lost)
    assert main(["campaign", "--seeds", "1"]) == 1
    assert capsys.readouterr().err == "softhca campaign: gone\n"


def test_the_table_and_the_summary_tell_each_scenario(tmp_path, capsys):
    summary = tmp_path / "summary.json"
    words = ("campaign", "--seeds", "1..2", "--scenario", "ud-mix", "uc-mix", "--jobs", "1")
    assert main([*words, "--summary", str(summary)]) == 0
    table = capsys.readouterr().out
    document = json.loads(summary.read_text())
    assert (document["worlds"], document["violations"]) == (4, 0)
    assert "4 worlds, 0 violations" in table
    for name, count in document["scenarios"].items():
        (row,) = [line for line in table.splitlines() if name in line]
        cells = [cell.strip() for cell in row.strip("│|").split("│")]
        assert cells == [name, *(str(count[key]) for key in ("worlds", "packets", "packets_per_s", "wall_s"))]
        assert count["packets_per_s"] == pytest.approx(count["packets"] / count["wall_s"], rel=0.1)


def test_a_summary_that_cannot_be_written_stops_before_any_world(no_worlds, capsys):
    assert main(["campaign", "--seeds", "1", "--jobs", "1", "--summary", "/nowhere/s.json"]) == 1
    assert capsys.readouterr().err == "softhca campaign: /nowhere/s.json: No such file or directory\n"
    assert no_worlds == []


def test_processes_and_a_cluster_exclude_each_other(capsys):
    with pytest.raises(SystemExit) as exit_info:
        main(["campaign", "--seeds", "1", "--jobs", "2", "--dask", "127.0.0.1:8786"])
    assert exit_info.value.code == 2
    assert capsys.readouterr().err.count("\n") == 1
