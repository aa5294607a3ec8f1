"""The owner's side of what neighbours on one host may do without asking: grants, and their withdrawal.

An owner *grants* a region or a queue pair by an entry of the directory.  A neighbour that wants to touch
memory enters its lane (its turn becomes odd, with a full barrier), looks the entries up, copies, and leaves
(the turn becomes even).  To *withdraw*, the owner empties the entry, lets a full barrier pass and waits for
every lane whose turn was odd to change it.  One of the two must see the other: a neighbour that entered
before the barrier is waited for, one that enters later finds no entry.  So when a withdrawal returns nobody
is inside with what it withdrew, and a place is used again only then.
"""

from __future__ import annotations

import contextlib
import mmap
import os
from array import array
from collections.abc import Callable

from softhca.machine.primitives import address_of, atomic_add64, load64, store64
from softhca.memory.shared_layout import (
    DIRECTORY_BYTES,
    ENTRY_BYTES,
    GATE,
    LANE_BYTES,
    MAGIC,
    PROBES,
    QUEUE_PAIRS,
    QUEUE_PAIRS_AT,
    REGIONS,
    REGIONS_AT,
    VALID_ENTRY,
    first_place,
    make_sealed,
)


def _make(name: str, size_bytes: int) -> tuple[int, mmap.mmap]:
    """A sealed memfd and its mapping here.  OSError."""
    fd = make_sealed(name, size_bytes)
    try:
        return fd, mmap.mmap(fd, size_bytes)
    except BaseException:
        os.close(fd)
        raise


class Lane:
    """One neighbour's way in.  ``fd`` goes to it; ``is_alive`` tells whether it still runs (asked while it is
    waited for), ``pause`` lets others run meanwhile.
    """

    def __init__(self, is_alive: Callable[[], bool], pause: Callable[[], object]) -> None:
        self.fd, self._mapping = _make("softhca-lane", LANE_BYTES)
        self.address = address_of(self._mapping)
        self._is_alive = is_alive
        self._pause = pause

    def wait_out(self) -> None:
        """Return when the neighbour has been outside at least once since the call, or has ended."""
        turn = load64(self.address)
        if not turn & 1:
            return
        while load64(self.address) == turn and self._is_alive():
            self._pause()

    def close(self) -> None:
        """Let the descriptor go."""
        os.close(self.fd)
        with contextlib.suppress(BufferError):
            self._mapping.close()


class _Table:
    """Entries of one kind at ``address``, ``count`` of them (a power of two), by number."""

    def __init__(self, address: int, count: int) -> None:
        self._address = address
        self._count = count
        self._places: dict[int, int] = {}
        self._taken: set[int] = set()
        self._words: dict[int, tuple[int, ...]] = {}

    def words(self, number: int) -> tuple[int, ...] | None:
        """What the entry of ``number`` says; None where there is none."""
        return self._words.get(number)

    def put(self, number: int, words: tuple[int, ...]) -> bool:
        """Make the entry of ``number``, which has none; False where no place is free that is looked at."""
        first = first_place(number)
        for probe in range(PROBES):
            place = (first + probe) % self._count
            if place not in self._taken:
                break
        else:
            return False
        entry = self._address + place * ENTRY_BYTES
        for i, word in enumerate(words, 1):
            store64(entry + 8 * i, word)
        self._places[number], self._words[number] = place, words
        self._taken.add(place)
        store64(entry, number | VALID_ENTRY)
        return True

    def empty(self, number: int) -> int:
        """Take the entry of ``number`` away from who looks; its place, −1 where there is none."""
        place = self._places.pop(number, -1)
        if place >= 0:
            del self._words[number]
            store64(self._address + place * ENTRY_BYTES, 0)
        return place

    def give_back(self, place: int) -> None:
        """The place of an emptied entry may be used again: nobody looks at it any more."""
        self._taken.discard(place)


class Directory:
    """What one adapter grants, and the lanes of those that may look.  One thread at a time."""

    def __init__(self) -> None:
        self.fd, self._mapping = _make("softhca-directory", DIRECTORY_BYTES)
        self.address = address_of(self._mapping)
        self._regions = _Table(self.address + REGIONS_AT, REGIONS)
        self._queue_pairs = _Table(self.address + QUEUE_PAIRS_AT, QUEUE_PAIRS)
        self._fence = array("Q", [0])
        self.lanes: set[Lane] = set()
        store64(self.address, MAGIC)
        store64(self.address + GATE, 1)

    def grant_region(
        self, key: int, va: int, length: int, access: int, pd: int, arena: int, place: int
    ) -> bool:
        """Let neighbours use a key that has no entry; False where there is no room for it."""
        return self._regions.put(key, (va, length, access | pd << 32, arena, place))

    def withdraw_region(self, key: int) -> None:
        """End what `grant_region` began; nobody is inside with it when this returns."""
        self._withdraw(self._regions, key)

    def grant_queue_pair(
        self, number: int, peer_gid: bytes, peer: int, operations: int, pkey: int, pd: int
    ) -> bool:
        """Let a neighbour that has ``peer_gid`` and ``peer`` carry ``operations`` (rights) out for a queue
        pair; what was granted before is withdrawn first.  False where there is no room for it.
        """
        high, low = int.from_bytes(peer_gid[:8], "big"), int.from_bytes(peer_gid[8:], "big")
        words = (high, low, peer, operations | pkey << 16 | pd << 32)
        if self._queue_pairs.words(number) == words:
            return True
        self._withdraw(self._queue_pairs, number)
        return self._queue_pairs.put(number, words)

    def withdraw_queue_pair(self, number: int) -> None:
        """End what `grant_queue_pair` began; nobody is inside for it when this returns."""
        self._withdraw(self._queue_pairs, number)

    def set_gate(self, open: bool) -> None:
        """Let neighbours touch registered memory, or not; closed, none is inside when this returns."""
        store64(self.address + GATE, int(open))
        if not open:
            self.quiesce()

    def quiesce(self) -> None:
        """Wait for every neighbour that is inside now."""
        atomic_add64(address_of(self._fence), 1)  # a full barrier
        for lane in self.lanes:
            lane.wait_out()

    def _withdraw(self, table: _Table, number: int) -> None:
        place = table.empty(number)
        if place >= 0:
            self.quiesce()
            table.give_back(place)

    def close(self) -> None:
        """Close the gate and let the descriptors go."""
        self.set_gate(False)
        for lane in self.lanes:
            lane.close()
        self.lanes.clear()
        os.close(self.fd)
        with contextlib.suppress(BufferError):
            self._mapping.close()
