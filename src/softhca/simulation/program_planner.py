"""The programs of a setting: who talks to whom, what each posts, what it receives into, who judges it."""

from __future__ import annotations

import itertools
import random
from dataclasses import dataclass

from softhca.simulation.access_violations import RECEIVE
from softhca.simulation.conditions import GIVE_UP_NS, RETRIES, Conditions
from softhca.simulation.endpoint import DEPTH, Endpoint, Oracles, Receives
from softhca.simulation.frames import GRH_BYTES
from softhca.simulation.host import Host
from softhca.simulation.kinds import BOARD_WRITE, MESSAGES, RAW, RC, UC, UD
from softhca.simulation.operations import ELEMENTS, Operation, operations_of, uses_receive
from softhca.simulation.oracle import CompletionOrder
from softhca.simulation.oracle_rc import ReliableOracle
from softhca.simulation.oracle_uc import UnreliableOracle
from softhca.simulation.oracle_ud import DatagramOracle
from softhca.simulation.program import Pair, Program
from softhca.simulation.recorder import WORD_BYTES
from softhca.simulation.targets import local_elements
from softhca.simulation.world import World


@dataclass(frozen=True, slots=True)
class Draft:
    """A program to be: side 0 or 1 of pair ``at``."""

    at: int
    side: int
    host: Host
    operations: list[Operation]

    @property
    def name(self) -> str:
        """What violations call it."""
        return f"adapter {self.host.node.number} pair {self.at} {'ab'[self.side]}"

    @property
    def offends(self) -> bool:
        """Whether it asks for what it may not have."""
        return any(operation.violation for operation in self.operations)


class ProgramPlanner:
    """Makes the programs of one generation; their buffers are reserved in the arenas of ``hosts``.

    ``datagrams`` judges all datagrams of the generation.
    """

    def __init__(
        self, world: World, conditions: Conditions, dice: random.Random, hosts: dict[int, Host], seed: int,
        generation: int,
    ) -> None:  # fmt: skip
        self.datagrams = DatagramOracle(world.report, conditions.once, conditions.all_delivered)
        self._world = world
        self._conditions = conditions
        self._scenario = conditions.scenario
        self._dice = dice
        self._hosts = hosts
        self._seed = seed
        self._generation = generation
        self._boards_written: set[int] = set()

    def pairs(self) -> list[Pair]:
        """All pairs of programs."""
        drafts = [self._drafts(at, couple) for at, couple in enumerate(self._couples())]
        shared = {number: self._shared_receives(host, drafts) for number, host in self._hosts.items()}
        found: list[Pair] = []
        for left, right in drafts:
            one, other = (
                self._program(
                    mine, theirs, shared[mine.host.node.number], self._incoming(theirs, mine, drafts)
                )
                for mine, theirs in ((left, right), (right, left))
            )
            self._join(one, other)
            found.append((one, other))
        return found

    def _couples(self) -> list[tuple[int, int]]:
        """Adapters of each pair."""
        numbers, scenario = sorted(self._hosts), self._scenario
        between = [couple for couple in itertools.combinations(numbers, 2) for _ in range(scenario.pairs)]
        return between + [(number, number) for number in numbers for _ in range(scenario.inside)]

    def _drafts(self, at: int, couple: tuple[int, int]) -> tuple[Draft, Draft]:
        offender = self._dice.randrange(2) if self._scenario.violation else -1
        left, right = (self._hosts[number] for number in couple)
        return (
            Draft(at, 0, left, self._operations(at, 0, right, offender == 0)),
            Draft(at, 1, right, self._operations(at, 1, left, offender == 1)),
        )

    def _operations(self, at: int, side: int, there: Host, offends: bool) -> list[Operation]:
        """The requests of one side; only one program of a generation writes a host's board."""
        number = there.node.number
        writes_board = BOARD_WRITE in self._scenario.kinds and number not in self._boards_written
        self._boards_written.add(number)
        end = f"{self._generation}/{at}/{side}"
        # neighbouring seeds see different kinds of access violation
        turn = self._seed * self._scenario.pairs + at if offends else -1
        hosts = self._hosts.values() if self._scenario.group else [there]
        mtu = min(host.node.mtu for host in hosts)
        return operations_of(self._scenario, self._seed, end, mtu, writes_board, turn)

    # receives

    def _shared_receives(self, host: Host, drafts: list[tuple[Draft, Draft]]) -> Receives | None:
        """One queue for all that comes to a host, if the scenario wants it."""
        if not self._scenario.shared:
            return None
        incoming = [
            operation
            for left, right in drafts
            for mine, theirs in ((left, right), (right, left))
            if mine.host is host
            for operation in theirs.operations
        ]
        return self._receives(host, incoming)

    def _receives(self, host: Host, incoming: list[Operation]) -> Receives:
        """Buffers for all messages that may come in; for unreliable services, which may repeat, more."""
        scenario, conditions, dice = self._scenario, self._conditions, self._dice
        count = sum(uses_receive(operation) for operation in incoming)
        length = max((len(operation.data) for operation in incoming if operation.kind in MESSAGES), default=0)
        length += GRH_BYTES if scenario.service == UD else 0
        length += -length % WORD_BYTES if scenario.service == RAW else 0
        count *= 1 if scenario.service == RC else 2
        few = not conditions.needs_all_receives and dice.random() < 0.5
        if conditions.faults.receives:
            count = min(count, conditions.faults.receives)
        room = dice.randint(2, DEPTH) if few else max(count, 1)
        buffers = [host.arena.scatter(length, 1 + at % ELEMENTS) for at in range(count)]
        receives = Receives(buffers, room)
        if scenario.service in (UD, RAW) and not conditions.lossless:
            # what does not fit is dropped, and its receive waits for something shorter
            few_of_them = [at for at in range(count) if dice.random() < 0.1]
            receives.short = {at: dice.randrange(length) for at in few_of_them}
        return receives

    # programs

    def _incoming(
        self, theirs: Draft, mine: Draft, drafts: list[tuple[Draft, Draft]]
    ) -> list[Operation]:
        """What may come to a program: its peer's requests, or those of all others in its group."""
        if not self._scenario.group:
            return theirs.operations
        others = [draft for couple in drafts for draft in couple if draft is not mine]
        return [operation for draft in others for operation in draft.operations]

    def _program(
        self, mine: Draft, theirs: Draft, shared: Receives | None, incoming: list[Operation]
    ) -> Program:
        receives = shared or self._receives(mine.host, incoming)
        conditions, offends, suffers = self._conditions, mine.offends, theirs.offends
        legal, flushable = conditions.legal(suffers), conditions.flushable(suffers)
        order = CompletionOrder(self._world.report, mine.name, legal, flushable)
        order.receives_go_on = self._scenario.service != RC
        order.receives_apart = conditions.solicited
        oracles = Oracles(order)
        program = Program(mine.host, mine.name, self._scenario, mine.operations, receives, oracles)
        if conditions.needs_cause(offends, suffers):
            order.excuse = lambda status: self._had_cause(program)
        return program

    def _had_cause(self, program: Endpoint) -> bool:
        """Whether so many packets of a connection vanished, or were too late, lately that its requester may
        give up.  Each of its retries may have to wait for those who share its window."""
        sharers, world = self._world.wire.sharers(program.address), self._world
        since_ns = self._world.now - GIVE_UP_NS * sharers
        ends = (program.address, program.peer.address)
        kinds = world.losses, world.late
        times = [time_ns for end in ends for kind in kinds for time_ns in kind.get(end, ())]
        lost = [time_ns for time_ns in times if time_ns >= since_ns]
        return len(lost) > RETRIES

    def _join(self, left: Program, right: Program) -> None:
        """Reserve their buffers, and give each the oracles of its direction."""
        left.peer, right.peer = right, left
        for program in (left, right):
            program.prepare()
            self._judge(program)

    def _judge(self, program: Endpoint) -> None:
        """The oracles of what one program sends."""
        conditions, oracles, peer = self._conditions, program.oracles, program.peer
        if self._scenario.service == RC:
            late = conditions.faults.poll_ns or conditions.solicited or program.internal
            report = self._world.report
            oracles.rc = ReliableOracle(report, oracles.order, peer.oracles.order, not late)
            oracles.counter, oracles.board = peer.host.counter_oracle, peer.host.board_oracle
        elif self._scenario.service == UC:
            lossless = conditions.lossless and not any(one.violation for one in program.operations)
            oracles.uc = UnreliableOracle(self._world.report, oracles.order, conditions.orderly, lossless)
        else:
            oracles.ud = self.datagrams


def break_receives(program: Endpoint) -> None:
    """Make those receives wrong that the peer's access violation is about; their region is registered."""
    taken, arena = 0, program.host.arena
    for operation in program.peer.operations:
        violation = operation.violation
        if violation is not None and violation.side == RECEIVE:
            buffer = program.receives.buffers[taken]
            elements = local_elements(arena, buffer, 1, violation)
            if violation.too_long:
                elements = local_elements(arena, buffer._replace(length=len(operation.data) - 1), 1)
            program.receives.elements[taken] = elements
            program.oracles.order.expected_receives[taken] = violation.receive_status
        taken += uses_receive(operation)
