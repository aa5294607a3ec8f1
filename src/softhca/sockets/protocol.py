"""What two stream sockets say to each other: the offer of each side, notifications, and what a side writes
behind its peer's pool.

All numbers are in network byte order but those behind the pool, which the reader's adapter puts into memory
as they are (little-endian).  `docs/sockets.md` has the tables.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

MAGIC = b"sS"
VERSION = 3
_OFFER = struct.Struct("!2sBBHQII")
_ADDRESSES = struct.Struct("!16s16s")
OFFER_BYTES = _OFFER.size
HELLO_BYTES = OFFER_BYTES + _ADDRESSES.size
# What the peer writes behind the pool: first record B, two 64-bit words, which say the bytes and the
# notifications that it has done with since the beginning of the stream.
EVENT_REQUEST = 64
"""Offset behind the pool of a 64-bit word by which the peer says what it wants with what comes next, because
nobody looks at its memory: `WAKE`, or an immediate (`IMMEDIATE`, or anything else but 0).
"""
IMMEDIATE, WAKE = 1, 2
"""Of an event request: an immediate, for a descriptor is waited for; an RDMA WRITE with the solicited flag,
for a thread that waits in a call drives its own adapter, and looks when that one is woken.
"""
WAKES = 72
"""Offset behind the pool of a 64-bit word in which the peer counts how often it has answered a `WAKE`: who
finds nothing new then must ask again.
"""
NOTIFICATION_RING = 128
"""Offset behind the pool of the notification ring: that number which stands in the upper half of an entry,
modulo `RING_ENTRIES`, is its place; the lower half is what the immediate would be.
"""
RING_ENTRIES = 256
"""More than there can be notifications of one side that the other has not taken: `NOTIFICATIONS` of data,
and one for each receive work request.
"""
BEHIND_BYTES = NOTIFICATION_RING + 8 * RING_ENTRIES
"""What there is behind the pool."""

SMALLEST_POOL_BYTES = 16 << 10
LARGEST_POOL_BYTES = 256 << 20
MOST_DATA_BYTES = (1 << 28) - 1

DATA, CREDIT, FIN, RESET = range(4)
_KIND_SHIFT = 30
ALIGNED = 1 << 28
_ALONE = 1
_CLOSED = 1
_IN_MEMORY = 1


class ProtocolError(Exception):
    """The peer says what cannot be; the connection is reset."""


@dataclass(frozen=True)
class Offer:
    """Where the peer may write: ``pool_bytes`` at ``address`` (a power of two), and `BEHIND_BYTES` behind
    them, all under ``rkey``.  ``port``: the TCP port number of who asks, 0 in an answer.  ``alone``: no TCP
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
        if address + pool_bytes + BEHIND_BYTES >= 1 << 64:
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
    ``aligned``), ``CREDIT`` (record B was written; ``in_memory``: from now on it may be written without
    telling, and notifications of data may stand in the ring), ``FIN`` (no more data; ``closed``: nobody reads
    any more either), ``RESET``.
    """

    kind: int
    length: int = 0
    aligned: bool = False
    closed: bool = False
    in_memory: bool = False

    def encode(self) -> int:
        """As the 32 bits of an immediate."""
        if self.kind == DATA:
            value = self.length | (ALIGNED if self.aligned else 0)
        else:
            value = _IN_MEMORY if self.in_memory else _CLOSED if self.closed else 0
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
        if value & ~_CLOSED or (value and kind == RESET):
            raise ProtocolError(f"an immediate of {immediate:#x}")
        return cls(kind, closed=kind == FIN and bool(value), in_memory=kind == CREDIT and bool(value))
