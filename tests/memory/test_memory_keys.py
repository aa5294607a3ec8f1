"""The keyed permutation of slots."""

import itertools
import random

import pytest

from softhca.memory.keys import INDICES, KeyIndex, KeySequence


@pytest.mark.parametrize("half_bits", [1, 2, 5, 7])
def test_the_network_is_a_bijection_exactly(half_bits):
    keys = KeyIndex(99, half_bits)
    size = 1 << (2 * half_bits)
    assert sorted(keys.index(slot) for slot in range(size)) == list(range(size))
    assert all(keys.slot(keys.index(slot)) == slot for slot in range(size))


def test_both_directions_are_inverse_over_the_24_bits():
    keys = KeyIndex(5)
    generator = random.Random(6)
    for number in [0, 1, 0xFFF, 0x1000, INDICES - 1, *(generator.randrange(INDICES) for _ in range(20_000))]:
        assert 0 <= keys.index(number) < INDICES
        assert keys.slot(keys.index(number)) == number
        assert keys.index(keys.slot(number)) == number


def test_the_seed_decides_the_permutation():
    first, same, other = KeyIndex(1), KeyIndex(random.Random(1)), KeyIndex(2)
    slots = range(1000)
    assert [first.index(slot) for slot in slots] == [same.index(slot) for slot in slots]
    assert sum(first.index(slot) == other.index(slot) for slot in slots) <= 2


def test_neighbouring_slots_have_unrelated_indices():
    keys = KeyIndex(3)
    near = sum(abs(keys.index(slot) - keys.index(slot + 1)) < INDICES // 100 for slot in range(5000))
    # Two random indices are that near with probability 2 %; 5,000 draws, 5 standard deviations.
    assert 50 < near < 150


def test_the_first_slots_spread_over_the_whole_index_space():
    keys = KeyIndex(4)
    counts = [0] * 16
    for slot in range(16_000):
        counts[keys.index(slot) >> 20] += 1
    assert all(840 < count < 1160 for count in counts)


@pytest.mark.parametrize("half_bits", [0, 13])
def test_a_width_that_cannot_be_is_refused(half_bits):
    with pytest.raises(ValueError, match="width"):
        KeyIndex(1, half_bits)


def test_no_key_is_all_ones():
    class Dice(random.Random):
        def randrange(self, *_):
            return low.pop()

    low = []
    sequence = KeySequence(Dice(11_231))  # with these the last index comes early
    slot = sequence.permutation.slot(INDICES - 1)
    for _ in range(slot):
        low[:] = [1]
        sequence.give(sequence.take()[0])
    low[:] = [0x17, 0xFF]
    assert sequence.take() == (slot, (INDICES - 1) << 8 | 0x17)


def test_a_slot_that_comes_again_has_a_key_of_the_other_half():
    sequence = KeySequence(random.Random(3), 3)
    rounds = []
    for _ in range(5):
        keys = {}
        for _ in range(sequence.indices):
            slot, key = sequence.take()
            keys[slot] = key & 0x80
            sequence.give(slot)
        rounds.append(keys)
    for before, after in itertools.pairwise(rounds):
        assert before.keys() == after.keys() == set(range(64))
        assert all(before[slot] != after[slot] for slot in after)


def test_slots_of_keys_that_died_are_given_again_when_the_table_has_grown():
    sequence = KeySequence(random.Random(3), 6)
    for slot in [sequence.take()[0] for _ in range(500)]:
        sequence.give(slot)
    live = {sequence.take()[0] for _ in range(600)}
    assert sequence.places == 2048
    in_use = {slot % sequence.places for slot in live}
    free = {slot for slot in range(sequence.indices) if slot % sequence.places not in in_use}
    given = set()
    for _ in free:
        slot, _ = sequence.take()
        sequence.give(slot)
        given.add(slot)
    assert given == free
