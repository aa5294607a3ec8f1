"""A header as data: a list of fields, most significant bit first, from which decoding and encoding follow.

Every bit belongs to a field, reserved ones too, so that what was decoded encodes to the same bytes.
"""

from __future__ import annotations

from dataclasses import fields
from typing import ClassVar, NamedTuple, Self

from softhca.wire.errors import WireError

Octets = bytes | bytearray | memoryview
WritableOctets = bytearray | memoryview


class Field(NamedTuple):
    """One field: its attribute's name, its width, and whether it is bytes (an address) or an integer."""

    name: str
    bits: int
    as_bytes: bool = False


class Header:
    """Base of the headers' dataclasses.

    A subclass gives ``LENGTH_BYTES`` and ``LAYOUT``; the dataclass has one attribute per field of the layout.
    """

    LENGTH_BYTES: ClassVar[int]
    LAYOUT: ClassVar[tuple[Field, ...]]

    @classmethod
    def decode(cls, buffer: Octets, offset: int = 0) -> Self:
        """Read this header at ``offset`` of a bytes-like object; WireError when it is cut short."""
        end = offset + cls.LENGTH_BYTES
        if offset < 0 or end > len(buffer):
            raise WireError(
                f"{cls.__name__} needs {cls.LENGTH_BYTES} bytes at offset {offset} of {len(buffer)}"
            )
        number = int.from_bytes(bytes(buffer[offset:end]), "big")
        values: dict[str, int | bytes] = {}
        for field in reversed(cls.LAYOUT):
            value = number & ((1 << field.bits) - 1)
            values[field.name] = value.to_bytes(field.bits // 8, "big") if field.as_bytes else value
            number >>= field.bits
        return cls(**values)

    def encode(self) -> bytes:
        """The header's ``LENGTH_BYTES`` bytes; WireError when a value does not fit its field."""
        number = 0
        name = type(self).__name__
        for field in self.LAYOUT:
            value = getattr(self, field.name)
            if field.as_bytes:
                if len(value) * 8 != field.bits:
                    raise WireError(f"{name}.{field.name} takes {field.bits // 8} bytes, not {len(value)}")
                value = int.from_bytes(value, "big")
            elif not 0 <= value < 1 << field.bits:
                raise WireError(f"{name}.{field.name} = {value} does not fit {field.bits} bits")
            number = number << field.bits | int(value)
        return number.to_bytes(self.LENGTH_BYTES, "big")

    def as_dict(self) -> dict[str, int | str]:
        """Fields by name, byte strings as hexadecimal: what the tools print."""
        return {
            item.name: value.hex() if isinstance(value := getattr(self, item.name), bytes) else int(value)
            for item in fields(self)  # type: ignore[arg-type]
        }
