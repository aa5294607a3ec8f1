"""The lock of a link, which tells those that wait what has changed.

Compiled, no signal handler of the program runs between its taking and what gives it back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from softhca.channels.link import Link


class Guard:
    """A link's lock, for ``with``; who gives it back tells whoever waits what has changed."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._lock = link.lock

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *error: object) -> None:
        link = self._link
        changed, link.changed = link.changed, False
        self._lock.release()
        if changed or link.missed:
            link.missed = False
            link.notify_waiters(0)
        if link.later:
            link.clear_up()
