"""Automatic path migration (IBTA vol. 1, 17.2.8): a connection with a second path, to which it moves when the
first one fails.

A connected queue pair is *migrated*: it has one path.  Its consumer gives it an alternate path and asks to
*rearm*; from then on its packets say so (MigReq 0).  When the peer's packets say so too it is *armed*, and
moves to the alternate path when its retries are used up, when its port goes down, when the consumer
says so, or when a packet of the peer's that has moved (MigReq 1) comes along that path.  The former path is
forgotten: it, or another one, is the next alternate path when the consumer gives it.

A reliable end tells the peer of each step by an acknowledgement that nobody has asked for, so that an idle
connection is armed, and both ends move within one packet's time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from softhca.wire.route import Route

# states: ibv_mig_state
MIGRATED, REARMED, ARMED = 0, 1, 2
STATES = ("MIGRATED", "REARM", "ARMED")

# inputs
REARM = "rearm"
"""The consumer asks for it, with an alternate path."""
MOVE = "migrate"
"""The consumer says so."""
READY = "peer_rearmed"
"""A packet of the peer's has MigReq 0."""
FOLLOW = "peer_migrated"
"""A packet of the peer's with MigReq 1 has come along the alternate path."""
FAIL = "path_failed"
"""Retries are used up, or the own port is down."""
INPUTS = (REARM, MOVE, READY, FOLLOW, FAIL)
COMMANDS = (REARM, MOVE)

# what is done
NOTHING, TELL, MIGRATE = "", "tell the peer", "take the alternate path, tell the peer, event PATH_MIG"

TABLE: dict[tuple[int, str], tuple[int, str]] = {
    # (state, input): (next state, what is done)
    (MIGRATED, REARM): (REARMED, TELL),
    (MIGRATED, MOVE): (MIGRATED, NOTHING),
    (REARMED, REARM): (REARMED, TELL),
    (REARMED, READY): (ARMED, TELL),
    (ARMED, REARM): (REARMED, TELL),
    (ARMED, MOVE): (MIGRATED, MIGRATE),
    (ARMED, FOLLOW): (MIGRATED, MIGRATE),
    (ARMED, FAIL): (MIGRATED, MIGRATE),
}
"""A command for which there is no row is refused; what else has none changes nothing."""


@dataclass(frozen=True, slots=True)
class AlternatePath:
    """A path that is not in use: ``vector`` is its ``alt_ah_attr``, ``route`` what that means; from the own
    port ``port_number``, in the partition ``pkey`` (at ``pkey_index``), with the ``timeout`` of a retry.
    """

    vector: Mapping[str, Any]
    route: Route
    port_number: int
    pkey: int
    pkey_index: int
    timeout: int
