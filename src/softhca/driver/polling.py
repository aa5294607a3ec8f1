"""Polling: completions taken from their ring straight into the objects that the consumer sees."""

import cython

from softhca.driver.errors import refusal
from softhca.driver.work_requests import Completion
from softhca.queues.completion import CompletionReader

_WORD = cython.declare(cython.ulonglong, 0xFFFFFFFF)


class CompletionPoller:
    """One completion queue as its consumer polls it, in a ring that ``reader`` reads.

    ``session`` says whether the adapter is there; ``progress`` drives the engine; ``failed`` is called with
    the queue pair's number for every completion in error; ``lock`` is held while the ring is looked at.
    """

    def __init__(self, layout, session, progress, failed, lock):
        self.reader = CompletionReader(layout)
        self.session = session
        self.progress = progress
        self.failed = failed
        self.lock = lock

    def poll(self, limit, kind=Completion):
        """Up to ``limit`` completions, oldest first, as objects of ``kind``, a `Completion`; drives the
        engine once when there are none.

        DriverError EIO when the adapter is gone or wrote what cannot be.
        """
        if self.session.dead:
            self.session.check()
        found: list = self._take(limit, kind)
        if not found:
            self.progress()
            found = self._take(limit, kind)
        return found

    def _take(self, limit, kind):
        """What stands in the ring now."""
        found: list = []
        entry: Completion
        failed = None
        if self.reader.consumer.idle() or limit <= 0:
            return found
        with self.lock:
            try:
                while len(found) < limit and self.reader.take():
                    entry = Completion.__new__(kind)
                    _fill(entry, self.reader)
                    found.append(entry)
                    if entry.status:
                        failed = self.failed
            except OSError as error:
                if not found:
                    raise refusal(error, "polling") from None
            self.reader.release(len(found))
        if failed is not None:
            for entry in found:
                if entry.status:
                    failed(entry.qp_num)
        return found


def _fill(entry, reader):
    """The fields of ``queues.cqe`` from the six words of the entry that was read last."""
    entry.wr_id = reader.words[0]
    entry.status = reader.words[1] & 0xFF
    entry.opcode = (reader.words[1] >> 8) & 0xFF
    entry.wc_flags = (reader.words[1] >> 16) & 0xFFFF
    entry.qp_num = reader.words[1] >> 32
    entry.byte_len = reader.words[2] & _WORD
    entry.imm_data = reader.words[2] >> 32
    entry.src_qp = reader.words[3] & _WORD
    entry.vendor_err = reader.words[3] >> 32
    entry.timestamp_ns = reader.words[4]
    entry.pkey_index = reader.words[5] & 0xFFFF
    entry.sl = (reader.words[5] >> 16) & 0xFF
    entry.dlid_path_bits = (reader.words[5] >> 24) & 0xFF
    entry.slid = (reader.words[5] >> 32) & 0xFFFF
