"""Work that falls into parts: who does it, here or elsewhere, decides nothing of what comes out.

A `Runner` does the parts of a piece of work, all with the same ``shared`` arguments, and gives what they
return in the order of the parts.  Parts are the same whoever does them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol, TypeVar

Result = TypeVar("Result")

Part = tuple[int, int]
"""From this number on, and up to before that one."""


class Runner(Protocol):
    """Does parts of a piece of work."""

    def run(
        self, work: Callable[[Any, Part], Result], shared: Any, parts: Sequence[Part]
    ) -> Iterator[Result]:
        """``work(shared, part)`` for each part, in this order.  ``work`` is a function of a module, and what
        it takes and gives can be pickled."""


class LocalRunner:
    """Does all of it in this thread."""

    def run(
        self, work: Callable[[Any, Part], Result], shared: Any, parts: Sequence[Part]
    ) -> Iterator[Result]:
        """`Runner.run`."""
        return (work(shared, part) for part in parts)


LOCAL_RUNNER = LocalRunner()


def parts_of(count: int, size: int) -> list[Part]:
    """Parts of ``size`` each, the last one maybe smaller."""
    return [(start, min(start + size, count)) for start in range(0, count, size)]
