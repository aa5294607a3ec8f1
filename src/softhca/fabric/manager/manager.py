"""The subnet manager: discovers a fabric, configures it, and keeps it so (IBTA vol. 1, 14.3 and 14.4).

Sans-IO: call `start` once; give `receive` every datagram of queue pairs 0 and 1 that is for a manager, and
`expire` the time when `next_deadline_ns` has come; after each call send what `transmit` gives.  Nothing
raises, whatever comes in.

A *heavy sweep* discovers all and then goes through the phases of `AFTER`; a *light sweep* asks all switches
whether a port has changed its state, and begins a heavy one if so.  Traps begin one at once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from softhca.fabric.graph import Graph
from softhca.fabric.lids import LAST_LMC, LidError, Lids, assign_lids
from softhca.fabric.manager import states
from softhca.fabric.manager.administration import SubnetAdministration
from softhca.fabric.manager.configuration import (
    PortPlan,
    Shadow,
    Write,
    activation_writes,
    forget_reset,
    lane_writes,
    multicast_writes,
    partition_writes,
    port_writes,
    switch_info_writes,
    table_writes,
)
from softhca.fabric.manager.discovery import Discovery, FoundNode
from softhca.fabric.manager.inventory import KnownPort
from softhca.fabric.manager.packets import DATA_AT, PORT
from softhca.fabric.manager.partitions import Partition, Partitions
from softhca.fabric.manager.requests import NEVER_NS, Requests
from softhca.fabric.routing import ENGINES, Routes, route
from softhca.fabric.routing_engine import RoutingError
from softhca.fabric.topology import TopologyError
from softhca.fabric.trees import multicast_tree, without_copies
from softhca.machine.arguments import check_kind, whole
from softhca.management import constants as c
from softhca.management.subnet_attributes import (
    TRAP_BAD_M_KEY,
    Notice,
    SMInfo,
    SwitchInfo,
)
from softhca.wire.errors import WireError

IS_SM = 1 << 1
DEFAULT_PREFIX = 0xFE80 << 48
SECOND_NS = 1_000_000_000
MOST_PROBLEMS = 100

# phases of a heavy sweep, and what follows each
RESTING, DISCOVERY, ELECTION, PORTS, TABLES, GROUPS, ACTIVATION = (
    "resting", "discovery", "election", "ports", "tables", "groups", "activation",
)  # fmt: skip
LIGHT = "light sweep"
REGROUPING = "regrouping"
AFTER: dict[str, str] = {
    DISCOVERY: ELECTION,
    ELECTION: PORTS,
    PORTS: TABLES,
    TABLES: GROUPS,
    GROUPS: ACTIVATION,
    ACTIVATION: RESTING,
    LIGHT: RESTING,
    REGROUPING: RESTING,
}


_LAST_64 = (1 << 64) - 1
_BOUNDS = {
    "guid": (1, _LAST_64), "priority": (0, 15), "sm_key": (0, _LAST_64), "m_key": (0, _LAST_64),
    "lmc": (0, LAST_LMC), "window": (1, 1 << 32), "timeout_ns": (1, NEVER_NS), "retries": (0, 1 << 16),
    "light_sweep_ns": (1, NEVER_NS), "poll_ns": (1, NEVER_NS), "polls": (1, 1 << 16),
    "gid_prefix": (0, _LAST_64), "administration_key": (0, _LAST_64), "queries_per_second": (1, 1 << 32),
}  # fmt: skip
"""What the numbers of a `ManagerConfig` may be."""


@dataclass(frozen=True)
class ManagerConfig:
    """How a manager is and works.  ValueError: what cannot be; TypeError: a number that is none.

    ``engine`` is one of `routing.ENGINES`, or ``auto``: fat-tree, then dimension-order, then up-down.
    """

    guid: int
    priority: int = 0
    sm_key: int = 0
    m_key: int = 0
    lmc: int = 0
    engine: str = "auto"
    window: int = 32
    timeout_ns: int = 200_000_000
    retries: int = 3
    light_sweep_ns: int = 10 * SECOND_NS
    poll_ns: int = SECOND_NS
    polls: int = 3
    gid_prefix: int = DEFAULT_PREFIX
    partitions: tuple[Partition, ...] = ()
    administration_key: int = 1
    """The SM_Key of queries whose sender is trusted; 0: nobody is."""
    queries_per_second: int = 4000
    addresses: Mapping[int, bytes] = field(default_factory=dict)
    """IP addresses, in the form of GIDs, by port GUID: registered as `address_queries` says."""

    def __post_init__(self) -> None:
        if self.engine != "auto" and (not isinstance(self.engine, str) or self.engine not in ENGINES):
            raise ValueError(f"no routing engine is named {self.engine!r}")
        for name, (least, most) in _BOUNDS.items():
            whole(getattr(self, name), f"a manager's {name}", least, most)
        Partitions(self.partitions)
        check_kind(self.addresses, Mapping, "mapping of port GUIDs to addresses")
        for guid, address in self.addresses.items():
            whole(guid, "the GUID of a port", 1, _LAST_64)
            check_kind(address, bytes, "address in the form of a GID")
            if len(address) != 16:
                raise ValueError(f"an address in the form of a GID has 16 bytes, not {len(address)}")


class Outgoing(NamedTuple):
    """A datagram to send: to a LID (0xFFFF: a directed route), to queue pair 0 or 1, 256 bytes."""

    dlid: int
    qpn: int
    data: bytes


@dataclass
class Fabric:
    """What the manager knows after a sweep."""

    nodes: dict[int, FoundNode] = field(default_factory=dict)
    guids: list[int] = field(default_factory=list)
    own: tuple[int, int] = (0, 0)
    routes: Routes | None = None
    lids: dict[tuple[int, int], int] = field(default_factory=dict)
    """By GUID of the node and port."""


@dataclass(frozen=True)
class OtherManager:
    """Another subnet manager, and the way to it."""

    info: SMInfo
    path: bytes

    @property
    def rank(self) -> tuple[int, int]:
        """What decides who is master."""
        return self.info.priority, self.info.guid


class FabricManager:
    """One subnet manager.  ``state`` is one of `states.STATES`; ``sweeps`` counts heavy sweeps that have
    ended; ``problems`` has a line for each thing that went wrong in the last one.
    """

    def __init__(self, config: ManagerConfig) -> None:
        self.config = config
        self.state = states.DISCOVERING
        self.phase = RESTING
        self.fabric = Fabric()
        self.sweeps = 0
        self.problems: list[str] = []
        self.counters = dict.fromkeys(
            ("traps", "bad_m_keys", "controls", "controls_refused", "drops", "light_sweeps", "strangers"), 0
        )
        self.groups: dict[int, frozenset[int]] = {}
        """Multicast groups: their LID, and the GUIDs of the ports that belong to them."""
        self._senders: dict[int, frozenset[int]] = {}
        self.others: dict[int, OtherManager] = {}
        self._outgoing: deque[Outgoing] = deque()
        self.requests = Requests(
            self.send_directed, config.window, config.timeout_ns, config.retries, config.m_key
        )
        self._discovery = Discovery(self.requests, self._problem)
        self._shadow: Shadow = {}
        self._known_lids: dict[int, int] = {}
        self._act_count = 0
        self._again = False
        self._master: OtherManager | None = None
        self._heir: OtherManager | None = None
        self._polls_missed = 0
        self._due_ns = NEVER_NS
        self._groups_changed = False
        self._light_is_due = False
        self._is_new_master = False
        self._partitions = Partitions(config.partitions)
        self._switch_guids: frozenset[int] = frozenset()
        self._ports_before: dict[int, KnownPort] = {}
        self._now = 0
        self.administration = SubnetAdministration(self)

    # inputs

    def start(self, now: int) -> None:
        """Begin to discover."""
        self._now = now
        self._sweep()
        self._go_on()

    def receive(self, data: bytes, source_lid: int, now: int) -> None:
        """A datagram has come in, from a LID (0xFFFF: a directed route)."""
        self._now = now
        if len(data) != c.MAD_BYTES:
            self.counters["drops"] += 1
            return
        method, attribute = data[3], data[16] << 8 | data[17]
        if data[1] == c.CLASS_SUBN_ADM:
            self.administration.receive(data, source_lid, now)
        elif data[1] not in c.SUBNET_CLASSES:
            self.counters["drops"] += 1
        elif method & c.RESPONSE:
            if not self.administration.lookups.response(data, now):
                self.requests.response(data, now)
        elif method == c.METHOD_TRAP and attribute == c.ATTRIBUTE_NOTICE:
            self._trap(data, source_lid)
        elif attribute == c.ATTRIBUTE_SM_INFO and method in c.ANSWERED_METHODS:
            self._asked(data, source_lid)
        else:
            self.counters["drops"] += 1
        self._go_on()

    def expire(self, now: int) -> None:
        """Time has come to ``now``: what is due is done."""
        self._now = now
        self.requests.expire(now)
        self.administration.expire(now)
        if now >= self._due_ns:
            self._due_ns = NEVER_NS
            if self.state == states.MASTER and self.phase == RESTING:
                if self.problems:
                    self._sweep()
                else:
                    self._light_sweep()
            elif self.state == states.MASTER and self.phase == REGROUPING:
                self._light_is_due = True
            elif self.state == states.STANDBY:
                self._poll()
        self._go_on()

    def sweep(self, now: int) -> None:
        """Begin a heavy sweep, or another one after that which is under way."""
        self._now = now
        self._sweep()
        self._go_on()

    def set_group(
        self, mlid: int, members: frozenset[int], now: int, senders: frozenset[int] = frozenset()
    ) -> None:
        """A multicast group has these ports, by GUID, from now on; none: it is gone.  ``senders`` are those
        of them that get no copies."""
        self._now = now
        if members:
            self.groups[mlid], self._senders[mlid] = members, senders
        else:
            self.groups.pop(mlid, None)
            self._senders.pop(mlid, None)
        self._groups_changed = True
        if self.phase == RESTING:
            self._regroup()
            self._go_on()

    def _regroup(self) -> None:
        """Write the groups that have changed."""
        self._groups_changed = False
        fabric = self.fabric
        if self.state == states.MASTER and fabric.routes is not None:
            self.phase = REGROUPING
            top = max(self.groups, default=0)
            self._write(switch_info_writes(fabric.nodes, fabric.routes.lids.top, top, clear=False))
            self._write(self._group_writes())

    # outputs

    def transmit(self) -> Iterator[Outgoing]:
        """What is to be sent, in this order."""
        while self._outgoing:
            yield self._outgoing.popleft()

    def send(self, dlid: int, qpn: int, data: bytes) -> None:
        """Queue a datagram, as subnet administration does."""
        self._outgoing.append(Outgoing(dlid, qpn, data))

    @property
    def next_deadline_ns(self) -> int:
        """When `expire` is to be called."""
        return min(
            self._due_ns, self.requests.next_deadline_ns, self.administration.next_deadline_ns
        )

    @property
    def is_settled(self) -> bool:
        """Whether it is master or standby and nothing is under way."""
        return self.phase == RESTING and self.requests.idle and self.state != states.DISCOVERING

    def lid_of(self, guid: int, port: int) -> int:
        """The base LID of a node's port; 0: it has none."""
        return self.fabric.lids.get((guid, port), 0)

    @property
    def written(self) -> Shadow:
        """What stands in tables of nodes, as far as this manager has written it."""
        return self._shadow

    @property
    def own_lid(self) -> int:
        """The manager's own."""
        return self.fabric.lids.get(self.fabric.own, 0)

    # sweeps

    def send_directed(self, data: bytes) -> None:
        """Queue a directed-route packet."""
        self._outgoing.append(Outgoing(c.LID_PERMISSIVE, c.SUBNET_QPN, data))

    def _problem(self, text: str) -> None:
        if len(self.problems) < MOST_PROBLEMS:
            self.problems.append(text)

    def _go_on(self) -> None:
        """Send what can be sent; when a phase has nothing more to wait for, the next begins."""
        self.requests.pump(self._now)
        while self.requests.idle and self.phase != RESTING:
            ended, self.phase = self.phase, AFTER[self.phase]
            _ENDINGS[ended](self)
            self.requests.pump(self._now)

    def _sweep(self) -> None:
        if self.phase not in (RESTING, LIGHT):
            self._again = True
            return
        self.requests.forget()
        self.problems = []
        self._again = False
        self._due_ns = NEVER_NS
        self.phase = DISCOVERY
        self._discovery = Discovery(self.requests, self._problem)
        self._discovery.start()

    def _light_sweep(self) -> None:
        self.phase = LIGHT
        self.counters["light_sweeps"] += 1

        def answered(status: int | None, data: bytes) -> None:
            if status != c.STATUS_OK or SwitchInfo.decode(data).port_state_change:
                self._again = True

        for node in self.fabric.nodes.values():
            if node.is_switch:
                self.requests.get(node.path(0), c.ATTRIBUTE_SWITCH_INFO, answered)

    def _light_swept(self) -> None:
        self._rest()

    def _discovered(self) -> None:
        """All is found: who else is a manager here?"""
        self.others = {}
        own = self._discovery.own
        for guid, node in self._discovery.nodes.items():
            for port, data in node.ports.items():
                is_own = guid == own[0] and (node.is_switch or port == own[1])
                is_other = not is_own and (not node.is_switch or port == 0)
                if is_other and PORT.get(data, "capability_mask") & IS_SM:
                    self._ask_manager(node.path(port))

    def _ask_manager(self, path: bytes) -> None:
        def answered(status: int | None, data: bytes) -> None:
            if status == c.STATUS_OK:
                info = SMInfo.decode(data)
                if info.sm_key == self.config.sm_key:
                    self.others[info.guid] = OtherManager(info, path)
                else:
                    self.counters["strangers"] += 1
                    self._problem(f"the manager {info.guid:#018x} has another SM_Key")

        self.requests.get(path, c.ATTRIBUTE_SM_INFO, answered)

    def _elected(self) -> None:
        self.phase = RESTING
        self._happens(self._verdict())

    def _verdict(self) -> str:
        """What this discovery means for who is master."""
        own = self.config.priority, self.config.guid
        active = [other for other in self.others.values() if other.info.sm_state != states.NOT_ACTIVE]
        masters = [other for other in active if other.info.sm_state == states.MASTER]
        if self.state == states.MASTER:
            heirs = [other for other in masters if states.outranks(other.rank, own)]
            heirs += [other for other in active if other.info.priority > self.config.priority]
            self._heir = max(heirs, key=lambda other: (other.rank[0], -other.rank[1]), default=None)
            return states.SUCCESSOR if self._heir else states.ALONE
        better = masters + [other for other in active if states.outranks(other.rank, own)]
        self._master = better[0] if better else None
        return states.OUTRANKED if better else states.ALONE

    def _configure(self) -> None:
        """Assign LIDs, make routes, and write both."""
        found = self._discovery
        try:
            topology = found.topology()
            graph = Graph(topology)
            lids = assign_lids(graph, self.config.lmc, self._lids_so_far())
            routes = self._routes(graph, lids)
        except (TopologyError, LidError, RoutingError) as error:
            self._problem(str(error))
            self._rest()
            return
        known = self.administration.inventory
        self._ports_before = known.by_guid if known is not None else {}
        switches = [node for node in topology.nodes if node.is_switch]
        self._switch_guids = frozenset(node.port_guid(0) for node in switches)
        guids = [node.guid for node in topology.nodes]
        ends = graph.endpoints
        given = list(zip(ends.node.tolist(), ends.port.tolist(), lids.base.tolist(), strict=True))
        by_end = {(guids[node], port): lid for node, port, lid in given}
        self.fabric = Fabric(found.nodes, guids, found.own, routes, by_end)
        for node, port, lid in given:
            self._known_lids[topology.nodes[node].port_guid(port)] = lid
        forget_reset(found.nodes, self._shadow)
        plan = PortPlan(
            self.own_lid, self.config.gid_prefix, self.config.m_key, self.config.lmc, routes.routing.lanes,
            self._is_new_master, self.pkeys_of if self.config.partitions else None,
        )  # fmt: skip
        self._is_new_master = False
        self.phase = PORTS
        self._write(port_writes(found.nodes, by_end, plan))

    def _lids_so_far(self) -> dict[int, int]:
        """The LIDs that ports had from this manager, or say themselves."""
        said: dict[int, int] = {}
        for node in self._discovery.nodes.values():
            for port, guid in node.port_guids.items():
                data = node.ports.get(port)
                if data is not None and PORT.get(data, "lid"):
                    said[guid] = PORT.get(data, "lid")
        return said | self._known_lids

    def _routes(self, graph: Graph, lids: Lids) -> Routes:
        names = (
            ("fat-tree", "dimension-order", "up-down") if self.config.engine == "auto"
            else (self.config.engine, "up-down")
        )  # fmt: skip
        for name in names[:-1]:
            try:
                return route(graph, name, lids)
            except RoutingError as error:
                if self.config.engine != "auto":
                    self._problem(f"{name}: {error}")
        return route(graph, names[-1], lids)

    def _write(self, writes: Iterator[Write]) -> None:
        for write in writes:
            self.requests.set(write.path, write.attribute, write.data, self._written(write), write.modifier)

    def _written(self, write: Write) -> Callable[[int | None, bytes], None]:
        def answered(status: int | None, data: bytes) -> None:
            if status == c.STATUS_OK:
                write.done(data)
            else:
                said = "no answer" if status is None else f"status {status:#06x}"
                self._problem(f"Set {write.attribute:#06x} at {list(write.path)}: {said}")

        return answered

    def _ports_written(self) -> None:
        fabric = self.fabric
        assert fabric.routes is not None
        top = max(self.groups, default=0)
        self._write(table_writes(fabric.nodes, fabric.routes, fabric.guids, self._shadow))
        self._write(switch_info_writes(fabric.nodes, fabric.routes.lids.top, top))
        self._write(lane_writes(fabric.nodes, fabric.routes, fabric.guids, self._shadow))
        if self.config.partitions:
            self._write(partition_writes(fabric.nodes, self.pkeys_of, self._shadow, self._problem))

    def pkeys_of(self, guid: int) -> list[int]:
        """The P_Keys of a port, by its GUID."""
        if guid in self._switch_guids and guid != self.config.guid:
            return self._partitions.of_switch(guid)
        return self._partitions.keys_of(guid, guid == self.config.guid)

    def _tables_written(self) -> None:
        self._write(self._group_writes())

    def _group_writes(self) -> Iterator[Write]:
        fabric = self.fabric
        routes = fabric.routes
        assert routes is not None
        ends = routes.graph.endpoints
        nodes = routes.graph.topology.nodes
        by_guid = {
            nodes[node].port_guid(port): place
            for place, (node, port) in enumerate(zip(ends.node.tolist(), ends.port.tolist(), strict=True))
        }
        trees = {}
        for mlid, members in self.groups.items():
            here = [by_guid[guid] for guid in members if guid in by_guid]
            try:
                trees[mlid] = multicast_tree(routes.graph, routes.routing, here)
                silent = [by_guid[guid] for guid in self._senders[mlid] if guid in by_guid]
                without_copies(routes.graph, trees[mlid], silent)
            except RoutingError as error:
                self._problem(f"multicast LID {mlid:#06x}: {error}")
        return multicast_writes(fabric.nodes, routes, fabric.guids, trees, self._shadow)

    def _groups_written(self) -> None:
        self._write(activation_writes(self.fabric.nodes))

    def _activated(self) -> None:
        self.sweeps += 1
        self.phase = ACTIVATION  # groups that lose members now are written when this is over
        self.administration.swept(self._ports_before, self._now)
        self._rest()

    def _rest(self) -> None:
        """A sweep is over: begin another one if that was asked for, else wait."""
        self.phase = RESTING
        self._act_count += 1
        if self._again:
            self._again = False
            self._sweep()
            return
        if self.state == states.MASTER:
            self._due_ns = self._now + self.config.light_sweep_ns
        if self._groups_changed:
            self._regroup()

    def _regrouped(self) -> None:
        """Groups have been written: what came due meanwhile is done first, however many change."""
        self.phase = RESTING
        if self._again:
            self._rest()
        elif self._light_is_due:
            self._light_is_due = False
            self._light_sweep()
        elif self._groups_changed:
            self._regroup()

    # traps

    def _trap(self, data: bytes, source_lid: int) -> None:
        """A node tells of something: say that it has been heard, and look."""
        self.counters["traps"] += 1
        if self.state != states.MASTER:
            return
        try:
            notice = Notice.decode(data, DATA_AT)
        except WireError:
            return
        self.administration.trapped(notice, source_lid, self._now)
        if notice.trap_number == TRAP_BAD_M_KEY:
            self.counters["bad_m_keys"] += 1
        repress = bytearray(data)
        repress[3] = c.METHOD_TRAP_REPRESS
        repress[24:32] = self.config.m_key.to_bytes(8, "big")
        self._outgoing.append(Outgoing(source_lid, c.SUBNET_QPN, bytes(repress)))
        if notice.trap_number != TRAP_BAD_M_KEY:
            self._sweep()

    # other managers

    def info(self) -> SMInfo:
        """What it says of itself."""
        count = self._act_count & 0xFFFF_FFFF
        return SMInfo(self.config.guid, self.config.sm_key, count, self.config.priority, self.state)

    def _asked(self, data: bytes, source_lid: int) -> None:
        """Get or Set SMInfo of another manager."""
        status = c.STATUS_OK
        if data[3] == c.METHOD_SET:
            status = self._controlled(data)
        answer = bytearray(data)
        answer[3] = c.METHOD_GET_RESPONSE
        directed = data[1] == c.CLASS_SUBN_DIRECTED
        answer[4:6] = (status | (c.DIRECTION if directed else 0)).to_bytes(2, "big")
        answer[DATA_AT : DATA_AT + SMInfo.LENGTH_BYTES] = self.info().encode()
        self._outgoing.append(
            Outgoing(c.LID_PERMISSIVE if directed else source_lid, c.SUBNET_QPN, bytes(answer))
        )

    def _controlled(self, data: bytes) -> int:
        """Another manager says what this one shall be; the status of the response."""
        control = states.CONTROLS.get(int.from_bytes(data[20:24], "big"))
        said = SMInfo.decode(data, DATA_AT)
        self.counters["controls"] += 1
        known = said.sm_key == self.config.sm_key
        if control is None or not known or (self.state, control) not in states.TABLE:
            self.counters["controls_refused"] += 1
            return c.STATUS_BAD_VALUE
        other = self.others.get(said.guid)
        if control == states.HANDOVER:
            self._heir = other or self._master
        if control == states.ACKNOWLEDGE:
            self._master = self._heir
        self._happens(control)
        return c.STATUS_OK

    def _happens(self, event: str) -> None:
        following = states.TABLE.get((self.state, event))
        if following is None:
            self._rest()
            return
        self._is_new_master |= following[0] == states.MASTER != self.state
        self.state, actions = following
        for action in actions:
            _ACTIONS[action](self)

    def _poll_later(self) -> None:
        self.phase = RESTING
        self.requests.forget()
        self._polls_missed = 0
        self._resign()
        self._shadow.clear()  # another manager writes now
        self._due_ns = self._now + self.config.poll_ns

    def _poll(self) -> None:
        """Ask the master whether it is one still."""
        self._due_ns = self._now + self.config.poll_ns
        if self._master is None:
            self._happens(states.LOST)
            return

        def answered(status: int | None, data: bytes) -> None:
            alive = status == c.STATUS_OK and SMInfo.decode(data).sm_state == states.MASTER
            self._polls_missed = 0 if alive else self._polls_missed + 1
            if self._polls_missed >= self.config.polls and self.state == states.STANDBY:
                self._happens(states.LOST)

        if self.requests.idle:
            self.requests.get(self._master.path, c.ATTRIBUTE_SM_INFO, answered)

    def _hand_over(self) -> None:
        self._send_control(self._heir, states.HANDOVER)
        self._configure()  # this one is master until the other one has acknowledged

    def _confirm(self) -> None:
        self._send_control(self._heir, states.ACKNOWLEDGE)

    def _send_control(self, other: OtherManager | None, control: str) -> None:
        if other is None:
            return
        number = states.CONTROL_NUMBERS[control]
        info = self.info().encode()
        self.requests.set(other.path, c.ATTRIBUTE_SM_INFO, info, lambda status, data: None, number)

    def _sweep_anew(self) -> None:
        self.phase = RESTING
        self._shadow.clear()
        self._sweep()

    def _stop(self) -> None:
        self.phase = RESTING
        self.requests.forget()
        self._resign()
        self._due_ns = NEVER_NS

    def _resign(self) -> None:
        """Another manager has to do with groups, services and subscriptions from now on."""
        self.administration.step_down()
        self.groups.clear()
        self._senders.clear()
        self._groups_changed = self._light_is_due = False


_ENDINGS: dict[str, Callable[[FabricManager], None]] = {
    DISCOVERY: FabricManager._discovered,
    ELECTION: FabricManager._elected,
    PORTS: FabricManager._ports_written,
    TABLES: FabricManager._tables_written,
    GROUPS: FabricManager._groups_written,
    ACTIVATION: FabricManager._activated,
    LIGHT: FabricManager._light_swept,
    REGROUPING: FabricManager._regrouped,
}
"""What is done when a phase has ended."""

_ACTIONS: dict[str, Callable[[FabricManager], None]] = {
    states.SWEEP: FabricManager._sweep_anew,
    states.CONFIGURE: FabricManager._configure,
    states.POLL: FabricManager._poll_later,
    states.HAND_OVER: FabricManager._hand_over,
    states.CONFIRM: FabricManager._confirm,
    states.REST: FabricManager._stop,
}
