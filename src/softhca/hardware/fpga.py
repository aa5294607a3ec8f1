"""Does a part fit into a small FPGA, and at which clock: yosys and, where it is installed, nextpnr.

A part has more ports than a chip has pins.  So its ports become flip-flops here: its inputs a shift register
that a pin fills, its outputs one that a pin empties.  The longest path then lies within the part, or between
it and those flip-flops, which count as the part's.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from softhca.hardware.vectors import ports_of
from softhca.hardware.yosys import TOP, run_yosys

FITTED = "fitted"
"""The Verilog module that has the part and its shift registers."""
_FOUND = re.compile(r"Max frequency for clock\s+'[^']*': ([0-9.]+) MHz")
_LINES = 6


class Device(NamedTuple):
    """An FPGA: ``cells`` of a look-up table of four inputs and a flip-flop, ``rams`` of 4 Kibit; how
    nextpnr is told of it."""

    told: str
    cells: int
    rams: int
    options: tuple[str, ...]


DEVICES: Mapping[str, Device] = {
    "hx1k": Device("Lattice iCE40 HX1K", 1280, 16, ("--hx1k", "--package", "tq144")),
    "hx8k": Device("Lattice iCE40 HX8K", 7680, 32, ("--hx8k", "--package", "ct256")),
}


class FpgaError(Exception):
    """nextpnr failed for another reason than that the part does not fit; the message is what it said."""


class Fit(NamedTuple):
    """What a part takes of a `Device`: ``tables`` (look-up tables of four inputs), ``flip_flops``, ``rams``.

    ``clock_mhz``: the fastest clock after place and route, None where the part does not fit, or was not
    placed."""

    tables: int
    flip_flops: int
    rams: int
    fits: bool
    clock_mhz: float | None


def wrapped(design: Any, name: str) -> str:
    """A Verilog module `FITTED` of few pins around the part ``name``."""
    inputs, outputs = ports_of(design)
    joined, sizes = [], []
    for wires, ports in (("inputs", inputs), ("now", outputs)):
        low = 0
        for port in ports:
            joined.append(f".{port.name}({wires}[{low + port.bits - 1}:{low}])")
            low += port.bits
        sizes.append(low)
    last_input, last_output = (size - 1 for size in sizes)
    return "\n".join(
        [
            f"module {FITTED}(input clk, rst, given, load, output got);",
            f"reg [{last_input}:0] inputs;",
            f"reg [{last_output}:0] outputs;",
            f"wire [{last_output}:0] now;",
            f"{name} part(.clk(clk), .rst(rst), {', '.join(joined)});",
            "assign got = outputs[0];",
            "always @(posedge clk) begin",
            "inputs <= {inputs, given};",
            "outputs <= load ? now : outputs >> 1;",
            "end",
            "endmodule",
            "",
        ]
    )


def available() -> bool:
    """nextpnr is there, so a part can also be placed."""
    return shutil.which("nextpnr-ice40") is not None


def fit(text: str, device: str, seed: int = 1) -> Fit:
    """Map ``text`` (the part's Verilog and `wrapped`) to ``device``, a name of `DEVICES`.

    It is placed and routed where it fits and nextpnr is installed.  YosysError, FpgaError when a tool fails;
    ModuleNotFoundError when there is no yosys.
    """
    chip = DEVICES[device]
    script = (
        # what yosys notes of the modules that were, older versions of nextpnr take for cells
        f"read_verilog {TOP}\nsynth_ice40 -top {FITTED}\ndelete t:$scopeinfo\n"
        "write_json net.json\ntee -q -o cells.json stat -json\n"
    )
    net, stat = run_yosys(text, script, "net.json", "cells.json")
    kinds: dict[str, int] = json.loads(stat)["design"]["num_cells_by_type"]
    tables = kinds.get("SB_LUT4", 0)
    flip_flops = sum(count for kind, count in kinds.items() if kind.startswith("SB_DFF"))
    rams = sum(count for kind, count in kinds.items() if kind.startswith("SB_RAM"))
    fits = max(tables, flip_flops) <= chip.cells and rams <= chip.rams
    if not fits or not available():
        return Fit(tables, flip_flops, rams, fits, None)
    clock = _place(net, chip, seed)
    return Fit(tables, flip_flops, rams, clock is not None, clock)


def _place(net: str, chip: Device, seed: int) -> float | None:
    """MHz after place and route; None where nextpnr finds no room."""
    with tempfile.TemporaryDirectory() as name:
        (Path(name) / "net.json").write_text(net, encoding="utf-8")
        command = ["nextpnr-ice40", *chip.options, "--json", "net.json", "--seed", str(seed)]
        done = subprocess.run(
            [*command, "--freq", "125", "--timing-allow-fail"],
            cwd=name, capture_output=True, text=True, check=False,
        )  # fmt: skip
    said = done.stdout + done.stderr
    if done.returncode:
        if "no BELs remaining" in said or "failed to place" in said.lower():
            return None
        raise FpgaError("; ".join(line.strip() for line in said.strip().splitlines()[-_LINES:]))
    return float(_FOUND.findall(said)[-1])
