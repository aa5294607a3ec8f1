"""Polling: read completions from their ring into the objects that the consumer gets."""

import errno

import cython

from softhca.driver.errors import DriverError, refusal
from softhca.driver.liveness import Liveness
from softhca.driver.locked import Locked
from softhca.driver.posting import swapped
from softhca.driver.turns import Turn
from softhca.driver.work_requests import Completion
from softhca.queues import layout as abi
from softhca.queues.completion import CompletionReader
from softhca.queues.layout import WC_WITH_IMM

_EINVAL = cython.declare(cython.int, errno.EINVAL)
_WITH_IMM = cython.declare(cython.uint, WC_WITH_IMM)
MANY = 64
"""A poll drives the engine when it finds nothing, and after so many completions that were found at once."""

_MANY = cython.declare(cython.uint, MANY)
_ALL_ONES = cython.declare(cython.ulonglong, (1 << 64) - 1)
_WORD = cython.declare(cython.ulonglong, 0xFFFFFFFF)


class CompletionPoller(Locked):
    """Polls one completion queue, in a ring that ``reader`` reads.

    ``session`` says whether the adapter is alive; ``progress`` drives the engine; ``failed`` is called with
    the queue pair's number for every completion in error.  The lock (`acquire`, `release`) is held while the
    ring is read or replaced.
    """

    def __init__(self, layout, session: Liveness, progress, failed):
        self.reader = CompletionReader(layout)
        self.session = session
        self.progress = progress
        self.failed = failed
        self.taken = 0
        self.moving = False
        self.ended = False
        self.asked = 0
        self.dropped = None  # number of a queue pair → the ring's tail when it was reset or destroyed
        self.dropped_until = 0  # the last of these tails
        self._make_lock()

    def leave(self):
        """Read no more from this ring, until `move_to` names the next one."""
        self.acquire()
        self.moving = True
        self.release()

    def move_to(self, layout):
        """Go on reading: at the beginning of another ring, or where this one was left (None)."""
        self.acquire()
        try:
            if layout is not None:
                read: cython.ulonglong = self.reader.consumer.released
                self.reader.move_to(layout)
                if self.dropped is not None:  # the new ring begins with what was unread in the old one
                    self.dropped = {qp_num: tail - read & _ALL_ONES for qp_num, tail in self.dropped.items()}
                    self.dropped_until = self.dropped_until - read & _ALL_ONES
            self.moving = False
            if self.asked:
                self.reader.arm(self.asked == 2)
                self.asked = 0
        finally:
            self.release()

    def arm(self, solicited):
        """Ask for one event at the next completion, or only at a solicited or failed one; EINVAL once the
        queue is destroyed."""
        self.acquire()
        try:
            if self.ended:
                raise DriverError(_EINVAL, "cq: the completion queue is destroyed")
            if not self.moving:
                self.reader.arm(solicited)
            elif self.asked != 1:
                self.asked = 2 if solicited else 1
        finally:
            self.release()

    def drop(self, qp_num):
        """The completions of a queue pair that are in the ring now are never taken: it was reset or
        destroyed.  Those that a queue pair of the same number writes later are.
        """
        outermost: cython.bint = self.acquire()
        try:
            if not self.ended and self.reader.pending() > 0:
                if self.dropped is None:
                    self.dropped = {}
                self.dropped_until = self.dropped[qp_num] = self.reader.consumer.seen
                if outermost and not self.moving:
                    self._release_dropped()
        finally:
            self.release()

    def _release_dropped(self):
        """Give the room of dropped completions back, up to the first one that is not: who polls for others
        alone, or not at all, loses no place by queue pairs that are gone.
        """
        consumer = self.reader.consumer
        count: cython.ulonglong = 0
        index: cython.uint
        taken: cython.ulonglong
        while consumer.taken != self.dropped_until:
            index, taken = consumer.index, consumer.taken
            if not self._takes_dropped():
                consumer.index, consumer.taken = index, taken
                break
            count += 1
        else:
            self.dropped = None
        self.reader.release(count)

    def _takes_dropped(self):
        """Take the next entry; whether it is a dropped one.  The next poll says what is wrong with it."""
        try:
            return self.reader.take() and self._is_dropped()
        except OSError:
            return False

    def _is_dropped(self):
        """Whether the entry taken last is one that `drop` named."""
        taken: cython.ulonglong = self.reader.consumer.taken
        qp_num: cython.uint = self.reader.words[abi.CQE_QP_NUM_WORD] >> abi.CQE_QP_NUM_SHIFT & _WORD
        if (self.dropped_until - taken & _ALL_ONES) >> 63:  # it was written after the last of them
            self.dropped = None
            return False
        tail = self.dropped.get(qp_num)
        return tail is not None and not (tail - taken & _ALL_ONES) >> 63

    def waiting(self):
        """How many completions could be taken now, with those that were dropped."""
        self.acquire()
        try:
            return 0 if self.moving or self.ended else self.reader.pending()
        finally:
            self.release()

    def end(self):
        """The queue is destroyed: polling is EINVAL from now on.  True when the ring may be freed; False
        where this thread is itself in the middle of a poll, further up in its calls.
        """
        outermost: cython.bint = self.acquire()
        self.ended = True
        self.release()
        return outermost

    def poll(self, limit, kind=Completion, network_order=False):
        """Up to ``limit`` completions, oldest first, as objects of ``kind``, a `Completion`; drives the
        engine once when there are none, or after ``MANY`` that were there.  ``network_order``: their
        immediates are in that byte order.

        DriverError EIO when the adapter is gone or wrote a malformed completion.
        """
        found: list = []
        self._poll(limit, found, None, kind, network_order)
        return found

    def advance(self, entry):
        """Fill ``entry``, a `Completion`, with the oldest one; False, and it is as it was, where there is
        none.  The rest as `poll`.
        """
        return self._poll(1, None, entry, None, False) != 0

    def _poll(self, limit, found, into, kind, network_order):
        """`poll` into the list ``found``, or `advance` to the entry ``into``: how many there were."""
        if self.session.dead:
            self.session.check()
        count: cython.Py_ssize_t = self._take(limit, found, into, kind, network_order)
        self.taken += count
        if not count or self.taken >= _MANY:
            self.taken = 0
            self.progress()
        if not count:
            count = self._take(limit, found, into, kind, network_order)
            if self.ended and not count:
                raise DriverError(_EINVAL, "cq: the completion queue is destroyed")
        if count:
            self.session.active = True
        return count

    def _take(self, limit, found, into, kind, network_order):
        """The completions that are in the ring now."""
        entry: Completion = into
        count: cython.Py_ssize_t = 0
        taken: cython.ulonglong = 0
        failed = None
        if self.reader.consumer.idle() or limit <= 0:
            return 0
        self.acquire()
        if self.moving or self.ended:
            self.release()
            if self.ended:
                raise DriverError(_EINVAL, "cq: the completion queue is destroyed")
            return 0
        try:
            while count < limit and self.reader.take():
                taken += 1
                if self.dropped is not None and self._is_dropped():
                    continue
                if into is None:
                    entry = _new(kind)
                _fill(entry, self.reader)
                if network_order and entry.wc_flags & _WITH_IMM:
                    entry.imm_data = swapped(entry.imm_data)
                if into is None:
                    found.append(entry)
                count += 1
                if entry.status:
                    failed = self.failed
        except OSError as error:
            if not count:
                raise refusal(error, "polling") from None
        finally:
            self.reader.release(taken)
            self.release()
        if failed is not None:
            for entry in found if into is None else (into,):
                if entry.status:
                    failed(entry.qp_num)
        return count


class CompletionRound(Turn):
    """A round of polling: one thread looks at one completion after the other, in one object that is filled
    anew.  ``fields`` (``ibv_create_cq_wc_flags``) may be asked for."""

    __slots__ = ("_entry", "_fields", "_found")

    def __init__(self, fields):
        Turn.__init__(self)
        self._fields = fields
        self._entry = Completion()
        self._found = False

    def next(self, advance):
        """Go on to the next completion, by `CompletionPoller.advance`; False where there is none: the last
        one stays current."""
        if not advance(self._entry):
            return False
        self._found = True
        return True

    def look(self, field):
        """The current completion; None where this thread has none, or ``field`` may not be asked for."""
        return self._entry if self._found and self.mine() and not field & ~self._fields else None

    def finish(self):
        """End the round, if it is this thread's."""
        if self.mine():
            self._found = False
            self.end()


def _new(kind):
    """A new object of ``kind``, a subclass of `Completion`, by ``tp_new``: no attribute is looked up."""
    return new_of(kind, ()) if cython.compiled else Completion.__new__(kind)  # noqa: F821 - polling.pxd's


def _fill(entry, reader):
    """The fields of a completion from the words of the entry that was read last."""
    entry.wr_id = reader.words[abi.CQE_WR_ID_WORD]
    entry.status = reader.words[abi.CQE_STATUS_WORD] >> abi.CQE_STATUS_SHIFT & 0xFF
    entry.opcode = reader.words[abi.CQE_OPCODE_WORD] >> abi.CQE_OPCODE_SHIFT & 0xFF
    entry.wc_flags = reader.words[abi.CQE_WC_FLAGS_WORD] >> abi.CQE_WC_FLAGS_SHIFT & 0xFFFF
    entry.qp_num = reader.words[abi.CQE_QP_NUM_WORD] >> abi.CQE_QP_NUM_SHIFT & _WORD
    entry.byte_len = reader.words[abi.CQE_BYTE_LEN_WORD] >> abi.CQE_BYTE_LEN_SHIFT & _WORD
    entry.imm_data = reader.words[abi.CQE_IMM_OR_KEY_WORD] >> abi.CQE_IMM_OR_KEY_SHIFT & _WORD
    entry.src_qp = reader.words[abi.CQE_SRC_QP_WORD] >> abi.CQE_SRC_QP_SHIFT & _WORD
    entry.vendor_err = reader.words[abi.CQE_VENDOR_ERR_WORD] >> abi.CQE_VENDOR_ERR_SHIFT & _WORD
    entry.timestamp_ns = reader.words[abi.CQE_TIMESTAMP_NS_WORD]
    entry.pkey_index = reader.words[abi.CQE_PKEY_INDEX_WORD] >> abi.CQE_PKEY_INDEX_SHIFT & 0xFFFF
    entry.sl = reader.words[abi.CQE_SL_WORD] >> abi.CQE_SL_SHIFT & 0xFF
    entry.dlid_path_bits = reader.words[abi.CQE_PATH_BITS_WORD] >> abi.CQE_PATH_BITS_SHIFT & 0xFF
    entry.slid = reader.words[abi.CQE_SLID_WORD] >> abi.CQE_SLID_SHIFT & 0xFFFF
