"""The remote-key manager's model: its walk step by step, beside a receive side that writes when it likes."""

import random
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from softhca.adapter.remote_keys import KEY_MASK, VALID, Act, RemoteKeyModel, Step
from softhca.adapter.remote_keys import _key as key_in_use
from suite_plan import random_inputs

PD, KEY, OTHER = 7, 0x1234567, 0x7654321


def test_a_word_stands_at_five_times_its_row_and_has_28_bits():
    model = RemoteKeyModel()
    assert len(model.memory) == 1280
    model.set_domain(255, PD)
    for slot in range(4):
        model.enter(255, slot, KEY + slot)
    assert model.memory[1275:] == [PD, *(VALID | KEY + slot for slot in range(4))]
    assert model.valid_keys(255) == [KEY, KEY + 1, KEY + 2, KEY + 3]
    model.write(0, 0xFFFFFFFF)
    assert model.read(0) == VALID | KEY_MASK == (1 << 28) - 1
    model.leave(255, 2)
    assert model.valid_keys(255) == [KEY, KEY + 1, None, KEY + 3]
    assert model.read(1278) == 0


def steps(model):
    return [(step.act, step.address, step.matched) for step in model.walk()]


def test_a_walk_reads_the_domain_then_the_keys_and_clears_what_matches():
    model = RemoteKeyModel(vis=2)
    model.set_domain(0, PD)
    model.set_domain(1, PD + 1)
    for slot, key in enumerate((KEY, OTHER, KEY)):
        model.enter(0, slot, key)
        model.enter(1, slot, key)
    model.write(4, KEY)  # equal, not valid
    assert model.done
    assert model.step() is None
    model.start(PD, KEY)
    assert model.done
    assert model.busy
    assert model.step() == Step(Act.READ_DOMAIN, 0, 0, True)
    assert not model.done
    assert steps(model) == [
        (Act.READ_KEY, 1, True), (Act.CLEAR, 1, False), (Act.READ_KEY, 2, False), (Act.READ_KEY, 3, True),
        (Act.CLEAR, 3, False), (Act.READ_KEY, 4, False), (Act.READ_DOMAIN, 5, False), (Act.DONE, 9, False),
    ]  # fmt: skip
    assert model.done
    assert not model.busy
    assert model.memory[:5] == [PD, KEY, VALID | OTHER, KEY, KEY]
    assert model.memory[5:] == [PD + 1, VALID | KEY, VALID | OTHER, VALID | KEY, 0]


def test_domain_0_is_none_even_when_it_is_looked_for():
    model = RemoteKeyModel(vis=1)
    model.enter(0, 0, KEY)
    model.start(0, KEY)
    assert steps(model) == [(Act.READ_DOMAIN, 0, False), (Act.DONE, 4, False)]
    assert model.valid_keys(0) == [KEY, None, None, None]


@pytest.mark.parametrize("word", [VALID | KEY, VALID | OTHER, 0])
def test_a_word_rewritten_between_compare_and_clear_is_not_cleared(word):
    model = RemoteKeyModel(vis=1)
    model.set_domain(0, PD)
    model.enter(0, 0, KEY)
    model.enter(0, 1, KEY)
    model.start(PD, KEY)
    assert [model.step().act for _ in range(2)] == [Act.READ_DOMAIN, Act.READ_KEY]
    model.write(2, VALID | KEY)  # another word's: the clear goes on, and that one is found
    model.write(1, word)
    assert model.step() == Step(Act.CANCELLED, 0, 1)
    assert model.memory[1] == word
    assert [step.act for step in model.walk()][:2] == [Act.READ_KEY, Act.CLEAR]


def test_what_was_compared_stays_compared():
    model = RemoteKeyModel(vis=2)
    model.set_domain(0, PD)
    model.enter(0, 3, KEY)
    model.start(PD, KEY)
    model.step()
    model.set_domain(0, PD + 1)  # after its compare: the row is still walked
    model.set_domain(1, PD)  # before its compare
    model.enter(1, 0, KEY)
    assert sum(step.act is Act.CLEAR for step in model.walk()) == 2
    assert model.valid_keys(0) == model.valid_keys(1) == [None] * 4


def test_a_start_during_a_walk_is_held_and_begins_at_row_0():
    model = RemoteKeyModel(vis=2)
    for vi in range(2):
        model.set_domain(vi, PD)
        model.enter(vi, 0, KEY)
        model.enter(vi, 1, OTHER)
    model.start(PD, KEY)
    for _ in range(7):
        model.step()
    model.start(PD, OTHER)
    acts = [step.act for step in model.walk()]
    assert acts.count(Act.DONE) == 2
    assert model.valid_keys(0) == model.valid_keys(1) == [None] * 4


def test_tables_of_other_sizes():
    model = RemoteKeyModel(3, 2, 5)
    assert model.row == 8
    model.set_domain(2, PD)
    model.enter(2, 6, KEY)
    model.start(PD, KEY)
    assert model.walk()[-1] == Step(Act.DONE, 2, 23)
    assert model.memory[23] == KEY
    for wrong in ((0, 1, 3), (1, 0, 0), (1, -1, 3)):
        with pytest.raises(ValueError, match="no table"):
            RemoteKeyModel(*wrong)


@given(st.integers(0, 1 << 30))
@settings(max_examples=random_inputs(150), deadline=None)
def test_a_quiet_walk_clears_exactly_the_given_key_of_the_given_domain(seed):
    dice = random.Random(seed)
    model = RemoteKeyModel(dice.randint(1, 9), dice.randint(0, 2), dice.randint(1, 4))
    words = [
        dice.choice((0, 1, 2)) | (dice.choice((0, VALID)) if at % model.row else 0)
        for at in range(len(model.memory))
    ]
    for at, word in enumerate(words):
        model.write(at, word)
    pd, key = dice.choice((0, 1, 2)), dice.choice((1, 2))
    model.start(pd, key)
    acts = [step.act for step in model.walk()]
    expected = [
        word & KEY_MASK if at % model.row and pd and words[at - at % model.row] == pd and word == VALID | key
        else word
        for at, word in enumerate(words)
    ]
    assert model.memory == expected
    rows = sum(pd != 0 and words[vi * model.row] == pd for vi in range(model.vis))
    cleared = sum(a != b for a, b in zip(words, expected, strict=True))
    assert len(acts) == model.vis + rows * model.keys + cleared + 1


@given(st.integers(0, 1 << 30))
@settings(max_examples=random_inputs(150), deadline=None)
def test_a_walk_beside_a_busy_receive_side_never_loses_what_that_wrote(seed):
    """Only words that matched and that nobody rewrote since are cleared; no word that matched stays behind
    the walk but one that the RQ wrote there."""
    dice = random.Random(seed)
    model = RemoteKeyModel(4, 1, 2)
    for vi in range(4):
        model.set_domain(vi, 1)
        for slot in range(3):
            model.enter(vi, slot, dice.choice((1, 2)))
    shadow, written, compared = list(model.memory), set(), -1
    model.start(1, 1)
    while (step := model.step()) is not None:
        if step.act is Act.READ_KEY:
            assert step.matched == (shadow[step.address] == VALID | 1)
            compared = step.address if step.matched else -1
            written.discard(step.address)
        elif step.act in (Act.CLEAR, Act.CANCELLED):
            assert step.address == compared
            assert (step.act is Act.CANCELLED) == (compared in written)
            if step.act is Act.CLEAR:
                shadow[compared] = 1
        if dice.random() < 0.4:
            at = dice.choice([one for one in range(len(shadow)) if one % 4])
            shadow[at] = VALID | dice.choice((1, 2, 3))
            model.write(at, shadow[at])
            written.add(at)
    assert model.memory == shadow
    assert {at for at, word in enumerate(shadow) if at % 4 and word == VALID | 1} <= written


def test_the_size_of_the_default_table():
    """256 rows of a domain, one write and three reads, as the hardware block has."""
    model = RemoteKeyModel()
    assert (model.vis, model.keys, model.row) == (256, 4, 5)


def test_a_key_is_what_the_walk_compares_of_what_it_is_given():
    model = RemoteKeyModel(vis=1, writes=1, reads=0)
    model.set_domain(0, 3)
    model.enter(0, 0, 5)
    model.start(3, 1 << 28 | 5)
    assert model.busy
    model.walk()
    assert model.valid_keys(0) == [None]


@pytest.mark.parametrize(("generation", "valid", "found"), [(1, True, 5), (2, True, None), (1, False, None)])
def test_a_key_that_is_another_one_by_now_is_not_outstanding(generation, valid, found):
    assert key_in_use(SimpleNamespace(generation=generation, valid=valid, key=5), 1) == found
    assert key_in_use(None, 1) is None
