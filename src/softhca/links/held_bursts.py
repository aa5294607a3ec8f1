"""Memory of sent bursts that the kernel keeps for a while, so that the next ones take other memory.

Theory of operation.  On one machine a packet's memory goes from the sender's processor to the receiver's and
back: the receiver's frees it, and the kernel gives what was freed last to the next packet.  Its cache lines
still stand in the receiver's cache then, and each has to be taken out of there before it can be written: a
burst of 61,680 bytes takes 7 to 27 µs to be written, and 1.5 where the lines have left that cache meanwhile.
So long bursts to this machine ask for a time stamp (SO_TIMESTAMPING), for which the kernel puts a reference
to the packets into the sending socket's error queue.  The oldest are dropped when more than `MOST_HELD` are
there: memory comes round again only after some 4 MB, more than such a cache holds, however soon the receiver
reads.

What is held counts against the socket's receive buffer, which takes nothing else
(`links.sockets.hold_bursts`).  Nothing is held where it has too little room; all is dropped when nothing is
sent for `IDLE_NS`.
"""

from __future__ import annotations

import cython

from softhca.machine.primitives import drop_held

__all__ = ["HELD_BYTES", "HOLDERS", "IDLE_NS", "LEAST_HELD", "MOST_HELD", "HeldBursts"]

HELD_BYTES = 32_768
"""Shorter bursts are not held: to hold and to drop one takes a microsecond."""

HOLDERS = 4
"""So many sockets of a link hold bursts, those that send first after an idle time: 20 MB at the most."""

MOST_HELD = 64
"""So many bursts a socket holds, and up to `STEP` more."""

LEAST_HELD = 16
"""Where there is room for fewer, none is held."""

STEP = 8
"""So many are dropped by one system call."""

BURST_ROOM_BYTES = 66_560
"""What a held burst takes of the receive buffer, at the most."""

IDLE_NS = 20_000_000
"""After so long without a burst the memory is given back."""

_STEP = cython.declare(cython.uint, STEP)


class HeldBursts:
    """The bursts that the sending socket ``fd`` holds: ``count`` of them, up to ``most``, and `STEP` more.
    ``most`` is 0 where nothing is held: ``room_bytes``, the socket's receive buffer, is too small, or the
    kernel was found to hold none.
    """

    def __init__(self, fd: int, room_bytes: int) -> None:
        most = min(MOST_HELD, room_bytes // BURST_ROOM_BYTES - STEP)
        self.fd = fd
        self.count = 0
        self.most = most if most >= LEAST_HELD else 0

    def sent(self) -> None:
        """One more is held; the oldest are dropped where it is time."""
        self.count += 1
        if self.count >= self.most + _STEP:
            self._drop()

    def _drop(self) -> None:
        dropped: cython.int = drop_held(self.fd, _STEP)
        if dropped <= 0:  # no time stamps here, or no reference to the packet comes with them
            self.most = 0
            self.count = 0
        else:
            self.count -= dropped if cython.cast(cython.uint, dropped) < self.count else self.count

    def clear(self) -> None:
        """Drop all."""
        while drop_held(self.fd, _STEP) > 0:
            pass
        self.count = 0
