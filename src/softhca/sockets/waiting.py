"""How a call of a socket waits: it drives the device for a short while, and then sleeps."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from time import monotonic_ns

import cython

from softhca.driver.poll_back_off import LONGEST_NS, PEER_NS, PollBudget

READABLE, WRITABLE = 1, 2
"""What is waited for most often."""
MORE_NS, BUSY_NS = 20_000, 2_000_000
"""A call that has found work polls on for at least so long, and so long in all at most: others may want the
interpreter's lock, and it may have a deadline."""
OTHERS_NS = 15_000
"""In a poll in vain that takes longer another program has run: the peer perhaps, unless it is longer than
`PEER_NS`."""

Ready = Callable[[], bool] | int
"""`READABLE`, `WRITABLE`, or what is to be called."""

_MORE_NS, _BUSY_NS = cython.declare(cython.ulonglong, MORE_NS), cython.declare(cython.ulonglong, BUSY_NS)
_OTHERS_NS, _PEER_NS = cython.declare(cython.ulonglong, OTHERS_NS), cython.declare(cython.ulonglong, PEER_NS)


class Waiting:
    """What waits for events of a device: a stream, an end of datagrams.

    ``_progress`` drives the device once; ``_polls``: a thread that does so serves its adapter.
    """

    _budget: PollBudget
    _progress: Callable[[], bool]
    _polls: bool
    # Of who waits:
    _sleep: Callable[[Callable[[], bool], float | None], bool]

    def _begin_waiting(self, longest_ns: int = LONGEST_NS) -> None:
        """Of a new one, which sleeps at once until it knows its device; a poll in vain takes up to
        ``longest_ns``.
        """
        self._budget = PollBudget(longest_ns)
        self._polls = False

    def wait(self, ready: Ready, deadline_s: float | None) -> bool:
        """Wait, driving the device, until ``ready`` or an error; False at the deadline (of
        ``time.monotonic``).
        """
        if self._has_ended(ready) or (self._polls and self._poll(ready)):
            return True
        return self._sleep(partial(self._has_ended, ready), deadline_s)

    def _has_ended(self, ready: Ready) -> bool:
        """Whether a wait for ``ready`` is over, after taking what has come."""
        raise NotImplementedError

    def _poll(self, ready: Ready) -> bool:
        """Drive the device for a short time, and as long as there is work, until ``ready``; whether it is."""
        budget: PollBudget = self._budget
        now: cython.ulonglong = monotonic_ns()
        after: cython.ulonglong
        until: cython.ulonglong = budget.until(now)
        limit: cython.ulonglong = until - now
        last: cython.ulonglong = now + _BUSY_NS
        others: cython.bint = False
        while True:
            worked: cython.bint = self._progress()
            if self._has_ended(ready):
                if limit or others:
                    budget.found()
                return True
            after = monotonic_ns()
            if worked:  # what is waited for takes more than one turn
                until = min(after + max(limit, _MORE_NS), last)
                others = False
            elif not others and _OTHERS_NS <= after - now <= _PEER_NS:
                others = True  # have run in the poll's yield, the peer perhaps: look what it has done
                continue
            else:
                budget.yielded(now, after)
                others = False
            if after >= until or budget.contended(after):
                if limit:
                    budget.gave_up()
                return False
            now = after
