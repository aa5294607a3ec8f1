"""What two stream sockets say to each other: the offer of each side, notifications, record B.

All numbers are in network byte order but record B, whose two words the reader's adapter puts into memory as
they are (little-endian).  `docs/sockets.md` has the tables.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

MAGIC = b"sS"
VERSION = 2
_OFFER = struct.Struct("!2sBBHQII")
_ADDRESSES = struct.Struct("!16s16s")
OFFER_BYTES = _OFFER.size
HELLO_BYTES = OFFER_BYTES + _ADDRESSES.size
RECORD = struct.Struct("<QQ")
"""Record B as its owner's peer writes it: bytes and notifications that the peer has done with, since the
beginning of the stream.
"""
RECORD_BYTES = RECORD.size

SMALLEST_POOL_BYTES = 16 << 10
LARGEST_POOL_BYTES = 256 << 20
MOST_DATA_BYTES = (1 << 28) - 1

DATA, CREDIT, FIN, RESET = range(4)
_KIND_SHIFT = 30
ALIGNED = 1 << 28
_ALONE = 1
_CLOSED = 1


class ProtocolError(Exception):
    """The peer says what cannot be; the connection is reset."""


@dataclass(frozen=True)
class Offer:
    """Where the peer may write: ``pool_bytes`` at ``address`` (a power of two), and record B behind them,
    all under ``rkey``.  ``port``: the TCP port number of who asks, 0 in an answer.  ``alone``: no TCP
    connection belongs to it.
    """

    address: int
    pool_bytes: int
    rkey: int
    port: int = 0
    alone: bool = False

    def encode(self, host: bytes = b"", towards: bytes = b"") -> bytes:
        """As private data; a request has the IPv6 or IPv4-mapped TCP addresses, too: ``host`` of who asks,
        and ``towards``, the one that it is going to connect to.
        """
        flags = _ALONE if self.alone else 0
        text = _OFFER.pack(MAGIC, VERSION, flags, self.port, self.address, self.pool_bytes, self.rkey)
        return text + (_ADDRESSES.pack(host, towards) if host else b"")

    @classmethod
    def decode(cls, data: bytes) -> Offer:
        """`ProtocolError` where it is none that can be used."""
        if len(data) < OFFER_BYTES:
            raise ProtocolError(f"an offer of {len(data)} bytes")
        magic, version, flags, port, address, pool_bytes, rkey = _OFFER.unpack_from(data)
        if magic != MAGIC or version != VERSION or flags & ~_ALONE:
            raise ProtocolError(f"magic {magic!r}, version {version}, flags {flags:#x}")
        if not SMALLEST_POOL_BYTES <= pool_bytes <= LARGEST_POOL_BYTES or pool_bytes & (pool_bytes - 1):
            raise ProtocolError(f"a pool of {pool_bytes} bytes")
        if address + pool_bytes + RECORD_BYTES >= 1 << 64:
            raise ProtocolError(f"a pool at {address:#x}")
        return cls(address, pool_bytes, rkey, port, bool(flags & _ALONE))


def addresses_of(hello: bytes) -> tuple[bytes, bytes]:
    """The addresses behind the offer of a request: who asks, and what it connects to; `ProtocolError`."""
    if len(hello) < HELLO_BYTES:
        raise ProtocolError(f"a request of {len(hello)} bytes")
    host, towards = _ADDRESSES.unpack_from(hello, OFFER_BYTES)
    return host, towards


@dataclass(frozen=True)
class Notification:
    """An immediate: ``DATA`` (``length`` bytes of the stream, which begin at the next page of the pool where
    ``aligned``), ``CREDIT`` (record B was written), ``FIN`` (no more data; ``closed``: nobody reads any more
    either), ``RESET``.
    """

    kind: int
    length: int = 0
    aligned: bool = False
    closed: bool = False

    def encode(self) -> int:
        """As the 32 bits of an immediate."""
        value = self.length | (ALIGNED if self.aligned else 0) if self.kind == DATA else int(self.closed)
        return self.kind << _KIND_SHIFT | value

    @classmethod
    def decode(cls, immediate: int) -> Notification:
        """`ProtocolError` for bits that mean nothing."""
        kind, value = immediate >> _KIND_SHIFT, immediate & (1 << _KIND_SHIFT) - 1
        if kind == DATA:
            length = value & MOST_DATA_BYTES
            if not length or value & ~(MOST_DATA_BYTES | ALIGNED):
                raise ProtocolError(f"an immediate of {immediate:#x}")
            return cls(DATA, length, bool(value & ALIGNED))
        if value & ~_CLOSED or (value and kind != FIN):
            raise ProtocolError(f"an immediate of {immediate:#x}")
        return cls(kind, closed=bool(value))
