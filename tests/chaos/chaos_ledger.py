"""What a process has posted and seen completed, in a file that outlives it.

A row of words for each of its connections, in a mapping that processes share.  ``POSTED`` is written before
an operation is posted and ``DONE`` after its success was polled, so that whoever reads a killed process's row
has bounds for what it did.
"""

from __future__ import annotations

import mmap
import os

POSTED, DONE, STATUS, FAILED_NS, RECEIVED, POSTED_NS, SEND_STATUS, SEND_FAILED_NS = range(8)
"""``STATUS``: of the first completion in error; ``FAILED_NS``: when that was polled, 0: no error so far;
``POSTED_NS``: when the last operation was posted.  Times are CLOCK_MONOTONIC's.

Conversations have a thread that receives, whose end ``STATUS`` and ``FAILED_NS`` tell (an errno, or `ENDED`),
and one that sends, with ``SEND_STATUS`` and ``SEND_FAILED_NS``; ``RECEIVED`` is how many of the peer's
operations have been received whole."""

ENDED = 9999
"""The status of a conversation that the peer has ended in order."""

ROW_WORDS = 8
MAX_ROWS = 2048
PROCESS_ROW = MAX_ROWS
GAP_NS, TURN_NS = 0, 1
"""Of the process's own row: the longest time between two of its turns, and when the last one was."""

BYTES = (MAX_ROWS + 1) * ROW_WORDS * 8


class Ledger:
    """The words of one process; ``descriptor`` is that of the file, a memfd."""

    def __init__(self, descriptor: int = -1) -> None:
        if descriptor < 0:
            descriptor = os.memfd_create("chaos-ledger", os.MFD_CLOEXEC)
            os.ftruncate(descriptor, BYTES)
        self.descriptor = descriptor
        self._mapping = mmap.mmap(descriptor, BYTES)
        self._words = memoryview(self._mapping).cast("Q")

    def get(self, row: int, field: int) -> int:
        return self._words[row * ROW_WORDS + field]

    def set(self, row: int, field: int, value: int) -> None:
        self._words[row * ROW_WORDS + field] = value

    def clear(self, row: int) -> None:
        """A row for another connection."""
        for field in range(ROW_WORDS):
            self.set(row, field, 0)

    def close(self) -> None:
        self._words.release()
        self._mapping.close()
        os.close(self.descriptor)
