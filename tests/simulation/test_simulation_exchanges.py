"""Worlds with XRC, ATOMIC WRITE and FLUSH: they keep the rules, and what breaks a rule is found."""

import json

import pytest

from softhca.simulation import exchanges
from softhca.simulation.exchanges import (
    ONCE,
    ORDER,
    PLACED,
    REFUSED,
    SUCCEEDS,
    UNTORN,
    WHOLE,
    Inbox,
    Line,
)
from softhca.simulation.kinds import ATOMIC_WRITE, FLUSH, OPCODES
from softhca.simulation.runner import run_world
from softhca.simulation.trace import Trace

NAMES = ("xrc-chaos", "native-xrc", "xrc-quit", "atomic-write-flush")


def rules_of(name, seed=1):
    return {found.rule for found in run_world(name, seed).violations}


@pytest.mark.parametrize("name", NAMES)
def test_the_rules_are_kept_and_what_must_fail_does(name):
    lines = []
    assert run_world(name, 2, "", Trace(lines.append)).violations == ()
    said = [each for each in map(json.loads, lines) if each["event"] == "line"]
    failed = [each["failed"] for each in said]
    assert any(failed) == (name != "xrc-chaos")
    assert not all(failed), "some lines have no offence, or are not concerned"


def replaced(monkeypatch, owner, name, change):
    plain = getattr(owner, name)
    monkeypatch.setattr(owner, name, lambda *words: change(plain, *words))


def test_messages_that_come_twice_changed_or_to_another_queue_are_found_out(monkeypatch):
    with monkeypatch.context() as patch:
        replaced(patch, Inbox, "_take", lambda take, *words: (take(*words), take(*words)))
        assert rules_of("native-xrc") == {ONCE}
    with monkeypatch.context() as patch:
        replaced(patch, Inbox, "_take",
                 lambda take, self, data, qp: take(self, data[:-1] + bytes([data[-1] ^ 1]), qp))  # fmt: skip
        assert rules_of("native-xrc") == {WHOLE}
    with monkeypatch.context() as patch:
        replaced(patch, Inbox, "_take",
                 lambda take, self, *words: take(self.program.inboxes[self.number - 1], *words))  # fmt: skip
        assert ONCE in rules_of("native-xrc")
    with monkeypatch.context() as patch:  # another connection's number
        replaced(patch, Inbox, "_take", lambda take, self, data, qp: take(self, data, qp + 1))
        assert WHOLE in rules_of("native-xrc")


def test_requests_that_never_complete_or_succeed_behind_an_error_are_found_out(monkeypatch):
    with monkeypatch.context() as patch:
        replaced(patch, Line, "request_completed",
                 lambda done, self, number, status: number and done(self, number, status))  # fmt: skip
        assert ORDER in rules_of("native-xrc")
    with monkeypatch.context() as patch:
        replaced(patch, Line, "request_completed",
                 lambda done, self, number, status: done(self, number, status % 5))  # fmt: skip
        assert ORDER in rules_of("xrc-quit")


def test_errors_without_a_cause_and_offences_that_succeed_are_found_out(monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(exchanges, "OFFENCES", dict.fromkeys(exchanges.OFFENCES, 99))
        assert SUCCEEDS in rules_of("native-xrc")
    with monkeypatch.context() as patch:
        replaced(patch, Line, "request_completed",
                 lambda done, self, number, status: done(self, number, 0))  # fmt: skip
        assert REFUSED in rules_of("native-xrc")


def test_what_goes_to_a_closed_queue_all_the_same_is_found_out(monkeypatch):
    def close(plain, self, now):
        self.closed_ns = now  # and nothing more

    replaced(monkeypatch, Inbox, "close_queue", close)
    replaced(monkeypatch, Inbox, "close", lambda close, self: None)
    replaced(monkeypatch, Line, "close", lambda close, self: None)
    monkeypatch.setattr(exchanges.ExchangeProgram, "close", lambda self: None)
    assert REFUSED in rules_of("xrc-quit")


def test_what_was_flushed_written_and_counted_is_looked_at(monkeypatch):
    def spoil(plain, self, *words):
        for inbox in self.inboxes:
            if self in inbox.boards:
                inbox.boards[self].view[:] = bytes(len(inbox.boards[self].view))
        plain(self, *words)

    for name, rule in (("request_completed", PLACED), ("judge", WHOLE)):
        with monkeypatch.context() as patch:
            replaced(patch, Line, name, spoil)
            assert rules_of("atomic-write-flush") == {rule}

    def miscount(judge, self, asked):
        self.counter.view[:] = b"\x7f" * 8
        judge(self, asked)

    with monkeypatch.context() as patch:
        replaced(patch, Inbox, "judge", miscount)
        assert rules_of("native-xrc") == {ONCE}


def test_words_that_are_torn_or_go_back_are_found_out(monkeypatch):
    def look(spoil):
        def turn(plain, self):
            worked = plain(self)
            for cell in self.cells.values():
                spoil(cell)
            return plain(self) or worked

        return turn

    def tear(cell):
        cell.view[0] ^= 0x80

    def forget(cell):
        cell.view[:] = bytes(8)

    for spoil, rule in ((tear, UNTORN), (forget, ORDER)):
        with monkeypatch.context() as patch:
            replaced(patch, Inbox, "turn", look(spoil))
            assert rule in rules_of("atomic-write-flush")


def test_an_atomic_write_that_is_lost_is_found_out(monkeypatch):
    def lose(judge, self):
        for inbox in self.inboxes:
            if self in inbox.cells:
                inbox.cells[self].view[:] = bytes(8)
        judge(self)

    replaced(monkeypatch, Line, "judge", lose)
    assert WHOLE in rules_of("atomic-write-flush")


def test_worlds_have_what_they_are_named_for():
    assert OPCODES[FLUSH] == 14
    assert OPCODES[ATOMIC_WRITE] == 15
    lines = []
    run_world("atomic-write-flush", 1, "", Trace(lines.append))
    opcodes = {each.get("opcode") for each in map(json.loads, lines)}
    assert {"RC_FLUSH", "RC_ATOMIC_WRITE"} <= opcodes
    lines = []
    run_world("native-xrc", 1, "", Trace(lines.append))
    assert any(str(each.get("opcode")).startswith("XRC_") for each in map(json.loads, lines))
