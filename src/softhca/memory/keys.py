"""Keys that cannot be guessed from each other: a keyed permutation of the slot number.

A key is 24 bits of index and a low byte.  Were the index the slot, every neighbour of a known key would be
a key too. A four-round Feistel network over two halves of 12 bits, with secret random round functions, is a
bijection that looks random to who does not know them (Luby and Rackoff), and costs four table look-ups.  A
guess of a whole key then hits with probability (live keys) / 2^32.
"""

import random
import sys
from array import array

import cython

INDEX_BITS = 24
INDICES = 1 << INDEX_BITS


class KeyIndex:
    """The permutation.  ``seed`` is an integer, or a ``random.Random`` from which the round functions are
    drawn.

    ``half_bits`` is half the width; 12 gives the 24 bits of a key.  The tables hold 16 random
    bits an entry, of which so many are used.
    """

    def __init__(self, seed, half_bits=12):
        if not 1 <= half_bits <= 12:
            raise ValueError(f"half a width of {half_bits} bits cannot be")
        generator = seed if isinstance(seed, random.Random) else random.Random(seed)
        size = 1 << half_bits
        self.half_bits = half_bits
        self.mask = size - 1
        self.rounds = array("H", generator.randbytes(8 * size))
        if sys.byteorder == "big":
            self.rounds.byteswap()

    def index(self, slot):
        """Index of a slot (both below 2^24)."""
        size: cython.uint = self.mask + 1
        left: cython.uint = (slot >> self.half_bits) & self.mask
        right: cython.uint = slot & self.mask
        left ^= self.rounds[right] & self.mask
        right ^= self.rounds[size + left] & self.mask
        left ^= self.rounds[2 * size + right] & self.mask
        right ^= self.rounds[3 * size + left] & self.mask
        return (left << self.half_bits) | right

    def slot(self, index):
        """Slot of an index: the inverse of ``index``."""
        size: cython.uint = self.mask + 1
        left: cython.uint = (index >> self.half_bits) & self.mask
        right: cython.uint = index & self.mask
        right ^= self.rounds[3 * size + left] & self.mask
        left ^= self.rounds[2 * size + right] & self.mask
        right ^= self.rounds[size + left] & self.mask
        left ^= self.rounds[right] & self.mask
        return (left << self.half_bits) | right
