"""The micro-engine as Verilog: Icarus runs it as the model runs."""

import random

import pytest

pytest.importorskip("amaranth")

from icarus import icarus

from softhca.hardware.instruction_model import InstructionModel, PlainRegisters
from softhca.hardware.isa import INSTRUCTION_MASK
from softhca.hardware.tops import build
from softhca.hardware.verilog import export

CLOCKS = 150
BENCH = """
module bench;
  reg clk = 0, rst = 1, run = 0, write = 0;
  reg [11:0] address = 0;
  reg [21:0] data = 0;
  reg [21:0] halves [0:{last}];
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
    $readmemh("program.hex", halves);
    $readmemh("registers.hex", registers);
    @(negedge clk) rst = 0;
    write = 1;
    for (i = 0; i <= {last}; i = i + 1) begin
      address = i; data = halves[i];
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
    return export(build("micro_engine"), "micro_engine")


@pytest.mark.parametrize("seed", range(4))
def test_icarus_runs_the_verilog_as_the_model_runs(text, tmp_path, seed):
    generator = random.Random(seed)
    values = [generator.getrandbits(32) for _ in range(64)]
    halves = busy_program(generator, values)
    bench = BENCH.format(last=len(halves) - 1, clocks=CLOCKS)
    for name, words in (("program", halves), ("registers", values)):
        (tmp_path / f"{name}.hex").write_text("\n".join(f"{word:x}" for word in words), encoding="ascii")
    printed = icarus(tmp_path, bench, text)
    model = InstructionModel(halves, PlainRegisters(values))
    expected = []
    for _ in range(CLOCKS):
        address, z, c, write = model.step()
        number, value = write or (0, 0)
        expected.append([address, int(write is not None), number, value, int(z), int(c)])
    lines = [line.split() for line in printed.splitlines() if line[0].isdigit()]
    assert [[int(word) for word in line] for line in lines[:CLOCKS]] == expected
