"""Synthesis with yosys: what the exported Verilog of a block becomes, and whether it is sound.

The Verilog itself is what yosys reads, so what is true of the result is true of the file that a user has.
"""

from __future__ import annotations

import json
import re
from typing import NamedTuple

from softhca.hardware.yosys import TOP, run_yosys

GATES = "AND,OR,XOR,MUX"
LOGIC = "t:$_* t:$_*DFF* %d"
"""What becomes these: gates, without flip-flops.  With them yosys would cut the logic up by who enables and
resets the flip-flops behind it, and have each piece mapped by itself, eighty times in a block.
"""
_LATCHES = "t:$dlatch t:$adlatch t:$dlatchsr t:$sr t:$_DLATCH_* t:$_DLATCHSR_* t:$_SR_*"
_SOUND = f"check -assert\nselect -assert-none {_LATCHES}\n"
"""No wire with two drivers or none, no loop without a flip-flop; no latch."""


_LONGEST = re.compile(r"^Longest topological path in .* \(length=([0-9]+)\):$", re.MULTILINE)


class Size(NamedTuple):
    """What a block takes: ``gates`` of two inputs, inverters and multiplexers; ``flip_flops``;
    ``memory_bits`` in RAMs and register files, which are left whole; ``levels``: gates behind one another on
    the longest path between flip-flops, memories and ports."""

    gates: int
    flip_flops: int
    memory_bits: int
    levels: int


def check(text: str, top: str) -> None:
    """Look for what is not sound; YosysError when there is a latch, a wire with several drivers or without
    one, or a loop.  ModuleNotFoundError when there is no yosys.

    Nothing is made smaller first, which is a third of the time and could only hide what is not sound.
    """
    run_yosys(text, _read(top, "opt_clean"))


def synthesize(text: str, top: str) -> Size:
    """Check Verilog, map it to gates, check those and count them; YosysError as of `check`."""
    script = (
        f"{_read(top, 'opt')}tee -q -o memories.json stat -json\n"
        f"memory -nomap\nopt -full\ntechmap\nopt\nabc -g {GATES} {LOGIC}\nopt_clean\n{_SOUND}"
        "tee -q -o sizes.json stat -json\ntee -q -o path.txt ltp -noff * t:$mem* %d\n"
    )
    *results, path = run_yosys(text, script, "memories.json", "sizes.json", "path.txt")
    before, after = (json.loads(result)["design"] for result in results)
    kinds: dict[str, int] = after["num_cells_by_type"]
    flip_flops = sum(count for kind, count in kinds.items() if "DFF" in kind)
    memories = sum(count for kind, count in kinds.items() if kind.startswith("$mem"))
    gates = sum(kinds.values()) - flip_flops - memories
    return Size(gates, flip_flops, before["num_memory_bits"], int(_LONGEST.findall(path)[-1]))


def _read(top: str, then: str) -> str:
    return f"read_verilog {TOP}\nhierarchy -check -top {top}\nproc\nflatten\n{then}\n{_SOUND}"
