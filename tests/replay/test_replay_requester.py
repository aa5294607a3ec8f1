"""The work requests behind captured traffic against the captured replies of the Linux kernel's SoftRoCE: our
requester sends what the kernel's sent."""

import sys

import pytest
from replay_differences import REPLAYED, expected
from replay_memory import ATOMICS, UNTOUCHED
from replay_world import RequesterReplay

from softhca.queues import cqe, wqe
from softhca.transport.states import ERR, RTS

CASES = [(name, direction) for name, plan in REPLAYED.items() for direction in range(plan.directions)]
every_direction = pytest.mark.parametrize(("name", "direction"), CASES)
COMPLETIONS = {
    wqe.RDMA_WRITE: cqe.WC_RDMA_WRITE,
    wqe.RDMA_WRITE_WITH_IMM: cqe.WC_RDMA_WRITE,
    wqe.SEND: cqe.WC_SEND,
    wqe.SEND_WITH_IMM: cqe.WC_SEND,
    wqe.SEND_WITH_INV: cqe.WC_SEND,
    wqe.RDMA_READ: cqe.WC_RDMA_READ,
    wqe.ATOMIC_CMP_AND_SWP: cqe.WC_COMP_SWAP,
    wqe.ATOMIC_FETCH_AND_ADD: cqe.WC_FETCH_ADD,
}


@pytest.fixture
def replay():
    made = []

    def make(name, direction):
        made.append(RequesterReplay(name, direction))
        return made[-1].run()

    yield make
    for each in made:
        each.pair.close()


@every_direction
def test_requests_are_the_captured_ones(replay, name, direction):
    done = replay(name, direction)
    due = expected(name, done.talk.requests, True)
    assert [sent.record for sent in done.sent] == [record for _, record in due]
    for sent, (number, _) in zip(done.sent, due, strict=True):
        assert sent.place <= number, "later than the kernel"


@every_direction
def test_every_work_request_completes_once_in_order(replay, name, direction):
    done = replay(name, direction)
    messages = done.talk.messages
    statuses = [cqe.WC_REM_ACCESS_ERR if m.refused else cqe.WC_SUCCESS for m in messages]
    completions = done.pair.left.sent()
    assert [c.wr_id for c in completions] == [m.psn for m in messages]
    assert [c.status for c in completions] == statuses
    assert [c.opcode for c in completions] == [COMPLETIONS[m.opcode] for m in messages]
    assert done.pair.left.qp.state == (ERR if any(statuses) else RTS)
    assert done.pair.left.received() == []
    done.pair.run()  # what nobody acknowledges stands in the window for a while
    done.pair.at_rest()


@every_direction
def test_reads_and_atomics_bring_the_captured_bytes(replay, name, direction):
    done = replay(name, direction)
    for message, data in done.buffers:
        due = message.original.to_bytes(8, sys.byteorder) if message.opcode in ATOMICS else message.data
        assert data[: len(due)] == due
        assert set(data[len(due) :]) == {UNTOUCHED}


def test_after_an_rnr_nak_nothing_is_sent_before_its_delay_is_over(replay):
    done = replay("rnr", 0)
    start_ns = done.start_ns
    naks = [p.time_ns for p in done.talk.replies if p.syndrome == 0x20 | 14]
    again = [s.now_ns - start_ns for s in done.sent if s.record["opcode"] == "RC_SEND_FIRST"][1:]
    assert len(naks) == 15
    assert again == [moment + 1_280_000 for moment in naks]


def test_a_time_out_sends_again_after_twice_the_interval_of_the_attribute(replay):
    done = replay("loss5", 0)
    first, again = (s.now_ns for s in done.sent if s.record["psn"] == 0x9C049F)
    last_progress = next(p.time_ns for p in done.talk.packets if p.number == 150) + done.start_ns
    assert first < last_progress
    assert again == last_progress + 2 * (4096 << 14)


@pytest.mark.parametrize(("name", "counts"), [
    ("loss5", {"retransmissions": 5, "timeouts": 1, "implied_naks": 1, "naks_received": 3}),
    ("rnr", {"rnr_naks_received": 15, "timeouts": 0, "retransmissions": 0}),
    ("mix", {"retransmissions": 0, "timeouts": 0, "implied_naks": 0, "ghost_acks": 0}),
])  # fmt: skip
def test_what_went_wrong_is_counted(replay, name, counts):
    counters = replay(name, 0).pair.left.qp.counters
    assert {counter: getattr(counters, counter) for counter in counts} == counts
