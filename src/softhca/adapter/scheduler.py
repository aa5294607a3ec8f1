"""Who transmits next: sixteen queues of flows, one a service level, and no flow is ever searched for.

Within a service level the turns go round in order (first in, first out), one burst of at most 64 KiB a turn;
several turns may share a burst (`peek`, `back`).
Between levels the higher number goes first, strictly, until it and the levels above the waiting ones have
sent ``HIGH_LIMIT_BYTES`` while a lower level waited; then one turn goes to a lower level, each waiting one in
rotation. That is the arbitration of IBTA vol. 1, 7.6.9.2 ("limit of high priority") without a table of
weights: with n levels waiting, each gets a turn at least every n − 1 limits, so none starves.

A flow that waits alone, as with one message at a time, stands beside the queues (``lone``): a queue is
Python's, and putting into it and taking out cost more than all else here.
"""

from __future__ import annotations

from collections import deque

import cython

from softhca.transport.flow import Flow

LEVELS = cython.declare(cython.int, 16)
HIGH_LIMIT_BYTES = 1 << 20
_HIGH_LIMIT_BYTES = cython.declare(cython.longlong, 1 << 20)


class Scheduler:
    """Flows that have asked for a turn; each stands in it at most once (its ``scheduled`` flag)."""

    queues: list[deque[Flow]]
    lone: Flow

    def __init__(self) -> None:
        self.queues = [deque() for _ in range(LEVELS)]
        self.waiting = 0
        self.length = 0
        self.high_bytes = 0
        self.last_low = LEVELS
        self.level = 0
        self.lone = None
        self.level_of_lone = 0

    def put(self, flow: Flow) -> None:
        """Give ``flow`` a turn on its service level; nothing changes when it waits for one already."""
        if flow.scheduled:
            return
        flow.scheduled = True
        level: cython.int = flow.service_level & 15
        if self.length == 0:
            self.lone = flow
            self.level_of_lone = level
        else:
            if self.lone is not None:
                self._queue_lone()
            self.queues[level].append(flow)
        self.waiting |= 1 << level
        self.length += 1

    def _queue_lone(self) -> None:
        """Another one comes: the flow that waited alone stands in its queue from now on."""
        self.queues[self.level_of_lone].append(self.lone)
        self.lone = None

    def next(self) -> Flow:
        """The flow whose turn it is, taken out; None when nobody waits."""
        if self.length == 0:
            return None
        level: cython.int = self._level()
        flow: Flow = self.lone
        if flow is not None:
            self.lone = None
            self.waiting = 0
        else:
            queue = self.queues[level]
            flow = queue.popleft()
            if not queue:
                self.waiting &= ~(1 << level)
        flow.scheduled = False
        self.length -= 1
        self.level = level
        return flow

    def sole(self) -> Flow:
        """The flow that waits for a turn, if there is exactly one, else None; it keeps its place."""
        if self.length != 1:
            return None
        if self.lone is not None:
            return self.lone
        level: cython.int = 0
        while not self.waiting & (1 << level):
            level += 1
        return self.queues[level][0]

    def peek(self) -> Flow:
        """The flow that `next` would give; None when nobody waits, or the level is yet to be chosen."""
        if self.length == 0 or self.waiting != 1 << self.level:
            return None
        if self.lone is not None:
            return self.lone
        return self.queues[self.level][0]

    def back(self, flow: Flow) -> None:
        """``flow``, which `next` gave last, could not use its turn: it has it again."""
        if flow.scheduled:
            return
        flow.scheduled = True
        if self.lone is not None:
            self._queue_lone()
        self.queues[self.level].appendleft(flow)
        self.waiting |= 1 << self.level
        self.length += 1

    def charge(self, sent_bytes: int) -> None:
        """Account ``sent_bytes`` to the level that had the last turn, as long as a lower one waits."""
        if self.waiting & ((1 << self.level) - 1):
            self.high_bytes += sent_bytes
        elif self.waiting == 0:
            self.high_bytes = 0

    def _level(self) -> int:
        """The level whose turn it is; ``waiting`` is not empty."""
        highest: cython.int = LEVELS - 1
        if self.waiting == 1 << self.level:  # nobody but the level that had the last turn
            highest = self.level
        while not self.waiting & (1 << highest):
            highest -= 1
        lower: cython.uint = self.waiting & ((1 << highest) - 1)
        if lower == 0:
            self.last_low = LEVELS
            self.high_bytes = 0
            return highest
        if self.high_bytes < _HIGH_LIMIT_BYTES:
            return highest
        self.high_bytes = 0
        candidate: cython.int = min(self.last_low, highest) - 1
        while candidate >= 0 and not lower & (1 << candidate):
            candidate -= 1
        if candidate < 0:
            candidate = highest - 1
            while not lower & (1 << candidate):
                candidate -= 1
        self.last_low = candidate
        return candidate
