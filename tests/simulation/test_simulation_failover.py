"""Worlds whose ports fail: connections move, nothing is lost, and what breaks that is found."""

import json
from collections import Counter

import pytest

from softhca.adapter import engine
from softhca.management.cm import messages as m
from softhca.simulation import failover
from softhca.simulation.failover import ARRIVES, MOVES, MigratingEnd
from softhca.simulation.path_proposals import PARTED, PROPOSED, ProposingEnd
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


def test_a_connection_that_faults_have_ended_is_told_by_its_requests():
    """None of its paths is armed again, which nobody can."""
    outcome = run_world("lap-failover", 970_001, "corrupt=20%,delay=200us")
    assert {found.rule for found in outcome.violations} <= {ARRIVES, MOVES, PARTED, PROPOSED}
    assert outcome.violations


def test_a_connection_without_an_alternate_path_is_found_out(monkeypatch):
    monkeypatch.setattr(MigratingEnd, "rearm", lambda self, port_number: None)
    rules = {found.rule for found in run_world("port-failover", 1).violations}
    assert ARRIVES in rules


def test_a_port_that_comes_back_late_is_found_out(monkeypatch):
    monkeypatch.setattr(failover, "AWAY_NS", 10 * failover.FAILURE_NS)
    assert ARRIVES in {found.rule for found in run_world("port-failover", 1).violations}


@pytest.mark.parametrize("name", ["lap-failover", "native-lap"])
def test_paths_that_were_proposed_are_taken_and_the_connection_ends_along_the_last(name):
    failures = 4 if name == "lap-failover" else 3
    for seed in (1, 2):
        outcome, lines = events_of(name, seed)
        assert outcome.violations == ()
        assert [line["moves"] for line in lines if line["event"] == "traveller"] == [failures] * 8
        assert sum(line["event"] == "port_failed" for line in lines) == failures
        cut = max(line["time_ns"] for line in lines if line["event"] == "port_failed")
        datagrams = [line for line in lines if line.get("qp") == 1 and line["time_ns"] > cut]
        # LAP, APR, DREQ and DREP of each connection, which are heard
        assert len({line["number"] for line in datagrams if line["event"] == "received"}) >= 4 * 4


def rules_of(name, seed=1):
    return {found.rule for found in run_world(name, seed).violations}


def test_a_path_that_nobody_loads_is_found_out(monkeypatch):
    monkeypatch.setattr("softhca.simulation.path_proposals.MOST_LOOKS", 3)
    monkeypatch.setattr("softhca.driver.services.load_alternate", lambda *arguments: None)
    assert PROPOSED in rules_of("lap-failover")


def test_a_path_that_is_refused_is_found_out(monkeypatch):
    def refuse(self, event, heard=ProposingEnd.heard_of):
        if event.alternate is None:
            heard(self, event)
        else:
            self.program.channel.answer_path(event.id, m.APR_REJECTED)

    monkeypatch.setattr("softhca.simulation.path_proposals.MOST_LOOKS", 3)
    monkeypatch.setattr(ProposingEnd, "heard_of", refuse)
    assert PROPOSED in rules_of("lap-failover")


def test_goodbyes_along_the_path_that_is_gone_are_found_out(monkeypatch):
    monkeypatch.setattr(engine, "path_taken", lambda adapter, queue_pair: None)
    assert {PARTED, PROPOSED} & rules_of("lap-failover")
