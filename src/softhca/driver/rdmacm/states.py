"""What an identifier may do, and what becomes of it: librdmacm's states as a literal table.

An *active* identifier resolves an address and a route, asks for a connection, and is answered; a *listening*
one makes a *passive* one for each request, which the program accepts or rejects.  Addresses and routes are
resolved at once (on RoCEv2 the kernel does it for each packet), so that there is no state in between.

    active    IDLE → BOUND → RESOLVED → ROUTED → CONNECTING → (RESPONDED →) CONNECTED → CLOSING → …
    passive   REQUESTED → ACCEPTED → CONNECTED → CLOSING → DISCONNECTED → CLOSED
    listening IDLE → BOUND → LISTENING

RESPONDED is passed through where the identifier has the queue pair; where the program has it, the program
says when it is ready (`ESTABLISH`).  A datagram identifier is CONNECTED as soon as it is accepted, and is
not disconnected.  DISCONNECTED: the connection has ended, and its time-wait goes on.  CLOSED: no connection
any more, or none has come about.  REMOVED: the adapter of its device has gone.
"""

from __future__ import annotations

import errno

from softhca.driver.errors import DriverError

IDLE, BOUND, RESOLVED, ROUTED, CONNECTING, RESPONDED = range(6)
REQUESTED, ACCEPTED, CONNECTED, CLOSING, CLOSED, LISTENING, DISCONNECTED, REMOVED = range(6, 14)
STATES = (
    "IDLE", "BOUND", "RESOLVED", "ROUTED", "CONNECTING", "RESPONDED", "REQUESTED", "ACCEPTED", "CONNECTED",
    "CLOSING", "CLOSED", "LISTENING", "DISCONNECTED", "REMOVED",
)  # fmt: skip

# what the program asks for
BIND, RESOLVE_ADDRESS, RESOLVE_ROUTE, LISTEN, CONNECT, ACCEPT, REJECT, ESTABLISH, DISCONNECT, JOIN = range(10)
# what comes from the peer, or from the connection manager
RESPONSE, READY, REFUSAL, UNREACHABLE, GOODBYE, GONE, OVER, REMOVAL = range(10, 18)
INPUTS = (
    "bind", "resolve address", "resolve route", "listen", "connect", "accept", "reject", "establish",
    "disconnect", "join multicast", "response", "ready to use", "refusal", "unreachable",
    "disconnect request", "disconnected", "time-wait over", "device removal",
)  # fmt: skip

TRANSITIONS: dict[int, dict[int, int]] = {
    IDLE: {BIND: BOUND, RESOLVE_ADDRESS: RESOLVED, LISTEN: LISTENING},
    BOUND: {RESOLVE_ADDRESS: RESOLVED, LISTEN: LISTENING, JOIN: BOUND, REMOVAL: REMOVED},
    RESOLVED: {RESOLVE_ROUTE: ROUTED, JOIN: RESOLVED, REMOVAL: REMOVED},
    ROUTED: {CONNECT: CONNECTING, JOIN: ROUTED, REMOVAL: REMOVED},
    CONNECTING: {
        RESPONSE: RESPONDED, REFUSAL: CLOSED, UNREACHABLE: CLOSED, DISCONNECT: CLOSED, REMOVAL: REMOVED,
    },
    RESPONDED: {
        ESTABLISH: CONNECTED, REJECT: CLOSED, DISCONNECT: CLOSED, REFUSAL: CLOSED, UNREACHABLE: CLOSED,
        GOODBYE: DISCONNECTED, REMOVAL: REMOVED,
    },
    REQUESTED: {ACCEPT: ACCEPTED, REJECT: CLOSED, REFUSAL: CLOSED, UNREACHABLE: CLOSED, REMOVAL: REMOVED},
    ACCEPTED: {
        READY: CONNECTED, REFUSAL: CLOSED, UNREACHABLE: CLOSED, GOODBYE: DISCONNECTED, DISCONNECT: CLOSING,
        REMOVAL: REMOVED,
    },
    CONNECTED: {
        DISCONNECT: CLOSING, GOODBYE: DISCONNECTED, GONE: DISCONNECTED, JOIN: CONNECTED, REMOVAL: REMOVED,
    },
    CLOSING: {GOODBYE: DISCONNECTED, GONE: DISCONNECTED, DISCONNECT: CLOSING, REMOVAL: REMOVED},
    DISCONNECTED: {DISCONNECT: DISCONNECTED, OVER: CLOSED, REMOVAL: REMOVED},
    CLOSED: {DISCONNECT: CLOSED, REMOVAL: REMOVED},
    LISTENING: {REMOVAL: REMOVED},
    REMOVED: {DISCONNECT: REMOVED},
}  # fmt: skip
"""The state after an input.  What is not there cannot be: a program is refused, a message means nothing."""

ENDED = frozenset({CLOSED, DISCONNECTED, REMOVED})
"""States in which there is no connection to end."""


def after(state: int, asked: int) -> int:
    """The state after what the program asks for; DriverError EINVAL where it cannot be."""
    found = TRANSITIONS[state].get(asked)
    if found is None:
        raise DriverError(errno.EINVAL, f"{INPUTS[asked]}: the identifier is {STATES[state]}")
    return found


def on_message(state: int, message: int) -> int | None:
    """The state after a message; None where it means nothing in this state."""
    return TRANSITIONS[state].get(message)
