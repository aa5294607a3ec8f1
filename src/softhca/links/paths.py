"""What becomes of a burst on its way: whether it is cut, and who counts the identifications then.

A burst sent with UDP_SEGMENT is cut into datagrams by the network card or by the kernel in front of it.  The
ICRC covers the IPv4 identification, so a peer that verifies it strictly drops what bears another one than
the sender thought.

* Where nothing cuts (this machine itself, a veth pair) the receiver gets the burst whole and every datagram
  has identification 0, as single datagrams have.
* Where the interface cannot cut, the kernel does, and counts up from the burst's identification, 0.
* What a network card does is not known.

IPv6 has no such field: its bursts may be cut anywhere.
"""

from __future__ import annotations

import socket

from softhca.links import interfaces, netlink

UNCUT = 0
"""The burst arrives whole, or it makes no difference: all identifications are 0, or there are none."""
COUNTING = 1
"""The kernel cuts: identifications are 0, 1, 2 … in the order of the segments."""
UNKNOWN = 2
"""A network card cuts, or nothing is known of the path: only single datagrams are sure to have 0."""


def cutting(source: bytes, destination: bytes) -> int:
    """What becomes of bursts from ``source`` to ``destination`` (packed, of one family): `UNCUT`, `COUNTING`
    or `UNKNOWN`.

    `UNCUT`: loopback addresses and any address of this machine, and a destination straight behind a veth
    interface that takes bursts whole.  A gateway behind a veth does not count: the way beyond it may lead
    over a network card.  An unknown path, or a kernel that refuses to say, is `UNKNOWN`: plain datagrams are
    right everywhere.
    """
    if len(destination) == 4 and destination[0] == 127:
        return UNCUT
    if destination == socket.inet_pton(socket.AF_INET6, "::1"):
        return UNCUT
    try:
        answer = netlink.route(source, destination)
        if answer.local:
            return UNCUT
        name = socket.if_indextoname(answer.interface_index)
        if not interfaces.takes_bursts(name):
            return COUNTING
        return UNCUT if answer.on_link and interfaces.driver_of_interface(name) == "veth" else UNKNOWN
    except OSError:
        return UNKNOWN


def leaves_bursts_uncut(source: bytes, destination: bytes) -> bool:
    """True when bursts reach ``destination`` as one piece in the receiver's buffer (`cutting`)."""
    return cutting(source, destination) == UNCUT
