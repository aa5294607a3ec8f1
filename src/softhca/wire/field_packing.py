"""How headers of fields are read and written in one go: numbers and bytes by `struct`, and what shares one of
those numbers (flags, 24 bits beside 8) by shifts.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import cython

if TYPE_CHECKING:
    from softhca.wire.layout import Field, Octets

_CODES = {8: "B", 16: "H", 32: "I", 64: "Q"}
"""How `struct` writes a number of so many bits."""
_WORD_BITS = 64


class Part:
    """What `struct` reads as one: a field of bytes (``length``; else −1), one that is a number by itself, or
    several that share a number (``shared``; of ``number_bytes`` bytes where `struct` has none of its width).
    """

    def __init__(self, fields: list[Field]) -> None:
        bits = sum([field.bits for field in fields])
        self.name = fields[0].name
        self.names = [field.name for field in fields]
        self.widths = [field.bits for field in fields]
        self.length = bits // 8 if fields[0].as_bytes else -1
        self.number_bytes = 0 if bits in _CODES or self.length >= 0 else bits // 8
        self.shared = self.length < 0 and (len(fields) > 1 or self.number_bytes > 0)
        self.is_word = bits <= _WORD_BITS
        self.code = f"{bits // 8}s" if self.length >= 0 else _CODES.get(bits, f"{bits // 8}s")
        self.shifts = [sum(self.widths[place + 1 :]) for place in range(len(fields))]
        self.masks = [(1 << width) - 1 for width in self.widths]

    def join(self, values: tuple[Any, ...], place: int) -> Any:
        """The number, or its bytes, of the fields whose values stand from ``place`` on; None where one does
        not fit.
        """
        number: Any = 0
        for width in self.widths:
            value = values[place]
            if value < 0 or value >> width:
                return None
            number = number << width | value
            place += 1
        return number.to_bytes(self.number_bytes, "big") if self.number_bytes else number

    def split(self, found: Any, values: dict[str, Any]) -> None:
        """Put the fields of a number, or of its bytes, into ``values``."""
        word: cython.ulonglong
        shift: cython.uint
        mask: cython.ulonglong
        place: cython.Py_ssize_t
        number = int.from_bytes(found, "big") if self.number_bytes else found
        if self.is_word:
            word = number
            for place in range(len(self.names)):
                shift, mask = self.shifts[place], self.masks[place]
                values[self.names[place]] = word >> shift & mask
        else:
            for place in range(len(self.names)):
                values[self.names[place]] = number >> self.shifts[place] & self.masks[place]


class FieldPacking:
    """How headers of one layout are encoded and decoded."""

    def __init__(self, layout: tuple[Field, ...]) -> None:
        self.parts: list[Part] = []
        run: list[Field] = []
        for field in layout:
            if field.as_bytes:
                self._close(run)
                self.parts.append(Part([field]))
                continue
            run.append(field)
            if sum([each.bits for each in run]) in _CODES:
                self._close(run)
        self._close(run)
        self.packing = struct.Struct(">" + "".join([part.code for part in self.parts]))
        values: Callable[[Any], Any] = attrgetter(*[field.name for field in layout])
        self.values = values if len(layout) > 1 else lambda header: (values(header),)

    def _close(self, run: list[Field]) -> None:
        """Fields that share a number end here."""
        if run:
            self.parts.append(Part(run))
            run.clear()

    def encode(self, header: Any) -> bytes | None:
        """The bytes; None where a value does not fit, or is of another kind than expected."""
        values: tuple[Any, ...] = self.values(header)
        found: list[Any] = []
        place: cython.Py_ssize_t = 0
        part: Part
        try:
            for part in self.parts:
                if part.shared:
                    value = part.join(values, place)
                    if value is None:
                        return None
                    place += len(part.names)
                else:
                    value = values[place]
                    if part.length >= 0 and len(value) != part.length:
                        return None
                    place += 1
                found.append(value)
            data: bytes = self.packing.pack(*found)
            return data
        except (struct.error, TypeError):
            return None

    def decode(self, buffer: Octets, offset: int) -> dict[str, Any]:
        """The fields by name, of what stands at ``offset``, where as many bytes as the header has must be."""
        values: dict[str, Any] = {}
        found: tuple[Any, ...] = self.packing.unpack_from(buffer, offset)
        place: cython.Py_ssize_t
        part: Part
        for place in range(len(found)):
            part = self.parts[place]
            if part.shared:
                part.split(found[place], values)
            else:
                values[part.name] = found[place]
        return values
