"""Verilog of the remote-key manager's parts, a test bench that plays recorded clocks, and their size."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Any

from amaranth.back import verilog
from amaranth.hdl import Value
from amaranth.lib.wiring import In

from softhca.hardware.fixed_function import FixedFunctionManager
from softhca.hardware.key_memory import Geometry, RemoteKeyMemory
from softhca.hardware.rmb import RemoteKeyManager
from softhca.hardware.trace import Stimulus, drive, simulator
from softhca.hardware.yosys import TOP, run_yosys

TOPS: dict[str, Callable[[], Any]] = {
    "remote_key_manager": RemoteKeyManager,
    "fixed_function_manager": lambda: FixedFunctionManager(Geometry().vis),
    "remote_key_memory": lambda: RemoteKeyMemory(Geometry()),
}


def export(design: Any, name: str) -> str:
    """``design`` as Verilog, its module called ``name``; ports are the signature's, ``clk`` and ``rst``."""
    return str(verilog.convert(design, name=name, emit_src=False))


def vectors(manager: Any, stimulus: Stimulus) -> list[dict[str, int]]:
    """All ports in each clock of a simulation of ``manager`` under ``stimulus``, from the first clock on."""
    found: list[dict[str, int]] = []

    async def bench(ctx: Any) -> None:
        ctx.set(manager.sq_pd, stimulus.pd)
        ctx.set(manager.sq_key, stimulus.key)
        held = False
        for clock in range(min(1, stimulus.start), stimulus.clocks + 1):
            held = held or clock == stimulus.start
            ctx.set(manager.sq_start, held)
            drive(ctx, manager, stimulus.rq.get(clock))
            ports = {name: ctx.get(getattr(manager, name)) for name in manager.signature.members}
            found.append({name: _number(value) for name, value in ports.items()})
            held = held and not ctx.get(manager.sq_taken)
            await ctx.tick()

    simulator(manager, bench).run()
    return found


def _number(value: Any) -> int:
    return int(value.value if isinstance(value, Enum) else value)


def bench_text(design: Any, name: str, clocks: Sequence[Mapping[str, int]], first: int = 1) -> str:
    """A Verilog module ``bench`` that gives ``name`` the inputs of each clock and prints
    ``clock N: port is X, not Y`` for each output that differs from clock ``first`` on, then ``compared N``.

    What was never read or compared is unknown in Verilog and 0 in Amaranth's simulation: ``first`` lies
    behind the first comparison.
    """
    members = design.signature.members
    lines = ["`timescale 1ns/1ps", "module bench;", "reg clk = 0, rst = 0;"]
    for port, member in members.items():
        width = len(Value.cast(getattr(design, port)))
        lines.append(f"{'reg' if member.flow == In else 'wire'} [{width - 1}:0] {port};")
    joined = ", ".join(f".{port}({port})" for port in ("clk", "rst", *members))
    lines += [f"{name} dut({joined});", "initial begin"]
    lines += [f"{port} = 0;" for port, member in members.items() if member.flow == In]
    lines.append("rst = 1; #2 clk = 1; #4 clk = 0; #2 rst = 0;")
    for number, ports in enumerate(clocks, 1):
        lines += [f"{port} = {ports[port]};" for port, member in members.items() if member.flow == In]
        lines.append("#2;")
        for port, member in members.items():
            if member.flow != In and number >= first:
                told = f'$display("clock {number}: {port} is %0d, not {ports[port]}", {port})'
                lines.append(f"if ({port} !== {ports[port]}) {told};")
        lines.append("clk = 1; #4; clk = 0; #2;")
    lines.append(f'$display("compared {len(clocks) - first + 1}");')
    return "\n".join([*lines, "$finish;", "end", "endmodule", ""])


def size(text: str, name: str) -> dict[str, int]:
    """What ``name`` is made of: ``cells`` (gates of two inputs and multiplexers), ``flip_flops``,
    ``memories`` (RAMs).  YosysError when it has a latch, a multiple driver or a loop."""
    script = (
        f"read_verilog {TOP}; hierarchy -check -top {name}; proc; flatten; check -assert; opt; "
        "memory -nomap; opt; techmap; opt; select -assert-none t:$dlatch t:$_DLATCH_* %u; stat -json"
    )
    told = run_yosys(text, script)
    begin = told.rindex("{", 0, told.rindex('"creator"'))
    counts = json.loads(told[begin : told.rindex("}") + 1])["design"]
    kinds = counts["num_cells_by_type"]
    flip_flops = sum(count for kind, count in kinds.items() if "DFF" in kind)
    memories = sum(count for kind, count in kinds.items() if kind.startswith("$mem"))
    gates = counts["num_cells"] - flip_flops - memories
    return {"cells": gates, "flip_flops": flip_flops, "memories": memories}
