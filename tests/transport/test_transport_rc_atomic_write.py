"""ATOMIC WRITE (IBTA vol. 1, annex A19): eight bytes at once, answered by an empty READ response."""

import pytest

from softhca.memory.regions import LOCAL_WRITE, REMOTE_ATOMIC, REMOTE_READ
from softhca.queues import cqe, layout, wqe
from softhca.testing.transport_pair import Faults
from softhca.transport.states import ERR
from softhca.wire import opcodes as op

WORD = b"8 bytes!"
WRITE = layout.ATOMIC_WRITE


def post(p, remote, offset=0, **how):
    p.left.post(WRITE, remote=remote, offset=offset, compare=int.from_bytes(WORD, "little"), **how)


def test_eight_bytes_of_the_entry_of_an_element_or_inline_are_written_and_nothing_else(pair):
    p = pair()
    remote = p.right.region(40)
    local = p.left.region(16, fill=b"nothing element!"[:16])
    post(p, remote, 8)
    p.left.post(WRITE, [local.sge(8, 8)], remote=remote, offset=16)
    p.left.post(WRITE, remote=remote, offset=24, inline=b"in line!", flags=wqe.SIGNALED)
    p.run()
    assert [(c.status, c.opcode) for c in p.left.sent()] == [(0, layout.WC_ATOMIC_WRITE)] * 3
    assert remote.data == bytes(8) + WORD + b"element!" + b"in line!" + bytes(8)
    assert p.right.received() == []
    p.at_rest()


def test_the_request_has_an_reth_and_the_answer_is_an_empty_read_response(pair):
    p = pair(left_psn=100, right_psn=500)
    remote = p.right.region(8)
    post(p, remote)
    p.run()
    request, answer = p.decoded()
    assert (request["opcode"], request["psn"], request["bytes"]) == (op.RC_ATOMIC_WRITE, 100, 8)
    assert (request["va"], request["length"], request["ack_request"]) == (remote.va, 8, True)
    assert (answer["opcode"], answer["psn"], answer["bytes"]) == (op.RC_RDMA_READ_RESPONSE_ONLY, 100, 0)
    assert (answer["syndrome"], answer["msn"]) == (0, 1)


def test_it_keeps_its_place_among_writes_and_reads(pair):
    p = pair(pmtu=256)
    remote = p.right.region(1024)
    local = p.left.region(2048, fill=b"w" * 1024 + bytes(1024))
    for _ in range(10):
        p.left.post(wqe.RDMA_WRITE, [local.sge(0, 1024)], remote=remote)
        post(p, remote, 512)
        p.left.post(wqe.RDMA_READ, [local.sge(1024, 1024)], remote=remote)
    p.run()
    assert [c.status for c in p.left.sent()] == [0] * 30
    assert local.data[1024 + 504 : 1024 + 528] == b"w" * 8 + WORD + b"w" * 8
    p.at_rest()


@pytest.mark.parametrize("seed", range(6))
def test_losses_repetitions_and_reordering_leave_each_word_as_written_last(pair, seed):
    p = pair(faults=Faults(seed, 0.15, 0.2, 0.2), rd_atomic=2)
    remote = p.right.region(64)
    for number in range(30):
        p.left.post(WRITE, remote=remote, offset=number % 8 * 8, compare=number)
        p.left.post(wqe.ATOMIC_FETCH_AND_ADD, [p.left.region(8).sge()], remote=remote, offset=number % 8 * 8,
                    compare=1 << 32)  # fmt: skip
    p.run()
    assert [c.status for c in p.left.sent()] == [0] * 60
    words = [int.from_bytes(remote.data[i : i + 8], "little") for i in range(0, 64, 8)]
    assert words == [1 << 32 | number for number in (*range(24, 30), 22, 23)]
    p.at_rest()


@pytest.mark.parametrize("length", [0, 4, 7, 9, 16])
def test_another_length_is_an_error_of_its_own_queue_pair(pair, length):
    p = pair()
    remote = p.right.region(16)
    local = p.left.region(16, fill=b"x" * 16)
    p.left.post(WRITE, [local.sge(0, length)], remote=remote)
    p.run()
    assert [c.status for c in p.left.sent()] == [cqe.WC_LOC_LEN_ERR]
    assert remote.data == bytes(16)


def test_a_foreign_source_is_a_protection_error_and_no_resources_an_operation_error(pair):
    p = pair()
    remote, local = p.right.region(16), p.left.region(16)
    va, length, key = local.sge(0, 8)
    p.left.post(WRITE, [(va, length, key ^ 0x100)], remote=remote)
    p.run()
    assert [c.status for c in p.left.sent()] == [cqe.WC_LOC_PROT_ERR]
    p = pair(rd_atomic=0)
    post(p, p.right.region(8))
    p.run()
    assert [c.status for c in p.left.sent()] == [cqe.WC_LOC_QP_OP_ERR]


@pytest.fixture
def peer(pair):
    """A pair whose left side is played by the test."""
    p = pair(pmtu=256, left_psn=100, right_psn=500, rd_atomic=2)
    p.target = p.right.region(64)
    return p


def forge(p, psn=100, payload=WORD, offset=0, key=None, length=8, **other):
    p.forge(op.RC_ATOMIC_WRITE, psn, payload, va=p.target.va + offset,
            rkey=p.target.key if key is None else key, length=length, **other)  # fmt: skip


def answers(p):
    p.run()
    rows = [(row["opcode"], row["psn"], row["syndrome"]) for row in p.decoded("ba")]
    p.log.clear()
    return rows


def test_a_repeated_one_is_answered_and_not_done_again(peer):
    forge(peer)
    assert answers(peer) == [(op.RC_RDMA_READ_RESPONSE_ONLY, 100, 0)]
    peer.target.data[:8] = b"changed!"
    forge(peer)
    assert answers(peer) == [(op.RC_RDMA_READ_RESPONSE_ONLY, 100, 0)]
    assert peer.target.data[:8] == b"changed!"
    forge(peer, offset=8)
    forge(peer, key=peer.target.key ^ 0x100)
    assert answers(peer) == []


@pytest.mark.parametrize("how", [
    {"offset": 4}, {"offset": 1}, {"length": 16}, {"length": 0}, {"payload": WORD * 2},
    {"payload": b""}, {"payload": b"seven b"},
])  # fmt: skip
def test_what_is_not_eight_aligned_bytes_is_an_invalid_request(peer, how):
    forge(peer, **how)
    assert answers(peer) == [(op.RC_ACKNOWLEDGE, 100, 0x61)]
    assert peer.right.qp.state == ERR
    assert peer.target.data == bytes(64)


def test_a_key_that_gives_no_write_is_an_access_error(peer):
    other = peer.right.region(8, access=LOCAL_WRITE | REMOTE_READ | REMOTE_ATOMIC)
    peer.forge(op.RC_ATOMIC_WRITE, 100, WORD, va=other.va, rkey=other.key, length=8)
    assert answers(peer) == [(op.RC_ACKNOWLEDGE, 100, 0x62)]
    assert other.data == bytes(8)


def test_a_queue_pair_that_lets_nobody_write_refuses_it(peer):
    peer.right.qp.access &= ~2
    forge(peer)
    assert answers(peer) == [(op.RC_ACKNOWLEDGE, 100, 0x61)]
    assert peer.target.data == bytes(64)


def test_inside_a_message_it_is_out_of_sequence(peer):
    long = peer.right.region(512)
    peer.forge(op.RC_RDMA_WRITE_FIRST, 100, b"f" * 256, va=long.va, rkey=long.key, length=512)
    answers(peer)
    forge(peer, 101)
    assert answers(peer) == [(op.RC_ACKNOWLEDGE, 101, 0x61)]
    assert peer.target.data == bytes(64)


def test_held_memory_lets_it_come_again(peer):
    peer.b.data_access(False)
    forge(peer)
    ((code, psn, syndrome),) = answers(peer)
    assert (code, psn, syndrome >> 5) == (op.RC_ACKNOWLEDGE, 100, 1)
    peer.b.data_access(True)
    forge(peer)
    assert answers(peer) == [(op.RC_RDMA_READ_RESPONSE_ONLY, 100, 0)]
    assert peer.target.data[:8] == WORD


@pytest.mark.parametrize(("code", "payload"), [
    (op.RC_RDMA_READ_RESPONSE_ONLY, b"data"), (op.RC_RDMA_READ_RESPONSE_FIRST, b""),
    (op.RC_ATOMIC_ACKNOWLEDGE, b""),
])  # fmt: skip
def test_another_answer_is_a_bad_response(pair, code, payload):
    p = pair(left_psn=100, faults=Faults(rule=lambda way, packet: 0))
    post(p, p.right.region(8))
    while not p.log:
        p.step()
    p.forge(code, 100, payload, way="ba", syndrome=0x1F, msn=1)
    p.run()
    assert [c.status for c in p.left.sent()] == [cqe.WC_BAD_RESP_ERR]


def test_a_plain_acknowledgement_does_not_stand_for_the_answer(pair):
    p = pair(left_psn=100, faults=Faults(rule=lambda way, packet: 0), retry_cnt=1)
    post(p, p.right.region(8))
    while not p.log:
        p.step()
    p.forge(op.RC_ACKNOWLEDGE, 100, way="ba", syndrome=0x1F, msn=1)
    p.run()
    assert [c.status for c in p.left.sent()] == [cqe.WC_RETRY_EXC_ERR]
