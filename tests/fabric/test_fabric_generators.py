"""Generated topologies: their shapes, and the shapes that cannot be."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from softhca.fabric.generators import (
    dragonfly,
    extended_fat_tree,
    fat_tree,
    generate,
    guid_of,
    k_ary_n_tree,
    random_fabric,
    torus,
)
from softhca.fabric.topology import LinkSpeed, LinkWidth, Topology, TopologyError


def names(fabric: Topology, node: int) -> list[str | None]:
    """What the ports of a node lead to."""
    ports = range(1, fabric.nodes[node].port_count + 1)
    ends = [fabric.peer(node, port) for port in ports]
    return [end and fabric.end_text(end) for end in ends]


def is_connected(fabric: Topology) -> bool:
    seen, todo = {0}, [0]
    while todo:
        node = todo.pop()
        for port in range(1, fabric.nodes[node].port_count + 1):
            end = fabric.peer(node, port)
            if end is not None and end.node not in seen:
                seen.add(end.node)
                todo.append(end.node)
    return len(seen) == len(fabric.nodes)


@pytest.mark.parametrize(
    ("radix", "levels", "hosts", "switches"),
    [(4, 1, 4, 1), (4, 2, 8, 6), (4, 3, 16, 20), (8, 2, 32, 12), (16, 3, 1024, 320)],
)
def test_a_fat_tree_has_2_times_half_the_radix_to_the_levels_hosts(
    radix: int, levels: int, hosts: int, switches: int
) -> None:
    fabric = fat_tree(radix, levels)
    assert (len(fabric.end_nodes), len(fabric.switches)) == (hosts, switches)
    assert all(None not in names(fabric, switch) for switch in fabric.switches)
    assert len(fabric.links) == hosts * levels
    assert is_connected(fabric)


def test_a_fat_tree_is_wired_level_by_level() -> None:
    fabric = fat_tree(4, 3)
    assert names(fabric, fabric.index("h5")) == ["s1-2[2]"]
    assert names(fabric, fabric.index("s1-2")) == ["h4[1]", "h5[1]", "s2-2[1]", "s2-3[1]"]
    assert names(fabric, fabric.index("s2-3")) == ["s1-2[4]", "s1-3[4]", "s3-1[2]", "s3-3[2]"]
    assert names(fabric, fabric.index("s3-1")) == ["s2-1[3]", "s2-3[3]", "s2-5[3]", "s2-7[3]"]


def test_a_k_ary_n_tree_leaves_half_the_ports_of_its_roots_out() -> None:
    fabric = k_ary_n_tree(3, 3)
    assert (len(fabric.end_nodes), len(fabric.switches)) == (27, 27)
    assert Counter(fabric.nodes[switch].port_count for switch in fabric.switches) == {6: 18, 3: 9}
    assert is_connected(fabric)


def test_a_tree_may_have_fewer_parents_than_children() -> None:
    fabric = extended_fat_tree([6, 4], [1, 2])
    assert (len(fabric.end_nodes), len(fabric.switches)) == (24, 6)
    assert names(fabric, fabric.index("s1-1"))[6:] == ["s2-0[2]", "s2-1[2]"]


def test_a_torus_closes_its_rings() -> None:
    fabric = torus([3, 2], hosts=2, width=LinkWidth.X1, speed=LinkSpeed.SDR)
    assert (len(fabric.end_nodes), len(fabric.switches)) == (12, 6)
    assert names(fabric, fabric.index("s0.0")) == ["s1.0[2]", "s2.0[1]", "s0.1[4]", None, "h0[1]", "h1[1]"]
    assert names(fabric, fabric.index("s2.1")) == ["s0.1[2]", "s1.1[1]", None, "s2.0[3]", "h10[1]", "h11[1]"]
    assert {str(link) for link in fabric.links} == {"1xSDR"}
    mesh = torus([3, 2], wrap=False)
    assert names(mesh, mesh.index("s2.1")) == [None, "s1.1[1]", None, "s2.0[3]", "h5[1]"]
    assert len(torus([1, 1]).links) == 1


def test_a_dragonfly_links_each_pair_of_groups_once() -> None:
    fabric = dragonfly(4, 2, 2)
    assert (len(fabric.end_nodes), len(fabric.switches)) == (72, 36)
    assert all(None not in names(fabric, switch) for switch in fabric.switches)
    group = [fabric.nodes[index].name.partition(".")[0] for index in range(len(fabric.nodes))]
    pairs = Counter(
        tuple(sorted({group[link.end_a.node], group[link.end_b.node]}))
        for link in fabric.links
        if fabric.nodes[link.end_a.node].is_switch and fabric.nodes[link.end_b.node].is_switch
    )
    between = [count for pair, count in pairs.items() if len(pair) == 2]
    assert between == [1] * (9 * 8 // 2)
    assert [count for pair, count in pairs.items() if len(pair) == 1] == [6] * 9
    smaller = dragonfly(4, 1, 2, groups=5)
    assert len(smaller.switches) == 20
    assert is_connected(smaller)


def test_a_random_fabric_is_connected_and_follows_from_its_dice() -> None:
    for seed in range(20):
        fabric = random_fabric(12, 2, 3, Random(seed))
        assert is_connected(fabric)
        assert fabric == random_fabric(12, 2, 3, Random(seed))
        for link in fabric.links:
            assert link.end_a.node != link.end_b.node
    assert random_fabric(12, 2, 3, Random(1)) != random_fabric(12, 2, 3, Random(2))
    assert is_connected(random_fabric(2, 1, 1, Random(1)))
    assert len(random_fabric(40, 0, 6, Random(3)).links) >= 110  # of 120


def test_guids_follow_from_the_index() -> None:
    fabric = fat_tree(4, 2)
    assert [node.guid for node in fabric.nodes] == [guid_of(index) for index in range(14)]
    assert guid_of(0) == 0x0200_0000_0001_0000


@pytest.mark.parametrize(
    ("kind", "parameters", "switches"),
    [
        ("fat-tree", {"radix": "4"}, 20),
        ("fat-tree", {"radix": "4", "levels": "2"}, 6),
        ("k-ary-n-tree", {"arity": "2", "levels": "3"}, 12),
        ("torus", {"sizes": "4x3"}, 12),
        ("mesh", {"sizes": "4x3", "hosts": "2"}, 12),
        ("dragonfly", {"switches": "2", "hosts": "1", "global_links": "1"}, 6),
        ("random", {"switches": "9"}, 9),
    ],
)
def test_generators_are_known_by_name(kind: str, parameters: dict[str, str], switches: int) -> None:
    assert len(generate(kind, parameters).switches) == switches


def test_a_mesh_is_a_torus_without_the_closing_links() -> None:
    assert len(generate("torus", {"sizes": "4", "hosts": "0"}).links) == 4
    assert len(generate("mesh", {"sizes": "4", "hosts": "0"}).links) == 3


@pytest.mark.parametrize(
    ("kind", "parameters", "reason"),
    [
        ("tree", {}, "no generator is named 'tree'; there are fat-tree"),
        ("torus", {}, "torus needs sizes"),
        ("torus", {"sizes": "4x"}, "sizes = '' is no number"),
        ("torus", {"sizes": "4", "radix": "4"}, "torus has no parameter 'radix'"),
        ("torus", {"sizes": "300x300"}, "180000 nodes"),
        ("torus", {"sizes": "0"}, "1 to 8 dimensions"),
        ("fat-tree", {"radix": "5"}, "an even radix"),
        ("fat-tree", {"radix": "4", "levels": "0"}, "1 to 6 levels"),
        ("fat-tree", {"radix": "64"}, "nodes; a subnet has LIDs for 49151"),
        ("fat-tree", {"radix": "-4"}, "is no number"),
        ("k-ary-n-tree", {"arity": "0", "levels": "2"}, "an arity from 1"),
        ("k-ary-n-tree", {"arity": "2", "levels": "16"}, "1 to 15 levels"),
        ("dragonfly", {"switches": "2", "hosts": "1", "global_links": "1", "groups": "4"}, "1 to 3 of them"),
        ("dragonfly", {"switches": "200", "hosts": "1", "global_links": "10"}, "more than 49151 nodes"),
        ("random", {"switches": "3", "degree": "1"}, "two links or more"),
        ("random", {"switches": "30", "degree": "300"}, "more than 254 ports"),
        ("random", {"switches": "60000"}, "120000 nodes"),
    ],
)
def test_shapes_that_cannot_be_are_refused(kind: str, parameters: dict[str, str], reason: str) -> None:
    with pytest.raises(TopologyError) as error:
        generate(kind, parameters)
    assert reason in str(error.value)


@pytest.mark.parametrize("shape", [([], []), ([2], [1, 2]), ([2, 0], [1, 2]), ([2, 2], [2, 2])])
def test_trees_that_cannot_be_are_refused(shape: tuple[list[int], list[int]]) -> None:
    with pytest.raises(TopologyError):
        extended_fat_tree(*shape)
