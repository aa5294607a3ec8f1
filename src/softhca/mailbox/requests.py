"""Conditional requests: the receiver's half, which performs actions, and the sender's, which hears outcomes.

A request is: deadline (8 bytes, nanoseconds from its acceptance, 0: none), lengths of action's name (1) and
condition (2), name, condition, argument.  An outcome is: the request's number (8), status (1), result.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass

from softhca.machine import deferred_signals
from softhca.machine.signals import raised_by_handler
from softhca.mailbox import conditions
from softhca.mailbox.conditions import Condition, ConditionError
from softhca.mailbox.journal import Entry, Journal

DONE, FAILED, EXPIRED, REFUSED, INTERRUPTED = range(1, 6)
STATUSES = {
    DONE: "done", FAILED: "failed", EXPIRED: "expired", REFUSED: "refused", INTERRUPTED: "interrupted"
}  # fmt: skip
MAX_PENDING = 64
MAX_NAME_BYTES = 255
_REQUEST = struct.Struct("<QBH")
_OUTCOME = struct.Struct("<QB")

Action = Callable[[bytes], bytes | None]
"""From a request's argument to the bytes that the requester gets."""


@dataclass(frozen=True)
class Outcome:
    """What became of request ``number``: ``status`` is one of `STATUSES`' words, ``result`` the action's
    bytes, or the reason as text.
    """

    number: int
    status: str
    result: bytes


@dataclass(frozen=True)
class Request:
    """An action by name, its argument, and when to perform it."""

    action: str
    argument: bytes
    condition: Condition
    deadline_ns: int = 0

    def encode(self) -> bytes:
        """The request as a message; ValueError when a part of it is too long."""
        name, condition = self.action.encode(), self.condition.encode()
        if not 0 < len(name) <= MAX_NAME_BYTES:
            raise ValueError(f"an action's name has 1 to {MAX_NAME_BYTES} bytes")
        if not 0 <= self.deadline_ns < 1 << 63:
            raise ValueError(f"a deadline of {self.deadline_ns} ns")
        return _REQUEST.pack(self.deadline_ns, len(name), len(condition)) + name + condition + self.argument

    @classmethod
    def decode(cls, message: bytes) -> Request:
        """The request in ``message``; ValueError when there is none."""
        if len(message) < _REQUEST.size:
            raise ValueError("the request ends in the middle")
        deadline_ns, name_bytes, condition_bytes = _REQUEST.unpack_from(message)
        name_end = _REQUEST.size + name_bytes
        end = name_end + condition_bytes
        if not name_bytes or end > len(message):
            raise ValueError("the request ends in the middle")
        condition = conditions.decode(message[name_end:end])
        return cls(message[_REQUEST.size : name_end].decode(), message[end:], condition, deadline_ns)


def encode_outcome(number: int, status: int, result: bytes) -> bytes:
    """An outcome as a message."""
    return _OUTCOME.pack(number, status) + result


def decode_outcome(message: bytes) -> Outcome | None:
    """The outcome in ``message``, or None."""
    if len(message) < _OUTCOME.size:
        return None
    number, status = _OUTCOME.unpack_from(message)
    if status not in STATUSES:
        return None
    return Outcome(number, STATUSES[status], message[_OUTCOME.size :])


class Requests:
    """The receiver's requests, kept in ``journal``: made anew over the same one, they go on where they were.

    ``actions`` are functions by name.  An action that was begun when the last loop ended is not repeated.
    ``largest_bytes`` of an outcome; longer results are cut.
    """

    def __init__(self, journal: Journal, actions: dict[str, Action], largest_bytes: int) -> None:
        self._journal = journal
        self._actions = actions
        self._largest_bytes = largest_bytes
        self._decoded: dict[int, Request] = {}
        for entry in journal.entries.values():
            if entry.outcome is not None:
                continue
            if entry.begun:
                self._end(entry, INTERRUPTED, b"the loop ended while the action ran")
            else:
                self._admit(entry)

    @property
    def pending(self) -> bool:
        """Whether any request waits for its condition, or its outcome for being sent."""
        return bool(self._journal.entries)

    @property
    def choked(self) -> bool:
        """Whether so many outcomes wait for the peer that no more of its requests should be taken."""
        return len(self._journal.entries) - len(self._decoded) > MAX_PENDING

    def accept(self, number: int, message: bytes, reached: int, now_ns: int) -> None:
        """Take request ``number``; one that was accepted before changes nothing."""
        with deferred_signals.section():  # what is accepted waits, or has an outcome
            if not self._journal.accept(number, message, now_ns):
                return
            entry = self._journal.entries[number]
            admitted = self._admit(entry)
        if admitted:
            self._judge(entry, reached, None, now_ns)

    def _admit(self, entry: Entry) -> bool:
        """Let an accepted request wait for its condition; False: it is refused."""
        reason = ""
        try:
            request = Request.decode(entry.message)
        except (ConditionError, ValueError) as error:
            reason = str(error)
        else:
            if request.action not in self._actions:
                reason = f"there is no action {request.action!r}"
        if len(self._decoded) >= MAX_PENDING:
            reason = f"{MAX_PENDING} requests are pending"
        if reason:
            self._end(entry, REFUSED, reason.encode())
            return False
        self._decoded[entry.number] = request
        return True

    def processed(self, reached: int, message: bytes | None, now_ns: int) -> None:
        """Processing has reached sequence number ``reached``, with ``message`` (None: nothing was)."""
        for number in sorted(self._decoded):
            if number in self._decoded:  # an action may have polled
                self._judge(self._journal.entries[number], reached, message, now_ns)

    def _judge(self, entry: Entry, reached: int, message: bytes | None, now_ns: int) -> None:
        request = self._decoded[entry.number]
        if request.deadline_ns and now_ns - entry.accepted_ns >= request.deadline_ns:
            self._end(entry, EXPIRED, b"")
            return
        found = request.condition.new_holds(entry.held, request.argument, reached, message)
        if found:
            self._journal.hold(entry.number, found)
        if request.condition.holds(entry.held):
            self._perform(entry, request)

    def _perform(self, entry: Entry, request: Request) -> None:
        with deferred_signals.section():  # but for the action: what has begun has an outcome
            del self._decoded[entry.number]
            self._journal.begin(entry.number)
            try:
                with deferred_signals.waiting():
                    result = bytes(self._actions[request.action](request.argument) or b"")
            except BaseException as error:
                if not isinstance(error, Exception) or raised_by_handler(error):
                    self._end(entry, INTERRUPTED, b"the loop was ended while the action ran")
                    raise
                reason = f"{type(error).__name__}: {error}"
                self._end(entry, FAILED, reason.encode(errors="backslashreplace"))
            else:
                self._end(entry, DONE, result)

    def _end(self, entry: Entry, status: int, result: bytes) -> None:
        outcome = encode_outcome(entry.number, status, result)[: self._largest_bytes]
        self._decoded.pop(entry.number, None)
        self._journal.end(entry.number, outcome)

    def next_outcome(self) -> tuple[int, bytes] | None:
        """Number and message of an outcome that was not sent yet; `outcome_sent` when it was."""
        for entry in self._journal.entries.values():
            if entry.outcome is not None:
                return entry.number, entry.outcome
        return None

    def outcome_sent(self, number: int) -> None:
        """That outcome was sent to the peer."""
        self._journal.outcome_sent(number)
