"""Which paths leave a burst uncut.

A burst sent with UDP_SEGMENT is cut into datagrams by the network card or in front of it, and the cutter
counts the IPv4 identification up from the first. The ICRC covers that field and was made with 0, so a peer
that verifies it strictly would drop all but the first datagram. Where nothing cuts (this machine itself, a
veth pair) the receiver gets the burst whole and every datagram has identification 0.  IPv6 has no such field:
its bursts may be cut anywhere.
"""

from __future__ import annotations

import socket

from softhca.links import interfaces, netlink


def leaves_bursts_uncut(source: bytes, destination: bytes, scope: int = 0) -> bool:
    """True when bursts from ``source`` reach ``destination`` (packed, of one family) without being cut.

    Loopback addresses and any address of this machine; and a destination straight behind a veth interface.
    A gateway behind a veth does not count: the way beyond it may lead over a network card. An unknown path,
    or a kernel that refuses to tell, counts as cutting: plain datagrams are right everywhere.
    """
    if len(destination) == 4 and destination[0] == 127:
        return True
    if destination == socket.inet_pton(socket.AF_INET6, "::1"):
        return True
    try:
        answer = netlink.route(source, destination, scope)
        if answer.local:
            return True
        return answer.on_link and interfaces.driver_of_interface(
            socket.if_indextoname(answer.interface_index)) == "veth"
    except OSError:
        return False
