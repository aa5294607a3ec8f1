"""Where everything stands in the memfd of a pageable memory: header, page table, page frames.

All words are 64 bits of the machine's own byte order, since a memfd never leaves its machine.  Who maps one
that somebody else made believes nothing in it: its geometry is taken once, when it is attached, and must fit
the size of the file, which is sealed; what is read afterwards is checked each time.

The rights word (``RIGHTS``): access bits 0–7, generation 8–62 (how often rights have changed), valid 63.
An I/O word: operations under way 0–31, how often the line was taken 32–47, attached 62, quiesced 63.
An entry of the page table is one of `bits`: frame and valid.
"""

import errno
from typing import NamedTuple

from softhca.memory.bits import ENTRY_BYTES, PAGE_BYTES

MAGIC = int.from_bytes(b"paged\x00\x00\x01", "big")
VALID = 1 << 63
GENERATION_SHIFT = 8
ACCESS_BITS = 0xFF
MAX_PAGES = 1 << 31

LENGTH = 8
PAGES = 16
RIGHTS = 24
FAULTS = 32
"""How often an attachment has asked for pages that are not there; the owner may sleep at its lower half."""

LINES = 64
LINE_BYTES = 64
ATTACHMENTS = 32
QUIESCED = 1 << 63
ATTACHED = 1 << 62
COUNT_BITS = 0xFFFF_FFFF
TAKEN_SHIFT = 32
TAKEN_BITS = 0xFFFF

# In an attachment's line, behind the I/O word: who holds it (written before HOLDER_TAKEN, the number of the
# taking that it belongs to), and the pages that it waits for: the first + 1 (bits 0–31), how many (32–63).
PID = 8
STARTED = 16
NAMESPACE = 24
HOLDER_TAKEN = 32
WANTED = 40
WANTED_SHIFT = 32
WANTED_BITS = 0xFFFF_FFFF

TABLE = PAGE_BYTES


class Layout(NamedTuple):
    """The places of a memory of ``pages`` pages: ``frames`` page frames from offset ``frames_at`` on."""

    length: int
    pages: int
    frames: int
    frames_at: int
    size: int


def layout_of(length: int) -> Layout:
    """The layout for ``length`` bytes; OSError EINVAL for a length that cannot be."""
    pages = -(-length // PAGE_BYTES)
    if not 0 < pages <= MAX_PAGES:
        raise OSError(errno.EINVAL, f"length = {length}: no pageable memory can have so many bytes")
    frames_at = TABLE + -(-pages * ENTRY_BYTES // PAGE_BYTES) * PAGE_BYTES
    return Layout(length, pages, 2 * pages, frames_at, frames_at + 2 * pages * PAGE_BYTES)
