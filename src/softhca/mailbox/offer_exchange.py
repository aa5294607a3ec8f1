"""Two mailboxes find each other over a TCP connection that the application has made."""

from __future__ import annotations

import socket

from softhca.mailbox.box import Mailbox
from softhca.mailbox.errors import OfferError
from softhca.mailbox.offer import OFFER_BYTES

READY = b"\1"


def exchange_offers(box: Mailbox, connection: socket.socket) -> None:
    """Swap offers over ``connection``, join, and wait until the peer has joined, too.

    Both ends call it.  Only bytes of this exchange are read; the connection stays open.  OfferError; what the
    socket raises, its timeout included.
    """
    connection.sendall(box.offer)
    box.join(_receive(connection, OFFER_BYTES))
    connection.sendall(READY)
    if _receive(connection, len(READY)) != READY:
        raise OfferError("the peer is not ready")


def _receive(connection: socket.socket, length_bytes: int) -> bytes:
    received = b""
    while len(received) < length_bytes:
        part = connection.recv(length_bytes - len(received))
        if not part:
            raise OfferError("the peer left in the middle of the set-up")
        received += part
    return received
