"""What a stream sends: messages under way, memory for copies, and the account of the peer's pool.

A completion is asked for where somebody waits for it (memory that may change, a close), and otherwise for
every 16th message or when a quarter of the memory for copies has gone since the last: it answers for all
messages before it, too.

Where the adapter carries WRITEs out in place as they are posted, this side tells *in memory*: data are
written out of the program's own memory, then their notification into the peer's ring.  When that has been
written, which its completion says, this side looks whether the peer has asked for an event, and gives it one.
An immediate is a packet: until it is answered nothing is written in place, and what few messages come
meanwhile are immediates, too.
"""

from __future__ import annotations

from collections import deque

import cython

from softhca.machine.primitives import address_of
from softhca.sockets.behind_pool import BehindPool
from softhca.sockets.memory_management import NOTIFICATIONS, Piece
from softhca.sockets.memory_processing import page_list, space_of
from softhca.sockets.protocol import WAKE
from softhca.sockets.settings import Settings
from softhca.sockets.staging import Staging
from softhca.sockets.stream_state import StreamState
from softhca.sockets.work_requests import INLINE_BYTES, SIGNALED, SOLICITED, TAKEN, WHOLE_BYTES, WorkRequests
from softhca.verbs.pd import PD

MESSAGES = 96
"""Messages of this side that are under way."""
RESERVED = 4
"""Of these, those that are kept for credits, FIN and RESET."""
SIGNAL_EACH = 16
"""A completion is asked for at least so often."""
MISSES = 4
"""After so many waits for memory to be taken in a row, memory is copied rather than waited for."""
TRY_EACH = 256
"""So many copies later it is tried again."""
IN_MEMORY_BYTES = 256 << 10
"""So many bytes at most are told of in memory at once: the peer reads them while they are in a cache."""
IMMEDIATES = 8
"""So many messages are told by immediates, where others could be told in memory, until these are answered."""
PRESSING = NOTIFICATIONS - NOTIFICATIONS // 4
"""A peer that has not told so many notifications as taken gets an event: its program may do nothing."""

_FULL = cython.declare(cython.Py_ssize_t, MESSAGES - RESERVED)
_SIGNAL_EACH = cython.declare(cython.ulonglong, SIGNAL_EACH)
_MISSES, _TRY_EACH = cython.declare(cython.uint, MISSES), cython.declare(cython.uint, TRY_EACH)
_TAKEN = cython.declare(cython.ulonglong, TAKEN)
_INLINE_BYTES = cython.declare(cython.ulonglong, INLINE_BYTES)
_IN_MEMORY_BYTES = cython.declare(cython.ulonglong, IN_MEMORY_BYTES)
_IMMEDIATES = cython.declare(cython.uint, IMMEDIATES)
_PRESSING = cython.declare(cython.ulonglong, PRESSING)
_CREDITS = cython.declare(cython.Py_ssize_t, MESSAGES - 1)
_WAKE = cython.declare(cython.uint, WAKE)
_WHOLE_BYTES = cython.declare(cython.ulonglong, WHOLE_BYTES)
_SIGNALED, _SOLICITED = cython.declare(cython.uint, SIGNALED), cython.declare(cython.uint, SOLICITED)


class Sender:
    """All methods are called with the stream's lock held.

    ``number`` is the last message's; all up to ``retired`` have arrived, and the memory of all up to
    ``taken`` may be changed.  ``direct_bytes`` were sent out of the application's own memory.
    ``in_memory``: notifications of data and credit need no immediate.  ``unconfirmed``: the last message that
    was told so, until `confirm`; else 0.
    """

    requests: WorkRequests
    _state: StreamState

    def __init__(self, pd: PD, settings: Settings) -> None:
        self.direct_bytes = 0
        self.number = self.retired = self.taken = 0
        self.staging = Staging(pd, settings.staging_bytes)
        self.inflight: deque[tuple[int, int, object]] = deque()
        self._lkey = space_of(pd).lkey
        self._threshold = settings.threshold_bytes
        self._direct = max(settings.direct_bytes, settings.threshold_bytes)
        self._chunk = settings.chunk_bytes
        self._signaled = self._signaled_tail = 0
        self._misses = self._copies = 0
        self.in_memory = False
        self.unconfirmed = self._immediate = self._event_request = 0
        self._immediates = self._late = self._requested_at = self._wanted = 0

    def begin(self, state: StreamState, requests: WorkRequests) -> None:
        """The peer's pool is known."""
        self._state, self.requests = state, requests

    @property
    def full(self) -> bool:
        """Whether data must wait until messages are retired."""
        return self._is_full()

    def _is_full(self) -> bool:
        if len(self.inflight) >= _FULL:
            return True
        return self.in_memory and self._immediates >= _IMMEDIATES and self._immediate > self.retired

    @property
    def unanswered(self) -> bool:
        """Whether a completion that was asked for is under way."""
        return self.retired < self._signaled

    @property
    def prompt(self) -> bool:
        """Whether memory is taken while it is posted, as in shared memory: nobody waits for it then."""
        return self._misses < _MISSES

    def next(
        self, staged: int = 0, holder: object = None, signaled: bool = True, immediate: bool = True
    ) -> int:
        """The number of the message that is about to be posted; ``staged`` is the end of its copy, ``holder``
        keeps its memory.  ``immediate``: it is told by one, or takes a packet for another reason.
        """
        self.number += 1
        if immediate and self.in_memory:
            self._immediates = self._immediates + 1 if self._immediate > self.retired else 1
            self._immediate = self.number
        if signaled:
            self._signaled, self._signaled_tail = self.number, self.staging.tail
        self.inflight.append((self.number, staged, holder))
        return self.number

    def retire(self, number: int) -> None:
        """A completion has come."""
        if number & _TAKEN:
            self.taken = number & ~_TAKEN
            self._let_go()
            return
        inflight, staging = self.inflight, self.staging
        while inflight and inflight[0][0] <= number:
            self.retired, staged, _ = inflight.popleft()
            if staged > staging.head:
                staging.head = staged
        self.taken = max(self.taken, self.retired)

    def _let_go(self) -> None:
        """Keep no memory that was taken, though the message is under way: the program may resize it."""
        for index, (number, staged, holder) in enumerate(self.inflight):
            if number > self.taken:
                break
            if holder is not None:
                self.inflight[index] = number, staged, None

    def post(self, view: memoryview, frozen: bool, blocking: bool) -> tuple[int, bool]:
        """Post as much of ``view`` as there is room for; bytes, and whether the adapter takes them from the
        application's own memory.
        """
        length: cython.ulonglong = view.nbytes
        threshold: cython.ulonglong = self._threshold
        state: StreamState = self._state
        if self._is_full():
            return 0, False
        if self.in_memory and self._immediate <= self.retired:
            return self._post_in_memory(view, frozen, blocking)
        if not frozen and blocking and threshold < length <= self._direct and self._misses >= _MISSES:
            self._try_again()
        prompt: cython.bint = self._misses < _MISSES
        limit: cython.ulonglong = threshold if frozen or prompt else self._direct
        direct: cython.bint = length > limit and self._lkey != 0 and (frozen or blocking)
        if not direct and length > _INLINE_BYTES:
            length = self.staging.room(length)
        length = min(length, self._chunk, state.peers.length >> 1)
        length, places, immediate = state.next_data(length, threshold)
        if not length:
            return 0, False
        flags: cython.uint = _SOLICITED if state.peers.presses else 0
        if direct:
            found = page_list((view[:length],), self._lkey)
            self.direct_bytes += length
            number = self.next(0, found)
            whole: cython.ulonglong = threshold if prompt else _WHOLE_BYTES
            self.requests.write(
                number, list(found.runs), places, immediate, flags | _SIGNALED, False, not frozen, whole
            )
            return length, True
        self._post_copy(address_of(view, False), length, places, immediate, flags)
        return length, False

    def _post_in_memory(self, view: memoryview, frozen: bool, blocking: bool) -> tuple[int, bool]:
        """`post` where the adapter writes in place: what may change before it has, though nobody waits, is
        copied.
        """
        length: cython.ulonglong = view.nbytes
        state: StreamState = self._state
        inline: cython.bint = length <= _INLINE_BYTES
        direct: cython.bint = not inline and self._lkey != 0 and (frozen or blocking)
        address: cython.ulonglong = address_of(view, False)
        lkey: cython.uint = self._lkey
        staged: cython.ulonglong = 0
        if not inline and not direct:
            length = self.staging.room(length)
        length = min(length, self._chunk, state.peers.length >> 1, _IN_MEMORY_BYTES)
        length, places, notification = state.next_data(length, self._threshold)
        if not length:
            return 0, False
        if direct:
            self.direct_bytes += length
        elif not inline:
            address = self.staging.put(address, length)
            staged, lkey = self.staging.tail, self.staging.lkey
        number = self.next(staged, view if direct else None, True, False)
        self.unconfirmed = number
        self.requests.write_in_memory(number, address, length, lkey, places, notification, inline)
        return length, direct

    def tell_in_memory(self) -> None:
        """From here on, as far as it can be."""
        self.in_memory = True
        self._late = 0
        self.requests.notify(self.next(), self._state.in_memory())

    def confirm(self, behind: BehindPool) -> None:
        """What was told in memory is written, if it was written in place: the peer gets an event, or is
        woken, where it has asked for that; an event also where it has much to take, and where it may learn
        of nothing otherwise.
        """
        written: cython.bint = self.retired >= self.unconfirmed
        self.unconfirmed = 0
        if written:
            self._late = 0
        else:
            self._late += 1
            if self._late >= _MISSES:
                self.in_memory = False
        presses: cython.bint = self._state.peers.unanswered() == _PRESSING
        wanted: cython.uint = behind.take_event_request()
        if wanted == _WAKE and written and not presses:
            self.requests.wake(self.next(0, None, True, False))
        elif wanted or presses or not written:
            self.requests.notify(self.next(), self._state.event(), _SIGNALED | _SOLICITED)

    def request_event(self, told: int, wanted: int) -> bool:
        """Have the peer tell by an immediate what it tells next, or wake a thread (``wanted``: `IMMEDIATE`,
        `WAKE`); ``told`` grows with all that it tells.  Whether a request has been made, behind which memory
        is to be looked at again.

        Once for each that it has told: who has told nothing since the last request has still got it.  Who
        waits for a wake is woken by an immediate, too.
        """
        known: cython.bint = self._wanted == wanted or wanted == _WAKE
        if self._event_request and self._requested_at == told and known:
            return False
        if len(self.inflight) >= _CREDITS:
            return False  # the next completion leads here again
        self._event_request = self.next(0, None, True, False)
        self._requested_at, self._wanted = told, wanted
        self.requests.request_event(self._event_request, wanted)
        return True

    def _post_copy(
        self, address: int, length: int, places: list[Piece], immediate: int, flags: int
    ) -> None:
        """Post a copy of ``length`` bytes, which the work request has inline where they are few."""
        staged: cython.ulonglong = 0
        inline: cython.bint = length <= _INLINE_BYTES
        staging: Staging = self.staging
        if not inline:
            address = staging.put(address, length)
            staged = staging.tail
        signaled: cython.bint = (
            self.number + 1 - self._signaled >= _SIGNAL_EACH
            or staging.tail - self._signaled_tail > staging.length >> 2
            or self.in_memory
        )
        number: cython.ulonglong = self.next(staged, None, signaled)
        if signaled:
            flags |= _SIGNALED
        self.requests.write_run(number, address, length, staging.lkey, places, immediate, flags, inline)

    def judge(self, prompt: bool) -> None:
        """Whether the memory of a direct send was taken when it had just been posted."""
        self._misses = 0 if prompt else min(self._misses + 1, _MISSES)

    def _try_again(self) -> None:
        """Bytes are copied because memory was not taken at once before: see now and then whether it is."""
        self._copies += 1
        if self._copies >= _TRY_EACH:
            self._copies = 0
            self._misses = _MISSES - 1

    def credit(self, found: tuple[int, int, int], signaled: cython.bint = False) -> None:
        """Tell what this side has done with; ``signaled``: `retired` tells when the peer's adapter has it."""
        head, count, immediate = found
        if self.in_memory and self._immediate <= self.retired:
            self.unconfirmed = self.next(0, None, True, False)
            self.requests.credit_in_memory(self.unconfirmed, head, count)
            return
        signaled = signaled or self.number + 1 - self._signaled >= _SIGNAL_EACH or self.in_memory
        self.requests.credit(
            self.next(0, None, signaled), head, count, immediate, _SIGNALED if signaled else 0
        )

    def close(self) -> None:
        """Nothing is under way any more."""
        self.staging.close()
        self.inflight.clear()
