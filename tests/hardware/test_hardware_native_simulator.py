"""The simulator whose processes are in C computes what Amaranth's computes as it comes, in every clock."""

import gc
import random
import weakref

import pytest

pytest.importorskip("amaranth")

from amaranth.hdl import Cat, Const, Format, Module, Mux, Print, Shape, Signal, Value, signed, unsigned
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out
from amaranth.sim import Simulator, _pyrtl, pysim

from softhca.hardware import native_simulator as native
from softhca.hardware import quick_simulator as quick
from softhca.hardware import trace
from softhca.hardware.subsystem import Subsystem
from softhca.hardware.tops import build
from softhca.hardware.vectors import play_random

CLOCKS = 400
needs_compiler = pytest.mark.skipif(native.compiler() is None, reason="no C compiler is here")


def in_c(design):
    """The simulation, which must not be one in Python."""
    simulation = native.simulator_of(design)
    assert type(simulation._engine) is native._Engine
    return simulation


def in_both(design, clocks, seed, monkeypatch):
    """What ports are in each clock, in C and as Amaranth has it."""
    found = []
    for simulator in (in_c, Simulator):
        monkeypatch.setattr(trace, "quick_simulator", simulator)
        found.append(play_random(design(), clocks, seed).clocks)
    return found


@needs_compiler
@pytest.mark.parametrize(
    "name",
    ["remote_key_manager", "micro_engine", "receive_fifo", "work_scheduler", "translation", "payload_mover"],
)
def test_every_port_of_every_clock_is_the_same(name, monkeypatch):
    found, wanted = in_both(lambda: build(name), CLOCKS, name, monkeypatch)
    assert len(set(wanted)) > CLOCKS // 2
    assert found == wanted


@needs_compiler
def test_the_assembled_adapter_is_the_same(monkeypatch):
    found, wanted = in_both(lambda: Subsystem(4, 1, 1024, 4), 200, 1, monkeypatch)
    assert len(set(wanted)) > 100
    assert found == wanted


WIDTHS = (1, 2, 5, 31, 32, 33, 62, 63, 64, 65)


class Expressions(wiring.Component):
    """Random expressions of inputs of all widths, with and without a sign: what is now, and what is kept."""

    def __init__(self, seed, count=40):
        self.dice = random.Random(seed)
        self.shapes = [kind(width) for width in WIDTHS for kind in (unsigned, signed)]
        self.made = [self.dice.choice(self.shapes) for _ in range(count)]
        super().__init__(
            {f"in_{n}": In(shape) for n, shape in enumerate(self.shapes)}
            | {f"out_{n}": Out(shape) for n, shape in enumerate(self.made)}
            | {f"kept_{n}": Out(shape) for n, shape in enumerate(self.made)}
            | {"parts": Out(10)}
        )

    def _leaf(self):
        if self.dice.random() < 0.2:
            return Const(self.dice.getrandbits(12) - 1000, Shape(self.dice.choice((11, 13, 40)), True))
        return getattr(self, f"in_{self.dice.randrange(len(self.shapes))}")

    def _expression(self, depth):
        """Of few enough bits for 126 of them to be enough on the way."""
        dice = self.dice
        if not depth:
            return Value.cast(self._leaf())
        one, other = self._expression(depth - 1), self._expression(depth - 1)
        if len(one) > 66 or len(other) > 66:
            one, other = one[:66], other[:33].as_signed()
        few = other[:5]
        return dice.choice(
            [
                lambda: one + other, lambda: one - other, lambda: one & other, lambda: one | other,
                lambda: one ^ other, lambda: one == other, lambda: one < other, lambda: one >= other,
                lambda: ~one, lambda: -one, lambda: one.bool(), lambda: one.all(), lambda: one[:60].xor(),
                lambda: one[:40] << few, lambda: one >> other[:7], lambda: one[:30] * other[:30],
                lambda: one[:40].as_signed() * other[:20].as_signed(),
                lambda: one[:33] // other[:7], lambda: one[:33] % other[:7],
                lambda: Cat(one[:40], other[:20]), lambda: one.bit_select(few, 7),
                lambda: one[:50].word_select(other[:2], 8), lambda: Mux(few[0], one, other),
                lambda: one[len(one) // 2 :].as_signed(), lambda: one.as_unsigned(),
            ]
        )()  # fmt: skip

    def elaborate(self, platform):
        m, dice = Module(), self.dice
        m.d.comb += self.parts[:6].eq(self.in_8)
        m.d.sync += self.parts[6:].eq(self.parts)
        for number in range(len(self.made)):
            out, kept = getattr(self, f"out_{number}"), getattr(self, f"kept_{number}")
            m.d.comb += out.eq(self._expression(dice.randrange(1, 4)))
            with m.Switch(self.in_4[:3]):
                with m.Case("1-0", 1):
                    m.d.sync += kept.eq(self._expression(2))
                with m.Case(2):
                    m.d.sync += kept.bit_select(self.in_2, len(kept) // 2).eq(self._expression(1))
                with m.Case(3, 7), m.If(self._expression(1).bool()):
                    m.d.sync += kept[len(kept) // 2 :].eq(self._expression(1))
                with m.Default():
                    m.d.sync += kept.eq(kept + out)
        return m


@needs_compiler
@pytest.mark.parametrize("seed", range(4))
def test_expressions_of_all_widths_are_the_same(seed, monkeypatch):
    found, wanted = in_both(lambda: Expressions(seed), 100, seed, monkeypatch)
    assert len(set(wanted)) == 100
    assert found == wanted


@needs_compiler
def test_simulations_of_one_design_have_states_of_their_own_and_give_them_back():
    before = native._library.cache_info()
    first, second = in_c(build("work_scheduler")), in_c(build("work_scheduler"))
    after = native._library.cache_info()
    assert after.misses - before.misses <= 1
    assert after.hits > before.hits
    gates = [weakref.ref(each._engine._gates) for each in (first, second)]
    assert gates[0]().pointer.value != gates[1]().pointer.value
    ends = [each()._finish for each in gates]
    assert all(end.alive for end in ends)
    del first, second
    gc.collect()
    assert not any(end.alive for end in ends)


@needs_compiler
def test_signals_that_only_a_test_bench_has_are_signals_too():
    design, own, seen = build("work_scheduler"), Signal(3), []
    simulation = in_c(design)
    simulation.add_clock(1e-6)

    async def waits(context):
        async for (value,) in context.changed(own):
            seen.append(value)

    async def sets(context):
        for value in (3, 3, 5):
            await context.tick()
            context.set(own, value)
        assert context.get(own + 1) == 6

    simulation.add_testbench(waits, background=True)
    simulation.add_testbench(sets)
    simulation.run()
    assert seen == [0, 3, 5]


class Cells(wiring.Component):
    """A memory that is read at once."""

    def __init__(self):
        super().__init__({"address": In(2), "word": Out(8)})
        self.memory = Memory(shape=8, depth=4, init=[1, 2, 3, 4])

    def elaborate(self, platform):
        m = Module()
        m.submodules.memory = self.memory
        read = self.memory.read_port(domain="comb")
        m.d.comb += [read.addr.eq(self.address), self.word.eq(read.data)]
        return m


@needs_compiler
def test_a_test_bench_writes_memories_that_begin_anew():
    simulation, seen = in_c(design := Cells()), []

    async def bench(context):
        row = design.memory.data[0]
        seen.append(context.get(design.word))
        context.set(row, 9)
        seen.extend((context.get(design.word), context.get(row)))
        context.set(design.address, 3)
        seen.append(context.get(design.word))

    simulation.add_testbench(bench)
    simulation.run()
    simulation.reset()
    simulation.run()
    assert seen == [1, 9, 9, 4] * 2


class Odd(wiring.Component):
    """What cannot be said in C: a word is printed, a memory's numbers have a sign, or there are 200 bits."""

    def __init__(self, kind):
        self.kind = kind
        super().__init__({"out": Out(200)})

    def elaborate(self, platform):
        m = Module()
        m.d.sync += self.out.eq(self.out + 1)
        if self.kind == "bits":
            return m
        m.d.sync += self.out[8:].eq(0)
        if self.kind == "print":
            m.d.sync += Print(Format("{}", self.out[:8]))
        if self.kind == "memory":
            m.submodules.memory = memory = Memory(shape=signed(4), depth=4, init=[])
            write = memory.write_port()
            m.d.comb += [write.en.eq(1), write.data.eq(self.out[:4])]
        return m


def counts(design, simulation):
    """Whether it runs."""

    async def bench(context):
        await context.tick().repeat(3)
        assert context.get(design.out) == 3

    simulation.add_clock(1e-6)
    simulation.add_testbench(bench)
    simulation.run()


@needs_compiler
@pytest.mark.parametrize("kind", ["print", "memory", "bits"])
def test_what_cannot_be_said_in_c_is_simulated_in_python(kind, capsys):
    simulation = native.simulator_of(design := Odd(kind))
    assert type(simulation._engine) is quick._Engine
    counts(design, simulation)
    plain = [_pyrtl._PythonEmitter, pysim._PySignalState, pysim._PyMemoryState]
    assert [each.__module__ for each in plain] == ["amaranth.sim._pyrtl", *["amaranth.sim.pysim"] * 2]


@pytest.mark.parametrize("found", [None, "/bin/false"])
def test_without_a_compiler_that_works_it_is_simulated_in_python(found, monkeypatch):
    monkeypatch.setattr(native.shutil, "which", lambda name: found)
    native._library.cache_clear()
    simulation = native.simulator_of(build("wake_up"))
    assert type(simulation._engine) is quick._Engine
