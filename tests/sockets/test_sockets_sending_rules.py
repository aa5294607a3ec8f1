"""What a sender asks its completions for, what they answer for, and what it keeps for the end."""

from __future__ import annotations

from array import array
from collections import deque
from typing import Any

import pytest

from softhca.machine.primitives import address_of
from softhca.sockets.behind_pool import BehindPool
from softhca.sockets.memory_management import NOTIFICATIONS
from softhca.sockets.protocol import BEHIND_BYTES, CREDIT, EVENT_REQUEST, IMMEDIATE, WAKE, Notification, Offer
from softhca.sockets.staging import Staging
from softhca.sockets.stream_sending import (
    IMMEDIATES,
    IN_MEMORY_BYTES,
    MESSAGES,
    MISSES,
    PRESSING,
    RESERVED,
    SIGNAL_EACH,
    TRY_EACH,
    Sender,
)
from softhca.sockets.stream_state import StreamState
from softhca.sockets.work_requests import SIGNALED, SOLICITED, TAKEN, WorkRequests

POOL = 1 << 20
INLINE = b"x" * 8


class Requests(WorkRequests):
    """Of those that are written the flags are kept."""

    def __init__(self) -> None:
        self.flags: list[int] = []
        self.told_in_memory: list[tuple[int, int, bool]] = []
        self.said: list[tuple[int, int]] = []
        self.noted: list[object] = []

    def write_run(
        self, number: int, address: int, length: int, lkey: int, places: Any, immediate: int, flags: int,
        inline: bool,
    ) -> None:  # fmt: skip
        self.flags.append(flags)

    def write(
        self, number: int, runs: Any, places: Any, immediate: int, flags: int, inline: bool = False,
        taken: bool = False, whole: int = 0,
    ) -> None:  # fmt: skip
        self.noted.append(("direct", taken))

    def write_in_memory(
        self, number: int, address: int, length: int, lkey: int, places: Any, immediate: int, inline: bool
    ) -> None:  # fmt: skip
        self.told_in_memory.append((length, lkey, inline))

    def notify(self, number: int, immediate: int, flags: int = SIGNALED) -> None:
        self.said.append((immediate, flags))

    def credit_in_memory(self, number: int, head: int, count: int) -> None:
        self.noted.append((number, head, count))

    def credit(self, number: int, head: int, count: int, immediate: int, flags: int = SIGNALED) -> None:
        self.noted.append(("immediate", head, count, flags))

    def request_event(self, number: int, wanted: int) -> None:
        self.noted.append(("event", number))

    def wake(self, number: int) -> None:
        self.noted.append(("wake", number))


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
    made.in_memory = False
    made.unconfirmed = made._immediate = made._event_request = 0
    made._immediates = made._late = made._requested_at = made._wanted = 0
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


@pytest.mark.parametrize("in_memory", [False, True])
def test_no_message_takes_more_than_half_of_the_peers_pool(sender: Sender, in_memory: bool) -> None:
    """The peer can give room back while the other half is filled."""
    pool_bytes = 1 << 16
    sender.begin(StreamState(POOL, Offer(0x10000, pool_bytes, 7)), sender.requests)
    sender._chunk, sender.in_memory = 2 * pool_bytes, in_memory
    assert sender.post(memoryview(bytes(2 * pool_bytes)), True, True) == (pool_bytes // 2, True)


def test_a_peer_that_takes_nothing_is_woken_by_what_it_is_sent(sender: Sender) -> None:
    seen = []
    while sender.post(memoryview(INLINE), True, True)[0]:
        sender.retire(sender.number)
        presses = bool(sender._state.peers.presses)
        assert bool(sender.requests.flags[-1] & SOLICITED) == presses  # type: ignore[attr-defined]
        seen.append(presses)
    assert set(seen) == {False, True}


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


EVENT = Notification(CREDIT).encode(), SIGNALED | SOLICITED


@pytest.fixture
def telling(sender: Sender) -> Sender:
    """One that tells in memory; its announcement was answered."""
    sender.tell_in_memory()
    sender.retire(sender.number)
    assert sender.requests.said == [  # type: ignore[attr-defined]
        (Notification(CREDIT, in_memory=True).encode(), SIGNALED)
    ]
    sender.requests.said.clear()  # type: ignore[attr-defined]
    return sender


@pytest.fixture
def words() -> array[int]:
    return array("Q", bytes(BEHIND_BYTES))


@pytest.fixture
def behind(words: array[int]) -> BehindPool:
    return BehindPool(address_of(words))


def post(sender: Sender, length: int = 8, frozen: bool = True, blocking: bool = True) -> tuple[int, bool]:
    return sender.post(memoryview(bytes(length)), frozen, blocking)


def test_before_the_announcement_is_answered_nothing_is_told_in_memory(sender: Sender) -> None:
    sender.tell_in_memory()
    assert post(sender) == (8, False)
    requests: Any = sender.requests
    assert (requests.told_in_memory, len(requests.flags)) == ([], 1)
    assert requests.flags[0] & SIGNALED  # how long that lasts is known by its answer
    sender.retire(2)
    assert post(sender) == (8, False)
    assert requests.told_in_memory == [(8, 1, True)]
    assert sender.unconfirmed == 3


@pytest.mark.parametrize(
    ("length", "frozen", "blocking", "told"),
    [(512, False, False, (512, 1, True)), (513, True, False, (513, 1, False)),
     (513, False, True, (513, 1, False))],
)  # fmt: skip
def test_what_somebody_keeps_is_written_as_it_stands(
    telling: Sender, length: int, frozen: bool, blocking: bool, told: tuple[int, int, bool]
) -> None:
    assert post(telling, length, frozen, blocking) == (length, length > 512)
    requests: Any = telling.requests
    assert requests.told_in_memory == [told]
    assert telling.direct_bytes == (length if length > 512 else 0)
    assert (telling.inflight[-1][2] is None) == (length <= 512)
    telling.retire(telling.number)
    assert telling.taken == telling.number


def test_what_may_change_before_it_is_written_is_copied(telling: Sender, words: array[int]) -> None:
    telling.staging._address = address_of(words)
    assert post(telling, 1000, False, False) == (1000, False)
    requests: Any = telling.requests
    assert requests.told_in_memory == [(1000, 2, False)]
    assert (telling.staging.tail, telling.direct_bytes) == (1000, 0)


def test_a_peer_gets_an_event_where_it_has_asked_for_one(
    telling: Sender, behind: BehindPool, words: array[int]
) -> None:
    requests: Any = telling.requests
    for asked in (False, True, False):
        words[EVENT_REQUEST >> 3] = int(asked)
        post(telling)
        telling.retire(telling.number)
        telling.confirm(behind)
        assert telling.unconfirmed == 0
        assert requests.said == ([EVENT] if asked else [])
        requests.said.clear()
        if asked:
            telling.retire(telling.number)
    assert len(requests.told_in_memory) == 3


def test_what_was_not_written_at_once_gives_an_event_and_in_the_end_the_way_up(
    telling: Sender, behind: BehindPool
) -> None:
    requests: Any = telling.requests
    for late in range(1, MISSES + 1):
        assert telling.in_memory
        post(telling)
        telling.confirm(behind)
        assert requests.said == [EVENT] * late
        telling.retire(telling.number)
    assert not telling.in_memory
    post(telling)
    assert len(requests.told_in_memory) == MISSES


def test_who_tells_in_memory_again_begins_to_count_anew(telling: Sender, behind: BehindPool) -> None:
    for _ in range(MISSES):
        post(telling)
        telling.confirm(behind)
        telling.retire(telling.number)
    telling.tell_in_memory()
    telling.retire(telling.number)
    for _ in range(MISSES - 1):
        post(telling)
        telling.confirm(behind)
        telling.retire(telling.number)
        assert telling.in_memory


def test_what_is_told_at_once_is_still_in_a_cache(telling: Sender) -> None:
    telling._chunk = 2 * IN_MEMORY_BYTES
    assert 2 * IN_MEMORY_BYTES <= POOL // 2
    assert post(telling, 2 * IN_MEMORY_BYTES) == (IN_MEMORY_BYTES, True)


def test_one_that_is_written_at_once_forgives_those_before(telling: Sender, behind: BehindPool) -> None:
    for written in ([False] * (MISSES - 1) + [True]) * 2:
        post(telling)
        if written:
            telling.retire(telling.number)
        telling.confirm(behind)
        telling.retire(telling.number)
    assert telling.in_memory


def test_a_peer_that_takes_nothing_gets_one_event(telling: Sender, behind: BehindPool) -> None:
    requests: Any = telling.requests
    for number in range(1, NOTIFICATIONS + 1):
        assert post(telling) == (8, False)
        telling.retire(telling.number)
        telling.confirm(behind)
        telling.retire(telling.number)
        assert requests.said == ([EVENT] if number >= PRESSING else [])
    assert post(telling) == (0, False)


def test_a_few_messages_go_by_immediates_until_these_are_answered(telling: Sender) -> None:
    requests: Any = telling.requests
    post(telling)
    telling.next()
    for _ in range(IMMEDIATES - 1):
        assert not telling.full
        assert post(telling) == (8, False)
    assert telling.full
    assert post(telling) == (0, False)
    telling.retire(telling.number - 1)
    assert telling.full
    telling.retire(telling.number)
    assert not telling.full
    assert post(telling) == (8, False)
    assert (len(requests.flags), len(requests.told_in_memory)) == (IMMEDIATES - 1, 2)
    telling.retire(telling.number)
    telling.next()
    assert not telling.full  # counted anew


def test_credit_needs_no_immediate(telling: Sender) -> None:
    requests: Any = telling.requests
    telling.credit((500, 3, 0))
    assert requests.noted == [(telling.number, 500, 3)]
    assert telling.unconfirmed == telling.number
    telling.next()
    telling.credit((600, 4, 0))
    assert requests.noted[1] == ("immediate", 600, 4, SIGNALED)


def test_an_event_is_asked_for_once_for_each_notification(telling: Sender) -> None:
    requests: Any = telling.requests
    telling.request_event(0, IMMEDIATE)
    telling.request_event(0, IMMEDIATE)
    assert requests.noted == [("event", telling.number)]
    telling.request_event(1, IMMEDIATE)
    telling.request_event(1, IMMEDIATE)
    assert len(requests.noted) == 2
    while len(telling.inflight) < MESSAGES - 1:
        telling.next()
    telling.request_event(2, IMMEDIATE)
    assert len(requests.noted) == 2
    telling.retire(telling.number)
    telling.request_event(2, IMMEDIATE)
    assert len(requests.noted) == 3
    assert telling._immediate < telling.number  # a request is no immediate


def test_who_waits_to_be_woken_and_then_by_descriptor_asks_again(telling: Sender) -> None:
    """But not the other way round: an immediate wakes, too."""
    assert telling.request_event(1, WAKE)
    assert not telling.request_event(1, WAKE)
    assert telling.request_event(1, IMMEDIATE)
    assert not telling.request_event(1, WAKE)
    assert telling.request_event(2, WAKE)


def test_a_peer_that_wants_no_more_is_woken_without_an_immediate(
    telling: Sender, words: array[int], behind: BehindPool
) -> None:
    requests: Any = telling.requests
    words[EVENT_REQUEST >> 3] = WAKE
    post(telling)
    telling.retire(telling.number)
    telling.confirm(behind)
    assert (requests.noted[-1], requests.said) == (("wake", telling.number), [])
    assert telling._immediate < telling.number
    noted = list(requests.noted)
    telling.retire(telling.number)
    post(telling)
    telling.retire(telling.number)
    telling.confirm(behind)
    assert (requests.noted, requests.said) == (noted, [])


@pytest.mark.parametrize("why", ["not written", "presses"])
def test_a_peer_that_wants_no_more_gets_an_immediate_where_others_would(
    telling: Sender, words: array[int], behind: BehindPool, why: str
) -> None:
    requests: Any = telling.requests
    if why == "presses":
        for _ in range(PRESSING - 1):
            post(telling)
            telling.retire(telling.number)
    words[EVENT_REQUEST >> 3] = WAKE
    post(telling)
    if why == "presses":
        telling.retire(telling.number)
    telling.confirm(behind)
    assert requests.said == [EVENT]
    assert not any(each[0] == "wake" for each in requests.noted)


def test_immediates_that_were_answered_count_no_more(telling: Sender) -> None:
    for _ in range(2 * IMMEDIATES):
        telling.next()
        assert not telling.full
        telling.retire(telling.number)


def test_a_request_for_an_event_gives_no_further_immediates(telling: Sender) -> None:
    """Eight are eight, whoever sleeps meanwhile."""
    for received in range(IMMEDIATES):
        telling.next()
        telling.request_event(received, IMMEDIATE)
    assert telling.full


@pytest.fixture
def copies(sender: Sender) -> array[int]:
    """The memory that ``sender`` copies into, and as much behind it."""
    memory = array("Q", bytes(2 * sender.staging.length))
    sender.staging._address = address_of(memory)
    return memory


@pytest.mark.parametrize("in_memory", [False, True])
def test_copies_leave_those_alone_that_are_under_way(
    sender: Sender, copies: array[int], in_memory: bool
) -> None:
    if in_memory:
        sender.tell_in_memory()
        sender.retire(sender.number)
    first = sender.number + 1
    posted = [sender.post(memoryview(bytes([value]) * 40_000), False, False) for value in (1, 2, 3)]
    assert posted == [(40_000, False), (65_536 - 40_000, False), (0, False)]
    assert copies.tobytes() == b"\1" * 40_000 + b"\2" * 25_536 + bytes(65_536)
    sender.retire(first)
    assert sender.post(memoryview(bytes([4]) * 40_001), False, False) == (40_000, False)
    assert copies.tobytes() == b"\4" * 40_000 + b"\2" * 25_536 + bytes(65_536)


def test_what_may_change_is_copied_where_nobody_waits(sender: Sender, copies: array[int]) -> None:
    requests: Any = sender.requests
    assert sender.prompt
    assert post(sender, 20_000, False, False) == (20_000, False)
    assert requests.noted == []
    assert post(sender, 20_000, False, True) == (20_000, True)
    assert post(sender, 20_000, True, False) == (20_000, True)
    assert requests.noted == [("direct", True), ("direct", False)]


def test_memory_that_was_not_taken_at_once_is_tried_again_once_in_a_while(
    sender: Sender, copies: array[int]
) -> None:
    for _ in range(MISSES):
        sender.judge(False)
    direct, sent = [], 0
    for number in range(1, 2 * TRY_EACH + 1):
        sender._state.peers.credited(sent, number - 1)  # the peer has read them
        length, was_direct = post(sender, 20_000, False, True)
        assert length
        sent += length
        sender.retire(sender.number)
        if was_direct:
            direct.append(number)
            sender.judge(False)
            assert not sender.prompt  # one that fails is enough
    assert direct == [TRY_EACH, 2 * TRY_EACH]


@pytest.mark.parametrize("written", [False, True])
def test_a_request_for_an_event_is_met_once_whatever_else_gives_one(
    telling: Sender, behind: BehindPool, words: array[int], written: bool
) -> None:
    requests: Any = telling.requests
    if written:
        for _ in range(PRESSING - 1):
            post(telling)
            telling.retire(telling.number)
    words[EVENT_REQUEST >> 3] = 1
    post(telling)
    if written:
        telling.retire(telling.number)
    telling.confirm(behind)
    assert (requests.said, words[EVENT_REQUEST >> 3]) == ([EVENT], 0)
    telling.retire(telling.number)
    post(telling)
    telling.retire(telling.number)
    telling.confirm(behind)
    assert requests.said == [EVENT]
