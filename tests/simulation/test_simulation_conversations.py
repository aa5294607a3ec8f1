"""Worlds of connections: handshakes end alike on both sides, data flow, and what breaks that is found."""

import json
from collections import Counter

import pytest

from softhca.adapter.config import AdapterConfig
from softhca.simulation import frames
from softhca.simulation.conversations import AGREED, ARRIVES, ESTABLISHED, OVER, THIS_CONNECTION, Side
from softhca.simulation.runner import run_world
from softhca.simulation.trace import Trace


def conversations_of(name, seed, faults=""):
    """What became of each conversation of a world."""
    lines = []
    outcome = run_world(name, seed, faults, Trace(lines.append))
    return outcome, [line for line in map(json.loads, lines) if line["event"] == "conversation"]


def test_handshakes_under_loss_end_alike_and_carry_data():
    ends = Counter()
    for seed in range(1, 6):
        outcome, conversations = conversations_of("cm-under-loss", seed)
        assert outcome.violations == ()
        assert len(conversations) == 24
        for each in conversations:
            assert each["states"] in ([ESTABLISHED] * 2, [OVER] * 2)
            ends[each["states"][0], each["received"] == [4, 4]] += 1
    assert ends[ESTABLISHED, True] > 20
    assert ends[OVER, True] > 20  # said all, and parted
    assert ends[OVER, False] > 5  # rejected


@pytest.mark.parametrize("faults", [
    "loss=40%", "corrupt=5%,truncate=2%", "crash=2@1.05ms..3ms", "crash=1@1.5ms..40ms,loss=1%",
    "partition=2>1@1ms..", "partition=1>2@1ms..40ms", "stall=200us/100us",
])  # fmt: skip
def test_worse_networks_and_adapters_that_die_break_no_rule(faults):
    for seed in (1, 2):
        outcome = run_world("cm-under-loss", seed, faults)
        assert outcome.violations == ()


def test_a_side_that_stays_behind_is_found_out(monkeypatch):
    told = Side._established
    monkeypatch.setattr(Side, "_established", lambda self: None if self.own else told(self))
    rules = {found.rule for found in run_world("cm-under-loss", 1).violations}
    assert AGREED in rules


def test_a_message_of_somebody_else_and_one_that_is_missing_are_found_out(monkeypatch):
    take = Side._take

    def other(self, length):
        self.place.view[self.depth * self._room] ^= self.index == 1
        if self.index != 2 or self.received < 2:
            take(self, length)

    monkeypatch.setattr(Side, "_take", other)
    rules = {found.rule for found in run_world("cm-under-loss", 1).violations}
    assert {THIS_CONNECTION, ARRIVES} <= rules


def test_delayed_packets_of_old_connections_do_no_harm_and_would_without_instance_numbers(monkeypatch):
    for seed in range(1, 4):
        outcome, conversations = conversations_of("stale-connection", seed)
        assert outcome.violations == ()
        assert sum(each["rounds"] for each in conversations) >= 5 * len(conversations)
    monkeypatch.setattr(
        frames, "AdapterConfig", lambda **config: AdapterConfig(**config, connection_instances=False)
    )
    for seed in range(1, 4):
        outcome = run_world("stale-connection", seed)
        assert THIS_CONNECTION in {found.rule for found in outcome.violations}
