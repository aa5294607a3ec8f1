"""``softhca capture decode FILE``: a capture's packets by header, and whether their CRCs are right;
``softhca capture wireshark``: a dissector for Wireshark, of the packets that its own does not know.
"""

from __future__ import annotations

import argparse
import contextlib
import ipaddress
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from softhca.cli.errors import CommandError
from softhca.cli.output import add_json_option, print_json, print_table
from softhca.wire.capture_file import CapturedPacket
from softhca.wire.captured_burst import cut_burst
from softhca.wire.captures import read_capture
from softhca.wire.errors import WireError
from softhca.wire.packet import EXTENSIONS, Packet, decode
from softhca.wire.raw import RAW_IPV6
from softhca.wire.raw_packet import RawPacket, decode_raw
from softhca.wire.wireshark import dissector

COLUMNS = (
    "no.", "time s", "source", "destination", "opcode", "dest QP", "PSN", "payload", "ICRC", "VCRC", "more",
)
_VERDICTS = {True: "ok", False: "BAD", None: "–"}


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add what ``capture`` takes to its ``parser``."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    action = actions.add_parser("decode", help="show the RDMA packets of a pcap or pcapng file")
    action.add_argument(
        "file", type=Path, metavar="FILE", help="a pipe, too; `-`: standard input, as of tcpdump -w -"
    )
    add_json_option(action)
    action = actions.add_parser(
        "wireshark",
        help="write a dissector that makes Wireshark and tshark read RD, XRC, ATOMIC WRITE, FLUSH and CNP",
    )
    action.add_argument(
        "--out",
        type=Path,
        metavar="FILE",
        help="the Lua file to write (default: standard output); tshark takes it by -X lua_script:FILE, "
        "Wireshark from its folder of personal Lua plugins",
    )


def run(args: argparse.Namespace) -> int:
    """Run the command; CommandError when a file cannot be read or written, or is damaged."""
    if args.action == "wireshark":
        return _write_dissector(args.out)
    return _decode(args)


def _write_dissector(out: Path | None) -> int:
    if out is None:
        print(dissector())
        return 0
    try:
        out.write_text(dissector(), encoding="utf-8")
    except OSError as error:
        raise CommandError(f"{out}: {error.strerror}") from error
    return 0


def _decode(args: argparse.Namespace) -> int:
    records: list[dict[str, Any]] = []
    damage: WireError | None = None
    try:
        with _opened(args.file) as stream:
            records.extend(decoded(read_capture(stream)))  # an error leaves what came before it
    except OSError as error:
        raise CommandError(f"{args.file}: {error.strerror}") from error
    except WireError as error:
        damage = error
    if damage is not None and not records:
        raise CommandError(f"{args.file}: {damage}", "name one that Wireshark or tcpdump reads") from damage
    _show(args, records)
    if damage is not None:
        raise CommandError(f"{args.file}: {damage}; the packets before it are shown") from damage
    return 0


def _opened(file: Path) -> contextlib.AbstractContextManager[BinaryIO]:
    """The file to read, or standard input, which stays open."""
    if str(file) != "-":
        return file.open("rb")
    if sys.stdin is None:
        raise CommandError("standard input is closed")
    return contextlib.nullcontext(sys.stdin.buffer)


def _show(args: argparse.Namespace, records: list[dict[str, Any]]) -> None:
    if args.json:
        print_json(records)
    else:
        start_ns = records[0]["time_ns"] if records else 0
        rows = (_row(record, start_ns) for record in records)
        print_table(f"{args.file}: {len(records)} RDMA packets", COLUMNS, rows)


def decoded(packets: Iterator[CapturedPacket]) -> Iterator[dict[str, Any]]:
    """One record per RDMA packet; ``error`` is set, and the rest missing, where it cannot be decoded.

    Packets of a burst that was captured whole share its number and have a ``segment``, from 1.
    """
    for captured in packets:
        place = {"number": captured.number, "time_ns": captured.time_ns}
        record = _decoded(captured.data, captured.link_type)
        if record is None:
            continue
        if "error" not in record and record["icrc_ok"] is not False:
            yield {**place, **record}
            continue
        frames = cut_burst(captured.data, captured.link_type)
        if len(frames) < 2:
            yield {**place, **record}
        for segment, frame in enumerate(frames, 1) if len(frames) > 1 else ():
            yield {**place, "segment": segment, **(_decoded(frame, captured.link_type) or {})}


def _decoded(data: bytes, link_type: int) -> dict[str, Any] | None:
    """What is said of one packet; None where it is no RDMA packet."""
    try:
        packet = decode(data, link_type)
        raw = None if packet else decode_raw(data, link_type)
    except WireError as error:
        return {"error": str(error)}
    if packet is not None:
        return _record(packet)
    return None if raw is None else _raw_record(raw)


def _record(packet: Packet) -> dict[str, Any]:
    transport = packet.transport
    return {
        "source": packet.source,
        "destination": packet.destination,
        "opcode": transport.opcode.name,
        "dest_qp": transport.bth.dest_qp,
        "psn": transport.bth.psn,
        "payload_bytes": len(transport.payload),
        "icrc_ok": packet.icrc_ok,
        "vcrc_ok": packet.vcrc_ok,
        "headers": {name: header.as_dict() for name, header in packet.headers()},
    }


def _raw_record(packet: RawPacket) -> dict[str, Any]:
    """The same of a raw datagram, which has no queue pair, no PSN and no ICRC; its padding is payload."""
    named = "RAW_IPV6" if packet.service == RAW_IPV6 else f"RAW_ETHERTYPE_0x{packet.service:04x}"
    return {
        "source": packet.source,
        "destination": packet.destination,
        "opcode": named,
        "dest_qp": None,
        "psn": None,
        "payload_bytes": len(packet.payload),
        "icrc_ok": None,
        "vcrc_ok": packet.vcrc_ok,
        "headers": {name: header.as_dict() for name, header in packet.headers()},
    }


def _row(record: dict[str, Any], start_ns: int) -> tuple[str, ...]:
    number = f"{record['number']}.{record['segment']}" if "segment" in record else str(record["number"])
    place = (number, f"{(record['time_ns'] - start_ns) / 1e9:.6f}")
    if "error" in record:
        return (*place, *[""] * 8, record["error"])
    more = []
    for name, fields in record["headers"].items():
        if name == "ipv6" and record["dest_qp"] is None:
            source, destination = (
                ipaddress.ip_address(bytes.fromhex(fields[end])) for end in ("source", "destination")
            )
            more.append(f"ipv6 {source} > {destination} next header {fields['next_header']}")
        if name in EXTENSIONS:
            shown = (f"{key}=0x{value:x}" for key, value in fields.items() if not key.startswith("reserved"))
            more.append(f"{name} {' '.join(shown)}")
    return (
        *place,
        record["source"],
        record["destination"],
        record["opcode"],
        "–" if record["dest_qp"] is None else f"0x{record['dest_qp']:06x}",
        "–" if record["psn"] is None else str(record["psn"]),
        str(record["payload_bytes"]),
        _VERDICTS[record["icrc_ok"]],
        _VERDICTS[record["vcrc_ok"]],
        "; ".join(more),
    )
