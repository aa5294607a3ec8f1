"""The RDMA IP CM service (IBTA vol. 1, annex A11): IP port spaces as service IDs, and the private data header
that tells a listener the addresses of a request.

A connection request of an IP port space goes to the service ID `service_id` of its destination port.  Its
private data begin with an `IpHeader`; what is behind the header is the program's.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

V4_MAPPED_PREFIX = bytes(10) + b"\xff\xff"
"""In front of an IPv4 address in a GID (RFC 4291, 2.5.5.2)."""

TCP = 0x0106
"""The port space of connected services: the annex's prefix and IP's protocol number of TCP."""
UDP = 0x0111
"""The port space of datagram services."""
PORT_SPACES = (TCP, UDP)

VERSION = 0
HEADER_BYTES = 36
_PORT_BITS = 16
_MOST_PORT = 0xFFFF


def service_id(port_space: int, port: int) -> int:
    """The service ID of a port (A11.4.1); ValueError for a port space or port that there is not."""
    if port_space not in PORT_SPACES or not 0 < port <= _MOST_PORT:
        raise ValueError(f"there is no port {port} in port space {port_space:#x}")
    return port_space << _PORT_BITS | port


def port_of(service: int) -> tuple[int, int] | None:
    """Port space and port of a service ID; None for one that is of no IP port space."""
    space, port = service >> _PORT_BITS, service & _MOST_PORT
    return (space, port) if space in PORT_SPACES and port else None


_FORM = struct.Struct(">BBH16s16s")


@dataclass(frozen=True, slots=True)
class IpHeader:
    """The first 36 bytes of a request's private data (A11.4.2): versions, the requester's port and addresses
    of 16 bytes; IPv4 addresses stand in the last four, behind zeros.
    """

    source_port: int
    source: bytes
    destination: bytes
    ip_version: int = 4
    major_version: int = VERSION
    minor_version: int = 0

    @classmethod
    def decode(cls, private_data: bytes) -> IpHeader:
        """The header that private data begin with; ValueError where they are too short."""
        if len(private_data) < HEADER_BYTES:
            raise ValueError(f"an IP header takes {HEADER_BYTES} bytes, not {len(private_data)}")
        versions, ip, port, source, destination = _FORM.unpack_from(private_data)
        return cls(port, source, destination, ip >> 4, versions >> 4, versions & 0xF)

    def encode(self) -> bytes:
        """The header's bytes."""
        versions = self.major_version << 4 | self.minor_version
        return _FORM.pack(versions, self.ip_version << 4, self.source_port, self.source, self.destination)

    @classmethod
    def between(cls, source: bytes, source_port: int, destination: bytes) -> IpHeader:
        """The header of a request between two GIDs, IPv4-mapped or IPv6."""
        version = 4 if destination.startswith(V4_MAPPED_PREFIX) else 6
        return cls(
            ip_version=version,
            source_port=source_port,
            source=_address(source, version),
            destination=_address(destination, version),
        )

    @property
    def known(self) -> bool:
        """Whether this side can read it: its major version is `VERSION`, and it names IPv4 or IPv6."""
        return self.major_version == VERSION and self.ip_version in (4, 6)

    @property
    def source_gid(self) -> bytes:
        """The requester's address as a GID."""
        return _gid(self.source, self.ip_version)

    @property
    def destination_gid(self) -> bytes:
        """The address that the request went to, as a GID."""
        return _gid(self.destination, self.ip_version)


def _address(gid: bytes, version: int) -> bytes:
    return bytes(12) + gid[12:] if version == 4 else gid


def _gid(address: bytes, version: int) -> bytes:
    return V4_MAPPED_PREFIX + address[12:] if version == 4 else address
