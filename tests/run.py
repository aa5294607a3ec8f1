"""Run the whole suite with this interpreter's softhca and keep the summary line.

``python tests/run.py SUMMARY_FILE [PYTEST_ARGUMENTS…]``.  The tests see the installed package, never the
source tree.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest


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
    sys.exit(pytest.main([*sys.argv[2:]], plugins=[Summary(Path(sys.argv[1]))]))
