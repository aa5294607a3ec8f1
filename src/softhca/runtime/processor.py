"""System calls that do not let the interpreter lock go.

A call that lets it go for a moment, often, starves the other threads: each time they are woken too late to
take it, and each time they begin anew to wait for the switch interval (5 ms) after which they may ask for it.
``ctypes.PyDLL`` calls with the lock held.
"""

import ctypes
import select

_libc = ctypes.PyDLL(None)

give_way = _libc.sched_yield
"""sched_yield(2): let others run that are ready; returns at once when there are none.

``os.sched_yield`` releases the interpreter lock, and a thread that computes in Python keeps it for a whole
switch interval then.
"""


class _PollDescriptor(ctypes.Structure):
    """``struct pollfd``."""

    _fields_ = (("fd", ctypes.c_int), ("events", ctypes.c_short), ("revents", ctypes.c_short))


class Readable:
    """Whether ``descriptor`` is readable now: an object to be called."""

    def __init__(self, descriptor: int) -> None:
        self._asked = _PollDescriptor(descriptor, select.POLLIN, 0)
        self._reference = ctypes.byref(self._asked)

    def __call__(self) -> bool:
        """poll(2) that does not wait."""
        return bool(_libc.poll(self._reference, 1, 0) > 0)
