"""Regular and random topologies: fat trees, tori, dragonflies.

All are named alike: hosts ``h0`` …, switches by where they stand (``s2-13``: the 13th of level 2; ``s0.3.1``:
a torus' coordinates).  GUIDs follow from the index of the node, so that two fabrics of one shape are equal.
Hosts come first, in the order in which they hang on the switches.

TopologyError: a shape that cannot be, or needs more nodes or ports than there may be.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from random import Random

from softhca.fabric.topology import (
    MAX_NODES,
    MAX_PORTS,
    End,
    Link,
    LinkSpeed,
    LinkWidth,
    Node,
    NodeKind,
    Topology,
    TopologyError,
    make_node,
)
from softhca.machine.arguments import check_kind

FIRST_GUID = 0x0200_0000_0000_0000
"""Where generated GUIDs begin: locally administered, as the second lowest bit of the first byte says."""
GUID_STEP = 0x1_0000


def guid_of(index: int) -> int:
    """The GUID of the node of an index where nobody has chosen another one."""
    return FIRST_GUID + (index + 1) * GUID_STEP


class Builder:
    """Collects nodes and links; all links have one width and speed."""

    def __init__(self, width: LinkWidth = LinkWidth.X4, speed: LinkSpeed = LinkSpeed.HDR) -> None:
        self.nodes: list[Node] = []
        self.links: list[Link] = []
        self.width = width
        self.speed = speed

    def add(self, name: str, kind: NodeKind, ports: int) -> int:
        """A node more; its index."""
        index = len(self.nodes)
        if index >= MAX_NODES or ports > MAX_PORTS:
            raise TopologyError(f"more than {MAX_NODES} nodes, or a node of more than {MAX_PORTS} ports")
        self.nodes.append(make_node(name, kind, ports, guid_of(index)))
        return index

    def hosts(self, count: int) -> range:
        """Hosts of one port each, ``h0`` …"""
        first = len(self.nodes)
        for number in range(count):
            self.add(f"h{number}", NodeKind.CHANNEL_ADAPTER, 1)
        return range(first, first + count)

    def link(self, end_a: tuple[int, int], end_b: tuple[int, int]) -> None:
        """A cable between two ports."""
        self.links.append(Link(End(*end_a), End(*end_b), self.width, self.speed))

    def topology(self) -> Topology:
        """What has been built, checked."""
        return Topology(tuple(self.nodes), tuple(self.links))


def extended_fat_tree(
    children: Sequence[int],
    parents: Sequence[int],
    width: LinkWidth = LinkWidth.X4,
    speed: LinkSpeed = LinkSpeed.HDR,
) -> Topology:
    """A tree of ``len(children)`` levels of switches, XGFT(h; m1 … mh; w1 … wh): each node of level l has
    ``children[l - 1]`` children, and each of level l − 1 has ``parents[l - 1]`` parents.  Hosts are level 0.

    Switches have their children at the ports from 1, their parents behind them.
    """
    if not children or len(children) != len(parents) or min(*children, *parents, 1) < 1:
        raise TopologyError("a tree needs as many numbers of children as of parents, all from 1")
    if parents[0] != 1:
        raise TopologyError(f"a host hangs on one switch, not on {parents[0]}")
    levels = len(children)
    counts = [math.prod(children[level:]) * math.prod(parents[:level]) for level in range(levels + 1)]
    if sum(counts) > MAX_NODES:
        raise TopologyError(f"{sum(counts)} nodes; a subnet has LIDs for {MAX_NODES}")
    builder = Builder(width, speed)
    first = [builder.hosts(counts[0]).start]
    for level in range(1, levels + 1):
        ports = children[level - 1] + (parents[level] if level < levels else 0)
        first.append(len(builder.nodes))
        for number in range(counts[level]):
            builder.add(f"s{level}-{number}", NodeKind.SWITCH, ports)
    for level in range(1, levels + 1):
        _join_levels(builder, level, children, parents, first, counts)
    return builder.topology()


def _join_levels(
    builder: Builder,
    level: int,
    children: Sequence[int],
    parents: Sequence[int],
    first: Sequence[int],
    counts: Sequence[int],
) -> None:
    """Links between a level and that below it.  A node's number is its label (a_h … a_l+1, b_l … b_1) as one
    number; a child's digit a_l is the parent's port, the parent's digit b_l the child's.
    """
    low = math.prod(parents[: level - 1])
    own_ports = children[level - 2] if level > 1 else 0  # of the child, for its own children
    for number in range(counts[level - 1]):
        above, below = divmod(number, low)
        above, digit = divmod(above, children[level - 1])
        for up in range(parents[level - 1]):
            parent = first[level] + (above * parents[level - 1] + up) * low + below
            builder.link((first[level - 1] + number, own_ports + up + 1), (parent, digit + 1))


def fat_tree(
    radix: int, levels: int = 3, width: LinkWidth = LinkWidth.X4, speed: LinkSpeed = LinkSpeed.HDR
) -> Topology:
    """The largest tree of switches of ``radix`` ports that never blocks: 2·(radix/2)^levels hosts.  Radix 36
    with three levels has 11,664, radix 16 has 1,024.
    """
    half, odd = divmod(radix, 2)
    if odd or radix < 2 or not 1 <= levels <= 6:
        raise TopologyError("a fat tree has switches of an even radix, and 1 to 6 levels")
    return extended_fat_tree(
        [half] * (levels - 1) + [2 * half], [1] + [half] * (levels - 1), width, speed
    )


def k_ary_n_tree(
    arity: int, levels: int, width: LinkWidth = LinkWidth.X4, speed: LinkSpeed = LinkSpeed.HDR
) -> Topology:
    """The k-ary n-tree: arity^levels hosts, levels · arity^(levels − 1) switches, the uppermost with half the
    ports.
    """
    if arity < 1 or not 1 <= levels <= 15:
        raise TopologyError("a k-ary n-tree has an arity from 1, and 1 to 15 levels")
    return extended_fat_tree([arity] * levels, [1] + [arity] * (levels - 1), width, speed)


def torus(
    sizes: Sequence[int],
    hosts: int = 1,
    wrap: bool = True,
    width: LinkWidth = LinkWidth.X4,
    speed: LinkSpeed = LinkSpeed.HDR,
) -> Topology:
    """Switches at the points of a grid, ``hosts`` on each.  In dimension d the port 2d + 1 leads to the next
    switch and 2d + 2 to the one before; hosts are behind these.  A dimension of two has one link; without
    ``wrap`` no ring is closed: a mesh.
    """
    if not sizes or min(sizes) < 1 or hosts < 0 or len(sizes) > 8:
        raise TopologyError("a torus has 1 to 8 dimensions of 1 or more switches")
    count = math.prod(sizes)
    if count * (1 + hosts) > MAX_NODES:
        raise TopologyError(f"{count * (1 + hosts)} nodes; a subnet has LIDs for {MAX_NODES}")
    builder = Builder(width, speed)
    first_host = builder.hosts(count * hosts).start
    points = list(itertools.product(*(range(size) for size in sizes)))
    at = {
        point: builder.add("s" + ".".join(map(str, point)), NodeKind.SWITCH, 2 * len(sizes) + max(hosts, 1))
        for point in points
    }
    for number, point in enumerate(points):
        for host in range(hosts):
            builder.link((first_host + number * hosts + host, 1), (at[point], 2 * len(sizes) + 1 + host))
        for axis, size in enumerate(sizes):
            closing = point[axis] == size - 1
            if size > 1 and not (closing and (size == 2 or not wrap)):
                following = (*point[:axis], (point[axis] + 1) % size, *point[axis + 1 :])
                builder.link((at[point], 2 * axis + 1), (at[following], 2 * axis + 2))
    return builder.topology()


def dragonfly(
    switches: int,
    hosts: int,
    global_links: int,
    groups: int | None = None,
    width: LinkWidth = LinkWidth.X4,
    speed: LinkSpeed = LinkSpeed.HDR,
) -> Topology:
    """Groups of ``switches`` switches that are all linked to each other, ``hosts`` hosts and ``global_links``
    links to other groups on each.  ``groups``: at most switches · global_links + 1, which is the default:
    then each pair of groups has one link.
    """
    most = switches * global_links + 1
    groups = most if groups is None else groups
    if switches < 1 or hosts < 0 or global_links < 0 or not 1 <= groups <= most:
        raise TopologyError(f"a dragonfly of such groups has 1 to {max(most, 1)} of them")
    if groups * switches * (1 + hosts) > MAX_NODES:
        raise TopologyError(f"more than {MAX_NODES} nodes")
    builder = Builder(width, speed)
    first_host = builder.hosts(groups * switches * hosts).start
    first = len(builder.nodes)
    ports = max(hosts + switches - 1 + global_links, 1)
    for group, switch in itertools.product(range(groups), range(switches)):
        number = builder.add(f"s{group}.{switch}", NodeKind.SWITCH, ports) - first
        for host in range(hosts):
            builder.link((first_host + number * hosts + host, 1), (first + number, host + 1))
    for group in range(groups):
        base = first + group * switches
        for low, high in itertools.combinations(range(switches), 2):
            builder.link((base + low, hosts + high), (base + high, hosts + low + 1))
    for low, high in itertools.combinations(range(groups), 2):
        ends = []
        for group, other in ((low, high), (high, low)):
            switch, port = divmod((other - group - 1) % groups, max(global_links, 1))
            ends.append((first + group * switches + switch, hosts + switches + port))
        builder.link(*ends)
    return builder.topology()


def random_fabric(
    switches: int,
    hosts: int,
    degree: int,
    dice: Random,
    width: LinkWidth = LinkWidth.X4,
    speed: LinkSpeed = LinkSpeed.HDR,
) -> Topology:
    """Switches with ``hosts`` hosts on each and up to ``degree`` links to others, all connected: a random
    tree, then links between random switches that have ports left (several between two of them, too).
    """
    check_kind(dice, Random, "random generator")
    for number, what in ((switches, "number of switches"), (hosts, "number of hosts"), (degree, "degree")):
        check_kind(number, int, what)
    if switches < 1 or hosts < 0 or (switches > 1 and degree < 1) or (switches > 2 and degree < 2):
        raise TopologyError("a random fabric has switches with two links or more to others")
    if switches * (1 + hosts) > MAX_NODES:
        raise TopologyError(f"{switches * (1 + hosts)} nodes; a subnet has LIDs for {MAX_NODES}")
    builder = Builder(width, speed)
    first_host = builder.hosts(switches * hosts).start
    first = len(builder.nodes)
    used = [0] * switches
    for number in range(switches):
        builder.add(f"s{number}", NodeKind.SWITCH, max(hosts + degree, 1))
        for host in range(hosts):
            builder.link((first_host + number * hosts + host, 1), (first + number, host + 1))

    def join(one: int, other: int) -> None:
        ends = [(first + number, hosts + used[number] + 1) for number in (one, other)]
        used[one] += 1
        used[other] += 1
        builder.link(*ends)

    for number in range(1, switches):
        join(dice.choice([other for other in range(number) if used[other] < degree]), number)
    free = [number for number in range(switches) for _ in range(degree - used[number])]
    dice.shuffle(free)
    while len(free) > 1:
        one = free.pop()
        other = next((place for place in range(len(free) - 1, -1, -1) if free[place] != one), None)
        if other is not None:
            join(one, free.pop(other))
    return builder.topology()


GENERATORS: dict[str, tuple[Callable[..., Topology], dict[str, object]]] = {
    # name: (generator, its parameters and what they are without being given; None: must be)
    "fat-tree": (fat_tree, {"radix": None, "levels": 3}),
    "k-ary-n-tree": (k_ary_n_tree, {"arity": None, "levels": None}),
    "torus": (torus, {"sizes": None, "hosts": 1}),
    "mesh": (torus, {"sizes": None, "hosts": 1}),
    "dragonfly": (dragonfly, {"switches": None, "hosts": None, "global_links": None, "groups": 0}),
    "random": (random_fabric, {"switches": None, "hosts": 1, "degree": 4, "seed": 1}),
}
"""What `generate` knows by name."""


def generate(
    kind: str,
    parameters: Mapping[str, str],
    width: LinkWidth = LinkWidth.X4,
    speed: LinkSpeed = LinkSpeed.HDR,
) -> Topology:
    """The topology that a name and parameters in words ask for, as ``torus`` with ``sizes`` = ``4x4x2``.

    TopologyError: there is no such generator or parameter, or one is missing or no number.  TypeError: the
    parameters are no mapping of texts.
    """
    check_kind(parameters, Mapping, "mapping of parameters")
    for text in parameters.values():
        check_kind(text, str, "text of a parameter")
    if not isinstance(kind, str) or kind not in GENERATORS:
        raise TopologyError(f"no generator is named {kind!r}; there are {', '.join(GENERATORS)}")
    make, known = GENERATORS[kind]
    values: dict[str, object] = dict(known)
    for name, text in parameters.items():
        if name not in known:
            raise TopologyError(f"{kind} has no parameter {name!r}; it has {', '.join(known)}")
        values[name] = _sizes(text) if name == "sizes" else _number(name, text)
    missing = [name for name, value in values.items() if value is None]
    if missing:
        raise TopologyError(f"{kind} needs {', '.join(missing)}")
    if kind == "random":
        values["dice"] = Random(values.pop("seed"))  # type: ignore[arg-type]
    if kind == "mesh":
        values["wrap"] = False
    if kind == "dragonfly":
        values["groups"] = values["groups"] or None
    return make(**values, width=width, speed=speed)


def _number(name: str, text: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 6:
        raise TopologyError(f"{name} = {text!r} is no number from 0 to 999999")
    return int(text)


def _sizes(text: str) -> list[int]:
    return [_number("sizes", part) for part in text.split("x")]
