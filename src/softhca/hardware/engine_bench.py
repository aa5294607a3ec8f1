"""A bench for the micro-engine: loads microcode over the local bus, runs it, writes down every clock."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from amaranth.hdl import Fragment, Module
from amaranth.lib import wiring
from amaranth.lib.memory import MemoryData
from amaranth.lib.wiring import In, connect
from amaranth.sim import Simulator

from softhca.hardware import CLOCK_NS
from softhca.hardware.engine import MicroEngine
from softhca.hardware.instruction_model import Registers, Retired
from softhca.hardware.micro_registers import GENERAL_COUNT, EngineBus
from softhca.hardware.quick_simulator import quick_simulator


class ModelBlocks(wiring.Component):
    """Blocks that are a model in Python: what its registers show stands on the bus in the same clock."""

    def __init__(self, model: Registers) -> None:
        super().__init__({"bus": In(EngineBus())})
        self.model = model

    def elaborate(self, platform: object) -> Module:
        """No gates: the bench drives the bus."""
        return Module()

    def show(self, context: Any) -> None:
        """Answer this clock's reads."""
        bus = self.bus
        for address, data in (bus.read_address_a, bus.read_data_a), (bus.read_address_b, bus.read_data_b):
            number = context.get(address)
            context.set(data, self.model.read(number) if number >= GENERAL_COUNT else 0)

    def end(self, write: tuple[int, int] | None) -> None:
        """This clock ends, with the engine's ``write`` if there was one."""
        if write is not None:
            self.model.write(*write)
        self.model.tick()


class Recorded(NamedTuple):
    """A run: what each clock did, the general registers behind it, and whether it ended by a halt."""

    clocks: list[Retired]
    registers: list[int]
    halted: bool


class EngineBench:
    """An engine and the blocks on its ``bus``; every `run` begins from reset.

    ``memories``: what a run's ``contents`` fill before it begins, by name; "general" are the engine's own
    registers.  ``model``: what in the ``blocks`` is a model, when they are not one themselves.
    """

    def __init__(
        self,
        blocks: Any,
        memories: Mapping[str, MemoryData] | None = None,
        model: ModelBlocks | None = None,
    ) -> None:
        self.engine = MicroEngine()
        self.blocks = blocks
        self.model = blocks if isinstance(blocks, ModelBlocks) else model
        self.memories = {**(memories or {}), "general": self.engine.data_mux.general.data}
        top = Module()
        top.submodules.engine = self.engine
        top.submodules.blocks = self.blocks
        connect(top, self.engine.bus, self.blocks.bus)
        # elaborated now, simulated when it is first run: what is made and never used is warned of
        self._top = Fragment.get(top, None)
        self._simulator: Simulator | None = None
        self._job: tuple[Sequence[int], Mapping[str, Mapping[int, int]], int] = ((), {}, 0)
        self.contents: dict[str, list[int]] = {}
        """What the memories hold after a run."""

    def run(
        self, halves: Sequence[int], limit: int, contents: Mapping[str, Mapping[int, int]] | None = None
    ) -> Recorded:
        """Load ``halves``, fill the memories, run until a halt, ``limit`` clocks at most."""
        if self._simulator is None:
            self._simulator = quick_simulator(self._top)
            self._simulator.add_clock(CLOCK_NS * 1e-9)
            self._simulator.add_testbench(self._work)
        else:
            self._simulator.reset()
        self._job = halves, contents or {}, limit
        self._simulator.run()
        return self._recorded

    async def _work(self, context: Any) -> None:
        halves, contents, limit = self._job
        engine = self.engine
        for name, words in contents.items():
            for address, word in words.items():
                context.set(self.memories[name][address], word)
        for address, half in enumerate(halves):
            context.set(engine.local.address, address)
            context.set(engine.local.write_data, half)
            context.set(engine.local.write, 1)
            await context.tick()
        context.set(engine.local.write, 0)
        context.set(engine.run, 1)
        await context.tick()
        clocks, halted = await self._record(context, limit)
        self.contents = {
            name: [context.get(store[address]) for address in range(store.depth)]
            for name, store in self.memories.items()
        }
        self._recorded = Recorded(clocks, self.contents["general"], halted)

    async def _record(self, context: Any, limit: int) -> tuple[list[Retired], bool]:
        engine, bus = self.engine, self.engine.bus
        seen = [engine.address, bus.write_enable, bus.write_address, bus.write_data, engine.halted]
        model = self.model
        clocks: list[Retired] = []
        halted = False
        while len(clocks) < limit and not halted:
            if model is not None:
                model.show(context)
            _, _, address, writes, number, value, halted = await context.tick().sample(*seen)
            write = (number, value) if writes else None
            if model is not None:
                model.end(write)
            # the flags that an instruction leaves stand in the clock behind it
            z, c = bool(context.get(engine.z)), bool(context.get(engine.c))
            clocks.append(Retired(address, z, c, write))
        return clocks, bool(halted)
