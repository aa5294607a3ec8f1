"""Worlds with reliable datagrams: they keep the rules, and what breaks a rule is found."""

import dataclasses
import json

import pytest

from softhca.simulation import datagram_programs, node
from softhca.simulation.datagram_programs import (
    INDEPENDENT,
    ONCE,
    ORDER,
    SUCCEEDS,
    WHOLE,
    Channel,
    RdQueuePair,
)
from softhca.simulation.runner import run_world
from softhca.simulation.trace import Trace
from softhca.transport import rd_sending


def rules_of(name, seed=1):
    return {found.rule for found in run_world(name, seed).violations}


@pytest.mark.parametrize("name", ["rd-chaos", "native-rd", "rd-error-cache"])
def test_the_rules_are_kept(name):
    for seed in (1, 2, 3):
        lines = []
        assert run_world(name, seed, "", Trace(lines.append)).violations == ()
        said = [each for each in map(json.loads, lines) if each["event"] == "datagrams"]
        failed = sum(each["failed"] for each in said)
        assert bool(failed) == (name == "rd-error-cache")
        if name == "rd-error-cache":
            assert any(each["set_aside"] for each in said)


def test_without_an_error_cache_who_waits_is_found_out(monkeypatch):
    new = node._new_engine
    monkeypatch.setattr(
        node, "_new_engine",
        lambda config, **rest: new(dataclasses.replace(config, ee_error_cache=0), **rest),
    )  # fmt: skip
    assert INDEPENDENT in rules_of("rd-error-cache")


def test_a_datagram_that_comes_twice_or_changed_is_found_out(monkeypatch):
    take = RdQueuePair._take
    monkeypatch.setattr(RdQueuePair, "_take", lambda self, data: (take(self, data), take(self, data)))
    assert rules_of("rd-chaos") == {ONCE}
    monkeypatch.setattr(RdQueuePair, "_take", lambda self, content: take(self, content[:-1] + b"?"))
    assert rules_of("rd-chaos") >= {WHOLE}


def test_a_context_that_fails_and_was_not_told_of_is_found_out(monkeypatch):
    monkeypatch.setattr(Channel, "may_fail", lambda self, datagram: False)
    assert SUCCEEDS in rules_of("rd-error-cache")


def test_what_never_completes_or_in_another_order_is_found_out(monkeypatch):
    completed = RdQueuePair.request_completed
    monkeypatch.setattr(
        RdQueuePair, "request_completed",
        lambda self, number, status: number and completed(self, number, status),
    )  # fmt: skip
    assert ORDER in rules_of("rd-chaos")


def test_what_was_written_and_counted_is_looked_at(monkeypatch):
    judge = RdQueuePair.judge

    def spoiled(self):
        for board in self.boards.values():
            board.view[0] ^= 1
        self.counter.view[:] = b"\x7f" * datagram_programs.WORD_BYTES
        judge(self)

    monkeypatch.setattr(RdQueuePair, "judge", spoiled)
    assert {WHOLE, ONCE} <= rules_of("rd-chaos")


def test_statuses_are_those_of_the_transport():
    statuses = {datagram_programs.RETRY_EXCEEDED, datagram_programs.INVALID_EE_STATE}
    assert datagram_programs.EE_FAILED == statuses == rd_sending.EE_FAULTS
