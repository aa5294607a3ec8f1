"""The main job in seconds: two processes, each with its own adapter, exchange RDMA over RoCEv2 on this
machine.

``softhca run`` starts the two copies of ``demo_steps.py`` twice: for every kind of operation, with all
packets captured, and for 64 MiB, without, through shared memory where that can be.  Then the capture is
decoded and every packet's ICRC checked.  The exit status is 0 when all data arrived right and every ICRC is
good.
"""

import argparse
import collections
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.table import Table

from softhca.cli.capture import decoded
from softhca.cli.figures import compiled
from softhca.wire.captures import read_capture

STEPS = Path(__file__).with_name("demo_steps.py")
TIMEOUT_S = 120


def run_pair(phase, results, capture=None):
    """Two copies of the program under ``softhca run``; what copy 0 saw, or an empty list when they failed."""
    options = ["--capture", str(capture)] if capture else []
    program = [sys.executable, str(STEPS), phase, "--results", str(results)]
    command = [sys.executable, "-m", "softhca", "run", "-n", "2", *options, "--", *program]
    status = subprocess.run(command, timeout=TIMEOUT_S).returncode
    if status:
        print(f"demo: {phase} ended with status {status}", file=sys.stderr)
    return json.loads(results.read_text()) if results.exists() else []


def count_packets(capture):
    """How many packets of each opcode the capture holds, and how many of them are not as they should be."""
    opcodes, bad = collections.Counter(), 0
    with capture.open("rb") as stream:
        for record in decoded(read_capture(stream)):
            opcodes[record.get("opcode", "undecodable")] += 1
            bad += not record.get("icrc_ok")
    return opcodes, bad


def speed(result):
    """What a measured operation shows best: its time, or for much data its rate."""
    if result["bytes"] >= 1 << 20:
        return f"{result['bytes'] / result['elapsed_us'] / 1000:.2f} GB/s"
    return f"{result['elapsed_us']:.0f} µs"


def show(console, results, opcodes, bad, capture):
    """The tables of what was measured and of what was captured."""
    measured = Table(title="RDMA between two processes", title_justify="left")
    for column in ("operation", "bytes", "data", "measured"):
        measured.add_column(column, justify="right" if column in ("bytes", "measured") else "left")
    for result in results:
        verdict = "[green]right" if result["right"] else "[red]WRONG"
        measured.add_row(result["operation"], f"{result['bytes']:,}", verdict, speed(result))
    console.print(measured)
    captured = Table(title=f"Packets in {capture}", title_justify="left")
    captured.add_column("opcode")
    captured.add_column("packets", justify="right")
    for opcode, count in sorted(opcodes.items()):
        captured.add_row(opcode, f"{count:,}")
    console.print(captured)
    total = sum(opcodes.values())
    console.print(f"ICRC good on {total - bad:,} of {total:,} captured packets")
    console.print(f"modules: {'compiled' if compiled() else 'interpreted'}")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--capture", type=Path, default=Path("demo.pcapng"), help="where to (default %(default)s)"
    )
    args = parser.parse_args()
    console = Console()
    with tempfile.TemporaryDirectory(prefix="softhca-demo-") as folder, console.status("exchanging …"):
        operations = run_pair("operations", Path(folder, "operations"), args.capture)
        bulk = run_pair("bulk", Path(folder, "bulk"))
        opcodes, bad = count_packets(args.capture) if args.capture.exists() else ({}, 0)
    results = operations + bulk
    show(console, results, opcodes, bad, args.capture)
    right = bool(operations and bulk and opcodes) and all(result["right"] for result in results) and not bad
    console.print("[green]all right" if right else "[red]something is wrong")
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
