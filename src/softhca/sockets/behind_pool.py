"""What the peer of a stream writes behind this side's pool: record B, a request for an event, and
notifications that stand in memory.

The peer is another process, or adapter: each word is read once, and judged by whoever gets it.
"""

from __future__ import annotations

import cython

from softhca.machine.primitives import atomic_add64, load64, store64
from softhca.sockets.protocol import EVENT_REQUEST, IMMEDIATE, NOTIFICATION_RING, RING_ENTRIES, WAKE, WAKES

_LAST_ENTRY = cython.declare(cython.uint, RING_ENTRIES - 1)
_IMMEDIATE, _WAKE = cython.declare(cython.uint, IMMEDIATE), cython.declare(cython.uint, WAKE)
_WORD = cython.declare(cython.ulonglong, 0xFFFFFFFF)


class BehindPool:
    """The `BEHIND_BYTES` at ``address``, a page's begin."""

    def __init__(self, address: int) -> None:
        self._record = address
        self._request = address + EVENT_REQUEST
        self._wakes = address + WAKES
        self._ring = address + NOTIFICATION_RING

    def record(self) -> tuple[int, int]:
        """Record B, as the peer has written it last: bytes and notifications that it has done with."""
        return load64(self._record), load64(self._record + 8)

    def wakes(self) -> int:
        """How often the peer has answered a `WAKE`."""
        return load64(self._wakes)

    def shows(self, number: int, head: int, done: int, wakes: int) -> bool:
        """Whether notification ``number`` (modulo 2^32) stands in the ring, or record B says something else
        than ``head`` and ``done``, or the peer has not answered ``wakes`` requests.
        """
        word: cython.ulonglong = load64(self._ring + 8 * (number & _LAST_ENTRY))
        if word and word >> 32 == number:
            return True
        if load64(self._record) != head or load64(self._record + 8) != done:
            return True
        return load64(self._wakes) != wakes

    def take(self, number: int) -> int:
        """Notification ``number`` as an immediate, which stands in the ring no more; 0 where it does not."""
        place: cython.ulonglong = self._ring + 8 * (number & _LAST_ENTRY)
        word: cython.ulonglong = load64(place)
        if not word or word >> 32 != number:
            return 0
        store64(place, 0)
        return word & _WORD

    def take_event_request(self) -> int:
        """What the peer wants, which it is owed once: 0 nothing, `WAKE`, or anything else an immediate.  What
        was written to the peer before is seen by it where this is 0 and it asks now: a full barrier lies
        between.
        """
        wanted: cython.ulonglong = atomic_add64(self._request, 0)
        if wanted == 0:
            return 0
        store64(self._request, 0)
        return _WAKE if wanted == _WAKE else _IMMEDIATE
