"""Connections that wait for nothing but their peers: of who never goes on they are bounded, so that he takes
no room from others.
"""

from __future__ import annotations

from collections import OrderedDict

from softhca.management.cm.elements import Connection

Place = bytes | int


class Crowd:
    """At most ``most`` connections, and ``most_of_one`` of peers at one place; the oldest gives way, of the
    place that has too many or of all.
    """

    def __init__(self, most: int, most_of_one: int) -> None:
        self._most = most
        self._most_of_one = most_of_one
        self._all: OrderedDict[int, Connection] = OrderedDict()
        self._places: dict[Place, OrderedDict[int, Connection]] = {}

    def __len__(self) -> int:
        return len(self._all)

    def add(self, connection: Connection) -> Connection | None:
        """One more; which one has given way for it."""
        here = self._places.setdefault(connection.place, OrderedDict())
        self._all[connection.number] = here[connection.number] = connection
        crowded = here if len(here) > self._most_of_one else self._all
        if crowded is self._all and len(self._all) <= self._most:
            return None
        oldest = next(iter(crowded.values()))
        self.remove(oldest)
        return oldest

    def remove(self, connection: Connection) -> None:
        """It waits no more; one that is not among them is no error."""
        if self._all.get(connection.number) is not connection:
            return
        del self._all[connection.number]
        here = self._places[connection.place]
        del here[connection.number]
        if not here:
            del self._places[connection.place]
