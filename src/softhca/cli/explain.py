"""``softhca run --explain``: which verbs the copies used, what is not supported, what they were told."""

from __future__ import annotations

import argparse
import errno
import json
import sys
from collections import Counter
from pathlib import Path

from softhca.cli.output import print_table
from softhca.verbs_usage import FOLDER, NOT_SUPPORTED


def add_explain_option(parser: argparse.ArgumentParser) -> None:
    """``--explain``."""
    parser.add_argument(
        "--explain",
        action="store_true",
        help="say on stderr whether the program gets an adapter process, and why; at the end which verbs it "
        "called through pyverbs, which of them are not supported or were refused, and what it was told",
    )


def explain_variables(explain: bool, accounts: Path) -> dict[str, str]:
    """The environment of a copy that is explained; makes the folder ``accounts``."""
    if not explain:
        return {}
    accounts.mkdir(exist_ok=True)
    return {FOLDER: str(accounts)}


def print_accounts(accounts: Path) -> None:
    """Tables on stderr of what the processes have left in ``accounts``; nothing without such a folder."""
    if not accounts.is_dir():
        return
    calls: Counter[str] = Counter()
    zeros: Counter[str] = Counter()
    errors: Counter[tuple[str, int, str]] = Counter()
    files = sorted(accounts.iterdir())
    if not files:
        print("softhca run: no process that imported pyverbs came to its end", file=sys.stderr)
        return
    for file in files:
        told = json.loads(file.read_text())
        calls.update(told["calls"])
        zeros.update(told["zeros"])
        for verb, code, text, count in told["errors"]:
            errors[verb, code, text] += count
    who = "a process" if len(files) == 1 else f"{len(files)} processes"
    print_table(f"Verbs that {who} called", ("verb", "calls"), sorted(calls.items()), sys.stderr)
    absent = [(*key, count) for key, count in sorted(errors.items()) if key[1] in NOT_SUPPORTED]
    refused = [(*key, count) for key, count in sorted(errors.items()) if key[1] not in NOT_SUPPORTED]
    for title, rows in (("Not supported", absent), ("Refused, or failed", refused)):
        if rows:
            print_table(
                title,
                ("verb", "errno", "what the program was told", "times"),
                [(verb, _name(code), *rest) for verb, code, *rest in rows],
                sys.stderr,
            )
    if zeros:
        print_table(
            "Capabilities that it asked for and the device has not",
            ("attribute", "told", "times"),
            [(name, 0, count) for name, count in sorted(zeros.items())],
            sys.stderr,
        )


def _name(code: int) -> str:
    if code == errno.EOPNOTSUPP:
        return "EOPNOTSUPP"  # and not ENOTSUP, which is the same number
    return errno.errorcode.get(code, "")
