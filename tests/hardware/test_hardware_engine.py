"""The micro-engine's gates against its model: every clock's address, flags and write, and what is left."""

import os

import pytest

pytest.importorskip("amaranth")

from amaranth.sim import Simulator
from hypothesis import given, settings
from hypothesis import strategies as st
from microcode_strategies import NUMBERS, PROGRAMS, REGISTER_VALUES

from machine_speed import limit_s
from softhca.hardware.alu import Alu
from softhca.hardware.assembler import assemble
from softhca.hardware.engine import MicroEngine
from softhca.hardware.engine_bench import EngineBench, ModelBlocks
from softhca.hardware.instruction_model import InstructionModel, PlainRegisters, alu
from softhca.hardware.isa import ADDERS, CAPACITY, NOP, Control, Form, Instruction, Operation, encode

LIMIT = 120
EXAMPLES = int(os.environ.get("SOFTHCA_HARDWARE_EXAMPLES", "60"))
NONE = [0] * 64


@pytest.fixture(scope="module")
def bench():
    return EngineBench(ModelBlocks(PlainRegisters()))


def modelled(halves, limit=LIMIT, values=NONE):
    model = InstructionModel(halves, PlainRegisters(values))
    clocks = []
    while len(clocks) < limit and not model.halted:
        clocks.append(model.step())
    return model, clocks


@settings(max_examples=EXAMPLES, deadline=None)
@given(halves=PROGRAMS, values=REGISTER_VALUES)
@pytest.mark.timeout(0 if EXAMPLES > 60 else limit_s(900))
def test_gates_do_in_every_clock_what_the_model_does(bench, halves, values):
    bench.blocks.model = PlainRegisters(values)
    run = bench.run(halves, LIMIT)
    model, clocks = modelled(halves, values=values)
    assert run.clocks == clocks
    assert run.halted == model.halted
    assert run.registers == model.registers
    assert bench.blocks.model.values == model.bus.values


MEANINGLESS = {
    "operations that there are not": [
        form << 20 | operation << 16 | 1 << 10 | 1 << 3 for form in (0, 1, 2) for operation in range(10, 16)
    ],
    "conditions that there are not": [
        *(form << 20 | 1 << 16 | 1 << 10 | 3 << 4 | 1 << 3 | code for form in (0, 1) for code in (5, 6, 7)),
        *(3 << 20 | control << 18 | code << 15 for control in range(4) for code in (5, 6, 7)),
    ],
    "bits beside a target": [
        3 << 20 | control << 18 | 1 << bit for control in range(4) for bit in (12, 13, 14)
    ],
    "returns and halts with a target": [
        3 << 20 | control << 18 | 1 << bit for control in (2, 3) for bit in (0, 11)
    ],
}


@pytest.mark.parametrize("kind", MEANINGLESS)
@pytest.mark.parametrize("odd", [False, True])
def test_bits_without_a_meaning_take_a_clock_and_do_nothing(bench, kind, odd):
    start = assemble("move r1, 5\nmove r3, 7\nsub r2, 1\nadd r3, 1\nhalt").halves[:-1]
    bits = MEANINGLESS[kind]
    halves = [*start, *([NOP] if odd else []), *bits, *encode(Instruction(Form.CONTROL, Control.HALT))]
    run = bench.run(halves, 200)
    assert [clock.address for clock in run.clocks] == list(range(len(halves)))
    assert run.registers == [0, 5, 0xFFFFFFFF, 8, *([0] * 12)]
    assert all((clock.z, clock.c, clock.write) == (False, False, None) for clock in run.clocks[3:])
    assert run.clocks == modelled(halves, 200)[1]


@pytest.mark.parametrize("operation", Operation)
def test_a_long_form_at_an_odd_address_does_nothing(bench, operation):
    long = encode(Instruction(Form.LONG, operation, 20, 0x300000 | operation, True))
    halves = [NOP, long[0], NOP, NOP, *encode(Instruction(Form.CONTROL, Control.HALT))]
    run = bench.run(halves, 20)
    assert [clock.address for clock in run.clocks] == [0, 1, 2, 3, 4]
    assert not any(clock.z or clock.c or clock.write for clock in run.clocks)
    assert run.clocks == modelled(halves, 20)[1]


def test_the_address_wraps_at_the_memorys_end(bench):
    halves = [*encode(Instruction(Form.CONTROL, Control.JUMP, 0, CAPACITY - 1)), *([NOP] * 3)]
    run = bench.run(halves, 3)
    assert [clock.address for clock in run.clocks] == [0, CAPACITY - 1, 0]
    assert run.clocks == modelled(halves, 3)[1]


def test_a_call_at_the_memorys_end_comes_back_to_its_beginning(bench):
    first = encode(Instruction(Form.CONTROL, Control.JUMP, 0, CAPACITY - 1))[0]
    back = encode(Instruction(Form.CONTROL, Control.RETURN))[0]
    call = encode(Instruction(Form.CONTROL, Control.CALL, 0, 2))[0]
    halves = [first, NOP, back, *([NOP] * (CAPACITY - 4)), call]
    run = bench.run(halves, 4)
    assert [clock.address for clock in run.clocks] == [0, CAPACITY - 1, 2, 0]
    assert run.clocks == modelled(halves, 4)[1]


@pytest.mark.parametrize("depth", [1, 4, 5])
def test_calls_come_back_up_to_the_depth_of_the_stack(bench, depth):
    """The fifth call under way overwrites the first one's return address, in gates as in the model."""
    call = [encode(Instruction(Form.CONTROL, Control.CALL, 0, 2 * level + 2))[0] for level in range(depth)]
    back = encode(Instruction(Form.CONTROL, Control.RETURN))[0]
    halves = [half for one in call for half in (one, back)] + [back]
    run = bench.run(halves, 2 * depth + 1)
    assert run.clocks == modelled(halves, 2 * depth + 1)[1]
    assert (run.clocks[2 * depth].address == 1) == (depth <= 4)


def test_a_stopped_engine_begins_again_and_keeps_its_registers():
    """While *run* is low the flags and the stack are cleared and nothing acts; the general registers stay."""
    program = assemble("""
        call.nz inside
        halt
inside: add r1, 1
        move m16, r1
        sub r0, r0          ; sets Z and C
loop:   jump loop
        return""")
    engine = MicroEngine()
    written, flags, addresses = [], [], []

    async def work(context):
        await load(context, engine, program.halves)
        for run in (1, 1, 1, 1, 1, 1, 0, 0, 1, 1, 1, 1, 0, 0):
            context.set(engine.run, run)
            flags.append((context.get(engine.z), context.get(engine.c)))
            if context.get(engine.working):
                addresses.append(context.get(engine.address))
            if context.get(engine.bus.write_enable):
                written.append((context.get(engine.bus.write_address), context.get(engine.bus.write_data)))
            await context.tick()

    simulate(engine, work)
    assert written == [(16, 1), (16, 2)]
    assert flags[5:9] == [(1, 1), (1, 1), (0, 0), (0, 0)]
    assert addresses == [0, 2, 3, 4, 5, 5, 0, 2, 3, 4]


async def load(context, engine, halves):
    for address, half in enumerate(halves):
        context.set(engine.local.address, address)
        context.set(engine.local.write_data, half)
        context.set(engine.local.write, 1)
        await context.tick()
    context.set(engine.local.write, 0)


async def addresses_of(context, engine, clocks):
    """Run for ``clocks`` clocks and stop."""
    context.set(engine.run, 1)
    await context.tick()
    addresses = []
    for _ in range(clocks):
        addresses.append(context.get(engine.address))
        await context.tick()
    context.set(engine.run, 0)
    await context.tick()
    return addresses


def test_a_stop_empties_the_stack():
    """A return without a call goes to 0 then, and not to where the program before was called from."""
    engine, seen = MicroEngine(), []

    async def work(context):
        await load(context, engine, assemble("call on\nhalt\non: halt").halves)
        seen.append(await addresses_of(context, engine, 3))
        await load(context, engine, encode(Instruction(Form.CONTROL, Control.RETURN)))
        seen.append(await addresses_of(context, engine, 3))

    simulate(engine, work)
    assert seen == [[0, 2, 2], [0, 0, 0]]


@pytest.mark.parametrize("last", [0, 1, 2])
def test_the_instruction_in_whose_clock_the_engine_stops_does_nothing(last):
    engine, written = MicroEngine(), []

    async def work(context):
        await load(context, engine, assemble("move m16, 1\nmove m17, 2\nmove m18, 3\nhalt").halves)
        for clock in range(last + 3):
            context.set(engine.run, clock <= last)
            if context.get(engine.bus.write_enable):
                written.append(context.get(engine.bus.write_data))
            await context.tick()

    simulate(engine, work)
    assert written == [1, 2, 3][:last]


def test_the_models_restart_is_what_a_stop_is():
    model = InstructionModel(assemble("move r1, 7\n sub r0, r0\n halt").halves)
    assert model.run(10) == 3
    assert (model.z, model.c, model.halted) == (True, True, True)
    model.restart()
    assert (model.address, model.z, model.c, model.halted, model.registers[1]) == (0, False, False, False, 7)


def simulate(part, work):
    simulator = Simulator(part)
    simulator.add_clock(8e-9)
    simulator.add_testbench(work)
    simulator.run()


@settings(max_examples=200, deadline=None)
@given(a=NUMBERS, b=NUMBERS, operation=st.sampled_from(Operation))
def test_the_alu_equals_arithmetic(alu_bench, a, b, operation):
    result, z, carry, has_carry = alu_bench(a, b, operation)
    wanted, wanted_carry = alu(operation, a, b)
    assert (result, z) == (wanted, wanted == 0)
    assert has_carry == (operation in ADDERS)
    if has_carry:
        assert carry == wanted_carry


@pytest.mark.parametrize(
    ("operation", "a", "b", "wanted"),
    [
        (Operation.ADD, 0xFFFFFFFE, 1, (0xFFFFFFFF, False)),
        (Operation.ADD, 0xFFFFFFFF, 0, (0xFFFFFFFF, False)),
        (Operation.ADD, 0xFFFFFFFF, 1, (0, True)),
        (Operation.SUB, 5, 6, (0xFFFFFFFF, False)),
        (Operation.SUB, 5, 5, (0, True)),
        (Operation.CMP, 0, 0xFFFFFFFF, (1, False)),
        (Operation.CMP, 0xFFFFFFFF, 0xFFFFFFFF, (0, True)),
    ],
)
def test_the_carry_where_it_begins(alu_bench, operation, a, b, wanted):
    """Neither gates nor model take the greatest sum without a carry for one with it."""
    assert alu(operation, a, b) == wanted
    result, _, carry, _ = alu_bench(a, b, operation)
    assert (result, carry) == wanted


@pytest.fixture(scope="module")
def alu_bench():
    part = Alu()
    job = {}

    async def work(context):
        for port, value in job["inputs"].items():
            context.set(getattr(part, port), value)
        job["outputs"] = [context.get(port) for port in (part.result, part.z, part.carry, part.has_carry)]

    simulator = Simulator(part)
    simulator.add_testbench(work)

    def run(a, b, operation):
        if job:
            simulator.reset()
        job["inputs"] = {"a": a, "b": b, "operation": operation}
        simulator.run()
        return job["outputs"]

    return run


@pytest.mark.parametrize(
    ("operation", "a", "b", "result", "carry"),
    [
        (Operation.MOVE, 1, 2, 2, None),
        (Operation.ADD, 0xFFFFFFFF, 1, 0, True),
        (Operation.ADD, 0xFFFFFFFE, 1, 0xFFFFFFFF, False),
        (Operation.SUB, 0, 1, 0xFFFFFFFF, False),
        (Operation.SUB, 1, 1, 0, True),
        (Operation.CMP, 5, 3, 2, True),
        (Operation.OR, 0b1100, 0b1010, 0b1110, None),
        (Operation.XOR, 0b1100, 0b1010, 0b0110, None),
        (Operation.AND, 0b1100, 0b1010, 0b1000, None),
        (Operation.ROR, 0x80000001, 1, 0xC0000000, None),
        (Operation.ROR, 0x12345678, 32, 0x12345678, None),
        (Operation.SHL, 0x80000001, 4, 0x10, None),
        (Operation.SHL, 1, 33, 2, None),
        (Operation.BIT, 0b100, 2, 1, None),
        (Operation.BIT, 0b100, 3, 0, None),
    ],
)
def test_each_operation_by_example(alu_bench, operation, a, b, result, carry):
    got, z, got_carry, has_carry = alu_bench(a, b, operation)
    assert (got, z) == (result, result == 0)
    assert has_carry == (carry is not None)
    if carry is not None:
        assert got_carry == carry


def test_the_local_bus_loads_and_reads_back_while_the_engine_stands():
    engine = MicroEngine()
    stored = {0: 0x155555, 1: 0x2AAAAA, 2: 0x3FFFFF, CAPACITY - 1: 0x012345}
    seen = {}

    async def work(context):
        for address, half in stored.items():
            context.set(engine.local.address, address)
            context.set(engine.local.write_data, half)
            context.set(engine.local.write, 1)
            await context.tick()
        context.set(engine.local.write, 0)
        for address in (*stored, 3):
            context.set(engine.local.address, address)
            await context.tick()
            seen[address] = context.get(engine.local.read_data)
            assert not context.get(engine.working)

    simulate(engine, work)
    assert seen == {**stored, 3: 0}


@pytest.mark.parametrize(
    ("halves", "reason"), [([0] * (CAPACITY + 1), "do not fit"), ([1 << 22], "22 bits"), ([-1], "22 bits")]
)
def test_the_model_refuses_what_no_memory_can_hold(halves, reason):
    with pytest.raises(ValueError, match=reason):
        InstructionModel(halves)
