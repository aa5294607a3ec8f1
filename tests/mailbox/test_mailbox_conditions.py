"""Conditions: what holds when, and bytes that are none."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from softhca.mailbox.conditions import (
    MAX_DEPTH,
    MAX_NODES,
    Condition,
    ConditionError,
    all_of,
    always,
    any_of,
    decode,
    field,
    own,
    reached,
)
from suite_plan import random_inputs

DEEP = all_of(reached(9), any_of(field(0, "u16", ">", 500), own(1, "bytes", "==", b"ok"), always()))


def state(condition, held=(), argument=b"", up_to=0, message=None):
    """The leaves that have held then, and whether the whole does."""
    held = set(held) | condition.new_holds(set(held), argument, up_to, message)
    return held, condition.holds(held)


@pytest.mark.parametrize(("form", "data", "value"), [
    ("u8", b"\xfe", 254), ("i8", b"\xfe", -2), ("u16", b"\1\2", 513), ("i16", b"\xff\xff", -1),
    ("u32", b"\0\0\0\x80", 2**31), ("i32", b"\0\0\0\x80", -(2**31)), ("u64", b"\xff" * 8, 2**64 - 1),
    ("i64", b"\xff" * 8, -1),
])  # fmt: skip
def test_formats(form, data, value):
    assert state(field(3, form, "==", value), message=b"xyz" + data)[1]
    assert not state(field(3, form, "!=", value), message=b"xyz" + data)[1]
    assert not state(field(3, form, "==", value), message=b"xyz" + data[:-1])[1]


@pytest.mark.parametrize(("operation", "holding"), [
    ("==", {5}), ("!=", {4, 6}), ("<", {4}), ("<=", {4, 5}), (">", {6}), (">=", {5, 6}),
])  # fmt: skip
def test_operators(operation, holding):
    condition = field(0, "u8", operation, 5)
    assert {n for n in (4, 5, 6) if state(condition, message=bytes([n]))[1]} == holding


def test_bytes_are_compared_whole():
    condition = own(2, "bytes", "==", b"abc")
    assert state(condition, argument=b"__abc")[1]
    assert not state(condition, argument=b"__ab")[1]
    assert state(own(0, "bytes", "!=", b"ab"), argument=b"ba")[1]
    assert not state(own(0, "bytes", "!=", b"ab"), argument=b"b")[1]


def test_what_has_held_is_not_found_again():
    """A journal grows by what is new alone."""
    assert DEEP.new_holds(set(), b"_ok", 9) == {1, 4, 5}
    assert DEEP.new_holds({1, 4}, b"_ok", 9) == {5}
    assert DEEP.new_holds({1, 4, 5}, b"_ok", 9) == set()


def test_reached_holds_from_there_on():
    assert [state(reached(5), up_to=n)[1] for n in (4, 5, 6)] == [False, True, True]


def test_what_has_held_has_held():
    condition = all_of(field(0, "u8", "==", 1), field(0, "u8", "==", 2))
    held, whole = state(condition, message=b"\2")
    assert (held, whole) == ({2}, False)
    held, whole = state(condition, held, message=b"\3")
    assert (held, whole) == ({2}, False)
    assert state(condition, held, message=b"\1") == ({1, 2}, True)


def test_a_field_of_messages_is_not_one_of_the_argument():
    assert not state(field(0, "u8", "==", 1), argument=b"\1")[1]
    assert not state(own(0, "u8", "==", 1), message=b"\1")[1]


def test_all_and_any_of_nested_conditions():
    assert state(DEEP)[1] is False
    assert state(DEEP, up_to=9)[1] is True
    either = any_of(all_of(reached(1), reached(2)), reached(3))
    assert not any(either.holds(held) for held in (set(), {2}, {3}))
    assert all(either.holds(held) for held in ({2, 3}, {4}, {3, 4}))


@pytest.mark.parametrize("condition", [
    always(), reached(0), reached(2**64 - 1), all_of(*[always()] * (MAX_NODES - 1)), own(7, "i64", "<=", -5),
    field(2**32 - 1, "bytes", "!=", bytes(255)), DEEP,
])  # fmt: skip
def test_conditions_come_back_as_they_were(condition):
    assert decode(condition.encode()) == condition


@pytest.mark.parametrize("make", [
    lambda: reached(-1), lambda: reached(2**64), lambda: field(-1, "u8", "==", 1),
    lambda: field(0, "u9", "==", 1), lambda: field(0, "u8", "=", 1), lambda: field(0, "u8", "==", 256),
    lambda: field(0, "u8", "==", b"1"), lambda: field(0, "bytes", "<", b"1"),
    lambda: field(0, "bytes", "==", b""), lambda: field(0, "bytes", "==", 1),
    lambda: field(0, "bytes", "==", bytes(256)), all_of, any_of, lambda: all_of(*[always()] * 64),
])  # fmt: skip
def test_conditions_that_cannot_be_are_refused(make):
    with pytest.raises(ConditionError):
        make()


def test_conditions_are_not_too_deep():
    condition = always()
    for _ in range(MAX_DEPTH - 1):
        condition = all_of(condition)
    assert decode(condition.encode()).depth == MAX_DEPTH
    with pytest.raises(ConditionError):
        all_of(condition)
    with pytest.raises(ConditionError):
        decode(b"\4\1" + condition.encode())
    with pytest.raises(ConditionError):
        decode(b"\4\1" * 100_000)
    with pytest.raises(ConditionError):
        decode(b"\4\xff" + b"\0" * 255)


@pytest.mark.parametrize("data", [
    b"", b"\6", b"\0\0", b"\1\0", b"\4\0", b"\4\2\0", b"\2\0\0\0\0\x09\0\1a", b"\2\0\0\0\0\0\x06\1a",
    b"\2\0\0\0\0\1\0\2aa", b"\2\0\0\0\0\0\0\5a", b"\2\0\0\0\0\x08\2\1a",
])  # fmt: skip
def test_bytes_that_are_no_condition_are_refused(data):
    with pytest.raises(ConditionError):
        decode(data)


@settings(max_examples=random_inputs(300), deadline=None)
@given(st.integers(0, 2**32), st.binary(max_size=40))
def test_damaged_conditions_raise_nothing_else(seed, noise):
    dice = random.Random(seed)
    data = bytearray(DEEP.encode())
    data[dice.randrange(len(data))] = dice.randrange(256)
    for attempt in (bytes(data), noise):
        try:
            found = decode(attempt)
        except ConditionError:
            continue
        assert isinstance(found, Condition)
        assert found.encode() == attempt
