"""Protection domains: numbers 1 … 2^24 − 1 with a count of who lives in them.

Number 0 belongs to nobody, so that an empty table entry never equals a domain.
"""

import errno
from collections import deque

DOMAINS = (1 << 24) - 1


class ProtectionDomains:
    """The domains of one adapter.  A number is used again as late as possible."""

    def __init__(self, limit: int = DOMAINS) -> None:
        if not 0 < limit <= DOMAINS:
            raise OSError(errno.EINVAL, f"{limit} protection domains cannot be")
        self.limit = limit
        self._references: dict[int, int] = {}
        self._unused = 1
        self._freed: deque[int] = deque()

    def __len__(self) -> int:
        return len(self._references)

    def __contains__(self, pd: int) -> bool:
        return pd in self._references

    def allocate(self) -> int:
        """A new domain with no references; OSError ENOMEM where all are in use."""
        if self._unused <= self.limit:
            pd = self._unused
            self._unused += 1
        elif self._freed:
            pd = self._freed.popleft()
        else:
            raise OSError(errno.ENOMEM, f"max_pd = {self.limit}: all protection domains are in use")
        self._references[pd] = 0
        return pd

    def free(self, pd: int) -> None:
        """Give a domain back; OSError EINVAL where it is unknown, EBUSY while anything refers to it."""
        if self.references(pd):
            raise OSError(errno.EBUSY, f"pd = {pd}: it is in use")
        del self._references[pd]
        self._freed.append(pd)

    def references(self, pd: int) -> int:
        """How many objects (queue pairs, regions, shared receive queues, address handles) are in the
        domain."""
        if pd not in self._references:
            raise OSError(errno.EINVAL, f"pd = {pd}: there is no such PD")
        return self._references[pd]

    def reference(self, pd: int) -> None:
        """Count one more object; OSError EINVAL where the domain is unknown."""
        self._references[pd] = self.references(pd) + 1

    def unreference(self, pd: int) -> None:
        """Count one object less; OSError EINVAL where the domain is unknown or has none."""
        if self.references(pd) == 0:
            raise OSError(errno.EINVAL, f"protection domain {pd} has no object to let go")
        self._references[pd] -= 1
