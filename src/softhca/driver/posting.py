"""Posting work: write a work request to the ring, after every value has been checked.

A whole chain is written in one call, without a Python object for each entry.  The caller rings the doorbell
once for the chain.
"""

import errno

import cython

from softhca.driver.errors import DriverError, PostError
from softhca.driver.liveness import Liveness
from softhca.driver.locked import Locked
from softhca.driver.misfits import described
from softhca.driver.work_requests import ReceiveRequest, SendRequest, WorkRequest
from softhca.machine.primitives import address_of, bytes_at
from softhca.queues import layout as abi
from softhca.queues.doorbells import DoorbellFifo
from softhca.queues.operations import MOST_OPCODES, READ, SEND, WRITE, mask
from softhca.queues.ring import RingProducer
from softhca.queues.states import ERR, NAMES, POSTING
from softhca.queues.wqe import put_receive, put_run, put_send, receive_bytes, send_bytes

# ibv_send_flags
SEND_FENCE = 1
SEND_SIGNALED = 2
SEND_SOLICITED = 4
SEND_INLINE = 8

_MAY_SEND = cython.declare(tuple, tuple([posting.post_send for posting in POSTING]))
_MAY_RECEIVE = cython.declare(tuple, tuple([posting.post_receive for posting in POSTING]))
_ERR = cython.declare(cython.int, ERR)
_EINVAL = cython.declare(cython.int, errno.EINVAL)
_BIND = cython.declare(cython.uint, abi.BIND_MW)
_ENOMEM = cython.declare(cython.int, errno.ENOMEM)
_EIO = cython.declare(cython.int, errno.EIO)
# Bit n stands for opcode n.
_OPCODES = cython.declare(cython.uint, mask())
_WITH_IMMEDIATE = cython.declare(cython.uint, mask(lambda row: row.immediate))
_OF_ONE_RUN = cython.declare(cython.uint, mask(lambda row: row.kind in (SEND, WRITE, READ)))
_MOST_OPCODES = cython.declare(cython.uint, MOST_OPCODES)
_UNSET = cython.declare(object, 0)  # the one object that 0 is
_SEND_FENCE = cython.declare(cython.uint, SEND_FENCE)
_SEND_SIGNALED = cython.declare(cython.uint, SEND_SIGNALED)
_SEND_SOLICITED = cython.declare(cython.uint, SEND_SOLICITED)
_SEND_INLINE = cython.declare(cython.uint, SEND_INLINE)
_KNOWN_FLAGS = cython.declare(cython.longlong, SEND_FENCE | SEND_SIGNALED | SEND_SOLICITED | SEND_INLINE)


def swapped(value):
    """A 32-bit number in the other byte order.  OverflowError for one that has more bits."""
    if not cython.compiled and not 0 <= value <= 0xFFFFFFFF:
        raise OverflowError(f"{value} does not fit 32 bits")
    return (value & 0xFF) << 24 | (value & 0xFF00) << 8 | (value >> 8) & 0xFF00 | value >> 24


class RingPoster:
    """The producer's end of a ring.  ``refused`` says why ``post`` returned an errno.

    Of the chain posted last, ``written`` entries were written, and ``request`` is the one that was not (None:
    all were).
    """

    def _begin(self, layout, max_wr, max_sge, entry_bytes):
        """Write to the ring at ``layout``; an entry has at most ``entry_bytes``."""
        self.producer = RingProducer(layout)
        self.max_wr = max_wr
        self.max_sge = max_sge
        self.refused = ""
        self.request = None
        self.written = 0
        self._scratch = bytearray(entry_bytes)
        self._capacity = len(self._scratch)
        self._address = address_of(self._scratch)

    def _entry(self):
        """Where the next entry is made: in the ring itself where it has such a place, else beside it."""
        place: cython.ulonglong = self.producer.place(self._capacity)
        return place if place else self._address

    def write(self, first):
        """Write an entry for each request from ``first`` on, which is of this ring's kind.

        PostError at the first that is refused, EINVAL too for values that their fields cannot hold.  Inline
        data is taken here.  What an address handle raises when it is closed passes through.
        """
        code: cython.int = 0
        request: WorkRequest
        self.written = 0
        self.request = first
        try:
            request = first
            while request is not None:
                code = self._post_request(request)
                if code:
                    break
                self.written += 1
                request = request.following
                self.request = request
        except (OverflowError, TypeError, ValueError) as error:
            raise PostError(errno.EINVAL, described(self.request, error), self.request) from None
        if code:
            raise PostError(code, self.refused, self.request)

    def _post_request(self, request):
        """Write one entry; 0 or an errno."""
        raise NotImplementedError

    def _refuse(self, code, reason):
        self.refused = reason
        return code


class SendPoster(RingPoster):
    """Of a send ring."""

    def __init__(self, layout, max_wr, max_sge, max_inline_bytes):
        self.max_inline_bytes = max_inline_bytes
        self.binds = False
        self._begin(layout, max_wr, max_sge, send_bytes(max_sge, max_inline_bytes))

    def post(self, opcode, flags, imm, wr_id, remote_va, rkey, compare, swap, ah, qpn, qkey, sges, inline):
        """Write one entry; 0, or EINVAL, ENOMEM (the queue is full), EIO (the ring is broken).

        ``flags`` are ``ibv_send_flags``; ``inline`` (bytes) makes the entry inline, whatever ``flags`` say.
        """
        n: cython.longlong
        entry: cython.ulonglong
        code: cython.int = self._admit(opcode, 0 if inline is None else len(inline))
        if code:
            return code
        if inline is None and len(sges) > self.max_sge:
            return self._refuse(
                _EINVAL, f"num_sge = {len(sges)}: more elements than max_send_sge = {self.max_sge}"
            )
        entry = self._entry()
        n = put_send(
            entry,
            self._capacity,
            opcode,
            _translated(flags),
            imm,
            wr_id,
            remote_va,
            rkey,
            compare,
            swap,
            ah,
            qpn,
            qkey,
            sges,
            inline,
        )
        return self._push(entry, n)

    def post_run(self, opcode, flags, imm, wr_id, remote_va, rkey, address, length, lkey):
        """`post` an operation on one run of bytes, which ``flags`` say are inline, or on one element."""
        n: cython.longlong
        entry: cython.ulonglong
        inline: cython.bint = flags & _SEND_INLINE != 0
        code: cython.int = self._admit(opcode, length if inline else 0)
        if code:
            return code
        entry = self._entry()
        n = put_run(
            entry, self._capacity, opcode, _translated(flags), imm, wr_id, remote_va, rkey, address, length,
            lkey, inline,
        )  # fmt: skip
        return self._push(entry, n)

    def _admit(self, opcode, inline_bytes):
        """0, or EINVAL for an operation that there is not, or for more inline data than the queue takes."""
        if opcode >= _MOST_OPCODES or not (_OPCODES >> opcode) & 1:
            return self._refuse(_EINVAL, f"opcode = {opcode}: there is no such operation")
        if inline_bytes > self.max_inline_bytes:
            return self._refuse(
                _EINVAL, f"length: more inline data than max_inline_data = {self.max_inline_bytes}"
            )
        return 0

    def _push(self, address, n):
        """Put the entry of ``n`` bytes that stands at ``address`` into the ring: as `post`."""
        if n < 0:
            return self._refuse(_EINVAL, "num_sge: the work request is too long for the queue")
        if self.max_wr and self.producer.push(address, n):
            return 0
        if self.producer.broken:
            return self._refuse(_EIO, "the send ring is broken")
        return self._refuse(_ENOMEM, f"max_send_wr = {self.max_wr}: the send queue is full")

    def _post_request(self, request):
        send: SendRequest = request
        return self._post_send(send)

    def _post_send(self, request):
        flags: cython.longlong = request.send_flags
        opcode: cython.uint = request.opcode
        imm: cython.uint = request.imm_data
        inline: bytes = None
        elements: tuple
        handle = request.ah
        if flags & ~_KNOWN_FLAGS:
            return self._refuse(_EINVAL, f"send_flags = {flags:#x}: there are no such flags")
        if opcode < _MOST_OPCODES and (_WITH_IMMEDIATE >> opcode) & 1:
            imm = swapped(imm)
        if opcode == _BIND:
            self.binds = True
        data = request.sges
        if isinstance(data, bytes):
            inline = data
        elif flags & _SEND_INLINE:
            if _total(data) > self.max_inline_bytes:  # nothing of it is read
                return self._refuse(
                    _EINVAL, f"length: more inline data than max_inline_data = {self.max_inline_bytes}"
                )
            inline = _gathered(data)
        elif handle is None and self.max_sge and opcode < _MOST_OPCODES and (_OF_ONE_RUN >> opcode) & 1:
            elements = data
            if len(elements) == 1 and _is_bare(request):
                return self._post_element(request, opcode, flags, imm, elements[0])
        return self.post(
            opcode,
            flags,
            imm,
            request.wr_id,
            request.remote_addr,
            request.remote_rkey,
            request.compare_add,
            request.swap,
            0 if handle is None else handle.number,
            request.remote_qpn,
            request.remote_qkey,
            data,
            inline,
        )

    def _post_element(self, request, opcode, flags, imm, element):
        """Write the entry of a request on one element that has nothing of atomics or datagrams, as most."""
        address, length, lkey = element
        return self.post_run(
            opcode, flags, imm, request.wr_id, request.remote_addr, request.remote_rkey, address, length, lkey
        )


def _is_bare(request):
    """Whether the fields that only atomics and datagrams need are as they were made."""
    return (request.compare_add is _UNSET and request.swap is _UNSET
            and request.remote_qpn is _UNSET and request.remote_qkey is _UNSET)  # fmt: skip


def _translated(flags):
    """The work request's flags of ``ibv_send_flags``, but for inline."""
    found: cython.uint = 0
    if flags & _SEND_FENCE:
        found |= abi.FENCE
    if flags & _SEND_SIGNALED:
        found |= abi.SIGNALED
    if flags & _SEND_SOLICITED:
        found |= abi.SOLICITED
    return found


def _total(sges):
    """How many bytes the elements have."""
    n: cython.ulonglong = 0
    for _, length, _ in sges:
        n += length
    return n


def _gathered(sges):
    """The inline data of the elements, whose memory the caller knows to be mapped."""
    if len(sges) == 1:
        return bytes_at(sges[0][0], sges[0][1])
    return b"".join([bytes_at(address, length) for address, length, _ in sges])


class ReceivePoster(RingPoster):
    """Of a receive ring, of a queue pair or shared."""

    def __init__(self, layout, max_wr, max_sge):
        self._begin(layout, max_wr, max_sge, receive_bytes(max_sge))

    def post(self, wr_id, sges):
        """Write one entry; 0 or an errno as `SendPoster.post`."""
        n: cython.longlong
        entry: cython.ulonglong
        if len(sges) > self.max_sge:
            return self._refuse(
                _EINVAL, f"num_sge = {len(sges)}: more elements than max_sge = {self.max_sge}"
            )
        entry = self._entry()
        n = put_receive(entry, self._capacity, wr_id, sges)
        if self.max_wr and n > 0 and self.producer.push(entry, n):
            return 0
        if self.producer.broken:
            return self._refuse(_EIO, "the receive ring is broken")
        return self._refuse(_ENOMEM, f"max_wr = {self.max_wr}: the receive queue is full")

    def _post_request(self, request):
        receive: ReceiveRequest = request
        return self.post(receive.wr_id, receive.sges)


class QueuePairPoster(Locked):
    """The compiled base class of a queue pair's handle: chains are posted without interpreted code.

    ``state`` is the state of the queue pair as far as the host knows it.  The lock (`acquire`, `release`) is
    held while the state is checked and the ring is written or given back.  ``_send`` is the `SendPoster`,
    ``_receive`` the `ReceivePoster`: None until `_begin_sending` and `_begin_receiving` make them, with the
    lock held, and None again after the end.
    """

    __slots__ = ("_doorbell", "_doorbells", "_kick", "_receive", "_send", "_session", "state")

    def _open(self, session: Liveness, state):
        """Begin: post for ``session``; the queue pair is in ``state``."""
        self._session = session
        self.state = state
        self._send = None
        self._receive = None
        self._make_lock()

    def _set_doorbell(self, doorbells: DoorbellFifo, doorbell, kick):
        """New work is announced by ringing ``doorbell``, and then by ``kick``."""
        self._doorbells = doorbells
        self._doorbell = doorbell
        self._kick = kick

    def post_send(
        self, opcode, flags, imm, wr_id, remote_va, rkey, compare, swap, ah, qpn, qkey, sges, inline
    ):
        """Write one send work request; `_notify` hands it to the adapter.

        ``flags`` are ``ibv_send_flags``; ``inline`` are the bytes themselves, or None.  EINVAL for a state,
        an opcode, a number of elements or a length that cannot be; ENOMEM when the queue is full.  Nothing is
        posted then.
        """
        poster: SendPoster
        code: cython.int
        if self._session.dead:
            self._session.check()
        self.acquire()
        try:
            poster = self._sender()
            code = poster.post(
                opcode, flags, imm, wr_id, remote_va, rkey, compare, swap, ah, qpn, qkey, sges, inline
            )
        except (OverflowError, TypeError, ValueError) as error:
            raise DriverError(errno.EINVAL, f"malformed work request: {error}") from None
        finally:
            self.release()
        if code:
            raise DriverError(code, poster.refused)

    def post_run(self, opcode, flags, imm, wr_id, remote_va, rkey, address, length, lkey):
        """`post_send` of an operation on one run of ``length`` bytes at ``address``, which is mapped here: by
        ``lkey``, or in the work request where ``flags`` say so; no object is made for it.
        """
        poster: SendPoster
        code: cython.int
        if self._session.dead:
            self._session.check()
        self.acquire()
        try:
            poster = self._sender()
            code = poster.post_run(opcode, flags, imm, wr_id, remote_va, rkey, address, length, lkey)
        finally:
            self.release()
        if code:
            raise DriverError(code, poster.refused)

    def post_chain(self, first):
        """Write a chain of send work requests and ring once; whether one of them binds a window.

        PostError as `post_send` at the first that is refused, EINVAL too for unknown flags and values that
        their fields cannot hold.
        """
        poster: SendPoster
        written: cython.bint = False
        binds: cython.bint = False
        if self._session.dead:
            self._session.check()
        self.acquire()
        try:
            poster = self._sender()
            poster.binds = False
            try:
                poster.write(first)
                binds = poster.binds
            finally:
                written = poster.written != 0
        except DriverError as error:
            if isinstance(error, PostError):
                raise
            raise PostError(error.errno, error.message, first) from None
        finally:
            self.release()
            if written:
                self._notify()
        return binds

    def _notify(self):
        """Announce new work."""
        self._doorbells.ring(self._doorbell)
        self._kick()

    def post_receives(self, first):
        """Write a chain of receives and ring once.  PostError as `post_recv` at the first that is refused."""
        poster: ReceivePoster
        written: cython.bint = False
        if self._session.dead:
            self._session.check()
        self.acquire()
        try:
            poster = self._receiver()
            try:
                poster.write(first)
            finally:
                written = poster.written != 0
        except DriverError as error:
            if isinstance(error, PostError):
                raise
            raise PostError(error.errno, error.message, first) from None
        finally:
            self.release()
            if written:
                self._notify_receives()

    def _sender(self):
        """The poster of sends; with the lock held.  EINVAL where there is no send queue, or the state allows
        no send.
        """
        if not _MAY_SEND[self.state]:
            raise DriverError(errno.EINVAL, f"qp_state = {NAMES[self.state]}: nothing can be sent")
        if self._send is None:
            self._begin_sending()
        return self._send

    def _receiver(self):
        """The poster of receives; with the lock held.  EINVAL where there is no receive queue, or the state
        allows no receive.
        """
        if self._receive is None:
            self._begin_receiving()
        if not _MAY_RECEIVE[self.state]:
            raise DriverError(errno.EINVAL, f"qp_state = {NAMES[self.state]}: no receive can be posted")
        return self._receive

    def _notify_receives(self):
        """Announce receives.

        In the error state the adapter flushes receives only when a doorbell is rung.  The host may not know
        that state yet, so it always rings.
        """
        self._doorbells.ring(self._doorbell)
        if self.state == _ERR or self._session.channel.kick_receives:
            self._kick()
