"""Which of two ways to wait beside competing programs is taken: the one that has brought more lately."""

import pytest

from softhca.runtime.nap_choice import TRY_EACH, NapChoice

SPELL_NS = 20_000_000
PAUSE_NS = 3_000_000


class Spells:
    """A choice whose ways bring so many things a spell each."""

    def __init__(self, napping, polling):
        self.choice, self.now = NapChoice(), 1_000
        self.brings = {True: napping, False: polling}

    def spell(self, length_ns=SPELL_NS):
        """Another one, after which the processor is free for a while: whether the thread naps in it."""
        choice = self.choice
        choice.begins(self.now, self.now + length_ns)
        for _ in range(self.brings[choice.naps]):
            choice.done(self.now + 1)
        self.now += length_ns + PAUSE_NS
        return choice.naps

    def spells(self, count):
        return [self.spell() for _ in range(count)]


@pytest.mark.parametrize(("napping", "polling", "better"), [(100, 10, True), (10, 100, False), (5, 5, True)])
def test_each_way_is_tried_once_and_then_the_better_one_is_taken(napping, polling, better):
    assert Spells(napping, polling).spells(7) == [True, False, *[better] * 5]


@pytest.mark.parametrize("better", [True, False])
def test_now_and_then_the_other_way_is_tried(better):
    ways = Spells(100 if better else 1, 1 if better else 100).spells(4 * TRY_EACH)
    tried = [number for number, way in enumerate(ways, 1) if number > 2 and way != better]
    assert tried == [TRY_EACH * times for times in (1, 2, 3, 4)]


def test_a_way_that_becomes_better_is_found():
    spells = Spells(10, 100)
    spells.spells(7)
    spells.brings = {True: 1_000, False: 1}
    assert spells.spells(8)[-1] is True


def test_rates_are_of_the_time_of_the_spell():
    spells = Spells(10, 20)
    spells.spell()
    spells.spell(4 * SPELL_NS)
    spells.spell()
    assert (spells.choice.naps_rate, spells.choice.polls_rate) == (500, 250)
    assert spells.choice.naps


def test_the_last_spell_counts_for_a_quarter():
    spells = Spells(100, 0)
    spells.spells(2)
    spells.brings[True] = 20
    spells.spells(2)
    assert spells.choice.naps_rate == (3 * 5_000 + 1_000) // 4


def test_what_is_done_when_nobody_competes_says_nothing():
    choice = NapChoice()
    choice.done(5)
    choice.begins(10, 20)
    for now in (19, 20, 1_000):
        choice.done(now)
    choice.begins(2_000, 2_010)
    assert choice.naps_rate == 100_000_000, "one thing in 10 ns"


def test_a_second_thread_that_notices_it_begins_no_spell():
    choice = NapChoice()
    choice.begins(10, 1_000)
    choice.begins(999, 5_000)
    assert (choice.naps, choice.until_ns) == (True, 1_000)
    choice.begins(1_000, 5_000)
    assert (choice.naps, choice.until_ns) == (False, 5_000)


def test_a_spell_without_length_divides_nothing():
    choice = NapChoice()
    for _ in range(3):
        choice.begins(7, 7)
    assert (choice.naps_rate, choice.polls_rate) == (0, 0)
