"""Packets between peers on one host, through a ring in the reader's file instead of the kernel.

What a queue pair cannot have done by its executor goes as the packets that any link carries; only the way is
shorter.  Nothing on it can damage a packet, so that no ICRC is made nor checked (four zeros stand in its
place): it guards from damage alone, for whoever writes to the ring could make it as well.

The ring is a link in one direction: one end only sends, the other only receives.  A burst is two entries of
the ring: its description, 16 bytes, and its segments.  Neither side believes what the other writes: who finds
what cannot be closes the ring, by a word beside it, for both and for good.  All packets go by the port's own
link then, and so do the retransmissions of what the ring held.
"""

from __future__ import annotations

import errno
from array import array
from collections.abc import Callable
from typing import TYPE_CHECKING

import cython

from softhca.links.link import AGAIN, SENT, Link
from softhca.machine.primitives import address_of, atomic_cas64, copy, load64, store64
from softhca.memory.bits import PAGE_BYTES
from softhca.memory.shared_layout import (
    ASLEEP,
    READER_HEADER_BYTES,
    RING_CLOSED,
    RING_ENTRIES,
    RING_PAGES,
    RING_STORE_BYTES,
    WAKE_REQUEST,
)
from softhca.queues.ring import RingConsumer, RingLayout, RingProducer, plan
from softhca.wire.burst import HEAD_BYTES
from softhca.wire.framing import ROCE_V4, ROCE_V6

if TYPE_CHECKING:
    from softhca.wire.burst import Arrival, Burst

assert plan(RING_ENTRIES, RING_STORE_BYTES) == RING_PAGES

_AGAIN = cython.declare(cython.int, AGAIN)
_SENT = cython.declare(cython.int, SENT)
_EPIPE = cython.declare(cython.int, errno.EPIPE)
_ENOBUFS = cython.declare(cython.int, errno.ENOBUFS)
_DESCRIPTION = cython.declare(cython.uint, 16)
_ASLEEP = cython.declare(cython.uint, ASLEEP)
_HEAD_BYTES = cython.declare(cython.ulonglong, HEAD_BYTES)
_IN_PLACE_BYTES = cython.declare(cython.ulonglong, 2 * HEAD_BYTES)
_HAS_ICRC = cython.declare(cython.int, 32)
_MASK32 = cython.declare(cython.ulonglong, 0xFFFFFFFF)
_V4 = cython.declare(cython.int, ROCE_V4)
_V6 = cython.declare(cython.int, ROCE_V6)


def layout_at(reader: int) -> RingLayout:
    """The ring in the reader's file that is mapped at an address."""
    pages = [reader + READER_HEADER_BYTES + i * PAGE_BYTES for i in range(RING_PAGES)]
    bodies = RING_PAGES - RING_STORE_BYTES // PAGE_BYTES
    return RingLayout(RING_ENTRIES, RING_STORE_BYTES, pages[1:bodies], pages[bodies:], pages[0])


class PacketSender(Link):
    """Puts bursts into the ring to a peer, in the reader's file mapped at ``reader``; ``wake`` is called when
    the peer sleeps.  ``bursts`` counts what it has taken."""

    def __init__(self, reader: int, wake: Callable[[], object]) -> None:
        super().__init__(needs_icrc=False)
        self.asleep = reader + ASLEEP
        self.closed = reader + RING_CLOSED
        self.wake = wake
        self.producer = RingProducer(layout_at(reader))
        self._words = array("Q", [0, 0])
        self.words = self._words
        self.words_address = address_of(self._words)
        self.stalled = False
        self.bursts = 0

    def send(self, burst: Burst) -> int:
        """Hand a burst over: ``SENT``; ``AGAIN`` where there is no room; −EPIPE where the ring is closed, for
        good; −ENOBUFS where there has been no room since a burst was given up."""
        n: cython.ulonglong = burst.length
        if load64(self.closed):
            return -_EPIPE
        room: cython.bint = self.producer.space() >= 2 and self.producer.fits(n + _DESCRIPTION)
        if self.producer.broken:
            store64(self.closed, 1)
            return -_EPIPE
        if not room:
            return -_ENOBUFS if self.stalled else _AGAIN
        self.stalled = False
        self.words[0] = n | cython.cast(cython.ulonglong, burst.stride) << 32
        self.words[1] = (
            burst.route.source_port
            | (burst.route.traffic_class & 0xFF) << 16
            | burst.route.framing << 24
            | cython.cast(cython.ulonglong, burst.has_icrc) << _HAS_ICRC
        )
        self.producer.push(self.words_address, _DESCRIPTION)
        self.producer.push(burst.address, n)
        self.bursts += 1
        if atomic_cas64(self.asleep, 1, 0):  # a full barrier: the peer sees the ring, or is woken
            self.wake()
        return _SENT

    def abandon(self, burst: Burst) -> None:
        """A burst has waited for room long enough: the next ones do not wait until there is some, so that a
        peer that has stopped keeps the others waiting only once."""
        self.stalled = True

    def counters(self) -> dict[str, int]:
        """By name."""
        return {"bursts_sent": self.bursts}


class PacketReceiver(Link):
    """Takes bursts that the peer with the GID ``source`` has put into the ring of the reader's file at
    ``reader``; this adapter's GID is ``destination``.  ``fresh``: nothing was taken from it so far.

    Of long segments no more than the heads are taken out of the ring, where checks need bytes that nobody
    changes; payloads stay there until they are copied into place.
    """

    def __init__(self, reader: int, source: bytes, destination: bytes) -> None:
        super().__init__()
        self.asleep = reader + ASLEEP
        self.wake_request = reader + WAKE_REQUEST
        self.closed = reader + RING_CLOSED
        self.source = source
        self.destination = destination
        self.consumer = RingConsumer(layout_at(reader))
        self._words = array("Q", [0, 0])
        self.words = self._words
        self.words_address = address_of(self._words)
        self.described = False
        self.held = False
        self.broken = False
        self.fresh = True
        self.bursts = 0

    def receive(self, arrival: Arrival) -> bool:
        """Take one burst; False where there is none.  Its room is the sender's again after `done`."""
        n: cython.longlong
        length: cython.ulonglong
        stride: cython.ulonglong
        framing: cython.int
        if self.broken:
            return False
        if not self.described:
            n = self.consumer.take(self.words_address, _DESCRIPTION)
            if n != _DESCRIPTION:
                return False if n == 0 else self.give_up()
            self.described = True
        n = self.consumer.take_in_place(arrival.capacity)
        if n == 0:
            return False  # the description is there already, its burst is on its way
        self.described = False
        length = self.words[0] & _MASK32
        stride = self.words[0] >> 32
        framing = (self.words[1] >> 24) & 0xFF
        if n < 0 or length != cython.cast(cython.ulonglong, n) or stride == 0 or stride > length:
            return self.give_up()
        if framing != _V4 and framing != _V6:
            return self.give_up()
        self.held = True
        arrival.length = length
        arrival.stride = stride
        arrival.framing = framing
        arrival.source = self.source
        arrival.source_port = self.words[1] & 0xFFFF
        arrival.destination = self.destination
        arrival.traffic_class = (self.words[1] >> 16) & 0xFF
        arrival.has_icrc = (self.words[1] >> _HAS_ICRC) & 1 != 0
        self.fetch(arrival)
        self.bursts += 1
        return True

    def fetch(self, arrival: Arrival) -> None:
        """Take out of the ring what is looked at of a burst: the heads of long segments without ICRCs, or all
        of it."""
        length: cython.ulonglong = arrival.length
        offset: cython.ulonglong = 0
        rest: cython.ulonglong
        place: cython.ulonglong = 0
        if not arrival.has_icrc and arrival.stride >= _IN_PLACE_BYTES:
            place = self.consumer.layout.place_of(self.consumer.body, length)
        if place == 0:
            arrival.payload_address = arrival.address
            self.consumer.layout.transfer(self.consumer.body, arrival.address, length, False)
            return
        arrival.payload_address = place
        while offset < length:
            rest = length - offset
            copy(arrival.address + offset, place + offset, rest if rest < _HEAD_BYTES else _HEAD_BYTES)
            offset += arrival.stride

    def done(self) -> None:
        """What was received last is not needed any more: its room is the sender's."""
        if self.held:
            self.held = False
            self.consumer.release(2)

    def waiting(self) -> bool:
        """Whether there is something to be looked at."""
        return not self.broken and self.consumer.count() != 0

    def counters(self) -> dict[str, int]:
        """By name."""
        return {"bursts_received": self.bursts}

    def give_up(self) -> bool:
        """What stands in the ring cannot be: read it no more, and let the sender know; False."""
        self.broken = True
        store64(self.closed, 1)
        return False

    def take_wake_request(self) -> bool:
        """Whether the peer has written to memory that the program's threads are to look at: once, behind a
        full barrier."""
        wanted: cython.ulonglong = load64(self.wake_request)
        if wanted:
            atomic_cas64(self.wake_request, wanted, 0)
        return wanted != 0

    def arm_wakeup(self) -> bool:
        """This side is about to sleep: have the peer wake it.  False where there is something
        already, or the peer has written to memory that a thread is to look at."""
        atomic_cas64(self.asleep, 0, 1)
        if load64(self.wake_request):
            return False
        return self.broken or self.consumer.count() <= 0

    def disarm_wakeup(self) -> None:
        """This side is awake."""
        atomic_cas64(self.asleep, 1, 0)
