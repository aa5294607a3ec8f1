"""Which IP address a port has, and which port has an IP address: ServiceRecords of subnet administration
(IBTA vol. 1, 15.2.5.14), as DAPL's Address Translation Service keeps them, one for each address of a port.
The address stands in the record's first 16 bytes of data, an IPv4 one in the last four of these.

As bytes, for hosts, which know no more of management than this, and for the manager that registers them.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from softhca.management.ip_service import V4_MAPPED_PREFIX
from softhca.management.path_queries import METHOD_GET, request

SERVICE_ID = 0x1000_0CE1_0041_5453
SERVICE_NAME = b"DAPL Address Translation Service"
_ATTRIBUTE_SERVICE_RECORD = 0x0031
_ID, _GID, _DATA = 1 << 0, 1 << 1, 0xFFFF << 7
"""Components: ServiceID, ServiceGID, ServiceData8.1 … 16."""
_RECORD = struct.Struct(">Q 16s 88x 16s")
_ANSWER = struct.Struct(">4xH 50x 8x 16s 88x 16s")


class AddressAnswer(NamedTuple):
    """``status`` is the datagram's, 0 where there is such a record: its port's GID, and the IP address as
    RoCEv2 has it as a GID: IPv4 ones are IPv4-mapped."""

    status: int
    gid: bytes
    address: bytes


def service_data(address: bytes) -> bytes:
    """An IP address, in the form of a GID, as a record's first 16 bytes of data."""
    return address[12:].rjust(16, b"\0") if address.startswith(V4_MAPPED_PREFIX) else address


def question_of_port(gid: bytes, transaction_id: int) -> bytes:
    """Ask for the IP address of a port."""
    return _question(_ID | _GID, gid, bytes(16), transaction_id)


def question_of_address(address: bytes, transaction_id: int) -> bytes:
    """Ask for the port that has an IP address, in the form of a GID."""
    return _question(_ID | _DATA, bytes(16), service_data(address), transaction_id)


def _question(components: int, gid: bytes, data: bytes, transaction_id: int) -> bytes:
    record = _RECORD.pack(SERVICE_ID, gid, data)
    return request(METHOD_GET, _ATTRIBUTE_SERVICE_RECORD, components, transaction_id, record)


def answer(response: bytes) -> AddressAnswer:
    """What a response of 256 bytes says."""
    status, gid, data = _ANSWER.unpack_from(response)
    if not any(data[:12]):
        data = V4_MAPPED_PREFIX + data[12:]
    return AddressAnswer(status, gid, data)
