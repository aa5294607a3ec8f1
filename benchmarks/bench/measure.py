"""A figure, and running programs for one: their output, and the processor time of all their processes."""

from __future__ import annotations

import os
import resource
import shutil
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

RUN_TIMEOUT_S = 120.0
LISTEN_TIMEOUT_S = 10.0
LOOK_S = 0.01
_OPEN = ("0A", "07")  # TCP's LISTEN, and how an unconnected UDP socket is shown


class Absent(Exception):
    """There is no figure, for the reason that the text says."""


@dataclass
class Figure:
    """What one run of one program gave; what it does not tell is 0 or empty.  ``latency_us`` is one way."""

    bandwidth_bytes_per_s: float = 0.0
    rate_per_s: float = 0.0
    latency_us: dict[str, float] = field(default_factory=dict)
    cpu_s_per_gb: float = 0.0
    extra: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Run:
    """One program's output, how long it ran, and the processor time of it and its server."""

    output: str
    elapsed_s: float
    cpu_s: float


def children_cpu_s() -> float:
    """User and system time of all child processes that have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def own_cpu_s() -> float:
    """User and system time of this process, all threads."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def free_port() -> int:
    """A TCP port of the loopback address that nobody holds."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def listens(port: int, table: str) -> bool:
    """Whether the text ``table``, of ``/proc/net/tcp`` or ``udp``, has a listener on ``port``."""
    for line in table.splitlines():
        words = line.split()
        if len(words) > 3 and words[3] in _OPEN and int(words[1].rpartition(":")[2], 16) == port:
            return True
    return False


def _tables() -> str:
    texts = []
    for name in ("tcp", "tcp6", "udp", "udp6"):
        try:
            with open(f"/proc/net/{name}") as table:
                texts.append(table.read())
        except OSError:
            continue
    return "\n".join(texts)


def require(program: str) -> None:
    """Absent unless ``program`` is there."""
    if shutil.which(program) is None:
        raise Absent(f"{program} is not installed")


def run(
    command: Sequence[str],
    *,
    server: Sequence[str] = (),
    port: int = 0,
    environment: Mapping[str, str] | None = None,
    statuses: Sequence[int] = (0,),
    timeout_s: float = RUN_TIMEOUT_S,
) -> Run:
    """Run ``command``, with ``server`` beside it that listens on ``port`` first.

    Absent when the program is not there, does not end in time, or ends with a status not in ``statuses``.
    """
    require(command[0])
    surroundings = {**os.environ, **(environment or {})}
    before_s, begin_s = children_cpu_s(), time.monotonic()
    other = None
    if server:
        other = subprocess.Popen(
            server, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            env=surroundings,
        )  # fmt: skip
    try:
        if other is not None:
            _await_listener(other, port)
        begin_s = time.monotonic()
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, env=surroundings,
            timeout=timeout_s,
        )  # fmt: skip
        elapsed_s = time.monotonic() - begin_s
    except subprocess.TimeoutExpired:
        raise Absent(f"{command[0]} did not end within {timeout_s:g} s") from None
    finally:
        if other is not None:
            _end(other)
    if done.returncode not in statuses:
        said = (done.stderr.strip() or done.stdout.strip() or "nothing").splitlines()[-1]
        raise Absent(f"{os.path.basename(command[0])} ended with status {done.returncode}: {said[:100]}")
    return Run(done.stdout, elapsed_s, children_cpu_s() - before_s)


def _await_listener(server: subprocess.Popen[bytes], port: int) -> None:
    deadline_s = time.monotonic() + LISTEN_TIMEOUT_S
    while not listens(port, _tables()):
        if server.poll() is not None or time.monotonic() > deadline_s:
            raise Absent(f"{server.args[0]} does not listen")  # type: ignore[index]
        time.sleep(LOOK_S)


def _end(server: subprocess.Popen[bytes]) -> None:
    try:
        server.wait(1.0)
    except subprocess.TimeoutExpired:
        server.terminate()
        try:
            server.wait(5.0)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()
