"""Management datagrams on the wire: 256 bytes, a common header and what the class makes of the rest.

Headers and attributes are lists of fields (`wire.layout`): names and widths, from which offsets, decoding and
encoding follow.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Self

from softhca.management.constants import (
    BASE_VERSION,
    CLASS_SUBN_DIRECTED,
    DIRECTION,
    MAD_BYTES,
    RESPONSE,
    RESPONSE_METHODS,
    data_bytes,
    data_offset,
)
from softhca.wire.errors import WireError
from softhca.wire.layout import Field, Header, Octets


@dataclass(frozen=True, slots=True)
class MadHeader(Header):
    """The header that all classes have (13.4.3).  ``method`` includes the R bit.  Of a directed-route packet
    ``class_specific`` is hop pointer and hop count, and the top bit of ``status`` the direction.
    """

    LENGTH_BYTES: ClassVar[int] = 24
    LAYOUT: ClassVar[tuple[Field, ...]] = (
        Field("base_version", 8),
        Field("management_class", 8),
        Field("class_version", 8),
        Field("method", 8),
        Field("status", 16),
        Field("class_specific", 16),
        Field("transaction_id", 64),
        Field("attribute_id", 16),
        Field("reserved16", 16),
        Field("attribute_modifier", 32),
    )

    base_version: int = BASE_VERSION
    management_class: int = 0
    class_version: int = 1
    method: int = 0
    status: int = 0
    class_specific: int = 0
    transaction_id: int = 0
    attribute_id: int = 0
    reserved16: int = 0
    attribute_modifier: int = 0


@dataclass(frozen=True, slots=True)
class Mad:
    """One datagram: its ``header`` and the ``body`` behind it, 232 bytes."""

    header: MadHeader
    body: bytes

    @classmethod
    def decode(cls, buffer: Octets, offset: int = 0) -> Self:
        """Read the 256 bytes at ``offset``; WireError when they are not there."""
        if offset < 0 or offset + MAD_BYTES > len(buffer):
            raise WireError(f"a MAD needs {MAD_BYTES} bytes at offset {offset} of {len(buffer)}")
        header = MadHeader.decode(buffer, offset)
        return cls(header, bytes(buffer[offset + MadHeader.LENGTH_BYTES : offset + MAD_BYTES]))

    @classmethod
    def make(cls, header: MadHeader, data: bytes = b"") -> Self:
        """A datagram with ``data`` where the header's class has them, else zeros.  WireError: too long."""
        front = data_offset(header.management_class) - MadHeader.LENGTH_BYTES
        body = bytes(front) + data
        if len(data) > data_bytes(header.management_class):
            raise WireError(f"{len(data)} bytes do not fit a MAD of class {header.management_class:#x}")
        return cls(header, body.ljust(MAD_BYTES - MadHeader.LENGTH_BYTES, b"\0"))

    def encode(self) -> bytes:
        """The 256 bytes; WireError when a value does not fit its field, or the body its place."""
        data = self.header.encode() + self.body
        if len(data) != MAD_BYTES:
            raise WireError(f"a MAD has {MAD_BYTES} bytes, not {len(data)}")
        return data

    @property
    def data(self) -> bytes:
        """The attribute's data."""
        start = data_offset(self.header.management_class) - MadHeader.LENGTH_BYTES
        return self.body[start : start + data_bytes(self.header.management_class)]

    def response(self, status: int = 0, attribute: Header | bytes | None = None) -> Mad:
        """What answers this request: the same with the method of its response and ``status``, and
        ``attribute`` as its data (None: the request's own).  Of a directed-route packet the direction turns.
        """
        if self.header.management_class == CLASS_SUBN_DIRECTED:
            status |= DIRECTION
        method = RESPONSE_METHODS.get(self.header.method, self.header.method | RESPONSE)
        header = replace(self.header, method=method, status=status)
        if attribute is None:
            return replace(self, header=header)
        data = attribute.encode() if isinstance(attribute, Header) else attribute
        start = data_offset(header.management_class) - MadHeader.LENGTH_BYTES
        end = start + data_bytes(header.management_class)
        return Mad(header, self.body[:start] + data.ljust(end - start, b"\0") + self.body[end:])


@dataclass(frozen=True, slots=True)
class Address:
    """The other end of a datagram's way: where it came from, or where it goes to.

    ``qpn`` and ``qkey`` are the remote queue pair's (the Q_Key is what is sent), ``pkey`` the packet's.
    ``gid`` is the remote GID, None without a global route, ``own_gid`` the one that was written to.  Native
    ports: ``lid`` the remote LID, ``sl`` and ``path_bits`` of the own end; ``own_lid`` where it is by another
    port of the own adapter.
    """

    qpn: int
    qkey: int = 0
    pkey: int = 0xFFFF
    lid: int = 0
    sl: int = 0
    path_bits: int = 0
    gid: bytes | None = None
    own_gid: bytes | None = None
    traffic_class: int = 0
    own_lid: int = 0

    @property
    def port(self) -> tuple[int, bytes | None]:
        """What tells the remote port from others."""
        return self.lid, self.gid
