"""A served fabric, opensm on it, and Debian's diagnostic tools.

The tools are unmodified; ``libumad2sim.so`` (Debian package ibsim-utils) stands in for the kernel.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path

from machine_speed import limit_s
from softhca.fabric.topology import Topology
from softhca.fabric.topology_file import write_ibnetdiscover

SEARCH = os.environ.get("PATH", os.defpath) + ":/usr/sbin:/sbin"
TOOLS = (
    "opensm", "ibnetdiscover", "iblinkinfo", "smpquery", "ibtracert", "ibroute", "ibqueryerrors", "saquery",
)  # fmt: skip
LIBRARY = next(iter(sorted(Path("/usr/lib").glob("*/umad2sim/libumad2sim.so"))), None)
ABSENT = [tool for tool in TOOLS if shutil.which(tool, path=SEARCH) is None]
if LIBRARY is None:
    ABSENT.append("libumad2sim.so")
REASON = f"not installed: {', '.join(ABSENT)} (Debian: opensm infiniband-diags ibsim-utils)"
MANAGER = "h0"


def lids(bench: Bench) -> dict[int, int]:
    """The LID that each node has, by node's index: what ``ibnetdiscover`` prints behind #."""
    text = bench.run("ibnetdiscover")
    guids = {node.guid: index for index, node in enumerate(bench.topology.nodes)}
    found: dict[int, int] = {}
    for guid, lid in re.findall(r'^Switch\s+\d+ "S-([0-9a-f]{16})".* lid (\d+) ', text, re.MULTILINE):
        found[guids[int(guid, 16)]] = int(lid)
    for guid, body in re.findall(r'^Ca\s+\d+ "H-([0-9a-f]{16})".*\n(\[.*)', text, re.MULTILINE):
        found[guids[int(guid, 16)]] = int(re.findall(r"# lid (\d+) lmc", body)[0])
    return found


class Bench:
    """A server of a topology, opensm on it, and tools."""

    def __init__(self, folder: Path, topology: Topology, *options: str) -> None:
        self.folder = folder
        self.topology = topology
        self.name = f"softhca-test-{os.getpid()}-{folder.name}"
        file = folder / "fabric.topo"
        file.write_text(write_ibnetdiscover(topology))
        self.file = file
        self._children: list[subprocess.Popen[str]] = []
        command = [sys.executable, "-m", "softhca", "fabric", "serve", str(file), "--name", self.name]
        server = self.start([*command, *options])
        assert "LD_PRELOAD" in self.line_of(server, "LD_PRELOAD")

    def environment(self, host: str = "") -> dict[str, str]:
        """That of a tool at a host."""
        index = self.topology.index(host or MANAGER)
        return {
            **os.environ,
            "PATH": SEARCH,
            "LD_PRELOAD": str(LIBRARY),
            "IBSIM_SOCKNAME": self.name,
            "SIM_HOST": f"H-{self.topology.nodes[index].guid:016x}",
            "OSM_CACHE_DIR": str(self.folder),
            "OSM_TMP_DIR": str(self.folder),
        }

    def start(self, command: list[str], environment: dict[str, str] | None = None) -> subprocess.Popen[str]:
        """A program that goes on; its output is read by `line_of`."""
        child = subprocess.Popen(
            command,
            env=environment,
            cwd=self.folder if environment else None,
            text=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        self._children.append(child)
        return child

    @staticmethod
    def line_of(child: subprocess.Popen[str], text: str) -> str:
        """The next line of a program that has a text in it; one that hangs is ended."""
        assert child.stdout is not None
        watch = threading.Timer(limit_s(60), child.kill)
        watch.start()
        try:
            for line in child.stdout:
                if text in line:
                    return line
        finally:
            watch.cancel()
        raise AssertionError(f"{child.args} ended before it said {text!r}")

    def manage(self, *options: str) -> subprocess.Popen[str]:
        """OpenSM, when it has brought the fabric up."""
        opensm = self.start(["opensm", "-f", "stdout", "-F", os.devnull, *options], self.environment())
        self.line_of(opensm, "SUBNET UP")
        return opensm

    def wait_until_up(self) -> None:
        """Our own manager has brought all links up."""
        for _ in range(100):
            text = self.run("iblinkinfo", "--line", status=None)  # a busy server may answer too late
            if text.count("Active/  LinkUp") == 2 * len(self.topology.links):
                return
        raise AssertionError("the fabric is not up")

    def run(self, *command: str, host: str = "", status: int | None = 0) -> str:
        """What a tool prints; it must end with a status (None: any)."""
        done = subprocess.run(
            command,
            env=self.environment(host),
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=limit_s(60),
            check=False,
        )
        assert status in (None, done.returncode), (command, done.stdout[-500:], done.stderr[-500:])
        return done.stdout

    def ask(self, *words: str) -> str:
        """A command of softhca on the served fabric."""
        command = [sys.executable, "-m", "softhca", "fabric", *words, "--name", self.name]
        return subprocess.run(command, capture_output=True, text=True, timeout=limit_s(60), check=True).stdout

    def end_text(self, name: str, port: int) -> str:
        """An end of a link as the served file names it."""
        node = self.topology.nodes[self.topology.index(name)]
        return f"{'S' if node.is_switch else 'H'}-{node.guid:016x}[{port}]"

    def close(self) -> None:
        """End all that was started, the server last: the tools take their leave of it."""
        for child in reversed(self._children):
            child.send_signal(signal.SIGINT)
            child.communicate(timeout=limit_s(30))
        self._children.clear()
