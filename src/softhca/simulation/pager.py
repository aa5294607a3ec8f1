"""Who swaps and moves the memory of a host while others use it: the arbitrator of its pageable region."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from softhca.simulation.oracle import check_constant
from softhca.simulation.scenarios import MIGRATE, Scenario
from softhca.simulation.world import World

if TYPE_CHECKING:
    from softhca.simulation.host import Host

HOLDS = 6
"""So often at most, on each host."""
GAP_NS = 120_000
LENGTHS_NS = (20_000, 20_000, 300_000, 300_000, 2_000_000)
"""How long a hold lasts at most, by the dice; well within what a requester bears."""
FETCH_NS = 100_000
"""How long a page that is asked for takes at most."""
ON_DEMAND = 0.4
"""So many hosts have memory on demand, where others swap all of it."""
TOLD = 0.5
"""So often an adapter hears that its memory is back; else it finds that out by itself."""


class Pager:
    """Plans the holds of one host's pageable memory, one after the other, at moments that the dice choose.

    While pages move (``MIGRATE``) the adapter's mode bit stops it; otherwise they are swapped out and in, all
    at once or, on demand, in parts, which come back when somebody asks.
    """

    def __init__(self, host: Host, world: World, scenario: Scenario, dice: random.Random) -> None:
        self._host = host
        self._world = world
        self._dice = dice
        self._migrates = scenario.holds == MIGRATE
        self._on_demand = not self._migrates and dice.random() < ON_DEMAND
        self._left = dice.randint(1, HOLDS)
        self._fetching = False
        self._before = b""
        host.node.pager = self

    def prepare(self) -> None:
        """The arena is laid out: make the memory."""
        self._pageable = self._host.arena.make_pageable(self._on_demand)

    def register(self, pd: int, va: int) -> int:
        """Register it with the host's adapter; its key."""
        return self._pageable.register(self._host.node.engine, pd, va, self._fault)

    def deregister(self) -> None:
        """Take the key back."""
        self._pageable.deregister()

    def close(self) -> None:
        """The world has ended."""
        self._pageable.close()

    @property
    def holding(self) -> bool:
        """Whether some access may be refused now."""
        return bool(self._host.node.engine.regions.tpt.stopped) or self._pageable.missing

    def plan(self) -> None:
        """Plan the next hold."""
        if self._left:
            self._left -= 1
            self._world.at(self._world.now + self._dice.randrange(GAP_NS), self._begin)

    def _begin(self, _: object) -> None:
        """A hold begins."""
        world, dice, memory = self._world, self._dice, self._pageable.memory
        if self._migrates:
            self._host.node.engine.set_data_access(False)
            self._before = self._content()
        elif self._pageable.on_demand:
            first = dice.randrange(memory.pages)
            memory.swap_out(first=first, count=dice.randint(1, memory.pages - first))
        else:
            memory.swap_out()
        self._note("held")
        world.wire.hold(world.now, self._host.node.number)
        world.at(world.now + dice.randrange(1, dice.choice(LENGTHS_NS)), self._end)

    def _end(self, _: object) -> None:
        """The hold is over; pages on demand stay out until they are asked for."""
        world, node, memory = self._world, self._host.node, self._pageable.memory
        if self._migrates:
            name = f"adapter {node.number}: memory that is held"
            check_constant(world.report, name, self._content(), self._before)
            self._note("moved", memory.migrate())
            node.engine.set_data_access(True)
        elif not self._pageable.on_demand:
            memory.swap_in()
            if self._dice.random() < TOLD:
                node.engine.memory_available()
        self._lifted()
        self.plan()

    def _content(self) -> bytes:
        return self._pageable.read(0, self._pageable.length)

    def _fault(self) -> None:
        """The adapter asks for pages that are not there."""
        if not self._fetching:
            self._fetching = True
            self._world.at(self._world.now + self._dice.randrange(1, FETCH_NS), self._fetch)

    def _fetch(self, _: object) -> None:
        self._fetching = False
        self._note("fetched", self._pageable.memory.service())
        if self._dice.random() < TOLD:
            self._host.node.engine.memory_available()
        self._lifted()

    def _lifted(self) -> None:
        self._note("lifted")
        self._world.wire.lifted(self._world.now, self._host.node.number)
        self._host.node.turn()

    def _note(self, what: str, pages: int = -1) -> None:
        detail = {} if pages < 0 else {"pages": pages}
        self._world.trace.add(self._world.now, what, self._host.node.number, **detail)
