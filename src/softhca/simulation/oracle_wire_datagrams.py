"""The oracle of the wire for reliable datagrams: what EE contexts say to each other, by packets alone.

It follows each direction between two EE contexts (IBTA vol. 1, 9.7.8): the requester's PSNs, messages and
repetitions, one message under way at a time, RESYNC behind what was given up; the responder's answers, which
say no more than has come, and nothing behind a refusal but after a RESYNC.  It knows nothing of what is
inside adapters, and nothing of whether a queue pair may have a message.
"""

from __future__ import annotations

from softhca.simulation.oracle import Report
from softhca.simulation.oracle_wire_packets import be, follows, packets_of, wrong_length

RD_SERVICE = 0x40
RDETH_BYTES, DETH_BYTES, BTH_BYTES = 4, 8, 12
EE_AT, QKEY_AT, SOURCE_QP_AT, SYNDROME_AT, RETH_AT = 13, 16, 21, 16, 24
RESYNC, READ_REQUEST, ACKNOWLEDGE, ATOMIC_ACKNOWLEDGE = 0x15, 0x0C, 0x11, 0x12
READ_RESPONSES = frozenset({0x0D, 0x0E, 0x0F, 0x10})
ANSWERS = READ_RESPONSES | {ACKNOWLEDGE, ATOMIC_ACKNOWLEDGE}
BEGINS = frozenset({0x00, 0x04, 0x05, 0x06, 0x0A, 0x0B, READ_REQUEST, 0x13, 0x14, RESYNC})
NOTHING = -1
NAK_SEQUENCE, FATAL = 0x60, frozenset({0x61, 0x62, 0x63, 0x64})
GAPS, ONE_MESSAGE, SAME, RESYNCS, TRUTH, REFUSED, NAMES, SHAPE = (
    "PSNs without gaps", "one message of an EE context under way", "packets are sent again as they were",
    "RESYNC behind what was given up", "answers say what has come", "nothing goes on behind a refusal",
    "packets name EE contexts and queue pairs of their channel", "packets as they should be",
)  # fmt: skip

Key = tuple[int, int]
"""(adapter, EE context)"""


def distance(start: int, end: int) -> int:
    """How far a PSN is behind another, with a sign."""
    gap = end - start & 0xFFFFFF
    return gap - (1 << 24) if gap & 0x800000 else gap


class Direction:
    """Requests of one EE context to another, and their answers."""

    def __init__(self, report: Report, one: Key, other: Key, psn: int, mtu_bytes: int) -> None:
        self.report = report
        self.name = f"adapter {one[0]}, EE context {one[1]}"
        self.peer = f"adapter {other[0]}, EE context {other[1]}"
        self.requester, self.responder = one, other
        self.mtu_bytes = mtu_bytes
        self.next = self.answered = self.arrived = psn
        self.copies: dict[int, bytes] = {}
        self.names = b""
        self.before = NOTHING
        self.sources: set[int] = set()
        self.refused_psn = NOTHING

    def fail(self, rule: str, text: str, responder: bool = False) -> None:
        """A rule is broken."""
        self.report.fail(rule, f"{self.peer if responder else self.name}: {text}")

    # what the requester sends

    def request_sent(self, code: int, data: bytes) -> None:
        """A request goes out."""
        psn = be(data, 9, 12)
        step = distance(self.next, psn)
        if step > 0:
            self.fail(GAPS, f"PSN {psn} instead of {self.next}")
            return
        if step == 0:
            self._new(code, psn, data)
        elif distance(self.answered, psn) < 0:
            self.fail(SAME, f"PSN {psn} goes again, and was answered")
        elif code != READ_REQUEST and self.copies.get(psn) != _unasked(data):
            self.fail(SAME, f"PSN {psn} differs from what was sent at first")

    def _new(self, code: int, psn: int, data: bytes) -> None:
        names = data[5:8] + data[QKEY_AT:RETH_AT]
        whole = not _goes_on(self.before)
        pending = distance(self.answered, self.next)
        if code == RESYNC:
            if pending == 0 and whole:
                self.fail(RESYNCS, f"RESYNC of PSN {psn} behind what was answered")
        elif code in BEGINS:
            if pending or not whole:
                self.fail(ONE_MESSAGE, f"PSN {psn} begins, {pending} PSNs before it are not answered")
        elif whole or not follows(code, self.before):
            self.fail(SHAPE, f"PSN {psn}: {code:#04x} behind {self.before:#04x}")
        elif names != self.names:
            self.fail(NAMES, f"PSN {psn} goes on with {names.hex()} instead of {self.names.hex()}")
        if code != RESYNC:
            wrong = wrong_length(_without_headers(data), code, self.mtu_bytes)
            if wrong:
                self.fail(SHAPE, f"PSN {psn}: {wrong}")
        self.before, self.names = code, names
        self.sources.add(be(data, SOURCE_QP_AT, RETH_AT))
        self.copies[psn] = _unasked(data)
        self.next = psn + self._span(code, data) & 0xFFFFFF

    def _span(self, code: int, data: bytes) -> int:
        """How many PSNs a request takes."""
        if code != READ_REQUEST:
            return 1
        return packets_of(be(data, RETH_AT + 12, RETH_AT + 16), self.mtu_bytes)

    # what the responder takes and says

    def request_received(self, code: int, data: bytes) -> None:
        """A request arrives."""
        psn = be(data, 9, 12)
        step = distance(self.arrived, psn)
        if code == RESYNC and step >= 0:
            self.arrived, self.refused_psn = psn + 1 & 0xFFFFFF, NOTHING
        elif step == 0 and self.refused_psn == NOTHING:
            self.arrived = psn + self._span(code, data) & 0xFFFFFF

    def answer_sent(self, code: int, data: bytes) -> None:
        """An answer goes out."""
        psn = be(data, 9, 12)
        step = distance(psn, self.arrived)
        if be(data, 5, 8) not in self.sources:
            self.fail(NAMES, f"an answer to queue pair {be(data, 5, 8)}, which asks nothing", True)
        syndrome = data[SYNDROME_AT] if code == ACKNOWLEDGE else 0
        if syndrome == NAK_SEQUENCE:
            if step:
                self.fail(TRUTH, f"a sequence NAK of PSN {psn} where {self.arrived} is expected", True)
            return
        if step <= 0:
            self.fail(TRUTH, f"an answer to PSN {psn} where {self.arrived} is expected", True)
        elif syndrome & 0x60 == 0x20:
            self.arrived = psn
        elif syndrome in FATAL:
            self._refuse(psn)
        elif self.refused_psn != NOTHING and distance(self.refused_psn, psn) >= 0:
            self.fail(REFUSED, f"PSN {psn} is acknowledged behind the NAK of {self.refused_psn}", True)

    def _refuse(self, psn: int) -> None:
        if self.refused_psn == NOTHING:
            self.refused_psn = psn
            self.arrived = psn + 1 & 0xFFFFFF

    def answer_received(self, code: int, data: bytes) -> None:
        """An answer arrives at the requester."""
        psn = be(data, 9, 12)
        if distance(self.answered, psn) < 0 or distance(psn, self.next) <= 0:
            return
        syndrome = data[SYNDROME_AT] if code == ACKNOWLEDGE else 0
        if syndrome & 0x60:
            self._answer(psn)  # RNR or a NAK: what is before it has been executed
        elif code not in READ_RESPONSES or psn == self.answered:
            self._answer(psn + 1 & 0xFFFFFF)

    def _answer(self, end: int) -> None:
        while self.answered != end:
            self.copies.pop(self.answered, None)
            self.answered = self.answered + 1 & 0xFFFFFF


def _goes_on(code: int) -> bool:
    """Whether a message goes on behind a packet."""
    return code in (0x00, 0x01, 0x06, 0x07)


def _unasked(data: bytes) -> bytes:
    """A request but for whether it asks for an answer, and its ICRC."""
    return data[:8] + bytes([data[8] & 0x7F]) + data[9:-4]


def _without_headers(data: bytes) -> bytes:
    """A request without RDETH and DETH: as long as one of a reliable connection."""
    return data[:BTH_BYTES] + data[BTH_BYTES + RDETH_BYTES + DETH_BYTES :]


class DatagramOracle:
    """All channels of a world, told of every packet of reliable datagrams."""

    def __init__(self, report: Report) -> None:
        self.report = report
        self.directions: dict[Key, Direction] = {}
        self.answering: dict[Key, Direction] = {}

    def connect(self, one: Key, other: Key, psn: int, mtu_bytes: int) -> None:
        """EE context ``one`` begins to send to ``other`` at ``psn``; it has been in RESET."""
        direction = Direction(self.report, one, other, psn, mtu_bytes)
        self.directions[other] = self.answering[one] = direction

    def sent(self, source: int, destination: int, data: bytes) -> None:
        """A packet goes from one adapter to another."""
        code = data[0] & 0x1F
        found = self._find(destination, code, data)
        if found is None:
            self.report.fail(NAMES, f"adapter {source}: {data[:16].hex()} … is of no channel")
            return
        sender = found.responder if code in ANSWERS else found.requester
        if sender[0] != source:
            self.report.fail(NAMES, f"adapter {source}: {data[:16].hex()} … is of adapter {sender[0]}")
        elif code in ANSWERS:
            found.answer_sent(code, data)
        else:
            found.request_sent(code, data)

    def received(self, destination: int, data: bytes) -> None:
        """A packet arrives as it was sent."""
        code = data[0] & 0x1F
        found = self._find(destination, code, data)
        if found is not None and code in ANSWERS:
            found.answer_received(code, data)
        elif found is not None:
            found.request_received(code, data)

    def _find(self, destination: int, code: int, data: bytes) -> Direction | None:
        """The direction that a packet for an adapter belongs to."""
        key = destination, be(data, EE_AT, EE_AT + 3)
        return self.answering.get(key) if code in ANSWERS else self.directions.get(key)
