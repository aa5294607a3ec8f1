"""Worlds whose switches are managed: the master dies, the standby takes over, and oracles notice if not."""

from __future__ import annotations

import importlib.util
import json

import pytest

from softhca.simulation.runner import ScenarioError, find_scenario, run_world
from softhca.simulation.trace import Trace

pytest.importorskip("scipy", reason="numpy and scipy: pip install 'softhca[fabric]'")

from softhca.fabric.manager.manager import FabricManager
from softhca.simulation.fabric_managers import RULES, TAKEOVER_NS, FabricManagers

NAME = "manager-failover"


def broken_rules(seeds=(1,)):
    return {found.rule for seed in seeds for found in run_world(NAME, seed).violations}


def test_the_standby_takes_over_while_links_fail_and_programs_go_on():
    lines = []
    outcome = run_world(NAME, 3, trace=Trace(lambda line: lines.append(json.loads(line))))
    assert outcome.violations == ()
    assert outcome.digest == run_world(NAME, 3).digest
    times = {}
    for line in lines:
        times.setdefault(line["event"], []).append(line["time_ns"])
    assert len(times["link down"]) == len(times["link up"]) == 2
    (death,) = times["manager dies"]
    assert times["link down"][0] <= death <= times["link down"][1] <= death + TAKEOVER_NS
    assert times["manager took over"] == [death + TAKEOVER_NS]
    assert min(times["link up"]) > death + TAKEOVER_NS
    assert max(times["sent"]) > death  # there is traffic while no master is there


def test_a_standby_that_never_takes_over_is_noticed(monkeypatch):
    monkeypatch.setattr(FabricManager, "_poll", lambda self: None)
    assert RULES[0] in broken_rules()


def test_tables_that_lead_nowhere_are_noticed(monkeypatch):
    real = FabricManagers._write

    def write(self):
        if not self._tables:
            real(self)

    monkeypatch.setattr(FabricManagers, "_write", write)
    assert RULES[1] in broken_rules()


def test_a_manager_that_hears_no_trap_and_never_looks_is_noticed(monkeypatch):
    monkeypatch.setattr(FabricManager, "_trap", lambda self, data, lid: None)
    monkeypatch.setattr(FabricManager, "_light_sweep", lambda self: None)
    assert RULES[1] in broken_rules()


def test_what_is_not_installed_is_named(monkeypatch):
    real = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *more: None if name == "scipy" else real(name, *more)
    )
    with pytest.raises(ScenarioError, match=r"manager-failover.* needs scipy: pip install"):
        find_scenario(NAME)
    assert find_scenario("rc-mix").name == "rc-mix"
