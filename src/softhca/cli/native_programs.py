"""Programs in C under ``softhca run``: which ones want devices, and how they are given the library."""

from __future__ import annotations

import mmap
import os
import re
import shutil
import stat
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from softhca.cli.errors import CommandError
from softhca.native import PATHS_NAME, library

PRELOAD = "LD_PRELOAD"
LINKED_WITH = ("libibverbs.so", "librdmacm.so", "libucp.so", "libuct.so", "libucs.so",
               "libfabric.so", "libmpi.so", "libmpich.so", "libdat2.so", "librpma.so",
               "libgloo.so")  # fmt: skip
"""A program that needs one of these at its start opens RDMA devices, itself or by what these load."""
LAUNCHERS = ("mpirun", "mpiexec", "orterun", "prterun")
"""Programs that start an MPI's ranks, which open devices each for itself."""
MAKEFILES = ("GNUmakefile", "makefile", "Makefile")
WORD = re.compile(r"[\w./+-]+")
SANITIZER = re.compile(r"lib(asan|tsan|lsan|ubsan|hwasan|clang_rt\.)")
"""Libraries of sanitizers, which refuse programs in which they are not the first."""
STARTS = (b"subprocess", b"os.system", b"os.exec", b"os.spawn", b"posix_spawn")
"""What stands in a Python script that starts other programs."""
MOST_WORDS = 1000
MOST_BYTES = 1 << 18
"""So many words, and so much of a script, are looked at."""

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


@dataclass(frozen=True)
class Decision:
    """Whether a program gets adapter processes and the library, and why."""

    wanted: bool
    reason: str


def decide(program: Sequence[str]) -> Decision:
    """What ``program`` gets; CommandError where it wants devices and cannot be given any.

    A shell, an interpreter or a tool that starts others is decided by what it is told: the words of the
    command line, and those of the scripts that it names.
    """
    found = shutil.which(program[0])
    if found is None:
        return Decision(False, f"{program[0]} is not found")
    if os.path.basename(program[0]).partition(".")[0] in LAUNCHERS:
        return Decision(library() is not None, f"{program[0]} starts the ranks of an MPI")
    if _is_linked(found):
        _must_be_possible(program[0], found)
        return Decision(True, f"{program[0]} is a program in C that opens RDMA devices")
    for word, place in _named(program, found):
        _must_be_possible(word, place)
        return Decision(True, f"{program[0]} may start {word}, a program in C that opens RDMA devices")
    if _is_static(found):
        return Decision(False, f"{program[0]} is static: no library can be given to it")
    return Decision(False, f"neither {program[0]} nor a program that it names is linked with RDMA libraries")


def wants_devices(program: Sequence[str]) -> bool:
    """Whether ``program`` opens RDMA devices in C, or names one that does.  As `decide`."""
    return decide(program).wanted


def _is_linked(path: str) -> bool:
    return any(name.startswith(LINKED_WITH) for name in needed(Path(path).resolve()) or ())


def _is_static(path: str) -> bool:
    """A program of this machine that needs no shared object."""
    try:
        with open(path, "rb") as stream:
            return stream.read(4) == b"\x7fELF" and not needed(Path(path).resolve())
    except OSError:
        return False


def _named(program: Sequence[str], found: str) -> Iterator[tuple[str, str]]:
    """Programs linked with RDMA libraries that a command line names, or a script on it, with their places."""
    seen = {program[0]}
    makefiles = MAKEFILES if os.path.basename(program[0]) in ("make", "gmake") else ()
    for text in (*program[1:], *map(_script, (found, *program[1:], *makefiles))):
        for word in WORD.findall(text):
            if word in seen:
                continue
            seen.add(word)
            if len(seen) > MOST_WORDS:
                return
            place = shutil.which(word)
            if place is not None and _is_linked(place):
                yield word, place


def _script(name: str) -> str:
    """The text of a script, empty for whatever is none; of a long one its begin."""
    try:
        with open(name, "rb") as stream:
            if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
                return ""
            data = stream.read(MOST_BYTES)
    except (OSError, ValueError):
        return ""
    if b"\0" in data or (name.endswith(".py") and not any(word in data for word in STARTS)):
        return ""
    return data.decode(errors="replace")


def _must_be_possible(name: str, found: str) -> None:
    """CommandError where a program cannot be given the library."""
    if library() is None:
        raise CommandError(
            f"{name} is a program in C, and this installation of softhca has no libibverbs.so.1",
            "install it with a C compiler and without SOFTHCA_EXT=skip: pip install .",
        )
    if os.stat(found).st_mode & (stat.S_ISUID | stat.S_ISGID) and os.geteuid() != 0:
        raise CommandError(
            f"{name} changes its user when it starts, so that no library can be given to it",
            "run a copy of it without these bits: cp PROGRAM . && ./PROGRAM",
        )


def obstacle() -> str:
    """What of this machine keeps adapter processes from programs' memory; empty where nothing is known."""
    try:
        scope = int(Path("/proc/sys/kernel/yama/ptrace_scope").read_text())
    except (OSError, ValueError):
        return ""
    if scope < 2:
        return ""
    return ("the kernel forbids adapter processes to reach programs' memory, but for large blocks; "
            "to allow it: sysctl kernel.yama.ptrace_scope=1")


def preloaded(environment: Mapping[str, str]) -> dict[str, str]:
    """The variable that gives the library to a program; none where this installation has no library."""
    found = library()
    if found is None:
        return {}
    beside = found.with_name(PATHS_NAME)
    ours = [str(found), *([str(beside)] if beside.is_file() else [])]
    given = environment.get(PRELOAD, "").replace(":", " ").split()
    first = [each for each in given if SANITIZER.match(os.path.basename(each))]
    return {PRELOAD: " ".join([*first, *ours, *(each for each in given if each not in first)])}
