"""The environment of a program under ``softhca run``: its own adapter, and ``import pyverbs`` that finds
ours.
"""

from __future__ import annotations

import ipaddress
import os
import socket
import sys
import sysconfig
from collections.abc import Mapping, Sequence
from pathlib import Path

import softhca
from softhca.cli.errors import CommandError
from softhca.links.fault_counters import REPORTS_VARIABLE
from softhca.links.faulty import VARIABLE

ROCE_PORT = 4791
FIRST_ADDRESS = int(ipaddress.IPv4Address("127.1.0.0"))
BLOCK_ADDRESSES = 64
BLOCKS = (int(ipaddress.IPv4Address("127.255.255.255")) + 1 - FIRST_ADDRESS) // BLOCK_ADDRESSES
ALIAS_MODULE = '''"""Stands where a program looks for pyverbs and gives it softhca's verbs."""

from softhca import pyverbs_alias

pyverbs_alias.install()
'''


def free_loopback_addresses(count: int, launcher: int | None = None) -> list[str]:
    """``count`` loopback addresses whose RoCEv2 port is free, from the block of the process ``launcher``.

    127.1.0.0 … 127.255.255.255 is cut into blocks of 64 by process id (this one's by default), so that
    launchers that start together do not choose the same address between probe and use.  Raises
    :class:`CommandError` when there are not so many.
    """
    block = (os.getpid() if launcher is None else launcher) % BLOCKS
    first = FIRST_ADDRESS + block * BLOCK_ADDRESSES
    addresses: list[str] = []
    for number in range(first + 1, first + BLOCK_ADDRESSES):
        if len(addresses) == count:
            break
        address = str(ipaddress.IPv4Address(number))
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            try:
                probe.bind((address, ROCE_PORT))
            except OSError:
                continue
        addresses.append(address)
    if len(addresses) < count:
        raise CommandError(f"only {len(addresses)} of {count} loopback addresses are free")
    return addresses


def same_host_option(same_host: bool | None) -> str:
    """The option of a device that says whether it shares memory; empty for None: where it can."""
    return "" if same_host is None else f"?same_host={int(same_host)}"


def write_alias(directory: Path) -> None:
    """Put a package ``pyverbs`` into ``directory`` that stands for softhca's verbs."""
    package = directory / "pyverbs"
    package.mkdir()
    (package / "__init__.py").write_text(ALIAS_MODULE)


def environment(
    base: Mapping[str, str],
    rank: int,
    addresses: Sequence[str],
    alias: Path,
    capture: Path | None,
    same_host: bool | None = None,
) -> dict[str, str]:
    """The environment of copy ``rank``; ``same_host``: the copies share memory or not, None: where they can.

    ``PYTHONPATH`` begins with ``alias``, so that any Python of this version finds the alias and softhca;
    ``PATH`` with the folder of this interpreter, so that ``python3`` and ``#!/usr/bin/env python3`` are this
    one.
    """
    changed = dict(base)
    changed["SOFTHCA_DEVICES"] = f"softhca0=udp:{addresses[rank]}" + same_host_option(same_host)
    changed["SOFTHCA_RANK"] = str(rank)
    changed["SOFTHCA_PEERS"] = ",".join(addresses)
    for name in ("SOFTHCA_CAPTURE", VARIABLE, REPORTS_VARIABLE):
        changed.pop(name, None)
    if capture is not None:
        changed["SOFTHCA_CAPTURE"] = str(capture)
    package = Path(softhca.__file__).resolve().parent.parent
    places = [str(alias), str(package), *_site_folders(), *_words(base.get("PYTHONPATH", ""))]
    changed["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(places))
    interpreter = str(Path(sys.executable).parent)
    changed["PATH"] = os.pathsep.join(dict.fromkeys([interpreter, *_words(base.get("PATH", os.defpath))]))
    return changed


def _site_folders() -> list[str]:
    """Where this interpreter's installed packages are: softhca's own requirements among them."""
    paths = sysconfig.get_paths()
    return [paths["purelib"], paths["platlib"]]


def _words(path: str) -> list[str]:
    return [word for word in path.split(os.pathsep) if word]


def command_line(program: Sequence[str]) -> list[str]:
    """``program`` as it is started: a Python script that is not executable goes to this interpreter."""
    name = program[0]
    is_script = name.endswith(".py") and os.path.isfile(name) and not os.access(name, os.X_OK)
    return [sys.executable, *program] if is_script else list(program)
