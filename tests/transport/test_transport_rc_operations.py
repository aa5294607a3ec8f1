"""Every operation of a reliable connection, end to end, over a link without faults."""

import pytest

from softhca.queues import cqe, wqe
from softhca.transport.environment import DEFAULT_READ_SLICE_BYTES
from softhca.transport.states import ERR, RC
from softhca.transport.window import DEFAULT_MAXIMUM_BYTES, DestinationWindow

PATTERN = (bytes(i * 7 % 251 for i in range(251)) * 4178)[: 1 << 20]


def payload(n):
    return PATTERN[:n]


SIZES = (0, 1, 3, 4, 255, 256, 257, 511, 512, 513, 4095, 4096, 4097, 70_001)


@pytest.mark.parametrize("pmtu", [256, 1024, 4096])
@pytest.mark.parametrize("size", SIZES)
def test_write_places_every_byte_and_nothing_else(pair, pmtu, size):
    p = pair(pmtu=pmtu)
    source = p.left.region(size or 1, fill=payload(size or 1))
    target = p.right.region(size + 16)
    p.left.post(wqe.RDMA_WRITE, [source.sge(0, size)], remote=target, offset=8)
    p.run()
    assert [c.status for c in p.left.sent()] == [cqe.WC_SUCCESS]
    assert target.data == bytes(8) + payload(size) + bytes(8)
    assert p.right.received() == []
    p.at_rest()


@pytest.mark.parametrize("pmtu", [256, 1024, 4096])
@pytest.mark.parametrize("size", SIZES)
def test_send_fills_the_receive_and_completes_on_both_sides(pair, pmtu, size):
    p = pair(pmtu=pmtu)
    source = p.left.region(size or 1, fill=payload(size or 1))
    target = p.right.region(size + 16)
    p.right.post_receive([target.sge()], wr_id=77)
    p.left.post(wqe.SEND, [source.sge(0, size)], wr_id=5)
    p.run()
    (sent,) = p.left.sent()
    (received,) = p.right.received()
    assert (sent.wr_id, sent.status, sent.opcode, sent.qp_num) == (5, 0, cqe.WC_SEND, p.left.number)
    assert (received.wr_id, received.status, received.opcode) == (77, 0, cqe.WC_RECV)
    assert (received.byte_len, received.wc_flags, received.src_qp) == (size, 0, p.left.number)
    assert target.data == payload(size) + bytes(16)
    p.at_rest()


@pytest.mark.parametrize("pmtu", [256, 1024, 4096])
@pytest.mark.parametrize("size", SIZES)
def test_read_brings_every_byte_and_nothing_else(pair, pmtu, size):
    p = pair(pmtu=pmtu, slice_bytes=8192)
    remote = p.right.region(size or 1, fill=payload(size or 1))
    local = p.left.region(size + 16)
    p.left.post(wqe.RDMA_READ, [local.sge(8, size)], remote=remote)
    p.run()
    (sent,) = p.left.sent()
    assert (sent.status, sent.opcode, sent.byte_len) == (0, cqe.WC_RDMA_READ, size)
    assert local.data == bytes(8) + payload(size) + bytes(8)
    p.at_rest()


def test_service_is_rc(pair):
    assert pair().left.qp.service == RC


def test_write_with_immediate_completes_a_receive_with_length_and_value(pair):
    p = pair(pmtu=256)
    source = p.left.region(1000, fill=payload(1000))
    target = p.right.region(1000)
    p.right.post_receive(wr_id=9)
    p.left.post(wqe.RDMA_WRITE_WITH_IMM, [source.sge()], remote=target, imm=0xCAFEF00D)
    p.run()
    (received,) = p.right.received()
    assert (received.wr_id, received.opcode, received.byte_len) == (9, cqe.WC_RECV_RDMA_WITH_IMM, 1000)
    assert (received.imm_or_key, received.wc_flags) == (0xCAFEF00D, cqe.WC_WITH_IMM)
    assert target.data == payload(1000)


@pytest.mark.parametrize("size", [0, 7, 600])
def test_send_with_immediate_delivers_the_value(pair, size):
    p = pair(pmtu=256)
    source = p.left.region(600, fill=payload(600))
    target = p.right.region(600)
    p.right.post_receive([target.sge()])
    p.left.post(wqe.SEND_WITH_IMM, [source.sge(0, size)], imm=0x01020304)
    p.run()
    (received,) = p.right.received()
    assert (received.imm_or_key, received.wc_flags, received.byte_len) == (0x01020304, cqe.WC_WITH_IMM, size)
    assert p.left.sent()[0].status == 0


def test_compare_and_swap_changes_memory_only_when_equal(pair):
    p = pair()
    remote = p.right.region(64)
    remote.data[8:16] = (5).to_bytes(8, "little")
    local = p.left.region(16)
    p.left.post(wqe.ATOMIC_CMP_AND_SWP, [local.sge(0, 8)], remote=remote, offset=8, compare=5, swap=1 << 63)
    p.left.post(wqe.ATOMIC_CMP_AND_SWP, [local.sge(8, 8)], remote=remote, offset=8, compare=6, swap=9)
    p.run()
    assert [(c.status, c.opcode, c.byte_len) for c in p.left.sent()] == [(0, cqe.WC_COMP_SWAP, 8)] * 2
    assert int.from_bytes(local.data[:8], "little") == 5
    assert int.from_bytes(local.data[8:], "little") == 1 << 63
    assert remote.data[8:16] == (1 << 63).to_bytes(8, "little")
    p.at_rest()


def test_fetch_and_add_returns_the_old_value_and_wraps(pair):
    p = pair()
    remote = p.right.region(8, fill=((1 << 64) - 1).to_bytes(8, "little"))
    local = p.left.region(8)
    p.left.post(wqe.ATOMIC_FETCH_AND_ADD, [local.sge()], remote=remote, compare=3)
    p.run()
    (sent,) = p.left.sent()
    assert (sent.status, sent.opcode) == (0, cqe.WC_FETCH_ADD)
    assert local.data == b"\xff" * 8
    assert int.from_bytes(remote.data, "little") == 2


def test_scattered_and_gathered_elements_are_one_message(pair):
    p = pair(pmtu=256)
    source = p.left.region(2000, fill=payload(2000))
    target = p.right.region(2000)
    pieces = [(1500, 301), (3, 0), (0, 257), (700, 99)]
    expected = b"".join(bytes(source.data[o : o + n]) for o, n in pieces)
    p.right.post_receive([target.sge(100, 11), target.sge(5, 0), target.sge(200, 1000)])
    p.left.post(wqe.SEND, [source.sge(o, n) for o, n in pieces])
    p.run()
    assert p.left.sent()[0].status == 0
    assert p.right.received()[0].byte_len == len(expected)
    assert target.data[100:111] == expected[:11]
    assert target.data[200 : 200 + len(expected) - 11] == expected[11:]
    assert not any(target.data[:100])
    assert not any(target.data[111:200])


def test_an_element_without_bytes_needs_no_key(pair):
    p = pair()
    target = p.right.region(8)
    p.right.post_receive([(0, 0, 0xBAD), target.sge()])
    p.left.post(wqe.SEND, [(12345, 0, 0xBAD)])
    p.run()
    assert p.left.sent()[0].status == 0
    assert p.right.received()[0].status == 0


def test_inline_payload_is_sent_from_the_work_request(pair):
    p = pair(pmtu=256)
    target = p.right.region(300)
    p.left.post(wqe.RDMA_WRITE, inline=payload(200), remote=target, offset=1)
    p.right.post_receive([target.sge(250, 50)])
    p.left.post(wqe.SEND, inline=b"inline!")
    p.run()
    assert [c.status for c in p.left.sent()] == [0, 0]
    assert target.data[1:201] == payload(200)
    assert target.data[250:257] == b"inline!"


@pytest.mark.parametrize("size", [0, 5, 700])
def test_solicited_bit_stands_in_the_last_packet_only_and_fires_a_solicited_event(pair, size):
    p = pair(pmtu=256)
    source = p.left.region(700)
    target = p.right.region(700)
    p.right.receive_reader.arm(True)
    p.right.post_receive([target.sge()])
    p.right.post_receive([target.sge()])
    p.left.post(wqe.SEND, [source.sge(0, size)])
    p.run()
    assert p.b.cq_events == 0
    p.log.clear()
    p.left.post(wqe.SEND, [source.sge(0, size)], flags=wqe.SOLICITED | wqe.SIGNALED)
    p.run()
    assert p.b.cq_events == 1
    bits = [row["solicited"] for row in p.decoded("ab")]
    assert bits == [False] * (len(bits) - 1) + [True]


@pytest.mark.parametrize(("opcode", "solicits"), [(wqe.RDMA_WRITE, False), (wqe.RDMA_WRITE_WITH_IMM, True)])
def test_a_write_solicits_an_event_only_where_it_completes_a_receive(pair, opcode, solicits):
    p = pair(pmtu=256)
    source, target = p.left.region(600), p.right.region(600)
    p.right.post_receive([])
    p.left.post(opcode, [source.sge()], remote=target, flags=wqe.SOLICITED | wqe.SIGNALED)
    p.run()
    assert [row["solicited"] for row in p.decoded("ab")] == [0, 0, solicits]


def test_unsignaled_requests_complete_silently_and_free_their_room(pair):
    p = pair(entries=4)
    target = p.right.region(8)
    for _ in range(5):
        for i in range(4):
            assert p.left.post(wqe.RDMA_WRITE, inline=b"x", remote=target, wr_id=i, flags=0)
        assert not p.left.post(wqe.RDMA_WRITE, inline=b"x", remote=target)
        p.run()
    assert p.left.sent() == []


def test_signal_all_overrides_the_flag(pair):
    p = pair(signal_all=True)
    target = p.right.region(8)
    p.left.post(wqe.RDMA_WRITE, inline=b"x", remote=target, flags=0, wr_id=3)
    p.run()
    assert [c.wr_id for c in p.left.sent()] == [3]


def test_completions_keep_the_order_of_posting(pair):
    p = pair(pmtu=256, rd_atomic=2)
    remote = p.right.region(4096)
    local = p.left.region(4096)
    operations = [wqe.RDMA_READ, wqe.RDMA_WRITE, wqe.ATOMIC_FETCH_AND_ADD, wqe.RDMA_WRITE, wqe.RDMA_READ] * 5
    for i, opcode in enumerate(operations):
        n = 8 if opcode == wqe.ATOMIC_FETCH_AND_ADD else 999
        p.left.post(opcode, [local.sge(0, n)], remote=remote, wr_id=i)
    p.run()
    sent = p.left.sent()
    assert [c.wr_id for c in sent] == list(range(len(operations)))
    assert not any(c.status for c in sent)
    p.at_rest()


def test_both_directions_at_once(pair):
    p = pair(pmtu=512)
    mine, theirs = (
        p.left.region(50_000, fill=payload(50_000)),
        p.right.region(50_000, fill=payload(50_000)[::-1]),
    )
    a, b = p.left.region(50_000), p.right.region(50_000)
    p.left.post(wqe.RDMA_WRITE, [mine.sge()], remote=b)
    p.right.post(wqe.RDMA_WRITE, [theirs.sge()], remote=a)
    p.left.post(wqe.RDMA_READ, [mine.sge()], remote=theirs)
    p.run()
    assert b.data == payload(50_000)
    assert a.data == mine.data == payload(50_000)[::-1]
    p.at_rest()


def test_psn_wraps_inside_a_message(pair):
    p = pair(pmtu=256, left_psn=0xFFFFFE, right_psn=0xFFFFFF)
    source = p.left.region(2000, fill=payload(2000))
    target = p.right.region(2000)
    local = p.left.region(2000)
    p.left.post(wqe.RDMA_WRITE, [source.sge()], remote=target)
    p.left.post(wqe.RDMA_READ, [local.sge()], remote=target)
    p.run()
    assert [c.status for c in p.left.sent()] == [0, 0]
    assert local.data == target.data == payload(2000)
    psns = [row["psn"] for row in p.decoded("ab")][:8]
    assert psns == [0xFFFFFE, 0xFFFFFF, 0, 1, 2, 3, 4, 5]


def test_ipv6_route_carries_the_same(pair):
    p = pair(v6=True)
    source = p.left.region(5000, fill=payload(5000))
    target = p.right.region(5000)
    p.left.post(wqe.RDMA_WRITE, [source.sge()], remote=target)
    p.run()
    assert target.data == payload(5000)


def test_small_messages_share_a_burst_and_a_long_one_fills_it(pair):
    p = pair(pmtu=4096)
    target = p.right.region(1 << 20)
    for i in range(32):
        p.left.post(wqe.RDMA_WRITE, inline=b"12345678", remote=target, offset=8 * i, ring=i == 31)
    p.run()
    assert ("ab", 32, 32 * 40) in p.bursts
    p.bursts.clear()
    source = p.left.region(1 << 20, fill=PATTERN)
    p.left.post(wqe.RDMA_WRITE, [source.sge()], remote=target)
    p.run()
    assert target.data == PATTERN
    assert sum(1 for way, packets, length in p.bursts if way == "ab" and length == 61_680) >= 16
    assert max(length for _, _, length in p.bursts) <= 65_000


def test_one_acknowledgement_answers_for_a_run(pair):
    p = pair(pmtu=256)
    target = p.right.region(4096)
    for i in range(40):
        p.left.post(wqe.RDMA_WRITE, inline=b"x", remote=target, offset=i, ring=i == 39)
    p.run()
    acks = [row for row in p.decoded("ba")]
    assert [row["psn"] for row in acks] == [39]
    assert acks[0]["msn"] == 40
    assert p.left.qp.counters.acks_received == 1


def test_long_read_goes_out_in_slices_and_never_more_than_max_rd_atomic(pair):
    p = pair(pmtu=1024, slice_bytes=4096, rd_atomic=3)
    remote = p.right.region(40_000, fill=payload(40_000))
    local = p.left.region(40_000)
    p.left.post(wqe.RDMA_READ, [local.sge()], remote=remote)
    p.run()
    assert local.data == payload(40_000)
    requests = [row for row in p.decoded("ab")]
    assert [row["length"] for row in requests] == [4096] * 9 + [40_000 - 9 * 4096]
    assert [row["va"] for row in requests] == [remote.va + 4096 * i for i in range(10)]
    assert [row["psn"] for row in requests] == [4 * i for i in range(10)]
    outstanding = 0
    for row in p.decoded():
        if row["way"] == "ab":
            outstanding += 1
        elif row["opcode"] in (0x0F, 0x10):
            outstanding -= 1
        assert outstanding <= 3
    p.at_rest()


def test_a_read_of_the_slice_size_is_one_request(pair):
    p = pair(pmtu=1024)
    remote, local = p.right.region(131_072, fill=PATTERN[:131_072]), p.left.region(131_072)
    p.left.post(wqe.RDMA_READ, [local.sge()], remote=remote)
    p.run()
    assert local.data == remote.data
    assert [row["length"] for row in p.decoded("ab")] == [131_072]


@pytest.mark.parametrize("pmtu", [512, 1024, 4096])
def test_a_usual_window_lets_two_slices_of_a_long_read_be_under_way(pair, pmtu):
    """With one alone the responder would have nothing to do while its answer travels."""
    window = DestinationWindow(DEFAULT_MAXIMUM_BYTES, DEFAULT_MAXIMUM_BYTES)
    p = pair(pmtu=pmtu, slice_bytes=DEFAULT_READ_SLICE_BYTES, window=window)
    remote, local = p.right.region(1 << 20, fill=PATTERN[: 1 << 20]), p.left.region(1 << 20)
    p.left.post(wqe.RDMA_READ, [local.sge()], remote=remote)
    p.run()
    assert local.data == remote.data
    answered = [row["way"] for row in p.decoded()].index("ba")
    assert [row["length"] for row in p.decoded()[:answered]] == [DEFAULT_READ_SLICE_BYTES] * 2


def test_read_responses_are_first_middle_last_and_only(pair):
    p = pair(pmtu=256)
    remote, local = p.right.region(1024), p.left.region(1024)
    for size in (0, 256, 257, 513, 1024):
        p.log.clear()
        p.left.post(wqe.RDMA_READ, [local.sge(0, size)], remote=remote)
        p.run()
        codes = [row["opcode"] for row in p.decoded("ba")]
        packets = max(1, -(-size // 256))
        assert codes == ([0x10] if packets == 1 else [0x0D] + [0x0E] * (packets - 2) + [0x0F])


def test_fence_waits_for_reads_and_atomics_before_it(pair):
    p = pair(pmtu=256)
    remote, local = p.right.region(2048), p.left.region(2048)
    p.left.post(wqe.RDMA_READ, [local.sge(0, 1000)], remote=remote, ring=False)
    p.left.post(wqe.RDMA_WRITE, inline=b"fenced", remote=remote, flags=wqe.FENCE | wqe.SIGNALED, ring=False)
    p.left.post(wqe.RDMA_WRITE, inline=b"free", remote=remote)
    p.run()
    rows = p.decoded()
    last_response = max(i for i, row in enumerate(rows) if row["opcode"] == 0x0F)
    writes = [i for i, row in enumerate(rows) if row["opcode"] == 0x0A]
    assert len(writes) == 2
    assert min(writes) > last_response
    assert [c.status for c in p.left.sent()] == [0, 0, 0]


def test_without_a_fence_a_write_overtakes_the_response(pair):
    p = pair(pmtu=256)
    remote, local = p.right.region(2048), p.left.region(2048)
    p.left.post(wqe.RDMA_READ, [local.sge(0, 1000)], remote=remote, ring=False)
    p.left.post(wqe.RDMA_WRITE, inline=b"free", remote=remote)
    p.run()
    assert [row["opcode"] for row in p.decoded()][:2] == [0x0C, 0x0A]


def test_last_packet_of_a_message_asks_for_an_acknowledgement_and_at_least_every_half_window(pair):
    p = pair(pmtu=4096)
    source, target = p.left.region(1 << 20), p.right.region(1 << 20)
    p.left.post(wqe.RDMA_WRITE, [source.sge()], remote=target)
    p.run()
    rows = p.decoded("ab")
    assert rows[-1]["ack_request"]
    unasked = 0
    for row in rows:
        unasked = 0 if row["ack_request"] else unasked + row["bytes"]
        assert unasked <= p.left.qp.flow.window.limit_bytes // 2
    assert sum(row["ack_request"] for row in rows) < len(rows) // 4
    assert not rows[0]["ack_request"]


def test_send_with_invalidate_of_a_plain_region_ends_the_receiver(pair):
    p = pair()
    region = p.right.region(64)
    p.right.post_receive([region.sge()])
    p.left.post(wqe.SEND_WITH_INV, inline=b"bye", imm=region.key)
    p.run()
    assert p.left.sent()[0].status == 0
    assert [(c.status, c.byte_len) for c in p.right.received()] == [(cqe.WC_REM_INV_REQ_ERR, 3)]
    assert p.right.qp.state == ERR
    assert region.region.valid


@pytest.mark.parametrize("opcode", [wqe.LOCAL_INV, wqe.BIND_MW])
def test_memory_management_operations_end_with_a_bind_error_after_what_stands_before_them(pair, opcode):
    p = pair()
    target = p.right.region(64)
    p.left.post(wqe.RDMA_WRITE, inline=b"1", remote=target, wr_id=1, ring=False)
    p.left.post(opcode, wr_id=2, ring=False)
    p.left.post(wqe.RDMA_WRITE, inline=b"2", remote=target, wr_id=3)
    p.run()
    assert [(c.wr_id, c.status) for c in p.left.sent()] == [
        (1, 0),
        (2, cqe.WC_MW_BIND_ERR),
        (3, cqe.WC_WR_FLUSH_ERR),
    ]
    assert target.data[0:1] == b"1"
