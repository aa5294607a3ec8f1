"""``--faults`` on commands whose packets cross real links: check it, hand it on, tell what it did."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from softhca.links.fault_counters import REPORTS_VARIABLE, read_reports
from softhca.links.faults import FaultsError
from softhca.links.variables import FAULTS


def add_faults_option(parser: argparse.ArgumentParser) -> None:
    """``--faults``; a wrong one is a usage error before anything is started."""
    parser.add_argument(
        "--faults",
        type=_faults,
        default="",
        metavar="SPEC",
        help="what the packets sent suffer, as in 'loss=1%%,reorder=0.5%%,seed=7'",
    )


def _faults(text: str) -> str:
    """``text`` itself, when it can be read."""
    if not text:  # the default: no faults, and nothing to be imported for them
        return text
    from softhca.links.faulty import parse_faults  # needs links, `--help` does not

    try:
        parse_faults(text)
    except FaultsError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return text.strip()


def faults_variables(faults: str, reports: Path) -> dict[str, str]:
    """The environment of a process whose adapters have ``faults``; makes the folder ``reports`` for them."""
    if not faults:
        return {}
    reports.mkdir(exist_ok=True)
    return {FAULTS: faults, REPORTS_VARIABLE: str(reports)}


def print_reports(command: str, reports: Path) -> None:
    """A line on stderr for each adapter that has reported; nothing when there is no such folder."""
    if reports.is_dir():
        for report in read_reports(reports.iterdir()):
            print(f"softhca {command}: {report}", file=sys.stderr)


@contextlib.contextmanager
def faults_acting(command: str, faults: str) -> Iterator[None]:
    """While the block runs, the adapters of this process and of those that it starts have ``faults``.

    At the end, also by an error, tells what they did.
    """
    if not faults:
        yield
        return
    with tempfile.TemporaryDirectory(prefix="softhca-faults-") as name:
        reports = Path(name, "faults")
        before = dict(os.environ)
        os.environ.update(faults_variables(faults, reports))
        try:
            yield
        finally:
            for variable in (FAULTS, REPORTS_VARIABLE):
                os.environ.pop(variable, None)
                if variable in before:
                    os.environ[variable] = before[variable]
            print_reports(command, reports)
