"""The requester against responses of every kind, also such as no honest responder sends."""

import pytest

from softhca.queues import cqe, wqe
from softhca.testing.transport_pair import Faults
from softhca.transport.conditions import NOT_READY
from softhca.transport.credits import INVALID
from softhca.transport.states import ERR, RTS
from softhca.wire import opcodes as op


@pytest.fixture
def lone(pair):
    """A pair whose right side is played by the test: nothing that is sent arrives."""
    return pair(pmtu=256, left_psn=10, faults=Faults(rule=lambda way, packet: 0), rd_atomic=4, timeout=20)


def send(p, count=4):
    target = p.right.region(64)
    for i in range(count):
        p.left.post(wqe.RDMA_WRITE, inline=b"x", remote=target, wr_id=i)
    settle(p)


def settle(p):
    while p.a.queue:
        p.transmit(p.a)


def ack(p, psn, syndrome=INVALID, **other):
    p.forge(op.RC_ACKNOWLEDGE, psn, way="ba", syndrome=syndrome, **other)
    settle(p)


def done(p):
    return [(c.wr_id, c.status) for c in p.left.sent()]


def psns(p):
    rows = [row["psn"] for row in p.decoded("ab")]
    p.log.clear()
    return rows


def test_one_acknowledgement_completes_everything_before_it(lone):
    send(lone)
    ack(lone, 12)
    assert done(lone) == [(0, 0), (1, 0), (2, 0)]
    assert lone.left.qp.send_engine().una_psn == 13


@pytest.mark.parametrize("psn", [9, 8, 14, 15, 10 + (1 << 23), 10 - (1 << 23)])
@pytest.mark.parametrize("syndrome", [INVALID, 0x60, 0x61, 0x62, 0x63, 0x25])
def test_responses_outside_the_window_change_nothing(lone, psn, syndrome):
    send(lone)
    psns(lone)
    ack(lone, psn, syndrome)
    assert done(lone) == []
    assert psns(lone) == []
    assert lone.left.qp.state == RTS


def test_repeated_acknowledgement_changes_nothing(lone):
    send(lone)
    ack(lone, 11)
    psns(lone)
    ack(lone, 11)
    ack(lone, 10)
    assert done(lone) == [(0, 0), (1, 0)]
    assert psns(lone) == []


@pytest.mark.parametrize(
    ("syndrome", "status"),
    [
        (0x61, cqe.WC_REM_INV_REQ_ERR),
        (0x62, cqe.WC_REM_ACCESS_ERR),
        (0x63, cqe.WC_REM_OP_ERR),
        (0x64, cqe.WC_REM_INV_RD_REQ_ERR),
    ],
)
def test_nak_acknowledges_what_lies_before_and_ends_its_own_request(lone, syndrome, status):
    send(lone)
    ack(lone, 12, syndrome)
    assert done(lone) == [(0, 0), (1, 0), (2, status), (3, cqe.WC_WR_FLUSH_ERR)]
    assert lone.left.qp.state == ERR
    lone.at_rest()


@pytest.mark.parametrize("syndrome", [0x65, 0x7F, 0x40])
def test_reserved_syndromes_are_ignored(lone, syndrome):
    send(lone)
    ack(lone, 10, syndrome)
    assert done(lone) == []
    assert lone.left.qp.state == RTS


def test_sequence_nak_goes_back_to_its_psn_once(lone):
    send(lone)
    psns(lone)
    ack(lone, 12, 0x60)
    assert done(lone) == [(0, 0), (1, 0)]
    assert psns(lone) == [12, 13]
    ack(lone, 12, 0x60)
    assert psns(lone) == []
    assert lone.left.qp.counters.retransmissions == 1


def test_late_acknowledgement_overtakes_the_go_back(lone):
    send(lone)
    ack(lone, 10, 0x60)
    psns(lone)
    ack(lone, 13)
    assert done(lone) == [(i, 0) for i in range(4)]
    send(lone, 1)
    assert psns(lone) == [14]
    ack(lone, 14)
    lone.at_rest()


def test_go_back_to_the_middle_of_a_message(lone):
    target, source = lone.right.region(2000), lone.left.region(2000)
    lone.left.post(wqe.RDMA_WRITE, [source.sge()], remote=target)
    settle(lone)
    assert psns(lone) == list(range(10, 18))
    ack(lone, 14, 0x60)
    assert psns(lone) == list(range(14, 18))
    ack(lone, 15)
    ack(lone, 17)
    assert done(lone) == [(1, 0)]
    lone.at_rest()


def read(p, size=600):
    p.local = p.left.region(1024)
    p.remote = p.right.region(1024)
    p.left.post(wqe.RDMA_READ, [p.local.sge(0, size)], remote=p.remote)
    settle(p)


def response(p, opcode, psn, payload, syndrome=INVALID):
    p.forge(opcode, psn, payload, way="ba", syndrome=syndrome)
    settle(p)


def test_read_response_in_order_is_placed(lone):
    read(lone)
    response(lone, op.RC_RDMA_READ_RESPONSE_FIRST, 10, b"a" * 256)
    response(lone, op.RC_RDMA_READ_RESPONSE_MIDDLE, 11, b"b" * 256)
    response(lone, op.RC_RDMA_READ_RESPONSE_LAST, 12, b"c" * 88)
    assert done(lone) == [(1, 0)]
    assert lone.local.data == b"a" * 256 + b"b" * 256 + b"c" * 88 + bytes(424)
    lone.at_rest()


def test_repeated_read_response_is_not_placed_again(lone):
    read(lone)
    response(lone, op.RC_RDMA_READ_RESPONSE_FIRST, 10, b"a" * 256)
    response(lone, op.RC_RDMA_READ_RESPONSE_FIRST, 10, b"z" * 256)
    assert lone.local.data[:256] == b"a" * 256
    assert lone.left.qp.counters.retransmissions == 0


def test_gap_in_a_read_response_asks_for_the_rest_once(lone):
    read(lone)
    psns(lone)
    response(lone, op.RC_RDMA_READ_RESPONSE_FIRST, 10, b"a" * 256)
    response(lone, op.RC_RDMA_READ_RESPONSE_LAST, 12, b"c" * 88)
    (row,) = lone.decoded("ab")
    assert (row["psn"], row["length"], row["va"]) == (11, 344, lone.remote.va + 256)
    response(lone, op.RC_RDMA_READ_RESPONSE_LAST, 12, b"c" * 88)
    assert len(lone.decoded("ab")) == 1
    response(lone, op.RC_RDMA_READ_RESPONSE_FIRST, 11, b"b" * 256)
    response(lone, op.RC_RDMA_READ_RESPONSE_LAST, 12, b"c" * 88)
    assert done(lone) == [(1, 0)]
    lone.at_rest()


@pytest.mark.parametrize(
    ("opcode", "size"),
    [
        (op.RC_RDMA_READ_RESPONSE_FIRST, 255),
        (op.RC_RDMA_READ_RESPONSE_FIRST, 260),
        (op.RC_RDMA_READ_RESPONSE_LAST, 256),
        (op.RC_RDMA_READ_RESPONSE_ONLY, 256),
        (op.RC_ATOMIC_ACKNOWLEDGE, 0),
    ],
)
def test_response_that_does_not_belong_there_is_a_bad_response(lone, opcode, size):
    read(lone)
    response(lone, opcode, 10, b"a" * size)
    assert done(lone) == [(1, cqe.WC_BAD_RESP_ERR)]
    assert not any(lone.local.data)
    assert lone.left.qp.state == ERR


@pytest.mark.parametrize(
    ("opcode", "size"), [(op.RC_RDMA_READ_RESPONSE_MIDDLE, 88), (op.RC_RDMA_READ_RESPONSE_LAST, 89)]
)
def test_end_of_a_read_response_of_wrong_kind_or_length_is_a_bad_response(lone, opcode, size):
    read(lone, 256 + 88)
    response(lone, op.RC_RDMA_READ_RESPONSE_FIRST, 10, b"a" * 256)
    response(lone, opcode, 11, b"c" * size)
    assert done(lone) == [(1, cqe.WC_BAD_RESP_ERR)]


@pytest.mark.parametrize("syndrome", [0x20, 0x3F, 0x40, 0x60, 0x61, 0x7F])
@pytest.mark.parametrize("begun", [False, True])
def test_bytes_beside_a_nak_are_no_answer(lone, syndrome, begun):
    """An RNR NAK, a NAK, or what is reserved stands in a packet of its own."""
    read(lone, 256 + 88)
    if begun:
        response(lone, op.RC_RDMA_READ_RESPONSE_FIRST, 10, b"a" * 256)
        response(lone, op.RC_RDMA_READ_RESPONSE_LAST, 11, b"c" * 88, syndrome)
    else:
        response(lone, op.RC_RDMA_READ_RESPONSE_FIRST, 10, b"a" * 256, syndrome)
    assert done(lone) == [(1, cqe.WC_BAD_RESP_ERR)]
    assert lone.local.data[:344] == (b"a" * 256 if begun else bytes(256)) + bytes(88)


@pytest.mark.parametrize("syndrome", [0x20, 0x40, 0x61])
def test_an_original_value_beside_a_nak_is_no_answer(lone, syndrome):
    local = lone.left.region(8)
    lone.left.post(wqe.ATOMIC_FETCH_AND_ADD, [local.sge()], remote=lone.right.region(8))
    settle(lone)
    lone.forge(op.RC_ATOMIC_ACKNOWLEDGE, 10, way="ba", syndrome=syndrome, original=0x0102030405060708)
    assert done(lone) == [(1, cqe.WC_BAD_RESP_ERR)]
    assert local.data == bytes(8)


def test_read_response_for_a_write_is_a_bad_response(lone):
    send(lone, 1)
    response(lone, op.RC_RDMA_READ_RESPONSE_ONLY, 10, b"")
    assert done(lone) == [(0, cqe.WC_BAD_RESP_ERR)]


def test_response_into_memory_that_is_gone_is_a_protection_error(lone):
    read(lone)
    lone.local.deregister()
    response(lone, op.RC_RDMA_READ_RESPONSE_FIRST, 10, b"a" * 256)
    assert done(lone) == [(1, cqe.WC_LOC_PROT_ERR)]
    assert not any(lone.local.data)


def test_last_response_into_memory_that_is_gone_ends_the_read_once(lone):
    read(lone, 88)
    lone.local.deregister()
    response(lone, op.RC_RDMA_READ_RESPONSE_ONLY, 10, b"a" * 88)
    assert done(lone) == [(1, cqe.WC_LOC_PROT_ERR)]
    assert lone.left.qp.send_engine().head == lone.left.qp.send_engine().tail
    lone.at_rest()


def test_acknowledgement_inside_a_read_is_not_a_loss(lone):
    read(lone)
    psns(lone)
    ack(lone, 11)
    assert psns(lone) == []
    assert done(lone) == []


def test_nak_of_a_read_slice_ends_the_read(lone):
    read(lone)
    ack(lone, 10, 0x62)
    assert done(lone) == [(1, cqe.WC_REM_ACCESS_ERR)]
    lone.at_rest()


def test_atomic_response_stores_host_byte_order(lone):
    local = lone.left.region(8)
    lone.left.post(wqe.ATOMIC_FETCH_AND_ADD, [local.sge()], remote=lone.right.region(8))
    settle(lone)
    lone.forge(op.RC_ATOMIC_ACKNOWLEDGE, 10, way="ba", syndrome=INVALID, original=0x0102030405060708)
    assert done(lone) == [(1, 0)]
    assert int.from_bytes(local.data, "little") == 0x0102030405060708


def test_requests_between_an_rnr_nak_and_its_delay_stay_where_they_are(lone):
    send(lone, 2)
    psns(lone)
    ack(lone, 10, 0x25)
    assert psns(lone) == []
    ack(lone, 10, 0x60)
    send(lone, 1)
    assert psns(lone) == []
    assert lone.left.qp.send_engine().condition == NOT_READY


def test_implied_nak_does_not_end_an_rnr_delay(lone):
    """A late repetition was executed after all, and the answers tell of a lost READ response."""
    send(lone, 1)
    read(lone)
    ack(lone, 10, 0x21)
    psns(lone)
    response(lone, op.RC_RDMA_READ_RESPONSE_LAST, 13, b"d" * 88)
    assert done(lone) == [(0, 0)]
    assert psns(lone) == []
    assert lone.a.counters.implied_naks == 0
    while lone.left.qp.send_engine().condition == NOT_READY:
        assert lone.step()
    settle(lone)
    assert psns(lone) == [11]


def test_unsolicited_acknowledgement_brings_new_credits(lone):
    lone.left.post(wqe.SEND, inline=b"0")
    settle(lone)
    ack(lone, 10, 0, msn=1)
    for _ in range(3):
        lone.left.post(wqe.SEND, inline=b"x")
    settle(lone)
    assert psns(lone) == [10, 11]  # no credits: one packet asks
    ack(lone, 10, 3, msn=1)
    assert psns(lone) == [12, 13]


def test_window_is_given_back_however_a_queue_pair_ends(pair):
    for ending in ("error", "reset", "close"):
        p = pair(pmtu=256, faults=Faults(rule=lambda way, packet: 0))
        send(p)
        assert p.left.qp.flow.window.in_flight_bytes > 0
        if ending == "close":
            p.left.qp.close()
        else:
            p.left.qp.modify({"qp_state": ERR if ending == "error" else 0}, p.now)
        p.at_rest()
