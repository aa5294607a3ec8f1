"""``python tests/interop/run_connection_rate.py``: how fast Debian's ``cmtime`` makes and ends connections.

Both its ends are at one address: in a guest on the kernel's SoftRoCE, and here on softhca.

Each step of ``cmtime`` is done for all connections before the next, so that their sum is one connection's
share of all of them.  Exit status 0, or 2 where no guest can be had.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import time
from collections.abc import Sequence

from interop_connections import OurAdapter, running
from interop_guest import Session
from interop_image import images
from interop_network import COMMAND_HOST, address
from interop_packages import KERNELS, Unavailable
from interop_world import World

PROGRAM_S = 200.0
LISTENS_NOT = re.compile(r"REJECTED|UNREACHABLE|refused", re.IGNORECASE)


def words(address: str, count: int) -> tuple[list[str], list[str]]:
    """What starts the server, and the client."""
    common = ["cmtime", "-b", address, "-c", str(count)]
    return common, [*common, "-s", address]


def told(name: str, count: int, said: str, spent_s: float) -> None:
    """Print what the client said of each step, and the rate of its whole life."""
    print(said[said.find("step ") :].rstrip())
    print(f"{name}: {count} connections in {spent_s:.2f} s, {count / spent_s:.0f} a second", flush=True)


def in_guest(world: World, count: int) -> None:
    """On the kernel."""
    there = world.sides.kernel_addresses[4]
    server, client = words(there, count)
    session: Session = world.sides.guest.start(*server)
    try:
        while "LISTEN" not in world.sides.guest.run("rdma", "resource", "show", "cm_id", "link", "rxe0").out:
            if session.ended():
                raise SystemExit("the guest's cmtime does not listen")
        start_s = time.monotonic()
        result = world.sides.guest.run(*client, timeout_s=PROGRAM_S, check=False)
        told("SoftRoCE", count, result.out + result.err, time.monotonic() - start_s)
    finally:
        if not session.ended():
            session.kill()


def here(adapter: OurAdapter, count: int) -> None:
    """On softhca: both programs on one adapter process, as in the guest on one kernel."""
    server, client = words(address(COMMAND_HOST, 4), count)
    with running(adapter.start(*server)):
        end_s = time.monotonic() + PROGRAM_S
        while time.monotonic() < end_s:
            start_s = time.monotonic()
            with running(adapter.start(*client)) as program:
                try:
                    said, _ = program.communicate(timeout=PROGRAM_S)
                except subprocess.TimeoutExpired:
                    raise SystemExit("our cmtime does not end") from None
            if program.returncode == 0 or not LISTENS_NOT.search(said):
                told("softhca", count, said, time.monotonic() - start_s)
                return


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kernel", choices=tuple(KERNELS), default=next(iter(KERNELS)))
    parser.add_argument("--connections", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args(arguments)
    try:
        found = images(print)
        with World(found, found.kernels[args.kernel]) as world, world.our_adapter(4) as adapter:
            for _ in range(args.rounds):
                in_guest(world, args.connections)
                here(adapter, args.connections)
    except Unavailable as error:
        print(f"skipped: {error}")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
