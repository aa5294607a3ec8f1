"""``softhca rmb asm``, ``disasm`` and ``listing``: microcode of the micro-engine, to and from its bits."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from softhca.cli.errors import CommandError, UsageError
from softhca.cli.output import add_json_option, print_json, print_table
from softhca.cli.rmb_files import read_text, write_text

if TYPE_CHECKING:
    from softhca.hardware.assembler import Program
    from softhca.hardware.listing import ListedLine

COLUMNS = ("address", "word.half", "code", "clocks", "since label", "label", "source")


def add_parser(subparsers: Any) -> None:
    """Add the three commands."""
    asm = subparsers.add_parser("asm", help="assemble microcode: 44-bit words in hexadecimal, one a line")
    asm.add_argument("file", type=Path, metavar="FILE")
    asm.add_argument("-o", "--output", type=Path, metavar="IMAGE", help="write there, not to stdout")
    asm.set_defaults(run_part=run_asm)
    disasm = subparsers.add_parser("disasm", help="source text of such a file of words")
    disasm.add_argument("file", type=Path, metavar="FILE")
    disasm.set_defaults(run_part=run_disasm)
    listing = subparsers.add_parser("listing", help="microcode with its addresses, bits and clocks")
    listing.add_argument("name", metavar="NAME", help="microcode of the package, or a source file")
    listing.set_defaults(run_part=run_listing)
    for parser in (asm, listing):
        parser.add_argument(
            "--set", type=_constant, action="append", default=[], metavar="NAME=N", dest="constants",
            help="another number for a .set of the source",
        )  # fmt: skip
    for parser in (asm, disasm, listing):
        add_json_option(parser)


def _constant(text: str) -> tuple[str, int]:
    """An argument of ``--set``."""
    name, _, number = text.partition("=")
    try:
        found = int(number, 0)
    except ValueError:
        raise argparse.ArgumentTypeError(f"NAME=N, not {text!r}") from None
    if not -(1 << 31) <= found < 1 << 32:
        raise argparse.ArgumentTypeError(f"{number} has more than 32 bits")
    return name, found


def run_asm(args: argparse.Namespace) -> int:
    """Assemble a file; CommandError with line, column and reason when it is refused."""
    from softhca.hardware.memory_image import image_text

    program = _assembled(args.file, args.constants)
    image = image_text(program.halves)
    if args.output is not None:
        write_text(args.output, image)
    if args.json:
        words = image.split()
        print_json({"instructions": len(program.halves), "words": words, "labels": program.labels})
    elif args.output is None:
        print(image, end="")
    return 0


def run_disasm(args: argparse.Namespace) -> int:
    """Disassemble a file of words; CommandError with line, column and reason when it is none."""
    from softhca.hardware.assembler import AssemblyError
    from softhca.hardware.disassembler import disassemble
    from softhca.hardware.memory_image import read_image

    try:
        text = disassemble(read_image(read_text(args.file)))
    except AssemblyError as error:
        raise CommandError(f"{args.file}:{error}") from error
    if args.json:
        print_json(text.splitlines())
    else:
        print(text, end="")
    return 0


def run_listing(args: argparse.Namespace) -> int:
    """List microcode of the package or of a file; UsageError when there is neither of that name."""
    from softhca.hardware.listing import listing
    from softhca.hardware.microcode_files import microcode_names, microcode_program

    if args.name in microcode_names():
        program = _checked(args.name, lambda: microcode_program(args.name, dict(args.constants)))
    elif Path(args.name).is_file():
        program = _assembled(Path(args.name), args.constants)
    else:
        raise UsageError(f"no microcode {args.name!r} and no such file: {', '.join(microcode_names())}")
    rows = listing(program)
    if args.json:
        print_json([{**row._asdict(), "code": row.code_text} for row in rows])
    else:
        halves, bits = len(program.halves), "2048 words of 44 bits"
        title = f"{args.name}: {halves} instructions of 22 bits in {(halves + 1) // 2} of {bits}"
        print_table(title, COLUMNS, map(_cells, rows))
    return 0


def _cells(row: ListedLine) -> tuple[Any, ...]:
    place = f"{row.word}.{row.half}"
    return row.address, place, row.code_text, row.clocks, row.since_label, " ".join(row.labels), row.source


def _assembled(path: Path, constants: list[tuple[str, int]]) -> Program:
    from softhca.hardware.assembler import assemble
    from softhca.hardware.microcode_files import microcode_parts

    source = read_text(path)
    return _checked(path, lambda: assemble(source, dict(constants), microcode_parts()))


def _checked(name: str | Path, assembled: Callable[[], Program]) -> Program:
    """The program; CommandError where it is refused, UsageError for a constant that it does not have."""
    from softhca.hardware.assembler import AssemblyError

    try:
        return assembled()
    except AssemblyError as error:
        raise CommandError(f"{name}:{error}") from error
    except ValueError as error:
        raise UsageError(f"--set: {error}") from error
