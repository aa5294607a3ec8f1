"""A descriptor to wait on beside others, so that no signal is missed.

Python runs the handler of a signal between its own steps.  One that comes behind the last step before a
system call that waits, or that the kernel gives to another thread, leaves the call waiting.
"""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress


@contextmanager
def signal_descriptor() -> Iterator[int]:
    """A descriptor that is readable from when a signal has come that Python has a handler for.

    To be called in the main thread; ValueError elsewhere.
    """
    reader, writer = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        before = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        try:
            yield reader
        finally:
            signal.set_wakeup_fd(before)
    finally:
        os.close(reader)
        os.close(writer)


def read_out(signals: int) -> None:
    """Make a `signal_descriptor` unreadable until the next signal."""
    with suppress(BlockingIOError):
        os.read(signals, 4096)


def await_readable(descriptor: int, signals: int) -> None:
    """Wait until ``descriptor`` is readable; handlers of signals run meanwhile, as they come, and what they
    raise goes through.  ``signals`` is a `signal_descriptor`.
    """
    poll = select.poll()  # not select(): that knows no descriptor beyond 1023
    poll.register(descriptor, select.POLLIN)
    poll.register(signals, select.POLLIN)
    while descriptor not in [found for found, _ in poll.poll()]:
        read_out(signals)
