"""Topologies in a short YAML form, for people::

    link: 4xEDR                      # what links are that say nothing (4xHDR)
    switches:
      leaf: 8                        # how many ports
      spine: {ports: 8, guid: 0x0002c90200401234, description: in the cellar}
    hosts:
      h1: 1
    links:
      - h1[1] leaf[1]
      - leaf[7] spine[1] 12xQDR

or one line for a generator (`generators.GENERATORS`)::

    generate: {kind: fat-tree, radix: 16, levels: 3}

``kind: ethernet`` makes it an Ethernet (`ethernet_yaml`), whose links have speeds as in 25G.

Nothing but mappings, lists and scalars is made of the file, whatever tags it has.  Needs PyYAML.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, NamedTuple

from softhca.fabric.generators import generate, guid_of
from softhca.fabric.topology import (
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
from softhca.fabric.topology_file import MAX_BYTES, checked
from softhca.machine.arguments import check_kind

_SECTIONS = {
    "switches": NodeKind.SWITCH,
    "hosts": NodeKind.CHANNEL_ADAPTER,
    "routers": NodeKind.ROUTER,
}
_KEYS = (*_SECTIONS, "links", "link", "generate", "kind")
INFINIBAND, ETHERNET = "infiniband", "ethernet"
_NODE_KEYS = ("ports", "guid", "system_guid", "description")
_LINK = re.compile(r"([^\[\]]+)\[(\d{1,4})\]\s+([^\[\]]+)\[(\d{1,4})\](?:\s+(\S+))?")
_RATE = re.compile(r"(1|2|4|8|12)x([SDQFEHNX]DR)")
_NUMBER = re.compile(r"0[xX][0-9a-fA-F]{1,16}|\d{1,19}")


class YamlValue(NamedTuple):
    """A scalar, list or mapping of a file, and its line."""

    value: Any
    line: int


def read_yaml(text: str) -> Topology:
    """The topology that a YAML file describes."""
    sections = mapping(document_of(text), "a topology", _KEYS)
    if kind_of(sections) != INFINIBAND:
        raise TopologyError("an Ethernet, which has no LIDs and routes", line=sections["kind"].line)
    rate = _rate(sections["link"]) if "link" in sections else (LinkWidth.X4, LinkSpeed.HDR)
    if "generate" in sections:
        return generated(sections, *rate)
    return joined(sections, lambda said: rate if said is None else _rate(said))


def kind_of(sections: dict[str, YamlValue]) -> str:
    """Of which kind a fabric is."""
    said = sections.get("kind", YamlValue(INFINIBAND, 1))
    kind = scalar(said, "kind")
    if kind not in (INFINIBAND, ETHERNET):
        raise TopologyError(f"no kind of fabric is {kind[:30]!r}; there are {INFINIBAND}, {ETHERNET}",
                            line=said.line)  # fmt: skip
    return kind


Rating = Callable[[YamlValue | None], tuple[LinkWidth, LinkSpeed]]
"""What a link is whose speed says something, or nothing."""


def joined(sections: dict[str, YamlValue], rating: Rating) -> Topology:
    """The topology of the sections that name nodes and links."""
    nodes: list[Node] = []
    node_lines: list[int] = []
    for section in (name for name in sections if name in _SECTIONS):
        for name, said in mapping(sections[section], section).items():
            nodes.append(_node(len(nodes), name, _SECTIONS[section], said))
            node_lines.append(said.line)
    names = {node.name: index for index, node in enumerate(nodes)}
    links = [_link(said, names, rating) for said in _list(sections.get("links", YamlValue([], 1)), "links")]
    link_lines = [said.line for said in sections["links"].value] if "links" in sections else []
    return checked(tuple(nodes), links, node_lines, link_lines)


def generated(
    sections: dict[str, YamlValue], *rate: Any, beside: tuple[str, ...] = ("generate", "link", "kind")
) -> Topology:
    """The topology of a generator; other sections than those ``beside`` it are refused."""
    said = sections["generate"]
    extra = [name for name in sections if name not in beside]
    if extra:
        raise TopologyError(f"{extra[0]} beside generate", line=sections[extra[0]].line)
    parameters = {name: scalar(value, name) for name, value in mapping(said, "generate").items()}
    kind = parameters.pop("kind", "")
    try:
        return generate(kind, parameters, *rate)
    except TopologyError as error:
        raise TopologyError(error.reason, line=said.line) from None


def document_of(text: str) -> YamlValue:
    """What a file says.  TopologyError: it is no YAML, or too long."""
    import yaml

    check_kind(text, str, "text of a topology")
    if len(text) > MAX_BYTES:
        raise TopologyError(f"a file of more than {MAX_BYTES} bytes")
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else None
        raise TopologyError(f"no YAML: {error.problem or error.context}", line=line) from None
    except (yaml.YAMLError, RecursionError) as error:
        raise TopologyError(f"no YAML: {str(error).splitlines()[0]}") from None
    if root is None:
        raise TopologyError("an empty file")
    return _said(root, 0, set())


def _said(node: Any, depth: int, seen: set[int]) -> YamlValue:
    """What a node of the composed file says; no aliases, by which a short file says too much, no more than
    four levels.  ``seen`` are the nodes that were met, by their identity.
    """
    import yaml

    line = node.start_mark.line + 1
    if id(node) in seen:
        raise TopologyError("an alias (*) stands for this; write it out", line=line)
    seen.add(id(node))
    if depth > 4:
        raise TopologyError("more levels than a topology has", line=line)
    if isinstance(node, yaml.ScalarNode):
        return YamlValue(node.value, line)
    if isinstance(node, yaml.SequenceNode):
        return YamlValue([_said(item, depth + 1, seen) for item in node.value], line)
    found: dict[str, YamlValue] = {}
    for key, value in node.value:
        if not isinstance(key, yaml.ScalarNode) or key.value in found:
            raise TopologyError("a key twice, or one that is no word", line=key.start_mark.line + 1)
        found[key.value] = _said(value, depth + 1, seen)
    return YamlValue(found, line)


def mapping(said: YamlValue, what: str, keys: tuple[str, ...] = ()) -> dict[str, YamlValue]:
    """A mapping, with no other keys than these.  TopologyError."""
    if not isinstance(said.value, dict):
        raise TopologyError(f"{what} is a mapping of names", line=said.line)
    for name, value in said.value.items():
        if keys and name not in keys:
            raise TopologyError(f"{what} has no {name!r}; it may have {', '.join(keys)}", line=value.line)
    return said.value


def _list(said: YamlValue, what: str) -> list[YamlValue]:
    if not isinstance(said.value, list):
        raise TopologyError(f"{what} is a list", line=said.line)
    return said.value


def scalar(said: YamlValue, what: str) -> str:
    """One word.  TopologyError."""
    if not isinstance(said.value, str):
        raise TopologyError(f"{what} is one word or number", line=said.line)
    return said.value


def integer(said: YamlValue, what: str) -> int:
    """One number.  TopologyError."""
    text = scalar(said, what)
    if _NUMBER.fullmatch(text) is None:
        raise TopologyError(f"{what} is {text[:30]!r}; expected a number", line=said.line)
    return int(text, 16) if text[:2].lower() == "0x" else int(text)


def _node(index: int, name: str, kind: NodeKind, said: YamlValue) -> Node:
    facts = mapping(said, name, _NODE_KEYS) if isinstance(said.value, dict) else {"ports": said}
    if "ports" not in facts:
        raise TopologyError(f"{name} does not say how many ports it has", line=said.line)
    count = integer(facts["ports"], f"ports of {name}")
    if not 1 <= count <= 254:
        raise TopologyError(f"{name} has {count} ports; expected 1 to 254", line=said.line)
    if "[" in name or "]" in name:
        raise TopologyError(f"a node cannot be named {name!r}", line=said.line)
    guid = integer(facts["guid"], f"GUID of {name}") if "guid" in facts else guid_of(index)
    system = integer(facts["system_guid"], f"system GUID of {name}") if "system_guid" in facts else 0
    text = scalar(facts["description"], "description") if "description" in facts else ""
    return make_node(name, kind, count, guid, system_guid=system, description=text)


def _link(said: YamlValue, names: dict[str, int], rating: Rating) -> Link:
    text = scalar(said, "a link")
    match = _LINK.fullmatch(text.strip())
    if match is None:
        raise TopologyError(f"no link: {text[:60]!r}; expected as in 'a[1] b[2] 4xHDR'", line=said.line)
    for name in (match[1], match[3]):
        if name not in names:
            raise TopologyError(f"a link to {name!r}, which is no node", line=said.line)
    width, speed = rating(YamlValue(match[5], said.line) if match[5] else None)
    return Link(End(names[match[1]], int(match[2])), End(names[match[3]], int(match[4])), width, speed)


def _rate(said: YamlValue) -> tuple[LinkWidth, LinkSpeed]:
    text = scalar(said, "link")
    match = _RATE.fullmatch(text)
    if match is None:
        raise TopologyError(f"no link is {text[:30]!r}; expected as in 4xHDR", line=said.line)
    return LinkWidth(int(match[1])), LinkSpeed[match[2]]


def write_yaml(topology: Topology) -> str:
    """The topology in the short form; reading it gives an equal one, unless a node says more than the form
    has, or the kinds are mixed.
    """
    check_kind(topology, Topology, "topology")
    lines = []
    first = {node.kind: None for node in topology.nodes}
    words = {kind: section for section, kind in _SECTIONS.items()}
    for kind in first:
        section = words[kind]
        nodes = [node for node in topology.nodes if node.kind is kind]
        lines.append(f"{section}:")
        for node in nodes:
            facts = f"ports: {node.port_count}, guid: {node.guid:#x}, system_guid: {node.system_guid:#x}"
            lines.append(f"  {_quoted(node.name)}: {{{facts}, description: {_quoted(node.description)}}}")
    lines.append("links:" if topology.links else "links: []")
    for link in topology.links:
        text = f"{topology.end_text(link.end_a)} {topology.end_text(link.end_b)} {link}"
        lines.append(f"  - {_quoted(text)}")
    return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    """A scalar in double quotes; JSON's escapes are YAML's."""
    import json

    return json.dumps(text)
