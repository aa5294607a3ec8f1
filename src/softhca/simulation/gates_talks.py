"""What goes on over one connection between gates and software: messages both ways, a request that must be
refused, a key that is withdrawn while it is used.  Each is its own oracle.
"""

from __future__ import annotations

import random
from typing import Any, NamedTuple

from softhca.simulation.gates_sides import (
    CLOSED,
    FOREIGN,
    OPENED,
    ROOM_BYTES,
    Ended,
    GatesSide,
    Place,
    Side,
    SoftwareSide,
    Wanted,
)
from softhca.simulation.kinds import (
    FLUSHED,
    LOCAL_LENGTH,
    READ,
    REMOTE_ACCESS,
    REMOTE_INVALID,
    RETRY_EXCEEDED,
    SEND,
    SEND_IMM,
    SUCCESS,
    WRITE,
    WRITE_IMM,
)
from softhca.simulation.oracle import Report
from softhca.simulation.scenarios import Scenario

RECEIVES = 1000
"""Work requests from this on are receives."""
TALK_KINDS = (SEND, SEND_IMM, WRITE, WRITE_IMM, READ)
IMMEDIATE = frozenset({SEND_IMM, WRITE_IMM})
TAKING = IMMEDIATE | {SEND}
ABSENT_KEY = 0x5A5A5A
TOGETHER = 4
"""Messages that each side has under way: all that the gates can have."""
FENCED = 0.2
"""So many wait for the READs before them."""
SHORT_BYTES = 64
"""A receive that is shorter than what comes."""


class Ground(NamedTuple):
    """Who talks, ``gates`` and ``software``; where they are judged; whether packets may get lost."""

    gates: GatesSide
    software: SoftwareSide
    report: Report
    lossy: bool

    def other(self, side: Side) -> Side:
        """The peer of a side."""
        return self.software if side is self.gates else self.gates


class Talk:
    """A connection on the gates' queue pair ``qp``, whose bytes on both sides are ``room`` from ``base`` on.

    ``finished``: nothing more is waited for.
    """

    def __init__(self, ground: Ground, qp: int, base: int, room: int, dice: random.Random) -> None:
        self.ground, self.qp, self.base, self.room, self.dice = ground, qp, base, room, dice
        self.finished = False

    async def begin(self, context: Any) -> None:
        """Ask for the first things."""
        raise NotImplementedError

    async def ended(self, context: Any, side: Side, done: Ended) -> None:
        """Something has completed at a side."""
        raise NotImplementedError

    def fail(self, rule: str, text: str) -> None:
        """A rule is broken."""
        self.ground.report.fail(rule, f"queue pair {self.qp} of the gates: {text}")

    def gives_up(self, status: int) -> bool:
        """Whether that is a status with which a request may end because packets got lost."""
        return self.ground.lossy and status == RETRY_EXCEEDED


class Message(NamedTuple):
    """One that was asked for, and what is still to complete."""

    wanted: Wanted
    data: bytes
    at: int
    """Offset in the peer's memory."""
    slot: int
    missing: set[str]


class Messages(Talk):
    """So many messages each way, up to `TOGETHER` under way, 1 to so many bytes long, as ``scenario`` says.

    Each has memory of its own; it is used again when the message has completed on both sides.
    """

    def __init__(
        self, ground: Ground, qp: int, base: int, room: int, dice: random.Random, scenario: Scenario
    ) -> None:
        super().__init__(ground, qp, base, room, dice)
        self.operations = scenario.operations
        self.slot = room // (4 * TOGETHER)
        self.largest = min(scenario.largest_bytes, self.slot - 8)
        self.asked = {"gates": 0, "software": 0}
        self._under_way: dict[str, dict[int, Message]] = {"gates": {}, "software": {}}
        self._slots: dict[str, list[int]] = {name: list(range(TOGETHER)) for name in self.asked}

    async def begin(self, context: Any) -> None:
        """Both begin."""
        for side in (self.ground.gates, self.ground.software):
            for _ in range(min(TOGETHER, self.operations)):
                await self._ask(context, side)

    async def _ask(self, context: Any, side: Side) -> None:
        dice, peer = self.dice, self.ground.other(side)
        self.asked[side.name] += 1
        kind, length = dice.choice(TALK_KINDS), dice.randint(1, self.largest)
        quarter, slot = self.room // 4, self._slots[side.name].pop(0)
        base = self.base + (0 if side is self.ground.gates else 2 * quarter) + self.slot * slot
        here, there = base + dice.randrange(8), base + quarter + dice.randrange(8)
        data = dice.randbytes(length)
        source, target = (peer, side) if kind == READ else (side, peer)
        source.fill(there if kind == READ else here, data)
        target.fill(here if kind == READ else there, bytes(length))
        immediate = dice.getrandbits(32) if kind in IMMEDIATE else 0
        wanted = Wanted(kind, self.asked[side.name], here, length, peer.place(there), immediate,
                        dice.random() < FENCED)  # fmt: skip
        missing = {"request", "receive"} if kind in TAKING else {"request"}
        self._under_way[side.name][wanted.work] = Message(wanted, data, there, slot, missing)
        if kind in TAKING:
            await peer.receive(context, self.qp, RECEIVES + wanted.work, there, length)
        await side.ask(context, self.qp, wanted)

    async def ended(self, context: Any, side: Side, done: Ended) -> None:
        """A request of ``side``, or its receive."""
        if self.finished:
            return
        asker = side if done.work < RECEIVES else self.ground.other(side)
        under_way = self._under_way[asker.name]
        what = "request" if done.work < RECEIVES else "receive"
        if self.gives_up(done.status):
            self.finished = True
            self._give_up()
            return
        work = done.work % RECEIVES
        awaited = [number for number, message in under_way.items() if what in message.missing]
        if work not in awaited[:1]:
            self.fail("every request completes once, in order", f"{what} {work} of the {asker.name}")
            return
        message = under_way[work]
        told = f"{message.wanted.kind} {work} of the {asker.name}"
        if done.status != SUCCESS:
            self.fail("the right status", f"{told}: {what} ended with status {done.status}")
        expected = message.wanted.immediate
        if what == "receive" and message.wanted.kind in IMMEDIATE and done.immediate != expected:
            self.fail("immediate data arrive", f"{told}: {done.immediate}")
        message.missing.discard(what)
        if message.missing:
            return
        self._expect(asker, message)
        del under_way[work]
        self._slots[asker.name].append(message.slot)
        if self.asked[asker.name] < self.operations:
            await self._ask(context, asker)
        self.finished = not any(self._under_way.values())

    def _expect(self, asker: Side, message: Message) -> None:
        """Both sides have the bytes, as soon as the message has completed."""
        wanted, peer = message.wanted, self.ground.other(asker)
        target, at = (asker, wanted.here) if wanted.kind == READ else (peer, message.at)
        target.image[at : at + wanted.length] = message.data
        if target.content()[at : at + wanted.length] != message.data:
            text = f"{wanted.kind} {wanted.work} of the {asker.name}, {wanted.length} bytes"
            self.fail("success means delivered", text)

    def _give_up(self) -> None:
        """What was under way may have arrived or not."""
        for name, messages in self._under_way.items():
            asker: Side = self.ground.gates if name == "gates" else self.ground.software
            for message in messages.values():
                target, at = (asker, message.wanted.here) if message.wanted.kind == READ else (
                    self.ground.other(asker), message.at)  # fmt: skip
                span = slice(at, at + message.wanted.length)
                target.image[span] = target.content()[span]


class Refusal(Talk):
    """A WRITE that succeeds, a request that must be refused for ``fault``, and one that is flushed for it."""

    FAULTS = ("key", "domain", "right", "range", "length")

    def __init__(self, ground: Ground, qp: int, base: int, room: int, dice: random.Random) -> None:
        super().__init__(ground, qp, base, room, dice)
        self.asker: Side = dice.choice((ground.gates, ground.software))
        self.fault = dice.choice(self.FAULTS)
        self.expected = [SUCCESS, REMOTE_INVALID if self.fault == "length" else REMOTE_ACCESS, FLUSHED]
        self._next = 0
        self._receives = int(self.fault == "length")

    async def begin(self, context: Any) -> None:
        """Post all three."""
        asker, peer, dice, base = self.asker, self.ground.other(self.asker), self.dice, self.base
        length = dice.randint(1, self.room // 4)
        data = dice.randbytes(length)
        asker.fill(base, data)
        kind, there = dice.choice((WRITE, READ)), peer.place(base, OPENED)
        if self.fault == "length":
            kind, length = SEND, max(length, SHORT_BYTES + 1)
            await peer.receive(context, self.qp, RECEIVES, base + self.room // 2, SHORT_BYTES)
        elif self.fault == "key":
            there = Place(there.va, ABSENT_KEY)
        elif self.fault == "range":
            there = peer.place(ROOM_BYTES - length + 1)
        else:
            there = peer.place(base, FOREIGN if self.fault == "domain" else CLOSED)
        good = Wanted(WRITE, 0, base, len(data), peer.place(base + self.room // 4))
        peer.image[base + self.room // 4 : base + self.room // 4 + len(data)] = data
        bad = Wanted(kind, 1, base + self.room // 2, length, there)
        flushed = Wanted(WRITE, 2, base, len(data), peer.place(base + 3 * self.room // 4))
        for wanted in (good, bad, flushed):
            await asker.ask(context, self.qp, wanted)

    async def ended(self, context: Any, side: Side, done: Ended) -> None:
        """One of the three, or the receive that was too short."""
        if done.work == RECEIVES:
            self._receives -= 1
            self._take_short(side, done.status)
        elif done.work != self._next or side is not self.asker:
            self.fail("completions in order", f"{done.work} instead of {self._next} of the {self.asker.name}")
        else:
            self._next += 1
            self._judge(done.work, done.status)
        self.finished = self.finished or (self._next == 3 and self._receives <= 0)

    def _judge(self, work: int, status: int) -> None:
        if status == self.expected[work]:
            return
        if self.gives_up(status) or (self.ground.lossy and status == FLUSHED and work):
            self.finished = work == 0
            self._receives = 0
            if work == 0:  # whether it has arrived nobody knows
                peer, at = self.ground.other(self.asker), self.base + self.room // 4
                peer.image[at : at + self.room // 4] = peer.content()[at : at + self.room // 4]
            return
        text = f"request {work} of the {self.asker.name} ({self.fault}) ended with {status}"
        self.fail("what may not be is refused", f"{text} instead of {self.expected[work]}")

    def _take_short(self, side: Side, status: int) -> None:
        """The receive that was too short: what stands in it is anything."""
        if status not in (LOCAL_LENGTH, FLUSHED) or (status == FLUSHED and not self.ground.lossy):
            self.fail("what may not be is refused", f"a receive of {SHORT_BYTES} bytes ended with {status}")
        span = slice(self.base + self.room // 2, self.base + self.room // 2 + SHORT_BYTES)
        side.image[span] = side.content()[span]


class Withdrawal(Talk):
    """The software reads and writes by a key of the gates, which their host withdraws in the middle: who asks
    afterwards is refused, and no byte changes any more.
    """

    WITHDRAW = 9000
    SLOTS, SLOT_BYTES, DEPTH = 24, 128, 2
    OWNER_QP = 0
    """The gates' queue pair that binds."""

    def __init__(self, ground: Ground, qp: int, base: int, room: int, dice: random.Random) -> None:
        super().__init__(ground, qp, base, room, dice)
        self.before = dice.randrange(1, 5)
        """Requests that complete before the withdrawal is posted."""
        self.posted = self.dead = self.failed = False
        self.content = b""
        self._asks: dict[int, tuple[Wanted, bytes, bool]] = {}
        self._number = self._succeeded = 0

    async def begin(self, context: Any) -> None:
        """Some requests are always under way."""
        host = self.ground.gates.host
        self.window = host.region(0x2000_0000_0040, self.SLOTS * self.SLOT_BYTES, 7, 7)
        host.write_bytes(self.window, 0, bytes(self.window.length))
        for _ in range(self.DEPTH):
            await self._ask(context)

    async def _ask(self, context: Any) -> None:
        if self._number == self.SLOTS or (self._number == self.SLOTS - 1 and not self.dead):
            return  # the last one is for afterwards
        slot, dice, software = self._number, self.dice, self.ground.software
        self._number += 1
        kind, length = dice.choice((WRITE, WRITE, READ)), dice.randint(1, self.SLOT_BYTES)
        here = self.base + slot * self.SLOT_BYTES
        data = dice.randbytes(length)
        software.fill(here, data if kind == WRITE else bytes([1]) * length)
        there = Place(self.window.va + slot * self.SLOT_BYTES, self.window.key)
        self._asks[slot] = Wanted(kind, slot, here, length, there), data, self.dead
        await software.ask(context, self.qp, self._asks[slot][0])

    async def ended(self, context: Any, side: Side, done: Ended) -> None:
        """A request of the software, or the withdrawal."""
        if done.work == self.WITHDRAW:
            if done.status != SUCCESS:
                self.fail("invalidations succeed", f"status {done.status}")
            self.dead = True
            self.content = self._window()
            if not self.failed:
                await self._ask(context)
        else:
            self._answered(*self._asks.pop(done.work), done.status)
            if self._succeeded == self.before and not self.posted:
                self.posted = True
                host = self.ground.gates.host
                await host.post_invalidate(context, self.OWNER_QP, self.window.key, work=self.WITHDRAW)
            if not self.failed:
                await self._ask(context)
        self.finished = self.failed and not self._asks and (self.dead or not self.posted)

    def _answered(self, wanted: Wanted, data: bytes, late: bool, status: int) -> None:
        span = slice(wanted.here, wanted.here + wanted.length)
        software = self.ground.software
        if status == SUCCESS:
            self._succeeded += 1
            at = wanted.there.va - self.window.va
            if late:
                self.fail("a dead key gives nothing", f"{wanted.kind} {wanted.work} succeeded")
            elif wanted.kind == WRITE and self._window()[at : at + wanted.length] != data:
                self.fail("success means written", f"WRITE {wanted.work} of {wanted.length} bytes")
            elif wanted.kind == READ and any(software.content()[span]):
                self.fail("a read returns what memory held", f"READ {wanted.work}")
        elif status == REMOTE_ACCESS:
            if not self.posted:
                self.fail("a key that lives gives its rights", f"{wanted.kind} {wanted.work} was refused")
        elif not (self.gives_up(status) or (status == FLUSHED and self.failed)):
            self.fail("the right status", f"{wanted.kind} {wanted.work} ended with {status}")
        self.failed = self.failed or status != SUCCESS
        if wanted.kind == READ:
            software.image[span] = software.content()[span]

    def _window(self) -> bytes:
        return self.ground.gates.host.read_bytes(self.window, 0, self.window.length)

    def finish(self) -> None:
        """The world is at rest."""
        if self.dead and self._window() != self.content:
            self.fail("a dead key gives nothing", "its bytes have changed")
