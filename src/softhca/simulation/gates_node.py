"""An adapter in gates as one of a world's: packets go into its link and come out of it, clock by clock."""

from __future__ import annotations

from typing import Any

from softhca.hardware import CLOCK_NS
from softhca.hardware.gates import new_gates
from softhca.simulation.frames import LRH_BYTES
from softhca.simulation.world import START_NS, World
from softhca.wire.burst import Burst
from softhca.wire.framing import NATIVE
from softhca.wire.route import Route

HOST_BYTES = 0x120000
"""Of the gates' host."""


class GatesNode:
    """Adapter ``number`` of a world of native links, with the attributes of `softhca.simulation.node.Node`
    that links use.  ``engine`` is the node itself: it takes packets, and knows nobody's address.

    Its clocks are the world's time: `elapse` brings both on.
    """

    def __init__(self, world: World, number: int) -> None:
        self.world = world
        self.number = number
        self.ports = range(1, 2)
        self.gid = world.frames.gid(number)
        self.gids = [self.gid]
        self.lid = 2 * number
        self.engine: Any = self
        self.bench = new_gates(HOST_BYTES)
        self.refused = 0
        self._burst = Burst()
        self._begun_ns = START_NS

    # what links ask for

    def clock(self) -> int:
        """The world's time."""
        return self.world.now

    def stalled_until(self) -> int:
        """It never stands still."""
        return 0

    def receive(self, port: int, arrival: Any, now: int) -> None:
        """Packets arrive, LRH … VCRC; the link carries half words, so what is cut within one ends before."""
        for begin in range(0, arrival.length, arrival.stride):
            data = bytes(arrival.buffer[begin : min(begin + arrival.stride, arrival.length)])
            if len(data) >= 2:
                self.bench.arrive(data[: len(data) // 2 * 2])

    def turn(self) -> None:
        """It goes on by itself."""

    # its own

    async def elapse(self, context: Any, clocks: int) -> None:
        """So many clocks go by, or fewer where a packet leaves, and in the world as much time."""
        await self.bench.wait(context, clocks)
        self._catch_up()
        for data in self.bench.take_departed():
            self._carry(data)

    def _catch_up(self) -> None:
        self.world.play_to(self._begun_ns + self.bench.clock * CLOCK_NS, self.world.report.advance)

    def _carry(self, data: bytes) -> None:
        dlid, slid = int.from_bytes(data[2:4], "big"), int.from_bytes(data[6:LRH_BYTES], "big")
        if slid != self.lid:
            self.world.report.fail("packets say who sends them", f"from LID {slid} instead of {self.lid}")
        destination = self.world.frames.gid(dlid >> 1)
        self._burst.route = Route(NATIVE, self.gid, destination, slid=slid, dlid=dlid)
        self._burst.length = self._burst.stride = len(data)
        self._burst.buffer[: len(data)] = data
        self.world.carry(self, self._burst)

    def drops(self) -> dict[str, int]:
        """How many packets its link has refused, as far as was asked."""
        return {"refused": self.refused} if self.refused else {}

    def resources(self) -> dict[str, int]:
        """Its tables are its host's matter."""
        return {}

    def close(self) -> None:
        """It is switched off with the process."""
