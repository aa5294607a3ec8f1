"""What commands do to a fabric that is served: a request in, a reply out, both as JSON has them.

``{"do": "fail", "link": "leaf[3]"}``; a link is named by either of its ends.
"""

from __future__ import annotations

import re
from typing import Any

from softhca.fabric.ethernet.plane import EthernetPlane
from softhca.fabric.mad_plane import MadPlane
from softhca.fabric.node_state import NodeState
from softhca.fabric.packet_plane import PacketPlane
from softhca.fabric.topology import End
from softhca.links.faults import Faults, FaultsError
from softhca.links.faulty import NO_FAULTS, SIMULATED_ONLY
from softhca.links.impairment import Impairment
from softhca.management.performance_attributes import ERRORS

Plane = MadPlane | EthernetPlane
"""What has the links of a fabric that is served."""
Packets = PacketPlane | EthernetPlane
MOST_COUNTED = 1 << 32
MOST_TOLD = 512
"""Nodes, and links, that one answer tells the state of."""
_END = re.compile(r"(.+)\[(\d{1,3})\]")
TRAFFIC = ("xmit_pkts", "xmit_data", "rcv_pkts", "rcv_data")
NO_FAULTS_OF_LINKS = frozenset({"xmit_wait"})
"""Of `ERRORS`, what an error-free link counts too."""


class ControlError(Exception):
    """What could not be done, in one line."""


def find_end(plane: Plane, text: str) -> End:
    """The end of a link that is called ``NODE[PORT]``, by a node's name or description.  ControlError."""
    match = _END.fullmatch(text)
    nodes = plane.topology.nodes
    found = [] if match is None else [index for index, node in enumerate(nodes) if node.name == match[1]]
    if match is not None and not found:
        found = [index for index, node in enumerate(nodes) if node.description == match[1]]
    if match is None or not found:
        raise ControlError(f"no end of a link is called {text[:80]!r}: expected NODE[PORT]")
    if len(found) > 1:
        raise ControlError(f"{len(found)} nodes are called {match[1][:80]!r}: name it by its name")
    end = End(found[0], int(match[2]))
    if plane.topology.link_at(*end) is None:
        raise ControlError(f"there is no link at {text[:80]}")
    return end


def perform(plane: Plane, request: Any, now: int, packets: Packets | None = None) -> dict[str, Any]:
    """Do what a request says: ``fail``, ``restore``, ``count`` (errors at a port), ``faults`` (what packets
    of adapters suffer on a link, in both directions), ``counters``, ``traffic`` (of both ports), ``state``
    (of nodes and links, so many from the ``first``).  ControlError."""
    if not isinstance(request, dict):
        raise ControlError("a request is an object")
    what = request.get("do")
    if what == "counters":
        return {"counters": dict(plane.counters)}
    if what == "state":
        return _state(plane, request.get("first", 0))
    if what not in ("fail", "restore", "count", "faults", "traffic"):
        raise ControlError(f"no request is called {str(what)[:40]!r}")
    end = find_end(plane, str(request.get("link")))
    index = plane.topology.link_at(*end)
    assert index is not None
    link = plane.topology.links[index]
    answer: dict[str, Any] = {"link": [plane.topology.end_text(each) for each in (link.end_a, link.end_b)]}
    if what == "count":
        _count(plane, end, request.get("errors"))
    elif what == "traffic":
        answer["traffic"] = {
            plane.topology.end_text(each): _traffic(plane, each) for each in (link.end_a, link.end_b)
        }
    elif what == "faults":
        _impair(plane, packets, (link.end_a, link.end_b), request.get("faults"))
    else:
        answer["changed"] = plane.fail(index, now) if what == "fail" else plane.restore(index, now)
    return answer


def _state(plane: Plane, first: Any) -> dict[str, Any]:
    """Of nodes their LIDs (0: none), of links bytes, errors and whether they are down, by index from the
    first on; and how many there are in all."""
    if isinstance(plane, EthernetPlane):
        raise ControlError("an Ethernet has no LIDs, and its ports count no errors")
    topology = plane.topology
    if not isinstance(first, int) or not 0 <= first <= len(topology.nodes) + len(topology.links):
        raise ControlError("there is no such node or link")
    return {
        "nodes": len(topology.nodes),
        "links": len(topology.links),
        "lids": [_lid(node) for node in plane.nodes[first : first + MOST_TOLD]],
        "states": [
            _link_state(plane, index)
            for index in range(first, min(first + MOST_TOLD, len(topology.links)))
        ],
    }


def _lid(node: NodeState) -> int:
    """The base LID of a node's first port that has one."""
    return next((port.info.lid for port in node.ports if port is not None and port.info.lid), 0)


def _link_state(plane: MadPlane, index: int) -> tuple[int, int, bool]:
    """Bytes of the busier direction, errors of both ends, and whether the link is down."""
    link = plane.topology.links[index]
    ports = [plane.nodes[end.node].ports[end.port] for end in (link.end_a, link.end_b)]
    there = [port for port in ports if port is not None]
    errors = sum(port.total(name) for port in there for name in ERRORS - NO_FAULTS_OF_LINKS)
    return max(4 * port.total("xmit_data") for port in there), errors, not all(port.up for port in there)


def _traffic(plane: Plane, end: End) -> dict[str, int]:
    """What has passed a port."""
    if isinstance(plane, EthernetPlane):
        return plane.traffic(end)
    port = plane.nodes[end.node].ports[end.port]
    assert port is not None
    return {name: port.total(name) for name in TRAFFIC}


def link_faults(text: str) -> Faults | None:
    """What the packets of a link suffer, as ``--faults`` says it; None for ``none``.  FaultsError."""
    if text.strip() in ("", "none"):
        return None
    return Faults.parse(text, NO_FAULTS, (*SIMULATED_ONLY, "partition"))


def _impair(plane: Plane, packets: Packets | None, ends: tuple[End, End], text: Any) -> None:
    if packets is None or not isinstance(text, str):
        raise ControlError("no faults, or no adapters whose packets could suffer")
    try:
        faults = link_faults(text)
    except FaultsError as error:
        raise ControlError(str(error)) from None
    for one, other in (ends, ends[::-1]):
        side = packets.side(one)
        side.faults = None if faults is None else Impairment(faults, "fabric", _number(one), _number(other))
    packets.changed()


def _number(end: End) -> int:
    """A number for the dice of a link's end."""
    return end.node << 8 | end.port


def _count(plane: Plane, end: End, errors: Any) -> None:
    if isinstance(plane, EthernetPlane):
        raise ControlError("an Ethernet's ports have no counters to add to: --faults lets links lose packets")
    port = plane.nodes[end.node].ports[end.port]
    assert port is not None
    if not isinstance(errors, dict) or not errors:
        raise ControlError("no counters to add to")
    for name, by in errors.items():
        if name not in ERRORS:
            known = ", ".join(sorted(ERRORS))
            raise ControlError(f"there is no counter {str(name)[:40]!r}: there are {known}")
        if not isinstance(by, int) or not 0 <= by < MOST_COUNTED:
            raise ControlError(f"{name} cannot grow by {str(by)[:40]}")
    for name, by in errors.items():
        port.count(name, by)
