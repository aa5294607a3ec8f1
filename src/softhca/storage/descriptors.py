"""Data buffer descriptors: where an initiator's data are (SRP, 6.3).

A *direct* descriptor is one range of the initiator's memory.  An *indirect* one is a table of ranges: its
first entries may stand in the message, and the whole is in the initiator's memory, where the table's own
descriptor says; a target reads it from there when the message does not have all of it.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from softhca.storage.errors import MessageError

NO_DATA = 0
DIRECT = 1
INDIRECT = 2

_RANGE = struct.Struct(">QII")
_LENGTH = struct.Struct(">I")
RANGE_BYTES = _RANGE.size
TABLE_HEAD_BYTES = _RANGE.size + _LENGTH.size
MOST_RANGES = 255
"""A table of more ranges is refused."""


class Range(NamedTuple):
    """``length`` bytes at ``va`` of the initiator's memory, by ``rkey``."""

    va: int
    rkey: int
    length: int

    def encode(self) -> bytes:
        """The 16 bytes of a descriptor."""
        return _RANGE.pack(*self)


@dataclass(frozen=True, slots=True)
class Buffer:
    """A data buffer of a command: ``length`` bytes in ``ranges``.  ``table``: the ranges are not in the
    message and stand there; None: they are complete.
    """

    length: int
    ranges: tuple[Range, ...] = ()
    table: Range | None = None


EMPTY = Buffer(0)


def decode(format_code: int, count: int, data: memoryview) -> tuple[Buffer, int]:
    """The buffer that begins at the front of ``data``, and how many bytes describe it; MessageError.

    ``count`` is the command's number of ranges in the message, for an indirect one.
    """
    if format_code == NO_DATA:
        return EMPTY, 0
    if format_code == DIRECT:
        if len(data) < RANGE_BYTES:
            raise MessageError("a direct descriptor is cut short")
        only = _range_at(data, 0)
        return (Buffer(only.length, (only,)) if only.length else EMPTY), RANGE_BYTES
    if format_code != INDIRECT:
        raise MessageError(f"there is no descriptor format {format_code}")
    used = TABLE_HEAD_BYTES + count * RANGE_BYTES
    if len(data) < used:
        raise MessageError("an indirect descriptor is cut short")
    table = _range_at(data, 0)
    (length,) = _LENGTH.unpack_from(data, RANGE_BYTES)
    total = ranges_in(table)
    if count > total:
        raise MessageError("there are more ranges in the message than in the table")
    if not length:
        return EMPTY, used
    if count < total:
        return Buffer(length, table=table), used
    return Buffer(length, checked(read_ranges(data[TABLE_HEAD_BYTES:used]), length)), used


def ranges_in(table: Range) -> int:
    """How many ranges a table of this length has; MessageError for one that cannot be."""
    count, rest = divmod(table.length, RANGE_BYTES)
    if rest or not 0 < count <= MOST_RANGES:
        raise MessageError(f"a table of {table.length} bytes is none of 1…{MOST_RANGES} ranges")
    return count


def read_ranges(data: bytes | memoryview) -> list[Range]:
    """The ranges of a table's bytes."""
    return [Range(*each) for each in _RANGE.iter_unpack(data)]


def checked(ranges: Sequence[Range], length: int) -> tuple[Range, ...]:
    """The ranges, without empty ones; MessageError unless together they have ``length`` bytes."""
    if sum(each.length for each in ranges) != length:
        raise MessageError("the ranges of a table have another length than it says")
    return tuple(each for each in ranges if each.length)


def encode_indirect(table: Range, length: int, ranges: Sequence[Range]) -> bytes:
    """An indirect descriptor with these ``ranges`` in the message, all of the table or its first."""
    return table.encode() + _LENGTH.pack(length) + b"".join(each.encode() for each in ranges)


def _range_at(data: memoryview, offset: int) -> Range:
    return Range(*_RANGE.unpack_from(data, offset))


def pieces(ranges: Sequence[Range], length: int) -> list[tuple[Range, int]]:
    """The first ``length`` bytes of ``ranges``: each part, and its offset in the data."""
    found, offset = [], 0
    for each in ranges:
        take = min(each.length, length - offset)
        if take <= 0:
            break
        found.append((each._replace(length=take), offset))
        offset += take
    return found
