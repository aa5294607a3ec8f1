"""Completion queues and queue pairs of programs, connected by paths that the dice choose."""

from __future__ import annotations

import random
from collections.abc import Sequence

from softhca.driver import services
from softhca.simulation.access_violations import QUEUE_PAIR
from softhca.simulation.conditions import RETRIES, TIMEOUT, Conditions
from softhca.simulation.endpoint import DEPTH, QKEY, Endpoint
from softhca.simulation.host import Host
from softhca.simulation.kinds import ADD, RAW, RC, READ, SWAP, UD, WRITE, WRITE_IMM
from softhca.simulation.operations import ELEMENTS, INLINE_BYTES, MTU_BYTES
from softhca.simulation.oracle_wire_packets import Terms
from softhca.simulation.poller import Poller
from softhca.simulation.program import Pair, Program
from softhca.simulation.world import World
from softhca.transport.states import INIT, RTR, RTS
from softhca.wire.ip import ETHERTYPE_IPV6
from softhca.wire.raw import ALL_RAW, RAW_IPV6

ALL_RIGHTS = 15
FIRST_ETHERTYPE = 0x9000
GREED = 8
"""max_rd_atomic of those who ask for more than is agreed."""
RIGHT_FOR = {WRITE: 2, WRITE_IMM: 2, READ: 4, ADD: 8, SWAP: 8}
"""ibv_access_flags that the responder's queue pair must give."""


class Connections:
    """Makes and connects what programs talk through: `make_queues` of every host first, then `connect`."""

    def __init__(self, world: World, conditions: Conditions, dice: random.Random) -> None:
        self._world = world
        self._conditions = conditions
        self._scenario = conditions.scenario
        self._faults = conditions.faults
        self._dice = dice
        self._raw_receivers: dict[int, int] = {}

    # queues

    def make_queues(self, host: Host, programs: Sequence[Program]) -> None:
        """Completion queues, one for all or each its own, and a shared receive queue if it is wanted."""
        if self._scenario.shared:
            room = programs[0].receives.room
            host.make_srq(room, self._dice.randint(1, room))
        alone = self._faults.cq_entries > 0 or self._dice.random() < 0.3
        for sharers in [[program] for program in programs] if alone else [programs]:
            # just enough for all that may be under way at once
            rooms = {id(program.receives): program.receives.room for program in sharers}
            sends, receives = DEPTH * len(sharers), sum(rooms.values())
            if self._conditions.solicited:
                send_poller = self._make_cq(host, sends, False)
                receive_poller = self._make_cq(host, receives, True)
            else:
                send_poller = receive_poller = self._make_cq(host, sends + receives, False)
            for program in sharers:
                program.send_poller, program.receive_poller = send_poller, receive_poller

    def _make_cq(self, host: Host, entries: int, solicited: bool) -> Poller:
        entries = min(entries, self._faults.cq_entries or entries)
        return host.make_cq(entries, self._conditions.armed, solicited, self._faults.poll_ns)

    # queue pairs

    def connect(self, pair: Pair) -> None:
        """Make the queue pairs of two programs, and take both to RTS."""
        for program in pair:
            self._make_queue_pair(program)
        for program in pair:
            ends = {
                "qp": program.qp.number,
                "peer": program.peer.node.number,
                "peer_qp": program.peer.qp.number,
            }
            self._world.trace.add(self._world.now, "queue_pair", program.node.number, **ends)
        psns = [self._first_psn() for _ in pair]
        mtu = min(program.node.mtu for program in pair)
        atomics = self._dice.randint(1, 4)
        left, right = (program.node.number for program in pair)
        paths = self._world.frames.paths(left, right, mtu, self._dice)
        for at, program in enumerate(pair):
            self._connect(program, paths[at], psns[at], psns[1 - at], atomics)

    def _first_psn(self) -> int:
        """Anywhere, and often just before the end of the PSNs."""
        if self._scenario.first_psn >= 0:
            return self._scenario.first_psn
        return self._dice.choice((self._dice.randrange(1 << 24), (1 << 24) - self._dice.randrange(1, 100)))

    def _make_queue_pair(self, program: Program) -> None:
        host, room = program.host, program.receives.room
        program.qp = host.device.create_qp(
            host.pds[0], self._scenario.service, program.send_poller.cq, program.receive_poller.cq, host.srq,
            DEPTH, 0 if host.srq else room, ELEMENTS, ELEMENTS, INLINE_BYTES, False,
        )  # fmt: skip
        for poller in (program.send_poller, program.receive_poller):
            poller.add(program)

    def _connect(self, program: Endpoint, path: services.Path, psn: int, peer_psn: int, atomics: int) -> None:
        if self._scenario.service == RAW:
            self._connect_raw(program, path)
            return
        rnr_timer = self._dice.randint(1, 5) if self._scenario.service != UD else 0
        self._watch(program, path, psn, peer_psn, atomics, rnr_timer)
        if self._scenario.service == UD:
            services.start_datagrams(program.qp, QKEY, psn)
            host = program.host
            if self._scenario.group:
                path = self._join_group(program, path.mtu)
            program.ah, program.foreign_ah = (host.device.create_ah(pd, path.vector()) for pd in host.pds)
            return
        how = services.Reliability(
            TIMEOUT, RETRIES, self._conditions.rnr_retry, rnr_timer, self._asked(atomics), atomics
        )  # fmt: skip
        reliable = how if self._scenario.service == RC else None
        rights = ALL_RIGHTS
        for operation in program.peer.operations:
            if operation.violation is not None and operation.violation.side == QUEUE_PAIR:
                rights &= ~RIGHT_FOR[operation.kind]
        services.connect(program.qp, path, program.peer.qp.number, peer_psn, psn, rights, reliable)

    def _asked(self, atomics: int) -> int:
        """How many reads at once a requester has whose peer has agreed to ``atomics``."""
        if self._scenario.greedy:
            return GREED
        return 1 << (atomics - 1).bit_length() if self._scenario.rounded else atomics

    def _join_group(self, program: Endpoint, mtu: int) -> services.Path:
        """Let a queue pair receive what is sent to the world's group; the path there."""
        path = self._world.frames.group_path(mtu, self._dice)
        program.host.device.attach_mcast(program.qp.number, self._world.frames.group, path.dlid)
        if program.oracles.ud is not None:
            program.oracles.ud.join((program.node.gid, program.qp.number))
        return path

    def _connect_raw(self, program: Endpoint, path: services.Path) -> None:
        """The first queue pair of a host receives IPv6, the second what no other does, each other its own
        EtherType.
        """
        host, qp = program.host, program.qp
        for state in (INIT, RTR, RTS):
            qp.modify({"qp_state": state, **({"port_num": 1} if state == INIT else {})})
        at = self._raw_receivers[host.node.number] = self._raw_receivers.get(host.node.number, 0) + 1
        attached = {1: RAW_IPV6, 2: ALL_RAW}.get(at, FIRST_ETHERTYPE + at)
        host.device.attach_raw(qp.number, attached)
        unknown = (FIRST_ETHERTYPE, 0xFFFF)
        program.raw_services = {1: (RAW_IPV6, ETHERTYPE_IPV6), 2: unknown}.get(at, (attached,))
        program.ah, program.foreign_ah = (host.device.create_ah(pd, path.vector()) for pd in host.pds)

    def _watch(
        self, program: Endpoint, path: services.Path, psn: int, peer_psn: int, atomics: int, rnr_timer: int
    ) -> None:
        """Let the wire's oracle follow a queue pair, if its packets pass a wire."""
        if program.internal:
            return
        conditions = self._conditions
        terms = Terms(
            program.name, psn, peer_psn, MTU_BYTES[path.mtu], TIMEOUT, RETRIES, conditions.rnr_retry,
            rnr_timer, self._asked(atomics), self._scenario.shared,
            conditions.quiet, conditions.strict,
            conditions.steady, self._faults.skew_ppm,
        )  # fmt: skip
        self._world.wire.connect(program.address, program.peer.address, self._scenario.service, terms, QKEY)
        if self._world.congestion is not None:
            self._world.congestion.connect(program.address, program.peer.address)
