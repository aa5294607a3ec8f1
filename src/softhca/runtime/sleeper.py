"""Who sleeps in charge of an engine, until when, and whom what happens wakes.

Two words make sure that nothing is slept through.  ``wakeup_ns`` is the moment at which the one that sleeps
in charge wakes up by itself: a round that leaves an earlier deadline behind wakes it.  ``events`` is a
sequence number: how often the engine has told a host something; where application threads sleep
(``waiters``), a round that brought events wakes them.

At most one of the application threads that wait is in charge (it *leads*); where none waits, the background
thread is.  All under the engine's lock.  No clock, descriptor or thread here: who sleeps is told until when,
and ``wake`` is called to wake who does.
"""

import cython

__all__ = ["LATE_NS", "NEVER", "Sleeper"]

NEVER = (1 << 63) - 1
"""``wakeup_ns`` of one that sleeps until it is woken."""

LATE_NS = 8_000_000
"""A deadline may be noticed this much later than it is due before somebody is woken for it."""

NS_PER_S = 1_000_000_000

_LATE_NS = cython.declare(cython.ulonglong, LATE_NS)
_NEVER = cython.declare(cython.ulonglong, NEVER)


class Sleeper:
    """``wake`` is called, without arguments, to wake whoever sleeps in charge.

    ``background_ns`` is when the background thread wakes up by itself, ``parked``: it sleeps until it is
    woken, since somebody stays waiting.
    """

    def __init__(self, wake):
        self.wake = wake
        self.wakeup_ns = NEVER
        self.waiters = 0
        self.events = 0
        self.delivered = 0
        self.background_ns = 0
        self.parked = False

    def happened(self):
        """The engine has told a host something."""
        self.events += 1

    def deliver(self):
        """Whether there are events that nobody who waits has been woken for: the caller does that now."""
        if self.events == self.delivered:
            return False
        self.delivered = self.events
        return True

    def settle(self, deadline_ns):
        """A round leaves ``deadline_ns`` behind: wake a sleeper that would wake up too late, or that waits
        for what has happened."""
        if self.waiters and self.deliver():
            self.wake()
        elif deadline_ns + _LATE_NS < self.wakeup_ns:
            self.wakeup_ns = 0  # it looks as soon as it can: no need to wake it again before
            self.wake()

    def lies_down(self, deadline_ns, until_ns, leads):
        """Who is in charge goes to sleep, for ``until_ns`` at most: the moment at which it wakes up."""
        self.wakeup_ns = min(until_ns, deadline_ns)
        if not leads:
            self.background_ns = self.wakeup_ns
        return self.wakeup_ns

    def keeps_off(self, until_ns):
        """The background thread sleeps while others drive, until ``until_ns``; ``NEVER``: it is parked."""
        self.parked = until_ns == _NEVER
        if self.parked:
            return
        self.background_ns = until_ns
        if not self.waiters:
            self.wakeup_ns = until_ns

    def leaves(self, deadline_ns):
        """One that waits goes.  The last gives the charge back: whether the background thread, which sleeps,
        is to be woken for that."""
        self.waiters -= 1
        if self.waiters:
            return False
        self.wakeup_ns = self.background_ns
        return self.parked or deadline_ns + _LATE_NS < self.background_ns


def timeout_s(wakeup_ns, now):
    """How long a sleep from ``now`` to ``wakeup_ns`` is, in seconds; None: without end."""
    return None if wakeup_ns >= NEVER else max(wakeup_ns - now, 0) / NS_PER_S
