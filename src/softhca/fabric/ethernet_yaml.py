"""Ethernets in the short YAML form (`topology_yaml`)::

    kind: ethernet
    link: 25G                        # what links are that say nothing (100G); M is a thousandth of G
    delay: 500                       # of each link, in nanoseconds
    switches:
      leaf: 4
    hosts:
      h1: 1
    links:
      - h1[1] leaf[1]
      - leaf[4] spine[1] 100G
    queues:                          # what every switch does; what is not said is as it usually is
      buffer: 4194304                # bytes of all queues of a switch, and of one
      queue: 1048576
      marking: {least: 5000, most: 200000, probability: 0.01}     # or none
      pausing: {off: 40000, on: 30000, priorities: [0, 3], quanta: 65535}
    congestion: dcqcn                # hosts slow down when they are told of marks; or off
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from softhca.fabric.ethernet.layout import (
    LEAST_MBPS,
    MOST_MBPS,
    USUAL_DELAY_NS,
    USUAL_MBPS,
    EthernetTopology,
)
from softhca.fabric.ethernet.settings import Marking, Pausing, SwitchSettings
from softhca.fabric.topology import LinkSpeed, LinkWidth, Topology, TopologyError
from softhca.fabric.topology_yaml import (
    ETHERNET,
    YamlValue,
    document_of,
    generated,
    integer,
    joined,
    kind_of,
    mapping,
    read_yaml,
    scalar,
)

_KEYS = ("kind", "switches", "hosts", "links", "link", "generate", "delay", "queues", "congestion")
_BESIDE_GENERATE = ("kind", "generate", "link", "delay", "queues", "congestion")
_SPEED = re.compile(r"(\d{1,7})([MG])")
_UNITS = {"M": 1, "G": 1_000}
_NO_RATE = (LinkWidth.X4, LinkSpeed.HDR)


def read_fabric(text: str) -> Topology | EthernetTopology:
    """The fabric, of either kind, that a YAML file describes.  TopologyError."""
    document = document_of(text)
    if not isinstance(document.value, dict) or kind_of(document.value) != ETHERNET:
        return read_yaml(text)
    sections = mapping(document, "an Ethernet", _KEYS)
    usual = _speed(sections["link"]) if "link" in sections else USUAL_MBPS
    speeds: list[int] = []

    def rated(said: YamlValue | None) -> tuple[LinkWidth, LinkSpeed]:
        speeds.append(usual if said is None else _speed(said))
        return _NO_RATE

    if "generate" in sections:
        topology = generated(sections, *_NO_RATE, beside=_BESIDE_GENERATE)
        speeds = [usual] * len(topology.links)
    else:
        topology = joined(sections, rated)
    delay_ns = integer(sections["delay"], "delay") if "delay" in sections else USUAL_DELAY_NS
    settings = _settings(sections["queues"]) if "queues" in sections else SwitchSettings()
    congestion = _congestion(sections)
    try:
        return EthernetTopology(topology, tuple(speeds), delay_ns, settings, congestion)
    except TopologyError as error:
        line = None
        if error.link is not None and "links" in sections:
            line = sections["links"].value[error.link].line
        raise TopologyError(error.reason, link=error.link, line=line) from None


def _speed(said: YamlValue) -> int:
    """Megabits a second."""
    text = scalar(said, "link")
    match = _SPEED.fullmatch(text)
    mbps = int(match[1]) * _UNITS[match[2]] if match is not None else 0
    if not LEAST_MBPS <= mbps <= MOST_MBPS:
        raise TopologyError(f"no speed of an Ethernet link is {text[:30]!r}; expected as in 25G or 100M",
                            line=said.line)  # fmt: skip
    return mbps


def _congestion(sections: dict[str, YamlValue]) -> bool:
    said = sections.get("congestion", YamlValue("off", 1))
    text = scalar(said, "congestion")
    if text not in ("off", "dcqcn"):
        raise TopologyError(f"congestion is {text[:30]!r}; expected off or dcqcn", line=said.line)
    return text == "dcqcn"


def _settings(said: YamlValue) -> SwitchSettings:
    readers = {
        "buffer": ("buffer_bytes", _count), "queue": ("queue_bytes", _count),
        "marking": ("marking", _marking), "pausing": ("pausing", _pausing),
    }  # fmt: skip
    return _made(SwitchSettings, said, "queues", readers)  # type: ignore[no-any-return]


def _marking(said: YamlValue, what: str) -> Marking | None:
    readers = {
        "least": ("least_bytes", _count), "most": ("most_bytes", _count),
        "probability": ("probability", _share),
    }  # fmt: skip
    return None if said.value == "none" else _made(Marking, said, what, readers)


def _pausing(said: YamlValue, what: str) -> Pausing | None:
    readers = {
        "off": ("off_bytes", _count), "on": ("on_bytes", _count), "quanta": ("quanta", _count),
        "priorities": ("priorities", _priorities),
    }  # fmt: skip
    return None if said.value == "none" else _made(Pausing, said, what, readers)


def _made(kind: Callable[..., Any], said: YamlValue, what: str, readers: dict[str, Any]) -> Any:
    """An object of what a mapping says; what is wrong with it is told with the line."""
    facts = mapping(said, what, tuple(readers))
    values = {readers[name][0]: readers[name][1](value, name) for name, value in facts.items()}
    try:
        return kind(**values)
    except ValueError as error:
        raise TopologyError(f"{what}: {error}", line=said.line) from None


def _count(said: YamlValue, what: str) -> int:
    return integer(said, what)


def _share(said: YamlValue, what: str) -> float:
    text = scalar(said, what)
    if re.fullmatch(r"[01](\.\d{1,9})?", text) is None:
        raise TopologyError(f"{what} is {text[:30]!r}; expected 0 to 1", line=said.line)
    return float(text)


def _priorities(said: YamlValue, what: str) -> tuple[int, ...]:
    found = said.value if isinstance(said.value, list) else [said]
    return tuple(integer(each, what) for each in found)
