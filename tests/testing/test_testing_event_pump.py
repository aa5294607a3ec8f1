"""Events in picoseconds happen at their moments of a timeline in nanoseconds."""

from __future__ import annotations

from typing import Any

from softhca.fabric.switching.events import PS_PER_NS, EventQueue, Handler
from softhca.testing.event_pump import EventPump
from softhca.testing.timeline import Timeline


class Noting(Handler):
    """Notes what has happened, and when."""

    def __init__(self, timeline: Timeline) -> None:
        self.timeline = timeline
        self.noted: list[tuple[int, int, int]] = []

    def fire(self, what: int, argument: Any, now_ps: int) -> None:
        self.noted.append((what, self.timeline.now, now_ps))


def test_events_happen_in_the_nanosecond_behind_them_earlier_ones_that_come_later_too() -> None:
    timeline, events = Timeline(10), EventQueue()
    pump, handler = EventPump(timeline, events), Noting(timeline)
    for what, time_ps in ((1, 100_500), (2, 50_000), (3, 50_001), (4, 200_000)):
        pump.keep_up()
        events.plan(time_ps, handler, what, None)
        pump.plan()
    timeline.play_to(60, lambda now: None)
    assert handler.noted == [(2, 50, 50_000), (3, 51, 50_001)]
    timeline.play_to(1000, lambda now: None)
    assert handler.noted[2:] == [(1, 101, 100_500), (4, 200, 200 * PS_PER_NS)]


def test_what_is_due_happens_before_what_is_given_now() -> None:
    timeline, events = Timeline(10), EventQueue()
    pump, handler = EventPump(timeline, events), Noting(timeline)
    events.plan(20_000, handler, 1, None)
    timeline.now = 30
    pump.keep_up()
    assert handler.noted == [(1, 30, 20_000)]
    pump.plan()
    assert timeline.planned_ns() > 30
