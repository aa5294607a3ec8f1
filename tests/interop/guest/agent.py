"""First process of a guest: runs what the host asks for over a serial port, one JSON object a line.

Asked: ``{"id", "do": "start", "argv", "env"?}``, ``{"id", "do": "input", "text"}``, ``{"id", "do": "signal",
"number"}``, ``{"id", "do": "put", "path", "data" (base64), "mode"}``.  Told: ``{"id", "out": text}``,
``{"id", "err": text}`` (whole lines), ``{"id", "status": exit status}``; id 0 is the agent's own.
"""

from __future__ import annotations

import base64
import json
import os
import subprocess
import threading
from pathlib import Path
from typing import Any

PORT_NAME = "agent"
ENVIRONMENT = {"PATH": "/usr/bin:/usr/sbin:/bin:/sbin", "HOME": "/root", "LC_ALL": "C.UTF-8"}
MOUNTS = (("proc", "/proc"), ("sysfs", "/sys"), ("tmpfs", "/run"), ("tmpfs", "/tmp"))


def port() -> str:
    """The device of the serial port that the host calls by our name."""
    while True:
        for name in Path("/sys/class/virtio-ports").glob("*/name"):
            if name.read_text().strip() == PORT_NAME:
                return f"/dev/{name.parent.name}"


class Agent:
    """The processes that were started, by the id of their asking."""

    def __init__(self, stream: Any) -> None:
        self.stream = stream
        self.lock = threading.Lock()
        self.processes: dict[int, subprocess.Popen[str]] = {}

    def tell(self, **message: Any) -> None:
        """One line to the host."""
        data = json.dumps(message).encode() + b"\n"
        with self.lock:
            while data:
                data = data[self.stream.write(data) :]

    def start(self, number: int, argv: list[str], env: dict[str, str]) -> None:
        """Start a process and tell what it says until it ends."""
        try:
            process = subprocess.Popen(
                argv,
                env=ENVIRONMENT | env,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                errors="replace",
                bufsize=1,
            )
        except OSError as error:
            self.tell(id=number, err=f"{argv[0]}: {error.strerror}")
            self.tell(id=number, status=127)
            return
        self.processes[number] = process
        threading.Thread(target=self.follow, args=(number, process), daemon=True).start()

    def follow(self, number: int, process: subprocess.Popen[str]) -> None:
        """Both outputs, then the status."""
        readers = [
            threading.Thread(target=self.relay, args=(number, name, stream))
            for name, stream in (("out", process.stdout), ("err", process.stderr))
        ]
        for reader in readers:
            reader.start()
        for reader in readers:
            reader.join()
        status = process.wait()
        self.processes.pop(number, None)
        self.tell(id=number, status=status)

    def relay(self, number: int, name: str, stream: Any) -> None:
        """One output, line by line."""
        for line in stream:
            self.tell(id=number, **{name: line.rstrip("\n")})

    def obey(self, asked: dict[str, Any]) -> None:
        """Do one thing; what went wrong is told."""
        number, what = asked["id"], asked["do"]
        if what == "start":
            self.start(number, asked["argv"], asked.get("env", {}))
        elif what == "put":
            path = Path(asked["path"])
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(base64.b64decode(asked["data"]))
            path.chmod(asked.get("mode", 0o644))
            self.tell(id=number, status=0)
        elif process := self.processes.get(number):
            if what == "input":
                process.stdin.write(asked["text"])
                process.stdin.flush()
            elif what == "signal":
                process.send_signal(asked["number"])


def main() -> None:
    for kind, place in MOUNTS:
        Path(place).mkdir(exist_ok=True)
        subprocess.run(["/usr/bin/mount", "-t", kind, "none", place], check=True)
    with open(port(), "r+b", buffering=0) as stream:
        agent = Agent(stream)
        agent.tell(id=0, out=os.uname().release)
        waiting = b""
        while True:
            waiting += stream.read(65536) or b""
            *lines, waiting = waiting.split(b"\n")
            for line in lines:
                try:
                    agent.obey(json.loads(line))
                except Exception as error:  # the first process must not end
                    agent.tell(id=0, err=repr(error))


if __name__ == "__main__":
    main()
