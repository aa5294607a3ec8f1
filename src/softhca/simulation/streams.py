"""Streams of `softhca.sockets` in a world: their protocol, records and work requests over real queue pairs.

What stands between them and an application, with its locks and waits, is written here anew: a program that
sends what it has in parts of any length, and one that takes what arrives late, by copying, mapping or being
lent pages of the pool, and keeps those for a while.  About every second end tells in memory, now and then;
one whose peer does looks at its memory only after completions, once it has asked for an event.
"""

from __future__ import annotations

import itertools
import random
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass

from softhca.driver.device import CqHandle, QpHandle
from softhca.machine.primitives import address_of
from softhca.memory.bits import PAGE_BYTES
from softhca.simulation.arena import BASE_VA
from softhca.simulation.generation import GenerationEnd
from softhca.simulation.kinds import FLUSHED, RC, RETRY_EXCEEDED
from softhca.simulation.mailboxes import Place
from softhca.simulation.node import Node
from softhca.sockets.behind_pool import BehindPool
from softhca.sockets.memory_processing import Page
from softhca.sockets.protocol import BEHIND_BYTES, CREDIT, IMMEDIATE, Offer, ProtocolError
from softhca.sockets.stream_state import StreamState
from softhca.sockets.work_requests import INLINE_BYTES, SIGNALED, WORK_REQUESTS, WorkRequests

LOCAL, REMOTE_WRITE = 1, 2
"""ibv_access_flags"""
RECV = 128
MESSAGES, RESERVED, RECEIVES, SCATTERED = 96, 4, 128, 4
LONGEST_PAUSE_NS = 300_000
COPY, MAP, LEND = "copied", "mapped", "lent"
_PLACE_STEP = 1 << 32


@dataclass(frozen=True)
class Plan:
    """Of one direction: what is sent, from how many bytes on a send is aligned, how large the receiver's pool
    is, the largest part that is sent at once, and how long the receiver pauses.
    """

    data: bytes
    threshold: int
    pool_bytes: int
    largest_part: int
    pause_ns: int

    @classmethod
    def draw(cls, dice: random.Random, largest_bytes: int) -> Plan:
        """Let the dice say."""
        return cls(
            dice.randbytes(dice.randint(1, largest_bytes)),
            dice.choice((200, PAGE_BYTES, 16 << 10)),
            dice.choice((16 << 10, 32 << 10, 64 << 10)),
            dice.choice((600, 9_000, 40_000)),
            dice.choice((0, 2_000, LONGEST_PAUSE_NS)),
        )


class StreamEnd(GenerationEnd):
    """One end of a stream: sends ``plan``'s data, receives ``expected``'s.

    ``counts`` are the bytes received in each way, ``told_in_memory`` notifications and credits told so.
    """

    def __init__(
        self, node: Node, pd: int, number: int, dice: random.Random, plan: Plan, expected: Plan
    ) -> None:
        super().__init__(node, dice)
        self.plan, self.expected = plan, expected
        self.sent = self.received = 0
        self.counts: Counter[str] = Counter()
        device = node.device
        places = itertools.count(BASE_VA * node.number + (number << 40), _PLACE_STEP)
        length = expected.pool_bytes + BEHIND_BYTES
        self.pool = Place(device, pd, length, LOCAL | REMOTE_WRITE, next(places))
        self._behind = BehindPool(int(address_of(self.pool.view)) + expected.pool_bytes)
        self._in_memory = dice.random() < 0.5
        self._unconfirmed: set[int] = set()
        self.told_in_memory = 0
        self._asked_at = -1
        self._asleep = False
        self._source = Place(device, pd, len(plan.data), LOCAL, next(places))
        self._source.view[:] = plan.data
        depth = MESSAGES * (WORK_REQUESTS + SCATTERED)
        self._cq: CqHandle = device.create_cq(depth + RECEIVES)
        self.qp: QpHandle = device.create_qp(
            pd, RC, self._cq, self._cq, None, depth, RECEIVES, 1, 1, INLINE_BYTES, False
        )
        self._numbers = itertools.count(1)
        self._under_way: deque[int] = deque()
        self._held: dict[int, tuple[int, bytes]] = {}
        self._pausing = False
        self.state: StreamState
        self._requests: WorkRequests

    def meet(self, peer: StreamEnd) -> None:
        """The queue pairs are connected: what the peers have offered each other."""
        place = peer.pool
        self.state = StreamState(
            self.expected.pool_bytes, Offer(place.va, peer.expected.pool_bytes, place.rkey)
        )
        self.state.opened = True
        record = place.va + peer.expected.pool_bytes
        self._requests = WorkRequests(self.qp, place.va, place.rkey, record)
        self._requests.receive(RECEIVES)
        if self._in_memory:
            self._requests.notify(self._next(), self.state.in_memory())

    # what happens

    def turn(self) -> bool:
        if self.stopped:
            return False
        worked = self._poll()
        if self.stopped:
            return True
        if not self._pausing:
            worked = self._receive() or worked
        worked = self._send() or worked
        return self._give_credit() or worked

    def _poll(self) -> bool:
        completions = self._cq.poll(2 * RECEIVES)
        for each in completions:
            if each.status:
                self._fail(each.status)
                return True
            if each.opcode & RECV:
                self._requests.receive(1)
                self._heed(self._arrived, each.imm_data)
            else:
                self._sent_until(each.wr_id)
        if completions:
            self._asleep = False
        if self.state.peer_in_memory and not self._asleep and not self.stopped:
            self._heed(self._look)
        return bool(completions)

    def _heed(self, what: Callable[..., None], *arguments: int) -> None:
        try:
            what(*arguments)
        except ProtocolError as error:
            self.stopped = True
            self.violate("peers keep to the protocol of streams", str(error))

    def _arrived(self, immediate: int) -> None:
        self._take_told()
        if self.state.arrived(immediate) == CREDIT:
            self.state.peers.credited(*self._behind.record())

    def _take_told(self) -> None:
        while immediate := self._behind.take(self.state.next_number()):
            self.state.arrived_in_memory(immediate)

    def _look(self) -> None:
        """At memory; who finds nothing new since his last request for an event sleeps, having made one."""
        self._take_told()
        self.state.peers.credited(*self._behind.record())
        if self._asked_at != self.state.received:
            self._asked_at = self.state.received
            self._requests.request_event(self._next(), IMMEDIATE)
        else:
            self._asleep = True

    def _sent_until(self, number: int) -> None:
        """Messages up to ``number`` are written: what was told in memory may need an event."""
        while self._under_way and self._under_way[0] <= number:
            self._under_way.popleft()
        written = {each for each in self._unconfirmed if each <= number}
        self._unconfirmed -= written
        if written and self._behind.take_event_request():
            self._requests.notify(self._next(), self.state.event())

    def _fail(self, status: int) -> None:
        self.stopped = True
        if status not in (RETRY_EXCEEDED, FLUSHED):
            self.violate("requests succeed", f"a request of a stream failed with status {status}")

    def _pause_ns(self) -> int:
        return self.dice.randrange(self.expected.pause_ns + 1)

    # receiving

    def _receive(self) -> bool:
        own = self.state.own
        if not own.available:
            return False
        length = self.dice.randint(1, self.expected.pool_bytes)
        kind = self.dice.choice((COPY, MAP, LEND))
        found = own.whole_pages(length) if kind == MAP else own.run(length) if kind == LEND else None
        if found is not None and own.held + found[1] <= self.expected.pool_bytes // 2:
            offset, size = found
            self._take(kind, self._at(offset, size))
            position = own.hold(size)
            self._held[position] = offset, self._at(offset, size)
            self.later(self._pause_ns(), lambda: self._release(position))
        else:
            length = min(length, own.available)
            self._take(COPY, b"".join(self._at(*piece) for piece in own.look(length)))
            own.take(length)
        if self.expected.pause_ns:
            self._pausing = True
            self.later(self._pause_ns(), self._go_on)
        return True

    def _at(self, offset: int, length: int) -> bytes:
        return bytes(self.pool.view[offset : offset + length])

    def _take(self, kind: str, data: bytes) -> None:
        end = self.received + len(data)
        if data != self.expected.data[self.received : end]:
            text = f"bytes {self.received} … {end} of a stream are not what was sent"
            self.violate("bytes arrive once, in order", text)
        self.received = end
        self.counts[kind] += len(data)

    def _release(self, position: int) -> None:
        offset, data = self._held.pop(position)
        if self._at(offset, len(data)) != data:
            self.violate("pages that are held stay", f"{len(data)} bytes of the pool have changed")
        self.state.own.release(position)

    def _go_on(self) -> None:
        self._pausing = False

    def _give_credit(self) -> bool:
        if len(self._under_way) >= MESSAGES - 1:
            return False
        found = self.state.next_credit()
        if found is None:
            return False
        if self._tells_in_memory():
            self._requests.credit_in_memory(self._next_in_memory(), *found[:2])
        else:
            self._requests.credit(self._next(), *found)
        return True

    # sending

    def _next(self) -> int:
        number = next(self._numbers)
        self._under_way.append(number)
        return number

    def _next_in_memory(self) -> int:
        number = self._next()
        self.told_in_memory += 1
        self._unconfirmed.add(number)
        return number

    def _tells_in_memory(self) -> bool:
        return self._in_memory and self.dice.random() < 0.5

    def _send(self) -> bool:
        worked, total = False, len(self.plan.data)
        while len(self._under_way) < MESSAGES - RESERVED and not self.state.said_fin:
            if self.sent == total:
                self._requests.notify(self._next(), self.state.fin(False))
                return True
            wanted = min(self.dice.randint(1, self.plan.largest_part), total - self.sent)
            length, places, immediate = self.state.next_data(wanted, self.plan.threshold)
            if not length:
                break
            inline = length <= INLINE_BYTES
            runs = self._runs(length, inline)
            if len(runs) == 1 and self._tells_in_memory():
                self._requests.write_in_memory(
                    self._next_in_memory(), *runs[0], places, immediate, inline
                )
            else:
                self._requests.write(self._next(), runs, places, immediate, SIGNALED, inline)
            self.sent += length
            worked = True
        return worked

    def _runs(self, length: int, inline: bool) -> list[Page]:
        """The next bytes: in one run, or scattered as far as requests are concerned."""
        if inline:
            return [Page(int(address_of(self._source.view[self.sent :])), length, 0)]
        cuts = {0, length, *(self.dice.randrange(length) for _ in range(self.dice.randrange(SCATTERED)))}
        base = self._source.va + self.sent
        return [Page(base + at, end - at, self._source.lkey) for at, end in itertools.pairwise(sorted(cuts))]

    # the end

    @property
    def done(self) -> bool:
        """Whether everything has arrived, and the end."""
        return self.received == len(self.expected.data) and self.state.finished and not self._held

    def finish(self, peer: StreamEnd) -> None:
        """The world is at rest."""
        if not (self.done or self.stopped or peer.stopped):
            text = f"{self.received} of {len(self.expected.data)} bytes, {len(self._held)} parts are held"
            self.violate("every byte arrives", text)
        world = self.node.world
        world.trace.add(
            world.now, "stream", self.node.number, received=self.received, pool=self.expected.pool_bytes,
            told_in_memory=self.told_in_memory, **self.counts,
        )  # fmt: skip

    def close(self) -> None:
        self.qp.destroy()
        self._cq.destroy()
        self.pool.close()
        self._source.close()
