"""``softhca completion bash|zsh|tcsh``: what a shell needs to complete commands and options.

The script is made from the parsers themselves, once: to complete, the shell starts no Python.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

from softhca.cli.commands import COMMANDS

SHELLS = ("bash", "zsh", "tcsh")


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add what ``completion`` takes to its ``parser``."""
    parser.description = (
        "Prints a script.  bash: softhca completion bash > "
        "~/.local/share/bash-completion/completions/softhca.  zsh: the same as _softhca in a folder of "
        'fpath.  For this shell alone: eval "$(softhca completion bash)".'
    )
    parser.add_argument("shell", choices=SHELLS, metavar="SHELL", help=", ".join(SHELLS))


def run(args: argparse.Namespace) -> int:
    """Print the script."""
    import shtab

    from softhca.cli.main import build_parser
    from softhca.simulation.scenarios import SCENARIOS

    parser = build_parser(*COMMANDS)
    for action in list(actions_of(parser)):
        if action.type is Path or action.nargs == argparse.REMAINDER:
            action.complete = shtab.FILE  # type: ignore[attr-defined]
        elif action.dest == "scenario":
            action.choices = tuple(SCENARIOS)
        tell_help_lines(action)
        if args.shell == "zsh":
            mask_colons(action)
    sys.stdout.write(shtab.complete(parser, args.shell))
    return 0


def tell_help_lines(action: argparse.Action) -> None:
    """Beside a command stands the line that ``--help`` has of it, not its whole description."""
    lines = {choice.dest: choice.help for choice in getattr(action, "_choices_actions", [])}
    for name, below in subparsers_of(action).items():
        below.description = lines.get(name) or below.description


def mask_colons(action: argparse.Action) -> None:
    """Words with a colon, where zsh would take it for the end of a field."""
    if isinstance(action.metavar, str):
        action.metavar = action.metavar.replace(":", "\\:")
    if action.choices and not isinstance(action.choices, dict):
        action.choices = tuple(str(choice).replace(":", "\\:") for choice in action.choices)


def actions_of(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    """Every option and word of a parser and of those below it."""
    for action in parser._actions:
        yield action
        for below in subparsers_of(action).values():
            yield from actions_of(below)


def subparsers_of(action: argparse.Action) -> dict[str, argparse.ArgumentParser]:
    """The parsers by name that an action chooses from; none where it is another kind of action."""
    return dict(action.choices or {}) if isinstance(action, argparse._SubParsersAction) else {}
