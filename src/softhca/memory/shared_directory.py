"""The owner's side of what peers on one host may do without asking: grants, and their withdrawal.

An owner *grants* a region or a queue pair by an entry of the directory.  A peer that wants to touch memory
enters (the epoch of its reader becomes odd, with a full barrier), looks the entries up, claims what it writes
to, copies, and leaves (the epoch becomes even).  To *withdraw*, the owner empties the entry, counts that,
lets a full barrier pass and waits for every reader whose epoch was odd to change it.  One of the two must see
the other: a peer that entered before the barrier is waited for, one that enters later finds no entry.

It waits for a while only.  Who is inside still may be stopped: behind a barrier on all processors its claim
is seen, or it will see the count before it writes.  A claim on what is withdrawn is *revoked*: other pages
come under the owner's addresses, and the peer's copy changes nothing that anybody reads; the regions that
stand on the old pages lose their entries too.  So when a withdrawal returns nobody can change what it
withdrew, and a place is used again only then.
"""

from __future__ import annotations

import contextlib
import mmap
import os
from array import array
from collections.abc import Callable
from typing import NamedTuple

from softhca.machine.primitives import address_of, atomic_add64, barrier_everywhere, load64, store64
from softhca.memory.shared_arena import SharedArena
from softhca.memory.shared_layout import (
    CHANGES,
    CLAIM,
    DIRECTORY_BYTES,
    ENTRY_BYTES,
    GATE,
    MAGIC,
    PROBES,
    QUEUE_PAIRS,
    QUEUE_PAIRS_AT,
    READER_BYTES,
    REGIONS,
    REGIONS_AT,
    REVOKED,
    TARGET_LENGTH,
    TARGET_THREAD,
    VALID_ENTRY,
    Claim,
    first_place,
    make_owned,
    make_sealed,
)

CLAIM_READS = 1000
NO_CLAIM = Claim(0, 0, 0)
Pause = Callable[[], bool]
"""Lets others run for a moment; False: that was long enough."""


def without_waiting() -> Pause:
    """Of who does not wait."""
    return lambda: False


class Reader:
    """The epoch and the claim of one peer, in a file that it writes.  ``fd`` goes to it.  ``is_alive`` says
    whether it still runs, ``may_be_writing`` whether its thread of that number may be within a call that
    writes to this process's own memory.  ``gid`` is the peer's.
    """

    def __init__(
        self,
        is_alive: Callable[[], bool],
        gid: bytes = b"",
        may_be_writing: Callable[[int], bool] = lambda thread: True,
    ) -> None:
        self.fd = make_sealed("softhca-reader", READER_BYTES)
        try:
            self._mapping = mmap.mmap(self.fd, READER_BYTES)
        except BaseException:
            os.close(self.fd)
            raise
        self.address = address_of(self._mapping)
        self.gid = gid
        self._is_alive = is_alive
        self._may_be_writing = may_be_writing
        self._waited_for = 0
        self._revoked_epoch = 0  # the peer could change what stands in the file

    def epoch(self) -> int:
        """Odd while the peer is inside."""
        return load64(self.address)

    def is_inside(self, epoch: int) -> bool:
        """Whether the peer is where it was in an odd ``epoch``, and lives."""
        return load64(self.address) == epoch and self._is_alive()

    def synchronize(self, epoch: int, pause: Pause) -> bool:
        """Wait until the peer is not inside any more as it was in an odd ``epoch``; False where that was
        too long, now or before."""
        while self.is_inside(epoch):
            if self._waited_for == epoch:
                return False
            if not pause():
                self._waited_for = epoch
        return True

    def claim(self) -> tuple[int, Claim]:
        """The epoch, and what the peer may be writing to in it; no pages where it is outside, or the
        owner has revoked that already."""
        epoch, word = load64(self.address), 0
        for _ in range(CLAIM_READS):  # the two belong together where the epoch has not changed
            word = load64(self.address + CLAIM)
            if epoch == (epoch := load64(self.address)):
                break
        if not epoch & 1 or self._revoked_epoch == epoch:
            return epoch, NO_CLAIM
        return epoch, Claim.of(word)

    def revoke(self, epoch: int) -> None:
        """The peer's claim of this epoch does not count any more, and the peer sees that."""
        self._revoked_epoch = epoch
        store64(self.address + REVOKED, epoch)
        store64(self.address + TARGET_LENGTH, 0)

    def end_call(self, epoch: int, pause: Pause) -> None:
        """After `revoke` of memory outside of the arenas: return when no call that began before is under
        way any more."""
        while self.is_inside(epoch) and self._may_be_writing(load64(self.address + TARGET_THREAD)):
            pause()

    def close(self) -> None:
        """Let the descriptor go."""
        os.close(self.fd)
        with contextlib.suppress(BufferError):
            self._mapping.close()


class _Table:
    """Entries of one kind at ``address``, ``count`` of them (a power of two), by number."""

    def __init__(self, address: int, count: int) -> None:
        self._address = address
        self._count = count
        self._places: dict[int, int] = {}
        self._taken: set[int] = set()
        self._words: dict[int, tuple[int, ...]] = {}
        self._leaving: set[int] = set()

    def words(self, number: int) -> tuple[int, ...] | None:
        """What the entry of ``number`` says, or said until it was emptied; None where there is none."""
        return self._words.get(number)

    def items(self) -> list[tuple[int, tuple[int, ...]]]:
        """Numbers and words of all entries that are not empty."""
        return [(number, words) for number, words in self._words.items() if number not in self._leaving]

    def put(self, number: int, words: tuple[int, ...]) -> bool:
        """Make the entry of ``number``, which has none; False where no place is free that is looked at."""
        first = first_place(number)
        for probe in range(PROBES):
            place = (first + probe) % self._count
            if place not in self._taken:
                break
        else:
            return False
        entry = self._address + place * ENTRY_BYTES
        for i, word in enumerate(words, 1):
            store64(entry + 8 * i, word)
        self._places[number], self._words[number] = place, words
        self._taken.add(place)
        store64(entry, number | VALID_ENTRY)
        return True

    def is_leaving(self, number: int) -> bool:
        """Whether the entry of ``number`` has been emptied, but its place not given back."""
        return number in self._leaving

    def empty(self, number: int) -> None:
        """Take the entry of ``number`` away from who looks; its place stays taken."""
        self._leaving.add(number)
        store64(self._address + self._places[number] * ENTRY_BYTES, 0)

    def give_back(self, number: int) -> None:
        """The place of an emptied entry may be used again: nobody looks at it any more."""
        self._taken.discard(self._places.pop(number))
        del self._words[number]
        self._leaving.discard(number)


class _Held(NamedTuple):
    """Pages that a peer may still write to until it leaves, in this epoch."""

    reader: Reader
    epoch: int
    arena: SharedArena
    claim: Claim


def _range_of(words: tuple[int, ...]) -> Claim:
    """The pages of a region's entry."""
    _, length, _, arena, place = words
    return Claim.over(arena, place, length)


def _any_claim(claim: Claim) -> bool:
    return claim.pages > 0


class Directory:
    """What one adapter grants, and the readers of those that may look it up.  One thread at a time.

    ``arenas``: number → memory that peers map.  ``pauses`` gives, for each withdrawal, what is called
    while it waits.
    """

    def __init__(self, pauses: Callable[[], Pause] = without_waiting) -> None:
        self.fd, self._mapping = make_owned("softhca-directory", DIRECTORY_BYTES)
        self.address = address_of(self._mapping)
        self._regions = _Table(self.address + REGIONS_AT, REGIONS)
        self._queue_pairs = _Table(self.address + QUEUE_PAIRS_AT, QUEUE_PAIRS)
        self._fence = array("Q", [0])
        self._pauses = pauses
        self.readers: set[Reader] = set()
        self.arenas: dict[int, SharedArena] = {}
        self._revoked: list[tuple[Reader, int, Claim]] = []
        self._held: list[_Held] = []
        store64(self.address, MAGIC)
        store64(self.address + GATE, 1)

    def grant_region(
        self, key: int, va: int, length: int, access: int, pd: int, arena: int, place: int
    ) -> bool:
        """Let peers use a key that has no entry; False where there is no room for it."""
        return self._regions.put(key, (va, length, access | pd << 32, arena, place))

    def withdraw_region(self, key: int) -> None:
        """End what `grant_region` began; nobody can touch what it granted when this returns."""
        words = self._regions.words(key)
        if words is not None:
            self._withdraw(self._regions, key, _range_of(words).meets)

    def grant_queue_pair(
        self, number: int, peer_gid: bytes, peer: int, operations: int, pkey: int, pd: int
    ) -> bool:
        """Let a peer that has ``peer_gid`` and ``peer`` carry ``operations`` (rights) out for a queue
        pair; what was granted before is withdrawn first.  False where there is no room for it.
        """
        high, low = int.from_bytes(peer_gid[:8], "big"), int.from_bytes(peer_gid[8:], "big")
        words = (high, low, peer, operations | pkey << 16 | pd << 32)
        if self._queue_pairs.words(number) == words and not self._queue_pairs.is_leaving(number):
            return True
        self.withdraw_queue_pair(number)
        return self._queue_pairs.put(number, words)

    def withdraw_queue_pair(self, number: int) -> None:
        """End what `grant_queue_pair` began; nobody touches anything for it when this returns."""
        words = self._queue_pairs.words(number)
        if words is not None:
            peer = words[0].to_bytes(8, "big") + words[1].to_bytes(8, "big")
            self._withdraw(self._queue_pairs, number, _any_claim, peer)

    def set_gate(self, open: bool) -> None:
        """Let peers touch registered memory, or not; closed, none does when this returns."""
        store64(self.address + GATE, int(open))
        if not open:
            self.quiesce()

    def quiesce(self, concerns: Callable[[Claim], bool] = _any_claim, peer: bytes = b"") -> None:
        """Wait for every peer that is inside now (only for the one with the GID ``peer``, where that is
        said), a while.  Of those that are inside still, revoke the claims that it ``concerns``.
        """
        if self._revoked:
            self._exchange()
        self._count()
        atomic_add64(address_of(self._fence), 1)  # a full barrier
        inside = [(reader, epoch) for reader in self.readers if (epoch := reader.epoch()) & 1]
        if peer:
            inside = [(reader, epoch) for reader, epoch in inside if reader.gid in (b"", peer)]
        if inside:
            pause = self._pauses()
            inside = [(reader, epoch) for reader, epoch in inside if not reader.synchronize(epoch, pause)]
        if inside:
            barrier_everywhere()
            self._revoke([reader for reader, _ in inside if concerns(reader.claim()[1])])

    def _count(self) -> None:
        """Let peers see that something was withdrawn."""
        store64(self.address + CHANGES, load64(self.address + CHANGES) + 1)

    def _revoke(self, readers: list[Reader]) -> None:
        """Revoke the claims of ``readers``, and of whoever claims pages that go with them.

        First it is made sure that nobody claims such pages any more but who is known: then the claim of
        each is revoked, and only then pages are exchanged.  What was copied before that is kept, and
        who copies later sees that it does not count.
        """
        known: dict[tuple[Reader, int], Claim] = {}
        emptied: list[int] = []
        while readers:
            reader = readers.pop()
            epoch, claim = reader.claim()
            if (reader, epoch) in known or not claim.pages:
                continue
            known[reader, epoch] = claim
            if claim.foreign:
                continue
            keys = [key for key, words in self._regions.items() if _range_of(words).meets(claim)]
            if keys:
                for key in keys:
                    self._regions.empty(key)
                emptied += keys
                self._count()
                barrier_everywhere()
            for other in self.readers:
                epoch, theirs = other.claim()
                if (other, epoch) not in known and theirs.meets(claim):
                    readers.append(other)
        self._revoked += [(reader, epoch, claim) for (reader, epoch), claim in known.items()]
        self._exchange()
        for key in emptied:
            self._regions.give_back(key)

    def _exchange(self) -> None:
        """Nobody reads any more what is claimed by those whose claims are revoked when this returns.
        Whatever strikes in between, the next one goes on with it."""
        for reader, epoch, _ in self._revoked:
            reader.revoke(epoch)
        # Who has not seen that has nothing left in its store buffer behind this.
        if self._revoked:
            barrier_everywhere()
            atomic_add64(address_of(self._fence), 1)
        while self._revoked:
            reader, epoch, claim = self._revoked[-1]
            pause = self._pauses()
            arena = self.arenas.get(claim.arena)
            if claim.foreign:
                reader.end_call(epoch, pause)
            elif arena is not None and arena.has(claim.first, claim.pages):
                while (refused := arena.replace(claim.first, claim.pages)) and reader.is_inside(epoch):
                    pause()
                if not refused:
                    self._held.append(_Held(reader, epoch, arena, claim))
            self._revoked.pop()

    def settle(self, gone: Reader | None = None) -> None:
        """Have pages given out again whose peer has left, or is ``gone``."""
        for held in list(self._held):
            if held.reader is gone or held.reader.epoch() != held.epoch:
                self._held.remove(held)
                held.arena.settle(held.claim.first, held.claim.pages)

    @property
    def holds(self) -> bool:
        """Whether there is anything to `settle`."""
        return bool(self._held)

    def _withdraw(
        self, table: _Table, number: int, concerns: Callable[[Claim], bool], peer: bytes = b""
    ) -> None:
        """Whatever strikes in between, the place stays taken and a second call does it all again."""
        table.empty(number)
        self.quiesce(concerns, peer)
        table.give_back(number)

    def close(self) -> None:
        """Close the gate and let the descriptors go."""
        self.set_gate(False)
        for reader in self.readers:
            reader.close()
        self.readers.clear()
        os.close(self.fd)
        with contextlib.suppress(BufferError):
            self._mapping.close()
