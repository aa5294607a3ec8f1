"""One end of a channel: its queue pair, its slots in both directions, its accounts.

Methods need the lock of the link, except where they say otherwise.  None waits.
"""

from __future__ import annotations

import contextlib
import itertools
from collections import deque
from collections.abc import Callable
from socket import htonl
from typing import TYPE_CHECKING

from softhca.channels import messages as m
from softhca.channels.accounts import LARGE, MESSAGE, ReceiveAccount, SendAccount
from softhca.channels.errors import (
    ChannelClosed,
    ChannelEnded,
    ChannelError,
    ChannelLost,
    MessageTooLong,
    ProtocolError,
)
from softhca.channels.messages import ACKNOWLEDGED, UNACKNOWLEDGED, Control, End
from softhca.channels.wiring import (
    RDMA_READ,
    RECV_BIT,
    SEND_IMM,
    SIGNALED,
    Slots,
    Wire,
)
from softhca.verbs import enums as e
from softhca.verbs.cq import cqe_status_to_str
from softhca.verbs.pyverbs_error import PyverbsError
from softhca.verbs.wr import SGE, RecvWR, SendWR

if TYPE_CHECKING:
    from softhca.channels.link import Link
    from softhca.channels.registration import Lease
    from softhca.channels.windows import Window
    from softhca.driver.work_requests import Completion

OPERATIONS = 64
"""Work requests beside messages that a channel has under way."""
READ_BYTES = 1 << 30
"""One RDMA READ brings at most so many."""
_OPERATION = 1 << 48
_PEER_IS_GONE = int(e.IBV_WC_RETRY_EXC_ERR)

Entry = tuple[int, int, int, int]
"""A message that has come: number, kind, slot, bytes in it."""


class Operation:
    """Something posted that ends with one completion: ``done``, and ``status`` (0: success, −1: none
    will come)."""

    __slots__ = ("count", "done", "on_done", "status")

    def __init__(self, count: int, on_done: Callable[[Operation], object] | None = None) -> None:
        self.count = count
        self.done = False
        self.status = -1
        self.on_done = on_done


class Fetch:
    """A receive that has an RDMA READ of a large message posted, or is about to; ``given_up``: it ends
    without the message, which is for the next one.
    """

    __slots__ = ("given_up", "operation")

    def __init__(self) -> None:
        self.operation: Operation | None = None
        self.given_up = False

    @property
    def under_way(self) -> bool:
        """Whether bytes may come still."""
        return self.operation is not None and not self.operation.done


class Endpoint:
    """Of ``link``, number ``number`` there; ``service`` is `ACKNOWLEDGED` or `UNACKNOWLEDGED`.

    ``error`` is what has ended it; ``inbox`` what has come and was not taken.  ``sent_bytes`` … are counted.
    """

    def __init__(self, link: Link, number: int, service: int, name: str) -> None:
        self.link = link
        self.number = number
        self.service = service
        self.name = name
        self.acknowledged = service == ACKNOWLEDGED
        self.error: ChannelError | None = None
        self.closed = False
        self.quick = 0
        """Messages of up to so many bytes may be sent without further questions."""
        self.peer: End | None = None
        self.peer_ready = self.peer_closed = False
        self.answer: Control | None = None
        self.inbox: deque[Entry] = deque()
        self.fetching: Fetch | None = None
        """What reads the large message at the head of the inbox; None: nothing does."""
        own = link.options
        self.slots, self.slot_bytes, self.largest_bytes = own.slots, own.slot_bytes, own.largest_bytes
        if not self.acknowledged:
            self.largest_bytes = own.slot_bytes
        self._entries = 3 * own.slots + OPERATIONS + 8
        link.reserve(self._entries)
        with contextlib.ExitStack() as undone:
            undone.callback(link.unreserve, self._entries)
            self._slots = Slots(link.pd, own.slots, own.slot_bytes)
            undone.callback(self._slots.close)
            self._stage = Slots(link.pd, own.slots, own.slot_bytes)
            undone.callback(self._stage.close)
            self.wire = Wire(link.pd, link.cq, service, 2 * own.slots + OPERATIONS, own.slots)
            undone.pop_all()
        self._receives = self._slots.receives()
        self._free: list[RecvWR] = list(self._receives)
        self.incoming = ReceiveAccount(own.slots, self.acknowledged)
        self.outgoing = SendAccount(0, own.slots)
        self.offers: dict[int, Window] = {}
        """Large messages whose windows are bound, by their numbers."""
        self._offered: deque[int] = deque()
        self._operations: dict[int, Operation] = {}
        self._operation_count = self._under_way = 0
        self._signal_every = max(1, own.slots // 4)
        self._message = SendWR(opcode=SEND_IMM, num_sge=1, sg=[SGE(self._stage.address, 0, self._stage.lkey)])
        self._syncing = self._at_once = self._answering = False
        self.received = 0

    # setting up

    def begin(self) -> None:
        """Without the lock.  To INIT, with all receives."""
        self.wire.begin(self.link.cmid)
        self._repost()

    def connect(self, peer: End) -> None:
        """Without the lock.  To RTS."""
        self.peer = peer
        self.wire.connect(self.link.cmid, peer)

    def open_for_sending(self) -> None:
        """The peer's queue pair can receive."""
        assert self.peer is not None
        self.peer_ready = True
        self.outgoing.slots = self.peer.slots
        if not self.closed:
            self.quick = self.longest_copied
        self.link.changed = True

    @property
    def end(self) -> End:
        """What the peer is told of this end."""
        return End(
            self.service, self.wire.number, self.wire.psn, self.slots, self.slot_bytes, self.largest_bytes
        )

    # what is told

    def on_control(self, message: Control) -> None:
        """A control message about this channel.  ProtocolError."""
        kind = message.kind
        if kind == m.CREDIT:
            self.outgoing.credited(message.number)
            if message.flags & ~m.ANSWER:
                raise ProtocolError(f"credit with flags {message.flags:#x}")
            if message.flags:
                self._syncing = False
            while self._offered and self._offered[0] < message.number:
                self._withdraw(self._offered.popleft())
        elif kind == m.READY:
            if self.peer_ready or self.peer is None:
                raise ProtocolError("the channel is ready already")
            self.open_for_sending()
        elif kind in (m.OPENED, m.REFUSED):
            if self.answer is not None or self.peer is not None:
                raise ProtocolError("the channel was answered already")
            if kind == m.OPENED and message.end.service != self.service:
                raise ProtocolError("the channel is opened as another one")
            self.answer = message
        elif self.peer is None or self.peer_closed:
            raise ProtocolError("the channel is not open")
        elif kind == m.SYNC:
            if self.acknowledged:
                raise ProtocolError("no message of an acknowledged channel is lost")
            self.incoming.asked(message.number)
            self._at_once = self._answering = True
        elif kind == m.CLOSE:
            self.incoming.synchronized(message.number)
            self.peer_closed = True
            self.quick = 0
        else:
            self.fail(ChannelLost("the channel has failed at the peer"))

    def next_credit(self) -> Control | None:
        """What the peer is to be told of messages that were taken."""
        if self.peer is None or self.peer_closed or self.error is not None:
            return None
        taken = self.taken
        if not self._answering and not self.incoming.owed(taken, self._at_once):
            return None
        try:
            self._repost()
        except PyverbsError as error:
            self.fail(ChannelLost(f"the channel has failed: {error}"))
            return None
        flags = m.ANSWER if self._answering else 0
        self._at_once = self._answering = False
        self.incoming.advertised = taken
        return Control(m.CREDIT, self.number, taken, flags=flags)

    @property
    def taken(self) -> int:
        """Messages before this number were taken, or are lost."""
        return self.inbox[0][0] if self.inbox else self.incoming.expected

    def completed(self, each: Completion) -> None:
        """A completion of this queue pair.  ProtocolError."""
        number = each.wr_id
        if each.status:
            operation = self._operations.get(number)
            if operation is not None:
                self._end_operation(number, operation, each.status)
            if self.error is None:
                self._failed(each.status)
        elif each.opcode & RECV_BIT:
            self._arrived(number, each.byte_len, each.imm_data)
        elif number < _OPERATION:
            self.outgoing.retired = number
        else:
            operation = self._operations.get(number)
            if operation is not None:
                self._end_operation(number, operation, 0)

    def _failed(self, status: int) -> None:
        text = cqe_status_to_str(status)
        if status == _PEER_IS_GONE and not self.peer_closed:
            self.link.fail(ChannelLost(f"the peer does not answer: {text}"))
        else:
            self.fail(ChannelLost(f"the channel has failed: {text}"))
            self.send_broken()

    def _arrived(self, slot: int, length: int, immediate: int) -> None:
        kind, number = self.incoming.arrived(immediate)
        if number < 0:
            self._free.append(self._receives[slot])
            self._at_once = True
            return
        if kind == LARGE and length != m.LARGE_BYTES:
            raise ProtocolError(f"{length} bytes say where a message is")
        self.inbox.append((number, kind, slot, length))

    def _repost(self) -> None:
        free, self._free = self._free, []
        self.wire.post_receives(free)

    # sending

    @property
    def longest_copied(self) -> int:
        """Up to so many bytes a message is copied."""
        peer = self.peer
        return self.slot_bytes if peer is None else min(self.slot_bytes, peer.slot_bytes)

    @property
    def longest(self) -> int:
        """No message to the peer may be longer."""
        if self.peer is None or not self.acknowledged:
            return self.longest_copied
        return self.peer.largest_bytes

    @property
    def writable(self) -> bool:
        """Without the lock.  Whether a send would not wait, or not succeed any more."""
        return self.outgoing.room > 0 or self.closed or self.error is not None or self.peer_closed

    def require_open(self) -> None:
        """ChannelClosed, or what has ended the channel."""
        if self.closed:
            raise ChannelClosed("the channel is closed")
        if self.error is not None:
            raise type(self.error)(str(self.error.strerror), self.error.errno)

    def require_sending(self) -> None:
        """As `require_open`; ChannelEnded, whatever has come after that."""
        if self.peer_closed and not self.closed:
            raise ChannelEnded("the peer has closed the channel")
        self.require_open()

    def send(self, view: memoryview) -> bool:
        """Send a message that fits a slot; False: there is no room."""
        outgoing = self.outgoing
        if outgoing.room <= 0:
            self._ask_what_is_lost()
            return False
        length = view.nbytes
        slot = outgoing.sent % self.slots
        start = slot * self.slot_bytes
        self._stage.view[start : start + length] = view
        self._post_message(MESSAGE, start, length)
        return True

    def _post_message(self, kind: int, start: int, length: int, before: SendWR | None = None) -> None:
        request, outgoing = self._message, self.outgoing
        request.imm_data = htonl(outgoing.immediate(kind))
        request.sges = ((self._stage.address + start, length, self._stage.lkey),)
        signaled = outgoing.sent % self._signal_every == 0
        request.send_flags = SIGNALED if signaled else 0
        request.wr_id = outgoing.sent
        if before is not None:
            before.following = request
        self.post(request if before is None else before)

    def offer(self, lease: Lease, window: Window, bind: SendWR) -> int:
        """Say where a large message is, once ``bind`` has bound its window; its number, −1: no room."""
        outgoing = self.outgoing
        if outgoing.room <= 0:
            return -1
        number = outgoing.sent
        start = number % self.slots * self.slot_bytes
        data = m.encode_large(lease.address, window.rkey, lease.length)
        self._stage.view[start : start + len(data)] = data
        self._post_message(LARGE, start, len(data), bind)
        self.offers[number] = window
        self._offered.append(number)
        return number

    def _withdraw(self, number: int) -> None:
        """The peer has fetched a large message: its window's key becomes invalid."""
        window = self.offers[number]

        def ended(operation: Operation) -> None:
            if self.offers.pop(number, None) is not None and not operation.status:
                lease = window.lease
                self.link.windows.give_back(window)
                if lease is not None:
                    lease.release_later(self.link.later)

        with contextlib.suppress(ChannelError):
            self.operate([window.invalidate()], ended)

    def _ask_what_is_lost(self) -> None:
        """Of an unacknowledged channel without room: what was lost on the way holds none."""
        if not self.acknowledged and self.peer_ready and not self._syncing:
            self._syncing = True
            self.link.send_control(Control(m.SYNC, self.number, self.outgoing.sent))

    def post(self, request: SendWR) -> None:
        """Post it.  ChannelLost, and the channel has failed."""
        try:
            self.wire.qp.post_send(request)
        except PyverbsError as error:
            self.fail(ChannelLost(f"the channel has failed: {error}"))
            self.require_open()

    # operations

    @property
    def has_operations(self) -> bool:
        """Without the lock.  Whether one more can be posted, or never again."""
        return self._under_way + 8 <= OPERATIONS or self.closed or self.error is not None

    def operate(
        self, requests: list[SendWR], on_done: Callable[[Operation], object] | None = None
    ) -> Operation:
        """Post ``requests``, of which the last is signaled.  As `post`."""
        self._operation_count += 1
        number = _OPERATION + self._operation_count
        operation = self._operations[number] = Operation(len(requests), on_done)
        self._under_way += len(requests)
        for each, following in itertools.pairwise(requests):
            each.following = following
        requests[-1].wr_id = number
        requests[-1].send_flags |= SIGNALED
        for each in requests[:-1]:
            each.wr_id = number  # of one that fails
        try:
            self.post(requests[0])
        except BaseException:
            self._end_operation(number, operation, -1)
            raise
        return operation

    def _end_operation(self, number: int, operation: Operation, status: int) -> None:
        if self._operations.pop(number, None) is None:
            return
        operation.status = status
        self._under_way -= operation.count
        operation.done = True
        self.link.changed = True
        if operation.on_done is not None:
            operation.on_done(operation)

    # receiving

    @property
    def readable(self) -> bool:
        """Without the lock.  Whether a receive would not wait."""
        if self.inbox:
            return self.fetching is None or self.error is not None or self.closed
        return self.closed or self.error is not None or self.peer_closed

    def head(self) -> Entry | None:
        """The next message; None: there is none yet, or somebody else fetches it.  As `require_open`;
        ChannelEnded.
        """
        if self.closed:
            self.require_open()
        if not self.inbox:
            self.require_sending()
            return None
        if self.fetching is not None:
            self.require_open()
            return None
        entry = self.inbox[0]
        if entry[1] == LARGE:
            self.require_open()
        return entry

    def take(self, entry: Entry) -> bytes:
        """Take the message at the head, which stands in its slot."""
        start = entry[2] * self.slot_bytes
        data = bytes(self._slots.view[start : start + entry[3]])
        self._taken(entry)
        return data

    def take_quick(self) -> bytes | None:
        """Take the next message if that takes nothing else.  As `head`."""
        entry = self.head()
        return None if entry is None or entry[1] == LARGE else self.take(entry)

    def take_into(self, entry: Entry, target: memoryview) -> int:
        """The same, into a buffer; its length.  MessageTooLong, and it stays."""
        length = entry[3]
        if length > target.nbytes:
            raise MessageTooLong(f"a message of {length} bytes, a buffer of {target.nbytes}")
        start = entry[2] * self.slot_bytes
        target[:length] = self._slots.view[start : start + length]
        self._taken(entry)
        return length

    def place_of(self, entry: Entry) -> tuple[int, int, int]:
        """Of a large message: address, R_Key, length.  ProtocolError."""
        return m.decode_large(self._slots.part(entry[2], entry[3]), 1, self.largest_bytes)

    def fetch(self, place: tuple[int, int, int], lease: Lease, fetch: Fetch) -> Operation:
        """READ a large message into ``lease``."""
        address, key, length = place
        requests = []
        for start in range(0, length, READ_BYTES):
            part = min(READ_BYTES, length - start)
            request = SendWR(
                0, RDMA_READ, 1, sg=[SGE(lease.address + start, part, lease.lkey)], send_flags=0
            )
            request.set_wr_rdma(key, address + start)
            requests.append(request)

        def ended(operation: Operation) -> None:
            lease.release_later(self.link.later)
            if fetch.given_up:
                self.fetching = None

        fetch.operation = self.operate(requests, ended)
        return fetch.operation

    def fetched(self, entry: Entry) -> None:
        """The large message at the head is here."""
        self.fetching = None
        self._at_once = True
        self._taken(entry)

    def give_up(self, fetch: Fetch) -> None:
        """Who fetched a message ends without it."""
        fetch.given_up = True
        if self.fetching is fetch and not fetch.under_way:
            self.fetching = None
            self.link.changed = True

    def _taken(self, entry: Entry) -> None:
        self.inbox.popleft()
        self.received += 1
        self._free.append(self._receives[entry[2]])
        if self._at_once or self.incoming.owed(self.taken, False):
            self.link._flush()

    # the end

    def fail(self, error: ChannelError) -> None:
        """It has ended so."""
        if self.error is None:
            self.error = error
            self.quick = 0
            self.link.changed = True
            self.link.later.append(self.wire.stop)

    def abandon(self, error: ChannelError) -> None:
        """In a forked child: it is the parent's, and so is the memory of all messages, which both see."""
        self.error = self.error or error
        self.quick = 0
        self.inbox.clear()

    def send_broken(self) -> None:
        """Tell the peer that this channel is no more."""
        link = self.link
        if link.channels.get(self.number) is self and link.error is None and not link.closed:
            link.send_control(Control(m.BROKEN, self.number))

    def end_operations(self) -> None:
        """Nothing completes any more."""
        for number, operation in list(self._operations.items()):
            self._end_operation(number, operation, -1)

    def destroy(self) -> None:
        """Without the lock.  Give everything back; may be called again."""
        for each in (self.wire, self._slots, self._stage):
            with contextlib.suppress(PyverbsError):
                each.close()
        with self.link.guard:
            self.end_operations()
            entries, self._entries = self._entries, 0
        self.link.unreserve(entries)


def service_of(acknowledged: bool) -> int:
    """The number of a service."""
    return ACKNOWLEDGED if acknowledged else UNACKNOWLEDGED
