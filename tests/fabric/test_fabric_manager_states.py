"""What a manager is to the others: each cell of the table."""

from __future__ import annotations

import pytest

from softhca.fabric.manager import states as s

EXPECTED = {
    # (state, event): (the state then, what is done); all others change nothing
    (s.DISCOVERING, s.ALONE): (s.MASTER, ("configure",)),
    (s.DISCOVERING, s.OUTRANKED): (s.STANDBY, ("poll",)),
    (s.DISCOVERING, s.DISABLE): (s.NOT_ACTIVE, ("rest",)),
    (s.STANDBY, s.LOST): (s.DISCOVERING, ("sweep",)),
    (s.STANDBY, s.HANDOVER): (s.MASTER, ("sweep", "confirm")),
    (s.STANDBY, s.DISABLE): (s.NOT_ACTIVE, ("rest",)),
    (s.STANDBY, s.BE_STANDBY): (s.STANDBY, ("poll",)),
    (s.STANDBY, s.DISCOVER): (s.DISCOVERING, ("sweep",)),
    (s.NOT_ACTIVE, s.BE_STANDBY): (s.STANDBY, ("poll",)),
    (s.MASTER, s.ALONE): (s.MASTER, ("configure",)),
    (s.MASTER, s.OUTRANKED): (s.MASTER, ("configure",)),
    (s.MASTER, s.SUCCESSOR): (s.MASTER, ("hand over",)),
    (s.MASTER, s.HANDOVER): (s.MASTER, ("sweep", "confirm")),
    (s.MASTER, s.ACKNOWLEDGE): (s.STANDBY, ("poll",)),
}


@pytest.mark.parametrize("state", s.STATES)
@pytest.mark.parametrize("event", s.EVENTS)
def test_each_cell(state: int, event: str) -> None:
    assert s.TABLE.get((state, event)) == EXPECTED.get((state, event))


def test_numbers_are_the_standards() -> None:
    assert [s.NAMES[state] for state in (0, 1, 2, 3)] == ["not active", "discovering", "standby", "master"]
    assert s.CONTROLS == {1: s.HANDOVER, 2: s.ACKNOWLEDGE, 3: s.DISABLE, 4: s.BE_STANDBY, 5: s.DISCOVER}


def test_the_higher_priority_outranks_and_then_the_lower_guid() -> None:
    assert s.outranks((2, 9), (1, 1))
    assert s.outranks((1, 1), (1, 9))
    assert not s.outranks((1, 9), (1, 1))
    assert not s.outranks((1, 1), (1, 1))
