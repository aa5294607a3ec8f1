"""`Mailbox`: one end of a pair of rings, over verbs."""

from __future__ import annotations

import functools
import io
import os
import time
from collections import deque
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Self

from softhca.machine import deferred_signals
from softhca.mailbox.blocks import DATA, EMPTY, OUTCOME, REQUEST, TAKEN
from softhca.mailbox.conditions import Condition
from softhca.mailbox.errors import MailboxError, MailboxTimeout
from softhca.mailbox.journal import Journal
from softhca.mailbox.offer import Offer
from softhca.mailbox.remote_reader import RemoteReader
from softhca.mailbox.requests import Action, Outcome, Request, Requests, decode_outcome
from softhca.mailbox.rings import Inbox, Outbox
from softhca.mailbox.statistics import Statistics
from softhca.mailbox.terms import Terms
from softhca.mailbox.wiring import Wiring
from softhca.verbs.base import require, sole_owner
from softhca.verbs.device import Context

IDLE_POLLS = 64
"""After so many empty polls owed credit is written, completions are taken."""
MAX_TICKETS = 1024
"""Requests whose outcomes are waited for, or not fetched yet."""
OTHERS_A_POLL = 64
"""So many requests and outcomes are taken at a time; a peer that sends nothing else holds up nobody."""
_POLLS_A_CLOCK = 64
_MANY = 256


class Mailbox:
    """One end of a pair: messages go out with `send`, and come in with `receive`.

    ``key`` is the secret of a keyed hash.  ``journal`` keeps the peer's requests (default: in memory); it is
    of this ring alone, for requests are known by their numbers in it.  ``actions`` are what the peer may ask
    for.  ``clock`` gives nanoseconds and never goes back.  A mailbox belongs to one thread at a time.
    Every call of a closed one, or of one whose context is closed, is a MailboxError.
    TermsError, MailboxError, PyverbsError.
    """

    def __init__(
        self,
        context: Context,
        terms: Terms | None = None,
        key: bytes = b"",
        *,
        journal: Journal | None = None,
        actions: dict[str, Action] | None = None,
        port: int = 1,
        gid_index: int = 0,
        service_level: int = 0,
        clock: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        require(context, Context, "context")
        if journal is not None and journal.last_number:
            raise MailboxError("the journal belongs to another ring, whose numbers it knows")
        self.terms = terms = terms if terms is not None else Terms()
        self._clock = clock
        self._key = key
        self._wiring = wiring = Wiring(context, terms, port, gid_index, service_level)
        self._memory = wiring.inbox
        self.context = context
        self._progress = context.progress
        self._reads = terms.mode == "read"
        try:
            digest = terms.digest(wiring.nonce, key)
        except BaseException:
            wiring.close()
            raise
        opener, credits = terms.opener(digest), terms.credit_sealer(digest)
        self._inbox: Inbox | RemoteReader
        if self._reads:
            self._inbox = RemoteReader(
                terms.slots, terms.slot_bytes, opener, wiring.inbox.buf, credits, wiring
            )
        else:
            self._inbox = Inbox(terms.slots, terms.slot_bytes, opener, wiring.inbox.buf, credits)
        self._opener, self._credits = opener, credits
        self._outbox: Outbox | None = None
        self.actions: dict[str, Action] = actions if actions is not None else {}
        journal = journal if journal is not None else Journal(io.BytesIO())
        self._entries = journal.entries
        self._requests = Requests(journal, self.actions, terms.largest_bytes)
        self._tickets: dict[int, Outcome | None] = {}
        self._in_hand: deque[tuple[int, bytes]] = deque()
        self._floor = -1
        self._batch_start = 0
        self._statistics = Statistics()
        self._idle = 0
        self._credit_every = max(1, terms.slots // 4)

    # set-up

    @property
    def offer(self) -> bytes:
        """What the peer must be given, by a channel of the application's own."""
        self._require_open()
        return self._wiring.offer().encode()

    def join(self, offer: bytes) -> None:
        """Connect to the peer that made ``offer``; once.  OfferError when the two do not fit.

        The peer may send at once, and its first messages arrive when it has joined, too.
        """
        if self._outbox is not None:
            raise MailboxError("the mailbox has joined a peer already")
        self._require_open()
        peer = Offer.decode(offer)
        peer.require_same_terms(self.terms)
        terms, wiring = self.terms, self._wiring
        digest = terms.digest(peer.nonce, self._key)
        wiring.connect(peer)
        self._outbox = Outbox(
            terms.slots, terms.slot_bytes, terms.sealer(digest), wiring.outbox.buf, wiring.cell.buf,
            terms.credit_opener(digest),
        )  # fmt: skip

    # sending

    def try_send(self, *parts: Any) -> int:
        """Send one message, the concatenation of ``parts``: its sequence number, or 0 without room.

        Parts are bytes-like.  ValueError when they are longer than the terms allow; MailboxError.
        """
        return self._put(DATA, parts)

    def send(self, *parts: Any, timeout_s: float | None = None) -> int:
        """As `try_send`, but wait for room.  MailboxTimeout after ``timeout_s``."""
        return self._put(DATA, parts) or self._wait(lambda: self._put(DATA, parts), timeout_s, "no room")

    def try_send_many(self, messages: Sequence[Any], start: int = 0) -> int:
        """Send messages from ``messages[start]`` on as far as there is room, under one doorbell: how many.

        ValueError, and none is sent, when one is longer than the terms allow.
        """
        outbox = self._joined()
        if outbox.free() < len(messages) - start:
            outbox.take_credit()
        with deferred_signals.section():  # what stands in the ring is carried
            count = int(outbox.put_all(DATA, messages, start))
            self._carry(outbox)
        self._statistics.sent += count
        self._statistics.full += count < len(messages) - start
        return count

    def send_many(self, messages: Sequence[Any], timeout_s: float | None = None) -> None:
        """Send them all, waiting for room.  MailboxTimeout says how many went."""
        done = self.try_send_many(messages)
        while done < len(messages):
            attempt = functools.partial(self.try_send_many, messages, done)
            try:
                done += self._wait(attempt, timeout_s, "no room")
            except MailboxTimeout as error:
                raise MailboxTimeout(f"{error}: {done} of {len(messages)} messages went") from None

    def _put(self, kind: int, parts: tuple[Any, ...]) -> int:
        outbox = self._joined()
        deferred_signals.begin()  # what stands in the ring is carried, whatever signal comes
        try:
            sequence = outbox.put(kind, parts)
            if not sequence and outbox.take_credit():
                sequence = outbox.put(kind, parts)
            self._carry(outbox)
        finally:
            deferred_signals.end()
        if sequence:
            self._statistics.sent += 1
        else:
            self._statistics.full += 1
        return int(sequence)

    def _carry(self, outbox: Outbox) -> None:
        ranges = outbox.ranges()
        if ranges and not self._reads:
            self._wiring.carry(ranges)

    @property
    def confirmed(self) -> int:
        """The last sequence number that the peer has given back: its message was received there.

        As far as is known here; `poll`, and sending, look for more.
        """
        return int(self._joined().credit)

    # receiving

    def try_receive(self) -> bytes | None:
        """The next message, or None when there is none yet; drives the adapter once."""
        self._progress()
        return self.take()

    def take(self) -> bytes | None:
        """As `try_receive`, but leave driving the adapter to the caller, who has several mailboxes on it."""
        self._floor = -1
        if self._entries:
            self._settle()
        if self._poll_inbox() != TAKEN:
            return None
        return bytes(self._opener.message)

    def receive(self, timeout_s: float | None = None) -> bytes:
        """The next message.  MailboxTimeout after ``timeout_s``."""
        for _ in range(_POLLS_A_CLOCK):
            message = self.try_receive()
            if message is not None:
                return message
        found: list[bytes] = []

        def attempt() -> int:
            message = self.try_receive()
            if message is None:
                return 0
            found.append(message)
            return 1

        self._wait(attempt, timeout_s, "no message")
        return found[0]

    def receive_many(self, limit: int = _MANY) -> list[bytes]:
        """All messages that are there, at most ``limit``; none: an empty list.  Drives the adapter once."""
        self._progress()
        self._floor = -1
        if self._entries:
            self._settle()
        messages: list[bytes] = []
        self._batch_start = int(self._inbox.next_sequence) - 1
        for _ in range(limit + OTHERS_A_POLL):
            if self._entries or len(messages) >= limit:
                break
            with deferred_signals.section():  # as in `_poll_inbox`
                more = self._take_run(messages, limit)
            if not more:
                break
        self._statistics.received += len(messages)
        while self._entries and len(messages) < limit and self._poll_inbox() == TAKEN:
            messages.append(bytes(self._opener.message))
        return messages

    def _take_run(self, messages: list[bytes], limit: int) -> bool:
        """Take messages one behind the other, while no request is pending; whether there may be more."""
        self._joined()
        if self._reads:
            self._wiring.take_completions()
        before, start = len(messages), self._inbox.next_sequence
        verdict = self._inbox.take_all(messages, limit, self._credit_every)
        if len(messages) > before:
            self._idle = 0
        if verdict != TAKEN:
            self._idle += 1
            if self._idle >= IDLE_POLLS:
                self._on_idle()
            return False
        if self._inbox.next_sequence == start:  # there was no room for credit, and `kind` is the last block's
            self._give_credit()
            return False
        if self._opener.kind != DATA:
            if messages:  # the caller is given them behind this, and has not processed them
                self._floor = self._batch_start
            self._take_other(self._opener.kind)
        elif self._inbox.owed() >= self._credit_every:
            self._give_credit()
        return True

    def poll(self) -> None:
        """Drive the adapter, and what requests and their outcomes need, without receiving.

        What was received last counts as processed.
        """
        self._require_open()
        self._progress()
        self._floor = -1
        if self._entries:
            self._settle()
        self._wiring.take_completions()
        if self._outbox is not None:
            self._outbox.take_credit()

    def _poll_inbox(self) -> int:
        """Poll for a message of kind DATA, and deal with others on the way."""
        inbox = self._inbox
        self._joined()
        if self._reads:
            self._wiring.take_completions()
        for _ in range(OTHERS_A_POLL):
            if self._entries and self._requests.choked:
                self._on_idle()  # the peer may wait for credit before it takes outcomes
                break
            deferred_signals.begin()  # a request or an outcome that is taken is dealt with
            try:
                verdict = inbox.poll()
                kind = self._opener.kind  # an action may poll
                if verdict == TAKEN and kind != DATA:
                    self._take_other(kind)
            finally:
                deferred_signals.end()
            if verdict != TAKEN:
                self._idle += 1
                if self._idle >= IDLE_POLLS:
                    self._on_idle()
                return int(verdict)
            self._idle = 0
            if kind == DATA:
                self._statistics.received += 1
                if inbox.owed() >= self._credit_every:
                    self._give_credit()
                if self._entries:
                    self._in_hand.append((inbox.taken_sequence, self._opener.message))
                return TAKEN
            self._require_open()  # an action may have closed it
        return EMPTY

    def _take_other(self, kind: int) -> None:
        message = bytes(self._opener.message)
        if kind == REQUEST:
            self._requests.accept(self._inbox.taken_sequence, message, self._reached(), self._clock())
        elif kind == OUTCOME:
            outcome = decode_outcome(message)
            if outcome is not None and self._tickets.get(outcome.number, outcome) is None:
                self._tickets[outcome.number] = outcome
            else:
                self._statistics.outcomes_unknown += 1
        if self._inbox.owed() >= self._credit_every:
            self._give_credit()

    def _reached(self) -> int:
        """The last sequence number that is processed: received, and not in hand."""
        if self._floor >= 0:
            return self._floor
        if self._in_hand:
            return self._in_hand[0][0] - 1
        return int(self._inbox.next_sequence) - 1

    def _settle(self) -> None:
        """The application came back: what it had in hand is processed."""
        while self._in_hand:
            reached, message = hand = self._in_hand.popleft()
            try:
                self._requests.processed(reached, message, self._clock())
            except BaseException:  # other requests may wait for this one
                self._in_hand.appendleft(hand)
                raise
        self._requests.processed(self._reached(), None, self._clock())
        self._require_open()  # an action may have closed it
        self._send_outcomes()

    def _send_outcomes(self) -> None:
        """Send outcomes, as far as there is room."""
        while self._outbox is not None and (outcome := self._requests.next_outcome()) is not None:
            with deferred_signals.section():
                if not self._put(OUTCOME, (outcome[1],)):
                    return
                self._requests.outcome_sent(outcome[0])

    def _on_idle(self) -> None:
        """Nothing was there for a while: write owed credit and take completions."""
        self._idle = 0
        if self._inbox.owed():
            self._give_credit()
        self._wiring.take_completions()

    def _give_credit(self) -> None:
        with deferred_signals.section():
            if not self._wiring.has_room:
                self._wiring.take_completions()
            if self._wiring.has_room:
                self._wiring.write_credit(self._credits.address, int(self._inbox.seal_credit()))
                self._statistics.credits_sent += 1

    # requests

    def request(
        self,
        action: str,
        argument: bytes,
        condition: Condition,
        deadline_s: float = 0.0,
        timeout_s: float | None = None,
    ) -> int:
        """Ask the peer to perform ``action`` once when ``condition`` holds, unless ``deadline_s`` (0: never)
        has passed by its clock: the number by which `outcome` finds what became of it.

        Waits for room; MailboxTimeout after ``timeout_s``.
        """
        attempt = functools.partial(self.try_request, action, argument, condition, deadline_s)
        return attempt() or self._wait(attempt, timeout_s, "no room")

    def try_request(self, action: str, argument: bytes, condition: Condition, deadline_s: float = 0.0) -> int:
        """As `request`, or 0 without room.  ValueError for what no request can be; MailboxError when too
        many are open.
        """
        if len(self._tickets) >= MAX_TICKETS:
            raise MailboxError(f"{MAX_TICKETS} requests are open")
        require(action, str, "action")
        require(condition, Condition, "condition")
        message = Request(action, argument, condition, round(deadline_s * 1e9)).encode()
        number = self._put(REQUEST, (message,))
        if number:
            self._tickets[number] = None
        return number

    def outcome(self, number: int) -> Outcome | None:
        """What became of request ``number``, once; None: not known yet.  KeyError for an unknown number.

        Outcomes stand in the ring among messages: whoever receives those finds them.
        """
        outcome = self._tickets[number]
        if outcome is not None:
            del self._tickets[number]
        return outcome

    # the rest

    def _joined(self) -> Outbox:
        if self._outbox is None:
            raise MailboxError("the mailbox has not joined a peer yet")
        if not self._memory.is_open:
            self._require_open()
        return self._outbox

    def _require_open(self) -> None:
        """Before every look at the rings' memory, which is another's once this, or the context, is closed."""
        if not self._memory.is_open:
            raise MailboxError("the mailbox is closed")

    def _wait(self, attempt: Callable[[], int], timeout_s: float | None, what: str) -> int:
        """Drive the adapter until ``attempt`` gives something."""
        deadline_ns = None if timeout_s is None else time.monotonic_ns() + round(timeout_s * 1e9)
        while True:
            for _ in range(_POLLS_A_CLOCK):
                self._progress()
                if done := attempt():
                    return done
            self._wiring.take_completions()
            if deadline_ns is not None and time.monotonic_ns() > deadline_ns:
                raise MailboxTimeout(f"{what} for {timeout_s:g} s")
            os.sched_yield()

    @property
    def statistics(self) -> Statistics:
        """What was counted so far."""
        counted = self._statistics
        counted.add_verdicts(self._opener.verdicts)
        counted.writes = self._wiring.writes
        if isinstance(self._inbox, RemoteReader):
            counted.reads = self._inbox.reads
        if self._outbox is not None:
            counted.credits_refused = self._outbox.refused
        return counted

    __reduce_ex__ = sole_owner

    def close(self) -> None:
        """Close the queue pair and the memory; messages under way are dropped."""
        self._wiring.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
