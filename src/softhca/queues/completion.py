"""Completion queues: the adapter's half posts entries, the host's half polls them (IBTA vol. 1, 11.4.2).

The arm word of the control block is the host's request for one event: 0 none, 1 at the next completion, 2
at the next solicited one.  The host writes it, the adapter takes it away with an atomic exchange when it
fires, so one request gives one event.  Both sides order "post, then look at the arm word" against "arm,
then look at the queue" with a locked instruction; so either the adapter sees the request or the host sees
the entry.
"""

from __future__ import annotations

import errno
from array import array
from typing import TYPE_CHECKING, Protocol

import cython

from softhca.machine.primitives import address_of, atomic_add64, atomic_cas64, load64
from softhca.queues import layout as abi
from softhca.queues.cqe import CQE, CQE_BYTES, CompletionEntry
from softhca.queues.layout import ARM_NEXT, ARM_NONE, ARM_SOLICITED
from softhca.queues.ring import RingConsumer, RingProducer, plan

if TYPE_CHECKING:
    from softhca.queues.ring import RingLayout

    class Notified(Protocol):
        """Who is notified of what has become of a queue."""

        def completion_event(self, cq: CompletionQueue) -> object: ...
        def overflow(self, cq: CompletionQueue) -> object: ...

    class Watcher(Protocol):
        """Who looks after a queue."""

        def begin(self) -> object: ...


def pages_for(entries: int) -> int:
    """Pages that a completion queue of ``entries`` takes (see ``ring.plan``)."""
    return plan(entries, entries * CQE_BYTES)


class CompletionQueue:
    """The adapter's half.

    ``notify_hook`` has ``completion_event(cq)`` and ``overflow(cq)``.  An entry that finds no room (or a
    ring that the host broke) sets ``overflowed``, calls ``overflow`` once, and nothing is posted any more:
    the caller moves the queue pairs to the error state (C10-100 ff.: an overrun is an affiliated
    asynchronous error, never silent).

    ``watcher``: who is told of the next completion, once (`begin`), or None.
    """

    def __init__(self, number: int, layout: RingLayout, notify_hook: Notified) -> None:
        if layout.body_bytes < layout.entries * CQE_BYTES:
            raise OSError(
                errno.EINVAL, f"body_bytes: {layout.entries} completions need {CQE_BYTES} bytes each"
            )
        self.number = number
        self.notify_hook = notify_hook
        self.producer = RingProducer(layout)
        self.entry = CompletionEntry()
        self.overflowed = False
        self.watcher: Watcher | None = None
        self.posted = 0

    @property
    def entries(self) -> int:
        """Capacity in entries."""
        return self.producer.layout.entries

    @property
    def armed(self) -> int:
        """The arm word: ARM_NONE, ARM_NEXT or ARM_SOLICITED (any other value of the host counts as none)."""
        word = load64(self.producer.layout.control + abi.RING_ARM_AT)
        return word if word in (ARM_NEXT, ARM_SOLICITED) else ARM_NONE

    def post(
        self, wr_id: int, status: int, opcode: int, wc_flags: int, qp_num: int, byte_len: int,
        imm_or_key: int, src_qp: int, vendor_err: int, pkey_index: int, sl: int, slid: int, path_bits: int,
        now: int, solicited: bool = False,
    ) -> bool:
        """Post a completion and fire the event that it is due.  False: the queue has overflowed, now or
        before.

        ``solicited``: a received message with the solicited bit; an error completion counts as one by itself.
        """
        arm: cython.ulonglong
        if self.overflowed:
            return False
        self.entry.fill(wr_id, status, opcode, wc_flags, qp_num, byte_len, imm_or_key, src_qp, vendor_err,
                        pkey_index, sl, slid, path_bits, now)
        if not self.producer.push(self.entry.address, abi.CQE_BYTES):
            self.overflowed = True
            self.notify_hook.overflow(self)
            return False
        self.posted += 1
        arm = atomic_add64(self.producer.layout.control + abi.RING_ARM_AT, 0)
        if arm == abi.ARM_NEXT or (arm == abi.ARM_SOLICITED and (solicited or status != 0)):
            self.fire(arm)
        if self.watcher is not None:
            watcher, self.watcher = self.watcher, None
            watcher.begin()
        return True

    def fire(self, arm: int) -> None:
        """Take the request ``arm`` away and notify; where the host changed it meanwhile, take what stands
        there."""
        while arm == abi.ARM_NEXT or arm == abi.ARM_SOLICITED:
            found: cython.ulonglong = atomic_cas64(self.producer.layout.control + abi.RING_ARM_AT, arm, 0)
            if found == arm:
                self.notify_hook.completion_event(self)
                return
            arm = found

    def move_to(self, layout: RingLayout) -> None:
        """Go on in another ring (resize): unread entries and the arm word go along.

        The host must not be polling meanwhile; it goes on by ``CompletionReader.move_to`` of the same ring.
        Raises OSError, and changes nothing: EINVAL where the unread entries do not fit, EIO where the old
        ring is broken.
        """
        if layout.body_bytes < layout.entries * CQE_BYTES:
            raise OSError(
                errno.EINVAL, f"body_bytes: {layout.entries} completions need {CQE_BYTES} bytes each"
            )
        unread = self.producer.unreleased()
        if self.producer.broken:
            raise OSError(errno.EIO, "cq: its completion ring is broken")
        if len(unread) > layout.entries:
            raise OSError(
                errno.EINVAL, f"entries = {layout.entries}: {len(unread)} completions are not read yet"
            )
        layout.clear()
        producer = RingProducer(layout)
        old = self.producer.layout
        for offset, length in unread:
            old.transfer(offset, self.entry.address, length, False)
            producer.push(self.entry.address, length)
        if self.armed:
            atomic_cas64(layout.control + abi.RING_ARM_AT, 0, self.armed)
        self.producer = producer


class CompletionReader:
    """The host's half.  ``words`` are the entry taken last, in words of 64 bits."""

    _control: int
    consumer: RingConsumer

    def __init__(self, layout: RingLayout) -> None:
        self.words = array("Q", bytes(CQE_BYTES))
        self._address = address_of(self.words)
        self.move_to(layout)

    def move_to(self, layout: RingLayout) -> None:
        """Read another ring from its begin."""
        self.consumer = RingConsumer(layout)
        self._control = layout.control

    def take(self) -> bool:
        """Copy the next entry into ``words``; False where there is none, OSError EIO for a broken ring.

        Its room is given back by `release`.
        """
        n: cython.longlong = self.consumer.take(self._address, abi.CQE_BYTES)
        if n == 0:
            return False
        if n != abi.CQE_BYTES:
            raise OSError(errno.EIO, "the adapter wrote a malformed completion")
        return True

    def release(self, count: int) -> None:
        """Give the room of the ``count`` oldest entries taken back."""
        self.consumer.release(count)

    def poll(self, limit: int) -> list[tuple[int, ...]]:
        """Up to ``limit`` completions as tuples of ``cqe.FIELDS``, oldest first; OSError EIO for a broken
        ring."""
        found: list[tuple[int, ...]] = []
        try:
            while len(found) < limit and self.take():
                found.append(CQE.unpack(self.words))
        except OSError:
            if not found:
                raise
        if found:
            self.release(len(found))
        return found

    def arm(self, solicited: bool = False) -> None:
        """Ask for one event.  A request for any completion stands above one for solicited ones only.

        What arrived before fires no event: poll once more afterwards.
        """
        place = self._control + abi.RING_ARM_AT
        if solicited:
            atomic_cas64(place, ARM_NONE, ARM_SOLICITED)
            return
        found = load64(place)
        while (seen := atomic_cas64(place, found, ARM_NEXT)) != found:
            found = seen

    def pending(self) -> int:
        """Completions that can be polled; −1 for a broken ring."""
        return self.consumer.count()
