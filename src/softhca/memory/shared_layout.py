"""Where everything stands in what an adapter shows to adapters on the same host (docs/same-host.md).

Two files of fixed, sealed size.  The *directory* is one per adapter: sealed, so that its owner alone writes
it; its peers map it read-only.  A *reader* is one per peer, which writes it; the owner reads it.

=========  =================================================================================================
directory  ``+0`` magic, ``+8`` gate (1: registered memory may be touched), ``+16`` how often something was
           withdrawn, then the two tables
region     ``+0`` key and bit 32 (0: empty), ``+8`` va, ``+16`` length, ``+24`` access (bits 0–31) and
           domain (32–63), ``+32`` arena, ``+40`` place of its first byte in the arena
queue      ``+0`` number and bit 32, ``+8`` and ``+16`` the GID that its peer has (big-endian halves),
pair       ``+24`` the peer's queue pair, ``+32`` operations that it takes (bits 0–31) and domain (32–63)
reader     ``+0`` epoch: odd while the peer is inside, ``+8`` its claim: what it writes to meanwhile;
           ``+64`` 1 while the owner sleeps, ``+72`` 1: it is to look at its memory before it does;
           ``+128`` the epoch whose claim the owner has revoked (written
           by the owner), ``+136`` 1: the ring is closed (by either); ``+192`` address, ``+200`` length of
           what the peer writes to in the owner's own memory (a ``struct iovec``; the owner revokes it
           by a length of 0), ``+208`` the thread that does; from `READER_HEADER_BYTES` on a ring of
           packets to the owner (runtime/same_host_ring.py)
claim      bits 0–8 number of pages (0: nothing), 9–36 first page in the arena, 37–63 arena; for memory
           outside of the arenas all bits are 1
=========  =================================================================================================

An entry is found by its hash, in the first of `PROBES` places that holds it.  Every word is 64 bits in
native order.  A word 0 of an entry is written last when it is made and first when it is withdrawn.
"""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
from typing import NamedTuple

from softhca.memory.bits import PAGE_BYTES
from softhca.memory.descriptors import has_ordinary_pages

MAGIC = 0x736F667468636131
GATE = 8
CHANGES = 16
HEADER_BYTES = PAGE_BYTES
ENTRY_BYTES = 64
PROBES = 8
REGIONS = 1 << 16
QUEUE_PAIRS = 1 << 16
READER_HEADER_BYTES = PAGE_BYTES
CLAIM = 8
ASLEEP = 64
WAKE_REQUEST = 72
REVOKED = 128
RING_CLOSED = 136
TARGET = 192
TARGET_LENGTH = 200
TARGET_THREAD = 208
RING_ENTRIES = 1024
RING_STORE_BYTES = 512 << 10
RING_PAGES = 1 + RING_ENTRIES * 8 // PAGE_BYTES + RING_STORE_BYTES // PAGE_BYTES
"""Control block, references, store: what `queues.ring.plan` says."""

READER_BYTES = READER_HEADER_BYTES + RING_PAGES * PAGE_BYTES
VALID_ENTRY = 1 << 32
FOREIGN_ARENA = 0xFFFFFFFF
"""The arena of memory that its owner has not shared: the place is an address of the owning process."""

CLAIM_PAGE_SHIFT = 9
CLAIM_ARENA_SHIFT = 37
MAX_ARENA_NUMBER = (1 << 64 - CLAIM_ARENA_SHIFT) - 2
FOREIGN_CLAIM = (1 << 64) - 1

REGIONS_AT = HEADER_BYTES
QUEUE_PAIRS_AT = REGIONS_AT + REGIONS * ENTRY_BYTES
DIRECTORY_BYTES = QUEUE_PAIRS_AT + QUEUE_PAIRS * ENTRY_BYTES

FIXED_SIZE = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW
OWNER_WRITES = 0x10
"""F_SEAL_FUTURE_WRITE: nobody can write but through mappings that exist already."""


class Claim(NamedTuple):
    """Pages of an arena that a peer may be writing to; ``pages`` 0: none, ``foreign``: memory outside
    of the arenas."""

    arena: int
    first: int
    pages: int
    foreign: bool = False

    @classmethod
    def of(cls, word: int) -> Claim:
        """What a reader's claim word says."""
        if word == FOREIGN_CLAIM:
            return cls(FOREIGN_ARENA, 0, 1, True)
        pages = word & (1 << CLAIM_PAGE_SHIFT) - 1
        first = word >> CLAIM_PAGE_SHIFT & (1 << CLAIM_ARENA_SHIFT - CLAIM_PAGE_SHIFT) - 1
        return cls(word >> CLAIM_ARENA_SHIFT, first, pages)

    @classmethod
    def over(cls, arena: int, place: int, length: int) -> Claim:
        """The pages of ``length`` bytes at a place of an arena."""
        if arena == FOREIGN_ARENA:
            return cls(arena, 0, 1, True)
        first = place // PAGE_BYTES
        return cls(arena, first, (place + length - 1) // PAGE_BYTES - first + 1)

    def meets(self, other: Claim) -> bool:
        """Whether both have a page in common (of memory outside of the arenas: whether both are there)."""
        return (
            self.arena == other.arena
            and self.first < other.first + other.pages
            and other.first < self.first + self.pages
        )


def first_place(number: int) -> int:
    """Where the search for a key or queue pair number begins: 16 bits, multiplied to spread them."""
    return (number * 0x9E3779B1 & 0xFFFFFFFF) >> 16


def make_sealed(name: str, size_bytes: int) -> int:
    """A memfd whose size nobody can change any more; the descriptor is the caller's.  OSError."""
    fd = _make(name, size_bytes)
    try:
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SEAL)
    except BaseException:
        os.close(fd)
        raise
    return fd


def make_owned(name: str, size_bytes: int) -> tuple[int, mmap.mmap]:
    """As `make_sealed`, and its one mapping that can be written through.  OSError."""
    fd = _make(name, size_bytes)
    try:
        mapping = mmap.mmap(fd, size_bytes)
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, OWNER_WRITES | fcntl.F_SEAL_SEAL)
    except BaseException:
        os.close(fd)
        raise
    return fd, mapping


def _make(name: str, size_bytes: int) -> int:
    fd = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        os.ftruncate(fd, size_bytes)
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, FIXED_SIZE)
    except BaseException:
        os.close(fd)
        raise
    return fd


def map_sealed(fd: int, size_bytes: int, writable: bool) -> mmap.mmap:
    """Map a descriptor that somebody passed.  OSError EINVAL unless it has this size and keeps it, and, where
    it is mapped to be read only, unless its owner alone can write it.

    What is ``writable`` may be written by everybody who was given it.  Core files leave the mapping out: they
    are this process's.
    """
    seals = fcntl.fcntl(fd, fcntl.F_GET_SEALS)
    wanted = FIXED_SIZE if writable else FIXED_SIZE | OWNER_WRITES
    if seals & wanted != wanted or os.fstat(fd).st_size != size_bytes or not has_ordinary_pages(fd):
        raise OSError(errno.EINVAL, "the descriptor is no sealed memory of the size that was said")
    rights = mmap.PROT_READ | mmap.PROT_WRITE if writable else mmap.PROT_READ
    mapping = mmap.mmap(fd, size_bytes, mmap.MAP_SHARED, rights)
    mapping.madvise(mmap.MADV_DONTDUMP)
    return mapping
