"""``softhca devinfo``: devices, ports, GIDs and limits, in plain lines as ``ibv_devinfo -v`` prints them."""

from __future__ import annotations

import argparse
import ipaddress
import socket
from typing import Any

from softhca.cli import output
from softhca.cli.device_names import device_name, device_names, gid_bytes

LIMITS = (
    "max_mr_size",
    "page_size_cap",
    "max_qp",
    "max_qp_wr",
    "max_sge",
    "max_sge_rd",
    "max_cq",
    "max_cqe",
    "max_mr",
    "max_pd",
    "max_qp_rd_atom",
    "max_res_rd_atom",
    "max_qp_init_rd_atom",
    "atomic_caps",
    "max_mw",
    "max_mcast_grp",
    "max_mcast_qp_attach",
    "max_ah",
    "max_srq",
    "max_srq_wr",
    "max_srq_sge",
    "max_pkeys",
    "local_ca_ack_delay",
    "device_cap_flags",
    "vendor_id",
    "vendor_part_id",
    "hw_ver",
    "phys_port_cnt",
)
PORT_NUMBERS = (
    "lid",
    "sm_lid",
    "lmc",
    "gid_tbl_len",
    "pkey_tbl_len",
    "max_msg_sz",
    "port_cap_flags",
    "active_width",
    "active_speed",
)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add what ``devinfo`` takes to its ``parser``."""
    parser.add_argument("-d", "--ib-dev", default="", metavar="DEVICE", help="only this device")
    output.add_json_option(parser)


def run(args: argparse.Namespace) -> int:
    """Print what this process's devices are."""
    names = [device_name(args.ib_dev)] if args.ib_dev else device_names()
    devices = [describe_device(name) for name in names]
    if args.json:
        output.print_json({"devices": devices})
    else:
        for device in devices:
            _print(device)
    return 0


def describe_device(name: str) -> dict[str, Any]:
    """All that the verbs say about device ``name``."""
    from softhca.verbs.device import Context, guid_format

    with Context(name=name) as context:
        attributes = context.query_device()
        return {
            "name": name,
            "node_guid": _guid(attributes.node_guid, guid_format),
            "sys_image_guid": _guid(attributes.sys_image_guid, guid_format),
            "fw_ver": _plain(attributes.fw_version),
            "profile": attributes.profile,
            "limits": {limit: _plain(getattr(attributes, limit)) for limit in LIMITS},
            "ports": [_describe_port(context, number) for number in range(1, attributes.phys_port_cnt + 1)],
        }


def _describe_port(context: Any, number: int) -> dict[str, Any]:
    from softhca.verbs import device as d

    port = context.query_port(number)
    return {
        "port": number,
        "state": d.port_state_to_str(port.state),
        "link_layer": d.translate_link_layer(port.link_layer),
        "max_mtu_bytes": 128 << port.max_mtu,
        "active_mtu_bytes": 128 << port.active_mtu,
        **{name: _plain(getattr(port, name)) for name in PORT_NUMBERS},
        "gids": _gids(context, number, port.gid_tbl_len),
    }


def _gids(context: Any, port: int, length: int) -> list[dict[str, Any]]:
    gids = []
    for index in range(length):
        raw = gid_bytes(context.query_gid(port, index))
        if any(raw):
            text = socket.inet_ntop(socket.AF_INET6, raw)
            gids.append({"index": index, "gid": text, "address": address_of_gid(raw)})
    return gids


def address_of_gid(raw: bytes) -> str:
    """The IP address that a RoCE v2 GID of 16 bytes stands for."""
    address = ipaddress.IPv6Address(raw)
    return str(address.ipv4_mapped or address)


def _guid(value: Any, guid_format: Any) -> str:
    return str(guid_format(value)) if isinstance(value, int) else _plain(value)


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    return value if isinstance(value, (int, float, str)) else str(value)


def _print(device: dict[str, Any]) -> None:
    """The device as plain lines: a table would cost a third of the command's time."""
    print(device["name"])
    head = [(key, device[key]) for key in ("node_guid", "sys_image_guid", "fw_ver", "profile")]
    _print_lines(4, [*head, *device["limits"].items()])
    for port in device["ports"]:
        rows = [(key, value) for key, value in port.items() if key not in ("port", "gids")]
        rows += [
            (f"GID[{gid['index']}]", f"{gid['gid']} ({gid['address']}, RoCE v2)") for gid in port["gids"]
        ]
        print(f"    port {port['port']}")
        _print_lines(8, rows)


def _print_lines(indent: int, rows: list[tuple[str, Any]]) -> None:
    for name, value in rows:
        print(f"{'':{indent}}{name + ':':24}{value}")
