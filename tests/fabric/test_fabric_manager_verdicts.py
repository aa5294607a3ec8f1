"""Who is master, what traps and time make of a manager, and what it keeps of what it has written."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from softhca.fabric.generators import fat_tree, torus
from softhca.fabric.mad_plane import Datagram
from softhca.fabric.manager import states
from softhca.fabric.manager.managed_fabric import ManagedFabric
from softhca.fabric.manager.manager import FabricManager, ManagerConfig, OtherManager, Partition
from softhca.fabric.topology import End, Link, LinkSpeed, LinkWidth, NodeKind, Topology, make_node
from softhca.management import constants as c
from softhca.management.mad import Mad, MadHeader
from softhca.management.subnet_attributes import TRAP_BAD_M_KEY, TRAP_LINK_STATE, Notice, SMInfo

SECOND_NS = 1_000_000_000
SWITCH = fat_tree(4, 1)
TREE = fat_tree(4, 3)
OWN_GUID, PRIORITY = 50, 5


def managed_by_one(fabric: Topology = SWITCH, **config: Any) -> tuple[ManagedFabric, FabricManager]:
    managed = ManagedFabric(fabric)
    manager = managed.add((0, 1), ManagerConfig(fabric.nodes[0].port_guid(1), **config))
    managed.settle()
    assert manager.state == states.MASTER
    return managed, manager


def trap(number: int, transaction_id: int = 7) -> bytes:
    header = MadHeader(
        management_class=c.CLASS_SUBN_LID,
        method=c.METHOD_TRAP,
        transaction_id=transaction_id,
        attribute_id=c.ATTRIBUTE_NOTICE,
    )
    return Mad.make(header, Notice(trap_number=number, issuer_lid=3).encode()).encode()


@pytest.mark.parametrize(
    ("state", "others", "verdict", "chosen"),
    [
        # (GUID, priority, state) of the others; who is heir, or master, then
        (states.MASTER, [], states.ALONE, None),
        (states.MASTER, [(60, 5, states.STANDBY)], states.ALONE, None),
        (states.MASTER, [(40, 5, states.STANDBY)], states.ALONE, None),
        (states.MASTER, [(40, 6, states.STANDBY)], states.SUCCESSOR, 40),
        (states.MASTER, [(60, 6, states.STANDBY), (40, 6, states.STANDBY)], states.SUCCESSOR, 40),
        (states.MASTER, [(40, 6, states.STANDBY), (60, 7, states.STANDBY)], states.SUCCESSOR, 60),
        (states.MASTER, [(40, 6, states.NOT_ACTIVE)], states.ALONE, None),
        (states.MASTER, [(60, 5, states.MASTER)], states.ALONE, None),
        (states.MASTER, [(40, 5, states.MASTER)], states.SUCCESSOR, 40),
        (states.MASTER, [(40, 4, states.MASTER)], states.ALONE, None),
        (states.DISCOVERING, [], states.ALONE, None),
        (states.DISCOVERING, [(60, 5, states.DISCOVERING)], states.ALONE, None),
        (states.DISCOVERING, [(40, 5, states.DISCOVERING)], states.OUTRANKED, 40),
        (states.DISCOVERING, [(40, 6, states.NOT_ACTIVE)], states.ALONE, None),
        (states.DISCOVERING, [(40, 9, states.STANDBY), (60, 0, states.MASTER)], states.OUTRANKED, 60),
    ],
)
def test_a_discovery_says_who_is_master(
    state: int, others: list[tuple[int, int, int]], verdict: str, chosen: int | None
) -> None:
    manager = FabricManager(ManagerConfig(OWN_GUID, priority=PRIORITY))
    manager.state = state
    for guid, priority, other in others:
        manager.others[guid] = OtherManager(SMInfo(guid, 0, 0, priority, other), b"")
    assert manager._verdict() == verdict
    found = manager._heir if state == states.MASTER else manager._master
    assert (None if found is None else found.info.guid) == chosen


def two_ports() -> Topology:
    """A channel adapter, both of whose ports are at one switch, and another one."""
    nodes = (
        make_node("switch", NodeKind.SWITCH, 4, 0x100),
        make_node("two", NodeKind.CHANNEL_ADAPTER, 2, 0x200),
        make_node("one", NodeKind.CHANNEL_ADAPTER, 1, 0x300),
    )
    ends = ((1, 1), (1, 2), (2, 1))
    links = [
        Link(End(0, port), End(*end), LinkWidth.X4, LinkSpeed.HDR) for port, end in enumerate(ends, 1)
    ]
    return Topology(nodes, tuple(links))


def test_a_manager_at_the_other_port_of_the_adapter_is_another_one() -> None:
    managed = ManagedFabric(two_ports())
    first = managed.add((1, 1))
    managed.settle()
    second = managed.add((1, 2))
    managed.settle()
    assert [each.state for each in (first, second)] == [states.MASTER, states.STANDBY]
    assert set(second.others) == {0x201}


def test_a_port_keeps_the_lid_that_it_has_from_its_manager() -> None:
    managed, manager = managed_by_one()
    port = managed.plane.nodes[2].ports[1]
    assert port is not None
    before = port.info.lid
    port.change(lid=200)
    manager.sweep(managed.now)
    managed.settle()
    assert port.info.lid == before


def test_a_new_manager_leaves_ports_the_lids_that_they_say() -> None:
    managed, manager = managed_by_one()
    port = managed.plane.nodes[2].ports[1]
    assert port is not None
    port.change(lid=200)
    managed.remove(manager)
    managed.add((1, 1))
    managed.settle()
    assert port.info.lid == 200


@pytest.mark.parametrize(("number", "sweeps"), [(TRAP_BAD_M_KEY, 1), (TRAP_LINK_STATE, 2)])
def test_a_wrong_key_is_heard_of_and_starts_no_sweep(number: int, sweeps: int) -> None:
    managed, manager = managed_by_one()
    heard: list[tuple[int, bytes]] = []

    def overhear(datagram: Datagram) -> bool:
        if datagram.data[3] == c.METHOD_TRAP_REPRESS:
            heard.append((datagram.dlid, datagram.data[8:16]))
        return False

    managed.loses = overhear
    manager.receive(trap(number), 3, managed.now)
    managed.settle()
    assert heard == [(3, trap(number)[8:16])]
    assert (manager.counters["traps"], manager.sweeps) == (1, sweeps)


@pytest.mark.parametrize("state", [states.NOT_ACTIVE, states.DISCOVERING, states.STANDBY])
def test_who_is_not_master_leaves_traps_to_the_master(state: int) -> None:
    manager = FabricManager(ManagerConfig(OWN_GUID))
    manager.state = state
    manager.receive(trap(TRAP_LINK_STATE), 3, 0)
    assert manager.counters["traps"] == 1
    assert (list(manager.transmit()), manager.phase) == ([], "resting")


def test_a_sweep_that_is_asked_for_during_another_one_follows_it() -> None:
    managed = ManagedFabric(SWITCH)
    manager = managed.add((0, 1))
    manager.sweep(managed.now)
    managed.settle()
    assert manager.sweeps == 2


def test_light_sweeps_go_on_though_a_group_was_being_written_when_one_was_due() -> None:
    managed, manager = managed_by_one()
    members = frozenset({SWITCH.nodes[1].port_guid(1)})
    due_ns = manager.next_deadline_ns
    managed.run_until(due_ns - 100)
    managed.loses = lambda datagram: datagram.data[3] == c.METHOD_SET
    manager.set_group(0xC000, members, managed.now)
    managed.run_until(due_ns + 100)
    assert (manager.phase, manager.counters["light_sweeps"]) == ("regrouping", 0)
    managed.loses = lambda datagram: False
    managed.run_until(due_ns + SECOND_NS)
    assert manager.counters["light_sweeps"] == 1
    managed.run_until(due_ns + 25 * SECOND_NS)
    assert manager.counters["light_sweeps"] == 3


def test_groups_that_are_written_hide_no_change_of_a_port() -> None:
    """SwitchInfo, which says how far the table of groups goes, has the bit that tells of changes, too."""
    managed, manager = managed_by_one(TREE)
    link = TREE.link_at(TREE.index("h1"), 1)  # no way to a switch goes there
    assert link is not None
    managed.plane.notices.raise_link_state = lambda node, now: None  # type: ignore[method-assign]
    managed.plane.fail(link, managed.now)  # of which no trap tells
    manager.set_group(0xC000, frozenset({TREE.nodes[1].port_guid(1)}), managed.now)
    managed.settle()
    assert (manager.sweeps, manager.counters["traps"]) == (1, 0)
    managed.run_until(managed.now + 11 * SECOND_NS)
    assert manager.sweeps == 2


def two_managers(**second: int) -> tuple[ManagedFabric, FabricManager, FabricManager]:
    managed, first = managed_by_one(TREE, priority=1)
    other = managed.add((7, 1), ManagerConfig(TREE.nodes[7].port_guid(1), **second))
    managed.settle()
    assert (first.state, other.state) == (states.MASTER, states.STANDBY)
    return managed, first, other


def test_polls_that_were_missed_count_in_a_row() -> None:
    managed, _, standby = two_managers()
    lid = managed.managers[standby].port.info.lid

    def silence(datagram: Datagram) -> bool:
        return datagram.slid == lid

    def nothing(datagram: Datagram) -> bool:
        return False

    for loses in (silence, nothing, silence):
        managed.loses = loses
        managed.run_until(managed.now + 3 * SECOND_NS)  # two polls, and one that is sent again
        assert standby.state == states.STANDBY
    managed.run_until(managed.now + SECOND_NS)
    assert standby.state != states.STANDBY


def test_who_has_handed_over_knows_of_no_table_any_more() -> None:
    managed, low, high = two_managers(priority=9)
    assert low.written
    low.sweep(managed.now)
    managed.run_until(managed.now + 5 * SECOND_NS)
    assert (low.state, high.state) == (states.STANDBY, states.MASTER)
    assert low.written == {}
    assert high.written


def test_a_manager_tells_that_it_acts() -> None:
    managed, manager = managed_by_one()
    told = [manager.info().act_count]
    for _ in range(3):
        managed.run_until(managed.now + 11 * SECOND_NS)
        told.append(manager.info().act_count)
    assert all(after > before for before, after in pairwise(told))


def test_a_link_has_the_mtu_and_the_lanes_of_its_lesser_end() -> None:
    fabric = torus([3], 1)
    managed = ManagedFabric(fabric)
    host = managed.plane.nodes[fabric.index("h1")].ports[1]
    assert host is not None
    host.change(mtu_cap=3, vl_cap=1)
    peer = managed.plane.peer(managed.plane.nodes[fabric.index("h1")], 1)
    assert peer is not None
    managed.add((0, 1))
    managed.settle()
    assert [(each.info.neighbor_mtu, each.info.operational_vls) for each in (host, peer[1])] == [(3, 1)] * 2
    others = [port for port in peer[0].ports if port is not None and port.linked and port is not peer[1]]
    assert {(each.info.neighbor_mtu, each.info.operational_vls) for each in others} == {(5, 2)}


@pytest.mark.parametrize(("inbound", "outbound"), [(0, 1), (1, 0), (1, 1)])
def test_switches_look_at_keys_in_the_directions_that_they_can(inbound: int, outbound: int) -> None:
    managed = ManagedFabric(SWITCH)
    switch = next(node for node in managed.plane.nodes if node.is_switch)
    switch.set_switch_info(inbound_enforcement_cap=inbound, outbound_enforcement_cap=outbound)
    partitions = (Partition(0x0012, None),)
    managed.add((0, 1), ManagerConfig(SWITCH.nodes[0].port_guid(1), partitions=partitions))
    managed.settle()
    infos = [port.info for port in switch.ports[1:] if port is not None]
    assert {
        (each.partition_enforcement_inbound, each.partition_enforcement_outbound) for each in infos
    } == {(inbound, outbound)}
