"""What the peer of a stream writes behind this side's pool: record B, a request for an event, and
notifications that stand in memory.

The peer is another process, or adapter: each word is read once, and judged by whoever gets it.
"""

from __future__ import annotations

import cython

from softhca.machine.primitives import atomic_add64, load64, store64
from softhca.sockets.protocol import EVENT_REQUEST, NOTIFICATION_RING, RING_ENTRIES

_LAST_ENTRY = cython.declare(cython.uint, RING_ENTRIES - 1)
_WORD = cython.declare(cython.ulonglong, 0xFFFFFFFF)


class BehindPool:
    """The `BEHIND_BYTES` at ``address``, a page's begin."""

    def __init__(self, address: int) -> None:
        self._record = address
        self._request = address + EVENT_REQUEST
        self._ring = address + NOTIFICATION_RING

    def record(self) -> tuple[int, int]:
        """Record B, as the peer has written it last: bytes and notifications that it has done with."""
        return load64(self._record), load64(self._record + 8)

    def shows(self, number: int, head: int, done: int) -> bool:
        """Whether notification ``number`` (modulo 2^32) stands in the ring, or record B says something else
        than ``head`` and ``done``.
        """
        word: cython.ulonglong = load64(self._ring + 8 * (number & _LAST_ENTRY))
        if word and word >> 32 == number:
            return True
        return load64(self._record) != head or load64(self._record + 8) != done

    def take(self, number: int) -> int:
        """Notification ``number`` as an immediate, which stands in the ring no more; 0 where it does not."""
        place: cython.ulonglong = self._ring + 8 * (number & _LAST_ENTRY)
        word: cython.ulonglong = load64(place)
        if not word or word >> 32 != number:
            return 0
        store64(place, 0)
        return word & _WORD

    def take_event_request(self) -> bool:
        """Whether the peer wants an event, which it is owed once.  What was written to the peer before is
        seen by it where this is false and it asks now: a full barrier lies between.
        """
        if atomic_add64(self._request, 0) == 0:
            return False
        store64(self._request, 0)
        return True
