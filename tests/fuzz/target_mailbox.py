"""What peers of a mailbox write: offers, slots, requests, conditions and outcomes, and what a crash leaves of
a journal.

Input: which of them, then its bytes.  What is no message is refused without an exception, or with the one
that is promised; nothing verifies that was not sealed.
"""

from __future__ import annotations

import io
from collections.abc import Iterator

from fuzz_choices import Choices

from softhca.machine.primitives import address_of, copy
from softhca.mailbox.blocks import DATA, TAKEN
from softhca.mailbox.conditions import ConditionError, all_of, any_of, decode, field, own, reached
from softhca.mailbox.errors import OfferError
from softhca.mailbox.journal import Journal
from softhca.mailbox.offer import OFFER_BYTES, Offer
from softhca.mailbox.requests import Request, Requests, decode_outcome, encode_outcome
from softhca.mailbox.terms import Terms

TERMS = Terms(4, 128, "blake2b", largest_bytes=200)
DIGEST = TERMS.digest(bytes(8), bytes(32))
RING = bytearray(TERMS.ring_bytes + 8)
START = -address_of(RING) % 8
SEALED = b"what was sealed"
CONDITION = all_of(reached(3), any_of(field(0, "u16", ">", 5), own(1, "bytes", "==", b"x")))
OFFER = Offer(TERMS, 5, 6, 7, bytes(16), 3, 1 << 40, 8, 1 << 41, 9, bytes(8))


def one_input(data: bytes) -> None:
    choices = Choices(data)
    kinds = (offer, slot, condition, request, outcome, journal)
    kinds[choices.below(len(kinds))](choices)


def offer(choices: Choices) -> None:
    """An OfferError of one line, or an offer that says the same again."""
    try:
        found = Offer.decode(choices.rest())
    except OfferError as error:
        assert "\n" not in str(error)
        return
    again = Offer.decode(found.encode())
    assert again == found
    assert len(found.encode()) == OFFER_BYTES


def block() -> bytes:
    """A block for slot 1, sealed."""
    sealer = TERMS.sealer(DIGEST)
    return bytes(sealer.block(sealer.seal(2, DATA, (SEALED,))))


def slot(choices: Choices) -> None:
    """A look reads the ring alone, and takes what was sealed or nothing."""
    index, sequence = choices.below(TERMS.slots), choices.byte() & 3
    content = choices.rest()[: TERMS.ring_bytes]
    RING[:] = bytes(len(RING))
    base = address_of(RING) + START
    copy(base, address_of(content, False), len(content))
    opener = TERMS.opener(DIGEST)
    room = TERMS.ring_bytes - index * TERMS.slot_bytes
    if opener.open(base + index * TERMS.slot_bytes, room, sequence) == TAKEN:
        assert (opener.kind, opener.message, sequence) == (DATA, SEALED, 2)
    assert sum(opener.verdicts) == 1


def condition(choices: Choices) -> None:
    """A ConditionError, or a condition of exactly these bytes that can be asked anything."""
    data = choices.rest()
    try:
        found = decode(data)
    except ConditionError:
        return
    assert found.encode() == data
    held = found.new_holds(set(), data, 5, data)
    found.holds(held)


def request(choices: Choices) -> None:
    """Whatever comes is accepted once and has an outcome, or waits."""
    performed: list[bytes] = []
    desk = Requests(Journal(io.BytesIO()), {"note": performed.append}, 200)  # type: ignore[dict-item]
    for number in (1, 1, 2):
        desk.accept(number, choices.block(choices.below(120)), number, number)
    desk.processed(9, choices.rest(), 9)
    while (found := desk.next_outcome()) is not None:
        assert decode_outcome(found[1]) is not None
        desk.outcome_sent(found[0])
    assert len(performed) <= 2


def outcome(choices: Choices) -> None:
    """None, or an outcome."""
    found = decode_outcome(choices.rest())
    assert found is None or found.status


def journal(choices: Choices) -> None:
    """A file of anything opens, and is what it says from then on."""
    file = io.BytesIO(choices.rest())
    kept = Journal(file)
    size = len(file.getvalue())
    number = kept.last_number + 1
    kept.accept(number, b"message", 1)
    assert Journal(io.BytesIO(file.getvalue())).entries.keys() == kept.entries.keys()
    assert len(file.getvalue()) > size


def seeds() -> Iterator[bytes]:
    """Right ones of each kind."""
    whole = bytes(128) + block()
    yield b"\x00" + OFFER.encode()
    yield b"\x01\x01\x02" + whole
    yield b"\x01\x01\x02" + whole[:-1]
    yield b"\x02" + CONDITION.encode()
    message = Request("note", b"xx", CONDITION, 5).encode()
    yield b"\x03" + bytes([len(message)]) + message + bytes([len(message)]) + message + b"\x00\x09\x09"
    yield b"\x04" + encode_outcome(5, 1, b"result")
    file = io.BytesIO()
    kept = Journal(file)
    kept.accept(1, message, 2)
    kept.hold(1, {1})
    kept.begin(1)
    kept.end(1, b"result")
    kept.accept(2, message, 3)
    yield b"\x05" + file.getvalue()
