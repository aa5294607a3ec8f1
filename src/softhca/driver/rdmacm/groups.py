"""Multicast groups of an identifier.

Over RoCEv2 the MGID of an IP group is its address as a GID, and the link of the port joins the group, by IGMP
or MLD, with the first queue pair that is attached to it.  On native links the MGID has the address in it, and
the port joins by subnet administration; when an identifier leaves, the port stays in the group until it goes,
since other programs of its adapter may be in it.
"""

from __future__ import annotations

import contextlib
import errno
from typing import TYPE_CHECKING, Any

from softhca.driver.errors import DriverError
from softhca.driver.rdmacm import events, states
from softhca.driver.rdmacm.addresses import SocketAddress
from softhca.driver.rdmacm.events import DatagramParameters, IdentifierEvent
from softhca.driver.rdmacm.routes import join_group
from softhca.driver.services import Path
from softhca.management.group_queries import FULL_MEMBER, SEND_ONLY

if TYPE_CHECKING:
    from softhca.driver.rdmacm.identifier import Identifier
    from softhca.driver.rdmacm.local_devices import LocalPort

_Membership = tuple[bytes, int]
"""The MGID and the LID of a group, 0 on RoCEv2, that the queue pair is attached to."""
MULTICAST_QPN = 0xFFFFFF
UDP_QKEY = 0x01234567
"""Of all queue pairs of the UDP port space (``RDMA_UDP_QKEY``)."""
HOP_LIMIT = 64
JOIN_MS = 2000


class Groups:
    """What ``identifier`` has joined."""

    def __init__(self, identifier: Identifier) -> None:
        self._identifier = identifier
        self._joined: dict[bytes, _Membership | None] = {}

    def join(self, group: SocketAddress, send_only: bool = False) -> None:
        """Join; `events.MULTICAST_JOIN` follows, with how to send there.  ``send_only``: nothing is received.

        EINVAL: no group of the identifier's IP version, or no datagram queue pair; EADDRINUSE: joined
        before; else what the device refuses, and on native links as `join_group`, which is waited for.
        """
        owner = self._identifier
        with owner.lock:
            states.after(owner.state, states.JOIN)
            place = owner.place
            if not group.is_multicast or group.is_ipv6 != place.address.is_ipv6:
                raise DriverError(
                    errno.EINVAL, f"addr: {group.host} is no group of the identifier's IP version"
                )
            if group.gid in self._joined:
                raise DriverError(errno.EADDRINUSE, f"addr: {group.host} has been joined")
            self._joined[group.gid] = None
        try:
            vector, membership, qkey = self._find(place, group.gid, send_only)
            with owner.lock:
                queue_pair = owner.queue_pair
                if queue_pair is not None and not send_only and group.gid in self._joined:
                    queue_pair.device.attach_mcast(queue_pair.number, *membership)
                    self._joined[group.gid] = membership
        except BaseException:
            self._joined.pop(group.gid, None)
            raise
        joined = DatagramParameters(vector, MULTICAST_QPN, qkey)
        owner.post(lambda: IdentifierEvent(events.MULTICAST_JOIN, owner, datagram=joined))

    def _find(
        self, place: LocalPort, group: bytes, send_only: bool
    ) -> tuple[dict[str, Any], _Membership, int]:
        """How to send to a group, and its MGID and LID, and its Q_Key; on native links its port is in it."""
        traffic_class = self._identifier.traffic_class
        if not place.is_native:
            path = Path(
                group, place.gid_index, traffic_class=traffic_class, hop_limit=HOP_LIMIT, port_num=place.port
            )
            return path.vector(), (group, 0), UDP_QKEY
        found = join_group(place, group, UDP_QKEY, SEND_ONLY if send_only else FULL_MEMBER, JOIN_MS)
        path = Path(
            found.mgid, place.gid_index, found.sl, traffic_class, found.flow_label, max(found.hop_limit, 1),
            dlid=found.mlid, port_num=place.port,
        )  # fmt: skip
        return path.vector(), (found.mgid, found.mlid), found.qkey

    def leave(self, group: SocketAddress) -> None:
        """Leave; EADDRNOTAVAIL where it was not joined."""
        with self._identifier.lock:
            if group.gid not in self._joined:
                raise DriverError(errno.EADDRNOTAVAIL, f"addr: {group.host} has not been joined")
            self._leave(group.gid)

    def close(self) -> None:
        """Leave all; a queue pair that has gone is in none any more."""
        for gid in list(self._joined):
            with contextlib.suppress(DriverError):
                self._leave(gid)

    def _leave(self, gid: bytes) -> None:
        membership = self._joined.pop(gid)
        owner = self._identifier
        queue_pair = owner.queue_pair
        if membership is not None and queue_pair is not None and queue_pair.device.alive:
            queue_pair.device.detach_mcast(queue_pair.number, *membership)
