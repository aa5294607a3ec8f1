"""What one end sends the other at set-up, as bytes that the application carries."""

from __future__ import annotations

import dataclasses
import struct
from dataclasses import dataclass

from softhca.mailbox.blocks import MAX_INDICATOR_BYTES
from softhca.mailbox.errors import OfferError, TermsError
from softhca.mailbox.hashes import ALGORITHMS, NONCE_BYTES
from softhca.mailbox.terms import MODES, Terms

MAGIC = b"HMBX"
VERSION = 1
GID_BYTES = 16
_FORM = struct.Struct(f"<4sHBBIIIiB{MAX_INDICATOR_BYTES}sIIH{GID_BYTES}sBQIQI{NONCE_BYTES}s")
OFFER_BYTES = _FORM.size
_NAMES = {algorithm.number: name for name, algorithm in ALGORITHMS.items()}
_QPN_BITS = 24
_MTU_CODES = range(1, 6)


@dataclass(frozen=True)
class Offer:
    """One end: its terms, queue pair and memory.

    ``ring_va``, ``ring_rkey``: the inbox, or in mode ``read`` the outbox; ``cell_va``, ``cell_rkey``: where
    it wants credit; ``nonce``: of the messages that it will take.
    """

    terms: Terms
    qpn: int
    psn: int
    lid: int
    gid: bytes
    mtu_code: int
    ring_va: int
    ring_rkey: int
    cell_va: int
    cell_rkey: int
    nonce: bytes

    def encode(self) -> bytes:
        """`OFFER_BYTES` bytes."""
        terms = self.terms
        number = ALGORITHMS[terms.algorithm].number
        return _FORM.pack(
            MAGIC, VERSION, number, MODES.index(terms.mode), terms.slots, terms.slot_bytes,
            terms.largest_bytes, terms.fixed_bytes, len(terms.indicator), terms.indicator,
            self.qpn, self.psn, self.lid, self.gid, self.mtu_code, self.ring_va, self.ring_rkey,
            self.cell_va, self.cell_rkey, self.nonce,
        )  # fmt: skip

    @classmethod
    def decode(cls, message: bytes) -> Offer:
        """The offer in ``message``; OfferError when it is none."""
        if len(message) != OFFER_BYTES:
            raise OfferError(f"an offer has {OFFER_BYTES} bytes, this has {len(message)}")
        (
            magic, version, number, mode, slots, slot_bytes, largest_bytes, fixed_bytes, indicator_bytes,
            indicator, qpn, psn, lid, gid, mtu_code, ring_va, ring_rkey, cell_va, cell_rkey, nonce,
        ) = _FORM.unpack(message)  # fmt: skip
        if magic != MAGIC:
            raise OfferError("these bytes are no offer of a mailbox")
        if version != VERSION:
            raise OfferError(f"the peer's offer has version {version}, this end knows {VERSION}")
        if number not in _NAMES:
            raise OfferError(f"the peer names the unknown hash {number}")
        if mode >= len(MODES) or indicator_bytes > MAX_INDICATOR_BYTES:
            raise OfferError(f"the peer's offer has mode {mode} and {indicator_bytes} bytes of indicator")
        if qpn >> _QPN_BITS or psn >> _QPN_BITS or mtu_code not in _MTU_CODES:
            raise OfferError(f"the peer's queue pair {qpn:#x}, PSN {psn:#x}, MTU {mtu_code} cannot be")
        try:
            terms = Terms(
                slots, slot_bytes, _NAMES[number], largest_bytes, fixed_bytes, indicator[:indicator_bytes],
                MODES[mode],
            )  # fmt: skip
        except TermsError as error:
            raise OfferError(f"the peer's terms cannot be: {error}") from None
        for name, va, length in (("ring", ring_va, terms.ring_bytes), ("cell", cell_va, terms.credit_bytes)):
            if va % 8 or va + length > 1 << 64:
                raise OfferError(f"the peer's {name} lies at {va:#x}")
        return cls(
            terms, qpn, psn, lid, gid, mtu_code, ring_va, ring_rkey, cell_va, cell_rkey, nonce
        )  # fmt: skip

    def require_same_terms(self, own: Terms) -> None:
        """OfferError that names the first difference between the peer's terms and ``own``."""
        for field in dataclasses.fields(Terms):
            theirs, ours = getattr(self.terms, field.name), getattr(own, field.name)
            if theirs != ours:
                raise OfferError(f"the peer's {field.name} is {theirs!r}, ours is {ours!r}")
