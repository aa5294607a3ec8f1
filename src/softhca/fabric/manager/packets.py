"""Directed-route packets as bytes, and fields of attributes in place: a sweep has tens of thousands."""

from __future__ import annotations

import struct

from softhca.management import constants as c
from softhca.management.attributes import PortInfo
from softhca.wire.layout import Header

_FRONT = struct.Struct(">BBBBHBBQHHIQHH")
DATA_AT = 64
DATA_BYTES = 64
PATH_AT = 128
_MIDDLE = bytes(DATA_AT - _FRONT.size)


def directed(
    path: bytes, method: int, attribute: int, modifier: int, data: bytes, transaction_id: int, m_key: int
) -> bytes:
    """A packet that begins its way along ``path``, one port number for each hop (14.2.1.2)."""
    front = _FRONT.pack(
        c.BASE_VERSION, c.CLASS_SUBN_DIRECTED, 1, method, 0, 0, len(path), transaction_id, attribute, 0,
        modifier, m_key, c.LID_PERMISSIVE, c.LID_PERMISSIVE,
    )  # fmt: skip
    route = (b"\0" + path).ljust(128, b"\0")
    return front + _MIDDLE + data.ljust(DATA_BYTES, b"\0") + route


class Fields:
    """The integer fields of an attribute, read and written in its bytes."""

    def __init__(self, header: type[Header]) -> None:
        self._places: dict[str, tuple[int, int, int, int]] = {}
        bit = 0
        for field in header.LAYOUT:
            first, last = bit // 8, (bit + field.bits + 7) // 8
            bit += field.bits
            self._places[field.name] = first, last, last * 8 - bit, (1 << field.bits) - 1

    def get(self, data: bytes | bytearray, name: str) -> int:
        """A field's value."""
        first, last, shift, mask = self._places[name]
        return int.from_bytes(data[first:last], "big") >> shift & mask

    def put(self, data: bytearray, name: str, value: int) -> None:
        """Let a field have this value; the bits beside it stay."""
        first, last, shift, mask = self._places[name]
        whole = int.from_bytes(data[first:last], "big") & ~(mask << shift) | (value & mask) << shift
        data[first:last] = whole.to_bytes(last - first, "big")


PORT = Fields(PortInfo)
"""PortInfo's."""
