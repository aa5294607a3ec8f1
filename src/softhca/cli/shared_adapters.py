"""Adapter processes for the copies of a program: all processes of a copy share its devices.

Where ``SOFTHCA_ADAPTER`` is ``process``, or the program is one in C, ``softhca run`` starts an adapter
process for each device of each copy before the copy, and ends it afterwards: so the copy may open its devices
in as many processes as it likes, as with a NIC.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from softhca.cli.errors import CommandError
from softhca.runtime import listening_name
from softhca.runtime.specification import DeviceSpecification, parse

ADAPTER = "SOFTHCA_ADAPTER"
END_S = 10.0
"""An adapter process that does not end within so long is killed."""


def shares_devices(environment: Mapping[str, str], needs_process: bool = False) -> bool:
    """Whether adapters are in processes of their own: the user asks for that, or says nothing and the program
    ``needs_process``.
    """
    said = environment.get(ADAPTER, "").strip()
    return said == "process" or (needs_process and not said)


@contextlib.contextmanager
def served(environments: Sequence[dict[str, str]], mark: str, place: Path) -> Iterator[None]:
    """While the block runs, the devices of each environment's ``SOFTHCA_DEVICES`` are adapter processes, and
    the variable names their sockets: those at which programs outside of this run find them too, or of devices
    without addresses this run's own (``mark``).  A device that has an adapter process already keeps it.  What
    the processes say of themselves is in the folder ``place`` until the end, and then on stderr.
    CommandError: one cannot be had.
    """
    with contextlib.ExitStack() as stack:
        for rank, environment in enumerate(environments):
            words = []
            for device in parse(environment["SOFTHCA_DEVICES"]):
                name = listening_name.name_of(device)
                if device.kind != "unix" and not (name and listening_name.is_taken(name)):
                    socket = name or f"@softhca-run-{mark}-{rank}-{device.name}"
                    said = place / f"adapter-{rank}-{device.name}"
                    stack.enter_context(_adapter(device, socket, environment, said))
                    words.append(f"{device.name}=unix:{socket}")
                else:
                    words.append(str(device))
            environment["SOFTHCA_DEVICES"] = ",".join(words)
        yield


@contextlib.contextmanager
def _adapter(
    device: DeviceSpecification, socket: str, environment: Mapping[str, str], said: Path
) -> Iterator[None]:
    """An adapter process; it ends with the block, or with this process, whose end of its input closes."""
    command = [sys.executable, "-P", "-m", "softhca.runtime.process_main", str(device), "--listen", socket]
    with said.open("w") as errors:
        process = subprocess.Popen(
            [*command, "--stay"],
            env=dict(environment),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            start_new_session=True,
        )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        if process.stdout.readline() != "ready\n":
            reason = said.read_text().strip().removeprefix("softhca: ")
            raise CommandError(f"no adapter process for {device.name}: {reason or 'it has ended'}")
        yield
        sys.stderr.write(said.read_text())
    finally:
        process.stdin.close()
        try:
            process.wait(END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()
