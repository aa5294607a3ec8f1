"""What the answers of a reliable queue pair may look like on the wire (IBTA vol. 1, 9.7.4, 9.7.5).

A `Responder` sees which requests reach one queue pair undamaged and what it answers.  It executes nothing:
it takes what comes in order as executed, and goes back where a NAK says that it was not.
Positions are PSNs without their wrap.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right

from softhca.simulation.oracle import Report
from softhca.simulation.oracle_wire_packets import (
    ACK,
    ACKNOWLEDGE,
    ATOMIC_ACKNOWLEDGE,
    ATOMICS,
    CREDIT_COUNTS,
    ENDS,
    LENGTHS,
    MESSAGES,
    NO_LIMIT,
    READ_FIRST,
    READ_LAST,
    READ_MIDDLE,
    READ_ONLY,
    READ_REQUEST,
    RNR_NAK,
    TAKES,
    WRITE_FIRST,
    Terms,
    be,
    mask_of,
    near_to,
    packets_of,
    payload_bytes,
    position_of,
)

_ATOMICS = mask_of(ATOMICS)
_ENDS = mask_of(ENDS)
_MESSAGES = mask_of(MESSAGES)
_READ_BEGINS = mask_of({READ_FIRST, READ_ONLY})
_READ_ENDS = mask_of({READ_LAST, READ_ONLY})
_TAKES = mask_of(TAKES)
_NOWHERE = -1 << 48

HELD_NS = 300_000
"""So long after its memory came back a READ is answered at last."""
KEPT_ANSWERS = 256
"""READs and atomics that are remembered; no queue pair may answer so old ones again."""


class Responder:
    """``front``: the PSN expected next.  ``over``: it has told its peer that the connection is at an end.

    ``posted`` receives are its own; −1 where nobody counts them.
    """

    def __init__(self, terms: Terms, report: Report) -> None:
        self.terms = terms
        self.report = report
        self.front = terms.peer_psn
        self._mtu_bytes = terms.mtu_bytes
        self.strict = terms.strict
        self.over = False
        self.posted = -1
        self._ends: list[int] = []
        self._taken: list[int] = []
        self._reads: dict[int, tuple[int, int]] = {}
        self._values: dict[int, bytes | None] = {}
        self._interrupted: dict[int, tuple[int, int]] = {}
        self._next = _NOWHERE
        self._next_end = self._left_bytes = 0
        self._beyond = -1
        self._gap_ns = -1
        self._last_nak = -1
        self._due = -1
        self._due_ns = -1
        self._refusal = -1
        self._unready = _NOWHERE
        self._held = _NOWHERE
        self._waits = False
        self._patient_ns = -1
        self._paced_ns = -1
        self._malformed = -1
        self._doomed = False

    def fail(self, rule: str, text: str) -> None:
        """A rule is broken."""
        self.report.fail(rule, f"{self.terms.name}: {text}")

    # memory that is held

    def unready(self, now: int, psn: int) -> None:
        """The request that arrives now cannot be executed, for its memory is held: it is refused."""
        self._unready = self._refusal = near_to(psn, self.front)
        self._expect_answer(now, self._unready)

    def held(self, psn: int) -> None:
        """The answer to a READ has to wait, and with it all that is to be said later."""
        self._held, self._waits = near_to(psn, self.front), True

    def lifted(self, now: int) -> None:
        """Memory may be touched again."""
        if self._held != _NOWHERE:
            self._waits, self._patient_ns = False, now + HELD_NS
            until_ns = max(self._patient_ns, self._paced_ns)  # an answer keeps its pace all the same
            self._due_ns = until_ns if self._due_ns >= 0 else -1
            self._gap_ns = until_ns if self._gap_ns >= 0 else -1

    def paced(self, until_ns: int) -> None:
        """The answer to a READ keeps its pace: it goes on then, and with it what is to be said later."""
        self._paced_ns = until_ns
        self._due_ns = max(self._due_ns, until_ns) if self._due_ns >= 0 else -1
        self._gap_ns = max(self._gap_ns, until_ns) if self._gap_ns >= 0 else -1

    def ended(self, now: int) -> None:
        """The peer has ended the connection; but what keeps its pace may be behind an own refusal."""
        if now > self._paced_ns:
            self.over = True

    # what comes in

    def received(self, now: int, code: int, data: bytes) -> None:
        """A request arrives undamaged."""
        if self._due_ns >= 0 or self._gap_ns >= 0:
            self.advance(now)
        if self.over:
            return
        at = position_of(data, self.front)
        if at > self.front:
            self._beyond = max(self._beyond, at)
            if self._gap_ns < 0 and self._last_nak != self.front:
                self._gap_ns = max(now, self._patient_ns, self._paced_ns)
        elif at < self.front:
            self._again(now, at, code, data)
        else:
            self._execute(now, at, code, data)

    def _again(self, now: int, at: int, code: int, data: bytes) -> None:
        """A duplicate: SEND and RDMA WRITE are acknowledged again (9.7.5.1), READs answered in part."""
        if _MESSAGES >> code & 1:
            if data[8] & 0x80:
                self._expect_answer(now, at)
        elif code == READ_REQUEST:
            length = be(data, 24, 28)
            self._reads[at] = (at + packets_of(length, self._mtu_bytes), length)
            self._forget_oldest()

    def _execute(self, now: int, at: int, code: int, data: bytes) -> None:
        end = at + 1
        if code == READ_REQUEST:
            length = be(data, 24, 28)
            end = at + packets_of(length, self._mtu_bytes)
            self._reads[at] = (end, length)
            self._forget_oldest()
        elif _ATOMICS >> code & 1:
            self._values[at] = None
            self._forget_oldest()
        if _TAKES >> code & 1:
            if len(self._taken) >= self.posted >= 0 and self._refusal < 0:
                self._refusal = at
                self._expect_answer(now, at)
            self._taken.append(at)
        if _ENDS >> code & 1:
            self._ends.append(at)
            if self._doomed:
                self._doomed, self._malformed = False, at
        if data[8] & 0x80 or not _MESSAGES >> code & 1:
            self._expect_answer(now, end - 1)
        self.front = end
        if self._gap_ns != now or self._beyond < end:
            self._gap_ns = -1

    def _forget_oldest(self) -> None:
        for kept in (self._reads, self._values, self._interrupted):
            if len(kept) > KEPT_ANSWERS:
                del kept[next(iter(kept))]

    def _expect_answer(self, now: int, at: int) -> None:
        self._due = max(at, self._due) if self._due_ns >= 0 else at
        self._due_ns = max(now, self._due_ns, self._patient_ns, self._paced_ns)

    def advance(self, now: int) -> None:
        """Time goes on: what had to be said has been said.  A responder needs no longer than its turn."""
        if self._waits:
            return
        if 0 <= self._due_ns < now:
            if self.strict:
                rule = "what asks for an answer gets one"
                if self._refusal >= 0:
                    rule = "a message without a receive is refused"
                self.fail(rule, f"none to PSN {self._due & 0xFFFFFF}")
            self._due_ns = self._refusal = -1
        if 0 <= self._gap_ns < now:
            if self.strict and self._last_nak != self.front:
                self.fail("a gap is reported", f"PSN {self.front & 0xFFFFFF} is missing, without a NAK")
            self._gap_ns = -1

    def malformed(self, code: int, data: bytes) -> None:
        """What arrives now has its turn and cannot be: it must be refused (9.7.4.1), or the end of the WRITE
        that it begins.
        """
        if not self.over and self._malformed < 0 and position_of(data, self.front) == self.front:
            if code == WRITE_FIRST:
                self._doomed = True
            else:
                self._malformed = self.front

    def forged(self, data: bytes) -> None:
        """A packet that nobody sent arrives; it may look as if others were missing before it."""
        self._beyond = max(self._beyond, position_of(data, self.front))

    # what it answers

    def sent(self, now: int, code: int, data: bytes) -> None:
        """An answer goes out."""
        if self._due_ns >= 0 or self._gap_ns >= 0:
            self.advance(now)
        if self.over:
            self.fail("nothing is sent after the end", f"answer {code:#04x} for PSN {be(data, 9, 12)}")
            return
        at = position_of(data, self.front)
        if at >= self._held:
            self._held, self._waits, self._patient_ns = _NOWHERE, False, -1
        kind = data[12] >> 5 & 3 if code != READ_MIDDLE else ACK
        if code != ACKNOWLEDGE:
            if code == ATOMIC_ACKNOWLEDGE:
                self._check_atomic(at, data)
            else:
                self._check_read(at, code, data)
            if kind != ACK:
                self.fail("answers only to what came", f"a NAK in {code:#04x}")
        elif len(data) != LENGTHS[ACKNOWLEDGE]:
            self.fail("packets as long as they should be", f"an ACK of {len(data)} bytes")
        elif kind == ACK:
            self._check_acknowledgement(at, data)
        else:
            self._check_refusal(at, kind, data)
        if kind == ACK and code != READ_MIDDLE:
            self._check_credits(data)
            if self._malformed >= 0 and self._malformed <= at:
                self.fail("what cannot be is refused", f"PSN {self._malformed & 0xFFFFFF} was acknowledged")
            if at >= self._due and self._refusal < 0:
                self._due_ns = -1

    def _check_acknowledgement(self, at: int, data: bytes) -> None:
        """An ACK is for what was executed; its MSN counts all messages that were (9.7.7.1)."""
        if at >= self.front:
            self.fail("answers only to what came", f"ACK of PSN {at & 0xFFFFFF}")
        self._check_count(data, len(self._ends), len(self._ends))

    def _check_count(self, data: bytes, least: int, most: int) -> None:
        msn = be(data, 13, 16)
        if not (least & 0xFFFFFF <= msn <= most & 0xFFFFFF):
            self.fail("the MSN counts messages", f"{msn}, expected {least} … {most}")

    def _check_refusal(self, at: int, kind: int, data: bytes) -> None:
        """A NAK: a gap is reported once (9.7.5.2.8); all others take back that a request was executed."""
        code = data[12] & 31
        place = f"PSN {at & 0xFFFFFF}"
        if at <= self._malformed:
            self._malformed = -1
        if kind == RNR_NAK:
            self._check_rnr(at, code, place)
        elif code == 0:
            if at != self.front or self._beyond < at:
                self.fail("a gap is reported as it is", f"{place}, expected {self.front & 0xFFFFFF}")
            if self._last_nak == at:
                self.fail("a gap is reported once", place)
        else:
            self.over = True
            if at > self.front:
                self.fail("answers only to what came", f"NAK {code} of {place}")
        most = len(self._ends)
        if kind == RNR_NAK or code:
            self._take_back(at)
        # a READ may be refused after what follows it was executed
        self._check_count(data, len(self._ends), most if self.over else len(self._ends))
        self._last_nak = at
        self._gap_ns = self._due_ns = self._refusal = -1

    def _check_rnr(self, at: int, code: int, place: str) -> None:
        if at >= self.front:
            self.fail("answers only to what came", f"RNR NAK of {place}")
        if code != self.terms.rnr_timer:
            self.fail("an RNR NAK asks for the delay that was set", f"{code}, not {self.terms.rnr_timer}")
        before = bisect_left(self._taken, at)
        # a receive that was posted while the NAK waits for its turn behind an answer comes too late for it
        if before < self.posted and at != self._unready and at != self._refusal:
            self.fail("who has receives does not refuse", f"{place}: {self.posted - before} are left")

    def _take_back(self, at: int) -> None:
        """What was taken as executed from ``at`` on was not."""
        del self._ends[bisect_left(self._ends, at) :]
        del self._taken[bisect_left(self._taken, at) :]
        for kept in (self._reads, self._values, self._interrupted):
            for first in [first for first in kept if first >= at]:
                del kept[first]
        if not self.over:
            self.front = at

    def _check_credits(self, data: bytes) -> None:
        """An AETH gives no more credits than there are receives (9.7.7.2)."""
        code = data[12] & 31
        if code == NO_LIMIT or self.posted < 0:
            return
        # what is refused takes no receive, nor does what follows it
        taken = bisect_left(self._taken, self._refusal) if self._refusal >= 0 else len(self._taken)
        left = max(self.posted - taken, 0)
        if CREDIT_COUNTS[code] > left:
            self.fail("no more credits than receives", f"{CREDIT_COUNTS[code]} of {left}")

    def _check_read(self, at: int, code: int, data: bytes) -> None:
        """The packets of one READ's answer follow each other: full ones, the last as long as is left
        (9.7.5.1)."""
        if _READ_BEGINS >> code & 1:
            asked = self._reads.get(at)
            if asked is None:
                self.fail("answers only to what came", f"READ response PSN {at & 0xFFFFFF}")
                return
            end, left = asked
            if at < self._next:
                # what was begun goes on behind an answer that is given again
                self._interrupted[self._next] = (self._next_end, self._left_bytes)
        elif at in self._interrupted and self._next != at:
            end, left = self._interrupted.pop(at)
        elif self._next != at:
            awaited = "none" if self._next == _NOWHERE else str(self._next & 0xFFFFFF)
            self.fail("READ responses in order", f"PSN {at & 0xFFFFFF}, expected {awaited}")
            self._next = _NOWHERE
            return
        else:
            end, left = self._next_end, self._left_bytes
        last = _READ_ENDS >> code & 1 == 1
        count = payload_bytes(data, code)
        expected = left if last else self._mtu_bytes
        if last != (at + 1 == end) or count != expected:
            text = f"PSN {at & 0xFFFFFF}: {code:#04x} of {count} bytes, {left} are left"
            self.fail("READ responses in order", text)
        self._next, self._next_end, self._left_bytes = _NOWHERE if last else at + 1, end, left - count
        if code != READ_MIDDLE:
            self._check_count(data, bisect_right(self._ends, at), len(self._ends))

    def _check_atomic(self, at: int, data: bytes) -> None:
        """An atomic is executed once: however often it is answered, with the same value (9.7.5.1)."""
        if len(data) != LENGTHS[ATOMIC_ACKNOWLEDGE] or at not in self._values:
            self.fail("answers only to what came", f"atomic response PSN {at & 0xFFFFFF}")
            return
        value = data[16:24]
        if self._values[at] not in (None, value):
            self.fail("an atomic is executed once", f"PSN {at & 0xFFFFFF}: {value.hex()}")
        self._values[at] = value
        self._check_count(data, bisect_right(self._ends, at), len(self._ends))
