"""Seeds and times of worlds, as words of a command line."""

from __future__ import annotations

import argparse
import re
from fractions import Fraction

_UNITS_NS = {"ns": 1, "us": 1_000, "ms": 1_000_000, "s": 1_000_000_000}
_TIME = re.compile(r"(\d{1,12}(?:\.\d{1,9})?)(ns|us|ms|s)", re.ASCII)


def seed_number(text: str) -> int:
    """A seed: any integer from 0."""
    if not text.isascii() or not text.isdigit():
        raise argparse.ArgumentTypeError(f"{text!r} is no seed: expected an integer from 0")
    return int(text)


def moment(text: str) -> int:
    """A time of the world in nanoseconds, from a number and its unit."""
    match = _TIME.fullmatch(text)
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r} is no time: expected something like 1.2ms")
    return int(Fraction(match[1]) * _UNITS_NS[match[2]])
