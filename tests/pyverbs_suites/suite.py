"""rdma-core's own tests of pyverbs, run unchanged under ``softhca run``; what became of each case.

``python tests/pyverbs_suites/suite.py [--release 44|65] [--form FORM …] [--folder TESTS]`` prints a table.
The tests are not ours and are not kept here: `fetch` takes them out of Debian's package with ``apt-get
download`` and ``dpkg-deb``, into a temporary folder; ``--folder`` names ones that are there already.  Release
44 is Debian 12's, 65 is the newest one's (sid), for which `fetch` has a package list of its own, so that the
system's stays as it is.  Some cases look for huge pages; root lends them some (`huge_pages`).
"""

import argparse
import gzip
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from softhca.native import library

PACKAGE = "python3-pyverbs"
DISTRIBUTIONS_PYTHON = "/usr/bin/python3"
"""Whose pyverbs the form ``library`` runs, on our libibverbs in C."""
INSIDE = "usr/share/doc/rdma-core/tests"
LIMIT_S = 600
RELEASES = {"44": "", "65": "deb http://deb.debian.org/debian sid main"}  # a source of packages of its own
HUGE_PAGES = Path("/proc/sys/vm/nr_hugepages")
ENOUGH_PAGES = 64
"""Of 2 MiB: a case takes a few, on both sides."""
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


@contextmanager
def huge_pages() -> Iterator[int]:
    """The machine has huge pages meanwhile, where this is root and the kernel finds some; how many."""
    try:
        before = HUGE_PAGES.read_text()
        if int(before) < ENOUGH_PAGES:
            HUGE_PAGES.write_text(str(ENOUGH_PAGES))
    except OSError:  # not root, or no such kernel
        yield int(HUGE_PAGES.read_text()) if HUGE_PAGES.exists() else 0
        return
    try:
        yield int(HUGE_PAGES.read_text())
    finally:
        HUGE_PAGES.write_text(before)


def _own_lists(place: Path, source: str) -> list[str]:
    """Options of apt-get for packages of ``source`` alone, whose list is fetched below ``place``."""
    for folder in ("lists/partial", "cache/archives/partial"):
        (place / folder).mkdir(parents=True)
    (place / "sources.list").write_text(f"{source}\n")
    named = {
        "Dir::Etc::sourcelist": place / "sources.list",
        "Dir::Etc::sourceparts": "/dev/null",
        "Dir::State::lists": place / "lists",
        "Dir::Cache": place / "cache",
        "Acquire::Languages": "none",
        "APT::Sandbox::User": "",
    }
    options = [word for name, value in named.items() for word in ("-o", f"{name}={value}")]
    subprocess.run(["apt-get", *options, "update"], check=True, capture_output=True, timeout=300)
    return options


def fetch(place: Path, release: str = "44") -> Path:
    """Put the tests of Debian's package of that release below ``place``; raises `NotAvailable`."""
    for tool in ("apt-get", "dpkg-deb"):
        if shutil.which(tool) is None:
            raise NotAvailable(f"there is no {tool}")
    try:
        options = _own_lists(place, RELEASES[release]) if RELEASES[release] else []
        command = ["apt-get", *options, "download", PACKAGE]
        subprocess.run(command, cwd=place, check=True, capture_output=True, timeout=120)
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


def _print(cases: list[Case], text: str, form: str, took_s: float) -> bool:
    """Print the table of a run; whether a case failed, or none ran."""
    for case in cases:
        if not case.of_a_vendor:
            print(f"| {case.name} | {case.outcome} | {case.why} |")
    counts = counts_of(cases)
    print(f"{sum(counts.values())} cases for all devices: {dict(counts)}; {len(cases)} cases in all")
    print(f"{form}: {took_s:.1f} s")
    failed = not cases or any(case.outcome in ("FAIL", "ERROR") for case in cases)
    if failed:
        print(text)
    return failed


def main() -> int:
    """Print the tables; 1 where a case failed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--form", choices=tuple(FORMS), action="append", help="may be given several times")
    parser.add_argument("--release", choices=tuple(RELEASES), default="44")
    parser.add_argument("--folder", type=Path, help="the tests, where they are there already")
    arguments = parser.parse_args()
    failed = False
    with tempfile.TemporaryDirectory() as place, huge_pages() as pages:
        print(f"{pages} huge pages")
        tests = arguments.folder or fetch(Path(place), arguments.release)
        for form in arguments.form or ["embedded"]:
            began = time.monotonic()
            cases, text = run(tests, form)
            failed |= _print(cases, text, form, time.monotonic() - began)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
