"""The exported Verilog under Icarus, against the clocks that Amaranth's simulation recorded, and its size."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from softhca.cli.main import main
from softhca.cli.rmb_verilog import NAMES
from softhca.hardware.figures import FIGURES
from softhca.hardware.rmb import RemoteKeyManager
from softhca.hardware.verilog import bench_text, export, size, vectors

NAME = "remote_key_manager"


def icarus(folder: Path, *texts: str) -> str:
    """What the simulation of these modules prints."""
    if shutil.which("iverilog") is None:
        pytest.skip("iverilog is not installed")
    names = []
    for number, text in enumerate(texts):
        names.append(f"part{number}.v")
        (folder / names[-1]).write_text(text)
    subprocess.run(["iverilog", "-g2012", "-o", "bench", *names], cwd=folder, check=True)
    return subprocess.run(
        ["vvp", "-n", "bench"], cwd=folder, check=True, capture_output=True, text=True
    ).stdout


@pytest.mark.parametrize("number", sorted(FIGURES))
def test_verilog_plays_the_diagrams_as_the_simulation_does(number: int, tmp_path: Path) -> None:
    figure = FIGURES[number]
    stimulus = figure.stimulus()
    recorded = vectors(figure.manager(), stimulus)
    first = stimulus.start - min(1, stimulus.start) + 5
    design = figure.manager()
    printed = icarus(tmp_path, bench_text(design, NAME, recorded, first), export(design, NAME))
    assert printed.splitlines()[0] == f"compared {len(recorded) - first + 1}"


def test_a_clock_that_differs_is_told(tmp_path: Path) -> None:
    figure = FIGURES[13]
    recorded = vectors(figure.manager(), figure.stimulus())
    recorded[9]["vi"] = 7
    design = figure.manager()
    printed = icarus(tmp_path, bench_text(design, NAME, recorded, 6), export(design, NAME))
    assert printed.startswith("clock 10: vi is 1, not 7\n")


def test_it_has_no_latch_and_no_multiple_driver_and_the_memory_is_one_ram() -> None:
    counted = size(export(RemoteKeyManager(), NAME), NAME)
    assert counted["memories"] == 1
    # domain, key, cursor, VI, slot, state; rewritten, beyond the last word
    assert counted["flip_flops"] == 28 + 27 + 11 + 8 + 2 + 3 + 1 + 1


@pytest.mark.parametrize("name", NAMES)
def test_the_command_writes_each_part_or_counts_it(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "part.v"
    assert main(["rmb", "verilog", name, "-o", str(path)]) == 0
    assert f"module {name}(" in path.read_text()
    assert main(["rmb", "verilog", name, "--size", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["memories"] == 1
