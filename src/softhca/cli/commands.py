"""The commands of ``softhca`` by name, with the line that ``softhca --help`` has for each.

This is all that the help imports: the module of a command is imported when the command is asked for.
"""

from __future__ import annotations

COMMANDS = {
    "devinfo": "devices, ports, GIDs, limits",
    "doctor": "what of this machine is right, what costs speed, and how to mend it",
    "run": "run copies of a program, each with its own adapter",
    "adapter": "start, show and stop adapter processes that many programs share",
    "perf": "bandwidth and latency, with perftest's programs as possible peers",
    "ping": "check that data comes back whole from another adapter",
    "pingpong": "ibv_*_pingpong, with the programs themselves as possible peers",
    "capture": "look into capture files",
    "simulate": "run one deterministic world of adapters with seeded faults, and check every rule",
    "campaign": "run many seeds of the simulated worlds over all cores",
    "conformance": "check the standard's compliance statements",
    "fabric": "topologies and routes of switched fabrics, with pictures",
    "rmb": "the remote-key manager in hardware, clock by clock",
    "abi": "the host interface for programs in C",
    "completion": "what a shell needs to complete commands and options",
}
"""Each is a module of this package with ``add_options(parser)`` and ``run(args) -> exit status``."""


def wanted_command(words: list[str]) -> str | None:
    """The command that a command line names; None where it names none that there is."""
    first = next((word for word in words if not word.startswith("-")), None)
    return first if first in COMMANDS else None
