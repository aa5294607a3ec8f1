"""The responder against packets of every kind: expected, repeated, beyond a gap, out of sequence, of wrong
length."""

import pytest

from softhca.queues import cqe
from softhca.transport.credits import CREDITS, encode
from softhca.transport.states import ERR, RTS
from softhca.wire import opcodes as op

FULL = b"f" * 256


@pytest.fixture
def peer(pair):
    """A pair whose left side is played by the test."""
    p = pair(pmtu=256, left_psn=100, right_psn=500, rd_atomic=2)
    p.target = p.right.region(4096)
    p.target.data[:] = bytes(range(256)) * 16
    return p


def answers(p):
    """(opcode, PSN, syndrome) of what the responder has sent since the last look."""
    p.run()
    rows = [(row["opcode"], row["psn"], row["syndrome"]) for row in p.decoded("ba")]
    p.log.clear()
    return rows


def is_nak(rows, syndrome, psn):
    assert rows == [(op.RC_ACKNOWLEDGE, psn, syndrome)]


def write(p, psn, payload=b"w", offset=0, **other):
    p.forge(
        op.RC_RDMA_WRITE_ONLY,
        psn,
        payload,
        va=p.target.va + offset,
        rkey=p.target.key,
        length=len(payload),
        **other,
    )


def read(p, psn, length, offset=0, **other):
    p.forge(op.RC_RDMA_READ_REQUEST, psn, va=p.target.va + offset, rkey=p.target.key, length=length, **other)


def test_request_in_order_is_acknowledged_with_psn_and_msn(peer):
    write(peer, 100)
    peer.run()
    (row,) = peer.decoded("ba")
    assert (row["psn"], row["syndrome"], row["msn"]) == (100, 0, 1)


def test_request_that_does_not_ask_is_acknowledged_with_the_next_one(peer):
    write(peer, 100, ack=False)
    assert answers(peer) == []
    write(peer, 101)
    assert answers(peer) == [(op.RC_ACKNOWLEDGE, 101, 0)]


def test_an_acknowledgement_that_has_not_gone_yet_is_for_what_comes_meanwhile_too(peer):
    """Though that does not ask."""
    write(peer, 100)
    write(peer, 101, ack=False)
    assert answers(peer) == [(op.RC_ACKNOWLEDGE, 101, 0)]


def test_gap_is_told_once_and_again_only_after_an_expected_packet(peer):
    write(peer, 102)
    is_nak(answers(peer), 0x60, 100)
    write(peer, 103)
    write(peer, 105)
    assert answers(peer) == []
    write(peer, 100)
    assert answers(peer) == [(op.RC_ACKNOWLEDGE, 100, 0)]
    write(peer, 104)
    is_nak(answers(peer), 0x60, 101)
    assert peer.right.qp.state == RTS


def test_gap_closed_before_the_nak_went_out_is_acknowledged(peer):
    write(peer, 101)
    write(peer, 100)
    write(peer, 101)
    assert answers(peer) == [(op.RC_ACKNOWLEDGE, 101, 0)]


def test_packet_lost_behind_a_late_one_is_asked_for_again(peer):
    write(peer, 101)
    write(peer, 100)
    assert answers(peer) == [(op.RC_ACKNOWLEDGE, 100, 0), (op.RC_ACKNOWLEDGE, 101, 0x60)]


def test_packet_beyond_a_gap_is_not_executed(peer):
    before = bytes(peer.target.data)
    write(peer, 101, b"no")
    answers(peer)
    assert peer.target.data == before


@pytest.mark.parametrize("distance", [1, 2, (1 << 23) - 1, 1 << 23])
def test_duplicate_write_is_acknowledged_again_and_not_executed(peer, distance):
    write(peer, 100, b"first")
    answers(peer)
    write(peer, 101 - distance, b"again")
    assert answers(peer) == [(op.RC_ACKNOWLEDGE, (101 - distance) & 0xFFFFFF, 0)]
    assert peer.target.data[:5] == b"first"


def test_half_the_psn_space_ahead_is_a_gap(peer):
    write(peer, 100 + (1 << 23) - 1)
    is_nak(answers(peer), 0x60, 100)


def test_duplicate_send_consumes_no_receive(peer):
    peer.right.post_receive([peer.target.sge()], wr_id=1)
    peer.right.post_receive([peer.target.sge()], wr_id=2)
    for _ in range(2):
        peer.forge(op.RC_SEND_ONLY, 100, b"once")
    answers(peer)
    assert [c.wr_id for c in peer.right.received()] == [1]


BAD_SEQUENCES = [
    (first, second)
    for first in (None, op.RC_SEND_FIRST, op.RC_RDMA_WRITE_FIRST)
    for second in sorted(op.OPCODES)
    if op.OPCODES[second].service == op.RC
    and not op.OPCODES[second].is_response
    and second not in (op.successors(first) if first is not None else op.successors(op.RC_SEND_ONLY))
]


@pytest.mark.parametrize(("first", "second"), BAD_SEQUENCES)
def test_opcode_out_of_sequence_is_an_invalid_request(peer, first, second):
    peer.right.post_receive([peer.target.sge()], wr_id=1)
    psn = 100
    if first is not None:
        peer.forge(first, psn, FULL, va=peer.target.va, rkey=peer.target.key, length=1000)
        psn += 1
        answers(peer)
    before = bytes(peer.target.data)
    payload = FULL if op.OPCODES[second].payload else b""
    peer.forge(second, psn, payload, va=peer.target.va, rkey=peer.target.key, length=len(payload))
    is_nak(answers(peer), 0x61, psn)
    assert peer.target.data == before
    assert peer.right.qp.state == ERR
    statuses = [c.status for c in peer.right.received()]
    assert statuses == [cqe.WC_REM_INV_REQ_ERR if first == op.RC_SEND_FIRST else cqe.WC_WR_FLUSH_ERR]


@pytest.mark.parametrize(
    ("opcode", "size", "length"),
    [
        (op.RC_SEND_FIRST, 255, 0),
        (op.RC_SEND_FIRST, 0, 0),
        (op.RC_SEND_ONLY, 257, 0),
        (op.RC_RDMA_WRITE_FIRST, 252, 1000),
        (op.RC_RDMA_WRITE_FIRST, 256, 256),
        (op.RC_RDMA_WRITE_FIRST, 256, 100),
        (op.RC_RDMA_WRITE_ONLY, 256, 257),
        (op.RC_RDMA_WRITE_ONLY, 256, 255),
        (op.RC_RDMA_WRITE_ONLY, 257, 257),
        (op.RC_RDMA_WRITE_ONLY, 0, (1 << 31) + 1),
    ],
)
def test_first_and_only_of_wrong_length_are_invalid_requests(peer, opcode, size, length):
    peer.right.post_receive([peer.target.sge()])
    before = bytes(peer.target.data)
    peer.forge(opcode, 100, b"x" * size, va=peer.target.va, rkey=peer.target.key, length=length)
    is_nak(answers(peer), 0x61, 100)
    assert peer.target.data == before


@pytest.mark.parametrize(
    ("opcode", "size", "valid"),
    [
        (op.RC_SEND_MIDDLE, 255, False),
        (op.RC_SEND_MIDDLE, 256, True),
        (op.RC_SEND_LAST, 0, False),
        (op.RC_SEND_LAST, 1, True),
        (op.RC_SEND_LAST, 256, True),
        (op.RC_SEND_LAST, 257, False),
    ],
)
def test_middle_is_full_and_last_is_not_empty(peer, opcode, size, valid):
    peer.right.post_receive([peer.target.sge()])
    peer.forge(op.RC_SEND_FIRST, 100, FULL, ack=False)
    peer.forge(opcode, 101, b"x" * size)
    rows = answers(peer)
    assert [row[1:] for row in rows] == ([(101, 0)] if valid else [(101, 0x61)])


@pytest.mark.parametrize(
    ("opcode", "size", "valid"),
    [
        (op.RC_RDMA_WRITE_MIDDLE, 256, True),
        (op.RC_RDMA_WRITE_LAST, 244, False),
        (op.RC_RDMA_WRITE_LAST, 256, False),
        (op.RC_RDMA_WRITE_LAST_WITH_IMMEDIATE, 252, False),
    ],
)
def test_write_is_as_long_as_its_reth_says(peer, opcode, size, valid):
    peer.right.post_receive()
    peer.forge(
        op.RC_RDMA_WRITE_FIRST, 100, FULL, va=peer.target.va, rkey=peer.target.key, length=760, ack=False
    )
    peer.forge(opcode, 101, b"x" * size)
    rows = answers(peer)
    assert [row[1:] for row in rows] == ([(101, 1)] if valid else [(101, 0x61)])


def test_middle_that_would_run_over_the_length_is_invalid(peer):
    peer.forge(
        op.RC_RDMA_WRITE_FIRST, 100, FULL, va=peer.target.va, rkey=peer.target.key, length=500, ack=False
    )
    before = bytes(peer.target.data)
    peer.forge(op.RC_RDMA_WRITE_MIDDLE, 101, FULL)
    is_nak(answers(peer), 0x61, 101)
    assert peer.target.data == before


# RDMA READ and atomics again


def test_repeated_read_is_served_again_whole_or_in_part(peer):
    read(peer, 100, 1000)
    assert [row[:2] for row in answers(peer)] == [(0x0D, 100), (0x0E, 101), (0x0E, 102), (0x0F, 103)]
    read(peer, 100, 1000)
    assert [row[:2] for row in answers(peer)] == [(0x0D, 100), (0x0E, 101), (0x0E, 102), (0x0F, 103)]
    read(peer, 102, 1000 - 512, offset=512)
    assert [row[:2] for row in answers(peer)] == [(0x0D, 102), (0x0F, 103)]
    read(peer, 101, 300, offset=256)
    peer.run()
    rows = peer.decoded("ba")
    assert [(row["opcode"], row["psn"], row["bytes"]) for row in rows] == [(0x0D, 101, 256), (0x0F, 102, 44)]


def test_another_part_of_a_read_is_asked_for_while_one_waits_to_be_sent(peer):
    read(peer, 100, 1024)
    answers(peer)
    read(peer, 101, 256, 256)
    read(peer, 103, 256, 768)  # behind what waits, and no part of it
    assert answers(peer) == [(op.RC_RDMA_READ_RESPONSE_ONLY, 103, 0)]
    read(peer, 101, 512, 256)
    read(peer, 102, 256, 512)  # a part of what waits
    assert [psn for _, psn, _ in answers(peer)] == [101, 102]


def test_part_of_a_read_goes_on_for_a_requester_without_migreq(peer):
    """Linux's SoftRoCE takes no FIRST or ONLY in the middle of an answer."""
    read(peer, 100, 1000, migreq=False)
    assert [row[:2] for row in answers(peer)] == [(0x0D, 100), (0x0E, 101), (0x0E, 102), (0x0F, 103)]
    read(peer, 101, 1000 - 256, offset=256, migreq=False)
    assert [row[:2] for row in answers(peer)] == [(0x0E, 101), (0x0E, 102), (0x0F, 103)]
    read(peer, 103, 1000 - 768, offset=768, migreq=False)
    assert [row[:2] for row in answers(peer)] == [(0x0F, 103)]
    read(peer, 100, 1000, migreq=False)
    assert [row[:2] for row in answers(peer)] == [(0x0D, 100), (0x0E, 101), (0x0E, 102), (0x0F, 103)]
    read(peer, 102, 1000 - 512, offset=512)
    assert [row[:2] for row in answers(peer)] == [(0x0D, 102), (0x0F, 103)]


def test_repeated_read_reads_memory_anew(peer):
    read(peer, 100, 4)
    answers(peer)
    peer.target.data[:4] = b"new!"
    read(peer, 100, 4)
    peer.run()
    (segment,) = [segment for way, segment in peer.log if way == "ba"]
    assert segment[16:20] == b"new!"


@pytest.mark.parametrize(
    ("length", "offset", "psn"), [(1001, 0, 100), (1000, 4, 100), (1000, 0, 101), (745, 256, 101)]
)
def test_repeated_read_that_asks_for_something_else_is_ignored(peer, length, offset, psn):
    read(peer, 100, 1000)
    answers(peer)
    read(peer, psn, length, offset)
    assert answers(peer) == []
    assert peer.right.qp.state == RTS


def test_repeated_read_with_another_key_is_ignored(peer):
    other = peer.right.region(4096)
    read(peer, 100, 16)
    answers(peer)
    peer.forge(op.RC_RDMA_READ_REQUEST, 100, va=peer.target.va, rkey=other.key, length=16)
    assert answers(peer) == []


def test_repeated_read_checks_its_key_again(peer):
    read(peer, 100, 16)
    answers(peer)
    peer.target.deregister()
    read(peer, 100, 16)
    is_nak(answers(peer), 0x62, 100)
    assert peer.right.qp.state == ERR


def test_reads_older_than_the_resources_are_ignored(peer):
    for i in range(3):
        read(peer, 100 + i, 16)
        answers(peer)
    read(peer, 100, 16)
    assert answers(peer) == []
    read(peer, 101, 16)
    assert [row[:2] for row in answers(peer)] == [(0x10, 101)]


def test_more_reads_at_once_than_resources_are_an_invalid_request(peer):
    for i in range(3):
        read(peer, 100 + i, 16)
    rows = answers(peer)
    assert [row[:2] for row in rows] == [(0x10, 100), (0x10, 101), (op.RC_ACKNOWLEDGE, 102)]
    assert rows[-1][2] == 0x61


@pytest.mark.parametrize(
    ("agreed", "taken"), [(0, 0), (1, 1), (2, 2), (3, 4), (4, 4), (5, 8), (16, 16), (17, 32), (127, 128)]
)
def test_as_many_reads_at_once_are_taken_as_the_next_power_of_two_says(pair, agreed, taken):
    """There are requesters that round what was agreed up so; a query tells what was asked for."""
    p = pair(pmtu=256, left_psn=100, rd_atomic=agreed)
    target = p.right.region(16, fill=FULL[:16])
    assert p.right.qp.query()["max_dest_rd_atomic"] == agreed
    for i in range(taken + 1):
        p.forge(op.RC_RDMA_READ_REQUEST, 100 + i, va=target.va, rkey=target.key, length=16)
    rows = answers(p)
    assert [row[:2] for row in rows[:-1]] == [(0x10, 100 + i) for i in range(taken)]
    is_nak(rows[-1:], 0x61, 100 + taken)


def test_as_many_reads_are_answered_again_as_are_taken_at_once(pair):
    p = pair(pmtu=256, left_psn=100, rd_atomic=3)
    p.target = p.right.region(4096)
    for i in range(5):
        read(p, 100 + i, 16)
        answers(p)
    for i in range(5):
        read(p, 100 + i, 16)
    assert [row[1] for row in answers(p)] == [101, 102, 103, 104]
    assert p.right.qp.counters.drops_resources == 1


@pytest.mark.parametrize("duplicates", [1, 2, 30])
@pytest.mark.parametrize("ahead", [True, False])
def test_duplicates_of_a_read_under_way_begin_its_answer_anew_and_add_none(pair, duplicates, ahead):
    p = pair(pmtu=256, left_psn=100, rd_atomic=4)
    p.target = p.right.region(65_536)
    read(p, 100, 65_536)
    p.transmit(p.b)
    sent = len(p.log)
    assert 1 < sent < 256
    for _ in range(duplicates):
        if ahead:  # what has not been sent yet comes anyway
            read(p, 100 + sent, 65_536 - 256 * sent, 256 * sent)
        else:
            read(p, 100, 65_536)
    assert p.right.qp.receive_engine().replies.ring.pending == 1
    psns = [row[1] for row in answers(p)]
    assert psns == [*range(100, 100 + sent), *range(100 + sent if ahead else 100, 356)]


def test_duplicates_of_several_reads_begin_each_answer_anew_once(pair):
    p = pair(pmtu=256, left_psn=100, rd_atomic=4)
    p.target = p.right.region(2_560)
    for i in range(4):
        read(p, 100 + 10 * i, 2_560)
    assert len(answers(p)) == 40
    for _ in range(20):
        for i in range(4):
            read(p, 100 + 10 * i, 2_560)
    assert p.right.qp.receive_engine().replies.ring.pending == 4
    assert [row[1] for row in answers(p)] == [*range(100, 140)]


def test_atomic_is_executed_once_and_its_result_given_again(peer):
    peer.target.data[8:16] = (40).to_bytes(8, "little")
    for _ in range(3):
        peer.forge(op.RC_FETCH_ADD, 100, va=peer.target.va + 8, rkey=peer.target.key, swap_add=2)
        peer.run()
    assert peer.target.data[8:16] == (42).to_bytes(8, "little")
    results = [int.from_bytes(segment[16:24], "big") for way, segment in peer.log if way == "ba"]
    assert results == [40, 40, 40]


def test_saved_atomic_result_is_given_only_while_its_key_is_valid(peer):
    peer.forge(op.RC_FETCH_ADD, 100, va=peer.target.va, rkey=peer.target.key, swap_add=2)
    answers(peer)
    peer.target.deregister()
    peer.forge(op.RC_FETCH_ADD, 100, va=peer.target.va, rkey=peer.target.key, swap_add=2)
    is_nak(answers(peer), 0x62, 100)


@pytest.mark.parametrize("difference", [{"va": 16}, {"rkey": 1}])
def test_repeated_atomic_on_something_else_is_ignored(peer, difference):
    peer.forge(op.RC_FETCH_ADD, 100, va=peer.target.va, rkey=peer.target.key, swap_add=2)
    answers(peer)
    before = bytes(peer.target.data)
    peer.forge(
        op.RC_FETCH_ADD,
        100,
        va=peer.target.va + difference.get("va", 0),
        rkey=peer.target.key ^ difference.get("rkey", 0),
        swap_add=2,
    )
    assert answers(peer) == []
    assert peer.target.data == before


def test_repeated_atomic_is_refused_when_rights_have_come_and_gone_meanwhile(peer):
    """A key that was withdrawn does not live again for what was asked before."""
    region, access = peer.target.region, peer.target.region.access
    peer.forge(op.RC_FETCH_ADD, 100, va=peer.target.va, rkey=peer.target.key, swap_add=2)
    answers(peer)
    peer.b.regions.reregister(region, access=access & ~8)
    peer.b.regions.reregister(region, access=access)
    peer.forge(op.RC_FETCH_ADD, 100, va=peer.target.va, rkey=peer.target.key, swap_add=2)
    is_nak(answers(peer), 0x62, 100)


def test_acknowledgement_waits_for_the_read_before_it_and_a_later_read_replaces_it(peer):
    read(peer, 100, 600)
    write(peer, 103, ack=True)
    read(peer, 104, 16)
    assert [row[:2] for row in answers(peer)] == [(0x0D, 100), (0x0E, 101), (0x0F, 102), (0x10, 104)]
    read(peer, 105, 16)
    write(peer, 106)
    assert [row[:2] for row in answers(peer)] == [(0x10, 105), (op.RC_ACKNOWLEDGE, 106)]


def test_nak_comes_after_the_answers_to_reads_before_it(peer):
    read(peer, 100, 600)
    peer.forge(op.RC_RDMA_WRITE_ONLY, 103, b"x", va=peer.target.va, rkey=peer.target.key ^ 1, length=1)
    rows = answers(peer)
    assert [row[:2] for row in rows] == [(0x0D, 100), (0x0E, 101), (0x0F, 102), (op.RC_ACKNOWLEDGE, 103)]
    assert rows[-1][2] == 0x62
    assert peer.right.qp.state == ERR


def test_nothing_is_executed_or_answered_after_a_fatal_nak(peer):
    peer.forge(op.RC_RDMA_WRITE_ONLY, 100, b"x", va=peer.target.va, rkey=peer.target.key ^ 1, length=1)
    before = bytes(peer.target.data)
    write(peer, 100, b"later")
    is_nak(answers(peer), 0x62, 100)
    write(peer, 100, b"later")
    assert answers(peer) == []
    assert peer.target.data == before


def test_error_by_the_consumer_sends_nothing_behind_an_answer_that_is_lost(peer):
    read(peer, 100, 600)
    write(peer, 103)
    peer.right.qp.modify({"qp_state": ERR}, peer.now)
    assert answers(peer) == []


def test_rnr_nak_then_silence_until_the_same_packet_comes_again(peer):
    peer.forge(op.RC_SEND_ONLY, 100, b"a")
    is_nak(answers(peer), 0x21, 100)
    write(peer, 101)
    assert answers(peer) == []
    peer.right.post_receive([peer.target.sge()])
    peer.forge(op.RC_SEND_ONLY, 100, b"a")
    assert answers(peer) == [(op.RC_ACKNOWLEDGE, 100, 0)]


def test_multi_packet_send_gets_its_rnr_nak_at_the_first_packet(peer):
    peer.forge(op.RC_SEND_FIRST, 100, FULL)
    peer.forge(op.RC_SEND_LAST, 101, b"x")
    is_nak(answers(peer), 0x21, 100)


def test_credits_follow_the_table_of_the_standard():
    assert [encode(n) for n in (0, 1, 2, 3, 4, 5, 6, 7, 8, 11, 12, 15, 16)] == [
        0,
        1,
        2,
        3,
        4,
        4,
        5,
        5,
        6,
        6,
        7,
        7,
        8,
    ]
    assert encode(32_767) == 29
    assert encode(32_768) == encode(1 << 20) == 30
    for code, count in enumerate(CREDITS):
        assert encode(count) == code


def test_acknowledgement_tells_how_many_receives_are_left(peer):
    for _ in range(10):
        peer.right.post_receive([peer.target.sge()])
    peer.forge(op.RC_SEND_ONLY, 100, b"a")
    (row,) = answers(peer)
    assert CREDITS[row[2]] == 8  # nine are left; the table has no nine
