"""What a forked child finds of its parent's: objects with locks that a thread of the parent may hold for ever
in the child's copy of the memory, and with descriptors that both have.
"""

from __future__ import annotations

import os
import weakref
from typing import Protocol


class Inherited(Protocol):
    """Something that a forked child is told of."""

    def inherited(self) -> None:
        """This is the child, with one thread: take no lock, make those anew that it has."""


_known: weakref.WeakSet[Inherited] = weakref.WeakSet()


def heed_forks(thing: Inherited) -> None:
    """Tell ``thing`` of each fork, in the child, as long as there is another reference to it."""
    _known.add(thing)


def _after_fork_in_child() -> None:
    for thing in list(_known):
        thing.inherited()


os.register_at_fork(after_in_child=_after_fork_in_child)
