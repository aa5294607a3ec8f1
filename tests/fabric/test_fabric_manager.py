"""The fabric manager in virtual time: it brings fabrics up, mends them, and hands them over."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from random import Random

import numpy as np
import pytest

from softhca.fabric.generators import dragonfly, fat_tree, random_fabric, torus
from softhca.fabric.graph import Graph
from softhca.fabric.lids import Lids
from softhca.fabric.mad_plane import Datagram
from softhca.fabric.manager import states
from softhca.fabric.manager.managed_fabric import ManagedFabric
from softhca.fabric.manager.manager import FabricManager, ManagerConfig, Partition
from softhca.fabric.routing import NO_ROUTE, Routes, route
from softhca.fabric.topology import NodeKind, Topology
from softhca.fabric.verify import credit_loop, reach
from softhca.management import constants as c
from softhca.management.subnet_attributes import TABLES, SMInfo

ACTIVE = 4
SECOND_NS = 1_000_000_000
FABRICS = {
    "tree": fat_tree(4, 3),
    "torus": torus([4, 3], 2),
    "dragonfly": dragonfly(3, 1, 1),
    "random": random_fabric(9, 2, 4, Random(2)),
    "one switch": fat_tree(4, 1),
}


def as_written(managed: ManagedFabric, manager: FabricManager, topology: Topology) -> Routes:
    """The routes that stand in the switches, by the LIDs that stand in the ports."""
    graph = Graph(topology)
    ends = graph.endpoints
    infos = [
        managed.plane.nodes[node].ports[port].info
        for node, port in zip(ends.node.tolist(), ends.port.tolist(), strict=True)
    ]
    base = np.array([info.lid for info in infos], np.int32)
    lmc = np.array([info.lmc for info in infos], np.int32)
    owner = np.full(int((base + (1 << lmc)).max()), -1, np.int32)
    for place, (lid, bits) in enumerate(zip(base.tolist(), lmc.tolist(), strict=True)):
        assert lid
        assert (owner[lid : lid + (1 << bits)] < 0).all()
        owner[lid : lid + (1 << bits)] = place
    lids = Lids(base, lmc, owner)
    engine = manager.fabric.routes.engine if manager.fabric.routes else "up-down"
    routes = route(graph, engine, lids)
    tables = np.full((len(graph), len(owner)), NO_ROUTE, np.uint8)
    for number, index in enumerate(graph.switches.tolist()):
        node = managed.plane.nodes[index]
        said = np.frombuffer(bytes(node.linear[: len(owner)]), np.uint8)
        tables[number, : len(said)] = said
        assert node.linear_top >= len(owner) - 1
    return replace(routes, tables=tables)


def check(managed: ManagedFabric, manager: FabricManager, gone: tuple[int, ...] = ()) -> Routes:
    """Every host reaches every host over what is written, links are ACTIVE, and nothing can lock up."""
    topology = managed.plane.topology.without(gone)
    routes = as_written(managed, manager, topology)
    assert reach(routes).whole
    assert credit_loop(routes) is None
    for link in topology.links:
        for end in (link.end_a, link.end_b):
            info = managed.plane.nodes[end.node].ports[end.port].info
            assert (info.state, info.neighbor_mtu) == (ACTIVE, 5)
    for end in zip(routes.graph.endpoints.node.tolist(), routes.graph.endpoints.port.tolist(), strict=True):
        info = managed.plane.nodes[end[0]].ports[end[1]].info
        assert info.sm_lid == manager.own_lid
    return routes


@pytest.mark.parametrize("name", FABRICS)
@pytest.mark.parametrize("lmc", [0, 1])
def test_a_fabric_is_brought_up(name: str, lmc: int) -> None:
    managed = ManagedFabric(FABRICS[name])
    config = ManagerConfig(FABRICS[name].nodes[0].port_guid(1), lmc=lmc)
    manager = managed.add((0, 1), config)
    managed.settle()
    assert (manager.state, manager.sweeps, manager.problems) == (states.MASTER, 1, [])
    check(managed, manager)
    assert manager.requests.counters["sent_again"] == 0
    found = manager.fabric.routes
    assert found is not None
    topology = FABRICS[name]
    assert {node.guid for node in found.graph.topology.nodes} == {node.guid for node in topology.nodes}
    assert {node.name for node in found.graph.topology.nodes} == {node.name for node in topology.nodes}
    assert len(found.graph.topology.links) == len(topology.links)
    assert {str(link) for link in found.graph.topology.links} == {"4xHDR"}


@pytest.mark.parametrize(("around", "reached"), [(123, True), (125, False)])
def test_a_node_is_found_where_it_is_63_hops_away_at_most(around: int, reached: bool) -> None:
    fabric = torus([around], 1)  # to the farthest host half the ring, and the links of two hosts
    managed = ManagedFabric(fabric)
    manager = managed.add((0, 1), ManagerConfig(fabric.nodes[0].port_guid(1)))
    managed.settle()
    assert set(manager.problems) == (set() if reached else {"more than 63 hops away"})
    assert manager.fabric.routes is not None
    found = len(manager.fabric.routes.graph.topology.nodes)
    assert found == 2 * around - (0 if reached else 2)


def test_a_manager_may_live_in_a_switch() -> None:
    fabric = FABRICS["tree"]
    managed = ManagedFabric(fabric)
    manager = managed.add((fabric.index("s1-0"), 0))
    managed.settle()
    assert manager.state == states.MASTER
    check(managed, manager)


def test_lanes_of_a_torus_stand_in_its_switches() -> None:
    managed = ManagedFabric(FABRICS["torus"])
    manager = managed.add((0, 1))
    managed.settle()
    routes = manager.fabric.routes
    assert routes is not None
    assert routes.engine == "dimension-order"
    fabric = FABRICS["torus"]
    node = managed.plane.nodes[fabric.index("s1.1")]
    table = TABLES[c.ATTRIBUTE_SL_TO_VL_TABLE]
    for port, bit in ((1, 0), (2, 0), (3, 1), (4, 1)):
        said = table.decode(node.ports[port].sl_to_vl[1])
        assert list(said) == [level >> bit & 1 for level in range(16)]
        assert node.ports[port].info.operational_vls >= 2
        weights = TABLES[c.ATTRIBUTE_VL_ARBITRATION].decode(node.ports[port].arbitration[1])
        assert weights[:3] == (64, 256 + 64, 0)


def test_a_failed_link_is_routed_round_when_a_trap_tells_of_it_and_taken_again() -> None:
    fabric = FABRICS["tree"]
    managed = ManagedFabric(fabric)
    manager = managed.add((0, 1))
    managed.settle()
    before = dict(manager.fabric.lids)
    link = fabric.link_at(fabric.index("s1-5"), 3)
    assert link is not None
    managed.plane.fail(link, managed.now)
    managed.run_until(managed.now + SECOND_NS)
    assert manager.counters["traps"] >= 1
    assert manager.sweeps == 2
    check(managed, manager, (link,))
    managed.plane.restore(link, managed.now)
    managed.run_until(managed.now + 5 * SECOND_NS)
    assert manager.sweeps >= 3
    check(managed, manager)
    assert manager.fabric.lids == before
    sweeps = manager.sweeps
    managed.run_until(managed.now + 60 * SECOND_NS)
    assert manager.sweeps == sweeps  # all is well: light sweeps only
    assert manager.counters["light_sweeps"] >= 4


def test_a_light_sweep_finds_what_no_trap_has_told() -> None:
    fabric = FABRICS["tree"]
    managed = ManagedFabric(fabric)
    manager = managed.add((0, 1))
    managed.settle()
    link = fabric.link_at(fabric.index("s1-5"), 3)
    assert link is not None
    managed.loses = lambda datagram: False
    managed.plane.notices._pending.clear()
    for node in managed.plane.nodes:  # nobody knows a manager to tell it
        for port in node.ports:
            if port is not None and port.own:
                port.change(sm_lid=0)
    managed.plane.fail(link, managed.now)
    managed.run_until(managed.now + 11 * SECOND_NS)
    assert (manager.counters["traps"], manager.sweeps) == (0, 2)
    check(managed, manager, (link,))


def test_a_second_sweep_writes_nothing() -> None:
    managed = ManagedFabric(FABRICS["tree"])
    manager = managed.add((0, 1))
    managed.settle()
    sets = []

    def watch(datagram) -> bool:
        if datagram.data[3] == c.METHOD_SET:
            sets.append(datagram)
        return False

    managed.loses = watch
    manager.sweep(managed.now)
    managed.settle()
    assert manager.sweeps == 2
    assert sets == []


def test_a_switch_that_has_been_reset_is_written_anew() -> None:
    fabric = FABRICS["tree"]
    managed = ManagedFabric(fabric)
    manager = managed.add((0, 1))
    managed.settle()
    switch = managed.plane.nodes[fabric.index("s2-3")]
    switch.linear.clear()
    switch.set_switch_info(linear_fdb_top=0)
    manager.sweep(managed.now)
    managed.settle()
    check(managed, manager)


def test_what_is_lost_is_sent_again() -> None:
    managed = ManagedFabric(FABRICS["random"])
    dice = Random(1)
    managed.loses = lambda datagram: dice.random() < 0.1
    manager = managed.add((0, 1))
    managed.settle()
    assert manager.requests.counters["sent_again"] > 10
    managed.loses = lambda datagram: False
    managed.run_until(managed.now + 20 * SECOND_NS)
    check(managed, manager)
    assert manager.problems == []


def test_a_node_that_does_not_answer_is_a_problem_and_asked_again() -> None:
    fabric = FABRICS["tree"]
    managed = ManagedFabric(fabric)
    manager = managed.add((0, 1))
    managed.settle()
    routes = manager.fabric.routes
    assert routes is not None
    paths = {manager.fabric.nodes[fabric.nodes[fabric.index("h9")].guid].paths[1]}
    managed.loses = lambda datagram: (
        datagram.data[1] == c.CLASS_SUBN_DIRECTED
        and bytes(datagram.data[129 : 129 + datagram.data[7]]) in paths
    )
    manager.sweep(managed.now)
    managed.settle()
    assert any("no NodeInfo by" in text for text in manager.problems)
    managed.loses = lambda datagram: False
    managed.run_until(managed.now + 15 * SECOND_NS)
    assert manager.problems == []
    check(managed, manager)


def test_partitions_stand_in_the_ports() -> None:
    fabric = FABRICS["one switch"]
    guids = [node.port_guid(1) for node in fabric.nodes if node.kind is NodeKind.CHANNEL_ADAPTER]
    partitions = (
        Partition(0x0012, frozenset(guids[:2]), frozenset(guids[2:3])),
        Partition(0x0013, None),
        Partition(0x0014, frozenset(), None),
    )
    managed = ManagedFabric(fabric)
    manager = managed.add((0, 1), ManagerConfig(guids[0], partitions=partitions))
    managed.settle()
    table = TABLES[c.ATTRIBUTE_PKEY_TABLE]
    tables = [table.decode(managed.plane.nodes[node].ports[1].pkeys[0])[:5] for node in range(4)]
    assert tables == [
        (0xFFFF, 0x8012, 0x8013, 0x0014, 0),
        (0xFFFF, 0x8012, 0x8013, 0x0014, 0),
        (0xFFFF, 0x0012, 0x8013, 0x0014, 0),
        (0xFFFF, 0x8013, 0x0014, 0, 0),
    ]
    assert manager.pkeys_of(guids[3]) == [0xFFFF, 0x8013, 0x0014]


def test_multicast_groups_stand_in_the_switches_and_go_again() -> None:
    fabric = FABRICS["tree"]
    managed = ManagedFabric(fabric)
    manager = managed.add((0, 1))
    managed.settle()
    members = [fabric.nodes[fabric.index(name)].port_guid(1) for name in ("h0", "h1", "h7")]
    manager.set_group(0xC021, frozenset(members), managed.now)
    managed.settle()
    leaf = managed.plane.nodes[fabric.index("s1-0")]
    table = TABLES[c.ATTRIBUTE_MULTICAST_FORWARDING]
    mask = table.decode(leaf.multicast[1])[1]
    assert mask & 0b110 == 0b110  # ports 1 and 2: h0 and h1
    assert bin(mask).count("1") == 3  # and one up
    assert table.decode(managed.plane.nodes[fabric.index("s1-3")].multicast[1])[1] & 0b100
    manager.set_group(0xC021, frozenset(), managed.now)
    managed.settle()
    assert table.decode(leaf.multicast[1])[1] == 0
    assert manager.problems == []


def test_a_group_may_have_any_port_of_a_large_switch() -> None:
    fabric = fat_tree(24, 1)
    managed = ManagedFabric(fabric)
    manager = managed.add((0, 1))
    managed.settle()
    switch = managed.plane.nodes[next(n for n, node in enumerate(fabric.nodes) if node.is_switch)]
    ports = {1, 7, 8, 9, 15, 16, 23}
    ends = [
        (link.end_a, link.end_b) if fabric.nodes[link.end_a.node].is_switch else (link.end_b, link.end_a)
        for link in fabric.links
    ]
    members = [fabric.nodes[host.node].port_guid(1) for at, host in ends if at.port in ports]
    manager.set_group(0xC000, frozenset(members), managed.now)
    managed.settle()
    table = TABLES[c.ATTRIBUTE_MULTICAST_FORWARDING]
    found = set()
    for modifier, data in switch.multicast.items():
        mask = table.decode(data)[0]
        found |= {16 * (modifier >> 28) + bit for bit in range(16) if mask >> bit & 1}
    assert found == ports


def test_a_group_that_changes_is_sent_for_at_once_and_nothing_is_awaited_where_nothing_changes() -> None:
    managed = ManagedFabric(FABRICS["one switch"])
    manager = managed.add((0, 1))
    managed.settle()
    guid = managed.plane.topology.nodes[1].port_guid(1)
    manager.set_group(0xC000, frozenset({guid}), managed.now)
    sets = [out.data for out in manager.transmit() if out.data[3] == c.METHOD_SET]
    assert {data[16:18] for data in sets} == {b"\0\x1b", b"\0\x12"}
    fresh = ManagedFabric(FABRICS["one switch"])
    manager = fresh.add((0, 1))
    fresh.settle()
    manager.set_group(0xC000, frozenset(), fresh.now)
    assert (list(manager.transmit()), manager.phase) == ([], "resting")


def test_a_standby_with_a_master_asks_it_each_second_and_nobody_else() -> None:
    fabric = FABRICS["tree"]
    managed = ManagedFabric(fabric)
    managed.add((3, 1), ManagerConfig(fabric.nodes[3].port_guid(1)))
    managed.settle()
    # this one outranks the master by its GUID, and who comes then must follow the master all the same
    second = managed.add((0, 1), ManagerConfig(fabric.nodes[0].port_guid(1)))
    managed.settle()
    third = managed.add((5, 1), ManagerConfig(fabric.nodes[5].port_guid(1)))
    managed.settle()
    for standby in (second, third):
        assert standby.state == states.STANDBY
        asked: list[bytes] = []
        managed.loses = partial(_overhear, asked, managed.managers[standby].port.info.lid)
        sent = standby.requests.counters["sent"]
        managed.run_until(managed.now + 5 * SECOND_NS)
        assert standby.requests.counters["sent"] - sent == 5
        assert {data[16:18] for data in asked} == {b"\0\x20"}
        path = standby.others[managed_master(managed).config.guid].path
        assert {bytes(data[129 : 129 + data[7]]) for data in asked} == {path}


def _overhear(heard: list[bytes], lid: int, datagram: Datagram) -> bool:
    if datagram.slid == lid and datagram.data[3] == c.METHOD_GET:
        heard.append(datagram.data)
    return False


def managed_master(managed: ManagedFabric) -> FabricManager:
    (found,) = [manager for manager in managed.managers if manager.state == states.MASTER]
    return found


def test_a_master_goes_on_as_one_until_its_heir_has_taken_over() -> None:
    fabric = FABRICS["tree"]
    managed = ManagedFabric(fabric)
    low = managed.add((0, 1), ManagerConfig(fabric.nodes[0].port_guid(1), priority=1))
    managed.settle()
    managed.add((7, 1), ManagerConfig(fabric.nodes[7].port_guid(1), priority=9))
    managed.settle()
    managed.loses = lambda datagram: datagram.data[3] == c.METHOD_SET and datagram.data[16:18] == b"\0\x20"
    link = fabric.link_at(fabric.index("s1-5"), 3)
    assert link is not None
    managed.plane.fail(link, managed.now)
    managed.run_until(managed.now + SECOND_NS)
    assert (low.state, low.sweeps) == (states.MASTER, 2)
    check(managed, low, (link,))


def test_ports_get_the_prefix_of_the_subnet() -> None:
    fabric = FABRICS["one switch"]
    managed = ManagedFabric(fabric)
    prefix = 0xFEC0_0000_0000_0001
    managed.add((0, 1), ManagerConfig(fabric.nodes[0].port_guid(1), gid_prefix=prefix))
    managed.settle()
    assert {managed.plane.nodes[node].ports[1].info.gid_prefix for node in range(4)} == {prefix}


def test_of_two_managers_one_is_standby_and_takes_over() -> None:
    fabric = FABRICS["tree"]
    managed = ManagedFabric(fabric)
    first = managed.add((0, 1))
    second = managed.add((5, 1))
    managed.settle()
    assert sorted((first.state, second.state)) == [states.STANDBY, states.MASTER]
    master, standby = (first, second) if first.state == states.MASTER else (second, first)
    managed.run_until(managed.now + 30 * SECOND_NS)
    assert (master.state, standby.state) == (states.MASTER, states.STANDBY)
    lids = dict(master.fabric.lids)
    managed.remove(master)
    managed.run_until(managed.now + 10 * SECOND_NS)
    assert standby.state == states.MASTER
    assert standby.fabric.lids == lids
    check(managed, standby)


def test_a_master_hands_over_to_a_higher_priority() -> None:
    fabric = FABRICS["tree"]
    managed = ManagedFabric(fabric)
    low = managed.add((0, 1), ManagerConfig(fabric.nodes[0].port_guid(1), priority=1))
    managed.settle()
    high = managed.add((7, 1), ManagerConfig(fabric.nodes[7].port_guid(1), priority=9))
    managed.settle()
    assert (low.state, high.state) == (states.MASTER, states.STANDBY)
    low.sweep(managed.now)
    managed.run_until(managed.now + 5 * SECOND_NS)
    assert (low.state, high.state) == (states.STANDBY, states.MASTER)
    check(managed, high)
    managed.remove(high)
    managed.run_until(managed.now + 10 * SECOND_NS)
    assert low.state == states.MASTER
    check(managed, low)


def test_managers_of_equal_priority_that_begin_together_agree() -> None:
    fabric = FABRICS["random"]
    managed = ManagedFabric(fabric)
    managers = [managed.add((node, 1)) for node in range(4)]
    managed.settle()
    managed.run_until(managed.now + 30 * SECOND_NS)
    assert [manager.state for manager in managers].count(states.MASTER) == 1
    master = next(manager for manager in managers if manager.state == states.MASTER)
    check(managed, master)


def control(manager: FabricManager, number: int, sm_key: int = 0, guid: int = 9) -> int:
    """Another manager sets SMInfo; the status of the answer."""
    data = bytearray(256)
    data[:4] = bytes([1, c.CLASS_SUBN_LID, 1, c.METHOD_SET])
    data[16:18] = c.ATTRIBUTE_SM_INFO.to_bytes(2, "big")
    data[20:24] = number.to_bytes(4, "big")
    data[64:85] = SMInfo(guid, sm_key, 0, 3, states.MASTER).encode()
    list(manager.transmit())
    manager.receive(bytes(data), 7, 0)
    answer = next(out for out in manager.transmit() if out.dlid == 7)
    assert answer.data[3] == c.METHOD_GET_RESPONSE
    return int.from_bytes(answer.data[4:6], "big")


@pytest.mark.parametrize("state", states.STATES)
@pytest.mark.parametrize("number", [0, 1, 2, 3, 4, 5, 6])
def test_a_manager_is_told_what_to_be(state: int, number: int) -> None:
    manager = FabricManager(ManagerConfig(1, sm_key=5))
    manager.state = state
    assert control(manager, number, sm_key=6) == c.STATUS_BAD_VALUE
    assert manager.state == state
    following = states.TABLE.get((state, states.CONTROLS.get(number, "")))
    status = control(manager, number, sm_key=5)
    assert status == (c.STATUS_BAD_VALUE if following is None else c.STATUS_OK)
    assert manager.state == (state if following is None else following[0])


def test_hostile_datagrams_are_counted_and_change_nothing() -> None:
    managed = ManagedFabric(FABRICS["one switch"])
    manager = managed.add((0, 1))
    managed.settle()
    dice = Random(6)
    for _ in range(3000):
        data = bytearray(dice.randbytes(256))
        data[1] = dice.choice((1, 0x81, 3, 4, data[1]))
        data[3] = dice.choice((1, 2, 5, 0x81, 7, data[3]))
        data[16:18] = dice.choice((b"\0\x20", b"\0\x02", b"\0\x15", b"\0\x11", bytes(data[16:18])))
        if data[16:18] == b"\0\x20" and data[3] == 2:
            data[20:24] = dice.choice((b"\0\0\0\2", b"\0\0\0\7"))
        if data[3] == c.METHOD_TRAP or (data[3] == 2 and data[23] == 2):
            continue
        manager.receive(bytes(data), 3, managed.now)
    manager.receive(b"short", 3, managed.now)
    list(manager.transmit())
    assert manager.counters["drops"] > 100
    assert manager.requests.counters["unmatched"] > 100
    assert manager.state == states.MASTER
    check(managed, manager)


def test_two_nodes_with_one_guid_are_told() -> None:
    fabric = FABRICS["tree"]
    managed = ManagedFabric(fabric)
    twin = managed.plane.nodes[fabric.index("h9")]
    twin._info = managed.plane.nodes[fabric.index("h3")]._info
    manager = managed.add((0, 1))
    managed.settle()
    guid = fabric.nodes[fabric.index("h3")].guid
    assert f"two nodes have the GUID {guid:#018x}" in manager.problems
    assert manager.state == states.MASTER


def test_a_manager_without_the_keys_changes_nothing() -> None:
    fabric = FABRICS["one switch"]
    managed = ManagedFabric(fabric)
    manager = managed.add((0, 1), ManagerConfig(fabric.nodes[0].port_guid(1), m_key=0x77, sm_key=5))
    managed.settle()
    check(managed, manager)
    assert all(managed.plane.nodes[node].own_port(1).info.m_key == 0x77 for node in range(4))
    manager.sweep(managed.now)
    managed.settle()
    assert (manager.sweeps, manager.problems) == (2, [])
    infos = [managed.plane.nodes[node].own_port(1).info for node in range(5)]
    stranger = managed.add((1, 1), ManagerConfig(fabric.nodes[1].port_guid(1), priority=15, lmc=1))
    managed.run_until(managed.now + 30 * SECOND_NS)
    assert manager.state == states.MASTER
    assert manager.counters["strangers"] >= 1
    assert manager.counters["bad_m_keys"] >= 1
    assert f"the manager {stranger.config.guid:#018x} has another SM_Key" in manager.problems
    assert managed.plane.counters["drops_m_key"] > 0
    for node in (0, 2, 3, 4):
        now = managed.plane.nodes[node].own_port(1).info
        assert (now.m_key, now.lid, now.lmc) == (0x77, infos[node].lid, infos[node].lmc)
    check(managed, manager)


@pytest.mark.parametrize(
    "values",
    [{"engine": "none"}, {"priority": 16}, {"lmc": 8}, {"window": 0}, {"timeout_ns": 0}, {"polls": 0}],
    ids=lambda values: next(iter(values)),
)
def test_a_configuration_that_cannot_be_is_refused(values: dict) -> None:
    with pytest.raises(ValueError, match=rf"engine|manager's {next(iter(values))} is"):
        ManagerConfig(1, **values)


def test_an_engine_that_cannot_route_gives_way() -> None:
    fabric = FABRICS["random"]
    managed = ManagedFabric(fabric)
    manager = managed.add((0, 1), ManagerConfig(fabric.nodes[0].port_guid(1), engine="fat-tree"))
    managed.settle()
    assert manager.fabric.routes is not None
    assert manager.fabric.routes.engine == "up-down"
    assert any("fat-tree: no fat tree" in text for text in manager.problems)
    check(managed, manager)


def test_a_manager_that_has_gone_hears_nothing_of_what_is_under_way() -> None:
    managed = ManagedFabric(fat_tree(4, 1))
    manager = managed.add((0, 1))
    heard: list[bytes] = []
    manager.receive = lambda data, slid, now: heard.append(data)  # type: ignore[method-assign]
    for sent in manager.transmit():
        managed._arrived.append((manager, Datagram(1, 1, 0, 0, sent.data)))
    assert managed._arrived
    managed.remove(manager)
    assert managed.step()
    assert (heard, list(managed._arrived)) == ([], [])


def test_time_does_not_go_back() -> None:
    managed = ManagedFabric(fat_tree(4, 1))
    managed.run_until(5)
    managed.run_until(3)
    assert managed.now == 5
