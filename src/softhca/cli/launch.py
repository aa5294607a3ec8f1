"""The environment of a program under ``softhca run``: its own adapter, and ``import pyverbs`` that finds
ours.
"""

from __future__ import annotations

import ipaddress
import os
import socket
import sys
import sysconfig
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import softhca
from softhca.cli.errors import CommandError, UsageError
from softhca.links.fault_counters import REPORTS_VARIABLE
from softhca.links.variables import CAPTURE, FAULTS
from softhca.runtime.specification import DeviceSpecification, DeviceSpecificationError, parse, resolve
from softhca.system_files import FOLDER

ROCE_PORT = 4791
FIRST_ADDRESS = int(ipaddress.IPv4Address("127.1.0.0"))
BLOCK_ADDRESSES = 64
BLOCKS = (int(ipaddress.IPv4Address("127.255.255.255")) + 1 - FIRST_ADDRESS) // BLOCK_ADDRESSES
ALIAS, COMMANDS, SYSTEM, SOCKETS = "alias", "commands", "system", "sockets"
"""Folders of what copies find."""
ALIAS_MODULE = '''"""Stands where a program looks for pyverbs and gives it softhca's verbs."""

from softhca import pyverbs_alias

pyverbs_alias.install()
'''

SOCKETS_MODULE = '''"""Found by the interpreter as it starts: its sockets are softhca's."""

import os

from softhca.sockets import replacing

replacing.start(os.path.dirname(__file__))
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
        raise CommandError(
            f"only {len(addresses)} of {count} loopback addresses are free",
            f"ask for fewer copies or ports: a launcher has {BLOCK_ADDRESSES - 1} addresses at most",
        )
    return addresses


def devices_of_copies(
    text: str, copies: int, same_host: bool | None = None
) -> tuple[list[str], list[str]]:
    """``SOFTHCA_DEVICES`` of each copy, and the addresses by which they find each other.

    Where ``text``, the user's own ``SOFTHCA_DEVICES``, names devices, every copy gets these: ``udp:*`` with
    an address of its own for each copy, ``unix`` the same for all.  An address that is named can be one
    copy's only.  A copy's address is that of its first ``udp`` device; without one there are no addresses.
    Where ``text`` is blank each has ``softhca0``.  ``same_host``: what ``--link`` says, None: nothing.

    :class:`UsageError` for what is wrong or cannot be given to so many, :class:`CommandError`.
    """
    try:
        wanted = parse(text if text.strip() else "softhca0=udp:*")
    except DeviceSpecificationError as error:
        raise UsageError(str(error)) from None
    for device in wanted:
        if copies > 1 and device.kind == "udp" and any(device.places):
            place = next(filter(None, device.places))
            raise UsageError(
                f"SOFTHCA_DEVICES: {device.name} is on {place}, which one copy alone can have, "
                f"not {copies}; udp:* is another address for each"
            )
    open_places = sum(not place for device in wanted if device.kind == "udp" for place in device.places)
    free = iter(free_loopback_addresses(copies * open_places))
    devices, peers = [], []
    for _ in range(copies):
        given = [_placed(device, free, same_host) for device in wanted]
        devices.append(",".join(map(str, given)))
        peers += [_address(device) for device in given if device.kind == "udp"][:1]
    return devices, peers


def _placed(
    device: DeviceSpecification, free: Iterator[str], same_host: bool | None
) -> DeviceSpecification:
    """A device with a place, and what ``--link`` says."""
    if device.kind != "udp":
        return device
    return replace(
        device,
        place=device.place or next(free),
        further_places=tuple(place or next(free) for place in device.further_places),
        same_host=device.same_host if same_host is None else same_host,
    )


def _address(device: DeviceSpecification) -> str:
    try:
        return resolve(device.place)
    except DeviceSpecificationError as error:
        raise UsageError(str(error)) from None


def same_host_option(same_host: bool | None) -> str:
    """The option of a device that says whether it shares memory; empty for None: where it can."""
    return "" if same_host is None else f"?same_host={int(same_host)}"


def prepare(place: Path, devices: Sequence[str], path: str, shared: bool = False) -> None:
    """Write into the folder ``place`` what copies with ``devices`` find instead of pyverbs, of the kernel's
    files and of commands of ``path``; `environment` leads them there.  ``shared``: processes of a copy
    share its devices.
    """
    from softhca.cli.kernel_files import write_commands, write_devices  # needs adapters, `--help` does not

    package = place / ALIAS / "pyverbs"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(ALIAS_MODULE)
    write_commands(place / COMMANDS, path)
    for rank, each in enumerate(devices):
        write_devices(place / SYSTEM / str(rank), each, shared)


def environment(
    base: Mapping[str, str],
    rank: int,
    devices: str,
    peers: Sequence[str],
    place: Path,
    capture: Path | None,
) -> dict[str, str]:
    """The environment of copy ``rank``, which has ``devices``; ``SOFTHCA_PEERS`` says ``peers`` where there
    are any.  ``place`` is the folder that `prepare` has written.

    ``PYTHONPATH`` begins with the alias, so that any Python of this version finds it and softhca; ``PATH``
    with commands that know softhca's devices, then the folder of this interpreter, so that ``python3`` and
    ``#!/usr/bin/env python3`` are this one.
    """
    changed = dict(base)
    changed["SOFTHCA_DEVICES"] = devices
    changed["SOFTHCA_RANK"] = str(rank)
    if peers:
        changed["SOFTHCA_PEERS"] = ",".join(peers)
    for name in (CAPTURE, FAULTS, REPORTS_VARIABLE):
        changed.pop(name, None)
    if capture is not None:
        changed[CAPTURE] = str(capture)
    package = Path(softhca.__file__).resolve().parent.parent
    places = [str(place / ALIAS), str(package), *_site_folders(), *_words(base.get("PYTHONPATH", ""))]
    changed["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(places))
    changed[FOLDER] = str(place / SYSTEM / str(rank))
    commands = [str(place / COMMANDS), str(Path(sys.executable).parent)]
    changed["PATH"] = os.pathsep.join(dict.fromkeys([*commands, *_words(base.get("PATH", os.defpath))]))
    return changed


def with_sockets(variables: dict[str, str], place: Path) -> dict[str, str]:
    """The environment of a copy whose Python programs have softhca's sockets; the folder ``place`` is that of
    `environment`.
    """
    folder = place / SOCKETS
    folder.mkdir(exist_ok=True)
    (folder / "sitecustomize.py").write_text(SOCKETS_MODULE)
    return variables | {"PYTHONPATH": os.pathsep.join([str(folder), variables["PYTHONPATH"]])}


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
