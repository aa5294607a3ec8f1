"""What runs for each datagram at one port of a device: taking messages out of their slots, and sending.

Compiled, this is an extension class, whose state is found without dictionaries; `DatagramPort` adds how it
comes about, what the program maps and borrows, and the end.  Calls are made with the socket's lock held.

A completion of a send is asked for where somebody waits for it (memory that may change, a goodbye), and
otherwise for every 16th datagram, or when many messages or a quarter of the memory for copies have gone since
the last: it answers for all datagrams before it, too.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from time import monotonic_ns
from typing import TYPE_CHECKING

import cython

from softhca.driver.errors import DriverError
from softhca.driver.polling import CompletionPoller
from softhca.driver.work_requests import Completion, Element, ReceiveRequest
from softhca.machine import deferred_signals
from softhca.machine.primitives import address_of, bytes_at
from softhca.memory.bits import PAGE_BYTES
from softhca.sockets.datagram_protocol import (
    CREDIT,
    GONE,
    HEADER_BYTES,
    Header,
    cut,
    mtu_bytes,
    page_immediate,
)
from softhca.sockets.datagram_state import Datagram, DatagramState
from softhca.sockets.staging import Staging
from softhca.verbs import enums as e
from softhca.verbs.addr import GRH_BYTES, source_of_grh
from softhca.verbs.pyverbs_error import PyverbsError

if TYPE_CHECKING:
    from softhca.driver.qp import QpHandle
    from softhca.sockets.datagram_port import PeerPath

DEPTH = 1024
"""Send work requests under way."""
INLINE_BYTES = 512
GRH_ROOM = 64
"""For the bytes in front of each message."""
SIGNAL_EACH = 16
"""A completion is asked for at least so often."""
SIGNAL_MESSAGES = DEPTH // 8
"""And after so many messages."""
FEW = 8
"""So few slots are posted anew only if most are free."""
FAILED = (PyverbsError, DriverError)

_DEPTH = cython.declare(cython.Py_ssize_t, DEPTH)
_FEW = cython.declare(cython.Py_ssize_t, FEW)
_PAGE_BYTES = cython.declare(cython.ulonglong, PAGE_BYTES)
_HEADER_BYTES = cython.declare(cython.longlong, HEADER_BYTES)
_GRH_BYTES = cython.declare(cython.longlong, GRH_BYTES)
_GRH_ROOM = cython.declare(cython.ulonglong, GRH_ROOM)
_INLINE_BYTES = cython.declare(cython.longlong, INLINE_BYTES)
_SIGNAL_EACH = cython.declare(cython.ulonglong, SIGNAL_EACH)
_SIGNAL_MESSAGES = cython.declare(cython.Py_ssize_t, SIGNAL_MESSAGES)
_RECV = cython.declare(cython.uint, int(e.IBV_WC_RECV))
_WITH_IMM = cython.declare(cython.uint, int(e.IBV_WC_WITH_IMM))
_WITH_GRH = cython.declare(cython.uint, int(e.IBV_WC_GRH))
_SEND, _SEND_IMM = (
    cython.declare(cython.uint, int(e.IBV_WR_SEND)),
    cython.declare(cython.uint, int(e.IBV_WR_SEND_WITH_IMM)),
)
_SIGNALED = cython.declare(cython.uint, int(e.IBV_SEND_SIGNALED))


class DatagramPortPath:
    """The state of a port, all of it `DatagramPort`'s.

    ``retired`` is the number of the last datagram of which is known that the adapter has done with it.
    """

    failed: bool
    copied_bytes: int
    direct_bytes: int
    retired: int
    state: DatagramState
    _threshold: int
    _number: int
    _signaled: int
    _signaled_tail: int
    _unsignaled: int
    _datagrams: int
    _posted_sends: int
    _cursor: int
    _inflight: deque[tuple[int, int, int, object]]
    _given_back: deque[list[int]]
    _base: int
    _heads: int
    _staging: Staging
    _lkey: int
    _poller: CompletionPoller
    _completion: Completion
    _queue_pair: QpHandle
    _receives: list[ReceiveRequest]
    _last_grh: bytes
    _last_gid: bytes
    # Of `DatagramPort`:
    _reclaim: Callable[[], object]
    _gone: Callable[[int], object]

    def _begin_path(self, slots: int, threshold_bytes: int) -> None:
        """Of a new port, whose memory and queues come later."""
        self.failed = False
        self.copied_bytes = self.direct_bytes = 0
        self.retired = self._number = self._datagrams = self._posted_sends = self._cursor = 0
        self._signaled = self._signaled_tail = self._unsignaled = 0
        self._threshold = threshold_bytes
        self.state = DatagramState(slots)
        self._inflight = deque()
        self._given_back = deque()
        self._completion = Completion()
        self._last_grh = self._last_gid = b""

    def _begin_receiving(self, base: int, heads: int, lkey: int) -> None:
        """The slots' pages are at ``base``, and what comes in front of each message at ``heads``."""
        self._base, self._heads = base, heads
        self._receives = []
        for slot in range(self.state.slots):
            request = ReceiveRequest()
            request.wr_id, request.following = slot, None
            request.sges = (
                (heads + slot * GRH_ROOM, GRH_BYTES, lkey),
                (base + slot * PAGE_BYTES, PAGE_BYTES, lkey),
            )
            self._receives.append(request)

    # receiving

    def waits(self) -> bool:
        """Whether there are completions to be taken."""
        return self._poller.waiting() != 0

    def pump(self) -> None:
        """Take all completions there are; no signal handler comes between."""
        if self.failed:
            return
        deferred_signals.begin()
        try:
            if self._poller.waiting():
                self._take()
            if self._given_back:
                self._reclaim()
            if self.state.free:
                self._post_receives()
        except FAILED:
            self.failed = True
        finally:
            deferred_signals.end()

    def _take(self) -> None:
        poller: CompletionPoller = self._poller
        each: Completion = self._completion
        while poller.waiting() and poller.advance(each):
            if each.status:
                self.failed = True
                return
            if each.opcode & _RECV:
                self._arrived(each)
            else:
                self._retire(each.wr_id)

    def _arrived(self, each: Completion) -> None:
        slot: cython.longlong = each.wr_id
        length: cython.longlong = each.byte_len
        flags: cython.uint = each.wc_flags
        length -= _GRH_BYTES
        gid = self._source(slot) if flags & _WITH_GRH else bytes(16)
        source = gid, each.src_qp
        now_ns: cython.longlong = monotonic_ns()
        if flags & _WITH_IMM:
            self.state.page_arrived(slot, source, length, each.imm_data, now_ns)
            return
        head = bytes_at(self._base + slot * _PAGE_BYTES, max(min(_HEADER_BYTES, length), 0))
        self.state.arrived(slot, source, length, head, now_ns)

    def _source(self, slot: int) -> bytes:
        """The GID in front of a message: mostly that of the message before."""
        header = bytes_at(self._heads + slot * _GRH_ROOM, _GRH_BYTES)
        if header != self._last_grh:
            self._last_grh, self._last_gid = header, source_of_grh(header)
        return self._last_gid

    def _post_receives(self) -> None:
        """Post what is free, in the order of the pages from where the last one was."""
        state: DatagramState = self.state
        count: cython.Py_ssize_t = len(state.free)
        if count < _FEW and state.slots - state._used - count > state.slots // 4:
            return
        slots, cursor = state.slots, self._cursor
        free = sorted([(slot - cursor) % slots for slot in state.free], reverse=True)
        state.free = []
        self._cursor = (free[0] + cursor + 1) % slots
        first = None
        for behind in free:
            request = self._receives[(behind + cursor) % slots]
            request.following, first = first, request
        if first is not None:
            self._queue_pair.post_receives(first)

    def _pieces(self, found: Datagram) -> list[tuple[int, int]]:
        """Address and length of each run of memory that it is in."""
        left: cython.longlong = found.total
        page_bytes: cython.longlong = found.page_bytes
        address: cython.longlong = 0
        begin: cython.longlong = 0
        end: cython.longlong = 0
        slot: cython.longlong
        parts: list[tuple[int, int]] = []
        for slot in found.pages:
            address = self._base + slot * _PAGE_BYTES
            if address != end:
                if end:
                    parts.append((begin, end - begin))
                begin = address
            end = address + min(page_bytes, left)
            left -= min(page_bytes, left)
        if end:
            parts.append((begin, end - begin))
        if left:
            parts.append((self._base + found.first * PAGE_BYTES + HEADER_BYTES, left))
        return parts

    def bytes_of(self, found: Datagram, length: int) -> bytes:
        """A copy of up to ``length`` bytes."""
        parts = []
        taken: cython.longlong
        left: cython.longlong = length
        for address, size in self._pieces(found):
            taken = min(size, left)
            parts.append(bytes_at(address, taken))
            left -= taken
        data = parts[0] if len(parts) == 1 else b"".join(parts)
        self.copied_bytes += len(data)
        return data

    # sending

    def _retire(self, number: int) -> None:
        staging: Staging = self._staging
        inflight = self._inflight
        while inflight and inflight[0][0] <= number:
            self.retired, staged, requests, _ = inflight.popleft()
            self._posted_sends -= requests
            if staged > staging.head:
                staging.head = staged
        self._gone(number)

    def has_room(self) -> bool:
        """Whether a datagram of any length can be sent."""
        staging: Staging = self._staging
        return self._posted_sends < _DEPTH // 2 and staging.free() > staging.length // 2

    def send(self, way: PeerPath, view: memoryview, blocking: bool) -> int:
        """Send one datagram; its number where the adapter takes bytes from the application's own memory,
        `retired` tells when it has; else 0.  −1: there is no room.  DriverError, PyverbsError.
        """
        total: cython.longlong = view.nbytes
        staging: Staging = self._staging
        number: cython.longlong = self._datagrams + 1 & 0xFFFF
        pages, rest = cut(total, way.mtu)
        if self._posted_sends + pages + 1 > _DEPTH:
            return -1
        position = way.credit.position
        header = Header(way.host, way.own_port, number, total, pages, way.mtu, position).encode()
        if not pages and total + _HEADER_BYTES <= _INLINE_BYTES:
            self._datagrams = number
            self._say(way, header + view, False)
            way.credit.spend(1)
            return 0
        frozen: cython.bint = type(view.obj) is bytes
        direct: cython.bint = total > self._threshold and self._lkey != 0 and (frozen or blocking)
        size: cython.longlong = mtu_bytes(way.mtu)
        free: cython.longlong = staging.free()
        if free < (0 if direct else total) + _HEADER_BYTES + 2 * size:
            return -1
        self._datagrams = number
        address: cython.ulonglong = address_of(view, False) if total else 0
        first = [self._run(address_of(memoryview(header), False), HEADER_BYTES, False)]
        if rest:
            first.append(self._run(address + total - rest, rest, direct))
        parts: list[tuple[int, tuple[Element, ...]]] = [(0, tuple(first))]
        index: cython.longlong
        for index in range(pages):
            length: cython.longlong = min(size, total - index * size)
            run = self._run(address + index * size, length, direct)
            parts.append((page_immediate(number, index), (run,)))
        self._post(way, parts, view if direct else None, direct and not frozen)
        way.credit.spend(pages + 1)
        if direct:
            self.direct_bytes += total
        return self._number if direct and not frozen else 0

    def _run(self, address: int, length: int, direct: bool) -> Element:
        """An element of the program's memory, or of a copy."""
        if direct:
            return address, length, self._lkey
        staging: Staging = self._staging
        staging.skip(length)
        return staging.put(address, length), length, staging.lkey

    def send_closed(self, way: PeerPath) -> None:
        """Tell a peer that this socket is closed."""
        self._say(way, Header(way.host, way.own_port, 0, 0, GONE, way.mtu).encode(), True)

    def send_credit(self, way: PeerPath, limit: int, window: int) -> bool:
        """Tell a peer how far it may send; False where that cannot be said now."""
        if self.failed or self._posted_sends >= _DEPTH:
            return False
        self._say(way, Header(way.host, way.own_port, 0, window, CREDIT, way.mtu, limit).encode(), False)
        return True

    def _say(self, way: PeerPath, text: bytes, signaled: bool) -> None:
        """Send one message that the work request carries."""
        flags: cython.uint = self._next(1, None, signaled)
        try:
            self._queue_pair.post_send(
                _SEND, flags, 0, self._number, 0, 0, 0, 0, way.number, way.qp_num, way.qkey, (), text
            )
            self._queue_pair.ring()
        except FAILED:
            self.failed = True
            raise

    def _post(
        self, way: PeerPath, parts: list[tuple[int, tuple[Element, ...]]], holder: object, signaled: bool
    ) -> None:
        """Send messages, each with its immediate, of what their elements name; the first has none."""
        flags: cython.uint = self._next(len(parts), holder, signaled)
        last: cython.Py_ssize_t = len(parts) - 1
        index: cython.Py_ssize_t
        opcode: cython.uint = _SEND
        try:
            for index in range(last + 1):
                immediate, elements = parts[index]
                self._queue_pair.post_send(
                    opcode, flags if index == last else 0, immediate, self._number, 0, 0, 0, 0, way.number,
                    way.qp_num, way.qkey, elements, None,
                )  # fmt: skip
                opcode = _SEND_IMM
            self._queue_pair.ring()
        except FAILED:
            self.failed = True
            raise

    def _next(self, messages: int, holder: object, signaled: bool) -> int:
        """The next datagram: its flags.  ``holder`` keeps its memory."""
        tail: cython.ulonglong = self._staging.tail
        self._number += 1
        self._unsignaled += messages
        self._posted_sends += messages
        self._inflight.append((self._number, tail, messages, holder))
        if not (
            signaled
            or self._number - self._signaled >= _SIGNAL_EACH
            or self._unsignaled >= _SIGNAL_MESSAGES
            or tail - self._signaled_tail > self._staging.length >> 2
        ):
            return 0
        self._signaled, self._signaled_tail, self._unsignaled = self._number, tail, 0
        return _SIGNALED
