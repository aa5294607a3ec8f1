"""What datagram sockets say to each other: the request and the answer of a resolution, the header of a
datagram, and how a long one is cut.

A datagram is one message that begins with a header, and behind that as many *page* messages as it needs: of
the path MTU each, without a header, with an immediate that says which they are, so that their bytes land in
whole pages.  The first message has what is left over.  All numbers are in network byte order.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import NamedTuple

from softhca.sockets.protocol import ProtocolError

MAGIC = b"sD"
VERSION = 2
_HELLO = struct.Struct("!2sBx16sH2xI16s")
_ANSWER = struct.Struct("!2sBBH")
_HEADER = struct.Struct("!2sBBHHIHH16s")
HEADER_BYTES = _HEADER.size
SMALLEST_MTU, LARGEST_MTU = 1, 5
"""ibv_mtu: 256 … 4096 bytes."""
LARGEST_BYTES = {4: 65507, 6: 65527}
"""Of a datagram, by the IP version: what UDP carries, since any peer may have nothing else."""
_MOST_BYTES = max(LARGEST_BYTES.values())
GONE = 0xFFFF
"""In place of a number of pages: the socket that says so is closed."""
CREDIT = 0xFFFE
"""In place of a number of pages: a receiver says how far its peer may send."""
MOST_WINDOW = 1024
"""Messages that may be unread or under way."""


def mtu_bytes(mtu: int) -> int:
    """Of an ``ibv_mtu``."""
    return 128 << mtu


@dataclass(frozen=True)
class Hello:
    """A request's private data: the address that datagrams are to go ``towards``, and who is going to send
    them, where that is to be known: the UDP address (``host``, ``port``) that queue pair ``qp_num`` has; port
    0: nobody.  Addresses are IPv6 or IPv4-mapped.
    """

    towards: bytes
    host: bytes = bytes(16)
    port: int = 0
    qp_num: int = 0

    def encode(self) -> bytes:
        """As private data."""
        return _HELLO.pack(MAGIC, VERSION, self.towards, self.port, self.qp_num, self.host)

    @classmethod
    def decode(cls, data: bytes) -> Hello:
        """`ProtocolError` where it is none."""
        if len(data) < _HELLO.size:
            raise ProtocolError(f"a request of {len(data)} bytes")
        magic, version, towards, port, qp_num, host = _HELLO.unpack_from(data)
        if (magic, version) != (MAGIC, VERSION):
            raise ProtocolError(f"magic {magic!r}, version {version}")
        return cls(towards, host, port, qp_num)


def encode_answer(mtu: int, window: int) -> bytes:
    """The answer's private data: the ``ibv_mtu`` up to which messages are taken, and for how many of them
    there is room at first.
    """
    return _ANSWER.pack(MAGIC, VERSION, mtu, window)


def decode_answer(data: bytes) -> tuple[int, int]:
    """The ``ibv_mtu``, and the window; `ProtocolError`."""
    if len(data) < _ANSWER.size:
        raise ProtocolError(f"an answer of {len(data)} bytes")
    magic, version, mtu, window = _ANSWER.unpack_from(data)
    if (magic, version) != (MAGIC, VERSION):
        raise ProtocolError(f"magic {magic!r}, version {version}")
    if not SMALLEST_MTU <= mtu <= LARGEST_MTU or not 1 <= window <= MOST_WINDOW:
        raise ProtocolError(f"MTU {mtu}, window {window}")
    return int(mtu), int(window)


class Header(NamedTuple):
    """In front of a datagram: the UDP address that it is said to come from (``host`` IPv6 or IPv4-mapped,
    ``port``), its ``number`` among those of its queue pair (16 bits), its length in all, the ``pages``
    messages of the ``mtu`` (``ibv_mtu``) that follow, and the ``position`` of the first among all messages
    from its queue pair to this one (32 bits).  Of `CREDIT`: ``position`` is the limit, ``total`` the window.
    """

    host: bytes
    port: int
    number: int
    total: int
    pages: int
    mtu: int
    position: int = 0

    def encode(self) -> bytes:
        """As the first bytes of a message."""
        return _HEADER.pack(
            MAGIC, VERSION, self.mtu, self.port, self.number, self.position, self.total, self.pages, self.host
        )

    @classmethod
    def decode(cls, data: bytes, length: int) -> Header:
        """Of a message of ``length`` bytes, which begins with ``data``; `ProtocolError` where it is none, or
        the lengths contradict each other.
        """
        if length < HEADER_BYTES:
            raise ProtocolError(f"a message of {length} bytes")
        magic, version, mtu, port, number, position, total, pages, host = _HEADER.unpack_from(data)
        if (magic, version) != (MAGIC, VERSION):
            raise ProtocolError(f"magic {magic!r}, version {version}")
        if not SMALLEST_MTU <= mtu <= LARGEST_MTU or not port:
            raise ProtocolError(f"MTU {mtu}, port {port}")
        if pages == GONE:
            return cls(host, port, number, 0, GONE, mtu)
        if pages == CREDIT:
            if not 1 <= total <= MOST_WINDOW:
                raise ProtocolError(f"a window of {total}")
            return cls(host, port, number, total, CREDIT, mtu, position)
        if total > _MOST_BYTES or cut(total, mtu) != (pages, length - HEADER_BYTES):
            raise ProtocolError(f"{total} bytes as {pages} pages and {length - HEADER_BYTES} bytes")
        return cls(host, port, number, total, pages, mtu, position)

    def page_bytes(self, index: int) -> int:
        """What page message ``index`` has to have."""
        size = mtu_bytes(self.mtu)
        return min(size, self.total - index * size)


def cut(total: int, mtu: int) -> tuple[int, int]:
    """How many page messages a datagram of ``total`` bytes has, and how many bytes are in its first one:
    those behind the last whole page, where there is room for them beside the header.
    """
    size = mtu_bytes(mtu)
    pages, rest = divmod(total, size)
    return (pages, rest) if rest <= size - HEADER_BYTES else (pages + 1, 0)


def page_immediate(number: int, index: int) -> int:
    """The immediate of page message ``index`` of a datagram."""
    return number << 16 | index


def of_immediate(immediate: int) -> tuple[int, int]:
    """Number and index of a page message."""
    return immediate >> 16, immediate & 0xFFFF
