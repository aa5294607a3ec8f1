"""Work queue entries: the bytes, and what a hostile host cannot make of them."""

import errno
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from softhca.machine import primitives
from softhca.memory.host import HostMemory
from softhca.queues import operations, wqe
from softhca.queues.ring import RingConsumer, RingLayout, RingProducer, plan
from softhca.queues.wqe import ReceiveWork, SendWork, encode_receive, encode_send, put_run
from suite_plan import random_inputs

U32, U64 = st.integers(0, (1 << 32) - 1), st.integers(0, (1 << 64) - 1)
SGES = st.lists(st.tuples(U64, U32, U32), max_size=40)
HEADER = struct.Struct("<BBHIQQIIQQIIII")


def fails(code):
    return pytest.raises(OSError, match=rf"\[Errno {code}\]")


def header(opcode=wqe.SEND, flags=0, num_sge=0, inline_bytes=0, wr_id=9):
    return HEADER.pack(opcode, flags, num_sge, 0, wr_id, 0, 0, inline_bytes, 0, 0, 0, 0, 0, 0)


def sge(va, length, key):
    return struct.pack("<QII", va, length, key)


def load(work, data):
    return work.load(memoryview(bytearray(data)), len(data))


@given(st.integers(0, 9), st.integers(0, 7), U32, U64, U64, U32, U64, U64, U32, U32, U32, SGES)
@settings(max_examples=random_inputs(100), deadline=None)
def test_a_send_entry_has_the_bytes_of_the_contract(opcode, flags, imm, wr_id, va, rkey, compare, swap, ah,
                                                    qpn, qkey, sges):
    out = memoryview(bytearray(b"\xcc" * 1000))
    n = encode_send(out, opcode, flags, imm, wr_id, va, rkey, compare, swap, ah, qpn, qkey, sges)
    expected = HEADER.pack(opcode, flags, len(sges), imm, wr_id, va, rkey, 0, compare, swap, ah, qpn, qkey, 0)
    expected += b"".join(sge(*one) for one in sges)
    assert bytes(out[:n]) == expected
    assert bytes(out[n:]) == b"\xcc" * (1000 - n)


@given(st.integers(0, 9), st.integers(0, 7), U32, U64, U64, U32, U64, U64, U32, U32, U32, SGES)
@settings(max_examples=random_inputs(100), deadline=None)
def test_what_is_encoded_is_loaded_again(opcode, flags, imm, wr_id, va, rkey, compare, swap, ah, qpn, qkey,
                                         sges):
    out = memoryview(bytearray(1000))
    n = encode_send(out, opcode, flags, imm, wr_id, va, rkey, compare, swap, ah, qpn, qkey, sges)
    work = SendWork(40, 0)
    total = sum(length for _, length, _ in sges)
    assert work.load(out, n) == (wqe.WORK_OK if total <= 1 << 31 else wqe.WORK_LENGTH) == work.status
    assert (work.opcode, work.flags, work.imm_or_key, work.wr_id, work.remote_va, work.rkey, work.compare_add,
            work.swap, work.ah, work.remote_qpn, work.remote_qkey) == (
        opcode, flags, imm, wr_id, va, rkey, compare, swap, ah, qpn, qkey)
    assert work.total_bytes == total
    assert work.elements() == ([] if work.status else sges)


@pytest.mark.parametrize("payload", [b"", b"x", b"inline payload" * 9])
def test_inline_payload_stays_in_the_work(payload):
    out = memoryview(bytearray(1000))
    n = encode_send(out, wqe.RDMA_WRITE, wqe.SIGNALED, 0, 1, 2, 3, 0, 0, 0, 0, 0, [(1, 2, 3)], payload)
    assert n == 64 + len(payload)
    work = SendWork(4, 126)
    assert work.load(out, n) == wqe.WORK_OK
    assert work.flags == wqe.SIGNALED | wqe.INLINE
    assert (work.num_sge, work.total_bytes, work.inline_bytes) == (0, len(payload), len(payload))
    out[:] = bytes(1000)
    assert bytes(work.buffer[work.inline_offset:work.inline_offset + len(payload)]) == payload
    assert work.address == primitives.address_of(work.buffer)


def test_the_greatest_opcode_and_flags_are_written_as_they_are():
    out = memoryview(bytearray(100))
    assert encode_send(out, 255, 255, 0, 1, 0, 0, 0, 0, 0, 0, 0, [], b"") == 64
    assert bytes(out[:2]) == b"\xff\xff"


def test_without_inline_payload_the_inline_flag_is_not_sent():
    out = memoryview(bytearray(100))
    encode_send(out, wqe.SEND, 15, 0, 1, 0, 0, 0, 0, 0, 0, 0, [])
    assert out[1] == 7


@given(st.integers(0, 9), st.integers(0, 7), U32, U64, U64, U32, st.integers(1, 40), U32, st.booleans())
@settings(max_examples=random_inputs(100), deadline=None)
def test_one_run_is_written_as_an_entry_of_it_alone(opcode, flags, imm, wr_id, va, rkey, length, lkey,
                                                    inline):
    data = bytes(range(length))
    source = primitives.address_of(data, False)
    expected, out = bytearray(b"\xcc" * 200), bytearray(b"\xcc" * 200)
    sges = [] if inline else [(source, length, lkey)]
    payload = data if inline else None
    n = encode_send(expected, opcode, flags, imm, wr_id, va, rkey, 0, 0, 0, 0, 0, sges, payload)
    address = primitives.address_of(out)
    assert put_run(address, 200, opcode, flags, imm, wr_id, va, rkey, source, length, lkey, inline) == n
    assert out == expected
    assert put_run(address, n - 1, opcode, flags, imm, wr_id, va, rkey, source, length, lkey, inline) == -1
    assert out == expected


def test_a_buffer_that_is_too_short_gives_minus_1_and_stays():
    out = memoryview(bytearray(95))
    assert encode_send(out, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, [(1, 1, 1)] * 2) == -1
    assert encode_send(out, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, [], b"x" * 32) == -1
    assert encode_receive(out, 1, [(1, 1, 1)] * 5) == -1
    assert bytes(out) == bytes(95)
    assert encode_send(out, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, [], b"x" * 31) == 95
    assert encode_send(out, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, [(1, 1, 1)]) == 80


@pytest.mark.parametrize(("data", "status"), [
    (header(), wqe.WORK_OK),
    (header(opcode=10), wqe.WORK_OPCODE),
    (header(opcode=11), wqe.WORK_OK),
    (header(opcode=12), wqe.WORK_OPCODE),
    (header(opcode=43), wqe.WORK_OPCODE),
    (header(opcode=255), wqe.WORK_OPCODE),
    (header(flags=16), wqe.WORK_FLAGS),
    (header()[:63], wqe.WORK_TRUNCATED),
    (header() + b"\0", wqe.WORK_TRUNCATED),
    (header(num_sge=1), wqe.WORK_TRUNCATED),
    (header(num_sge=1) + sge(1, 1, 1)[:15], wqe.WORK_TRUNCATED),
    (header(num_sge=1) + sge(1, 1, 1) * 2, wqe.WORK_TRUNCATED),
    (header(num_sge=5) + sge(1, 1, 1) * 4, wqe.WORK_SGES),
    (header(num_sge=0xFFFF), wqe.WORK_SGES),
    (header(num_sge=4) + sge(1, 1, 1) * 4, wqe.WORK_OK),
    (header(num_sge=2) + sge(0, 1 << 31, 0) + sge(0, 0, 0), wqe.WORK_OK),
    (header(num_sge=2) + sge(0, 1 << 31, 0) + sge(0, 1, 0), wqe.WORK_LENGTH),
    (header(num_sge=2) + sge(0, 0xFFFFFFFF, 0) * 2, wqe.WORK_LENGTH),
    (header(inline_bytes=1) + b"x", wqe.WORK_INLINE),
    (header(inline_bytes=8), wqe.WORK_INLINE),
    (header(flags=8, inline_bytes=3) + b"abc", wqe.WORK_OK),
    (header(flags=8, inline_bytes=3) + b"ab", wqe.WORK_TRUNCATED),
    (header(flags=8, inline_bytes=3) + b"abcd", wqe.WORK_TRUNCATED),
    (header(flags=8, inline_bytes=32) + b"a" * 32, wqe.WORK_OK),
    (header(flags=8, inline_bytes=33) + b"a" * 33, wqe.WORK_INLINE),
    (header(flags=8, inline_bytes=0xFFFFFFFF), wqe.WORK_INLINE),
    (header(flags=8, num_sge=1, inline_bytes=16) + b"a" * 16, wqe.WORK_SGES),
    *[(header(opcode, flags=8, inline_bytes=3) + b"abc",
       wqe.WORK_OK if opcode in (0, 1, 2, 3, 9) else wqe.WORK_INLINE) for opcode in range(10)],
])
def test_a_send_entry_is_checked_whole(data, status):
    work = SendWork(4, 32)
    assert load(work, data) == status
    assert work.status == status
    assert work.wr_id == 9
    assert status == wqe.WORK_OK or work.elements() == []


@pytest.mark.parametrize("n", [0, 1, 15, 16, 63])
def test_wr_id_is_taken_when_it_is_there(n):
    work = SendWork(4, 32)
    load(work, header(wr_id=77))
    assert load(work, header(wr_id=78)[:n]) == wqe.WORK_TRUNCATED
    assert work.wr_id == (78 if n >= 16 else 0)
    assert (work.num_sge, work.total_bytes) == (0, 0)


WIDTHS = (8, 8, 32, 64, 64, 32, 64, 64, 32, 32, 32)
"""Bits of encode_send's numbers, in their order."""


@pytest.mark.parametrize("field", range(len(WIDTHS)))
def test_a_send_entry_takes_no_number_that_its_field_cannot_hold(field):
    for value, fits in ((-1, False), (1 << WIDTHS[field], False), (1 << 70, False),
                        ((1 << WIDTHS[field]) - 1, True)):
        numbers = [0] * len(WIDTHS)
        numbers[field] = value
        out = memoryview(bytearray(200))
        if fits:
            assert encode_send(out, *numbers, [(0, 0, 0)]) == 80
            assert sum(out.tobytes()) in (WIDTHS[field] // 8 * 255 + extra for extra in (1, 1 - wqe.INLINE))
        else:
            with pytest.raises(OverflowError):
                encode_send(out, *numbers, [(0, 0, 0)])


@pytest.mark.parametrize("field", [0, 1, 2])
def test_an_element_takes_no_number_that_its_field_cannot_hold(field):
    bits = (64, 32, 32)[field]
    for value in (-1, 1 << bits):
        element = [0, 0, 0]
        element[field] = value
        with pytest.raises(OverflowError):
            encode_send(memoryview(bytearray(200)), *[0] * 11, [tuple(element)])
        with pytest.raises(OverflowError):
            encode_receive(memoryview(bytearray(200)), 0, [tuple(element)])
    for wr_id in (-1, 1 << 64):
        with pytest.raises(OverflowError):
            encode_receive(memoryview(bytearray(200)), wr_id, [])


def test_an_entry_longer_than_the_queue_allows_is_refused():
    assert load(SendWork(4, 32), header(num_sge=5) + sge(1, 1, 1) * 6) == wqe.WORK_TRUNCATED
    assert load(ReceiveWork(2), bytes(16 + 48)) == wqe.WORK_TRUNCATED
    work = SendWork(4, 32)
    load(work, header())
    assert work.load(memoryview(bytearray(64)), 65) == wqe.WORK_TRUNCATED
    assert work.wr_id == 0


@pytest.mark.parametrize("work", [SendWork(0, 13), SendWork(3, 0), SendWork(2, 101), ReceiveWork(3)])
def test_there_is_a_word_for_each_element_behind_the_longest_entry(work):
    assert work.notes * 8 == work.capacity
    assert len(work.buffer) == work.capacity + 8 * work.max_sge


@given(U64, SGES)
@settings(max_examples=random_inputs(100), deadline=None)
def test_a_receive_entry_has_the_bytes_of_the_contract_and_loads_again(wr_id, sges):
    out = memoryview(bytearray(b"\xcc" * 1000))
    n = encode_receive(out, wr_id, sges)
    elements = b"".join(sge(*one) for one in sges)
    assert bytes(out[:n]) == struct.pack("<HHIQ", len(sges), 0, 0, wr_id) + elements
    work = ReceiveWork(40)
    total = sum(length for _, length, _ in sges)
    assert work.load(out, n) == (wqe.WORK_OK if total <= 1 << 31 else wqe.WORK_LENGTH)
    assert (work.wr_id, work.total_bytes) == (wr_id, total)
    assert work.elements() == ([] if work.status else sges)


@pytest.mark.parametrize(("data", "status"), [
    (struct.pack("<QQ", 0, 9), wqe.WORK_OK),
    (struct.pack("<QQ", 0, 9)[:15], wqe.WORK_TRUNCATED),
    (struct.pack("<QQ", 1, 9), wqe.WORK_TRUNCATED),
    (struct.pack("<QQ", 1, 9) + sge(1, 1, 1) * 2, wqe.WORK_TRUNCATED),
    (struct.pack("<QQ", 3, 9) + sge(1, 1, 1) * 2, wqe.WORK_SGES),
    (struct.pack("<QQ", 2, 9) + sge(1, 1 << 31, 1) * 2, wqe.WORK_LENGTH),
    (struct.pack("<QQ", 2, 9) + sge(1, 1, 1) * 2, wqe.WORK_OK),
])
def test_a_receive_entry_is_checked_whole(data, status):
    work = ReceiveWork(2)
    assert load(work, data) == status == work.status
    assert work.wr_id == (9 if len(data) >= 16 else 0)
    assert status == wqe.WORK_OK or work.elements() == []


@given(st.binary(max_size=200))
@settings(max_examples=random_inputs(200), deadline=None)
def test_no_bytes_whatever_raise(data):
    for work in (SendWork(4, 32), ReceiveWork(4)):
        assert 0 <= load(work, data) <= 6
        if work.status == wqe.WORK_OK:
            assert work.num_sge <= 4
            assert work.total_bytes <= 1 << 31


def test_an_entry_is_fetched_from_a_ring_and_its_room_stays_taken():
    host = HostMemory(64 << 20)
    layout = RingLayout.over(host.allocate(plan(2, 8192)), host.address_map, 2, 8192)
    producer, consumer = RingProducer(layout), RingConsumer(layout)
    out = memoryview(bytearray(6000))
    work = SendWork(300, 0)
    assert work.fetch(consumer) == 0
    n = encode_send(out, wqe.SEND, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0, [(i, i, i) for i in range(300)])
    producer.push(primitives.address_of(out), n)
    assert work.fetch(consumer) == n
    assert (work.status, work.elements()[299:], work.total_bytes) == (wqe.WORK_OK, [(299, 299, 299)], 44_850)
    assert work.fetch(consumer) == 0
    assert (work.status, work.total_bytes) == (wqe.WORK_OK, 44_850)  # it is the same entry still
    assert producer.count() == 1
    producer.push(primitives.address_of(out), 10)
    assert work.fetch(consumer) == 10
    assert work.status == wqe.WORK_TRUNCATED
    primitives.store64(layout.control, 99)
    assert work.fetch(consumer) == -1
    host.close()


def test_limits_that_cannot_be_are_refused():
    for arguments in ((-1, 0), (4097, 0), (1, -1), (1, (1 << 16) + 1)):
        with fails(errno.EINVAL):
            SendWork(*arguments)
    with fails(errno.EINVAL):
        ReceiveWork(4097)
    assert SendWork(0, 0).capacity == wqe.send_bytes(0, 0) == 64
    assert wqe.send_bytes(2, 33) == 97
    assert ReceiveWork(0).capacity == wqe.receive_bytes(0) == 16


def test_limits_are_kept_up_to_the_last_value():
    assert SendWork(wqe.MAX_SGES, wqe.MAX_INLINE_BYTES).max_sge == wqe.MAX_SGES
    assert ReceiveWork(wqe.MAX_SGES).max_sge == wqe.MAX_SGES


def test_more_elements_than_an_entry_can_count_are_not_written():
    out = bytearray(64 + 16 * 0x10000)
    assert encode_receive(out, 1, [(0, 0, 0)] * 0x10000) == -1
    assert encode_send(out, wqe.SEND, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, [(0, 0, 0)] * 0x10000) == -1
    assert not any(out)


def test_an_entry_is_not_longer_than_the_buffer_that_it_is_loaded_from():
    data = header(wqe.SEND, num_sge=1) + sge(0, 1, 2)
    work = SendWork(4, 0)
    assert work.load(memoryview(bytearray(data))[:64], len(data)) == wqe.WORK_TRUNCATED
    assert load(work, data) == wqe.WORK_OK


def test_a_refused_entry_has_no_bytes():
    good = {SendWork(4, 0): header(num_sge=1) + sge(0, 5, 2),
            ReceiveWork(4): struct.pack("<HHIQ", 1, 0, 0, 9) + sge(0, 5, 2)}  # fmt: skip
    for work, data in good.items():
        assert (load(work, data), work.total_bytes) == (wqe.WORK_OK, 5)
        assert load(work, data[:-1]) == wqe.WORK_TRUNCATED
        assert (work.num_sge, work.total_bytes) == (0, 0)


def test_an_opcode_that_is_none_is_refused_also_where_a_shift_would_wrap():
    for opcode in (16, 32 + wqe.SEND, 64 + wqe.SEND, 255):
        assert load(SendWork(4, 0), header(opcode)) == wqe.WORK_OPCODE


def test_each_operation_is_told_by_its_row():
    """What is immediate, what invalidates, what ends in a receive, what may stand in the entry."""
    told = {
        row.name: (row.immediate, row.invalidates, row.consumes_receive, row.inline)
        for row in operations.OPERATIONS.values()
    }
    nothing = (False, False, False, False)
    assert told == {
        "RDMA_WRITE": (False, False, False, True),
        "RDMA_WRITE_WITH_IMM": (True, False, True, True),
        "SEND": (False, False, True, True),
        "SEND_WITH_IMM": (True, False, True, True),
        "SEND_WITH_INV": (False, True, True, True),
        "ATOMIC_WRITE": (False, False, False, True),
        **dict.fromkeys(
            ("RDMA_READ", "ATOMIC_CMP_AND_SWP", "ATOMIC_FETCH_AND_ADD", "LOCAL_INV", "BIND_MW", "REG_MR",
             "FLUSH"), nothing,
        ),
    }  # fmt: skip
