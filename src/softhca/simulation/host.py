"""What one generation of programs owns on one host: memory that peers use, regions and queues."""

from __future__ import annotations

import random
import sys

from softhca.driver.device import DeviceDriver, SrqHandle
from softhca.simulation.arena import ATOMIC_BYTES, FOREIGN, LENT, OPEN, REVOKED, RIGHTS, Arena
from softhca.simulation.node import Node
from softhca.simulation.operations import ELEMENTS, LONGEST_TRESPASS, board_of
from softhca.simulation.oracle import check_constant, check_guards
from softhca.simulation.oracle_rc import BoardOracle, CounterOracle
from softhca.simulation.pager import Pager
from softhca.simulation.poller import Poller


class Host:
    """The share of one host in a setting: an ``arena`` with a ``counter`` and a ``board`` that peers use.

    Buffers are reserved first; `open` makes memory and registers it, the other queues follow.  ``pds`` are
    the protection domain of the programs and a foreign one.  All of it goes with the adapter when that
    crashes.  A ``pager``, if there is one, has the open region.
    """

    def __init__(self, node: Node, name: str) -> None:
        dice = random.Random(f"{name}/arena/{node.number}")
        report = node.world.report
        self.node = node
        self.device: DeviceDriver = node.device
        self.arena = Arena(node.number, dice)
        start = dice.randrange(1 << 62)
        content = start.to_bytes(ATOMIC_BYTES, sys.byteorder)
        self.counter = self.arena.reserve(ATOMIC_BYTES, content, aligned=True)
        for region in RIGHTS:
            self.arena.reserve(LONGEST_TRESPASS, region=region)
        self.board = self.arena.reserve(len(board_of(0)), board_of(0), aligned=True)
        self.counter_oracle = CounterOracle(report, start)
        self.board_oracle = BoardOracle(report)
        self.pds: list[int] = []
        self.pollers: list[Poller] = []
        self.srq: SrqHandle | None = None
        self.srq_limit = 0
        self.pager: Pager | None = None
        self._crashes = node.crashes
        self._revoked: bytes | None = None

    @property
    def alive(self) -> bool:
        """Whether the adapter that all this belongs to still lives."""
        return self._crashes == self.node.crashes

    def open(self) -> None:
        """Make the domains, and register every region; one of them is taken back at once."""
        device, arena = self.device, self.arena
        arena.freeze()
        if self.pager is not None:
            self.pager.prepare()
        self.pds = [device.alloc_pd(), device.alloc_pd()]
        memory = memoryview(arena.memory)
        for region in arena.regions.values():
            if region.name == OPEN and self.pager is not None:
                region.lkey = region.rkey = self.pager.register(self.pds[0], region.va)
                continue
            view = memory[region.start : region.start + region.length]
            pd = self.pds[region.name == FOREIGN]
            key = device.reg_mr(pd, 0, region.length, RIGHTS[region.name], iova=region.va, buffer=view)
            region.lkey, region.rkey, region.handle = key.lkey, key.rkey, key.handle
        device.dereg_mr(arena.regions[REVOKED].handle)

    def make_srq(self, entries: int, limit: int) -> None:
        """A shared receive queue; `arm_srq` lets it tell of its limit."""
        self.srq = self.device.create_srq(self.pds[0], entries, ELEMENTS)
        self.srq_limit = limit

    def arm_srq(self) -> None:
        """From now on the shared receive queue tells when it holds fewer receives than its limit."""
        if self.srq is not None:
            self.srq.modify(limit=self.srq_limit)

    def make_cq(self, entries: int, armed: bool, solicited: bool, every_ns: int) -> Poller:
        """A completion queue, and who polls it."""
        poller = Poller(self.node, self.device.create_cq(entries), armed, solicited, every_ns)
        self.pollers.append(poller)
        self.node.tasks.append(poller.turn)
        return poller

    def drain(self) -> None:
        """Take what programs that slept have not seen."""
        if self.alive:
            for poller in self.pollers:
                poller.drain()

    def revoke(self) -> None:
        """Take the lent region back: from now on nobody may change it."""
        if self.alive:
            self.device.dereg_mr(self.arena.regions[LENT].handle)
            self._revoked = self._lent()

    def _lent(self) -> bytes:
        region = self.arena.regions[LENT]
        return bytes(self.arena.memory[region.start : region.start + region.length])

    def check_memory(self, counted: bool) -> None:
        """The world is at rest: nobody wrote where he may not; ``counted``: the counter is what it should."""
        report, name = self.node.world.report, f"adapter {self.node.number}"
        self.arena.collect()
        if counted:
            self.counter_oracle.finish(int.from_bytes(self.arena.read(self.counter), sys.byteorder))
        check_guards(report, name, bytes(self.arena.memory), self.arena.places())
        if self._revoked is not None:
            check_constant(report, f"{name}: the region taken back", self._lent(), self._revoked)

    def destroy(self) -> None:
        """Give everything back, after the queue pairs."""
        for poller in self.pollers:
            poller.cq.destroy()
        if self.srq is not None:
            self.srq.destroy()
        if self.pager is not None:
            self.pager.deregister()
        for region in self.arena.regions.values():
            if region.name == OPEN and self.pager is not None:
                continue
            if region.name != REVOKED and (region.name != LENT or self._revoked is None):
                self.device.dereg_mr(region.handle)
        for pd in self.pds:
            self.device.dealloc_pd(pd)
