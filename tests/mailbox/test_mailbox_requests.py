"""Requests: performed once, whatever happens to the loop that performs them."""

import io
import signal

import pytest

from softhca.mailbox.conditions import all_of, always, any_of, field, own, reached
from softhca.mailbox.journal import MAX_RECORD_BYTES, Journal
from softhca.mailbox.requests import MAX_NAME_BYTES, MAX_PENDING, Outcome, Request, Requests, decode_outcome
from softhca.mailbox.terms import MAX_RING_BYTES

SECOND_NS = 10**9
DEEP = all_of(reached(9), any_of(field(0, "u16", ">", 500), always()))


class Ended(BaseException):
    """What ends a loop in the middle of an action."""


class Desk:
    """A receiver's requests over a journal; `again` is a loop that takes over."""

    def __init__(self, file=None, largest_bytes=200):
        self.file = file or io.BytesIO()
        self.performed = []
        self.actions = {"note": self.note, "fail": self.fail, "end": self.end}
        self.largest_bytes = largest_bytes
        self.again()

    def again(self):
        self.journal = Journal(self.file)
        self.requests = Requests(self.journal, self.actions, self.largest_bytes)

    def note(self, argument):
        self.performed.append(argument)
        return b"noted " + argument

    def fail(self, argument):
        self.performed.append(argument)
        raise RuntimeError("as asked")

    def end(self, argument):
        self.performed.append(argument)
        raise Ended

    def accept(self, number, condition, action="note", argument=b"x", deadline_ns=0, now_ns=0, up_to=None):
        message = Request(action, argument, condition, deadline_ns).encode()
        self.requests.accept(number, message, number if up_to is None else up_to, now_ns)

    def outcomes(self):
        found = []
        while (outcome := self.requests.next_outcome()) is not None:
            self.requests.outcome_sent(outcome[0])
            found.append(decode_outcome(outcome[1]))
        return found


def test_an_action_is_performed_when_its_number_is_reached_and_once():
    desk = Desk()
    desk.accept(3, reached(6))
    for number in range(4, 10):
        desk.requests.processed(number, b"message", 0)
        assert desk.performed == ([b"x"] if number >= 6 else [])
    assert desk.outcomes() == [Outcome(3, "done", b"noted x")]
    assert not desk.requests.pending


def test_an_action_whose_condition_holds_already_is_performed_at_once():
    desk = Desk()
    desk.accept(3, always())
    desk.accept(4, own(0, "u8", "==", ord("x")))
    desk.accept(5, reached(5))
    assert desk.performed == [b"x"] * 3


def test_a_condition_over_the_messages_that_follow():
    desk = Desk()
    desk.accept(1, all_of(field(0, "u8", "==", 1), any_of(field(1, "u8", ">", 100), reached(50))))
    desk.requests.processed(2, b"\0\xff", 0)
    assert desk.performed == []
    desk.requests.processed(3, b"\1\0", 0)
    assert desk.performed == [b"x"]


@pytest.mark.parametrize("late_ns", [0, 1])
def test_behind_the_deadline_nothing_is_performed(late_ns):
    desk = Desk()
    desk.accept(1, reached(5), deadline_ns=SECOND_NS, now_ns=7)
    desk.requests.processed(5, b"", 7 + SECOND_NS - 1 + late_ns)
    assert desk.outcomes() == [Outcome(1, "expired", b"") if late_ns else Outcome(1, "done", b"noted x")]


def test_a_deadline_passes_without_any_message():
    desk = Desk()
    desk.accept(1, reached(5), deadline_ns=SECOND_NS)
    desk.requests.processed(1, None, SECOND_NS)
    assert [outcome.status for outcome in desk.outcomes()] == ["expired"]


def test_an_action_that_fails_says_so():
    desk = Desk()
    desk.accept(1, always(), "fail")
    assert desk.outcomes() == [Outcome(1, "failed", b"RuntimeError: as asked")]


def test_unknown_actions_and_malformed_requests_are_refused():
    desk = Desk()
    desk.accept(1, always(), "format disk")
    desk.requests.accept(2, b"", 2, 0)
    desk.requests.accept(3, Request("note", b"", always()).encode()[:-1], 3, 0)
    desk.requests.accept(4, b"\0" * 8 + b"\1\1\0" + b"\xff\0", 4, 0)
    desk.requests.accept(5, b"\0" * 8 + b"\0\1\0" + b"\0", 5, 0)
    assert [outcome.status for outcome in desk.outcomes()] == ["refused"] * 5
    assert desk.performed == []


def test_too_many_requests_are_refused():
    desk = Desk()
    for number in range(1, MAX_PENDING + 3):
        desk.accept(number, reached(1000))
    assert [outcome.number for outcome in desk.outcomes()] == [MAX_PENDING + 1, MAX_PENDING + 2]
    desk.requests.processed(1000, b"", 0)
    assert len(desk.performed) == MAX_PENDING


def test_a_peer_that_takes_no_outcomes_is_not_read_any_more():
    desk = Desk()
    for number in range(1, MAX_PENDING + 2):
        assert not desk.requests.choked
        desk.accept(number, always())
    assert desk.requests.choked
    desk.outcomes()
    assert not desk.requests.choked


def test_a_request_that_comes_twice_is_one():
    desk = Desk()
    desk.accept(1, always())
    desk.accept(1, always())
    assert len(desk.outcomes()) == 1
    desk.accept(1, always())
    assert desk.performed == [b"x"]
    assert not desk.requests.pending


def test_results_are_cut_to_what_fits():
    desk = Desk(largest_bytes=12)
    desk.accept(1, always(), argument=b"abcdef")
    assert desk.outcomes() == [Outcome(1, "done", b"not")]


def test_another_loop_goes_on_where_the_first_was():
    desk = Desk()
    desk.accept(1, all_of(field(0, "u8", "==", 1), field(0, "u8", "==", 2)))
    desk.accept(2, reached(9))
    desk.requests.processed(3, b"\2", 0)
    desk.again()
    desk.requests.processed(4, b"\1", 0)
    assert desk.performed == [b"x"]
    desk.again()
    assert desk.outcomes() == [Outcome(1, "done", b"noted x")]
    desk.again()
    assert desk.outcomes() == []
    desk.requests.processed(9, b"", 0)
    assert desk.performed == [b"x", b"x"]


def test_a_deadline_outlives_the_loop():
    desk = Desk()
    desk.accept(1, reached(9), deadline_ns=SECOND_NS, now_ns=5)
    desk.again()
    desk.requests.processed(1, None, SECOND_NS + 4)
    assert desk.requests.pending
    desk.requests.processed(1, None, SECOND_NS + 5)
    assert [outcome.status for outcome in desk.outcomes()] == ["expired"]


def test_an_action_in_which_the_loop_ended_is_not_repeated():
    desk = Desk()
    with pytest.raises(Ended):
        desk.accept(1, always(), "end")
    desk.requests.processed(2, b"", 0)
    assert desk.outcomes()[0].status == "interrupted"
    assert desk.performed == [b"x"]


def test_what_a_signal_handler_raises_in_an_action_ends_the_loop_too():
    """It may be of any class: TimeoutError is an Exception."""
    desk = Desk()

    def late(number, frame):
        raise TimeoutError("late")

    before = signal.signal(signal.SIGUSR1, late)
    desk.actions["note"] = lambda _: signal.raise_signal(signal.SIGUSR1)
    try:
        with pytest.raises(TimeoutError, match="late"):
            desk.accept(1, always())
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert desk.outcomes()[0].status == "interrupted"


def every_prefix(file):
    """What a crash may leave of the file: every beginning of it."""
    content = file.getvalue()
    return [io.BytesIO(content[:length]) for length in range(len(content) + 1)]


def test_a_process_that_died_anywhere_performs_at_most_once():
    """The file ends at every byte: the action runs again only where it says that it had not begun."""
    desk = Desk()
    begun = []
    desk.actions["note"] = lambda _: begun.append(len(desk.file.getvalue()))
    desk.accept(1, reached(2))
    desk.requests.processed(2, b"", 0)
    statuses = set()
    for file in every_prefix(desk.file):
        length = len(file.getvalue())
        other = Desk(file)
        other.accept(1, reached(2))  # whoever reads the ring again meets the request again
        other.requests.processed(2, b"", 0)
        (outcome,) = other.outcomes()
        statuses.add(outcome.status)
        assert other.performed == ([b"x"] if length < begun[0] else [])
    assert statuses == {"done", "interrupted"}


def test_a_journal_that_has_grown_begins_anew_when_nothing_is_pending():
    desk = Desk()
    for number in range(1, 400):
        desk.accept(number, always(), argument=bytes(100))
        desk.outcomes()
    assert len(desk.file.getvalue()) < 70_000
    desk.again()
    desk.accept(399, always())
    assert desk.outcomes() == []
    desk.accept(400, always())
    assert len(desk.outcomes()) == 1


@pytest.mark.parametrize("pending", [False, True])
def test_a_journal_that_began_anew_and_is_opened_again_takes_no_old_number(pending):
    """At each moment at which another loop may take over: the last number stands in the file, whether
    anything else does or not."""
    desk = Desk()
    first = 1
    if pending:
        desk.accept(1, reached(10_000), argument=b"waits")
        first = 2
    begun_anew = 0
    for number in range(first, 1200):
        desk.accept(number, always(), argument=bytes(100))
        before = len(desk.file.getvalue())
        assert len(desk.outcomes()) == 1
        if len(desk.file.getvalue()) >= before:
            continue
        begun_anew += 1
        opened = Journal(io.BytesIO(desk.file.getvalue()))
        assert opened.last_number == number
        for old in (1, number - 1, number):
            assert not opened.accept(old, b"again", 0)
        assert opened.accept(number + 1, b"new", 0)
    assert begun_anew >= 2


def test_a_journal_with_more_pending_than_a_record_holds_does_not_begin_anew(monkeypatch):
    """What is pending would not fit one record, and a longer one would not be read again."""
    monkeypatch.setattr("softhca.mailbox.journal.MAX_RECORD_BYTES", 2000)
    desk = Desk()
    for number in range(1, 31):
        desk.accept(number, reached(10_000), argument=bytes(100))
    for number in range(31, 500):
        desk.accept(number, always(), argument=bytes(100))
        assert len(desk.outcomes()) == 1
    assert len(desk.file.getvalue()) > 70_000
    opened = Journal(io.BytesIO(desk.file.getvalue()))
    assert (set(opened.entries), opened.last_number) == (set(range(1, 31)), 499)


def test_a_journal_does_not_grow_while_a_request_waits_for_ever():
    desk = Desk()
    desk.accept(1, all_of(field(0, "u8", "==", 1), field(0, "u8", "==", 2)), argument=b"first")
    desk.requests.processed(1, b"\2", 0)
    for number in range(2, 2000):
        desk.accept(number, always(), argument=bytes(100))
        desk.outcomes()
        assert len(desk.file.getvalue()) < 70_000
    desk.accept(2000, always(), "nothing")  # refused, and not sent yet
    desk.again()
    assert [(outcome.number, outcome.status) for outcome in desk.outcomes()] == [(2000, "refused")]
    desk.accept(1999, always())
    assert desk.outcomes() == []
    desk.requests.processed(2001, b"\1", 0)  # the half that held stays so
    assert desk.performed[-1] == b"first"


def test_a_journal_that_a_crash_leaves_half_begun_anew_repeats_nothing():
    desk = Desk()
    desk.accept(1, reached(9), argument=b"waits")
    for number in range(2, 1000):
        desk.accept(number, always(), argument=bytes(100))
        before = desk.file.getvalue()
        desk.outcomes()
        if len(desk.file.getvalue()) < len(before):
            break
    else:
        pytest.fail("it never begins anew")
    anew = desk.file.getvalue()
    for length in range(len(anew) + 1):
        journal = Journal(io.BytesIO(anew[:length] + before[length:]))
        whole = length == 0 or anew[:length] + before[length : len(anew)] == anew
        assert set(journal.entries) <= {1, number}
        assert (1 in journal.entries) >= whole
        assert all(journal.entries[n].outcome is not None for n in journal.entries if n != 1)


def test_what_an_action_says_when_it_fails_is_told_in_any_case():
    desk = Desk()

    def fail(argument):
        raise ValueError(argument.decode(errors="surrogateescape"))

    desk.actions["note"] = fail
    desk.accept(1, always(), argument=b"\xff")
    assert desk.outcomes() == [Outcome(1, "failed", b"ValueError: \\udcff")]


def test_every_request_that_a_ring_can_carry_fits_a_record():
    assert MAX_RING_BYTES <= MAX_RECORD_BYTES


def test_a_journal_in_a_file_is_synchronised(tmp_path):
    with (tmp_path / "journal").open("w+b") as file:
        journal = Journal(file, durable=True)
        assert journal.accept(1, b"message", 5)
        assert not journal.accept(1, b"message", 6)
        with (tmp_path / "journal").open("r+b") as other:
            entry = Journal(other).entries[1]
            assert (entry.message, entry.accepted_ns) == (b"message", 5)


@pytest.mark.parametrize("message", [b"", bytes(8), bytes(9), bytes(8) + b"\6"])
def test_what_is_no_outcome(message):
    assert decode_outcome(message) is None


@pytest.mark.parametrize("request_", [
    Request("", b"", always()), Request("x" * 256, b"", always()), Request("x", b"", always(), -1),
    Request("x", b"", always(), 1 << 63),
])  # fmt: skip
def test_requests_that_cannot_be_are_refused_to_their_sender(request_):
    with pytest.raises(ValueError, match=r"has|deadline"):
        request_.encode()


@pytest.mark.parametrize(("action", "deadline_ns"), [("n", 0), ("n" * MAX_NAME_BYTES, (1 << 63) - 1)])
def test_requests_come_back_as_they_were(action, deadline_ns):
    request = Request(action, b"argument", DEEP, deadline_ns)
    assert Request.decode(request.encode()) == request
