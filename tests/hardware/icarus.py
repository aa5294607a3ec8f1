"""Runs Verilog with Icarus."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest


def icarus(folder: Path, *texts: str, standard: int = 2012) -> str:
    """What the simulation of these modules, among them ``bench``, prints.

    By the ``standard`` of 2012 registers have their initial values before any block starts.
    """
    if shutil.which("iverilog") is None:
        pytest.skip("Icarus Verilog is not installed")
    names = []
    for number, text in enumerate(texts):
        names.append(f"part{number}.v")
        (folder / names[-1]).write_text(text, encoding="utf-8")
    subprocess.run(["iverilog", f"-g{standard}", "-o", "bench", *names], cwd=folder, check=True)
    return subprocess.run(
        ["vvp", "-n", "bench"], cwd=folder, check=True, capture_output=True, text=True
    ).stdout
