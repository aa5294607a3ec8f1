"""Verilog of a design, and a test bench in Verilog that plays recorded clocks over it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from amaranth.back import rtlil

from softhca.hardware.vectors import Port, Recording
from softhca.hardware.yosys import AMARANTH, run_yosys

_WRITE = "proc -nomux -norom\nmemory_collect\nwrite_verilog -norename design.v\n"
"""As amaranth's own converter does it, which starts a process for each design."""
_KICK = re.compile(r"^  reg (\\\$auto\$verilog_backend\S+ ) = 0;$", re.MULTILINE)


_INITIAL = re.compile(r"^  initial begin\n((?:    \S+ ?\[\d+\] = \d+'\S+;\n)+)  end\n", re.MULTILINE)
"""The words of a memory when it is powered on."""
_TOGETHER = 32


def export(design: Any, name: str) -> str:
    """``design`` as Verilog (IEEE 1364-2005), its module called ``name``; ports are the signature's, ``clk``
    and ``rst``.

    yosys gives each ``always @*`` block a register to look at, so that its initial value wakes the block at
    the start.  Verilog leaves open whether that comes before the blocks listen, and in SystemVerilog (Icarus
    with ``-g2012``) it always does: blocks that nothing else wakes then leave their outputs unknown.  So the
    value comes here when all blocks listen.

    And it puts all words of a memory into one block.  Whoever reads that (yosys) takes the longer for each
    word the more there are, so here they are in several.
    """
    rtl = rtlil.convert(design, name=name, emit_src=False)
    script = f"read_rtlil <<rtlil\n{rtl}\nrtlil\n{_WRITE}"
    (text,) = run_yosys("", script, "design.v", package=AMARANTH)
    text = _INITIAL.sub(_in_several, text)
    return _KICK.sub(r"  reg \1;\n  initial #0 \1 = 0;", text)


def _in_several(found: re.Match[str]) -> str:
    lines = found[1].splitlines(keepends=True)
    parts = ("".join(lines[at : at + _TOGETHER]) for at in range(0, len(lines), _TOGETHER))
    return "".join(f"  initial begin\n{part}  end\n" for part in parts)


def bench_text(name: str, recording: Recording) -> str:
    """A Verilog module ``bench``: gives ``name``, after a clock of reset, the inputs of each clock, prints
    ``clock N: port is X, not Y`` for each output that differs, at last ``compared N clocks, M differ``."""
    inputs, outputs, clocks = recording
    given, got = _slices(inputs), _slices(outputs)
    count = len(clocks)
    joined = [f".{port.name}({wire}[{bits}])" for wire, ports in (("inputs", given), ("outputs", got))
              for port, bits in ports]  # fmt: skip
    last_input, last_output = (sum(port.bits for port in ports) - 1 for ports in (inputs, outputs))
    lines = [
        "`timescale 1ns/1ps",
        "module bench;",
        "reg clk = 0, rst = 1;",
        f"reg [{last_input}:0] inputs = 0, given [1:{count}];",
        f"reg [{last_output}:0] wanted, expected [1:{count}];",
        f"wire [{last_output}:0] outputs;",
        "integer clock, differing = 0;",
        f"{name} dut(.clk(clk), .rst(rst), {', '.join(joined)});",
        "initial begin",
    ]
    for number, values in enumerate(clocks, 1):
        lines.append(f"given[{number}] = 'h{_word(inputs, values[: len(inputs)]):x};")
        lines.append(f"expected[{number}] = 'h{_word(outputs, values[len(inputs) :]):x};")
    lines += [
        "#2 clk = 1; #4 clk = 0; #2 rst = 0;",
        f"for (clock = 1; clock <= {count}; clock = clock + 1) begin",
        "inputs = given[clock]; wanted = expected[clock];",
        "#2;",
        "if (outputs !== wanted) begin",
    ]
    for port, bits in got:
        told = f'"clock %0d: {port.name} is %0d, not %0d", clock, outputs[{bits}], wanted[{bits}]'
        lines.append(f"if (outputs[{bits}] !== wanted[{bits}]) $display({told});")
    lines += [
        "differing = differing + 1;",
        "end",
        "clk = 1; #4 clk = 0; #2;",
        "end",
        f'$display("compared {count} clocks, %0d differ", differing);',
        "$finish;",
        "end",
        "endmodule",
        "",
    ]
    return "\n".join(lines)


def _slices(ports: Sequence[Port]) -> list[tuple[Port, str]]:
    """Each port's bits in the word of them all, the first port lowest."""
    return [(port, f"{low + port.bits - 1}:{low}") for port, low in _placed(ports)]


def _placed(ports: Sequence[Port]) -> Iterator[tuple[Port, int]]:
    low = 0
    for port in ports:
        yield port, low
        low += port.bits


def _word(ports: Sequence[Port], values: Sequence[int]) -> int:
    return sum(value << low for (_, low), value in zip(_placed(ports), values, strict=True))
