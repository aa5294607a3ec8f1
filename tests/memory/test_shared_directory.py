"""What peers on one host may look up, and that a withdrawal lets none of them stay inside."""

import mmap
import os

import pytest

from softhca.machine.primitives import address_of, load64, store64
from softhca.memory import shared_directory
from softhca.memory import shared_layout as layout
from softhca.memory.shared_directory import Directory, Reader
from softhca.memory.shared_path import SharedPath

OWN = bytes(range(16))
PEER = bytes(range(16, 32))
WRITE, READ = 2, 4
BASE, ARENA_BYTES = 1 << 40, 1 << 20


class Shared:
    """A directory, one reader, and that one's path; ``pauses`` are called, one by one, while it
    is waited for; then it is waited no longer."""

    def __init__(self):
        self.alive, self.pauses = True, []
        self.directory = Directory(lambda: self.pause)
        self.reader = Reader(lambda: self.alive, OWN)
        self.directory.readers.add(self.reader)
        self.seen = mmap.mmap(self.directory.fd, layout.DIRECTORY_BYTES, mmap.MAP_SHARED, mmap.PROT_READ)
        self.path = SharedPath(PEER, OWN)
        self.path.open(address_of(self.seen, writable=False), self.reader.address, 0, None)
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
def sharing():
    made = Shared()
    made.directory.grant_region(0x1234, 4096, 8192, WRITE, 7, 1, 512)
    yield made
    made.directory.close()


def test_a_granted_range_is_found_where_it_is_mapped(sharing):
    assert sharing.place() == BASE + 512
    assert sharing.place(va=4096 + 8176, n=16) == BASE + 512 + 8176


@pytest.mark.parametrize("wrong", [
    {"key": 0x1235}, {"pd": 8}, {"access": READ}, {"access": WRITE | READ}, {"va": 4095},
    {"va": 4096 + 8177}, {"n": 8193}, {"va": 0}, {"va": (1 << 64) - 8, "n": 16},
])  # fmt: skip
def test_what_was_not_granted_is_no_place(sharing, wrong):
    assert sharing.place(**wrong) == 0


@pytest.mark.parametrize(("arena", "place", "length"), [
    (2, 0, 16), (1, ARENA_BYTES - 8, 16), (1, ARENA_BYTES + 1, 16), (1, (1 << 64) - 8, 16),
    (1, 0, ARENA_BYTES + 1),
])  # fmt: skip
def test_a_place_outside_of_what_is_mapped_is_no_place(sharing, arena, place, length):
    sharing.directory.grant_region(9, 0, length, WRITE, 7, arena, place)
    assert sharing.place(key=9, va=0, n=length) == 0


def test_an_arena_that_went_is_no_place(sharing):
    assert sharing.place() == BASE + 512
    sharing.path.set_arena(1, 0, 0)
    assert sharing.place() == 0


@pytest.mark.parametrize(("pid", "found"), [(0, 0x7000), (-1, 0)])
def test_memory_outside_the_arenas_is_reached_in_the_own_process_only(sharing, pid, found):
    sharing.directory.grant_region(9, 0, 64, WRITE, 7, layout.FOREIGN_ARENA, 0x7000)
    sharing.path.pid = pid
    assert sharing.place(key=9, va=0) == found
    assert not (found and sharing.path.foreign)


def test_keys_of_one_place_are_told_apart_until_there_is_no_room(sharing):
    first = layout.first_place(5)
    same = [key for key in range(5, 1 << 22) if layout.first_place(key) == first][: layout.PROBES + 1]
    granted = [sharing.directory.grant_region(key, 0, 64, WRITE, 7, 1, key) for key in same]
    assert granted == [True] * layout.PROBES + [False]
    found = [sharing.place(key=key, va=0) for key in same]
    assert found == [BASE + key for key in same[:-1]] + [0]
    sharing.directory.withdraw_region(same[0])
    assert sharing.directory.grant_region(same[-1], 0, 64, WRITE, 7, 1, same[-1])
    assert sharing.place(key=same[0], va=0) == 0
    assert sharing.place(key=same[-1], va=0) == BASE + same[-1]


def test_a_withdrawal_waits_until_who_is_inside_has_left(sharing):
    order = []
    assert sharing.path.enter()
    sharing.pauses = [
        lambda: order.append("waited"),
        lambda: (order.append("left"), sharing.path.leave()),
    ]
    sharing.directory.withdraw_region(0x1234)
    order.append("withdrawn")
    assert order == ["waited", "left", "withdrawn"]
    assert sharing.place() == 0


def test_while_a_withdrawal_waits_the_entry_is_gone_and_its_place_not_used_again(sharing):
    first = layout.first_place(0x1234)
    entry = sharing.directory.address + layout.REGIONS_AT + first * layout.ENTRY_BYTES
    found = []

    def during():
        other = next(k for k in range(1, 1 << 20) if layout.first_place(k) == first and k != 0x1234)
        found.append((load64(entry), sharing.directory.grant_region(other, 0, 64, WRITE, 7, 1, 0)))
        found.append(load64(entry))
        sharing.path.leave()

    assert sharing.path.enter()
    sharing.pauses = [during]
    sharing.directory.withdraw_region(0x1234)
    assert found == [(0, True), 0]


def test_a_withdrawal_does_not_wait_for_one_who_is_outside_nor_for_the_dead(sharing):
    sharing.directory.withdraw_region(0x1234)
    assert sharing.path.enter()
    sharing.alive = False
    sharing.directory.grant_region(9, 0, 64, WRITE, 7, 1, 0)
    sharing.directory.withdraw_region(9)
    assert sharing.directory.grant_region(9, 0, 64, WRITE, 7, 1, 0)


def test_a_withdrawal_does_not_wait_for_one_who_left_and_came_again(sharing):
    def again():
        sharing.path.leave()
        assert sharing.path.enter()

    assert sharing.path.enter()
    sharing.pauses = [again]
    sharing.directory.withdraw_region(0x1234)
    assert sharing.pauses == []
    sharing.path.leave()


def test_a_closed_gate_lets_nobody_in_and_waits_for_who_is_inside(sharing):
    assert sharing.path.enter()
    sharing.pauses = [sharing.path.leave]
    sharing.directory.set_gate(False)
    assert sharing.pauses == []
    assert sharing.place() is None
    assert load64(sharing.reader.address) % 2 == 0
    sharing.directory.set_gate(True)
    assert sharing.place() == BASE + 512


def test_a_queue_pair_is_granted_to_one_peer(sharing):
    grant = sharing.directory.grant_queue_pair
    assert grant(40, OWN, 50, WRITE | READ, 0xFFFF, 7)
    path = sharing.path
    assert path.queue_pair(40, 50) == 7 << 32 | 0xFFFF << 16 | WRITE | READ
    assert path.queue_pair(41, 50) == path.queue_pair(40, 51) == 0
    unknown = SharedPath(PEER, OWN[::-1])
    unknown.open(address_of(sharing.seen, writable=False), sharing.reader.address, 0, None)
    assert unknown.queue_pair(40, 50) == 0


def test_a_change_of_a_queue_pair_waits_for_who_uses_it_and_the_same_again_does_not(sharing):
    grant = sharing.directory.grant_queue_pair
    grant(40, OWN, 50, WRITE, 0xFFFF, 7)
    assert sharing.path.enter()
    sharing.pauses = [sharing.path.leave]
    assert grant(40, OWN, 50, WRITE, 0xFFFF, 7)
    assert len(sharing.pauses) == 1  # nothing has changed
    assert grant(40, OWN, 50, READ, 0xFFFF, 7)
    assert sharing.pauses == []
    assert sharing.path.queue_pair(40, 50) & 0xFFFF == READ
    sharing.directory.withdraw_queue_pair(40)
    assert sharing.path.queue_pair(40, 50) == 0


def test_a_path_that_has_ended_lets_nobody_in(sharing):
    sharing.path.close()
    assert not sharing.path.enter()


def test_a_reader_goes_on_where_it_stood(sharing):
    store64(sharing.reader.address, 6)
    sharing.path.open(sharing.path.directory, sharing.reader.address, 0, None)
    assert sharing.path.enter()
    assert load64(sharing.reader.address) == 7
    sharing.path.leave()
    assert load64(sharing.reader.address) == 8


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


def test_the_place_behind_the_last_is_the_first(sharing):
    last = layout.REGIONS - 1
    same = [key for key in range(1, 1 << 22) if layout.first_place(key) == last][:2]
    assert [sharing.directory.grant_region(key, 0, 64, WRITE, 7, 1, key) for key in same] == [True, True]
    assert [sharing.place(key=key, va=0) for key in same] == [BASE + key for key in same]


def test_what_is_granted_again_after_its_withdrawal_is_there(sharing):
    waited = []
    for _ in range(2):
        assert sharing.directory.grant_queue_pair(5, OWN, 6, WRITE, 0xFFFF, 7)
        sharing.directory.withdraw_queue_pair(5)
    assert sharing.directory.grant_queue_pair(5, OWN, 6, WRITE, 0xFFFF, 7)
    assert sharing.path.enter()
    sharing.pauses = [lambda: waited.append("waited")]
    assert sharing.directory.grant_queue_pair(5, OWN, 6, WRITE, 0xFFFF, 7)
    assert not waited
    sharing.path.leave()


def test_a_claim_counts_inside_and_until_it_is_revoked(sharing):
    reader, word = sharing.reader, 1 << 8 | 3
    store64(reader.address + layout.CLAIM, word)
    for epoch, revoked, counts in ((2, 0, False), (3, 0, True), (3, 3, False), (5, 3, True)):
        store64(reader.address, epoch)
        reader.revoke(revoked)
        assert reader.claim() == (epoch, layout.Claim.of(word) if counts else layout.Claim(0, 0, 0))
        assert reader.is_inside(epoch)
        assert not reader.is_inside(epoch - 2)
    sharing.alive = False
    assert not reader.is_inside(5)
    store64(reader.address, 0)


def test_a_claim_stays_revoked_whatever_the_peer_writes_over_the_word_that_says_so(sharing):
    reader = sharing.reader
    store64(reader.address, 3)
    store64(reader.address + layout.CLAIM, 1 << 9 | 1)
    reader.revoke(3)
    store64(reader.address + layout.REVOKED, 0)
    assert reader.claim() == (3, layout.Claim(0, 0, 0))
    store64(reader.address, 0)


def test_each_withdrawal_is_counted_and_waits_for_whom_it_concerns(sharing):
    counted = sharing.directory.address + layout.CHANGES
    before, waited = load64(counted), []
    store64(sharing.reader.address, 2)  # it was inside once
    sharing.pauses = [lambda: waited.append("outside")]
    sharing.directory.quiesce()
    sharing.directory.quiesce()
    assert load64(counted) == before + 2
    store64(sharing.reader.address, 3)
    sharing.pauses = [lambda: waited.append("opened")]
    sharing.directory.set_gate(True)
    sharing.directory.quiesce(peer=PEER)  # another one
    assert not waited
    sharing.reader.gid = b""  # which may be that one
    sharing.pauses = [lambda: (waited.append("unknown"), store64(sharing.reader.address, 4))]
    sharing.directory.quiesce(peer=PEER)
    assert waited == ["unknown"]


def test_an_entry_that_is_being_made_is_found_whole_or_not_at_all(sharing, monkeypatch):
    found = []

    def then_look(address, word):
        store64(address, word)
        found.append(sharing.place(key=9, va=0))

    monkeypatch.setattr(shared_directory, "store64", then_look)
    assert sharing.directory.grant_region(9, 0, 64, WRITE, 7, 1, 1024)
    assert found == [0] * (len(found) - 1) + [BASE + 1024]


def test_a_claim_is_that_of_its_epoch_though_the_peer_goes_on_meanwhile(sharing, monkeypatch):
    reader = sharing.reader
    store64(reader.address, 3)
    store64(reader.address + layout.CLAIM, 1 << 9 | 1)

    def then_go_on(address):
        word = load64(address)
        if address == reader.address and word == 3:  # it leaves, and comes again for something else
            store64(reader.address, 5)
            store64(reader.address + layout.CLAIM, 2 << 9 | 1)
        return word

    monkeypatch.setattr(shared_directory, "load64", then_go_on)
    assert reader.claim() == (5, layout.Claim(0, 2, 1))
    store64(reader.address, 0)


def test_a_call_is_not_waited_for_whose_peer_has_left_or_ended(sharing):
    def pause():
        raise AssertionError("waits")

    store64(sharing.reader.address, 4)
    sharing.reader.end_call(3, pause)
    store64(sharing.reader.address, 3)
    sharing.alive = False
    sharing.reader.end_call(3, pause)
    store64(sharing.reader.address, 0)


def test_a_grant_whose_withdrawal_was_struck_is_made_anew(sharing):
    def strike():
        raise KeyboardInterrupt

    assert sharing.directory.grant_queue_pair(5, OWN, 6, WRITE, 0xFFFF, 7)
    assert sharing.path.enter()
    sharing.pauses = [strike]
    with pytest.raises(KeyboardInterrupt):
        sharing.directory.withdraw_queue_pair(5)
    assert sharing.path.queue_pair(5, 6) == 0
    sharing.path.leave()
    assert sharing.directory.grant_queue_pair(5, OWN, 6, WRITE, 0xFFFF, 7)
    assert sharing.path.queue_pair(5, 6) == 7 << 32 | 0xFFFF << 16 | WRITE


def test_a_barrier_stands_between_a_withdrawal_and_the_look_at_who_is_inside(sharing, monkeypatch):
    order = []

    def told(name, step):
        def call(address, *words):
            if name != "look" or address == sharing.reader.address:
                order.append(name)
            return step(address, *words)

        return call

    monkeypatch.setattr(shared_directory, "store64", told("store", store64))
    monkeypatch.setattr(shared_directory, "load64", told("look", load64))
    monkeypatch.setattr(shared_directory, "atomic_add64", told("barrier", shared_directory.atomic_add64))
    sharing.directory.withdraw_region(0x1234)
    assert order == ["store", "store", "barrier", "look"]


def test_the_gate_of_a_directory_that_has_ended_is_closed():
    sharing = Shared()
    gate = address_of(sharing.seen, writable=False) + layout.GATE
    assert sharing.path.enter()
    sharing.pauses = [sharing.path.leave]
    sharing.directory.close()
    assert (load64(gate), sharing.pauses) == (0, [])
