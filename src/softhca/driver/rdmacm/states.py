"""What an identifier may do, and what becomes of it: librdmacm's states as a literal table.

An *active* identifier resolves an address and a route, asks for a connection, and is answered; a *listening*
one makes a *passive* one for each request, which the program accepts or rejects.  Addresses and routes are
resolved at once (on RoCEv2 the kernel does it for each packet), so that there is no state in between.

    active    IDLE → BOUND → RESOLVED → ROUTED → CONNECTING → (RESPONDED →) CONNECTED → CLOSING → CLOSED
    passive   REQUESTED → ACCEPTED → CONNECTED → CLOSING → CLOSED
    listening IDLE → BOUND → LISTENING

RESPONDED is passed through where the identifier has the queue pair; where the program has it, the program
says when it is ready (`ESTABLISH`).  A datagram identifier is CONNECTED as soon as it is accepted, and is
not disconnected.  CLOSED: no connection any more, or none has come about.
"""

from __future__ import annotations

import errno

from softhca.driver.errors import DriverError

IDLE, BOUND, RESOLVED, ROUTED, CONNECTING, RESPONDED = range(6)
REQUESTED, ACCEPTED, CONNECTED, CLOSING, CLOSED, LISTENING = range(6, 12)
STATES = (
    "IDLE", "BOUND", "RESOLVED", "ROUTED", "CONNECTING", "RESPONDED", "REQUESTED", "ACCEPTED", "CONNECTED",
    "CLOSING", "CLOSED", "LISTENING",
)  # fmt: skip

# what the program asks for
BIND, RESOLVE_ADDRESS, RESOLVE_ROUTE, LISTEN, CONNECT, ACCEPT, REJECT, ESTABLISH, DISCONNECT, JOIN = range(10)
# what comes from the peer, or from the connection manager
RESPONSE, READY, REFUSAL, UNREACHABLE, GOODBYE, GONE = range(10, 16)
INPUTS = (
    "bind", "resolve address", "resolve route", "listen", "connect", "accept", "reject", "establish",
    "disconnect", "join multicast", "response", "ready to use", "refusal", "unreachable",
    "disconnect request", "disconnected",
)  # fmt: skip

TRANSITIONS: dict[int, dict[int, int]] = {
    IDLE: {BIND: BOUND, RESOLVE_ADDRESS: RESOLVED, LISTEN: LISTENING},
    BOUND: {RESOLVE_ADDRESS: RESOLVED, LISTEN: LISTENING, JOIN: BOUND},
    RESOLVED: {RESOLVE_ROUTE: ROUTED, JOIN: RESOLVED},
    ROUTED: {CONNECT: CONNECTING, JOIN: ROUTED},
    CONNECTING: {RESPONSE: RESPONDED, REFUSAL: CLOSED, UNREACHABLE: CLOSED, DISCONNECT: CLOSED},
    RESPONDED: {
        ESTABLISH: CONNECTED, REJECT: CLOSED, DISCONNECT: CLOSED, REFUSAL: CLOSED, UNREACHABLE: CLOSED,
        GOODBYE: CLOSED,
    },
    REQUESTED: {ACCEPT: ACCEPTED, REJECT: CLOSED, REFUSAL: CLOSED, UNREACHABLE: CLOSED},
    ACCEPTED: {
        READY: CONNECTED, REFUSAL: CLOSED, UNREACHABLE: CLOSED, GOODBYE: CLOSED, DISCONNECT: CLOSING,
    },
    CONNECTED: {DISCONNECT: CLOSING, GOODBYE: CLOSED, GONE: CLOSED, JOIN: CONNECTED},
    CLOSING: {GOODBYE: CLOSED, GONE: CLOSED, DISCONNECT: CLOSING},
    CLOSED: {DISCONNECT: CLOSED},
    LISTENING: {},
}  # fmt: skip
"""The state after an input.  What is not there cannot be: a program is refused, a message means nothing."""


def after(state: int, asked: int) -> int:
    """The state after what the program asks for; DriverError EINVAL where it cannot be."""
    found = TRANSITIONS[state].get(asked)
    if found is None:
        raise DriverError(errno.EINVAL, f"{INPUTS[asked]}: the identifier is {STATES[state]}")
    return found


def on_message(state: int, message: int) -> int | None:
    """The state after a message; None where it means nothing in this state."""
    return TRANSITIONS[state].get(message)
