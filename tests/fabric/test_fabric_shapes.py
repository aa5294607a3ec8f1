"""Shapes of all kinds, also irregular ones: a manager discovers them, routes them without credit loops, and
every host reaches every host that it is joined to.
"""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from softhca.fabric.generators import Builder, dragonfly, extended_fat_tree, fat_tree, random_fabric, torus
from softhca.fabric.manager.managed_fabric import ManagedFabric
from softhca.fabric.manager.manager import FabricManager
from softhca.fabric.routing import RoutingError, route
from softhca.fabric.topology import NodeKind, Topology
from softhca.fabric.topology_file import read_ibnetdiscover, write_ibnetdiscover
from softhca.fabric.verify import credit_loop, reach
from suite_plan import random_inputs

SHAPES = {
    "torus 3x4x2": torus([3, 4, 2]),
    "torus 5x5": torus([5, 5]),
    "mesh 3x4x2": torus([3, 4, 2], wrap=False),
    "dragonfly of 9 groups": dragonfly(4, 2, 2),
    "dragonfly of 3 groups": dragonfly(3, 1, 1, groups=3),
    "slim tree": extended_fat_tree([3, 4], [1, 3]),
    "one switch": fat_tree(6, 1),
    "ring of 3": torus([3], 2),
}
"""Not those of `test_fabric_routing`."""


def discovered(topology: Topology, at: tuple[int, int]) -> tuple[ManagedFabric, FabricManager]:
    """What a manager at a port finds and brings up."""
    managed = ManagedFabric(topology)
    manager = managed.add(at)
    managed.settle()
    return managed, manager


def component(topology: Topology, start: int) -> set[int]:
    """The nodes that are joined to one, found without the package's own graph."""
    found, waiting = {start}, [start]
    while waiting:
        node = waiting.pop()
        for port in range(1, topology.nodes[node].port_count + 1):
            peer = topology.peer(node, port)
            if peer is not None and peer.node not in found:
                found.add(peer.node)
                waiting.append(peer.node)
    return found


def walked(topology: Topology, managed: ManagedFabric, nodes: set[int]) -> int:
    """Follow the tables that stand in the switches, cable by cable, from every host among ``nodes`` to every
    other one; how many pairs there are.
    """
    hosts = [node for node in nodes if topology.nodes[node].kind != NodeKind.SWITCH]
    lids = {host: managed.plane.nodes[host].ports[1].info.lid for host in hosts}
    assert len(set(lids.values())) == len(hosts)
    assert 0 not in lids.values()
    pairs = 0
    for source in hosts:
        for goal in hosts:
            if source == goal:
                continue
            at, steps = topology.peer(source, 1), 0
            while at is not None and at.node != goal:
                table = managed.plane.nodes[at.node].linear
                at = topology.peer(at.node, table[lids[goal]])
                steps += 1
                assert steps <= len(topology.nodes)
            assert at is not None
            pairs += 1
    return pairs


def check(topology: Topology, at: tuple[int, int]) -> ManagedFabric:
    """Discovered whole, routed whole, without credit loops, and the tables lead from each host to each."""
    managed, manager = discovered(topology, at)
    joined = component(topology, at[0])
    assert manager.problems == []
    assert len(manager.fabric.nodes) == len(joined)
    hosts = sum(topology.nodes[node].kind != NodeKind.SWITCH for node in joined)
    if hosts < len(joined):
        assert credit_loop(manager.fabric.routes) is None
        assert reach(manager.fabric.routes).whole
    assert walked(topology, managed, joined) == hosts * (hosts - 1)
    return managed


def first_host(topology: Topology) -> tuple[int, int]:
    return next(iter(topology.end_nodes)), 1


@pytest.mark.parametrize("name", SHAPES)
def test_a_shape_is_discovered_and_routed(name: str) -> None:
    topology = SHAPES[name]
    check(topology, first_host(topology))


def test_no_switch_at_all() -> None:
    made = Builder()
    left, right = (made.add(name, NodeKind.CHANNEL_ADAPTER, 1) for name in ("left", "right"))
    made.link((left, 1), (right, 1))
    topology = made.topology()
    check(topology, (left, 1))
    routes = route(topology, "up-down")
    assert not len(routes.tables)
    found = reach(routes)
    assert (found.whole, found.most_hops) == (True, 1)


@pytest.mark.parametrize(("linked", "apart"), [([], 2), ([(0, 1)], 3), ([(0, 1), (2, 3)], 4)])
def test_adapters_without_a_switch_reach_each_other_only_as_a_pair(
    linked: list[tuple[int, int]], apart: int
) -> None:
    made = Builder()
    hosts = [made.add(f"host {number}", NodeKind.CHANNEL_ADAPTER, 1) for number in range(apart)]
    for one, other in linked:
        made.link((hosts[one], 1), (hosts[other], 1))
    found = reach(route(made.topology(), "up-down"))
    assert (found.whole, found.hosts_apart, found.most_hops) == (False, apart, 0)


def test_the_two_ports_of_an_adapter_that_are_linked_are_a_pair() -> None:
    made = Builder()
    host = made.add("host", NodeKind.CHANNEL_ADAPTER, 2)
    made.link((host, 1), (host, 2))
    assert reach(route(made.topology(), "up-down")).whole


def test_two_subnets_of_one_file_have_a_manager_each() -> None:
    made = Builder()
    hosts = []
    for part in range(2):
        switch = made.add(f"switch {part}", NodeKind.SWITCH, 4)
        for number in range(3):
            host = made.add(f"host {part}-{number}", NodeKind.CHANNEL_ADAPTER, 1)
            made.link((switch, number + 1), (host, 1))
            hosts.append(host)
    topology = read_ibnetdiscover(write_ibnetdiscover(made.topology()))
    names = {node.name: index for index, node in enumerate(topology.nodes)}
    for part in range(2):
        check(topology, (names[topology.nodes[hosts[3 * part]].name], 1))
    both = ManagedFabric(topology)
    managers = [both.add((hosts[0], 1)), both.add((hosts[3], 1))]
    both.settle()
    assert [len(each.fabric.nodes) for each in managers] == [4, 4]
    assert [each.problems for each in managers] == [[], []]
    apart = reach(route(topology, "up-down"))
    assert not apart.whole
    assert apart.hosts_apart == 6  # each of two switches with hosts, to three hosts of the other part


@settings(max_examples=random_inputs(15), deadline=None)
@given(
    switches=st.integers(2, 14), hosts=st.integers(1, 3), degree=st.integers(2, 6),
    seed=st.integers(0, 1 << 32), gone=st.integers(0, 3), engine=st.sampled_from(["up-down", "fat-tree"]),
)  # fmt: skip
def test_irregular_fabrics(switches: int, hosts: int, degree: int, seed: int, gone: int, engine: str) -> None:
    dice = Random(seed)
    topology = random_fabric(switches, hosts, degree, dice)
    between = [
        number for number, link in enumerate(topology.links)
        if all(topology.nodes[end.node].kind == NodeKind.SWITCH for end in (link.end_a, link.end_b))
    ]  # fmt: skip
    topology = topology.without(dice.sample(between, min(gone, len(between))))
    check(topology, first_host(topology))
    try:
        routes = route(topology, engine)
    except RoutingError:
        assert engine == "fat-tree"  # which is for trees
        return
    assert credit_loop(routes) is None
    ends = routes.graph.endpoints
    of_host = np.flatnonzero(ends.port > 0)
    parts = [component(topology, int(ends.node[index])) for index in of_host]
    joined = all(len(part) == len(topology.nodes) for part in parts)
    assert reach(routes).whole == joined
