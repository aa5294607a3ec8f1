"""The other end of a test as a second process on this machine."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence

from softhca.cli.control import ControlConnection, connect, listen
from softhca.cli.errors import CommandError
from softhca.cli.launch import same_host_option

LOOPBACK = "127.0.0.1"
END_TIMEOUT_S = 10.0


@contextlib.contextmanager
def second_process(arguments: Sequence[str], same_host: bool | None = None) -> Iterator[ControlConnection]:
    """Run ``softhca ARGUMENTS --listen`` as a second process and connect to it.

    Both processes take free loopback addresses for their adapters, whatever ``SOFTHCA_DEVICES`` says;
    ``same_host``: they share memory or not, None: where they can.  The listening socket is
    inherited, so there is no race for its port.  Raises :class:`CommandError` when the process fails.
    """
    os.environ["SOFTHCA_DEVICES"] = "softhca0=udp:*" + same_host_option(same_host)
    with listen(0, LOOPBACK) as listener:
        port = listener.getsockname()[1]
        command = [
            sys.executable,
            "-m",
            "softhca",
            *arguments,
            "--listen",
            "--listen-fd",
            str(listener.fileno()),
        ]
        process = subprocess.Popen(
            command, pass_fds=[listener.fileno()], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL
        )
    try:
        with connect(LOOPBACK, port) as control:
            yield control
        _reap(process)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


def _reap(process: subprocess.Popen[bytes]) -> None:
    try:
        status = process.wait(END_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        raise CommandError(f"the second process did not end within {END_TIMEOUT_S:g} s") from None
    if status:
        raise CommandError(f"the second process ended with status {status}")
