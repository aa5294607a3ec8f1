"""The GID table of a RoCE port: places that do not move while addresses come and go."""

from __future__ import annotations

import random

import pytest

from softhca.adapter.gid_table import NO_GID, GidTable
from softhca.wire.route import V4_MAPPED_PREFIX


def address(number: int) -> bytes:
    return V4_MAPPED_PREFIX + bytes((10, 0, 0, number))


A, B, C, D, E = map(address, range(1, 6))


def test_the_first_addresses_repeat_and_the_others_follow():
    table = GidTable((A, B), 4, 16)
    assert table.entries == (A, B, A, B)
    assert table.set((A, B)).added == table.set((B, A)).removed == ()
    changes = table.set((A, B, C))
    assert (changes.added, changes.removed, changes.refused) == ((C,), (), ())
    assert table.entries == (A, B, A, B, C)
    assert GidTable((A, B, C), 2, 16).entries == (A, B, C)


def test_who_goes_leaves_empty_entries_and_moves_nobody():
    table = GidTable((A, B), 4, 16)
    table.set((A, B, C, D))
    assert table.set((B, D)).removed == (A, C)
    assert table.entries == (NO_GID, B, NO_GID, B, NO_GID, D)
    assert table.set((B,)).removed == (D,)
    assert table.entries == (NO_GID, B, NO_GID, B)
    assert table.set(()).removed == (B,)
    assert table.entries == (NO_GID,) * 4


def test_who_comes_back_finds_its_place_whoever_comes_with_it():
    table = GidTable((A,), 1, 16)
    table.set((A, B, C))
    table.set(())
    assert table.set((D, C, B, A)).added == (C, B, A, D)
    assert table.entries == (A, B, C, D)
    table.set((D,))
    assert table.set((D, E)).added == (E,)
    assert table.entries == (NO_GID, NO_GID, NO_GID, D, E)
    table.set((D, E, B))
    assert table.entries == (NO_GID, B, NO_GID, D, E)


def test_a_place_that_nobody_else_has_room_beside_is_taken_by_another():
    table = GidTable((A,), 1, 2)
    table.set((A, B))
    changes = table.set((A, C, D))
    assert (changes.added, changes.removed, changes.refused) == ((C,), (B,), (D,))
    assert table.entries == (A, C)
    assert table.set((A, D)).added == (D,)
    changes = table.set((B, D))
    assert (changes.added, changes.removed) == ((B,), (A,))
    assert table.entries == (B, D)


def test_repeated_entries_go_and_come_together():
    table = GidTable((A,), 16, 16)
    assert table.set((A, B)).refused == (B,)
    table.set(())
    assert table.set((B,)).added == (B,)
    assert table.entries == (B,) * 16


@pytest.mark.parametrize("seed", range(20))
def test_whatever_comes_and_goes_no_index_of_another_changes(seed):
    chance = random.Random(seed)
    own = [address(number) for number in range(1, chance.randint(2, 5))]
    table = GidTable(own, chance.randint(1, 6), 8)
    everybody = [address(number) for number in range(1, 12)]
    for _ in range(200):
        before = table.entries
        wanted = chance.sample(everybody, chance.randint(0, 9))
        changes = table.set(wanted)
        here = set(table.entries) - {NO_GID}
        assert here | set(changes.refused) == set(wanted)
        assert not here & set(changes.refused)
        assert set(changes.removed) == set(before) - {NO_GID} - set(wanted)
        assert set(changes.added) == here - set(before)
        assert len(table.entries) <= 8
        for index, gid in enumerate(before):
            if gid != NO_GID and gid in wanted:
                assert table.entries[index] == gid
