"""When the elements of a communication manager are due: deadlines that are put off, brought forward and given
up."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from softhca.management.cm.elements import NEVER_NS
from softhca.management.cm.timers import Timers


@pytest.fixture
def timers() -> Timers:
    return Timers()


def element() -> Any:
    """What the heap knows of a connection or a resolution."""
    return SimpleNamespace(deadline_ns=NEVER_NS, queued_ns=NEVER_NS)


def test_nothing_is_due_where_nothing_waits(timers: Timers) -> None:
    assert timers.next_deadline() == NEVER_NS
    assert list(timers.due(NEVER_NS - 1)) == []


def test_an_element_is_due_at_its_deadline_and_once(timers: Timers) -> None:
    one = element()
    timers.set(one, 10)
    assert (timers.next_deadline(), list(timers.due(9))) == (10, [])
    assert list(timers.due(10)) == [one]
    assert (one.deadline_ns, list(timers.due(99)), timers.next_deadline()) == (NEVER_NS, [], NEVER_NS)


def test_a_stopped_element_wakes_nobody(timers: Timers) -> None:
    one, other = element(), element()
    timers.set(one, 10)
    timers.set(other, 30)
    timers.stop(one)
    assert timers.next_deadline() == 30
    timers.stop(other)
    assert (timers.next_deadline(), len(timers)) == (NEVER_NS, 0)
    timers.set(one, 40)  # it may begin again, also behind what it waited for before
    assert timers.next_deadline() == 40
    assert list(timers.due(40)) == [one]


def test_a_stopped_element_is_not_due(timers: Timers) -> None:
    one = element()
    timers.set(one, 10)
    timers.stop(one)
    assert list(timers.due(10)) == []
    timers.set(one, 20)
    assert list(timers.due(20)) == [one]


def test_what_is_put_off_waits_and_what_is_brought_forward_does_not(timers: Timers) -> None:
    one = element()
    timers.set(one, 10)
    timers.set(one, 50)
    assert list(timers.due(49)) == []
    assert timers.next_deadline() == 50
    timers.set(one, 20)
    assert timers.next_deadline() == 20
    assert list(timers.due(60)) == [one], "its later entry is nothing any more"
    assert timers.next_deadline() == NEVER_NS


def test_elements_are_due_by_time_and_then_in_order(timers: Timers) -> None:
    three = [element() for _ in range(3)]
    for each, deadline_ns in zip(three, (7, 5, 7), strict=True):
        timers.set(each, deadline_ns)
    assert list(timers.due(7)) == [three[1], three[0], three[2]]


def test_a_heap_of_one_element_that_is_put_off_again_and_again_has_one_entry(timers: Timers) -> None:
    one = element()
    for deadline_ns in range(10, 1000, 10):
        timers.set(one, deadline_ns)
        timers.next_deadline()
    assert len(timers) == 1
