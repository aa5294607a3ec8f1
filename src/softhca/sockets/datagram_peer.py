"""What a datagram socket knows of one address."""

from __future__ import annotations

from collections.abc import Callable

from softhca.sockets.datagram_credits import Address
from softhca.sockets.datagram_port import DatagramPort, PeerPath
from softhca.sockets.datagram_state import Claim

Decided = Callable[[bool], object]
"""Is told whether a claim is true."""


class Peer:
    """One address: how it is reached (``way``, None: by the kernel), since when that is known.

    ``asking``: it is asked how this side may send to it, and is to believe who does; ``checking``: it is
    asked only which queue pair it has, which waits for nobody.  ``claims`` wait for the latter alone: two
    that ask each other at once would otherwise wait for one another.
    """

    def __init__(self, host: str, key: Address) -> None:
        self.host = host
        self.key = key
        self.way: PeerPath | None = None
        self.since_s = self.checked_s = 0.0
        self.asking = self.checking = self.asked = False
        self.claims: list[tuple[DatagramPort, Claim, Decided]] = []


def agrees(way: PeerPath | None, claim: Claim) -> bool:
    """Whether who names itself so is the queue pair to which ``way`` leads."""
    return way is not None and (way.found.gid, way.found.qp_num) == claim.source
