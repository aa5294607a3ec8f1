"""The peer's side of memory that is shared on one host: looking grants up, and claiming what is written to.

Nothing read here is believed: a place outside of what is mapped is no place.  What a search finds holds until
`leave`, unless the owner withdraws something meanwhile: it waits for a while, then it revokes what is claimed
here (`shared_directory.py`).  So a place to be written to is claimed first, and only then it is checked
whether anything was withdrawn; and who has copied asks `unchanged_for` before it believes so.
"""

from __future__ import annotations

from collections.abc import Callable

import cython

from softhca.machine.primitives import atomic_add64, atomic_cas64, load64, store64
from softhca.memory import bits
from softhca.memory.regions import REMOTE_READ
from softhca.memory.shared_layout import (
    ASLEEP,
    CHANGES,
    CLAIM,
    CLAIM_ARENA_SHIFT,
    CLAIM_PAGE_SHIFT,
    ENTRY_BYTES,
    FOREIGN_ARENA,
    FOREIGN_CLAIM,
    GATE,
    PROBES,
    QUEUE_PAIRS,
    QUEUE_PAIRS_AT,
    REGIONS,
    REGIONS_AT,
    REVOKED,
    TARGET,
    TARGET_LENGTH,
    TARGET_THREAD,
    VALID_ENTRY,
    WAKE_REQUEST,
)

MAX_ARENAS = 64

_MASK64 = cython.declare(cython.ulonglong, 0xFFFFFFFFFFFFFFFF)
_GATE = cython.declare(cython.uint, GATE)
_CHANGES = cython.declare(cython.uint, CHANGES)
_CLAIM = cython.declare(cython.uint, CLAIM)
_ARENA_SHIFT = cython.declare(cython.int, CLAIM_ARENA_SHIFT)
_PAGE_SHIFT = cython.declare(cython.int, CLAIM_PAGE_SHIFT)
_FOREIGN_CLAIM = cython.declare(cython.ulonglong, FOREIGN_CLAIM)
_REVOKED = cython.declare(cython.uint, REVOKED)
_TARGET = cython.declare(cython.uint, TARGET)
_TARGET_LENGTH = cython.declare(cython.uint, TARGET_LENGTH)
_TARGET_THREAD = cython.declare(cython.uint, TARGET_THREAD)
_READ = cython.declare(cython.uint, REMOTE_READ)
_ENTRY = cython.declare(cython.uint, ENTRY_BYTES)
_PROBES = cython.declare(cython.uint, PROBES)
_REGIONS_MASK = cython.declare(cython.uint, REGIONS - 1)
_REGIONS_AT = cython.declare(cython.ulonglong, REGIONS_AT)
_QUEUE_PAIRS_MASK = cython.declare(cython.uint, QUEUE_PAIRS - 1)
_QUEUE_PAIRS_AT = cython.declare(cython.ulonglong, QUEUE_PAIRS_AT)
_VALID = cython.declare(cython.ulonglong, VALID_ENTRY)
_SPREAD = cython.declare(cython.ulonglong, 0x9E3779B1)
_WORD = cython.declare(cython.ulonglong, 0xFFFFFFFF)
_FOREIGN = cython.declare(cython.ulonglong, FOREIGN_ARENA)
_ASLEEP = cython.declare(cython.uint, ASLEEP)
_WAKE_REQUEST = cython.declare(cython.uint, WAKE_REQUEST)


class SharedPath:
    """The way to the memory of the peer that has ``gid``, for the adapter that has ``own_gid``.
    ``alive``: there is one now.  One thread at a time.

    ``pid`` is the peer's process where its own memory can be reached by that, 0 where the peer is
    this process, −1 where it cannot.  ``foreign``: the place found last is an address of that process.
    ``fenced``: the peer has no barrier that reaches this process, so each claim is one itself.
    """

    arenas: dict[int, tuple[int, int]]
    is_there: Callable[[], bool]
    thread: Callable[[], int]
    wake: Callable[[], object]

    def __init__(self, gid: bytes, own_gid: bytes) -> None:
        self.gid = gid
        self.gid_high = int.from_bytes(own_gid[:8], "big")
        self.gid_low = int.from_bytes(own_gid[8:], "big")
        self.arenas = {}
        self.alive = False
        self.foreign = False
        self.pid = -1
        self.is_there = self.thread = self.wake = None
        self.fenced = False
        self.directory = self.reader = self.epoch = self.changes = 0
        self.last_arena = FOREIGN_ARENA
        self.last_base = self.last_size = 0
        self.known_epoch = 0
        self.known_key = 0
        self.known_va = self.known_length = self.known_rights = self.known_arena = self.known_place = 0

    def open(
        self, directory: int, reader: int, pid: int, is_there: Callable[[], bool], fenced: bool = True,
        thread: Callable[[], int] | None = None, wake: Callable[[], object] | None = None,
    ) -> None:
        """The peer's directory and this side's reader are mapped at these addresses; ``is_there`` asks
        whether its process still is, ``thread`` for the calling thread's number, ``wake`` wakes the peer."""
        self.fenced = fenced
        self.thread = thread
        self.wake = wake
        self.directory = directory
        self.reader = reader
        self.epoch = load64(reader)
        self.known_epoch = 0
        self.pid = pid
        self.is_there = is_there
        self.alive = True

    def close(self) -> None:
        """The peer has gone, or its mappings go."""
        self.alive = False
        self.arenas = {}
        self.last_arena = _FOREIGN
        self.is_there = self.thread = self.wake = None
        self.directory = self.reader = 0

    def enter(self) -> bool:
        """Begin to look; False where memory must not be touched now (and nothing has begun)."""
        if not self.alive:
            return False
        self.epoch = (self.epoch + 1) & _MASK64
        store64(self.reader + _CLAIM, 0)
        atomic_add64(self.reader, 1)  # a full barrier: the owner sees this one inside, or has withdrawn
        self.changes = load64(self.directory + _CHANGES)
        if load64(self.directory + _GATE) == 1:
            return True
        self.leave()
        return False

    def leave(self) -> None:
        """What was found does not hold any more."""
        self.epoch = (self.epoch + 1) & _MASK64
        store64(self.reader, self.epoch)

    def wake_peer(self) -> None:
        """Have the peer's program look at its memory: a thread that sleeps is woken, one that is about to
        does not, once."""
        if self.alive and self.wake is not None:
            store64(self.reader + _WAKE_REQUEST, 1)
            # a full barrier: either the peer sees the request, or this side sees that it sleeps
            if atomic_cas64(self.reader + _ASLEEP, 1, 0):
                self.wake()

    def queue_pair(self, number: int, own: int) -> int:
        """What the peer's queue pair ``number`` takes from ``own``: rights, from bit 16 its
        P_Key and from bit 32 its domain; 0 for nothing.
        """
        probe: cython.uint
        entry: cython.ulonglong
        wanted: cython.ulonglong = number | _VALID
        place: cython.uint = (number * _SPREAD & _WORD) >> 16
        for probe in range(_PROBES):
            entry = self.directory + _QUEUE_PAIRS_AT + ((place + probe) & _QUEUE_PAIRS_MASK) * _ENTRY
            if load64(entry) == wanted:
                if (
                    load64(entry + 8) == self.gid_high
                    and load64(entry + 16) == self.gid_low
                    and load64(entry + 24) == own
                ):
                    return load64(entry + 32)
                return 0
        return 0

    def place(self, key: int, pd: int, va: int, n: int, access: int) -> int:
        """Address of ``n`` bytes at ``va`` if ``key`` gives domain ``pd`` the rights ``access``; 0 for none.

        The address is this process's, or with ``foreign`` that of process ``pid``.  Nothing may be written
        there before a `claim`.
        """
        offset: cython.ulonglong
        if (self.known_epoch != self.epoch or self.known_key != key) and not self.look_up(key):
            return 0
        offset = (va - self.known_va) & _MASK64
        if self.known_rights >> 32 != pd or self.known_rights & access != access:
            return 0
        if offset > self.known_length or n > self.known_length - offset:
            return 0
        return self.locate(self.known_arena, self.known_place, offset, n)

    def claim(self, address: int, n: int) -> bool:
        """Say that ``n`` bytes are about to be written, at most 1 MiB, at an address inside of what `place`
        has found last.  False: the owner has withdrawn something since `enter`, so nothing may be written.
        """
        word: cython.ulonglong = _FOREIGN_CLAIM
        first: cython.ulonglong
        if self.known_arena != _FOREIGN:
            first = (address - self.last_base) >> bits.PAGE_SHIFT
            word = ((address + n - 1 - self.last_base) >> bits.PAGE_SHIFT) - first + 1
            word |= self.known_arena << _ARENA_SHIFT | first << _PAGE_SHIFT
        store64(self.reader + _CLAIM, word)
        if self.fenced:
            atomic_add64(self.reader + _CLAIM, 0)
        # The store is seen before this load is done: by a full barrier just now, or by one that the owner
        # has every processor pass before it reads claims.
        return load64(self.directory + _CHANGES) == self.changes

    def aim(self, address: int, n: int) -> int:
        """Describe ``n`` bytes of the peer's own memory in the reader, to be claimed and written then; the
        address of the description, whose length the owner makes 0 when it withdraws them."""
        store64(self.reader + _TARGET, address)
        store64(self.reader + _TARGET_LENGTH, n)
        store64(self.reader + _TARGET_THREAD, self.thread())
        return self.reader + _TARGET

    def unchanged(self) -> bool:
        """Whether the owner has withdrawn nothing since `enter`."""
        return load64(self.directory + _CHANGES) == self.changes

    def unchanged_for(self, access: int) -> bool:
        """Asked behind a copy for which `place` was asked ``access``: whether it counts.  What was read could
        have been another region's since the owner has withdrawn something; what was written is lost where
        the owner has revoked the claim."""
        if access == _READ:
            return load64(self.directory + _CHANGES) == self.changes
        if self.fenced:  # as in `claim`: what was written is seen before this load is done
            atomic_add64(self.reader + _CLAIM, 0)
        return load64(self.reader + _REVOKED) != self.epoch

    def look_up(self, key: int) -> bool:
        """Read the entry of ``key``; False where there is none.  Inside the reader it is known until `leave`:
        whoever withdraws it meanwhile waits for that, so what was found holds as long.
        """
        probe: cython.uint
        entry: cython.ulonglong
        wanted: cython.ulonglong = key | _VALID
        first: cython.uint = (key * _SPREAD & _WORD) >> 16
        self.known_epoch = 0
        for probe in range(_PROBES):
            entry = self.directory + _REGIONS_AT + ((first + probe) & _REGIONS_MASK) * _ENTRY
            if load64(entry) == wanted:
                self.known_va = load64(entry + 8)
                self.known_length = load64(entry + 16)
                self.known_rights = load64(entry + 24)
                self.known_arena = load64(entry + 32)
                self.known_place = load64(entry + 40)
                self.known_key = key
                if self.epoch & 1:
                    self.known_epoch = self.epoch
                return True
        return False

    def locate(self, arena: int, begin: int, offset: int, n: int) -> int:
        """Address of ``n`` bytes ``offset`` behind ``begin`` of an arena; 0 where they are not mapped."""
        base: cython.ulonglong
        size: cython.ulonglong
        self.foreign = arena == _FOREIGN
        if self.foreign:
            if self.pid < 0 or begin + offset < begin or begin + offset + n < begin:
                return 0
            self.foreign = self.pid != 0
            return begin + offset
        if arena != self.last_arena:
            found = self.arenas.get(arena)
            if found is None:
                return 0
            self.last_base, self.last_size = found
            self.last_arena = arena
        base = self.last_base
        size = self.last_size
        if begin > size or offset > size - begin or n > size - begin - offset:
            return 0
        return base + begin + offset

    def set_arena(self, number: int, base: int, size: int) -> None:
        """The peer's arena ``number`` is mapped at ``base``; 0: it is not any more."""
        arenas = dict(self.arenas)
        arenas.pop(number, None)
        if base:
            arenas[number] = (base, size)
        self.arenas = arenas
        self.last_arena = _FOREIGN
