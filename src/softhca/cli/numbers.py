"""Whole numbers within bounds, and times in seconds, as words of a command line."""

from __future__ import annotations

import argparse


class number:  # reads as a type where argparse wants one
    """A whole number from ``least`` to ``most``; ``0x`` and the suffixes K, M, G (1024) are understood."""

    def __init__(self, least: int, most: int) -> None:
        self.least = least
        self.most = most

    def __call__(self, text: str) -> int:
        scale = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}.get(text[-1:].upper(), 1)
        try:
            value = int(text[:-1] if scale > 1 else text, 0) * scale
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text!r} is no whole number") from None
        if not self.least <= value <= self.most:
            raise argparse.ArgumentTypeError(f"{value} is not between {self.least} and {self.most}")
        return value


def seconds(text: str) -> float:
    """A positive number of seconds."""
    try:
        value = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds") from None
    if not 0 < value <= 86_400:
        raise argparse.ArgumentTypeError(f"{text} is not more than 0 s and at most 86400 s")
    return value
