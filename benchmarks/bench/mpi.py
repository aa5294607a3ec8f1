"""mpi4py on Open MPI's shared memory: two ranks of `mpi_program`, one run for all figures."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path

from bench.measure import Absent, Figure, run

PROGRAM = Path(__file__).with_name("mpi_program.py")
ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


def parse(text: str) -> dict[str, Figure]:
    """Figures by name from what rank 0 printed; ValueError when it printed no document."""
    for line in reversed(text.splitlines()):
        if line.startswith("{"):
            return {name: Figure(**fields) for name, fields in json.loads(line).items()}
    raise ValueError("the MPI program printed no figures")


def measured(sizes_bytes: tuple[int, ...], seconds: float) -> dict[str, Figure]:
    """``put SIZE``, ``put+flush``, ``ping-pong``, ``messages`` by name, ``seconds`` each at most."""
    if importlib.util.find_spec("mpi4py") is None:
        raise Absent("mpi4py is not installed")
    done = run(
        ["mpirun", "-n", "2", "--oversubscribe", "--mca", "btl", "self,vader", sys.executable, str(PROGRAM),
         str(seconds), *(str(size) for size in sizes_bytes)],
        environment=ROOT,
    )  # fmt: skip
    return parse(done.output)
