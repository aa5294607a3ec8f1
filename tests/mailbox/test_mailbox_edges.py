"""Edges of a mailbox's parts: conditions, hashes and journals at their bounds."""

from __future__ import annotations

import io
from array import array
from dataclasses import replace
from types import SimpleNamespace

import pytest
from mailbox_rings import Memory, Ring, block_of

from softhca.mailbox import conditions, journal, offer_exchange
from softhca.mailbox.blocks import DATA, FORMAT, SKIP, TAKEN, VERDICTS
from softhca.mailbox.conditions import ConditionError, all_of, always, field, reached
from softhca.mailbox.errors import OfferError, TermsError
from softhca.mailbox.hashes import ALGORITHMS, NONCE_BYTES
from softhca.mailbox.journal import REWRITE_BYTES, Journal
from softhca.mailbox.offer import Offer
from softhca.mailbox.remote_reader import RemoteReader
from softhca.mailbox.requests import MAX_PENDING, Request, Requests
from softhca.mailbox.statistics import Statistics
from softhca.mailbox.terms import MAX_RING_BYTES, Terms

KEY = bytes(32)


def test_a_field_stands_at_an_offset_of_32_bits() -> None:
    last = field((1 << 32) - 1, "u8", "==", 1)
    assert conditions.decode(last.encode()) == last
    with pytest.raises(ConditionError, match="offset"):
        field(1 << 32, "u8", "==", 1)


def test_a_field_of_a_message_holds_of_no_message_in_no_way() -> None:
    """Not even where what is not there would differ."""
    for form, value in (("u8", 0), ("bytes", b"x")):
        for offset in (0, 5):
            condition = field(offset, form, "!=", value)
            assert condition.new_holds(set(), b"ab", 9, None) == set()
    assert all_of(always(), field(0, "u8", "!=", 1)).new_holds(set(), b"", 0, None) == {1}


@pytest.mark.parametrize("name", ALGORITHMS)
def test_each_block_of_a_ring_is_hashed_by_itself(name: str) -> None:
    algorithm = ALGORITHMS[name]
    digest = algorithm.for_ring(bytes(NONCE_BYTES), KEY if algorithm.keyed else b"")
    first = digest(b"a block")
    assert digest(b"another one") != first
    assert digest(b"a block") == first == digest(memoryview(b"a block"))
    assert len(first) == algorithm.digest_bytes


@pytest.mark.parametrize("length", [NONCE_BYTES - 1, NONCE_BYTES + 1])
def test_a_nonce_has_eight_bytes(length: int) -> None:
    with pytest.raises(TermsError, match="nonce"):
        ALGORITHMS["xxh3-128"].for_ring(bytes(length))


def test_a_record_is_no_longer_than_can_be_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "MAX_RECORD_BYTES", 20)
    file = io.BytesIO()
    made = Journal(file)
    assert made.accept(1, bytes(12), 0)  # and eight of its time
    before = file.getvalue()
    with pytest.raises(ValueError, match="record"):
        made.accept(2, bytes(13), 0)
    assert file.getvalue() == before
    assert list(Journal(file).entries) == [1]


class Restarts(io.BytesIO):
    """A file that counts how often a journal in it began anew."""

    count = 0

    def seek(self, place: int, whence: int = 0) -> int:
        self.count += place == 0
        return super().seek(place, whence)


def test_a_long_journal_begins_anew_when_it_has_grown_by_as_much_again() -> None:
    """Else one that waits for much is written again with each request that ends."""
    file = Restarts()
    made = Journal(file)
    file.count = 0
    made.accept(1, bytes(2 * REWRITE_BYTES), 0)
    made.accept(2, b"", 0)
    made.outcome_sent(2)
    began = file.count
    for number in range(3, 20):
        made.accept(number, b"", 0)
        made.outcome_sent(number)
    assert file.count == began
    assert len(made.entries) == 1


def test_a_short_journal_does_not_begin_anew() -> None:
    file = Restarts()
    made = Journal(file)
    file.count = 0
    for number in range(1, 20):
        made.accept(number, b"", 0)
        made.outcome_sent(number)
    assert (file.count, made.entries) == (0, {})


def test_a_journal_that_cannot_begin_anew_tries_again_when_it_has_grown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tried: list[int] = []

    class Counted(Journal):
        def _restart(self) -> None:
            tried.append(self._bytes)
            super()._restart()

    made = Counted(io.BytesIO())
    for number in (1, 2):
        made.accept(number, bytes(REWRITE_BYTES), 0)
    monkeypatch.setattr(journal, "MAX_RECORD_BYTES", REWRITE_BYTES + 100)
    for number in range(3, 9):
        made.accept(number, b"", 0)
        made.outcome_sent(number)
    assert len(tried) == 1
    assert len(made.entries) == 2


def test_a_ring_lies_before_the_end_of_all_addresses() -> None:
    terms = Terms()
    made = Offer(terms, 1, 2, 0, bytes(16), 3, (1 << 64) - terms.ring_bytes, 1, 8, 1, bytes(8))
    assert Offer.decode(made.encode()) == made
    with pytest.raises(OfferError, match="ring"):
        Offer.decode(replace(made, ring_va=made.ring_va + 8).encode())
    last = (1 << 64) - terms.credit_bytes & ~7
    assert Offer.decode(replace(made, cell_va=last).encode()).cell_va == last
    with pytest.raises(OfferError, match="cell"):
        Offer.decode(replace(made, cell_va=last + 8).encode())


def test_a_request_whose_parts_are_not_all_there_is_none() -> None:
    whole = Request("note", b"", always()).encode()
    assert Request.decode(whole).action == "note"
    for at, value in ((8, 0), (9, 2)):  # no name, a condition of a byte more than there is
        wrong = bytearray(whole)
        wrong[at] = value
        with pytest.raises(ValueError, match="in the middle"):
            Request.decode(bytes(wrong))


def test_requests_that_wait_choke_nobody() -> None:
    """Outcomes that the peer does not take do."""
    requests = Requests(Journal(io.BytesIO()), {"note": lambda _: b""}, 200)
    for number in range(1, MAX_PENDING + 1):
        requests.accept(number, Request("note", b"", reached(1000)).encode(), 0, 0)
    for number in range(MAX_PENDING + 1, 2 * MAX_PENDING + 1):
        requests.accept(number, b"nonsense", 0, 0)
    assert not requests.choked
    requests.accept(2 * MAX_PENDING + 1, b"nonsense", 0, 0)
    assert requests.choked


def test_a_skip_needs_credit_like_any_block() -> None:
    """Else it is written over a block that the reader has not taken."""
    ring = Ring(Terms(slots=4, slot_bytes=64, largest_bytes=100))
    for _ in range(4):
        ring.outbox.put(DATA, (b"x",))
    ring.carry()
    assert [ring.inbox.poll() for _ in range(3)] == [TAKEN] * 3
    ring.credit()
    assert [ring.outbox.put(DATA, (b"x",)) for _ in range(2)] == [5, 6]
    ring.carry()
    assert ring.outbox.free() == 1
    assert ring.outbox.put(DATA, (bytes(100),)) == 0, "two slots are left to the ring's end"
    assert (ring.outbox.next_sequence, ring.outbox.ranges()) == (7, [])


def test_the_same_credit_is_no_more_than_before() -> None:
    ring = Ring()
    ring.outbox.put(DATA, (b"x",))
    ring.carry()
    assert ring.inbox.poll() == TAKEN
    ring.credit()
    assert ring.outbox.credit == 1
    assert not ring.outbox.take_credit()


def test_a_skip_that_says_something_is_counted() -> None:
    ring = Ring()
    block = block_of(ring.terms, 1, SKIP, b"x")
    ring.target.view[: len(block)] = block
    assert ring.inbox.poll() == FORMAT
    assert ring.opener.verdicts[FORMAT] == 1


def test_a_ring_has_a_largest_size() -> None:
    slot_bytes = MAX_RING_BYTES >> 16
    assert Terms(slots=1 << 16, slot_bytes=slot_bytes).ring_bytes == MAX_RING_BYTES
    with pytest.raises(TermsError, match="at most"):
        Terms(slots=1 << 16, slot_bytes=slot_bytes + 8)


def test_credit_has_no_indicator() -> None:
    ring = Ring(Terms(indicator=b"::"))
    ring.outbox.put(DATA, (b"x",))
    ring.carry()
    assert ring.inbox.poll() == TAKEN
    assert ring.credit()


class Wire:
    """A connection on which ``comes`` has come; ``noted`` is what was said to it, and what was done."""

    def __init__(self, comes: bytes, noted: list[object]) -> None:
        self.comes, self.noted = comes, noted

    def sendall(self, data: bytes) -> None:
        self.noted.append(data)

    def recv(self, length: int) -> bytes:
        part, self.comes = self.comes[: min(length, 7)], self.comes[min(length, 7) :]
        return part


@pytest.mark.parametrize("said", [offer_exchange.READY, b"\2"])
def test_two_ends_read_each_other_s_offer_and_word_and_no_byte_more(said: bytes) -> None:
    noted: list[object] = []
    theirs = bytes(range(200))[: offer_exchange.OFFER_BYTES].ljust(offer_exchange.OFFER_BYTES, b"x")
    wire = Wire(theirs + said + b"application", noted)
    box = SimpleNamespace(offer=b"ours", join=lambda offer: noted.append(("join", offer)))
    if said != offer_exchange.READY:
        with pytest.raises(OfferError, match="not ready"):
            offer_exchange.exchange_offers(box, wire)  # type: ignore[arg-type]
    else:
        offer_exchange.exchange_offers(box, wire)  # type: ignore[arg-type]
    assert noted == [b"ours", ("join", theirs), offer_exchange.READY]
    assert wire.comes == b"application"


def test_a_reader_fetches_the_slot_whose_turn_it_is_and_no_more_than_is_credited() -> None:
    ring = Ring(Terms(slots=4, mode="read"))
    fetched: list[int] = []

    class Fetcher:
        reading = False

        def read(self, offset: int) -> None:
            fetched.append(offset)
            size = ring.terms.slot_bytes
            landing.view[:size] = ring.source.view[offset : offset + size]

    landing = Memory(ring.terms.slot_bytes)
    reader = RemoteReader(4, ring.terms.slot_bytes, ring.opener, landing.address, ring.sealer, Fetcher())
    for number in range(4):
        ring.outbox.put(DATA, (bytes([number]),))
    messages: list[bytes] = []
    for _ in range(9):
        reader.take_all(messages, 10, 3)
    assert messages == [b"\0", b"\1", b"\2"], "three are owed to the writer"
    assert fetched == [0, 128, 256]
    reader.seal_credit()
    for _ in range(3):
        reader.take_all(messages, 10, 3)
    assert (messages[3:], fetched[3], reader.reads) == ([b"\3"], 384, len(fetched))


def test_polls_are_counted_once() -> None:
    verdicts, counted = array("Q", [0] * VERDICTS), Statistics()
    verdicts[FORMAT] = 3
    for _ in range(2):
        counted.add_verdicts(verdicts)
    verdicts[FORMAT] = 2
    counted.add_verdicts(verdicts)
    assert (counted.format, counted.torn, verdicts[FORMAT]) == (5, 0, 0)
