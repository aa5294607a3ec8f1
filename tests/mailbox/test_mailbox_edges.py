"""Edges of a mailbox's parts: conditions, hashes and journals at their bounds."""

from __future__ import annotations

import io

import pytest

from softhca.mailbox import conditions, journal
from softhca.mailbox.conditions import ConditionError, all_of, always, field
from softhca.mailbox.errors import TermsError
from softhca.mailbox.hashes import ALGORITHMS, NONCE_BYTES
from softhca.mailbox.journal import REWRITE_BYTES, Journal

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
