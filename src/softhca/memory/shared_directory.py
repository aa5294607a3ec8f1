"""The owner's side of what neighbours on one host may do without asking: grants, and their withdrawal.

An owner *grants* a region or a queue pair by an entry of the directory.  A neighbour that wants to touch
memory enters its lane (its turn becomes odd, with a full barrier), looks the entries up, claims what it
writes to, copies, and leaves (the turn becomes even).  To *withdraw*, the owner empties the entry, counts
that, lets a full barrier pass and waits for every lane whose turn was odd to change it.  One of the two must
see the other: a neighbour that entered before the barrier is waited for, one that enters later finds no
entry.

It waits for a while only.  Who is inside still may be stopped: behind a barrier on all processors its claim
is seen, or it will see the count before it writes.  A claim on what is withdrawn is *taken away*: other pages
come under the owner's addresses, and the neighbour's copy changes nothing that anybody reads; the regions
that stand on the old pages lose their entries too.  So when a withdrawal returns nobody can change what it
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
    LANE_BYTES,
    MAGIC,
    PROBES,
    QUEUE_PAIRS,
    QUEUE_PAIRS_AT,
    REGIONS,
    REGIONS_AT,
    TAKEN_AWAY,
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


def no_patience() -> Pause:
    """Of who does not wait."""
    return lambda: False


class Lane:
    """One neighbour's way in.  ``fd`` goes to it.  ``is_alive`` tells whether it still runs,
    ``may_be_writing`` whether its thread of that number may be within a call that writes to this process's
    own memory.  ``gid`` is the neighbour's.
    """

    def __init__(
        self,
        is_alive: Callable[[], bool],
        gid: bytes = b"",
        may_be_writing: Callable[[int], bool] = lambda thread: True,
    ) -> None:
        self.fd = make_sealed("softhca-lane", LANE_BYTES)
        try:
            self._mapping = mmap.mmap(self.fd, LANE_BYTES)
        except BaseException:
            os.close(self.fd)
            raise
        self.address = address_of(self._mapping)
        self.gid = gid
        self._is_alive = is_alive
        self._may_be_writing = may_be_writing
        self._waited_for = 0

    def turn(self) -> int:
        """Odd while the neighbour is inside."""
        return load64(self.address)

    def is_inside(self, turn: int) -> bool:
        """Whether the neighbour is where it was in an odd ``turn``, and lives."""
        return load64(self.address) == turn and self._is_alive()

    def wait_out(self, turn: int, pause: Pause) -> bool:
        """Wait until the neighbour is not inside any more as it was in an odd ``turn``; False where that was
        too long, now or before."""
        while self.is_inside(turn):
            if self._waited_for == turn:
                return False
            if not pause():
                self._waited_for = turn
        return True

    def claim(self) -> tuple[int, Claim]:
        """The turn, and what the neighbour may be writing to in it; no pages where it is outside, or the
        owner has taken that away already."""
        turn, word = load64(self.address), 0
        for _ in range(CLAIM_READS):  # the two belong together where the turn has not changed
            word = load64(self.address + CLAIM)
            if turn == (turn := load64(self.address)):
                break
        if not turn & 1 or load64(self.address + TAKEN_AWAY) == turn:
            return turn, NO_CLAIM
        return turn, Claim.of(word)

    def take_away(self, turn: int) -> None:
        """What the neighbour claims in this turn is lost to it; what is in its own hands it sees."""
        store64(self.address + TAKEN_AWAY, turn)
        store64(self.address + TARGET_LENGTH, 0)

    def end_call(self, turn: int, pause: Pause) -> None:
        """Behind `take_away` of memory outside of the arenas: return when no call that began before is under
        way any more."""
        while self.is_inside(turn) and self._may_be_writing(load64(self.address + TARGET_THREAD)):
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
    """Pages that a neighbour may still write to until its lane leaves this turn."""

    lane: Lane
    turn: int
    arena: SharedArena
    claim: Claim


def _range_of(words: tuple[int, ...]) -> Claim:
    """The pages of a region's entry."""
    _, length, _, arena, place = words
    return Claim.over(arena, place, length)


def _any_claim(claim: Claim) -> bool:
    return claim.pages > 0


class Directory:
    """What one adapter grants, and the lanes of those that may look.  One thread at a time.

    ``arenas``: number → memory that neighbours map.  ``patience`` gives, for each withdrawal, what is called
    while it waits.
    """

    def __init__(self, patience: Callable[[], Pause] = no_patience) -> None:
        self.fd, self._mapping = make_owned("softhca-directory", DIRECTORY_BYTES)
        self.address = address_of(self._mapping)
        self._regions = _Table(self.address + REGIONS_AT, REGIONS)
        self._queue_pairs = _Table(self.address + QUEUE_PAIRS_AT, QUEUE_PAIRS)
        self._fence = array("Q", [0])
        self._patience = patience
        self.lanes: set[Lane] = set()
        self.arenas: dict[int, SharedArena] = {}
        self._owed: list[tuple[Lane, int, Claim]] = []
        self._held: list[_Held] = []
        store64(self.address, MAGIC)
        store64(self.address + GATE, 1)

    def grant_region(
        self, key: int, va: int, length: int, access: int, pd: int, arena: int, place: int
    ) -> bool:
        """Let neighbours use a key that has no entry; False where there is no room for it."""
        return self._regions.put(key, (va, length, access | pd << 32, arena, place))

    def withdraw_region(self, key: int) -> None:
        """End what `grant_region` began; nobody can touch what it granted when this returns."""
        words = self._regions.words(key)
        if words is not None:
            self._withdraw(self._regions, key, _range_of(words).meets)

    def grant_queue_pair(
        self, number: int, peer_gid: bytes, peer: int, operations: int, pkey: int, pd: int
    ) -> bool:
        """Let a neighbour that has ``peer_gid`` and ``peer`` carry ``operations`` (rights) out for a queue
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
        """Let neighbours touch registered memory, or not; closed, none does when this returns."""
        store64(self.address + GATE, int(open))
        if not open:
            self.quiesce()

    def quiesce(self, concerns: Callable[[Claim], bool] = _any_claim, peer: bytes = b"") -> None:
        """Wait for every neighbour that is inside now (only for the one with the GID ``peer``, where that is
        said), a while.  From those that are inside still take away what ``concerns`` says of their claims.
        """
        if self._owed:
            self._exchange()
        self._count()
        atomic_add64(address_of(self._fence), 1)  # a full barrier
        inside = [(lane, turn) for lane in self.lanes if (turn := lane.turn()) & 1]
        if peer:
            inside = [(lane, turn) for lane, turn in inside if lane.gid in (b"", peer)]
        if inside:
            pause = self._patience()
            inside = [(lane, turn) for lane, turn in inside if not lane.wait_out(turn, pause)]
        if inside:
            barrier_everywhere()
            self._take_away([lane for lane, _ in inside if concerns(lane.claim()[1])])

    def _count(self) -> None:
        """Let neighbours see that something was withdrawn."""
        store64(self.address + CHANGES, load64(self.address + CHANGES) + 1)

    def _take_away(self, lanes: list[Lane]) -> None:
        """Take their claims away from ``lanes``, and from whoever claims pages that go with them.

        First it is made sure that nobody claims such pages any more but who is known: then each is told that
        its claim does not count, and only then pages are exchanged.  What was copied before that is kept, and
        who copies later sees that it does not count.
        """
        known: dict[tuple[Lane, int], Claim] = {}
        emptied: list[int] = []
        while lanes:
            lane = lanes.pop()
            turn, claim = lane.claim()
            if (lane, turn) in known or not claim.pages:
                continue
            known[lane, turn] = claim
            if claim.foreign:
                continue
            keys = [key for key, words in self._regions.items() if _range_of(words).meets(claim)]
            if keys:
                for key in keys:
                    self._regions.empty(key)
                emptied += keys
                self._count()
                barrier_everywhere()
            for other in self.lanes:
                turn, theirs = other.claim()
                if (other, turn) not in known and theirs.meets(claim):
                    lanes.append(other)
        self._owed += [(lane, turn, claim) for (lane, turn), claim in known.items()]
        self._exchange()
        for key in emptied:
            self._regions.give_back(key)

    def _exchange(self) -> None:
        """Nobody reads any more what is claimed by those from whom it is taken away when this returns.
        Whatever strikes in between, the next one goes on with it."""
        for lane, turn, _ in self._owed:
            lane.take_away(turn)
        # Who has not seen that has nothing left in its store buffer behind this.
        if self._owed:
            barrier_everywhere()
            atomic_add64(address_of(self._fence), 1)
        while self._owed:
            lane, turn, claim = self._owed[-1]
            pause = self._patience()
            arena = self.arenas.get(claim.arena)
            if claim.foreign:
                lane.end_call(turn, pause)
            elif arena is not None and arena.has(claim.first, claim.pages):
                while (refused := arena.replace(claim.first, claim.pages)) and lane.is_inside(turn):
                    pause()
                if not refused:
                    self._held.append(_Held(lane, turn, arena, claim))
            self._owed.pop()

    def settle(self, gone: Lane | None = None) -> None:
        """Have pages given out again whose neighbour has left its lane, or is ``gone``."""
        for held in list(self._held):
            if held.lane is gone or held.lane.turn() != held.turn:
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
        for lane in self.lanes:
            lane.close()
        self.lanes.clear()
        os.close(self.fd)
        with contextlib.suppress(BufferError):
            self._mapping.close()
