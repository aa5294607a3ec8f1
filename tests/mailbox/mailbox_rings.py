"""Rings in plain memory: a writer's copy, a reader's, and a test that carries bytes between them."""

from softhca.machine.primitives import address_of, copy
from softhca.mailbox.blocks import TAKEN
from softhca.mailbox.rings import Inbox, Outbox
from softhca.mailbox.terms import Terms

NONCE = bytes(range(1, 9))
KEY = b"sixteen bytes at least"
KEYS = {"xxh3-128": b"", "blake3": KEY, "blake2b": KEY}


class Memory:
    """Zeros at an aligned ``address``; ``view`` is the memory itself."""

    def __init__(self, length):
        self._buffer = bytearray(length + 8)
        start = -address_of(self._buffer) % 8
        self.address = address_of(self._buffer) + start
        self.view = memoryview(self._buffer)[start : start + length]


def digest_of(terms, nonce=NONCE):
    return terms.digest(nonce, KEYS[terms.algorithm])


def block_of(terms, sequence, kind, message, nonce=NONCE):
    """The bytes of one block."""
    sealer = terms.sealer(digest_of(terms, nonce))
    n = sealer.seal(sequence, kind, (message,))
    assert n == terms.block_bytes(len(message))
    held = Memory(n)

    copy(held.address, sealer.address, n)
    return bytes(held.view)


class Ring:
    """Both ends of one ring; `carry` moves what the writer wants moved, `credit` writes the credit."""

    def __init__(self, terms=None, nonce=NONCE):
        self.terms = terms = terms or Terms()
        digest = digest_of(terms, nonce)
        self.source, self.target = Memory(terms.ring_bytes), Memory(terms.ring_bytes)
        self.cell = Memory(terms.credit_bytes)
        self.opener = terms.opener(digest)
        self.sealer = terms.credit_sealer(digest)
        self.outbox = Outbox(
            terms.slots,
            terms.slot_bytes,
            terms.sealer(digest),
            self.source.address,
            self.cell.address,
            terms.credit_opener(digest),
        )
        self.inbox = Inbox(terms.slots, terms.slot_bytes, self.opener, self.target.address, self.sealer)

    def carry(self):
        ranges = self.outbox.ranges()
        for offset, length in ranges:
            self.target.view[offset : offset + length] = self.source.view[offset : offset + length]
        return ranges

    def credit(self):
        n = self.inbox.seal_credit()

        copy(self.cell.address, self.sealer.address, n)
        return self.outbox.take_credit()

    def slot(self, index):
        """The reader's slot ``index``."""
        size = self.terms.slot_bytes
        return self.target.view[index * size : (index + 1) * size]

    def take(self):
        """The next message, or the verdict that there is none."""

        verdict = self.inbox.poll()
        return self.opener.message if verdict == TAKEN else verdict
