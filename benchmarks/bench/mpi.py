"""mpi4py on Open MPI's shared memory: two ranks of `mpi_program`, one run for all figures."""

from __future__ import annotations

import importlib.util
import json
import shutil
import sys
from pathlib import Path

from bench.measure import Absent, Figure, run

PROGRAM = Path(__file__).with_name("mpi_program.py")
OPEN_MPI = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "MPI4PY_MPIABI": "openmpi",
}  # fmt: skip
"""mpi4py takes the first MPI library that it finds; where MPICH is there, too, that need not be the one of
`mpirun`."""


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
    launcher = shutil.which("mpirun.openmpi") or "mpirun"
    done = run(
        [launcher, "-n", "2", "--oversubscribe", "--mca", "btl", "self,vader", sys.executable, str(PROGRAM),
         str(seconds), *(str(size) for size in sizes_bytes)],
        environment=OPEN_MPI,
    )  # fmt: skip
    return parse(done.output)
