"""What stands behind a pool: taken once, in order, and only by its number."""

from __future__ import annotations

from array import array

import pytest

from softhca.machine.primitives import address_of
from softhca.sockets.behind_pool import BehindPool
from softhca.sockets.protocol import (
    BEHIND_BYTES,
    EVENT_REQUEST,
    IMMEDIATE,
    NOTIFICATION_RING,
    RING_ENTRIES,
    WAKE,
    WAKES,
)

RING = NOTIFICATION_RING // 8


@pytest.fixture
def words() -> array[int]:
    return array("Q", bytes(BEHIND_BYTES))


@pytest.fixture
def behind(words: array[int]) -> BehindPool:
    return BehindPool(address_of(words))


def test_nothing_stands_in_fresh_memory(behind: BehindPool) -> None:
    for number in (0, 1, RING_ENTRIES, 0xFFFFFFFF):
        assert not behind.shows(number, 0, 0, 0)
        assert behind.take(number) == 0
    assert behind.record() == (0, 0)
    assert not behind.take_event_request()


@pytest.mark.parametrize("number", [1, RING_ENTRIES - 1, RING_ENTRIES, 3 * RING_ENTRIES + 7, 0xFFFFFFFF, 0])
def test_a_notification_is_taken_once(behind: BehindPool, words: array[int], number: int) -> None:
    words[RING + number % RING_ENTRIES] = number << 32 | 0x1234
    assert behind.shows(number, 0, 0, 0)
    assert behind.take(number) == 0x1234
    assert words[RING + number % RING_ENTRIES] == 0
    assert not behind.shows(number, 0, 0, 0)
    assert behind.take(number) == 0


@pytest.mark.parametrize("other", [RING_ENTRIES + 5, 5 + 2 * RING_ENTRIES, 4])
def test_another_number_in_its_place_is_left_there(
    behind: BehindPool, words: array[int], other: int
) -> None:
    words[RING + 5] = other << 32 | 9
    assert not behind.shows(5, 0, 0, 0)
    assert behind.take(5) == 0
    assert words[RING + 5] == other << 32 | 9


def test_record_b_is_news_where_either_word_is_another(behind: BehindPool, words: array[int]) -> None:
    words[0], words[1] = 1 << 40, 3
    assert behind.record() == (1 << 40, 3)
    assert not behind.shows(1, 1 << 40, 3, 0)
    assert behind.shows(1, 1 << 40, 2, 0)
    assert behind.shows(1, 0, 3, 0)


def test_an_answered_request_is_news_where_it_is_not_known(behind: BehindPool, words: array[int]) -> None:
    words[WAKES // 8] = 7
    assert behind.wakes() == 7
    assert not behind.shows(1, 0, 0, 7)
    assert behind.shows(1, 0, 0, 6)


@pytest.mark.parametrize(
    ("asked", "found"), [(IMMEDIATE, IMMEDIATE), (WAKE, WAKE), (3, IMMEDIATE), (1 << 63 | WAKE, IMMEDIATE)]
)
def test_an_event_is_owed_once(behind: BehindPool, words: array[int], asked: int, found: int) -> None:
    words[EVENT_REQUEST // 8] = asked
    assert behind.take_event_request() == found
    assert behind.take_event_request() == 0
    assert not any(words)


def test_what_is_written_for_each_message_and_what_for_each_sleep_share_no_cache_line() -> None:
    assert (EVENT_REQUEST, WAKES) == (64, 72)
    assert (NOTIFICATION_RING, BEHIND_BYTES) == (128, 128 + 8 * RING_ENTRIES)
