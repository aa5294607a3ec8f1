"""A header as data: a list of fields, most significant bit first, from which decoding and encoding follow.

Every bit belongs to a field, reserved ones too, so that what was decoded encodes to the same bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import fields
from operator import attrgetter
from typing import Any, ClassVar, NamedTuple, Self

from softhca.wire.errors import WireError

Octets = bytes | bytearray | memoryview
WritableOctets = bytearray | memoryview


class Field(NamedTuple):
    """One field: its attribute's name, its width, and whether it is bytes (an address), which begin and end
    with a byte of the header, or an integer.
    """

    name: str
    bits: int
    as_bytes: bool = False


_CODES = {8: "B", 16: "H", 32: "I", 64: "Q"}
"""How `struct` writes a number of so many bits."""


class _Encoding:
    """How a header is encoded and decoded in one go: ``values`` gets its fields, ``packing`` writes and reads
    numbers and bytes.

    Fields that share a number (flags, 24 bits beside 8) are put together first: ``joined`` has their places,
    ``parted`` where such a number stands, whether as bytes, and the shift and mask of each field in it.
    ``lengths`` are the places of byte fields, and their lengths.
    """

    def __init__(self, layout: tuple[Field, ...]) -> None:
        self.values: Callable[[Any], Any] = attrgetter(*(field.name for field in layout))
        self.is_single = len(layout) == 1
        self.lengths: list[tuple[int, int]] = []
        self.joined: list[tuple[int, list[tuple[int, int]]]] = []
        codes, place = "", 0
        run: list[tuple[int, int]] = []
        for place, field in enumerate(layout):
            if field.as_bytes:
                codes += self._join(run) + f"{field.bits // 8}s"
                self.lengths.append((place, field.bits // 8))
                run = []
                continue
            run.append((place, field.bits))
            if sum(bits for _, bits in run) in _CODES:
                codes, run = codes + self._join(run), []
        self.packing = struct.Struct(">" + codes + self._join(run))
        self.names = tuple(field.name for field in layout)
        self.parted = [
            (run[0][0], bits not in _CODES, _shifts(bits, [width for _, width in run]))
            for bits, run in self.joined
        ]
        self.joined.reverse()  # what is behind goes first, so that places in front hold

    def _join(self, run: list[tuple[int, int]]) -> str:
        """The code of a run of numbers: of bytes where `struct` has no number of its width."""
        if not run:
            return ""
        bits = sum(bits for _, bits in run)
        if len(run) > 1 or bits not in _CODES:
            self.joined.append((bits, list(run)))
        return _CODES.get(bits, f"{bits // 8}s")

    def encode(self, header: Any) -> bytes | None:
        """The bytes; None where a value does not fit, or is of another kind than expected."""
        found = self.values(header)
        values: list[Any] = [found] if self.is_single else list(found)
        for place, length in self.lengths:
            if len(values[place]) != length:
                return None
        try:
            for bits, run in self.joined:
                number = 0
                for place, width in run:
                    value = values[place]
                    if value < 0 or value >> width:
                        return None
                    number = number << width | value
                first, last = run[0][0], run[-1][0]
                values[first : last + 1] = [number if bits in _CODES else number.to_bytes(bits // 8, "big")]
            return self.packing.pack(*values)
        except (struct.error, TypeError):
            return None


    def decode(self, data: bytes) -> dict[str, int | bytes]:
        """The fields by name, of as many bytes as the header has."""
        values: list[Any] = list(self.packing.unpack(data))
        for place, as_bytes, parts in self.parted:
            number = int.from_bytes(values[place], "big") if as_bytes else values[place]
            values[place : place + 1] = [number >> shift & mask for shift, mask in parts]
        return dict(zip(self.names, values, strict=True))


def _shifts(bits: int, widths: list[int]) -> list[tuple[int, int]]:
    """Shift and mask of each field of a number of ``bits``, the most significant first."""
    found = []
    for width in widths:
        bits -= width
        found.append((bits, (1 << width) - 1))
    return found


_ENCODINGS: dict[type[Header], _Encoding] = {}


def _encoding(kind: type[Header]) -> _Encoding:
    """That of a header, made when it is asked for first."""
    found = _ENCODINGS.get(kind)
    if found is None:
        found = _ENCODINGS[kind] = _Encoding(kind.LAYOUT)
    return found


class Header:
    """Base of the headers' dataclasses.

    A subclass gives ``LENGTH_BYTES`` and ``LAYOUT``; the dataclass has one attribute per field of the layout.
    """

    LENGTH_BYTES: ClassVar[int]
    LAYOUT: ClassVar[tuple[Field, ...]]

    @classmethod
    def decode(cls, buffer: Octets, offset: int = 0) -> Self:
        """Read this header at ``offset`` of a bytes-like object; WireError when it is cut short."""
        return cls(**cls.values_at(buffer, offset))

    @classmethod
    def values_at(cls, buffer: Octets, offset: int) -> dict[str, int | bytes]:
        """What `decode` reads, by name."""
        end = offset + cls.LENGTH_BYTES
        if offset < 0 or end > len(buffer):
            raise WireError(
                f"{cls.__name__} needs {cls.LENGTH_BYTES} bytes at offset {offset} of {len(buffer)}"
            )
        return _encoding(cls).decode(bytes(buffer[offset:end]))

    def encode(self) -> bytes:
        """The header's ``LENGTH_BYTES`` bytes; WireError when a value does not fit its field."""
        encoded = _encoding(type(self)).encode(self)
        return self._encode_one_by_one() if encoded is None else encoded

    def _encode_one_by_one(self) -> bytes:
        """The same field by field, which finds the one that does not fit."""
        done, number, bits = b"", 0, 0
        for field in self.LAYOUT:
            value = getattr(self, field.name)
            if field.as_bytes:
                if len(value) * 8 != field.bits:
                    raise WireError(f"{self._named(field)} takes {field.bits // 8} bytes, not {len(value)}")
                done += number.to_bytes(bits // 8, "big") + value
                number = bits = 0
                continue
            if value < 0 or value >> field.bits:
                raise WireError(f"{self._named(field)} = {value} does not fit {field.bits} bits")
            number = number << field.bits | int(value)
            bits += field.bits
        return done + number.to_bytes(bits // 8, "big")

    def _named(self, field: Field) -> str:
        return f"{type(self).__name__}.{field.name}"

    def as_dict(self) -> dict[str, int | str]:
        """Fields by name, byte strings as hexadecimal: what the tools print."""
        return {
            item.name: value.hex() if isinstance(value := getattr(self, item.name), bytes) else int(value)
            for item in fields(self)  # type: ignore[arg-type]
        }
