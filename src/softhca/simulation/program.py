"""Programs of a world: they post a scenario's requests and receives, and go on with what completes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from softhca.driver.device import Completion
from softhca.simulation import kinds
from softhca.simulation.access_violations import HANDLE, LOCAL
from softhca.simulation.endpoint import DEPTH, QKEY, Endpoint
from softhca.simulation.kinds import OPCODES, RELAY
from softhca.simulation.operations import ELEMENTS, Operation
from softhca.simulation.recorder import Recorder
from softhca.simulation.targets import local_elements, remote_target

RECEIVE_BIT = 1 << 32
"""In wr_id: it belongs to a receive."""
FENCE, SIGNALED, SOLICITED = 1, 2, 4
"""ibv_send_flags"""


@dataclass(eq=False)
class Program(Endpoint):
    """The program of one queue pair: `advance` posts, `take` is given completions.

    A ``stopped`` one posts nothing more.  Its ``recorder`` hears of everything.
    """

    stopped: bool = False
    recorder: Recorder = field(init=False)
    _next: int = 0
    _not_before_ns: int = 0

    def __post_init__(self) -> None:
        self.recorder = Recorder(self)

    def post_receives(self, count: int) -> None:
        """Post the next ``count`` receives."""
        post: Callable[[int, list[tuple[int, int, int]]], None]
        post = self.qp.post_recv if self.host.srq is None else self.host.srq.post
        receives = self.receives
        count = min(count, receives.room - (receives.posted - receives.taken))
        for index in range(receives.posted, min(receives.posted + count, len(receives.buffers))):
            buffer = receives.buffers[index]
            elements = receives.elements.get(index)
            if elements is None:
                buffer = buffer._replace(length=receives.short.get(index, buffer.length))
                elements = local_elements(self.host.arena, buffer, 1 + index % ELEMENTS)
            post(RECEIVE_BIT | index, elements)
            receives.posted = index + 1
            self.recorder.posts_receive()

    def refill(self, _: object = None) -> None:
        """Post one more receive, and plan the next one."""
        if self.stopped:
            return
        self.post_receives(1)
        self.node.turn()
        if self.receives.posted < len(self.receives.buffers):
            self.plan_refill()

    def plan_refill(self) -> None:
        """Post one more receive when the scenario says."""
        self.node.world.at(self.node.world.now + self.scenario.receive_every_ns, self.refill)

    def advance(self) -> bool:
        """Post what may be posted; whether there was anything."""
        posted = False
        while self._may_post():
            operation = self.operations[self._next]
            self._post(operation)
            self._next += 1
            posted = True
            if self._next < len(self.operations) and self.operations[self._next].gap_ns:
                self._not_before_ns = self.node.world.now + self.operations[self._next].gap_ns
                self.node.world.at(self._not_before_ns, self.wake)
            if not (operation.chained and self._may_post()):
                self.qp.ring()
        return posted

    def wake(self, _: object = None) -> None:
        """It is time to post again."""
        if self.advance():
            self.node.turn()

    def _may_post(self) -> bool:
        order = self.oracles.order
        return (
            self._next < len(self.operations)
            and order.posted - order.completed < DEPTH
            and not self.stopped
            and self.node.world.now >= self._not_before_ns
        )

    def _post(self, operation: Operation) -> None:
        compare, swap = 0, 0
        if operation.kind == kinds.ADD:
            compare = operation.addend
        elif operation.kind == kinds.SWAP:
            compare = self.recorder.counter_value
            swap = compare + operation.addend
        self.recorder.posts(operation, compare)
        flags = (SIGNALED if operation.signaled else 0) | (SOLICITED if operation.solicited else 0)
        flags |= FENCE if operation.kind == RELAY else 0
        target = remote_target(operation, self.sights[operation.index].remote, self.peer.host.arena)
        violation = operation.violation
        ah = self.foreign_ah if violation is not None and violation.side == HANDLE else self.ah
        self.qp.post_send(
            OPCODES[operation.kind], flags, operation.immediate or 0, operation.index, target.va, target.rkey,
            compare, swap, ah, self.target(operation), QKEY, *self._payload(operation),
        )  # fmt: skip

    def _payload(self, operation: Operation) -> tuple[list[tuple[int, int, int]], bytes | None]:
        """Its scatter/gather elements, or the bytes that go inline."""
        if operation.inline:
            return [], operation.data
        wrong = operation.violation
        if wrong is not None and (wrong.side != LOCAL or wrong.too_long):
            wrong = None
        buffer = self.sights[operation.index].local
        return local_elements(self.host.arena, buffer, operation.elements, wrong), None

    def take(self, completion: Completion) -> bool:
        """A completion of this queue pair; whether its sender may have wanted it to be seen at once."""
        if completion.status:
            self.recorder.fails(completion.status)
        if not completion.wr_id & RECEIVE_BIT:
            self.recorder.completes(completion.wr_id, completion)
            return False
        received = self.recorder.receives(completion.wr_id & ~RECEIVE_BIT, completion)
        if received and not self.scenario.receives_first and not self.stopped:
            self.post_receives(1)
        return self.recorder.solicited

    def take_late(self, completion: Completion) -> None:
        """A receive that was done without an event, found when all is over."""
        self.recorder.late = True
        self.take(completion)


Pair = tuple[Program, Program]
"""Two that talk to each other."""
