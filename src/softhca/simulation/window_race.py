"""Memory windows raced against the peer that uses them: bound, used, and withdrawn in the middle.

Each round has a connection of its own.  The owner binds a window to bytes that no window had before; its
peer is told the key, writes and reads; at some moment the owner, or the peer's own SEND with Invalidate, ends
the binding.  The oracle: from the completion of that on no byte changes, and who asks with the dead key is
refused; before, who has the right is never refused; regions are busy as long as a window is bound to them.
"""

from __future__ import annotations

import errno
import itertools
import random
from collections.abc import Callable
from dataclasses import dataclass, field

from softhca.driver import services
from softhca.driver.device import Completion, QpHandle
from softhca.driver.errors import DriverError
from softhca.queues.states import ERR
from softhca.simulation.conditions import RETRIES, TIMEOUT
from softhca.simulation.host import Host
from softhca.simulation.kinds import FLUSHED, RC, REMOTE_ACCESS, RETRY_EXCEEDED, SUCCESS
from softhca.simulation.oracle import UNTOUCHED, first_difference
from softhca.simulation.world import World

SPAN_BYTES = 16_384
SPANS = 16
INBOX_BYTES = 4096
DEPTH = 128
BASE_VA = 0x6000_0000_0000
LOCAL_WRITE, REMOTE_WRITE, REMOTE_READ, MW_BIND, ZERO_BASED = 1, 2, 4, 16, 32
WRITE, SEND, READ, LOCAL_INV, BIND_MW, SEND_WITH_INV = 0, 2, 4, 7, 8, 9
WITH_INV = 8
FAST_NS, MEAN_NS, SLOW_NS = 3_000, 12_000, 60_000
INVALIDATE, REMOTE, MOVE, UNBIND, DEALLOCATE, DESTROY = (
    "invalidate", "remote invalidate", "move", "unbind", "deallocate", "destroy the queue pair",
)  # fmt: skip
ENDS = {1: (MOVE, MOVE, UNBIND, DEALLOCATE), 2: (INVALIDATE, INVALIDATE, REMOTE, REMOTE, DEALLOCATE, DESTROY)}
"""How a binding ends, by the window's type."""
RULE = "a dead key gives nothing"


@dataclass(eq=False)
class Grant:
    """One binding: ``key`` gives ``rights`` to ``length`` bytes at ``start`` of the owner's memory, called
    ``va`` by requests.  ``ending``: its end was asked for; ``dead``: what stood there when that was done.
    """

    kind: int
    region: int
    start: int
    length: int
    rights: int
    va: int
    key: int = 0
    ending: bool = False
    dead: bytes | None = None


@dataclass(eq=False)
class RacedRequest:
    """A request of the peer for ``len(data)`` bytes at ``offset`` of the grant, which a write makes ``data``.

    ``late``: asked for after the grant was dead.  ``lawful``: it may have an effect.
    """

    grant: Grant
    opcode: int
    offset: int
    data: bytes
    local: int
    late: bool
    lawful: bool = False

    @property
    def allowed(self) -> bool:
        """Whether the grant gives the right to all of these bytes."""
        if self.offset + len(self.data) > self.grant.length:
            return False
        return bool(self.grant.rights & (REMOTE_WRITE if self.opcode == WRITE else REMOTE_READ))


@dataclass(eq=False)
class RacedConnection:
    """A connection: ``own`` is the owner's queue pair, ``theirs`` the peer's.  ``failed``: of the peer's.
    ``broken``: the owner has given up to send, for what it sent was lost.
    """

    own: QpHandle
    theirs: QpHandle
    foreign: bool = False
    asks: dict[int, RacedRequest] = field(default_factory=dict)
    failed: bool = False
    broken: bool = False
    destroyed: bool = False


class WindowRace:
    """Rounds between the windows of ``owner`` and ``peer``, drawn from a name; `start`, `finish`,
    `destroy`.
    """

    def __init__(self, world: World, owner: Host, peer: Host, rounds: int, name: str) -> None:
        self.world = world
        self.owner, self.peer = owner, peer
        self.name = f"windows of adapter {owner.node.number}"
        self._dice = random.Random(f"{name}/race/{owner.node.number}")
        self._left = rounds
        self._spans = iter(self._dice.sample(range(SPANS), SPANS))
        self._numbers = itertools.count(1)
        self._then: dict[int, Callable[[Completion], None]] = {}
        self._planned = 0
        self._grants: list[Grant] = []
        self._asked: list[RacedRequest] = []
        self._windows: dict[int, tuple[int, int]] = {}
        self._talks: list[RacedConnection] = []
        faults = world.faults
        self._lossy = any((faults.loss, faults.burst_loss, faults.corruption, faults.truncation))
        self._open_resources()
        owner.node.tasks.append(self._poll)
        if peer.node is not owner.node:
            peer.node.tasks.append(self._poll)

    def _open_resources(self) -> None:
        own, theirs, dice = self.owner.device, self.peer.device, self._dice
        self._memory = bytearray([UNTOUCHED]) * (SPANS * SPAN_BYTES + INBOX_BYTES)
        self._source = bytearray(dice.randbytes((1 << 16) + INBOX_BYTES))
        self._pds = own.alloc_pd(), theirs.alloc_pd()
        self._cqs = own.create_cq(4 * DEPTH), theirs.create_cq(4 * DEPTH)
        # two regions over the same bytes, so that a window can move between them
        self._regions = [
            own.reg_mr(
                self._pds[0], 0, len(self._memory), LOCAL_WRITE | MW_BIND, iova=BASE_VA, buffer=self._memory
            )
            for _ in range(2)
        ]
        self._local = theirs.reg_mr(
            self._pds[1], 0, len(self._source), LOCAL_WRITE, iova=BASE_VA, buffer=self._source
        )

    def start(self) -> None:
        """Plan the first round."""
        self._later(self._round)

    def _later(self, action: Callable[[], object], most_ns: int = FAST_NS) -> None:
        """Do something within so long, as a part of this round."""
        self._planned += 1

        def act(_: object) -> None:
            self._planned -= 1
            action()
            self._turn()
            self._settle()

        self.world.at(self.world.now + self._dice.randrange(most_ns), act)

    def _fail(self, rule: str, text: str) -> None:
        self.world.report.fail(rule, f"{self.name}: {text}")

    # completions

    def _poll(self) -> bool:
        busy = False
        for cq in self._cqs:
            for completion in cq.poll(64):
                busy = True
                self._then.pop(completion.wr_id)(completion)
        if busy:
            self._settle()
        return busy

    def _number(self, then: Callable[[Completion], None]) -> int:
        """The wr_id of a request whose completion is given to ``then``."""
        number = next(self._numbers)
        self._then[number] = then
        return number

    def _turn(self) -> None:
        self.owner.node.turn()
        self.peer.node.turn()

    # rounds

    def _round(self) -> None:
        """A connection, a window, its bind."""
        if not self._left:
            return
        self._left -= 1
        kind = self._dice.choice((1, 2))
        if kind not in self._windows:
            self._windows[kind] = self.owner.device.alloc_mw(self._pds[0], kind)
        talk = self._connect()
        grant = self._draw(kind)

        def bound(completion: Completion) -> None:
            if completion.status != SUCCESS:
                if completion.status != FLUSHED or not talk.broken:
                    self._fail("binds succeed", f"a bind ended with status {completion.status}")
                grant.dead = self._bytes(grant)
                return
            self._look_busy(grant.region)
            self._begin(talk, grant)

        self._greet(talk)
        self._bind(talk, grant, bound)

    def _greet(self, talk: RacedConnection) -> None:
        """The owner sends something first: what it asks for afterwards has to wait until that has arrived."""
        length = self._dice.randint(1, INBOX_BYTES)
        inbox = slice(len(self._source) - INBOX_BYTES, len(self._source) - INBOX_BYTES + length)
        self._source[inbox] = bytes(length)

        def sent(completion: Completion) -> None:
            if completion.status == RETRY_EXCEEDED and self._lossy:
                # nobody uses this connection any more, and the peer's receive ends with it
                talk.broken = talk.failed = True
                self._later(lambda: talk.theirs.modify({"qp_state": ERR}))
            elif completion.status != SUCCESS or self._source[inbox].count(UNTOUCHED) != length:
                self._fail("success means delivered", f"a SEND of {length} bytes, status {completion.status}")

        talk.theirs.post_recv(
            self._number(lambda _: None), [(BASE_VA + inbox.start, length, self._local.lkey)]
        )  # fmt: skip
        talk.own.post_send(
            SEND, 2, 0, self._number(sent), 0, 0, 0, 0, 0, 0, 0,
            [(BASE_VA + SPANS * SPAN_BYTES, length, self._regions[0].lkey)], None,
        )  # fmt: skip

    def _connect(self) -> RacedConnection:
        dice, ends = self._dice, (self.owner, self.peer)
        own, theirs = (
            end.device.create_qp(pd, RC, cq, cq, None, DEPTH, 4, 1, 1, 0, True)
            for end, pd, cq in zip(ends, self._pds, self._cqs, strict=True)
        )
        mtu = min(end.node.mtu for end in ends)
        paths = self.world.frames.paths(self.owner.node.number, self.peer.node.number, mtu, dice)
        psns = dice.randrange(1 << 24), dice.randrange(1 << 24)
        how = services.Reliability(TIMEOUT, RETRIES, RETRIES, 1, 4, 4)
        services.connect(own, paths[0], theirs.number, psns[1], psns[0], REMOTE_WRITE | REMOTE_READ, how)
        services.connect(theirs, paths[1], own.number, psns[0], psns[1], 0, how)
        self._talks.append(RacedConnection(own, theirs))
        return self._talks[-1]

    def _draw(self, kind: int) -> Grant:
        dice = self._dice
        within = dice.randrange(SPAN_BYTES // 2)
        start = next(self._spans) * SPAN_BYTES + within
        length = dice.randint(1, SPAN_BYTES - within)
        rights = dice.choice((REMOTE_WRITE, REMOTE_READ, *[REMOTE_WRITE | REMOTE_READ] * 3))
        zero_based = kind == 2 and dice.random() < 0.3
        grant = Grant(kind, dice.randrange(2), start, length, rights, 0 if zero_based else BASE_VA + start)
        self._grants.append(grant)
        return grant

    def _bind(self, talk: RacedConnection, grant: Grant, then: Callable[[Completion], None]) -> None:
        """Post a bind of the window of the grant's type."""
        number, key = self._windows[grant.kind]
        grant.key = _next(key)
        self._windows[grant.kind] = number, grant.key
        access = grant.rights | (ZERO_BASED if grant.va == 0 else 0)
        talk.own.post_send(
            BIND_MW, 2, grant.key & 0xFF, self._number(then), BASE_VA + grant.start, number, grant.length,
            access << 32 | self._regions[grant.region].lkey, 0, 0, 0, [], None,
        )  # fmt: skip
        talk.own.ring()

    def _look_busy(self, region: int) -> None:
        """A region to which windows are bound stays."""
        try:
            self.owner.device.dereg_mr(self._regions[region].handle)
        except DriverError as refused:
            if refused.errno != errno.EBUSY:
                raise
            return
        self._fail("a bound region is busy", f"region {region} was deregistered with a window bound to it")

    def _begin(self, talk: RacedConnection, grant: Grant) -> None:
        """The peer is told the key; some time later it ends."""
        self._later(lambda: self._use(talk, grant), FAST_NS)
        if grant.kind == 2 and self._dice.random() < 0.3:
            intruder = self._connect()
            intruder.foreign = True
            self._later(lambda: self._use(intruder, grant), FAST_NS)
        self._later(lambda: self._end(talk, grant), self._dice.choice((FAST_NS, MEAN_NS, SLOW_NS)))

    def _use(self, talk: RacedConnection, grant: Grant) -> None:
        """RacedRequest with the key, a few times, each write at bytes of its own."""
        if talk.destroyed:
            return
        cuts = sorted(self._dice.randrange(grant.length + 1) for _ in range(self._dice.randint(2, 5)))
        for start, end in itertools.pairwise(cuts):
            if end > start and self._dice.random() < 0.8:
                self._ask(talk, grant, start, end - start)
        if self._dice.random() < 0.1:
            self._ask(talk, grant, grant.length - 1, 2)  # one byte too far

    def _ask(self, talk: RacedConnection, grant: Grant, offset: int, length: int) -> None:
        opcode = self._dice.choice((WRITE, WRITE, READ))
        half = (len(self._source) - INBOX_BYTES) // 2
        local = self._dice.randrange(half - length) + (half if opcode == READ else 0)
        data = bytes(self._source[local : local + length])
        ask = RacedRequest(grant, opcode, offset, data, local, grant.dead is not None)
        self._asked.append(ask)
        ask.lawful = ask.allowed and not ask.late and not talk.foreign
        number = self._number(lambda completion: self._answered(talk, number, completion.status))
        talk.asks[number] = ask
        talk.theirs.post_send(
            opcode, 2, 0, number, grant.va + offset, grant.key, 0, 0, 0, 0, 0,
            [(BASE_VA + local, length, self._local.lkey)], None,
        )  # fmt: skip
        talk.theirs.ring()

    def _answered(self, talk: RacedConnection, number: int, status: int) -> None:
        """A request of the peer has completed."""
        ask = talk.asks.pop(number)
        if status == SUCCESS:
            self._succeeded(ask, talk)
        elif status == FLUSHED:
            if not talk.failed:
                self._fail("flushes follow an error", self._text(ask, talk))
        elif status == REMOTE_ACCESS:
            if ask.lawful and not ask.grant.ending:
                self._fail("a key that lives gives its rights", f"{self._text(ask, talk)} was refused")
        elif status != RETRY_EXCEEDED or not (talk.destroyed or self._lossy):
            # a peer that has broken the connection is silent: where its NAK may be lost, that is all one sees
            self._fail("the right status", f"{self._text(ask, talk)} ended with status {status}")
        talk.failed = talk.failed or status != SUCCESS

    def _succeeded(self, ask: RacedRequest, talk: RacedConnection) -> None:
        start, length = ask.grant.start + ask.offset, len(ask.data)
        if not ask.lawful:
            self._fail(RULE, f"{self._text(ask, talk)} succeeded")
        elif ask.opcode == WRITE and self._memory[start : start + length] != ask.data:
            self._fail("success means written", f"{self._text(ask, talk)}, and its bytes are not there")
        elif ask.opcode == READ and self._source[ask.local : ask.local + length].count(UNTOUCHED) != length:
            self._fail("a read returns what memory held", self._text(ask, talk))

    def _text(self, ask: RacedRequest, talk: RacedConnection) -> str:
        what = "write" if ask.opcode == WRITE else "read"
        who = " of another queue pair" if talk.foreign else ""
        when = " after the end of its key" if ask.late else ""
        right = "" if ask.allowed else " without the right"
        return f"a {what}{who}{when}{right} (type {ask.grant.kind})"

    # how a binding ends

    def _end(self, talk: RacedConnection, grant: Grant) -> None:
        how = self._dice.choice(ENDS[grant.kind])
        if how == MOVE and SPANS - len(self._grants) <= self._left:
            how = UNBIND  # what is left is for the other rounds
        grant.ending = True
        number, key = self._windows[grant.kind]
        if how == DEALLOCATE:
            self._deallocate(talk, grant)
        elif how == DESTROY:
            talk.destroyed = talk.failed = True
            talk.own.destroy()
            self._died(talk, grant)
        elif how == MOVE:
            self._move(talk, grant)
        elif how == UNBIND:
            self._windows[grant.kind] = number, _next(key)
            self._post(talk, grant, BIND_MW, _next(key) & 0xFF, number)
        elif how == INVALIDATE:
            self._post(talk, grant, LOCAL_INV, grant.key, 0)
        else:
            self._send_with_invalidate(talk, grant)

    def _post(self, talk: RacedConnection, grant: Grant, opcode: int, imm: int, number: int) -> None:
        """A request of the owner that ends the grant when it succeeds."""
        then = self._number(lambda completion: self._ended(talk, grant, completion.status))
        talk.own.post_send(opcode, 2, imm, then, 0, number, 0, 0, 0, 0, 0, [], None)
        talk.own.ring()

    def _ended(self, talk: RacedConnection, grant: Grant, status: int) -> None:
        if status == SUCCESS:
            self._died(talk, grant)
            return
        if status != FLUSHED:
            self._fail("invalidations succeed", f"one ended with status {status}")
        # the connection broke before, by a request that was refused: end the grant otherwise
        self._deallocate(talk, grant)

    def _deallocate(self, talk: RacedConnection, grant: Grant) -> None:
        self.owner.device.dealloc_mw(self._windows.pop(grant.kind)[0])
        self._died(talk, grant)

    def _move(self, talk: RacedConnection, grant: Grant) -> None:
        """Bind the window to another place, which ends what it gave before."""
        following = self._draw(grant.kind)

        def moved(completion: Completion) -> None:
            self._ended(talk, grant, completion.status)
            if completion.status != SUCCESS:
                following.dead = self._bytes(following)
                return
            self._look_busy(following.region)
            self._later(lambda: self._use(talk, following))
            self._later(lambda: self._end(talk, following), SLOW_NS)

        self._bind(talk, following, moved)

    def _send_with_invalidate(self, talk: RacedConnection, grant: Grant) -> None:
        """The peer ends the grant, behind what it has asked for."""

        def received(completion: Completion) -> None:
            told = completion.wc_flags & WITH_INV and completion.imm_data == grant.key
            if completion.status == SUCCESS and not told:
                self._fail("a receive tells the key", f"{completion.imm_data:#x} instead of {grant.key:#x}")
            self._ended(talk, grant, completion.status)

        def sent(completion: Completion) -> None:
            talk.failed = talk.failed or completion.status != SUCCESS

        talk.own.post_recv(self._number(received), [])
        number = self._number(sent)
        talk.theirs.post_send(SEND_WITH_INV, 2, grant.key, number, 0, 0, 0, 0, 0, 0, 0, [], None)
        talk.theirs.ring()

    def _died(self, talk: RacedConnection, grant: Grant) -> None:
        """The end has completed: from now on nothing changes there, and who asks is refused."""
        grant.dead = self._bytes(grant)
        self._later(lambda: self._use(talk, grant))

    def _bytes(self, grant: Grant) -> bytes:
        return bytes(self._memory[grant.start : grant.start + grant.length])

    def _settle(self) -> None:
        """When nothing of a round is left, the next one begins."""
        if self._planned or self._then or not all(grant.dead is not None for grant in self._grants):
            return
        self._hang_up()
        if self._left:
            self._later(self._round)

    def _hang_up(self) -> None:
        for talk in self._talks:
            if not talk.destroyed:
                talk.own.destroy()
            talk.theirs.destroy()
        self._talks.clear()

    # the end

    def finish(self) -> None:
        """The world is at rest: everything has ended, nothing changed afterwards, and no region is busy."""
        if self._left or self._then or self._planned:
            self._fail("every request completes", f"{self._left} rounds and {len(self._then)} requests left")
        expected = bytearray([UNTOUCHED]) * len(self._memory)
        for ask in self._asked:
            if ask.lawful and ask.opcode == WRITE:
                start = ask.grant.start + ask.offset
                end = start + len(ask.data)
                if self._memory[start:end] == ask.data:
                    expected[start:end] = ask.data
                    continue
                for at in range(start, end):
                    if self._memory[at] == ask.data[at - start]:
                        expected[at] = ask.data[at - start]
        for grant in self._grants:
            if grant.dead is not None and self._bytes(grant) != grant.dead:
                at = first_difference(self._bytes(grant), grant.dead)
                self._fail(RULE, f"byte {at} of {grant.length} changed after the end (type {grant.kind})")
        if self._memory != expected:
            at = first_difference(bytes(self._memory), bytes(expected))
            self._fail("no byte without the right", f"byte {at} of its memory")
        self._hang_up()
        for region in self._regions:
            try:
                self.owner.device.dereg_mr(region.handle)
            except DriverError as refused:
                self._fail("a region without windows is free", str(refused))

    def destroy(self) -> None:
        """Give the rest back."""
        for number, _ in self._windows.values():
            self.owner.device.dealloc_mw(number)
        self.peer.device.dereg_mr(self._local.handle)
        for end, cq, pd in zip((self.owner, self.peer), self._cqs, self._pds, strict=True):
            cq.destroy()
            end.device.dealloc_pd(pd)


def _next(key: int) -> int:
    """The key with the next low byte."""
    return (key & ~0xFF) | ((key + 1) & 0xFF)
