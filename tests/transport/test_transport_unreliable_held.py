"""Registered memory that is held (−EAGAIN) under UC and UD: who sends waits, who receives drops."""

import random

import pytest

from softhca.memory.tpt import TranslationTable
from softhca.queues import cqe, wqe
from softhca.transport.environment import MEMORY_RETRY_NS
from softhca.transport.states import ERR, RESET, RTS, SQD, UC, UD
from softhca.wire import opcodes as op

PMTU = 256
DATA = random.Random(6).randbytes(3 * PMTU)
QKEY = 0x1234
HELD = TranslationTable(1)
HELD.stopped = True


def until(p, condition):
    while not condition():
        assert p.step(), "it will never come"


@pytest.fixture
def joined(pair):
    """A pair of a service, with what its sends need."""

    def make(service, **settings):
        p = pair(service=service, pmtu=PMTU, **settings)
        p.to = {}
        if service == UD:
            p.to = {"ah": p.handle(p.left, p.right), "qpn": p.right.number, "qkey": QKEY}
        return p

    return make


@pytest.mark.parametrize("service", [UC, UD])
@pytest.mark.parametrize("told", [False, True])
def test_a_sender_waits_for_its_own_memory(joined, service, told):
    p = joined(service)
    front = 40 if service == UD else 0
    source, inbox = p.left.region(PMTU, fill=DATA[:PMTU]), p.right.region(front + PMTU)
    p.right.post_receive([inbox.sge()])
    p.a.data_access(False)
    start = p.now
    p.left.post(wqe.SEND, [source.sge()], **p.to)
    until(p, lambda: p.a.held)
    assert p.log == []
    assert p.left.sent() == []
    p.a.regions.tpt.stopped = False
    if told:
        p.a.data_access(True)
    until(p, lambda: inbox.data[front:] == DATA[:PMTU])
    assert p.now == start + p.DELAY_NS + (0 if told else MEMORY_RETRY_NS)
    p.run()
    assert [c.status for c in p.left.sent()] == [0]
    assert p.left.qp.state == RTS
    p.at_rest()


def test_a_uc_message_goes_on_where_its_memory_was_held(joined):
    p = joined(UC)
    there, missing = (
        p.left.region(2 * PMTU, fill=DATA[: 2 * PMTU]),
        p.left.region(PMTU, fill=DATA[2 * PMTU :]),
    )
    target = p.right.region(len(DATA))
    mine, missing.region.tpt = missing.region.tpt, HELD
    p.left.post(wqe.RDMA_WRITE, [there.sge(), missing.sge()], remote=target)
    until(p, lambda: p.a.held)
    for _ in range(20):
        p.step()
    assert [row["psn"] for row in p.decoded()] == [0, 1]
    missing.region.tpt = mine
    p.run()
    assert target.data == DATA
    assert [(row["psn"], row["ack_request"]) for row in p.decoded()] == [(0, False), (1, False), (2, False)]
    assert p.right.qp.counters.out_of_sequence == 0
    p.at_rest()


def test_other_datagrams_of_the_burst_go_in_front_of_one_that_is_held(joined):
    p = joined(UD)
    source = p.left.region(8)
    p.a.data_access(False)
    p.left.post(wqe.SEND, inline=b"first", wr_id=1, ring=False, **p.to)
    p.left.post(wqe.SEND, [source.sge()], wr_id=2, ring=False, **p.to)
    p.left.post(wqe.SEND, inline=b"third", wr_id=3, **p.to)
    until(p, lambda: p.a.held)
    for _ in range(20):
        p.step()
    assert [c.wr_id for c in p.left.sent()] == [1]
    p.a.data_access(True)
    p.run()
    assert [(c.wr_id, c.status) for c in p.left.sent()] == [(2, 0), (3, 0)]
    assert [row["psn"] for row in p.decoded()] == [0, 1, 2]


@pytest.mark.parametrize("opcode", [wqe.SEND, wqe.RDMA_WRITE, wqe.RDMA_WRITE_WITH_IMM])
@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_uc_message_that_meets_held_memory_is_lost_and_its_receive_serves_the_next(joined, opcode, place):
    p = joined(UC)
    target = p.right.region(len(DATA))
    p.right.post_receive([target.sge()], wr_id=9)
    first, middle, last = {
        wqe.SEND: (op.UC_SEND_FIRST, op.UC_SEND_MIDDLE, op.UC_SEND_LAST),
        wqe.RDMA_WRITE: (op.UC_RDMA_WRITE_FIRST, op.UC_RDMA_WRITE_MIDDLE, op.UC_RDMA_WRITE_LAST),
        wqe.RDMA_WRITE_WITH_IMM: (
            op.UC_RDMA_WRITE_FIRST, op.UC_RDMA_WRITE_MIDDLE, op.UC_RDMA_WRITE_LAST_WITH_IMMEDIATE
        ),
    }[opcode]  # fmt: skip
    remote = {"va": target.va, "rkey": target.key, "length": len(DATA)}
    for psn, code in enumerate((first, middle, last)):
        p.b.data_access(psn != place)
        p.forge(code, psn, DATA[psn * PMTU : (psn + 1) * PMTU], **remote)
    p.b.data_access(True)
    counters = p.right.qp.counters
    assert target.data == DATA[: place * PMTU] + bytes(len(DATA) - place * PMTU)
    assert (counters.drops_held, counters.drops_sequence) == (1, 2 - place)
    assert counters.out_of_sequence == 0
    assert p.right.received() == []
    p.forge(op.UC_SEND_ONLY, 3, b"next")
    (received,) = p.right.received()
    assert (received.wr_id, received.status, received.byte_len) == (9, 0, 4)
    assert target.data[:4] == b"next"
    assert p.right.qp.state == RTS


@pytest.mark.parametrize("part", ["all", "payload"])
def test_a_datagram_that_meets_held_memory_is_dropped_and_its_receive_serves_the_next(joined, part):
    p = joined(UD)
    front, back = p.right.region(40), p.right.region(100)
    p.right.post_receive([front.sge(), back.sge()], wr_id=9)
    held = [front, back] if part == "all" else [back]
    tables = [region.region.tpt for region in held]
    for region in held:
        region.region.tpt = HELD
    p.forge(op.UD_SEND_ONLY, 0, b"dropped")
    for region, table in zip(held, tables, strict=True):
        region.region.tpt = table
    assert p.right.qp.counters.drops_held == 1
    assert p.right.received() == []
    assert not any(back.data)
    p.forge(op.UD_SEND_ONLY, 1, b"taken")
    (received,) = p.right.received()
    assert (received.wr_id, received.status, received.byte_len) == (9, 0, 45)
    assert back.data[:5] == b"taken"
    assert p.right.qp.state == RTS


@pytest.mark.parametrize("service", [UC, UD])
@pytest.mark.parametrize("state", [ERR, RESET])
def test_a_held_send_is_forgotten_with_its_queue_pair(joined, service, state):
    p = joined(service)
    source = p.left.region(8)
    p.a.data_access(False)
    p.left.post(wqe.SEND, [source.sge()], **p.to)
    until(p, lambda: p.a.held)
    p.left.qp.modify({"qp_state": state}, p.now)
    assert not p.left.qp.flow.has_work()
    p.a.data_access(True)
    p.run()
    assert p.log == []
    assert [c.status for c in p.left.sent()] == ([cqe.WC_WR_FLUSH_ERR] if state == ERR else [])
    p.at_rest()


@pytest.mark.parametrize("service", [UC, UD])
def test_sqd_drains_when_the_memory_is_there_again(joined, service):
    p = joined(service)
    source = p.left.region(8)
    p.a.data_access(False)
    p.left.post(wqe.SEND, [source.sge()], **p.to)
    until(p, lambda: p.a.held)
    p.left.qp.modify({"qp_state": SQD}, p.now)
    p.step()
    assert p.left.qp.draining
    p.a.data_access(True)
    p.run()
    assert not p.left.qp.draining
    assert [c.status for c in p.left.sent()] == [0]
