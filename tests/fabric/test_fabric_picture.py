"""Pictures: all nodes and links are there, apart from each other, and colours say what they should."""

from __future__ import annotations

import itertools
import xml.etree.ElementTree as ElementTree
from collections import Counter
from dataclasses import replace
from random import Random

import numpy as np
import pytest

from softhca.fabric.generators import dragonfly, fat_tree, random_fabric, torus
from softhca.fabric.graph import Graph
from softhca.fabric.layout import places
from softhca.fabric.picture import (
    COLOURS,
    ERROR_COLOUR,
    FILLS,
    GONE_COLOUR,
    NAMED_NODES,
    Shown,
    draw,
    link_loads,
)
from softhca.fabric.routing import route
from softhca.fabric.topology import NodeKind, Topology
from softhca.fabric.verify import reach

FABRICS = {
    "tree": fat_tree(4, 3),
    "torus": torus([4, 5]),
    "cube": torus([3, 3, 3], 2),
    "ring": torus([6]),
    "dragonfly": dragonfly(4, 2, 2),
    "random": random_fabric(12, 3, 4, Random(1)),
    "cut off": fat_tree(4, 2).without([0, 3]),
    "nothing": Topology((), ()),
}
SVG = "{http://www.w3.org/2000/svg}"


@pytest.mark.parametrize("name", FABRICS)
def test_nodes_stand_apart(name: str) -> None:
    at = places(Graph(FABRICS[name]))
    assert at.shape == (len(FABRICS[name].nodes), 2)
    assert (at >= 0).all()
    for one, other in itertools.combinations(at, 2):
        assert np.abs(one - other).max() >= 7


def test_a_tree_stands_level_by_level() -> None:
    fabric = FABRICS["tree"]
    at = places(Graph(fabric))
    rows = {node.name[:2] if node.is_switch else "h": set() for node in fabric.nodes}
    for index, node in enumerate(fabric.nodes):
        rows[node.name[:2] if node.is_switch else "h"].add(round(float(at[index, 1]), 3))
    for level in ("s1", "s2", "s3"):
        assert len(rows[level]) == 1
    assert max(rows["s3"]) < min(rows["s2"]) < min(rows["s1"]) < min(rows["h"])


@pytest.mark.parametrize("name", FABRICS)
def test_a_picture_has_every_node_and_link(name: str) -> None:
    fabric = FABRICS[name]
    root = ElementTree.fromstring(draw(fabric))
    fills = Counter(element.get("fill") for element in root.iter(f"{SVG}rect"))
    for kind, colour in FILLS.items():
        assert fills[colour] == sum(node.kind is kind for node in fabric.nodes)
    seen = [element for element in root.iter(f"{SVG}path") if element.find(f"{SVG}title") is None]
    assert sum(element.get("d", "").count("M") for element in seen) == len(fabric.links)
    assert all(element.get("fill") == "none" for element in root.iter(f"{SVG}path"))
    titles = [element.text or "" for element in root.iter(f"{SVG}title")]
    assert len(titles) == len(fabric.links) + len(fabric.nodes)


def test_colours_say_loads_errors_and_what_is_gone() -> None:
    whole = fat_tree(4, 2)
    graph = Graph(whole)
    gone = len(whole.links) - 1
    routes = route(whole.without([gone]), "fat-tree")
    loads = link_loads(whole, graph, reach(routes).loads)
    owners = routes.graph.endpoints.node.tolist()
    lids = {node: str(lid) for node, lid in zip(owners, routes.lids.base, strict=True)}
    shown = Shown(lids.__getitem__, loads, {1: 7}, {gone}, "<title> & more")
    text = draw(whole, shown)
    root = ElementTree.fromstring(text)
    strokes = Counter(element.get("stroke") for element in root.iter(f"{SVG}path"))
    assert strokes[ERROR_COLOUR] == 1
    assert sum(strokes[colour] for colour in COLOURS) >= 2
    dashed = [element for element in root.iter(f"{SVG}path") if element.get("stroke-dasharray")]
    assert len(dashed) == 1
    titles = " | ".join(element.text or "" for element in root.iter(f"{SVG}title"))
    assert "7 errors" in titles
    assert "gone" in titles
    assert f"LID {lids[0]}" in titles
    texts = [element.text for element in root.iter(f"{SVG}text")]
    assert "<title> & more" in texts
    assert "ways over a link" in texts
    assert {"errors", "gone"} <= set(texts)
    lines = list(root.iter(f"{SVG}line"))
    assert [line.get("stroke") for line in lines] == [ERROR_COLOUR, GONE_COLOUR]
    plain = [
        element.text for element in ElementTree.fromstring(draw(whole, Shown(loads=loads))).iter(f"{SVG}text")
    ]
    assert not {"errors", "gone"} & set(plain)


def test_names_are_escaped_and_large_pictures_have_none() -> None:
    fabric = fat_tree(4, 1)
    named = Topology((replace(fabric.nodes[0], name="<&>"), *fabric.nodes[1:]), fabric.links)
    assert "&lt;&amp;&gt;" in draw(named)
    large = torus([25, 25], 1)
    assert len(large.nodes) > NAMED_NODES
    texts = list(ElementTree.fromstring(draw(large)).iter(f"{SVG}text"))
    assert not texts
    assert sum(node.kind is NodeKind.SWITCH for node in large.nodes) == 625


def test_title_and_legend_of_a_picture_made_smaller_stay_as_large_as_they_are():
    fabric = fat_tree(16, 3)
    root = ElementTree.fromstring(draw(fabric, Shown(title="many", loads={0: 1.0})))
    scale = float(root.get("viewBox", "").split()[2]) / float(root.get("width", "0"))
    assert scale > 1.2
    title = next(each for each in root.iter() if each.text == "many")
    assert float(title.get("font-size", "0")) == pytest.approx(16 * scale, rel=1e-3)
    (legend,) = (each for each in root if each.get("transform"))
    assert float(legend.get("transform", "")[len("scale(") : -1]) == pytest.approx(scale, rel=1e-3)
    assert "ways over a link" in [each.text for each in legend]


def test_a_picture_is_as_wide_as_its_title():
    title = "a fabric of one switch, " * 6
    root = ElementTree.fromstring(draw(FABRICS["tree"], Shown(title=title)))
    assert float(root.get("width", "0")) >= 0.55 * 16 * len(title)


def test_a_legend_ends_at_the_most_that_a_load_can_be():
    fabric = FABRICS["tree"]
    loads = dict.fromkeys(range(len(fabric.links)), 70.0)

    def legend(shown: Shown) -> list[str]:
        texts = [each.text or "" for each in ElementTree.fromstring(draw(fabric, shown)).iter(f"{SVG}text")]
        return [text for text in texts if text[:1] in "≤>"]

    assert legend(Shown(loads=loads)) == ["≤ 35", "≤ 63", "≤ 77", "≤ 105", "≤ 140", "> 140"]
    assert legend(Shown(loads=loads, most=100.0)) == ["≤ 35", "≤ 63", "≤ 77", "≤ 100"]


def test_a_link_that_is_gone_shows_no_errors_and_neither_does_the_legend():
    text = draw(FABRICS["tree"], Shown(loads={0: 1.0}, errors={3: 4}, gone={3}))
    assert ERROR_COLOUR not in text
    assert "errors" not in [each.text for each in ElementTree.fromstring(text).iter(f"{SVG}text")]
