"""A connected stream: a reliable connection, the pool of this side, and the account of the peer's.

Any thread may call any method.  A lock guards the state for as long as it takes to look and to post; nobody
waits with it.  Completions are taken by whoever finds them: a call of the application, or the thread that
dispatches the device's events (`_on_event`).  Who finds the lock taken leaves a note, and the holder looks
again before it goes.

A call that waits polls first (`PollBudget`), and asks for no event: the queue is armed for solicited
completions then, which peers send when they need an answer soon.  Who sleeps arms it for any, and so it is as
long as a program waits for the descriptor.
"""

from __future__ import annotations

import contextlib
import errno
import os
import threading
import time
from collections.abc import Callable
from time import monotonic_ns

import cython

from softhca.driver.errors import DriverError
from softhca.driver.poll_back_off import PollBudget
from softhca.driver.rdmacm import events
from softhca.sockets.completion_thread import completion_thread_of
from softhca.sockets.hub import HUB
from softhca.sockets.memory_processing import Pool
from softhca.sockets.protocol import CREDIT, Offer, ProtocolError
from softhca.sockets.settings import Settings
from softhca.sockets.stream_parts import Guard, Stopped, failure
from softhca.sockets.stream_receiving import Receiver
from softhca.sockets.stream_sending import MESSAGES, Sender
from softhca.sockets.stream_state import StreamState
from softhca.sockets.work_requests import INLINE_BYTES, WORK_REQUESTS, WorkRequests
from softhca.verbs import enums as e
from softhca.verbs.cmid import CMID, CMEventChannel
from softhca.verbs.cq import CQ
from softhca.verbs.pyverbs_error import PyverbsError
from softhca.verbs.qp import QPCap, QPInitAttr

RECEIVES = 128
"""Receive work requests: notifications of data, and as many for the others."""
SCATTERED = 64
"""Runs of scattered memory that one notification tells of."""
_POLLED = 32
_OWED = 16
"""Receive work requests that have completed are posted anew so many at a time."""
_RECV = int(e.IBV_WC_RECV)
_FAILED = (PyverbsError, DriverError)

Ready = Callable[[], bool]


class Stream:
    """One end of a connection over ``cmid``, which has a device.  `PoolError`, PyverbsError.

    ``error`` is the errno that ended it, 0 while it lives.  ``on_change``, when set, is called with the
    stream's lock held whenever it may have become readable or writable; ``on_stall``, without it, when a send
    has found no room.  ``sender`` and ``receiver`` are its halves, which count bytes.
    """

    def __init__(self, cmid: CMID, settings: Settings) -> None:
        self.settings = settings
        self.error = 0
        self.on_change: Callable[[], object] | None = None
        self.on_stall: Callable[[], object] | None = None
        self.receiving_ended = False
        self._cmid = cmid
        self._channel: CMEventChannel | None = None
        self._lock = threading.RLock()
        self._guard = Guard(self)
        self._news = self._pumping = self._missed = self._closed = self._lost = self._goodbye = False
        self.used = False  # whether the program has begun to send or to receive
        self._state: StreamState | None = None
        self._owed = self._sleeping = 0
        self._watched = False
        self._budget = PollBudget()
        pd, context = cmid.pd, cmid.context
        assert pd is not None
        assert context is not None
        self._driver = context.driver
        channel = self._driver.session.channel
        self._progress, self._polls = channel.progress, channel.shares_addresses
        self._completion_thread = completion_thread_of(self._driver)
        self.receiver = Receiver(Pool(pd, settings.pool_bytes), settings, self._release)
        self._given_back = self.receiver.given_back
        try:
            self.sender = Sender(pd, settings)
            depth = MESSAGES * WORK_REQUESTS + SCATTERED
            self._cq = CQ(context, MESSAGES * WORK_REQUESTS + SCATTERED + RECEIVES + 8)
            self._handle = self._cq.handle
            self._handle.on_event = self._on_event
            self._waiting = self._handle.waiting
            caps = QPCap(
                max_send_wr=depth, max_recv_wr=RECEIVES, max_send_sge=1, max_recv_sge=1,
                max_inline_data=INLINE_BYTES,
            )  # fmt: skip
            cmid.create_qp(QPInitAttr(e.IBV_QPT_RC, scq=self._cq, rcq=self._cq, cap=caps, sq_sig_all=0))
        except BaseException:
            self.receiver.pool.close()
            with contextlib.suppress(AttributeError, *_FAILED):
                self.sender.close()
                self._cq.close()
            raise
        self._requests: WorkRequests | None = None
        HUB.streams.add(self)

    # setting up

    def offer(self, port: int = 0, alone: bool = False) -> Offer:
        """What the peer is told."""
        return self.receiver.pool.offer(port, alone)

    def begin(self, peer: Offer) -> None:
        """The peer's offer is known, and the queue pair is ready to receive."""
        qp = self._cmid._qp
        assert qp is not None
        record = peer.address + peer.pool_bytes
        with self._guard:
            state = StreamState(self.receiver.pool.length, peer)
            self._requests = WorkRequests(qp.handle, peer.address, peer.rkey, record)
            self._requests.receive(RECEIVES)
            self.sender.begin(state, self._requests)
            self.receiver.own = state.own
            self._state = state
            self._arm()

    def _arm(self) -> None:
        """With the lock held: ask for the next event."""
        try:  # noqa: SIM105, a context manager takes longer than the call
            self._handle.arm(not (self._sleeping or self._watched))
        except _FAILED:
            pass

    @property
    def opened(self) -> bool:
        """Whether the peer has said anything yet."""
        return self._state is not None and self._state.opened

    def open(self) -> None:
        """Of the side that has asked: the connection is there; the peer is told, which may send then."""
        with self._guard:
            assert self._state is not None
            self._state.opened = True
            self._credit(anyhow=True, empty=True)

    # completions

    def _on_event(self) -> None:
        self._news = True
        self._serve()

    def _serve(self) -> None:
        """Answer what `_on_event` has left, unless somebody has the lock, who then does."""
        while (self._news or self._given_back) and self._lock.acquire(blocking=False):
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

    def unlock(self) -> None:
        """Give the lock back, and have those look again who wait and have found it taken: what they would
        have found has been taken meanwhile, and no event tells of it.
        """
        self._lock.release()
        if self._missed:
            self._missed = False
            with contextlib.suppress(*_FAILED):
                self._driver.wake_waiters()

    def _pump(self) -> None:
        """With the lock held: take all completions there are, and answer them."""
        if self._pumping or self._closed or self._state is None:
            return
        self._pumping = True
        try:
            poll, sender = self._handle.poll, self.sender
            while self._waiting():
                for each in poll(_POLLED):
                    if each.status:
                        self._fail(errno.ECONNRESET)
                    elif each.opcode & _RECV:
                        self._owed += 1
                        self._arrived(each.imm_data)
                    else:
                        sender.retire(each.wr_id)
            while self._owed >= _OWED and not self.error:
                sender.requests.receive(_OWED)
                self._owed -= _OWED
            self._credit()
        except ProtocolError:
            self._forged()
        except _FAILED:
            self._fail(errno.ECONNRESET)
        finally:
            self._pumping = False
            self._changed()

    def _arrived(self, immediate: int) -> None:
        state = self._state
        assert state is not None
        if state.arrived(immediate) == CREDIT:
            state.peers.credited(*self.receiver.pool.record())
        if state.was_reset:
            self._fail(errno.ECONNRESET)

    def _fail(self, code: int) -> None:
        """The connection has ended; the peer, which may know nothing of that, is told by the hub."""
        if not self.error:
            self.error = code
            self._changed()
            self._driver.wake_waiters()
            HUB.soon(self._part)

    def _part(self) -> None:
        """The hub: end the connection at the communication manager, too."""
        with self._guard:
            if not self._closed:
                with contextlib.suppress(*_FAILED):
                    self._cmid.disconnect()

    def _forged(self) -> None:
        """The peer has said what cannot be."""
        self._send_reset()
        self._fail(errno.ECONNRESET)

    def _send_reset(self) -> None:
        with contextlib.suppress(*_FAILED):
            if self._requests is not None and self._state is not None and not self.error:
                self._requests.notify(self.sender.next(), self._state.reset())

    def _changed(self) -> None:
        if self.on_change is not None:
            self.on_change()

    def _credit(self, anyhow: bool = False, empty: bool = False) -> None:
        """With the lock held: tell the peer what this side has done with, where that is enough to tell."""
        state = self._state
        if state is None or self.error or len(self.sender.inflight) >= MESSAGES - 1:
            return
        found = state.next_credit(anyhow)
        if found is None and empty:
            found = state.opening()
        if found is not None:
            self.sender.credit(found)

    def refuse(self) -> None:
        """Nobody takes this connection: tell the peer, and give everything back."""
        with self._guard:
            if not self._closed:
                self._send_reset()
        self.destroy()

    def peer_gone(self) -> None:
        """The peer's program has ended, or given the connection up."""
        with self._guard:
            if self._closed:
                return
            self._pump()
            self._judge_end()

    def follow(self, channel: CMEventChannel) -> None:
        """Hear from here on what the communication manager says to ``channel``, which is this stream's."""
        self._channel = channel
        channel.channel.on_post = lambda: HUB.soon(self._hear)
        HUB.soon(self._hear)

    def probe(self) -> None:
        """Ask the peer's adapter whether it lives: when it does not answer, the connection ends."""
        with self._guard:
            if self._requests is not None and not (self.error or self._closed or self.sender.unanswered):
                try:
                    self._requests.probe(self.sender.next())
                except _FAILED:
                    self._fail(errno.ECONNRESET)

    def _hear(self) -> None:
        """The hub: events of this stream's identifier; all that counts is that the peer has ended it."""
        while self._channel is not None and (event := self._channel.channel.next_event(0)) is not None:
            if event.kind == events.DISCONNECTED:
                self._goodbye = self._news = True
                self._serve()

    def _judge_end(self) -> None:
        """With the lock held, all completions taken: the peer is gone, an error if it said no FIN."""
        if self._state is None or not self._state.finished or not self._state.deaf:
            self._fail(errno.ECONNRESET)

    # waiting

    def wait(self, ready: Ready, deadline_s: float | None) -> bool:
        """Wait, driving the device, until ``ready()`` or an error; False at the deadline (of
        ``time.monotonic``).
        """

        def ended() -> bool:
            if self._waiting() or self._pumping:
                self._missed = True  # first: whoever holds the lock sees it when he gives that back
                if self._lock.acquire(blocking=False):
                    self._missed = False
                    try:
                        self._pump()
                    finally:
                        self.unlock()
            if self._news or self._given_back:
                self._serve()
            return bool(self.error) or self._closed or ready()

        return ended() or (self._polls and self._poll(ended)) or self._sleep(ended, deadline_s)

    def _poll(self, ended: Ready) -> bool:
        """Drive the device for a short time, until ``ended()``; whether it has."""
        budget: PollBudget = self._budget
        now: cython.ulonglong = monotonic_ns()
        after: cython.ulonglong
        until: cython.ulonglong = budget.until(now)
        tried: cython.bint = until > now
        while True:
            worked = self._progress()
            if ended():
                if tried:
                    budget.found()
                return True
            after = monotonic_ns()
            if not worked:
                budget.yielded(now, after)
            if after >= until or budget.contended(after):
                if tried:
                    budget.gave_up()
                return False
            now = after

    def _sleep(self, ended: Ready, deadline_s: float | None) -> bool:
        """Wait for events until ``ended()``; False at the deadline."""
        self._count_sleeper(1)
        try:
            return self._completion_thread.wait(ended, deadline_s)
        except DriverError:
            self._fail(errno.ECONNRESET)
            return ended()
        finally:
            self._count_sleeper(-1)

    def _count_sleeper(self, change: int) -> None:
        with self._guard:
            self._sleeping += change
            if change > 0:
                self._arm()

    @property
    def readable(self) -> bool:
        """Whether a receive would not wait."""
        state = self._state
        if self.error or self.receiving_ended or state is None:
            return state is not None
        return bool(state.own.available) or state.finished

    @property
    def writable(self) -> bool:
        """Whether a send would not wait."""
        state = self._state
        if self.error:
            return True
        if state is None:
            return False
        if state.said_fin or state.deaf:
            return True
        staging = self.sender.staging
        return (
            state.opened and state.peers.room() > 0
            and not self.sender.full
            and staging.tail - staging.head < staging.length
        )  # fmt: skip

    def watch(self) -> None:
        """Have a thread that takes completions while the application waits elsewhere."""
        self._completion_thread.start()
        with self._guard:
            self._watched = True
            self._arm()

    def hand_over(self) -> None:
        """Something has changed that a thread waits for elsewhere."""
        self._completion_thread.hand_over()

    def refresh(self) -> None:
        """Take completions that are there, and say what has changed."""
        with self._guard:
            if not self._closed:
                self._pump()
                self._changed()

    def take_error(self) -> int:
        """The errno that ended the connection, where it was an error; SO_ERROR."""
        return 0 if self.error == errno.EBADF else self.error

    @property
    def held_bytes(self) -> int:
        """What the application holds of the pool."""
        with self._guard:
            self._reclaim()
            return self._state.own.held if self._state is not None else 0

    def _look(self) -> StreamState:
        """With the lock held: take what has come in."""
        if self._closed:
            raise failure(self.error)
        if self._waiting():
            self._pump()
        assert self._state is not None
        return self._state

    # receiving

    def receive(self, take: Callable[[], int], deadline_s: float | None, blocking: bool) -> int:
        """Have ``take`` take what there is; the bytes that it took, 0 at the end of the stream.

        BlockingIOError where nothing is there (not blocking), TimeoutError, ConnectionResetError.
        """
        self.used = True
        while True:
            with self._guard:
                state = self._look()
                if self.receiving_ended:
                    return 0
                if state.own.available:
                    taken = take()
                    self._after_receive()
                    return taken
                if self.error and not (state.finished and not state.was_reset):
                    raise failure(self.error)
                if state.finished:
                    return 0
            if not blocking:
                self._progress()
                with self._guard:
                    if self._look().own.available or state.finished or self.error:
                        continue
                raise BlockingIOError(errno.EAGAIN, "no completion, no data arrived")
            if not self.wait(lambda: self.readable, deadline_s):
                raise TimeoutError("timed out")

    def receive_bytes(self, length: int) -> bytes:
        """Wait for up to ``length`` bytes; none at the end."""
        parts: list[bytes] = []

        def take() -> int:
            parts.append(self.receiver.take_bytes(length, False))
            return len(parts[0])

        self.receive(take, None, True)
        return parts[0] if parts else b""

    def _after_receive(self) -> None:
        self.receiver.relieve()
        try:
            self._credit()
        except _FAILED:
            self._fail(errno.ECONNRESET)
        self._changed()

    def _release(self, position: int) -> None:
        """The application has done with what it held.  Finalizers call this, and receives of other streams,
        which may hold a lock that the holder of this stream's lock waits for: it waits for none.
        """
        self._given_back.append(position)
        self._serve()

    def _reclaim(self) -> None:
        """With the lock held: account for what was given back, and tell the peer."""
        if self.receiver.reclaim() and not self._closed:
            self._after_receive()

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
        with self._guard:
            if self.sender.taken < number and self._waiting():
                self._pump()
            self.sender.judge(self.sender.taken >= number)
        self.wait(lambda: self.sender.taken >= number, None)

    def _send_view(self, view: memoryview, deadline_s: float | None, blocking: bool, last: list[int]) -> int:
        """Send one view; ``last[0]`` becomes the last message that takes bytes from memory that may change.
        `Stopped` where it cannot be sent whole now.
        """
        frozen = type(view.obj) is bytes
        position: cython.Py_ssize_t = 0
        total: cython.Py_ssize_t = view.nbytes
        while position < total:
            with self._guard:
                taken, direct = self._send_some(view[position:] if position else view, frozen, blocking)
                if direct and not frozen:
                    last[0] = self.sender.number
            if taken:
                position += taken
                continue
            say = self.on_stall
            if say is not None:
                say()
            if not blocking:
                self._progress()
                with self._guard:
                    self._look()
                    if self.writable:
                        continue
                raise Stopped(position, BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN)))
            elif not self.wait(lambda: self.writable, deadline_s):
                raise Stopped(position, TimeoutError("timed out"))
        return position

    def _send_some(self, view: memoryview, frozen: bool, blocking: bool) -> tuple[int, bool]:
        """With the lock held: post as much as there is room for; bytes, and whether the adapter takes them
        from the application's own memory.  What is sent first after the peer has closed is lost, as with TCP,
        where only the answer to it tells.
        """
        state = self._look()
        if state.deaf and not (state.was_reset or state.said_fin or self._lost):
            self._lost = True
            return view.nbytes, False
        if self.error and not (state.deaf and not state.was_reset):
            raise failure(self.error)
        if state.said_fin or state.deaf:
            raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))
        if not state.opened:
            return 0, False
        try:
            return self.sender.post(view, frozen, blocking)
        except _FAILED:
            self._fail(errno.ECONNRESET)
            raise failure(self.error) from None

    # the end

    def shutdown(self, reading: bool, writing: bool) -> None:
        """End a half, or both: the peer reads what was sent, then the end; what comes later is not read."""
        with self._guard:
            state = self._look()
            if reading:
                self.receiving_ended = True
            if writing and not state.said_fin:
                self._send_fin(False)
            self._changed()

    def _send_fin(self, closed: bool) -> None:
        assert self._state is not None
        assert self._requests is not None
        if self.error:
            return
        try:
            self._requests.notify(self.sender.next(), self._state.fin(closed))
        except _FAILED:
            self._fail(errno.ECONNRESET)

    @property
    def drained(self) -> bool:
        """Whether all that was sent has arrived."""
        return not self.sender.unanswered or bool(self.error)

    def close(self, linger_s: float, abruptly: bool = False) -> None:
        """Say FIN (RESET where data are unread, or ``abruptly``), wait until it has arrived, ``linger_s`` at
        most, and give everything back; may be called again.
        """
        with self._guard:
            if self._closed:
                return
            self.on_change = self.on_stall = None
            if self._state is not None and self._requests is not None and not self.error:
                self._pump()
                if self._state.deaf:
                    linger_s = 0  # the peer has gone before
                elif abruptly or self._state.own.available:
                    self._send_reset()
                else:
                    self._send_fin(True)
        with contextlib.suppress(*_FAILED):
            self.wait(lambda: self.drained, time.monotonic() + linger_s)
        self.destroy()

    def destroy(self) -> None:
        """Give everything back at once; may be called again."""
        with self._guard:
            if self._closed:
                return
            self._closed = True
            self.error = self.error or errno.EBADF
            mapped = self.receiver.mappings()
        for release in mapped:
            release()
        self._handle.on_event = None
        with contextlib.suppress(*_FAILED):
            self._cmid.close()
        with contextlib.suppress(*_FAILED):
            self._cq.close()
        channel, self._channel = self._channel, None
        if channel is not None:
            channel.close()
        self.receiver.pool.close()
        self.sender.close()
        self._driver_waiters()

    def _driver_waiters(self) -> None:
        with contextlib.suppress(*_FAILED):
            self._driver.wake_waiters()

    def abandon(self) -> None:
        """In a forked child: all of it is the parent's."""
        self._closed = True
        self._missed = False  # whoever waited is a thread of the parent
        self.error = errno.ECONNRESET
        self.on_change = self.on_stall = None
        self._lock = threading.RLock()
        self.receiver.pool.abandon()
