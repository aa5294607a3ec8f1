"""The GID table of a RoCE port, whose addresses may come and go while the adapter runs.

Theory of operation.  An address has a *place*: one entry of the table, or several that repeat it (``gids`` of
a device's options).  Places do not move: whoever goes leaves an empty place, all of whose entries are the
zero GID, and nobody else's index changes.  Who comes takes the place that it had last, where that is empty;
else the first one that is empty and that nobody had, so that addresses which come back together find theirs;
else the first that is empty.  Where there is none, the address has no entry.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

NO_GID = bytes(16)
"""What an empty entry shows."""


class GidChanges(NamedTuple):
    """What `GidTable.set` has done: GIDs that are entries now, those that are no more, and those that found
    no place."""

    added: tuple[bytes, ...] = ()
    removed: tuple[bytes, ...] = ()
    refused: tuple[bytes, ...] = ()


class _Place:
    """The entries ``indexes`` of one address ``gid``, or of none; ``last`` is who had them last."""

    __slots__ = ("gid", "indexes", "last")

    def __init__(self, indexes: range, gid: bytes = NO_GID) -> None:
        self.indexes = indexes
        self.gid = self.last = gid


class GidTable:
    """The table that begins with ``gids``, in this order, again and again until ``filled`` entries have one;
    ``length`` is what it grows to.  ``entries`` are the GIDs by index, up to the last that is or was filled
    when it was made.
    """

    def __init__(self, gids: Sequence[bytes], filled: int, length: int) -> None:
        filled = max(filled, len(gids))
        self._filled = filled
        self._places = [_Place(range(at, filled, len(gids)), gid) for at, gid in enumerate(gids)]
        self._places += [_Place(range(index, index + 1)) for index in range(filled, length)]
        self.entries = self._as_entries()

    def set(self, gids: Iterable[bytes]) -> GidChanges:
        """From here on the addresses are ``gids``, as far as there are places for them."""
        wanted = dict.fromkeys(gids)
        had = {place.gid: place for place in self._places if place.gid != NO_GID}
        removed = tuple(gid for gid in had if gid not in wanted)
        for gid in removed:
            had[gid].gid = NO_GID
        added, refused = [], []
        # who comes back goes first: nobody new takes its place
        back = {place.last for place in self._places}
        for gid in sorted((gid for gid in wanted if gid not in had), key=lambda gid: gid not in back):
            place = self._empty_for(gid)
            if place is None:
                refused.append(gid)
                continue
            place.gid = place.last = gid
            added.append(gid)
        self.entries = self._as_entries()
        return GidChanges(tuple(added), removed, tuple(refused))

    def _empty_for(self, gid: bytes) -> _Place | None:
        empty = [place for place in self._places if place.gid == NO_GID]
        for last in (gid, NO_GID):
            for place in empty:
                if place.last == last:
                    return place
        return empty[0] if empty else None

    def _as_entries(self) -> tuple[bytes, ...]:
        used = [place for place in self._places if place.gid != NO_GID]
        entries = [NO_GID] * max([self._filled, *(place.indexes[-1] + 1 for place in used)])
        for place in used:
            for index in place.indexes:
                entries[index] = place.gid
        return tuple(entries)
