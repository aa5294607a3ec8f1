"""What waits for a peer, by the place where that one is."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

Place = bytes | int
"""A peer's GID, its LID where it has none."""
Waiter = TypeVar("Waiter", bound=Hashable)


class ByPlace(Generic[Waiter]):
    """Waiters, those of all and those of each place, the oldest first."""

    __slots__ = ("_all", "_places")

    def __init__(self) -> None:
        self._all: OrderedDict[Waiter, Place] = OrderedDict()
        self._places: dict[Place, OrderedDict[Waiter, None]] = {}

    def __len__(self) -> int:
        return len(self._all)

    def add(self, one: Waiter, place: Place) -> None:
        """One more, at ``place``."""
        self._all[one] = place
        self._places.setdefault(place, OrderedDict())[one] = None

    def remove(self, one: Waiter) -> None:
        """It waits no more; one that does not is no error."""
        place = self._all.pop(one, None)
        if place is not None:
            here = self._places[place]
            del here[one]
            if not here:
                del self._places[place]

    def count_at(self, place: Place) -> int:
        """How many wait at a place."""
        return len(self._places.get(place, ()))

    def oldest(self) -> Waiter:
        """The one that has waited longest."""
        return next(iter(self._all))

    def oldest_at(self, place: Place) -> Waiter:
        """The one that has waited longest at a place."""
        return next(iter(self._places[place]))

    def oldest_of_most(self) -> Waiter:
        """The one that has waited longest, of the place at which most wait."""
        most: OrderedDict[Waiter, None] = max(self._places.values(), key=len)
        return next(iter(most))
