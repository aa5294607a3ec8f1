"""Instance numbers of connections: which connection between two end nodes a packet belongs to.

A queue pair that is connected again, with the same number and the same PSNs, takes late packets of its old
connection for new ones.  Between two ports of this package each connection therefore has a number, that of
the connection before plus one, which each of its packets carries in the 7 reserved bits of its BTH
(`softhca.wire.bth`); a packet with another number is of an old connection, and dropped.  Others know nothing
of it: their packets have 0 there, as the standard wants.

It is agreed upon by `BLOCK_BYTES` behind the program's private data in REQ (the offer) and in REP (what
holds), where the program leaves that room; without an answer there is no number.  Programs get private data
with zeros there.  Numbers are 1 … 127, and 1 comes after 127.
"""

from __future__ import annotations

import random
from collections import OrderedDict

INSTANCES = 127
MAX_PEERS = 4096
"""So many ports' numbers are remembered; the one that was used longest ago is forgotten first."""

BLOCK_BYTES = 8
_NAME = b"inst#"
_OFFER, _ANSWER = 1, 2
_SAME = INSTANCES // 2 + 1


def with_offer(private_data: bytes, instance: int) -> bytes | None:
    """REQ's private data with an offer; None: the program needs the room itself."""
    return _with(private_data, _OFFER, instance)


def with_answer(private_data: bytes, instance: int) -> bytes | None:
    """REP's private data with what holds; None likewise."""
    return _with(private_data, _ANSWER, instance)


def offer_of(private_data: bytes) -> int:
    """The number that REQ's private data offer; 0: none."""
    return _of(private_data, _OFFER)


def answer_of(private_data: bytes) -> int:
    """The number that REP's private data name; 0: none."""
    return _of(private_data, _ANSWER)


def without(private_data: bytes) -> bytes:
    """The private data as the program has written them, where they hold an offer or an answer."""
    return private_data[:-BLOCK_BYTES] + bytes(BLOCK_BYTES)


def _with(private_data: bytes, what: int, instance: int) -> bytes | None:
    if any(private_data[-BLOCK_BYTES:]):
        return None
    # name, a version that may grow, what it is, the number
    return private_data[:-BLOCK_BYTES] + _NAME + bytes((0, what, instance))


def _of(private_data: bytes, what: int) -> int:
    block = private_data[-BLOCK_BYTES:]
    if block[:-1] != _NAME + bytes((0, what)) or block[-1] > INSTANCES:
        return 0
    return block[-1]


class Instances:
    """The last number of each peer: ``place`` is a port's GID, or its LID where it has none."""

    def __init__(self, generator: random.Random) -> None:
        self._random = generator
        self._last: OrderedDict[bytes | int, int] = OrderedDict()

    def next(self, place: bytes | int) -> int:
        """A new number for a connection with a peer; any at first, for the peer may remember others."""
        last = self._last.get(place) or self._random.randint(1, INSTANCES)
        self._remember(place, last % INSTANCES + 1)
        return self._last[place]

    def agree(self, place: bytes | int, offered: int) -> int:
        """What holds, when a peer offers a number: that one, or where it is not newer than the last one here
        the next one here.
        """
        last = self._last.get(place)
        if last is not None and not 0 < (offered - last) % INSTANCES < _SAME:
            return self.next(place)
        self._remember(place, offered)
        return offered

    def agreed(self, place: bytes | int, instance: int) -> None:
        """The peer has answered: count on from there, if that is newer."""
        last = self._last.get(place)
        if last is None or 0 < (instance - last) % INSTANCES < _SAME:
            self._remember(place, instance)

    def _remember(self, place: bytes | int, instance: int) -> None:
        self._last[place] = instance
        self._last.move_to_end(place)
        if len(self._last) > MAX_PEERS:
            self._last.popitem(last=False)
