"""The oracle of the live processes can fail: each kind of wrong byte and wrong word is seen."""

from __future__ import annotations

import json

import pytest
from chaos_hearing import Messages, Numbered, Stream, carried
from chaos_ledger import BYTES, MAX_ROWS, ROW_WORDS, Ledger
from chaos_plan import KINDS, MODES, SURVIVE, TRAFFIC, VERBS, VERBS_ALONE, round_of, storm_round
from chaos_script import ATOMIC, POOL_BYTES, READ, SEND, WRITE, Direction, Expectation, Shape, make_pool

POOL = make_pool(1)
SHAPE = Shape(slots=4, slot_bytes=64, window=2)
DONE, POSTED = 40, 43


def memory(shape: Shape, peer: Direction, count: int, expectation: Expectation) -> bytearray:
    """What stands in granted memory once ``count`` operations have acted."""
    data = bytearray(shape.inbox_bytes) + expectation.readable + bytes(64)
    for n in range(1, count + 1):
        operation = peer.operation(n)
        if operation.kind == WRITE:
            data[operation.offset : operation.offset + operation.length] = expectation.carried(operation)
        elif operation.kind == ATOMIC:
            data[2 * shape.inbox_bytes] += 1
    return data


@pytest.fixture
def expectation():
    return Expectation(Direction(3, SHAPE), Direction(4, SHAPE), POOL)


@pytest.mark.parametrize("acted", range(DONE, POSTED + 1))
def test_what_is_done_and_any_part_of_what_is_under_way_is_right(expectation, acted):
    peer = Direction(4, SHAPE)
    assert expectation.check(bytes(memory(SHAPE, peer, acted, expectation)), DONE, POSTED) == []


def test_half_a_write_under_way_is_right_and_behind_its_success_wrong():
    shape = Shape(slots=4, slot_bytes=64, window=2, kinds=(WRITE,))
    peer = Direction(4, shape)
    for done, right in ((39, True), (40, False)):
        expectation = Expectation(Direction(3, shape), peer, POOL)
        data = memory(shape, peer, 39, expectation)
        last = peer.operation(40)
        half = last.length // 2
        assert half
        data[last.offset : last.offset + half] = expectation.carried(last)[:half]
        assert (expectation.check(bytes(data), done, 40) == []) is right


@pytest.mark.parametrize("place", [0, 63, 100, 255, 256, 511, 512, 519, 520, 575])
def test_one_wrong_byte_is_seen(expectation, place):
    data = memory(SHAPE, Direction(4, SHAPE), DONE, expectation)
    data[place] ^= 0x40
    assert expectation.check(bytes(data), DONE, DONE)


def test_a_lost_and_a_doubled_atomic_are_seen(expectation):
    for change in (-1, 1):
        data = memory(SHAPE, Direction(4, SHAPE), DONE, expectation)
        data[2 * SHAPE.inbox_bytes] += change
        assert any("counter" in word for word in expectation.check(bytes(data), DONE, DONE))


def test_bytes_of_an_earlier_operation_are_not_taken_for_a_later_ones(expectation):
    peer = Direction(4, SHAPE)
    stale = bytes(memory(SHAPE, peer, DONE - 12, expectation))
    assert expectation.check(stale, DONE, DONE)


def test_operations_follow_from_the_seed_and_stay_inside():
    shape = Shape(slots=8, slot_bytes=4096, window=4)
    one, same, other = Direction(9, shape), Direction(9, shape), Direction(10, shape)
    operations = [one.operation(n) for n in range(1, 500)]
    assert operations == [same.operation(n) for n in range(1, 500)]
    assert operations != [other.operation(n) for n in range(1, 500)]
    assert {each.kind for each in operations} == {WRITE, READ, SEND, ATOMIC}
    for each in operations:
        assert 1 <= each.length <= shape.slot_bytes
        assert each.offset + each.length <= shape.inbox_bytes
        assert each.pool_offset + each.length <= POOL_BYTES


def test_a_ledger_is_one_memory_for_all_who_map_it():
    mine = Ledger()
    theirs = Ledger(mine.descriptor)
    mine.set(MAX_ROWS - 1, 1, 1 << 63)
    assert theirs.get(MAX_ROWS - 1, 1) == 1 << 63
    mine.clear(MAX_ROWS - 1)
    assert [theirs.get(MAX_ROWS - 1, field) for field in range(ROW_WORDS)] == [0] * ROW_WORDS
    assert BYTES > MAX_ROWS * ROW_WORDS * 8
    theirs._words.release()
    mine.close()


def test_a_plan_is_data_and_follows_from_its_seed():
    found = set()
    for mode in MODES:
        for number in range(200):
            plan = round_of(5, mode, number)
            assert json.loads(json.dumps(plan)) == plan == round_of(5, mode, number)
            assert not KINDS[plan["kind"]][1] or mode in KINDS[plan["kind"]][1].split()
            assert plan["shape"]["window"] < plan["shape"]["slots"]
            assert plan["victims"] * plan["connections"] + 8 <= MAX_ROWS
            assert plan["traffic"] == VERBS or plan["kind"] not in VERBS_ALONE
            found.add(plan["kind"])
            found.add(plan["traffic"])
    assert found == {*KINDS, *TRAFFIC}
    assert round_of(5, "udp", 1, ("kill",), ("channels",))["traffic"] == "channels"
    assert set(KINDS) > SURVIVE
    assert storm_round(1, 2, 4, 64) == storm_round(1, 2, 4, 64)


SENDS = Direction(6, Shape(slots=8, slot_bytes=300, window=4, kinds=(SEND,)))


def sent(count: int) -> list[bytes]:
    return [carried(SENDS.operation(n), POOL) for n in range(1, count + 1)]


@pytest.mark.parametrize("step", [1, 7, 299, 5000])
def test_a_stream_is_right_however_it_is_cut(step):
    data = b"".join(sent(40))
    hearing = Stream(SENDS, POOL)
    for start in range(0, len(data), step):
        assert hearing.hear(data[start : start + step]) == ""
        assert hearing.whole <= hearing.touched <= hearing.whole + 1
    assert hearing.whole == hearing.touched == 40
    assert hearing.hear(sent(41)[40][:1]) == ""
    assert (hearing.whole, hearing.touched) == (40, 41)


@pytest.mark.parametrize("place", [0, 1, 700, 3000])
def test_a_wrong_a_lost_and_a_doubled_byte_of_a_stream_are_seen(place):
    data = b"".join(sent(40))
    for wrong in (
        data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :],
        data[:place] + data[place + 1 :],
        data[:place] + data[place : place + 1] + data[place:],
    ):
        word = Stream(SENDS, POOL).hear(wrong)
        assert word.startswith("byte ")
        assert int(word.split()[1]) >= place


def test_a_wrong_a_lost_and_a_doubled_message_are_seen():
    peer = Direction(8, Shape(slots=8, slot_bytes=300, window=4))
    numbers = [n for n in range(1, 60) if peer.operation(n).kind == SEND]
    messages = [carried(peer.operation(n), POOL) for n in numbers]
    hearing = Messages(peer, POOL)
    for n, data in zip(numbers, messages, strict=True):
        assert hearing.hear(data) == ""
        assert hearing.whole == n
    for wrong in (messages[1:], [messages[0], *messages], [messages[0], messages[1] + b"x"]):
        hearing = Messages(peer, POOL)
        assert any([hearing.hear(data) for data in wrong])


@pytest.mark.parametrize("ordered", [False, True])
def test_a_message_that_says_its_number_may_be_lost_and_no_more(ordered):
    messages = [Numbered.message(SENDS, n, POOL) for n in range(1, 9)]
    hearing = Numbered(SENDS, POOL, ordered)
    assert [hearing.hear(messages[i]) for i in (0, 2, 3, 7)] == [""] * 4
    assert (hearing.whole, hearing.touched) == (4, 8)
    assert "twice" in hearing.hear(messages[2])
    late = hearing.hear(messages[4])
    assert ("behind" in late) == ordered
    changed = bytearray(messages[5])
    for place in (0, 7, 8, 15, 16, len(changed) - 1):
        changed[place] ^= 4
        assert hearing.hear(bytes(changed))
        changed[place] ^= 4
    assert hearing.hear(messages[5][:-1])
    assert hearing.hear(b"short")
    other = Direction(7, SENDS.shape)
    assert hearing.hear(Numbered.message(other, 6, POOL)), "another conversation's"
