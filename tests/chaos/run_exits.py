"""Programs that end while their threads are in calls: each must end by itself, at once and in silence.

``python run_exits.py [--kinds KIND …] [--seeds A..B]``; what is wrong is printed, and the status is 1.  A
thread that ends with the interpreter keeps the locks that it has, so what is finalized then waits for none.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))  # whose limits are by the machine's speed

from loopback_addresses import claimed_addresses
from machine_speed import limit_s

PROGRAM = Path(__file__).with_name("exit_program.py")
KINDS = ("datagrams", "streams", "descriptors", "channels", "mailboxes", "verbs")
LIMIT_S = 60
"""Of one program, which takes about a second; where it never ends it is ended."""


def fault(kind: str, seed: int, addresses: tuple[str, str]) -> str:
    """What is wrong with the end of one program; empty: nothing."""
    command = [sys.executable, str(PROGRAM), kind, str(seed), *addresses]
    try:
        ran = subprocess.run(command, capture_output=True, text=True, timeout=limit_s(LIMIT_S))
    except subprocess.TimeoutExpired as left:
        said = (left.stderr or b"").decode(errors="replace")
        return f"{kind} {seed}: it never ended\n{said}"
    if (ran.returncode, ran.stdout, ran.stderr) == (0, "ends\n", ""):
        return ""
    return f"{kind} {seed}: status {ran.returncode}\n{ran.stdout}{ran.stderr}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS)
    parser.add_argument("--seeds", default="1..20", metavar="A..B", help="default %(default)s")
    arguments = parser.parse_args()
    first, last = map(int, arguments.seeds.split(".."))
    found = claimed_addresses(os.getpid() * 251)
    addresses, begun, wrong = (next(found), next(found)), time.monotonic(), 0
    for kind in arguments.kinds:
        for seed in range(first, last + 1):
            said = fault(kind, seed, addresses)
            if said:
                wrong += 1
                print(said, flush=True)
    count = len(arguments.kinds) * (last - first + 1)
    print(f"{count} programs, {wrong} wrong, {time.monotonic() - begun:.0f} s")
    return min(wrong, 1)


if __name__ == "__main__":
    sys.exit(main())
