"""What a sender waits for: every cell of the tables, as a sender behaves."""

import pytest

from softhca.queues import wqe
from softhca.transport.acknowledgement import Sender
from softhca.transport.conditions import (
    ANSWERED,
    CONDITIONS,
    EVENTS,
    FRESH,
    IDLE,
    NOT_READY,
    READY,
    RECOVERIES,
    REFUSED,
    REFUSED_AGAIN,
    SENT_AGAIN,
    UNPLACED,
    WINDOW,
    conditions_that,
    recoveries_that,
)
from softhca.wire import opcodes

# The table in short: which conditions an event ends
ENDS = {
    "doorbell": "IDLE READY",
    "answer": "WINDOW READS CREDITS ORDER MEMORY STALLED",
    "credits": "IDLE READY WINDOW READS CREDITS ORDER MEMORY STALLED",
    "go_back": "IDLE READY WINDOW READS CREDITS ORDER MEMORY STALLED",
    "memory": "MEMORY UNPLACED",
    "delay": "NOT_READY",
    "persist": "WINDOW",
    "stall": "STALLED",
    "path": "WINDOW STALLED",
}
NAMES = [row.name for row in CONDITIONS]
SEQUENCE_NAK, RNR_NAK = 0x60, 0x21


def test_the_table_has_the_cells_of_the_list():
    assert set(ENDS) == set(EVENTS)
    for event, names in ENDS.items():
        assert [row.name for row in CONDITIONS if getattr(row, event)] == names.split()
    assert [row.name for row in CONDITIONS if not row.transmits] == ["NOT_READY", "UNPLACED"]
    assert conditions_that("delay") == 1 << NOT_READY
    assert recoveries_that("rnr_nak") == 0b11011
    assert len({row.waits_for for row in CONDITIONS}) == len(CONDITIONS)


class Bench:
    """A sender with four requests under way, of which none is answered."""

    def __init__(self, pair, first=wqe.RDMA_WRITE):
        self.p = p = pair(timeout=0)
        self.target, self.memory = p.right.region(64), p.left.region(8)
        for k in range(4):
            opcode = wqe.RDMA_WRITE if k else first
            p.left.post(opcode, [self.memory.sge()], remote=self.target, wr_id=k)
        while p.transmit(p.a):
            pass
        p.flying.clear()
        self.flow = p.left.qp.flow
        self.sender = p.left.qp.requester
        assert isinstance(self.sender, Sender)
        assert (self.sender.una_psn, self.sender.high_psn) == (0, 4)

    def put(self, condition):
        """The sender waits for that, and has asked for no turn."""
        self.sender.condition = condition
        self.sender.stalled_until_ns = self.p.now + 1_000_000_000
        self.p.a.queue.clear()
        self.flow.scheduled = False

    def event(self, name):
        return getattr(self, f"event_{name}")()

    def event_doorbell(self):
        self.p.left.qp.doorbell(self.p.now)

    def event_answer(self):
        self.p.forge(opcodes.RC_ACKNOWLEDGE, 0, way="ba", syndrome=31)

    def event_credits(self):
        self.p.forge(opcodes.RC_ACKNOWLEDGE, self.sender.una_psn - 1, way="ba", syndrome=5)

    def event_go_back(self):
        self.sender.rewind(False)

    def event_memory(self):
        self.flow.resume(self.p.now)

    def timer(self, never):
        """A deadline is over; in the condition ``never`` it would be another event's."""
        if self.sender.condition != never:
            self.sender.retry.persisting = self.sender.condition != NOT_READY
            self.sender.retry.deadline_ns = self.p.now
            self.flow.expire(self.p.now)

    def event_delay(self):
        self.timer(WINDOW)

    def event_persist(self):
        self.timer(NOT_READY)

    def event_stall(self):
        self.sender.stalled_until_ns = self.p.now
        self.flow.expire(self.p.now)

    def event_path(self):
        self.sender.leave_window()


@pytest.mark.parametrize("event", EVENTS)
@pytest.mark.parametrize("condition", range(len(CONDITIONS)), ids=NAMES)
def test_every_cell_ends_the_wait_or_leaves_it(pair, condition, event):
    bench = Bench(pair)
    bench.put(condition)
    bench.event(event)
    ends = CONDITIONS[condition].name in ENDS[event].split()
    assert bench.sender.condition == (READY if ends else condition)
    assert bench.flow.scheduled == ends
    assert bench.sender.has_work() == (bench.sender.condition == READY)


@pytest.mark.parametrize("condition", range(len(CONDITIONS)), ids=NAMES)
def test_a_turn_sends_where_the_condition_lets_it(pair, condition):
    bench = Bench(pair)
    p = bench.p
    p.left.post(wqe.RDMA_WRITE, inline=b"y", remote=bench.target, wr_id=9, ring=False)
    bench.put(condition)
    p.a.schedule(bench.flow)
    sent = len(p.log)
    assert p.transmit(p.a)
    transmits = condition not in (NOT_READY, UNPLACED)
    assert len(p.log) - sent == transmits
    assert bench.sender.condition == (IDLE if transmits else condition)


@pytest.mark.parametrize("condition", [WINDOW, NOT_READY, UNPLACED], ids=NAMES.__getitem__)
def test_who_has_a_place_in_the_window_goes_on_waiting_there(pair, condition):
    bench = Bench(pair)
    window = bench.flow.window
    window.in_flight_bytes += window.limit_bytes
    window.wait(bench.flow, bench.p.now)
    bench.put(condition)
    bench.event({WINDOW: "answer", NOT_READY: "delay", UNPLACED: "memory"}[condition])
    assert bench.sender.condition == WINDOW
    assert not bench.flow.scheduled
    window.in_flight_bytes -= window.limit_bytes


NEWS = {
    "implied_nak": "FRESH REFUSED",
    "sequence_nak": "FRESH ANSWERED",
    "rnr_nak": "FRESH SENT_AGAIN REFUSED_AGAIN ANSWERED",
}
AFTER = {
    "implied_nak": [SENT_AGAIN, SENT_AGAIN, REFUSED_AGAIN, REFUSED_AGAIN, ANSWERED],
    "sequence_nak": [SENT_AGAIN, SENT_AGAIN, REFUSED, REFUSED_AGAIN, SENT_AGAIN],
    "rnr_nak": [REFUSED, REFUSED, REFUSED, REFUSED, REFUSED],
}


@pytest.mark.parametrize("news", NEWS)
@pytest.mark.parametrize("recovery", range(len(RECOVERIES)), ids=[row.name for row in RECOVERIES])
def test_what_is_new_of_the_oldest_packets_depends_on_what_became_of_them(pair, recovery, news):
    bench = Bench(pair, first=wqe.RDMA_READ)
    p, sender = bench.p, bench.sender
    name = RECOVERIES[recovery].name
    if news == "rnr_nak":
        sender.rewind(False)  # the oldest packet has not gone again
    sender.recovery = recovery
    bench.put(IDLE)
    if news == "implied_nak":
        p.forge(opcodes.RC_ACKNOWLEDGE, 1, way="ba", syndrome=31)  # what is behind the READ is acknowledged
    else:
        p.forge(
            opcodes.RC_ACKNOWLEDGE, 0, way="ba", syndrome=SEQUENCE_NAK if news == "sequence_nak" else RNR_NAK
        )
    new = name in NEWS[news].split()
    assert getattr(RECOVERIES[recovery], news) == new
    assert bench.flow.scheduled == new
    assert sender.recovery == (AFTER[news][recovery] if new else recovery)


def test_progress_makes_all_new(pair):
    for recovery in range(len(RECOVERIES)):
        bench = Bench(pair)
        bench.sender.recovery = recovery
        bench.event("answer")
        assert bench.sender.recovery == FRESH
