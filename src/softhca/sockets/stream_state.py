"""A stream's protocol without verbs, socket, thread or clock: what a notification of the peer means, and what
this side may say.

`arrived` takes immediates in their order, `credited` the words of record B.  `next_data` and `next_control`
say what to write next.  A `ProtocolError` ends the stream (`RESET`), and nothing was changed by what caused
it.
"""

from __future__ import annotations

import cython

from softhca.memory.bits import OFFSET_MASK
from softhca.sockets.memory_management import Piece, RecordA, RecordB
from softhca.sockets.protocol import (
    ALIGNED,
    CREDIT,
    DATA,
    FIN,
    MOST_DATA_BYTES,
    RESET,
    Notification,
    Offer,
    ProtocolError,
)

_CREDIT = Notification(CREDIT).encode()
_IN_MEMORY = Notification(CREDIT, in_memory=True).encode()
_NUMBERS = cython.declare(cython.ulonglong, 0xFFFFFFFF)
_OFFSET = cython.declare(cython.ulonglong, OFFSET_MASK)
_ALIGNED = cython.declare(cython.ulonglong, ALIGNED)
_MOST = cython.declare(cython.ulonglong, MOST_DATA_BYTES)
# An immediate of data is their length, and maybe `ALIGNED`.


class StreamState:
    """``own`` is the pool's account, ``peers`` that of the peer's pool.

    ``received`` counts the peer's notifications, modulo 2^32, ``told`` besides the requests that it has
    answered without one; ``peer_in_memory``: some stand in the ring.
    ``finished``: the peer sends no more data.  ``deaf``: nor reads it any.  ``was_reset``: it has given the
    connection up.  ``said_fin``: this side sends no more.
    """

    def __init__(self, pool_bytes: int, peer: Offer) -> None:
        self.own = RecordA(pool_bytes)
        self.peers = RecordB(peer.address, peer.pool_bytes, peer.rkey)
        self.finished = self.deaf = self.was_reset = self.said_fin = False
        self.opened = self.peer_in_memory = False
        self.received = self.told = 0

    def arrived(self, immediate: int) -> int:
        """The next notification has arrived; its kind.  After ``CREDIT`` the caller reads record B."""
        length: cython.ulonglong = immediate & _MOST
        if length and immediate <= (_ALIGNED | _MOST):
            if self.finished:
                raise ProtocolError("data behind FIN")
            self.own.arrived(length, immediate != length)
            self.opened = True
            self._count()
            return DATA
        said = Notification.decode(immediate)
        self._count()
        self.peer_in_memory = self.peer_in_memory or said.in_memory
        if said.kind == FIN:
            self.finished = True
            self.deaf = self.deaf or said.closed
        elif said.kind == RESET:
            self.was_reset = self.finished = self.deaf = True
        self.opened = True
        return said.kind

    def _count(self) -> None:
        self.received = (self.received + 1) & _NUMBERS
        self.told += 1

    def arrived_in_memory(self, immediate: int) -> None:
        """`arrived` of what stood in the ring: data are told so, and nothing else."""
        if not 0 < immediate <= (_ALIGNED | _MOST):
            raise ProtocolError(f"{immediate:#x} in the notification ring")
        self.arrived(immediate)

    def next_number(self) -> int:
        """The number of the peer's next notification."""
        return (self.received + 1) & _NUMBERS

    def next_data(self, length: int, threshold: int) -> tuple[int, list[Piece], int]:
        """Reserve room for as many of ``length`` bytes as there is: how many, where they go in the peer's
        pool, and the notification.  0 bytes: there is none.  More than ``threshold`` bytes begin at a page.
        """
        aligned: cython.bint = length > threshold and self.peers.tail & _OFFSET != 0
        taken: cython.ulonglong = min(length, self.peers.room(aligned))
        if aligned and taken <= threshold:
            aligned = False
            taken = min(length, self.peers.room())
        if not taken:
            return 0, [], 0
        return taken, self.peers.reserve(taken, aligned), taken | _ALIGNED if aligned else taken

    def next_credit(self, anyhow: bool = False) -> tuple[int, int, int] | None:
        """Record B's two words and the notification, where there is something to tell."""
        found = self.own.credit(anyhow)
        return None if found is None else (*found, _CREDIT)

    def opening(self) -> tuple[int, int, int]:
        """As `next_credit`, with nothing to tell: the peer may send."""
        return 0, 0, _CREDIT

    @staticmethod
    def in_memory() -> int:
        """From here on this side may tell in memory: the notification."""
        return _IN_MEMORY

    @staticmethod
    def event() -> int:
        """There is something in memory: the notification."""
        return _CREDIT

    def fin(self, closed: bool) -> int:
        """This side sends no more: the notification."""
        self.said_fin = True
        return Notification(FIN, closed=closed).encode()

    @staticmethod
    def reset() -> int:
        """This side gives the connection up: the notification."""
        return Notification(RESET).encode()
