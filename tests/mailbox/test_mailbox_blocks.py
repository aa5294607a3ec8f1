"""Blocks: what verifies is what was sealed, for this ring, at this place, and nothing else."""

import hashlib
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mailbox_rings import KEYS, NONCE, Memory, block_of, digest_of

from softhca.machine.primitives import BODY, copy
from softhca.mailbox import blocks
from softhca.mailbox.blocks import (
    ALGORITHM,
    CREDIT,
    DATA,
    EMPTY,
    FORMAT,
    HEADER_BYTES,
    LENGTH,
    OUTCOME,
    OVERRUN,
    REQUEST,
    SKIP,
    STALE,
    TAKEN,
    TORN,
)
from softhca.mailbox.hashes import ALGORITHMS, Digest
from softhca.mailbox.terms import Terms
from suite_plan import random_inputs

MESSAGE = bytes(range(40))
every_hash = pytest.mark.parametrize("algorithm", ALGORITHMS)


def judged(terms, content, sequence=5, nonce=NONCE, room=None):
    """The verdict on a slot with that content, and the opener."""
    memory = Memory(terms.slot_bytes)
    memory.view[: len(content)] = content
    opener = terms.opener(digest_of(terms, nonce))
    verdict = opener.open(memory.address, room or terms.slot_bytes, sequence)
    return verdict, opener


@every_hash
@pytest.mark.parametrize("length", [0, 1, 40, 64])
def test_what_was_sealed_is_taken(algorithm, length):
    terms = Terms(algorithm=algorithm, slot_bytes=256)
    message = bytes(range(length))
    verdict, opener = judged(terms, block_of(terms, 5, DATA, message))
    assert (verdict, opener.kind, opener.message) == (TAKEN, DATA, message)
    assert opener.block_bytes == terms.block_bytes(length)
    assert opener.verdicts[TAKEN] == 1


@every_hash
@pytest.mark.parametrize("sequence", [0, 1, 2**64 - 1])
def test_a_slot_of_zeros_never_verifies(algorithm, sequence):
    verdict, _ = judged(Terms(algorithm=algorithm), b"", sequence)
    assert verdict == EMPTY


@every_hash
def test_every_flipped_bit_is_seen(algorithm):
    terms = Terms(algorithm=algorithm, indicator=b"<>")
    block = block_of(terms, 5, DATA, MESSAGE)
    for bit in range(len(block) * 8):
        changed = bytearray(block)
        changed[bit // 8] ^= 1 << bit % 8
        assert judged(terms, changed)[0] != TAKEN, bit


@every_hash
def test_every_truncation_is_seen(algorithm):
    """What has landed so far, on zeros and on ones."""
    terms = Terms(algorithm=algorithm)
    block = block_of(terms, 5, DATA, MESSAGE)
    for end in range(len(block)):
        assert judged(terms, block[:end])[0] != TAKEN
        assert judged(terms, block[:end] + b"\xff" * (len(block) - end))[0] != TAKEN


def test_older_and_newer_blocks_are_told_apart():
    terms = Terms()
    assert judged(terms, block_of(terms, 5, DATA, MESSAGE), sequence=69)[0] == STALE
    assert judged(terms, block_of(terms, 69, DATA, MESSAGE), sequence=5)[0] == OVERRUN
    assert judged(terms, block_of(terms, 4, DATA, MESSAGE), sequence=5)[0] == STALE
    assert judged(terms, block_of(terms, 6, DATA, MESSAGE), sequence=5)[0] == OVERRUN


@pytest.mark.skipif(BODY == "compiled", reason="compiled, the copy is no name that a test could replace")
@pytest.mark.parametrize("other", [(69, MESSAGE), (5, MESSAGE[:-1]), (5, MESSAGE + b"x")], ids=str)
def test_a_block_that_is_replaced_before_it_is_copied_is_not_this_one(monkeypatch, other):
    """The writer is a lap further, or writes anew, between the look at the front and the copy."""
    terms = Terms(slot_bytes=256)
    sequence, message = other
    block = block_of(terms, 5, DATA, MESSAGE)
    late = block_of(terms, sequence, DATA, message).ljust(256, b"\0")
    monkeypatch.setattr(blocks, "bytes_at", lambda address, n: late[:n])
    assert judged(terms, block)[0] == TORN


@pytest.mark.parametrize("proof", [b"", b"0", bytes(17)])
def test_a_hash_of_another_length_proves_nothing(proof):
    """Of a hash that somebody registers, say: an empty one is the end of every block."""
    terms = Terms()
    memory = Memory(terms.slot_bytes)
    memory.view[: HEADER_BYTES + 16] = block_of(terms, 5, DATA, b"")[:HEADER_BYTES] + b"0" * 16
    opener = terms.opener((lambda covered, argument: proof, None))
    assert opener.open(memory.address, terms.slot_bytes, 5) == TORN


@every_hash
def test_the_sequence_number_is_under_the_hash(algorithm):
    """An old block that somebody gives the expected number is no message."""
    terms = Terms(algorithm=algorithm)
    block = bytearray(block_of(terms, 5, DATA, MESSAGE))
    struct.pack_into("<Q", block, 0, 69)
    assert judged(terms, block, sequence=69)[0] == TORN


@every_hash
def test_a_block_of_another_ring_does_not_verify(algorithm):
    terms = Terms(algorithm=algorithm)
    block = block_of(terms, 5, DATA, MESSAGE, nonce=bytes(8))
    assert judged(terms, block)[0] == TORN
    assert judged(terms, block, nonce=bytes(8))[0] == TAKEN


@pytest.mark.parametrize("algorithm", [name for name, each in ALGORITHMS.items() if each.keyed])
def test_without_the_key_nothing_verifies(algorithm):
    terms = Terms(algorithm=algorithm)
    forged = terms.sealer(terms.digest(NONCE, b"another key of some length"))
    n = forged.seal(5, DATA, (MESSAGE,))
    memory = Memory(n)

    copy(memory.address, forged.address, n)
    assert judged(terms, memory.view)[0] == TORN


@pytest.mark.parametrize("length", [89, 97, 128, 2**31, 2**32 - 1])
def test_a_length_beyond_the_slot_is_refused_before_it_is_used(length):
    terms = Terms()
    block = bytearray(block_of(terms, 5, DATA, MESSAGE))
    struct.pack_into("<I", block, 8, length)
    assert judged(terms, block)[0] == (TORN if length <= terms.largest_bytes else LENGTH)


def test_a_length_beyond_the_end_of_the_ring_is_refused():
    """The slot is the last one: what is agreed for several slots does not fit here."""
    terms = Terms(slot_bytes=64, slots=4, largest_bytes=100)
    block = block_of(terms, 5, DATA, bytes(100))
    memory = Memory(256)
    memory.view[: len(block)] = block
    opener = terms.opener(digest_of(terms))
    assert opener.open(memory.address, 64, 5) == LENGTH
    assert opener.open(memory.address, len(block) - 1, 5) == LENGTH
    assert opener.open(memory.address, len(block), 5) == TAKEN


def test_another_length_than_the_agreed_one_is_refused():
    terms = Terms(fixed_bytes=40)
    assert judged(terms, block_of(terms, 5, DATA, MESSAGE))[0] == TAKEN
    assert judged(terms, block_of(terms, 5, DATA, MESSAGE[1:]))[0] == LENGTH
    assert judged(terms, block_of(terms, 5, REQUEST, MESSAGE[1:]))[0] == TAKEN


def test_none_but_empty_messages_where_that_is_agreed():
    free, terms = Terms(slot_bytes=128), Terms(slot_bytes=128, fixed_bytes=0)
    assert judged(terms, block_of(free, 5, DATA, b""))[0] == TAKEN
    assert judged(terms, block_of(free, 5, DATA, b"x"))[0] == LENGTH


@pytest.mark.parametrize("number", [0, 2, 3, 255])
def test_another_algorithm_is_refused_before_anything_is_hashed(number):
    terms = Terms()
    block = bytearray(block_of(terms, 5, DATA, MESSAGE))
    block[12] = number
    memory = Memory(128)
    memory.view[: len(block)] = block

    def never(*_):
        raise AssertionError("hashed")

    assert terms.opener(Digest(never, None)).open(memory.address, 128, 5) == ALGORITHM


@pytest.mark.parametrize(("at", "value"), [(13, 0), (13, 5), (13, 255), (14, 0), (14, 2), (15, 1)])
def test_unknown_kinds_and_formats_are_refused(at, value):
    terms = Terms()
    block = bytearray(block_of(terms, 5, DATA, MESSAGE))
    block[at] = value
    assert judged(terms, block)[0] == FORMAT


@pytest.mark.parametrize("kind", [DATA, REQUEST, OUTCOME, SKIP])
def test_every_kind_of_a_ring_is_taken(kind):
    terms = Terms()
    verdict, opener = judged(terms, block_of(terms, 5, kind, MESSAGE))
    assert (verdict, opener.kind) == (TAKEN, kind)


def test_a_credit_is_no_message_and_a_message_no_credit():
    terms = Terms()
    digest = digest_of(terms)
    assert judged(terms, block_of(terms, 5, CREDIT, b""))[0] == FORMAT
    memory = Memory(terms.credit_bytes)
    memory.view[:] = block_of(terms, 5, DATA, b"")
    assert terms.credit_opener(digest).open(memory.address, terms.credit_bytes, 5) == FORMAT


def test_a_writer_at_work_is_copied_once():
    """The hash function itself is the hostile writer: what it changes meanwhile is not delivered."""
    terms = Terms()
    memory = Memory(128)
    memory.view[: terms.block_bytes(40)] = block_of(terms, 5, DATA, MESSAGE)
    digest = digest_of(terms)

    def rewrite(data, _):
        proof = digest(data)
        memory.view[16:56] = bytes(40)
        return proof

    opener = terms.opener(Digest(rewrite, None))
    assert opener.open(memory.address, 128, 5) == TAKEN
    assert opener.message == MESSAGE
    assert bytes(memory.view[16:56]) == bytes(40)


def test_layout_is_as_documented():
    """The bytes of one block, made here by hand."""
    terms = Terms(algorithm="blake2b", indicator=b"||")
    key = hashlib.blake2b(
        b"\3" + NONCE, key=KEYS["blake2b"], digest_size=32, person=b"softhca mailbox"
    ).digest()
    covered = struct.pack("<QIBBH", 5, 3, 3, 1, 1) + b"abc||"
    proof = hashlib.blake2b(covered, key=key, digest_size=32).digest()
    assert block_of(terms, 5, DATA, b"abc") == covered + proof


def test_default_hash_is_seeded_xxh3():
    import xxhash

    covered = struct.pack("<QIBBH", 5, 3, 1, 1, 1) + b"abc"
    seed = int.from_bytes(NONCE, "little")
    assert block_of(Terms(), 5, DATA, b"abc") == covered + xxhash.xxh3_128(covered, seed=seed).digest()


def test_parts_are_joined_and_bounded():
    terms = Terms()
    sealer = terms.sealer(digest_of(terms))
    parts = (b"ab", bytearray(b"cd"), memoryview(b"xefx")[1:3], b"")
    assert sealer.measure(parts) == sealer.seal(7, DATA, parts) == terms.block_bytes(6)
    memory = Memory(128)

    copy(memory.address, sealer.address, terms.block_bytes(6))
    assert bytes(memory.view[16:22]) == b"abcdef"
    too_long = (bytes(terms.largest_bytes), b"1")
    assert sealer.measure(too_long) == sealer.seal(7, DATA, too_long) == -1
    assert sealer.seal(7, DATA, (bytes(terms.largest_bytes),)) == sealer.room


@settings(max_examples=random_inputs(200), deadline=None)
@given(st.binary(max_size=128), st.integers(0, 2**64 - 1))
def test_no_bytes_verify_by_themselves(content, sequence):
    assert judged(Terms(), content, sequence)[0] != TAKEN


@settings(max_examples=random_inputs(200), deadline=None)
@given(st.binary(max_size=112))
def test_no_bytes_behind_a_right_sequence_number_verify(content):
    assert judged(Terms(), struct.pack("<Q", 5) + content)[0] != TAKEN
