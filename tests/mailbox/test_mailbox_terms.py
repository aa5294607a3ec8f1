"""What ends agree on, and the offers by which they do."""

import contextlib
import dataclasses
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from softhca.mailbox.errors import OfferError, TermsError
from softhca.mailbox.hashes import ALGORITHMS
from softhca.mailbox.offer import OFFER_BYTES, Offer
from softhca.mailbox.terms import Terms
from suite_plan import random_inputs

OFFER = Offer(
    Terms(indicator=b"::"), 0x123456, 0xFFFFFF, 7, bytes(range(16)), 3, 1 << 40, 2**32 - 1, 8, 1, b"nonce+++"
)


@pytest.mark.parametrize("wrong", [
    {"slots": 1}, {"slots": 1 << 17}, {"slot_bytes": 40}, {"slot_bytes": 100},
    {"slots": 1 << 16, "slot_bytes": 1 << 20},
    {"algorithm": "crc"}, {"largest_bytes": -5}, {"slots": 4, "slot_bytes": 64, "largest_bytes": 225},
    {"fixed_bytes": 97}, {"fixed_bytes": -2}, {"indicator": bytes(17)}, {"mode": "push"},
    {"mode": "read", "largest_bytes": 97}, {"algorithm": "blake3", "slot_bytes": 48, "indicator": b"1"},
])  # fmt: skip
def test_terms_that_cannot_be_are_refused(wrong):
    with pytest.raises(TermsError):
        Terms(**wrong)


@pytest.mark.parametrize("slots", [2, 1 << 16])
def test_the_fewest_and_the_most_slots(slots):
    assert Terms(slots=slots, slot_bytes=48).ring_bytes == slots * 48


@pytest.mark.parametrize("most", [
    {"fixed_bytes": 96}, {"fixed_bytes": -1}, {"indicator": bytes(16)}, {"mode": "read", "largest_bytes": 96},
    {"slot_bytes": 48, "largest_bytes": 16}, {"slots": 1 << 4, "slot_bytes": 1 << 26},
    {"slots": 1 << 14, "slot_bytes": 1 << 16},
])  # fmt: skip
def test_terms_that_just_can_be(most):
    assert {name: getattr(Terms(**most), name) for name in most} == most


def test_what_follows_from_terms():
    terms = Terms(slots=4, slot_bytes=64, largest_bytes=224)
    assert (terms.span, terms.ring_bytes, terms.credit_bytes) == (4, 256, 32)
    assert Terms().largest_bytes == 96
    assert Terms(algorithm="blake2b", indicator=b"12").largest_bytes == 78


@pytest.mark.parametrize(("algorithm", "key", "nonce"), [
    ("xxh3-128", b"x" * 16, bytes(8)), ("blake2b", b"", bytes(8)), ("blake2b", bytes(15), bytes(8)),
    ("blake3", bytes(65), bytes(8)), ("blake2b", bytes(16), bytes(7)),
])  # fmt: skip
def test_keys_and_nonces_that_do_not_fit_are_refused(algorithm, key, nonce):
    with pytest.raises(TermsError):
        Terms(algorithm=algorithm).digest(nonce, key)


def test_offers_come_back_as_they_were():
    assert len(OFFER.encode()) == OFFER_BYTES
    assert Offer.decode(OFFER.encode()) == OFFER
    for algorithm in ALGORITHMS:
        for mode in ("write", "read"):
            terms = Terms(slots=9, slot_bytes=256, algorithm=algorithm, fixed_bytes=3, mode=mode,
                          indicator=b"sixteen bytes ::")  # fmt: skip
            offer = dataclasses.replace(OFFER, terms=terms)
            assert Offer.decode(offer.encode()) == offer


@pytest.mark.parametrize(("at", "value", "word"), [
    (0, 0, "no offer"), (4, 9, "version"), (6, 77, "hash"), (7, 5, "mode"), (7, 2, "mode"), (8, 1, "slots"),
    (12, 3, "slot"), (24, 17, "indicator"), (44, 0xFF, "queue pair"), (48, 0xFF, "PSN"),
])  # fmt: skip
def test_what_is_no_offer_is_refused(at, value, word):
    wrong = bytearray(OFFER.encode())
    wrong[at] = value
    with pytest.raises(OfferError, match=word):
        Offer.decode(bytes(wrong))


@pytest.mark.parametrize(
    "change", [{"ring_va": 4}, {"ring_va": 2**64 - 8}, {"cell_va": 2**64 - 8}, {"mtu_code": 6}]
)
def test_addresses_and_mtus_that_cannot_be_are_refused(change):
    with pytest.raises(OfferError):
        Offer.decode(dataclasses.replace(OFFER, **change).encode())


@pytest.mark.parametrize("length", [0, OFFER_BYTES - 1, OFFER_BYTES + 1])
def test_offers_of_another_length_are_refused(length):
    with pytest.raises(OfferError, match="bytes"):
        Offer.decode((OFFER.encode() + b"x")[:length])


def test_different_terms_are_named():
    for field, theirs in (
        ("slots", 9), ("slot_bytes", 256), ("algorithm", "blake2b"), ("largest_bytes", 7), ("fixed_bytes", 1),
        ("indicator", b"!"), ("mode", "read"),
    ):  # fmt: skip
        other = dataclasses.replace(Terms(largest_bytes=8), **{field: theirs})
        with pytest.raises(OfferError, match=field):
            dataclasses.replace(OFFER, terms=other).require_same_terms(Terms(largest_bytes=8))
    OFFER.require_same_terms(Terms(indicator=b"::"))


@settings(max_examples=random_inputs(300), deadline=None)
@given(st.integers(0, 2**32))
def test_damaged_offers_raise_nothing_else(seed):
    dice = random.Random(seed)
    wrong = bytearray(OFFER.encode())
    for _ in range(dice.randint(1, 4)):
        wrong[dice.randrange(len(wrong))] = dice.randrange(256)
    with contextlib.suppress(OfferError):
        assert len(Offer.decode(bytes(wrong)).encode()) == OFFER_BYTES


@pytest.mark.parametrize(("code", "right"), [(0, False), (1, True), (5, True), (6, False), (255, False)])
def test_the_mtu_of_an_offer_is_one_of_five(code, right):
    message = dataclasses.replace(OFFER, mtu_code=code).encode()
    if right:
        assert Offer.decode(message).mtu_code == code
        return
    with pytest.raises(OfferError, match=f"MTU {code} cannot be"):
        Offer.decode(message)
