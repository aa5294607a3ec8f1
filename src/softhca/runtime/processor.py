"""Giving the processor away for a moment, and not the interpreter lock with it.

``os.sched_yield`` releases the interpreter lock, and a thread that computes in Python keeps it for a whole
switch interval (5 ms) then; ``ctypes.PyDLL`` calls with the lock held.
"""

import ctypes

_libc = ctypes.PyDLL(None)

give_way = _libc.sched_yield
"""sched_yield(2): let others run that are ready; returns at once when there are none."""
