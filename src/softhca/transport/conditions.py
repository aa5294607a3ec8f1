"""What a sender waits for, and what has come back to it, as literal tables.

A sender is in one *condition*.  It is `READY` when it has asked for a turn or has one.  A turn ends in
another condition where something forbids the next packet (`IDLE`: there is no request), or in `READY` again
where only the burst is full.  Every other event either ends the wait, so that the sender asks for a turn, or
means nothing to it: that is a cell of `CONDITIONS`.  Who has a place in the window's queue when a wait ends
goes on waiting for room.  Whose peer is not ready, or whose answer found no place, sends nothing in any turn.

A requester that hears of a loss goes back once; what it hears of the same packets before there is progress
says nothing new.  How far that goes is its *recovery*, the second table (IBTA vol. 1, 9.7.5.2.6 to
9.7.5.2.8).

Unreliable senders are `IDLE`, `READY`, or wait for `WINDOW` or `MEMORY`.
"""

from __future__ import annotations

from typing import NamedTuple

IDLE = 0
READY = 1
WINDOW = 2
READS = 3
CREDITS = 4
ORDER = 5
MEMORY = 6
STALLED = 7
NOT_READY = 8
UNPLACED = 9


class Condition(NamedTuple):
    """One condition: ``waits_for`` in words, and what ends it.

    ``transmits``: in a turn packets may go.  ``doorbell``: there are new work requests; ``answer``: something
    new is acknowledged, or credits come with it; ``credits``: the peer at rest grants new ones;
    ``go_back``: packets are to go again; ``memory``: what was held may be there; ``delay``: that of an RNR
    NAK is over; ``persist``: so is the persist timer; ``stall``: so is the wait of a sender that is stalled;
    ``path``: the destination changes.
    """

    name: str
    waits_for: str
    transmits: bool = True
    doorbell: bool = False
    answer: bool = False
    credits: bool = True
    go_back: bool = True
    memory: bool = False
    delay: bool = False
    persist: bool = False
    stall: bool = False
    path: bool = False


CONDITIONS: tuple[Condition, ...] = (
    Condition("IDLE", "a work request", doorbell=True),
    Condition("READY", "its turn", doorbell=True),
    Condition("WINDOW", "room in the destination's window", answer=True, persist=True, path=True),
    Condition("READS", "answers to RDMA READs and atomics: there are max_rd_atomic, or a fence", answer=True),
    Condition("CREDITS", "a receive of the peer", answer=True),
    Condition("ORDER", "the end of all that is before the next request", answer=True),
    Condition("MEMORY", "held memory that the next packet comes from", answer=True, memory=True),
    Condition(
        "STALLED",
        "a sign of life: the window has given up what is in flight",
        answer=True,
        stall=True,
        path=True,
    ),
    Condition(
        "NOT_READY",
        "the end of an RNR NAK's delay",
        transmits=False,
        credits=False,
        go_back=False,
        delay=True,
    ),
    Condition(
        "UNPLACED",
        "held memory that an answer goes to",
        transmits=False,
        credits=False,
        go_back=False,
        memory=True,
    ),
)

EVENTS: tuple[str, ...] = (
    "doorbell", "answer", "credits", "go_back", "memory", "delay", "persist", "stall", "path",
)  # fmt: skip

FRESH = 0
SENT_AGAIN = 1
REFUSED = 2
REFUSED_AGAIN = 3
ANSWERED = 4
"""By an answer that found no place: the others of that time may come while it is asked for again."""


class Recovery(NamedTuple):
    """What became of the oldest packets since something new was answered, and which news of them are new.

    ``implied_nak``, ``sequence_nak``: one makes the requester go back; ``rnr_nak``: one begins a delay though
    nothing has gone again.  ``lost``, ``refused``: what follows when they go again for a loss, or wait for
    the delay of an RNR NAK; ``other``: when they go again for another reason.  Progress leads to `FRESH`.
    """

    name: str
    implied_nak: bool
    sequence_nak: bool
    rnr_nak: bool
    lost: int
    refused: int
    other: int


RECOVERIES: tuple[Recovery, ...] = (
    Recovery("FRESH", True, True, True, lost=SENT_AGAIN, refused=REFUSED, other=FRESH),
    Recovery("SENT_AGAIN", False, False, True, lost=SENT_AGAIN, refused=REFUSED, other=FRESH),
    Recovery("REFUSED", True, False, False, lost=REFUSED_AGAIN, refused=REFUSED, other=REFUSED),
    Recovery("REFUSED_AGAIN", False, False, True, lost=REFUSED_AGAIN, refused=REFUSED, other=REFUSED),
    Recovery("ANSWERED", False, True, True, lost=SENT_AGAIN, refused=REFUSED, other=ANSWERED),
)


def conditions_that(what: str) -> int:
    """A bit for each condition whose column ``what`` says yes."""
    return sum(1 << number for number, row in enumerate(CONDITIONS) if getattr(row, what))


def recoveries_that(what: str) -> int:
    """A bit for each recovery whose column ``what`` says yes."""
    return sum(1 << number for number, row in enumerate(RECOVERIES) if getattr(row, what))
