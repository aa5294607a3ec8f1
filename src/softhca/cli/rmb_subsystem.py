"""``softhca rmb subsystem``: the assembled adapter, and how it takes a window away while it goes on."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from softhca.cli.errors import CommandError, UsageError
from softhca.cli.output import add_json_option, print_json, print_table
from softhca.cli.rmb_files import make_empty
from softhca.wire.bth import Bth
from softhca.wire.layout import Header
from softhca.wire.packet import assemble
from softhca.wire.reth import Reth
from softhca.wire.route import NATIVE, Route

if TYPE_CHECKING:
    from softhca.hardware.subsystem_story import Story

PAYLOAD = b"data"
LEAST_VIS, MOST_VIS = 64, 4096
DESIGNS = ("manager", "microcode", "fixed")
"""The option's words for `softhca.hardware.designs.DESIGNS`."""


def add_parser(subparsers: Any) -> None:
    """Add ``subsystem``."""
    parser = subparsers.add_parser(
        "subsystem", help="packets, a bind and the remote-key manager in the assembled adapter"
    )
    parser.add_argument(
        "--vis", type=int, default=256, metavar="N",
        help=f"queue pairs, a power of two in {LEAST_VIS}…{MOST_VIS} (default: 256)",
    )  # fmt: skip
    parser.add_argument(
        "--design", choices=DESIGNS, default=DESIGNS[0],
        help="who searches for a window's keys: the remote-key manager (as it comes), the SQ's microcode "
        "alone, for which the RQ's engine stands still, or fixed hardware",
    )  # fmt: skip
    parser.add_argument("--vcd", type=Path, metavar="FILE", help="write the waveforms for a viewer (GTKWave)")
    parser.add_argument(
        "--messages", action="store_true",
        help="instead: SEND, RDMA WRITE and READ between the adapter in gates and the software adapter",
    )  # fmt: skip
    parser.add_argument("--mtu", type=int, default=1024, metavar="N", help="path MTU of messages (1024)")
    parser.add_argument("--size", type=int, default=4096, metavar="N", help="bytes of RDMA (4096)")
    parser.add_argument(
        "--together", type=int, default=1, metavar="N",
        help="messages of each kind that the gates post at once (1)",
    )  # fmt: skip
    parser.add_argument("--pcap", type=Path, metavar="FILE", help="write the packets of both sides")
    parser.add_argument("--svg", type=Path, metavar="FILE", help="draw what each part is at")
    add_json_option(parser)
    parser.set_defaults(run_part=run)


def run(args: argparse.Namespace) -> int:
    """Run the command; CommandError when the adapter does not do as it must."""
    if args.messages:
        if args.design != DESIGNS[0]:
            raise UsageError("--design is not of --messages")
        from softhca.cli import rmb_messages

        return rmb_messages.run(args)
    if args.pcap is not None or args.svg is not None:
        raise UsageError("--pcap and --svg are of --messages")
    if not LEAST_VIS <= args.vis <= MOST_VIS or args.vis & (args.vis - 1):
        raise UsageError(f"--vis takes a power of two in {LEAST_VIS}…{MOST_VIS}, not {args.vis}")
    from softhca.hardware import designs
    from softhca.hardware.subsystem_story import tell

    make_empty(args.vcd)
    design = designs.DESIGNS[DESIGNS.index(args.design)]
    story = tell(write_packet, args.vis, args.vcd, design)
    if args.json:
        print_json(document(story))
    else:
        _print(story)
    if found := story.faults():
        raise CommandError("; ".join(found))
    return 0


def write_packet(opcode: int, qp: int, psn: int, key: int | None) -> bytes:
    """A packet of an RDMA WRITE, LRH … VCRC; with ``key`` it has a RETH."""
    extensions: tuple[Header, ...] = () if key is None else (Reth(va=0, rkey=key, dma_length_bytes=4),)
    route = Route(NATIVE, bytes(16), bytes(16), slid=1, dlid=2)
    return assemble(route, Bth(opcode=opcode, dest_qp=qp, psn=psn), extensions, PAYLOAD).encode()


def document(story: Story) -> dict[str, Any]:
    """The story as JSON."""
    begins, ends = story.walk
    return {
        "design": story.design,
        "vis": story.vis,
        "clocks": story.clocks,
        "walk": {
            "begins": begins,
            "ends": ends,
            "packets_taken": len(story.taken_during_walk()),
            "pause_clocks": story.pause_clocks,
        },
        "bind_status": story.status,
        "refused_queue_pairs": story.events,
        "happenings": [
            {"clock": row.clock, "who": row.who, "what": row.what, **row.values} for row in story.happenings
        ],
    }


def _print(story: Story) -> None:
    from softhca.hardware import CLOCK_NS

    rows = [
        (row.clock, f"{row.clock * CLOCK_NS / 1000:.2f}", row.who, row.what, _values(row.values))
        for row in story.happenings
    ]
    title = f"The assembled adapter with {story.vis} queue pairs: {story.design}"
    print_table(title, ("clock", "µs", "who", "what", "values"), rows)
    begins, ends = story.walk
    taken = [row.values["clocks"] for row in story.taken_during_walk()]
    print(
        f"The search took {ends - begins} clocks ({_us(ends - begins)}); meanwhile the RQ's engine took "
        f"{len(taken)} packets{f', in {_range(taken)} clocks each' if taken else ''}."
    )
    pause = story.pause_clocks
    print(f"The longest time between two packets beside it: {pause} clocks ({_us(pause)}).")
    others = [row.values["clocks"] for row in story.accepted_elsewhere()]
    print(f"Such packets before and after the search: {_range(others)} clocks each.")


def _us(clocks: int) -> str:
    from softhca.hardware import CLOCK_NS

    return f"{clocks * CLOCK_NS / 1000:.2f} µs"


def _range(values: Any) -> str:
    found = sorted(set(values)) or [0]
    return str(found[0]) if len(found) == 1 else f"{found[0]} to {found[-1]}"


def _values(values: dict[str, int]) -> str:
    return " ".join(f"{name} {value}" for name, value in values.items())
