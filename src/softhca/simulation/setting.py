"""The programs of a world and what they own: built, connected, and taken down again."""

from __future__ import annotations

import itertools
import random
import sys
from typing import Any

from softhca.driver import services
from softhca.driver.device import CqHandle, DeviceDriver, QpHandle, SrqHandle
from softhca.queues.control_fields import (
    EVENT_CQ_ERR,
    EVENT_QP_ACCESS_ERR,
    EVENT_QP_LAST_WQE_REACHED,
    EVENT_QP_REQ_ERR,
    EVENT_SQ_DRAINED,
    EVENT_SRQ_LIMIT_REACHED,
    QP_ERROR_EVENTS,
)
from softhca.simulation.arena import (
    ATOMIC_BYTES,
    FOREIGN,
    LENT,
    REVOKED,
    RIGHTS,
    Arena,
)
from softhca.simulation.kinds import (
    ADD,
    BOARD_WRITE,
    MESSAGES,
    RC,
    READ,
    REMOTE_ACCESS,
    REMOTE_OPERATION,
    RETRY_EXCEEDED,
    RNR_EXCEEDED,
    SWAP,
    UC,
    UD,
    WRITE,
    WRITE_IMM,
)
from softhca.simulation.node import Node
from softhca.simulation.operations import (
    ELEMENTS,
    INLINE_BYTES,
    LONGEST_TRESPASS,
    MTU_BYTES,
    Operation,
    board_of,
    operations_of,
    uses_receive,
)
from softhca.simulation.oracle import CompletionOrder, check_constant, check_guards, check_resources
from softhca.simulation.oracle_rc import BoardOracle, CounterOracle, ReliableOracle
from softhca.simulation.oracle_uc import UnreliableOracle
from softhca.simulation.oracle_ud import DatagramOracle
from softhca.simulation.oracle_wire_packets import Terms
from softhca.simulation.poller import Poller
from softhca.simulation.program import (
    DEPTH,
    GRH_BYTES,
    QKEY,
    Oracles,
    Program,
    Receives,
    Shared,
)
from softhca.simulation.scenarios import Scenario, dice_of
from softhca.simulation.targets import local_elements
from softhca.simulation.trespass import QUEUE_PAIR, RECEIVE, REMOTE
from softhca.simulation.world import World
from softhca.transport.states import ERR, RTS, SQD

ALL_RIGHTS = 15
RIGHT_FOR = {WRITE: 2, WRITE_IMM: 2, READ: 4, ADD: 8, SWAP: 8}
"""ibv_access_flags that the responder's queue pair must give."""
RETRIES = 7
FOREVER = 7
FEW = 3
"""RNR retries"""
TIMEOUT = 8
GIVE_UP_NS = 4 * (RETRIES + 1) * 4_096 << TIMEOUT
"""After so long without an answer a requester gives up: a timer may take four times its value."""


class Host:
    """What the programs of one setting own on one host."""

    def __init__(self, node: Node, setting: Setting) -> None:
        dice = random.Random(f"{setting.name}/arena/{node.number}")
        report = node.world.report
        arena = Arena(node.number, dice)
        start = dice.randrange(1 << 62)
        counter = arena.reserve(ATOMIC_BYTES, start.to_bytes(ATOMIC_BYTES, sys.byteorder), aligned=True)
        for name in RIGHTS:
            arena.reserve(LONGEST_TRESPASS, region=name)
        board = arena.reserve(len(board_of(0)), board_of(0), aligned=True)
        self.node = node
        self.device: DeviceDriver = node.device
        self.shared = Shared(node, arena, counter, board)
        self.counter_oracle = CounterOracle(report, start)
        self.board_oracle = BoardOracle(report)
        self.has_writer = False
        self.programs: list[Program] = []
        self.crashes = node.crashes
        self.cqs: list[CqHandle] = []
        self.srq: SrqHandle | None = None
        self.srq_limit = 0
        self.pds: list[int] = []
        self.lent: bytes | None = None

    @property
    def alive(self) -> bool:
        """Whether the adapter that all this belongs to still lives."""
        return self.crashes == self.node.crashes


class Setting:
    """One generation of programs between all adapters of a world."""

    def __init__(self, world: World, scenario: Scenario, seed: int, generation: int = 1) -> None:
        self.world = world
        self.scenario = scenario
        self.seed = seed
        self.generation = generation
        self.name = f"{scenario.name}/{seed}/{generation}"
        self.dice = dice_of(scenario, seed, f"setting/{generation}")
        living = [node for node in world.nodes.values() if node.engine is not None]
        self.hosts = {node.number: Host(node, self) for node in living}
        faults = world.faults
        self.orderly = not (faults.duplication or faults.reordering)
        self.lossless = not (
            faults.loss or faults.burst_loss or faults.partitions or faults.flap_ns
            or faults.corruption or faults.truncation or faults.crashes or scenario.tampered
            or faults.receives or faults.cq_entries
        )  # fmt: skip
        heard = self.lossless and not scenario.trespass
        self.datagrams = DatagramOracle(world.report, not faults.duplication, heard)
        # a program that sleeps until its peer wants to be seen must have posted all its receives
        self.armed = not faults.poll_ns and self.dice.random() < 0.4
        self.solicited = self.armed and self.dice.random() < 0.5
        self.pairs: list[tuple[Program, Program]] = []
        self._pollers: dict[str, set[Poller]] = {}
        self._make_programs()
        for host in self.hosts.values():
            host.shared.arena.freeze()
        for host in self.hosts.values():
            self._open(host)
        self._make_queue_pairs()

    @property
    def programs(self) -> list[Program]:
        """All of them."""
        return [program for pair in self.pairs for program in pair]

    # what programs do

    def _couples(self) -> list[tuple[int, int]]:
        numbers, scenario = sorted(self.hosts), self.scenario
        between = [couple for couple in itertools.combinations(numbers, 2) for _ in range(scenario.pairs)]
        return between + [(number, number) for number in numbers for _ in range(scenario.inside)]

    def _make_programs(self) -> None:
        drafts = []
        for at, couple in enumerate(self._couples()):
            offender = self.dice.randrange(2) if self.scenario.trespass else -1
            for side, number in enumerate(couple):
                there = self.hosts[couple[1 - side]]
                drafts.append((at, side, number, self._draft(at, side, there, side == offender)))
        shared = {number: self._shared_receives(number, drafts) for number in self.hosts}
        for left, right in zip(drafts[::2], drafts[1::2], strict=True):
            pair = []
            for mine, theirs in ((left, right), (right, left)):
                at, side, number, operations = mine
                host = self.hosts[number]
                receives = shared[number] or self._receives(host, theirs[3])
                name = f"adapter {number} pair {at} {'ab'[side]}"
                pair.append(self._program(host, name, operations, receives, theirs[3]))
            self._join(*pair)
            self.pairs.append((pair[0], pair[1]))

    def _draft(self, at: int, side: int, there: Host, trespasses: bool) -> list[Operation]:
        writes_board = BOARD_WRITE in self.scenario.kinds and not there.has_writer
        there.has_writer = there.has_writer or writes_board
        end = f"{self.generation}/{at}/{side}"
        return operations_of(self.scenario, self.seed, end, there.node.mtu, writes_board, trespasses)

    def _shared_receives(self, number: int, drafts: list[Any]) -> Receives | None:
        """One queue for all that comes to a host, if the scenario wants it."""
        if not self.scenario.shared:
            return None
        incoming = [
            operation
            for one, other in zip(drafts[::2], drafts[1::2], strict=True)
            for mine, theirs in ((one, other), (other, one))
            if mine[2] == number
            for operation in theirs[3]
        ]
        return self._receives(self.hosts[number], incoming)

    def _receives(self, host: Host, incoming: list[Operation]) -> Receives:
        """Buffers for all messages that may come in; for unreliable services, which may repeat, more."""
        scenario = self.scenario
        count = sum(uses_receive(operation) for operation in incoming)
        room = max((len(operation.data) for operation in incoming if operation.kind in MESSAGES), default=0)
        room += GRH_BYTES if scenario.service == UD else 0
        count *= 1 if scenario.service == RC else 2
        all_posted = scenario.service != RC or self.solicited or scenario.trespass
        few = not all_posted and self.dice.random() < 0.5
        if self.world.faults.receives:
            count = min(count, self.world.faults.receives)
        at_once = self.dice.randint(2, DEPTH) if few else max(count, 1)
        receives = Receives([host.shared.arena.reserve(room) for _ in range(count)], at_once)
        if scenario.service == UD and not self.lossless:
            # what does not fit is dropped, and its receive waits for something shorter
            few_of_them = [at for at in range(count) if self.dice.random() < 0.1]
            receives.short = {at: self.dice.randrange(room) for at in few_of_them}
        return receives

    def _program(
        self, host: Host, name: str, operations: list[Operation], receives: Receives,
        incoming: list[Operation],
    ) -> Program:  # fmt: skip
        scenario = self.scenario
        offends = any(operation.trespass for operation in operations)
        suffers = any(operation.trespass for operation in incoming)
        vanishing = not self.lossless or bool(self.world.faults.stall_ns)
        faults = self.world.faults
        legal = set(scenario.legal)
        if vanishing or suffers or scenario.quit or faults.cq_entries or faults.receives:
            legal.add(RETRY_EXCEEDED)
        if faults.cq_entries:
            legal.add(REMOTE_OPERATION)
        if faults.receives:
            legal.add(RNR_EXCEEDED)
        breaking = (scenario.quit, faults.crashes, faults.cq_entries, scenario.revoke, scenario.tampered)
        flushable = suffers or any(breaking)
        order = CompletionOrder(self.world.report, name, frozenset(legal), flushable)
        program = Program(host.shared, name, scenario, operations, receives, Oracles(order))
        if not (flushable or offends or faults.receives):
            order.excuse = lambda status: self._had_cause(program)
        order.receives_go_on = scenario.service != RC
        order.receives_apart = self.solicited
        host.programs.append(program)
        return program

    def _had_cause(self, program: Program) -> bool:
        """Whether so many packets of a connection vanished lately that its requester may give up."""
        since = self.world.now - GIVE_UP_NS
        ends = ((program.node.number, program.qp.number), (program.peer.node.number, program.peer.qp.number))
        lost = [time_ns for end in ends for time_ns in self.world.losses.get(end, ()) if time_ns >= since]
        return len(lost) > RETRIES

    def _join(self, left: Program, right: Program) -> None:
        """Reserve their buffers, and give each the oracles of its direction."""
        for program, peer in ((left, right), (right, left)):
            program.peer = peer
        for program, peer in ((left, right), (right, left)):
            program.prepare(peer)
            oracles, report = program.oracles, self.world.report
            there = self.hosts[peer.node.number]
            if self.scenario.service == RC:
                late = self.world.faults.poll_ns or self.solicited or peer.node is program.node
                oracles.rc = ReliableOracle(report, oracles.order, peer.oracles.order, not late)
                oracles.counter, oracles.board = there.counter_oracle, there.board_oracle
            elif self.scenario.service == UC:
                lossless = self.lossless and not any(one.trespass for one in program.operations)
                oracles.uc = UnreliableOracle(report, oracles.order, self.orderly, lossless)
            else:
                oracles.ud = self.datagrams

    # what they own

    def _open(self, host: Host) -> None:
        """Domains, regions, completion queues and the shared receive queue of one host."""
        device, arena = host.device, host.shared.arena
        host.pds = [device.alloc_pd(), device.alloc_pd()]
        memory = memoryview(arena.memory)
        for region in arena.regions.values():
            view = memory[region.start : region.start + region.length]
            pd = host.pds[region.name == FOREIGN]
            key = device.reg_mr(pd, 0, region.length, RIGHTS[region.name], iova=region.va, buffer=view)
            region.lkey, region.rkey, region.handle = key.lkey, key.rkey, key.handle
        device.dereg_mr(arena.regions[REVOKED].handle)
        if not host.programs:
            return
        self._break_receives(host)
        if self.scenario.shared:
            receives = host.programs[0].receives
            host.srq = device.create_srq(host.pds[0], receives.room, ELEMENTS)
            host.srq_limit = self.dice.randint(1, receives.room)
        self._make_queues(host)

    def _make_queues(self, host: Host) -> None:
        """One completion queue for all programs, or one for each; polled, or armed and waited for."""
        alone = self.world.faults.cq_entries > 0 or self.dice.random() < 0.3
        groups = [[program] for program in host.programs] if alone else [host.programs]
        for programs in groups:
            # just enough for all that may be under way at once
            receives = {id(program.receives): program.receives.room for program in programs}
            sends, taken = DEPTH * len(programs), sum(receives.values())
            if self.solicited:
                send, receive = self._make_queue(host, sends, False), self._make_queue(host, taken, True)
            else:
                send = receive = self._make_queue(host, sends + taken, False)
            for program in programs:
                program.cq, program.recv_cq = send.cq, receive.cq
                self._pollers[program.name] = {send, receive}

    def _make_queue(self, host: Host, entries: int, solicited: bool) -> Poller:
        faults = self.world.faults
        cq = host.device.create_cq(min(entries, faults.cq_entries or entries))
        host.cqs.append(cq)
        poller = Poller(host.node, cq, self.armed, solicited, faults.poll_ns)
        host.node.tasks.append(poller.turn)
        return poller

    def _break_receives(self, host: Host) -> None:
        """Make those receives wrong that a peer's trespass is about."""
        for program in host.programs:
            taken = 0
            for operation in program.peer.operations:
                trespass = operation.trespass
                if trespass is not None and trespass.side == RECEIVE:
                    arena, buffer = host.shared.arena, program.receives.buffers[taken]
                    whole = local_elements(arena, buffer, 1, trespass)
                    if trespass.too_long:
                        va, _, key = local_elements(arena, buffer, 1)[0]
                        whole = [(va, len(operation.data) - 1, key)]
                    program.receives.elements[taken] = whole
                    program.oracles.order.expected_receives[taken] = trespass.receive_status
                taken += uses_receive(operation)

    def _make_queue_pairs(self) -> None:
        for pair in self.pairs:
            for program in pair:
                self._make_queue_pair(program)
            for program, peer in (pair, pair[::-1]):
                ends = {"qp": program.qp.number, "peer": peer.node.number, "peer_qp": peer.qp.number}
                self.world.trace.add(self.world.now, "queue_pair", program.node.number, **ends)
            psns = [self._first_psn() for _ in pair]
            mtu = min(program.node.mtu for program in pair)
            atomics = self.dice.randint(1, 4)
            left, right = (program.node.number for program in pair)
            paths = self.world.frames.paths(left, right, mtu, self.dice)
            for at, program in enumerate(pair):
                self._connect(program, paths[at], psns[at], psns[1 - at], atomics)

    def _first_psn(self) -> int:
        """Anywhere, and often just before the end of the PSNs."""
        if self.scenario.first_psn >= 0:
            return self.scenario.first_psn
        return self.dice.choice((self.dice.randrange(1 << 24), (1 << 24) - self.dice.randrange(1, 100)))

    def _make_queue_pair(self, program: Program) -> None:
        host = self.hosts[program.node.number]
        count = program.receives.room
        program.srq = host.srq
        program.qp = host.device.create_qp(
            host.pds[0], self.scenario.service, program.cq, program.recv_cq, host.srq, DEPTH,
            0 if host.srq else count, ELEMENTS, ELEMENTS, INLINE_BYTES, False,
        )  # fmt: skip
        for poller in self._pollers[program.name]:
            poller.add(program)

    def _connect(
        self, program: Program, path: services.Path, psn: int, peer_psn: int, atomics: int
    ) -> None:
        rnr_timer = self.dice.randint(1, 5) if self.scenario.service != UD else 0
        self._watch(program, path, psn, peer_psn, atomics, rnr_timer)
        if self.scenario.service == UD:
            services.start_datagrams(program.qp, QKEY, psn)
            host = self.hosts[program.node.number]
            program.ah, program.foreign_ah = (host.device.create_ah(pd, path.vector()) for pd in host.pds)
            return
        how = services.Reliability(TIMEOUT, RETRIES, self._rnr_retry, rnr_timer, atomics, atomics)
        reliable = how if self.scenario.service == RC else None
        rights = ALL_RIGHTS
        for operation in program.peer.operations:
            if operation.trespass is not None and operation.trespass.side == QUEUE_PAIR:
                rights &= ~RIGHT_FOR[operation.kind]
        services.connect(program.qp, path, program.peer.qp.number, peer_psn, psn, rights, reliable)

    @property
    def _rnr_retry(self) -> int:
        return FEW if self.world.faults.receives else FOREVER

    def _watch(
        self, program: Program, path: services.Path, psn: int, peer_psn: int, atomics: int, rnr_timer: int
    ) -> None:
        """Let the wire's oracle follow a queue pair, if its packets pass a wire."""
        if program.peer.node is program.node or (self.scenario.drain and self.world.faults.receives):
            return  # a drained send queue begins to count its RNR retries anew
        scenario, faults = self.scenario, self.world.faults
        strict = not (
            scenario.trespass or scenario.quit or faults.crashes or faults.cq_entries or scenario.revoke
            or scenario.tampered or faults.poll_ns
        )  # fmt: skip
        waits = scenario.receives_first or scenario.receive_every_ns or scenario.forged or faults.receives
        terms = Terms(
            program.name, psn, peer_psn, MTU_BYTES[path.mtu], TIMEOUT, RETRIES, self._rnr_retry, rnr_timer,
            atomics, scenario.shared, strict and not (waits or faults.stall_ns), strict, not faults.stall_ns,
            faults.skew_ppm,
        )  # fmt: skip
        ends = [(end.node.number, end.qp.number) for end in (program, program.peer)]
        self.world.wire.connect(ends[0], ends[1], scenario.service, terms, QKEY)

    # its life

    def start(self, _: object = None) -> None:
        """Post receives and begin."""
        world, scenario = self.world, self.scenario
        for program in self.programs:
            program.post_receives(scenario.receives_first or len(program.receives.buffers))
            if scenario.receive_every_ns:
                world.at(world.now + scenario.receive_every_ns, program.refill)
        for program in self.programs:
            world.at(world.now, program.wake)
        for host in self.hosts.values():
            if host.srq is not None:
                host.srq.modify(limit=host.srq_limit)
            if scenario.revoke:
                world.at(world.now + self.dice.randrange(100_000), self._revoke, host)
        if scenario.drain:
            for pair in self.pairs:
                world.at(world.now + self.dice.randrange(60_000), self._drain, pair[self.dice.randrange(2)])
        if scenario.quit:
            for pair in self.pairs:
                leaver = pair[self.dice.randrange(2)]
                world.at(world.now + self.dice.randrange(200_000), self._leave, leaver)

    def _drain(self, program: Program) -> None:
        """A program lets what has begun come to its end, and nothing else begin (IBTA vol. 1, 10.3.1)."""
        if not self._in_state(program, RTS):
            return
        program.qp.modify({"qp_state": SQD, "en_sqd_async_notify": 1})
        program.node.turn()
        self.world.at(self.world.now + GIVE_UP_NS, self._drained, program)

    def _drained(self, program: Program) -> None:
        """Long enough after that: it was told, and goes on."""
        if not self._in_state(program, SQD):
            return
        program.node.hear()
        if (EVENT_SQ_DRAINED, program.qp.number) not in program.node.told:
            self._complain(f"{program.name}: nobody told that the send queue has drained")
        program.qp.modify({"qp_state": RTS})
        program.qp.ring()
        program.wake()
        program.node.turn()

    def _in_state(self, program: Program, state: int) -> bool:
        """Whether a program's adapter lives and its queue pair is in a state."""
        return self.hosts[program.node.number].alive and program.qp.query()["qp_state"] == state

    def _leave(self, program: Program) -> None:
        """A program takes its queue pair to the error state; it still waits for all its completions."""
        if not self.hosts[program.node.number].alive:
            return
        program.stopped = True
        qp: QpHandle = program.qp
        qp.modify({"qp_state": ERR})
        program.node.turn()

    def _revoke(self, host: Host) -> None:
        """Take the lent region back: from now on nobody may change it."""
        if not host.alive:
            return
        region = host.shared.arena.regions[LENT]
        host.device.dereg_mr(region.handle)
        host.lent = bytes(host.shared.arena.memory[region.start : region.start + region.length])

    def forsake(self, number: int) -> None:
        """The adapter of a host is about to die: its programs will see nothing more."""
        for program in self.hosts[number].programs if number in self.hosts else ():
            program.stopped = True
            program.oracles.order.abandoned = True

    def finish(self) -> None:
        """The world is at rest: ask the oracles, look at memory, destroy everything."""
        for host in self.hosts.values():
            for program in host.programs if host.alive else ():
                for poller in self._pollers[program.name]:
                    poller.drain()
        for host in self.hosts.values():
            self._hear_events(host)
        for program in self.programs:
            program.finish()
        self.datagrams.finish()
        self.world.wire.finish()
        for host in self.hosts.values():
            arena, name = host.shared.arena, f"adapter {host.node.number}"
            value = int.from_bytes(arena.read(host.shared.counter), sys.byteorder)
            if self.scenario.service == RC:
                host.counter_oracle.finish(value)
            check_guards(self.world.report, name, bytes(arena.memory), arena.places())
            region = arena.regions[LENT]
            if host.lent is not None:
                memory = bytes(arena.memory[region.start : region.start + region.length])
                check_constant(self.world.report, f"{name}: the region taken back", memory, host.lent)

    def _hear_events(self, host: Host) -> None:
        """Asynchronous events: each has a cause, and what has to be told of is."""
        if not host.alive:
            return
        host.node.hear()
        told = host.node.told
        for program in host.programs:
            order, number = program.oracles.order, program.qp.number
            if (EVENT_CQ_ERR, program.cq.number) in told:
                # it cannot see all its completions
                order.abandoned = True
            last = self.scenario.shared and order.failed and not order.abandoned
            if last and (EVENT_QP_LAST_WQE_REACHED, number) not in told:
                self._complain(f"{program.name}: nobody told that its last receive is done")
            errors = {kind for kind, element in told if element == number and kind in QP_ERROR_EVENTS}
            if errors and not (order.failed or order.flushable or order.abandoned):
                self._complain(f"{program.name}: event {errors} without an error")
            expected = self._event_of(program.peer)
            if expected and expected not in errors:
                self._complain(f"{program.name}: event {expected} was not told, but {errors or 'none'}")
        if host.srq is not None:
            receives = host.programs[0].receives
            reached = len(receives.buffers) - receives.taken < host.srq_limit
            if reached and (EVENT_SRQ_LIMIT_REACHED, host.srq.number) not in told:
                self._complain(f"adapter {host.node.number}: the shared receive queue's limit was not told")

    def _complain(self, text: str) -> None:
        self.world.report.fail("events tell of errors", text)

    def _event_of(self, offender: Program) -> int:
        """The event that a program's peer is told when its trespass was refused; 0: none."""
        order = offender.oracles.order
        if order.failed_at not in order.expected or self.scenario.service != RC:
            return 0
        trespass = offender.operations[order.failed_at].trespass
        if trespass is None or trespass.side not in (REMOTE, QUEUE_PAIR):
            return 0
        return EVENT_QP_ACCESS_ERR if trespass.status == REMOTE_ACCESS else EVENT_QP_REQ_ERR

    def destroy(self) -> None:
        """Take everything down, where its adapter still lives."""
        for host in self.hosts.values():
            if not host.alive:
                continue
            for program in host.programs:
                program.qp.destroy()
                for handle in filter(None, (program.ah, program.foreign_ah)):
                    host.device.destroy_ah(handle)
            for cq in host.cqs:
                cq.destroy()
            if host.srq is not None:
                host.srq.destroy()
            for region in host.shared.arena.regions.values():
                if region.name != REVOKED and (region.name != LENT or host.lent is None):
                    host.device.dereg_mr(region.handle)
            for pd in host.pds:
                host.device.dealloc_pd(pd)

    def check_resources(self) -> None:
        """Nothing is left."""
        for host in self.hosts.values():
            check_resources(self.world.report, host.node.number, host.node.resources())
