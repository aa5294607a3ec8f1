"""Adapter processes for the copies of a program: all processes of a copy share its devices.

Where ``SOFTHCA_ADAPTER`` is ``process``, or the program is one in C, ``softhca run`` starts an adapter
process for each device of each copy before the copy, and ends it afterwards: so the copy may open its devices
in as many processes as it likes, as with a NIC.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from softhca.cli.served_process import served_process
from softhca.runtime import listening_name
from softhca.runtime.specification import parse

ADAPTER = "SOFTHCA_ADAPTER"
MODULE = "softhca.runtime.process_main"


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
                    process = [MODULE, str(device), "--listen", socket, "--stay"]
                    what = f"adapter process for {device.name}"
                    stack.enter_context(served_process(process, environment, said, what))
                    words.append(f"{device.name}=unix:{socket}")
                else:
                    words.append(str(device))
            environment["SOFTHCA_DEVICES"] = ",".join(words)
        yield
