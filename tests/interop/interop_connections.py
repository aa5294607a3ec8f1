"""Our side of connections: an adapter in a process of its own, which outlives its programs as a kernel does,
and programs in C and Python on it.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from interop_link import CellError
from interop_peer import PROGRAM, Peer, ProcessChannel, our_command, our_environment

from softhca.native import PATHS_NAME, build, library

END_S = 60.0


class OurAdapter:
    """An adapter process on ``device`` (a word of ``SOFTHCA_DEVICES``), started by the command ``prefix``."""

    def __init__(self, prefix: Sequence[str], device: str) -> None:
        self._prefix = list(prefix)
        self._socket = f"@softhca-interop-{os.getpid()}-{secrets.token_hex(4)}"
        self._folder = tempfile.TemporaryDirectory(prefix="softhca-native-")
        self._process = subprocess.Popen(
            [*prefix, sys.executable, "-P", "-m", "softhca.runtime.process_main", device,
             "--listen", self._socket, "--stay"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=self._with_path(device), text=True,
        )  # fmt: skip
        assert self._process.stdout is not None
        if self._process.stdout.readline() != "ready\n":
            self.close()
            raise CellError("our adapter process does not start")
        self._environment = self._with_path(f"softhca0=unix:{self._socket}")

    @staticmethod
    def _with_path(devices: str) -> dict[str, str]:
        return our_environment(devices) | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}

    def start(self, *argv: str) -> subprocess.Popen[str]:
        """Start a program in C; both kinds of its words come from its ``stdout``."""
        found = self._library()
        preload = f"{found} {found.with_name(PATHS_NAME)}"
        return subprocess.Popen(
            [*self._prefix, *argv], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, env=self._environment | {"LD_PRELOAD": preload},
        )  # fmt: skip

    def _library(self) -> Path:
        """The installed library, or one that is compiled now."""
        found = library()
        if found is not None:
            return found
        place = Path(self._folder.name, "libibverbs.so.1")
        if not place.exists():
            if build.compiler() is None:
                raise CellError("there is neither our libibverbs nor a C compiler")
            build.build(place, ())
        return place

    def peer(self) -> Peer:
        """The pyverbs program on it."""
        argv = [*self._prefix, *our_command(PROGRAM)]
        return Peer("softhca", partial(ProcessChannel, argv, self._environment))

    def close(self) -> None:
        """End it; may be called again."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._folder.cleanup()

    def __enter__(self) -> OurAdapter:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


@contextlib.contextmanager
def running(program: subprocess.Popen[str]) -> Iterator[subprocess.Popen[str]]:
    """A program that is over when the block is, whatever happens in it."""
    try:
        yield program
    finally:
        if program.poll() is None:
            program.send_signal(signal.SIGKILL)
        program.communicate()
