"""rdma-core's own tests of pyverbs, run unchanged under ``softhca run``; what became of each case.

``python tests/pyverbs_suites/suite.py [--form FORM] [--folder TESTS]`` prints a table.  The tests are not
ours and are not kept here: `fetch` takes them out of Debian's package with ``apt-get download`` and
``dpkg-deb``, into a temporary folder; ``--folder`` names ones that are there already.
"""

import argparse
import gzip
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from softhca.native import library

PACKAGE = "python3-pyverbs"
DISTRIBUTIONS_PYTHON = "/usr/bin/python3"
"""Whose pyverbs the form ``library`` runs, on our libibverbs in C."""
INSIDE = "usr/share/doc/rdma-core/tests"
LIMIT_S = 600
FORMS: dict[str, tuple[list[str], str]] = {  # options of softhca run, SOFTHCA_ADAPTER
    "embedded": ([], "embedded"),
    "process": ([], "process"),
    "packets": (["--link", "udp"], "embedded"),
    "library": ([], "process"),
}
VENDORS = ("test_mlx5", "test_efa", "test_cuda")
_OUTCOME = re.compile(r"(?:^|^.*\.\.\. )(ok|FAIL|ERROR|expected failure|skipped (?P<why>['\"].*['\"]))$")
_CASE = re.compile(r"^(\w+) \(((?:tests\.)?[\w.]+)\)")


class NotAvailable(Exception):
    """The tests cannot be had here; the text says why."""


@dataclass(frozen=True)
class Case:
    """What became of one case: ``ok``, ``skipped``, ``FAIL`` or ``ERROR``, and why it was skipped."""

    name: str
    outcome: str
    why: str = ""

    @property
    def of_a_vendor(self) -> bool:
        """Whether it is for one maker's devices."""
        return any(part.startswith(VENDORS) for part in self.name.split("."))


def fetch(place: Path) -> Path:
    """Put the tests of Debian's package below ``place``; raises `NotAvailable`."""
    for tool in ("apt-get", "dpkg-deb"):
        if shutil.which(tool) is None:
            raise NotAvailable(f"there is no {tool}")
    try:
        subprocess.run(
            ["apt-get", "download", PACKAGE], cwd=place, check=True, capture_output=True, timeout=120
        )
        (package,) = place.glob(f"{PACKAGE}_*.deb")
        subprocess.run(["dpkg-deb", "-x", package, place], check=True, capture_output=True, timeout=120)
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        raise NotAvailable(f"{PACKAGE} cannot be had: {error}") from error
    tests = place / INSIDE
    if not tests.is_dir():
        raise NotAvailable(f"{PACKAGE} has no {INSIDE}")
    for packed in tests.glob("*.gz"):
        packed.with_suffix("").write_bytes(gzip.decompress(packed.read_bytes()))
        packed.unlink()
    return tests


def run(
    tests: Path, form: str = "embedded", limit_s: float = LIMIT_S, only: Sequence[str] = ()
) -> tuple[list[Case], str]:
    """Run the tests in ``tests``, or those whose names contain one of ``only``; the cases and all that was
    printed.
    """
    options, adapter = FORMS[form]
    python = [sys.executable]
    if form == "library":
        python = ["env", "-u", "PYTHONPATH", DISTRIBUTIONS_PYTHON]
        asked = subprocess.run([*python, "-c", "import pyverbs.device"], capture_output=True)
        if asked.returncode or library() is None:
            raise NotAvailable(f"{DISTRIBUTIONS_PYTHON} has no pyverbs, or softhca no libibverbs")
    command = [sys.executable, "-m", "softhca", "run", *options, "--", *python, "run_tests.py", "-v"]
    command += [word for each in only for word in ("-k", each)]
    done = subprocess.run(
        command,
        cwd=tests,
        env={**os.environ, "SOFTHCA_ADAPTER": adapter, "PYTHONDONTWRITEBYTECODE": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=limit_s,
        text=True,
    )
    return cases_of(done.stdout), done.stdout


def cases_of(text: str) -> list[Case]:
    """The cases of a verbose run; what they print themselves may stand in between."""
    found: list[Case] = []
    name = ""
    for line in text.splitlines():
        if line.startswith("======"):
            break
        if case := _CASE.match(line):
            name = case[2] if case[2].endswith("." + case[1]) else f"{case[2]}.{case[1]}"
        if name and (outcome := _OUTCOME.search(line)):
            why = outcome["why"]
            found.append(Case(name, outcome[1].split()[0], why[1:-1] if why else ""))
            name = ""
    return found


def counts_of(cases: list[Case]) -> Counter[str]:
    """How many cases that are for all devices ended how."""
    return Counter(case.outcome for case in cases if not case.of_a_vendor)


def main() -> int:
    """Print the table; 1 where a case failed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--form", choices=tuple(FORMS), default="embedded")
    parser.add_argument("--folder", type=Path, help="the tests, where they are there already")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        cases, text = run(arguments.folder or fetch(Path(place)), arguments.form)
    for case in cases:
        if not case.of_a_vendor:
            print(f"| {case.name} | {case.outcome} | {case.why} |")
    counts = counts_of(cases)
    print(f"{sum(counts.values())} cases for all devices: {dict(counts)}; {len(cases)} cases in all")
    failed = [case for case in cases if case.outcome in ("FAIL", "ERROR")]
    if failed or not cases:
        print(text)
    return 1 if failed or not cases else 0


if __name__ == "__main__":
    sys.exit(main())
