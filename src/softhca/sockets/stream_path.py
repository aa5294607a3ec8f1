"""What runs for each message of a stream: taking completions, telling credit, waiting, receiving, sending.

Compiled, this is an extension class, whose state is found without dictionaries; `Stream` adds how a stream
comes about and how it ends.  Each method says whether it is called with the stream's lock held.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import cython

from softhca.driver.errors import DriverError
from softhca.driver.polling import CompletionPoller
from softhca.driver.work_requests import Completion
from softhca.machine import deferred_signals
from softhca.sockets.behind_pool import BehindPool
from softhca.sockets.protocol import CREDIT, IMMEDIATE, RING_ENTRIES, WAKE, ProtocolError
from softhca.sockets.staging import SHORT_BYTES
from softhca.sockets.stream_parts import Stopped, failure
from softhca.sockets.stream_receiving import Receiver
from softhca.sockets.stream_sending import MESSAGES, Sender
from softhca.sockets.stream_state import StreamState
from softhca.sockets.waiting import READABLE, WRITABLE, Waiting
from softhca.sockets.work_requests import WorkRequests
from softhca.verbs import enums as e
from softhca.verbs.pyverbs_error import PyverbsError

if TYPE_CHECKING:
    from softhca.driver.device import DeviceDriver

LOOK_EACH = 4096
"""Whether the adapter writes in place is asked after 1, 2, 4 … messages, and then each time after so many."""
NEVER = 1 << 62
"""No message has this number."""
OWED = 16
"""Receive work requests that have completed are posted anew so many at a time."""
FAILED = (PyverbsError, DriverError)
"""What a device that has failed, or is closed, raises."""

_READABLE, _WRITABLE = cython.declare(cython.int, READABLE), cython.declare(cython.int, WRITABLE)
_OWED = cython.declare(cython.uint, OWED)
_LOOK_EACH = cython.declare(cython.ulonglong, LOOK_EACH)
_IMMEDIATE, _WAKE = cython.declare(cython.uint, IMMEDIATE), cython.declare(cython.uint, WAKE)
_RING_ENTRIES = cython.declare(cython.int, RING_ENTRIES)
_CREDIT = cython.declare(cython.int, CREDIT)
_LEAST_RUN = cython.declare(cython.ulonglong, SHORT_BYTES + 1)
_MESSAGES = cython.declare(cython.Py_ssize_t, MESSAGES)
_RECV = cython.declare(cython.uint, int(e.IBV_WC_RECV))


class StreamPath(Waiting):
    """The state of a stream, all of it `Stream`'s.

    ``used``: the program has begun to send or to receive.  ``_news``: an event was not answered yet.
    ``_missed``: somebody has found the lock taken.  ``_owed`` receives have completed and are not posted
    anew.  ``_goodbye``: the communication manager has said that the peer has ended it.
    """

    error: int
    on_change: Callable[[], object] | None
    on_stall: Callable[[], object] | None
    receiving_ended: bool
    used: bool
    sender: Sender
    receiver: Receiver
    _closed: bool
    _lost: bool
    _goodbye: bool
    _watched: bool
    _may_tell_in_memory: bool
    _next_look: int
    _owed: int
    _sleeping: int
    _woken: int
    _state: StreamState  # None until the peer has said its offer, as the next one
    _requests: WorkRequests
    _poller: CompletionPoller
    _completion: Completion
    _given_back: deque[int]
    _driver: DeviceDriver
    # Of `Stream`:
    _arm: Callable[[], object]
    _fail: Callable[[int], object]
    _forged: Callable[[], object]
    _judge_end: Callable[[], object]
    _reclaim: Callable[[], object]
    _writes_in_place: Callable[[], bool]

    def _begin_path(self) -> None:
        """Of a new stream, whose halves, completion queue and driver come later."""
        self._begin_waiting()
        self.error = 0
        self.on_change = self.on_stall = None
        self.receiving_ended = self.used = False
        self._closed = self._lost = False
        self._goodbye = self._watched = False
        self._state = self._requests = None  # type: ignore[assignment]
        self._owed = self._sleeping = self._woken = 0
        self._may_tell_in_memory = False
        self._next_look = NEVER
        self._completion = Completion()

    # completions

    def _serve(self) -> None:
        """Answer what an event has left, unless somebody has the lock, who then does."""
        while self._is_due() and self._lock.acquire(blocking=False):
            try:
                if self._pumping:
                    return
                if self._given_back:
                    self._reclaim()
                if not self._news:
                    continue
                self._news = False
                if self._closed or self._state is None:
                    continue
                self._arm()
                self._pump()
                if self._goodbye:
                    self._judge_end()
            finally:
                self.unlock()

    def _is_due(self) -> bool:
        return self._news or len(self._given_back) != 0

    def _is_over(self) -> bool:
        return self._closed or self.error != 0

    def _wake(self) -> None:
        with contextlib.suppress(*FAILED):
            self._driver.wake_waiters()

    def _pump(self) -> None:
        """With the lock held: take all completions there are, and what the peer has told in memory, and
        answer them: no signal handler comes between.
        """
        if self._pumping or self._closed or self._state is None:
            return
        deferred_signals.begin()
        try:
            self._answer()
        finally:
            deferred_signals.end()

    def _answer(self) -> None:
        """What `_pump` does, in its section."""
        sender: Sender = self.sender
        self._pumping = True
        try:
            self._take()
            self._request_event()
            while self._owed >= _OWED and not self.error:
                sender.requests.receive(_OWED)
                self._owed -= _OWED
            self._credit()
            if sender.unconfirmed:
                self._take()
                if not self.error:
                    sender.confirm(self.receiver.behind)
                self._request_event()
        except ProtocolError:
            self._forged()
        except FAILED:
            self._fail(errno.ECONNRESET)
        finally:
            self._pumping = False
            self._changed()

    def _request_event(self) -> None:
        """Where somebody sleeps: have the peer make an event of what comes next, or wake who sleeps in a call
        and drives an adapter of this process, as long as what it has told may have spent the last request;
        behind each request look again, for what came before it tells nobody.  A peer tells no more in between
        than it has room for.
        """
        state: StreamState = self._state
        if state.peer_in_memory and not state.deaf and (self._sleeping or self._watched):
            wanted: cython.uint = _IMMEDIATE if self._watched or not self._polls else _WAKE
            for _ in range(_RING_ENTRIES):
                if self.error or not self.sender.request_event(state.told, wanted):
                    break
                self._take()

    def _take(self) -> None:
        """Take completions; before an immediate what was told in memory before it, and what else was last."""
        state: StreamState = self._state
        poller: CompletionPoller = self._poller
        each: Completion = self._completion
        while poller.waiting() and poller.advance(each):
            if each.status:
                self._fail(errno.ECONNRESET)
            elif each.opcode & _RECV:
                self._owed += 1
                if state.peer_in_memory:
                    self._take_told(state)
                self._arrived(each.imm_data)
            else:
                self.sender.retire(each.wr_id)
        if state.peer_in_memory:
            self._take_told(state)
            head, notifications = self.receiver.behind.record()
            state.peers.credited(head, notifications)
            woken: cython.ulonglong = self.receiver.behind.wakes()
            if woken != self._woken:
                self._woken = woken
                state.told += 1

    def _take_told(self, state: StreamState) -> None:
        """Take the notifications that stand in the ring and come next."""
        behind: BehindPool = self.receiver.behind
        immediate: cython.uint = behind.take(state.next_number())
        while immediate:
            state.arrived_in_memory(immediate)
            immediate = behind.take(state.next_number())

    def _has_news(self) -> bool:
        """Whether a completion waits, or the peer has told something in memory."""
        state: StreamState = self._state
        if self._poller.waiting():
            return True
        if state is None or not state.peer_in_memory:
            return False
        behind: BehindPool = self.receiver.behind
        return behind.shows(state.next_number(), state.peers.head, state.peers.done, self._woken)

    def _arrived(self, immediate: int) -> None:
        state: StreamState = self._state
        if state.arrived(immediate) == _CREDIT:
            head, notifications = self.receiver.behind.record()
            state.peers.credited(head, notifications)
        if state.was_reset:
            self._fail(errno.ECONNRESET)

    def _changed(self) -> None:
        if self.on_change is not None:
            self.on_change()

    def _credit(self, anyhow: bool = False, empty: bool = False) -> None:
        """With the lock held: tell the peer what this side has done with, where that is enough to tell; not
        one that has closed, whose adapter may know the connection no more.
        """
        state: StreamState = self._state
        if state is None or self.error or len(self.sender.inflight) >= _MESSAGES - 1:
            return
        if state.deaf and not empty:
            return
        found = state.next_credit(anyhow)
        if found is None and empty:
            found = state.opening()
        if found is not None:
            self.sender.credit(found, empty)
            if self.sender.number >= self._next_look:
                self._look_for_place()

    def _look_for_place(self) -> None:
        """With the lock held: see whether the adapter writes in place, and where it does tell in memory."""
        self._next_look = self.sender.number + min(self.sender.number, _LOOK_EACH)
        if not self.sender.in_memory and self._writes_in_place():
            self._requests.in_place = True
            if self._may_tell_in_memory:
                self.sender.tell_in_memory()
            else:
                self._next_look = NEVER

    # readiness

    def _may_receive(self) -> bool:
        state: StreamState = self._state
        if self.error or self.receiving_ended or state is None:
            return state is not None
        return state.own.available != 0 or state.finished

    def _may_send(self) -> bool:
        state: StreamState = self._state
        if self.error:
            return True
        if state is None:
            return False
        if state.said_fin or state.deaf:
            return True
        return (
            state.opened and state.peers.room() > 0
            and not self.sender.full
            and self.sender.staging.room(_LEAST_RUN) > 0
        )  # fmt: skip

    def _look(self) -> StreamState:
        """With the lock held: take what has come in."""
        if self._closed:
            raise failure(self.error)
        if self._has_news():
            self._pump()
        return self._state

    # receiving

    def receive(self, take: Callable[[], int], deadline_s: float | None, blocking: bool) -> int:
        """Have ``take`` take what there is; the bytes that it took, 0 at the end of the stream.

        BlockingIOError where nothing is there (not blocking), TimeoutError, ConnectionResetError.
        """
        state: StreamState
        self.used = True
        while True:
            self._lock.acquire()
            try:
                state = self._look()
                if self.receiving_ended:
                    return 0
                if state.own.available:
                    deferred_signals.begin()  # else what is taken and not kept would be nobody's room
                    self._pumping = True  # what is given back meanwhile is accounted for below
                    try:
                        taken = take()
                    finally:
                        self._pumping = False
                        deferred_signals.end()
                    self.receiver.reclaim()
                    self._after_receive()
                    return taken
                if self.error and not (state.finished and not state.was_reset):
                    raise failure(self.error)
                if state.finished:
                    return 0
            finally:
                self.leave_lock()
            if not blocking:
                self._progress()
                if self.shows_more():
                    continue
                raise BlockingIOError(errno.EAGAIN, "no completion, no data arrived")
            if not self.wait(_READABLE, deadline_s):
                raise TimeoutError("timed out")

    def shows_more(self) -> bool:
        """Whether another look at what has come ends a receive."""
        self._lock.acquire()
        try:
            state: StreamState = self._look()
            return state.own.available != 0 or state.finished or self.error != 0
        finally:
            self.leave_lock()

    def _after_receive(self) -> None:
        self.receiver.relieve()
        try:
            self._credit()
            if self.sender.unconfirmed:
                self._pump()
        except FAILED:
            self._fail(errno.ECONNRESET)
        self._changed()

    # sending

    def send(self, views: list[memoryview], deadline_s: float | None, blocking: bool) -> int:
        """Send all bytes of ``views``, or as many as can go at once where not ``blocking``.

        Whoever may change its memory afterwards is waited for, or its bytes are copied.  At the deadline: how
        many have gone, TimeoutError where none has.  BlockingIOError, BrokenPipeError, ConnectionResetError;
        ``error.characters_written`` is not set, as with TCP.
        """
        sent, last = 0, [0]
        why: Exception | None = None
        self.used = True
        try:
            for view in views:
                sent += self._send_view(view, deadline_s, blocking, last)
        except Stopped as stopped:
            sent += stopped.sent
            why = stopped.why
        finally:
            if last[0]:
                self._wait_taken(last[0])
        if why is not None and not sent:
            try:  # outside of the handler and kept by no frame: a cycle would hold the program's buffer
                raise why
            finally:
                why = None
        if last[0] and self.error and self.sender.taken < last[0]:
            raise failure(self.error)
        return sent

    def _wait_taken(self, number: int) -> None:
        """Until the memory of that message may be changed."""
        self._lock.acquire()
        try:
            if self.sender.taken < number and self._poller.waiting():
                self._pump()
            prompt: cython.bint = self.sender.taken >= number
            self.sender.judge(prompt)
        finally:
            self.leave_lock()
        if not prompt:
            self.wait(partial(self._is_taken, number), None)

    def _is_taken(self, number: int) -> bool:
        return self.sender.taken >= number

    def _send_view(self, view: memoryview, deadline_s: float | None, blocking: bool, last: list[int]) -> int:
        """Send one view; ``last[0]`` becomes the last message that takes bytes from memory that may change.
        `Stopped` where it cannot be sent whole now.
        """
        frozen: cython.bint = type(view.obj) is bytes
        position: cython.Py_ssize_t = 0
        total: cython.Py_ssize_t = view.nbytes
        while position < total:
            self._lock.acquire()
            try:
                taken, direct = self._send_some(view[position:] if position else view, frozen, blocking)
                if direct and not frozen:
                    last[0] = self.sender.number
            except BrokenPipeError:
                raise Stopped(position, failure(errno.EPIPE)) from None
            finally:
                self.leave_lock()
            if taken:
                position += taken
                continue
            say = self.on_stall
            if say is not None:
                say()
            if blocking:
                if not self.wait(_WRITABLE, deadline_s):
                    raise Stopped(position, TimeoutError("timed out"))
            elif not self._finds_room():
                raise Stopped(position, BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN)))
        return position

    def _finds_room(self) -> bool:
        """Whether one look at the device is enough to go on sending."""
        self._progress()
        self._lock.acquire()
        try:
            self._look()
            return self._may_send()
        finally:
            self.leave_lock()

    def _send_some(self, view: memoryview, frozen: bool, blocking: bool) -> tuple[int, bool]:
        """With the lock held: post as much as there is room for; bytes, and whether the adapter takes them
        from the application's own memory.  What is sent first after the peer has closed is lost, as with TCP,
        where only the answer to it tells; but no more than the peer has room for.
        """
        state: StreamState = self._look()
        if state.deaf and not (state.was_reset or state.said_fin or self._lost):
            self._lost = True
            lost: cython.ulonglong = state.peers.room()
            if lost:
                return min(view.nbytes, lost), False
        if self.error and not (state.deaf and not state.was_reset):
            raise failure(self.error)
        if state.said_fin or state.deaf:
            raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))
        if not state.opened:
            return 0, False
        try:
            posted = self.sender.post(view, frozen, blocking)
            if self.sender.unconfirmed:
                self._pump()
            elif self.sender.number >= self._next_look:
                self._look_for_place()
            return posted
        except FAILED:
            self._fail(errno.ECONNRESET)
            raise failure(self.error) from None
