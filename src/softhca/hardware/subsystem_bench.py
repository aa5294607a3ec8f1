"""A bench for the assembled subsystem: a host with memory and software around it, and a link.

Everything goes on at once, clock by clock: the host's memory answers, packets arrive, what leaves is kept,
and a script plays the host's software.  What happens inside is written down as it happens.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from softhca.hardware import CLOCK_NS
from softhca.hardware.context_memory import CONTEXT_WORDS, RECEIVE, WORDS
from softhca.hardware.designs import SEARCHERS
from softhca.hardware.fifo import POP_PACKET
from softhca.hardware.isa import packed
from softhca.hardware.local_bus import CONTEXTS, MICROCODE, MICROCODE_WORDS, RUN
from softhca.hardware.micro_registers import number_of
from softhca.hardware.native_simulator import simulator_of
from softhca.hardware.ports import BYTES
from softhca.hardware.subsystem import Subsystem

QP, PSN, VERDICT = 2, 3, 4
"""The general registers of `header_check` and `receive` that hold what they have found of a packet."""
VERDICTS = (
    "accepted",
    "duplicate",
    "gap",
    "wrong headers",
    "no such queue pair",
    "opcode not handled",
    "key refused",
    "no receive posted",
    "local memory refused",
)


class BenchEvent(NamedTuple):
    """In ``clock`` (from 0) ``who`` did ``what``, with ``values``."""

    clock: int
    who: str
    what: str
    values: dict[str, int]


class SubsystemBench:
    """``latency``: clocks until the host's memory answers; beyond ``limit`` it refuses."""

    def __init__(self, subsystem: Subsystem, latency: int = 3, limit: int = 1 << 32) -> None:
        self.subsystem = subsystem
        self.vis = subsystem.vis
        self.latency = latency
        self.limit = limit
        self.memory: dict[int, int] = {}
        """Words by address."""
        self.arrivals: deque[bytes] = deque()
        """Packets, LRH … VCRC, that are still to arrive."""
        self.departed: list[bytes] = []
        self.happenings: list[BenchEvent] = []
        self.clock = 0
        self.simulator = simulator_of(subsystem)
        self.simulator.add_clock(CLOCK_NS * 1e-9)
        for work in (self._count, self._host_memory, self._arrive, self._depart, self._watch):
            self.simulator.add_testbench(work, background=True)

    def run(self, script: Callable[[Any], Awaitable[None]], vcd: Path | None = None) -> None:
        """Play ``script`` to its end; once a bench."""
        self.simulator.add_testbench(script)
        if vcd is None:
            self.simulator.run()
            return
        with self.simulator.write_vcd(str(vcd)):
            self.simulator.run()

    # the host's software

    async def write(self, context: Any, address: int, data: int) -> None:
        """Write a word over the local bus."""
        await self._access(context, address, data)

    async def read(self, context: Any, address: int) -> int:
        """Read a word over the local bus."""
        return await self._access(context, address, None)

    async def _access(self, context: Any, address: int, data: int | None) -> int:
        access = self.subsystem.access
        context.set(access.valid, 1)
        context.set(access.write, data is not None)
        context.set(access.address, address)
        context.set(access.write_data, data or 0)
        ready = read = 0
        while not ready:
            _, _, ready, read = await context.tick().sample(access.ready, access.read_data)
        context.set(access.valid, 0)
        return int(read)

    async def load(self, context: Any, engine: int, halves: tuple[int, ...]) -> None:
        """Load an engine's microcode; it must stand."""
        for address, half in enumerate(halves):
            await self.write(context, MICROCODE + engine * MICROCODE_WORDS + address, half)

    async def place_program(self, context: Any, engine: int, halves: Sequence[int]) -> None:
        """What `load` does, in no time."""
        store = self.subsystem.engines[engine].memory.data
        for word, value in enumerate(packed(list(halves))):
            context.set(store[word], value)

    async def place_domain(self, context: Any, qp: int, pd: int) -> None:
        """The domain of a queue pair's row of the remote-key memory, as `prepare` enters it."""
        manager = self.subsystem.manager
        context.set(manager.rq.memory.data[manager.geometry.row * qp], pd)

    async def set_context(self, context: Any, qp: int, **words: int) -> None:
        """Write words of a queue pair's context by their names."""
        for name, value in words.items():
            await self.write(context, CONTEXTS + CONTEXT_WORDS * qp + WORDS[name], value)

    async def get_context(self, context: Any, qp: int, name: str) -> int:
        """Read a word of a queue pair's context."""
        return await self.read(context, CONTEXTS + CONTEXT_WORDS * qp + WORDS[name])

    async def until_halted(self, context: Any, engine: int, limit: int = 10_000) -> None:
        """Wait until an engine has halted; TimeoutError where it has not after ``limit`` looks."""
        for _ in range(limit):
            if await self.read(context, RUN) >> 8 + engine & 1:
                return
        raise TimeoutError(f"engine {engine} does not halt")

    # the host's memory

    def fetch(self, address: int) -> int:
        """The byte at ``address``."""
        return self.memory.get(address & ~3, 0) >> 8 * (address & 3) & 0xFF

    def store(self, address: int, byte: int) -> None:
        """Set the byte at ``address``."""
        self._write_word(address & ~3, byte << 8 * (address & 3), 1 << (address & 3))

    def _write_word(self, address: int, word: int, mask: int) -> None:
        """The bytes of ``word`` whose bits are set in ``mask``."""
        bits = sum(0xFF << 8 * byte for byte in range(BYTES) if mask >> byte & 1)
        self.memory[address] = self.memory.get(address, 0) & ~bits | word & bits

    # what goes on by itself

    async def _count(self, context: Any) -> None:
        async for _ in context.tick():
            self.clock += 1

    async def _host_memory(self, context: Any) -> None:
        bus, waited, clocks = self.subsystem.host, 0, aiter(context.tick())
        while True:
            done = 0
            if context.get(bus.valid):
                done = waited >= self.latency
                waited = 0 if done else waited + 1
            if done:
                address, write = context.get(bus.address), context.get(bus.write)
                refused = address >= self.limit
                if write and not refused:
                    self._write_word(address, context.get(bus.write_data), context.get(bus.mask))
                context.set(bus.read_data, 0 if refused else self.memory.get(address, 0))
                context.set(bus.error, refused)
                context.set(bus.done, 1)
            await anext(clocks)
            if done:
                context.set(bus.done, 0)

    async def _arrive(self, context: Any) -> None:
        line, clocks = self.subsystem.receive, aiter(context.tick())
        while True:
            if not self.arrivals:
                await anext(clocks)
                continue
            packet = self.arrivals.popleft()
            context.set(line.valid, 1)
            for at in range(0, len(packet), 2):
                context.set(line.data, int.from_bytes(packet[at : at + 2], "big"))
                context.set(line.last, at + 2 == len(packet))
                await anext(clocks)
            context.set(line.valid, 0)
            context.set(line.last, 0)

    async def _depart(self, context: Any) -> None:
        line, packet = self.subsystem.transmit, bytearray()
        async for _, _, valid, last, data in context.tick().sample(line.valid, line.last, line.data):
            if valid:
                packet += int(data).to_bytes(2, "big")
            if valid and last:
                self.departed.append(bytes(packet))
                packet.clear()

    async def _watch(self, context: Any) -> None:
        manager, searcher = self.subsystem.manager, SEARCHERS[self.subsystem.design]
        engine = self.subsystem.engines[RECEIVE]
        general = engine.data_mux.general.data
        bus = engine.bus
        seen = [
            self.subsystem.writes[RECEIVE],
            bus.write_address,
            bus.write_data,
            manager.sq_done,
            manager.rmb_mem_we,
            manager.rmb_mem_wr_addr,
            manager.rq_write,
        ]
        pop, done_before, begun = number_of("RX_POP"), 1, 0
        async for _, _, *values in context.tick().sample(*seen):
            enable, number, data, done, writes, address, by_rq = values
            clock = self.clock - 1  # the one that has ended
            if enable and number == pop:
                begun = begun or clock
                if data == POP_PACKET:
                    found = [context.get(general[register]) for register in (QP, PSN, VERDICT)]
                    qp, psn, verdict = found
                    psn = psn - (verdict == 0) & 0xFFFFFF  # the next one, where it is accepted
                    self._note(
                        "RQ engine", VERDICTS[verdict], clock, {"qp": qp, "psn": psn, "clocks": clock - begun}
                    )
                    begun = 0
            if done != done_before:
                self._note(searcher, "done" if done else "searches", clock, {})
            if writes and not by_rq:
                vi, slot = divmod(address, manager.geometry.row)
                self._note(searcher, "clears a key", clock, {"qp": vi, "slot": slot - 1})
            done_before = done

    def note(self, who: str, what: str, values: dict[str, int]) -> None:
        """Write down what the script does now."""
        self._note(who, what, self.clock, values)

    def _note(self, who: str, what: str, clock: int, values: dict[str, int]) -> None:
        self.happenings.append(BenchEvent(clock, who, what, values))
