"""The library's queues alone, with an adapter that is a script: what stands in their rings, what the adapter
is told, and which of its answers are believed."""

import subprocess
from pathlib import Path

import pytest
from native_world import LIMIT_S, part, parts_cases


@pytest.fixture(scope="module")
def queues(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return part(tmp_path_factory.mktemp("objects"), "objects_queues")


@pytest.mark.parametrize("case", parts_cases("objects_queues"))
def test_queues(queues: Path, case: str) -> None:
    done = subprocess.run([str(queues), case], capture_output=True, text=True, timeout=LIMIT_S)
    assert (done.returncode, done.stderr) == (0, "")
