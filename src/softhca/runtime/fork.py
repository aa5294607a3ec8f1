"""What happens to adapters when their process forks.

Every engine lock is taken before the fork, so that the child's copy of the memory shows no half-done round.
In the parent everything goes on.  In the child nothing inherited lives on: two processes cannot drive one
adapter; what the child inherited is marked dead (its calls say so), its descriptors are closed, and the
child may open adapters anew. Memory on a memfd stays shared between the two: its mapping survives, only the
descriptor goes.
"""

from __future__ import annotations

import os
import threading
import weakref
from typing import Protocol


class ForkAware(Protocol):
    """Something with a lock and descriptors that must not live on in a child.

    Locks are taken in the order of ``fork_rank``, the order in which the program takes them when it takes
    several.
    """

    fork_rank: int

    def before_fork(self) -> None:
        """Take the locks."""

    def after_fork_in_parent(self) -> None:
        """Release the locks."""

    def after_fork_in_child(self) -> None:
        """Become dead: close descriptors, refuse every later call."""


_watched: weakref.WeakSet[ForkAware] = weakref.WeakSet()
_held: list[ForkAware] = []
_lock = threading.RLock()


def watch(thing: ForkAware) -> None:
    """Call ``thing`` before and after every fork, until it is collected or :func:`unwatch`."""
    with _lock:
        _watched.add(thing)


def unwatch(thing: ForkAware) -> None:
    """Forget ``thing``."""
    with _lock:
        _watched.discard(thing)


def _before() -> None:
    # A lock of a thing is taken without ours: its holder may be about to watch or unwatch something.
    with _lock:
        watched = list(_watched)
    # One order for all threads that fork, so that two of them cannot wait for each other.
    for thing in sorted(watched, key=lambda thing: (thing.fork_rank, id(thing))):
        thing.before_fork()
        _held.append(thing)
    _lock.acquire()  # the child's copy of the set is whole, too


def _in_parent() -> None:
    _lock.release()
    while _held:
        _held.pop().after_fork_in_parent()


def _in_child() -> None:
    _lock.release()
    things, _held[:] = list(_held), []
    _watched.clear()
    for thing in things:
        thing.after_fork_in_child()


os.register_at_fork(before=_before, after_in_parent=_in_parent, after_in_child=_in_child)
