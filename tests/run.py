"""Run the whole suite with this interpreter's softhca and keep the summary line.

``python tests/run.py SUMMARY_FILE [PYTEST_ARGUMENTS…]``.  The tests see the installed package, never the
source tree.  Where ``SOFTHCA_EXPECT=interpreted``, what ``suite_plan.py`` names is left out: the compiled
run has it.  The limit of a test, which ends what hangs, grows with the slowness of the machine.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from machine_speed import VARIABLE, limit_s, slowness
from suite_plan import left_out

LIMIT_S = 900


class Summary:
    """Writes the runner's closing line into a file, so that two runs can be shown together at the end."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        passed, failed, errors, skipped = (
            len(terminalreporter.stats.get(name, [])) for name in ("passed", "failed", "error", "skipped")
        )
        line = f"{self.path.stem}: {passed} passed, {failed + errors} failed, {skipped} skipped\n"
        self.path.write_text(line)


if __name__ == "__main__":
    ignored = left_out() if os.environ.get("SOFTHCA_EXPECT") == "interpreted" else []
    os.environ[VARIABLE] = str(slowness())  # for all processes of this run
    words = [f"--timeout={limit_s(LIMIT_S):.0f}", *sys.argv[2:], *(f"--ignore={path}" for path in ignored)]
    sys.exit(pytest.main(words, plugins=[Summary(Path(sys.argv[1]))]))
