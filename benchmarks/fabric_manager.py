"""How long OpenSM takes to bring a fat tree up: on our served fabric and on ibsim, in turns.

``python benchmarks/fabric_manager.py [--radix 16] [--rounds 3] [--json FILE]`` needs Debian's opensm and
ibsim-utils.  Measured is from OpenSM's first line to SUBNET UP in its own log, with an empty cache each time.
Our own manager's time on the same fabric (`softhca fabric discover`, no socket between) stands beside them,
and how many events a second of processor time its switches simulate with packets between all hosts.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
from datetime import datetime
from pathlib import Path

from fabric_events import Load

from softhca.fabric.generators import fat_tree
from softhca.fabric.topology import LinkSpeed
from softhca.fabric.topology_file import write_ibnetdiscover

LIBRARY = next(iter(sorted(Path("/usr/lib").glob("*/umad2sim/libumad2sim.so"))), None)
SEARCH = os.environ.get("PATH", os.defpath) + ":/usr/sbin:/sbin"
_LINE = re.compile(r"^(\w{3} \d\d \d\d:\d\d:\d\d) (\d{6}) ")
LIMIT_S = 600
PACKETS = 8
"""Of each host, for the events."""


def moment(line: str) -> datetime:
    """When a line of OpenSM's log was written."""
    match = _LINE.match(line)
    if match is None:
        raise ValueError(f"no line of a log: {line!r}")
    return datetime.strptime(f"2026 {match[1]} {match[2]}", "%Y %b %d %H:%M:%S %f")


def bring_up(name: str, folder: Path) -> float:
    """Seconds from OpenSM's first line to SUBNET UP."""
    cache = folder / "cache"
    shutil.rmtree(cache, ignore_errors=True)
    cache.mkdir()
    log = cache / "opensm.log"
    environment = {
        **os.environ, "PATH": SEARCH, "LD_PRELOAD": str(LIBRARY), "IBSIM_SOCKNAME": name,
        "OSM_CACHE_DIR": str(cache), "OSM_TMP_DIR": str(cache),
    }  # fmt: skip
    command = ["opensm", "-o", "-f", str(log), "-F", os.devnull]
    subprocess.run(
        command, env=environment, cwd=cache, timeout=LIMIT_S, check=True,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    lines = log.read_text().splitlines()
    up = next(line for line in lines if "SUBNET UP" in line)
    return (moment(up) - moment(lines[0])).total_seconds()


def serve(file: Path, name: str) -> subprocess.Popen[str]:
    """Our server, when it is there."""
    command = [sys.executable, "-m", "softhca", "fabric", "serve", str(file), "--name", name]
    child = subprocess.Popen(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert child.stdout is not None
    child.stdout.readline()
    return child


def ibsim(file: Path, name: str, nodes: int, ports: int) -> subprocess.Popen[str]:
    """The peer, when it is there."""
    command = ["ibsim", "-s", "-N", str(nodes), "-S", str(nodes), "-P", str(ports), str(file)]
    child = subprocess.Popen(
        command, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        env={**os.environ, "PATH": SEARCH, "IBSIM_SOCKNAME": name},
    )  # fmt: skip
    assert child.stdout is not None
    for line in child.stdout:
        if "ready" in line:
            return child
    raise RuntimeError("ibsim did not start")


def measure(radix: int, rounds: int) -> dict[str, object]:
    """Both, in turns; each round a new server."""
    topology = fat_tree(radix, speed=LinkSpeed.QDR)  # ibsim knows no later speeds
    ports = sum(node.port_count + 1 for node in topology.nodes)
    ours: list[float] = []
    theirs: list[float] = []
    own: list[float] = []
    rates: list[float] = []
    load = Load(topology)
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        file = folder / "fabric.topo"
        file.write_text(write_ibnetdiscover(topology))
        for number in range(rounds):
            name = f"softhca-bench-{os.getpid()}-{number}"
            server = serve(file, name)
            try:
                ours.append(bring_up(name, folder))
            finally:
                server.terminate()
                server.communicate()
            peer = ibsim(file, name + "-peer", len(topology.nodes) + 16, ports + 64)
            try:
                theirs.append(bring_up(name + "-peer", folder))
            finally:
                peer.kill()
                peer.communicate()
            told = subprocess.run(
                [sys.executable, "-m", "softhca", "fabric", "discover", str(file), "--json"],
                capture_output=True, text=True, timeout=LIMIT_S, check=True,
            )  # fmt: skip
            own.append(json.loads(told.stdout)["steps"][0]["seconds"])
            events, spent_s = load.run(PACKETS)
            rates.append(round(events / spent_s))
    return {
        "hosts": len(topology.end_nodes), "switches": len(topology.switches), "rounds": rounds,
        "opensm_on_softhca_s": ours, "opensm_on_ibsim_s": theirs, "own_manager_s": own,
        "events_per_s": rates,
        "peak_rss_mb": resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024,
    }  # fmt: skip


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--radix", type=int, default=16, help="of the switches; 16: 1,024 hosts")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    if LIBRARY is None or shutil.which("opensm", path=SEARCH) is None:
        raise SystemExit("needs Debian's opensm, ibsim-utils")
    found = measure(args.radix, args.rounds)
    if args.json:
        args.json.write_text(json.dumps(found, indent=2))
    for name, value in found.items():
        text = f"{statistics.median(value):.2f} ({value})" if isinstance(value, list) else value
        print(f"{name:24} {text}")


if __name__ == "__main__":
    main()
