"""What a journal's file holds at every moment at which its machine may stop."""

import io
import os

import pytest

from softhca.mailbox.journal import REWRITE_BYTES, Journal


class Disk(io.BytesIO):
    """A file whose writes reach the disk when they are flushed, and whose length changes at once; ``states``
    are all that ever stood there since `begin`."""

    def __init__(self, content=b""):
        super().__init__(content)
        self.there = content
        self.states = []

    def begin(self):
        self.states = [self.there]

    def flush(self):
        self.there = self.getvalue()
        self.states.append(self.there)

    def truncate(self, size=None):
        size = self.tell() if size is None else size
        super().truncate(size)
        self.there = self.there[:size]
        self.states.append(self.there)
        return size


def what(journal):
    """Numbers and outcomes of what is pending, and the last number."""
    return sorted((each.number, each.begun, each.outcome) for each in journal.entries.values())


@pytest.mark.parametrize("durable", [False, True])
def test_what_is_to_be_durable_is_synchronised_record_by_record(tmp_path, monkeypatch, durable):
    synchronised = []
    monkeypatch.setattr("os.fsync", lambda fd: synchronised.append(os.fstat(fd).st_size))
    with open(tmp_path / "journal", "w+b") as file:
        journal = Journal(file, durable)
        sizes = []
        steps = (journal.accept, 1, b"ask", 5), (journal.begin, 1), (journal.end, 1, b"")
        for step, *arguments in steps:
            step(*arguments)
            sizes.append(os.fstat(file.fileno()).st_size)
    assert synchronised == (sizes if durable else [])


@pytest.mark.parametrize("torn", [b"", b"\x01", b"\xff" * 100, bytes(40)])
def test_what_is_noted_behind_a_torn_record_is_found_again(torn):
    disk = Disk()
    first = Journal(disk)
    assert first.accept(5, b"first", 1)
    whole = disk.getvalue()
    journal = Journal(Disk(whole + torn))
    assert journal._file.getvalue() == whole
    assert journal.accept(6, b"second", 2)
    journal.begin(6)
    again = Journal(Disk(journal._file.getvalue()))
    assert what(again) == [(5, False, None), (6, True, None)]
    assert again.entries[6].message == b"second"
    assert not again.accept(6, b"twice", 3)


def test_a_journal_that_begins_anew_loses_nothing_wherever_its_machine_stops():
    disk = Disk()
    journal = Journal(disk)
    for number in range(1, 5):
        assert journal.accept(number, bytes(REWRITE_BYTES // 3), number)
    journal.begin(2)
    journal.end(3, b"outcome")
    journal.end(1, b"")
    before = len(disk.there)
    disk.begin()
    journal.outcome_sent(1)
    assert len(disk.there) < before
    assert len(disk.states) >= 4, "as it was, with the end of 1, begun anew, and cut"
    left = [(2, True, None), (3, False, b"outcome"), (4, False, None)]
    for state in disk.states[1:]:
        found = Journal(Disk(state))
        assert (what(found), found.last_number) == (left, 4)
        assert not found.accept(4, b"again", 9)


def test_an_outcome_of_no_bytes_is_one_when_a_journal_has_begun_anew():
    disk = Disk()
    journal = Journal(disk)
    for number in (1, 2):
        assert journal.accept(number, bytes(REWRITE_BYTES // 2), number)
    journal.begin(1)
    journal.end(1, b"")
    before = len(disk.there)
    journal.outcome_sent(2)
    assert len(disk.there) < before
    assert what(Journal(Disk(disk.there))) == [(1, True, b"")]


@pytest.mark.parametrize(
    ("call", "error", "reason"),
    [
        (lambda journal: journal.accept(1 << 64, b"", 0), ValueError, "a sequence number is 0 to"),
        (lambda journal: journal.accept("8", b"", 0), TypeError, "a whole number, not str"),
        (lambda journal: journal.accept(8, "text", 0), TypeError, "a message is bytes, not str"),
        (lambda journal: journal.accept(8, b"", -1), ValueError, "a time in nanoseconds is 0 to"),
        (lambda journal: journal.accept(8, b"", 1.5), TypeError, "a time in nanoseconds is a whole number"),
        (lambda journal: journal.hold(7, {256}), ValueError, "a leaf is 0 to 255, not 256"),
        (lambda journal: journal.hold(7, 3), TypeError, "leaves of a condition are a set, not int"),
        (lambda journal: journal.begin(-1), ValueError, "a sequence number is 0 to"),
        (lambda journal: journal.begin(None), TypeError, "a whole number, not NoneType"),
        (lambda journal: journal.end(7, None), TypeError, "an outcome is bytes, not NoneType"),
        (lambda journal: journal.end(1 << 64, b""), ValueError, "a sequence number is 0 to"),
        (lambda journal: journal.outcome_sent(-1), ValueError, "a sequence number is 0 to"),
    ],
)
def test_what_no_record_can_hold_is_refused_and_nothing_is_written(call, error, reason):
    file = io.BytesIO()
    journal = Journal(file)
    journal.accept(7, b"request", 1)
    before = file.getvalue(), what(journal)
    with pytest.raises(error, match=reason):
        call(journal)
    assert (file.getvalue(), what(journal)) == before
