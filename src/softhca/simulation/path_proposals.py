"""Connections that the communication manager makes and gives alternate paths, while ports fail one after the
other: what LAP and APR agree upon carries messages, proposals and the goodbye when the path before is gone.

The connections are made along the first ports.  One side of each proposes the path by the other ports; when
all are armed a port fails, each connection moves, and its proposer proposes the former path.  The last port
that fails never comes back: so the connections can end along the other one alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from softhca.driver import services
from softhca.driver.connections import (
    CM_DISCONNECT_REQUEST,
    CM_DISCONNECTED,
    CM_ESTABLISHED,
    CM_PATH_ANSWER,
    CM_PATH_REQUEST,
    CM_REJECTED,
    CM_REPLIED,
    CM_REQUEST,
    CM_UNREACHABLE,
    CmAlternatePath,
    CmChannel,
    CmEvent,
    CmPath,
    CmQueuePair,
)
from softhca.management.cm.messages import APR_IS_CURRENT
from softhca.simulation.conditions import TIMEOUT
from softhca.simulation.conversation_setting import LIMIT_NS, MAX_EVENTS
from softhca.simulation.conversations import CM_RETRIES, CM_TIMEOUT, ENTRIES, SERVICE_ID
from softhca.simulation.failover import (
    ARRIVES,
    AWAY_NS,
    FAILURE_NS,
    TIME_OUT_NS,
    FailoverSetting,
    MigratingEnd,
    Program,
)
from softhca.simulation.node import Node
from softhca.simulation.scenarios import Scenario
from softhca.simulation.world import World
from softhca.transport.migration import ARMED, MIGRATED, REARMED

LOOK_NS = 2 * FAILURE_NS
"""How often it is looked whether all connections have got so far."""
MOST_LOOKS = 500
TELL_LOOKS = 20
"""After so many looks who is not armed says again that it would be."""
MOST_REFUSED = 20
PROPOSED = "a path that is proposed is answered, and loaded on both sides"
PARTED = "a connection ends on both sides, along the path that is left"


class ProposingEnd(MigratingEnd):
    """One end of connection ``index``; ``active``: it has asked, ``proposes``: it proposes paths, of which
    so many were ``refused``, ``closes``: it disconnects.  ``id`` is its connection; ``over``: that has ended.
    """

    program: ProposingProgram
    index = id = refused = 0
    active = proposes = closes = established = over = False

    def connect(self) -> None:
        """Ask for the connection, or wait for the request."""
        self.program.by_index[self.index] = self
        if self.active:
            there = self.path(1)
            path = CmPath(
                there.dgid or bytes(16), lid=there.dlid, sl=there.sl, path_mtu=there.mtu, ack_timeout=TIMEOUT,
                cm_response_timeout=CM_TIMEOUT, max_cm_retries=CM_RETRIES,
            )  # fmt: skip
            about = self.index.to_bytes(2, "big")
            self._begin(self.program.channel.connect(SERVICE_ID, path, self._own(), about))

    def _own(self) -> CmQueuePair:
        return CmQueuePair(self.qp.number, self.peer.psn, retry_cnt=2)

    def _begin(self, number: int) -> None:
        self.id = number
        self.program.by_connection[number] = self

    def _raise(self) -> None:
        """The queue pair to RTS, with receives."""
        super().connect()

    def rearm(self, port_number: int) -> None:
        """Propose a path by that port, where that is this side's to do."""
        if self.proposes and self.established:
            self.program.channel.load_path(self.id, self.way(port_number))

    def way(self, port_number: int) -> CmAlternatePath:
        """From a port to the same one of the peer's adapter."""
        devices = self.program.device, self.peer.program.device
        if self.program.node.world.frames.linked:
            own_lid, lid = (each.query_port(port_number)["lid"] for each in devices)
            return CmAlternatePath(bytes(16), bytes(16), own_lid, lid, ack_timeout=TIMEOUT)
        own_gid, gid = (each.query_gid(port_number, 0) for each in devices)
        return CmAlternatePath(own_gid, gid, ack_timeout=TIMEOUT)

    def heard_of(self, event: CmEvent) -> None:
        """An event of this connection."""
        channel, device = self.program.channel, self.program.device
        if event.kind == CM_REQUEST:
            self._begin(event.id)
            self._raise()
            channel.reply(event.id, self._own())
        elif event.kind == CM_REPLIED:
            self._raise()
            channel.ready(event.id)
            self.established = True
            self.rearm(2)
        elif event.kind == CM_ESTABLISHED:
            self.established = True
            self.rearm(2)
        elif event.kind in (CM_PATH_REQUEST, CM_PATH_ANSWER) and self.broken:
            return
        elif event.kind == CM_PATH_REQUEST and event.alternate is not None:
            if self._is_current(event.alternate):  # the peer has moved, and this side not yet
                channel.answer_path(event.id, APR_IS_CURRENT)
                return
            services.load_alternate(device, self.qp, event.alternate)
            channel.answer_path(event.id, 0)
        elif event.kind == CM_PATH_ANSWER and event.status == APR_IS_CURRENT:
            self._propose_later()
        elif event.kind == CM_PATH_ANSWER and event.status:
            self.fail(PROPOSED, f"the answer is {event.status}")
        elif event.kind == CM_PATH_ANSWER:
            services.load_alternate(device, self.qp, self.way(3 - self.port))
        elif event.kind == CM_DISCONNECT_REQUEST:
            channel.disconnect(event.id)
            self.over = True
        elif event.kind == CM_DISCONNECTED:
            if event.status:
                self.fail(PARTED, "nobody has answered")
            self.over = True
        elif event.kind in (CM_REJECTED, CM_UNREACHABLE):
            self.fail(PARTED, f"event {event.kind}, status {event.status}")

    def _is_current(self, way: CmAlternatePath) -> bool:
        own = self.way(self.port)
        return way.own_gid == own.own_gid if any(own.own_gid) else way.own_lid == own.own_lid

    def _propose_later(self) -> None:
        node, device = self.program.node, self.program.device
        self.refused += 1
        if self.refused > MOST_REFUSED:
            self.fail(PROPOSED, "the peer does not leave its path")
            return

        def again(_: object) -> None:
            if device.alive and not self.over:
                self.rearm(3 - self.port)
                node.turn()

        node.world.at(node.world.now + TIME_OUT_NS, again)

    @property
    def state(self) -> int:
        """That of migration; MIGRATED where nothing is established."""
        return int(self.qp.query()["path_mig_state"]) if self.established else MIGRATED

    @property
    def armed(self) -> bool:
        """Whether it has another path."""
        return self.state == ARMED


class ProposingProgram(Program):
    """The program of a host, with its channel of connections."""

    def __init__(self, node: Node, travellers: int, messages: int) -> None:
        super().__init__(node, travellers, messages)
        self.channel: CmChannel = self.device.open_connections(1, ENTRIES)
        self.channel.listen(SERVICE_ID, 1024)
        self.by_index: dict[int, ProposingEnd] = {}
        self.by_connection: dict[int, ProposingEnd] = {}

    def turn(self) -> bool:
        """Take completions and events; whether there were any."""
        worked = super().turn()
        while (event := self.channel.receive(0)) is not None:
            worked = True
            if event.kind == CM_REQUEST:
                self.by_index[int.from_bytes(event.private_data[:2], "big")].heard_of(event)
            elif event.id in self.by_connection:
                self.by_connection[event.id].heard_of(event)
        return worked

    def close(self) -> None:
        """Give everything back."""
        self.channel.close()
        super().close()


class ProposalSetting(FailoverSetting):
    """Connections between two adapters, in phases: all are armed, messages are on their way, a port fails."""

    end_kind = ProposingEnd

    def __init__(self, world: World, scenario: Scenario, seed: int, generation: int = 1) -> None:
        super().__init__(world, scenario, seed, generation)
        self.ends = [cast("ProposingEnd", end) for pair in self.pairs for end in pair]
        self._away = False

    def _program(self, node: Node) -> Program:
        scenario = self.scenario
        return ProposingProgram(node, scenario.pairs, scenario.operations)

    def start(self) -> None:
        """Connect; all else follows."""
        for program in self.programs:
            program.node.tasks.append(program.turn)
        for at in range(0, len(self.ends), 2):
            pair = self.ends[at : at + 2]
            pair[0].active = True
            self._dice.choice(pair).proposes = True
            self._dice.choice(pair).closes = True
            for end in reversed(pair):
                end.index = at
                end.connect()
        for program in self.programs:
            program.node.turn()
        self._when(self._armed(0), lambda: self._phase(0), PROPOSED)

    def _armed(self, moves: int) -> Callable[[], bool]:
        """Whether all have moved so often and may move again, and no port is away but for good."""
        return lambda: not self._away and all(end.armed and end.moves == moves for end in self.ends)

    def _when(self, ready: Callable[[], bool], then: Callable[[], None], rule: str, looks: int = 0) -> None:
        """Do something as soon as it can be; a violation where that does not come about."""

        def look(_: object) -> None:
            if not self._alive:
                return
            if ready():
                then()
            elif looks < MOST_LOOKS:
                if looks % TELL_LOOKS == TELL_LOOKS - 1:
                    self._tell_again()
                self._when(ready, then, rule, looks + 1)
            else:
                self.ends[0].fail(rule, "the world stands still")

        self.world.at(self.world.now + LOOK_NS, look)

    def _tell_again(self) -> None:
        """The packet by which a queue pair says that it may migrate (17.2.8.1.2) is not acknowledged: where
        it was lost, and no message is on its way, a side would wait for ever.  One whose retries are used up
        has ended, which is told of its requests."""
        waiting = {end.index for end in self.ends if not end.over and end.state == REARMED}
        for end in [each for each in self.ends if each.index in waiting and each.state != MIGRATED]:
            if not end.broken:
                end.qp.modify({"path_mig_state": REARMED})
                end.program.node.turn()

    def _phase(self, number: int) -> None:
        """Messages before and after the failure of a port; the next phase follows."""
        world, failures = self.world, self.scenario.failures
        last = number == failures - 1
        moment = world.now + FAILURE_NS // 2
        for end in self.ends:
            first, behind = (len(end.messages) * at // failures for at in (number, number + 1))
            moments = sorted(world.now + self._dice.randrange(FAILURE_NS) for _ in range(first, behind))
            moments[-1] = world.now + FAILURE_NS
            for message, time_ns in enumerate(moments, first):
                self._plan_message(time_ns, end, message)
        self._plan_end_of_port(moment, number, for_good=last)
        if last:
            self._when(self._is_done, self._part, ARRIVES)
        else:
            self._when(self._armed(number + 1), lambda: self._phase(number + 1), PROPOSED)

    def _plan_end_of_port(self, time_ns: int, moves: int, for_good: bool) -> None:
        """The port that all use after so many moves fails, and comes back when all have left it."""
        node, known = self._dice.choice(self.programs).node, self._dice.random() < 0.5
        port_number = 1 + moves % 2
        world, latest_ns = self.world, time_ns + AWAY_NS + MOST_LOOKS // 2 * LOOK_NS
        self._away = not for_good

        def fail(_: object) -> None:
            self.cut(node, port_number, known, True)

        def heal(_: object) -> None:
            if not all(end.moves > moves for end in self.ends) and world.now < latest_ns:
                world.at(world.now + LOOK_NS, heal)
                return
            self._away = False
            self.cut(node, port_number, known, False)

        world.at(time_ns, fail)
        if not for_good:
            world.at(time_ns + AWAY_NS, heal)

    def _is_done(self) -> bool:
        """Whether all was said and heard, along the last path."""
        return self._armed(self.scenario.failures)() and all(
            end.heard == end.acknowledged == len(end.messages) for end in self.ends
        )

    def _part(self) -> None:
        for end in self.ends:
            if end.closes:
                end.program.channel.disconnect(end.id)
                end.program.node.turn()

    def finish(self) -> None:
        """The world is at rest."""
        super().finish()
        for end in self.ends if self._alive else []:
            if not end.over:
                end.fail(PARTED, "it has not ended")

    def check_resources(self) -> None:
        """Nothing is left, when peers have been told and time-waits are over."""
        for program in self.programs if self._alive else []:
            program.node.tasks.clear()
            program.node.turn()
        self.world.run(MAX_EVENTS, LIMIT_NS)
        super().check_resources()
