"""The states of a task, a command that a target has taken, as one literal table.

A task waits for its turn (DORMANT), reads the table of its data buffer where the message has not got it
(TABLE), reads its data from the host where they go to the disk (FETCHING), is performed, and then writes its
data and its response to the host (RESPONDING).  What its initiator aborts meanwhile moves nothing more, and
is gone when what is under way has ended (ABORTED); what somebody else aborts is answered then (CANCELLED).
"""

from __future__ import annotations

DORMANT = "DORMANT"
TABLE = "TABLE"
FETCHING = "FETCHING"
RESPONDING = "RESPONDING"
ABORTED = "ABORTED"
CANCELLED = "CANCELLED"
GONE = "GONE"
STATES = (DORMANT, TABLE, FETCHING, RESPONDING, ABORTED, CANCELLED, GONE)

# inputs
NEEDS_TABLE = "needs its table"
NEEDS_DATA = "needs its data"
READY = "ready"
REFUSE = "refuse"
ABORT = "abort"
CANCEL = "cancel"
MOVED = "moved"
INPUTS = (NEEDS_TABLE, NEEDS_DATA, READY, REFUSE, ABORT, CANCEL, MOVED)
"""It is its turn, or what it waited for is there, and it needs its table, or its data, or nothing more; its
descriptors cannot be; its initiator aborts it, or another one; all that was under way for it has ended.
"""

# what is done
READ_TABLE = "read the table"
READ_DATA = "read the data"
PERFORM = "perform, respond"
ANSWER_INVALID = "respond: request fields invalid"
ANSWER_ABORTED = "respond: TASK ABORTED"
DROP = "drop what is not under way"
NOTHING = ""

TRANSITIONS: dict[tuple[str, str], tuple[str, str]] = {
    # (state, input): (next state, done)
    (DORMANT, NEEDS_TABLE): (TABLE, READ_TABLE),
    (DORMANT, NEEDS_DATA): (FETCHING, READ_DATA),
    (DORMANT, READY): (RESPONDING, PERFORM),
    (DORMANT, REFUSE): (RESPONDING, ANSWER_INVALID),
    (DORMANT, ABORT): (GONE, NOTHING),
    (DORMANT, CANCEL): (RESPONDING, ANSWER_ABORTED),
    (TABLE, NEEDS_DATA): (FETCHING, READ_DATA),
    (TABLE, READY): (RESPONDING, PERFORM),
    (TABLE, REFUSE): (RESPONDING, ANSWER_INVALID),
    (TABLE, ABORT): (ABORTED, DROP),
    (TABLE, CANCEL): (CANCELLED, DROP),
    (FETCHING, READY): (RESPONDING, PERFORM),
    (FETCHING, ABORT): (ABORTED, DROP),
    (FETCHING, CANCEL): (CANCELLED, DROP),
    (RESPONDING, ABORT): (RESPONDING, NOTHING),
    (RESPONDING, CANCEL): (RESPONDING, NOTHING),
    (RESPONDING, MOVED): (GONE, NOTHING),
    (ABORTED, ABORT): (ABORTED, NOTHING),
    (ABORTED, CANCEL): (ABORTED, NOTHING),
    (ABORTED, MOVED): (GONE, NOTHING),
    (CANCELLED, ABORT): (ABORTED, NOTHING),
    (CANCELLED, CANCEL): (CANCELLED, NOTHING),
    (CANCELLED, MOVED): (RESPONDING, ANSWER_ABORTED),
}
"""An input for which there is no row cannot come: `step` raises KeyError."""

PERFORMED = frozenset({RESPONDING, ABORTED, CANCELLED, GONE})
"""States in which a task does nothing to the disk any more: what waits for it may begin."""


def step(state: str, given: str) -> tuple[str, str]:
    """The next state, and what is to be done."""
    return TRANSITIONS[state, given]
