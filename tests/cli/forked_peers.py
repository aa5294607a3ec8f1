"""Commands of one process after the other, a line of JSON each, whose peers are forks of a second process.

To begin takes a command longer than most of them, and so it does a peer: here both have imported what they
need.  A peer is a process of its own with its own adapter; that commands start one is for other tests.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import io
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

sys.path.append(str(Path(__file__).parents[1]))
from loopback_addresses import claimed_addresses
from softhca.cli import pair
from softhca.cli.main import main

WORDS_BYTES = 1 << 16


class Peer:
    """What `subprocess.Popen` is for `softhca.cli.pair`; ``command`` is of ``python -m softhca``.

    Each has another of the ``addresses``, and the commands' own device has ``own``: the first free one may be
    what somebody else has had before, and will have again.
    """

    def __init__(
        self,
        origin: socket.socket,
        addresses: Iterator[str],
        own: str,
        command: Sequence[str],
        pass_fds: Sequence[int],
        **_: Any,
    ) -> None:
        assert command[1:3] == ["-m", "softhca"]
        modules = [name for name in sys.modules if name.startswith("softhca.")]
        devices = os.environ["SOFTHCA_DEVICES"]
        os.environ["SOFTHCA_DEVICES"] = devices.replace("udp:*", f"udp:{own}")
        devices = devices.replace("udp:*", f"udp:{next(addresses)}")
        asked = json.dumps([modules, devices, command[3:]]).encode()
        self._told, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            socket.send_fds(origin, [asked], [theirs.fileno(), *pass_fds])
        self.pid = int(self._told.recv(16))
        self.status: int | None = None

    def wait(self, timeout: float | None = None) -> int:
        """The status; TimeoutError of a peer that does not end."""
        if self.status is None:
            self._told.settimeout(timeout)
            self.status = int(self._told.recv(16))
            self._told.close()
        return self.status

    def poll(self) -> int | None:
        """The status, None of a peer that has not ended."""
        with contextlib.suppress(TimeoutError, BlockingIOError):
            return self.wait(0)
        return None

    def kill(self) -> None:
        """End it."""
        os.kill(self.pid, signal.SIGKILL)


def be_peer(devices: str, words: list[str], listener: int) -> None:
    """Run the command with this listening socket."""
    os.environ["SOFTHCA_DEVICES"] = devices
    words[words.index("--listen-fd") + 1] = str(listener)
    sys.exit(main(words))


def serve(origin: socket.socket) -> None:
    """Fork a process for each peer that is asked for, until nobody asks any more; it forks the peer, and
    tells how that has ended."""
    while asked := (found := socket.recv_fds(origin, WORDS_BYTES, 2))[0]:
        modules, devices, words = json.loads(asked)
        for name in modules:
            importlib.import_module(name)
        if os.fork() == 0:
            told = socket.socket(fileno=found[1][0])
            if (peer := os.fork()) == 0:
                told.close()
                be_peer(devices, words, found[1][1])
            told.send(str(peer).encode())
            told.send(str(os.waitstatus_to_exitcode(os.waitpid(peer, 0)[1])).encode())
            os._exit(0)
        for number in found[1]:
            os.close(number)
        reap(os.WNOHANG)
    reap(0)


def reap(options: int) -> None:
    """Children that have ended."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, options)[0]:
            pass


def run() -> None:
    """Answer each line with status, output and errors of its command."""
    origin, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    if (server := os.fork()) == 0:
        origin.close()
        with open(os.devnull, "r+b") as nothing:
            for number in (0, 1):
                os.dup2(nothing.fileno(), number)
        serve(theirs)
        os._exit(0)
    theirs.close()
    addresses = claimed_addresses(os.getpid() * 251)
    start = functools.partial(Peer, origin, addresses, next(addresses))
    pair.subprocess = SimpleNamespace(  # type: ignore[attr-defined, assignment]
        Popen=start, DEVNULL=subprocess.DEVNULL, TimeoutExpired=TimeoutError
    )
    for line in sys.stdin:
        said, error = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(error):
            status = main(json.loads(line))
        print(json.dumps([status, said.getvalue(), error.getvalue()]), flush=True)
    origin.close()
    os.waitpid(server, 0)


if __name__ == "__main__":
    run()
