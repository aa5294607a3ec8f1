"""What commands tell people about the fewest faults that break a rule."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from softhca.cli import output

if TYPE_CHECKING:
    from softhca.simulation.minimise import Minimised

MOST_LINES = 30


@contextlib.contextmanager
def minimising() -> Iterator[Callable[[int, int], object]]:
    """A line on the terminal while a world is minimised: runs made, faults left."""
    from softhca.simulation.minimise import MAX_RUNS

    with output.progress("minimising", MAX_RUNS) as advance:
        yield lambda runs, left: advance(runs)


def print_minimised(found: Minimised | None) -> None:
    """Tell people on stderr which faults a world needs to break its rule, and how to run it again."""
    if found is None:
        print("not minimised: run again, the rule was not broken", file=sys.stderr)
        return
    if not found.lines:
        print(f"{found.rule!r} is broken without any fault of a link", file=sys.stderr)
    else:
        end = "" if found.minimal else "; perhaps fewer do, the search was long enough"
        number = f"{len(found.lines)} of {found.recorded} faults"
        print(f"{number} break {found.rule!r} ({found.runs} runs{end}):", file=sys.stderr)
    for line in found.lines[:MOST_LINES]:
        print(f"  {line}", file=sys.stderr)
    if len(found.lines) > MOST_LINES:
        print(f"  … and {len(found.lines) - MOST_LINES} more", file=sys.stderr)
    print(f"only these: {found.command}", file=sys.stderr)
