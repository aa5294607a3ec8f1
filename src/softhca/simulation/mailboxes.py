"""Mailboxes in a world: rings whose blocks land, and are read, in pieces and in disorder.

A direction has a writer and a reader, with two queue pairs between them.  What a real machine may do
to one block is done here on purpose: each range is cut at any bytes, and the pieces go out in any order over
both queue pairs, so that they land in any order.  In the read variant the writer changes its published memory
piece by piece, while the reader fetches it piece by piece.  The hash is BLAKE2b, for which worlds need no
package.
"""

from __future__ import annotations

import itertools
import random
from abc import abstractmethod
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from softhca.driver.device import CqHandle, DeviceDriver, QpHandle
from softhca.machine.primitives import address_of
from softhca.mailbox.blocks import DATA, TAKEN, TORN
from softhca.mailbox.remote_reader import RemoteReader
from softhca.mailbox.rings import Inbox, Outbox
from softhca.mailbox.terms import Terms
from softhca.simulation.arena import BASE_VA
from softhca.simulation.generation import GenerationEnd
from softhca.simulation.kinds import FLUSHED, RC, RETRY_EXCEEDED
from softhca.simulation.node import Node

LOCAL, REMOTE_WRITE, REMOTE_READ = 1, 2, 4
"""ibv_access_flags"""
DEPTH = 64
MOST_PIECES = 4
WRITE_OPCODE, READ_OPCODE = 0, 4
SIGNALED = 2
LONGEST_PAUSE_NS = 20_000
MOST_READS = 5_000
_PLACE_STEP = 1 << 32


class Place:
    """Registered memory: ``view`` of it at ``address`` in this process, ``va`` in requests."""

    def __init__(self, device: DeviceDriver, pd: int, length: int, access: int, va: int) -> None:
        whole = bytearray(length + 8)
        start = -address_of(whole) % 8
        self.view = memoryview(whole)[start : start + length]
        self.address = int(address_of(self.view))
        self.va = va
        self._device = device
        self._key = device.reg_mr(pd, 0, length, access, iova=va, buffer=self.view)
        self.lkey, self.rkey = self._key.lkey, self._key.rkey

    def close(self) -> None:
        """Deregister it."""
        self._device.dereg_mr(self._key.handle)


def pieces_of(length: int, dice: random.Random) -> list[tuple[int, int]]:
    """``length`` bytes cut at any bytes into a few pieces (start, end), in any order."""
    cuts = sorted({0, length, *(dice.randrange(length) for _ in range(dice.randrange(MOST_PIECES)))})
    pieces = list(itertools.pairwise(cuts))
    dice.shuffle(pieces)
    return pieces


class End(GenerationEnd):
    """One end of a direction: two queue pairs, and requests that wait for room in them."""

    def __init__(self, node: Node, pd: int, number: int, dice: random.Random) -> None:
        super().__init__(node, dice)
        self.device = node.device
        self.under_way = 0
        self._places = itertools.count(BASE_VA * node.number + (number << 40), _PLACE_STEP)
        self._waiting: deque[Callable[[], None]] = deque()
        self.places: list[Place] = []
        self.pd = pd
        self.cq: CqHandle = self.device.create_cq(2 * DEPTH)
        self.qps: list[QpHandle] = [
            self.device.create_qp(pd, RC, self.cq, self.cq, None, DEPTH, 1, 1, 1, 64, False) for _ in range(2)
        ]

    def place(self, length: int, access: int) -> Place:
        """Registered memory of this end."""
        self.places.append(Place(self.device, self.pd, length, access, next(self._places)))
        return self.places[-1]

    def post(
        self,
        opcode: int,
        qp: int,
        target: tuple[int, int],
        sges: list[tuple[int, int, int]],
        inline: bytes | None = None,
    ) -> None:
        """Post a request to ``target`` (va, R_Key) now, or when there is room."""

        def now() -> None:
            handle = self.qps[qp]
            handle.post_send(
                opcode, SIGNALED, 0, opcode, target[0], target[1], 0, 0, 0, 0, 0, sges, inline
            )  # fmt: skip
            handle.ring()
            self.under_way += 1

        self._waiting.append(now)
        self._post_waiting()

    def _post_waiting(self) -> None:
        while self._waiting and self.under_way < DEPTH and not self.stopped:
            self._waiting.popleft()()

    def turn(self) -> bool:
        """Take completions and go on; whether there was anything."""
        if self.stopped:
            return False
        worked = False
        for completion in self.cq.poll(2 * DEPTH):
            worked = True
            self.under_way -= 1
            if completion.status:
                self._fail(completion.status)
            elif completion.wr_id == READ_OPCODE:
                self.fetched()
        self._post_waiting()
        return (not self.stopped and self.advance()) or worked

    def _fail(self, status: int) -> None:
        self.stopped = True
        if status not in (RETRY_EXCEEDED, FLUSHED):
            self.violate("requests succeed", f"a request of a mailbox failed with status {status}")

    def fetched(self) -> None:
        """An RDMA READ has completed."""

    @abstractmethod
    def advance(self) -> bool:
        """Do what can be done; whether there was anything."""

    def close(self) -> None:
        """Give everything back."""
        for qp in self.qps:
            qp.destroy()
        self.cq.destroy()
        for place in self.places:
            place.close()


@dataclass(frozen=True)
class Plan:
    """What a direction is about: terms, the nonce and key of its ring, and the messages."""

    terms: Terms
    nonce: bytes
    key: bytes
    messages: tuple[bytes, ...]

    @classmethod
    def draw(cls, dice: random.Random, count: int, largest_bytes: int) -> Plan:
        """Let the dice say."""
        slot_bytes = dice.choice((96, 200, 1_000, 3_000))
        mode = dice.choice(("write", "write", "read"))
        slots = dice.randint(2, 8)
        room = (slot_bytes if mode == "read" else slot_bytes * dice.randint(1, slots)) - 48
        terms = Terms(
            slots, slot_bytes, "blake2b", min(room, largest_bytes), indicator=b"", mode=mode
        )  # fmt: skip
        messages = tuple(dice.randbytes(dice.randint(0, terms.largest_bytes)) for _ in range(count))
        return cls(terms, dice.randbytes(8), dice.randbytes(32), messages)


class Writer(End):
    """Puts the plan's messages into the ring, as its credit allows."""

    def __init__(self, node: Node, pd: int, number: int, dice: random.Random, plan: Plan) -> None:
        super().__init__(node, pd, number, dice)
        self.plan = plan
        terms = plan.terms
        digest = terms.digest(plan.nonce, plan.key)
        self.reads = terms.mode == "read"
        self.ring = self.place(terms.ring_bytes, LOCAL | (REMOTE_READ if self.reads else 0))
        self.cell = self.place(terms.credit_bytes, LOCAL | REMOTE_WRITE)
        self._shadow = self.place(terms.ring_bytes, LOCAL) if self.reads else self.ring
        self.outbox = Outbox(
            terms.slots, terms.slot_bytes, terms.sealer(digest), self._shadow.address, self.cell.address,
            terms.credit_opener(digest),
        )  # fmt: skip
        self.sent = 0
        self.reader: Reader

    def advance(self) -> bool:
        worked = bool(self.outbox.take_credit())
        while self.sent < len(self.plan.messages):
            if not self.outbox.put(DATA, (self.plan.messages[self.sent],)):
                break
            self.sent += 1
            worked = True
        if self.reads or not (self.under_way or self._waiting):
            # One queue pair keeps WRITEs in order; here two carry the pieces, and what lies between blocks is
            # under no hash: it must not land on the next lap's block.
            for offset, length in self.outbox.ranges():
                for start, end in pieces_of(length, self.dice):
                    self._carry(offset + start, end - start)
        return worked

    def _carry(self, offset: int, length: int) -> None:
        if self.reads:
            self.later(self.dice.randrange(LONGEST_PAUSE_NS), lambda: self._publish(offset, length))
            return
        target = self.reader.ring
        element = (self.ring.va + offset, length, self.ring.lkey)
        self.post(WRITE_OPCODE, self.dice.randrange(2), (target.va + offset, target.rkey), [element])

    def _publish(self, offset: int, length: int) -> None:
        self.ring.view[offset : offset + length] = self._shadow.view[offset : offset + length]


class Reader(End):
    """Takes the messages, and gives credit; ``received`` are those that verified."""

    def __init__(self, node: Node, pd: int, number: int, dice: random.Random, plan: Plan) -> None:
        super().__init__(node, pd, number, dice)
        self.plan = plan
        terms = plan.terms
        digest = terms.digest(plan.nonce, plan.key)
        opener, credits = terms.opener(digest), terms.credit_sealer(digest)
        self.credits = credits
        self.opener = opener
        self.received: list[bytes] = []
        self.reading = False
        self._pieces = 0
        self.inbox: Inbox | RemoteReader
        if terms.mode == "read":
            self.ring = self.place(terms.slot_bytes, LOCAL)
            self.inbox = RemoteReader(terms.slots, terms.slot_bytes, opener, self.ring.address, credits, self)
        else:
            self.ring = self.place(terms.ring_bytes, LOCAL | REMOTE_WRITE)
            self.inbox = Inbox(terms.slots, terms.slot_bytes, opener, self.ring.address, credits)
        self.writer: Writer

    def read(self, offset: int) -> None:
        """Fetch a slot of the writer's, in a while, in pieces (`softhca.mailbox.remote_reader.Fetcher`)."""
        self.reading = True
        self.later(self.dice.randrange(LONGEST_PAUSE_NS), lambda: self._fetch(offset))

    def _fetch(self, offset: int) -> None:
        source = self.writer.ring
        pieces = pieces_of(self.plan.terms.slot_bytes, self.dice)
        self._pieces = len(pieces)
        for start, end in pieces:
            element = (self.ring.va + start, end - start, self.ring.lkey)
            self.post(
                READ_OPCODE, self.dice.randrange(2), (source.va + offset + start, source.rkey), [element]
            )

    def fetched(self) -> None:
        self._pieces -= 1
        self.reading = self._pieces > 0

    @property
    def done(self) -> bool:
        """Whether it has all messages."""
        return len(self.received) == len(self.plan.messages)

    def advance(self) -> bool:
        worked = False
        while not self.done and self.inbox.poll() == TAKEN:
            self._take(bytes(self.opener.message))
            worked = True
        if self.inbox.owed():
            self._give_credit()
            worked = True
        if isinstance(self.inbox, RemoteReader) and self.inbox.reads > MOST_READS:
            self.stopped = True
        return worked

    def _take(self, message: bytes) -> None:
        number = len(self.received)
        self.received.append(message)
        if message != self.plan.messages[number]:
            self.violate(
                "messages are whole, in order, and come once", f"message {number} is not what was sealed"
            )

    def _give_credit(self) -> None:
        length = int(self.inbox.seal_credit())
        cell = self.writer.cell
        self.post(WRITE_OPCODE, 0, (cell.va, cell.rkey), [], bytes(self.credits.block(length)))

    def finish(self) -> None:
        """The world is at rest."""
        world = self.node.world
        if not self.done and not self.stopped and not self.writer.stopped:
            text = f"{len(self.received)} of {len(self.plan.messages)} messages"
            self.violate("every message arrives", text)
        verdicts = self.opener.verdicts
        world.trace.add(
            world.now, "mailbox", self.node.number, mode=self.plan.terms.mode, received=len(self.received),
            torn=verdicts[TORN], looks=sum(verdicts),
        )  # fmt: skip
