"""``import pyverbs`` finds softhca's verbs, in a process of its own."""

import subprocess
import sys
from pathlib import Path

from machine_speed import limit_s

PROGRAM = """
import sys
import pyverbs.device as d
from pyverbs.qp import QP
import pyverbs.enums as e
import pyverbs
import softhca.verbs.device, softhca.verbs.qp
assert d is softhca.verbs.device and pyverbs.device is d
assert QP is softhca.verbs.qp.QP
assert d.__spec__.name == d.__name__ == "softhca.verbs.device"
assert e.IBV_QPS_RTS == 3
try:
    import pyverbs.providers.hns
except ModuleNotFoundError as error:
    print(error)
print(sys.argv[1:], __name__)
import neighbour
"""


def run(tmp_path: Path, *start: str) -> subprocess.CompletedProcess[str]:
    (tmp_path / "program.py").write_text(PROGRAM)
    (tmp_path / "neighbour.py").write_text("print('neighbour')")
    return subprocess.run(
        [sys.executable, *start], capture_output=True, text=True, timeout=limit_s(60), check=False
    )


def test_an_unmodified_program_finds_softhcas_classes_under_pyverbs_names(tmp_path: Path) -> None:
    done = run(tmp_path, "-m", "softhca.pyverbs_alias", str(tmp_path / "program.py"), "one", "two")
    assert done.stderr == ""
    assert done.stdout.splitlines() == [
        "softhca has no pyverbs.providers.hns",
        "['one', 'two'] __main__",
        "neighbour",
    ]


def test_install_works_from_inside_a_package_called_pyverbs_and_is_idempotent(tmp_path: Path) -> None:
    package = tmp_path / "pyverbs"
    package.mkdir()
    (package / "__init__.py").write_text(
        "from softhca import pyverbs_alias\npyverbs_alias.install()\npyverbs_alias.install()\n"
    )
    (package / "device.py").write_text("raise SystemExit('the wrong pyverbs')")
    done = run(tmp_path, str(tmp_path / "program.py"))
    assert done.stderr == ""
    assert "neighbour" in done.stdout


def test_without_a_program_there_is_a_usage_line() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "softhca.pyverbs_alias"],
        capture_output=True,
        text=True,
        timeout=limit_s(60),
        check=False,
    )
    assert done.returncode != 0
    assert "usage" in done.stderr
