"""What a stream sends: messages under way, memory for copies, and the account of the peer's pool.

A completion is asked for where somebody waits for it (memory that may change, a close), and otherwise for
every 16th message or when a quarter of the memory for copies has gone since the last: it answers for all
messages before it, too.
"""

from __future__ import annotations

from collections import deque

import cython

from softhca.machine.primitives import address_of
from softhca.sockets.memory_management import Piece
from softhca.sockets.memory_processing import page_list, space_of
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

_FULL = cython.declare(cython.Py_ssize_t, MESSAGES - RESERVED)
_SIGNAL_EACH = cython.declare(cython.ulonglong, SIGNAL_EACH)
_MISSES, _TRY_EACH = cython.declare(cython.uint, MISSES), cython.declare(cython.uint, TRY_EACH)
_TAKEN = cython.declare(cython.ulonglong, TAKEN)
_INLINE_BYTES = cython.declare(cython.ulonglong, INLINE_BYTES)
_WHOLE_BYTES = cython.declare(cython.ulonglong, WHOLE_BYTES)
_SIGNALED, _SOLICITED = cython.declare(cython.uint, SIGNALED), cython.declare(cython.uint, SOLICITED)


class Sender:
    """All methods are called with the stream's lock held.

    ``number`` is the last message's; all up to ``retired`` have arrived, and the memory of all up to
    ``taken`` may be changed.  ``direct_bytes`` were sent out of the application's own memory.
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

    def begin(self, state: StreamState, requests: WorkRequests) -> None:
        """The peer's pool is known."""
        self._state, self.requests = state, requests

    @property
    def full(self) -> bool:
        """Whether data must wait until messages are retired."""
        return len(self.inflight) >= _FULL

    @property
    def unanswered(self) -> bool:
        """Whether a completion that was asked for is under way."""
        return self.retired < self._signaled

    @property
    def prompt(self) -> bool:
        """Whether memory is taken while it is posted, as in shared memory: nobody waits for it then."""
        return self._misses < _MISSES

    def next(self, staged: int = 0, holder: object = None, signaled: bool = True) -> int:
        """The number of the message that is about to be posted; ``staged`` is the end of its copy, ``holder``
        keeps its memory.
        """
        self.number += 1
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
        if len(self.inflight) >= _FULL:
            return 0, False
        if not frozen and blocking and threshold < length <= self._direct and self._misses >= _MISSES:
            self._try_again()
        prompt: cython.bint = self._misses < _MISSES
        limit: cython.ulonglong = threshold if frozen or prompt else self._direct
        direct: cython.bint = length > limit and self._lkey != 0 and (frozen or blocking)
        if not direct and length > _INLINE_BYTES:
            length = min(length, self.staging.room())
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

    def credit(self, found: tuple[int, int, int]) -> None:
        """Tell what this side has done with."""
        signaled: cython.bint = self.number + 1 - self._signaled >= _SIGNAL_EACH
        head, count, immediate = found
        self.requests.credit(
            self.next(0, None, signaled), head, count, immediate, _SIGNALED if signaled else 0
        )

    def close(self) -> None:
        """Nothing is under way any more."""
        self.staging.close()
        self.inflight.clear()
