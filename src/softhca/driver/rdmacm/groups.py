"""Multicast groups of an identifier: over RoCEv2 the MGID of an IP group is its address as a GID.

The link of the port joins the group, by IGMP or MLD, with the first queue pair that is attached to it.
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

from softhca.driver.errors import DriverError
from softhca.driver.rdmacm import events, states
from softhca.driver.rdmacm.addresses import SocketAddress
from softhca.driver.rdmacm.events import DatagramParameters, IdentifierEvent
from softhca.driver.services import Path

if TYPE_CHECKING:
    from softhca.driver.rdmacm.identifier import Identifier

MULTICAST_QPN = 0xFFFFFF
UDP_QKEY = 0x01234567
"""Of all queue pairs of the UDP port space (``RDMA_UDP_QKEY``)."""
HOP_LIMIT = 64


class Groups:
    """What ``identifier`` has joined."""

    def __init__(self, identifier: Identifier) -> None:
        self._identifier = identifier
        self._joined: dict[bytes, bool] = {}

    def join(self, group: SocketAddress, send_only: bool = False) -> None:
        """Join; `events.MULTICAST_JOIN` follows, with how to send there.  ``send_only``: nothing is received.

        EINVAL: no group of the identifier's IP version, or no datagram queue pair; EADDRINUSE: joined
        before; EOPNOTSUPP: on native links; else what the device refuses.
        """
        owner = self._identifier
        with owner.lock:
            states.after(owner.state, states.JOIN)
            place = owner.place
            if not group.is_multicast or group.is_ipv6 != place.address.is_ipv6:
                raise DriverError(
                    errno.EINVAL, f"addr: {group.host} is no group of the identifier's IP version"
                )
            if place.is_native:
                raise DriverError(errno.EOPNOTSUPP, "addr: RDMA CM joins no groups on native links")
            if group.gid in self._joined:
                raise DriverError(errno.EADDRINUSE, f"addr: {group.host} has been joined")
            queue_pair = owner.queue_pair
            attach = queue_pair is not None and not send_only
            if attach:
                assert queue_pair is not None
                queue_pair.device.attach_mcast(queue_pair.number, group.gid)
            self._joined[group.gid] = attach
            vector = Path(
                group.gid, place.gid_index, traffic_class=owner.traffic_class, hop_limit=HOP_LIMIT,
                port_num=place.port,
            ).vector()  # fmt: skip
        joined = DatagramParameters(vector, MULTICAST_QPN, UDP_QKEY)
        owner.channel.post(owner, lambda: IdentifierEvent(events.MULTICAST_JOIN, owner, datagram=joined))

    def leave(self, group: SocketAddress) -> None:
        """Leave; EADDRNOTAVAIL where it was not joined."""
        with self._identifier.lock:
            if group.gid not in self._joined:
                raise DriverError(errno.EADDRNOTAVAIL, f"addr: {group.host} has not been joined")
            self._leave(group.gid)

    def close(self) -> None:
        """Leave all."""
        for gid in list(self._joined):
            self._leave(gid)

    def _leave(self, gid: bytes) -> None:
        attached = self._joined.pop(gid)
        owner = self._identifier
        queue_pair = owner.queue_pair
        if attached and queue_pair is not None and queue_pair.device.alive:
            queue_pair.device.detach_mcast(queue_pair.number, gid)
