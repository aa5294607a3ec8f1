"""The lock of a link, which tells those that wait what has changed.

Compiled, no handler of the program's signals interrupts the main thread while it has the lock (see
`softhca.machine.deferred_signals`): a message that has gone is counted, and one that was taken is given back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from softhca.machine import deferred_signals

if TYPE_CHECKING:
    from softhca.channels.link import Link


class Guard:
    """A link's lock, for ``with``; who gives it back tells whoever waits what has changed."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._lock = link.lock

    def __enter__(self) -> None:
        self._lock.acquire()
        try:
            deferred_signals.begin()
        except BaseException:  # of a handler, for what has come before
            self._lock.release()
            raise

    def __exit__(self, *error: object) -> None:
        link = self._link
        changed, link.changed = link.changed, False
        self._lock.release()
        deferred_signals.end()
        if changed or link.missed:
            link.missed = False
            link.notify_waiters(0)
        if link.later:
            link.clear_up()
