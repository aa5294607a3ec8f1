"""The connection under channels: a control queue pair, the channels' own, and one completion queue.

Any thread may call any method.  A lock guards the state for as long as it takes to look and to post; nobody
waits with it.  Completions are taken by whoever finds them.  Who finds the lock taken leaves a note, and the
holder has everybody look again before it goes.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from softhca.channels import messages as m
from softhca.channels.accounts import ControlAccount
from softhca.channels.errors import (
    ChannelError,
    ChannelLost,
    ChannelRefused,
    ChannelTimeout,
    ChannelViolation,
    ProtocolError,
)
from softhca.channels.guard import Guard
from softhca.channels.messages import Control, Greeting
from softhca.channels.named import MOST_NAMES, NamedBuffers
from softhca.channels.options import ChannelOptions
from softhca.channels.registration import Memory
from softhca.channels.windows import Windows
from softhca.channels.wiring import INLINE, RECV_BIT, SEND, SIGNALED, Slots, Wire
from softhca.driver.errors import DriverError
from softhca.driver.rdmacm import events
from softhca.machine import primitives
from softhca.verbs.cmid import CMID, CMEvent, CMEventChannel
from softhca.verbs.cq import CQ, CompChannel, cqe_status_to_str
from softhca.verbs.pd import PD
from softhca.verbs.pyverbs_error import PyverbsError
from softhca.verbs.wr import SGE, SendWR

if TYPE_CHECKING:
    from softhca.channels.endpoint import Endpoint
    from softhca.driver.work_requests import Completion

CONTROL_SLOTS = 64
MOST_CHANNELS = 64
"""Channels of one connection."""
MOST_REQUESTS = 16
"""Channels that the peer has asked for and nobody has accepted."""
MOST_PENDING = 2 * MOST_NAMES
"""Control messages that wait for the peer to have room: what it wants to have answered, and that all own
buffers are revoked; what can wait (a buffer, another channel) is said when there is room.
"""
NOBODY_LISTENS = 8
"""REJ's reason: the service ID is not valid (IBTA vol. 1, table 109)."""
_PROBE = 1 << 62
_CONTROL_SENDS = 2 * m.MOST_CONTROL_SLOTS
POLLS = 64
"""So often who waits polls, before it arms the completion queue and sleeps: while there is traffic, nobody is
woken up, and no event is made."""
_POLLED = 32
_FAILED = (PyverbsError, DriverError)

Ready = Callable[[], bool]


class Link:
    """``cmid`` is bound to a device; ``own`` are the options of this side.

    ``error`` is what has ended the connection, None while it lives.  ``channels`` by their numbers.
    """

    def __init__(self, cmid: CMID, cm: CMEventChannel, own: ChannelOptions, active: bool) -> None:
        self.options = own
        self.active = active
        self.error: ChannelError | None = None
        self.cmid = cmid
        self.cm = cm
        self.source = cmid._identifier.source
        self.destination = cmid._identifier.destination
        self.response: bytes | None = None
        self.lock = threading.RLock()
        self.guard = Guard(self)
        self._resizing = threading.RLock()
        self.changed = self.missed = False
        self.established = False
        self.closed = False
        self.channels: dict[int, Endpoint] = {}
        self.requests: deque[Control] = deque()
        self.loops: list[Callable[[], object]] = []
        """Called, from any thread, when something has changed."""
        self.waiters: dict[Any, Any] = {}
        """Of event loops."""
        self.later: deque[Callable[[], object]] = deque()
        """What is to be done without the lock, for it asks the device."""
        self._sync_waiters = 0
        self._waited_s = 0.0
        self._posted = self._acknowledged = 0
        self._pumping = self._armed = self._event = self._news = False
        self._probing = self._starving = False
        self._endpoints: dict[int, Endpoint] = {}
        self._pending: deque[Control] = deque()
        self._account: ControlAccount | None = None
        self._next_channel = 1 if active else 2
        context = cmid.context
        assert context is not None
        self.context = context
        self._driver = context.driver
        self.pd = PD(context)
        self._parts: list[Any] = [self.pd]
        try:
            self.completion_channel = CompChannel(context)
            self._parts.append(self.completion_channel)
            self._reserved = self._entries = _CONTROL_SENDS + CONTROL_SLOTS + 16
            self.cq = CQ(context, self._entries, channel=self.completion_channel)
            self._parts.append(self.cq)
            self._handle = self.cq.handle
            self._handle.on_event = self._on_event
            self._slots = Slots(self.pd, CONTROL_SLOTS, m.CONTROL_BYTES)
            self._parts.append(self._slots)
            self.wire = Wire(self.pd, self.cq, m.ACKNOWLEDGED, _CONTROL_SENDS, CONTROL_SLOTS)
            self._parts.append(self.wire)
        except BaseException:
            self._close_parts()
            raise
        self._receives = self._slots.receives()
        self.memory = Memory(self.pd, own.slot_bytes)
        self.windows = Windows(self.pd)
        self.named = NamedBuffers(self)
        _links.add(self)

    def reserve(self, entries: int) -> None:
        """Make room for so many completions more, until `unreserve`.  PyverbsError."""
        with self._resizing:
            wanted = self._reserved + entries
            if wanted > self._entries:
                self.cq.resize(wanted)
                self._entries = wanted
            self._reserved = wanted

    def unreserve(self, entries: int) -> None:
        """They come no more: the next channel has their room."""
        with self.guard:
            self._pump()
        with self._resizing:
            self._reserved -= entries

    def begin(self) -> None:
        """The control queue pair can receive."""
        self.wire.begin(self.cmid)
        self.wire.post_receives(self._receives)
        self.cm.channel.on_post = self._on_news

    def greet(self, peer: Greeting) -> None:
        """The peer's room for control messages is known."""
        self._account = ControlAccount(CONTROL_SLOTS, peer.control_slots)

    def add(self, endpoint: Endpoint) -> None:
        """A channel more, of which completions may come."""
        with self.guard:
            self.channels[endpoint.number] = endpoint
            self._endpoints[endpoint.wire.number] = endpoint

    def remove(self, endpoint: Endpoint) -> bool:
        """A channel less; whether it was the last."""
        with self.guard:
            self.channels.pop(endpoint.number, None)
            self._endpoints.pop(endpoint.wire.number, None)
            return not self.channels

    def next_number(self) -> int:
        """The number of a channel that this side opens.  ChannelError: there are too many."""
        with self.guard:
            if len(self.channels) >= MOST_CHANNELS:
                raise ChannelError(f"a connection has at most {MOST_CHANNELS} channels")
            number = self._next_channel
            while number in self.channels:
                number = (number + 2) & m.MOST_CHANNEL or 2  # 0 is the connection's first, and no other's
            self._next_channel = (number + 2) & m.MOST_CHANNEL or 2
            return number

    # waiting

    def wait(self, ready: Ready, deadline_s: float | None) -> bool:
        """Wait, driving the device, until ``ready()``, which sees the end of everything too; False at the
        deadline (of ``time.monotonic``).
        """
        for _ in range(POLLS if not self._sync_waiters else 0):
            self.poll()
            if ready():
                return True
        counted = False
        try:
            with self.guard:
                counted, self._sync_waiters = True, self._sync_waiters + 1
            while not self.look(ready) and not self.closed:
                left_s = None if deadline_s is None else deadline_s - time.monotonic()
                if left_s is not None and left_s <= 0:
                    return False
                tick_s = max(self.options.keepalive_s - self._waited_s, 0.0)
                tick_s = tick_s if left_s is None else min(left_s, tick_s)
                before_s = time.monotonic()
                try:
                    self._driver.wait_for(lambda: self.look(ready, 1), tick_s)
                except DriverError as error:
                    self._device_gone(error)
                    return True
                self._waited_s += time.monotonic() - before_s
                if self._waited_s >= self.options.keepalive_s:
                    self._waited_s = 0.0
                    self.keep_alive()
            return True
        finally:
            if counted:
                with self.guard:
                    self._sync_waiters -= 1

    def look(self, ready: Ready, waiting: int = 0) -> bool:
        """Take what has come, without waiting for the lock; whether ``ready()``."""
        if self._handle.waiting() or self._news or self._event:
            self.missed = True  # first: who holds the lock sees it when he gives that back
            if self.lock.acquire(blocking=False):
                self.missed = False
                try:
                    self._pump()
                    changed, self.changed = self.changed, False
                finally:
                    self.lock.release()
                if changed or self.missed:
                    self.missed = False
                    self.notify_waiters(waiting)
                if self.later:
                    self.clear_up()
        if ready():
            return True
        if not self._armed and not self.closed:
            self._armed = True
            with contextlib.suppress(*_FAILED):
                self._handle.arm()
            if self._handle.waiting():
                return self.look(ready, waiting)
        return False

    def poll(self) -> None:
        """Drive the device, and take what has come."""
        if not self._handle.waiting():
            self._progress()
        if self._handle.waiting() or self._news or self._event:
            with self.guard:
                self._pump()

    def _progress(self) -> None:
        try:
            self._driver.look()
        except DriverError as error:
            self._device_gone(error)

    def _device_gone(self, error: DriverError) -> None:
        with self.guard:
            self._end(ChannelLost(f"the device has gone: {error}"))
            for endpoint in list(self.channels.values()):
                endpoint.end_operations()

    def notify_waiters(self, besides: int) -> None:
        """Have everybody who waits look again; ``besides``: so many of the waiting threads need not."""
        if self._sync_waiters > besides:
            with contextlib.suppress(*_FAILED):
                self._driver.wake_waiters()
        for each in self.loops:
            each()

    def clear_up(self) -> None:
        """Without the lock: do what was put off."""
        with contextlib.suppress(IndexError):  # other threads do so, too
            while True:
                self.later.popleft()()

    def keep_alive(self) -> None:
        """Ask the peer's adapter whether it is there; the answer is an acknowledgement, or this ends."""
        with self.guard:
            if not self._probing and self.established and self.error is None and not self.closed:
                self._probing = True
                self._attempt(self.wire.probe(_PROBE))

    def _on_event(self) -> None:
        """An armed queue has fired; called by whoever dispatches events."""
        self._armed = False
        self._event = True
        if self._starving:
            self.look(_never)
        for each in self.loops:
            each()

    def _on_news(self) -> None:
        """The communication manager has an event."""
        self._news = True
        self.missed = True
        for each in self.loops:
            each()

    def _watch(self) -> None:
        """What is to be said finds no room: have a thread wait for that, since the program may not."""
        with contextlib.suppress(*_FAILED):
            self._driver.events.watch()
        self.look(_never)

    def take_event(self) -> None:
        """The descriptor is not readable any more."""
        self._event = False
        with contextlib.suppress(*_FAILED):
            if self._driver.events.made_descriptor(self.completion_channel.token) is not None:
                self.completion_channel.get_cq_event(self.cq, 0)
                self.cq.ack_events(1)

    # what comes

    def _pump(self) -> None:
        """With the lock held: take all completions and events that there are, and answer them."""
        if self._pumping or self.closed:
            return
        self._pumping = True
        try:
            if self._event:
                self.take_event()
            while self._handle.waiting():
                for each in self._handle.poll(_POLLED):
                    self._completed(each)
                self.changed = True
                self._waited_s = 0.0
            while self._news:
                self._news = False
                self._take_news()
            self._flush()
        except ProtocolError as error:
            self._end(ChannelViolation(f"the peer has said what cannot be: {error}"))
        except _FAILED as error:
            self._end(ChannelLost(f"the connection has failed: {error}"))
        finally:
            self._pumping = False

    def _completed(self, each: Completion) -> None:
        endpoint = self._endpoints.get(each.qp_num)
        if endpoint is not None:
            endpoint.completed(each)
        elif each.qp_num != self.wire.number:
            return
        elif each.status:
            self._end(ChannelLost(f"the peer does not answer: {cqe_status_to_str(each.status)}"))
        elif each.opcode & RECV_BIT:
            self._received(each.wr_id, each.byte_len)
        elif each.wr_id == _PROBE:
            self._probing = False
        else:
            self._acknowledged = each.wr_id

    def _received(self, slot: int, length: int) -> None:
        message, taken = Control.decode(self._slots.part(slot, length))
        self.wire.post_receives([self._receives[slot]])
        if self._account is None:
            raise ProtocolError("a control message before the greeting")
        self._account.arrived(taken)
        self.established = True
        kind = message.kind
        if kind == m.NOTHING:
            return
        if kind in (m.SHARE, m.UNSHARE, m.UNSHARED):
            self.named.on_control(message)
        elif kind == m.OPEN:
            self._asked(message)
        else:
            endpoint = self.channels.get(message.channel)
            if endpoint is not None:
                endpoint.on_control(message)
            elif kind == m.BROKEN:
                kept = [each for each in self.requests if each.channel != message.channel]
                self.requests = deque(kept)

    def _asked(self, message: Control) -> None:
        """The peer wants one more channel."""
        number = message.channel
        message.end.check()
        asked = {each.channel for each in self.requests}
        parity = 0 if self.active else 1
        if not number or number % 2 != parity or number in self.channels or number in asked:
            raise ProtocolError(f"channel {number} cannot be opened")
        if len(asked) >= MOST_REQUESTS or len(self.channels) + len(asked) >= MOST_CHANNELS:
            self.send_control(Control(m.REFUSED, number))
        else:
            self.requests.append(message)

    def _take_news(self) -> None:
        """Events of the connection."""
        while True:
            event = self.cm.channel.next_event(0)
            if event is None:
                return
            self.on_cm_event(CMEvent.of(event))

    def on_cm_event(self, event: CMEvent) -> None:
        """With the lock held: what an established connection is told."""
        kind = event.event_type
        if kind == events.CONNECT_RESPONSE:
            self.response = event.private_data
            self.changed = True
            return
        if kind == events.REJECTED and self.active and not self.established:
            self._end(_refusal(event.status, event.private_data))
            return
        if kind == events.UNREACHABLE and self.active and not self.established:
            self._end(ChannelTimeout("the peer has not answered"))
            return
        if kind in (events.DISCONNECTED, events.REJECTED, events.UNREACHABLE, events.CONNECT_ERROR):
            while self._handle.waiting():
                for each in self._handle.poll(_POLLED):
                    self._completed(each)
            self._end(ChannelLost("the peer has ended the connection"))

    # what is said

    def send_control(self, message: Control) -> None:
        """With the lock held: have the peer told, when it has room."""
        if len(self._pending) >= MOST_PENDING:
            self._end(ChannelViolation("the peer asks for answers, and takes none"))
            return
        self._pending.append(message)
        self._flush()

    @property
    def has_room(self) -> bool:
        """Whether the peer has room for a control message, and none waits."""
        if self._account is None or not self.established:
            return False
        return self._account.room > 0 and not self._pending

    def _flush(self) -> None:
        account = self._account
        if account is None or self.error is not None or not self.established:
            return
        self._starving = self._starving and account.room <= 0
        while self._pending and account.room > 0:
            self._post(self._pending.popleft())
        if account.room > 0:
            for endpoint in list(self.channels.values()):
                credit = endpoint.next_credit()
                if credit is not None:
                    self._post(credit)
                    if account.room <= 0:
                        break
        if account.must_advertise:
            self._post(Control(m.NOTHING))
        if account.room <= 0 and not self._starving:
            self._starving = True
            self.later.append(self._watch)

    def _post(self, message: Control) -> None:
        assert self._account is not None
        data = message.encode(self._account.next())
        element = SGE(primitives.address_of(data, False), len(data), 0)
        self._posted += 1
        self._attempt(SendWR(self._posted, SEND, 1, sg=[element], send_flags=SIGNALED | INLINE))

    def _attempt(self, request: SendWR) -> None:
        try:
            self.wire.qp.post_send(request)
        except PyverbsError as error:
            self._end(ChannelLost(f"the connection has failed: {error}"))

    # the end

    def fail(self, error: ChannelError) -> None:
        """The connection has ended so."""
        with self.guard:
            self._end(error)

    def violated(self, error: ProtocolError) -> None:
        """The peer has said what cannot be."""
        self.fail(ChannelViolation(f"the peer has said what cannot be: {error}"))

    def _end(self, error: ChannelError) -> None:
        if self.error is None:
            self.error = error
            self.changed = True
            for endpoint in list(self.channels.values()):
                endpoint.fail(error)
            self.later.append(self._hang_up)

    def _hang_up(self) -> None:
        """Have the peer told by the communication manager, which it hears at once."""
        self.wire.stop()
        with contextlib.suppress(*_FAILED):
            self.cmid.disconnect()

    @property
    def quiet(self) -> bool:
        """Whether all that was said has arrived."""
        return not self._pending and self._acknowledged == self._posted

    def close(self) -> None:
        """Give everything back at once; may be called again."""
        with self.guard:
            if self.closed:
                return
            self.closed = True
            self.error = self.error or ChannelLost("the connection was closed")
            self.changed = True
            for endpoint in list(self.channels.values()):
                endpoint.fail(self.error)
        self._handle.on_event = None
        for each in list(self.waiters.values()):
            each.end()
        with contextlib.suppress(*_FAILED):
            self.cmid.disconnect()
        for endpoint in list(self.channels.values()):
            endpoint.destroy()
        self.clear_up()
        self.windows.close()
        self.memory.close()
        self.named.close()
        self._close_parts()

    def _close_parts(self) -> None:
        for each in reversed(self._parts):
            with contextlib.suppress(*_FAILED):
                each.close()
        with contextlib.suppress(*_FAILED):
            self.cmid.close()
        self.cm.close()

    def abandon(self) -> None:
        """In a forked child: all of it is the parent's."""
        self.lock = threading.RLock()
        self.guard = Guard(self)
        self._resizing = threading.RLock()
        self.closed = True
        self.loops = []
        self.later = deque()
        self.memory.abandon()
        self.windows.abandon()
        self._sync_waiters = 0
        self.error = ChannelLost("the connection is the parent process's")
        for endpoint in self.channels.values():
            endpoint.abandon(self.error)


def _never() -> bool:
    return False


def _refusal(reason: int, private_data: bytes) -> ChannelError:
    """What a REJ of the peer's means."""
    if reason == NOBODY_LISTENS:
        return ChannelRefused("nobody listens there")
    text = private_data.rstrip(b"\0").decode(errors="replace")
    return ChannelRefused("the peer refuses the connection" + (f": {text}" if text else ""))


_links: weakref.WeakSet[Link] = weakref.WeakSet()


def _forget() -> None:
    for each in list(_links):
        each.abandon()


os.register_at_fork(after_in_child=_forget)
