"""The same random inputs into a block's Verilog (Icarus) and into its simulation here: every output, every
clock."""

from __future__ import annotations

import random
import subprocess

from amaranth.hdl import Value
from amaranth.lib.wiring import In
from amaranth.sim import Simulator

from softhca.hardware import CLOCK_NS

BENCH = """
module bench;
  reg clk = 0, rst = 1;
  reg [{last_input}:0] inputs = 0;
  reg [{last_input}:0] vectors [0:{last_clock}];
  wire [{last_output}:0] outputs;
  integer i;
  {top} block (.clk(clk), .rst(rst){ports});
  always #4 clk = ~clk;
  initial begin
    $readmemh("vectors.hex", vectors);
    @(negedge clk) rst = 0;
    for (i = 0; i <= {last_clock}; i = i + 1) begin
      inputs = vectors[i];
      #1 $display("%h", outputs);
      @(negedge clk);
    end
    $finish;
  end
endmodule
"""


def ports_of(block):
    """(input ports, output ports) as (Verilog name, value), the signature flattened."""
    found = ([], [])
    for path, member, value in block.signature.flatten(block):
        name = "__".join(str(part) for part in path)
        found[member.flow != In].append((name, Value.cast(value)))
    return found


def random_inputs(generator, ports, clocks):
    """Words of all inputs: flags often set for a while, small and large numbers, old ones again."""
    clock_words, values = [], [0] * len(ports)
    for _ in range(clocks):
        for i, (_, port) in enumerate(ports):
            if generator.random() < 0.5:
                continue
            bits = len(port)
            kind = generator.randrange(4)
            width = (bits, min(bits, 3), min(bits, 8), bits)[kind]
            values[i] = generator.getrandbits(width) if width else 0
        clock_words.append(list(values))
    return clock_words


def packed(ports, values):
    """One number, the first port lowest."""
    word = shift = 0
    for (_, port), value in zip(ports, values, strict=True):
        word |= value << shift
        shift += len(port)
    return word


def simulated(block, inputs, outputs, vectors):
    """The outputs in each clock."""
    simulator, found = Simulator(block), []
    simulator.add_clock(CLOCK_NS * 1e-9)

    async def script(ctx):
        for values in vectors:
            for (_, port), value in zip(inputs, values, strict=True):
                ctx.set(port, value)
            found.append(packed(outputs, [ctx.get(port) for _, port in outputs]))
            await ctx.tick()

    simulator.add_testbench(script)
    simulator.run()
    return found


def icarus(folder, top, text, inputs, outputs, vectors):
    """The outputs in each clock."""

    def joined(ports, wire):
        shift, parts = 0, []
        for name, port in ports:
            if len(port):
                parts.append(f", .{name}({wire}[{shift + len(port) - 1}:{shift}])")
            shift += len(port)
        return "".join(parts), shift

    input_ports, input_bits = joined(inputs, "inputs")
    output_ports, output_bits = joined(outputs, "outputs")
    bench = BENCH.format(
        top=top,
        last_input=input_bits - 1,
        last_output=output_bits - 1,
        last_clock=len(vectors) - 1,
        ports=input_ports + output_ports,
    )
    (folder / "block.v").write_text(text, encoding="utf-8")
    (folder / "bench.v").write_text(bench, encoding="utf-8")
    lines = [f"{packed(inputs, values):x}" for values in vectors]
    (folder / "vectors.hex").write_text("\n".join(lines), encoding="ascii")
    subprocess.run(["iverilog", "-g2005", "-o", "bench", "bench.v", "block.v"], cwd=folder, check=True)
    result = subprocess.run(["vvp", "bench"], cwd=folder, capture_output=True, text=True, check=True)
    return result.stdout.split()[: len(vectors)]


def differences(folder, top, block, text, clocks, seed):
    """The clocks in which the Verilog shows something else; all outputs that were seen."""
    inputs, outputs = ports_of(block)
    vectors = random_inputs(random.Random(seed), inputs, clocks)
    expected = simulated(block, inputs, outputs, vectors)
    seen = icarus(folder, top, text, inputs, outputs, vectors)
    assert len(seen) == clocks
    wrong = [
        clock
        for clock in range(clocks)
        if "x" in seen[clock] or "z" in seen[clock] or int(seen[clock], 16) != expected[clock]
    ]
    return wrong, expected
