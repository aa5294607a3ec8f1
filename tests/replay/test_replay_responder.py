"""Captured requests of the Linux kernel's SoftRoCE against our responder: it answers as the kernel did."""

import pytest
from replay_differences import REPLAYED, expected
from replay_memory import UNTOUCHED
from replay_world import GRH_BYTES, ResponderReplay

from softhca.queues import cqe, wqe
from softhca.transport.states import ERR, RC, RTS, UD

CASES = [(name, direction) for name, plan in REPLAYED.items() for direction in range(plan.directions)]
every_direction = pytest.mark.parametrize(("name", "direction"), CASES)
either_pace = pytest.mark.parametrize("held_back", [False, True])
SERVED = frozenset(name for name, plan in REPLAYED.items() if plan.service == RC)


@pytest.fixture
def replay():
    made = []

    def make(name, direction, credits=True, held_back=False):
        made.append(ResponderReplay(name, direction, credits, held_back))
        return made[-1].run()

    yield make
    for each in made:
        each.pair.close()


@pytest.mark.parametrize("credits", [True, False])
@every_direction
def test_replies_are_the_captured_ones(replay, name, direction, credits):
    done = replay(name, direction, credits)
    due = expected(name, done.talk.replies, credits)
    assert [sent.record for sent in done.sent] == [record for _, record in due]
    assert bool(due) == (name in SERVED)
    for sent, (number, _) in zip(done.sent, due, strict=True):
        assert sent.place < number, "later than the kernel"


@either_pace
@every_direction
def test_every_byte_lands_where_the_requests_say_and_no_other_changes(replay, name, direction, held_back):
    done = replay(name, direction, held_back=held_back)
    for key, (region, align) in done.regions.items():
        after = bytes(done.images[key].after)
        assert region.data == bytes(align) + after + bytes(8 - align)


@either_pace
@every_direction
def test_receives_complete_in_order_with_their_bytes(replay, name, direction, held_back):
    done = replay(name, direction, held_back=held_back)
    plan = REPLAYED[name]
    completions = done.pair.right.received()
    consuming = [m for m in done.talk.messages if m.consumes_receive]
    assert [c.wr_id for c in completions] == [m.psn for m in consuming]
    assert [message for message, _ in done.receives] == consuming
    for completion, (message, data) in zip(completions, done.receives, strict=True):
        immediate = message.last.get("immediate")
        writes = message.opcode == wqe.RDMA_WRITE_WITH_IMM
        grh = GRH_BYTES if plan.service == UD else 0
        assert completion.status == cqe.WC_SUCCESS
        assert completion.opcode == (cqe.WC_RECV_RDMA_WITH_IMM if writes else cqe.WC_RECV)
        assert completion.byte_len == grh + len(message.data)
        tells = cqe.WC_WITH_IMM if immediate is not None else 0
        if message.opcode == wqe.SEND_WITH_INV:
            tells, immediate = cqe.WC_WITH_INV, done.requests.keys[message.last["rkey"]][0]
        assert completion.wc_flags == tells | (cqe.WC_GRH if grh else 0)
        assert completion.imm_or_key == (immediate or 0)
        assert completion.src_qp == done.pair.left.number
        placed = b"" if writes else message.data
        assert data[grh : grh + len(placed)] == placed
        assert set(data[grh + len(placed) :]) == {UNTOUCHED}
        if grh and not done.pair.v6:
            assert data[32:36] == done.pair.a.gid[12:]


@every_direction
def test_only_a_refused_request_ends_the_connection(replay, name, direction):
    done = replay(name, direction)
    refused = [m.refused for m in done.talk.messages if m.refused]
    assert refused == ([0x62] if name in ("bad_rkey", "send_inv") else [])
    assert done.pair.right.qp.state == (ERR if refused else RTS)
    assert done.pair.right.sent() == []


@every_direction
def test_replies_held_back_are_fewer_and_end_the_same(replay, name, direction):
    at_once = replay(name, direction)
    held_back = replay(name, direction, held_back=True)
    assert len(held_back.sent) <= len(at_once.sent)
    assert [s.record for s in held_back.sent[-1:]] == [s.record for s in at_once.sent[-1:]]


def test_one_ack_stands_for_all_messages_before_it(replay):
    done = replay("ib_write_bw", 0, held_back=True)
    replies = [(s.record["opcode"], s.record["psn"], s.record["msn"], s.place) for s in done.sent]
    assert replies == [("RC_ACKNOWLEDGE", 0xC7CE9A, 1, 6), ("RC_ACKNOWLEDGE", 0xC7CEA9, 5, 22)]
