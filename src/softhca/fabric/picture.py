"""A picture of a fabric as SVG: nodes with names and LIDs, links by how much goes over them, errors in red,
links that are gone dashed.
"""

from __future__ import annotations

import bisect
import html
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from softhca.fabric.graph import Graph
from softhca.fabric.layout import STEP, Places, places
from softhca.fabric.topology import Link, NodeKind, Topology
from softhca.machine.arguments import check_kind

MARGIN = 40.0
LEGEND_WIDTH = 500.0
TITLE_SIZE = 16.0
LETTER_WIDTH = 0.62
"""Of a title's letters, as a share of their size: wider than fonts have it in the mean."""
WIDEST = 4000.0
"""In pixels: a larger picture is made smaller to be shown, but for its title and legend."""
NAMED_NODES = 400
"""A picture of more nodes names switches only, one of more switches none."""
TITLED_NODES = 4000
"""A picture of more nodes has no texts that show where one points."""
SHARES = (0.5, 0.9, 1.1, 1.5, 2.0)
"""How the load of a link is to that of the mean link between switches."""
COLOURS = ("#b8c4d0", "#7fb0d6", "#3f8fc4", "#e0a33a", "#e06c2b", "#b3261e")
"""From little to much, one more than there are bounds."""
QUIET = "#9aa5ae"
"""Of links to hosts, and of those whose load is not told."""
FEW_LINKS = 3000
"""Lines of a picture with more links are fainter."""
ERROR_COLOUR = "#e3007b"
GONE_COLOUR = "#888888"
FILLS = {NodeKind.SWITCH: "#2f4858", NodeKind.CHANNEL_ADAPTER: "#33a17f", NodeKind.ROUTER: "#8d5a97"}
SIZES = {NodeKind.SWITCH: (22.0, 12.0), NodeKind.CHANNEL_ADAPTER: (7.0, 7.0), NodeKind.ROUTER: (12.0, 12.0)}


@dataclass
class Shown:
    """What a picture shows besides nodes and links, all by index: LIDs of nodes as text, loads of links (in
    ``unit``), errors of links, and links that are gone."""

    lids: Callable[[int], str] | None = None
    loads: Mapping[int, float] = field(default_factory=dict)
    errors: Mapping[int, int] = field(default_factory=dict)
    gone: Collection[int] = frozenset()
    title: str = ""
    unit: str = "ways"
    legend: str = "ways over a link"
    most: float = float("inf")
    """No load is greater."""


def link_loads(topology: Topology, graph: Graph, loads: NDArray[np.int64]) -> dict[int, float]:
    """The larger load of both directions of each link between switches, from loads by switch and port; of a
    link to a host that of the switch's port."""
    found: dict[int, float] = {}
    for index, link in enumerate(topology.links):
        both = [
            int(loads[graph.number[end.node], end.port])
            for end in (link.end_a, link.end_b)
            if end.node in graph.number
        ]
        found[index] = float(max(both, default=0))
    return found


def draw(topology: Topology, shown: Shown | None = None, graph: Graph | None = None) -> str:
    """The picture, a whole SVG document.  TypeError: what is no topology, graph of one, or `Shown`."""
    check_kind(topology, Topology, "topology")
    check_kind(shown, (Shown, type(None)), "description of what a picture shows")
    check_kind(graph, (Graph, type(None)), "graph of a fabric")
    shown = shown or Shown()
    graph = graph or Graph(topology)
    at = places(graph) + MARGIN
    width, height = at.max(axis=0, initial=0.0) + MARGIN
    width = max(width + 60, LEGEND_WIDTH)
    scale = max(width / WIDEST, 1.0)
    height += 60 * scale
    if shown.title:
        at[:, 1] += STEP * scale
        height += STEP * scale
        width = max(width, scale * (2 * MARGIN + len(shown.title) * TITLE_SIZE * LETTER_WIDTH))
    return "\n".join(_document(topology, shown, at, float(width), float(height))) + "\n"


def _document(topology: Topology, shown: Shown, at: Places, width: float, height: float) -> Iterator[str]:
    scale = max(width / WIDEST, 1.0)
    yield (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" '
        f'width="{width / scale:.0f}" height="{height / scale:.0f}" '
        'font-family="sans-serif" font-size="8">'
    )
    yield f'<rect width="{width:.0f}" height="{height:.0f}" fill="white"/>'
    if shown.title:
        yield (
            f'<text x="{MARGIN * scale:g}" y="{28 * scale:g}" font-size="{TITLE_SIZE * scale:g}">'
            f"{html.escape(shown.title)}</text>"
        )
    yield from _links(topology, shown, at)
    yield from _nodes(topology, shown, at)
    if shown.loads:
        yield f'<g transform="scale({scale:g})">'
        yield from _legend(topology, shown, height / scale)
        yield "</g>"
    yield "</svg>"


def _links(topology: Topology, shown: Shown, at: Places) -> Iterator[str]:
    """One path for all links that look the same, those of hosts and of little load first."""
    groups: dict[tuple[int, str, str, float], list[str]] = {}
    mean = _mean_load(topology, shown)
    bend = _bend(topology, at)
    faint = "" if len(topology.links) <= FEW_LINKS else ' stroke-opacity="0.4"'
    titles: list[str] = []
    for index, link in enumerate(topology.links):
        look = _look(topology, index, shown, mean)
        line = _line(link, at, bend)
        if len(topology.nodes) <= NAMED_NODES:
            titles.append(_titled(topology, shown, index, line))
        groups.setdefault(look, []).append(line)
    for (_, colour, dash, stroke), lines in sorted(groups.items()):
        dashes = f' stroke-dasharray="{dash}"' if dash else ""
        look_text = f'stroke="{colour}" stroke-width="{stroke:.2g}"{dashes}{faint}'
        yield f'<path d="{" ".join(lines)}" fill="none" {look_text}/>'
    yield from titles


def _between_switches(topology: Topology, link: Link) -> bool:
    return topology.nodes[link.end_a.node].is_switch and topology.nodes[link.end_b.node].is_switch


def _mean_load(topology: Topology, shown: Shown) -> float:
    loads = [
        shown.loads.get(index, 0.0)
        for index, link in enumerate(topology.links)
        if index not in shown.gone and _between_switches(topology, link)
    ]
    return sum(loads) / len(loads) if loads else 0.0


def _look(topology: Topology, index: int, shown: Shown, mean: float) -> tuple[int, str, str, float]:
    """In which order, colour, dash and width a link is drawn."""
    if index in shown.gone:
        return (len(COLOURS) + 1, GONE_COLOUR, "4 3", 1.0)
    if shown.errors.get(index):
        return (len(COLOURS) + 2, ERROR_COLOUR, "", 2.5)
    if not mean or not _between_switches(topology, topology.links[index]):
        return (-1, QUIET, "", 0.8)
    step = bisect.bisect_left(SHARES, shown.loads.get(index, 0.0) / mean)
    return (step, COLOURS[step], "", 0.8 + 0.2 * step)


def _bend(topology: Topology, at: Places) -> float:
    """From which length on a link between switches is bent, so that it does not lie on those that stand
    between: twice the shortest one's.
    """
    lengths = [
        float(np.hypot(*(at[link.end_a.node] - at[link.end_b.node])))
        for link in topology.links
        if _between_switches(topology, link)
    ]
    return 1.9 * min(lengths, default=0.0)


def _line(link: Link, at: Places, bend: float) -> str:
    (x, y), (u, v) = at[link.end_a.node], at[link.end_b.node]
    level = abs(y - v) < 1 or abs(x - u) < abs(y - v) * 0.25
    if level and bend and np.hypot(x - u, y - v) > bend:
        across, up = (x + u) / 2 + (v - y) * 0.14, (y + v) / 2 - (u - x) * 0.14
        return f"M{x:.1f} {y:.1f}Q{across:.1f} {up:.1f} {u:.1f} {v:.1f}"
    return f"M{x:.1f} {y:.1f}L{u:.1f} {v:.1f}"


def _titled(topology: Topology, shown: Shown, index: int, line: str) -> str:
    """An unseen wide line that says what the link is where one points."""
    link = topology.links[index]
    words = [f"{topology.end_text(link.end_a)} – {topology.end_text(link.end_b)}", str(link)]
    if shown.loads:
        words.append(f"{shown.loads.get(index, 0):.4g} {shown.unit}")
    if shown.errors.get(index):
        words.append(f"{shown.errors[index]} errors")
    if index in shown.gone:
        words.append("gone")
    text = html.escape(", ".join(words))
    return f'<path d="{line}" fill="none" stroke="transparent" stroke-width="5"><title>{text}</title></path>'


def _nodes(topology: Topology, shown: Shown, at: Places) -> Iterator[str]:
    count = len(topology.nodes)
    switches_named = len(topology.switches) <= NAMED_NODES
    for index, node in enumerate(topology.nodes):
        x, y = at[index]
        wide, high = SIZES[node.kind]
        lid = shown.lids(index) if shown.lids else ""
        named = count <= NAMED_NODES or (node.is_switch and switches_named)
        box = (
            f'<rect x="{x - wide / 2:.1f}" y="{y - high / 2:.1f}" width="{wide:g}" height="{high:g}" '
            f'rx="2" fill="{FILLS[node.kind]}"'
        )
        if count <= TITLED_NODES:
            text = f"{node.name} ({node.description}), GUID {node.guid:#018x}"
            yield f"{box}><title>{html.escape(text + (f', LID {lid}' if lid else ''))}</title></rect>"
        else:
            yield box + "/>"
        if named and node.is_switch:
            yield _text(x, y - high / 2 - 2, node.name, "middle", "#2f4858", edge=True)
            if lid:
                yield _text(x, y + 3, lid, "middle", "white")
        elif named and count <= NAMED_NODES // 2:
            yield _text(x, y + high / 2 + 5, lid or node.name, "middle", "#555555", 4.5)


def _text(
    x: float, y: float, text: str, anchor: str, colour: str, size: float = 7.0, edge: bool = False
) -> str:
    """``edge``: with a white edge, so that lines that lie under it do not cross it out."""
    white = ' stroke="white" stroke-width="2" paint-order="stroke"' if edge else ""
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{colour}" font-size="{size:g}"{white}>'
        f"{html.escape(text)}</text>"
    )


def _legend(topology: Topology, shown: Shown, height: float) -> Iterator[str]:
    mean = _mean_load(topology, shown)
    highest = [min(mean * share, shown.most) for share in SHARES]
    bounds = [f"≤ {load:.0f}" for load in highest] + [f"> {highest[-1]:.0f}"]
    needed = bisect.bisect_left(highest, shown.most) + 1
    for step, (colour, text) in enumerate(zip(COLOURS[:needed], bounds[:needed], strict=True)):
        x = MARGIN + step * 60
        yield f'<rect x="{x:.0f}" y="{height - 22:.0f}" width="14" height="4" fill="{colour}"/>'
        yield _text(x + 18, height - 16, text, "start", "#333333", 8)
    yield _text(MARGIN + needed * 60, height - 16, shown.legend, "start", "#333333", 8)
    some_errors = any(count for index, count in shown.errors.items() if index not in shown.gone)
    besides = [("errors", f'stroke="{ERROR_COLOUR}" stroke-width="2.5"', some_errors)]
    besides.append(("gone", f'stroke="{GONE_COLOUR}" stroke-dasharray="4 3"', bool(shown.gone)))
    for step, (text, look) in enumerate((text, look) for text, look, there in besides if there):
        x, y = MARGIN + step * 60, height - 32
        yield f'<line x1="{x:.0f}" y1="{y:.0f}" x2="{x + 14:.0f}" y2="{y:.0f}" {look}/>'
        yield _text(x + 18, y + 3, text, "start", "#333333", 8)
