"""The doorbell FIFO: which queues have new work, without a scan and without an overflow.

A queue stands in the FIFO at most once, because its pending word says so; hence a FIFO of as many places as
there are queues never overflows.  The adapter takes a queue out, clears its pending word, and only then
looks at the queue: work posted after that look rings again.  Both words change by locked instructions,
which order them against the queue's own counters.

Any number of threads of one host may ring; an entry is reserved first and written then, and the adapter
waits at a reserved place that is not yet written.
"""

from __future__ import annotations

import errno
from array import array
from collections.abc import Sequence
from typing import TYPE_CHECKING

import cython

from softhca.machine.primitives import atomic_add64, atomic_cas64, load64, store64
from softhca.memory.bits import PAGE_BYTES
from softhca.queues import layout as abi
from softhca.queues.layout import MAX_DOORBELL_SLOTS, WORDS_PER_PAGE

if TYPE_CHECKING:
    from softhca.memory.arenas import AddressMap

MASK64 = cython.declare(cython.ulonglong, 0xFFFFFFFFFFFFFFFF)


def plan(slots: int) -> int:
    """Pages that a FIFO for queue slots 0 … slots − 1 takes: control, pending words, places."""
    if not 0 < slots <= MAX_DOORBELL_SLOTS:
        raise OSError(errno.EINVAL, f"no doorbells for {slots} queues")
    return 1 + 2 * -(-slots // WORDS_PER_PAGE)


class DoorbellFifo:
    """Either side of the FIFO, over the addresses of its ``plan(slots)`` pages, zero-filled at first.

    ``malformed`` counts what the host wrote that cannot be.
    """

    def __init__(self, slots: int, pages: Sequence[int]) -> None:
        if len(pages) != plan(slots):
            raise OSError(errno.EINVAL, f"doorbells of {slots} queues take {plan(slots)} pages")
        if any([page <= 0 or page % PAGE_BYTES for page in pages]):
            raise OSError(errno.EFAULT, "the doorbell pages must be mapped and aligned")
        words = (len(pages) - 1) // 2
        self.slots = slots
        self.control = pages[0]
        self.pending_pages = array("Q", pages[1:1 + words])
        self.place_pages = array("Q", pages[1 + words:])
        self.head = load64(self.control + abi.DOORBELLS_HEAD_AT)
        self.malformed = 0

    @classmethod
    def over(cls, frames: Sequence[int], address_map: AddressMap, slots: int) -> DoorbellFifo:
        """The FIFO over ``plan(slots)`` frames of memory that is shared with this process."""
        if any([address_map.pid(frame) for frame in frames]):
            raise OSError(errno.EFAULT, "doorbells must stand in shared memory")
        return cls(slots, [address_map.address(frame) for frame in frames])

    def ring(self, slot: int) -> bool:
        """The host's side: queue ``slot`` has new work.  False where it was pending already (or does not
        exist)."""
        tail: cython.ulonglong
        place: cython.ulonglong
        if slot >= self.slots:
            return False
        if atomic_cas64(self.pending_pages[slot // abi.WORDS_PER_PAGE] + slot % abi.WORDS_PER_PAGE * 8, 0, 1):
            return False
        tail = atomic_add64(self.control + abi.DOORBELLS_TAIL_AT, 1)
        place = tail % self.slots
        store64(self.place_pages[place // abi.WORDS_PER_PAGE] + place % abi.WORDS_PER_PAGE * 8, slot + 1)
        return True

    def next(self) -> int:
        """The adapter's side: the queue that has been pending for longest, not pending any more; −1 for
        none."""
        place: cython.ulonglong
        address: cython.ulonglong
        slot: cython.ulonglong
        waiting: cython.ulonglong = (load64(self.control + abi.DOORBELLS_TAIL_AT) - self.head) & MASK64
        if waiting == 0:
            return -1
        if waiting > self.slots:
            # The tail jumped: nothing between can be believed. Go on at the new tail.
            self.malformed += 1
            self.head = (self.head + waiting) & MASK64
            store64(self.control + abi.DOORBELLS_HEAD_AT, self.head)
            return -1
        place = self.head % self.slots
        address = self.place_pages[place // abi.WORDS_PER_PAGE] + place % abi.WORDS_PER_PAGE * 8
        slot = load64(address)
        if slot == 0:
            return -1
        store64(address, 0)
        self.head = (self.head + 1) & MASK64
        store64(self.control + abi.DOORBELLS_HEAD_AT, self.head)
        if slot > self.slots:
            self.malformed += 1
            return -1
        slot -= 1
        atomic_cas64(self.pending_pages[slot // abi.WORDS_PER_PAGE] + slot % abi.WORDS_PER_PAGE * 8, 1, 0)
        return slot

    def empty(self) -> bool:
        """Whether no queue is pending."""
        return load64(self.control + abi.DOORBELLS_TAIL_AT) == self.head
