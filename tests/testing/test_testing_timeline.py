"""Virtual time of `softhca.testing`: what is planned happens at its moment and in its order."""

from __future__ import annotations

from softhca.testing.timeline import NEVER, Timeline


def test_actions_of_one_moment_follow_in_the_order_of_planning() -> None:
    timeline, done = Timeline(100), list[str]()
    timeline.at(300, done.append, "later")
    for name in ("a", "b", "c"):
        timeline.at(200, done.append, name)
    timeline.at(100, done.append, "now")
    assert timeline.do_due()
    assert done == ["now"]
    timeline.now = 250
    assert timeline.do_due()
    assert done == ["now", "a", "b", "c"]
    assert not timeline.do_due()
    assert timeline.planned_ns() == 300


def test_what_an_action_plans_for_now_is_done_too() -> None:
    timeline, done = Timeline(7), list[int]()
    timeline.after(0, lambda: timeline.after(0, lambda: done.append(timeline.now)))
    assert timeline.do_due()
    assert done == [7]
    assert timeline.planned_ns() == NEVER


def test_after_counts_from_now() -> None:
    timeline = Timeline(10)
    timeline.now = 40
    timeline.after(2, lambda: None)
    assert timeline.planned_ns() == 42


def test_playing_takes_time_from_action_to_action() -> None:
    timeline, seen, done = Timeline(1), list[int](), list[tuple[int, str]]()
    for moment in (5, 3, 9):
        timeline.at(moment, lambda name: done.append((timeline.now, name)), f"at {moment}")
    assert timeline.play(10, 100, seen.append)
    assert done == [(3, "at 3"), (5, "at 5"), (9, "at 9")]
    assert seen == [3, 5, 9]
    assert timeline.now == 9


def test_playing_ends_after_so_many_events() -> None:
    timeline, done = Timeline(0), list[int]()

    def again(count: int) -> None:
        done.append(count)
        timeline.at(timeline.now + 1, again, count + 1)

    timeline.at(1, again, 0)
    assert not timeline.play(5, 100, lambda now: None)
    assert done == [0, 1, 2, 3, 4]


def test_playing_ends_at_its_limit_and_does_nothing_beyond_it() -> None:
    timeline, seen, done = Timeline(10), list[int](), list[str]()
    timeline.at(20, done.append, "at the limit")
    timeline.at(21, done.append, "beyond")
    assert not timeline.play(10, 10, seen.append)
    assert done == ["at the limit"]
    assert seen == [20, 21]  # who is asked what went wrong knows when


def test_what_is_planned_for_the_moment_is_done_before_it_is_now() -> None:
    timeline, done = Timeline(0), list[str]()
    timeline.at(7, done.append, "at the moment")
    timeline.at(8, done.append, "behind it")
    timeline.play_to(7, lambda now: None)
    assert (done, timeline.now, timeline.planned_ns()) == (["at the moment"], 7, 8)
