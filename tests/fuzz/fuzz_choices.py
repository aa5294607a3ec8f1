"""A fuzzing input read as choices: deterministic, so that it means the same with and without the fuzzer,
compiled and interpreted.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")


class Choices:
    """Reads ``data`` from front to back; behind its end every choice is 0 and every run of bytes is empty."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    @property
    def more(self) -> bool:
        """Whether anything is left."""
        return self.at < len(self.data)

    def byte(self) -> int:
        """0…255."""
        at = self.at
        if at >= len(self.data):
            return 0
        self.at = at + 1
        return self.data[at]

    def number(self, count: int) -> int:
        """``count`` bytes as a big-endian number."""
        return int.from_bytes(self.take(count), "big")

    def below(self, limit: int) -> int:
        """0…``limit`` − 1."""
        return (self.byte() if limit <= 256 else self.number(2)) % limit

    def pick(self, items: Sequence[T]) -> T:
        """One of ``items``."""
        return items[self.below(len(items))]

    def once_in(self, count: int) -> bool:
        """True for one value in ``count``; not at the input's end."""
        return self.more and self.byte() % count == count - 1

    def take(self, count: int) -> bytes:
        """The next ``count`` bytes, or what is left of them."""
        found = self.data[self.at : self.at + count]
        self.at += len(found)
        return found

    def block(self, count: int) -> bytes:
        """Exactly ``count`` bytes; what is missing is 0."""
        return self.take(count).ljust(count, b"\0")

    def run(self) -> bytes:
        """A run of bytes: its length in one byte (255: two more), then so many."""
        length = self.byte()
        return self.take(self.number(2) if length == 255 else length)

    def rest(self) -> bytes:
        """All that is left."""
        return self.take(len(self.data))
