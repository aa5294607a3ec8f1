"""A withdrawal ends beside a peer that does not go on, and what that one still copies changes nothing.

Both sides are here: the owner's arena and directory, and what peers map.  Nobody waits for time:
``pauses`` lets the readers' owner pause as often as the test says.
"""

import fcntl
import mmap
import os
from types import SimpleNamespace

import pytest

from softhca.machine.primitives import address_of, bytes_at, fill, load64, store64
from softhca.memory import shared_arena
from softhca.memory import shared_layout as layout
from softhca.memory.bits import PAGE_BYTES, SLOT_BYTES
from softhca.memory.shared_arena import SharedArena
from softhca.memory.shared_directory import Directory, Reader
from softhca.memory.shared_path import SharedPath
from softhca.transport.same_host_sharing import Sharing

OWNER, FIRST, SECOND = (bytes([number]) * 16 for number in (1, 2, 3))
READ, WRITE = 4, 2
KEY, OTHER, PD = 0x100, 0x200, 7
PAGES = 8

pytestmark = pytest.mark.skipif(
    not shared_arena.primitives.ATOMIC_BETWEEN_PROCESSES, reason="no same-host paths here"
)


class Peer:
    """One peer of ``owner``: its reader, its path, and a mapping of its own of the owner's arena."""

    def __init__(self, owner, gid):
        self.alive = True
        self.reader = Reader(lambda: self.alive, gid, owner.may_be_in_call)
        owner.directory.readers.add(self.reader)
        self.arena = mmap.mmap(owner.arena.fd, owner.arena.size_bytes)
        self.path = SharedPath(OWNER, gid)
        self.path.open(owner.directory.address, self.reader.address, 0, None, True, lambda: 77)
        self.path.set_arena(1, address_of(self.arena), owner.arena.size_bytes)

    def enter(self, key=KEY, page=0, pages=1, access=WRITE):
        """Be about to copy: inside, with the place, claimed where it is to be written; 0 where that may not
        be."""
        assert self.path.enter()
        place = self.path.place(key, PD, page * PAGE_BYTES, pages * PAGE_BYTES, access)
        if place and access != READ and not self.path.claim(place, pages * PAGE_BYTES):
            return 0
        return place


class Owner:
    """The owner: ``PAGES`` pages, granted as ``KEY`` as a whole; ``pauses`` are called while it waits."""

    def __init__(self):
        self.pauses, self.paused, self.in_call = [], 0, []
        self.arena = SharedArena(SLOT_BYTES)
        self.first = self.arena.allocate(PAGES)
        self.directory = Directory(lambda: self.pause)
        self.directory.arenas[1] = self.arena
        self.grant()

    def pause(self):
        self.paused += 1
        if self.pauses:
            self.pauses.pop(0)()
            return True
        return False

    def may_be_in_call(self, thread):
        assert thread == 77
        return bool(self.in_call) and self.in_call.pop(0)

    def grant(self, key=KEY, page=0, pages=PAGES):
        begin, length = page * PAGE_BYTES, pages * PAGE_BYTES
        place = self.first * PAGE_BYTES + begin
        return self.directory.grant_region(key, begin, length, READ | WRITE, PD, 1, place)

    def address(self, page=0):
        return self.arena.base + (self.first + page) * PAGE_BYTES

    def word(self, page=0):
        return load64(self.address(page))

    def put(self, value, page=0):
        store64(self.address(page), value)


@pytest.fixture
def owner():
    made = Owner()
    yield made
    made.directory.close()


@pytest.fixture
def peer(owner):
    return Peer(owner, FIRST)


def test_a_withdrawal_does_not_wait_for_ever_and_a_late_write_changes_nothing(owner, peer):
    owner.put(1)
    owner.put(2, 1)
    place = peer.enter(pages=2)
    owner.directory.withdraw_region(KEY)
    owner.put(3)
    fill(place, 0xEE, 2 * PAGE_BYTES)
    assert (owner.word(), owner.word(1)) == (3, 2)
    assert not peer.path.unchanged_for(WRITE)
    assert bytes_at(owner.address(), 2 * PAGE_BYTES).count(0xEE) == 0


def test_what_was_written_before_the_claim_was_taken_away_is_there(owner, peer):
    store64(peer.enter(), 5)
    assert peer.path.unchanged_for(WRITE)
    owner.directory.withdraw_region(KEY)
    assert owner.word() == 5


def test_what_this_process_writes_while_pages_are_exchanged_is_kept(owner, peer, monkeypatch):
    class Machine:
        def __getattr__(self, name):
            return getattr(machine, name)

        def map_private(self, *arguments):
            owner.put(6, 1)
            result = machine.map_private(*arguments)
            owner.put(7)  # as another thread would between the mapping and the copy
            return result

    machine = shared_arena.primitives
    monkeypatch.setattr(shared_arena, "primitives", Machine())
    peer.enter(pages=2)
    owner.directory.withdraw_region(KEY)
    assert (owner.word(), owner.word(1)) == (7, 6)


def test_who_is_inside_sees_a_withdrawal_before_it_writes_again(owner, peer):
    owner.grant(OTHER)
    assert peer.path.enter()
    place = peer.path.place(KEY, PD, 0, 8, WRITE)
    owner.directory.withdraw_region(OTHER)
    assert not peer.path.claim(place, 8)
    peer.path.leave()
    assert peer.enter()


def test_a_claim_is_on_the_pages_that_are_written_to(owner, peer):
    assert peer.path.enter()
    place = peer.path.place(KEY, PD, 100, 2 * PAGE_BYTES, WRITE)
    assert peer.path.claim(place, 2 * PAGE_BYTES)
    assert peer.reader.claim()[1] == layout.Claim(1, owner.first, 3)
    assert peer.path.claim(place + PAGE_BYTES, 8)
    assert peer.reader.claim()[1] == layout.Claim(1, owner.first + 1, 1)
    peer.path.leave()
    assert peer.path.enter()
    assert peer.reader.claim()[1].pages == 0


def test_who_reads_is_not_waited_for_and_knows_that_it_may_have_read_another_s(owner, peer):
    peer.enter(access=READ)
    assert peer.path.unchanged_for(READ)
    owner.directory.withdraw_region(KEY)
    assert not peer.path.unchanged_for(READ)
    assert owner.arena.held_pages == 0
    assert owner.arena.shares(owner.first * PAGE_BYTES, PAGES * PAGE_BYTES)


def test_a_claim_on_other_pages_is_left_alone(owner, peer):
    owner.grant(OTHER, 4, 2)
    place = peer.enter(OTHER, 4, 2)
    owner.directory.withdraw_region(KEY)
    assert owner.arena.held_pages == 2  # the first region stood on them too
    peer.path.leave()
    owner.directory.settle()
    owner.grant(KEY, 0, 4)
    owner.grant(OTHER + 1, 6, 2)
    place = peer.enter(OTHER + 1, 6, 2)
    owner.directory.withdraw_region(KEY)
    store64(place, 9)
    assert peer.path.unchanged_for(WRITE)
    assert owner.word(6) == 9


def test_regions_on_pages_that_were_exchanged_are_not_reached_directly_any_more(owner, peer):
    owner.grant(OTHER, 1, 1)
    owner.grant(OTHER + 1, 2, 1)
    peer.enter(pages=2)
    owner.directory.withdraw_region(KEY)
    peer.path.leave()
    assert peer.enter(OTHER, 1) == 0
    peer.path.leave()
    assert peer.enter(OTHER + 1, 2)
    peer.path.leave()
    owner.directory.withdraw_region(OTHER)
    assert owner.grant(OTHER, 1, 1)


def test_a_region_on_pages_that_were_exchanged_is_not_granted(owner, peer):
    sharing = Sharing(owner.directory, lambda gid: None)
    region = SimpleNamespace(key=OTHER, va=0, pd=PD, access=WRITE, length=PAGE_BYTES, paged=False,
                             direct_address=owner.address(), direct_pid=0)  # fmt: skip
    sharing.grant(region)
    assert peer.enter(OTHER)
    sharing.withdraw(region)
    peer.path.leave()
    for address, place in ((owner.address(), 0), (owner.address(1), owner.first + 1)):
        region.direct_address = address
        sharing.grant(region)
        assert peer.path.enter()
        found = peer.path.place(OTHER, PD, 0, 8, WRITE)
        assert found == (place and address_of(peer.arena) + place * PAGE_BYTES)
        peer.path.leave()
        sharing.withdraw(region)


def test_claims_that_hang_together_are_taken_away_together(owner, peer):
    second, third = Peer(owner, SECOND), Peer(owner, SECOND)
    owner.grant(OTHER)
    places = [peer.enter(KEY, 0, 2), second.enter(OTHER, 1, 2), third.enter(OTHER, 4, 1)]
    owner.directory.withdraw_region(KEY)
    assert [each.path.unchanged_for(WRITE) for each in (peer, second, third)] == [False, False, False]
    for place in places:
        store64(place, 8)
    assert [owner.word(page) for page in range(PAGES)] == [0] * PAGES
    assert owner.arena.held_pages == 4


def test_pages_are_not_given_out_before_the_peer_has_left(owner, peer):
    place = peer.enter(pages=2)
    owner.directory.withdraw_region(KEY)
    owner.arena.free(owner.first, PAGES)
    with pytest.raises(OSError, match="not allocated"):
        owner.arena.free(owner.first, 1)
    store64(place, 1)
    assert owner.arena.allocate(PAGES) == owner.first + 2
    peer.path.leave()
    owner.directory.settle()
    assert not owner.directory.holds
    assert owner.arena.allocate(2) == owner.first
    assert bytes_at(owner.address(), 2 * PAGE_BYTES) == bytes(2 * PAGE_BYTES)
    assert owner.arena.shares(owner.first * PAGE_BYTES, PAGES * PAGE_BYTES)
    owner.grant(KEY, 0, 2)
    store64(peer.enter(), 4)
    assert owner.word() == 4


def test_pages_of_one_that_has_left_stay_the_owner_s_alone_until_they_are_freed(owner, peer):
    peer.enter()
    owner.put(1)
    owner.directory.withdraw_region(KEY)
    peer.path.leave()
    owner.directory.settle()
    assert owner.arena.allocate(1) == owner.first + PAGES  # what was settled is looked at
    assert owner.word() == 1
    assert load64(address_of(peer.arena) + owner.first * PAGE_BYTES) == 0
    assert not owner.arena.shares(owner.first * PAGE_BYTES, 1)
    owner.arena.free(owner.first, PAGES)
    assert owner.arena.allocate(PAGES) == owner.first
    assert owner.arena.shares(owner.first * PAGE_BYTES, PAGES * PAGE_BYTES)


def test_pages_held_for_two_are_given_out_when_both_have_left(owner, peer):
    second = Peer(owner, SECOND)
    for each in (peer, second):
        each.enter()
    owner.directory.withdraw_region(KEY)
    owner.arena.free(owner.first, PAGES)
    for each in (peer, second):
        assert owner.arena.allocate(1) != owner.first
        each.path.leave()
        owner.directory.settle()
    assert owner.arena.allocate(1) == owner.first


def test_one_that_has_ended_holds_nothing(owner, peer):
    peer.enter()
    owner.directory.withdraw_region(KEY)
    owner.directory.settle(peer.reader)
    assert owner.arena.held_pages == 0


def test_one_that_ended_as_it_wrote_is_not_waited_for(owner, peer):
    peer.enter()
    peer.alive = False
    owner.directory.withdraw_region(KEY)
    assert (owner.paused, owner.arena.held_pages) == (0, 0)


def test_one_that_does_not_go_on_is_waited_for_once(owner, peer):
    owner.grant(OTHER, 2, 1)
    peer.enter()
    owner.directory.withdraw_region(KEY)
    assert owner.paused == 1
    owner.directory.withdraw_region(OTHER)
    assert owner.paused == 1
    peer.path.leave()
    owner.grant(OTHER, 2, 1)
    peer.enter(OTHER, 2)
    owner.pauses = [peer.path.leave]
    owner.directory.withdraw_region(OTHER)
    assert (owner.pauses, owner.arena.held_pages) == ([], 1)


def test_a_queue_pair_s_change_takes_away_what_its_peer_claims(owner, peer):
    second = Peer(owner, SECOND)
    owner.directory.grant_queue_pair(40, FIRST, 50, WRITE, 0xFFFF, PD)
    places = [peer.enter(), second.enter(page=4)]
    owner.directory.withdraw_queue_pair(40)
    assert [each.path.unchanged_for(WRITE) for each in (peer, second)] == [False, True]
    for place in places:
        store64(place, 3)
    assert (owner.word(), owner.word(4)) == (0, 3)


def test_a_closed_gate_takes_every_claim_away(owner, peer):
    place = peer.enter()
    owner.directory.set_gate(False)
    store64(place, 3)
    assert owner.word() == 0


def test_what_struck_a_withdrawal_is_done_again(owner, peer):
    def strike():
        raise KeyboardInterrupt

    place = peer.enter()
    owner.pauses = [strike]
    with pytest.raises(KeyboardInterrupt):
        owner.directory.withdraw_region(KEY)
    owner.directory.withdraw_region(KEY)
    store64(place, 3)
    assert owner.word() == 0
    owner.directory.withdraw_region(KEY)  # that is all
    peer.path.leave()
    assert owner.grant()


def test_what_struck_while_pages_were_exchanged_is_done_by_the_next(owner, peer, monkeypatch):
    def strike(first, pages):
        monkeypatch.undo()
        raise KeyboardInterrupt

    place = peer.enter()
    monkeypatch.setattr(owner.arena, "replace", strike)
    with pytest.raises(KeyboardInterrupt):
        owner.directory.withdraw_region(KEY)
    owner.directory.set_gate(False)
    store64(place, 3)
    assert owner.word() == 0


def test_without_memory_for_other_pages_the_peer_is_waited_for(owner, peer, monkeypatch):
    place = peer.enter()
    monkeypatch.setattr(owner.arena, "replace", lambda first, pages: -12)
    order = []

    def go_on():
        if owner.paused == 3:
            store64(place, 3)
            order.append(peer.path.unchanged_for(WRITE))
            peer.path.leave()

    owner.pauses = [lambda: None, go_on, go_on, go_on]
    monkeypatch.setattr(peer.reader, "synchronize", lambda epoch, pause: False)
    owner.directory.withdraw_region(KEY)
    assert order == [False]
    assert not owner.directory.holds  # what was not exchanged is not held
    owner.directory.settle()
    assert (owner.arena.allocate(1), owner.arena.held_pages) == (owner.first + PAGES, 0)
    assert owner.word() == 3


def test_memory_outside_of_the_arenas_is_taken_away_by_its_description(owner, peer):
    owner.directory.grant_region(OTHER, 0, 64, WRITE, PD, layout.FOREIGN_ARENA, 0x7000)
    place = peer.path
    assert place.enter()
    address = place.place(OTHER, PD, 0, 64, WRITE)
    target = place.aim(address, 64)
    assert (load64(target), load64(target + 8)) == (0x7000, 64)
    assert place.claim(address, 64)
    owner.directory.withdraw_region(KEY)
    assert load64(target + 8) == 64
    owner.in_call = [True, True, False]  # so often it is seen on its way
    owner.directory.withdraw_region(OTHER)
    assert load64(target + 8) == 0
    assert owner.in_call == []
    assert not place.unchanged_for(WRITE)


def test_other_memory_outside_of_the_arenas_stays_granted(owner, peer):
    for key, address in ((OTHER, 0x7000), (OTHER + 1, 0x9000)):
        owner.directory.grant_region(key, 0, 64, WRITE, PD, layout.FOREIGN_ARENA, address)
    assert peer.path.enter()
    address = peer.path.place(OTHER, PD, 0, 64, WRITE)
    peer.path.aim(address, 64)
    assert peer.path.claim(address, 64)
    owner.directory.withdraw_region(OTHER)
    assert not peer.path.unchanged_for(WRITE)
    peer.path.leave()
    assert peer.path.enter()
    assert peer.path.place(OTHER, PD, 0, 64, WRITE) == 0
    assert peer.path.place(OTHER + 1, PD, 0, 64, WRITE) == 0x9000
    peer.path.leave()


def test_regions_on_pages_that_were_exchanged_leave_their_places_to_others(owner, peer):
    first = layout.first_place(KEY)
    same = [key for key in range(1, 1 << 22) if layout.first_place(key) == first and key != KEY]
    ours, theirs = same[: layout.PROBES - 1], same[layout.PROBES - 1 : 2 * layout.PROBES - 1]
    assert all(owner.grant(key, 0, 1) for key in ours)
    assert not owner.grant(theirs[0])
    peer.enter()
    owner.directory.withdraw_region(KEY)
    assert all(owner.grant(key, 4, 1) for key in theirs)


def test_pages_are_those_of_the_region_s_place_not_of_its_address(owner, peer):
    place = owner.first * PAGE_BYTES
    for key, va, page in ((OTHER, 1 << 40, 2), (OTHER + 1, 2 * PAGE_BYTES, 5)):
        owner.directory.grant_region(key, va, PAGE_BYTES, WRITE, PD, 1, place + page * PAGE_BYTES)
    assert peer.path.enter()
    address = peer.path.place(OTHER, PD, 1 << 40, PAGE_BYTES, WRITE)
    assert peer.path.claim(address, PAGE_BYTES)
    owner.directory.withdraw_region(OTHER + 1)
    assert peer.path.unchanged_for(WRITE)
    owner.directory.withdraw_region(OTHER)
    assert not peer.path.unchanged_for(WRITE)
    store64(address, 9)
    assert owner.word(2) == 0


@pytest.mark.parametrize("claim", [
    layout.FOREIGN_CLAIM - 1, 1 << 37 | (SLOT_BYTES // PAGE_BYTES - 1) << 9 | 2, 1 << 37 | 511, 9 << 37 | 1,
    0,
])  # fmt: skip
def test_a_claim_that_cannot_be_harms_nobody(owner, peer, claim):
    peer.enter()
    store64(peer.reader.address + layout.CLAIM, claim)
    owner.directory.set_gate(False)
    assert owner.arena.held_pages in (0, 511)


def test_only_its_owner_can_write_a_directory(owner):
    directory = owner.directory
    with pytest.raises(PermissionError):
        mmap.mmap(directory.fd, layout.DIRECTORY_BYTES)
    with pytest.raises(PermissionError):
        os.pwrite(directory.fd, b"x", layout.GATE)
    again = os.open(f"/proc/self/fd/{directory.fd}", os.O_RDWR)
    try:
        with pytest.raises(PermissionError):
            mmap.mmap(again, layout.DIRECTORY_BYTES)
    finally:
        os.close(again)
    with pytest.raises(PermissionError):
        fcntl.fcntl(directory.fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_WRITE)
    seen = layout.map_sealed(directory.fd, layout.DIRECTORY_BYTES, False)
    directory.set_gate(False)
    assert load64(address_of(seen, writable=False) + layout.GATE) == 0
    seen.close()


def test_who_reads_a_directory_wants_it_sealed():
    fd = layout.make_sealed("test", 8192)
    try:
        with pytest.raises(OSError, match="no sealed memory"):
            layout.map_sealed(fd, 8192, False)
    finally:
        os.close(fd)


def test_an_arena_ends_with_its_last_byte():
    arena = SharedArena(SLOT_BYTES)
    for start, length, inside in (
        (0, SLOT_BYTES, True), (0, SLOT_BYTES + 1, False), (SLOT_BYTES - 8, 8, True),
        (SLOT_BYTES - 8, 9, False), (-1, 4, False),
    ):  # fmt: skip
        assert arena.holds(arena.base + start, length) is inside
    arena.close()


def test_a_range_is_shared_up_to_the_page_that_is_not():
    arena = SharedArena(SLOT_BYTES)
    arena.allocate(3)
    assert arena.replace(1, 1) == 0
    for place, length, shared in (
        (0, PAGE_BYTES, True), (0, PAGE_BYTES + 1, False), (PAGE_BYTES, 1, False),
        (2 * PAGE_BYTES - 1, 1, False), (2 * PAGE_BYTES, PAGE_BYTES, True),
    ):  # fmt: skip
        assert arena.shares(place, length) is shared
    arena.settle(1, 1)
    arena.close()


def test_an_arena_gives_all_back_that_was_ever_used(monkeypatch):
    arena, retired = SharedArena(SLOT_BYTES), []
    first = arena.allocate(4)
    arena.free(first, 4)
    assert arena.allocate(1) == first
    monkeypatch.setattr(arena._mapping, "retire", retired.append)
    arena.close()
    assert retired == [4]
