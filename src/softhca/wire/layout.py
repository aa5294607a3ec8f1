"""A header as data: a list of fields, most significant bit first, from which decoding and encoding follow.

Every bit belongs to a field, reserved ones too, so that what was decoded encodes to the same bytes.
"""

from __future__ import annotations

from dataclasses import fields
from typing import ClassVar, NamedTuple, Self

from softhca.wire.errors import WireError
from softhca.wire.field_packing import FieldPacking

Octets = bytes | bytearray | memoryview
WritableOctets = bytearray | memoryview


class Field(NamedTuple):
    """One field: its attribute's name, its width, and whether it is bytes (an address), which begin and end
    with a byte of the header, or an integer.
    """

    name: str
    bits: int
    as_bytes: bool = False


_PACKINGS: dict[type[Header], FieldPacking] = {}


def _packing(kind: type[Header]) -> FieldPacking:
    """That of a header, made when it is asked for first."""
    found = _PACKINGS.get(kind)
    if found is None:
        found = _PACKINGS[kind] = FieldPacking(kind.LAYOUT)
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
        return _packing(cls).decode(buffer, offset)

    def encode(self) -> bytes:
        """The header's ``LENGTH_BYTES`` bytes; WireError when a value does not fit its field."""
        encoded = _packing(type(self)).encode(self)
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
