"""What programs ask the kernel about RDMA devices, answered for softhca's: a folder like
``/sys/class/infiniband`` for each copy of a program, and commands of that name on its PATH.

A Python program finds the folder by itself (`softhca.system_files`); ``ls`` and ``cat`` find it where they
are given paths below ``/sys/class/infiniband``, and ``rdma link`` and ``rdma dev`` tell what stands there.
"""

from __future__ import annotations

import ipaddress
import shlex
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from softhca.adapter.attributes import PORT_CAP_CM, PORT_CAP_IP_BASED_GIDS, guid_of
from softhca.adapter.config import GID_ENTRIES, AdapterConfig
from softhca.cli import rdma_tool
from softhca.links.interfaces import interface_of_address
from softhca.runtime.specification import (
    DeviceSpecification,
    DeviceSpecificationError,
    further_addresses,
    parse,
    resolve,
)
from softhca.system_files import FOLDER, PLACE
from softhca.wire.route import gid_of

LANES = {1: 1, 2: 4, 4: 8, 8: 12, 16: 2}
"""How many lanes a link has, by ``ibv_port_attr.active_width``."""
SPEEDS = {
    1: ("", 2.5),
    2: (" DDR", 5),
    4: (" QDR", 10),
    8: (" FDR10", 10),
    16: (" FDR", 14),
    32: (" EDR", 25),
    64: (" HDR", 50),
    128: (" NDR", 100),
}
"""The name of a lane's speed, and its Gbit/s, by ``ibv_port_attr.active_speed``."""
READERS = ("cat", "ls")
READER = f"""#!/bin/sh
# Paths below {PLACE} are those of softhca's devices.
for word; do
  shift
  case $word in {PLACE}|{PLACE}/*) word=${FOLDER}${{word#/sys}} ;; esac
  set -- "$@" "$word"
done
exec @COMMAND@ "$@"
"""
RDMA = """#!/bin/sh
exec @COMMAND@ "$@"
"""


def write_devices(folder: Path, devices: str, shared: bool = False) -> None:
    """Write what stands for ``/sys`` of a copy with ``devices`` (``SOFTHCA_DEVICES``) into ``folder``.

    A device's network interface is named only where several processes can open it, as one of an adapter
    process (``shared``) or one that is not said to be a process's own: who looks for it goes on to connect
    processes over one device.
    A device of an adapter process that serves already (kind ``unix``) has its name there, and nothing else:
    it tells more when it is opened.
    """
    place = folder / PLACE.removeprefix("/sys/")
    place.mkdir(parents=True)
    for device in parse(devices):
        own = place / device.name
        own.mkdir()
        if device.kind == "udp":
            _write_device(own, device, shared or device.share)


def _write_device(own: Path, device: DeviceSpecification, shared: bool) -> None:
    try:
        ports = [_addresses(device, resolve(each)) for each in device.places]
        gids = [tuple(map(_gid, addresses)) for addresses in ports]
    except (DeviceSpecificationError, OSError, ValueError):
        return  # the program is told when it opens the device
    config = AdapterConfig(gids=gids[0], gid_entries=device.gids or GID_ENTRIES)
    guid = _hex(guid_of(gids[0][0]).to_bytes(8, "big"))
    _write(own, {
        "node_guid": guid,
        "sys_image_guid": guid,
        "node_type": "1: CA",
        "fw_ver": config.firmware,
        "node_desc": own.name,
    })
    for number, (addresses, table) in enumerate(zip(ports, gids, strict=True), 1):
        netdevs = [_netdev(address) if shared else "" for address in addresses]
        _write(own, _port_files(f"ports/{number}", config, table, netdevs))
        for netdev in filter(None, netdevs):
            (own / "device" / "net" / netdev).mkdir(parents=True, exist_ok=True)


def _addresses(device: DeviceSpecification, address: str) -> list[str]:
    """All addresses of a port, its first one in front."""
    return [address, *(further_addresses(device, address) if device.addresses else ())]


def _port_files(
    port: str, config: AdapterConfig, gids: Sequence[bytes], netdevs: Sequence[str]
) -> dict[str, str]:
    """Of a port with ``gids``, each of an address of the interface beside it (empty: it is not named)."""
    files = {
        f"{port}/rate": rate(config.active_width, config.active_speed),
        f"{port}/cap_mask": f"{PORT_CAP_CM | PORT_CAP_IP_BASED_GIDS:#010x}",
        f"{port}/state": "4: ACTIVE",
        f"{port}/phys_state": "5: LinkUp",
        f"{port}/link_layer": "Ethernet",
        f"{port}/lid": "0x0",
        f"{port}/lid_mask_count": "0",
        f"{port}/sm_lid": "0x0",
        f"{port}/sm_sl": "0",
    }
    filled = max(config.gid_entries, len(gids))
    for index in range(filled):
        files[f"{port}/gid_attrs/types/{index}"] = "RoCE v2"
        if netdevs[index % len(gids)]:
            files[f"{port}/gid_attrs/ndevs/{index}"] = netdevs[index % len(gids)]
    for index in range(config.gid_table_length):
        files[f"{port}/gids/{index}"] = _hex(gids[index % len(gids)] if index < filled else bytes(16))
    for index in range(config.pkey_table_length):
        files[f"{port}/pkeys/{index}"] = f"{config.pkeys[index] if index < len(config.pkeys) else 0:#06x}"
    return files


def rate(width: int, speed: int) -> str:
    """A port's ``rate`` in the kernel's words, of ``active_width`` and ``active_speed`` of ``ibv_port_attr``:
    lanes, and their signalling rate with its name (IBTA vol. 1, 14.2.5.6).  ValueError for others.
    """
    if width not in LANES or speed not in SPEEDS:
        raise ValueError(f"no link of width {width} and speed {speed}")
    name, gigabits = SPEEDS[speed]
    return f"{LANES[width] * gigabits:g} Gb/sec ({LANES[width]}X{name})"


def _write(folder: Path, files: Mapping[str, str]) -> None:
    for name, text in files.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text + "\n")


def _hex(data: bytes) -> str:
    return data.hex(":", 2)


def _gid(address: str) -> bytes:
    return gid_of(ipaddress.ip_address(address.partition("%")[0]).packed)


def _netdev(address: str) -> str:
    """The interface with ``address``; empty where it is gone."""
    try:
        return interface_of_address(address)
    except (OSError, ValueError):
        return ""


def write_commands(folder: Path, path: str) -> None:
    """Put ``rdma``, ``ls`` and ``cat`` into ``folder``, in front of those of ``path``."""
    folder.mkdir()
    for name in READERS:
        if found := shutil.which(name, path=path):
            _write_command(folder / name, READER, [found])
    _write_command(folder / "rdma", RDMA, [sys.executable, "-I", "-S", rdma_tool.__file__])


def _write_command(file: Path, text: str, command: list[str]) -> None:
    file.write_text(text.replace("@COMMAND@", shlex.join(command)))
    file.chmod(0o700)

