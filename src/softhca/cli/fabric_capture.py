"""``softhca fabric capture``: what adapters send over a link of a fabric that is served, into a file."""

from __future__ import annotations

import argparse
import signal
from pathlib import Path
from typing import Any

from softhca.cli.errors import CommandError
from softhca.cli.fabric_serve import add_name
from softhca.cli.numbers import number
from softhca.cli.output import add_json_option, print_json
from softhca.cli.signal_descriptor import await_readable, signal_descriptor

SIGNALS = (signal.SIGINT, signal.SIGTERM)


def add_parser(parts: Any) -> None:
    """Add ``capture`` to the parts."""
    parser: argparse.ArgumentParser = parts.add_parser(
        "capture", help="write the packets of adapters over a link of a fabric that is served into a file"
    )
    parser.add_argument("link", metavar="NODE[PORT]", help="one end of the link; both directions are written")
    parser.add_argument("file", type=Path, metavar="FILE.pcapng")
    parser.add_argument(
        "--packets", type=number(1, 1 << 40), default=0, metavar="N", help="how many (default: until Ctrl-C)"
    )
    add_name(parser)
    add_json_option(parser)
    parser.set_defaults(run_part=run)


class _EndedError(Exception):
    """Whoever started the capture wants it to end."""


class _End:
    """What a signal does: it ends the capture at once where that ``may`` be, else as soon as it may.

    Signals are not blocked meanwhile: the kernel would give them to another thread, as numpy has some, and
    Python's handler would run all the same.
    """

    def __init__(self) -> None:
        self.asked = False
        self.may = False

    def __call__(self, number: int, frame: object) -> None:
        self.asked = True
        self.now()

    def now(self) -> None:
        """Raise _EndedError, once, if it was asked for and may be."""
        if self.asked and self.may:
            self.may = False
            raise _EndedError


def run(args: argparse.Namespace) -> int:
    """Capture until there are enough packets, a signal, or the end of the fabric."""
    from softhca.runtime.fabric_control import ControlError

    end = _End()
    before = {each: signal.signal(each, end) for each in SIGNALS}
    try:
        captured = _capture(args, end)
    except ControlError as error:
        raise CommandError(str(error)) from None
    except OSError as error:
        raise CommandError(f"{args.file}: {error.strerror}") from None
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
    if args.json:
        print_json(captured)
    else:
        print(f"{captured['captured']} packets in {args.file}")
    return 0


def _capture(args: argparse.Namespace, end: _End) -> dict[str, Any]:
    from softhca.runtime.fabric_control import Connection

    connection = Connection(args.name)
    try:
        with args.file.open("wb") as stream:
            request = {"do": "capture", "links": [args.link], "packets": args.packets}
            connection.ask(request, (stream.fileno(),))
        connection.socket.settimeout(None)
        with signal_descriptor() as signals:
            try:
                end.may = True
                end.now()
                await_readable(connection.socket.fileno(), signals)
                return connection.answer()
            except _EndedError:
                return connection.ask({"do": "stop"})
    finally:
        end.may = False
        connection.close()
