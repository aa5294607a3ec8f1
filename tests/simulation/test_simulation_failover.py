"""Worlds whose ports fail: connections move, nothing is lost, and what breaks that is found."""

import json
from collections import Counter

import pytest

from softhca.simulation import failover
from softhca.simulation.failover import ARRIVES, MigratingEnd
from softhca.simulation.runner import run_world
from softhca.simulation.trace import Trace


def events_of(name, seed, faults=""):
    """A world's outcome, and its trace."""
    lines = []
    outcome = run_world(name, seed, faults, Trace(lines.append))
    return outcome, [json.loads(line) for line in lines]


@pytest.mark.parametrize("name", ["port-failover", "native-failover"])
def test_both_ends_move_at_each_failure_and_lose_nothing(name):
    reasons, known = Counter(), Counter()
    for seed in (1, 2):
        outcome, lines = events_of(name, seed)
        assert outcome.violations == ()
        assert {line["moves"] for line in lines if line["event"] == "traveller"} == {4}
        reasons.update(line["reason"] for line in lines if line["event"] == "path_migrated")
        known.update(line["known"] for line in lines if line["event"] == "port_failed")
        assert any(line.get("reason") == "cut" for line in lines)
    assert set(known) == {True, False}
    assert set(reasons) == {"path_failed", "peer_migrated"}
    assert sum(reasons.values()) == 2 * 4 * 4 * 2  # seeds, pairs, failures, ends


def test_a_connection_without_an_alternate_path_is_found_out(monkeypatch):
    monkeypatch.setattr(MigratingEnd, "rearm", lambda self, port_number: None)
    rules = {found.rule for found in run_world("port-failover", 1).violations}
    assert ARRIVES in rules


def test_a_port_that_comes_back_late_is_found_out(monkeypatch):
    monkeypatch.setattr(failover, "AWAY_NS", 10 * failover.FAILURE_NS)
    assert ARRIVES in {found.rule for found in run_world("port-failover", 1).violations}
