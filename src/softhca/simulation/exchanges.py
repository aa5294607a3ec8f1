"""Programs of worlds with connections to queues: what they send, and what they are judged by.

A program has a few *inboxes*, each with a protection domain, memory, a completion queue and receives of its
own, as processes of one host have.  With XRC an inbox is a shared receive queue of the program's XRC domain,
and one connection (a `Line`) to that domain serves them all (IBTA annex A14); with RC it is one queue pair's
receive queue.  Besides messages, WRITEs, READs and atomics, programs use ATOMIC WRITE and FLUSH (annex A19).
Only what programs see is judged: a message bears its line and number; what was written, flushed and counted
is looked at in memory.
"""

from __future__ import annotations

import itertools
import random
from collections import Counter
from dataclasses import dataclass

from softhca.driver.device import CqHandle, QpHandle, SrqHandle
from softhca.queues.control_fields import QPT_XRC_RECV, QPT_XRC_SEND
from softhca.simulation.arena import BASE_VA
from softhca.simulation.kinds import (
    ADD,
    ATOMIC_WRITE,
    FLUSH,
    FLUSHED,
    OPCODES,
    RC,
    READ,
    RECEIVED,
    REMOTE_ACCESS,
    REMOTE_INVALID,
    RETRY_EXCEEDED,
    SEND,
    SUCCESS,
    WRITE,
)
from softhca.simulation.mailboxes import Place
from softhca.simulation.node import Node

ONCE, WHOLE, ORDER, SUCCEEDS, PLACED, UNTORN, REFUSED = (
    "messages arrive once, in order, where they were sent", "messages arrive whole",
    "requests complete as they were posted", "requests that nothing hinders succeed",
    "what was flushed is there", "eight bytes are written in one step", "what is not allowed is refused",
)  # fmt: skip
SIGNALED, RIGHTS, FLUSH_GLOBAL, FLUSH_PERSISTENT = 2, 1 | 2 | 4 | 8, 256, 512
GLOBALLY, PERSISTENTLY, WHOLE_REGION = 1, 2, 16
"""What a FLUSH asks for, as work requests have it."""
HEADER_BYTES, WORD_BYTES = 12, 8
FLUSH_ABROAD, ODD_CELL, NO_QUEUE, FOREIGN_KEY = "flush abroad", "odd cell", "no queue", "foreign key"
"""Offences: persistence, which no region grants; eight bytes at an odd address; a queue that the domain has
not; a key of another protection domain."""
OFFENCES = {FLUSH_ABROAD: REMOTE_ACCESS, ODD_CELL: REMOTE_INVALID, NO_QUEUE: REMOTE_INVALID,
            FOREIGN_KEY: REMOTE_ACCESS}  # fmt: skip
_PLACE_STEP = 1 << 32


@dataclass(slots=True)
class Exchange:
    """One request of a line, to an inbox at its other end.

    ``slot`` is its own place among what the line writes there; ``through`` names, for a FLUSH, the WRITEs
    that it covers.  ``posted_ns`` and ``ended_ns`` are 0 before.
    """

    kind: str
    inbox: Inbox
    length: int
    number: int
    slot: int = 0
    content: bytes = b""
    through: tuple[Exchange, ...] = ()
    offence: str = ""
    posted_ns: int = 0
    ended_ns: int = 0
    arrived: bool = False
    status: int = SUCCESS


class Inbox:
    """Where a program receives: ``number`` names it among those of its program.

    ``closed_ns``: when its queue was closed; 0: it is open.
    """

    def __init__(
        self, program: ExchangeProgram, number: int, receives: int, largest: int, shared: bool
    ) -> None:  # fmt: skip
        self.program = program
        self.number = number
        self.closed_ns = 0
        self._largest = largest
        device = program.device
        self.pd = device.alloc_pd()
        self.cq: CqHandle = device.create_cq(2 * receives + 2)
        self.receives = receives
        self.received = self.place(receives * largest)
        self.constant = self.place(largest)
        self.constant.view[:] = program.dice.randbytes(largest)
        self.counter = self.place(WORD_BYTES)
        self.boards: dict[Line, Place] = {}
        self.cells: dict[Line, Place] = {}
        self.counted: Counter[int] = Counter()
        self.last: dict[Line, int] = {}
        self.seen: dict[Line, int] = {}
        self.srq: SrqHandle | None = None
        self.qp: QpHandle | None = None
        if shared:
            self.srq = device.create_srq(self.pd, receives, 1, 0, self.cq, program.domain)

    def place(self, length: int) -> Place:
        """Memory in its domain."""
        program = self.program
        return Place(program.device, self.pd, length, RIGHTS | FLUSH_GLOBAL, next(program.places))

    def board(self, line: Line, slots: int) -> Place:
        """Where a line writes, each WRITE at a place of its own."""
        if line not in self.boards:
            self.boards[line] = self.place(slots * self._largest)
        return self.boards[line]

    def cell(self, line: Line) -> Place:
        """Eight bytes that a line writes with ATOMIC WRITEs."""
        if line not in self.cells:
            self.cells[line] = self.place(WORD_BYTES)
        return self.cells[line]

    def post(self, slot: int) -> None:
        """Post a receive."""
        element = (self.received.va + slot * self._largest, self._largest, self.received.lkey)
        if self.srq is not None:
            self.srq.post(slot, [element])
        elif self.qp is not None:
            self.qp.post_recv(slot, [element])

    def turn(self) -> bool:
        """Take receives, and look at the cells as a processor would; whether anything was received."""
        worked = False
        for completion in self.cq.poll(1_000):
            if completion.opcode == RECEIVED:
                worked = True
                self._receive(completion)
        for line, cell in self.cells.items():
            value = int.from_bytes(cell.view, "little")
            written = line.cell_values(self)
            if value not in written:
                self.program.fail(UNTORN, f"{cell.view.hex()}, which {line} has not written")
            elif written.index(value) < self.seen.get(line, 0):
                self.program.fail(ORDER, f"{line}: an earlier ATOMIC WRITE shows again")
            else:
                self.seen[line] = written.index(value)
        return worked

    def _receive(self, completion: object) -> None:
        slot, status, length, number = (
            getattr(completion, name) for name in ("wr_id", "status", "byte_len", "qp_num")
        )  # fmt: skip
        start = slot * self._largest
        if status == SUCCESS:
            self._take(bytes(self.received.view[start : start + length]), number)
        elif status != FLUSHED:
            self.program.fail(SUCCEEDS, f"a receive ends with status {status}")
        if status == SUCCESS and not self.closed_ns:
            self.post(slot)

    def _take(self, content: bytes, qp_number: int) -> None:
        program = self.program
        sender, number = (int.from_bytes(content[at : at + 4], "big") for at in (0, 4))
        line = program.lines_here.get(qp_number)
        if line is None or line.number != sender or number >= len(line.exchanges):
            program.fail(WHOLE, f"queue pair {qp_number} got {content[:HEADER_BYTES].hex()}")
            return
        exchange = line.exchanges[number]
        if exchange.content != content:
            program.fail(WHOLE, f"message {number} of {line} is another one")
        if exchange.inbox is not self or number <= self.last.get(line, -1):
            program.fail(ONCE, f"message {number} of {line} in inbox {self.number}")
        self.last[line] = number
        exchange.arrived = True

    def close_queue(self, now: int) -> None:
        """Close the shared receive queue while it may be used."""
        self.closed_ns = now
        if self.srq is not None:
            self.srq.destroy()

    def close(self) -> None:
        """Give everything back."""
        if self.srq is not None and not self.closed_ns:
            self.srq.destroy()
        own = (self.received, self.constant, self.counter)
        for place in (*own, *self.boards.values(), *self.cells.values()):
            place.close()
        self.cq.destroy()
        self.program.device.dealloc_pd(self.pd)

    def judge(self, asked: list[Exchange]) -> None:
        """The world is at rest; ``asked`` are the atomics that were meant for it."""
        found = int.from_bytes(self.counter.view, "little")
        least = sum(each.status == SUCCESS for each in asked if each.ended_ns)
        if not least <= found <= len(asked) or any(count > 1 for count in self.counted.values()):
            self.program.fail(ONCE, f"counted to {found}; {least} of {len(asked)} succeeded")


class Line:
    """A connection from ``source`` to the inboxes of ``target``: requests go one way.

    ``failed``: a request has ended with an error, so that the rest is flushed.
    """

    def __init__(
        self, number: int, source: ExchangeProgram, target: ExchangeProgram, inboxes: list[Inbox], depth: int,
        largest: int,
    ) -> None:  # fmt: skip
        self.number = number
        self.source = source
        self.target = target
        self.inboxes = inboxes
        self.exchanges: list[Exchange] = []
        self.completed = 0
        self.failed = False
        self._depth = depth
        self._largest = largest
        self._places = itertools.count(BASE_VA * source.node.number + (number << 40), _PLACE_STEP)
        device = source.device
        self.sent = Place(device, source.pd, depth * largest, RIGHTS, next(source.places))
        if source.domain:
            self.qp = device.create_qp(
                source.pd, QPT_XRC_SEND, source.cq, None, None, depth, 0, 1, 0, 0, True
            )
            self.peer = target.device.create_qp(
                0, QPT_XRC_RECV, None, None, None, 0, 0, 0, 0, 0, True, xrcd=target.domain
            )
        else:
            (inbox,) = inboxes
            self.qp = device.create_qp(source.pd, RC, source.cq, source.cq, None, depth, 0, 1, 0, 0, True)
            self.peer = target.device.create_qp(
                inbox.pd, RC, inbox.cq, inbox.cq, None, 0, inbox.receives, 0, 1, 0, True
            )
            inbox.qp = self.peer
        source.lines[self.qp.number] = self
        target.lines_here[self.peer.number] = self

    def __str__(self) -> str:
        return f"line {self.number} from adapter {self.source.node.number} to {self.target.node.number}"

    def plan(self, kind: str, dice: random.Random, offence: str = "") -> Exchange:
        """One more request; what it moves comes from the dice."""
        inbox = dice.choice(self.inboxes)
        length = WORD_BYTES if kind in (ADD, ATOMIC_WRITE) else dice.randint(HEADER_BYTES, self._largest)
        made = Exchange(kind, inbox, length, len(self.exchanges), offence=offence)
        if kind == SEND:
            head = self.number.to_bytes(4, "big") + made.number.to_bytes(4, "big")
            made.content = head + dice.randbytes(length - len(head))
        elif kind == WRITE:
            made.content = dice.randbytes(length)
            made.slot = sum(each.kind == WRITE and each.inbox is inbox for each in self.exchanges)
            inbox.board(self, self._depth)
        elif kind == ATOMIC_WRITE:
            # torn, it would be neither of two words: all bytes of a word are like no other's
            made.content = bytes([made.number + 1]) * WORD_BYTES
            inbox.cell(self)
        elif kind == FLUSH:
            inbox.board(self, self._depth)
            made.through = tuple(
                each for each in self.exchanges if each.kind == WRITE and each.inbox is inbox
            )
        self.exchanges.append(made)
        return made

    def cell_values(self, inbox: Inbox) -> list[int]:
        """What its ATOMIC WRITEs to an inbox may have left there by now, in their order; 0 first."""
        posted = (
            each for each in self.exchanges
            if each.kind == ATOMIC_WRITE and each.inbox is inbox and each.posted_ns and not each.offence
        )  # fmt: skip
        return [0, *(int.from_bytes(each.content, "little") for each in posted)]

    def post(self, exchange: Exchange) -> None:
        """Post it."""
        inbox = exchange.inbox
        start = exchange.number * self._largest
        if exchange.content:
            self.sent.view[start : start + exchange.length] = exchange.content
        va, rkey, compare_add, swap = self._remote(exchange)
        number = inbox.srq.number if inbox.srq is not None else 0
        if exchange.offence == NO_QUEUE:
            number ^= 0x800000
        exchange.posted_ns = self.source.node.world.now
        elements = [(self.sent.va + start, exchange.length, self.sent.lkey)]
        self.qp.post_send(
            OPCODES[exchange.kind], SIGNALED, 0, exchange.number, va, rkey, compare_add, swap, 0, number, 0,
            [] if exchange.kind == FLUSH else elements, None,
        )  # fmt: skip
        self.qp.ring()

    def _remote(self, exchange: Exchange) -> tuple[int, int, int, int]:
        """Address and key, and the two numbers that atomics and FLUSH have."""
        inbox, kind = exchange.inbox, exchange.kind
        if kind == SEND:
            return 0, 0, 0, 0
        if kind == FLUSH:
            board = inbox.board(self, self._depth)
            # a range or the whole region, by turns
            whole = exchange.number % 2
            how = PERSISTENTLY if exchange.offence == FLUSH_ABROAD else GLOBALLY
            return board.va, board.rkey, self._depth * self._largest, how | (WHOLE_REGION if whole else 0)
        at = {READ: inbox.constant, ADD: inbox.counter}.get(kind)
        if kind == WRITE:
            at = inbox.board(self, self._depth)
        elif kind == ATOMIC_WRITE:
            at = inbox.cell(self)
        assert at is not None
        rkey = self.target.foreign.rkey if exchange.offence == FOREIGN_KEY else at.rkey
        va = self.target.foreign.va if exchange.offence == FOREIGN_KEY else at.va
        return va + exchange.slot * self._largest + (exchange.offence == ODD_CELL), rkey, 1, 0

    def request_completed(self, number: int, status: int) -> None:
        """A request has completed."""
        exchange = self.exchanges[self.completed]
        if number != exchange.number:
            self.source.fail(ORDER, f"{self}: {number} instead of {exchange.number}")
            return
        self.completed += 1
        exchange.ended_ns, exchange.status = self.source.node.world.now, status
        if status:
            self._judge_failure(exchange)
            return
        if self.failed:
            self.source.fail(ORDER, f"{self}: {exchange.kind} {number} succeeds behind an error")
        if exchange.offence:
            self.source.fail(REFUSED, f"{self}: {exchange.offence} succeeds")
        if 0 < exchange.inbox.closed_ns < exchange.posted_ns:
            self.source.fail(REFUSED, f"{self}: {exchange.kind} {number} to a queue that was closed")
        start = number * self._largest
        result = bytes(self.sent.view[start : start + exchange.length])
        if exchange.kind == READ and result != bytes(exchange.inbox.constant.view[: exchange.length]):
            self.source.fail(WHOLE, f"{self}: READ {number} brings something else")
        elif exchange.kind == ADD:
            exchange.inbox.counted[int.from_bytes(result, "little")] += 1
        for written in exchange.through:
            if not self._is_there(written):
                self.source.fail(PLACED, f"{self}: WRITE {written.number} behind FLUSH {number}")

    def _judge_failure(self, exchange: Exchange) -> None:
        first, self.failed = not self.failed, True
        if not first:
            if exchange.status != FLUSHED:
                self.source.fail(ORDER, f"{self}: status {exchange.status} behind an error")
            return
        closed = any(each.closed_ns > 0 for each in self.inboxes)
        legal = {OFFENCES[exchange.offence]} if exchange.offence else set()
        if self.source.breakable or closed:
            legal.add(RETRY_EXCEEDED)
        if exchange.inbox.closed_ns:
            legal.add(REMOTE_INVALID)
        if exchange.status not in legal:
            self.source.fail(SUCCEEDS, f"{self}: {exchange.kind} {exchange.number}: status {exchange.status}")

    def _is_there(self, written: Exchange) -> bool:
        start = written.slot * self._largest
        board = written.inbox.boards[self]
        return bytes(board.view[start : start + written.length]) == written.content

    def judge(self) -> None:
        """The world is at rest."""
        posted = [each for each in self.exchanges if each.posted_ns]
        if self.completed != len(posted):
            self.source.fail(ORDER, f"{self}: {self.completed} of {len(posted)} requests have completed")
        for each in posted:
            if not each.ended_ns or each.status:
                continue
            if each.kind == SEND and not each.arrived and not each.inbox.closed_ns:
                self.source.fail(ONCE, f"{self}: message {each.number} completed, and did not arrive")
            elif each.kind == WRITE and not self._is_there(each):
                self.source.fail(WHOLE, f"{self}: WRITE {each.number} is not there")
        for inbox in self.inboxes:
            written = [each for each in posted if each.kind == ATOMIC_WRITE and each.inbox is inbox]
            done = [each for each in written if each.ended_ns and not each.status]
            if done and int.from_bytes(inbox.cell(self).view, "little") not in {
                int.from_bytes(each.content, "little") for each in written[written.index(done[-1]) :]
            }:
                self.source.fail(WHOLE, f"{self}: ATOMIC WRITE {done[-1].number} is not there")

    def close(self) -> None:
        """Give everything back."""
        self.qp.destroy()
        self.peer.destroy()
        self.sent.close()


class ExchangeProgram:
    """The program of a host.  ``breakable``: links may lose so much that a connection fails by itself.
    ``domain``: its XRC domain, 0 without XRC.  ``foreign``: memory of a domain that no inbox has."""

    def __init__(self, node: Node, dice: random.Random, breakable: bool, xrc: bool) -> None:
        self.node = node
        self.dice = dice
        self.breakable = breakable
        self.device = node.device
        self.pd = self.device.alloc_pd()
        self.domain = self.device.open_xrcd() if xrc else 0
        self.places = itertools.count(BASE_VA * node.number, _PLACE_STEP)
        self.foreign = Place(self.device, self.pd, 1 << 12, RIGHTS | FLUSH_GLOBAL, next(self.places))
        self.inboxes: list[Inbox] = []
        self.lines: dict[int, Line] = {}
        self.lines_here: dict[int, Line] = {}

    def fail(self, rule: str, text: str) -> None:
        """A rule is broken."""
        self.node.world.report.fail(rule, f"adapter {self.node.number}: {text}")

    def add_inbox(self, receives: int, largest: int) -> Inbox:
        """One more inbox."""
        made = Inbox(self, len(self.inboxes), receives, largest, bool(self.domain))
        self.inboxes.append(made)
        return made

    def turn(self) -> bool:
        """Take completions; whether there were any."""
        worked = False
        for completion in self.cq.poll(1_000):
            worked = True
            self.lines[completion.qp_num].request_completed(completion.wr_id, completion.status)
        return any([inbox.turn() for inbox in self.inboxes]) or worked

    def open_cq(self, entries: int) -> None:
        """The completion queue of its lines."""
        self.cq = self.device.create_cq(entries)

    def close(self) -> None:
        """Give everything back, but for lines."""
        for inbox in self.inboxes:
            inbox.close()
        self.cq.destroy()
        self.foreign.close()
        if self.domain:
            self.device.close_xrcd(self.domain)
        self.device.dealloc_pd(self.pd)
