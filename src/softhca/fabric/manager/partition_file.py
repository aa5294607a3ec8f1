"""Partitions from a file in the form of OpenSM's ``partitions.conf``, as far as it says who is a member.

``[NAME][=P_KEY][,indx0][,defmember=full|limited] : MEMBER[=full|limited], … ;`` with comments from ``#`` to
the end of the line.  A member is a port's GUID, ``ALL``, ``ALL_CAS``, ``ALL_SWITCHES``, ``ALL_ROUTERS``,
``SELF`` (the manager's port), or, beyond OpenSM, a node's name with or without its port (``h3``, ``h3[2]``).
A P_Key that stands there several times is one partition; who is named as a full member is one.  A partition
named ``Default`` has the P_Key 0x7FFF; a file without a rule for that makes all its limited members and the
manager a full one.  What would be a port that is both, a multicast group or a flag of one is refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from softhca.fabric.manager.partitions import DEFAULT_BASE, FULL_MEMBER, Partition
from softhca.fabric.topology import NodeKind, Topology
from softhca.machine.arguments import check_kind

MAX_BYTES = 4 << 20
MOST_PARTITIONS = 4096
FULL, LIMITED = "full", "limited"
_DEFAULT_NAME = "default"
_NUMBER = re.compile(r"0[xX][0-9a-fA-F]{1,16}|[0-9]{1,20}")
_PORT = re.compile(r"(.+)\[(\d{1,3})\]")
_GROUPS = {
    "ALL_CAS": NodeKind.CHANNEL_ADAPTER,
    "ALL_SWITCHES": NodeKind.SWITCH,
    "ALL_ROUTERS": NodeKind.ROUTER,
}


class PartitionFileError(ValueError):
    """What a file says that cannot be, with its line."""


@dataclass
class _Members:
    full: set[int] = field(default_factory=set)
    limited: set[int] = field(default_factory=set)


def read_partitions(text: str, topology: Topology, manager_guid: int) -> tuple[Partition, ...]:
    """The partitions of a fabric whose manager is at the port ``manager_guid``.  PartitionFileError: what the
    text says cannot be; TypeError: what is no text or topology."""
    check_kind(topology, Topology, "topology")
    ports = _Ports(topology, manager_guid)
    found: dict[int, _Members] = {}
    nameless: list[tuple[int, str, str]] = []
    for line, definition, members in _rules(text):
        pkey, membership = _definition(line, definition)
        if pkey is None:
            nameless.append((line, membership, members))
        else:
            _add(found.setdefault(pkey, _Members()), ports, line, membership, members)
        if len(found) + len(nameless) > MOST_PARTITIONS:
            raise PartitionFileError(f"line {line}: more than {MOST_PARTITIONS} partitions")
    free = (number for number in range(1, DEFAULT_BASE + 1) if number not in found)
    for line, membership, members in nameless:  # each is a partition of its own
        _add(found.setdefault(next(free), _Members()), ports, line, membership, members)
    if DEFAULT_BASE not in found:
        found[DEFAULT_BASE] = _Members({manager_guid}, set(ports.of(0, "ALL")))
    return tuple(
        Partition(pkey, frozenset(each.full), frozenset(each.limited - each.full))
        for pkey, each in sorted(found.items())
    )


def _rules(text: str) -> Iterator[tuple[int, str, str]]:
    """Line, definition and members of each rule."""
    check_kind(text, str, "text of partitions")
    *rules, rest = "\n".join(line.split("#", 1)[0] for line in text.split("\n")).split(";")
    line = 1
    for rule in rules:
        first = line + rule[: len(rule) - len(rule.lstrip())].count("\n")
        line += rule.count("\n")
        if not rule.strip():
            continue
        definition, *flags = rule.split(":")
        if not flags:
            raise PartitionFileError(f"line {first}: no ':' in {rule.strip()[:60]!r}")
        members = flags.pop()
        yield first, ",".join([definition, *flags]), members
    if rest.strip():
        line += rest[: len(rest) - len(rest.lstrip())].count("\n")
        raise PartitionFileError(f"line {line}: no ';' behind {rest.strip()[:60]!r}")


def _definition(line: int, text: str) -> tuple[int | None, str]:
    """P_Key (None: none is said) and the membership of who says none himself."""
    name, *flags = (word.strip() for word in text.split(","))
    name, equals, number = (part.strip() for part in name.partition("="))
    pkey: int | None = None
    if equals:
        pkey = _number(line, number) & ~FULL_MEMBER
        if not 0 < pkey <= DEFAULT_BASE:
            raise PartitionFileError(f"line {line}: {number} is no P_Key")
    elif name.lower() == _DEFAULT_NAME:
        pkey = DEFAULT_BASE
    membership = LIMITED
    for flag in filter(None, flags):
        key, _, value = (part.strip() for part in flag.partition("="))
        if key == "defmember" and value in (FULL, LIMITED):
            membership = value
        elif key != "indx0" or pkey != DEFAULT_BASE:  # the default partition's key is the first in any case
            raise PartitionFileError(f"line {line}: {flag[:40]!r} is not supported")
    return pkey, membership


def _number(line: int, text: str) -> int:
    if not _NUMBER.fullmatch(text):
        raise PartitionFileError(f"line {line}: {text[:40]!r} is no number")
    return int(text, 16 if text[:2].lower() == "0x" else 10)


def _add(members: _Members, ports: _Ports, line: int, membership: str, text: str) -> None:
    for part in filter(None, (part.strip() for part in text.split(","))):
        who, equals, said = (word.strip() for word in part.partition("="))
        if equals and said not in (FULL, LIMITED):
            raise PartitionFileError(f"line {line}: {part[:40]!r} is not supported: expected full or limited")
        is_full = (said or membership) == FULL
        (members.full if is_full else members.limited).update(ports.of(line, who))


class _Ports:
    """The GUIDs of ports that are addressed, by what a file calls them."""

    def __init__(self, topology: Topology, manager_guid: int) -> None:
        self._topology = topology
        self._manager = manager_guid
        self._kinds: dict[NodeKind, list[int]] = {kind: [] for kind in NodeKind}
        for node in topology.nodes:
            self._kinds[node.kind] += [node.port_guid(port) for port in node.addressed_ports]
        self._guids = {guid for guids in self._kinds.values() for guid in guids}

    def of(self, line: int, word: str) -> list[int]:
        """The ports that a word means.  PartitionFileError: none."""
        if word == "ALL":
            return list(self._guids)
        if word == "SELF":
            return [self._manager]
        if word in _GROUPS:
            return self._kinds[_GROUPS[word]]
        if _NUMBER.fullmatch(word):
            guid = _number(line, word)
            if guid not in self._guids:
                raise PartitionFileError(f"line {line}: no port has the GUID {guid:#018x}")
            return [guid]
        return self._named(line, word)

    def _named(self, line: int, word: str) -> list[int]:
        match = _PORT.fullmatch(word)
        for name, port in ((word, None), (match[1], int(match[2])) if match else (word, None)):
            try:
                node = self._topology.nodes[self._topology.index(name)]
            except KeyError:
                continue
            ports = node.addressed_ports
            if port is None:
                return [node.port_guid(each) for each in ports]
            if port in ports:
                return [node.port_guid(port)]
        raise PartitionFileError(f"line {line}: no port is called {word[:40]!r}")
