"""What the requests of a reliable queue pair may look like on the wire (IBTA vol. 1, 9.7.2 to 9.7.7).

A `Requester` sees what one queue pair sends as a requester and what of its peer's answers arrives; from
these it follows, by the standard's rules alone, what is answered and what the queue pair may do.
Positions are PSNs without their wrap.
"""

from __future__ import annotations

from softhca.simulation.oracle import Report
from softhca.simulation.oracle_wire_packets import (
    ACK,
    ACKNOWLEDGE,
    ATOMICS,
    CREDIT_COUNTS,
    ENDS,
    LENGTHS,
    MESSAGES,
    NAK,
    NO_LIMIT,
    NOTHING,
    READ_MIDDLE,
    READ_REQUEST,
    RNR_NAK,
    RNR_RETRY_INFINITE,
    RNR_TIMERS_US,
    SENDS,
    TIMEOUT_UNIT_NS,
    WITH_IMMEDIATE_WRITES,
    WRITE_FIRST,
    WRITE_MIDDLE,
    WRITE_ONLY,
    Hold,
    Links,
    Terms,
    be,
    follows,
    inside,
    mask_of,
    near_to,
    packets_of,
    payload_bytes,
    position_of,
    wrong_length,
)

LATE_NS = 200_000
"""So much later than it could a queue pair goes on after an RNR NAK in a world without losses."""
HELD_NS = 200_000
"""So long what could not be placed waits before it is asked for again."""
RETRY_EXCEEDED, RNR_EXCEEDED = 12, 13
"""ibv_wc_status"""
_ENDS = mask_of(ENDS)
_MESSAGES = mask_of(MESSAGES)
_SENDS = mask_of(SENDS)
_TAKING = mask_of(SENDS | WITH_IMMEDIATE_WRITES)
_ATOMICS = mask_of(ATOMICS)
_WITH_RETH = mask_of({WRITE_FIRST, WRITE_ONLY, WRITE_ONLY + 1})
_OPEN_WRITES = mask_of({WRITE_FIRST, WRITE_MIDDLE})

Range = tuple[int, int, int, int]
"""What an RDMA READ asks for: its end (position), address, key and bytes."""


class Requester:
    """``high``: never sent; ``una``: the oldest that is not answered; ``cursor``: after what was sent last.

    ``sharers`` counts the queue pairs that talk to the same adapter.
    """

    def __init__(
        self, terms: Terms, report: Report, links: Links, holds: tuple[Hold, ...] = ()
    ) -> None:
        self.terms = terms
        self._holds = holds
        self.report = report
        self.links = links
        self.sharers = 1
        self.high = self.una = self.cursor = terms.psn
        self._first_psn = terms.psn
        self._mtu_bytes = terms.mtu_bytes
        self.timeout_ns = TIMEOUT_UNIT_NS << terms.timeout if terms.timeout else 0
        self.over = False
        self.strict = terms.strict
        self._slow = 1 - 2 * terms.skew_ppm / 1e6 - 1e-6
        self._packets: dict[int, bytes] = {}
        self._reads: dict[int, Range] = {}
        self._sent_ns: dict[int, int] = {}
        self._awaited: list[tuple[int, int]] = []
        self._open: list[tuple[int, int]] = []
        self._before = NOTHING
        self._first = terms.psn
        self._left_bytes = -1
        self._messages = 0
        self._limit = -1
        self._cause = False
        self._owed = False
        self._back = False
        self._tries = 0
        self._progress_ns = 0
        self._last_ns = 0
        self._rnr: tuple[int, int] | None = None
        self._rnr_vague = False
        self._refusals = 0
        self._unseen = 0
        self._unplaced = False
        self._unplaced_ns = -1
        self._missing: tuple[int, int] = (-1, -1)

    def fail(self, rule: str, text: str) -> None:
        """A rule is broken."""
        self.report.fail(rule, f"{self.terms.name}: {text}")

    # what it sends

    def sent(self, now: int, code: int, data: bytes) -> None:
        """A request packet goes out."""
        if self.over:
            self.fail("nothing is sent after the end", f"PSN {be(data, 9, 12)}")
            return
        at = position_of(data, self.high)
        if at > self.high or at < self._first_psn or (at > self.cursor and at > self.una):
            self.fail("PSNs without gaps", f"PSN {at & 0xFFFFFF} after {self.cursor - 1 & 0xFFFFFF}")
            return
        refused = self._rnr
        if refused is not None:
            since_ns, delay_ns = refused
            self._check_delay(now, at < self.cursor and self._progress_ns <= since_ns, since_ns, delay_ns)
            self._rnr = None
        if self._unplaced:
            self._ask_again(now, at)
        elif at < self.cursor:
            self._go_back(now, at, refused is not None)
        elif self._cause and at == self.una:
            # what is asked for, where an earlier going back had come to
            self._unseen += 1
            self._cause = False
        elif self._owed:
            self.fail("what is asked for goes again", f"PSN {at & 0xFFFFFF} goes instead")
        self._owed = False
        end = at + 1
        if code == READ_REQUEST:
            end = at + packets_of(be(data, 24, 28), self._mtu_bytes)
        if at == self.high:
            self._check_new(at, end, code, data)
        elif code == READ_REQUEST:
            self._check_part(at, end, data)
        else:
            self._check_copy(at, data)
        if code == READ_REQUEST or _ATOMICS >> code & 1:
            self._open = [one for one in self._open if one[1] > self.una]
            self._open.append((at, end))
            if len(self._open) > self.terms.reads:
                self.fail("no more reads than agreed", f"{len(self._open)} of {self.terms.reads}")
        self._sent_ns[at] = self._last_ns = now
        self.cursor = end
        if end > self.high:
            self.high = end

    def _check_new(self, at: int, end: int, code: int, data: bytes) -> None:
        """A packet that was never sent before: opcode, lengths, credits."""
        if not follows(code, self._before):
            self.fail("opcodes in sequence", f"{code:#04x} after {self._before:#04x}")
        if not inside(self._before):
            self._first = at
        self._before = code
        if _MESSAGES >> code & 1:
            wrong = wrong_length(data, code, self._mtu_bytes) or self._wrong_total(code, data)
            if wrong:
                self.fail("packets as long as they should be", f"PSN {at & 0xFFFFFF}: {wrong}")
        elif len(data) != LENGTHS[code]:
            self.fail("packets as long as they should be", f"PSN {at & 0xFFFFFF}: {len(data)} bytes")
        if self._limit >= 0:
            self._check_credits(at, code)
        if _ENDS >> code & 1:
            self._messages += 1
        if code == READ_REQUEST:
            self._reads[at] = (end, be(data, 12, 20), be(data, 20, 24), be(data, 24, 28))
            self._awaited.append((at, end))
        else:
            self._packets[at] = data
            if _ATOMICS >> code & 1:
                self._awaited.append((at, end))

    def _wrong_total(self, code: int, data: bytes) -> str:
        """An RDMA WRITE brings as many bytes as its RETH says (9.7.4.1.6)."""
        if _SENDS >> code & 1:
            return ""
        if _WITH_RETH >> code & 1:
            self._left_bytes = be(data, 24, 28)
        self._left_bytes -= payload_bytes(data, code)
        ends = not _OPEN_WRITES >> code & 1
        if self._left_bytes < 0 or ends == (self._left_bytes > 0):
            return f"{self._left_bytes} bytes of the message are left"
        return ""

    def _check_credits(self, at: int, code: int) -> None:
        """Beyond its credits a queue pair may send one packet, with nothing else under way (9.7.7.2.5).

        Once that is acknowledged its message has a receive, and the rest may follow.
        """
        if self._messages < self._limit or not _TAKING >> code & 1:
            return
        if self.una <= self._first and at > self.una:
            text = f"PSN {at & 0xFFFFFF} of message {self._messages + 1}, {self._limit} may go"
            self.fail("sends wait for credits", text)

    def _check_part(self, at: int, end: int, data: bytes) -> None:
        """A READ is asked for again: the same bytes, or what is left of them (9.7.5.1)."""
        for first, read in self._reads.items():
            if first <= at < read[0]:
                break
        else:
            if at >= self.una:
                self.fail("packets are repeated as they were", f"PSN {at & 0xFFFFFF} was no READ")
            return
        last, va, key, length = read
        skipped = (at - first) * self.terms.mtu_bytes
        asked_va, asked_key, asked = be(data, 12, 20), be(data, 20, 24), be(data, 24, 28)
        if (
            asked_key != key
            or asked_va != (va + skipped) & 0xFFFFFFFFFFFFFFFF
            or skipped + asked > length
            or (end == last and skipped + asked != length)
        ):
            self.fail("packets are repeated as they were", f"READ PSN {at & 0xFFFFFF}")

    def _check_copy(self, at: int, data: bytes) -> None:
        """A packet goes again: AckReq apart it has not changed."""
        before = self._packets.get(at)
        if before is None:
            if at >= self.una:
                self.fail("packets are repeated as they were", f"PSN {at & 0xFFFFFF} is another request")
        elif before[:8] != data[:8] or before[9 : len(before) - 4] != data[9 : len(data) - 4]:
            self.fail("packets are repeated as they were", f"PSN {at & 0xFFFFFF} has changed")

    # memory that is held

    def unplaced(self, now: int, psn: int) -> None:
        """The answer ``psn`` that arrives now cannot be placed: it is dropped, and what follows it too."""
        at = near_to(psn, self.una)
        if not self.una <= at < self.high:
            self.fail("only what is held waits", f"PSN {psn} is not awaited")
        self._missing = now, at
        if not self._unplaced and self._rnr is None:
            self._unplaced, self._unplaced_ns = True, now
            self._cause = self._owed = self._back = False
            self._tries = self._unseen = self._refusals = 0

    def _ask_again(self, now: int, at: int) -> None:
        """What could not be placed is asked for again, soon, before anything else and without a retry.  The
        rest of that answer may come meanwhile, and is no loss to be heeded."""
        waited_ns = now - self._unplaced_ns
        self._unplaced = False
        self._back = True
        self._open.clear()
        if at != self.una:
            text = f"PSN {at & 0xFFFFFF} goes instead of {self.una & 0xFFFFFF}"
            self.fail("what could not be placed is asked for again", text)
        if self.una == self.high or not self.terms.steady:
            return
        disturbed = self.links.disorderly or any(self.links.losses.values())
        alone = self.sharers == 1 or not self._held_since(self._unplaced_ns)
        late_ns = LATE_NS if alone and not disturbed else self._latest_ns()
        if waited_ns > HELD_NS / self._slow + late_ns:
            self.fail("what could not be placed is asked for again", f"only after {waited_ns} ns")

    def _held_since(self, time_ns: int) -> bool:
        return any(hold.since(time_ns) for hold in self._holds)

    # going back

    def _check_delay(self, now: int, again: bool, since_ns: int, delay_ns: int) -> None:
        """After an RNR NAK nothing goes before its delay is over, and what was refused soon after it
        (9.7.5.2.8)."""
        waited_ns = now - since_ns
        if waited_ns < delay_ns * self._slow:
            self.fail("an RNR NAK is waited for", f"{waited_ns} of {delay_ns} ns")
        elif again and self.terms.steady and not self._rnr_vague and not self._held_since(since_ns):
            disturbed = self.links.disorderly or any(self.links.losses.values())
            late_ns = self._latest_ns() if disturbed else LATE_NS
            if waited_ns > delay_ns / self._slow + late_ns:
                self.fail("after an RNR NAK it goes on", f"after {waited_ns} ns instead of {delay_ns}")

    def _latest_ns(self) -> int:
        """A time-out comes within 4 T (9.7.6.1), but who shares a window may wait for the others'."""
        return 4 * self.timeout_ns * (1 + self.sharers)

    def _go_back(self, now: int, at: int, refused: bool) -> None:
        """It sends again: with a cause, in time, and no more often than it may (9.7.6.1)."""
        self._open.clear()
        if refused:
            self._cause = False
            if self.terms.rnr_retry != RNR_RETRY_INFINITE and self._refusals > self.terms.rnr_retry:
                text = f"PSN {at & 0xFFFFFF}, {self._refusals} refusals"
                self.fail("no more RNR retries than asked for", text)
            return
        place = f"PSN {at & 0xFFFFFF}"
        # who lost nothing may still wait for room that others hold, who did
        if self.terms.quiet and not (self.links.disorderly or any(self.links.losses.values())):
            self.fail("nothing is sent again without cause", place)
        self._back = True
        self._tries += 1
        if self._tries > self.terms.retries:
            self.fail("no more retries than asked for", f"{place} for the {self._tries}th time")
        if not self._cause:
            self._time_out(now, at, place)
        self._cause = False

    def _time_out(self, now: int, at: int, place: str) -> None:
        """Nothing that was received asks for it: so a timer has run out (9.7.6.1)."""
        if not self.timeout_ns:
            self.fail("nothing is sent again without cause", f"{place}, and there is no timer")
            return
        waited_ns = now - max(self._sent_ns.get(at, 0), self._progress_ns)
        if waited_ns < self.timeout_ns * self._slow:
            self.fail("no time-out before its time", f"{place} after {waited_ns} of {self.timeout_ns} ns")
        elif self._held_since(min(self._progress_ns, self._last_ns)):
            return
        elif self.terms.steady and now - max(self._last_ns, self._progress_ns) > self._latest_ns():
            self.fail("time-outs come", f"{place} after {waited_ns} ns, T is {self.timeout_ns} ns")
        elif self.strict and self.terms.steady and not self.links.disorderly:
            since = min(self._progress_ns, self._last_ns) - self.timeout_ns
            for times in self.links.losses.values():
                if times and times[len(times) - 1] >= since:
                    return
            self.fail("nothing is sent again without cause", f"{place}: nothing was lost")

    # what comes back

    def received(self, now: int, code: int, data: bytes) -> None:
        """An answer arrives undamaged."""
        if self.over:
            return
        at = position_of(data, self.una)
        kind = ACK
        if code != READ_MIDDLE:
            kind = data[12] >> 5 & 3
        if at < self.una or at >= self.high:
            if at == self.una - 1 and code == ACKNOWLEDGE and kind == ACK:
                self._take_credits(data)
            return
        if code == ACKNOWLEDGE:
            if kind == ACK:
                self._take_credits(data)
                self._advance(now, at + 1)
            elif kind == RNR_NAK:
                self._refused(now, at, data[12] & 31)
            elif kind == NAK:
                self._advance(now, at)
                if data[12] & 31 == 0 or self.una != at:
                    self._ask()
                else:
                    self.over = True
            return
        if self._missing[0] == now and at >= self._missing[1]:
            self._advance(now, self._missing[1])
            return
        self._advance(now, at)
        if at != self.una:
            self._ask()
            return
        first, last = self._awaited[0] if self._awaited else (at + 1, at)
        if not first <= at < last:
            self.over = True
            return
        if code != READ_MIDDLE:
            self._take_credits(data)
        if at + 1 == last:
            del self._awaited[0]
        self._move(now, at + 1)

    def _refused(self, now: int, at: int, timer: int) -> None:
        """An RNR NAK: what is before it is answered, and it is waited for once (9.7.5.2.8).  What it refuses
        has arrived: all retries for what does not arrive are there again."""
        if self._unplaced:
            return
        if self._rnr is not None:
            since_ns, delay_ns = self._rnr
            if now - since_ns >= delay_ns * self._slow:
                # whether it still waited nobody saw
                self._rnr_vague = True
                self._unseen += 1
            return
        self._advance(now, at)
        if self.una != at:
            self._ask()
            return
        self._rnr = now, RNR_TIMERS_US[timer] * 1_000
        self._rnr_vague = False
        self._refusals += 1
        self._tries = 0

    def _advance(self, now: int, end: int) -> None:
        """All before ``end`` is answered, but for READs and atomics whose answers have not come: those are
        lost (implied NAK, 9.7.5.2.6)."""
        if self._awaited:
            first, last = self._awaited[0]
            if first < end:
                self._move(now, max(self.una, first))
                if last <= end:
                    self._ask()
                return
        self._move(now, end)

    def _ask(self) -> None:
        """A NAK, said or implied: where it is the first since there was progress, it must be heeded before
        anything else goes (9.7.5.2.6, 9.7.5.2.8)."""
        if self._unplaced:
            return
        self._cause = True
        self._owed = self._rnr is None and not self._back

    def _move(self, now: int, end: int) -> None:
        if end <= self.una:
            return
        for at in range(self.una, end):
            self._packets.pop(at, None)
            self._sent_ns.pop(at, None)
        while self._reads:
            first = next(iter(self._reads))
            if self._reads[first][0] > end:
                break
            del self._reads[first]
        self.una = end
        if self.cursor < end:
            self.cursor = end
            self._open.clear()
        since_ns = max(self._last_ns, self._progress_ns)
        if self.sharers > 1 and self.timeout_ns and now - since_ns >= self.timeout_ns * self._slow:
            self._cause = True  # its timer may have run out: what goes again may wait for the others' room
        # what it went back for before there was progress, and has not sent yet, counts for nothing any more
        self._unseen = int(self._cause)
        self._tries = -self._unseen
        self._refusals = 0
        self._owed = self._back = False
        self._progress_ns = now

    def _take_credits(self, data: bytes) -> None:
        """So many messages may be sent (9.7.7.2.4)."""
        code = data[12] & 31
        if code == NO_LIMIT:
            self._limit = -1
        else:
            known = self._limit if self._limit >= 0 else 0
            msn = near_to(be(data, 13, 16), self._messages)
            self._limit = max(known, msn + CREDIT_COUNTS[code])

    # the end

    def failed(self, status: int) -> None:
        """Its program was told of an error: nothing is sent any more, and who gave up has used all retries
        (9.7.6.1, 9.7.5.2.8)."""
        if self.over:
            return
        if status == RETRY_EXCEEDED and self.terms.strict and self._tries + self._unseen < self.terms.retries:
            self.fail("all retries are used", f"{self._tries} of {self.terms.retries}")
        if status == RNR_EXCEEDED and self._refusals + self._unseen <= self.terms.rnr_retry:
            self.fail("all RNR retries are used", f"{self._refusals - 1} of {self.terms.rnr_retry}")
        self.over = True
