"""The manual page ``softhca(1)``, made from the parsers that read the command line.

``python -m softhca.cli.manual`` prints it (``make man`` writes it to ``docs/softhca.1``, which is installed).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator

from softhca.cli.commands import COMMANDS
from softhca.cli.completion import subparsers_of
from softhca.cli.main import build_parser

STATUSES = (
    ("0", "Success."),
    ("1", "What was asked for failed: data was wrong, a rule is broken, a file cannot be written."),
    ("2", "Usage: the command line, or SOFTHCA_DEVICES, asks for what cannot be."),
)
VARIABLES = (
    ("SOFTHCA_DEVICES", "Which devices there are: softhca0=udp:192.0.2.7, softhca0=udp:eth0, "
     "softhca0=udp:[2001:db8::1], softhca0=udp:* (the first free loopback address, which is the default), or "
     "softhca0=unix:PATH (an adapter process that runs already); several by commas."),
    ("SOFTHCA_ADAPTER", "embedded (default): the adapter lives in the program; process: in one of its own, "
     "which all programs of the user that open the same addresses share."),
    ("SOFTHCA_RANK, SOFTHCA_PEERS", "Set by softhca run: the number of this copy, and the addresses of all."),
    ("SOFTHCA_FABRIC", "The name of the served fabric that softhca fabric fail and the like act on; set by "
     "softhca run --link fabric:TOPOLOGY."),
    ("SOFTHCA_FAULTS", "What packets suffer on their way out, as --faults says it."),
)  # fmt: skip
EXAMPLES = (
    ("softhca doctor", "What of this machine is right, and what costs speed."),
    ("softhca run -n 2 -- python examples/rc_write.py", "Two copies of a program, with an adapter each."),
    ("softhca perf write-bw --size 1048576", "Bandwidth of RDMA WRITE between two processes."),
    ("softhca run -n 2 --capture a.pcapng -- python examples/rc_write.py", "Captured for Wireshark."),
)


def man_page(parser: argparse.ArgumentParser) -> str:
    """The page in the language of man(7)."""
    lines = [
        ".\\\" Made from the command line's own parsers by softhca.cli.manual.",
        ".TH SOFTHCA 1", ".SH NAME",
        "softhca \\- software host channel adapters, verbs and RoCEv2 in user space",
        ".SH SYNOPSIS", ".B softhca", "[options] COMMAND [options]", ".SH DESCRIPTION",
        text(parser.description or ""), ".SH OPTIONS", *_options(parser), ".SH COMMANDS",
    ]  # fmt: skip
    for name, command in _commands(parser):
        lines += _command(name, command, COMMANDS[name], ".SS")
    for title, entries in (("ENVIRONMENT", VARIABLES), ("EXIT STATUS", STATUSES), ("EXAMPLES", EXAMPLES)):
        lines.append(f".SH {title}")
        for word, said in entries:
            lines += [".TP", f".B {text(word)}", text(said)]
    lines += [".SH SEE ALSO", ".BR ibv_devinfo (1),", ".BR ibv_rc_pingpong (1),", ".BR ib_write_bw (1)"]
    return "\n".join(lines) + "\n"


def _commands(parser: argparse.ArgumentParser) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    for action in parser._actions:
        yield from subparsers_of(action).items()


def _command(name: str, parser: argparse.ArgumentParser, line: str, heading: str) -> list[str]:
    """One command, and those below it, under their whole names."""
    lines = [f"{heading} {text(f'softhca {name}')}", text(line[:1].upper() + line[1:] + ".")]
    if parser.description:
        lines += [".PP", text(parser.description)]
    lines += _options(parser)
    for action in parser._actions:
        helps = {choice.dest: choice.help or "" for choice in getattr(action, "_choices_actions", ())}
        for below, chosen in subparsers_of(action).items():
            lines += _command(f"{name} {below}", chosen, helps.get(below, below), ".SS")
    return lines


def _options(parser: argparse.ArgumentParser) -> list[str]:
    lines = []
    for action in parser._actions:
        hidden = action.help == argparse.SUPPRESS or isinstance(action, argparse._HelpAction)
        if hidden or subparsers_of(action):
            continue
        lines += [".TP", _usage(parser, action), text(_help(parser, action))]
    return lines


def _usage(parser: argparse.ArgumentParser, action: argparse.Action) -> str:
    """How an option, or a word, is written."""
    takes = "" if action.nargs == 0 else _value(action)
    if not action.option_strings:
        return f".I {text(takes)}"
    names = ", ".join(action.option_strings)
    return f".BI \"{text(names)}\" \" {text(takes)}\"" if takes else f".B {text(names)}"


def _value(action: argparse.Action) -> str:
    if isinstance(action.metavar, str):
        return action.metavar
    return "|".join(map(str, action.choices)) if action.choices else action.dest.upper()


def _help(parser: argparse.ArgumentParser, action: argparse.Action) -> str:
    """The help with its defaults put in, as argparse does it."""
    values = {**vars(action), "prog": parser.prog}
    return (action.help or "") % values


def text(words: str) -> str:
    """Running text as the language of man(7) wants it: one line, nothing taken for a request."""
    line = " ".join(words.split()).replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{line}" if line.startswith((".", "'")) else line


if __name__ == "__main__":
    sys.stdout.write(man_page(build_parser(*COMMANDS)))
