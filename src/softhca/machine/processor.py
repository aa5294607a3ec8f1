"""System calls of threads that poll: most of them do not let the interpreter lock go.

A call that lets it go for a moment, often, starves the other threads: each time they are woken too late to
take it, and each time they begin anew to wait for the switch interval (5 ms) after which they may ask for it.
Compiled, these are calls in C; interpreted, ``ctypes.PyDLL`` calls with the lock held.  `wait_readable` is
for who sleeps, and lets the lock go.
"""

from __future__ import annotations

import ctypes
import select
from typing import TYPE_CHECKING

import cython

if TYPE_CHECKING:
    def sched_yield() -> int:
        """The system's, by the .pxd."""

    def is_readable(descriptor: int) -> bool:
        """The .pxd's."""

    def await_readable(descriptor: int, limit_ns: int) -> None:
        """The .pxd's."""

_libc = ctypes.PyDLL(None)
_releasing_libc = ctypes.CDLL(None)


def yield_processor() -> None:
    """sched_yield(2): let others run that are ready; returns at once when there are none.

    ``os.sched_yield`` releases the interpreter lock, and a thread that computes in Python keeps it for a
    whole switch interval then.
    """
    if cython.compiled:
        sched_yield()
    else:
        _libc.sched_yield()


def wait_readable(descriptor: int, limit_ns: int) -> None:
    """ppoll(2): sleep until ``descriptor`` is readable, for ``limit_ns`` nanoseconds at the most, or until a
    signal comes.  ``select.poll`` and ``select.epoll`` sleep for whole milliseconds."""
    if cython.compiled:
        with cython.nogil:
            await_readable(descriptor, limit_ns)
    else:
        asked = _PollDescriptor(descriptor, select.POLLIN, 0)
        limit = _Timespec(*divmod(limit_ns, 1_000_000_000))
        _releasing_libc.ppoll(ctypes.byref(asked), 1, ctypes.byref(limit), None)


class _Timespec(ctypes.Structure):
    """``struct timespec``."""

    _fields_ = (("tv_sec", ctypes.c_long), ("tv_nsec", ctypes.c_long))


class _PollDescriptor(ctypes.Structure):
    """``struct pollfd``."""

    _fields_ = (("fd", ctypes.c_int), ("events", ctypes.c_short), ("revents", ctypes.c_short))


class Readable:
    """Whether ``descriptor`` is readable now: an object to be called."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self.asked = None
        if not cython.compiled:
            self.asked = _PollDescriptor(descriptor, select.POLLIN, 0)

    def __call__(self) -> bool:
        """poll(2) that does not wait."""
        return self.now()

    def now(self) -> bool:
        """The same, for who has its type."""
        if cython.compiled:
            return is_readable(self.descriptor)
        return bool(_libc.poll(ctypes.byref(self.asked), 1, 0) > 0)
