"""A stream over a completion queue that is a script: the test is its peer and its device."""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from softhca.driver.polling import CompletionPoller
from softhca.driver.work_requests import Completion
from softhca.machine.primitives import address_of
from softhca.sockets import stream as stream_module
from softhca.sockets.behind_pool import BehindPool
from softhca.sockets.protocol import (
    BEHIND_BYTES,
    DATA,
    FIN,
    Notification,
    Offer,
)
from softhca.sockets.stream import Guard, Stream
from softhca.sockets.stream_receiving import Receiver
from softhca.sockets.stream_sending import Sender
from softhca.sockets.stream_state import StreamState
from softhca.sockets.work_requests import SIGNALED, WorkRequests
from softhca.verbs import enums as e

POOL = 16 << 10


class Poller(CompletionPoller):
    """A completion queue that is a list, ``come``."""

    def __init__(self, come: list[Any], noted: list[Any]) -> None:
        self.come, self.noted = come, noted

    def waiting(self) -> int:
        return len(self.come)

    def advance(self, entry: Completion) -> bool:
        self.noted.append("poll")
        if not self.come:
            return False
        entry.status, entry.opcode, entry.imm_data, entry.wr_id = self.come.pop(0)
        return True


class Requests(WorkRequests):
    """Work requests that are noted."""

    def __init__(self, noted: list[Any], said: list[int]) -> None:
        self.noted, self.said = noted, said
        self.meanwhile: Callable[[], object] = lambda: None

    def receive(self, count: int) -> None:
        self.noted.append(("receives", count))
        self.meanwhile()

    def notify(self, number: int, immediate: int, flags: int = SIGNALED) -> None:
        self.said.append(immediate)

    def probe(self, number: int) -> None:
        self.noted.append("probe")


class Sending(Sender):
    """A sender that notes what it is told, and is ``waits`` for an answer."""

    def __init__(self, noted: list[Any], requests: Requests) -> None:
        self.noted, self.requests, self.waits = noted, requests, False
        self.inflight, self.taken = deque(), 0
        self.number = self.unconfirmed = 0
        self.meanwhile: Callable[[], object] = lambda: None
        self.in_memory = False

    def next(
        self, staged: int = 0, holder: object = None, signaled: bool = True, immediate: bool = True
    ) -> int:
        return 1

    @property
    def unanswered(self) -> bool:
        return self.waits

    def retire(self, number: int) -> None:
        self.noted.append(("retired", number))

    def credit(self, found: tuple[int, int, int], signaled: bool = False) -> None:
        self.noted.append("credit")

    def request_event(self, told: int, wanted: int) -> bool:
        if ("event", told) in self.noted:
            return False
        self.wanted = wanted
        self.noted.append(("event", told))
        self.meanwhile()
        return True

    def confirm(self, behind: BehindPool) -> None:
        self.noted.append("confirmed")

    def close(self) -> None:
        self.noted.append("sender closed")


class Receiving(Receiver):
    """A receiver without a pool; ``memory`` is what is behind one."""

    def __init__(self) -> None:
        self.memory = array("Q", bytes(BEHIND_BYTES))
        self.behind = BehindPool(address_of(self.memory))
        self.given_back = deque()

    def relieve(self) -> None:
        pass

    def mappings(self) -> list[Any]:
        return []


class Scripted:
    """A stream whose peer and device are the test: ``come`` are completions, ``noted`` what it does."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.noted: list[Any] = []
        self.come: list[Any] = []
        self.said: list[int] = []
        monkeypatch.setattr(stream_module.HUB, "soon", lambda what: self.noted.append("hub"))
        self.stream = stream = Stream.__new__(Stream)
        stream._begin_path()
        stream._guard = Guard(stream)
        stream._state = self.state = StreamState(POOL, Offer(0x10000, POOL, 7))
        self.state.opened = True
        self.requests = stream._requests = Requests(self.noted, self.said)
        self.sender = stream.sender = Sending(self.noted, self.requests)
        stream.receiver = Receiving()
        stream._given_back = stream.receiver.given_back
        driver: Any = SimpleNamespace(wake_waiters=lambda: self.noted.append("wake"))
        stream._driver = driver
        handle: Any = SimpleNamespace(arm=lambda solicited: self.noted.append(("arm", solicited)))
        stream._handle = handle
        stream._poller = Poller(self.come, self.noted)

    def arrives(self, *immediates: int) -> None:
        recv = int(e.IBV_WC_RECV)
        self.come += [(0, recv, each, 0) for each in immediates]


def data(length: int = 1) -> int:
    return Notification(DATA, length).encode()


def fin(closed: bool) -> int:
    return Notification(FIN, closed=closed).encode()
