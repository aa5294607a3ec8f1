"""softhca's classes beside the compiled pyverbs of rdma-core 44: the same calls have the same outcomes.

What the compiled classes do stands in ``tests/data/pyverbs-44-calls.json``; where Debian's package and its
Python can be had, the table is compared with them too.  ``pyverbs_calls.py apart`` makes it.
"""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).with_name("pyverbs_calls.py")
TABLE = json.loads((PROGRAM.parents[1] / "data" / "pyverbs-44-calls.json").read_text())


def run(*command: str, **environment: str) -> dict[str, str]:
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=300, check=False, env=environment or None
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def assert_as_in_the_table(found: dict[str, str]) -> None:
    others = {call: (found.get(call), TABLE.get(call)) for call in found.keys() | TABLE.keys()}
    assert {call: pair for call, pair in others.items() if pair[0] != pair[1]} == {}


def test_softhcas_classes_do_what_the_compiled_ones_do() -> None:
    assert len(TABLE) > 2000
    assert_as_in_the_table(run(sys.executable, str(PROGRAM), "softhca"))


def test_the_table_says_what_the_compiled_classes_do(tmp_path: Path) -> None:
    if not all(map(shutil.which, ("apt-get", "dpkg", "/usr/bin/python3"))):
        pytest.skip("the compiled classes are had on Debian only")
    got = subprocess.run(
        ["apt-get", "download", "python3-pyverbs"], cwd=tmp_path, capture_output=True, check=False
    )
    packages = list(tmp_path.glob("python3-pyverbs_44*.deb"))
    if got.returncode or not packages:
        pytest.skip("Debian's python3-pyverbs of rdma-core 44 cannot be had here")
    subprocess.run(["dpkg", "-x", str(packages[0]), str(tmp_path / "root")], check=True)
    modules = str(tmp_path / "root" / "usr" / "lib" / "python3" / "dist-packages")
    loads = ["/usr/bin/python3", "-c", "import pyverbs.device"]
    if subprocess.run(loads, env={"PYTHONPATH": modules}, capture_output=True, check=False).returncode:
        pytest.skip("the compiled classes do not load: another Python, or no libibverbs1")
    assert_as_in_the_table(run("/usr/bin/python3", str(PROGRAM), "apart", PYTHONPATH=modules))
