"""Two questions to the kernel over rtnetlink: where does a packet go, and which addresses are ours; and what
its notifications say of addresses that have changed.

Needs no privilege.  Formats: rtnetlink(7), netlink(7).
"""

from __future__ import annotations

import errno
import socket
import struct
from collections.abc import Iterator
from typing import NamedTuple

_REQUEST, _DUMP = 0x001, 0x300
_ERROR, _DONE, _NEW_ADDRESS, _DELETED_ADDRESS, _GET_ADDRESS, _NEW_ROUTE, _GET_ROUTE = 2, 3, 20, 21, 22, 24, 26
_INTERRUPTED = 0x10  # of a dump: something has changed meanwhile
_HEADER = struct.Struct("=IHHII")  # length, type, flags, sequence, port
_ROUTE_MESSAGE = struct.Struct("=BBBBBBBBI")
_ADDRESS_MESSAGE = struct.Struct("=BBBBI")
_RTA_DESTINATION, _RTA_SOURCE, _RTA_INTERFACE, _RTA_GATEWAY, _RTA_VIA, _RTA_MULTIPATH = 1, 2, 4, 5, 18, 9
_IFA_ADDRESS, _IFA_LOCAL, _IFA_FLAGS = 1, 2, 8
_FAMILY_OF = {4: socket.AF_INET, 16: socket.AF_INET6}
_DUPLICATE, _TENTATIVE = 0x08, 0x40
_ROUTE_LOCAL = 2
_REPLY_BYTES = 1 << 16
_BOUND_SECONDS = 2.0  # the kernel answers at once; this only keeps a lost answer from hanging the caller
_DUMPS = 4


class RouteAnswer(NamedTuple):
    """Where the kernel would send a packet: ``local`` to this machine itself, else out of interface number
    ``interface_index``; ``on_link`` when no gateway stands between.
    """

    local: bool
    interface_index: int
    on_link: bool


class InterfaceAddress(NamedTuple):
    """One address (packed) of one interface, with its prefix length in bits; ``usable``: of IPv6 it is known
    that nobody else on the link has it (RFC 4862, 5.4), so that sockets may be bound to it.
    """

    interface_index: int
    address: bytes
    prefix_bits: int
    usable: bool = True


def _attributes(data: bytes) -> dict[int, bytes]:
    """The attributes of a message by type, each without padding."""
    found: dict[int, bytes] = {}
    offset = 0
    while offset + 4 <= len(data):
        length, kind = struct.unpack_from("=HH", data, offset)
        if length < 4 or offset + length > len(data):
            break
        found[kind] = data[offset + 4 : offset + length]
        offset += (length + 3) & ~3
    return found


def _attribute(kind: int, value: bytes) -> bytes:
    return struct.pack("=HH", 4 + len(value), kind) + value + bytes(-len(value) % 4)


def _ask(kind: int, flags: int, body: bytes) -> Iterator[tuple[int, bytes]]:
    """Send one request and yield (type, body) of what is answered; OSError with the kernel's errno, EINTR for
    a dump that a change came between.
    """
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as channel:
        channel.settimeout(_BOUND_SECONDS)
        channel.send(_HEADER.pack(_HEADER.size + len(body), kind, _REQUEST | flags, 1, 0) + body)
        while True:
            reply = channel.recv(_REPLY_BYTES)
            offset = 0
            while offset + _HEADER.size <= len(reply):
                length, reply_kind, reply_flags, _, _ = _HEADER.unpack_from(reply, offset)
                if length < _HEADER.size or offset + length > len(reply):
                    return
                payload = reply[offset + _HEADER.size : offset + length]
                if flags & _DUMP and reply_flags & _INTERRUPTED:
                    raise OSError(errno.EINTR, "what was asked for has changed meanwhile")
                if reply_kind == _DONE:
                    return
                if reply_kind == _ERROR:
                    number = -struct.unpack_from("=i", payload)[0]
                    raise OSError(number, f"the kernel refused a route look-up (errno {number})")
                yield reply_kind, payload
                offset += (length + 3) & ~3
            if not flags & _DUMP:
                return


def route(source: bytes, destination: bytes, scope: int = 0) -> RouteAnswer:
    """The route from ``source`` to ``destination`` (packed addresses of one family).

    ``scope`` is the interface index of a link-local destination, 0 otherwise. OSError where there is no
    route.
    """
    family = socket.AF_INET if len(destination) == 4 else socket.AF_INET6
    bits = 8 * len(destination)
    body = _ROUTE_MESSAGE.pack(family, bits, bits, 0, 0, 0, 0, 0, 0)
    body += _attribute(_RTA_DESTINATION, destination) + _attribute(_RTA_SOURCE, source)
    if scope:
        body += _attribute(_RTA_INTERFACE, struct.pack("=I", scope))
    for kind, payload in _ask(_GET_ROUTE, 0, body):
        if kind == _NEW_ROUTE:
            found = _attributes(payload[_ROUTE_MESSAGE.size :])
            index = struct.unpack("=I", found[_RTA_INTERFACE])[0] if _RTA_INTERFACE in found else 0
            on_link = not {_RTA_GATEWAY, _RTA_VIA, _RTA_MULTIPATH} & found.keys()
            return RouteAnswer(payload[7] == _ROUTE_LOCAL, index, on_link)
    raise OSError(f"no answer to a route look-up of {socket.inet_ntop(family, destination)}")


def addresses() -> list[InterfaceAddress]:
    """Every IPv4 and IPv6 address of every interface, in the kernel's order.  OSError; EINTR where they
    change all the time.
    """
    for attempt in range(_DUMPS):
        try:
            return _dump_addresses()
        except InterruptedError:
            if attempt == _DUMPS - 1:
                raise
    return []


def _dump_addresses() -> list[InterfaceAddress]:
    found = []
    for kind, payload in _ask(_GET_ADDRESS, _DUMP, _ADDRESS_MESSAGE.pack(0, 0, 0, 0, 0)):
        if kind != _NEW_ADDRESS or len(payload) < _ADDRESS_MESSAGE.size:
            continue
        family, prefix_bits, flags, _, index = _ADDRESS_MESSAGE.unpack_from(payload)
        attributes = _attributes(payload[_ADDRESS_MESSAGE.size :])
        # On a point-to-point interface IFA_ADDRESS is the peer's; IFA_LOCAL, where given, is ours.
        address = attributes.get(_IFA_LOCAL) or attributes.get(_IFA_ADDRESS)
        if address is None or _FAMILY_OF.get(len(address)) != family:
            continue
        if len(attributes.get(_IFA_FLAGS, b"")) == 4:  # the header has room for eight of them
            flags = struct.unpack("=I", attributes[_IFA_FLAGS])[0]
        usable = not flags & (_TENTATIVE | _DUPLICATE)
        found.append(InterfaceAddress(index, address, prefix_bits, usable))
    return found


def may_change_addresses(data: bytes, interface_index: int) -> bool:
    """Whether notifications of the kernel may say that an interface has other addresses than before.  What is
    no message as it should be may say anything.
    """
    offset = 0
    while offset < len(data):
        if offset + _HEADER.size > len(data):
            return True
        length, kind, _, _, _ = _HEADER.unpack_from(data, offset)
        if length < _HEADER.size or offset + length > len(data):
            return True
        if kind in (_NEW_ADDRESS, _DELETED_ADDRESS):
            if length < _HEADER.size + _ADDRESS_MESSAGE.size:
                return True
            if _ADDRESS_MESSAGE.unpack_from(data, offset + _HEADER.size)[4] == interface_index:
                return True
        offset += (length + 3) & ~3
    return False
