"""Partitions of a fabric: which ports have which P_Keys (IBTA vol. 1, 10.9, 14.2.5.7)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from softhca.machine.arguments import check_kind

FULL_MEMBER = 0x8000
DEFAULT_BASE = 0x7FFF
"""The default partition's P_Key, without the bit of full members."""


@dataclass(frozen=True)
class Partition:
    """Who is in a partition: ``pkey`` of 15 bits; port GUIDs of full and of limited members, None: all but
    switches.  That of the P_Key 0x7FFF is the default partition; where it is not configured all are full
    members of it, switches too.
    """

    pkey: int
    full: frozenset[int] | None = None
    limited: frozenset[int] | None = frozenset()

    def __post_init__(self) -> None:
        check_kind(self.pkey, int, "P_Key")
        for members in (self.full, self.limited):
            check_kind(members, (frozenset, type(None)), "frozenset of port GUIDs")
        if not 0 < self.pkey <= DEFAULT_BASE:
            raise ValueError(f"a partition's P_Key is 1 to {DEFAULT_BASE:#x}, not {self.pkey:#x}")

    def key_of(self, guid: int) -> int | None:
        """The P_Key of a port in it, by its GUID; None: it is not in it."""
        if self.full is None or guid in self.full:
            return self.pkey | FULL_MEMBER
        if self.limited is None or guid in self.limited:
            return self.pkey
        return None


class Partitions:
    """All that are configured.  ValueError: one of them twice; TypeError: what is none."""

    def __init__(self, partitions: Iterable[Partition]) -> None:
        partitions = tuple(partitions)
        for each in partitions:
            check_kind(each, Partition, "partition")
        self._all = sorted(partitions, key=lambda each: each.pkey != DEFAULT_BASE)  # the default one first
        if len({each.pkey for each in self._all}) < len(self._all):
            raise ValueError("a partition is configured twice")
        if not self._all or self._all[0].pkey != DEFAULT_BASE:
            self._all.insert(0, Partition(DEFAULT_BASE))

    def keys_of(self, guid: int, is_manager: bool = False) -> list[int]:
        """The P_Keys of a port, the default partition's first.  A manager's port is a full member of that one
        in any case: everybody must reach it."""
        found = [key for each in self._all if (key := each.key_of(guid)) is not None]
        if is_manager and (not found or found[0] != DEFAULT_BASE | FULL_MEMBER):
            found = [DEFAULT_BASE | FULL_MEMBER, *(key for key in found if key != DEFAULT_BASE)]
        return found

    def of_switch(self, guid: int) -> list[int]:
        """The P_Keys of a switch's port 0, which is in the partitions that name it."""
        named = [each for each in self._all if guid in (each.full or ()) or guid in (each.limited or ())]
        keys = [key for each in named if (key := each.key_of(guid)) is not None]
        is_default = bool(named) and named[0].pkey == DEFAULT_BASE
        return keys if is_default else [DEFAULT_BASE | FULL_MEMBER, *keys]
