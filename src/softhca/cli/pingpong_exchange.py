"""The exchange by which ``ibv_rc_pingpong``, ``ibv_uc_pingpong`` and ``ibv_ud_pingpong`` find each other.

Over TCP, the client first: its address message, the server's, then ``done`` from the client; the strings
travel with their terminating NUL.  An address message is ``LID:QPN:PSN:GID`` in hexadecimal digits (4, 6, 6
and 32 of them). The server answers when its queue pair can receive, so that the client may send as soon as it
has the answer.  ``ibv_srq_pingpong`` does the same with 256 address messages in a row.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from softhca.cli.control import ControlConnection
from softhca.cli.errors import CommandError

MESSAGE_BYTES = len("0000:000000:000000:" + 32 * "0") + 1
DONE = b"done\0"
SHARED_ENTRIES = 256
"""So many addresses ``ibv_srq_pingpong`` exchanges, however many queue pairs it has: the others are zeros."""

_FORM = re.compile(rb"([0-9a-f]{4}):([0-9a-f]{6}):([0-9a-f]{6}):([0-9a-f]{32})\0", re.IGNORECASE)


@dataclass(frozen=True)
class Destination:
    """One end of a connection; ``gid`` are the 16 bytes of the GID, all zero where none is used."""

    lid: int
    qpn: int
    psn: int
    gid: bytes

    def encode(self) -> bytes:
        """The address message, with its NUL."""
        return f"{self.lid:04x}:{self.qpn:06x}:{self.psn:06x}:{self.gid.hex()}".encode() + b"\0"

    @classmethod
    def decode(cls, message: bytes) -> Destination:
        """The end that ``message`` names.  Raises :class:`CommandError` when it is no address message."""
        match = _FORM.fullmatch(message)
        if match is None:
            raise CommandError(f"the peer's address {message[:MESSAGE_BYTES]!r} is not LID:QPN:PSN:GID")
        lid, qpn, psn, gid = match.groups()
        return cls(int(lid, 16), int(qpn, 16), int(psn, 16), bytes.fromhex(gid.decode()))


NO_DESTINATION = Destination(0, 0, 0, bytes(16))


def exchange_as_client(control: ControlConnection, mine: Destination) -> Destination:
    """Tell the server about ``mine``; returns the server's end, which is ready to receive."""
    control.send(mine.encode())
    theirs = Destination.decode(control.receive(MESSAGE_BYTES))
    control.send(DONE)
    return theirs


def exchange_as_server(
    control: ControlConnection, mine: Destination, make_ready: Callable[[Destination], None]
) -> Destination:
    """Learn the client's end, make our queue pair ready for it, then tell about ``mine``."""
    theirs = Destination.decode(control.receive(MESSAGE_BYTES))
    make_ready(theirs)
    control.send(mine.encode())
    _hear_done(control, "; ibv_srq_pingpong, which names more queue pairs, takes --srq here")
    return theirs


def exchange_all_as_client(control: ControlConnection, mine: list[Destination]) -> list[Destination]:
    """As :func:`exchange_as_client`, with the addresses of ``ibv_srq_pingpong``."""
    control.send(b"".join(each.encode() for each in mine))
    theirs = _receive_all(control)
    control.send(DONE)
    return theirs


def exchange_all_as_server(
    control: ControlConnection, mine: list[Destination], make_ready: Callable[[list[Destination]], None]
) -> None:
    """As :func:`exchange_as_server`, with the addresses of ``ibv_srq_pingpong``."""
    make_ready(_receive_all(control))
    control.send(b"".join(each.encode() for each in mine))
    _hear_done(control)


def _receive_all(control: ControlConnection) -> list[Destination]:
    return [Destination.decode(control.receive(MESSAGE_BYTES)) for _ in range(SHARED_ENTRIES)]


def _hear_done(control: ControlConnection, hint: str = "") -> None:
    if control.receive(len(DONE)) != DONE:
        raise CommandError(f"the client did not end the exchange with 'done'{hint}")
