"""What both ends of a mailbox agree on."""

from __future__ import annotations

from dataclasses import dataclass

from softhca.mailbox.blocks import (
    CREDIT,
    DATA,
    HEADER_BYTES,
    MAX_INDICATOR_BYTES,
    SKIP,
    Opener,
    Sealer,
)
from softhca.mailbox.errors import TermsError
from softhca.mailbox.hashes import Digest, find_algorithm

MODES = ("write", "read")
MAX_SLOTS = 1 << 16
MIN_SLOT_BYTES, MAX_SLOT_BYTES = 48, 1 << 26
MAX_RING_BYTES = 1 << 30


@dataclass(frozen=True)
class Terms:
    """``slots`` of ``slot_bytes`` bytes a ring, both directions alike.

    ``algorithm`` is a name of `hashes.ALGORITHMS`.  ``largest_bytes`` of a message, 0: what fits one slot.
    ``fixed_bytes``: every message has that length (−1: any).  ``indicator`` stands between message and hash.
    ``mode``: ``write`` (the writer RDMA-WRITEs into the reader's memory) or ``read`` (the reader RDMA-READs
    the writer's).  TermsError when they contradict each other.
    """

    slots: int = 64
    slot_bytes: int = 128
    algorithm: str = "xxh3-128"
    largest_bytes: int = 0
    fixed_bytes: int = -1
    indicator: bytes = b""
    mode: str = "write"

    def __post_init__(self) -> None:
        digest_bytes = find_algorithm(self.algorithm).digest_bytes
        if not 2 <= self.slots <= MAX_SLOTS:
            raise TermsError(f"{self.slots} slots: a ring has 2 to {MAX_SLOTS}")
        if self.slot_bytes % 8 or not MIN_SLOT_BYTES <= self.slot_bytes <= MAX_SLOT_BYTES:
            raise TermsError(
                f"{self.slot_bytes} bytes a slot: {MIN_SLOT_BYTES} to {MAX_SLOT_BYTES}, a multiple of 8"
            )
        if self.ring_bytes > MAX_RING_BYTES:
            raise TermsError(f"a ring of {self.ring_bytes} bytes; at most {MAX_RING_BYTES}")
        if len(self.indicator) > MAX_INDICATOR_BYTES:
            raise TermsError(f"the indicator has at most {MAX_INDICATOR_BYTES} bytes")
        if self.mode not in MODES:
            raise TermsError(f"mode {self.mode!r}: one of {', '.join(MODES)}")
        room = self.slot_bytes - HEADER_BYTES - len(self.indicator) - digest_bytes
        if room < 0:
            raise TermsError(f"a slot of {self.slot_bytes} bytes has no room for header and hash")
        if self.largest_bytes == 0:
            object.__setattr__(self, "largest_bytes", room)
        if self.largest_bytes < 0 or self.span > self.slots:
            raise TermsError(f"messages of {self.largest_bytes} bytes do not fit the ring")
        if self.mode == "read" and self.span > 1:
            raise TermsError("in mode 'read' a message must fit one slot")
        if not -1 <= self.fixed_bytes <= self.largest_bytes:
            raise TermsError(f"messages of {self.fixed_bytes} bytes are beyond {self.largest_bytes}")

    @property
    def ring_bytes(self) -> int:
        """Memory of one ring."""
        return self.slots * self.slot_bytes

    @property
    def digest_bytes(self) -> int:
        """Bytes of a hash."""
        return find_algorithm(self.algorithm).digest_bytes

    @property
    def span(self) -> int:
        """Slots of the largest message."""
        return -(-self.block_bytes(self.largest_bytes) // self.slot_bytes)

    @property
    def credit_bytes(self) -> int:
        """Bytes of a credit, which has neither message nor indicator."""
        return HEADER_BYTES + self.digest_bytes

    def block_bytes(self, length_bytes: int) -> int:
        """Bytes of the block of a message of that length."""
        return HEADER_BYTES + length_bytes + len(self.indicator) + self.digest_bytes

    def digest(self, nonce: bytes, key: bytes = b"") -> Digest:
        """The hash of the ring with that nonce."""
        return find_algorithm(self.algorithm).for_ring(nonce, key)

    def sealer(self, digest: Digest) -> Sealer:
        """Makes blocks of a ring."""
        number = find_algorithm(self.algorithm).number
        return Sealer(number, digest, self.digest_bytes, self.indicator, self.largest_bytes)

    def opener(self, digest: Digest) -> Opener:
        """Judges blocks of a ring."""
        return self._opener(digest, self.indicator, self.largest_bytes, self.fixed_bytes, DATA, SKIP)

    def credit_sealer(self, digest: Digest) -> Sealer:
        """Makes credits of a ring."""
        return Sealer(find_algorithm(self.algorithm).number, digest, self.digest_bytes, b"", 0)

    def credit_opener(self, digest: Digest) -> Opener:
        """Judges credits of a ring."""
        return self._opener(digest, b"", 0, -1, CREDIT, CREDIT)

    def _opener(
        self, digest: Digest, indicator: bytes, largest_bytes: int, fixed_bytes: int, first: int, last: int
    ) -> Opener:
        found = find_algorithm(self.algorithm)
        return Opener(
            found.number, digest, found.digest_bytes, indicator, largest_bytes, fixed_bytes, first, last,
            found.keyed,
        )  # fmt: skip
