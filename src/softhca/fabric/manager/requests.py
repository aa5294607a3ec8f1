"""Requests of the manager by directed route: a window of them under way, each sent again when no response
comes in time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from softhca.fabric.manager.packets import DATA_AT, DATA_BYTES, directed
from softhca.management import constants as c

NEVER_NS = (1 << 64) - 1
MOST_WAITING = 1 << 20
Then = Callable[[int | None, bytes], None]
"""Gets the status of the response (None: none came) and its data."""


@dataclass(slots=True)
class Request:
    """One that waits or is under way."""

    path: bytes
    method: int
    attribute: int
    modifier: int
    data: bytes
    then: Then
    tries: int = 0
    deadline_ns: int = 0


class Requests:
    """At most ``window`` are under way; after ``timeout_ns`` one is sent again, ``retries`` times.
    ``space``, 16 bits, stands in the middle of their transaction IDs: those of others have another one.
    """

    def __init__(
        self,
        transmit: Callable[[bytes], None],
        window: int,
        timeout_ns: int,
        retries: int,
        m_key: int = 0,
        space: int = 0,
    ) -> None:
        self._transmit = transmit
        self._window = window
        self._timeout_ns = timeout_ns
        self._retries = retries
        self._m_key = m_key
        self._waiting: deque[Request] = deque()
        self._under_way: dict[int, Request] = {}  # by transaction ID, the first deadline first
        self._space = space << 32
        self._next_id = 1
        self.counters = dict.fromkeys(("sent", "answered", "sent_again", "timed_out", "unmatched"), 0)

    @property
    def idle(self) -> bool:
        """Whether nothing waits and nothing is under way."""
        return not self._waiting and not self._under_way

    @property
    def has_room(self) -> bool:
        """Whether what is asked now is sent at once."""
        return not self._waiting and len(self._under_way) < self._window

    def get(self, path: bytes, attribute: int, then: Then, modifier: int = 0) -> None:
        """Ask for an attribute."""
        self._waiting.append(Request(path, c.METHOD_GET, attribute, modifier, b"", then))

    def set(self, path: bytes, attribute: int, data: bytes, then: Then, modifier: int = 0) -> None:
        """Set an attribute."""
        self._waiting.append(Request(path, c.METHOD_SET, attribute, modifier, data, then))

    def forget(self) -> None:
        """Give all up; what comes as a response yet is unmatched."""
        self._waiting.clear()
        self._under_way.clear()

    def pump(self, now: int) -> None:
        """Send what the window has room for."""
        while self._waiting and len(self._under_way) < self._window:
            self._send(self._waiting.popleft(), now)

    def _send(self, request: Request, now: int) -> None:
        number = self._space | self._next_id
        self._next_id = self._next_id % 0xFFFF_FFFF + 1
        request.deadline_ns = now + self._timeout_ns
        request.tries += 1
        self._under_way[number] = request
        self.counters["sent"] += 1
        self._transmit(
            directed(
                request.path, request.method, request.attribute, request.modifier, request.data, number,
                self._m_key,
            )
        )  # fmt: skip

    def response(self, data: bytes, now: int) -> None:
        """A response has come in; one that nobody waits for is counted."""
        number = int.from_bytes(data[8:16], "big")
        request = self._under_way.get(number)
        attribute = data[16] << 8 | data[17]
        if request is None or attribute != request.attribute:
            self.counters["unmatched"] += 1
            return
        del self._under_way[number]
        self.counters["answered"] += 1
        status = (data[4] & 0x7F) << 8 | data[5]
        request.then(status, data[DATA_AT : DATA_AT + DATA_BYTES])

    @property
    def next_deadline_ns(self) -> int:
        """When `expire` has something to do."""
        for request in self._under_way.values():
            return request.deadline_ns
        return NEVER_NS

    def expire(self, now: int) -> None:
        """Send again what has waited long enough, or give it up."""
        while self.next_deadline_ns <= now:
            number = next(iter(self._under_way))
            request = self._under_way.pop(number)
            if request.tries <= self._retries:
                self.counters["sent_again"] += 1
                self._send(request, now)
            else:
                self.counters["timed_out"] += 1
                request.then(None, b"")
