"""The turns of an adapter in a process of its own, with an engine and a clock of the test's."""

import os

import pytest
from runtime_quiet import HoldingLink, QuietEngine

from softhca.driver.poll_back_off import CONTENDED_NS, PollBackOff
from softhca.machine.processor import Readable, yield_processor
from softhca.runtime.loop import NEVER, EngineLoop
from softhca.runtime.served_turns import ServedTurns

LIMIT_NS = 1_000
MOST = 4


class BusyEngine(QuietEngine):
    """Says in ``done`` when its doorbells are looked at, and that so many looks found something."""

    def __init__(self, done):
        super().__init__()
        self.done = done
        self.busy = 0

    def ring(self, now):
        self.done.append("turn")
        self.busy -= 1
        return self.busy >= 0


class Turns:
    """Turns of a `BusyEngine` at moments that the test counts; ``done`` says what came after what."""

    def __init__(self):
        self.done = []
        self.moment = 10
        self.pidfd = os.eventfd(0, os.EFD_NONBLOCK)
        self.link = HoldingLink()
        self.engine = BusyEngine(self.done)
        self.loop = EngineLoop(self.engine, (self.link,), lambda: None, sees_polls=False)
        self.back_off = PollBackOff(limit_ns=LIMIT_NS)
        self.back_off.worked(self.moment)
        self.turns = ServedTurns(self.loop, self.back_off, self.pidfd, lambda: self.done.append("dismiss"),
                                 lambda: self.done.append("notify"), MOST, lambda: self.moment)
        self.turns.yield_processor = lambda: self.done.append("yield")


@pytest.fixture
def served():
    made = Turns()
    yield made
    os.close(made.pidfd)
    os.close(made.link.fd)


def test_whose_process_has_ended_is_let_go_before_the_engine_works(served):
    served.turns.turn(20)
    assert served.done == ["turn"]
    os.eventfd_write(served.pidfd, 1)
    served.turns.turn(30)
    assert served.done == ["turn", "dismiss", "turn"]


def test_hosts_are_told_behind_a_turn_in_which_there_was_something_to_tell(served):
    served.turns.turn(20)
    served.loop.sleeper.on_event()
    served.turns.turn(30)
    served.turns.turn(40)
    assert served.done == ["turn", "turn", "notify", "turn"]


def test_others_are_let_run_behind_each_turn_in_vain_and_the_caller_looks_at_the_rest_once_in_a_while(served):
    served.engine.busy = 3
    assert served.turns.run() is False
    assert served.done == ["turn"] * MOST + ["yield"]
    assert served.back_off.worked_ns == 10
    del served.done[:]
    assert served.turns.run() is False
    assert served.done == ["turn", "yield"] * MOST


def test_turns_in_vain_for_long_enough_end_in_a_sleep_and_count_on(served):
    served.moment += LIMIT_NS - 1
    assert served.turns.run() is False
    served.moment += 1
    del served.done[:]
    for _ in range(MOST):
        assert served.turns.run() is True
    assert served.turns.run() is False, "whoever always falls asleep looks at the rest as well"
    assert served.done == ["turn"] * MOST


def test_who_let_others_run_for_long_sleeps_after_the_next_turn_in_vain(served):
    def held_up():
        served.done.append("yield")
        served.moment += CONTENDED_NS + 1

    served.back_off.limit_ns = NEVER
    served.turns.yield_processor = held_up
    assert served.turns.run() is True
    assert served.done == ["turn", "yield", "turn"]


def test_nobody_sleeps_when_something_that_is_held_back_is_due_soon(served):
    served.moment += LIMIT_NS
    served.link.due_ns = served.moment + 5
    assert served.turns.run() is False
    served.back_off.contended_until_ns = served.moment + 1
    assert served.turns.run() is True, "it may be late where others want to run"


def test_a_loop_that_is_dead_gets_no_turn(served):
    served.loop.dead = True
    assert served.turns.run() is False
    assert served.done == []


@pytest.mark.parametrize("where", ["dismiss", "notify"])
def test_what_a_call_raises_is_the_callers(served, where):
    def broken():
        raise RuntimeError(where)

    os.eventfd_write(served.pidfd, 1)
    served.loop.sleeper.on_event()
    calls = {"dismiss": list, "notify": list, where: broken}
    turns = ServedTurns(served.loop, served.back_off, served.pidfd, calls["dismiss"], calls["notify"], MOST)
    with pytest.raises(RuntimeError, match=where):
        turns.run()


def test_readable_asks_and_waits_for_nothing(served):
    readable = Readable(served.pidfd)
    assert readable() is False
    os.eventfd_write(served.pidfd, 1)
    assert readable() is True
    os.eventfd_read(served.pidfd)
    assert readable() is False
    assert yield_processor() is None
