"""``rdma link`` and ``rdma dev`` of iproute2 for softhca's devices: a program of its own, on the PATH of
programs under ``softhca run``.

It reads what `softhca.cli.kernel_files` has written, and imports nothing of softhca, so that it starts fast.
All else (``rdma resource``, ``rdma link add`` …) is the kernel's and is refused.
"""

import json
import os
import socket
import sys
from pathlib import Path
from typing import Any

OBJECTS = ("dev", "link")
USAGE = "Usage: rdma [ -j[son] ] [ -p[retty] ] [ -d[etails] ] { dev | link } [ show [ DEVICE[/PORT] ] ]"
PORT_STATES = {"4: ACTIVE": "ACTIVE", "1: DOWN": "DOWN"}
PHYSICAL_STATES = {"5: LinkUp": "LINK_UP", "3: Disabled": "DISABLED"}
Row = dict[str, Any]


def devices(folder: Path) -> list[Row]:
    """A row a device, as ``rdma dev show -j`` has it."""
    rows = []
    for index, device in enumerate(sorted(folder.iterdir())):
        row: Row = {"ifindex": index, "ifname": device.name}
        if (device / "node_guid").exists():
            row |= {
                "node_type": "ca",
                "fw": _text(device / "fw_ver"),
                "node_guid": _text(device / "node_guid"),
                "sys_image_guid": _text(device / "sys_image_guid"),
            }
        rows.append(row)
    return rows


def links(folder: Path) -> list[Row]:
    """A row a port, as ``rdma link show -j`` has it."""
    rows = []
    for index, device in enumerate(sorted(folder.iterdir())):
        ports = (device / "ports").iterdir() if (device / "ports").exists() else ()
        for port in sorted(ports, key=lambda each: int(each.name)):
            row: Row = {
                "ifindex": index,
                "ifname": device.name,
                "port": int(port.name),
                "state": PORT_STATES[_text(port / "state")],
                "physical_state": PHYSICAL_STATES[_text(port / "phys_state")],
            }
            netdev = _text(port / "gid_attrs" / "ndevs" / "0")
            if netdev:
                row |= {"netdev": netdev, "netdev_index": _index_of(netdev)}
            rows.append(row)
    return rows


def _text(file: Path) -> str:
    try:
        return file.read_text().strip()
    except OSError:
        return ""


def _index_of(netdev: str) -> int:
    try:
        return socket.if_nametoindex(netdev)
    except OSError:
        return 0


def line_of(kind: str, row: Row) -> str:
    """A row as text: ``rdma``'s own lines."""
    numbers = ("ifindex", "ifname", "port", "netdev_index")
    tail = " ".join(f"{name} {value}" for name, value in row.items() if name not in numbers)
    head = f"{row['ifindex']}: {row['ifname']}:" if kind == "dev" else f"link {row['ifname']}/{row['port']}"
    return f"{head} {tail} "


def main(arguments: list[str]) -> int:
    """Print what is asked for; 1 where it is none of softhca's things, or no such device."""
    options = [each.lstrip("-") for each in arguments if each.startswith("-")]
    kind, action, wanted, *rest = [*(each for each in arguments if not each.startswith("-")), "", "", ""]
    kinds = [each for each in OBJECTS if kind and each.startswith(kind)]
    if not kinds or not any(each.startswith(action) for each in ("show", "list")) or any(rest):
        print(USAGE, "rdma: of softhca's devices only this is known", sep="\n", file=sys.stderr)
        return 1
    folder = Path(os.environ.get("SOFTHCA_SYSTEM_FILES", "/sys"), "class", "infiniband")
    rows = {"dev": devices, "link": links}[kinds[0]](folder) if folder.is_dir() else []
    name, _, port = wanted.partition("/")
    chosen = [row for row in rows if name in ("", row["ifname"]) and port in ("", str(row.get("port", "")))]
    if wanted and not chosen:
        print(f"rdma: there is no {kinds[0]} {wanted}", file=sys.stderr)
        return 1
    if any(each and "json".startswith(each) for each in options):
        pretty = any(each and "pretty".startswith(each) for each in options)
        print(json.dumps(chosen, indent=4 if pretty else None, separators=None if pretty else (",", ":")))
    else:
        for row in chosen:
            print(line_of(kinds[0], row))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
