"""Requests of clients whose response has not come: of each the client's own part of the transaction ID, and
where it went.  The same transaction may be asked of several ports at once.
"""

from __future__ import annotations

from collections import OrderedDict

from softhca.management.mad import Address

Key = tuple[int, int, int]
"""The client's number, the lower part of the transaction ID, the class."""


class Outstanding:
    """At most so many as `add` is told, the oldest first."""

    def __init__(self) -> None:
        self._requests: OrderedDict[Key, list[tuple[int, Address]]] = OrderedDict()
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, key: Key, high: int, destination: Address, most: int) -> None:
        """A request goes to ``destination``, ``high`` is the client's part of its transaction ID; one that is
        asked again is the youngest.  Of more than ``most`` the oldest gives way.
        """
        if not self._forget(key, destination) and self._count >= most:
            oldest = next(iter(self._requests))
            self._forget(oldest, self._requests[oldest][0][1])
        self._requests.setdefault(key, []).append((high, destination))
        self._requests.move_to_end(key)
        self._count += 1

    def take(self, key: Key, source: Address) -> int | None:
        """A response has come from ``source``: the client's part of the transaction ID, and no longer does
        the request wait; None: nothing was asked there.
        """
        for high, destination in self._requests.get(key, ()):
            if comes_from(source, destination):
                self._forget(key, destination)
                return high
        return None

    def cancel(self, key: Key, destination: Address) -> None:
        """The response is waited for no longer."""
        self._forget(key, destination)

    def forget(self, number: int) -> None:
        """A client goes, and what it has asked."""
        for key in [key for key in self._requests if key[0] == number]:
            self._count -= len(self._requests.pop(key))

    def _forget(self, key: Key, destination: Address) -> bool:
        """Whether there was a request of that key to the same port."""
        waiting = self._requests.get(key, [])
        left = [each for each in waiting if not _same_port(each[1], destination)]
        if len(left) == len(waiting):
            return False
        self._count -= len(waiting) - len(left)
        if left:
            self._requests[key] = left
        else:
            del self._requests[key]
        return True


def _same_port(one: Address, other: Address) -> bool:
    return (one.gid, one.lid) == (other.gid, other.lid)


def comes_from(source: Address, asked: Address) -> bool:
    """Whether a response comes from where the request went: by GID if both have one, else by LID; a directed
    route says itself whence it comes.
    """
    if asked.gid is not None and source.gid is not None:
        return asked.gid == source.gid
    return asked.lid == 0xFFFF or asked.lid == source.lid
