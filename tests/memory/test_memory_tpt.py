"""The translation and protection table."""

import errno
import re
from pathlib import Path

import pytest

from softhca.memory.tpt import MAX_ENTRIES, TranslationTable


def fails(code):
    return pytest.raises(OSError, match=rf"\[Errno {code}\]")


def test_an_entry_is_frame_domain_rights_valid():
    table = TranslationTable(16)
    table.set(3, 0x89ABCDEF, 0x55, 0x123456)
    assert table.entry(3) == 1 << 63 | 0x55 << 56 | 0x123456 << 32 | 0x89ABCDEF
    assert table.entry(2) == table.entry(4) == 0


def test_widest_values_fit_and_wider_ones_are_refused():
    table = TranslationTable(4)
    table.set(0, 0xFFFFFFFF, 0x7F, 0xFFFFFF)
    assert table.entry(0) == 0xFFFFFFFFFFFFFFFF
    for frame, rights, pd in ((1 << 32, 0, 1), (0, 0x80, 1), (0, 0, 1 << 24)):
        with fails(errno.EINVAL):
            table.set(1, frame, rights, pd)
    for frame in (0xFFFFFFFF, 2**64 - 2, 2**64 - 1):  # the sum may leave 64 bits
        with fails(errno.EINVAL):
            table.set_run(0, frame, 2, 0, 1)
    for first, count in ((4, 1), (3, 2), (0, 5), (0, 0), (0xFFFFFFFF, 2)):
        with fails(errno.EINVAL):
            table.set_run(first, 0, count, 0, 1)
    with fails(errno.EINVAL):
        table.set_run(0, 0xFFFFFFFF, 2, 0, 1)
    assert [table.entry(i) for i in range(1, 6)] == [0] * 5


def test_a_run_maps_consecutive_frames():
    table = TranslationTable(8)
    table.set_run(2, 100, 3, 1, 7)
    assert [table.entry(i) & 0xFFFFFFFF for i in range(8)] == [0, 0, 100, 101, 102, 0, 0, 0]
    assert {table.entry(i) >> 32 for i in (2, 3, 4)} == {1 << 31 | 1 << 24 | 7}


def test_protect_run_keeps_frames_and_valid_bits():
    table = TranslationTable(8)
    table.set(0, 100, 1, 7)
    table.protect_run(0, 3, 5, 9)
    assert table.entry(0) == 1 << 63 | 5 << 56 | 9 << 32 | 100
    assert table.entry(1) == 5 << 56 | 9 << 32
    with fails(errno.EINVAL):
        table.protect_run(7, 2, 5, 9)


def test_released_entries_are_invalid_and_found_again():
    table = TranslationTable(8)
    first = table.allocate(8)
    table.set_run(first, 1, 8, 1, 1)
    with fails(errno.ENOMEM):
        table.allocate(1)
    table.release(first + 2, 3)
    assert [table.entry(i) >> 63 for i in range(8)] == [1, 1, 0, 0, 0, 1, 1, 1]
    assert table.allocate(3) == first + 2


def test_fragmentation_refuses_a_long_run_though_enough_entries_are_free():
    table = TranslationTable(10)
    runs = [table.allocate(2) for _ in range(5)]
    for first in runs[::2]:
        table.release(first, 2)
    assert table.free_entries == 6
    with fails(errno.ENOMEM):
        table.allocate(3)
    table.release(runs[1], 2)
    assert table.allocate(6) == runs[0]


def test_releasing_what_is_not_allocated_is_refused():
    table = TranslationTable(8)
    first = table.allocate(4)
    with fails(errno.EINVAL):
        table.release(first, 5)
    table.release(first, 4)
    with fails(errno.EINVAL):
        table.release(first, 4)


def test_a_machine_with_less_memory_than_the_table_could_need_has_room_for_it():
    table = TranslationTable()
    smaps = Path("/proc/self/smaps").read_text()
    mapping = re.search(rf"^{table.address:x}-.*?^VmFlags:(.*?)$", smaps, re.MULTILINE | re.DOTALL)
    assert mapping is not None
    assert "nr" in mapping[1].split()


def test_the_whole_table_of_two_to_the_27_is_sparse():
    table = TranslationTable()
    assert table.capacity == MAX_ENTRIES == 1 << 27
    table.set(MAX_ENTRIES - 1, 9, 0, 1)
    assert table.entry(MAX_ENTRIES - 1) & 0xFFFFFFFF == 9
    assert table.entry(MAX_ENTRIES) == 0
    for capacity in (0, MAX_ENTRIES + 1):
        with fails(errno.EINVAL):
            TranslationTable(capacity)


@pytest.mark.parametrize("count", [0, -1])
def test_no_entries_are_no_run(count):
    table = TranslationTable(8)
    with fails(errno.EINVAL):
        table.allocate(count)
    assert table.free_entries == 8
