"""What ends, delays or repeats a request of a reliable connection: NAKs, RNR, time-outs, local errors,
flush."""

import pytest

from softhca.queues import cqe, wqe
from softhca.queues.control_fields import (
    EVENT_COMM_EST,
    EVENT_QP_ACCESS_ERR,
    EVENT_QP_FATAL,
    EVENT_QP_LAST_WQE_REACHED,
    EVENT_QP_REQ_ERR,
)
from softhca.testing.transport_node import ALL_ACCESS, HOST
from softhca.testing.transport_pair import Faults
from softhca.transport.retry import RNR_TIMER_NS, interval_ns
from softhca.transport.states import ERR, INIT, RESET, RTR, RTS
from softhca.wire import opcodes

DATA = bytes(range(256)) * 40


def statuses(completions):
    return [c.status for c in completions]


def until(p, condition):
    while not condition():
        assert p.step()


def fails_remotely(p, status, syndrome, event=None):
    """The request at the front failed with ``status`` and the peer said so with ``syndrome``."""
    p.run()
    sent = p.left.sent()
    assert statuses(sent) == [status] + [cqe.WC_WR_FLUSH_ERR] * (len(sent) - 1)
    assert p.left.qp.state == ERR
    assert p.right.qp.state == ERR
    assert [row["syndrome"] for row in p.decoded("ba")][-1] == syndrome
    if event is not None:
        assert (event, p.right.number) in p.b.events
    p.at_rest()


@pytest.mark.parametrize(
    ("access", "shift", "length", "wrong_key"),
    [
        (ALL_ACCESS, 0, 100, True),
        (1 | 4, 0, 100, False),
        (ALL_ACCESS, 1, 100, False),
        (ALL_ACCESS, -1, 10, False),
    ],
)
def test_write_without_key_right_or_range_is_a_remote_access_error_and_writes_nothing(
    pair, access, shift, length, wrong_key
):
    p = pair(pmtu=256)
    target = p.right.region(100, access)
    source = p.left.region(100, fill=b"x" * 100)
    p.left.post(
        wqe.RDMA_WRITE,
        [source.sge(0, length)],
        va=target.va + shift,
        rkey=target.key ^ (0x100 if wrong_key else 0),
    )
    fails_remotely(p, cqe.WC_REM_ACCESS_ERR, 0x62, EVENT_QP_ACCESS_ERR)
    assert not any(target.data)


def test_write_checks_the_whole_range_before_the_first_byte(pair):
    p = pair(pmtu=256)
    target, source = p.right.region(1000), p.left.region(1001, fill=b"x" * 1001)
    p.left.post(wqe.RDMA_WRITE, [source.sge()], remote=target)
    fails_remotely(p, cqe.WC_REM_ACCESS_ERR, 0x62)
    assert not any(target.data)


def test_region_of_another_domain_is_refused(pair):
    p = pair()
    target = p.right.region(64)
    p.b.regions.reregister(target.region, pd=8)
    p.left.post(wqe.RDMA_WRITE, inline=b"x", remote=target)
    fails_remotely(p, cqe.WC_REM_ACCESS_ERR, 0x62)
    assert not any(target.data)


@pytest.mark.parametrize(
    ("opcode", "access"), [(wqe.RDMA_WRITE, 12), (wqe.RDMA_READ, 10), (wqe.ATOMIC_FETCH_AND_ADD, 6)]
)
def test_operation_that_the_queue_pair_does_not_allow_is_an_invalid_request(pair, opcode, access):
    p = pair(access=access)
    target, local = p.right.region(64), p.left.region(8)
    p.left.post(opcode, [local.sge()], remote=target)
    fails_remotely(p, cqe.WC_REM_INV_REQ_ERR, 0x61, EVENT_QP_REQ_ERR)


@pytest.mark.parametrize("opcode", [wqe.RDMA_READ, wqe.ATOMIC_FETCH_AND_ADD, wqe.ATOMIC_CMP_AND_SWP])
def test_read_and_atomic_without_key_are_remote_access_errors(pair, opcode):
    p = pair()
    target, local = p.right.region(64), p.left.region(8)
    p.left.post(opcode, [local.sge()], remote=target, rkey=target.key ^ 1)
    fails_remotely(p, cqe.WC_REM_ACCESS_ERR, 0x62, EVENT_QP_ACCESS_ERR)
    assert not any(target.data)


@pytest.mark.parametrize(
    ("opcode", "access"), [(wqe.RDMA_READ, 1 | 2 | 8), (wqe.ATOMIC_FETCH_AND_ADD, 1 | 2 | 4)]
)
def test_read_and_atomic_without_the_regions_right_are_remote_access_errors(pair, opcode, access):
    p = pair()
    target, local = p.right.region(64, access), p.left.region(8)
    p.left.post(opcode, [local.sge()], remote=target)
    fails_remotely(p, cqe.WC_REM_ACCESS_ERR, 0x62)


def test_unaligned_atomic_is_an_invalid_request(pair):
    p = pair()
    target, local = p.right.region(64), p.left.region(8)
    p.left.post(wqe.ATOMIC_FETCH_AND_ADD, [local.sge()], remote=target, offset=4, compare=1)
    fails_remotely(p, cqe.WC_REM_INV_REQ_ERR, 0x61)
    assert not any(target.data)


@pytest.mark.parametrize("opcode", [wqe.RDMA_READ, wqe.RDMA_WRITE])
def test_key_of_an_empty_request_is_not_looked_at(pair, opcode):
    p = pair()
    p.left.post(opcode, va=1, rkey=0xBAD)
    p.run()
    assert statuses(p.left.sent()) == [0]


def test_receive_too_small_is_an_invalid_request_and_a_length_error_there(pair):
    p = pair(pmtu=256)
    target, source = p.right.region(2000), p.left.region(2000, fill=b"x" * 2000)
    p.right.post_receive([target.sge(0, 999)], wr_id=1)
    p.right.post_receive([target.sge(0, 999)], wr_id=2)
    p.left.post(wqe.SEND, [source.sge(0, 1000)])
    fails_remotely(p, cqe.WC_REM_INV_REQ_ERR, 0x61)
    assert [(c.wr_id, c.status) for c in p.right.received()] == [
        (1, cqe.WC_LOC_LEN_ERR),
        (2, cqe.WC_WR_FLUSH_ERR),
    ]
    assert not any(target.data[999:])


def test_receive_with_a_bad_key_is_a_remote_operational_error(pair):
    p = pair()
    target = p.right.region(64)
    p.right.post_receive([(target.va, 64, target.key ^ 1)])
    p.left.post(wqe.SEND, inline=b"x")
    fails_remotely(p, cqe.WC_REM_OP_ERR, 0x63)
    assert statuses(p.right.received()) == [cqe.WC_LOC_PROT_ERR]


def test_receive_needs_the_local_write_right(pair):
    p = pair()
    target = p.right.region(64, 4)
    p.right.post_receive([target.sge()])
    p.left.post(wqe.SEND, inline=b"x")
    fails_remotely(p, cqe.WC_REM_OP_ERR, 0x63)
    assert not any(target.data)


# local errors of the requester


@pytest.mark.parametrize("opcode", [wqe.SEND, wqe.RDMA_WRITE, wqe.RDMA_READ])
def test_bad_local_key_fails_in_its_turn_and_flushes_the_rest(pair, opcode):
    p = pair()
    target, local = p.right.region(64), p.left.region(64)
    p.left.post(wqe.RDMA_WRITE, inline=b"1", remote=target, wr_id=1, flags=0, ring=False)
    p.left.post(wqe.RDMA_WRITE, inline=b"2", remote=target, wr_id=2, ring=False)
    p.left.post(opcode, [(local.va, 65, local.key)], remote=target, wr_id=3, ring=False)
    p.left.post(wqe.RDMA_WRITE, inline=b"4", remote=target, wr_id=4, flags=0)
    p.run()
    assert [(c.wr_id, c.status) for c in p.left.sent()] == [
        (2, 0),
        (3, cqe.WC_LOC_PROT_ERR),
        (4, cqe.WC_WR_FLUSH_ERR),
    ]
    assert target.data[:1] == b"2"
    assert p.left.qp.state == ERR
    p.at_rest()


@pytest.mark.parametrize("opcode", [wqe.RDMA_READ, wqe.ATOMIC_FETCH_AND_ADD])
def test_results_need_the_local_write_right(pair, opcode):
    p = pair()
    target, local = p.right.region(8, fill=b"12345678"), p.left.region(8, 4)
    p.left.post(opcode, [local.sge()], remote=target)
    p.run()
    assert statuses(p.left.sent()) == [cqe.WC_LOC_PROT_ERR]
    assert not any(local.data)
    assert p.log == []


def test_atomic_needs_eight_bytes_for_its_result(pair):
    p = pair()
    target, local = p.right.region(8), p.left.region(8)
    p.left.post(wqe.ATOMIC_FETCH_AND_ADD, [local.sge(0, 7)], remote=target, compare=1)
    p.run()
    assert statuses(p.left.sent()) == [cqe.WC_LOC_LEN_ERR]
    assert not any(target.data)


def test_more_than_two_gigabytes_is_a_length_error(pair):
    p = pair()
    local = p.left.region(64)
    p.left.post(wqe.RDMA_WRITE, [(local.va, 0xFFFFFFFF, local.key)])
    p.run()
    assert statuses(p.left.sent()) == [cqe.WC_LOC_LEN_ERR]


def test_reads_without_initiator_depth_are_refused(pair):
    p = pair(rd_atomic=0)
    target, local = p.right.region(8), p.left.region(8)
    p.left.post(wqe.RDMA_READ, [local.sge()], remote=target)
    p.run()
    assert statuses(p.left.sent()) == [cqe.WC_LOC_QP_OP_ERR]


@pytest.mark.parametrize(
    "body", [b"\xff" * 64, bytes(64)[:-1] + b"\x01", bytes([2, 16]) + bytes(62), b"\x02"]
)
def test_malformed_work_request_is_an_operation_error_never_an_exception(pair, body):
    p = pair()
    p.left.post_raw(body if body[0] else b"\x0c" + body[1:])
    p.run()
    assert statuses(p.left.sent()) == [cqe.WC_LOC_QP_OP_ERR]
    assert p.left.qp.state == ERR


def test_broken_send_ring_is_an_operation_error_once(pair):
    p = pair()
    p.left.post_raw(bytes(2000))
    p.run()
    p.left.post(wqe.RDMA_WRITE, inline=b"x")
    p.run()
    (failed,) = p.left.sent()
    assert (failed.status, failed.wr_id, failed.byte_len) == (cqe.WC_LOC_QP_OP_ERR, 0, 0)
    assert p.left.qp.state == ERR


def test_memory_deregistered_while_a_message_is_sent_is_a_protection_error(pair):
    p = pair(pmtu=4096)
    source, target = p.left.region(1 << 20, fill=b"x" * (1 << 20)), p.right.region(1 << 20)
    p.left.post(wqe.RDMA_WRITE, [source.sge()], remote=target)
    until(p, lambda: target.data[0])
    source.deregister()
    p.run()
    assert statuses(p.left.sent()) == [cqe.WC_LOC_PROT_ERR]
    assert not target.data[-1]
    p.at_rest()


def test_region_that_dies_inside_a_write_is_not_written_any_more(pair):
    p = pair(pmtu=4096)
    source, target = p.left.region(1 << 20, fill=b"x" * (1 << 20)), p.right.region(1 << 20)
    p.left.post(wqe.RDMA_WRITE, [source.sge()], remote=target)
    until(p, lambda: target.data[0])
    target.deregister()
    written = bytes(target.data)
    fails_remotely(p, cqe.WC_REM_ACCESS_ERR, 0x62)
    assert target.data == written
    assert any(written)


@pytest.mark.parametrize("change", [{"access": 1 | 4}, {"pd": 8}])
def test_region_that_loses_the_right_inside_a_write_is_not_written_any_more(pair, change):
    p = pair(pmtu=4096)
    source, target = p.left.region(1 << 20, fill=b"x" * (1 << 20)), p.right.region(1 << 20)
    p.left.post(wqe.RDMA_WRITE, [source.sge()], remote=target)
    until(p, lambda: target.data[0])
    p.b.regions.reregister(target.region, **change)
    written = bytes(target.data)
    fails_remotely(p, cqe.WC_REM_ACCESS_ERR, 0x62)
    assert target.data == written


def test_region_that_dies_inside_a_read_response_is_not_read_any_more(pair):
    p = pair(pmtu=4096, slice_bytes=1 << 20, window=None)
    remote, local = p.right.region(1 << 20, fill=b"x" * (1 << 20)), p.left.region(1 << 20)
    p.left.post(wqe.RDMA_READ, [local.sge()], remote=remote)
    until(p, lambda: p.decoded("ba"))
    remote.deregister()
    p.run()
    assert p.right.qp.state == ERR
    assert (EVENT_QP_ACCESS_ERR, p.right.number) in p.b.events
    assert statuses(p.left.sent()) == [cqe.WC_REM_ACCESS_ERR]
    assert not local.data[-1]
    p.at_rest()


# receiver not ready


def test_page_that_is_gone_inside_a_read_response_is_a_remote_operational_error(pair):
    """The host has taken the memory away from under its region."""
    p = pair()
    target, source = p.right.region(4000, fill=DATA[:4000]), p.left.region(4000)
    p.left.post(wqe.RDMA_READ, [source.sge()], remote=target)
    until(p, lambda: p.right.qp.receive_engine().replies.ring.pending)
    p.b.owned.remove(target)
    HOST.detach(target.first)
    target.region.refresh()
    p.run()
    assert statuses(p.left.sent()) == [cqe.WC_REM_OP_ERR]
    nak = p.decoded("ba")[-1]
    assert (nak["psn"], nak["syndrome"]) == (2, 0x63)
    assert (EVENT_QP_FATAL, p.right.number) in p.b.events
    assert not any(source.data[2048:])  # two packets had gone
    target.deregister()


@pytest.mark.parametrize("size", [5, 1000])
@pytest.mark.parametrize("opcode", [wqe.SEND, wqe.RDMA_WRITE_WITH_IMM])
def test_send_waits_for_a_receive_as_long_as_the_rnr_timer_says(pair, opcode, size):
    p = pair(pmtu=256, min_rnr_timer=14, rnr_retry=7)
    source, target = p.left.region(size, fill=DATA[:size]), p.right.region(size)
    p.left.post(opcode, [source.sge()], remote=target, imm=3)
    while not p.a.counters.rnr_naks_received:
        assert p.step()
    told = p.now
    assert [row["syndrome"] for row in p.decoded("ba")] == [0x20 | 14]
    p.log.clear()
    while not p.decoded("ab"):
        assert p.step()
    assert p.now - told == RNR_TIMER_NS[14] == 1_280_000
    p.right.post_receive([target.sge()])
    p.run()
    assert statuses(p.left.sent()) == [0]
    assert statuses(p.right.received()) == [0]
    assert target.data == source.data
    assert p.left.qp.state == RTS
    p.at_rest()


@pytest.mark.parametrize("retries", [0, 1, 6])
def test_rnr_retries_are_counted_exactly(pair, retries):
    p = pair(rnr_retry=retries, retry_cnt=0)
    p.left.post(wqe.SEND, inline=b"x", wr_id=1)
    p.left.post(wqe.SEND, inline=b"y", wr_id=2)
    p.run()
    assert statuses(p.left.sent()) == [cqe.WC_RNR_RETRY_EXC_ERR, cqe.WC_WR_FLUSH_ERR]
    assert sum(row["syndrome"] == 0x21 for row in p.decoded("ba")) == retries + 1
    assert p.left.qp.state == ERR
    assert p.right.qp.state == RTS
    p.at_rest()


def test_rnr_retries_count_anew_after_progress(pair):
    p = pair(rnr_retry=2)
    target = p.right.region(8)
    for i in range(5):
        p.left.post(wqe.SEND, inline=b"x", wr_id=i)
        before = p.a.counters.rnr_naks_received
        while p.a.counters.rnr_naks_received < before + 2:
            assert p.step()
        p.right.post_receive([target.sge()])
        p.run()
    assert statuses(p.left.sent()) == [0] * 5


def test_nothing_after_the_refused_send_is_executed_before_it(pair):
    p = pair(pmtu=256, min_rnr_timer=3)
    target = p.right.region(64)
    p.left.post(wqe.SEND, inline=b"s", ring=False)
    p.left.post(wqe.RDMA_WRITE, inline=b"w", remote=target, offset=32)
    while not p.a.counters.rnr_naks_received:
        p.step()
    assert not any(target.data)
    p.right.post_receive([target.sge()])
    p.run()
    assert target.data[:1] == b"s"
    assert target.data[32:33] == b"w"
    assert p.b.counters.naks_sent == 0


# credits


def test_credits_hold_sends_back_where_the_responder_counts_its_receives(pair):
    p = pair(pmtu=256)
    target = p.right.region(64)
    for i in range(3):
        p.right.post_receive([target.sge()], wr_id=i)
    p.left.post(wqe.SEND, inline=b"0")
    p.run()
    assert p.decoded("ba")[-1]["syndrome"] == 2
    p.log.clear()
    for _ in range(6):
        p.left.post(wqe.SEND, inline=b"x", ring=False)
    p.left.post(wqe.RDMA_WRITE, inline=b"w", remote=target)
    p.step()
    p.step()
    assert len(p.decoded("ab")) == 2  # two credits
    for i in range(4):
        p.right.post_receive([target.sge()], wr_id=i)
    p.run()
    assert statuses(p.left.sent()) == [0] * 8
    assert p.a.counters.rnr_naks_received == 0


def test_a_read_in_slices_does_not_bring_credits(pair):
    p = pair(pmtu=1024, slice_bytes=4096)
    target, sink = p.right.region(16_384), p.left.region(16_384)
    for i in range(2):
        p.right.post_receive([target.sge()], wr_id=i)
    p.left.post(wqe.RDMA_READ, [sink.sge()], remote=target)
    p.run()
    assert len(p.decoded("ab")) == 4  # each slice is a message to the responder
    p.log.clear()
    for last in (False, False, False, True):
        p.left.post(wqe.SEND, inline=b"x", ring=last)
    p.step()
    p.step()
    assert len(p.decoded("ab")) == 2
    for i in range(2):
        p.right.post_receive([target.sge()], wr_id=i)
    p.run()
    assert statuses(p.left.sent()) == [0] * 5


def test_beyond_the_credits_a_single_packet_asks(pair):
    p = pair(pmtu=256, min_rnr_timer=5)
    target, source = p.right.region(2000), p.left.region(2000, fill=DATA[:2000])
    p.right.post_receive([target.sge()])
    p.left.post(wqe.SEND, inline=b"0")
    p.run()
    p.log.clear()
    p.left.post(wqe.SEND, [source.sge()])
    while not p.a.counters.rnr_naks_received:
        p.step()
    assert [(row["opcode"], row["ack_request"]) for row in p.decoded("ab")] == [(opcodes.RC_SEND_FIRST, True)]
    p.right.post_receive([target.sge()])
    p.run()
    assert target.data == source.data
    assert statuses(p.left.sent()) == [0, 0]


def test_without_credits_the_field_says_no_limit(pair):
    p = pair(credits=False)
    target = p.right.region(64)
    p.left.post(wqe.RDMA_WRITE, inline=b"x", remote=target)
    p.run()
    assert [row["syndrome"] for row in p.decoded("ba")] == [31]


# time-outs


@pytest.mark.parametrize("retries", [0, 3, 7])
def test_dead_peer_is_given_up_after_exactly_retry_cnt_retries(pair, retries):
    p = pair(faults=Faults(rule=lambda way, packet: 0), retry_cnt=retries, timeout=10)
    target = p.right.region(64)
    p.left.post(wqe.RDMA_WRITE, inline=b"x", remote=target, wr_id=1, flags=0)
    p.left.post(wqe.RDMA_WRITE, inline=b"x", remote=target, wr_id=2)
    began = p.now
    p.run()
    assert [(c.wr_id, c.status) for c in p.left.sent()] == [
        (1, cqe.WC_RETRY_EXC_ERR),
        (2, cqe.WC_WR_FLUSH_ERR),
    ]
    assert sum(row["psn"] == 0 for row in p.decoded("ab")) == retries + 1
    assert p.now - began == (retries + 1) * interval_ns(10)
    assert p.left.qp.counters.timeouts == retries + 1
    p.at_rest()


def test_timer_stays_between_one_and_four_times_its_attribute():
    for timeout in range(1, 32):
        unit = 4096 << timeout
        assert unit <= interval_ns(timeout) <= 4 * unit
    assert interval_ns(0) == 0


def test_timeout_zero_waits_for_ever(pair):
    p = pair(faults=Faults(rule=lambda way, packet: 0), timeout=0)
    p.left.post(wqe.RDMA_WRITE, inline=b"x")
    p.run()
    assert p.left.sent() == []
    assert p.a.deadlines == {}
    assert p.left.qp.state == RTS


def test_retries_count_anew_after_progress(pair):
    lost = []

    def drop_three_of_four(way, packet):
        if way == "ab":
            lost.append(1)
            return 1 if len(lost) % 4 == 0 else 0
        return 1

    p = pair(faults=Faults(rule=drop_three_of_four), retry_cnt=3)
    target = p.right.region(64)
    for i in range(6):
        p.left.post(wqe.RDMA_WRITE, inline=b"x", remote=target, wr_id=i)
        p.run()
    assert statuses(p.left.sent()) == [0] * 6


# flush, reset, events


def test_error_state_flushes_everything_in_order_also_what_is_posted_later(pair):
    p = pair(faults=Faults(rule=lambda way, packet: 0))
    target = p.left.region(64)
    for i in range(3):
        p.left.post(wqe.RDMA_WRITE, inline=b"x", wr_id=i, flags=0)
        p.left.post_receive([target.sge()], wr_id=10 + i)
    p.step()
    assert p.left.qp.modify({"qp_state": ERR}, p.now) == 0
    p.left.post_receive([target.sge()], wr_id=13)
    p.left.post(wqe.SEND, inline=b"late", wr_id=3)
    assert [(c.wr_id, c.status) for c in p.left.sent()] == [(i, cqe.WC_WR_FLUSH_ERR) for i in range(4)]
    flushed = p.left.received()
    assert [(c.wr_id, c.status) for c in flushed] == [(i, cqe.WC_WR_FLUSH_ERR) for i in range(10, 14)]
    for name in ("wc_flags", "byte_len", "imm_or_key", "src_qp"):
        assert not any(completion[name] for completion in flushed)
    p.run()
    p.at_rest()


def test_reset_drops_everything_without_completions_and_the_pair_works_again(pair):
    p = pair(left_psn=100, right_psn=200)
    target = p.right.region(64)
    p.right.post_receive([target.sge()], wr_id=1)
    p.left.post(wqe.SEND, inline=b"lost")
    for end in (p.left, p.right):
        assert end.qp.modify({"qp_state": RESET}, p.now) == 0
    p.run()
    assert p.left.sent() == p.right.received() == []
    p.connect(p.left, p.right, 7, 9)
    p.connect(p.right, p.left, 9, 7)
    p.right.post_receive([target.sge()], wr_id=2)
    p.left.post(wqe.SEND, inline=b"again")
    p.run()
    assert statuses(p.left.sent()) == [0]
    assert [(c.wr_id, c.status) for c in p.right.received()] == [(2, 0)]
    assert target.data[:5] == b"again"
    assert p.decoded("ab")[-1]["psn"] == 7
    p.at_rest()


def test_first_packet_in_rtr_reports_communication_established_once(pair):
    p = pair(connect=False)
    p.connect(p.right, p.left, 0, 0, until=RTR)
    p.connect(p.left, p.right, 0, 0)
    target = p.right.region(8)
    for _ in range(2):
        p.left.post(wqe.RDMA_WRITE, inline=b"x", remote=target)
        p.run()
    assert p.b.events == [(EVENT_COMM_EST, p.right.number)]
    assert statuses(p.left.sent()) == [0, 0]


@pytest.mark.parametrize("state", [RESET, INIT, ERR])
def test_requests_are_dropped_where_the_queue_pair_does_not_receive(pair, state):
    p = pair(connect=False, retry_cnt=1)
    p.connect(p.left, p.right, 0, 0)
    if state != RESET:
        p.right.qp.modify(p.attributes(INIT, p.right, p.left, 0, 0), p.now)
    if state == ERR:
        p.right.qp.modify({"qp_state": ERR}, p.now)
    target = p.right.region(8)
    p.left.post(wqe.RDMA_WRITE, inline=b"x", remote=target)
    p.run()
    assert statuses(p.left.sent()) == [cqe.WC_RETRY_EXC_ERR]
    assert not any(target.data)
    assert p.right.qp.counters.drops_state == 2


def test_completion_queue_overflow_stops_the_queue_pair_and_is_reported(pair):
    p = pair(cq_entries=2)
    target = p.right.region(8)
    for i in range(4):
        p.left.post(wqe.RDMA_WRITE, inline=b"x", remote=target, wr_id=i)
    p.run()
    assert (0, p.left.send_cq.number) in p.a.events
    assert (EVENT_QP_FATAL, p.left.number) in p.a.events
    assert p.left.qp.state == ERR
    assert [c.wr_id for c in p.left.sent()] == [0, 1]
    p.at_rest()


def test_queue_pair_with_a_shared_receive_queue_reports_its_last_receive(pair):
    p = pair(srq=True)
    target = p.right.region(64)
    p.right.post_receive([target.sge()], wr_id=1)
    p.right.post_receive([target.sge()], wr_id=2)
    p.left.post(wqe.SEND, inline=b"x")
    p.run()
    assert [row["syndrome"] for row in p.decoded("ba")] == [31]
    p.right.qp.modify({"qp_state": ERR}, p.now)
    assert (EVENT_QP_LAST_WQE_REACHED, p.right.number) in p.b.events
    assert [(c.wr_id, c.status) for c in p.right.received()] == [(1, 0)]
    assert p.srq[0].count() == 1


def test_shared_receives_serve_several_queue_pairs(pair):
    p = pair(srq=True, qps=3)
    target = p.right.region(64)
    for i in range(6):
        p.right.post_receive([target.sge()], wr_id=i)
    for left in p.lefts * 2:
        left.post(wqe.SEND, inline=b"x")
    p.run()
    got = [c.wr_id for right in p.rights for c in right.received()]
    assert sorted(got) == list(range(6))
    assert all(statuses(left.sent()) == [0, 0] for left in p.lefts)


def executed(p):
    """What the left side has posted has arrived, and the right side has sent nothing yet."""
    while p.transmit(p.a):
        pass
    p.now = p.flying[-1][0]
    p.a.now = p.b.now = p.now
    assert p.deliver()


@pytest.mark.parametrize("messages", [1, 3])
def test_what_was_completed_before_the_error_state_is_acknowledged(pair, messages):
    """A consumer that has the last message may disconnect at once; the sender must not see it flushed."""
    p = pair()
    target, source = p.right.region(64), p.left.region(64, fill=DATA[:64])
    for number in range(messages):
        p.right.post_receive([target.sge()], number)
        p.left.post(wqe.SEND, [source.sge()])
    executed(p)
    assert statuses(p.right.received()) == [cqe.WC_SUCCESS] * messages
    p.right.qp.modify({"qp_state": ERR}, p.now)
    p.run()
    assert statuses(p.left.sent()) == [cqe.WC_SUCCESS] * messages
    assert [row["psn"] for row in p.decoded("ba")] == [p.decoded("ab")[-1]["psn"]]
    p.at_rest()


def test_an_acknowledgement_that_is_due_is_forgotten_at_reset(pair):
    p = pair()
    target, source = p.right.region(64), p.left.region(64)
    p.right.post_receive([target.sge()])
    p.left.post(wqe.SEND, [source.sge()])
    executed(p)
    p.right.qp.modify({"qp_state": ERR}, p.now)
    p.right.qp.modify({"qp_state": RESET}, p.now)
    while p.transmit(p.b):
        pass
    assert p.decoded("ba") == []
