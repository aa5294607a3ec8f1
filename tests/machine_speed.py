"""Limits of time for what may hang, by the speed of the machine as it is at the moment.

No test's result depends on how fast anything is: a limit only ends what would never end.  So it may be
long, and must be longer where the machine is slower, or has other work: ``limit_s`` multiplies by what a
fixed piece of work takes here, beside what it takes on the machine that the limits were written on.

``SOFTHCA_TEST_SLOWNESS`` says the factor instead; ``tests/run.py`` sets it, so that it is measured once.
``python tests/machine_speed.py SECONDS`` prints a limit in whole seconds, for the Makefile.
"""

from __future__ import annotations

import functools
import os
import sys
import time

REFERENCE_S = 0.2
"""Of ``_work`` on one of two quiet cores of 2.4 GHz."""
ROUNDS = 8_000
LARGEST = 50.0
VARIABLE = "SOFTHCA_TEST_SLOWNESS"


def _work(rounds: int) -> int:
    """Bytecode, allocation and memory, as an interpreted engine has them."""
    number, table = 1, dict.fromkeys(range(64), b"")
    for _ in range(rounds):
        for place in range(64):
            number = (number * 1_103_515_245 + 12_345 + place) & 0xFFFF_FFFF
            table[number & 63] = number.to_bytes(4, "big")
    return number


@functools.cache
def slowness() -> float:
    """How many times longer than on the reference work takes here and now; never less than 1."""
    said = os.environ.get(VARIABLE)
    if said is not None:
        return max(1.0, float(said))
    start = time.monotonic()
    _work(ROUNDS)
    return min(LARGEST, max(1.0, (time.monotonic() - start) / REFERENCE_S))


def limit_s(seconds: float) -> float:
    """The limit here of what is given ``seconds`` on the reference."""
    return seconds * slowness()


if __name__ == "__main__":
    print(round(limit_s(float(sys.argv[1]))))
