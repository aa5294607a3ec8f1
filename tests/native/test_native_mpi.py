"""Ranks of Debian's Open MPI, over UCX, under ``softhca run``."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from native_world import LIMIT_S, checked, needs

from softhca.cli.native_programs import LAUNCHERS, wants_devices

ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
OVER_UCX = ("--oversubscribe", "--mca", "pml", "ucx", "--mca", "btl", "self")
FIGURE = re.compile(r"^(\w+) (\d+) (\d+) (\d+\.\d\d)$", re.MULTILINE)


@pytest.fixture(scope="module")
def ranks(tmp_path_factory):
    """The program that each rank runs."""
    needs("mpirun", "mpicc")
    built = tmp_path_factory.mktemp("mpi") / "mpi_client"
    source = Path(__file__).with_name("mpi_client.c")
    subprocess.run(["mpicc", "-O1", "-Wall", "-Wextra", "-Werror", str(source), "-o", str(built)], check=True)
    return str(built)


def run(libibverbs, count, *words, **variables):
    """Run ``words`` in ``count`` ranks; what they said, in both ways."""
    path = os.pathsep.join(filter(None, sys.path))
    environment = {**os.environ, **ROOT, **checked(), "PYTHONPATH": path,
                   "SOFTHCA_LIBIBVERBS": str(libibverbs), "UCX_TLS": "rc,ud,self",
                   "UCX_NET_DEVICES": "softhca0:1", **variables}  # fmt: skip
    environment.pop("SOFTHCA_ADAPTER", None)
    return subprocess.run(
        [sys.executable, "-P", "-m", "softhca", "run", "--", "mpirun", "-n", str(count), *OVER_UCX, *words],
        capture_output=True, text=True, timeout=LIMIT_S, env=environment, stdin=subprocess.DEVNULL,
    )  # fmt: skip


def figures(done):
    assert done.returncode == 0, done.stdout + done.stderr
    return {name: (int(ranks), int(count)) for name, ranks, count, figure in FIGURE.findall(done.stdout)
            if float(figure) > 0}  # fmt: skip


def test_two_ranks(libibverbs, ranks):
    done = run(libibverbs, 2, ranks, "latency", "20", "8", "latency", "5", "100000",
               "bandwidth", "2", "65536")  # fmt: skip
    assert figures(done) == {"latency": (2, 100000), "bandwidth": (2, 65536)}


def test_eight_ranks(libibverbs, ranks):
    done = run(libibverbs, 8, ranks, "allreduce", "3", "8000", "alltoall", "2", "3000")
    assert figures(done) == {"allreduce": (8, 8000), "alltoall": (8, 3000)}


def test_ranks_by_no_other_way_than_the_devices(libibverbs, ranks):
    """What shows that the ranks above did not go by shared memory or TCP."""
    done = run(libibverbs, 2, ranks, "latency", "2", "8", UCX_NET_DEVICES="softhca1:1")
    assert done.returncode != 0
    assert figures_none(done)


def figures_none(done):
    return not FIGURE.search(done.stdout)


def test_launchers_of_ranks_want_devices(libibverbs, monkeypatch, tmp_path):
    monkeypatch.setenv("SOFTHCA_LIBIBVERBS", str(libibverbs))
    monkeypatch.setenv("PATH", str(tmp_path))
    for name in (*LAUNCHERS, "mpiexec.hydra", "mpirun.openmpi", "mpirunner"):
        shutil.copy("/bin/true", tmp_path / name)
        assert wants_devices([name]) == (name != "mpirunner"), name
    assert wants_devices([str(tmp_path / "mpirun"), "-n", "2"])
    (tmp_path / "mpirun").unlink()
    assert not wants_devices(["mpirun"])
    monkeypatch.setenv("SOFTHCA_LIBIBVERBS", str(tmp_path / "absent"))
    assert not wants_devices(["mpiexec"])  # its ranks may be programs in Python
