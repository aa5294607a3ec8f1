"""``softhca rmb verilog``: a part of the hardware as Verilog, with a test bench that holds another simulator
against this one, and its size."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from softhca.cli.errors import CommandError, UsageError
from softhca.cli.output import add_json_option, print_json, print_table
from softhca.cli.rmb_files import write_text
from softhca.cli.rmb_trace import NUMBERS

if TYPE_CHECKING:
    from softhca.hardware.vectors import Recording

SIZES = ("vis", "keys", "queues")
CLOCKS, MOST_CLOCKS = 300, 100_000
CHIPS = ("hx1k", "hx8k")
"""The names of `softhca.hardware.fpga.DEVICES`, which is not imported before it is needed."""


def add_parser(subparsers: Any) -> None:
    """Add ``verilog``."""
    parser = subparsers.add_parser("verilog", help="a part of the hardware as Verilog, or its size")
    parser.add_argument("top", nargs="?", metavar="PART", help="which part; without it: the parts there are")
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="write it there, not to stdout")
    parser.add_argument("--size", action="store_true", help="print what yosys makes of it instead")
    parser.add_argument(
        "--fpga",
        choices=sorted(CHIPS),
        help="print what it takes of this chip, and its clock there (nextpnr)",
    )
    parser.add_argument(
        "--bench", type=Path, metavar="FILE",
        help="write a test bench: the subsystem's story, a timing diagram's clocks, or random inputs",
    )  # fmt: skip
    parser.add_argument("--figure", type=int, choices=NUMBERS, help="the manager as in this timing diagram")
    parser.add_argument("--clocks", type=int, metavar="N", help=f"of random inputs (default {CLOCKS})")
    parser.add_argument("--seed", type=int, metavar="N", help="of random inputs (default 1)")
    for name, told in zip(SIZES, ("VIs (queue pairs)", "keys a VI", "completion queues"), strict=True):
        parser.add_argument(f"--{name}", type=int, metavar="N", help=told)
    add_json_option(parser)
    parser.set_defaults(run_part=run)


def run(args: argparse.Namespace) -> int:
    """Write or print the Verilog, write its bench, count its gates; UsageError for what cannot be built."""
    if args.top is None:
        return _list(args)
    _check(args)
    recording = None if args.bench is None else _recording(args)
    from softhca.hardware.verilog import bench_text, export

    text = export(_design(args), args.top)
    if args.output is not None:
        write_text(args.output, text)
    if recording is not None:
        write_text(args.bench, bench_text(args.top, recording))
    if args.size:
        _count(args, text)
    elif args.fpga is not None:
        _fit(args, text)
    elif args.output is None:
        print_json({"top": args.top, "verilog": text}) if args.json else print(text, end="")
    return 0


def _list(args: argparse.Namespace) -> int:
    from softhca.hardware.tops import TOPS

    if args.output or args.bench or args.size or args.fpga or args.figure or _sizes(args):
        raise UsageError(f"which part? {', '.join(TOPS)}")
    if args.json:
        print_json([{"top": name, "told": top.told, "sizes": dict(top.sizes)} for name, top in TOPS.items()])
    else:
        sizes = [" ".join(f"--{size} {usual}" for size, usual in top.sizes.items()) for top in TOPS.values()]
        rows = [(name, top.told, size) for (name, top), size in zip(TOPS.items(), sizes, strict=True)]
        print_table("Parts of the hardware", ("part", "what it is", "sizes"), rows)
    return 0


def _sizes(args: argparse.Namespace) -> dict[str, int]:
    return {name: getattr(args, name) for name in SIZES if getattr(args, name) is not None}


def _check(args: argparse.Namespace) -> None:
    """UsageError for options that do not go together."""
    from softhca.hardware.tops import MANAGER, WHOLE

    if args.size and args.fpga is not None:
        raise UsageError("--size or --fpga, not both")
    if args.figure is not None and (args.top != MANAGER or _sizes(args)):
        raise UsageError(f"--figure is of {MANAGER} in its usual size")
    if (args.clocks is not None or args.seed is not None) and (args.figure is not None or args.top == WHOLE):
        raise UsageError(f"--clocks and --seed are of random inputs: not with --figure, not of the {WHOLE}")
    if args.clocks is not None and not 1 <= args.clocks <= MOST_CLOCKS:
        raise UsageError(f"--clocks is 1 to {MOST_CLOCKS}, not {args.clocks}")


def _design(args: argparse.Namespace) -> Any:
    """The part that is asked for, a new one each time: a simulation uses it up."""
    from softhca.hardware.figures import FIGURES
    from softhca.hardware.tops import build

    if args.figure is not None:
        return FIGURES[args.figure].manager()
    try:
        return build(args.top, **_sizes(args))
    except ValueError as error:
        raise UsageError(str(error)) from None


def _recording(args: argparse.Namespace) -> Recording:
    """The clocks that the bench plays."""
    from softhca.cli.rmb_subsystem import write_packet
    from softhca.hardware.figures import FIGURES
    from softhca.hardware.subsystem_story import record
    from softhca.hardware.tops import WHOLE
    from softhca.hardware.trace import player
    from softhca.hardware.vectors import play_random, watch

    if args.top == WHOLE:
        try:
            return record(write_packet, **_sizes(args))
        except ValueError as error:
            raise UsageError(f"--bench: {error}") from None
    design = _design(args)
    if args.figure is not None:
        simulation = player(design, FIGURES[args.figure].stimulus(), [])
        recording = watch(simulation, design)
        simulation.run()
        return recording
    return play_random(design, args.clocks or CLOCKS, 1 if args.seed is None else args.seed)


def _count(args: argparse.Namespace, text: str) -> None:
    from softhca.hardware.synthesis import synthesize

    counted = synthesize(text, args.top)._asdict()
    if args.json:
        print_json({"top": args.top, **counted})
    else:
        told = ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in counted.items())
        print(f"{args.top}: {told}")


def _fit(args: argparse.Namespace, text: str) -> None:
    from softhca.hardware.fpga import DEVICES, FpgaError, fit, wrapped

    chip = DEVICES[args.fpga]
    try:
        found = fit(text + wrapped(_design(args), args.top), args.fpga)
    except FpgaError as error:
        raise CommandError(f"nextpnr: {error}") from None
    if args.json:
        print_json({"top": args.top, "fpga": args.fpga, **found._asdict()})
        return
    takes = f"{found.tables} tables and {found.flip_flops} flip-flops of {chip.cells} cells"
    takes += f", {found.rams} of {chip.rams} RAMs"
    if not found.fits:
        takes += "; it does not fit"
    elif found.clock_mhz is None:
        takes += "; it fits (not placed: nextpnr-ice40 is not installed)"
    else:
        takes += f"; {found.clock_mhz:.1f} MHz"
    print(f"{args.top} on {chip.told}: {takes}")
