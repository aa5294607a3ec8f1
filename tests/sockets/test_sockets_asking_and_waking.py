"""Nobody sleeps on over what was told in memory: two streams whose memory is the other's, each stopped before
and behind every word that it writes to its peer or takes there, while the other does all that it can do.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Callable
from itertools import combinations
from types import SimpleNamespace
from typing import Any

import pytest

from softhca.driver.polling import CompletionPoller
from softhca.driver.work_requests import Completion
from softhca.machine.primitives import address_of, load64, store64
from softhca.sockets.behind_pool import BehindPool
from softhca.sockets.protocol import (
    BEHIND_BYTES,
    CREDIT,
    EVENT_REQUEST,
    NOTIFICATION_RING,
    RING_ENTRIES,
    WAKES,
    Notification,
    Offer,
)
from softhca.sockets.staging import Staging
from softhca.sockets.stream import Stream
from softhca.sockets.stream_receiving import Receiver
from softhca.sockets.stream_sending import Sender
from softhca.sockets.stream_state import StreamState
from softhca.sockets.waiting import READABLE, Guard
from softhca.sockets.work_requests import SIGNALED, WorkRequests
from softhca.verbs import enums as e

POOL = 16 << 10
MESSAGE = 512
"""Inline; eight of them are a quarter of the pool, for which credit is told."""


class Turns:
    """Before and behind each access of one side the other may run: in ``at``, by their number."""

    def __init__(self) -> None:
        self.count = 0
        self.at: tuple[int, ...] = ()
        self.other: Callable[[], object] = lambda: None
        self._counts = False

    def run(self, one: Callable[[], object]) -> None:
        """Have ``one`` run, and the other in its points."""
        self._counts = True
        one()
        self._counts = False

    def point(self) -> None:
        if not self._counts:
            return
        self.count += 1
        if self.count in self.at:
            self._counts = False
            self.other()
            self._counts = True


class Behind(BehindPool):
    """What the peer writes, with a point around each request that is taken."""

    turns: Turns

    def take_event_request(self) -> int:
        self.turns.point()
        found = BehindPool.take_event_request(self)
        self.turns.point()
        return found


class Requests(WorkRequests):
    """RDMA WRITEs that are carried out as they are posted, into the memory of ``peer``."""

    def __init__(self, turns: Turns, side: Side) -> None:
        self.turns, self.side, self.told, self.answered = turns, side, 0, 0

    def put(self, number: int, *words: tuple[int, int]) -> None:
        self.turns.point()
        for offset, word in words:
            store64(self.side.peer.address + offset, word)
        self.side.come.append((0, 0, 0, number))
        self.turns.point()

    def write_in_memory(
        self, number: int, address: int, length: int, lkey: int, places: Any, immediate: int, inline: bool
    ) -> None:  # fmt: skip
        self.told += 1
        self.put(number, (NOTIFICATION_RING + 8 * (self.told % RING_ENTRIES), self.told << 32 | immediate))

    def credit_in_memory(self, number: int, head: int, count: int) -> None:
        self.put(number, (0, head), (8, count))

    def request_event(self, number: int, wanted: int) -> None:
        self.put(number, (EVENT_REQUEST, wanted))

    def wake(self, number: int) -> None:
        self.answered += 1
        self.put(number, (WAKES, self.answered))
        self.side.peer.woken = True

    def notify(self, number: int, immediate: int, flags: int = SIGNALED) -> None:
        self.turns.point()
        self.told += 1
        self.side.come.append((0, 0, 0, number))
        self.side.peer.come.append((0, int(e.IBV_WC_RECV), immediate, 0))
        self.side.peer.woken = True
        self.turns.point()

    def receive(self, count: int) -> None:
        pass


class Poller(CompletionPoller):
    def __init__(self, come: deque[Any]) -> None:
        self.come = come

    def waiting(self) -> int:
        return len(self.come)

    def advance(self, entry: Completion) -> bool:
        entry.status, entry.opcode, entry.imm_data, entry.wr_id = self.come.popleft()
        return True


class Receiving(Receiver):
    def __init__(self, behind: BehindPool) -> None:
        self.behind, self.given_back = behind, deque()

    def relieve(self) -> None:
        pass


class Side:
    """A stream that tells in memory, whose device is the test.  ``asleep``: in a call, or by descriptor."""

    peer: Side

    def __init__(self, turns: Turns, watched: bool) -> None:
        self.memory = array("Q", bytes(BEHIND_BYTES))
        self.address = address_of(self.memory)
        self.come: deque[Any] = deque()
        self.woken = self.asleep = False
        self.taken = 0
        stream = self.stream = Stream.__new__(Stream)
        stream._begin_path()
        stream._guard = Guard(stream)
        stream._watched, stream._polls = watched, True
        stream._state = self.state = StreamState(POOL, Offer(0x10000, POOL, 7))
        self.state.opened = self.state.peer_in_memory = True
        behind = Behind(self.address)
        behind.turns = turns
        stream.receiver = Receiving(behind)
        stream._given_back = stream.receiver.given_back
        driver: Any = SimpleNamespace(wake_waiters=lambda: None)
        handle: Any = SimpleNamespace(arm=lambda solicited: None)
        stream._driver, stream._handle = driver, handle
        stream._poller = Poller(self.come)
        stream.sender = _sender(self.state, Requests(turns, self))
        stream._requests = stream.sender.requests

    def send(self) -> None:
        """One message, as a call does."""
        with self.stream._guard:
            self.stream._look()
            assert self.stream.sender.post(memoryview(bytes(MESSAGE)), True, True) == (MESSAGE, False)
            self.stream._pump()

    def receive(self) -> None:
        """Unless it sleeps, and was not woken: take all there is, and go to sleep."""
        if self.asleep and not (self.woken or self.come):
            return
        if self.asleep and not self._wakes_up():
            return
        while True:
            with self.stream._guard:
                self.stream._look()
                if found := self.state.own.available:
                    self.state.own.take(found)
                    self.taken += found
                    self.stream._after_receive()
            self.woken, self.asleep = False, True
            if self.stream._watched:
                with self.stream._guard:
                    self.stream._arm_for_all()
                if not self.state.own.available:
                    return
            else:
                self.stream._count_sleeper(1)
                if not self.stream._has_ended(READABLE):
                    return
                self.stream._count_sleeper(-1)

    def _wakes_up(self) -> bool:
        """Whether it has found anything then."""
        self.woken = False
        if self.stream._watched:
            self.stream._on_event()
            return self.stream.readable
        if not self.stream._has_ended(READABLE):
            return False
        self.stream._count_sleeper(-1)
        return True


def _sender(state: StreamState, requests: Requests) -> Sender:
    made = Sender.__new__(Sender)
    made.direct_bytes = made.number = made.retired = made.taken = 0
    made.staging = Staging.__new__(Staging)
    made.staging.head, made.staging.tail, made.staging.length, made.staging.lkey = 0, 0, 1 << 16, 2
    made.inflight = deque()
    made._lkey, made._threshold, made._direct, made._chunk = 1, 1 << 14, 1 << 16, 1 << 16
    made._signaled = made._signaled_tail = made._misses = made._copies = 0
    made.in_memory = True
    made.unconfirmed = made._immediate = made._event_request = 0
    made._immediates = made._late = made._requested_at = made._wanted = 0
    made.begin(state, requests)
    return made


def played(watched: bool, first: str, at: tuple[int, ...], messages: int) -> int:
    """``messages`` go from one side to the other, which runs at the points ``at``; how many points there
    were.  ``first``: whose run has points, the writer's or the reader's, in whose run the writer then writes.
    """
    turns = Turns()
    writer, reader = Side(turns, False), Side(turns, watched)
    writer.peer, reader.peer = reader, writer
    left = [messages]

    def write() -> None:
        if left[0]:
            left[0] -= 1
            writer.send()

    reader.receive()
    turns.at = at
    turns.other = reader.receive if first == "writer" else write
    for _ in range(messages):
        if first == "writer":
            turns.run(write)
        else:
            write()
            turns.run(reader.receive)
    reader.receive()
    assert reader.taken == messages * MESSAGE, f"asleep over what was told: {first}, {at}"
    return turns.count


@pytest.mark.parametrize("watched", [False, True], ids=["in a call", "by descriptor"])
@pytest.mark.parametrize("first", ["writer", "reader"])
def test_whoever_runs_in_between_a_reader_learns_of_each_message(watched: bool, first: str) -> None:
    points = played(watched, first, (), 3)
    assert points >= 4
    # a run is longer when the other has run in it
    for count in (1, 2, 3):
        for at in combinations(range(1, points + 9), count):
            played(watched, first, at, 3)


@pytest.mark.parametrize("watched", [False, True], ids=["in a call", "by descriptor"])
def test_so_it_does_where_credit_is_told_as_well(watched: bool) -> None:
    points = played(watched, "writer", (), 12)
    for at in combinations(range(1, points + 9), 2):
        if at[1] - at[0] <= 8:  # within two messages
            played(watched, "writer", at, 12)


def test_the_words_are_where_the_peer_writes_them() -> None:
    """Else nothing here would be seen at all."""
    turns = Turns()
    writer, reader = Side(turns, False), Side(turns, False)
    writer.peer, reader.peer = reader, writer
    reader.receive()
    assert load64(writer.address + EVENT_REQUEST) != 0
    writer.send()
    assert (reader.woken, load64(reader.address + WAKES)) == (True, 1)
    assert load64(writer.address + EVENT_REQUEST) == 0
    assert Notification(CREDIT).encode() not in reader.come
