"""Bursts of native packets taken apart, and lanes changed without another look at the packet."""

from __future__ import annotations

from itertools import pairwise
from random import Random

import pytest
from packet_fabric import packet

from softhca.fabric import native_bursts
from softhca.fabric.native_bursts import MOST_BURST_BYTES, MOST_BYTES, Unit, set_lane, units
from softhca.wire import vcrc


def test_a_lane_is_changed_and_the_vcrc_stays_right() -> None:
    for words in (0, 1, 16, 17, 1024):
        made = bytearray(packet(3, 4, bytes(4 * words)))
        for lane in (5, 0, 15, 7, 7):
            set_lane(made, lane)
            assert made[0] >> 4 == lane
            assert vcrc.compute(made[:-2]) == made[-2] | made[-1] << 8


def test_every_lane_is_changed_to_every_other() -> None:
    made = bytearray(packet(3, 4))
    for before in range(16):
        for lane in range(16):
            for each in (before, lane):
                set_lane(made, each)
                assert made[0] >> 4 == each
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


def found(*packets: bytes, stride: int = 0) -> list[Unit | None]:
    return list(units(memoryview(bytearray(b"".join(packets))), stride or len(packets[0])))


def raw(words: int) -> bytes:
    """A raw packet of so many words between LRH and VCRC."""
    return bytes((0, 0)) + b"\0\5" + (2 + words).to_bytes(2, "big") + b"\0\6" + bytes(4 * words + 2)


def test_a_raw_packet_has_three_words_at_least() -> None:
    (unit,) = found(raw(3))
    assert unit is not None
    assert (unit.transport, unit.total, unit.dlid, unit.slid, unit.is_management) == (0, 1, 5, 6, False)
    assert found(raw(2)) == [None]


def test_what_no_lrh_can_say_is_no_packet() -> None:
    sound = packet(3, 4)
    for place, bit in ((0, 1), (0, 2), (0, 4), (0, 8), (1, 4), (1, 8), (4, 1), (5, 1)):
        broken = bytearray(sound)
        broken[place] ^= bit
        assert found(bytes(broken)) == [None], (place, bit)
    for more in (1, 2, 3):  # the words fit, the bytes do not
        assert found(sound[:-2] + bytes(more) + sound[-2:]) == [None]


def test_a_packet_with_a_grh_that_ends_in_it_is_none() -> None:
    long = packet(3, 4, b"", grh=True)
    assert found(long) != [None]
    for words in range(6, 13):  # GRH and a BTH without its ICRC at the most
        cut = bytearray(long[: 8 + 4 * words] + long[-2:])
        cut[4:6] = (2 + words).to_bytes(2, "big")
        assert found(bytes(cut)) == [None], words


def test_what_goes_another_way_or_to_management_is_a_unit_of_its_own() -> None:
    one = packet(3, 4)
    for qp in (0, 1):
        other = packet(3, 4, qp=qp)
        told = [(each.total, each.is_management) for each in found(one, one, other, one) if each is not None]
        assert told == [(2, False), (1, True), (1, False)]
    lane = bytearray(one)
    set_lane(lane, 5)
    assert [each and each.total for each in found(one, bytes(lane), bytes(lane))] == [1, 2]
    broken = bytearray(one)
    broken[5] += 1
    assert [each and each.total for each in found(one, bytes(broken), one)] == [1, None, 1]


def test_a_lane_is_changed_from_another_one_than_before() -> None:
    for before, lane in ((0, 5), (3, 5), (5, 3), (6, 3)):
        made = bytearray(packet(3, 4, bytes(52)))
        for each in (before, lane):
            set_lane(made, each)
        assert made[0] >> 4 == lane
        assert vcrc.compute(made[:-2]) == made[-2] | made[-1] << 8


def test_changes_of_lanes_that_are_known_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native_bursts, "_MOST_CHANGES", 2)
    for words in range(2, 8):
        made = bytearray(packet(3, 4, bytes(4 * words)))
        set_lane(made, 9)
        assert vcrc.compute(made[:-2]) == made[-2] | made[-1] << 8
        assert made[0] >> 4 == 9
        if words > 2:
            assert len(native_bursts._lane_changes) <= 2
