"""Ports that fail in a world: connections with an alternate path move to the other port and lose nothing.

Messages go both ways all the time.  Now and then a port of one adapter fails: its adapter is told, or only
its packets vanish and retries find out.  Later it is back.  Programs that are told of a migration give the
former path as the next alternate one.
"""

from __future__ import annotations

import itertools
import random

from softhca.driver import services
from softhca.queues.control_fields import EVENT_PATH_MIG, EVENT_PATH_MIG_ERR
from softhca.simulation.arena import BASE_VA
from softhca.simulation.conditions import TIMEOUT
from softhca.simulation.frames import place_of
from softhca.simulation.kinds import RC, RECEIVED
from softhca.simulation.mailboxes import LOCAL, Place
from softhca.simulation.node import Node
from softhca.simulation.oracle import check_resources
from softhca.simulation.scenarios import Scenario, dice_of
from softhca.simulation.world import World
from softhca.transport.migration import ARMED, REARMED
from softhca.transport.states import ERR

SEND_OPCODE, SIGNALED = 2, 2
RETRIES = 2
TIME_OUT_NS = 2 * 4_096 << TIMEOUT
"""When a requester's timer fires."""
FAILURE_NS = 12 * TIME_OUT_NS
"""From one failure to the next."""
AWAY_NS = FAILURE_NS // 2
"""How long a port stays away."""
ARRIVES, MOVES = "every message arrives, in order and unchanged", "a connection leaves a port that fails"
_PLACE_STEP = 1 << 32


class MigratingEnd:
    """One end of a connection: what it has to say, and what it has heard; ``moves``: how often it went along
    another path.
    """

    peer: MigratingEnd

    def __init__(self, program: Program, messages: tuple[bytes, ...], psn: int, largest: int) -> None:
        self.program = program
        self.messages = messages
        self.psn = psn
        self.heard = self.acknowledged = self.moves = 0
        self._room = largest
        device, count = program.device, len(messages)
        self.place = Place(device, program.pd, 2 * count * largest, LOCAL, next(program.places))
        self.qp = device.create_qp(program.pd, RC, program.cq, program.cq, None, count, count, 1, 1, 0, False)
        program.travellers[self.qp.number] = self

    def path(self, port_number: int) -> services.Path:
        """From a port to the same one of the peer's adapter."""
        own, other = (place_of(each.program.node.number, port_number) for each in (self, self.peer))
        frames, mtu = self.program.node.world.frames, self.program.node.mtu
        there, _ = frames.paths(own, other, mtu, random.Random(own + other))
        return services.Path(**{**vars(there), "port_num": port_number})

    def connect(self) -> None:
        """To RTS along the first ports, with the second ones as alternate path; receives posted."""
        how = services.Reliability(TIMEOUT, RETRIES, 7, 1, 1, 1)
        services.connect(self.qp, self.path(1), self.peer.qp.number, self.peer.psn, self.psn, LOCAL, how)
        for number in range(len(self.messages)):
            start = self.place.va + (len(self.messages) + number) * self._room
            self.qp.post_recv(number, [(start, self._room, self.place.lkey)])
        self.rearm(2)

    def rearm(self, port_number: int) -> None:
        """The alternate path is one by that port."""
        if not self.broken:
            self.qp.modify({
                "alt_ah_attr": self.path(port_number).vector(), "alt_port_num": port_number,
                "alt_timeout": TIMEOUT, "path_mig_state": REARMED,
            })  # fmt: skip

    @property
    def broken(self) -> bool:
        """Its retries are used up, of which its requests tell."""
        return bool(self.qp.query()["qp_state"] == ERR)

    def send(self, number: int) -> None:
        """Say the next thing."""
        message, start = self.messages[number], number * self._room
        self.place.view[start : start + len(message)] = message
        element = (self.place.va + start, len(message), self.place.lkey)
        self.qp.post_send(SEND_OPCODE, SIGNALED, 0, number, 0, 0, 0, 0, 0, 0, 0, [element], None)
        self.qp.ring()

    def completed(self, status: int, receive: bool, length: int) -> None:
        """A work request has completed."""
        if status:
            self.fail(ARRIVES, f"a request failed with status {status}")
        elif receive:
            start = (len(self.messages) + self.heard) * self._room
            if bytes(self.place.view[start : start + length]) != self.peer.messages[self.heard]:
                self.fail(ARRIVES, f"message {self.heard} is another one")
            self.heard += 1
        else:
            self.acknowledged += 1

    def on_event(self, kind: int) -> None:
        """An asynchronous event."""
        if kind == EVENT_PATH_MIG:
            self.moves += 1
            self.rearm(3 - self.port)
        elif kind == EVENT_PATH_MIG_ERR:
            self.fail(MOVES, "the alternate path is not usable")

    @property
    def port(self) -> int:
        """The port that it uses."""
        found: int = self.qp.query()["port_num"]
        return found

    def fail(self, rule: str, text: str) -> None:
        """A rule is broken."""
        node = self.program.node
        node.world.report.fail(rule, f"adapter {node.number}, queue pair {self.qp.number}: {text}")


class Program:
    """The program of a host, and all its travellers by queue pair."""

    def __init__(self, node: Node, travellers: int, messages: int) -> None:
        self.node = node
        self.device = node.device
        self.pd = self.device.alloc_pd()
        self.cq = self.device.create_cq(2 * travellers * messages)
        self.places = itertools.count(BASE_VA * node.number, _PLACE_STEP)
        self.travellers: dict[int, MigratingEnd] = {}

    def turn(self) -> bool:
        """Take completions and events; whether there were any."""
        worked = False
        for completion in self.cq.poll(1_000):
            worked = True
            traveller = self.travellers[completion.qp_num]
            traveller.completed(completion.status, completion.opcode == RECEIVED, completion.byte_len)
        while (event := self.device.next_event(0)) is not None:
            worked = True
            kind, element = event
            if kind in (EVENT_PATH_MIG, EVENT_PATH_MIG_ERR):
                self.travellers[element].on_event(kind)
        return worked

    def close(self) -> None:
        """Give everything back."""
        for traveller in self.travellers.values():
            traveller.qp.destroy()
            traveller.place.close()
        self.cq.destroy()
        self.device.dealloc_pd(self.pd)


class FailoverSetting:
    """Connections between two adapters; used as `softhca.simulation.setting.Setting`."""

    end_kind: type[MigratingEnd] = MigratingEnd

    def __init__(self, world: World, scenario: Scenario, seed: int, generation: int = 1) -> None:
        self.world = world
        self.scenario = scenario
        self._dice = dice_of(scenario, seed, f"failover/{generation}")
        nodes = list(world.nodes.values())[:2]
        count, largest = scenario.operations, scenario.largest_bytes
        self.programs = [self._program(node) for node in nodes]
        self.pairs = [self._pair(count, largest) for _ in range(scenario.pairs)]
        self._alive = all(node.engine is not None for node in nodes)

    def _program(self, node: Node) -> Program:
        return Program(node, self.scenario.pairs, self.scenario.operations)

    def _pair(self, count: int, largest: int) -> tuple[MigratingEnd, MigratingEnd]:
        dice = self._dice
        one, other = (
            self.end_kind(
                program, tuple(dice.randbytes(dice.randint(1, largest)) for _ in range(count)),
                dice.randrange(1 << 24), largest,
            )
            for program in self.programs
        )  # fmt: skip
        one.peer, other.peer = other, one
        return one, other

    def start(self) -> None:
        """Connect, talk, and let ports fail."""
        world, span_ns = self.world, (self.scenario.failures + 1) * FAILURE_NS
        for program in self.programs:
            program.node.tasks.append(program.turn)
        for traveller in self._travellers:
            traveller.connect()
            moments = sorted(self._dice.randrange(span_ns) for _ in traveller.messages)
            for number, moment in enumerate(moments):
                self._plan_message(world.now + moment, traveller, number)
        for number in range(self.scenario.failures):
            moment = world.now + FAILURE_NS // 2 + number * FAILURE_NS
            self._plan_failure(moment, 1 + number % 2)

    @property
    def _travellers(self) -> list[MigratingEnd]:
        return [traveller for pair in self.pairs for traveller in pair]

    def _plan_message(self, time_ns: int, traveller: MigratingEnd, number: int) -> None:
        def now(_: object) -> None:
            traveller.send(number)
            traveller.program.node.turn()

        self.world.at(time_ns, now)

    def _plan_failure(self, time_ns: int, port_number: int) -> None:
        """A port fails, of one of the two adapters, whose own adapter knows it or not."""
        node = self._dice.choice(self.programs).node
        known = self._dice.random() < 0.5
        world = self.world

        def fail(_: object) -> None:
            self.cut(node, port_number, known, True)
            if known:
                # what tells the peer of a move may be lost: then its own retries tell it
                world.at(world.now + (TIME_OUT_NS if world.patience == 1 else AWAY_NS - 1), look)

        def look(_: object) -> None:
            for traveller in self._travellers:
                if traveller.port == port_number:
                    traveller.fail(MOVES, f"still by port {port_number} after that has failed")

        def heal(_: object) -> None:
            self.cut(node, port_number, known, False)

        world.at(time_ns, fail)
        world.at(time_ns + AWAY_NS, heal)

    def cut(self, node: Node, port_number: int, known: bool, cut: bool) -> None:
        """Nothing passes by a port of an adapter, which is told of it or not, or it does again."""
        world = self.world
        world.cut(node.number, port_number, cut)
        if cut:
            world.trace.add(world.now, "port_failed", node.number, port=port_number, known=known)
        if known:
            node.engine.set_link(port_number, not cut)
            node.turn()

    def adapter_crashed(self, number: int) -> None:
        """The adapter of a host is about to die, and with it what this world is about."""
        self._alive = False

    def finish(self) -> None:
        """The world is at rest."""
        for traveller in self._travellers if self._alive else []:
            count = len(traveller.messages)
            if traveller.heard != count or traveller.acknowledged != count:
                text = f"heard {traveller.heard}, acknowledged {traveller.acknowledged} of {count}"
                traveller.fail(ARRIVES, text)
            if traveller.moves != traveller.peer.moves or traveller.port != traveller.peer.port:
                traveller.fail(MOVES, f"{traveller.moves} moves here, {traveller.peer.moves} there")
            if traveller.qp.query()["path_mig_state"] != ARMED:
                traveller.fail(MOVES, "not armed in the end")
            self.world.trace.add(
                self.world.now, "traveller", traveller.program.node.number, moves=traveller.moves
            )

    def destroy(self) -> None:
        """Take everything down."""
        for program in self.programs if self._alive else []:
            program.close()

    def check_resources(self) -> None:
        """Nothing is left."""
        for program in self.programs if self._alive else []:
            check_resources(self.world.report, program.node.number, program.node.resources())
