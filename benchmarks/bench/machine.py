"""The machine and the versions that figures belong to."""

from __future__ import annotations

import os
import platform
import re
import subprocess
from importlib import metadata

PROGRAMS = {
    "iperf3": (["iperf3", "--version"], r"iperf (\S+)"),
    "sockperf": (["sockperf", "--version"], r"version (\d\S+)"),
    "UCX": (["ucx_info", "-v"], r"[Vv]ersion:? *=?(\d+\.\d+\.\d+)"),
    "libfabric": (["fi_info", "--version"], r"libfabric: (\S+)"),
    "Open MPI": (["mpirun", "--version"], r"Open MPI\) (\S+)"),
}
PACKAGES = ("softhca", "Cython", "isal", "mpi4py")


def found_version(text: str, pattern: str) -> str:
    """The version that a program's words tell, or "?"."""
    match = re.search(pattern, text)
    return match[1] if match else "?"


def _program_version(command: list[str], pattern: str) -> str:
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=20,
            env={**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"},
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return "not installed"
    return found_version(done.stdout + done.stderr, pattern)


def _package_version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "not installed"


def processor_model(cpuinfo: str) -> str:
    """The model's name in ``/proc/cpuinfo``'s text, or the architecture."""
    match = re.search(r"^model name\s*:\s*(.+)$", cpuinfo, re.MULTILINE)
    return match[1].strip() if match else platform.machine()


def describe() -> dict[str, str]:
    """What to name beside figures, by name."""
    try:
        with open("/proc/cpuinfo") as file:
            model = processor_model(file.read())
    except OSError:
        model = platform.machine()
    found = {
        "processor": f"{len(os.sched_getaffinity(0))} × {model}",
        "kernel": f"Linux {platform.release()}",
        "Python": platform.python_version(),
    }
    found.update({name: _package_version(name) for name in PACKAGES})
    found.update({name: _program_version(*how) for name, how in PROGRAMS.items()})
    return found
