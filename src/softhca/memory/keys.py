"""Which key comes next: none that can be guessed from another, none that died lately.

A key is 24 bits of index and a low byte.  Were the index the slot, every neighbour of a known key would be
a key too. A four-round Feistel network over two halves of 12 bits, with secret random round functions, is a
bijection that looks random to who does not know them (Luby and Rackoff), and costs four table look-ups.  A
guess of a whole key then hits with probability (live keys) / 2^32.

Slots are counted up: each registration takes the next one, modulo 2^24, however many have ended, so that an
index comes again only when the count has gone round, and then with a low byte from the other half of the
256 than the last time.  A table of slots has fewer places than there are slots: a live slot stands at its
number modulo the places, and a slot whose place is taken is passed over.  As at most half of the places are
taken, at most half of the slots are passed over: two rounds lie between two uses of a key, and 2^24 others
were given in them.
"""

from __future__ import annotations

import random
import sys
from array import array
from collections.abc import Iterable

import cython

INDEX_BITS = 24
INDICES = 1 << INDEX_BITS
FIRST_PLACES = 1024


class KeyIndex:
    """The permutation.  ``seed`` is an integer, or a ``random.Random`` from which the round functions are
    drawn.

    ``half_bits`` is half the width; 12 gives the 24 bits of a key.  The tables hold 16 random
    bits an entry, of which so many are used.
    """

    def __init__(self, seed: int | random.Random, half_bits: int = 12) -> None:
        if not 1 <= half_bits <= 12:
            raise ValueError(f"half a width of {half_bits} bits cannot be")
        generator = seed if isinstance(seed, random.Random) else random.Random(seed)
        size = 1 << half_bits
        self.half_bits = half_bits
        self.mask = size - 1
        self.rounds = array("H", generator.randbytes(8 * size))
        if sys.byteorder == "big":
            self.rounds.byteswap()

    def index(self, slot: int) -> int:
        """Index of a slot (both below 2^24)."""
        size: cython.uint = self.mask + 1
        left: cython.uint = (slot >> self.half_bits) & self.mask
        right: cython.uint = slot & self.mask
        left ^= self.rounds[right] & self.mask
        right ^= self.rounds[size + left] & self.mask
        left ^= self.rounds[2 * size + right] & self.mask
        right ^= self.rounds[3 * size + left] & self.mask
        return (left << self.half_bits) | right

    def slot(self, index: int) -> int:
        """Slot of an index: the inverse of ``index``."""
        size: cython.uint = self.mask + 1
        left: cython.uint = (index >> self.half_bits) & self.mask
        right: cython.uint = index & self.mask
        right ^= self.rounds[3 * size + left] & self.mask
        left ^= self.rounds[2 * size + right] & self.mask
        right ^= self.rounds[size + left] & self.mask
        left ^= self.rounds[right] & self.mask
        return (left << self.half_bits) | right


class KeySequence:
    """The slots and keys that are given, in order; ``generator`` (``random.Random``) draws what is secret.

    ``permutation`` turns a key's index into its slot, ``place_mask`` a slot into its place.  A table of the
    slots needs ``places``, which double as the live keys become more.  At most ``capacity`` can live at
    once, which the caller sees to.  ``half_bits`` as `KeyIndex`: with less than 12 a round is shorter.
    """

    places: int
    place_mask: int
    _taken: bytearray
    _slots: array[int]

    def __init__(self, generator: random.Random, half_bits: int = 12) -> None:
        self.permutation = KeyIndex(generator, half_bits)
        self.generator = generator
        self.indices = 1 << 2 * half_bits
        self.capacity = (self.indices >> 1) - 1
        self.live = 0
        self._next = 0
        self._gone_round = False
        self._upper = bytearray()
        self._set_places(min(FIRST_PLACES, self.indices), ())

    def take(self) -> tuple[int, int]:
        """``(slot, key)`` of a new key, which is neither 0 nor all ones."""
        place: cython.uint
        found: cython.longlong
        slot: cython.uint
        if 2 * (self.live + 2) > self.places:
            self._set_places(2 * self.places, [each for each in self._slots if each >= 0])
        place = self._next & self.place_mask
        if self._taken[place]:
            found = self._taken.find(0, place)
            if found < 0:
                found = self._taken.find(0) + self.places
            self._next += found - place
        if self._next >= self.indices:
            self._next -= self.indices
            self._gone_round = True
        slot = self._next
        self._next += 1
        place = slot & self.place_mask
        self._taken[place] = 1
        self._slots[place] = slot
        self.live += 1
        return slot, self._key(slot)

    def give(self, slot: int) -> None:
        """The key of a slot that `take` gave is dead."""
        self._taken[slot & self.place_mask] = 0
        self._slots[slot & self.place_mask] = -1
        self.live -= 1

    def _set_places(self, places: int, live: Iterable[int]) -> None:
        """Begin anew with so many places; slots that differed modulo fewer differ modulo these."""
        self.places = places
        self.place_mask = places - 1
        self._taken = bytearray(places)
        self._slots = array("i", [-1]) * places
        for slot in live:
            self._taken[slot & self.place_mask] = 1
            self._slots[slot & self.place_mask] = slot

    def _key(self, slot: int) -> int:
        """Index and a random low byte, of the half of the 256 that the slot's last one was not of."""
        where: cython.uint = slot >> 3
        bit: cython.uint = 1 << (slot & 7)
        before: cython.uint
        key: cython.uint
        low: cython.uint
        if where >= len(self._upper):
            self._upper.extend(bytes(where + 1 - len(self._upper)))
        before = self._upper[where]
        while True:
            low = self.generator.randrange(256)
            if self._gone_round:
                low = low & 0x7F | (0 if before & bit else 0x80)
            key = self.permutation.index(slot) << 8 | low
            if key != 0 and key != 0xFFFFFFFF:
                break
        self._upper[where] = before | bit if low & 0x80 else before & (bit ^ 0xFF)
        return key
