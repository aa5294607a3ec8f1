"""A circular queue of references to entries that vary in size, shared by two sides that do not trust each
other.

The ring holds references of 8 bytes (body offset, body length); the entries themselves lie in a circular
body store. Both stand on lists of pages that need not be contiguous; a body may cross page borders and the
store's end.

Each side keeps head and tail of its own.  What it publishes is one free-running 64-bit counter in the
control block, a cache line each: the producer's tail and the consumer's head (a completion queue has its arm
word there too; RING of ``layout``). The producer needs the other's head only to learn that there is room
again, the consumer needs the tail only to learn that there is more; so each looks only when its own view
says full, or empty.

A counter or reference that cannot be breaks the ring for the side that sees it (``broken``): it neither
reads nor writes there any more, and nothing outside the ring's pages was touched.
"""

from __future__ import annotations

import errno
from array import array
from collections.abc import Sequence
from typing import TYPE_CHECKING

import cython

from softhca.machine.primitives import copy, load64, store64
from softhca.memory.bits import PAGE_BYTES
from softhca.queues import layout as abi
from softhca.queues.layout import MAX_BODY_BYTES, MAX_ENTRIES, REFERENCE_BYTES, REFERENCES_PER_PAGE

if TYPE_CHECKING:
    from softhca.memory.arenas import AddressMap

MASK64 = cython.declare(cython.ulonglong, 0xFFFFFFFFFFFFFFFF)
_WORD = cython.declare(cython.ulonglong, 0xFFFFFFFF)


def plan(entries: int, body_bytes: int) -> int:
    """Pages that a ring of ``entries`` references and ``body_bytes`` of bodies takes: control, references,
    bodies."""
    if not 0 < entries <= MAX_ENTRIES or not 0 < body_bytes <= MAX_BODY_BYTES:
        raise OSError(errno.EINVAL, f"entries = {entries}: no ring can have them and {body_bytes} bytes")
    references = (entries * REFERENCE_BYTES + PAGE_BYTES - 1) // PAGE_BYTES
    return 1 + references + (body_bytes + PAGE_BYTES - 1) // PAGE_BYTES


class PageTable:
    """The addresses of a ring's pages, where they do not lie in two pieces."""

    def __init__(self, reference_pages: Sequence[int], body_pages: Sequence[int]) -> None:
        self.references = array("Q", reference_pages)
        self.bodies = array("Q", body_pages)


def base_of(pages: Sequence[int]) -> int:
    """The first of ``pages`` where each begins at the end of the one before it, else 0."""
    first = pages[0]
    return first if list(pages) == list(range(first, first + len(pages) * PAGE_BYTES, PAGE_BYTES)) else 0


class RingLayout:
    """Where a ring is in this process: addresses of its pages and of its control block.

    Raises OSError EINVAL for sizes that cannot be or another number of pages than ``plan`` says, EFAULT for
    an address of 0 or a page that is not aligned.
    """

    def __init__(
        self, entries: int, body_bytes: int, reference_pages: Sequence[int], body_pages: Sequence[int],
        control: int,
    ) -> None:
        pages = plan(entries, body_bytes)
        bodies = -(-body_bytes // PAGE_BYTES)
        if len(body_pages) != bodies or 1 + len(reference_pages) + bodies != pages:
            raise OSError(
                errno.EINVAL, f"frames: {entries} entries and {body_bytes} bytes take {pages} pages"
            )
        if control <= 0 or control % 64 or any([page <= 0 or page % PAGE_BYTES
                                               for page in (*reference_pages, *body_pages)]):
            raise OSError(errno.EFAULT, "frames: a ring's pages must be mapped and aligned")
        self.entries = entries
        self.body_bytes = body_bytes
        self.control = control
        self.reference_base = base_of(reference_pages)
        self.body_base = base_of(body_pages)
        self.pages = None
        if not (self.reference_base and self.body_base):
            self.pages = PageTable(reference_pages, body_pages)

    @classmethod
    def over(
        cls, frames: Sequence[int], address_map: AddressMap, entries: int, body_bytes: int
    ) -> RingLayout:
        """The layout over ``plan(entries, body_bytes)`` frames: the control page, then references, then
        bodies.

        Raises OSError as the constructor, and EFAULT for frames that are another process's.
        """
        if len(frames) != plan(entries, body_bytes):
            raise OSError(errno.EINVAL, f"frames: a ring of {entries} entries does not take {len(frames)}")
        if any([address_map.pid(frame) for frame in frames]):
            raise OSError(errno.EFAULT, "frames: a ring must stand in shared memory")
        addresses = [address_map.address(frame) for frame in frames]
        bodies = len(addresses) - -(-body_bytes // PAGE_BYTES)
        return cls(entries, body_bytes, addresses[1:bodies], addresses[bodies:], addresses[0])

    def reference(self, index: int) -> int:
        """Address of reference ``index`` (below ``entries``)."""
        if self.reference_base:
            return self.reference_base + index * abi.REFERENCE_BYTES
        return self.pages.references[index // abi.REFERENCES_PER_PAGE] \
            + index % abi.REFERENCES_PER_PAGE * abi.REFERENCE_BYTES

    def place_of(self, offset: int, n: int) -> int:
        """Where the ``n`` bytes of the body store at ``offset`` (below ``body_bytes``) stand, 0 where they do
        not stand in one piece."""
        if self.body_base and n <= self.body_bytes - offset:
            return self.body_base + offset
        return 0

    def transfer(self, offset: int, address: int, n: int, inward: bool) -> None:
        """Copy ``n`` bytes between the body store at ``offset`` (below ``body_bytes``) and ``address``.

        ``inward``: into the store.  Goes on at the store's begin after its end.
        """
        piece: cython.ulonglong
        place: cython.ulonglong
        while n:
            piece = self.body_bytes - offset
            if self.body_base:
                place = self.body_base + offset
            else:
                place = self.pages.bodies[offset >> 12] + (offset & 0xFFF)
                if piece > 4096 - (offset & 0xFFF):
                    piece = 4096 - (offset & 0xFFF)
            if piece > n:
                piece = n
            if inward:
                copy(place, address, piece)
            else:
                copy(address, place, piece)
            address += piece
            n -= piece
            offset += piece
            if offset == self.body_bytes:
                offset = 0

    def clear(self) -> None:
        """Zero both counters and the arm word: an empty ring.  Neither side may be using it."""
        store64(self.control + abi.RING_TAIL_AT, 0)
        store64(self.control + abi.RING_HEAD_AT, 0)
        store64(self.control + abi.RING_ARM_AT, 0)


class RingProducer:
    """The side that puts entries in.  ``tail`` and ``head`` are its own; ``head`` may be behind the
    other's."""

    tail: int
    head: int
    index: int
    oldest: int
    body_tail: int
    body_used: int
    broken: bool

    def __init__(self, layout: RingLayout) -> None:
        self.layout = layout
        # What a reference's body takes is remembered here: the consumer could change what stands in the ring.
        self.lengths = array("I", bytes(4 * layout.entries))
        self.reset()

    def reset(self) -> None:
        """Begin anew with an empty ring (see ``RingLayout.clear``)."""
        self.tail = self.head = 0
        self.index = self.oldest = 0
        self.body_tail = self.body_used = 0
        self.broken = False

    @property
    def position(self) -> tuple[int, int]:
        """Where the next reference goes: (index in the queue's page table, index within that page)."""
        return divmod(self.index, REFERENCES_PER_PAGE)

    def place(self, n: int) -> int:
        """Where the next entry may be made in the body store itself, of at most ``n`` bytes, before `push`
        publishes it, a multiple of 8; 0: it is to be made elsewhere, as there is no such room in one piece by
        the producer's own view."""
        if self.broken or n > self.layout.body_bytes - self.body_used or self.body_tail & 7:
            return 0
        return self.layout.place_of(self.body_tail, n)

    def push(self, address: int, n: int) -> bool:
        """Append the entry of ``n`` bytes that stands at ``address``, in the `place` for it or elsewhere, and
        publish it; False where there is no room for it (or it is broken)."""
        if n == 0 or n > self.layout.body_bytes or self.broken:
            return False
        if not self.fits(n):
            self.refresh()
            if self.broken or not self.fits(n):
                return False
        if address != self.layout.body_base + self.body_tail:
            self.layout.transfer(self.body_tail, address, n, True)
        store64(self.layout.reference(self.index), self.body_tail << abi.REFERENCE_BODY_OFFSET_SHIFT
                | n << abi.REFERENCE_BODY_BYTES_SHIFT)
        self.lengths[self.index] = n
        self.index += 1
        if self.index == self.layout.entries:
            self.index = 0
        self.body_used += n
        self.body_tail += n
        if self.body_tail >= self.layout.body_bytes:
            self.body_tail -= self.layout.body_bytes
        self.tail = (self.tail + 1) & MASK64
        store64(self.layout.control + abi.RING_TAIL_AT, self.tail)
        return True

    def fits(self, n: int) -> bool:
        """Whether an entry of ``n`` bytes has room by the producer's own view."""
        if ((self.tail - self.head) & MASK64) >= self.layout.entries:
            return False
        return n <= self.layout.body_bytes - self.body_used

    def refresh(self) -> None:
        """Take the consumer's head over and free the bodies of what it released; a head that jumps breaks
        the ring."""
        advance: cython.ulonglong
        head: cython.ulonglong = load64(self.layout.control + abi.RING_HEAD_AT)
        advance = (head - self.head) & MASK64
        if advance > ((self.tail - self.head) & MASK64):
            self.broken = True
            return
        while advance:
            self.body_used -= self.lengths[self.oldest]
            self.oldest += 1
            if self.oldest == self.layout.entries:
                self.oldest = 0
            advance -= 1
        self.head = head

    def count(self) -> int:
        """Entries that the consumer has not released."""
        if not self.broken:
            self.refresh()
        return (self.tail - self.head) & MASK64

    def space(self) -> int:
        """References that are free (a body may still be too long for the store)."""
        return self.layout.entries - self.count()

    def unreleased(self) -> list[tuple[int, int]]:
        """(body offset, length) of every entry that the consumer has not released, oldest first."""
        n = self.count()
        # Unsigned: the store's size is added first, so that nothing goes below 0.
        offset = (self.body_tail + self.layout.body_bytes - self.body_used) % self.layout.body_bytes
        found = []
        for i in range(n):
            length = self.lengths[(self.oldest + i) % self.layout.entries]
            found.append((offset, length))
            offset = (offset + length) % self.layout.body_bytes
        return found


class RingConsumer:
    """The side that takes entries out.  ``seen`` is the tail it last read, ``taken`` and ``released`` its
    two heads; ``body`` is where in the store the entry stands that was taken last."""

    seen: int
    taken: int
    released: int
    index: int
    body: int
    broken: bool

    def __init__(self, layout: RingLayout) -> None:
        self.layout = layout
        self.reset()

    def reset(self) -> None:
        """Begin anew with an empty ring (see ``RingLayout.clear``)."""
        self.seen = self.taken = self.released = 0
        self.index = 0
        self.body = 0
        self.broken = False

    @property
    def position(self) -> tuple[int, int]:
        """Where the next reference is taken: (index in the queue's page table, index within that page)."""
        return divmod(self.index, REFERENCES_PER_PAGE)

    def take(self, address: int, capacity: int) -> int:
        """Copy the next entry to ``address``; its length in bytes, 0 where the ring is empty, −1 as
        `take_in_place`."""
        n: cython.longlong = self.take_in_place(capacity)
        if n > 0:
            self.layout.transfer(self.body, address, n, False)
        return n

    def take_in_place(self, capacity: int) -> int:
        """Take the next entry and leave it where it is (``body``); its length in bytes, 0 where the ring is
        empty.

        −1: the other side wrote what cannot be (a tail more than the ring ahead, a body outside the store,
        empty or longer than ``capacity``); the ring is ``broken`` from then on.  The entry's room is given
        back by ``release`` only.
        """
        reference: cython.ulonglong
        offset: cython.ulonglong
        n: cython.ulonglong
        if self.broken:
            return -1
        if self.seen == self.taken and self.count() <= 0:
            return -1 if self.broken else 0
        reference = load64(self.layout.reference(self.index))
        offset = reference >> abi.REFERENCE_BODY_OFFSET_SHIFT & _WORD
        n = reference >> abi.REFERENCE_BODY_BYTES_SHIFT & _WORD
        if n == 0 or n > capacity or n > self.layout.body_bytes or offset >= self.layout.body_bytes:
            self.broken = True
            return -1
        self.body = offset
        self.index += 1
        if self.index == self.layout.entries:
            self.index = 0
        self.taken = (self.taken + 1) & MASK64
        return n

    def idle(self) -> bool:
        """Whether there is nothing to take and nothing is wrong, at a glance."""
        if self.broken or self.seen != self.taken:
            return False
        return load64(self.layout.control + abi.RING_TAIL_AT) == self.seen

    def count(self) -> int:
        """Read the producer's tail: entries that can be taken now; −1 where the ring is broken."""
        tail: cython.ulonglong = load64(self.layout.control + abi.RING_TAIL_AT)
        # The tail may never fall behind what was seen nor run past what the consumer has given back.
        held: cython.ulonglong = (self.seen - self.released) & MASK64
        new: cython.ulonglong = (tail - self.released) & MASK64
        if new < held or new > self.layout.entries:
            self.broken = True
        if self.broken:
            return -1
        self.seen = tail
        return (tail - self.taken) & MASK64

    def release(self, count: int) -> bool:
        """Give the room of the ``count`` oldest taken entries back; False where so many were not taken."""
        if count > ((self.taken - self.released) & MASK64):
            return False
        self.released = (self.released + count) & MASK64
        store64(self.layout.control + abi.RING_HEAD_AT, self.released)
        return True
