"""Worlds whose packets go through switches: links that fail, and oracles that notice."""

import json

import pytest

from softhca.fabric.switching.credits import CreditReceiver
from softhca.fabric.switching.fabric import SwitchedFabric
from softhca.simulation import fabric_paths
from softhca.simulation.fabric_paths import LAYOUTS, RULES
from softhca.simulation.runner import run_world
from softhca.simulation.scenarios import SCENARIOS
from softhca.simulation.trace import Trace

NAMES = ("incast", "segment-switch", "link-failure-under-load")


def events(name, seed):
    """The lines of a world's trace."""
    lines = []
    outcome = run_world(name, seed, trace=Trace(lambda line: lines.append(json.loads(line))))
    assert outcome.violations == ()
    return lines


@pytest.mark.parametrize("name", NAMES)
def test_a_seed_says_all_that_happens(name):
    assert run_world(name, 3) == run_world(name, 3)
    assert run_world(name, 3).digest != run_world(name, 4).digest


def test_each_layout_is_used():
    assert {scenario.switches for scenario in SCENARIOS.values()} - {""} == set(LAYOUTS)


def test_a_link_that_fails_loses_packets_and_programs_go_on():
    seen = [events("link-failure-under-load", seed) for seed in (1, 2, 3)]
    for lines in seen:
        kinds = [line["event"] for line in lines]
        assert kinds.index("link down") < kinds.index("link up")
    lost = [line for lines in seen for line in lines if line["event"] == "lost"]
    assert {line["reason"] for line in lost} == {"link down"}


def test_a_switch_keeps_all_that_it_is_sent():
    assert not [line for line in events("incast", 2) if line["event"] == "lost"]


def broken_rules(name, seeds=range(1, 5)):
    return {found.rule for seed in seeds for found in run_world(name, seed).violations}


def test_segments_that_break_up_are_noticed(monkeypatch):
    real = fabric_paths._WatchedOrder.pop

    def pop(self, now_ps, blocks):
        real(self, now_ps, blocks)
        self._open = None

    monkeypatch.setattr(fabric_paths._WatchedOrder, "pop", pop)
    assert RULES[1] in broken_rules("segment-switch")


class Silent(CreditReceiver):
    """It never tells of room that has become free."""

    def limit(self, vl):
        return self.advertised[vl]


class SilentFabric(SwitchedFabric):
    """Port 4 of each switch is silent."""

    def __init__(self, *arguments, **named):
        super().__init__(*arguments, **named)
        for switch in self.switches.values():
            port = switch.ports[4]
            before, port.receiver = port.receiver, Silent(port.settings.buffer_blocks, port.settings.lanes)
            port.receiver.advertised = list(before.advertised)


def test_credits_that_do_not_come_back_are_noticed(monkeypatch):
    monkeypatch.setattr(fabric_paths, "SwitchedFabric", SilentFabric)
    assert RULES[0] in broken_rules("incast")
