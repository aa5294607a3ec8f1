"""Bursts of native packets taken apart, and lanes changed without another look at the packet."""

from __future__ import annotations

from itertools import pairwise
from random import Random

from packet_fabric import packet

from softhca.fabric.native_bursts import MOST_BURST_BYTES, MOST_BYTES, set_lane, units
from softhca.wire import vcrc


def test_a_lane_is_changed_and_the_vcrc_stays_right() -> None:
    for words in (0, 1, 16, 17, 1024):
        made = bytearray(packet(3, 4, bytes(4 * words)))
        for lane in (5, 0, 15, 7, 7):
            set_lane(made, lane)
            assert made[0] >> 4 == lane
            assert vcrc.compute(made[:-2]) == made[-2] | made[-1] << 8


def test_a_vcrc_that_is_wrong_stays_wrong() -> None:
    made = bytearray(packet(3, 4))
    made[-1] ^= 0x10
    set_lane(made, 9)
    assert vcrc.compute(made[:-2]) != made[-2] | made[-1] << 8


def test_units_are_runs_of_one_way_and_cover_the_burst() -> None:
    dice = Random(3)
    choices = [packet(lid, to, bytes(24), sl=sl) for lid in (3, 4) for to in (5, 6) for sl in (0, 1)]
    for _ in range(200):
        parts = [dice.choice(choices) for _ in range(dice.randrange(1, 9))]
        short = packet(3, 5, bytes(4))
        data = memoryview(bytearray(b"".join(parts) + short))
        found = [unit for unit in units(data, len(parts[0])) if unit is not None]
        assert b"".join(bytes(unit.data) for unit in found) == bytes(data)
        assert sum(unit.total for unit in found) == len(parts) + 1
        for unit in found:
            for each in unit.packets():
                assert (each[2] << 8 | each[3], each[6] << 8 | each[7], each[1] >> 4) == unit[3:6]
        assert all(one[3:6] != two[3:6] for one, two in pairwise(found))


def test_the_longest_packet_is_one_and_a_longer_is_not() -> None:
    longest = packet(3, 4, bytes(4096), grh=True)
    assert len(longest) <= MOST_BYTES
    assert [unit is not None for unit in units(memoryview(bytearray(longest)), len(longest))] == [True]
    longer = packet(3, 4, bytes(4096 + 128), grh=True)
    assert list(units(memoryview(bytearray(longer)), len(longer))) == [None]
    assert list(units(memoryview(bytearray(70_000)), 100)) == [None]


def test_a_burst_has_a_bound() -> None:
    for length, segments in ((MOST_BURST_BYTES, MOST_BURST_BYTES // 64), (MOST_BURST_BYTES + 1, 1)):
        assert list(units(memoryview(bytes(length)), 64)) == [None] * segments
