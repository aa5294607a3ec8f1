"""A sample of the torn-write campaign, and that the campaign itself can see."""

import itertools
import random

import pytest
import torn_campaign
from mailbox_rings import Ring
from torn_campaign import SEQUENCE, Range, campaign, chunked, randomly

from softhca.mailbox.blocks import DATA, TAKEN
from softhca.mailbox.hashes import Algorithm, Digest
from softhca.mailbox.terms import Terms


def test_no_torn_block_is_taken():
    found = campaign(whole=False, random_cases=3_000, seed=3)
    assert found["false_accepts"] == 0
    assert found["cases"] > 6_000
    assert found["without_hash"] > found["cases"] // 10


def test_every_cut_and_set_of_chunks_is_tried(monkeypatch):
    where = Range("xxh3-128")
    seen = []
    monkeypatch.setattr(where, "look", lambda content, new, sequence: seen.append(content))
    chunked(where, b"....", b"abcd", 3)
    assert sorted(set(seen)) == sorted({
        "".join(letter if new else "." for letter, new in zip("abcd", mask, strict=True)).encode()
        for mask in itertools.product((0, 1), repeat=4)
        if 0 < sum(mask) < 4 and sum(a != b for a, b in itertools.pairwise(mask)) <= 2
    })  # fmt: skip
    assert len(seen) == 3 * 6


@pytest.mark.parametrize("known_bytes", [0, 1])
def test_a_hash_that_proves_little_is_found_out(monkeypatch, known_bytes):
    """A hash over the header and so many bytes of the message: the campaign tells."""

    def prove(data, _):
        return bytes(data[: 16 + known_bytes])[-16:]

    weak = Algorithm("weak", 9, 16, False, lambda *_: Digest(prove, None))
    monkeypatch.setitem(torn_campaign.ALGORITHMS, "weak", weak)
    monkeypatch.setitem(__import__("mailbox_rings").KEYS, "weak", b"")
    where = Range("weak")
    randomly(where, 2_000, random.Random(1))
    assert where.false_accepts > 0


def test_every_landing_order_of_a_message_in_chunks():
    """Not by slots that hold what may be there, but landing chunk by chunk in every order, with a look after
    each: the message is taken when the last chunk is there, and not before.
    """
    terms = Terms(slots=2, slot_bytes=104)
    for order in itertools.permutations(range(5)):
        ring = Ring(terms)
        for lap in range(3):
            message = bytes([lap + 1]) * 64
            ring.outbox.put(DATA, (message,))
            ((offset, length),) = ring.outbox.ranges()
            edges = [0, 20, 40, 60, 80, length]
            for count, chunk in enumerate(order, 1):
                part = slice(offset + edges[chunk], offset + edges[chunk + 1])
                ring.target.view[part] = ring.source.view[part]
                found = ring.take()
                assert (found == message) is (count == 5), (order, lap, count)
            ring.credit()


def test_complete_blocks_are_counted_as_such():
    where = Range("xxh3-128")
    new = torn_campaign.block_of(where.terms, SEQUENCE, DATA, b"same")
    where.look(new, new, SEQUENCE)
    assert (where.complete, where.false_accepts, where.opener.verdicts[TAKEN]) == (1, 0, 1)
