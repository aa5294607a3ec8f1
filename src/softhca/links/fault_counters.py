"""What injected faults did to the packets of one link, in numbers that outlive the process.

``SOFTHCA_FAULTS_REPORTS`` names a folder: every link keeps its counters in a file there, mapped into memory,
so that whoever started the process can read them however it ended.
"""

from __future__ import annotations

import itertools
import mmap
import os
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

REPORTS_VARIABLE = "SOFTHCA_FAULTS_REPORTS"
SUFFIX = ".faults"

NAMES = (
    "packets", "lost", "duplicated", "reordered", "corrupted", "truncated", "delayed", "overflowed",
)  # fmt: skip
_FORMAT = struct.Struct(f"={len(NAMES)}Q")

_numbers = itertools.count(1)


class FaultCounters:
    """Counts by the words of `NAMES`: packets that were to be sent, and what became of them.

    ``lost`` (by loss, burst, partition or flap), ``duplicated``, ``reordered``, ``corrupted``, ``truncated``,
    ``delayed`` (by delay, jitter or bandwidth) and ``overflowed`` (dropped, because too many were held back).

    ``path`` is the file that holds them; it is made.  OSError when it cannot be.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._values = memoryview(bytearray(_FORMAT.size) if path is None else _mapped(path)).cast("Q")
        self._indexes = {name: index for index, name in enumerate(NAMES)}

    def count(self, name: str, number: int = 1) -> None:
        """``number`` more packets have met ``name``."""
        self._values[self._indexes[name]] += number

    def as_dict(self) -> dict[str, int]:
        """All counters by name."""
        return dict(zip(NAMES, self._values.tolist(), strict=True))


def _mapped(path: Path) -> mmap.mmap:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        os.ftruncate(descriptor, _FORMAT.size)
        return mmap.mmap(descriptor, _FORMAT.size)
    finally:
        os.close(descriptor)


def counters_of(address: str, environment: Mapping[str, str]) -> FaultCounters:
    """Counters of the link at ``address``, in a file where the environment asks for it.  OSError: no file."""
    folder = environment.get(REPORTS_VARIABLE, "")
    if not folder:
        return FaultCounters()
    rank = environment.get("SOFTHCA_RANK", "")
    rank = rank if rank.isascii() and rank.isdigit() else ""
    address = address.replace("_", "-")
    return FaultCounters(Path(folder, f"{rank}_{address}_{os.getpid()}_{next(_numbers)}{SUFFIX}"))


@dataclass(frozen=True)
class FaultReport:
    """The counters of all links that one rank (−1: there are no ranks) had at one address."""

    rank: int
    address: str
    counts: dict[str, int]

    def __str__(self) -> str:
        place = f"rank {self.rank} ({self.address})" if self.rank >= 0 else self.address
        fates = ", ".join(f"{number} {name}" for name, number in self.counts.items() if name != "packets")
        return f"faults of {place}: {self.counts['packets']} packets: {fates}"


def read_reports(files: Iterable[Path]) -> list[FaultReport]:
    """The reports of a folder's files, in the order of ranks; what is no report is passed over."""
    found: dict[tuple[int, str], list[int]] = {}
    for file in files:
        parts = file.name.split("_")
        data = file.read_bytes()
        if file.suffix != SUFFIX or len(parts) != 4 or len(data) != _FORMAT.size:
            continue  # one whose maker ended before it had its size
        rank = parts[0]
        if rank and not (rank.isascii() and rank.isdigit()):
            continue
        key = int(rank or -1), parts[1]
        sums = found.setdefault(key, [0] * len(NAMES))
        for index, number in enumerate(_FORMAT.unpack(data)):
            sums[index] += number
    return [
        FaultReport(rank, address, dict(zip(NAMES, sums, strict=True)))
        for (rank, address), sums in sorted(found.items())
    ]
