"""What a subnet manager is to the others, as a literal table (IBTA vol. 1, 14.4.1).

All begin by *discovering* the fabric.  Who finds a master, or a manager that outranks it, is *standby* and
asks the master now and then whether it is still there; who finds neither is *master* and configures the
fabric.  A master that finds a standby of higher priority, or another master that outranks it, hands the
fabric over, and is standby when that has acknowledged.  A manager that is *not active* waits to be told
otherwise.  The managers of two fabrics that become one find each other in the same way.
"""

from __future__ import annotations

NOT_ACTIVE, DISCOVERING, STANDBY, MASTER = range(4)
"""States, by SMInfo's SMState (14.2.5.13)."""
STATES = (NOT_ACTIVE, DISCOVERING, STANDBY, MASTER)
NAMES = ("not active", "discovering", "standby", "master")

# what happens: the end of a discovery, time, and what other managers say (SMInfo's attribute modifiers)
ALONE = "alone"  # discovered: nobody is master or outranks this one
OUTRANKED = "outranked"  # discovered: another one is master, or outranks this one
SUCCESSOR = "successor"  # discovered: a standby of higher priority, or a master that outranks this one
LOST = "lost"  # the master does not answer, or is none
HANDOVER = "handover"
ACKNOWLEDGE = "acknowledge"
DISABLE = "disable"
BE_STANDBY = "standby"
DISCOVER = "discover"
EVENTS = (ALONE, OUTRANKED, SUCCESSOR, LOST, HANDOVER, ACKNOWLEDGE, DISABLE, BE_STANDBY, DISCOVER)
CONTROLS = {1: HANDOVER, 2: ACKNOWLEDGE, 3: DISABLE, 4: BE_STANDBY, 5: DISCOVER}
"""What a Set of SMInfo asks for, by its attribute modifier."""
CONTROL_NUMBERS = {event: number for number, event in CONTROLS.items()}

# what is done
SWEEP = "sweep"
CONFIGURE = "configure"
POLL = "poll"
HAND_OVER = "hand over"
CONFIRM = "confirm"
REST = "rest"

TABLE: dict[tuple[int, str], tuple[int, tuple[str, ...]]] = {
    (DISCOVERING, ALONE): (MASTER, (CONFIGURE,)),
    (DISCOVERING, OUTRANKED): (STANDBY, (POLL,)),
    (DISCOVERING, DISABLE): (NOT_ACTIVE, (REST,)),
    (STANDBY, LOST): (DISCOVERING, (SWEEP,)),
    (STANDBY, HANDOVER): (MASTER, (SWEEP, CONFIRM)),
    (STANDBY, DISABLE): (NOT_ACTIVE, (REST,)),
    (STANDBY, BE_STANDBY): (STANDBY, (POLL,)),
    (STANDBY, DISCOVER): (DISCOVERING, (SWEEP,)),
    (NOT_ACTIVE, BE_STANDBY): (STANDBY, (POLL,)),
    (MASTER, ALONE): (MASTER, (CONFIGURE,)),
    (MASTER, OUTRANKED): (MASTER, (CONFIGURE,)),
    (MASTER, SUCCESSOR): (MASTER, (HAND_OVER,)),
    (MASTER, HANDOVER): (MASTER, (SWEEP, CONFIRM)),
    (MASTER, ACKNOWLEDGE): (STANDBY, (POLL,)),
}
"""(state, event) -> the state then, and what is done in this order.  A pair that is not here changes nothing;
where it was a control, that is refused."""


def outranks(one: tuple[int, int], other: tuple[int, int]) -> bool:
    """Whether a manager (priority, GUID) comes before another: the higher priority, then the lower GUID."""
    return (one[0], -one[1]) > (other[0], -other[1])
