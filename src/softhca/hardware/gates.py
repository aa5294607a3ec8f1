"""The assembled adapter for whoever wants to play with one: compiled gates where the environment says so,
Amaranth's simulator otherwise.  Both do the same in the same clocks.
"""

from __future__ import annotations

import os
from pathlib import Path

from softhca.hardware import fast_bench
from softhca.hardware.fast_bench import VIS, FastBench
from softhca.hardware.simulated_bench import SimulatedBench

FOLDER_VARIABLE = "SOFTHCA_GATES"
"""In the environment: the folder of compiled gates, which are made there where they are not."""
_compiled: dict[tuple[str, int], FastBench] = {}


def new_gates(size: int) -> FastBench | SimulatedBench:
    """An adapter of `VIS` queue pairs just powered on, whose host has ``size`` bytes of memory.

    Compiled gates are kept: the next call of this process powers them on again.  FileNotFoundError where they
    shall be compiled without ``g++``.
    """
    folder = os.environ.get(FOLDER_VARIABLE)
    if not folder:
        return SimulatedBench(VIS, size)
    bench = _compiled.get((folder, size))
    if bench is None:
        bench = _compiled[folder, size] = FastBench(fast_bench.build(Path(folder)), size=size)
    bench.begin()
    return bench
