"""softhca's classes beside the compiled pyverbs of rdma-core 44: the same calls have the same outcomes.

What the compiled classes do stands in ``tests/data/pyverbs-44-calls.json``; where Debian's package and its
Python can be had, the table is compared with them too.  ``pyverbs_calls.py apart`` makes it.
"""

import importlib
import json
import pkgutil
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from softhca import verbs
from softhca.verbs.addr import GID
from softhca.verbs.base import PyverbsObject
from softhca.verbs.device import DeviceAttr
from softhca.verbs.qp import QPAttr, QPCap
from softhca.verbs.wr import SGE

PROGRAM = Path(__file__).with_name("pyverbs_calls.py")
TABLE = json.loads((PROGRAM.parents[1] / "data" / "pyverbs-44-calls.json").read_text())

OTHERWISE = {
    "settable(CQEX,": ("''", "nothing reads what is written there, and a mistake is an error at once"),
    "settable(DeviceAttrEx,": ("''", "comp_mask: the device has said it, and nothing reads what is written"),
    "settable(ODPCaps,": ("''", "xrc_odp_caps: as comp_mask of DeviceAttrEx"),
    "room(DmaBuf)": ("'Derived weak'", "one base for all objects; the compiled class has none"),
}
"""Calls, by how they begin, whose outcome is another here on purpose: ours, and why."""


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
    found = run(sys.executable, str(PROGRAM), "softhca")
    for call, outcome in found.items():
        for beginning, (ours, _) in OTHERWISE.items():
            if call.startswith(beginning):
                assert outcome == ours != TABLE[call]
                found[call] = TABLE[call]
    assert_as_in_the_table(found)


def test_a_library_class_has_no_room_for_attributes_that_it_has_not() -> None:
    """All classes, also those that rdma-core 44 has not: misspelt attributes are errors."""
    roomy = {
        kind.__qualname__
        for each in pkgutil.iter_modules(verbs.__path__, "softhca.verbs.")
        for kind in vars(importlib.import_module(each.name)).values()
        if isinstance(kind, type) and issubclass(kind, PyverbsObject) and kind.__dictoffset__
    }
    assert roomy == {"Device", "AbsentAttributes"}  # the former as compiled, the latter other makers'


@pytest.mark.parametrize("kind", [DeviceAttr, QPAttr, QPCap, GID, SGE])
def test_a_derived_class_has_room(kind: type) -> None:
    class Derived(kind):  # type: ignore[misc,valid-type]
        """A program's own."""

    made = Derived(1, 2, 3) if kind is SGE else Derived()
    made.own = 5
    assert made.own == 5
    assert str(made)


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
