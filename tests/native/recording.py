"""What programs in C call of the library: ``python tests/native/recording.py [--calls] PROGRAM…`` runs one on
an adapter process of its own and prints each verb with how often it was called, or each call.

It tells what a new version of a program asks for that no version before did.  The library is a copy that is
compiled with ``recorder.c``; x86-64 alone.
"""

from __future__ import annotations

import argparse
import bisect
import platform
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from softhca.native import NAME, build

sys.path.insert(0, str(Path(__file__).parents[1]))
from native_world import World, preload

RECORDER = Path(__file__).with_name("recorder.c")
CALLBACKS = frozenset({"fork_prepare", "fork_parent", "fork_child", "read_devices"})
"""What libc calls of the library, and no program."""
FLAGS = ("-pg", "-mfentry", "-fno-optimize-sibling-calls", str(RECORDER))


class Call(NamedTuple):
    """A call of a verb by a program, or by a library that it uses: its ``name``, ``ibv_…`` or that of an
    operation (`post_send`), and the six words that may be ``arguments``; a verb that has fewer leaves
    whatever stood there.
    """

    pid: int
    thread: int
    name: str
    arguments: tuple[int, ...]


class Recorder:
    """A library in ``folder`` that records; OSError where it cannot be made on this machine."""

    def __init__(self, folder: Path) -> None:
        if build.compiler() is None or shutil.which("nm") is None or platform.machine() != "x86_64":
            raise OSError("recording takes a C compiler, nm and x86-64")
        self._file = folder / "record"
        self._names: dict[str, tuple[list[int], list[str]]] = {}
        self.library = folder / NAME
        build.build(self.library, FLAGS)
        self.environment = {"LD_PRELOAD": preload(self.library), "SOFTHCA_RECORD": str(self._file)}

    def calls(self) -> Iterator[Call]:
        """All that have been recorded, in their order."""
        if not self._file.exists():
            return
        for line in self._file.read_text().splitlines():
            pid, thread, path, place, *arguments = line.split()
            name = self._name(path, int(place, 16)) if Path(path).name == NAME else ""
            if name and name not in CALLBACKS:
                words = tuple(int(word, 16) for word in arguments)
                yield Call(int(pid, 16), int(thread, 16), name, words)

    def clear(self) -> None:
        """Forget them."""
        self._file.unlink(missing_ok=True)

    def _name(self, path: str, place: int) -> str:
        if path not in self._names:
            said = subprocess.run(["nm", "--numeric-sort", path], capture_output=True, text=True, check=True)
            rows = [row.split() for row in said.stdout.splitlines()]
            rows = [row for row in rows if row[1:2] in (["t"], ["T"])]
            self._names[path] = [int(row[0], 16) for row in rows], [row[2].partition("@")[0] for row in rows]
        places, names = self._names[path]
        return names[bisect.bisect_right(places, place) - 1]


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", action="store_true", help="each call, with its arguments")
    parser.add_argument("program", nargs=argparse.REMAINDER, metavar="PROGRAM")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        recorder = Recorder(Path(folder))
        world = World(recorder.library, "*")
        try:
            told = {**world.environment, **recorder.environment}
            done = subprocess.run(asked.program, env=told, check=False)
        finally:
            world.end()
        if asked.calls:
            for call in recorder.calls():
                print(call.pid, call.thread, call.name, *map(hex, call.arguments))
        else:
            for name, count in sorted(Counter(call.name for call in recorder.calls()).items()):
                print(f"{count:8} {name}")
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
