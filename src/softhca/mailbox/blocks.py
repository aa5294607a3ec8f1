"""Blocks: a message and its hash, as they stand in a slot; sealing one, and opening one that arrives.

A block is sequence (8 bytes), length (4), algorithm, kind, format (2), the message, the indicator, and the
hash of all that; numbers are little-endian.  `Opener.open` reads a slot whose writer may be at work: it
copies the block once and judges the copy alone.
"""

from __future__ import annotations

from array import array
from hmac import compare_digest
from typing import TYPE_CHECKING, Any

import cython

from softhca.machine.primitives import (
    address_of,
    bytes_at,
    copy,
    length_of,
    load32,
    load64,
    store32,
    store64,
)

if TYPE_CHECKING:
    from softhca.mailbox.hashes import Digest

Parts = tuple[Any, ...]
"""Objects with the buffer protocol, of which a message is the concatenation."""

HEADER_BYTES = 16
DATA, REQUEST, OUTCOME, SKIP, CREDIT = 1, 2, 3, 4, 5
"""Kinds of blocks."""
FORMAT_VERSION = 1
MAX_INDICATOR_BYTES = 16
TAKEN, EMPTY, STALE, OVERRUN, LENGTH, ALGORITHM, FORMAT, TORN = 0, 1, 2, 3, 4, 5, 6, 7
"""What `Opener.open` found; all but TAKEN: no message, not yet or never."""
VERDICTS = 8

_SHORT = cython.declare(cython.Py_ssize_t, 2_048)
"""Up to so many bytes, a copy costs less than a memoryview."""
_HEADER = cython.declare(cython.Py_ssize_t, HEADER_BYTES)


class Sealer:
    """Makes blocks in a buffer of its own, at ``address``; ``room`` is the longest block in bytes,
    ``largest_bytes`` the longest message.

    ``digest`` is the hash of the ring; the parts of a message are objects with the buffer protocol.
    """

    def __init__(
        self, algorithm: int, digest: Digest, digest_bytes: int, indicator: bytes, largest_bytes: int
    ) -> None:
        self.room = HEADER_BYTES + largest_bytes + len(indicator) + digest_bytes
        self._buffer = bytearray(self.room + 8)
        self.address = address_of(self._buffer)
        self._view = memoryview(self._buffer)
        self._digest, self._argument = digest
        self._digest_bytes = digest_bytes
        self._indicator = indicator
        self._indicator_bytes = len(indicator)
        self.largest_bytes = largest_bytes
        self._mark = FORMAT_VERSION << 16 | algorithm

    def measure(self, parts: Parts) -> int:
        """Length in bytes of the block of a message that is the concatenation of ``parts``; −1: too long."""
        n: cython.Py_ssize_t = 0
        for part in parts:
            n += length_of(part)
        if n > self.largest_bytes:
            return -1
        return _HEADER + n + self._indicator_bytes + self._digest_bytes

    def seal(self, sequence: int, kind: int, parts: Parts) -> int:
        """Make the block of a message that is the concatenation of ``parts``; its length in bytes.

        −1: the message is longer than ``largest_bytes``, and nothing is made.  A part that changes meanwhile
        changes the message, which is hashed here.
        """
        n: cython.Py_ssize_t
        at: cython.Py_ssize_t = _HEADER
        for part in parts:
            n = length_of(part)
            if at + n > _HEADER + self.largest_bytes:
                return -1
            if n:
                copy(self.address + at, address_of(part, False), n)
            at += n
        store64(self.address, sequence)
        store32(self.address + 8, at - _HEADER)
        store32(self.address + 12, self._mark | kind << 8)
        if self._indicator_bytes:
            copy(self.address + at, address_of(self._indicator, False), self._indicator_bytes)
            at += self._indicator_bytes
        covered = bytes_at(self.address, at) if at <= _SHORT else self._view[:at]
        proof = self._digest(covered, self._argument)
        copy(self.address + at, address_of(proof, False), self._digest_bytes)
        return at + self._digest_bytes

    def block(self, length: int) -> bytes:
        """The first ``length`` bytes of the buffer."""
        return bytes_at(self.address, length)


class Opener:
    """Judges blocks; ``verdicts`` counts them by kind.

    Kinds are ``first_kind`` to ``last_kind``; a message has at most ``largest_bytes``, and one of kind DATA
    exactly ``fixed_bytes``, if that is not −1.
    ``room`` is the longest block in bytes.  After `open` has said TAKEN, ``kind``, ``message`` and
    ``block_bytes`` describe what was taken.
    """

    def __init__(
        self,
        algorithm: int,
        digest: Digest,
        digest_bytes: int,
        indicator: bytes,
        largest_bytes: int,
        fixed_bytes: int,
        first_kind: int,
        last_kind: int,
        keyed: bool,
    ) -> None:
        self.verdicts = array("Q", [0] * VERDICTS)
        self.room = HEADER_BYTES + largest_bytes + len(indicator) + digest_bytes
        self._digest, self._argument = digest
        self._digest_bytes = digest_bytes
        self._indicator_bytes = len(indicator)
        self._largest_bytes = largest_bytes
        self._fixed_bytes = fixed_bytes
        self._first_kind = first_kind
        self._last_kind = last_kind
        self._keyed = keyed
        self._mark = FORMAT_VERSION << 16 | algorithm
        self.kind = 0
        self.message = b""
        self.block_bytes = 0

    def open(self, address: int, room: int, sequence: int) -> int:
        """Look for block ``sequence`` in the slot at ``address`` (8-byte aligned, ``room`` bytes long)."""
        verdict: cython.int = self._open(address, room, sequence)
        self.verdicts[verdict] += 1
        return verdict

    def _open(self, address: int, room: int, sequence: int) -> int:
        length: cython.Py_ssize_t
        covered: cython.Py_ssize_t
        found: cython.ulonglong = load64(address)
        if found == 0:
            return EMPTY
        if found != sequence:
            return STALE if found < sequence else OVERRUN
        # A hint: how much to copy.  The copy's own fields are checked again.
        length = load32(address + 8)
        if length > self._largest_bytes:
            return LENGTH
        covered = _HEADER + length + self._indicator_bytes
        if covered + self._digest_bytes > room:
            return LENGTH
        return self._judge(bytes_at(address, covered + self._digest_bytes), sequence, length, covered)

    def _judge(self, block: bytes, sequence: int, length: int, covered: int) -> int:
        """The verdict on a private copy."""
        at: cython.ulonglong = address_of(block, False)
        mark: cython.uint = load32(at + 12)
        kind: cython.uint = mark >> 8 & 0xFF
        if load64(at) != sequence or load32(at + 8) != length:
            return TORN
        if mark & 0xFF != self._mark & 0xFF:
            return ALGORITHM
        if mark >> 16 != self._mark >> 16 or kind < self._first_kind or kind > self._last_kind:
            return FORMAT
        if self._fixed_bytes >= 0 and length != self._fixed_bytes and kind == DATA:
            return LENGTH
        proven = block[:covered] if covered <= _SHORT else memoryview(block)[:covered]
        proof = self._digest(proven, self._argument)
        # The time that a comparison takes may tell a forger how far he got; tearing learns nothing from it.
        if len(proof) != self._digest_bytes:
            return TORN
        if not (compare_digest(proof, block[covered:]) if self._keyed else block.endswith(proof)):
            return TORN
        self.kind = kind
        self.message = block[_HEADER : _HEADER + length]
        self.block_bytes = covered + self._digest_bytes
        return TAKEN
