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
import threading
import time
from collections.abc import Callable

from softhca.driver.errors import DriverError
from softhca.driver.rdmacm import events
from softhca.machine import deferred_signals
from softhca.sockets.completion_thread import completion_thread_of
from softhca.sockets.hub import HUB
from softhca.sockets.memory_processing import Pool
from softhca.sockets.protocol import Offer
from softhca.sockets.settings import Settings
from softhca.sockets.stream_path import FAILED, NEVER, StreamPath
from softhca.sockets.stream_receiving import Receiver
from softhca.sockets.stream_sending import MESSAGES, Sender
from softhca.sockets.stream_state import StreamState
from softhca.sockets.waiting import Guard
from softhca.sockets.work_requests import INLINE_BYTES, WORK_REQUESTS, WorkRequests
from softhca.verbs import enums as e
from softhca.verbs.cmid import CMID, CMEventChannel
from softhca.verbs.cq import CQ
from softhca.verbs.qp import QPCap, QPInitAttr

RECEIVES = 128
"""Receive work requests: notifications of data, and as many for the others."""
SCATTERED = 64
"""Runs of scattered memory that one notification tells of."""


class Stream(StreamPath):
    """One end of a connection over ``cmid``, which has a device.  `PoolError`, PyverbsError.

    ``error`` is the errno that ended it, 0 while it lives.  ``on_change``, when set, is called with the
    stream's lock held whenever it may have become readable or writable; ``on_stall``, without it, when a send
    has found no room.  ``sender`` and ``receiver`` are its halves, which count bytes.
    """

    def __init__(self, cmid: CMID, settings: Settings) -> None:
        self._begin_path()
        self.settings = settings
        self._cmid = cmid
        self._channel: CMEventChannel | None = None
        self._guard = Guard(self)
        pd, context = cmid.pd, cmid.context
        assert pd is not None
        assert context is not None
        self._driver = context.driver
        channel = self._driver.session.channel
        self._progress, self._polls = channel.look, channel.shares_addresses
        self._opening = 0
        self._end_said = False
        self._may_tell_in_memory = self._polls and settings.in_memory
        self._next_look = 1 if self._polls else NEVER
        self._completion_thread = completion_thread_of(self._driver)
        self._calls = [self._completion_thread.polling]
        self.receiver = Receiver(Pool(pd, settings.pool_bytes), settings, self._release)
        self._given_back = self.receiver.given_back
        try:
            self.sender = Sender(pd, settings)
            depth = MESSAGES * WORK_REQUESTS + SCATTERED
            self._cq = CQ(context, MESSAGES * WORK_REQUESTS + SCATTERED + RECEIVES + 8)
            self._handle = self._cq.handle
            self._handle.on_event = self._on_event
            self._poller = self._handle.poller
            caps = QPCap(
                max_send_wr=depth, max_recv_wr=RECEIVES, max_send_sge=1, max_recv_sge=1,
                max_inline_data=INLINE_BYTES,
            )  # fmt: skip
            cmid.create_qp(QPInitAttr(e.IBV_QPT_RC, scq=self._cq, rcq=self._cq, cap=caps, sq_sig_all=0))
        except BaseException:
            self.receiver.pool.close()
            with contextlib.suppress(AttributeError, *FAILED):
                self.sender.close()
                self._cq.close()
            raise
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
        packet_bytes = 128 << qp.handle.query()["path_mtu"]
        with self._guard:
            state = StreamState(self.receiver.pool.length, peer)
            self._requests = WorkRequests(qp.handle, peer.address, peer.rkey, record, packet_bytes)
            self._requests.in_place = not self._polls  # who cannot ask often reckons with it
            self._requests.receive(RECEIVES)
            self.sender.begin(state, self._requests)
            self.receiver.own = state.own
            self._state = state
            self._arm()

    def _arm(self) -> None:
        """With the lock held: ask for the next event."""
        try:  # noqa: SIM105, a context manager takes longer than the call
            self._handle.arm(not (self._sleeping or self._watched))
        except FAILED:
            pass

    def _arm_for_all(self) -> None:
        """With the lock held, of who is going to sleep: ask for any event, at the queue and at a peer that
        tells in memory, and look once more.
        """
        self._arm()
        self._pump()

    def _writes_in_place(self) -> bool:
        """Whether the adapter carries WRITEs of this connection out itself, on this host."""
        qp = self._cmid._qp
        assert qp is not None
        return "same_host_operations" in self._driver.query_counters(qp=qp.qp_num)

    @property
    def opened(self) -> bool:
        """Whether the peer has said anything yet."""
        return self._state is not None and self._state.opened

    def open(self) -> None:
        """Of the side that has asked: the connection is there; the peer is told, which may send then."""
        with self._guard:
            assert self._state is not None
            self._state.opened = True
            self._opening = self.sender.number + 1
            self._credit(anyhow=True, empty=True)

    @property
    def told(self) -> bool:
        """Whether the peer's adapter has what `open` has said, or the connection has ended."""
        return self.sender.retired >= self._opening or bool(self.error)

    # completions

    def _on_event(self) -> None:
        self._news = True
        self._serve()

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
                with contextlib.suppress(*FAILED):
                    self._cmid.disconnect()

    def _forged(self) -> None:
        """The peer has said what cannot be."""
        self._send_reset()
        self._fail(errno.ECONNRESET)

    def _send_reset(self) -> None:
        with contextlib.suppress(*FAILED):
            if self._requests is not None and self._state is not None and not self.error:
                self._requests.notify(self.sender.next(), self._state.reset())

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
                except FAILED:
                    self._fail(errno.ECONNRESET)

    def _hear(self) -> None:
        """The hub: events of this stream's identifier; all that counts is that the peer has ended it."""
        while self._channel is not None and (event := self._channel.channel.next_event(0)) is not None:
            if event.kind == events.DISCONNECTED:
                self._goodbye = self._news = True
                self._serve()

    def _judge_end(self) -> None:
        """With the lock held, all completions taken: the peer is gone, an error if it said no FIN, or where
        something is under way, which nobody will answer now.
        """
        state = self._state
        if state is None or not (state.finished and state.deaf) or self.sender.unanswered:
            self._fail(errno.ECONNRESET)

    # waiting

    def _sleep(self, ended: Callable[[], bool], deadline_s: float | None) -> bool:
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
                self._arm_for_all()

    def watch(self) -> None:
        """Have a thread that takes completions while the application waits elsewhere."""
        self._completion_thread.follow(self)
        with self._guard:
            self._watched = True
            self._arm_for_all()

    def device_ended(self) -> None:
        """The adapter is gone; called by any thread."""
        with self._guard:
            if not self._closed:
                with contextlib.suppress(*FAILED):
                    self._fail(errno.ECONNRESET)

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

    def receive_bytes(self, length: int, blocking: bool = True) -> bytes:
        """Wait for up to ``length`` bytes; none at the end.  BlockingIOError where not ``blocking``."""
        parts: list[bytes] = []

        def take() -> int:
            parts.append(self.receiver.take_bytes(length, False))
            return len(parts[0])

        self.receive(take, None, blocking)
        return parts[0] if parts else b""

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
        except FAILED:
            self._fail(errno.ECONNRESET)

    @property
    def drained(self) -> bool:
        """Whether all that was sent has arrived."""
        return not self.sender.unanswered or bool(self.error)

    def close(self, linger_s: float, abruptly: bool = False) -> None:
        """`wait_end`, and give everything back; may be called again."""
        self.wait_end(linger_s, abruptly)
        self.destroy()

    def wait_end(self, linger_s: float, abruptly: bool = False) -> None:
        """`say_end`, and wait until it has arrived, ``linger_s`` at most."""
        if self.say_end(abruptly):
            with contextlib.suppress(*FAILED):
                self.wait(lambda: self.drained, time.monotonic() + linger_s)

    def say_end(self, abruptly: bool = False) -> bool:
        """Say FIN (RESET where data are unread, or ``abruptly``), unless that has been said; whether somebody
        may be there to hear it.
        """
        with self._guard:
            if self._closed:
                return False
            self.on_change = self.on_stall = None
            if self._state is not None and self._requests is not None and not self.error:
                self._pump()
                if self._state.deaf:
                    return False  # the peer has gone before
                if self._end_said:
                    return True
                self._end_said = True
                if abruptly or self._state.own.available:
                    self._send_reset()
                else:
                    self._send_fin(True)
        return True

    def destroy(self) -> None:
        """Give everything back at once; may be called again.  Where a signal handler raises meanwhile, as an
        adapter process does not answer, the hub goes on with it.
        """
        mine = False
        try:
            with deferred_signals.section():
                with self._guard:
                    if self._closed:
                        return
                    mine = self._closed = True
                    self.error = self.error or errno.EBADF
                self._give_back()
        except BaseException:
            if mine:
                HUB.soon(self._give_back)
            raise

    def _give_back(self) -> None:
        """All that there is still; may be called again."""
        with self._guard:
            mapped = self.receiver.mappings()
        for release in mapped:
            release()
        self._handle.on_event = None
        self.receiver._release = _nothing  # this stream is to go without the collector
        with contextlib.suppress(*FAILED):
            self._cmid.close()
        with contextlib.suppress(*FAILED):
            self._cq.close()
        channel = self._channel
        if channel is not None:
            channel.channel.on_post = None
            channel.close()
            self._channel = None
        self.receiver.pool.close()
        self.sender.close()
        self._driver_waiters()

    def _driver_waiters(self) -> None:
        with contextlib.suppress(*FAILED):
            self._driver.wake_waiters()

    def abandon(self) -> None:
        """In a forked child: all of it is the parent's."""
        self._closed = True
        self._missed = False  # whoever waited is a thread of the parent
        self.error = errno.ECONNRESET
        self.on_change = self.on_stall = None
        self._lock = threading.RLock()
        self.receiver.pool.abandon()


def _nothing(position: int) -> None:
    """What takes back memory of a stream that has gone."""
