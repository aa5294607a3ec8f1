"""Records the first minute with softhca as a picture: ``python benchmarks/first_minute.py --svg FILE``.

The commands run on a terminal of their own, one after the other; what they print, colours too, is drawn by
rich.  Their figures are this machine's at this moment: let nothing else run meanwhile.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import pty
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator
from fcntl import ioctl
from pathlib import Path
from tempfile import TemporaryDirectory

from rich.console import Console
from rich.text import Text

ROOT = Path(__file__).parents[1]
WIDTH, HEIGHT = 100, 200
COMMANDS = (
    ("make demo", "python examples/demo.py"),
    ("softhca doctor", "softhca doctor"),
    (
        "softhca run -n 2 --faults 'loss=40%,seed=7' -- python examples/rc_write.py",
        "softhca run -n 2 --faults 'loss=40%,seed=7' -- python examples/rc_write.py",
    ),
)
"""What is shown, and what is run: the demo without the build in front of it."""


@contextlib.contextmanager
def tools() -> Iterator[str]:
    """A path on which ``softhca`` and ``python`` are this interpreter's."""
    with TemporaryDirectory(prefix="softhca-session-") as folder:
        for name, words in (("softhca", "-m softhca"), ("python", "")):
            tool = Path(folder, name)
            tool.write_text(f'#!/bin/sh\nexec "{sys.executable}" {words} "$@"\n')
            tool.chmod(0o755)
        yield f"{folder}{os.pathsep}{os.environ['PATH']}"


def printed(command: str, path: str) -> str:
    """What a command prints on a terminal.  CalledProcessError when it fails."""
    ours, theirs = pty.openpty()
    ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", HEIGHT, WIDTH, 0, 0))
    environment = {**os.environ, "PATH": path, "TERM": "xterm-256color", "TTY_INTERACTIVE": "0"}
    process = subprocess.Popen(["bash", "-c", command], cwd=ROOT, env=environment, stdin=subprocess.DEVNULL,
                               stdout=theirs, stderr=theirs)
    os.close(theirs)
    said = bytearray()
    with contextlib.suppress(OSError):  # the terminal hangs up with the last who has it
        while piece := os.read(ours, 1 << 16):
            said += piece
    os.close(ours)
    if process.wait():
        raise subprocess.CalledProcessError(process.returncode, command, said.decode())
    return said.decode().replace("\r\n", "\n")


def main() -> int:
    """Run the commands and draw what they print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--svg", type=Path, required=True, metavar="FILE")
    args = parser.parse_args()
    with open(os.devnull, "w") as nowhere, tools() as path:
        console = Console(record=True, width=WIDTH, file=nowhere, force_terminal=True)
        for shown, run in COMMANDS:
            console.print(Text.assemble(("$ ", "green"), (shown, "bold")))
            console.print(Text.from_ansi(printed(run, path)), overflow="fold")
            console.print()
        args.svg.write_text(console.export_svg(title="softhca", unique_id="softhca"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
