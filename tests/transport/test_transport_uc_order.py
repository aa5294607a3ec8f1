"""Which of several things that are wrong with a UC or UD packet counts: the order of figure 117 (C9-171)."""

import pytest

from softhca.queues import cqe
from softhca.queues.control_fields import EVENT_COMM_EST, EVENT_MESSAGES_LOST
from softhca.transport.states import ERR, RTS, UC, UD
from softhca.transport.unreliable_receiver import BEGIN, BREAK, GO_ON, REFUSE, SEQUENCE
from softhca.wire import opcodes as op

FULL = b"f" * 256
SEND_ONLY = 4  # access: remote read alone


@pytest.fixture
def uc(pair):
    def make(**settings):
        return pair(**{"service": UC, "pmtu": 256, "left_psn": 50, **settings})

    return make


def drops(p):
    """The drop counters of the receiving queue pair that are not 0."""
    return {name[6:]: n for name, n in p.right.qp.counters.as_dict().items() if n and name[:6] == "drops_"}


def write(p, target, psn=50, payload=b"no", opcode=op.UC_RDMA_WRITE_ONLY, length=None, **wrong):
    """An RDMA WRITE that is good but for ``wrong``."""
    fields = {"va": target.va, "rkey": target.key, "length": len(payload) if length is None else length}
    p.forge(opcode, psn, payload, **{**fields, **wrong})


@pytest.mark.parametrize(
    ("position", "expected"),
    [
        # opcode of the packet after (nothing, SEND first, WRITE first)
        (op.UC_SEND_FIRST, (BEGIN, BREAK, BREAK)),
        (op.UC_SEND_MIDDLE, (REFUSE, GO_ON, REFUSE)),
        (op.UC_SEND_LAST, (REFUSE, GO_ON, REFUSE)),
        (op.UC_SEND_LAST_WITH_IMMEDIATE, (REFUSE, GO_ON, REFUSE)),
        (op.UC_SEND_ONLY, (BEGIN, BREAK, BREAK)),
        (op.UC_SEND_ONLY_WITH_IMMEDIATE, (BEGIN, BREAK, BREAK)),
        (op.UC_RDMA_WRITE_FIRST, (BEGIN, BREAK, BREAK)),
        (op.UC_RDMA_WRITE_MIDDLE, (REFUSE, REFUSE, GO_ON)),
        (op.UC_RDMA_WRITE_LAST, (REFUSE, REFUSE, GO_ON)),
        (op.UC_RDMA_WRITE_LAST_WITH_IMMEDIATE, (REFUSE, REFUSE, GO_ON)),
        (op.UC_RDMA_WRITE_ONLY, (BEGIN, BREAK, BREAK)),
        (op.UC_RDMA_WRITE_ONLY_WITH_IMMEDIATE, (BEGIN, BREAK, BREAK)),
    ],
)
def test_c9_187_to_189_sequence_table_and_what_the_receiver_does(uc, position, expected):
    row = op.OPCODES[position]
    assert tuple(state[row.operation * 4 + row.position] for state in SEQUENCE) == expected
    for before, verdict in zip((None, op.UC_SEND_FIRST, op.UC_RDMA_WRITE_FIRST), expected, strict=True):
        p = uc()
        inbox, target = p.right.region(1024), p.right.region(1024)
        for wr_id in range(3):
            p.right.post_receive([inbox.sge()], wr_id=wr_id)
        if before is not None:
            length = 768 if row.position == op.MIDDLE else 512
            p.forge(before, 50, FULL, va=target.va, rkey=target.key, length=length)
        last = row.position in (op.FIRST, op.MIDDLE)
        length = 512 if row.position == op.FIRST else 256
        p.forge(position, 51 if before is not None else 50, FULL, va=target.va + 256, rkey=target.key,
                length=length)  # fmt: skip
        assert drops(p) == ({"sequence": 1} if verdict in (BREAK, REFUSE) else {}), (before, position)
        under_way = verdict != REFUSE and last
        assert (p.right.qp.receive_engine().execution.operation >= 0) == under_way
        assert p.right.qp.state == RTS


def test_c9_190_operation_that_the_queue_pair_refuses_counts_as_opcode_before_all_behind_it(uc):
    p = uc(access=SEND_ONLY)
    target = p.right.region(256)
    write(p, target, payload=b"x" * 300, opcode=op.UC_RDMA_WRITE_ONLY_WITH_IMMEDIATE, rkey=1)
    assert drops(p) == {"opcode": 1}


def test_c9_187_sequence_counts_before_operation_and_length(uc):
    p = uc(access=SEND_ONLY)
    p.forge(op.UC_RDMA_WRITE_LAST_WITH_IMMEDIATE, 50, b"x" * 300)
    assert drops(p) == {"sequence": 1}


def test_c9_199_pad_in_a_first_packet_is_an_invalid_opcode_before_resources_and_length(uc):
    p = uc()
    p.forge(op.UC_SEND_FIRST, 50, b"x" * 253)
    assert drops(p) == {"opcode": 1}
    inbox = p.right.region(1024)
    p.right.post_receive([inbox.sge()])
    p.forge(op.UC_SEND_FIRST, 51, FULL)
    p.forge(op.UC_SEND_MIDDLE, 52, b"x" * 253)
    p.forge(op.UC_SEND_LAST, 53, b"x")
    assert drops(p) == {"opcode": 2, "sequence": 1}
    assert p.right.received() == []


def test_c9_199_last_and_only_may_have_a_pad(uc):
    p = uc()
    inbox = p.right.region(1024)
    for _ in range(2):
        p.right.post_receive([inbox.sge()])
    p.forge(op.UC_SEND_ONLY, 50, b"x" * 253)
    p.forge(op.UC_SEND_FIRST, 51, FULL)
    p.forge(op.UC_SEND_LAST, 52, b"x")
    assert [c.byte_len for c in p.right.received()] == [253, 257]


@pytest.mark.parametrize("opcode", [op.UC_SEND_ONLY, op.UC_RDMA_WRITE_ONLY_WITH_IMMEDIATE])
def test_c9_169_missing_receive_counts_before_length_and_key(uc, opcode):
    p = uc()
    target = p.right.region(512)
    write(p, target, payload=b"x" * 260, opcode=opcode, rkey=1)
    assert drops(p) == {"no_receive": 1}


def test_c9_195_payload_length_counts_before_room_and_key(uc):
    p = uc()
    inbox, target = p.right.region(64), p.right.region(512)
    p.right.post_receive([inbox.sge()], wr_id=7)
    p.forge(op.UC_SEND_ONLY, 50, b"x" * 260)
    assert drops(p) == {"length": 1}
    write(p, target, 51, b"x" * 260, rkey=1)
    assert drops(p) == {"length": 2}
    p.forge(op.UC_SEND_ONLY, 52, b"x" * 65)
    assert drops(p) == {"length": 2, "receive_length": 1}
    p.forge(op.UC_SEND_ONLY, 53, b"x" * 64)
    assert [(c.wr_id, c.byte_len) for c in p.right.received()] == [(7, 64)]


@pytest.mark.parametrize("length", [1, 3, 0])
def test_dma_length_that_the_packets_do_not_bring_counts_before_the_key(uc, length):
    p = uc()
    target = p.right.region(512)
    write(p, target, payload=b"no", length=length, rkey=1)
    assert drops(p) == {"length": 1}
    assert not any(target.data)


def test_c9_170_bad_key_takes_no_receive(uc):
    p = uc()
    target, inbox = p.right.region(512), p.right.region(64)
    p.right.post_receive([inbox.sge()], wr_id=1)
    write(p, target, opcode=op.UC_RDMA_WRITE_ONLY_WITH_IMMEDIATE, rkey=target.key ^ 1)
    assert drops(p) == {"protection": 1}
    assert p.right.qp.receive_engine().sink.acquired == 0
    write(p, target, 51, opcode=op.UC_RDMA_WRITE_ONLY_WITH_IMMEDIATE)
    assert [(c.wr_id, c.byte_len) for c in p.right.received()] == [(1, 2)]


def test_c9_192_2_1_bounds_are_checked_for_each_packet_by_its_own_length(uc):
    p = uc()
    target = p.right.region(600)
    write(p, target, 50, FULL, op.UC_RDMA_WRITE_FIRST, length=768)
    write(p, target, 51, b"g" * 256, op.UC_RDMA_WRITE_MIDDLE)
    write(p, target, 52, b"h" * 256, op.UC_RDMA_WRITE_LAST)
    assert drops(p) == {"protection": 1}
    assert target.data == FULL + b"g" * 256 + bytes(88)


@pytest.mark.parametrize("change", ["deregister", "rights", "domain"])
def test_c9_192_2_1_key_that_dies_within_a_message_ends_it(uc, change):
    p = uc()
    target = p.right.region(600)
    write(p, target, 50, FULL, op.UC_RDMA_WRITE_FIRST, length=512)
    if change == "deregister":
        target.deregister()
    else:
        p.b.regions.reregister(target.region, **({"access": 1} if change == "rights" else {"pd": 8}))
    write(p, target, 51, b"g" * 256, op.UC_RDMA_WRITE_LAST)
    assert drops(p) == {"protection": 1}
    assert target.data == FULL + bytes(344)
    assert p.right.qp.state == RTS


def test_write_that_wraps_the_address_space_is_refused(uc):
    p = uc()
    target = p.right.region(512)
    write(p, target, va=(1 << 64) - 1)
    assert drops(p) == {"protection": 1}


def test_local_error_in_the_receive_of_a_write_with_immediate_ends_the_queue_pair(uc):
    p = uc()
    target = p.right.region(512)
    p.right.receive_producer.push(p.right.address, 3)
    write(p, target, opcode=op.UC_RDMA_WRITE_ONLY_WITH_IMMEDIATE)
    assert [c.status for c in p.right.received()] == [cqe.WC_LOC_QP_OP_ERR]
    assert p.right.qp.state == ERR
    assert not any(target.data)


# the expected PSN


def test_c9_183_each_packet_off_the_expected_psn_counts_as_out_of_sequence(uc):
    p = uc()
    inbox = p.right.region(1024)
    for _ in range(3):
        p.right.post_receive([inbox.sge()])
    p.forge(op.UC_SEND_ONLY, 50, b"in order")
    assert p.right.qp.counters.out_of_sequence == 0
    p.forge(op.UC_SEND_FIRST, 60, FULL)  # a new base
    p.forge(op.UC_SEND_LAST, 61, b"x")
    assert (p.right.qp.counters.out_of_sequence, p.right.qp.receive_engine().epsn) == (1, 62)
    p.forge(op.UC_SEND_LAST, 70, b"x")
    assert (p.right.qp.counters.out_of_sequence, p.right.qp.receive_engine().epsn) == (2, 62)
    assert len(p.right.received()) == 2


def test_c9_185_expected_psn_goes_on_over_packets_that_are_dropped_and_wraps(uc):
    p = uc(left_psn=0xFFFFFE)
    p.forge(op.UC_SEND_FIRST, 0xFFFFFE, FULL)
    p.forge(op.UC_SEND_MIDDLE, 0xFFFFFF, FULL)
    p.forge(op.UC_SEND_LAST, 0, b"x")
    assert drops(p) == {"no_receive": 1, "sequence": 2}
    assert (p.right.qp.counters.out_of_sequence, p.right.qp.receive_engine().epsn) == (0, 1)


def lost_events(p):
    return [number for kind, number in p.b.events if kind == EVENT_MESSAGES_LOST]


def test_o9_131_loss_is_told_once_until_a_packet_is_the_expected_one(uc):
    p = uc()
    p.right.qp.tells_losses = True
    inbox = p.right.region(1024)
    for _ in range(9):
        p.right.post_receive([inbox.sge()])
    p.forge(op.UC_SEND_ONLY, 50, b"a")
    assert lost_events(p) == []
    p.forge(op.UC_SEND_MIDDLE, 52, FULL)
    p.forge(op.UC_SEND_LAST, 53, b"x")
    assert lost_events(p) == [p.right.number]
    p.forge(op.UC_SEND_ONLY, 54, b"x")  # the same gap
    p.forge(op.UC_SEND_ONLY, 55, b"x")
    assert lost_events(p) == [p.right.number]
    p.forge(op.UC_SEND_ONLY, 57, b"x")
    assert lost_events(p) == [p.right.number] * 2
    p.forge(op.UC_SEND_ONLY, 58, b"x")
    p.forge(op.UC_SEND_ONLY, 60, b"x")
    assert lost_events(p) == [p.right.number] * 3
    assert p.right.qp.state == RTS


def test_o9_131_nothing_is_told_unless_asked(uc):
    p = uc()
    p.forge(op.UC_SEND_ONLY, 99, b"a")
    assert [kind for kind, _ in p.b.events] == [kind for kind, _ in p.b.events if kind == EVENT_COMM_EST]
    assert p.right.qp.counters.out_of_sequence == 1


# datagrams


@pytest.fixture
def ud(pair):
    return pair(service=UD, pmtu=256)


def test_c9_171_datagrams_q_key_then_receive_then_payload_then_room(ud):
    ud.forge(op.UD_SEND_ONLY, 1, b"x" * 257, qkey=1)
    assert drops(ud) == {"qkey": 1}
    ud.forge(op.UD_SEND_ONLY, 2, b"x" * 257)
    assert drops(ud) == {"qkey": 1, "no_receive": 1}
    inbox = ud.right.region(512)
    ud.right.post_receive([inbox.sge(0, 41)], wr_id=5)
    ud.forge(op.UD_SEND_ONLY, 3, b"x" * 257)
    assert drops(ud) == {"qkey": 1, "no_receive": 1, "length": 1}
    ud.forge(op.UD_SEND_ONLY, 3, b"x" * 256)
    assert drops(ud) == {"qkey": 1, "no_receive": 1, "length": 1, "receive_length": 1}
    ud.forge(op.UD_SEND_ONLY, 3, b"x")
    assert [(c.wr_id, c.byte_len) for c in ud.right.received()] == [(5, 41)]


def test_o9_144_datagrams_come_whatever_their_psn(ud):
    inbox = ud.right.region(512)
    ud.right.qp.tells_losses = True
    for psn in (7, 7, 0xFFFFFF, 3):
        ud.right.post_receive([inbox.sge()])
        ud.forge(op.UD_SEND_ONLY, psn, b"x")
    assert len(ud.right.received()) == 4
    assert lost_events(ud) == []
    assert ud.right.qp.counters.out_of_sequence == 0


def test_c9_205_wrong_length_takes_nothing_from_a_shared_receive_queue(pair):
    p = pair(service=UD, pmtu=256, srq=True)
    inbox = p.right.region(512)
    p.right.post_receive([inbox.sge()])
    p.forge(op.UD_SEND_ONLY, 1, b"x" * 257)
    assert (drops(p), p.srq[0].count()) == ({"length": 1}, 1)
    p.forge(op.UD_SEND_ONLY, 1, b"x" * 256)
    assert (len(p.right.received()), p.srq[0].count()) == (1, 0)
    p.forge(op.UD_SEND_ONLY, 1, b"x" * 256)
    assert drops(p) == {"length": 1, "no_receive": 1}
