"""Requests that must not succeed: each is wrong in one thing, and ends as the standard has it.

IBTA vol. 1, 9.7.4.1 and 9.9 (errors of the responder), 10.7 and 11.6.2 (completion statuses).
"""

from __future__ import annotations

from dataclasses import dataclass

from softhca.simulation.arena import FOREIGN, OPEN, PRIVATE, READ_ONLY, REVOKED
from softhca.simulation.kinds import (
    ADD,
    LOCAL_LENGTH,
    LOCAL_OPERATION,
    LOCAL_PROTECTION,
    READ,
    REMOTE_ACCESS,
    REMOTE_INVALID,
    REMOTE_OPERATION,
    SEND,
    SWAP,
    WRITE,
    WRITE_IMM,
)

INSIDE, BEYOND, BEFORE, FAR, MISALIGNED = "inside", "beyond", "before", "far", "misaligned"
"""Where in the region: inside; the last byte behind its end; the first byte before its start; 2^32 or 2^63
away; not at a multiple of 8."""

REMOTE, LOCAL, RECEIVE, QUEUE_PAIR, HANDLE = "remote", "local", "receive", "queue pair", "handle"
"""What is wrong: the peer's memory that the request names; the own memory; the peer's memory that its receive
names; a right that the peer's queue pair does not give; the address handle."""


@dataclass(frozen=True, slots=True)
class Violation:
    """``kind`` of request; ``status`` of its completion; ``receive_status`` of the receive it uses, or 0."""

    kind: str
    status: int
    side: str = REMOTE
    region: str = OPEN
    place: str = INSIDE
    wrong_key: bool = False
    too_long: bool = False
    receive_status: int = 0

    def __str__(self) -> str:
        key = ", wrong key" if self.wrong_key else ""
        long = ", too long" if self.too_long else ""
        return f"{self.kind} {self.place} the {self.side} {self.region} region{key}{long}"


def _remote(kind: str) -> list[Violation]:
    places = [Violation(kind, REMOTE_ACCESS, region=OPEN, place=place) for place in (BEYOND, BEFORE, FAR)]
    regions = {READ: (PRIVATE,), WRITE: (PRIVATE, READ_ONLY), WRITE_IMM: (PRIVATE, READ_ONLY)}
    without_right = regions.get(kind, (PRIVATE, READ_ONLY))
    return [
        *places,
        Violation(kind, REMOTE_ACCESS, wrong_key=True),
        *(Violation(kind, REMOTE_ACCESS, region=region) for region in (FOREIGN, REVOKED, *without_right)),
    ]


RELIABLE: tuple[Violation, ...] = (
    *(violation for kind in (WRITE, WRITE_IMM, READ, ADD, SWAP) for violation in _remote(kind)),
    *(Violation(kind, REMOTE_INVALID, place=MISALIGNED) for kind in (ADD, SWAP)),
    *(
        Violation(kind, LOCAL_PROTECTION, LOCAL, region, place, wrong_key)
        for kind in (SEND, WRITE, READ)
        for region, place, wrong_key in (
            (OPEN, BEYOND, False), (OPEN, BEFORE, False), (OPEN, INSIDE, True), (FOREIGN, INSIDE, False),
            (REVOKED, INSIDE, False),
        )
    ),
    Violation(READ, LOCAL_PROTECTION, LOCAL, READ_ONLY),
    Violation(SEND, REMOTE_INVALID, RECEIVE, too_long=True, receive_status=LOCAL_LENGTH),
    *(
        Violation(SEND, REMOTE_OPERATION, RECEIVE, region, place, wrong_key, receive_status=LOCAL_PROTECTION)
        for region, place, wrong_key in (
            (OPEN, BEYOND, False), (OPEN, INSIDE, True), (FOREIGN, INSIDE, False), (READ_ONLY, INSIDE, False),
            (REVOKED, INSIDE, False),
        )
    ),
    *(Violation(kind, REMOTE_INVALID, QUEUE_PAIR) for kind in (WRITE, WRITE_IMM, READ, ADD, SWAP)),
)  # fmt: skip
"""Of a reliable connection."""

UNRELIABLE: tuple[Violation, ...] = (
    *(
        Violation(violation.kind, 0, REMOTE, violation.region, violation.place, violation.wrong_key)
        for kind in (WRITE, WRITE_IMM)
        for violation in _remote(kind)
    ),
    *(Violation(kind, 0, QUEUE_PAIR) for kind in (WRITE, WRITE_IMM)),
    *(violation for violation in RELIABLE if violation.side == LOCAL and violation.kind in (SEND, WRITE)),
)
"""Of an unreliable connection: the responder is silent, and the requester hears of nothing."""

DATAGRAM: tuple[Violation, ...] = (
    Violation(SEND, LOCAL_LENGTH, LOCAL, too_long=True),
    Violation(SEND, LOCAL_OPERATION, HANDLE, FOREIGN),
    *(violation for violation in RELIABLE if violation.side == LOCAL and violation.kind == SEND),
)
"""Of datagrams: what is longer than the path carries, and another domain's address handle."""
