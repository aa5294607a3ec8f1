"""Worlds of disks: every block is what was written last, whatever fails; and judges that notice."""

import json

import pytest

from softhca.simulation.runner import run_world
from softhca.simulation.trace import Trace
from softhca.storage.disk import MemoryDisk
from softhca.storage.session import TargetSession


def hosts_of(name, seed, faults=""):
    """The outcome, and what each host says at the end."""
    lines = []
    outcome = run_world(name, seed, faults, Trace(lines.append))
    return outcome, [line for line in map(json.loads, lines) if line["event"] == "disk"]


@pytest.mark.parametrize("name", ["block-storage", "native-storage"])
def test_every_block_is_what_was_written_last_and_channels_came_and_went(name):
    logins = 0
    for seed in (1, 2):
        outcome, hosts = hosts_of(name, seed)
        assert outcome.violations == ()
        assert all(host["performed"] == 40 for host in hosts)
        logins += sum(host["logins"] - 1 for host in hosts)
    assert logins > 2


@pytest.mark.parametrize("faults", [
    "loss=20%", "partition=1>2@1ms..40ms", "partition=2>1@1.1ms..", "crash=2@1.05ms..3ms",
    "crash=1@1.1ms..30ms", "crash=1@1.2ms..",
])  # fmt: skip
def test_worse_networks_break_no_rule(faults):
    assert hosts_of("block-storage", 1, faults)[0].violations == ()


def rules(name="native-storage"):
    return {found.rule for seed in (1, 2) for found in run_world(name, seed).violations}


def test_a_disk_that_loses_a_byte_is_found_out(monkeypatch):
    honest = MemoryDisk.write_from
    monkeypatch.setattr(MemoryDisk, "write_from", lambda self, at, data: honest(self, at, data[:-1]))
    assert {"a read gives what was written last", "a disk holds what was written last"} <= rules()


def test_a_unit_that_answers_before_it_has_the_data_is_found_out(monkeypatch):
    def careless(self, task):
        task.state = "FETCHING"
        self._step(task, "ready")

    honest = TargetSession._proceed
    monkeypatch.setattr(
        TargetSession,
        "_proceed",
        lambda self, task: (
            careless(self, task) if task.moves and task.plan.direction == "to disk" else honest(self, task)
        ),
    )
    assert "a read gives what was written last" in rules()
