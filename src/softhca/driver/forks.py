"""What a forked child finds of its parent's: objects with locks that a thread of the parent may hold for ever
in the child's copy of the memory, and with descriptors that both have.  And what is to be done before a fork.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable
from typing import Protocol


class Inherited(Protocol):
    """Something that a forked child is told of."""

    def inherited(self) -> None:
        """This is the child, with one thread: take no lock, make those anew that it has."""


_known: weakref.WeakSet[Inherited] = weakref.WeakSet()


def heed_forks(thing: Inherited) -> None:
    """Tell ``thing`` of each fork, in the child, as long as there is another reference to it."""
    _known.add(thing)


def before_forks(call: Callable[[], object]) -> None:
    """Call it before each fork, in the thread that forks, while no lock is taken for the fork yet: it may
    use devices, also what other threads use at the moment.
    """
    _calls.append(call)


def prepare() -> None:
    """This thread is about to fork: call what `before_forks` was told, once a fork.

    Whoever takes locks for a fork registers this behind it, since what is registered last is called first: a
    call that waits for a lock of another thread, while this one has an adapter's, would wait for ever.
    """
    if not getattr(_forking, "prepared", False):
        _forking.prepared = True
        for call in list(_calls):
            call()


def _forked() -> None:
    _forking.prepared = False


_calls: list[Callable[[], object]] = []
_forking = threading.local()


def _after_fork_in_child() -> None:
    for thing in list(_known):
        thing.inherited()


os.register_at_fork(after_in_child=_after_fork_in_child)
os.register_at_fork(before=prepare, after_in_parent=_forked, after_in_child=_forked)
