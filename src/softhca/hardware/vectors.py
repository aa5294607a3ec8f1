"""Every port of a design in each clock of a simulation, for another simulator to be held against."""

from __future__ import annotations

import random
from typing import Any, NamedTuple

from amaranth.hdl import Value
from amaranth.lib.wiring import In
from amaranth.sim import Simulator

from softhca.hardware.trace import simulator


class Port(NamedTuple):
    """A port by its name in Verilog."""

    name: str
    value: Value

    @property
    def bits(self) -> int:
        """Its width."""
        return len(self.value)


class Recording(NamedTuple):
    """The values of all ``inputs``, then of all ``outputs``, just before the end of each of ``clocks``."""

    inputs: list[Port]
    outputs: list[Port]
    clocks: list[tuple[int, ...]]


def ports_of(design: Any) -> tuple[list[Port], list[Port]]:
    """Inputs and outputs of ``design``, without those of no bits, which Verilog does not have."""
    found: tuple[list[Port], list[Port]] = ([], [])
    for path, member, value in design.signature.flatten(design):
        port = Port("__".join(map(str, path)), Value.cast(value))
        if port.bits:
            found[member.flow != In].append(port)
    return found


def watch(simulation: Simulator, design: Any) -> Recording:
    """A recording that fills when ``simulation`` runs."""
    inputs, outputs = ports_of(design)
    recording = Recording(inputs, outputs, [])
    values = [port.value for port in (*inputs, *outputs)]

    async def look(ctx: Any) -> None:
        async for _, _, *now in ctx.tick().sample(*values):
            recording.clocks.append(tuple(map(int, now)))

    simulation.add_testbench(look, background=True)
    return recording


def play_random(design: Any, clocks: int, seed: int | str) -> Recording:
    """A recording of ``design`` under random inputs: flags that often stay a while, small and large numbers,
    old ones again."""
    dice = random.Random(seed)
    inputs, _ = ports_of(design)

    async def bench(ctx: Any) -> None:
        for _ in range(clocks):
            for port in inputs:
                if dice.random() < 0.5:
                    continue
                width = dice.choice((port.bits, min(port.bits, 3), min(port.bits, 8), port.bits))
                ctx.set(port.value, dice.getrandbits(width))
            await ctx.tick()

    simulation = simulator(design, bench)
    recording = watch(simulation, design)
    simulation.run()
    return recording
