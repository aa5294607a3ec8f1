"""What stands behind a pool: taken once, in order, and only by its number."""

from __future__ import annotations

from array import array

import pytest

from softhca.machine.primitives import address_of
from softhca.sockets.behind_pool import BehindPool
from softhca.sockets.protocol import BEHIND_BYTES, EVENT_REQUEST, NOTIFICATION_RING, RING_ENTRIES

RING = NOTIFICATION_RING // 8


@pytest.fixture
def words() -> array[int]:
    return array("Q", bytes(BEHIND_BYTES))


@pytest.fixture
def behind(words: array[int]) -> BehindPool:
    return BehindPool(address_of(words))


def test_nothing_stands_in_fresh_memory(behind: BehindPool) -> None:
    for number in (0, 1, RING_ENTRIES, 0xFFFFFFFF):
        assert not behind.shows(number, 0, 0)
        assert behind.take(number) == 0
    assert behind.record() == (0, 0)
    assert not behind.take_event_request()


@pytest.mark.parametrize("number", [1, RING_ENTRIES - 1, RING_ENTRIES, 3 * RING_ENTRIES + 7, 0xFFFFFFFF, 0])
def test_a_notification_is_taken_once(behind: BehindPool, words: array[int], number: int) -> None:
    words[RING + number % RING_ENTRIES] = number << 32 | 0x1234
    assert behind.shows(number, 0, 0)
    assert behind.take(number) == 0x1234
    assert words[RING + number % RING_ENTRIES] == 0
    assert not behind.shows(number, 0, 0)
    assert behind.take(number) == 0


@pytest.mark.parametrize("other", [RING_ENTRIES + 5, 5 + 2 * RING_ENTRIES, 4])
def test_another_number_in_its_place_is_left_there(
    behind: BehindPool, words: array[int], other: int
) -> None:
    words[RING + 5] = other << 32 | 9
    assert not behind.shows(5, 0, 0)
    assert behind.take(5) == 0
    assert words[RING + 5] == other << 32 | 9


def test_record_b_is_news_where_either_word_is_another(behind: BehindPool, words: array[int]) -> None:
    words[0], words[1] = 1 << 40, 3
    assert behind.record() == (1 << 40, 3)
    assert not behind.shows(1, 1 << 40, 3)
    assert behind.shows(1, 1 << 40, 2)
    assert behind.shows(1, 0, 3)


def test_an_event_is_owed_once(behind: BehindPool, words: array[int]) -> None:
    words[EVENT_REQUEST // 8] = 1
    assert behind.take_event_request()
    assert not behind.take_event_request()
    assert not any(words)


def test_no_two_of_them_share_a_cache_line() -> None:
    assert (EVENT_REQUEST, NOTIFICATION_RING, BEHIND_BYTES) == (64, 128, 128 + 8 * RING_ENTRIES)
