"""Connections that wait for nothing but their peers: of who never goes on they are bounded, so that he takes
no room from others.
"""

from __future__ import annotations

from softhca.management.cm.by_place import ByPlace
from softhca.management.cm.elements import Connection


class Crowd:
    """At most ``most`` connections, and ``most_of_one`` of peers at one place; the oldest gives way, of the
    place that has too many or of all.
    """

    def __init__(self, most: int, most_of_one: int) -> None:
        self._most = most
        self._most_of_one = most_of_one
        self._waiting: ByPlace[Connection] = ByPlace()

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, connection: Connection) -> Connection | None:
        """One more; which one has given way for it."""
        waiting = self._waiting
        waiting.add(connection, connection.place)
        if waiting.count_at(connection.place) > self._most_of_one:
            oldest = waiting.oldest_at(connection.place)
        elif len(waiting) > self._most:
            oldest = waiting.oldest()
        else:
            return None
        waiting.remove(oldest)
        return oldest

    def remove(self, connection: Connection) -> None:
        """It waits no more; one that is not among them is no error."""
        self._waiting.remove(connection)
