"""Two clocks that go together: a `Timeline` in nanoseconds, and simulated links' events in picoseconds."""

from __future__ import annotations

from softhca.fabric.switching.events import PS_PER_NS, EventQueue
from softhca.testing.timeline import Timeline


class EventPump:
    """Lets ``events`` happen at their moments of ``timeline``, in whole nanoseconds.

    `keep_up` before anything is given to what the events belong to, `plan` afterwards.
    """

    def __init__(self, timeline: Timeline, events: EventQueue) -> None:
        self._timeline = timeline
        self._events = events
        self._planned_ns = -1

    def keep_up(self) -> None:
        """What is due happens first."""
        self._events.run(self._timeline.now * PS_PER_NS)

    def plan(self) -> None:
        """Be called when the next event is due."""
        next_ps = self._events.next_ps()
        if next_ps is None:
            return
        time_ns = -(-next_ps // PS_PER_NS)
        if self._planned_ns < self._timeline.now or time_ns < self._planned_ns:
            self._planned_ns = time_ns
            self._timeline.at(time_ns, self._turn, time_ns)

    def _turn(self, time_ns: int) -> None:
        if time_ns == self._planned_ns:
            self._planned_ns = -1
            self.keep_up()
            self.plan()
