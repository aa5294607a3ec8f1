"""The two ends of a ring, without the operations that move bytes between them.

`Outbox` puts blocks into memory of the writer's own, laid out as the reader's ring, and says which ranges
must be carried over.  `Inbox` polls the slot whose turn it is.  Credit is the number of slots that the
reader has given back since the ring began; a writer is never further ahead of it than the ring is long.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import cython

from softhca.machine.primitives import copy, length_of, load64, store64
from softhca.mailbox.blocks import CREDIT, DATA, EMPTY, FORMAT, SKIP, TAKEN, Opener, Parts, Sealer

GAP_BYTES = 512
"""Two blocks with at most so many unused bytes between them travel in one range."""

MOST_SKIPS = 2
"""A writer skips once and writes at the beginning of the ring then; one who only skips is polled later."""

_GAP = cython.declare(cython.Py_ssize_t, GAP_BYTES)


class Outbox:
    """The writer's end: ``address`` is its copy of the ring, ``cell`` where the reader's credit lands.

    ``next_sequence`` is that of the next block, ``credit`` what the reader has given back, ``refused`` how
    many credits verified and could not be.
    """

    _ranges: list[tuple[int, int]]

    def __init__(
        self, slots: int, slot_bytes: int, sealer: Sealer, address: int, cell: int, credits: Opener
    ) -> None:
        self.slots = slots
        self.slot_bytes = slot_bytes
        self.sealer = sealer
        self.address = address
        self.cell = cell
        self.credits = credits
        self.next_sequence = 1
        self.credit = 0
        self.refused = 0
        self._ranges = []
        self._start = 0
        self._end = 0

    def put(self, kind: int, parts: Parts) -> int:
        """Seal the message that is the concatenation of ``parts`` into the ring: its sequence number.

        0: there is no credit for it (a skip in front of it may have been made).  ValueError: it is too long.
        The ranges to carry over are gathered until `ranges` is called.
        """
        index: cython.ulonglong
        span: cython.ulonglong
        sequence: cython.ulonglong
        block: cython.Py_ssize_t = self.sealer.measure(parts)
        if block < 0:
            raise ValueError("the message is longer than the terms allow")
        span = (block + self.slot_bytes - 1) // self.slot_bytes
        index = (self.next_sequence - 1) % self.slots
        if index + span > self.slots:
            if self.free() < self.slots - index:
                return 0
            self._seal(index, SKIP, ())
            self.next_sequence += self.slots - index
            index = 0
        if self.free() < span:
            return 0
        sequence = self.next_sequence
        self._seal(index, kind, parts)
        self.next_sequence = sequence + span
        return sequence

    def put_all(self, kind: int, messages: Sequence[Any], start: int) -> int:
        """Put single-part messages from ``messages[start]`` on, until the credit ends: how many.

        ValueError, and none is put, when one of them is too long.
        """
        count: cython.Py_ssize_t = 0
        at: cython.Py_ssize_t
        for at in range(start, len(messages)):
            if length_of(messages[at]) > self.sealer.largest_bytes:
                raise ValueError(f"message {at} is longer than the terms allow")
        for at in range(start, len(messages)):
            if not self.put(kind, (messages[at],)):
                break
            count += 1
        return count

    def _seal(self, index: int, kind: int, parts: Parts) -> int:
        offset: cython.Py_ssize_t = index * self.slot_bytes
        n: cython.Py_ssize_t = self.sealer.seal(self.next_sequence, kind, parts)
        if n < 0:
            raise ValueError("a part of the message grew")
        copy(self.address + offset, self.sealer.address, n)
        if self._end and self._end <= offset <= self._end + _GAP:
            self._end = offset + n
            return 0
        if self._end:
            self._ranges.append((self._start, self._end - self._start))
        self._start = offset
        self._end = offset + n
        return 0

    def ranges(self) -> list[tuple[int, int]]:
        """The ranges (offset, length) to carry over, in order; none is given twice."""
        ranges = self._ranges
        if self._end:
            ranges.append((self._start, self._end - self._start))
            self._end = 0
        self._ranges = []
        return ranges

    def free(self) -> int:
        """Slots for which there is credit."""
        return self.slots - (self.next_sequence - 1 - self.credit)

    def take_credit(self) -> bool:
        """Read the cell; whether there is more credit than before."""
        found: cython.ulonglong = load64(self.cell)
        if found <= self.credit:
            return False
        if self.credits.open(self.cell, self.credits.room, found) != TAKEN:
            return False
        if found >= self.next_sequence:
            self.refused += 1
            return False
        self.credit = found
        return True


class Inbox:
    """The reader's end: the ring at ``address``.

    ``next_sequence`` is the block whose turn it is, ``taken_sequence`` the one that was taken last,
    ``credited`` the credit that the writer was last given.
    """

    def __init__(self, slots: int, slot_bytes: int, opener: Opener, address: int, credits: Sealer) -> None:
        self.slots = slots
        self.slot_bytes = slot_bytes
        self.opener = opener
        self.address = address
        self.credits = credits
        self.next_sequence = 1
        self.taken_sequence = 0
        self.credited = 0

    def poll(self) -> int:
        """Poll the slot whose turn it is: a verdict; after TAKEN, `opener` has message and kind, and the
        ring has moved on.
        """
        index: cython.ulonglong
        address: cython.ulonglong
        verdict: cython.int
        _skip: cython.int
        for _skip in range(MOST_SKIPS):
            index = (self.next_sequence - 1) % self.slots
            address = self.address + index * self.slot_bytes
            verdict = self.opener.open(address, (self.slots - index) * self.slot_bytes, self.next_sequence)
            if verdict != TAKEN:
                return verdict
            if self.opener.kind != SKIP:
                self._advance(address)
                return TAKEN
            if self.opener.message:
                self.opener.verdicts[FORMAT] += 1
                return FORMAT
            self.next_sequence += self.slots - index
        return EMPTY

    def _advance(self, address: int) -> int:
        """Behind the block at ``address``; what lies inside it must not look like a block one day."""
        span: cython.ulonglong = (self.opener.block_bytes + self.slot_bytes - 1) // self.slot_bytes
        at: cython.ulonglong
        for at in range(1, span):
            store64(address + at * self.slot_bytes, 0)
        self.taken_sequence = self.next_sequence
        self.next_sequence += span
        return 0

    def take_all(self, messages: list[bytes], limit: int, most_owed: int) -> int:
        """Append messages of kind DATA until there are ``limit``, or so much is owed to the writer: a
        verdict.

        TAKEN with `opener.kind` another than DATA: that block was taken, and not appended.
        """
        verdict: cython.int = TAKEN
        while len(messages) < limit and self.next_sequence - 1 - self.credited < most_owed:
            verdict = self.poll()
            if verdict != TAKEN or self.opener.kind != DATA:
                break
            messages.append(self.opener.message)
        return verdict

    def owed(self) -> int:
        """Slots given back for which the writer has no credit yet."""
        return self.next_sequence - 1 - self.credited

    def seal_credit(self) -> int:
        """Make the credit of now in `credits`' buffer, and count it as given; its length in bytes."""
        self.credited = self.next_sequence - 1
        return self.credits.seal(self.credited, CREDIT, ())
