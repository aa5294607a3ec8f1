"""FLUSH (IBTA vol. 1, annex A19): a request with FETH and RETH, answered by an empty READ response."""

import pytest

from softhca.memory.regions import FLUSH_GLOBAL, FLUSH_PERSISTENT
from softhca.queues import cqe, layout, wqe
from softhca.testing.transport_node import ALL_ACCESS
from softhca.testing.transport_pair import Faults
from softhca.transport.states import ERR
from softhca.wire import opcodes as op
from softhca.wire.feth import GLOBAL_VISIBILITY, PERSISTENCE, RANGE, REGION
from softhca.wire.packet_view import PacketView

FLUSH = layout.FLUSH
FLUSHED = ALL_ACCESS | FLUSH_GLOBAL
BOTH = ALL_ACCESS | FLUSH_GLOBAL | FLUSH_PERSISTENT
"""What queue pairs here allow; no region can be made persistent."""


def feth(placement=GLOBAL_VISIBILITY, selectivity=RANGE):
    return placement | selectivity << 4


def test_a_flush_ends_behind_what_was_written_before_it(pair):
    p = pair(access=BOTH)
    remote = p.right.region(64, access=FLUSHED)
    local = p.left.region(64, fill=b"w" * 64)
    for _ in range(3):
        p.left.post(wqe.RDMA_WRITE, [local.sge()], remote=remote)
        p.left.post(FLUSH, remote=remote, compare=64, swap=feth())
    p.run()
    done = [(c.status, c.opcode) for c in p.left.sent()]
    assert done == [(0, layout.WC_RDMA_WRITE), (0, layout.WC_FLUSH)] * 3
    assert remote.data == b"w" * 64
    assert p.right.received() == []
    p.at_rest()


def test_the_request_has_feth_and_reth_and_the_answer_is_an_empty_read_response(pair):
    p = pair(access=BOTH, left_psn=100)
    remote = p.right.region(64, access=FLUSHED)
    p.left.post(FLUSH, remote=remote, offset=8, compare=16, swap=feth(selectivity=REGION))
    p.run()
    request, answer = p.decoded()
    assert (request["opcode"], request["psn"], request["bytes"]) == (op.RC_FLUSH, 100, 0)
    assert (request["va"], request["length"], request["ack_request"]) == (remote.va + 8, 16, True)
    view = PacketView()
    assert view.decode(bytearray(p.log[0][1]), 0, len(p.log[0][1])) == 0
    assert (view.selectivity, view.placement) == (REGION, GLOBAL_VISIBILITY)
    assert (answer["opcode"], answer["psn"], answer["bytes"]) == (op.RC_RDMA_READ_RESPONSE_ONLY, 100, 0)
    assert (answer["syndrome"], answer["msn"]) == (0, 1)


@pytest.mark.parametrize("seed", range(4))
def test_losses_repetitions_and_reordering_end_each_once(pair, seed):
    p = pair(access=BOTH, faults=Faults(seed, 0.15, 0.2, 0.2), rd_atomic=2)
    remote = p.right.region(64, access=FLUSHED)
    local = p.left.region(64, fill=b"w" * 64)
    for _ in range(30):
        p.left.post(wqe.RDMA_WRITE, [local.sge()], remote=remote)
        p.left.post(FLUSH, remote=remote, compare=64, swap=feth())
    p.run()
    assert [c.status for c in p.left.sent()] == [0] * 60
    p.at_rest()


@pytest.mark.parametrize("how", [
    {"swap": 0}, {"swap": feth(4)}, {"swap": feth(9)}, {"swap": feth(selectivity=2)},
    {"swap": feth() | 1 << 6}, {"swap": feth() | 1 << 63}, {"swap": feth(), "compare": 1 << 32},
])  # fmt: skip
def test_an_entry_that_says_what_there_is_not_is_an_error_of_its_own_queue_pair(pair, how):
    p = pair(access=BOTH)
    p.left.post(FLUSH, remote=p.right.region(64, access=FLUSHED), **how)
    p.run()
    assert [c.status for c in p.left.sent()] == [cqe.WC_LOC_QP_OP_ERR]
    assert p.log == []


def test_it_takes_a_read_resource_and_no_element(pair):
    p = pair(access=BOTH, rd_atomic=0)
    p.left.post(FLUSH, remote=p.right.region(8, access=FLUSHED), swap=feth())
    p.run()
    assert [c.status for c in p.left.sent()] == [cqe.WC_LOC_QP_OP_ERR]
    p = pair(access=BOTH)
    local = p.left.region(8)
    p.left.post(FLUSH, [local.sge()], remote=p.right.region(8, access=FLUSHED), swap=feth())
    p.run()
    assert [c.status for c in p.left.sent()] == [cqe.WC_LOC_QP_OP_ERR]


@pytest.fixture
def peer(pair):
    """A pair whose left side is played by the test."""
    p = pair(pmtu=256, access=BOTH, left_psn=100, right_psn=500, rd_atomic=2)
    p.target = p.right.region(64, access=FLUSHED)
    return p


def forge(p, psn=100, offset=0, key=None, length=64, placement=GLOBAL_VISIBILITY, **other):
    p.forge(op.RC_FLUSH, psn, va=p.target.va + offset, rkey=p.target.key if key is None else key,
            length=length, placement=placement, **other)  # fmt: skip


def answers(p):
    p.run()
    rows = [(row["opcode"], row["psn"], row["syndrome"]) for row in p.decoded("ba")]
    p.log.clear()
    return rows


def test_a_repeated_one_is_answered_and_only_where_it_is_the_same(peer):
    forge(peer)
    assert answers(peer) == [(op.RC_RDMA_READ_RESPONSE_ONLY, 100, 0)]
    forge(peer)
    assert answers(peer) == [(op.RC_RDMA_READ_RESPONSE_ONLY, 100, 0)]
    forge(peer, offset=8)
    forge(peer, key=peer.target.key ^ 0x100)
    assert answers(peer) == []


@pytest.mark.parametrize("how", [
    {"placement": 0}, {"placement": 4}, {"placement": 9}, {"selectivity": 2}, {"selectivity": 3},
])  # fmt: skip
def test_reserved_values_are_an_invalid_request(peer, how):
    forge(peer, **how)
    assert answers(peer) == [(op.RC_ACKNOWLEDGE, 100, 0x61)]
    assert peer.right.qp.state == ERR


@pytest.mark.parametrize(("right", "placement"), [
    (FLUSH_GLOBAL, GLOBAL_VISIBILITY), (FLUSH_PERSISTENT, PERSISTENCE),
    (FLUSH_PERSISTENT, GLOBAL_VISIBILITY | PERSISTENCE),
])  # fmt: skip
def test_what_the_queue_pair_does_not_allow_is_an_invalid_request(peer, right, placement):
    peer.right.qp.access &= ~right
    forge(peer, placement=placement)
    assert answers(peer) == [(op.RC_ACKNOWLEDGE, 100, 0x61)]


@pytest.mark.parametrize("how", [
    {"placement": PERSISTENCE}, {"placement": GLOBAL_VISIBILITY | PERSISTENCE}, {"length": 65},
    {"offset": 1}, {"key": 0}, {"key": 0, "selectivity": REGION},
])  # fmt: skip
def test_what_the_region_does_not_give_is_an_access_error(peer, how):
    forge(peer, **how)
    assert answers(peer) == [(op.RC_ACKNOWLEDGE, 100, 0x62)]
    assert peer.right.node.counters.key_refusals == 1


@pytest.mark.parametrize("selectivity", [RANGE, REGION])
def test_a_region_without_the_right_is_an_access_error(peer, selectivity):
    other = peer.right.region(64)
    forge(peer, key=other.key, offset=other.va - peer.target.va, selectivity=selectivity)
    assert answers(peer) == [(op.RC_ACKNOWLEDGE, 100, 0x62)]


@pytest.mark.parametrize("how", [{"offset": 4096}, {"length": 12_345_678}, {"length": 0}])
def test_of_a_whole_region_address_and_length_mean_nothing(peer, how):
    forge(peer, selectivity=REGION, **how)
    assert answers(peer) == [(op.RC_RDMA_READ_RESPONSE_ONLY, 100, 0)]


def test_inside_a_message_it_is_out_of_sequence(peer):
    long = peer.right.region(512)
    peer.forge(op.RC_RDMA_WRITE_FIRST, 100, b"f" * 256, va=long.va, rkey=long.key, length=512)
    answers(peer)
    forge(peer, 101)
    assert answers(peer) == [(op.RC_ACKNOWLEDGE, 101, 0x61)]


def test_more_than_the_responder_has_resources_for_is_an_invalid_request(pair):
    p = pair(access=BOTH, left_psn=100, rd_atomic=0)
    p.target = p.right.region(64, access=FLUSHED)
    forge(p)
    assert answers(p) == [(op.RC_ACKNOWLEDGE, 100, 0x61)]


@pytest.mark.parametrize(("code", "payload"), [
    (op.RC_RDMA_READ_RESPONSE_ONLY, b"data"), (op.RC_RDMA_READ_RESPONSE_FIRST, b""),
    (op.RC_ATOMIC_ACKNOWLEDGE, b""),
])  # fmt: skip
def test_another_answer_is_a_bad_response(pair, code, payload):
    p = pair(access=BOTH, left_psn=100, faults=Faults(rule=lambda way, packet: 0))
    p.left.post(FLUSH, remote=p.right.region(8, access=FLUSHED), compare=8, swap=feth())
    while not p.log:
        p.step()
    p.forge(code, 100, payload, way="ba", syndrome=0x1F, msn=1)
    p.run()
    assert [c.status for c in p.left.sent()] == [cqe.WC_BAD_RESP_ERR]
