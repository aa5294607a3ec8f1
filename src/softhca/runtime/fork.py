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

from softhca.driver import forks
from softhca.machine import deferred_signals


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
_forking = threading.Lock()
"""Held from before a fork until after it, by the thread that forks."""
_owner = 0
"""That thread; 0: none, or one whose fork began before this module was there."""


def watch(thing: ForkAware) -> None:
    """Call ``thing`` before and after every fork, until it is collected or :func:`unwatch`."""
    with _lock:
        _watched.add(thing)


def unwatch(thing: ForkAware) -> None:
    """Forget ``thing``."""
    with _lock:
        _watched.discard(thing)


def _before() -> None:
    global _owner
    _forking.acquire()
    _owner = threading.get_ident()
    while True:
        with _lock:
            fresh = [thing for thing in _watched if thing not in _held]
        if not fresh:
            return
        # A lock of a thing is taken without ours: its holder may be about to watch or unwatch something, as
        # who opens a device is, whose adapter is then to be told, too.
        first = min(thing.fork_rank for thing in fresh)
        # One order for all threads that fork, so that two of them cannot wait for each other.
        for thing in sorted((thing for thing in fresh if thing.fork_rank == first), key=id):
            thing.before_fork()
            _held.append(thing)


def _in_parent() -> None:
    global _owner
    if _owner != threading.get_ident():
        return
    while _held:
        _held.pop().after_fork_in_parent()
    _owner = 0
    _forking.release()


def _in_child() -> None:
    global _lock, _forking, _owner
    things = list(_held) if _owner == threading.get_ident() else []
    _held.clear()
    _lock, _forking, _owner = threading.RLock(), threading.Lock(), 0  # threads of the parent may have them
    for thing in things:
        _watched.discard(thing)
    for thing in things:
        thing.after_fork_in_child()


os.register_at_fork(before=_before, after_in_parent=_in_parent, after_in_child=_in_child)
os.register_at_fork(before=forks.prepare)  # what uses an adapter, before its lock is taken
# Python drops what comes out of these functions: a signal handler that raised in the middle would leave the
# child with adapters that nobody has told.  What is registered last is called first before, and last after.
os.register_at_fork(
    before=deferred_signals.begin, after_in_parent=deferred_signals.end, after_in_child=deferred_signals.end
)
