# amaranth: UnusedElaboratable=no
"""The blocks as Verilog: yosys finds nothing wrong with them, and Icarus runs them as they are simulated."""

import shutil

import pytest

pytest.importorskip("amaranth")

from amaranth.back import verilog
from verilog_vectors import differences

from softhca.hardware.block_tops import BLOCKS

CLOCKS = 300


@pytest.mark.skipif(shutil.which("iverilog") is None, reason="Icarus Verilog is not installed")
@pytest.mark.parametrize("name", BLOCKS)
def test_icarus_runs_the_verilog_as_it_is_simulated(tmp_path, name):
    text = verilog.convert(BLOCKS[name](), name=name, emit_src=False)
    wrong, seen = differences(tmp_path, name, BLOCKS[name](), text, CLOCKS, seed=name)
    assert wrong == []
    assert len(set(seen)) > 10
