"""Amaranth's simulator with the calls of `softhca.hardware.fast_bench`, for where no compiler is."""

from __future__ import annotations

from typing import Any

from softhca.hardware.activity import IDLE, engine_states
from softhca.hardware.fast_bench import FIFO_PACKETS, FIFO_WORDS, QUEUES, VIS
from softhca.hardware.ports import BYTES
from softhca.hardware.subsystem import Subsystem
from softhca.hardware.subsystem_bench import SubsystemBench


class SimulatedBench(SubsystemBench):
    """The adapter that `softhca.hardware.fast_bench.build` makes, with ``size`` bytes of host memory (a
    multiple of 4) that answer at once; one script long."""

    def __init__(self, vis: int = VIS, size: int = 1 << 21) -> None:
        super().__init__(Subsystem(vis, QUEUES, FIFO_WORDS, FIFO_PACKETS), latency=0, limit=size)
        self._idle = [
            {address for address, state in engine_states(engine, vis).items() if state == IDLE}
            for engine in range(2)
        ]

    def memory_bytes(self, count: int) -> bytes:
        """The first ``count`` bytes of host memory."""
        found = bytearray(count)
        for address, word in self.memory.items():
            found[address : address + BYTES] = word.to_bytes(BYTES, "little")
        return bytes(found[:count])

    def arrive(self, packet: bytes) -> None:
        """A packet, LRH … VCRC, of an even number of bytes, arrives when those before it have."""
        self.arrivals.append(packet)

    def take_departed(self) -> list[bytes]:
        """Packets that have left since the last call."""
        found, self.departed[:] = list(self.departed), []
        return found

    async def wait(self, context: Any, clocks: int) -> None:
        """Let so many clocks go by, or fewer where a packet leaves."""
        for _ in range(clocks):
            if self.departed:
                return
            await context.tick()

    async def until_quiet(self, context: Any, quiet: int, most: int) -> None:
        """Until both engines have waited for work for ``quiet`` clocks, and host memory and link have rested;
        TimeoutError after ``most``."""
        adapter = self.subsystem
        seen = [*(engine.address for engine in adapter.engines), adapter.host.valid, adapter.transmit.valid,
                adapter.receive.valid]  # fmt: skip
        rested = 0
        for _ in range(most):
            _, _, *addresses, host, out, inward = await context.tick().sample(*seen)
            works = any(address not in idle for address, idle in zip(addresses, self._idle, strict=True))
            rested = 0 if works or host or out or inward or self.arrivals else rested + 1
            if rested >= quiet:
                return
        raise TimeoutError(f"still at work after {most} clocks")
