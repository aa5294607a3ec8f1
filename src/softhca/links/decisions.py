"""What befell single packets of links, as a list: taken down while dice fall, or repeated in their place.

``1>2#17:lost`` is one decision: the 17th packet from adapter 1 to 2 was lost.  A list is such words with
commas; `parse_decisions` reads it, ``str()`` of a decision writes one word.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from softhca.links.faults import MAX_ADAPTER, FaultsError

LOST, DELAYED, REORDERED, DUPLICATED, TRUNCATED, CORRUPTED = (
    "lost", "delayed", "reordered", "duplicated", "truncated", "corrupted",
)  # fmt: skip
KINDS = (LOST, DELAYED, REORDERED, DUPLICATED, TRUNCATED, CORRUPTED)
EXAMPLES = {
    LOST: "1>2#17:lost",
    DELAYED: "1>2#17:delayed+300ns",
    REORDERED: "1>2#17:reordered+3200ns",
    DUPLICATED: "1>2#17:duplicated+3200ns",
    TRUNCATED: "1>2#17:truncated@40B",
    CORRUPTED: "1>2#17:corrupted@96+1003",
}
_TIMED = (DELAYED, REORDERED, DUPLICATED)
_HIGHEST_PACKET = 10**9
_LONGEST_NS = 10**10
_LONGEST_BYTES = 1 << 16
_MOST_BITS = 64
_HEAD_BYTES = 64


class Decision(NamedTuple):
    """The ``packet``-th packet (from 1) from adapter ``source`` to ``destination`` suffered ``kind``.

    ``values``: of a delayed, reordered or duplicated packet how many nanoseconds later (it or its copy)
    arrives; of a truncated one how many bytes are left; of a corrupted one which bits flipped, counted from
    the lowest of the first byte; of a lost one nothing.
    """

    source: int
    destination: int
    packet: int
    kind: str
    values: tuple[int, ...] = ()

    def __str__(self) -> str:
        text = f"{self.source}>{self.destination}#{self.packet}:{self.kind}"
        if self.kind in _TIMED:
            return f"{text}+{self.values[0]}ns"
        if self.kind == TRUNCATED:
            return f"{text}@{self.values[0]}B"
        return f"{text}@{'+'.join(map(str, self.values))}" if self.kind == CORRUPTED else text


class TooManyPackets(Exception):
    """The links of a script have carried as many packets as they may."""


class Script:
    """The decisions of all links of a world.

    Without ``repeat`` the dice decide, and what they decide is in ``taken``, in the order in which it
    happened.  With ``repeat`` no die falls: these packets suffer this and all others pass; ``taken`` then
    holds those that met a packet.  ``heads`` has the first bytes of each packet that something befell.
    ``most_packets``, where links repeat: one more is `TooManyPackets`.
    """

    def __init__(
        self, repeat: Iterable[Decision] | None = None, most_packets: int = _HIGHEST_PACKET
    ) -> None:
        self.packets_left = most_packets
        self.taken: list[Decision] = []
        self.heads: dict[tuple[int, int, int], bytes] = {}
        self._repeat: dict[tuple[int, int], dict[int, list[Decision]]] | None = None
        if repeat is not None:
            self._repeat = {}
            for decision in repeat:
                link = self._repeat.setdefault((decision.source, decision.destination), {})
                link.setdefault(decision.packet, []).append(decision)

    def of_link(self, source: int, destination: int) -> dict[int, list[Decision]] | None:
        """What is to be repeated on one direction of a link, by packet; None when the dice decide."""
        return None if self._repeat is None else self._repeat.get((source, destination), {})

    @property
    def damages(self) -> bool:
        """Whether it repeats damage to bytes of packets."""
        repeated = (self._repeat or {}).values()
        decisions = (one for link in repeated for found in link.values() for one in found)
        return any(one.kind in (TRUNCATED, CORRUPTED) for one in decisions)

    def pass_packet(self) -> None:
        """One more packet on a link that repeats."""
        if not self.packets_left:
            raise TooManyPackets
        self.packets_left -= 1

    def take(self, decision: Decision, data: bytes) -> None:
        """It befell the packet ``data``."""
        self.taken.append(decision)
        self.heads[decision[:3]] = data[:_HEAD_BYTES]


def parse_decisions(text: str) -> list[Decision]:
    """The decisions of ``word,word,…``; FaultsError, one line that names the bad word, when one cannot be."""
    return [_parse(word) for word in filter(None, (part.strip() for part in text.split(",")))]


def _parse(word: str) -> Decision:
    head = re.fullmatch(r"([0-9]{1,3})>([0-9]{1,3})#([0-9]{1,10}):([a-z]+)(.*)", word)
    if head is None:
        raise FaultsError(f"{word[:80]!r} is no decision: expected something like {EXAMPLES[LOST]}")
    source, destination, packet = int(head[1]), int(head[2]), int(head[3])
    kind, rest = head[4], head[5]
    if kind not in KINDS:
        raise FaultsError(f"{word[:80]!r}: unknown {kind!r}, expected one of {', '.join(KINDS)}")
    for number in (source, destination):
        if not 1 <= number <= MAX_ADAPTER:
            raise FaultsError(f"{word[:80]!r}: adapter {number} is not 1…{MAX_ADAPTER}")
    if not 1 <= packet <= _HIGHEST_PACKET:
        raise FaultsError(f"{word[:80]!r}: packet {packet} is not 1…{_HIGHEST_PACKET}")
    values = _values(kind, rest)
    if values is None:
        raise FaultsError(f"{word[:80]!r}: expected something like {EXAMPLES[kind]}")
    return Decision(source, destination, packet, kind, values)


def _values(kind: str, text: str) -> tuple[int, ...] | None:
    """The numbers of a decision; None when they are not what its kind needs."""
    if kind == LOST:
        return None if text else ()
    if kind == CORRUPTED:
        if not re.fullmatch(r"@[0-9]{1,6}(\+[0-9]{1,6})*", text):
            return None
        bits = tuple(int(bit) for bit in text[1:].split("+"))
        good = len(set(bits)) == len(bits) <= _MOST_BITS and max(bits) < 8 * _LONGEST_BYTES
        return bits if good else None
    match = re.fullmatch(r"@([0-9]{1,6})B" if kind == TRUNCATED else r"\+([0-9]{1,11})ns", text)
    if match is None or int(match[1]) > (_LONGEST_BYTES if kind == TRUNCATED else _LONGEST_NS):
        return None
    return (int(match[1]),)
