"""The responder's resources for RDMA READ and atomics: what may still have to be answered, or answered again.

There are ``max_dest_rd_atomic`` of them (IBTA vol. 1, 9.7.5.1.2 and 9.4.5), rounded up to a power of two:
there are requesters that do so to what was agreed.  A new request takes the oldest one's place.  A request
that finds even the oldest one unanswered goes beyond what was agreed; one that was answered and is only to be
answered again makes room, for who sends a new request has its answer.  Answers go out in the order of their
PSNs, one at a time; one that was begun goes on behind an earlier one that is asked for again meanwhile: the
requester has gone back and will ask for both, or the network has doubled the request.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import cython

from softhca.memory.windows import TrackedRegion
from softhca.wire.psn import distance

if TYPE_CHECKING:
    from softhca.memory.regions import Region


def resources_for(agreed: int) -> int:
    """How many requests a responder takes at once where ``agreed`` was asked for: the next power of two, or
    none."""
    return 1 << (agreed - 1).bit_length() if agreed else 0


class Resource:
    """One RDMA READ or atomic that was executed or is being answered.

    ``begin_index`` … ``end_index`` − 1 are the response packets asked for last, ``next_index`` the next
    one to send; ``pending`` while there is one; ``answered``: all of them were sent once; ``resumed``: they
    have the opcodes that they had in the whole answer.  ``result`` is an atomic's original value,
    ``generation`` that of ``region``'s key, ``pd`` the protection domain for which it was looked up.
    """

    atomic: bool
    pending: bool
    answered: bool
    resumed: bool
    first_psn: int
    packets: int
    next_index: int
    end_index: int
    begin_index: int
    end_bytes: int
    msn: int
    rkey: int
    va: int
    length_bytes: int
    result: int
    region: Region
    generation: int
    pd: int

    def __init__(self) -> None:
        self.region = None
        self.forget()

    def forget(self) -> None:
        """Make it empty."""
        self.release()
        self.atomic = False
        self.pending = False
        self.answered = False
        self.resumed = False
        self.first_psn = 0
        self.packets = 0
        self.next_index = 0
        self.end_index = 0
        self.begin_index = 0
        self.end_bytes = 0
        self.msn = 0
        self.rkey = 0
        self.va = 0
        self.length_bytes = 0
        self.result = 0
        self.region = None
        self.generation = 0
        self.pd = 0

    def answer(self, begin: int, end: int, end_bytes: int) -> None:
        """Response packets ``begin`` … ``end`` − 1 are to be sent, up to byte ``end_bytes`` of the whole
        answer."""
        self.end_bytes = end_bytes
        self.begin_index = begin
        self.next_index = begin
        self.end_index = end
        self.resumed = False
        self.pending = True
        # an atomic has been executed: its answer needs no key any more
        if (
            self.region is not None
            and self.region.tracked
            and not self.atomic
            and self.region.generation == self.generation
        ):
            cython.cast(TrackedRegion, self.region).begin_use(self)

    def release(self) -> None:
        """It is answered, or given up: it uses its key no more."""
        if self.region is not None and self.region.tracked:
            cython.cast(TrackedRegion, self.region).end_use(self)


class ReplayRing:
    """``capacity`` resources, the newest in the place of the oldest; ``pending`` of them are to be
    answered."""

    resources: list[Resource]
    count: int
    newest: int
    pending: int
    current: Resource

    def __init__(self, capacity: int) -> None:
        self.resources = []
        self.capacity = 0
        self.clear()
        self.resize(capacity)

    def resize(self, capacity: int) -> None:
        """Have ``capacity`` resources (0: none may be used), the newest of those in use kept.

        While one is pending all from it on are kept, even beyond ``capacity``: what was agreed when they
        came is answered.
        """
        kept: list[Resource] = []
        for i in range(self.count):
            resource = self.resources[(self.newest + self.capacity + 1 - self.count + i) % self.capacity]
            if kept or resource.pending or self.count - i <= capacity:
                kept.append(resource)
        self.count = len(kept)
        self.newest = self.count - 1 if kept else 0
        self.capacity = max(capacity, self.count)
        self.resources = kept + [Resource() for _ in range(self.capacity - self.count)]

    def clear(self) -> None:
        """Forget them all."""
        self.count = 0
        self.newest = 0
        self.pending = 0
        self.current = None
        for resource in self.resources:
            resource.forget()

    def has_place(self) -> bool:
        """Whether one more request may come: the oldest one has been answered."""
        if self.capacity == 0:
            return False
        oldest = self.resources[(self.newest + 1) % self.capacity]
        return oldest.answered or not oldest.pending

    def add(self, psn: int, packets: int) -> Resource:
        """A place for a new request whose responses are PSN ``psn`` and the next ``packets`` − 1; None:
        too many."""
        if not self.has_place():
            return None
        place = (self.newest + 1) % self.capacity
        resource = self.resources[place]
        if resource.pending:
            self.done(resource)
        self.newest = place
        if self.count < self.capacity:
            self.count += 1
        resource.forget()
        resource.first_psn = psn
        resource.packets = packets
        return resource

    def find(self, psn: int) -> Resource:
        """The resource that answers ``psn``; None when there is none, or none any more."""
        for i in range(self.count):
            resource = self.resources[(self.newest + self.capacity - i) % self.capacity]
            gap = distance(resource.first_psn, psn)
            if gap >= 0 and gap < resource.packets:
                return resource
        return None

    def places(self) -> list[Resource]:
        """All resources, each at its place."""
        return list(self.resources)

    def ask(self, resource: Resource, begin: int, end: int, end_bytes: int) -> None:
        """Have response packets ``begin`` … ``end`` − 1 of ``resource`` sent (again), up to byte
        ``end_bytes``."""
        if not resource.pending:
            self.pending += 1
        if self.current is not None and distance(self.current.first_psn, resource.first_psn) < 0:
            self.current = None
        resource.answer(begin, end, end_bytes)

    def next(self) -> Resource:
        """The resource to answer now: the one begun, else the pending one with the earliest PSN; None for
        none."""
        if self.current is not None:
            return self.current
        if self.pending == 0:
            return None
        if self.pending == 1:  # mostly the one that has just come
            resource = self.resources[self.newest]
            if resource.pending:
                self.current = resource
                return resource
        for i in range(self.count):
            resource = self.resources[(self.newest + self.capacity + 1 - self.count + i) % self.capacity]
            if resource.pending:
                self.current = resource
                return resource
        return None

    def done(self, resource: Resource) -> None:
        """``resource`` is answered, or need not be any more."""
        resource.pending = False
        resource.answered = True
        resource.release()
        self.pending -= 1
        if self.current is resource:
            self.current = None
