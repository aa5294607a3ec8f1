"""Address maps: frame → address, private to a process."""

import errno

import pytest

from softhca.memory.arenas import AddressMap
from softhca.memory.bits import PAGE_BYTES, SLOT_BYTES, SLOT_PAGES, SLOTS

BASE = 0x7000_0000_0000


def fails(code):
    return pytest.raises(OSError, match=rf"\[Errno {code}\]")


def test_a_frame_is_its_slots_base_and_its_page():
    where = AddressMap()
    where.attach(5, 10, BASE)
    assert where.address(5 << 12) == BASE
    assert where.address(5 << 12 | 9) == BASE + 9 * PAGE_BYTES
    assert where.pid(5 << 12) == 0
    assert where.pages_of(5) == 10


def test_what_is_not_attached_has_no_address():
    where = AddressMap()
    where.attach(5, 10, BASE)
    for frame in (0, 4 << 12 | 0xFFF, 5 << 12 | 10, 5 << 12 | 0xFFF, 6 << 12, 0xFFFFFFFF, 1 << 32, 1 << 44):
        assert where.address(frame) == 0
        assert where.pid(frame) == 0


def test_more_than_a_slot_takes_consecutive_slots():
    where = AddressMap()
    where.attach(7, 2 * SLOT_PAGES + 3, BASE, pid=77)
    assert where.address(8 << 12 | 1) == BASE + SLOT_BYTES + PAGE_BYTES
    assert where.address(9 << 12 | 2) == BASE + 2 * SLOT_BYTES + 2 * PAGE_BYTES
    assert where.address(9 << 12 | 3) == 0
    assert [where.pages_of(slot) for slot in (6, 7, 8, 9, 10)] == [0, SLOT_PAGES, SLOT_PAGES, 3, 0]
    assert [where.pid(slot << 12) for slot in (7, 8, 9)] == [77, 77, 77]


def test_the_last_slot_is_reached():
    where = AddressMap()
    where.attach(SLOTS - 1, SLOT_PAGES, BASE)
    assert where.address(0xFFFFFFFF) == BASE + 0xFFF * PAGE_BYTES


def test_slots_that_cannot_be_hold_no_pages_and_the_first_and_last_can_be():
    where = AddressMap()
    where.attach(0, 4, BASE)
    where.attach(SLOTS - 1, 5, BASE)
    assert [where.pages_of(slot) for slot in (-1, 0, SLOTS - 1, SLOTS, 1 << 40)] == [0, 4, 5, 0, 0]


def test_a_taken_slot_is_refused_whole():
    where = AddressMap()
    where.attach(8, 1, BASE)
    with fails(errno.EBUSY):
        where.attach(7, SLOT_PAGES + 1, BASE + SLOT_BYTES)
    assert where.address(7 << 12) == 0
    assert where.address(8 << 12) == BASE


@pytest.mark.parametrize(("slot", "pages", "address", "pid"), [
    (-1, 1, BASE, 0), (SLOTS, 1, BASE, 0), (SLOTS - 1, SLOT_PAGES + 1, BASE, 0),
    (0, 0, BASE, 0), (0, -1, BASE, 0),
    (0, 1, BASE + 1, 0), (0, 1, 0, 0), (0, 1, -4096, 0), (0, 2, (1 << 64) - 4096, 0), (0, 1, BASE, -1),
])
def test_what_cannot_be_attached_is_refused(slot, pages, address, pid):
    with fails(errno.EINVAL):
        AddressMap().attach(slot, pages, address, pid)


def test_detach_forgets_exactly_what_attach_made():
    where = AddressMap()
    where.attach(3, SLOT_PAGES + 2, BASE, pid=9)
    for slot, pages in ((3, SLOT_PAGES + 1), (4, SLOT_PAGES + 2), (3, SLOT_PAGES + 3)):
        with fails(errno.EINVAL):
            where.detach(slot, pages)
    where.detach(3, SLOT_PAGES + 2)
    assert where.address(3 << 12) == where.address(4 << 12) == 0
    assert where.pid(3 << 12) == 0
    where.attach(3, 1, BASE)
    with fails(errno.EINVAL):
        where.detach(9, 1)
