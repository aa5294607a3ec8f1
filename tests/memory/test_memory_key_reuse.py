"""Keys that died: not given again before as many others as there are indices, and never found meanwhile.

The tables here have short indices, so that the count goes round often.
"""

import random

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from softhca.machine import primitives
from softhca.memory.host import HostMemory
from softhca.memory.keys import KeySequence
from softhca.memory.regions import LOCAL_WRITE, REFUSED_KEY, REMOTE_READ, REMOTE_WRITE, RegionTable
from softhca.memory.tpt import TranslationTable
from softhca.memory.windows import WindowTable
from suite_plan import random_inputs

PD = 3
ALL = LOCAL_WRITE | REMOTE_WRITE | REMOTE_READ


class Life(RuleBasedStateMachine):
    """Regions and windows come, change and go; a model knows which keys live, and when each was given."""

    half_bits = 4

    def __init__(self):
        super().__init__()
        self.host = HostMemory(16 << 20)
        self.frame = self.host.allocate(1)[0]
        self.indices = 1 << 2 * self.half_bits
        self.limit = self.indices // 2 - 1
        self.table = RegionTable(TranslationTable(4096), random.Random(5), self.limit, self.half_bits)
        self.windows = WindowTable(self.table)
        self.number = 0
        self.given = 0
        self.when = {}
        self.regions = []
        self.held = []

    def teardown(self):
        self.host.close()

    def note(self, key, by_the_consumer=False):
        """A key has been given: not one of the last ``indices`` ones."""
        self.given += 1
        assert key not in (0, 0xFFFFFFFF)
        assert key >> 8 < self.indices
        if key in self.when and not by_the_consumer:
            assert self.given - self.when[key] > self.indices
        self.when[key] = self.given

    @rule(count=st.integers(1, 120))
    def register(self, count):
        for _ in range(min(count, self.limit - len(self.regions) - len(self.held))):
            region = self.table.register(self.host.address_map, PD, 0, 8, ALL, [self.frame], 0)
            self.note(region.key)
            self.regions.append(region)

    @rule(which=st.randoms(use_true_random=False), share=st.integers(1, 4))
    def deregister(self, which, share):
        for region in which.sample(self.regions, len(self.regions) // share):
            self.table.deregister(region)
            self.regions.remove(region)

    @rule(which=st.randoms(use_true_random=False), turns=st.integers(1, 200))
    def reregister(self, which, turns):
        for _ in range(turns if self.regions else 0):
            region = which.choice(self.regions)
            old = region.key
            translation = (self.host.address_map, 0, 8, [self.frame], 0, False)
            self.table.reregister(region, translation=translation)
            assert self.table.live_key(old) is None
            self.note(region.key)

    @rule(turns=st.integers(1, 400))
    def register_and_deregister_again_and_again(self, turns):
        for _ in range(turns if len(self.regions) + len(self.held) < self.limit else 0):
            region = self.table.register(self.host.address_map, PD, 0, 8, ALL, [self.frame], 0)
            self.note(region.key)
            self.table.deregister(region)

    @rule(kind=st.sampled_from([1, 2]))
    def allocate_window(self, kind):
        if len(self.regions) + len(self.held) < self.limit:
            self.number += 1
            self.held.append(self.windows.allocate(self.number, PD, kind))
            self.note(self.held[-1].key)

    @rule()
    def deallocate_window(self):
        if self.held:
            self.windows.deallocate(self.held.pop(0))

    @rule()
    def fill_up(self):
        while len(self.regions) + len(self.held) < self.limit:
            self.register(1)
        with pytest.raises(OSError, match=r"\[Errno 12\]"):
            self.table.take_slot()

    @invariant()
    def every_live_key_is_found_and_no_other(self):
        live = {region.key: region for region in self.regions}
        assert len(live) == len(self.regions) == len(self.table) - len(self.held)
        for key in [*live, *list(self.when)[-300:]]:
            assert self.table.live_key(key) is live.get(key)


class LifeOfFew(Life):
    half_bits = 3


class LifeOfMany(Life):
    """The places become more while it goes on."""

    half_bits = 6

    @rule()
    def register_many(self):
        for _ in range(5):
            self.register(120)


TestLife = Life.TestCase
TestLifeOfFew = LifeOfFew.TestCase
TestLifeOfMany = LifeOfMany.TestCase
TestLife.settings = TestLifeOfFew.settings = settings(max_examples=random_inputs(20), stateful_step_count=30)
TestLifeOfMany.settings = settings(max_examples=random_inputs(10), stateful_step_count=20, deadline=None)


@pytest.mark.parametrize("live", [0, 1, 5, 100, 126])
def test_a_key_comes_again_after_as_many_others_as_there_are_indices_however_many_live(live):
    sequence = KeySequence(random.Random(live), 4)
    assert sequence.capacity == 127
    for _ in range(live):
        sequence.take()
    when = {}
    soonest = None
    for turn in range(256 * 40):
        slot, key = sequence.take()
        if key in when:
            soonest = min(turn - when[key] - 1, soonest or 1 << 30)
        when[key] = turn
        sequence.give(slot)
    assert soonest is not None  # the sequence is not endless
    assert soonest >= 256
    # All indices that nobody holds get their turn, and all low bytes.
    assert len({key >> 8 for key in when}) >= 256 - 2 * live
    assert {key & 0xFF for key in when} == set(range(256))


def test_the_index_changes_each_time_and_the_half_of_the_low_byte_each_round():
    sequence = KeySequence(random.Random(1), 2)
    lows = {}
    for _ in range(200):
        round_of_16 = []
        for _ in range(16):
            slot, key = sequence.take()
            sequence.give(slot)
            assert lows.get(key >> 8) != key >> 7 & 1
            lows[key >> 8] = key >> 7 & 1
            round_of_16.append(key >> 8)
        assert sorted(round_of_16) == list(range(16))


def test_a_full_turn_of_the_real_width_costs_no_search():
    sequence = KeySequence(random.Random(2))
    assert sequence.capacity == (1 << 23) - 1
    kept = [sequence.take()[0] for _ in range(511)]
    assert sequence.places == 1024
    kept.append(sequence.take()[0])
    assert sequence.places == 2048  # less than half are taken
    kept += [sequence.take()[0] for _ in range(5000 - 512)]
    assert kept == list(range(5000))
    assert sequence.places == 16384
    for _ in range(11_384):
        sequence.give(sequence.take()[0])
    # The places of the 5,000 come next, and are passed over.
    assert sequence.take()[0] == 16_384 + 5000
    for slot in kept[100:200]:
        sequence.give(slot)
    for _ in range(11_383):
        sequence.give(sequence.take()[0])
    assert [sequence.take()[0] for _ in range(101)] == [*range(32_768 + 100, 32_768 + 200), 32_768 + 5001]


def test_a_stale_key_never_reads_what_came_later():
    host = HostMemory(16 << 20)
    table = RegionTable(TranslationTable(64), random.Random(7), 4)
    old, new = host.allocate(1)[0], host.allocate(1)[0]
    region = table.register(host.address_map, PD, 0, 8, ALL, [old], 0)
    stale = region.key
    secret = b"secret.."
    host.view(new, 1)[:8] = secret
    out = bytearray(8)
    for _ in range(10_000):
        table.reregister(region, translation=(host.address_map, 0, 8, [new], 0, False))
        assert table.find(stale, PD, 0, 8, REMOTE_READ) is None
        assert table.refusal == REFUSED_KEY
    found = table.find(region.key, PD, 0, 8, REMOTE_READ)
    assert found is region
    assert found.read(0, primitives.address_of(out), 8) == 0
    assert out == secret
    host.close()


def test_a_slot_whose_keys_cannot_be_is_given_back():
    """A window asks for another one; the first does not count as a live key for ever."""
    table = RegionTable(TranslationTable(16), random.Random(5), 7, 2)
    windows = WindowTable(table)
    for number in range(64):  # four rounds of the indices: index 0, whose key could become 0, comes in each
        windows.deallocate(windows.allocate(number, PD, 1))
    assert table.sequence.live == 0
