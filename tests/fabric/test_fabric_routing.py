"""Routes: every host reaches every host, by no more hops than need be, without credit loops, evenly."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import numpy as np
import pytest

from softhca.fabric import lids as lids_module
from softhca.fabric.generators import (
    Builder,
    dragonfly,
    extended_fat_tree,
    fat_tree,
    k_ary_n_tree,
    random_fabric,
    torus,
)
from softhca.fabric.graph import NO_SWITCH, Graph
from softhca.fabric.lids import LidError, Lids, assign_lids
from softhca.fabric.routing import ENGINES, NO_ROUTE, Routes, RoutingError, route
from softhca.fabric.topology import NodeKind, Topology
from softhca.fabric.trees import multicast_tree, without_copies
from softhca.fabric.up_down import UpDownRouting
from softhca.fabric.verify import credit_loop, reach

FABRICS = {
    "one switch": fat_tree(8, 1),
    "tree": fat_tree(4, 3),
    "k-ary": k_ary_n_tree(3, 3),
    "slim tree": extended_fat_tree([6, 4, 3], [1, 2, 3]),
    "torus": torus([4, 4, 4]),
    "odd torus": torus([5, 3], 2),
    "ring": torus([7]),
    "mesh": torus([4, 5], wrap=False),
    "dragonfly": dragonfly(4, 2, 2),
    "random": random_fabric(30, 3, 5, Random(1)),
    "two switches": random_fabric(2, 3, 4, Random(1)),
}
DEADLOCK_FREE = ("fat-tree", "up-down", "dimension-order")
ROUTABLE = {
    "fat-tree": {"one switch", "tree", "k-ary", "slim tree"},
    "up-down": set(FABRICS),
    "dimension-order": {"torus", "odd torus", "ring", "mesh"},
    "min-hop": set(FABRICS),
}


def pairs() -> list[tuple[str, str]]:
    return [(engine, name) for engine, names in ROUTABLE.items() for name in FABRICS if name in names]


@pytest.mark.parametrize(("engine", "name"), pairs())
@pytest.mark.parametrize("lmc", [0, 2])
def test_every_host_reaches_every_host(engine: str, name: str, lmc: int) -> None:
    routes = route(FABRICS[name], engine, lmc=lmc)
    found = reach(routes)
    assert found.whole
    assert (credit_loop(routes) is None) >= (engine in DEADLOCK_FREE)
    hosts = [index for index in range(len(routes.graph.endpoints)) if routes.graph.endpoints.port[index]]
    dice = Random(1)
    for _ in range(40):
        source, target = dice.choice(hosts), dice.choice(hosts)
        start = int(routes.graph.endpoints.switch[source])
        goal = int(routes.graph.endpoints.switch[target])
        for lid in routes.lids.of(target):
            way = routes.way(start, lid)
            assert way[-1] == (goal, routes.graph.endpoints.exit_port[target])
            assert len(way) + 1 <= found.most_hops
            if engine in ("min-hop", "dimension-order"):
                assert len(way) == routes.graph.distances[start, goal] + 1


@pytest.mark.parametrize("engine", ENGINES)
def test_what_an_engine_cannot_route_is_refused(engine: str) -> None:
    for name, fabric in FABRICS.items():
        if name not in ROUTABLE[engine] and name != "two switches":
            with pytest.raises(RoutingError, match=r"no fat tree|no torus"):
                route(fabric, engine)
    with pytest.raises(RoutingError, match="no routing engine is named 'ftree'; there are fat-tree"):
        route(FABRICS["tree"], "ftree")


def test_shortest_ways_alone_have_credit_loops() -> None:
    routes = route(FABRICS["ring"], "min-hop")
    loop = credit_loop(routes)
    assert loop is not None
    assert len(loop) == 7
    for (switch, port, lane), (following, _, _) in zip(loop, [*loop[1:], loop[0]], strict=True):
        assert routes.graph.peer[switch, port] == following
        assert lane == 0


def test_a_torus_on_one_lane_has_credit_loops() -> None:
    routes = route(FABRICS["ring"], "dimension-order")
    assert credit_loop(routes) is None

    class OneLane:
        lanes = 1

        def service_levels(self) -> np.ndarray:
            return np.zeros((7, 7), np.uint8)

        def lanes_of(self, switch: int) -> None:
            return None

    assert credit_loop(replace(routes, routing=OneLane())) is not None  # type: ignore[arg-type]


def test_service_levels_of_a_torus_say_where_the_seam_is_crossed() -> None:
    routes = route(torus([5, 4]), "dimension-order")
    levels = routes.routing.service_levels()
    assert levels is not None
    name = {routes.name(number): number for number in range(len(routes.graph))}
    assert levels[name["s0.0"], name["s2.1"]] == 0
    assert levels[name["s4.0"], name["s0.0"]] == 1
    assert levels[name["s0.0"], name["s4.0"]] == 1
    assert levels[name["s1.3"], name["s2.0"]] == 2
    assert levels[name["s4.3"], name["s1.0"]] == 3
    lanes = routes.routing.lanes_of(0)
    assert lanes is not None
    assert [list(lanes[port][:4]) for port in (1, 2, 3, 4)] == [[0, 1, 0, 1]] * 2 + [[0, 0, 1, 1]] * 2


def test_a_torus_without_a_link_is_routed_round_it() -> None:
    whole = torus([5, 4], 1)
    for gone in range(20, len(whole.links), 3):
        routes = route(whole.without([gone]), "dimension-order")
        assert reach(routes).whole
        assert credit_loop(routes) is None
    ring = [index for index, link in enumerate(torus([5]).links) if link.end_b.port == 2]
    with pytest.raises(RoutingError, match=r"lacks 2 links|no torus"):
        route(torus([5]).without(ring[:2]), "dimension-order")


def test_a_fat_tree_gives_each_destination_one_way_down() -> None:
    """D-mod-K: whoever sends, packets to a host come down through the same switches; a shift of all hosts by
    any distance loads no port twice."""
    routes = route(fat_tree(8, 3), "fat-tree")
    graph = routes.graph
    hosts = np.flatnonzero(graph.endpoints.port > 0)
    for shift in (1, 7, 16, 33, 64, 100):
        used: set[tuple[int, int]] = set()
        for place, source in enumerate(hosts):
            target = hosts[(place + shift) % len(hosts)]
            way = routes.way(int(graph.endpoints.switch[source]), int(routes.lids.base[target]))
            assert used.isdisjoint(way)
            used.update(way)


def test_loads_are_even() -> None:
    found = reach(route(fat_tree(8, 3), "fat-tree"))
    graph = Graph(fat_tree(8, 3))
    loads = found.loads[graph.peer != NO_SWITCH]
    assert loads.max() <= 1.2 * loads.min()
    mixed = reach(route(graph, "up-down", lmc=1)).loads[graph.peer != NO_SWITCH]
    assert mixed.min() > 0
    assert mixed.max() <= 3 * mixed.mean()


def test_a_tree_with_failed_links_is_routed_round_them() -> None:
    whole = fat_tree(6, 3)
    dice = Random(3)
    between = [
        index
        for index, link in enumerate(whole.links)
        if whole.nodes[link.end_a.node].is_switch and whole.nodes[link.end_b.node].is_switch
    ]
    for _ in range(6):
        routes = route(whole.without(dice.sample(between, 3)), "fat-tree")
        assert reach(routes).whole
        assert credit_loop(routes) is None


def at_node(fabric: Topology, name: str) -> list[int]:
    """The links of a node, those to hosts first."""
    node = fabric.index(name)
    return [index for index, link in enumerate(fabric.links) if node in (link.end_a.node, link.end_b.node)]


def test_who_is_cut_off_is_counted() -> None:
    whole = fat_tree(4, 2)
    routes = route(whole.without([0]), "fat-tree")
    found = reach(routes)
    assert not found.whole
    assert found.hosts_apart == 4  # four leaves, one host
    parted = route(whole.without(at_node(whole, "s1-0")[2:]), "min-hop")
    assert reach(parted).hosts_apart == 6 + 3 * 2  # one leaf to six hosts, three to two
    start = parted.graph.number[whole.index("s1-0")]
    far = int(parted.lids.base[whole.index("h7")])
    with pytest.raises(RoutingError, match="switch s1-0 has no route to LID"):
        parted.way(start, far)
    with pytest.raises(RoutingError, match="no route to LID 9999"):
        parted.way(start, 9999)


def apart(*fabrics: Topology) -> Topology:
    """Fabrics that no link joins, as one."""
    builder = Builder()
    for fabric in fabrics:
        first = len(builder.nodes)
        for number, node in enumerate(fabric.nodes):
            builder.add(f"n{first + number}", node.kind, node.port_count)
        for link in fabric.links:
            ends = [(first + end.node, end.port) for end in (link.end_a, link.end_b)]
            builder.link(*ends)
    return builder.topology()


def test_up_down_routes_each_island_by_its_own_middle() -> None:
    """The lower leaves of the small tree are joined by its root alone, which must be above them though the
    middle of the other island is no way from it."""
    small = fat_tree(4, 2)
    routes = route(apart(small, FABRICS["random"]), "up-down")
    hosts = len(small.end_nodes), len(FABRICS["random"].end_nodes)
    assert reach(routes).hosts_apart == 4 * hosts[1] + 30 * hosts[0]
    assert credit_loop(routes) is None


def test_routes_that_go_round_or_end_are_found() -> None:
    routes = route(FABRICS["ring"], "min-hop")
    lid = int(routes.lids.base[0])
    goal = int(routes.graph.endpoints.switch[0])
    broken = routes.tables.copy()
    ahead = int(routes.graph.peer[goal, 1])
    after = int(routes.graph.peer[ahead, 1])
    broken[ahead, lid], broken[after, lid] = 1, 2
    wrong = replace(routes, tables=broken)
    assert not reach(wrong).whole
    with pytest.raises(RoutingError, match="goes round"):
        wrong.way(ahead, lid)
    broken[ahead, lid] = 3
    assert not reach(wrong).whole
    with pytest.raises(RoutingError, match=r"ends at s\d\[3\]"):
        wrong.way(ahead, lid)


def test_a_fabric_without_switches_or_hosts_has_no_routes() -> None:
    builder = Builder()
    builder.add("a", NodeKind.CHANNEL_ADAPTER, 1)
    builder.add("b", NodeKind.CHANNEL_ADAPTER, 1)
    builder.link((0, 1), (1, 1))
    routes = route(builder.topology(), "min-hop")
    assert routes.tables.shape[0] == 0
    assert [list(routes.lids.of(endpoint)) for endpoint in (0, 1)] == [[1], [2]]
    bare = route(torus([3], hosts=0), "up-down")
    assert reach(bare).whole
    assert (bare.tables[:, 1:] != NO_ROUTE).all()


def test_lids_are_aligned_by_the_lmc_and_kept() -> None:
    graph = Graph(fat_tree(4, 2))
    lids = assign_lids(graph, lmc=2)
    taken = [lid for endpoint in range(len(graph.endpoints)) for lid in lids.of(endpoint)]
    assert sorted(taken) == sorted(set(taken))
    for endpoint in range(len(graph.endpoints)):
        is_switch = graph.endpoints.port[endpoint] == 0
        assert len(lids.of(endpoint)) == (1 if is_switch else 4)
        assert is_switch or lids.base[endpoint] % 4 == 0
        assert all(lids.owner[lid] == endpoint for lid in lids.of(endpoint))
    assert lids.top == max(taken)
    guid = [graph.topology.nodes[index].port_guid(1) for index in range(8)]
    known = {guid[0]: 100, guid[1]: 106, guid[2]: 0xBFFC, guid[3]: 0xBFFF, guid[4]: 100, guid[5]: 0}
    again = assign_lids(graph, 2, known)
    assert (again.base[0], again.base[2]) == (100, 0xBFFC)
    assert [int(again.base[index]) for index in (1, 3, 4, 5)] == [4, 8, 12, 16]
    kept = {known_guid: int(base) for known_guid, base in zip(guid, lids.base, strict=False)}
    assert assign_lids(graph, 2, kept).base.tolist() == lids.base.tolist()


def test_more_lids_than_there_are_are_refused() -> None:
    graph = Graph(torus([20, 20], 1))
    assert assign_lids(graph, 6).top <= 0xBFFF
    with pytest.raises(LidError, match="need more LIDs than there are"):
        assign_lids(graph, 7)
    for lmc in (-1, 8):
        with pytest.raises(LidError, match="expected 0 to 7"):
            assign_lids(graph, lmc)


def delivered(routes: Routes, masks: dict[int, np.ndarray], source: int) -> list[int]:
    """The endpoints that get a packet of a group from an endpoint; AssertionError where it goes round."""
    graph = routes.graph
    ends = graph.endpoints
    exits = {(int(ends.switch[e]), int(ends.exit_port[e])): e for e in range(len(ends))}
    found, seen = [], set()
    todo = [(int(graph.endpoints.switch[source]), int(graph.endpoints.exit_port[source]))]
    while todo:
        switch, came_by = todo.pop()
        assert switch not in seen
        seen.add(switch)
        for port in np.flatnonzero(masks[switch]):
            if port == came_by:
                continue
            following = int(graph.peer[switch, port])
            if following == NO_SWITCH:
                found.append(exits[switch, int(port)])
            else:
                todo.append((following, int(graph.peer_port[switch, port])))
    return found


@pytest.mark.parametrize(("engine", "name"), pairs())
def test_each_member_of_a_multicast_group_gets_one_copy(engine: str, name: str) -> None:
    routes = route(FABRICS[name], engine)
    dice = Random(4)
    everybody = list(np.flatnonzero(routes.graph.endpoints.port > 0))
    switch = int(np.flatnonzero(routes.graph.endpoints.port == 0)[0])
    for count in (1, 2, 4, len(everybody)):
        members = dice.sample(everybody, min(count, len(everybody)))
        if count == 4:
            members.append(switch)
        masks = multicast_tree(routes.graph, routes.routing, members)
        for source in members[:3]:
            if source != switch:
                assert sorted(delivered(routes, masks, int(source))) == sorted(set(members) - {source})


def test_a_tree_hangs_from_the_switch_next_to_its_members() -> None:
    routes = route(FABRICS["tree"], "fat-tree")
    names = FABRICS["tree"]
    masks = multicast_tree(routes.graph, routes.routing, [names.index("h0"), names.index("h1")])
    assert [routes.name(switch) for switch in masks] == ["s1-0"]
    masks = multicast_tree(routes.graph, routes.routing, [names.index("h0"), names.index("h2")])
    assert sorted(routes.name(switch) for switch in masks) == ["s1-0", "s1-1", "s2-0"]
    assert multicast_tree(routes.graph, routes.routing, []) == {}


def test_members_that_are_cut_off_are_refused() -> None:
    whole = fat_tree(4, 2)
    routes = route(whole.without([0]), "up-down")
    with pytest.raises(RoutingError, match="hangs on no switch"):
        multicast_tree(routes.graph, routes.routing, [0, 1])
    routes = route(whole.without(at_node(whole, "s1-0")[2:]), "min-hop")
    with pytest.raises(RoutingError, match="is cut off"):
        multicast_tree(routes.graph, routes.routing, [0, 7])


def test_a_group_and_unicast_together_make_no_credit_loop() -> None:
    """All links of a group's tree lead down from its root in the order that unicast keeps."""
    routes = route(FABRICS["random"], "up-down")
    ways = routes.routing
    everybody = np.flatnonzero(routes.graph.endpoints.port > 0)
    masks = multicast_tree(routes.graph, ways, list(everybody))
    downward: np.ndarray = ways.down  # type: ignore[attr-defined]
    up_ports = {
        switch: list(np.flatnonzero(mask & (routes.graph.peer[switch] >= 0) & ~downward[switch]))
        for switch, mask in masks.items()
    }
    assert all(len(ports) <= 1 for ports in up_ports.values())
    assert sum(not ports for ports in up_ports.values()) == 1


def test_lids_may_be_given() -> None:
    owner = np.array([-1, 7, 6, 5, 4, 3, 2, 1, 0, 8], np.int32)
    lids = Lids(np.array([8, 7, 6, 5, 4, 3, 2, 1, 9], np.int32), np.zeros(9, np.int32), owner)
    routes = route(FABRICS["one switch"], "fat-tree", lids)
    assert list(routes.tables[0]) == [NO_ROUTE, 8, 7, 6, 5, 4, 3, 2, 1, 0]


@pytest.mark.parametrize("first", ["switch", "host"])
@pytest.mark.parametrize("known", [6, 7])
def test_known_lids_overlap_with_nobody_s(first: str, known: int) -> None:
    """A switch has one of the two LIDs that a host had."""
    builder = Builder()
    kinds = {"switch": (NodeKind.SWITCH, 2), "host": (NodeKind.CHANNEL_ADAPTER, 1)}
    for name in (first, "host" if first == "switch" else "switch"):
        builder.add(name, *kinds[name])
    builder.link((0, 1), (1, 1))
    graph = Graph(builder.topology())
    ends = zip(graph.endpoints.node.tolist(), graph.endpoints.port.tolist(), strict=True)
    guids = {port: graph.topology.nodes[node].port_guid(port) for node, port in ends}
    lids = assign_lids(graph, 1, {guids[0]: known, guids[1]: 6})
    taken = [lid for place in range(2) for lid in lids.of(place)]
    assert len(set(taken)) == len(taken) == 3
    assert (known if first == "switch" else 6) in taken


def test_the_last_lid_is_given_once(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = Graph(fat_tree(4, 1))
    guid = graph.topology.nodes[1].port_guid(1)
    for last in (5, 4):
        monkeypatch.setattr(lids_module, "LAST_LID", last)
        if last == 5:
            assert sorted(assign_lids(graph, 0, {guid: last}).base.tolist()) == [1, 2, 3, 4, 5]
        else:
            with pytest.raises(LidError, match="more LIDs"):
                assign_lids(graph, 0, {guid: last})


@pytest.mark.parametrize("seed", [0, 12])  # in the second one ways up are shorter than some down
def test_up_and_down_is_as_long_as_the_engine_says(seed: int) -> None:
    """Who can go down only does so, though a way that goes up first may be shorter."""
    routes = route(random_fabric(12, 1, 3, Random(seed)), "up-down")
    graph, routing = routes.graph, routes.routing
    assert isinstance(routing, UpDownRouting)
    for place, switch in enumerate(graph.endpoints.switch.tolist()):
        for source in range(len(graph)):
            if graph.endpoints.port[place]:
                hops = len(routes.way(source, int(routes.lids.base[place]))) - 1
                assert hops == routing._cost[source, switch]


def test_a_peak_is_near_to_the_farthest_and_then_to_all() -> None:
    routing = UpDownRouting.__new__(UpDownRouting)
    members = np.arange(2, dtype=np.int32)
    for below, peak in (
        ([[1, 5], [4, 4], [3, 4], [255, 1]], 2),
        ([[1, 5], [4, 4], [5, 5], [255, 1]], 1),
        ([[255, 1], [1, 255]], None),
    ):
        routing._below = np.array(below, np.uint8)
        assert routing.peak(members) == peak


def chain_of_leaves() -> Topology:
    """Three switches with a host each, and between them two without: from the first leaf to the third the
    only way goes down in the middle and up again.
    """
    builder = Builder()
    for name, kind, ports in (
        ("a", NodeKind.SWITCH, 2), ("top1", NodeKind.SWITCH, 2), ("b", NodeKind.SWITCH, 3),
        ("top2", NodeKind.SWITCH, 2), ("c", NodeKind.SWITCH, 2), ("h1", NodeKind.CHANNEL_ADAPTER, 1),
        ("h2", NodeKind.CHANNEL_ADAPTER, 1), ("h3", NodeKind.CHANNEL_ADAPTER, 1),
    ):  # fmt: skip
        builder.add(name, kind, ports)
    for one, other in (
        ((0, 1), (1, 1)), ((1, 2), (2, 1)), ((2, 2), (3, 1)), ((3, 2), (4, 1)),
        ((5, 1), (0, 2)), ((6, 1), (2, 3)), ((7, 1), (4, 2)),
    ):  # fmt: skip
        builder.link(one, other)
    return builder.topology()


def test_where_the_levels_of_a_tree_leave_a_gap_heights_are_hops_from_the_middle() -> None:
    routes = route(chain_of_leaves(), "up-down")
    ends = routes.graph.endpoints
    for source in ends.switch.tolist():
        for target in range(len(ends)):
            assert routes.way(source, int(routes.lids.base[target]))[-1][0] == ends.switch[target]
    with pytest.raises(RoutingError, match="not all hosts are reached"):
        route(chain_of_leaves(), "fat-tree")


def test_lids_of_one_port_take_several_ways_up() -> None:
    routes = route(FABRICS["tree"], "fat-tree", lmc=1)
    assert set(routes.lids.lmc.tolist()) == {0, 1}
    ends = routes.graph.endpoints
    hosts = np.flatnonzero(ends.port > 0).tolist()
    leaf, far = int(ends.switch[hosts[0]]), hosts[-1]
    assert leaf != ends.switch[far]
    first, second = routes.lids.of(far)
    assert routes.tables[leaf, first] != routes.tables[leaf, second]


def test_a_port_s_lids_do_not_begin_in_front_of_another_one_s() -> None:
    builder = Builder()
    builder.add("switch", NodeKind.SWITCH, 2)
    builder.add("host", NodeKind.CHANNEL_ADAPTER, 1)
    builder.link((0, 1), (1, 1))
    graph = Graph(builder.topology())
    lids = assign_lids(graph, 1, {graph.topology.nodes[0].port_guid(0): 3})
    assert [list(lids.of(endpoint)) for endpoint in range(2)] == [[3], [4, 5]]


def test_a_fabric_of_nobody_has_no_lid() -> None:
    lids = assign_lids(Graph(Topology((), ())))
    assert (lids.top, lids.owner.tolist()) == (0, [-1])


def test_there_is_no_way_between_switches_that_do_not_hang_together() -> None:
    builder = Builder()
    for name in "ab":
        builder.add(name, NodeKind.SWITCH, 2)
    graph = Graph(builder.topology())
    assert graph.distances.tolist() == [[0, 255], [255, 0]]


def test_who_only_sends_to_a_group_keeps_his_neighbours_copies() -> None:
    graph = Graph(FABRICS["one switch"])
    hosts = np.flatnonzero(graph.endpoints.port > 0).tolist()[:3]
    tree = multicast_tree(graph, UpDownRouting(graph), hosts)
    without_copies(graph, tree, hosts[:1])
    exits = graph.endpoints.exit_port
    assert np.flatnonzero(tree[0]).tolist() == sorted(int(exits[each]) for each in hosts[1:])


def test_a_way_that_ends_at_another_host_is_none() -> None:
    """Two hosts of a leaf whose ports are exchanged in its table, and one that it takes for itself."""
    routes = route(fat_tree(4, 2), "fat-tree")
    leaf = int(routes.graph.endpoints.switch[0])
    leaves = int(routes.graph.has_hosts.sum())
    lids = [int(routes.lids.base[host]) for host in range(2)]
    assert reach(routes).whole
    right = [int(port) for port in routes.tables[leaf, lids]]
    routes.tables[leaf, lids] = right[::-1]
    assert reach(routes).hosts_apart == 2 * leaves
    with pytest.raises(RoutingError, match=rf"LID {lids[0]} ends at"):
        routes.way(leaf, lids[0])
    routes.tables[leaf, lids] = [right[0], 0]
    assert reach(routes).hosts_apart == leaves
