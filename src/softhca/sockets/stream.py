"""A connected stream: a reliable connection, the pool of this side, and the account of the peer's.

Any thread may call any method.  A lock guards the state for as long as it takes to look and to post; nobody
waits with it.  Completions are taken by whoever finds them: a call of the application, or the thread that
dispatches the device's events (`_on_event`).  Who finds the lock taken leaves a note, and the holder looks
again before it goes.
"""

from __future__ import annotations

import contextlib
import errno
import os
import threading
import time
from collections import deque
from collections.abc import Callable

from softhca.driver.errors import DriverError
from softhca.driver.rdmacm import events
from softhca.machine import primitives
from softhca.memory.bits import PAGE_BYTES
from softhca.sockets.completion_thread import completion_thread_of
from softhca.sockets.hub import HUB
from softhca.sockets.memory_processing import Page, PageBuffer, Pool, Staging, page_list, space_of
from softhca.sockets.protocol import CREDIT, Offer, ProtocolError
from softhca.sockets.settings import Settings
from softhca.sockets.stream_parts import Guard, Stopped, failure
from softhca.sockets.stream_state import StreamState
from softhca.sockets.work_requests import INLINE_BYTES, TAKEN, WORK_REQUESTS, WorkRequests
from softhca.verbs import enums as e
from softhca.verbs.cmid import CMID, CMEventChannel
from softhca.verbs.cq import CQ
from softhca.verbs.pyverbs_error import PyverbsError
from softhca.verbs.qp import QPCap, QPInitAttr

RECEIVES = 128
"""Receive work requests: notifications of data, and as many for the others."""
MESSAGES = 96
"""Notifications of this side that are under way."""
SCATTERED = 64
"""Runs of scattered memory that one notification tells of."""
_RESERVED = 4
"""Of the messages, those that are kept for credits, FIN and RESET."""
_POLLED = 32
_OWED = 16
"""Receive work requests that have completed are posted anew so many at a time."""
_RECV = int(e.IBV_WC_RECV)
_FAILED = (PyverbsError, DriverError)

Ready = Callable[[], bool]


class Stream:
    """One end of a connection over ``cmid``, which has a device.  `PoolError`, PyverbsError.

    ``error`` is the errno that ended it, 0 while it lives.  ``on_change``, when set, is called with the
    stream's lock held whenever it may have become readable or writable.  ``copied_bytes`` and
    ``mapped_bytes`` count what receives have copied and mapped, ``lent_bytes`` what views were given of;
    ``direct_bytes`` what was sent out of the application's own memory.
    """

    def __init__(self, cmid: CMID, settings: Settings) -> None:
        self.settings = settings
        self.error = 0
        self.copied_bytes = self.mapped_bytes = self.lent_bytes = self.direct_bytes = 0
        self.on_change: Callable[[], object] | None = None
        self.receiving_ended = False
        self._cmid = cmid
        self._channel: CMEventChannel | None = None
        self._lock = threading.RLock()
        self._guard = Guard(self)
        self._news = self._pumping = self._closed = self._lost = self._goodbye = False
        self._state: StreamState | None = None
        self._number = 0
        self._inflight: deque[tuple[int, int, object]] = deque()
        self._retired = self._taken = self._owed = 0
        self._mapped: dict[int, Callable[[], object]] = {}
        self._given_back: deque[int] = deque()
        pd, context = cmid.pd, cmid.context
        assert pd is not None
        assert context is not None
        self._driver = context.driver
        self._completion_thread = completion_thread_of(self._driver)
        self._pool = Pool(pd, settings.pool_bytes)
        try:
            self._staging = Staging(pd, settings.staging_bytes)
            self._space = space_of(pd)
            depth = MESSAGES * WORK_REQUESTS + SCATTERED
            self._cq = CQ(context, MESSAGES * WORK_REQUESTS + SCATTERED + RECEIVES + 8)
            self._handle = self._cq.handle
            self._handle.on_event = self._on_event
            caps = QPCap(
                max_send_wr=depth, max_recv_wr=RECEIVES, max_send_sge=1, max_recv_sge=1,
                max_inline_data=INLINE_BYTES,
            )  # fmt: skip
            cmid.create_qp(QPInitAttr(e.IBV_QPT_RC, scq=self._cq, rcq=self._cq, cap=caps, sq_sig_all=0))
        except BaseException:
            self._pool.close()
            with contextlib.suppress(AttributeError, *_FAILED):
                self._staging.close()
                self._cq.close()
            raise
        self._requests: WorkRequests | None = None
        HUB.streams.add(self)

    # setting up

    def offer(self, port: int = 0, alone: bool = False) -> Offer:
        """What the peer is told."""
        return self._pool.offer(port, alone)

    def begin(self, peer: Offer) -> None:
        """The peer's offer is known, and the queue pair is ready to receive."""
        qp = self._cmid._qp
        assert qp is not None
        record = peer.address + peer.pool_bytes
        with self._guard:
            self._state = StreamState(self._pool.length, peer)
            self._requests = WorkRequests(qp, peer.address, peer.rkey, record)
            self._requests.receive(RECEIVES)
            self._handle.arm()

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
                self._reclaim()
                if not self._news:
                    continue
                self._news = False
                if self._closed or self._state is None:
                    continue
                with contextlib.suppress(*_FAILED):
                    self._handle.arm()
                self._pump()
                if self._goodbye:
                    self._judge_end()
            finally:
                self._lock.release()

    def _pump(self) -> None:
        """With the lock held: take all completions there are, and answer them."""
        if self._pumping or self._closed or self._state is None:
            return
        self._pumping = True
        try:
            received = 0
            while self._handle.waiting():
                for each in self._handle.poll(_POLLED):
                    if each.status:
                        self._fail(errno.ECONNRESET)
                    elif each.opcode & _RECV:
                        received += 1
                        self._arrived(each.imm_data)
                    else:
                        self._retire(each.wr_id)
            self._owed += received
            if self._owed >= _OWED and not self.error:
                assert self._requests is not None
                self._requests.receive(self._owed)
                self._owed = 0
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
            state.peers.credited(*self._pool.record())
        if state.was_reset:
            self._fail(errno.ECONNRESET)

    def _retire(self, number: int) -> None:
        if number & TAKEN:
            self._taken = number & ~TAKEN
            return
        while self._inflight and self._inflight[0][0] <= number:
            self._retired, staged, _ = self._inflight.popleft()
            self._taken = max(self._taken, self._retired)
            self._staging.head = max(self._staging.head, staged)

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
                self._requests.notify(self._next(0, None), self._state.reset())

    def _changed(self) -> None:
        if self.on_change is not None:
            self.on_change()

    def _next(self, staged: int, holder: object) -> int:
        """The number of the message that is about to be posted."""
        self._number += 1
        self._inflight.append((self._number, staged or self._staging.head, holder))
        return self._number

    def _credit(self, anyhow: bool = False, empty: bool = False) -> None:
        state, requests = self._state, self._requests
        if state is None or requests is None or self.error or len(self._inflight) >= MESSAGES - 1:
            return
        found = state.next_credit(anyhow)
        if found is None and empty:
            found = state.opening()
        if found is not None:
            requests.credit(self._next(0, None), *found)

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
            if self._requests is not None and not (self.error or self._closed or self._inflight):
                try:
                    self._requests.probe(self._next(0, None))
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
            if self._handle.waiting() and self._lock.acquire(blocking=False):
                try:
                    self._pump()
                finally:
                    self._lock.release()
            if self._news:
                self._serve()
            return bool(self.error) or self._closed or ready()

        while not ended():
            left_s = None if deadline_s is None else deadline_s - time.monotonic()
            if left_s is not None and left_s <= 0:
                return False
            self._completion_thread.enter()
            try:
                self._driver.wait_for(ended, left_s)
            except DriverError:
                self._fail(errno.ECONNRESET)
            finally:
                self._completion_thread.leave()
        return True

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
        return (
            state.opened and state.peers.room() > 0
            and len(self._inflight) < MESSAGES - _RESERVED
            and self._staging.room() > 0
        )  # fmt: skip

    def watch(self) -> None:
        """Have a thread that takes completions while the application waits elsewhere."""
        self._completion_thread.start()

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
        if self._handle.waiting():
            self._pump()
        assert self._state is not None
        return self._state

    # receiving

    def receive(self, take: Callable[[StreamState], int], deadline_s: float | None, blocking: bool) -> int:
        """Have ``take`` take what there is; the bytes that it took, 0 at the end of the stream.

        BlockingIOError where nothing is there (not blocking), TimeoutError, ConnectionResetError.
        """
        while True:
            with self._guard:
                state = self._look()
                if self.receiving_ended:
                    return 0
                if state.own.available:
                    taken = take(state)
                    self._after_receive()
                    return taken
                if self.error and not (state.finished and not state.was_reset):
                    raise failure(self.error)
                if state.finished:
                    return 0
            if not blocking:
                self._driver.progress()
                with self._guard:
                    if self._look().own.available or state.finished or self.error:
                        continue
                raise BlockingIOError(errno.EAGAIN, "no completion, no data arrived")
            if not self.wait(lambda: self.readable, deadline_s):
                raise TimeoutError("timed out")

    def receive_bytes(self, length: int) -> bytes:
        """Wait for up to ``length`` bytes; none at the end."""
        parts: list[bytes] = []

        def take(state: StreamState) -> int:
            parts.append(self.take_bytes(state, length, False))
            return len(parts[0])

        self.receive(take, None, True)
        return parts[0] if parts else b""

    def _after_receive(self) -> None:
        try:
            self._credit()
        except _FAILED:
            self._fail(errno.ECONNRESET)
        self._changed()

    def take_bytes(self, state: StreamState, length: int, peek: bool) -> bytes:
        """A copy of up to ``length`` bytes."""
        length = min(length, state.own.available)
        base = self._pool.address
        parts = [primitives.bytes_at(base + offset, size) for offset, size in state.own.look(length)]
        if not peek:
            self.copied_bytes += length
            state.own.take(length)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def take_into(self, state: StreamState, view: memoryview, peek: bool) -> int:
        """Copy into ``view``; into a `PageBuffer` above the threshold, nothing being mapped there: map."""
        length = min(view.nbytes, state.own.available)
        if isinstance(view.obj, PageBuffer) and length > self.settings.threshold_bytes and not peek:
            mapped = self._map(state, view, length)
            if mapped:
                return mapped
        target, base = primitives.address_of(view), self._pool.address
        for offset, size in state.own.look(length):
            primitives.copy(target, base + offset, size)
            target += size
        if not peek:
            self.copied_bytes += length
            state.own.take(length)
        return length

    def _map(self, state: StreamState, view: memoryview, length: int) -> int:
        """Map whole pages onto the buffer that ``view`` is of; 0 where that cannot be."""
        buffer = view.obj
        assert isinstance(buffer, PageBuffer)
        address = primitives.address_of(view)
        found = state.own.whole_pages(length)
        if not self.settings.mapping or found is None or address % PAGE_BYTES:
            return 0
        offset, size = found
        size = min(size, (self._pool.length // 2 - state.own.held) // PAGE_BYTES * PAGE_BYTES)
        if size <= self.settings.threshold_bytes:
            return 0
        place = buffer.offset_of(address)
        if self._pool.map(offset, size, address):
            return 0
        position = state.own.hold(size)
        self._mapped[position] = buffer.mapped(place, size, lambda: self._release(position))
        self.mapped_bytes += size
        return size

    def take_view(self, state: StreamState, length: int) -> memoryview:
        """A view of the pool itself; its room is the sender's again when it is released."""
        found = state.own.run(min(length, state.own.available))
        assert found is not None
        position = state.own.hold(found[1])
        self.lent_bytes += found[1]
        return self._pool.lend(*found, lambda: self._release(position))

    def _release(self, position: int) -> None:
        """The application has done with what it held.  Finalizers call this, and receives of other streams,
        which may hold a lock that the holder of this stream's lock waits for: it waits for none.
        """
        self._given_back.append(position)
        self._serve()

    def _reclaim(self) -> None:
        """With the lock held: account for what was given back, and tell the peer."""
        state, found = self._state, False
        while self._given_back:
            position = self._given_back.popleft()
            self._mapped.pop(position, None)
            if state is not None:
                state.own.release(position)
                found = True
        if found and not self._closed:
            self._after_receive()

    # sending

    def send(self, views: list[memoryview], deadline_s: float | None, blocking: bool) -> int:
        """Send all bytes of ``views``, or as many as can go at once where not ``blocking``.

        Whoever may change its memory afterwards is waited for, or its bytes are copied.  At the deadline: how
        many have gone, TimeoutError where none has.  BlockingIOError, BrokenPipeError, ConnectionResetError;
        ``error.characters_written`` is not set, as with TCP.
        """
        sent, last = 0, [0]
        try:
            for view in views:
                sent += self._send_view(view, deadline_s, blocking, last)
        except Stopped as stopped:
            sent += stopped.sent
            if not sent:
                raise stopped.why from None
        finally:
            if last[0]:
                self.wait(lambda: self._taken >= last[0], None)
        if last[0] and self.error and self._taken < last[0]:
            raise failure(self.error)
        return sent

    def _send_view(self, view: memoryview, deadline_s: float | None, blocking: bool, last: list[int]) -> int:
        """Send one view; ``last[0]`` becomes the last message that takes bytes from memory that may change.
        `Stopped` where it cannot be sent whole now.
        """
        frozen = type(view.obj) is bytes
        position = 0
        while position < view.nbytes:
            with self._guard:
                taken, direct = self._send_some(view[position:], frozen, blocking)
                if direct and not frozen:
                    last[0] = self._number
            if taken:
                position += taken
            elif not blocking:
                self._driver.progress()
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
        if not state.opened or len(self._inflight) >= MESSAGES - _RESERVED:
            return 0, False
        assert self._requests is not None
        length, threshold = view.nbytes, self.settings.threshold_bytes
        limit = threshold if frozen else max(threshold, self.settings.direct_bytes)
        direct = bool(length > limit and self._space.lkey and (frozen or blocking))
        if not direct and length > INLINE_BYTES:
            length = min(length, self._staging.room())
        length = min(length, self.settings.chunk_bytes, state.peers.length // 2)
        length, places, immediate = state.next_data(length, threshold)
        if not length:
            return 0, False
        address = primitives.address_of(view, False)
        holder: object = None
        staged = 0
        inline = not direct and length <= INLINE_BYTES
        if inline:
            runs = [Page(address, length, 0)]
        elif direct:
            found = page_list([view[:length]], self._space.lkey)
            runs, holder = list(found.runs), found
            self.direct_bytes += length
        else:
            runs = [self._staging.put(address, length)]
            staged = self._staging.tail
        try:
            number = self._next(staged, holder)
            self._requests.write(number, runs, places, immediate, inline, direct and not frozen)
        except _FAILED:
            self._fail(errno.ECONNRESET)
            raise failure(self.error) from None
        return length, direct

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
            self._requests.notify(self._next(0, None), self._state.fin(closed))
        except _FAILED:
            self._fail(errno.ECONNRESET)

    @property
    def drained(self) -> bool:
        """Whether all that was sent has arrived."""
        return not self._inflight or bool(self.error)

    def close(self, linger_s: float) -> None:
        """Say FIN (RESET where data are unread), wait until it has arrived, ``linger_s`` at most, and give
        everything back; may be called again.
        """
        with self._guard:
            if self._closed:
                return
            self.on_change = None
            if self._state is not None and self._requests is not None and not self.error:
                self._pump()
                if self._state.deaf:
                    linger_s = 0  # the peer has gone before
                elif self._state.own.available:
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
            mapped = list(self._mapped.values())
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
        self._pool.close()
        self._staging.close()
        self._inflight.clear()
        self._driver_waiters()

    def _driver_waiters(self) -> None:
        with contextlib.suppress(*_FAILED):
            self._driver.wake_waiters()

    def abandon(self) -> None:
        """In a forked child: all of it is the parent's."""
        self._closed = True
        self.error = errno.ECONNRESET
        self.on_change = None
        self._lock = threading.RLock()
        self._pool.abandon()
