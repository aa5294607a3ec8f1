"""The work request module: RDMA WRITEs of what an address record names, and notifications, which are
immediates, or in memory.

Contiguous memory takes one work request, scattered memory one for each run; each that crosses the end of the
peer's pool is cut there.  Requests go to the driver as numbers: a verbs work request, its elements and its
checks would cost more than the rest of a small message.
"""

from __future__ import annotations

from array import array
from functools import lru_cache
from typing import TYPE_CHECKING

import cython

from softhca.driver.work_requests import ReceiveRequest
from softhca.machine.primitives import address_of, bytes_at, store64
from softhca.sockets.memory_management import Piece
from softhca.sockets.memory_processing import Page
from softhca.sockets.protocol import EVENT_REQUEST, NOTIFICATION_RING, RING_ENTRIES, WAKES
from softhca.verbs import enums as e

if TYPE_CHECKING:
    from softhca.driver.qp import QpHandle

INLINE_BYTES = 512
"""Up to so many bytes the work request itself carries the data."""
WHOLE_BYTES = 64 << 10
"""Where the adapter writes in place, up to so many bytes the WRITE that carries the data is the notification,
too.  More is written without one, since the initiator does that in shared memory, and then told."""
PACKET_BYTES = 4096
"""What a packet carries where nobody says the path's MTU."""
WORK_REQUESTS = 4
"""At most so many for one notification, runs of scattered memory apart."""

TAKEN = 1 << 62
"""In the number of a completion: the data have been taken, which is before they are told."""

SIGNALED, SOLICITED, INLINE = (
    int(e.IBV_SEND_SIGNALED), int(e.IBV_SEND_SOLICITED), int(e.IBV_SEND_INLINE)
)  # fmt: skip
_WRITE = cython.declare(cython.uint, int(e.IBV_WR_RDMA_WRITE))
_WRITE_IMM = cython.declare(cython.uint, int(e.IBV_WR_RDMA_WRITE_WITH_IMM))
_SIGNALED = cython.declare(cython.uint, SIGNALED)
_WAKING = cython.declare(cython.uint, SIGNALED | SOLICITED)
_INLINE = cython.declare(cython.uint, INLINE)
_TAKEN = cython.declare(cython.ulonglong, TAKEN)
_WHOLE = cython.declare(cython.ulonglong, WHOLE_BYTES)
_IMMDT_BYTES = cython.declare(cython.ulonglong, 4)
_NUMBERS = cython.declare(cython.ulonglong, 0xFFFFFFFF)
_LAST_ENTRY = cython.declare(cython.ulonglong, RING_ENTRIES - 1)
_EVENT_REQUEST = cython.declare(cython.ulonglong, EVENT_REQUEST)
_WAKES = cython.declare(cython.ulonglong, WAKES)
_NOTIFICATION_RING = cython.declare(cython.ulonglong, NOTIFICATION_RING)


class WorkRequests:
    """Builds and posts for ``queue_pair``, the driver's half of one; ``address`` and ``rkey`` are the peer's
    pool, ``record`` the address of the peer's record B; ``packet_bytes`` is the path's MTU, a power of two.
    ``told`` counts notifications, modulo 2^32.  ``in_place``: WRITEs are known to take no packets.

    ``flags`` of a call are ``IBV_SEND_SIGNALED`` and ``IBV_SEND_SOLICITED``, of the notification.
    """

    def __init__(
        self, queue_pair: QpHandle, address: int, rkey: int, record: int, packet_bytes: int = PACKET_BYTES
    ) -> None:
        self._queue_pair = queue_pair
        self._post, self._ring = queue_pair.post_send, queue_pair.ring
        self._address, self._rkey, self._record = address, rkey, record
        self._packet_bytes = packet_bytes
        self.in_place = False
        self.told = 0
        self._words = array("Q", (0, 0))
        self._words_address = address_of(self._words)
        self._wakes = 0

    def write(
        self,
        number: int,
        runs: list[Page],
        places: list[Piece],
        immediate: int,
        flags: int = SIGNALED,
        inline: bool = False,
        early: bool = False,
        whole: int = WHOLE_BYTES,
    ) -> None:
        """WRITE ``runs`` to ``places``, whose lengths add up to the same, and tell; the completion is
        ``number``.  ``inline``: the work requests carry the data, so that ``runs`` need no key.  ``early``:
        where the data are written before they are told there is one more completion, ``number`` with `TAKEN`.
        Up to ``whole`` bytes in one request are not, where the adapter writes in place.
        """
        parts: list[tuple[Page, int]]
        last: cython.Py_ssize_t
        part: cython.Py_ssize_t
        offset: cython.ulonglong
        before: cython.ulonglong
        size: cython.ulonglong
        rest: cython.ulonglong = 0
        parts = _cut(runs, places)
        last = len(parts) - 1
        for part in range(last):
            run, offset = parts[part]
            self._write(_WRITE, 0, 0, number, offset, run, inline)
        run, offset = parts[last]
        address, size, lkey = run
        if not self.in_place:
            rest = 0 if early else self._told_with(size)
        elif not last and size <= whole:
            rest = size
        before = size - rest
        if before:
            run = Page(address, before, lkey)
            if early:
                self._write(_WRITE, _SIGNALED, 0, number | _TAKEN, offset, run, inline)
            else:
                self._write(_WRITE, 0, 0, number, offset, run, inline)
        if rest:
            run = Page(address + before, rest, lkey)
            self._write(_WRITE_IMM, flags, immediate, number, offset + before, run, inline)
        else:
            self._write(_WRITE_IMM, flags, immediate, number, 0, None, False)
        self._count()
        self._ring()

    def _told_with(self, length: int) -> int:
        """How many of the last ``length`` bytes of a message the WRITE carries that tells of it, where WRITEs
        are packets; one that tells nothing has those before.

        The packets of that one may all have one length, and then leave together (`transport.uniform`), and
        with them what tells, if it is no longer.  So that one carries what is behind the last whole packet
        where the immediate fits behind it, and nothing where it does not.  Two packets leave together
        however they are.
        """
        packet: cython.ulonglong = self._packet_bytes
        rest: cython.ulonglong = length & (packet - 1)
        if length <= 2 * packet:
            return length
        return rest if rest + _IMMDT_BYTES <= packet else 0

    def _count(self) -> int:
        """One notification more: its number."""
        self.told = (self.told + 1) & _NUMBERS
        return self.told

    def write_run(
        self, number: int, address: int, length: int, lkey: int, places: list[Piece], immediate: int,
        flags: int, inline: bool,
    ) -> None:
        """`write` one run, or what is inline, by two requests at most where the peer's pool does not end in
        it.
        """
        rest: cython.ulonglong
        if len(places) > 1 or (self.in_place and length > _WHOLE):
            self.write(number, [Page(address, length, lkey)], places, immediate, flags, inline)
            return
        remote: cython.ulonglong = self._address + places[0][0]
        rest = length if inline or self.in_place else self._told_with(length)
        length -= rest
        if length:
            self._queue_pair.post_run(_WRITE, 0, 0, number, remote, self._rkey, address, length, lkey)
        if inline or not rest:
            flags |= _INLINE
        self._queue_pair.post_run(
            _WRITE_IMM, flags, immediate, number, remote + length if rest else self._address, self._rkey,
            address + length, rest, lkey,
        )  # fmt: skip
        self._count()
        self._ring()

    def write_in_memory(
        self, number: int, address: int, length: int, lkey: int, places: list[Piece], immediate: int,
        inline: bool,
    ) -> None:
        """WRITE one run, and then the notification into the peer's ring; the completion ``number`` comes when
        both are written.
        """
        told: cython.ulonglong = self._count()
        flags: cython.uint = _INLINE if inline else 0
        size: cython.ulonglong
        for offset, size in places:
            self._queue_pair.post_run(
                _WRITE, flags, 0, number, self._address + offset, self._rkey, address, size, lkey
            )
            address += size
        store64(self._words_address, told << 32 | immediate)
        place: cython.ulonglong = self._record + _NOTIFICATION_RING + 8 * (told & _LAST_ENTRY)
        self._write_words(_WRITE, _SIGNALED, 0, number, place, 8)

    def credit_in_memory(self, number: int, head: int, count: int) -> None:
        """Write record B at the peer, and tell nothing."""
        self._write_record(_WRITE, _SIGNALED, 0, number, head, count)

    def request_event(self, number: int, wanted: int) -> None:
        """Ask the peer for an immediate with what it writes next, or for a `WAKE`."""
        store64(self._words_address, wanted)
        self._write_words(_WRITE, _SIGNALED, 0, number, self._record + _EVENT_REQUEST, 8)

    def wake(self, number: int) -> None:
        """Wake a thread of the peer's program, which learns that its request is answered."""
        self._wakes += 1
        store64(self._words_address, self._wakes)
        self._write_words(_WRITE, _WAKING, 0, number, self._record + _WAKES, 8)

    def _write_record(
        self, opcode: int, flags: int, immediate: int, number: int, head: int, count: int
    ) -> None:
        store64(self._words_address, head)
        store64(self._words_address + 8, count)
        self._write_words(opcode, flags, immediate, number, self._record, 16)

    def _write_words(
        self, opcode: int, flags: int, immediate: int, number: int, remote: int, length: int
    ) -> None:
        """Write what stands in `_words`."""
        self._queue_pair.post_run(
            opcode, flags | _INLINE, immediate, number, remote, self._rkey, self._words_address, length, 0
        )
        self._ring()

    def _write(
        self,
        opcode: int,
        flags: int,
        immediate: int,
        number: int,
        offset: int,
        run: Page | None,
        inline: bool,
    ) -> None:
        """Post one WRITE of ``run`` (None: of nothing) to ``offset`` in the peer's pool, without ringing."""
        elements: tuple[Page, ...] = ()
        data: bytes | None = None
        if inline and run is not None:
            data = bytes_at(run[0], run[1])
            flags |= _INLINE
        elif run is not None:
            elements = (run,)
        self._post(
            opcode,
            flags,
            immediate,
            number,
            self._address + offset,
            self._rkey,
            0,
            0,
            0,
            0,
            0,
            elements,
            data,
        )

    def notify(self, number: int, immediate: int, flags: int = SIGNALED) -> None:
        """Tell, without data."""
        self._write(_WRITE_IMM, flags, immediate, number, 0, None, False)
        self._count()
        self._ring()

    def probe(self, number: int) -> None:
        """A WRITE of nothing, of which the peer's program learns nothing, and its adapter says that it has
        come.
        """
        self._write(_WRITE, _SIGNALED, 0, number, 0, None, False)
        self._ring()

    def credit(self, number: int, head: int, count: int, immediate: int, flags: int = SIGNALED) -> None:
        """Write record B at the peer, and tell."""
        self._count()
        self._write_record(_WRITE_IMM, flags, immediate, number, head, count)

    def receive(self, count: int) -> None:
        """Have ``count`` notifications more received."""
        chain = _receives(count)
        if chain is not None:
            self._queue_pair.post_receives(chain)


@lru_cache(maxsize=8)
def _receives(count: int) -> ReceiveRequest | None:
    """A chain of so many receives without memory; all streams post the same."""
    chain: ReceiveRequest | None = None
    for _ in range(count):
        request = ReceiveRequest()
        request.wr_id, request.sges, request.following = 0, (), chain
        chain = request
    return chain


def _cut(runs: list[Page], places: list[Piece]) -> list[tuple[Page, int]]:
    """``runs`` cut where a place ends: parts, and the offset in the pool of each."""
    if len(runs) == 1 and len(places) == 1:
        return [(runs[0], places[0][0])]
    found = []
    targets = iter(places)
    offset, left = next(targets)
    for address, length, lkey in runs:
        while length:
            if not left:
                offset, left = next(targets)
            taken = min(length, left)
            found.append((Page(address, taken, lkey), offset))
            address, length = address + taken, length - taken
            offset, left = offset + taken, left - taken
    return found
