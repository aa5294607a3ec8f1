"""Requests of clients that wait for responses: until when, and how often they are sent once more.

Time comes in as integers of nanoseconds; who drives asks `next_ns` and then `due`.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from softhca.management.constants import RESPONSE, UNANSWERED_METHODS
from softhca.management.mad import Address, MadHeader
from softhca.management.outstanding import comes_from

if TYPE_CHECKING:
    from softhca.management.dispatcher import Client

NEVER_NS = (1 << 64) - 1
_LOW_MASK = 0xFFFFFFFF
_SPARE = 64

Key = tuple[int, int]


def request_key(header: MadHeader) -> Key:
    """What tells the requests of one client apart, and their responses: class and low half of the ID."""
    return header.management_class, header.transaction_id & _LOW_MASK


def is_request(header: MadHeader) -> bool:
    """Whether a response to this is expected."""
    return not header.method & RESPONSE and header.method not in UNANSWERED_METHODS


@dataclass(frozen=True)
class Pending:
    """A request that waits: ``data`` and ``destination`` as its client gave them, ``retries`` left."""

    client: Client
    key: Key
    data: bytes
    destination: Address
    timeout_ns: int
    retries: int
    deadline_ns: int

    def again(self, now: int) -> Pending:
        """The same, sent once more at ``now``."""
        return replace(self, retries=self.retries - 1, deadline_ns=now + self.timeout_ns)

    def later(self, deadline_ns: int) -> Pending:
        """The same, to be looked at again at ``deadline_ns``."""
        return replace(self, deadline_ns=deadline_ns)


class PendingRequests:
    """Those of one queue pair; each client bounds how many it has."""

    def __init__(self) -> None:
        self._waiting: dict[int, dict[Key, Pending]] = {}
        self._deadlines: list[tuple[int, int, Pending]] = []
        self._serial = 0

    def __len__(self) -> int:
        return sum(map(len, self._waiting.values()))

    def add(self, request: Pending) -> None:
        """It waits until its deadline."""
        self._waiting.setdefault(request.client.number, {})[request.key] = request
        self._serial += 1
        heapq.heappush(self._deadlines, (request.deadline_ns, self._serial, request))
        if len(self._deadlines) > 2 * len(self) + _SPARE:  # most of them were answered
            self._deadlines = [each for each in self._deadlines if self._waits(each[2])]
            heapq.heapify(self._deadlines)

    def _waits(self, request: Pending) -> bool:
        return self._waiting.get(request.client.number, {}).get(request.key) is request

    def has(self, client: Client, key: Key) -> bool:
        """Whether such a request of the client waits."""
        return key in self._waiting.get(client.number, {})

    def count(self, client: Client) -> int:
        """How many of a client wait."""
        return len(self._waiting.get(client.number, {}))

    def answered(self, client: Client, key: Key, source: Address | None = None) -> None:
        """Its response has come, or it was never sent.  ``source``: where the response has come from, which
        may be another port that the client has asked by the same ID.
        """
        waiting = self._waiting.get(client.number, {})
        request = waiting.get(key)
        if request is None or (source is not None and not comes_from(source, request.destination)):
            return
        del waiting[key]
        if not waiting:
            self._waiting.pop(client.number, None)

    def forget(self, client: Client) -> None:
        """The client is gone."""
        self._waiting.pop(client.number, None)

    def due(self, now: int) -> list[Pending]:
        """Take out those whose deadline has come, the earliest first."""
        found = []
        while self._deadlines and self._deadlines[0][0] <= now:
            request = heapq.heappop(self._deadlines)[2]
            if self._waits(request):
                self.answered(request.client, request.key)
                found.append(request)
        return found

    @property
    def next_ns(self) -> int:
        """When `due` may find something, at the earliest; `NEVER_NS`: nothing waits."""
        return self._deadlines[0][0] if self._deadlines else NEVER_NS
