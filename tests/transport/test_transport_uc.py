"""Unreliable connections: what is sent, and which packets are silently dropped (IBTA 9.8.2)."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from softhca.queues import cqe, wqe
from softhca.testing.transport_pair import Faults, Pair
from softhca.transport.states import ERR, RTS, SQE, UC
from softhca.wire import opcodes as op
from suite_plan import random_inputs

PATTERN = random.Random(2).randbytes(20_000)
FULL = b"f" * 256


@pytest.fixture
def uc(pair):
    def make(**settings):
        return pair(**{"service": UC, "pmtu": 256, "left_psn": 50, **settings})

    return make


@pytest.mark.parametrize("size", [0, 1, 255, 256, 257, 5003])
def test_c9_180_send_and_write_complete_when_the_last_byte_has_gone(uc, size):
    p = uc(faults=Faults(rule=lambda way, packet: 0))
    source = p.left.region(6000, fill=PATTERN[:6000])
    p.left.post(wqe.SEND, [source.sge(0, size)], wr_id=1)
    p.left.post(wqe.RDMA_WRITE, [source.sge(0, size)], wr_id=2)
    p.run()
    assert [(c.wr_id, c.status, c.opcode) for c in p.left.sent()] == [
        (1, 0, cqe.WC_SEND),
        (2, 0, cqe.WC_RDMA_WRITE),
    ]
    assert p.a.deadlines == {}


@pytest.mark.parametrize("size", [0, 1, 255, 256, 257, 5003])
def test_messages_arrive_whole_and_unanswered(uc, size):
    p = uc()
    source = p.left.region(6000, fill=PATTERN[:6000])
    inbox, target = p.right.region(6000), p.right.region(6000)
    p.right.post_receive([inbox.sge()], wr_id=7)
    p.right.post_receive(wr_id=8)
    p.left.post(wqe.SEND_WITH_IMM, [source.sge(0, size)], imm=5)
    p.left.post(wqe.RDMA_WRITE_WITH_IMM, [source.sge(0, size)], remote=target, imm=6)
    p.run()
    assert inbox.data[:size] == target.data[:size] == PATTERN[:size]
    assert not any(inbox.data[size:])
    assert not any(target.data[size:])
    assert [(c.wr_id, c.status, c.opcode, c.imm_or_key, c.byte_len) for c in p.right.received()] == [
        (7, 0, cqe.WC_RECV, 5, size),
        (8, 0, cqe.WC_RECV_RDMA_WITH_IMM, 6, size),
    ]
    assert p.decoded("ba") == []


def test_c9_175_psns_count_up_over_messages_and_wrap(uc):
    p = uc(left_psn=0xFFFFFE)
    source = p.left.region(600)
    for _ in range(2):
        p.left.post(wqe.RDMA_WRITE, [source.sge()])
    p.run()
    assert [row["psn"] for row in p.decoded("ab")] == [0xFFFFFE, 0xFFFFFF, 0, 1, 2, 3]
    assert not any(row["ack_request"] for row in p.decoded("ab"))


@pytest.mark.parametrize("opcode", [wqe.RDMA_READ, wqe.ATOMIC_FETCH_AND_ADD, wqe.SEND_WITH_INV])
def test_operations_that_the_service_lacks_are_operation_errors_and_stop_only_the_send_side(uc, opcode):
    p = uc()
    local, target = p.left.region(8), p.right.region(8)
    p.left.post(opcode, [local.sge()], remote=target, wr_id=1)
    p.left.post(wqe.SEND, inline=b"x", wr_id=2)
    p.run()
    assert [(c.wr_id, c.status) for c in p.left.sent()] == [
        (1, cqe.WC_LOC_QP_OP_ERR),
        (2, cqe.WC_WR_FLUSH_ERR),
    ]
    assert p.left.qp.state == SQE
    inbox = p.left.region(8)
    p.left.post_receive([inbox.sge()])
    p.right.post(wqe.SEND, inline=b"y")
    p.run()
    assert [c.status for c in p.left.received()] == [0]


def test_c9_184_first_or_only_is_accepted_whatever_its_psn(uc):
    p = uc()
    inbox = p.right.region(1024)
    for i in range(4):
        p.right.post_receive([inbox.sge()], wr_id=i)
    p.forge(op.UC_SEND_ONLY, 999, b"a")
    p.forge(op.UC_SEND_ONLY, 998, b"b")
    p.forge(op.UC_SEND_FIRST, 5, FULL)
    p.forge(op.UC_SEND_LAST, 6, b"c")
    p.forge(op.UC_SEND_ONLY, 6, b"d")
    assert [c.byte_len for c in p.right.received()] == [1, 1, 257, 1]


def test_c9_186_gap_drops_the_message_and_its_receive_serves_the_next_one(uc):
    p = uc()
    inbox = p.right.region(1024)
    p.right.post_receive([inbox.sge()], wr_id=1)
    p.forge(op.UC_SEND_FIRST, 50, FULL)
    p.forge(op.UC_SEND_LAST, 52, b"lost")
    p.forge(op.UC_SEND_MIDDLE, 53, FULL)
    p.forge(op.UC_SEND_LAST, 54, b"lost")
    assert p.right.received() == []
    p.forge(op.UC_SEND_ONLY, 55, b"next")
    assert [(c.wr_id, c.byte_len) for c in p.right.received()] == [(1, 4)]
    assert inbox.data[:4] == b"next"
    assert p.right.qp.counters.drops_sequence == 3


def test_c9_189_packet_that_breaks_the_sequence_may_begin_a_new_message(uc):
    p = uc()
    inbox = p.right.region(1024)
    p.right.post_receive([inbox.sge()], wr_id=1)
    p.forge(op.UC_SEND_FIRST, 50, FULL)
    p.forge(op.UC_SEND_FIRST, 51, FULL)
    p.forge(op.UC_SEND_LAST, 52, b"end")
    assert [(c.wr_id, c.byte_len) for c in p.right.received()] == [(1, 259)]


@pytest.mark.parametrize(
    "second", [op.UC_RDMA_WRITE_MIDDLE, op.UC_RDMA_WRITE_LAST, op.UC_RDMA_WRITE_LAST_WITH_IMMEDIATE]
)
def test_c9_188_opcode_of_another_operation_drops_the_message(uc, second):
    p = uc()
    inbox = p.right.region(1024)
    p.right.post_receive([inbox.sge()])
    p.forge(op.UC_SEND_FIRST, 50, FULL)
    p.forge(second, 51, FULL)
    p.forge(op.UC_SEND_LAST, 52, b"x")
    assert p.right.received() == []
    assert p.right.qp.state == RTS
    assert p.decoded("ba") == []


@pytest.mark.parametrize(
    "opcode", [op.UC_SEND_MIDDLE, op.UC_SEND_LAST, op.UC_RDMA_WRITE_MIDDLE, op.UC_RDMA_WRITE_LAST]
)
def test_c9_187_middle_and_last_need_a_first(uc, opcode):
    p = uc()
    inbox = p.right.region(1024)
    p.right.post_receive([inbox.sge()])
    p.forge(opcode, 0, FULL)
    assert p.right.received() == []
    assert not any(inbox.data)


@pytest.mark.parametrize(
    ("opcode", "size", "first"),
    [
        (op.UC_SEND_FIRST, 252, None),
        (op.UC_SEND_FIRST, 260, None),
        (op.UC_SEND_ONLY, 257, None),
        (op.UC_SEND_MIDDLE, 252, op.UC_SEND_FIRST),
        (op.UC_SEND_LAST, 0, op.UC_SEND_FIRST),
        (op.UC_SEND_LAST, 257, op.UC_SEND_FIRST),
    ],
)
def test_c9_195_to_197_wrong_payload_lengths_are_dropped(uc, opcode, size, first):
    p = uc()
    inbox = p.right.region(2048)
    p.right.post_receive([inbox.sge()])
    psn = 50
    if first is not None:
        p.forge(first, psn, FULL)
        psn += 1
    p.forge(opcode, psn, b"x" * size)
    p.forge(op.UC_SEND_LAST, psn + 1, b"x")
    assert p.right.received() == []
    assert p.right.qp.counters.drops_length == 1


def test_c9_199_first_with_pad_is_dropped(uc):
    p = uc()
    inbox = p.right.region(2048)
    p.right.post_receive([inbox.sge()])
    p.forge(op.UC_SEND_FIRST, 50, b"x" * 253)
    p.forge(op.UC_SEND_LAST, 51, b"x")
    assert p.right.received() == []


def test_c9_169_without_receive_a_send_is_dropped(uc):
    p = uc()
    p.forge(op.UC_SEND_ONLY, 50, b"x")
    assert p.right.qp.counters.drops_no_receive == 1
    assert p.right.qp.state == RTS


def test_c9_194_send_beyond_the_receive_is_dropped_and_the_receive_kept(uc):
    p = uc()
    inbox = p.right.region(2048)
    p.right.post_receive([inbox.sge(0, 300)], wr_id=1)
    p.forge(op.UC_SEND_FIRST, 50, FULL)
    p.forge(op.UC_SEND_LAST, 51, b"x" * 45)
    assert p.right.received() == []
    assert not any(inbox.data[300:])
    p.forge(op.UC_SEND_ONLY, 52, b"ok")
    assert [(c.wr_id, c.byte_len) for c in p.right.received()] == [(1, 2)]


@pytest.mark.parametrize("what", ["key", "range", "right", "domain", "operation"])
def test_c9_192_2_1_write_without_permission_is_dropped_and_writes_nothing(uc, what):
    p = uc(access=4 if what == "operation" else 14)
    target = p.right.region(512, 1 | 4 if what == "right" else 15)
    if what == "domain":
        p.b.regions.reregister(target.region, pd=8)
    p.forge(
        op.UC_RDMA_WRITE_ONLY,
        50,
        b"no",
        va=target.va + (511 if what == "range" else 0),
        rkey=target.key ^ (what == "key"),
        length=2,
    )
    assert not any(target.data)
    assert p.right.qp.state == RTS
    assert p.decoded("ba") == []


def test_c9_193_key_of_an_empty_write_is_not_looked_at_even_with_immediate(uc):
    p = uc()
    p.right.post_receive(wr_id=3)
    p.forge(op.UC_RDMA_WRITE_ONLY_WITH_IMMEDIATE, 50, b"", rkey=0xBAD, length=0, imm=9)
    assert [(c.wr_id, c.status, c.imm_or_key) for c in p.right.received()] == [(3, 0, 9)]


def test_receive_with_a_bad_key_is_a_local_error(uc):
    p = uc()
    p.right.post_receive([(0, 64, 0xBAD)], wr_id=1)
    p.right.post_receive([(0, 64, 0xBAD)], wr_id=2)
    p.forge(op.UC_SEND_ONLY, 50, b"x")
    assert [(c.wr_id, c.status) for c in p.right.received()] == [
        (1, cqe.WC_LOC_PROT_ERR),
        (2, cqe.WC_WR_FLUSH_ERR),
    ]
    assert p.right.qp.state == ERR


def test_packets_of_another_service_are_dropped(uc):
    p = uc()
    inbox = p.right.region(64)
    p.right.post_receive([inbox.sge()])
    p.forge(op.RC_SEND_ONLY, 50, b"x")
    p.forge(op.UD_SEND_ONLY, 50, b"x")
    assert p.right.received() == []
    assert p.right.qp.counters.drops_service == 2


@settings(max_examples=random_inputs(40), deadline=None)
@given(sizes=st.lists(st.integers(0, 2000), min_size=1, max_size=20), seed=st.integers(0, 1 << 32))
def test_what_arrives_over_a_lossy_link_arrives_whole_and_in_order(sizes, seed):
    pair = Pair(service=UC, pmtu=256, faults=Faults(seed, loss=0.1))
    try:
        source = pair.left.region(2000, fill=PATTERN[:2000])
        inboxes = [pair.right.region(2000) for _ in sizes]
        for i, inbox in enumerate(inboxes):
            pair.right.post_receive([inbox.sge()], wr_id=i)
        for i, size in enumerate(sizes):
            pair.left.post(wqe.SEND_WITH_IMM, [source.sge(0, size)], imm=i)
        pair.run()
        assert [c.status for c in pair.left.sent()] == [0] * len(sizes)
        received = pair.right.received()
        numbers = [c.imm_or_key for c in received]
        assert numbers == sorted(set(numbers))
        assert [c.wr_id for c in received] == list(range(len(received)))
        for completion in received:
            size = sizes[completion.imm_or_key]
            assert completion.byte_len == size
            assert inboxes[completion.wr_id].data[:size] == PATTERN[:size]
    finally:
        pair.close()
