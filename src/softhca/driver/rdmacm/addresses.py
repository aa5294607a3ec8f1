"""Socket addresses of RDMA CM: text, names and services as IP addresses, IP addresses as GIDs.

On RoCEv2 a GID is an IP address: IPv4 ones are IPv4-mapped (RFC 4291, 2.5.5.2), of multicast groups too.  A
link-local IPv6 address needs its interface (``fe80::1%eth0``).
"""

from __future__ import annotations

import errno
import ipaddress
import socket
from dataclasses import dataclass, replace

from softhca.driver.errors import DriverError
from softhca.machine.signals import raised_by_handler
from softhca.management.ip_service import V4_MAPPED_PREFIX

_LOCALHOST_V4, _LOCALHOST_V6 = bytes((127, 0, 0, 1)), bytes(15) + b"\1"
_LINK_LOCAL = b"\xfe\x80"


@dataclass(frozen=True)
class SocketAddress:
    """An IP address of 4 or 16 bytes (``packed``), a port number, and the index of the interface that a
    link-local address is of (0: it is none, or it does not matter)."""

    packed: bytes
    port: int = 0
    scope: int = 0

    @property
    def is_ipv6(self) -> bool:
        """Whether it is IPv6's."""
        return len(self.packed) == 16

    @property
    def is_any(self) -> bool:
        """Whether it stands for all addresses of this machine."""
        return not any(self.packed)

    @property
    def is_multicast(self) -> bool:
        """Whether it is a group's."""
        return self.packed[0] == 0xFF if self.is_ipv6 else self.packed[0] & 0xF0 == 0xE0

    @property
    def is_loopback(self) -> bool:
        """Whether it never leaves this machine."""
        return ipaddress.ip_address(self.packed).is_loopback

    @property
    def is_localhost(self) -> bool:
        """Whether it is 127.0.0.1 or ::1, which stand for this machine."""
        return self.packed in (_LOCALHOST_V4, _LOCALHOST_V6)

    @property
    def gid(self) -> bytes:
        """The GID of that address on RoCEv2, of a group the MGID."""
        return self.packed if self.is_ipv6 else V4_MAPPED_PREFIX + self.packed

    @property
    def host(self) -> str:
        """The address as text, with its interface where it has one."""
        text = str(ipaddress.ip_address(self.packed))
        return f"{text}%{self.scope}" if self.scope else text

    @property
    def sockaddr(self) -> tuple[str, int] | tuple[str, int, int, int]:
        """As Python's sockets take it."""
        text = str(ipaddress.ip_address(self.packed))
        return (text, self.port, 0, self.scope) if self.is_ipv6 else (text, self.port)

    def with_port(self, port: int) -> SocketAddress:
        """The same address with another port."""
        return replace(self, port=port)

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if self.is_ipv6 else f"{self.host}:{self.port}"


def of_gid(gid: bytes, port: int = 0, scope: int = 0) -> SocketAddress:
    """The address that a GID is on RoCEv2; ``scope`` is kept where the address is link-local."""
    if gid.startswith(V4_MAPPED_PREFIX):
        return SocketAddress(gid[12:], port)
    return SocketAddress(gid, port, scope if gid.startswith(_LINK_LOCAL) else 0)


def any_address(like: SocketAddress) -> SocketAddress:
    """The wildcard of the same family, without a port."""
    return SocketAddress(bytes(len(like.packed)))


def look_up(
    node: str | None, service: str | None, passive: bool = False, numeric: bool = False
) -> SocketAddress:
    """The first address that the resolver has for ``node`` and ``service`` (a number, or a name of
    ``/etc/services``).

    Without ``node``: the wildcard where it is ``passive`` (to listen on), else the loopback address.
    ``numeric``: ``node`` is no name.  DriverError with the errno that says best what the resolver said.
    """
    flags = (socket.AI_PASSIVE if passive else 0) | (socket.AI_NUMERICHOST if numeric else 0)
    try:
        found = socket.getaddrinfo(node or None, service or "0", type=socket.SOCK_STREAM, flags=flags)
    except socket.gaierror as error:
        code = _ERRNOS.get(error.errno or 0, errno.EADDRNOTAVAIL)
        raise DriverError(code, f"{node or '*'} port {service or 0}: {error.strerror}") from None
    except (OSError, UnicodeError) as error:
        if raised_by_handler(error):
            raise
        code = getattr(error, "errno", None) or errno.EINVAL
        raise DriverError(code, f"{node or '*'} port {service or 0}: {error}") from None
    sockaddr = found[0][4]
    scope = int(sockaddr[3]) if len(sockaddr) == 4 else 0
    packed = ipaddress.ip_address(str(sockaddr[0]).split("%", 1)[0]).packed
    return SocketAddress(packed, int(sockaddr[1]), scope)


_ERRNOS = {
    socket.EAI_AGAIN: errno.EAGAIN,
    socket.EAI_BADFLAGS: errno.EINVAL,
    socket.EAI_FAMILY: errno.EAFNOSUPPORT,
    socket.EAI_MEMORY: errno.ENOMEM,
    socket.EAI_NONAME: errno.EADDRNOTAVAIL,
    socket.EAI_SERVICE: errno.EINVAL,
}
