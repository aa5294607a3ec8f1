"""What a caller gives, checked where it comes in: a wrong kind is TypeError, a number out of its range
ValueError, each with what it should have been.
"""

from __future__ import annotations

from typing import SupportsIndex


def check_kind(value: object, kind: type | tuple[type, ...], what: str) -> None:
    """TypeError: ``value`` is no ``what``."""
    if not isinstance(value, kind):
        raise TypeError(f"{type(value).__name__} is no {what}")


def whole(value: SupportsIndex, what: str, least: int, most: int) -> int:
    """``value`` as a whole number of ``least`` to ``most``.  TypeError: it is none; ValueError: it is not
    between them."""
    try:
        number = value.__index__()
    except (AttributeError, TypeError):
        raise TypeError(f"{what} is a whole number, not {type(value).__name__}") from None
    if not least <= number <= most:
        raise ValueError(f"{what} is {least} to {most}, not {number}")
    return number
