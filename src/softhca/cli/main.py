"""The command ``softhca``: reads the command line, runs one subcommand, gives its exit status.

0: success; 1: the thing asked for failed; 2: usage.  An error is one line on stderr; ``--debug`` shows the
traceback.
"""

from __future__ import annotations

import argparse
import importlib
import logging
import os
import signal
import sys
from collections.abc import Sequence
from typing import NoReturn

from softhca.cli.commands import COMMANDS, wanted_command
from softhca.cli.errors import FAILED, USAGE, CommandError
from softhca.cli.remedies import remedy_of

INTERRUPTED = 128 + signal.SIGINT


class _Version(argparse.Action):
    """Prints version and mode, which are looked up only when somebody asks."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        import importlib.metadata

        from softhca.cli.figures import compiled

        try:
            number = importlib.metadata.version("softhca")
        except importlib.metadata.PackageNotFoundError:
            number = "(not installed)"
        print(f"softhca {number}, {'compiled' if compiled() else 'interpreted'}")
        parser.exit()


class Parser(argparse.ArgumentParser):
    """Says what is wrong with a command line in one line; ``--help`` tells the rest."""

    def error(self, message: str) -> NoReturn:
        """Print ``message`` and leave with the status of a usage error."""
        self.exit(USAGE, f"{self.prog}: {' '.join(message.split())}\n")


def build_parser(*commands: str, others: bool = True) -> argparse.ArgumentParser:
    """The parser of the whole command line; every command's module adds its own part.

    Only the modules of ``commands`` are imported.  The ``others`` are known by name and help line, or not at
    all.
    """
    parser = Parser(
        prog="softhca", description="Software host channel adapters, verbs and RoCEv2 in user space."
    )
    parser.add_argument("-v", "--verbose", action="count", default=0, help="log to stderr; twice: everything")
    parser.add_argument("--debug", action="store_true", help="show the traceback of an error")
    parser.add_argument("--version", action=_Version, nargs=0, help="show version and mode, and leave")
    subparsers = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, line in COMMANDS.items():
        if not others and name not in commands:
            continue
        command = subparsers.add_parser(name, help=line)
        if name in commands:
            importlib.import_module(f"softhca.cli.{name}").add_options(command)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit status."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    wanted = wanted_command(words)
    alone = wanted in COMMANDS and words[:1] == [wanted]  # no other can be meant, nor told of
    parser = build_parser(*[wanted] if wanted else [], others=not alone)
    args, rest = parser.parse_known_args(words)
    if len(rest) == 1 and not rest[0].startswith("-") and getattr(args, "host", "") is None:
        args.host = rest.pop()  # argparse does not take an optional word behind the options of another word
    if rest:
        parser.error(f"unrecognized arguments: {' '.join(rest)}")
    level = (logging.WARNING, logging.INFO, logging.DEBUG)[min(args.verbose, 2)]
    logging.basicConfig(level=level, stream=sys.stderr, format="%(levelname)s %(name)s: %(message)s")
    command = importlib.import_module(f"softhca.cli.{args.command}")
    try:
        return int(command.run(args))
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # Whoever read our output has gone; nothing may be written at exit either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    except Exception as error:
        if args.debug:
            raise
        is_closed = sys.stdout is None and isinstance(error, AttributeError)  # Python's, without a descriptor
        why = "standard output is closed" if is_closed else describe(error)
        print(f"softhca {args.command}: {why}", file=sys.stderr)
        return status_of(error)


def describe(error: BaseException) -> str:
    """``error`` as one line, with what to do about it; one that nobody foresaw and that is
    not the system's is named by its class.
    """
    from softhca.runtime.specification import DeviceSpecificationError
    from softhca.verbs.pyverbs_error import PyverbsError

    if isinstance(error, OSError) and error.strerror:  # the system's own words, and of which file
        line = ": ".join(" ".join(str(part).split()) for part in (error.filename, error.strerror) if part)
        return "; ".join(filter(None, (line, remedy_of(error))))
    text = " ".join(str(error).split())
    foreseen = isinstance(error, (CommandError, DeviceSpecificationError, PyverbsError))
    line = text if foreseen and text else f"{text or 'failed'} ({type(error).__name__})"
    return "; ".join(filter(None, (line, remedy_of(error))))


def status_of(error: BaseException) -> int:
    """The exit status that ``error`` stands for: devices that cannot be are a matter of usage."""
    from softhca.runtime.specification import DeviceSpecificationError

    if isinstance(error, CommandError):
        return error.status
    return USAGE if isinstance(error, DeviceSpecificationError) else FAILED
