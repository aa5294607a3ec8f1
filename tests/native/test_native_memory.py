"""What the library keeps of memory, rings and events, with an adapter that is a script: which frames are
taken and given back, which answers are believed, and what programs are refused."""

import subprocess
from pathlib import Path

import pytest
from native_world import LIMIT_S, part, parts_cases

PROGRAMS = ("objects_memory", "objects_host")
CASES = [(each, case) for each in PROGRAMS for case in parts_cases(each)]


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("objects")
    return {name: part(folder, name) for name in PROGRAMS}


@pytest.mark.parametrize(("program", "case"), CASES)
def test_memory(programs: dict[str, Path], program: str, case: str) -> None:
    done = subprocess.run([str(programs[program]), case], capture_output=True, text=True, timeout=LIMIT_S)
    assert (done.returncode, done.stderr) == (0, "")
