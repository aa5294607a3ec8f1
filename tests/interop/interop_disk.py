"""A small file system with this interpreter's softhca and what it needs, for guests to mount: nothing is
fetched there, and the guest's Python, of the same version, loads the same compiled modules.
"""

from __future__ import annotations

import importlib.metadata
import re
import shutil
import sys
import tempfile
from pathlib import Path

from interop_image import make_file_system
from interop_packages import Unavailable

import softhca

GUEST_PYTHON = (3, 11)
PLACE = "/softhca"
_REQUIREMENT = re.compile(r"[A-Za-z0-9._-]+")


def make_disk(place: Path) -> None:
    """Write the file system to ``place``.  Raises :class:`Unavailable` for an interpreter that is not the
    guest's.
    """
    if sys.version_info[:2] != GUEST_PYTHON:
        raise Unavailable(f"the guests have Python {'.'.join(map(str, GUEST_PYTHON))}, this is another")
    with tempfile.TemporaryDirectory(prefix="softhca-disk-") as name:
        folder = Path(name)
        package = Path(softhca.__file__).parent
        shutil.copytree(package, folder / "softhca", ignore=shutil.ignore_patterns("__pycache__", "*.c"))
        for distribution in _needed("softhca"):
            _copy(distribution, folder)
        make_file_system(folder, place)


def _needed(name: str) -> list[str]:
    """What a distribution requires, and what that requires, without extras."""
    found: dict[str, None] = {}
    waiting = [name]
    while waiting:
        for line in importlib.metadata.requires(waiting.pop()) or ():
            match = _REQUIREMENT.match(line)
            if match and "extra ==" not in line and match[0] not in found:
                found[match[0]] = None
                waiting.append(match[0])
    return list(found)


def _copy(distribution: str, folder: Path) -> None:
    try:
        files = importlib.metadata.files(distribution) or []
    except importlib.metadata.PackageNotFoundError:
        raise Unavailable(f"{distribution}, which softhca needs, is not installed here") from None
    for file in files:
        if ".." not in file.parts and "__pycache__" not in file.parts:
            target = folder / str(file)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(str(file.locate()), target)
