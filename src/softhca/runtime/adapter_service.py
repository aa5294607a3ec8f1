"""Adapter processes as services: started for nobody in particular, found, and stopped.

A service listens at an abstract name.  That of a device with known addresses is the one at which programs
with ``SOFTHCA_ADAPTER=process`` look for it (`listening_name.name_of`), so that they share it without being
told; any other device has one of the user's and the device's name.  Programs name it as ``unix:@NAME``.  What
runs is found in ``/proc``: adapter processes of this user, by their command lines.
"""

from __future__ import annotations

import contextlib
import errno
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import softhca
from softhca.runtime import listening_name
from softhca.runtime.adapter_process import START_LIMIT_S
from softhca.runtime.specification import DeviceSpecification

MODULE = "softhca.runtime.process_main"
STOP_LIMIT_S = 10.0
"""So long a process that was asked to end is waited for."""


@dataclass(frozen=True)
class AdapterService:
    """An adapter process that runs: ``device`` is the word of ``SOFTHCA_DEVICES`` that it was started for,
    ``name`` where it listens, ``programs`` how many connections of programs it has, ``service`` whether it
    stays without any.  ``up_s`` is its age in seconds, ``memory_bytes`` what of it is in memory.
    """

    device: str
    name: str
    pid: int
    programs: int
    service: bool
    up_s: float
    memory_bytes: int

    @property
    def device_name(self) -> str:
        """The device's own name."""
        return self.device.partition("=")[0]


def name_for(specification: DeviceSpecification) -> str:
    """Where a service of this device listens unless another name is wanted."""
    return listening_name.name_of(specification) or f"@softhca-{os.getuid()}-{specification.name}"


def command_of(specification: DeviceSpecification, name: str) -> list[str]:
    """What runs such a service in the foreground."""
    return [sys.executable, "-P", "-m", MODULE, str(specification), "--listen", name, "--service"]


def environment_of() -> dict[str, str]:
    """Its environment: this one, in which it finds this softhca."""
    root = str(Path(softhca.__file__).parent.parent)
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH"))))}


def start(specification: DeviceSpecification, name: str) -> tuple[int, str]:
    """Start a service that listens at the abstract ``name``; its process number and the addresses of its
    ports, joined by ``+``.

    OSError: EADDRINUSE where somebody has the name already, ECONNREFUSED with the reason where it cannot
    serve the device, ETIMEDOUT.
    """
    bound = listening_name.take(name)
    if bound is None:
        raise OSError(errno.EADDRINUSE, f"{name} is taken")
    with bound:
        command = [*command_of(specification, name), "--bound", str(bound.fileno())]
        child = subprocess.Popen(
            command, env=environment_of(), pass_fds=[bound.fileno()], start_new_session=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
    assert child.stdout is not None
    assert child.stderr is not None
    with child.stdout, child.stderr:
        poll = select.poll()
        poll.register(child.stdout, select.POLLIN)
        if not poll.poll(START_LIMIT_S * 1000):
            child.kill()
            child.wait()
            raise OSError(
                errno.ETIMEDOUT, f"{specification.name}: it is not ready after {START_LIMIT_S:.0f} s"
            )
        word, _, places = child.stdout.readline().strip().partition(" ")
        if word != "ready":
            reason = child.stderr.read().strip().removeprefix("softhca: ")
            child.wait()
            raise OSError(errno.ECONNREFUSED, reason or f"{specification.name}: it has ended")
    child.returncode = 0  # it is nobody's to wait for
    return child.pid, places


def running() -> list[AdapterService]:
    """The adapter processes of this user, oldest first."""
    found = filter(None, map(_service_of, _processes()))
    return sorted(found, key=lambda each: -each.up_s)


def stop(service: AdapterService, kill: bool = False, limit_s: float = STOP_LIMIT_S) -> bool:
    """Ask it to end, and wait for that; ``kill``: end it by force where it does not.  Whether it has ended.
    Programs that it serves learn that their adapter has gone.  PermissionError.
    """
    try:
        life = os.pidfd_open(service.pid)
    except ProcessLookupError:
        return True
    try:
        now = _service_of(service.pid)
        if now is None or (now.name, now.device) != (service.name, service.device):
            return True  # the number is another process's by now
        poll = select.poll()
        poll.register(life, select.POLLIN)
        for number in (signal.SIGTERM, signal.SIGKILL) if kill else (signal.SIGTERM,):
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(life, number)
            if poll.poll(limit_s * 1000):
                return True
        return False
    finally:
        os.close(life)


def _processes() -> Iterator[int]:
    """Processes of this user."""
    for word in os.listdir("/proc"):
        if word.isdigit():
            with contextlib.suppress(OSError):
                if os.stat(f"/proc/{word}").st_uid == os.getuid():
                    yield int(word)


def _service_of(pid: int) -> AdapterService | None:
    """What a process serves; None where it is no adapter process, or has ended."""
    try:
        place = Path("/proc") / str(pid)
        words = [each.decode(errors="replace") for each in (place / "cmdline").read_bytes().split(b"\0")]
        stat = (place / "stat").read_text().rpartition(")")[2].split()
        pages = int((place / "statm").read_text().split()[1])
    except (OSError, IndexError, ValueError):
        return None
    if MODULE not in words or stat[0] == "Z":
        return None
    device, *options = words[words.index(MODULE) + 1 :]
    if "--listen" not in options or "=" not in device:
        return None
    name = options[options.index("--listen") + 1]
    born_s = int(stat[19]) / os.sysconf("SC_CLK_TCK")
    return AdapterService(
        device, name, pid, listening_name.connections(name), "--service" in options or "--stay" in options,
        max(time.clock_gettime(time.CLOCK_BOOTTIME) - born_s, 0.0), pages * os.sysconf("SC_PAGE_SIZE"),
    )  # fmt: skip
