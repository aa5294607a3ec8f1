"""Conversations in a world: two programs find each other by the communication manager, connect their queue
pairs, exchange messages, and part; often again and again with the same queue pairs and the same PSNs.

A `Caller` is the program of one host: its channel of connections, its completion queue, its sides.  A
`Side` is one end of a conversation with its queue pair.  What they see is judged here: messages are those
of this connection, whole, in order and once; and of a handshake both ends say the same in the end.
"""

from __future__ import annotations

import errno
import itertools
import random
from collections.abc import Callable
from dataclasses import dataclass

from softhca.driver import services
from softhca.driver.connections import (
    CM_DISCONNECT_REQUEST,
    CM_DISCONNECTED,
    CM_ESTABLISHED,
    CM_REJECTED,
    CM_REPLIED,
    CM_REQUEST,
    CM_UNREACHABLE,
    CmChannel,
    CmEvent,
    CmPath,
    CmQueuePair,
)
from softhca.driver.errors import DriverError
from softhca.management.cm.messages import REJ_CONSUMER_DEFINED, REJ_STALE_CONNECTION
from softhca.queues.states import RESET
from softhca.simulation.arena import BASE_VA
from softhca.simulation.conditions import RETRIES, TIMEOUT
from softhca.simulation.generation import Stoppable
from softhca.simulation.kinds import FLUSHED, RC, RECEIVED, RETRY_EXCEEDED
from softhca.simulation.mailboxes import LOCAL, Place
from softhca.simulation.node import Node

SERVICE_ID = 0x736F6674
CM_TIMEOUT = 8
"""A peer may take 1 ms to answer the communication manager."""
CM_RETRIES = 15
ENTRIES = 1024
SEND_OPCODE, SIGNALED = 2, 2
MOST_ATTEMPTS = 200
LONGEST_RETRY_NS, LONGEST_REST_NS = 2_000_000, 500_000
MOST_BACK_OFF = 7
"""Who is told of an old connection waits twice as long each time, until that one is over."""
LONGEST_THOUGHT_NS = 3_000_000_000
_PLACE_STEP = 1 << 32

# what a side says of its connection
BEGUN, ESTABLISHED, OVER = "begun", "established", "over"
AGREED = "both ends of a handshake agree"
THIS_CONNECTION = "messages are those of this connection, in order"
ARRIVES = "every message arrives"


@dataclass(frozen=True)
class Plan:
    """What a conversation is about.

    ``rounds``: for each connection the messages of the active side and of the passive one.
    ``rejecter``: the side that says no (0 the active one, to the reply; 1 the passive one; −1 none).
    ``closer``: who disconnects; ``closes_last``: after the last round too.  ``slow``: programs think long.
    ``longest_pause_ns``: between two messages.  ``ack_timeout``: decides the time-wait, 4.096 µs × 2^n.
    """

    rounds: tuple[tuple[tuple[bytes, ...], tuple[bytes, ...]], ...]
    rejecter: int
    closer: int
    closes_last: bool
    slow: bool
    longest_pause_ns: int
    ack_timeout: int
    psns: tuple[int, int]

    @classmethod
    def draw(
        cls, dice: random.Random, rounds: int, messages: int, largest_bytes: int, waits: bool
    ) -> Plan:
        """Let the dice say; ``waits``: there are pauses between messages, and none long between rounds."""

        def some() -> tuple[bytes, ...]:
            return tuple(dice.randbytes(dice.randint(1, largest_bytes)) for _ in range(messages))

        return cls(
            rounds=tuple((some(), some()) for _ in range(rounds)),
            rejecter=dice.choice((0, 1)) if not waits and dice.random() < 0.15 else -1,
            closer=dice.randrange(2),
            closes_last=dice.random() < 0.5,
            slow=not waits and dice.random() < 0.2,
            longest_pause_ns=500_000 if waits else 2_000,
            ack_timeout=6 if waits else 10,
            psns=(dice.randrange(1 << 24), dice.randrange(1 << 24)),
        )  # fmt: skip


class Caller(Stoppable):
    """The program of a host: all its sides, by queue pair and by conversation."""

    def __init__(self, node: Node, sides: int, depth: int, service_id: int) -> None:
        super().__init__(node)
        self.service_id = service_id
        self.crashes = node.crashes
        self.device = node.device
        self.pd = self.device.alloc_pd()
        self.cq = self.device.create_cq(2 * depth * sides)
        self.channel: CmChannel = self.device.open_connections(1, ENTRIES)
        self.channel.listen(service_id, 1024)
        self.places = itertools.count(BASE_VA * node.number, _PLACE_STEP)
        self.by_queue_pair: dict[int, Side] = {}
        self.passive: dict[int, Side] = {}
        self.by_connection: dict[int, Side] = {}

    @property
    def alive(self) -> bool:
        """Whether the adapter that all this belongs to still lives."""
        return self.crashes == self.node.crashes

    def turn(self) -> bool:
        """Take completions and events; whether there were any."""
        if self.stopped:
            return False
        worked = False
        for completion in self.cq.poll(1_000):
            worked = True
            side = self.by_queue_pair[completion.qp_num]
            side.completed(completion.status, completion.opcode == RECEIVED, completion.byte_len)
        while (event := self.channel.receive(0)) is not None:
            worked = True
            self._on_event(event)
        return worked

    def _on_event(self, event: CmEvent) -> None:
        if event.kind == CM_REQUEST:
            self.passive[int.from_bytes(event.private_data[:2], "big")].requested(event)
            return
        side = self.by_connection.get(event.id)
        if side is not None:
            side.on_event(event)

    def close(self) -> None:
        """Give everything back."""
        self.channel.close()
        for side in self.by_queue_pair.values():
            side.qp.destroy()
            side.place.close()
        self.cq.destroy()
        self.device.dealloc_pd(self.pd)


class Side:
    """One end of conversation ``index``: ``own`` 0 is active, 1 passive; ``state`` of its connection in the
    present round.  ``failed``: its queue pair gave up; ``stale``: how often it was told of an old connection.
    """

    peer: Side

    def __init__(
        self, caller: Caller, index: int, own: int, plan: Plan, path: services.Path, dice: random.Random
    ) -> None:
        self.caller = caller
        self.index = index
        self.own = own
        self.plan = plan
        self.path = path
        self.dice = dice
        self.state = OVER
        self.round = 0
        self.id = 0
        self.failed = self.parted = False
        self.stale = self.attempts = self.acknowledged = self.received = 0
        self._epoch = self._since_ns = 0
        self.depth = len(plan.rounds[0][0])
        self._room = max(len(each) for pair in plan.rounds for way in pair for each in way)
        length = 2 * self.depth * self._room
        self.place = Place(caller.device, caller.pd, length, LOCAL, next(caller.places))
        self.qp = caller.device.create_qp(
            caller.pd, RC, caller.cq, caller.cq, None, self.depth, self.depth, 1, 1, 0, False
        )
        caller.by_queue_pair[self.qp.number] = self
        if own:
            caller.passive[index] = self

    def __str__(self) -> str:
        kind = "passive" if self.own else "active"
        return f"conversation {self.index}, round {self.round}, {kind} at adapter {self.caller.node.number}"

    def fail(self, rule: str, text: str) -> None:
        """A rule is broken."""
        self.caller.node.world.report.fail(rule, f"{self}: {text}")

    # connecting

    def call(self) -> None:
        """Ask for the connection of this round."""
        self.attempts += 1
        number, plan = self.qp.number, self.plan
        path = CmPath(
            self.path.dgid or bytes(16), lid=self.path.dlid, sl=self.path.sl, path_mtu=self.path.mtu,
            ack_timeout=plan.ack_timeout, cm_response_timeout=CM_TIMEOUT, max_cm_retries=CM_RETRIES,
        )  # fmt: skip
        about = self.index.to_bytes(2, "big") + self.round.to_bytes(2, "big")
        end = CmQueuePair(number, plan.psns[1])
        self._begin(self.caller.channel.connect(self.caller.service_id, path, end, about))

    def _begin(self, number: int) -> None:
        self.caller.by_connection.pop(self.id, None)
        self.id = number
        self.caller.by_connection[number] = self
        self.state = BEGUN
        self.failed = self.parted = False
        self.acknowledged = self.received = 0
        self._epoch += 1
        self._since_ns = self.caller.node.world.now

    def _think(self, action: Callable[[], None]) -> None:
        """Do something about this connection, in a while; not when it is over by then."""
        epoch = self._epoch

        def now() -> None:
            if self._epoch == epoch and self.state == BEGUN:
                try:
                    action()
                except DriverError as error:
                    if error.errno != errno.EINVAL:
                        raise  # else the moment has passed; an event tells why

        if self.plan.slow:
            self.caller.later(self.dice.randrange(LONGEST_THOUGHT_NS), now)
        else:
            now()

    def requested(self, event: CmEvent) -> None:
        """A request of the peer's: perhaps a late copy of an old one."""
        if self.state != OVER:
            self.caller.channel.reject(event.id, REJ_STALE_CONNECTION)
            return
        self._begin(event.id)
        self.round = int.from_bytes(event.private_data[2:4], "big")
        self._think(self._answer)

    def _answer(self) -> None:
        if self.plan.rejecter == 1:
            self._leave(lambda: self.caller.channel.reject(self.id, REJ_CONSUMER_DEFINED))
            return
        self._raise()
        self.caller.channel.reply(self.id, CmQueuePair(self.qp.number, self.plan.psns[0]))

    def _confirm(self) -> None:
        if self.plan.rejecter == 0:
            self._leave(lambda: self.caller.channel.reject(self.id, REJ_CONSUMER_DEFINED))
            return
        self._raise()
        self.caller.channel.ready(self.id)
        self._established()

    def _raise(self) -> None:
        """Queue pair to RTS, receives posted."""
        own, other = self.plan.psns[self.own], self.plan.psns[1 - self.own]
        how = services.Reliability(TIMEOUT, RETRIES, RETRIES, 1, 1, 1)
        services.connect(self.qp, self.path, self.peer.qp.number, other, own, LOCAL, how)
        for number in range(self.depth):
            start = self.place.va + (self.depth + number) * self._room
            self.qp.post_recv(number, [(start, self._room, self.place.lkey)])

    def on_event(self, event: CmEvent) -> None:
        """An event of this side's connection."""
        kind = event.kind
        if kind == CM_REPLIED:
            self._think(self._confirm)
        elif kind == CM_ESTABLISHED:
            self._established()
        elif kind == CM_DISCONNECT_REQUEST:
            self._over()
            self.caller.channel.disconnect(event.id)
        elif kind in (CM_DISCONNECTED, CM_REJECTED, CM_UNREACHABLE):
            stale = kind == CM_REJECTED and event.status == REJ_STALE_CONNECTION
            self.stale += stale
            self._over(again=stale)

    def _established(self) -> None:
        self.state = ESTABLISHED
        self._send(0)

    def _leave(self, goodbye: Callable[[], None]) -> None:
        goodbye()
        self._over()

    def _over(self, again: bool = False) -> None:
        """The connection is over; the active side begins the next round, or tries this one ``again``."""
        if self.state == OVER:
            return
        closed = self.peer.parted and self.peer.round == self.round and self.state == ESTABLISHED
        if closed and self.received < self.depth:
            self.fail(ARRIVES, f"{self.received} of {self.depth} messages at the end")
        again = again and self.state == BEGUN
        done = self.state == ESTABLISHED
        self.state = OVER
        self._epoch += 1
        self.qp.modify({"qp_state": RESET})
        if self.own:
            return
        if done:
            self.round += 1
            self.attempts = 0
        if self.attempts >= MOST_ATTEMPTS:
            self.fail(AGREED, f"no connection in {MOST_ATTEMPTS} attempts")
        elif again or (done and self.round < len(self.plan.rounds)):
            longest_ns = LONGEST_RETRY_NS << min(self.attempts, MOST_BACK_OFF) if again else LONGEST_REST_NS
            self.caller.later(self.dice.randrange(longest_ns), self.call)

    # messages

    @property
    def messages(self) -> tuple[bytes, ...]:
        """What this side says in this round."""
        return self.plan.rounds[self.round][self.own]

    def _send(self, number: int) -> None:
        """Send message ``number``, and the next one a while later."""
        message = self.messages[number]
        start = number * self._room
        self.place.view[start : start + len(message)] = message
        element = (self.place.va + start, len(message), self.place.lkey)
        self.qp.post_send(SEND_OPCODE, SIGNALED, 0, number, 0, 0, 0, 0, 0, 0, 0, [element], None)
        self.qp.ring()
        if number + 1 < self.depth:
            epoch = self._epoch

            def next_one() -> None:
                if self._epoch == epoch and not self.failed:
                    self._send(number + 1)

            self.caller.later(self.dice.randrange(self.plan.longest_pause_ns), next_one)

    def completed(self, status: int, receive: bool, length: int) -> None:
        """A work request of this side has completed."""
        if self.state == OVER or status == FLUSHED:
            return
        if status:
            self._broken(status)
            return
        if receive:
            self._take(length)
        else:
            self.acknowledged += 1
        if self.state == ESTABLISHED and self.acknowledged == self.received == self.depth:
            last = self.round + 1 == len(self.plan.rounds)
            if self.plan.closer == self.own and (self.plan.closes_last or not last):
                self._part()

    def _take(self, length: int) -> None:
        start = (self.depth + self.received) * self._room
        expected = self.peer.plan.rounds[self.round][1 - self.own][self.received]
        if bytes(self.place.view[start : start + length]) != expected:
            self.fail(THIS_CONNECTION, f"message {self.received} is not what the peer sent in this round")
        self.received += 1

    def _broken(self, status: int) -> None:
        self.failed = True
        peer = self.peer
        listens = peer.state == ESTABLISHED and peer.round == self.round and not peer.caller.stopped
        if status != RETRY_EXCEEDED:
            self.fail("requests succeed", f"status {status}")
        elif listens and self._vanished() <= RETRIES:
            self.fail("requests succeed", "given up, and hardly a packet was lost")
        if self.state == ESTABLISHED:
            self._disconnect()

    def _vanished(self) -> int:
        """How many packets of this connection have vanished on the way."""
        losses, sides = self.caller.node.world.losses, (self, self.peer)
        times = [losses.get((side.caller.node.number, side.qp.number), []) for side in sides]
        return sum(time_ns >= self._since_ns for each in times for time_ns in each)

    def _part(self) -> None:
        self.parted = True
        self._disconnect()

    def _disconnect(self) -> None:
        try:
            self.caller.channel.disconnect(self.id)
        except DriverError as error:
            if error.errno != errno.EINVAL:
                raise  # else the peer disconnects at the same moment

    # the end

    def judge(self) -> None:
        """The world is at rest: what the active side says of both."""
        if self.state not in (ESTABLISHED, OVER) or self.state != self.peer.state:
            self.fail(AGREED, f"{self.state} here, {self.peer.state} there")
        if self.stale and len(self.plan.rounds) == 1 and not self.caller.node.world.faults.crashes:
            self.fail(AGREED, "told of an old connection, and this is the first")
        for side in (self, self.peer):
            whole = side.failed or side.peer.failed or side.received == side.depth
            if side.state == ESTABLISHED and not whole:
                side.fail(ARRIVES, f"{side.received} of {side.depth} messages")
