"""What a sender asks its completions for, what they answer for, and what it keeps for the end."""

from __future__ import annotations

from collections import deque
from typing import Any

import pytest

from softhca.sockets.protocol import Offer
from softhca.sockets.staging import Staging
from softhca.sockets.stream_sending import MESSAGES, RESERVED, SIGNAL_EACH, Sender
from softhca.sockets.stream_state import StreamState
from softhca.sockets.work_requests import SIGNALED, TAKEN, WorkRequests

POOL = 1 << 20
INLINE = b"x" * 8


class Requests(WorkRequests):
    """Of those that are written the flags are kept."""

    def __init__(self) -> None:
        self.flags: list[int] = []

    def write_run(
        self, number: int, address: int, length: int, lkey: int, places: Any, immediate: int, flags: int,
        inline: bool,
    ) -> None:  # fmt: skip
        self.flags.append(flags)


@pytest.fixture
def sender() -> Sender:
    """One without a device; ``requests.flags`` are those of what it has written."""
    made = Sender.__new__(Sender)
    made.direct_bytes = made.number = made.retired = made.taken = 0
    made.staging = Staging.__new__(Staging)
    made.staging.head, made.staging.tail, made.staging.length, made.staging.lkey = 0, 0, 1 << 16, 2
    made.inflight = deque()
    made._lkey, made._threshold, made._direct, made._chunk = 1, 1 << 14, 1 << 16, 1 << 16
    made._signaled = made._signaled_tail = made._misses = made._copies = 0
    requests = Requests()
    made.begin(StreamState(POOL, Offer(0x10000, POOL, 7)), requests)
    return made


def test_every_16th_message_asks_for_a_completion(sender: Sender) -> None:
    for _ in range(2 * SIGNAL_EACH):
        assert sender.post(memoryview(INLINE), True, True) == (8, False)
    asked = [bool(each & SIGNALED) for each in sender.requests.flags]  # type: ignore[attr-defined]
    assert asked == ([False] * (SIGNAL_EACH - 1) + [True]) * 2
    assert sender.unanswered
    sender.retire(2 * SIGNAL_EACH)
    assert not sender.unanswered


def test_places_are_kept_for_what_is_no_data(sender: Sender) -> None:
    for number in range(MESSAGES - RESERVED):
        sender._state.peers.credited(len(INLINE) * number, number)  # the peer has read them
        assert not sender.full
        assert sender.post(memoryview(INLINE), True, True)[0]
    assert sender.full
    assert sender.post(memoryview(INLINE), True, True) == (0, False)
    sender.retire(1)
    assert sender.post(memoryview(INLINE), True, True) == (8, False)


def test_a_completion_answers_for_all_before_it_and_takes_nothing_back(sender: Sender) -> None:
    for staged in (100, 0, 300, 0):
        sender.next(staged)
    sender.retire(TAKEN | 3)
    assert (sender.taken, sender.retired) == (3, 0)
    sender.retire(2)
    assert (sender.taken, sender.retired, sender.staging.head) == (3, 2, 100)
    sender.retire(4)
    assert (sender.taken, sender.retired, sender.staging.head) == (4, 4, 300)
    assert not sender.inflight


def test_memory_is_kept_until_it_was_taken(sender: Sender) -> None:
    holders = [object() for _ in range(3)]
    for holder in holders:
        sender.next(0, holder)
    sender.retire(TAKEN | 2)
    assert [each[2] for each in sender.inflight] == [None, None, holders[2]]
