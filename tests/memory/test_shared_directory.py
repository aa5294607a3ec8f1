"""What neighbours on one host may look up, and that a withdrawal lets none of them stay inside."""

import mmap
import os

import pytest

from softhca.machine.primitives import address_of, load64, store64
from softhca.memory import shared_layout as layout
from softhca.memory.shared_directory import Directory, Lane
from softhca.memory.shared_path import SharedPath

OWN = bytes(range(16))
PEER = bytes(range(16, 32))
WRITE, READ = 2, 4
BASE, ARENA_BYTES = 1 << 40, 1 << 20


class Neighbours:
    """A directory, one lane, and the path of who has that lane; ``pauses`` are called, one by one, while it
    is waited for; then it is waited no longer."""

    def __init__(self):
        self.alive, self.pauses = True, []
        self.directory = Directory(lambda: self.pause)
        self.lane = Lane(lambda: self.alive, OWN)
        self.directory.lanes.add(self.lane)
        self.seen = mmap.mmap(self.directory.fd, layout.DIRECTORY_BYTES, mmap.MAP_SHARED, mmap.PROT_READ)
        self.path = SharedPath(PEER, OWN)
        self.path.open(address_of(self.seen, writable=False), self.lane.address, 0, None)
        self.path.set_arena(1, BASE, ARENA_BYTES)

    def pause(self):
        if self.pauses:
            self.pauses.pop(0)()
            return True
        return False

    def place(self, key=0x1234, pd=7, va=4096, n=16, access=WRITE):
        if not self.path.enter():
            return None
        try:
            return self.path.place(key, pd, va, n, access)
        finally:
            self.path.leave()


@pytest.fixture
def neighbours():
    made = Neighbours()
    made.directory.grant_region(0x1234, 4096, 8192, WRITE, 7, 1, 512)
    yield made
    made.directory.close()


def test_a_granted_range_is_found_where_it_is_mapped(neighbours):
    assert neighbours.place() == BASE + 512
    assert neighbours.place(va=4096 + 8176, n=16) == BASE + 512 + 8176


@pytest.mark.parametrize("wrong", [
    {"key": 0x1235}, {"pd": 8}, {"access": READ}, {"access": WRITE | READ}, {"va": 4095},
    {"va": 4096 + 8177}, {"n": 8193}, {"va": 0}, {"va": (1 << 64) - 8, "n": 16},
])  # fmt: skip
def test_what_was_not_granted_is_no_place(neighbours, wrong):
    assert neighbours.place(**wrong) == 0


@pytest.mark.parametrize(("arena", "place", "length"), [
    (2, 0, 16), (1, ARENA_BYTES - 8, 16), (1, ARENA_BYTES + 1, 16), (1, (1 << 64) - 8, 16),
    (1, 0, ARENA_BYTES + 1),
])  # fmt: skip
def test_a_place_outside_of_what_is_mapped_is_no_place(neighbours, arena, place, length):
    neighbours.directory.grant_region(9, 0, length, WRITE, 7, arena, place)
    assert neighbours.place(key=9, va=0, n=length) == 0


def test_an_arena_that_went_is_no_place(neighbours):
    assert neighbours.place() == BASE + 512
    neighbours.path.set_arena(1, 0, 0)
    assert neighbours.place() == 0


@pytest.mark.parametrize(("pid", "found"), [(0, 0x7000), (-1, 0)])
def test_memory_outside_the_arenas_is_reached_in_the_own_process_only(neighbours, pid, found):
    neighbours.directory.grant_region(9, 0, 64, WRITE, 7, layout.FOREIGN_ARENA, 0x7000)
    neighbours.path.pid = pid
    assert neighbours.place(key=9, va=0) == found
    assert not (found and neighbours.path.foreign)


def test_keys_of_one_place_are_told_apart_until_there_is_no_room(neighbours):
    first = layout.first_place(5)
    same = [key for key in range(5, 1 << 22) if layout.first_place(key) == first][: layout.PROBES + 1]
    granted = [neighbours.directory.grant_region(key, 0, 64, WRITE, 7, 1, key) for key in same]
    assert granted == [True] * layout.PROBES + [False]
    found = [neighbours.place(key=key, va=0) for key in same]
    assert found == [BASE + key for key in same[:-1]] + [0]
    neighbours.directory.withdraw_region(same[0])
    assert neighbours.directory.grant_region(same[-1], 0, 64, WRITE, 7, 1, same[-1])
    assert neighbours.place(key=same[0], va=0) == 0
    assert neighbours.place(key=same[-1], va=0) == BASE + same[-1]


def test_a_withdrawal_waits_until_who_is_inside_has_left(neighbours):
    order = []
    assert neighbours.path.enter()
    neighbours.pauses = [
        lambda: order.append("waited"),
        lambda: (order.append("left"), neighbours.path.leave()),
    ]
    neighbours.directory.withdraw_region(0x1234)
    order.append("withdrawn")
    assert order == ["waited", "left", "withdrawn"]
    assert neighbours.place() == 0


def test_while_a_withdrawal_waits_the_entry_is_gone_and_its_place_not_used_again(neighbours):
    first = layout.first_place(0x1234)
    entry = neighbours.directory.address + layout.REGIONS_AT + first * layout.ENTRY_BYTES
    found = []

    def during():
        other = next(k for k in range(1, 1 << 20) if layout.first_place(k) == first and k != 0x1234)
        found.append((load64(entry), neighbours.directory.grant_region(other, 0, 64, WRITE, 7, 1, 0)))
        found.append(load64(entry))
        neighbours.path.leave()

    assert neighbours.path.enter()
    neighbours.pauses = [during]
    neighbours.directory.withdraw_region(0x1234)
    assert found == [(0, True), 0]


def test_a_withdrawal_does_not_wait_for_one_who_is_outside_nor_for_the_dead(neighbours):
    neighbours.directory.withdraw_region(0x1234)
    assert neighbours.path.enter()
    neighbours.alive = False
    neighbours.directory.grant_region(9, 0, 64, WRITE, 7, 1, 0)
    neighbours.directory.withdraw_region(9)
    assert neighbours.directory.grant_region(9, 0, 64, WRITE, 7, 1, 0)


def test_a_withdrawal_does_not_wait_for_one_who_left_and_came_again(neighbours):
    def again():
        neighbours.path.leave()
        assert neighbours.path.enter()

    assert neighbours.path.enter()
    neighbours.pauses = [again]
    neighbours.directory.withdraw_region(0x1234)
    assert neighbours.pauses == []
    neighbours.path.leave()


def test_a_closed_gate_lets_nobody_in_and_waits_for_who_is_inside(neighbours):
    assert neighbours.path.enter()
    neighbours.pauses = [neighbours.path.leave]
    neighbours.directory.set_gate(False)
    assert neighbours.pauses == []
    assert neighbours.place() is None
    assert load64(neighbours.lane.address) % 2 == 0
    neighbours.directory.set_gate(True)
    assert neighbours.place() == BASE + 512


def test_a_queue_pair_is_granted_to_one_peer(neighbours):
    grant = neighbours.directory.grant_queue_pair
    assert grant(40, OWN, 50, WRITE | READ, 0xFFFF, 7)
    path = neighbours.path
    assert path.queue_pair(40, 50) == 7 << 32 | 0xFFFF << 16 | WRITE | READ
    assert path.queue_pair(41, 50) == path.queue_pair(40, 51) == 0
    stranger = SharedPath(PEER, OWN[::-1])
    stranger.open(address_of(neighbours.seen, writable=False), neighbours.lane.address, 0, None)
    assert stranger.queue_pair(40, 50) == 0


def test_a_change_of_a_queue_pair_waits_for_who_uses_it_and_the_same_again_does_not(neighbours):
    grant = neighbours.directory.grant_queue_pair
    grant(40, OWN, 50, WRITE, 0xFFFF, 7)
    assert neighbours.path.enter()
    neighbours.pauses = [neighbours.path.leave]
    assert grant(40, OWN, 50, WRITE, 0xFFFF, 7)
    assert len(neighbours.pauses) == 1  # nothing has changed
    assert grant(40, OWN, 50, READ, 0xFFFF, 7)
    assert neighbours.pauses == []
    assert neighbours.path.queue_pair(40, 50) & 0xFFFF == READ
    neighbours.directory.withdraw_queue_pair(40)
    assert neighbours.path.queue_pair(40, 50) == 0


def test_a_path_that_has_ended_lets_nobody_in(neighbours):
    neighbours.path.close()
    assert not neighbours.path.enter()


def test_a_lane_goes_on_where_it_stood(neighbours):
    store64(neighbours.lane.address, 6)
    neighbours.path.open(neighbours.path.directory, neighbours.lane.address, 0, None)
    assert neighbours.path.enter()
    assert load64(neighbours.lane.address) == 7
    neighbours.path.leave()
    assert load64(neighbours.lane.address) == 8


def test_what_could_be_cut_off_under_the_reader_is_not_mapped():
    fd = os.memfd_create("test", os.MFD_ALLOW_SEALING)
    try:
        os.ftruncate(fd, 8192)
        with pytest.raises(OSError, match="no sealed memory"):
            layout.map_sealed(fd, 8192, True)
    finally:
        os.close(fd)
    fd = layout.make_sealed("test", 8192)
    try:
        with pytest.raises(OSError, match="no sealed memory"):
            layout.map_sealed(fd, 4096, True)
        with pytest.raises(OSError, match="not permitted"):
            os.ftruncate(fd, 4096)
        layout.map_sealed(fd, 8192, True).close()
    finally:
        os.close(fd)
