"""Where everything stands in what an adapter shows to adapters on the same host (docs/same-host.md).

Two files of fixed, sealed size.  The *directory* is one per adapter: its owner alone writes it, its
neighbours map it read-only.  The *lane* is one per neighbour, which writes it; the owner reads it.

=========  =================================================================================================
directory  ``+0`` magic, ``+8`` gate (1: registered memory may be touched), then the two tables
region     ``+0`` key and bit 32 (0: empty), ``+8`` va, ``+16`` length, ``+24`` access (bits 0–31) and
           domain (32–63), ``+32`` arena, ``+40`` place of its first byte in the arena
queue      ``+0`` number and bit 32, ``+8`` and ``+16`` the GID that its peer has (big-endian halves),
pair       ``+24`` the peer's queue pair, ``+32`` operations that it takes (bits 0–31) and domain (32–63)
lane       ``+0`` turn: odd while the neighbour is inside, ``+64`` 1 while the owner sleeps; from
           `LANE_HEADER_BYTES` on a ring of packets to the owner (runtime/same_host_ring.py)
=========  =================================================================================================

An entry is found by its hash, in the first of `PROBES` places that holds it.  Every word is 64 bits in
native order.  A word 0 of an entry is written last when it is made and first when it is withdrawn.
"""

import errno
import fcntl
import mmap
import os

MAGIC = 0x736F667468636131
GATE = 8
HEADER_BYTES = 4096
ENTRY_BYTES = 64
PROBES = 8
REGIONS = 1 << 16
QUEUE_PAIRS = 1 << 16
LANE_HEADER_BYTES = 4096
ASLEEP = 64
RING_ENTRIES = 1024
RING_STORE_BYTES = 2 << 20
RING_PAGES = 1 + RING_ENTRIES * 8 // 4096 + RING_STORE_BYTES // 4096
"""Control block, references, store: what `queues.ring.plan` says."""

LANE_BYTES = LANE_HEADER_BYTES + RING_PAGES * 4096
VALID_ENTRY = 1 << 32
FOREIGN_ARENA = 0xFFFFFFFF
"""The arena of memory that its owner has not shared: the place is an address of the owning process."""

REGIONS_AT = HEADER_BYTES
QUEUE_PAIRS_AT = REGIONS_AT + REGIONS * ENTRY_BYTES
DIRECTORY_BYTES = QUEUE_PAIRS_AT + QUEUE_PAIRS * ENTRY_BYTES

SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL


def first_place(number: int) -> int:
    """Where the search for a key or queue pair number begins: 16 bits, multiplied to spread neighbours."""
    return (number * 0x9E3779B1 & 0xFFFFFFFF) >> 16


def make_sealed(name: str, size_bytes: int) -> int:
    """A memfd whose size nobody can change any more; the descriptor is the caller's.  OSError."""
    fd = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        os.ftruncate(fd, size_bytes)
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, SEALS)
    except BaseException:
        os.close(fd)
        raise
    return fd


def map_sealed(fd: int, size_bytes: int, writable: bool) -> mmap.mmap:
    """Map a descriptor that somebody passed.  OSError EINVAL unless it has this size and keeps it."""
    seals = fcntl.fcntl(fd, fcntl.F_GET_SEALS)
    wanted = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW
    if seals & wanted != wanted or os.fstat(fd).st_size != size_bytes:
        raise OSError(errno.EINVAL, "the descriptor is no sealed memory of the size that was said")
    rights = mmap.PROT_READ | mmap.PROT_WRITE if writable else mmap.PROT_READ
    return mmap.mmap(fd, size_bytes, mmap.MAP_SHARED, rights)
