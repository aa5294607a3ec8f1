"""Flows that wait for registered memory: each is tried again when its time has come, or all at once.

A flow stands here at most once, so the list is as long as there are flows at most, and every
operation costs O(1).
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

import cython

from softhca.adapter.timers import NEVER
from softhca.transport.environment import MEMORY_RETRY_NS

if TYPE_CHECKING:
    from softhca.transport.flow import Flow

_NEVER = cython.declare(cython.ulonglong, NEVER)
_RETRY_NS = cython.declare(cython.ulonglong, MEMORY_RETRY_NS)


class MemoryWaiters:
    """``next_ns``: when the first one is due, ``NEVER`` for none."""

    waiting: OrderedDict[Flow, int]

    def __init__(self) -> None:
        self.waiting = OrderedDict()
        self.next_ns = _NEVER

    def __len__(self) -> int:
        return len(self.waiting)

    def put(self, flow: Flow, now: int) -> None:
        """Have ``flow`` tried again ``MEMORY_RETRY_NS`` from ``now``; free when it waits already."""
        if flow in self.waiting:
            return
        self.waiting[flow] = now + _RETRY_NS
        self._first()

    def remove(self, flow: Flow) -> None:
        """Forget ``flow``; free when it does not wait."""
        if self.waiting.pop(flow, None) is not None:
            self._first()

    def due(self, now: int) -> list[Flow]:
        """Those whose time has come, in the order in which they were put; they wait no more."""
        found: list[Flow] = []
        while self.next_ns <= now:
            flow, _ = self.waiting.popitem(last=False)
            found.append(flow)
            self._first()
        return found

    def all(self) -> list[Flow]:
        """All of them, in that order; they wait no more."""
        found = list(self.waiting)
        self.waiting.clear()
        self.next_ns = _NEVER
        return found

    def _first(self) -> None:
        self.next_ns = _NEVER
        for due_ns in self.waiting.values():
            self.next_ns = due_ns
            return
