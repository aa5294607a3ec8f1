"""Wrong kinds and numbers at the Python API of fabrics: TypeError or ValueError at the call."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from softhca.fabric.generators import fat_tree, generate, guid_of, random_fabric
from softhca.fabric.graph import Graph
from softhca.fabric.lids import assign_lids
from softhca.fabric.manager.managed_fabric import ManagedFabric
from softhca.fabric.manager.manager import ManagerConfig
from softhca.fabric.manager.partition_file import read_partitions
from softhca.fabric.manager.partitions import Partition, Partitions
from softhca.fabric.picture import draw
from softhca.fabric.routing import route
from softhca.fabric.switching.congestion import linear_table
from softhca.fabric.switching.fabric import SwitchedFabric
from softhca.fabric.switching.packet import MOST_BYTES, Packet
from softhca.fabric.topology import End, Link, Topology
from softhca.fabric.topology_file import read_ibnetdiscover, write_ibnetdiscover
from softhca.fabric.topology_yaml import read_yaml, write_yaml
from softhca.fabric.traffic import Traffic
from softhca.fabric.trees import multicast_tree
from softhca.fabric.verify import credit_loop, reach
from softhca.machine.arguments import check_kind, whole

TREE = fat_tree(4, 1)
HOST = TREE.nodes[0]
LINK = TREE.links[0]
GRAPH = Graph(TREE)
ROUTES = route(TREE)
NAN = float("nan")
HUGE = 1 << 200


def configured(**values: Any) -> ManagerConfig:
    return ManagerConfig(**{"guid": HOST.port_guid(1), **values})


def switched() -> SwitchedFabric:
    return SwitchedFabric(TREE, {4: [255, 1, 2, 3, 4]}, lambda node, packet, now_ps: None)


Call = Callable[[], object]
WRONG_KINDS: dict[str, Call] = {
    "name": lambda: Topology((replace(HOST, name=5),), ()),  # type: ignore[arg-type]
    "kind": lambda: Topology((replace(HOST, kind=None),), ()),  # type: ignore[arg-type]
    "nodes": lambda: Topology("x", ()),  # type: ignore[arg-type]
    "links": lambda: Topology(TREE.nodes, "x"),  # type: ignore[arg-type]
    "end": lambda: Topology(TREE.nodes, (replace(LINK, end_a=None),)),  # type: ignore[arg-type]
    "port": lambda: Topology(TREE.nodes, (replace(LINK, end_a=End(0, 1.0)),)),  # type: ignore[arg-type]
    "width": lambda: Topology(TREE.nodes, (replace(LINK, width=4),)),  # type: ignore[arg-type]
    "speed": lambda: Topology(TREE.nodes, (Link(LINK.end_a, LINK.end_b, speed=None),)),  # type: ignore[arg-type]
    "graph": lambda: Graph(None),  # type: ignore[arg-type]
    "lids": lambda: route(TREE, lids=5),  # type: ignore[arg-type]
    "routed": lambda: route(None),  # type: ignore[arg-type]
    "known LIDs": lambda: assign_lids(GRAPH, 0, 5),  # type: ignore[arg-type]
    "LMC": lambda: assign_lids(GRAPH, 1.5),  # type: ignore[arg-type]
    "way to": lambda: ROUTES.way(0, 1.5),  # type: ignore[arg-type]
    "way from": lambda: ROUTES.way("0", 1),  # type: ignore[arg-type]
    "reach": lambda: reach(None),  # type: ignore[arg-type]
    "loop": lambda: credit_loop(None),  # type: ignore[arg-type]
    "tree": lambda: multicast_tree(None, ROUTES.routing, [0]),  # type: ignore[arg-type]
    "member": lambda: multicast_tree(GRAPH, ROUTES.routing, [1.5]),  # type: ignore[list-item]
    "dice": lambda: random_fabric(4, 1, 3, None),  # type: ignore[arg-type]
    "degree": lambda: random_fabric(4, 1, NAN, Random(1)),  # type: ignore[arg-type]
    "parameters": lambda: generate("torus", None),  # type: ignore[arg-type]
    "parameter": lambda: generate("torus", {"sizes": None}),  # type: ignore[dict-item]
    "file": lambda: read_ibnetdiscover([]),  # type: ignore[arg-type]
    "YAML": lambda: read_yaml([]),  # type: ignore[arg-type]
    "written": lambda: write_ibnetdiscover(None),  # type: ignore[arg-type]
    "written YAML": lambda: write_yaml(None),  # type: ignore[arg-type]
    "picture": lambda: draw(None),  # type: ignore[arg-type]
    "M_Key": lambda: configured(m_key=None),
    "window": lambda: configured(window=NAN),
    "prefix": lambda: configured(gid_prefix="fe80::"),
    "addresses": lambda: configured(addresses=None),
    "partitions": lambda: configured(partitions="x"),
    "partition": lambda: Partitions(["x"]),  # type: ignore[list-item]
    "members": lambda: Partition(5, {1}),  # type: ignore[arg-type]
    "partitions' text": lambda: read_partitions(None, TREE, 1),  # type: ignore[arg-type]
    "partitions' fabric": lambda: read_partitions("", None, 1),  # type: ignore[arg-type]
    "configuration": lambda: ManagedFabric(TREE).add((0, 1), 5),  # type: ignore[arg-type]
    "time": lambda: ManagedFabric(TREE).run_until(NAN),  # type: ignore[arg-type]
    "failing link": lambda: ManagedFabric(TREE).plane.fail("0", 0),  # type: ignore[arg-type]
    "switched": lambda: SwitchedFabric(None, {}, print),  # type: ignore[arg-type]
    "forwarding": lambda: SwitchedFabric(TREE, None, print),  # type: ignore[arg-type]
    "settings": lambda: SwitchedFabric(TREE, {}, print, settings=5),  # type: ignore[arg-type]
    "packet": lambda: switched().send(0, None),  # type: ignore[arg-type]
    "SLID": lambda: Packet(1.5, 2, 64),  # type: ignore[arg-type]
    "DLID": lambda: Packet(1, None, 64),  # type: ignore[arg-type]
    "length": lambda: Packet(1, 2, "64"),  # type: ignore[arg-type]
    "level": lambda: Packet(1, 2, 64, sl=NAN),  # type: ignore[arg-type]
    "message": lambda: Packet(1, 2, 64, message=b"1"),  # type: ignore[arg-type]
    "duration": lambda: Traffic(duration_ps=float("inf")),  # type: ignore[arg-type]
    "load": lambda: Traffic(load="half"),  # type: ignore[arg-type]
}
WRONG_NUMBERS: dict[str, Call] = {
    "engine": lambda: route(TREE, None),  # type: ignore[arg-type]
    "way from": lambda: ROUTES.way(-1, 1),
    "far way": lambda: ROUTES.way(HUGE, 1),
    "name": lambda: ROUTES.name(HUGE),
    "member": lambda: multicast_tree(GRAPH, ROUTES.routing, [len(GRAPH.endpoints)]),
    "negative member": lambda: multicast_tree(GRAPH, ROUTES.routing, [-1]),
    "generator": lambda: generate(None, {}),  # type: ignore[arg-type]
    "M_Key": lambda: configured(m_key=1 << 64),
    "prefix": lambda: configured(gid_prefix=-1),
    "retries": lambda: configured(retries=-1),
    "address": lambda: configured(addresses={guid_of(0): b"4"}),
    "manager's node": lambda: ManagedFabric(TREE).add((HUGE, 1)),
    "manager's last node": lambda: ManagedFabric(TREE).add((-1, 1)),
    "manager's port": lambda: ManagedFabric(TREE).add((0, -1)),
    "failing link": lambda: ManagedFabric(TREE).plane.fail(-1, 0),
    "restored link": lambda: ManagedFabric(TREE).plane.restore(len(TREE.links), 0),
    "failed link": lambda: ManagedFabric(TREE).plane.is_failed(-HUGE),
    "sender": lambda: switched().send(4, Packet(1, 2, 64)),
    "switched link": lambda: switched().fail(-1),
    "entries": lambda: linear_table(HUGE),
    "negative SLID": lambda: Packet(-1, 2, 64),
    "SLID": lambda: Packet(1 << 16, 2, 64),
    "negative DLID": lambda: Packet(1, -1, 64),
    "DLID": lambda: Packet(1, 1 << 16, 64),
    "no length": lambda: Packet(1, 2, 0),
    "length": lambda: Packet(1, 2, MOST_BYTES + 1),
    "negative level": lambda: Packet(1, 2, 64, sl=-1),
    "level": lambda: Packet(1, 2, 64, sl=16),
    "negative lane": lambda: Packet(1, 2, 64, vl=-1),
    "lane": lambda: Packet(1, 2, 64, vl=16),
    "negative P_Key": lambda: Packet(1, 2, 64, pkey=-1),
    "P_Key": lambda: Packet(1, 2, 64, pkey=1 << 16),
    "negative message": lambda: Packet(1, 2, 64, message=-1),
    "message": lambda: Packet(1, 2, 64, message=HUGE),
}


@pytest.mark.parametrize("what", WRONG_KINDS)
def test_what_is_of_a_wrong_kind_is_a_type_error(what: str) -> None:
    with pytest.raises(TypeError, match=r"^\w+ is no [a-zA-Z]|^[a-z].* is a whole number, not \w+$"):
        WRONG_KINDS[what]()


@pytest.mark.parametrize("what", WRONG_NUMBERS)
def test_a_number_that_cannot_be_is_a_value_error(what: str) -> None:
    with pytest.raises(ValueError, match=r" is -?\d+ to \d+, not -?\d+$|\bno |16 bytes, not 1"):
        WRONG_NUMBERS[what]()


def test_what_counts_as_a_whole_number_is_taken() -> None:
    assert whole(GRAPH.switches[0], "an index", 0, 10) == 4  # one of numpy's
    assert whole(True, "a number", 0, 1) == 1
    check_kind(5, (int, str), "number or text")
    with pytest.raises(TypeError, match=r"^float is no number or text$"):
        check_kind(5.0, (int, str), "number or text")


def test_the_least_and_the_greatest_numbers_of_a_packet_are_taken() -> None:
    least = Packet(0, 0, 1, sl=0, vl=0, pkey=0, message=0)
    most = Packet(0xFFFF, 0xFFFF, MOST_BYTES, sl=15, vl=15, pkey=0xFFFF, message=(1 << 64) - 1)
    for packet, lid, length, lane in ((least, 0, 1, 0), (most, 0xFFFF, MOST_BYTES, 15)):
        copy = packet.copy()
        assert (copy.slid, copy.dlid, copy.length_bytes, copy.sl, copy.vl) == (lid, lid, length, lane, lane)
    assert Packet(GRAPH.switches[0], 1, 64).slid == 4  # one of numpy's
