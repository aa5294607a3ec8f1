"""A bench for one block: a script sets inputs and looks at outputs, clock by clock, as often as one likes."""

from __future__ import annotations

from softhca.hardware import CLOCK_NS
from softhca.hardware.quick_simulator import quick_simulator


class Bench:
    """``run(script)`` begins with a reset (memories too) and ends with the script.

    The gates are made when the first script runs, not where a file of tests that has a bench is read: each
    worker reads all files, and runs the tests of few.
    """

    def __init__(self, block):
        self.block = block
        self._simulator = None
        self._script = None

    async def _process(self, ctx):
        await self._script(ctx)

    def run(self, script):
        self._script = script
        if self._simulator is None:
            self._simulator = quick_simulator(self.block)
            self._simulator.add_clock(CLOCK_NS * 1e-9)
            self._simulator.add_testbench(self._process)
        else:
            self._simulator.reset()
        self._simulator.run()


async def strobe(ctx, register, data):
    """Write a micro-register: one clock."""
    ctx.set(register.strobe, 1)
    ctx.set(register.data, data)
    await ctx.tick()
    ctx.set(register.strobe, 0)


async def line_words(ctx, line, packet):
    """Send the bytes LRH … VCRC of a packet (an even number), a half word a clock."""
    for at in range(0, len(packet), 2):
        ctx.set(line.valid, 1)
        ctx.set(line.data, int.from_bytes(packet[at : at + 2], "big"))
        ctx.set(line.last, at + 2 == len(packet))
        await ctx.tick()
    ctx.set(line.valid, 0)
    ctx.set(line.last, 0)


def words_of(data):
    """Whole words, the first byte on top."""
    return [int.from_bytes(data[at : at + 4], "big") for at in range(0, len(data), 4)]
