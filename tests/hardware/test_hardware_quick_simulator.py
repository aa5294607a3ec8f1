"""Amaranth's simulator made quick computes what it computes as it comes, in every clock."""

import pytest

pytest.importorskip("amaranth")

from amaranth.hdl import Elaboratable, Module, Signal
from amaranth.lib.memory import Memory
from amaranth.sim import Simulator, _pyrtl, pysim

from softhca.hardware import native_simulator, trace
from softhca.hardware import quick_simulator as quick
from softhca.hardware.tops import build
from softhca.hardware.vectors import play_random

CLOCKS = 400


class Counter(Elaboratable):
    """Counts to seven, and says when it begins anew; ``sum`` is seven more, ``word`` what it has written."""

    def __init__(self):
        self.count, self.wrapped, self.sum, self.word = Signal(3), Signal(), Signal(4), Signal(3)

    def elaborate(self, platform):
        module = Module()
        module.submodules.memory = memory = Memory(shape=3, depth=2, init=[])
        write, read = memory.write_port(), memory.read_port(domain="comb")
        module.d.comb += [self.sum.eq(self.count + 7), self.word.eq(read.data)]
        module.d.comb += [write.en.eq(self.count == 7), write.data.eq(self.count)]
        module.d.sync += [self.count.eq(self.count + 1), self.wrapped.eq(self.count == 7)]
        return module


def changes_of(waves):
    """What changes at each moment, by itself: Amaranth has it in any order."""
    head, _, rest = waves.partition("$enddefinitions")
    return head.partition("$timescale")[2], [sorted(part.split("\n")) for part in rest.split("\n#")]


@pytest.mark.parametrize("name", ["remote_key_manager", "micro_engine", "receive_fifo", "work_scheduler"])
def test_every_port_of_every_clock_is_the_same(name, monkeypatch):
    found = play_random(build(name), CLOCKS, name).clocks
    monkeypatch.setattr(trace, "quick_simulator", Simulator)
    wanted = play_random(build(name), CLOCKS, name).clocks
    assert len(set(wanted)) > CLOCKS // 2
    assert found == wanted


def test_the_same_design_is_compiled_once():
    """And each simulation has states of its own."""
    first = quick.quick_simulator(build("work_scheduler"))
    before = quick._compiled.cache_info()
    second = quick.quick_simulator(build("work_scheduler"))
    after = quick._compiled.cache_info()
    assert after.misses == before.misses
    assert after.hits > before.hits
    assert not set(map(id, first._engine._state.slots)) & set(map(id, second._engine._state.slots))
    assert _pyrtl.compile is compile


def test_what_amaranth_writes_is_what_is_made_quick(monkeypatch):
    """No call goes without a look, and no state is searched for in a list."""
    made = []
    monkeypatch.setattr(quick, "quick", lambda text, real=quick.quick: made.append(real(text)) or made[-1])
    quick.quick_simulator(build("receive_fifo"))
    runs = [text for text in made if text.startswith("def run(")]
    lines = [line.strip() for text in runs for line in text.splitlines()]
    assert len([line for line in lines if line.startswith("if next_")]) > 20
    assert not [line for line in lines if ".update(" in line]
    written = [line for line in lines if ".write(" in line]
    assert written
    assert all(line.startswith("if ") for line in written)
    assert not [text for text in runs if "slots[" in text.partition(":\n")[2]]


def test_a_process_looks_before_it_calls():
    text = quick.quick(
        "def run():\n    next_3 = slots[3].next\n    next_4 = 0\n    next_4 = 1 & slots[12].curr\n"
        "    slots[3].update(next_3)\n    slots[4].update(next_4, -1)\n    slots[5].write(slots[4].curr)\n"
        "    slots[5].write(address_1, data_2, enable_3)\n"
    )
    assert text == (
        "def run(slot_3=slots[3], slot_4=slots[4], slot_5=slots[5], slot_12=slots[12]):\n"
        "    next_3 = slot_3.next\n    next_4 = 0\n    next_4 = 1 & slot_12.curr\n"
        "    if next_3 != slot_3.next: slot_3.next = next_3; slot_3.pending.add(slot_3)\n"
        "    if next_4 != slot_4.next: slot_4.next = slot_4.next & ~-1 | next_4 & -1;"
        " slot_4.pending.add(slot_4)\n"
        "    slot_5.write(slot_4.curr)\n"
        "    if enable_3: slot_5.write(address_1, data_2, enable_3)\n"
    )


def test_other_text_stays_and_amaranth_gets_its_own_back():
    other = "slots[3].update(next_3)\n"
    assert quick.quick(other) == other
    with pytest.raises(Exception):  # noqa: B017, PT011    (whatever Amaranth says)
        quick.quick_simulator(5)
    assert _pyrtl._PythonEmitter is not quick._Emitter
    assert _pyrtl.comb_waker is not quick._Reader
    assert pysim._PySignalState is quick._PLAIN_SIGNAL


@pytest.mark.parametrize("made", [quick.quick_simulator, native_simulator.simulator_of, Simulator])
def test_waves_and_a_second_run_are_those_of_amaranth(made, tmp_path):
    """Of a counter with a memory, a clock and a test bench that waits for an edge of a signal."""

    def waves(simulation, name):
        place = tmp_path / name
        with simulation.write_vcd(str(place)):
            simulation.run()
        return place.read_text()

    design, seen = Counter(), []
    simulation = made(design)
    simulation.add_clock(1e-6)

    async def bench(context):
        seen.append(context.get(design.sum))
        await context.posedge(design.wrapped)
        seen.append(context.get(design.count))
        await context.tick().repeat(3)
        seen.extend((context.get(design.count), context.get(design.sum), context.get(design.word)))

    simulation.add_testbench(bench)
    first = waves(simulation, "first.vcd")
    simulation.reset()
    simulation.run()
    assert seen == [7, 0, 3, 10, 7] * 2
    assert first.count("\n#") > 20
    other = Simulator(design)
    other.add_clock(1e-6)
    other.add_testbench(bench)
    assert changes_of(waves(other, "other.vcd")) == changes_of(first)
