"""Kill programs in C at random points, and look that nothing is left of them in the adapter process.

``python tests/native/kills.py [COUNT] [SEED] [CLIENT]`` (default: 1000 kills of ``verbs_client``; the other
one is ``rdmacm_client``, which connects and parts).  Each program of ``verbs_client storm`` opens a device,
connects two queue pairs, moves data and closes all, again and again, and says a byte after each step; it is
killed at the byte that the dice name, which is in the middle of the next step.
"""

from __future__ import annotations

import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

from softhca.queues.handshake import RESOURCES, decode_answer, encode_request

HERE = Path(__file__).parent
MOST_STEPS = 60
AT_ONCE = 4


def resources(name: str) -> dict[str, int]:
    """What the adapter process at the abstract name ``name`` holds for hosts."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as control:
        control.connect("\0" + name.removeprefix("@"))
        control.send(encode_request(RESOURCES, {}))
        found = decode_answer(RESOURCES, control.recv(1 << 16))
    return {**{kind: count for kind, count in found["counts"] if count}, "hosts": found["hosts"]}


def left(name: str, pid: int, wanted: tuple[dict[str, int], int] | None = None) -> tuple[dict[str, int], int]:
    """What the adapter process ``pid`` holds for hosts, and its open descriptors, when it has seen the ends
    of all that were killed.  It is asked a bounded number of times, until nobody is there, and until it has
    no more than is ``wanted``; this itself is what is found then: there may be fewer descriptors, where it
    was still closing some when what is wanted was seen.
    """
    for _ in range(10_000):
        found = resources(name), len(os.listdir(f"/proc/{pid}/fd"))
        if not found[0]["hosts"]:
            if wanted is None:
                break
            if found[0] == wanted[0] and found[1] <= wanted[1]:
                return wanted
    return found


def kill(client: Path, environment: dict[str, str], count: int, dice: random.Random) -> None:
    """Start and kill ``count`` programs, a few at once."""
    running: list[tuple[subprocess.Popen[bytes], int]] = []
    started = 0
    while started < count or running:
        while started < count and len(running) < AT_ONCE:
            program = subprocess.Popen([str(client), "storm"], stdout=subprocess.PIPE, env=environment)
            running.append((program, dice.randrange(MOST_STEPS)))
            started += 1
        program, steps = running.pop(0)
        assert program.stdout is not None
        if steps:
            assert len(program.stdout.read(steps)) == steps, f"it ended with status {program.wait()}"
        program.send_signal(signal.SIGKILL)
        program.wait()
        program.stdout.close()


def main(count: int = 1000, seed: int = 1, name: str = "verbs_client") -> int:
    """Kill ``count`` programs; what was left."""
    sys.path.append(str(HERE.parent))
    from native_world import World, built, compiled_client

    with tempfile.TemporaryDirectory() as folder:
        library = built(Path(folder))
        world = World(library, "*")
        client = compiled_client(library, Path(folder), name)
        kill(client, world.environment, 8, random.Random(seed))
        before = left(world.socket, world.adapter.pid)
        kill(client, world.environment, count, random.Random(seed))
        after = left(world.socket, world.adapter.pid, before)
        done = world.run(str(client), "threads")
        world.close()
    print(f"{count} kills, seed {seed}: objects and descriptors left {after}, before {before}; "
          f"the next program ended with status {done.returncode}")  # fmt: skip
    return int(after != before or done.returncode != 0)


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:3]), *sys.argv[3:]))
