"""The main job in seconds: two processes, each with its own adapter, exchange RDMA over RoCEv2 on this
machine.

``softhca run`` starts the two copies of ``demo_steps.py`` three times: every kind of operation, with all
packets captured and the data checked; then the same kinds timed, without a capture, by packets and through
shared memory where that can be.  The capture is decoded and every packet's ICRC checked.  The exit status is
0 when all data arrived right and every ICRC is good.
"""

import argparse
import collections
import ipaddress
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.table import Table

from softhca.cli.capture import decoded
from softhca.cli.figures import compiled
from softhca.cli.output import bytes_text
from softhca.runtime.same_host_limits import unsupported
from softhca.wire.captures import read_capture

STEPS = Path(__file__).with_name("demo_steps.py")
TIMEOUT_S = 120


def run_pair(phase, results, *options, quick=False):
    """Two copies of the program under ``softhca run``; what copy 0 saw, or nothing when they failed."""
    program = [sys.executable, str(STEPS), phase, "--results", str(results), *["--quick"] * quick]
    command = [sys.executable, "-m", "softhca", "run", "-n", "2", *options, "--", *program]
    status = subprocess.run(command, timeout=TIMEOUT_S).returncode
    if status:
        print(f"demo: {phase} ended with status {status}", file=sys.stderr)
    return json.loads(results.read_text()) if results.exists() else {"adapters": [], "results": []}


def count_packets(capture):
    """How many packets of each opcode the capture holds, and how many of them are not as they should be."""
    opcodes, bad = collections.Counter(), 0
    with capture.open("rb") as stream:
        for record in decoded(read_capture(stream)):
            opcodes[record.get("opcode", "undecodable")] += 1
            bad += not record.get("icrc_ok")
    return opcodes, bad


def table(title, *columns):
    """An empty table; columns behind the first are figures."""
    made = Table(title=title, title_justify="left", title_style="bold")
    for index, column in enumerate(columns):
        made.add_column(column, justify="right" if index else "left")
    return made


def show_made(console, adapters):
    """What there is: an adapter in each of two processes."""
    made = table("Made: an adapter in each of two processes", "process", "device", "address", "GID", "MTU")
    for rank, adapter in enumerate(adapters):
        gid = ipaddress.IPv6Address(adapter["gid"])
        made.add_row(f"{rank}", adapter["name"], str(gid.ipv4_mapped or gid),
                     socket.inet_ntop(socket.AF_INET6, gid.packed), f"{adapter['mtu_bytes']}")
    console.print(made)


def show_moved(console, results, opcodes, bad, capture):
    """What was moved and checked, and the packets that did it."""
    moved = table("Moved, and checked at the other end", "operation", "bytes", "times", "data")
    for result in results:
        verdict = "[green]right" if result["right"] else "[red]WRONG"
        moved.add_row(result["operation"], f"{result['bytes']:,}", str(result["times"]), verdict)
    console.print(moved)
    total = sum(opcodes.values())
    console.print(f"{total:,} packets of {len(opcodes)} opcodes are in {capture}; "
                  f"the ICRC is good on {total - bad:,} of them")


def figure(results, name, key, unit):
    """One figure of a run as text; a dash where there is none."""
    value = next((result[key] for result in results if result["operation"] == name and key in result), None)
    return "–" if value is None else unit(value)


def microseconds(value):
    """Three digits."""
    return f"{value:.3g} µs" if value < 1000 else f"{value:,.0f} µs"


def rate(value):
    """Bytes a second with a decimal unit."""
    return f"{bytes_text(float(f'{value:.2g}'))}/s"


def show_speeds(console, packets, shared):
    """Latencies and bandwidths, by packets and by shared memory, beside TCP and memcpy."""
    samples = [result["samples"] for result in packets if "latency_us" in result]
    title = f"One operation of 8 bytes at a time: medians of {min(samples, default=0):,} or more"
    small = table(title, "operation", "by packets", "by shared memory")
    for name in [result["operation"] for result in packets if "latency_us" in result]:
        beside = figure(shared, name, "latency_us", microseconds) if name != "TCP" else "–"
        small.add_row(f"{name}, to compare" if name == "TCP" else name,
                      figure(packets, name, "latency_us", microseconds), beside)
    console.print(small)
    much = table("Much data, 1 MiB at a time", "way", "bandwidth")
    for way, results, name in (
        ("RDMA write by packets", packets, "bulk"), ("RDMA write by shared memory", shared, "bulk"),
        ("TCP, to compare", packets, "TCP"), ("memcpy, to compare", packets, "memcpy"),
    ):  # fmt: skip
        much.add_row(way, figure(results, name, "bandwidth_bytes_per_s", rate))
    console.print(much)
    console.print(
        "RDMA write, read and atomics: from posting to completion; what the other side answers, and TCP: "
        "half of the way there and back.  "
        f"The modules are {'compiled' if compiled() else 'interpreted, which takes many times as long'}; "
        f"{os.cpu_count()} processors, load {os.getloadavg()[0]:.1f}."
    )


def show_next(console, capture):
    """What a visitor can type now."""
    own = os.path.relpath(Path(sys.executable).with_name("softhca"))
    command = "softhca" if shutil.which("softhca") else own
    program = os.path.relpath(Path(__file__).with_name("rc_write.py"))
    console.print("Try next:", style="bold")
    for words, said in (
        (f"{command} doctor", "what of this machine costs speed"),
        (f"{command} run -n 2 --faults 'loss=40%,seed=7' -- python {program}", "the same over a bad network"),
        (f"{command} capture decode {capture}", "every packet, header by header"),
    ):
        console.print(f"  {words}    [dim]# {said}", soft_wrap=True, highlight=False)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--capture", type=Path, default=Path("demo.pcapng"), help="where to (default %(default)s)"
    )
    parser.add_argument("--quick", action="store_true", help="measure for a tenth as long, more roughly")
    args = parser.parse_args()
    console = Console()
    with tempfile.TemporaryDirectory(prefix="softhca-demo-") as folder, console.status("exchanging …"):
        operations = run_pair("operations", Path(folder, "operations"), "--capture", str(args.capture))
        packets = run_pair("speeds", Path(folder, "packets"), "--link", "udp", quick=args.quick)["results"]
        shared = []
        if not unsupported():
            shared = run_pair("speeds", Path(folder, "shared"), "--link", "shm", quick=args.quick)["results"]
        opcodes, bad = count_packets(args.capture) if args.capture.exists() else ({}, 0)
    results = operations["results"]
    show_made(console, operations["adapters"])
    show_moved(console, results, opcodes, bad, args.capture)
    show_speeds(console, packets, shared)
    whole = results and opcodes and packets and (shared or unsupported())
    right = whole and all(result.get("right", True) for result in results + packets + shared) and not bad
    console.print("[green]all right" if right else "[red]something is wrong")
    show_next(console, args.capture)
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
