"""Receive-side scaling: which work queue of a table receives a frame.

The Toeplitz hash of some bytes is the exclusive or, over each of their bits that is set, of the 32 bits of a
secret key that begin at that bit's number.  It spreads what comes over queues, and keeps in one what belongs
together.  Hashed of a frame are, in this order, source and destination address, source and destination
port, each where ``fields`` (``ibv_rx_hash_fields``) have it and the frame has it (`wire.ethernet`).  The low
bits of the hash are the number of the table's entry; the hash of nothing is 0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import cython

from softhca.queues.control_fields import (
    RX_HASH_DST_IPV4,
    RX_HASH_DST_IPV6,
    RX_HASH_DST_PORT_TCP,
    RX_HASH_DST_PORT_UDP,
    RX_HASH_SRC_IPV4,
    RX_HASH_SRC_IPV6,
    RX_HASH_SRC_PORT_TCP,
    RX_HASH_SRC_PORT_UDP,
)
from softhca.wire import ethernet

if TYPE_CHECKING:
    from softhca.transport.context import QueuePair

_L3 = cython.declare(cython.Py_ssize_t, ethernet.L3)
_L4 = cython.declare(cython.Py_ssize_t, ethernet.L4)
_SRC_IP = cython.declare(cython.Py_ssize_t, ethernet.SRC_IP)
_DST_IP = cython.declare(cython.Py_ssize_t, ethernet.DST_IP)
_SRC_PORT = cython.declare(cython.Py_ssize_t, ethernet.SRC_PORT)
_DST_PORT = cython.declare(cython.Py_ssize_t, ethernet.DST_PORT)
_IPV4 = cython.declare(cython.uint, ethernet.IPV4)
_IPV6 = cython.declare(cython.uint, ethernet.IPV6)
_TCP = cython.declare(cython.uint, ethernet.TCP)
_UDP = cython.declare(cython.uint, ethernet.UDP)
_SRC_V4 = cython.declare(cython.uint, RX_HASH_SRC_IPV4)
_DST_V4 = cython.declare(cython.uint, RX_HASH_DST_IPV4)
_SRC_V6 = cython.declare(cython.uint, RX_HASH_SRC_IPV6)
_DST_V6 = cython.declare(cython.uint, RX_HASH_DST_IPV6)
_SRC_TCP = cython.declare(cython.uint, RX_HASH_SRC_PORT_TCP)
_DST_TCP = cython.declare(cython.uint, RX_HASH_DST_PORT_TCP)
_SRC_UDP = cython.declare(cython.uint, RX_HASH_SRC_PORT_UDP)
_DST_UDP = cython.declare(cython.uint, RX_HASH_DST_PORT_UDP)


class Scaling:
    """What a queue pair with an indirection table receives by: ``queues``, the table's entries, a power of
    two of them, and the key of ``TOEPLITZ_KEY_BYTES`` for the hash over ``fields``.
    """

    queues: tuple[QueuePair, ...]
    fields: int
    key: bytes
    _window: int
    _hash: int
    _used: int

    def __init__(self, queues: tuple[QueuePair, ...], fields: int, key: bytes) -> None:
        self.queues = queues
        self.fields = fields
        self.key = key
        self._window = self._hash = self._used = 0

    def queue(self, frame: bytes) -> QueuePair:
        """Who receives the frame that has the key ``frame``."""
        n: cython.uint = len(self.queues)
        return self.queues[self.hash(frame) & (n - 1)] if n > 1 else self.queues[0]

    def hash(self, frame: bytes) -> int:
        """The hash of the frame that has the key ``frame``."""
        fields: cython.uint = self.fields
        self._hash = 0
        self._used = 0
        if fields == 0:
            return 0
        self._window = self.key[0]
        self._window = self._window << 24 | self.key[1] << 16 | self.key[2] << 8 | self.key[3]
        if frame[_L3] == _IPV4:
            self._take(frame, _SRC_IP, 4, fields & _SRC_V4)
            self._take(frame, _DST_IP, 4, fields & _DST_V4)
        elif frame[_L3] == _IPV6:
            self._take(frame, _SRC_IP, 16, fields & _SRC_V6)
            self._take(frame, _DST_IP, 16, fields & _DST_V6)
        if frame[_L4] == _TCP:
            self._take(frame, _SRC_PORT, 2, fields & _SRC_TCP)
            self._take(frame, _DST_PORT, 2, fields & _DST_TCP)
        elif frame[_L4] == _UDP:
            self._take(frame, _SRC_PORT, 2, fields & _SRC_UDP)
            self._take(frame, _DST_PORT, 2, fields & _DST_UDP)
        return self._hash

    def _take(self, frame: bytes, first: int, count: int, wanted: int) -> int:
        """Hash so many bytes more, where they are wanted."""
        i: cython.Py_ssize_t
        bit: cython.int
        byte: cython.uint
        following: cython.uint
        if not wanted:
            return 0
        for i in range(first, first + count):
            byte = frame[i]
            following = self.key[self._used + 4]
            for bit in range(8):
                if byte & 0x80 >> bit:
                    self._hash ^= self._window
                self._window = (self._window << 1 | following >> (7 - bit) & 1) & 0xFFFFFFFF
            self._used += 1
        return 0
