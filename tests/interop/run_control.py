"""``python tests/interop/run_control.py``: the random mix between two guests, SoftRoCE on both sides.

What stalls or breaks here does so without us.  Exit status 0 when the runs were made, 2 without guests.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from contextlib import ExitStack, nullcontext
from functools import partial

from interop_capture import Capture
from interop_cells_mix import BAD
from interop_cells_netem import netem
from interop_guest import Guest
from interop_image import Bootable, Images, images
from interop_link import Attributes, CellError, Link
from interop_matrix import SETTINGS, PeerSilent
from interop_mix import DEPTH, Plan, forget_warnings, judge, run, warned
from interop_network import Network, address
from interop_packages import KERNELS, Unavailable
from interop_peer import GuestChannel, Peer, program_files
from interop_world import GUEST_PROGRAM, configure, meet

HOSTS = (2, 3)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kernel", choices=(*KERNELS, "all"), default="all", help="series (default all)")
    parser.add_argument("--seed", type=int, default=1, help="of the first run; others count on")
    parser.add_argument("--runs", type=int, default=3, help="in each setting (default 3)")
    parser.add_argument("--operations", type=int, default=5000)
    parser.add_argument("--receives", type=int, default=6, help="posted on each queue pair (default 6)")
    parser.add_argument("--netem", action="store_true", help="the bad network of `make interop`, both ways")
    parser.add_argument(
        "--empty", action="store_true", help="with --netem: RDMA WRITEs and READs of no bytes as well"
    )
    args = parser.parse_args(arguments)
    try:
        found = images(print)
        for series in KERNELS if args.kernel == "all" else [args.kernel]:
            if series in found.kernels:
                control(found, found.kernels[series], args)
    except Unavailable as error:
        print(f"skipped: {error}")
        return 2
    return 0


def control(found: Images, kernel: Bootable, args: argparse.Namespace) -> None:
    """All runs with one kernel, a line for each."""
    with ExitStack() as stack:
        network = stack.enter_context(Network())
        guests = [
            stack.enter_context(
                Guest(found, kernel, prefix=network.prefix, nets=network.tap(host), files=program_files())
            )
            for host in HOSTS
        ]
        for guest, host in zip(guests, HOSTS, strict=True):
            configure(guest, host)
        for guest, other in zip(guests, HOSTS[::-1], strict=True):
            meet(guest, [address(other, version) for version in (4, 6)])
        peers = [
            Peer(f"kernel {number}", partial(GuestChannel, guest, ["python3", GUEST_PROGRAM]))
            for number, guest in enumerate(guests, 1)
        ]
        capture = partial(Capture, network.prefix, f"guest{HOSTS[0]}")
        for setting in SETTINGS:
            ends = (address(HOSTS[0], setting.version), address(HOSTS[1], setting.version))
            for number in range(args.runs):
                empty = args.empty or not args.netem
                plan = Plan(args.seed + number, args.operations, args.receives, empty=empty)
                for guest in guests:
                    forget_warnings(guest)
                link = Link(peers[0], peers[1], ends, setting, attributes=Attributes(), depth=DEPTH)
                with netem(guests[0], BAD, both=True) if args.netem else nullcontext():
                    result = run(link, link.requester, capture, plan)
                try:
                    judge(result)
                    text = f"done in {result.sides[0].told['elapsed_s']} s"
                except PeerSilent as error:
                    text = f"silent: {error}"
                except CellError as error:
                    text = f"wrong: {error}"
                where = f"Linux {kernel.version} to itself, {setting.name}, seed {plan.seed}"
                print(f"{where}: {text}", *(warned(guest) for guest in guests), sep="", flush=True)


if __name__ == "__main__":
    sys.exit(main())
