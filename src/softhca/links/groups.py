"""The sockets of a RoCEv2 link that receive what is sent to multicast groups, one for each group.

A socket that is bound to an address of this machine gets no datagram to a group.  So each group has a socket
that is bound to the group's own address and is a member of it on the link's interface: the kernel then tells
routers and switches, by IGMP (RFC 3376) or MLD (RFC 3810).  Several links of one machine may be members of
one group; each gets a copy.
"""

from __future__ import annotations

import errno
import ipaddress
import select
import socket
import struct

from softhca.links.sockets import open_receiver
from softhca.wire.route import V4_MAPPED_PREFIX, is_multicast

MOST_GROUPS = 256
"""Groups of one link at most: each takes a descriptor."""
_IP_MULTICAST_ALL, _IPV6_MULTICAST_ALL = 49, 29  # Linux's numbers


class GroupSockets:
    """``address`` (bytes) is the link's and ``interface`` the index of its interface; ``port`` and the rest
    are as the link's receiving socket has them.
    """

    def __init__(self, address: bytes, interface: int, port: int, buffer_bytes: int, gro: bool) -> None:
        self._address = address
        self._interface = interface
        self._port = port
        self._buffer_bytes = buffer_bytes
        self._gro = gro
        self._epoll = select.epoll()
        self._sockets: dict[bytes, socket.socket] = {}
        self._gids: dict[int, bytes] = {}
        self._frames: socket.socket | None = None

    def fileno(self) -> int:
        """Readable when there may be something to receive; −1 when closed."""
        return -1 if self._epoll.closed else self._epoll.fileno()

    def __len__(self) -> int:
        return len(self._sockets) + (self._frames is not None)

    def join(self, gid: bytes) -> None:
        """Become a member of the group ``gid``; again does nothing.

        OSError: EINVAL for a GID that is no group of the link's IP version, ENOBUFS for too many groups, or
        what the kernel says.
        """
        if gid in self._sockets:
            return
        if not is_multicast(gid) or gid.startswith(V4_MAPPED_PREFIX) != (len(self._address) == 4):
            raise OSError(errno.EINVAL, "it is no multicast group of the link's IP version")
        if len(self._sockets) >= MOST_GROUPS:
            raise OSError(errno.ENOBUFS, f"a link has {MOST_GROUPS} groups at most")
        member = self._open(gid)
        try:
            self._epoll.register(member, select.EPOLLIN)
        except OSError:
            member.close()
            raise
        self._sockets[gid] = member
        self._gids[member.fileno()] = gid

    def leave(self, gid: bytes) -> None:
        """Be a member no more; nothing for a group that was not joined."""
        member = self._sockets.pop(gid, None)
        if member is not None:
            del self._gids[member.fileno()]
            self._epoll.unregister(member)
            member.close()

    def add_frames(self, endpoint: socket.socket, gid: bytes) -> None:
        """Wait for Ethernet frames to the link's own GID by this socket too, which is closed with others."""
        self._epoll.register(endpoint, select.EPOLLIN)
        self._frames = endpoint
        self._gids[endpoint.fileno()] = gid

    def ready(self) -> list[tuple[int, bytes]]:
        """Descriptor and GID of each group, or of the frames, for which something has come, a bounded number.
        """
        return [(fd, self._gids[fd]) for fd, _ in self._epoll.poll(0, 16) if fd in self._gids]

    def close(self) -> None:
        """Leave all; may be called again."""
        for gid in list(self._sockets):
            self.leave(gid)
        if self._frames is not None:
            self._frames.close()
            self._frames = None
        self._epoll.close()

    def _open(self, gid: bytes) -> socket.socket:
        version4 = len(self._address) == 4
        group = gid[12:] if version4 else gid
        member, _ = open_receiver(
            str(ipaddress.ip_address(group)), self._port, self._interface, self._buffer_bytes, self._gro, True
        )
        try:
            if version4:
                request = group + self._address + struct.pack("=i", self._interface)
                member.setsockopt(socket.IPPROTO_IP, _IP_MULTICAST_ALL, 0)
                member.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, request)
            else:
                request = group + struct.pack("=I", self._interface)
                member.setsockopt(socket.IPPROTO_IPV6, _IPV6_MULTICAST_ALL, 0)
                member.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_JOIN_GROUP, request)
        except OSError:
            member.close()
            raise
        return member
