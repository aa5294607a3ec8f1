"""Programs in C under ``softhca run``: which ones want devices, and how they are given the library."""

from __future__ import annotations

import mmap
import os
import shutil
import stat
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path

from softhca.cli.errors import CommandError
from softhca.native import PATHS_NAME, library

PRELOAD = "LD_PRELOAD"
LINKED_WITH = ("libibverbs.so", "librdmacm.so", "libucp.so", "libuct.so", "libucs.so",
               "libfabric.so", "libmpi.so", "libmpich.so")  # fmt: skip
"""A program that needs one of these at its start opens RDMA devices, itself or by what these load."""
LAUNCHERS = ("mpirun", "mpiexec", "orterun", "prterun")
"""Programs that start an MPI's ranks, which open devices each for itself."""

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SEGMENT = struct.Struct("<IIQQQQQQ")
_ENTRY = struct.Struct("<QQ")
_LOAD, _DYNAMIC = 1, 2
_NEEDED, _STRING_TABLE = 1, 5


def needed(path: Path) -> list[str] | None:
    """Names of the shared objects that a program needs at its start (its DT_NEEDED entries); None for what is
    no dynamic program of a 64-bit little-endian machine, or cannot be read.
    """
    try:
        with path.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as image:
            return _needed_of(image)
    except (OSError, struct.error, ValueError, OverflowError):
        return None


def _needed_of(image: mmap.mmap) -> list[str] | None:
    header = _HEADER.unpack_from(image)
    if header[0][:6] != b"\x7fELF\x02\x01":
        return None
    segments = [_SEGMENT.unpack_from(image, header[5] + i * header[9]) for i in range(header[10])]
    dynamic = next((each for each in segments if each[0] == _DYNAMIC), None)
    if dynamic is None:
        return None
    entries = list(_ENTRY.iter_unpack(image[dynamic[2]:dynamic[2] + dynamic[5] // 16 * 16]))
    places = [each[2] + value - each[3] for tag, value in entries if tag == _STRING_TABLE
              for each in segments if each[0] == _LOAD and each[3] <= value < each[3] + each[5]]  # fmt: skip
    if not places:
        return None
    place = places[0]
    names = []
    for tag, value in entries:
        if tag == _NEEDED:
            end = image.find(b"\0", place + value)
            if end < 0:
                return None
            names.append(image[place + value:end].decode(errors="replace"))
    return names


def wants_devices(program: Sequence[str]) -> bool:
    """Whether ``program`` is one in C that opens RDMA devices; CommandError where it cannot be given any."""
    found = shutil.which(program[0])
    if found is not None and os.path.basename(program[0]).partition(".")[0] in LAUNCHERS:
        return library() is not None  # ranks in Python need no library
    names = None if found is None else needed(Path(found).resolve())
    if found is None or not names or not any(name.startswith(LINKED_WITH) for name in names):
        return False
    if library() is None:
        raise CommandError(
            f"{program[0]} is a program in C, and this installation of softhca has no libibverbs.so.1",
            "install it with a C compiler and without SOFTHCA_EXT=skip: pip install .",
        )
    if os.stat(found).st_mode & (stat.S_ISUID | stat.S_ISGID) and os.geteuid() != 0:
        raise CommandError(
            f"{program[0]} changes its user when it starts, so that no library can be given to it",
            "run a copy of it without these bits: cp PROGRAM . && ./PROGRAM",
        )
    return True


def preloaded(environment: Mapping[str, str]) -> dict[str, str]:
    """The variable that gives the library to a program; none where this installation has no library."""
    found = library()
    if found is None:
        return {}
    beside = found.with_name(PATHS_NAME)
    ours = [str(found), *([str(beside)] if beside.is_file() else [])]
    return {PRELOAD: " ".join([*ours, *environment.get(PRELOAD, "").replace(":", " ").split()])}
