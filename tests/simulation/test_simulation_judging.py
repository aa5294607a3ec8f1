"""What programs record, events that must and may be told, and what scenario and faults let happen."""

import random
from collections import Counter
from dataclasses import replace

import pytest
from changed_polls import altered, change_polls

from softhca.driver.cq import CqHandle
from softhca.links.faults import Crash, Faults
from softhca.queues.control_fields import (
    EVENT_QP_ACCESS_ERR,
    EVENT_QP_LAST_WQE_REACHED,
    EVENT_QP_REQ_ERR,
    EVENT_SQ_DRAINED,
    EVENT_SRQ_LIMIT_REACHED,
)
from softhca.simulation.arena import LENT
from softhca.simulation.conditions import Conditions
from softhca.simulation.endpoint import Receives
from softhca.simulation.host import Host
from softhca.simulation.kinds import (
    FLUSHED,
    REMOTE_ACCESS,
    REMOTE_OPERATION,
    RETRY_EXCEEDED,
    RNR_EXCEEDED,
    SUCCESS,
)
from softhca.simulation.node import Node
from softhca.simulation.oracle import CompletionOrder
from softhca.simulation.poller import Poller
from softhca.simulation.program import RECEIVE_BIT
from softhca.simulation.recorder import Recorder
from softhca.simulation.runner import run_world
from softhca.simulation.scenarios import SCENARIOS
from softhca.simulation.trace import Trace
from softhca.simulation.world import World

WITH_IMMEDIATE_WRITE = 129


def rules(name, seeds=range(1, 4), faults=""):
    return {found.rule for seed in seeds for found in run_world(name, seed, faults).violations}


def seen(monkeypatch, change):
    """Let every program see ``change(completion)``, where that is not None."""
    change_polls(monkeypatch, lambda found: [one for one in map(change, found) if one is not None])


# events


@pytest.mark.parametrize(("name", "kinds"), [
    ("rc-trespass", {EVENT_QP_ACCESS_ERR}),
    ("rc-trespass", {EVENT_QP_REQ_ERR}),
    ("rc-drain", {EVENT_SQ_DRAINED}),
    ("srq-quit", {EVENT_QP_LAST_WQE_REACHED}),
    ("srq", {EVENT_SRQ_LIMIT_REACHED}),
])  # fmt: skip
def test_an_event_that_is_not_told_is_missed(monkeypatch, name, kinds):
    hear = Node.hear

    def deaf(self):
        hear(self)
        self.events = Counter({event: n for event, n in self.events.items() if event[0] not in kinds})

    monkeypatch.setattr(Node, "hear", deaf)
    assert rules(name, range(1, 7)) == {"events report errors"}


def test_an_event_without_an_error_is_found(monkeypatch):
    hear = Node.hear

    def imagine(self):
        hear(self)
        self.events |= Counter((EVENT_QP_ACCESS_ERR, number) for number in self.engine.queue_pairs)

    monkeypatch.setattr(Node, "hear", imagine)
    assert rules("rc-mix", [1]) == {"events report errors"}


def test_an_error_that_is_told_by_two_events_is_found(monkeypatch):
    hear = Node.hear

    def twice(self):
        before = Counter(self.events)
        hear(self)
        self.events += self.events - before

    monkeypatch.setattr(Node, "hear", twice)
    assert rules("rc-trespass", range(1, 4)) == {"events report errors"}


def test_an_error_that_a_receive_tells_and_an_event_too_is_found(monkeypatch):
    """One that the receiver of malformed packets imagines beside the completion of its receive."""
    receive = CompletionOrder.receive

    def note(self, status, index=-1):
        good = receive(self, status, index)
        self.receive_error = 1
        return good

    monkeypatch.setattr(CompletionOrder, "receive", note)
    assert rules("rc-trespass", range(1, 4)) == {"events report errors"}


# what programs see


def test_a_completion_that_says_something_else_is_found(monkeypatch):
    seen(monkeypatch, lambda one: altered(one, opcode=one.opcode ^ 1))
    assert rules("rc-mix", [1]) == {"completions say what is done"}


def test_a_write_with_immediate_of_another_length_is_found(monkeypatch):
    def longer(one):
        return altered(one, byte_len=one.byte_len + (one.opcode == WITH_IMMEDIATE_WRITE))

    seen(monkeypatch, longer)
    assert rules("rc-mix", [1]) == {"every message unchanged"}


def test_a_receive_that_is_never_flushed_is_found(monkeypatch):
    seen(monkeypatch, lambda one: None if one.wr_id & RECEIVE_BIT and one.status == FLUSHED else one)
    assert rules("rc-quit") == {"everything flushes"}


def test_giving_up_after_few_losses_is_found(monkeypatch):
    def impatient(one):
        return altered(one, status=RETRY_EXCEEDED) if one.wr_id == 5 and one.status == SUCCESS else one

    seen(monkeypatch, impatient)
    assert "no error without cause" in rules("rc-loss")


def test_a_source_that_changes_is_found(monkeypatch):
    finish = Recorder.finish

    def spoil(self):
        at = next(
            sight.local
            for operation, sight in zip(self.end.operations, self.end.sights, strict=True)
            if operation.kind == "send" and operation.data
        )
        self.end.host.arena.memory[self.end.host.arena.at(at)] ^= 1
        finish(self)

    monkeypatch.setattr(Recorder, "finish", spoil)
    assert "sources unchanged" in rules("uc-mix", [1])


def test_a_write_into_a_region_that_was_taken_back_is_found(monkeypatch):
    check = Host.check_memory

    def spoil(self, counted):
        region = self.arena.regions[LENT]
        self.arena.memory[region.start + region.length - 1] ^= 1
        check(self, counted)

    monkeypatch.setattr(Host, "check_memory", spoil)
    assert "sources unchanged" in rules("rc-revoke", [1])


def test_a_solicited_receive_that_nobody_was_told_of_is_found(monkeypatch):
    def all_solicited(scenario, faults, dice):
        return Conditions(scenario, faults, armed=True, solicited=True)

    monkeypatch.setattr(Conditions, "draw", all_solicited)
    assert rules("rc-mix", [1]) == set()
    on_event = Poller._on_event
    monkeypatch.setattr(Poller, "_on_event", lambda self: None if self._solicited else on_event(self))
    make = CqHandle.__init__

    def blind(self, *arguments):
        make(self, *arguments)
        self.waiting = lambda: 0

    monkeypatch.setattr(CqHandle, "__init__", blind)
    assert "solicited events are reported" in rules("rc-mix", [1])


def test_a_receive_completes_once_and_after_it_was_posted():
    receives = Receives([], 4, posted=2)
    assert receives.complete(1)
    assert not receives.complete(1)
    assert not receives.complete(2)
    assert receives.taken == 1


# what may happen


def conditions(name="rc-mix", solicited=False, change=(), **faults):
    scenario = replace(SCENARIOS[name], **dict(change))
    return Conditions(scenario, Faults(**faults), solicited, solicited)


CRASHES = (Crash(1, 0, 1),)


@pytest.mark.parametrize("faults", [
    {"loss": 0.1}, {"burst_loss": 0.1}, {"corruption": 0.1}, {"truncation": 0.1}, {"crashes": CRASHES},
    {"flap_period_ns": 2, "flap_ns": 1}, {"receives": 1}, {"cq_entries": 1},
])  # fmt: skip
def test_where_something_may_vanish_requests_may_time_out(faults):
    assert conditions().lossless
    assert conditions().all_delivered
    assert RETRY_EXCEEDED not in conditions().legal(False)
    assert not conditions(**faults).lossless
    assert not conditions(**faults).all_delivered
    assert RETRY_EXCEEDED in conditions(**faults).legal(False)


def test_each_status_is_legal_only_where_it_has_a_cause():
    assert conditions().legal(suffers=False) == frozenset()
    assert conditions().legal(suffers=True) == {RETRY_EXCEEDED}
    assert conditions("rc-quit").legal(False) == {RETRY_EXCEEDED}
    assert conditions(stall_period_ns=2, stall_ns=1).legal(False) == {RETRY_EXCEEDED}
    assert conditions(receives=3).legal(False) == {RETRY_EXCEEDED, RNR_EXCEEDED}
    assert conditions(cq_entries=3).legal(False) == {RETRY_EXCEEDED, REMOTE_OPERATION}
    assert REMOTE_ACCESS in conditions("rc-revoke").legal(False)


@pytest.mark.parametrize(("faults", "late"), [
    ({}, False), ({"delay_ns": 1_048_576}, False), ({"delay_ns": 1_048_577}, True),
    ({"delay_ns": 10**6, "jitter_ns": 48_577}, True), ({"delay_ns": 10**6, "jitter_ns": 48_576}, False),
    ({"reorder_ns": 2_000_000}, False), ({"reorder_ns": 2_000_000, "reordering": 0.1}, True),
    ({"bandwidth_bytes_per_s": 10**9}, True),
])  # fmt: skip
def test_where_packets_may_be_later_than_a_timer_requests_may_time_out(faults, late):
    """The timer has 4.096 us * 2^8."""
    assert conditions(**faults).late == late
    assert (RETRY_EXCEEDED in conditions(**faults).legal(False)) == late
    assert conditions(**faults).lossless


def test_a_queue_in_which_packets_are_later_than_a_timer_excuses_who_gives_up():
    assert rules("rc-crowd", [970001], "loss=5%,bandwidth=12MB/s") == set()


@pytest.mark.parametrize("broken", [
    conditions("rc-quit"), conditions("rc-revoke"), conditions("rc-tampered"), conditions(cq_entries=1),
    conditions(crashes=CRASHES),
])  # fmt: skip
def test_where_queue_pairs_break_there_are_flushes_and_silence(broken):
    assert broken.flushable(suffers=False)
    assert not broken.needs_cause(offends=False, suffers=False)
    assert not broken.strict
    assert not broken.quiet


def test_who_is_disturbed_by_nobody_needs_a_cause_to_give_up():
    calm = conditions(loss=0.1)
    assert calm.needs_cause(offends=False, suffers=False)
    assert not calm.flushable(suffers=False)
    assert calm.flushable(suffers=True)
    assert not calm.needs_cause(offends=True, suffers=False)
    assert not calm.needs_cause(offends=False, suffers=True)
    assert not conditions(receives=1).needs_cause(False, False)


def test_the_wire_is_quiet_where_everybody_answers_in_time():
    calm, forged, late = conditions(), conditions("rc-forged"), conditions("rnr")
    few, stalled = conditions(receives=1), conditions(stall_period_ns=2, stall_ns=1)
    everything = (calm, forged, late, few, stalled)
    assert all(each.strict for each in everything)
    assert [each.quiet for each in everything] == [True, False, False, False, False]
    assert [each.steady for each in everything] == [True, True, True, True, False]
    assert not conditions("rc-trespass").strict
    assert not conditions(poll_ns=1).strict
    assert (few.rnr_retry, calm.rnr_retry) == (3, 7)


def test_order_and_repetition_are_of_the_network():
    plain, swapped, doubled = conditions(), conditions(reordering=0.1), conditions(duplication=0.1)
    assert [each.orderly for each in (plain, swapped, doubled)] == [True, False, False]
    assert [each.once for each in (plain, swapped, doubled)] == [True, True, False]


def test_a_program_that_sleeps_until_its_peer_calls_has_all_its_receives_posted():
    assert conditions(solicited=True).needs_all_receives
    assert conditions("uc-mix").needs_all_receives
    assert conditions("rc-trespass").needs_all_receives
    assert not conditions().needs_all_receives


def test_programs_that_poll_late_do_not_sleep():
    scenario = SCENARIOS["rc-mix"]
    for faults, ways in ((Faults(), {(False, False), (True, False), (True, True)}),
                         (Faults(poll_ns=1), {(False, False)})):  # fmt: skip
        drawn = [Conditions.draw(scenario, faults, random.Random(seed)) for seed in range(50)]
        assert {(one.armed, one.solicited) for one in drawn} == ways


def test_a_world_that_goes_on_for_ever_is_told_after_so_many_events_and_more_under_faults_of_ones_own():
    for patience, most in ((1, 10), (3, 30)):
        world, count = World("never", Faults(), Trace()), []
        world.patience = patience

        def again(here, count=count):
            count.append(1)
            here.at(here.now + 1, again, here)

        again(world)
        world.run(10, 10**9)
        assert [each.rule for each in world.report.violations] == ["worlds come to rest"]
        assert len(count) == most + 1
        world.close()
