"""What a channel does, step by step, without waiting: each function is a generator that yields what it waits
for, as a function that says whether that has come about, and returns the result.  `run` waits in the calling
thread; `aio.run` in an event loop.

Who stops one in the middle (time-out, cancellation) loses no message: it was not taken, or sent, yet; but for
a large one that is sent: that stays on offer, and its memory is held, until the peer has fetched it.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any, TypeVar

from softhca.channels import messages as m
from softhca.channels.accounts import LARGE
from softhca.channels.endpoint import Endpoint, Entry, Fetch, Operation, service_of
from softhca.channels.errors import (
    ChannelAccessError,
    ChannelError,
    ChannelLost,
    ChannelRefused,
    ChannelTimeout,
    MessageTooLong,
    ProtocolError,
    failed,
)
from softhca.channels.messages import Control
from softhca.channels.named import Grant, Rights, SharedBuffer
from softhca.channels.registration import Lease, bytes_of
from softhca.channels.wiring import RDMA_READ, RDMA_WRITE
from softhca.driver.errors import DriverError
from softhca.verbs import enums as e
from softhca.verbs.base import require
from softhca.verbs.cq import cqe_status_to_str
from softhca.verbs.pyverbs_error import PyverbsError
from softhca.verbs.wr import SGE, SendWR

if TYPE_CHECKING:
    from softhca.channels.link import Link

T = TypeVar("T")
Steps = Generator[Callable[[], bool], None, T]

OPERATION_BYTES = 1 << 30
"""One operation on a named buffer moves at most so many."""
_COMPARE_SWAP, _FETCH_ADD = int(e.IBV_WR_ATOMIC_CMP_AND_SWP), int(e.IBV_WR_ATOMIC_FETCH_AND_ADD)
_REFUSALS = frozenset((int(e.IBV_WC_REM_ACCESS_ERR), int(e.IBV_WC_REM_INV_REQ_ERR)))
"""A remote operational error is none: the peer's memory is gone, as that of a dead program is for which an
adapter process answers until it knows of that."""
_WORD = struct.Struct("=Q")


def run(link: Link, steps: Steps[T], timeout: float | None, what: str) -> T:
    """Do all steps, waiting in this thread.  ChannelTimeout after ``timeout`` seconds (None: never)."""
    deadline_s = None if timeout is None else time.monotonic() + timeout
    try:
        while True:
            try:
                ready = next(steps)
            except StopIteration as end:
                result: T = end.value
                return result
            if not link.wait(ready, deadline_s):
                raise late(what, timeout)
    except (PyverbsError, DriverError) as error:
        raise failed(error, what) from error
    finally:
        steps.close()


def late(what: str, timeout: float | None) -> ChannelTimeout:
    """The error of a time-out."""
    return ChannelTimeout(f"{what} in {timeout or 0.0:g} s")


# messages


def send(endpoint: Endpoint, data: Any) -> Steps[None]:
    """Send one message."""
    view = bytes_of(data)
    link = endpoint.link
    while True:
        with link.guard:
            endpoint.require_sending()
            if endpoint.peer_ready:
                break
        yield lambda: endpoint.writable
    if view.nbytes > endpoint.longest:
        raise MessageTooLong(f"{view.nbytes} bytes; the peer takes messages of up to {endpoint.longest}")
    if view.nbytes > endpoint.longest_copied:
        yield from send_large(endpoint, data, view)
        return
    while True:
        with link.guard:
            endpoint.require_sending()
            if endpoint.send(view):
                return
        link.poll()
        if not endpoint.writable:
            yield lambda: endpoint.writable


def send_large(endpoint: Endpoint, data: Any, view: memoryview) -> Steps[None]:
    """Have the peer fetch a message from the program's own memory, through a window that is its alone."""
    link = endpoint.link
    lease = link.memory.lease(data, view)
    window = None
    offered = False
    try:
        while window is None:
            yield lambda: endpoint.has_operations
            with link.guard:
                endpoint.require_sending()
            window = link.windows.take()
            if window is None:
                yield lambda: link.windows.free or endpoint.closed or endpoint.error is not None
        bind = window.bind(lease)
        number = -1
        while number < 0:
            with link.guard:
                endpoint.require_sending()
                number = endpoint.offer(lease, window, bind)
                if number >= 0:
                    offered = True
                    break
            link.poll()
            if not endpoint.writable:
                yield lambda: endpoint.writable
    finally:
        if not offered:
            lease.release()
            if window is not None:
                link.windows.give_back(window)
    yield lambda: number not in endpoint.offers or endpoint.closed or endpoint.error is not None
    with link.guard:
        if number in endpoint.offers:
            endpoint.require_open()
    lease.release()


def receive(endpoint: Endpoint, target: Any = None) -> Steps[Any]:
    """Take the next message: its bytes, or (with a ``target``) how many were put there."""
    link = endpoint.link
    view = None if target is None else bytes_of(target, True)
    while True:
        with link.guard:
            entry = endpoint.head()
            if entry is not None:
                if entry[1] != LARGE:
                    return endpoint.take(entry) if view is None else endpoint.take_into(entry, view)
                fetch = endpoint.fetching = Fetch()
        if entry is not None:
            return (yield from _fetch(endpoint, entry, fetch, target, view))
        link.poll()
        if not endpoint.readable:
            yield lambda: endpoint.readable


def _fetch(
    endpoint: Endpoint, entry: Entry, fetch: Fetch, target: Any, view: memoryview | None
) -> Steps[Any]:
    """READ the large message at the head, and take it."""
    link = endpoint.link
    lease: Lease | None = None
    try:
        try:
            place = endpoint.place_of(entry)
        except ProtocolError as error:
            link.violated(error)
            endpoint.require_open()
            raise
        length = place[2]
        own = view is None
        if view is None:
            target = bytearray(length)
            view = memoryview(target)
        elif length > view.nbytes:
            raise MessageTooLong(f"a message of {length} bytes, a buffer of {view.nbytes}")
        lease = link.memory.lease(target, view)
        while not endpoint.has_operations:
            yield lambda: endpoint.has_operations
        with link.guard:
            endpoint.require_open()
            operation = endpoint.fetch(place, lease, fetch)
        yield lambda: operation.done
        with link.guard:
            if operation.status:
                endpoint.require_open()
                raise ChannelLost("the message could not be fetched")
            endpoint.fetched(entry)
    finally:
        with link.guard:
            endpoint.give_up(fetch)
        if lease is not None and fetch.operation is None:
            lease.release()
    return bytes(view) if own else length


# named buffers


def share(endpoint: Endpoint, shared: SharedBuffer) -> Steps[None]:
    """Announce a buffer, once the peer has room to be told."""
    link = endpoint.link
    while True:
        with link.guard:
            endpoint.require_open()
            if link.has_room:
                link.named.announce(shared)
                return
        yield lambda: link.has_room or endpoint.closed or endpoint.error is not None


def unshare(endpoint: Endpoint, shared: SharedBuffer) -> Steps[None]:
    """Revoke a buffer, and wait until the peer has let go.  ChannelAccessError: not shared here."""
    require(shared, SharedBuffer, "shared")
    link = endpoint.link
    if not link.named.made(shared):
        raise ChannelAccessError(f"{shared.name!r} is another connection's")
    try:
        with link.guard:
            if not link.named.revoke(shared):
                return
        yield lambda: shared.released or endpoint.closed or link.error is not None
    finally:
        link.named.end(shared)


def grant_of(endpoint: Endpoint, which: Any, kind: type) -> Grant:
    """That of ``which``, an object of ``kind`` for a buffer that the peer shares.  TypeError;
    ChannelAccessError: it is another connection's.
    """
    require(which, kind, "remote")
    if which._channel._link is not endpoint.link:
        raise ChannelAccessError(f"{which.name!r} is another connection's")
    grant: Grant = which.grant
    return grant


def remote(endpoint: Endpoint, name: str) -> Steps[Grant]:
    """What the peer shares under a name, which is waited for."""
    link = endpoint.link
    while True:
        link.poll()
        with link.guard:
            found = link.named.peers.get(name)
            if found is not None:
                return found
            endpoint.require_sending()
        yield lambda: (
            name in link.named.peers
            or endpoint.closed
            or endpoint.peer_closed
            or endpoint.error is not None
        )


def write(endpoint: Endpoint, grant: Grant, data: Any, offset: int) -> Steps[None]:
    """Write ``data`` to the peer's buffer."""
    view = bytes_of(data)
    grant.place(offset, view.nbytes, Rights.WRITE)
    if not view.nbytes:
        return
    _require(endpoint)
    lease = _source(endpoint.link, data, view)
    yield from _operate(endpoint, grant, lease, view.nbytes, offset, RDMA_WRITE, Rights.WRITE)


def read(
    endpoint: Endpoint, grant: Grant, length: int | None, offset: int, target: Any = None
) -> Steps[bytes]:
    """Read of the peer's buffer: the bytes, or (with a ``target``) none, and they are there."""
    view = None if target is None else bytes_of(target, True)
    if view is not None:
        length = view.nbytes
    elif length is None:
        length = max(grant.length - offset, 0)
    _need_acknowledged(endpoint, "RDMA READ")
    grant.place(offset, length, Rights.READ)
    if not length:
        return b""
    _require(endpoint)
    memory = endpoint.link.memory
    lease = memory.scratch(length) if view is None else memory.lease(target, view)
    result = lease.view
    if view is not None:
        yield from _operate(endpoint, grant, lease, length, offset, RDMA_READ, Rights.READ)
        return b""
    copied: list[bytes] = []
    yield from _operate(
        endpoint, grant, lease, length, offset, RDMA_READ, Rights.READ,
        lambda: copied.append(bytes(result[:length])),
    )  # fmt: skip
    return copied[0]


def atomic(
    endpoint: Endpoint, grant: Grant, offset: int, opcode: int, compare_add: int, swap: int
) -> Steps[int]:
    """An atomic on 8 bytes of the peer's buffer: what they were."""
    for value in (compare_add, swap):
        if not 0 <= value < 1 << 64:
            raise ValueError(f"{value} is no number of 64 bits without a sign")
    _need_acknowledged(endpoint, "an atomic")
    grant.place(offset, 8, Rights.ATOMIC, aligned=True)
    _require(endpoint)
    lease = endpoint.link.memory.scratch(8)
    result = lease.view
    found: list[int] = []
    operands = (opcode, compare_add, swap)
    yield from _operate(
        endpoint, grant, lease, 8, offset, operands, Rights.ATOMIC,
        lambda: found.append(_WORD.unpack_from(result)[0]),
    )  # fmt: skip
    return found[0]


def fetch_add(endpoint: Endpoint, grant: Grant, offset: int, value: int) -> Steps[int]:
    """Add; what it was."""
    return atomic(endpoint, grant, offset, _FETCH_ADD, value & _ALL_ONES if value < 0 else value, 0)


def compare_swap(endpoint: Endpoint, grant: Grant, offset: int, expected: int, new: int) -> Steps[int]:
    """Set to ``new`` where it is ``expected``; what it was."""
    return atomic(endpoint, grant, offset, _COMPARE_SWAP, expected, new)


_ALL_ONES = (1 << 64) - 1


def _need_acknowledged(endpoint: Endpoint, what: str) -> None:
    if not endpoint.acknowledged:
        raise ChannelAccessError(f"{what} needs an acknowledged channel")


def _require(endpoint: Endpoint) -> None:
    """As `Endpoint.require_sending`, before memory is taken and anything copied: in a forked child that is
    its parent's, which both see.
    """
    with endpoint.link.guard:
        endpoint.require_sending()


def _source(link: Link, data: Any, view: memoryview) -> Lease:
    """The memory that a write reads: the program's own, or a copy of a little."""
    if view.nbytes > link.options.slot_bytes:
        return link.memory.lease(data, view)
    lease = link.memory.scratch(view.nbytes)
    lease.view[: view.nbytes] = view
    return lease


def _operate(
    endpoint: Endpoint,
    grant: Grant,
    lease: Lease,
    length: int,
    offset: int,
    opcode: int | tuple[int, int, int],
    right: Rights,
    on_success: Callable[[], object] | None = None,
) -> Steps[None]:
    """Carry out one operation on a peer's buffer; the lease is released when it has ended."""
    link = endpoint.link
    posted = False

    def ended(operation: Operation) -> None:
        if on_success is not None and not operation.status:
            on_success()
        lease.release_later(link.later)
        link.named.leave(grant)

    try:
        while not endpoint.peer_ready or not endpoint.has_operations:
            with link.guard:
                endpoint.require_sending()
            yield lambda: (
                (endpoint.peer_ready and endpoint.has_operations)
                or endpoint.closed
                or endpoint.error is not None
            )
        with link.guard:
            endpoint.require_sending()
            address = grant.place(offset, length, right)
            requests = _requests(lease, length, address, grant.key, opcode)
            grant.users += 1
            posted = True
            operation = endpoint.operate(requests, ended)
    finally:
        if not posted:
            lease.release()
    yield lambda: operation.done
    with link.guard:
        _judge(endpoint, grant, operation)


def _requests(
    lease: Lease, length: int, address: int, key: int, opcode: int | tuple[int, int, int]
) -> list[SendWR]:
    if isinstance(opcode, tuple):
        request = SendWR(0, opcode[0], 1, sg=[SGE(lease.address, 8, lease.lkey)])
        request.set_wr_atomic(key, address, opcode[1], opcode[2])
        return [request]
    requests = []
    for start in range(0, length, OPERATION_BYTES):
        part = min(OPERATION_BYTES, length - start)
        request = SendWR(0, opcode, 1, sg=[SGE(lease.address + start, part, lease.lkey)], send_flags=0)
        request.set_wr_rdma(key, address + start)
        requests.append(request)
    return requests


def _judge(endpoint: Endpoint, grant: Grant, operation: Operation) -> None:
    """Raise what a failed operation means."""
    if not operation.status:
        return
    if operation.status in _REFUSALS:
        why = cqe_status_to_str(operation.status)
        raise ChannelAccessError(f"the peer refuses the operation on {grant.name!r}: {why}")
    endpoint.require_sending()
    raise ChannelLost(f"the operation on {grant.name!r} was not carried out")


# more channels


def open_channel(endpoint: Endpoint, name: str, acknowledged: bool) -> Steps[Endpoint]:
    """One more channel of the connection, which the peer accepts.  ChannelRefused."""
    link = endpoint.link
    yield lambda: link.established or endpoint.closed or endpoint.error is not None
    with link.guard:
        endpoint.require_sending()
    made = _make(link, link.next_number(), service_of(acknowledged), name)
    asked = False
    try:
        made.begin()
        link.add(made)
        while True:
            with link.guard:
                endpoint.require_sending()
                asked = link.has_room
                if asked:
                    link.send_control(_opening(made))
                    break
            yield lambda: (
                link.has_room or endpoint.closed or endpoint.peer_closed or endpoint.error is not None
            )
        yield lambda: made.answer is not None or made.error is not None or endpoint.closed
        made.require_open()
        endpoint.require_open()
        assert made.answer is not None
        if made.answer.kind == m.REFUSED:
            raise ChannelRefused(f"the peer refuses the channel {name!r}")
        _connect(made, made.answer.end)
        with link.guard:
            made.open_for_sending()
            link.send_control(Control(m.READY, made.number))
    except BaseException:
        abandon(made, asked)
        raise
    return made


def _opening(made: Endpoint) -> Control:
    end = made.end
    return Control(
        m.OPEN, made.number, length=end.largest_bytes, qp_num=end.qp_num, psn=end.psn,
        slot_bytes=end.slot_bytes, slots=end.slots, flags=end.service, name=made.name,
    )  # fmt: skip


def accept_channel(endpoint: Endpoint) -> Steps[Endpoint]:
    """The next channel that the peer opens."""
    link = endpoint.link
    while True:
        link.poll()
        with link.guard:
            endpoint.require_open()
            if link.requests:
                request = link.requests.popleft()
                break
            endpoint.require_sending()
        yield lambda: bool(
            link.requests or endpoint.closed or endpoint.peer_closed or endpoint.error is not None
        )
    try:
        made = _make(link, request.channel, request.flags, request.name)
    except BaseException:
        with link.guard:
            link.send_control(Control(m.REFUSED, request.channel))
        raise
    try:
        made.begin()
        _connect(made, request.end)
        link.add(made)
        end = made.end
        with link.guard:
            endpoint.require_open()
            link.send_control(
                Control(
                    m.OPENED, made.number, length=end.largest_bytes, qp_num=end.qp_num, psn=end.psn,
                    slot_bytes=end.slot_bytes, slots=end.slots, flags=end.service,
                )
            )  # fmt: skip
    except BaseException:
        abandon(made)
        raise
    return made


def _make(link: Link, number: int, service: int, name: str) -> Endpoint:
    try:
        m.check_name(name)
    except ProtocolError as error:
        raise ValueError(str(error)) from None
    try:
        return Endpoint(link, number, service, name)
    except PyverbsError as error:
        raise ChannelError(f"the channel {name!r} cannot be made: {error}") from error


def _connect(endpoint: Endpoint, peer: m.End) -> None:
    try:
        endpoint.connect(peer)
    except PyverbsError as error:
        raise ChannelError(f"the channel {endpoint.name!r} cannot be connected: {error}") from error


def abandon(endpoint: Endpoint, is_known: bool = True) -> None:
    """Drop a channel that has not come about, and the connection where all others were closed meanwhile; the
    peer is told, where it knows of the channel.
    """
    link = endpoint.link
    with link.guard:
        endpoint.closed = True
        if is_known:
            endpoint.send_broken()
    last = link.remove(endpoint)
    endpoint.destroy()
    if last:
        link.close()


# the end


def close(endpoint: Endpoint) -> Steps[None]:
    """Say the end in order: all that was sent arrives before."""
    link = endpoint.link
    link.poll()
    with link.guard:
        live = endpoint.error is None and endpoint.peer_ready and not endpoint.peer_closed
        flushed = endpoint.operate([endpoint.wire.probe(0)]) if live else None
    if flushed is not None:
        yield lambda: (
            (flushed.done and not endpoint.offers) or endpoint.error is not None or endpoint.peer_closed
        )
    with link.guard:
        if link.error is None and not link.closed and endpoint.peer is not None and endpoint.error is None:
            link.send_control(Control(m.CLOSE, endpoint.number, endpoint.outgoing.sent))
        else:
            return
    yield lambda: link.quiet or link.error is not None
