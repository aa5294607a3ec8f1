"""Requests of a program of libibumad that another program has and that it owes the answer to.

A kernel gives a request back with ETIMEDOUT when no answer has come; OpenSM relies on it and would wait for
ever in the middle of a sweep for one that ended before it answered.  The simulator protocol does not say how
long a program would have its kernel wait, so all wait as long, and longer than the tools take to ask again.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import NamedTuple

from softhca.fabric.mad_plane import Datagram
from softhca.fabric.notices import NEVER_NS

LIMIT_NS = 4_000_000_000
"""So long a program may take for an answer."""

MOST = 1024
"""Requests of one program that are waited for; of more the oldest is given up."""


class _Pending(NamedTuple):
    datagram: Datagram
    deadline_ns: int
    target: Hashable


_Key = tuple[bytes, Hashable]


class UnansweredRequests:
    """Those of one program, the oldest first."""

    def __init__(self) -> None:
        self._pending: dict[_Key, _Pending] = {}

    def __len__(self) -> int:
        return len(self._pending)

    @property
    def next_deadline_ns(self) -> int:
        """When `expired` has something to tell; `NEVER_NS`: nothing is waited for."""
        first = next(iter(self._pending.values()), None)
        return NEVER_NS if first is None else first.deadline_ns

    def add(
        self, datagram: Datagram, target: Hashable, now: int, place: Hashable = None
    ) -> Datagram | None:
        """``target`` has a request, which has come to the port ``place``; one that is asked again begins to
        wait anew, one of the same transaction at another port is another one.  What is given up for it."""
        key = _key(datagram.data), place
        self._pending.pop(key, None)
        given_up = None
        if len(self._pending) >= MOST:
            given_up = self._pending.pop(next(iter(self._pending))).datagram
        self._pending[key] = _Pending(datagram, now + LIMIT_NS, target)
        return given_up

    def answered(self, data: bytes, place: Hashable = None) -> None:
        """An answer has come from the port ``place``: the MAD."""
        self._pending.pop((_key(data), place), None)

    def expired(self, now: int) -> list[Datagram]:
        """The requests whose time is over, which are forgotten with that."""
        return self._take([key for key, each in self._pending.items() if each.deadline_ns <= now])

    def left_by(self, target: Hashable) -> list[Datagram]:
        """The requests that ``target`` had, which has gone; they are forgotten with that."""
        return self._take([key for key, each in self._pending.items() if each.target is target])

    def _take(self, keys: list[_Key]) -> list[Datagram]:
        return [self._pending.pop(key).datagram for key in keys]


def _key(mad: bytes) -> bytes:
    """What an answer has of its request: the class, and of the transaction the part that programs choose."""
    return mad[1:2] + mad[10:16]
