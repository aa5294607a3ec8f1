"""The remote-key manager's gates are the functional model's, clock by clock."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from rmb_equivalence import Case, Clock, cases, check

from softhca.adapter.remote_keys import VALID


@settings(max_examples=150, deadline=None)
@given(cases())
def test_gates_and_model_agree_in_every_clock(case: Case) -> None:
    check(case)


@pytest.mark.parametrize("seed", range(2))
def test_they_agree_at_full_size(seed: int) -> None:
    dice = random.Random(seed)
    words = [0, 7, 7, 7, VALID | 5, VALID | 5, VALID | 6]
    memory = [7 if word % 5 == 0 and dice.random() < 0.8 else dice.choice(words) for word in range(1280)]
    clocks = [Clock(start=(7, 5))]
    for _ in range(1500):
        read = dice.randrange(1280) if dice.random() < 0.2 else None
        write = (dice.randrange(1280), dice.choice(words)) if dice.random() < 0.2 else None
        clocks.append(Clock(read, write))
    check(Case(256, 4, memory, clocks))


MATCH = VALID | 5
ROW = [7, MATCH, MATCH]


@pytest.mark.parametrize("clock", range(2, 6))
def test_a_word_rewritten_before_its_clear_is_left_alone(clock: int) -> None:
    """Clock 2 compares key 0, clock 3 clears it; the RQ writes it then, and holds the clear up meanwhile."""
    doing = {number: Clock(write=(1, MATCH)) for number in range(2, clock + 1)}
    clocks = [Clock(start=(7, 5)), *(doing.get(number, Clock()) for number in range(1, 8))]
    check(Case(1, 2, list(ROW), clocks))


def test_another_start_waits_for_the_walk_and_is_the_last_one_given() -> None:
    second = [Clock(), Clock(start=(8, 9)), Clock(start=(7, 6))]
    check(Case(2, 2, [7, MATCH, VALID | 6, 8, VALID | 6, VALID | 9], [Clock(start=(7, 5)), *second]))


def test_domain_zero_has_no_keys_to_clear() -> None:
    check(Case(2, 2, [0, MATCH, MATCH, 0, MATCH, MATCH], [Clock(start=(0, 5))]))


def test_a_word_once_rewritten_stays_so_while_the_rq_writes_others() -> None:
    writes = [Clock(write=(1, MATCH)), Clock(write=(2, 0)), Clock(write=(2, 0))]
    for lead in range(4):
        check(Case(1, 2, list(ROW), [Clock(start=(7, 5)), *[Clock()] * lead, *writes]))
