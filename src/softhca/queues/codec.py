"""How the fields of a message are written and read, by their kinds (`control_fields`).

A `Codec` is made once for a list of fields.  Fields that have a length of their own kind, numbers and GIDs,
go together in one packing as long as they follow each other; those of any length go by themselves.  Numbers
are little-endian and not padded.
"""

from __future__ import annotations

import errno
import struct
from collections.abc import Mapping
from typing import Any

import cython

from softhca.queues.control_fields import Fields

_COUNT = struct.Struct("<I")
_RUN = struct.Struct("<II")
_NUMBERS = {"u8": struct.Struct("<B"), "u16": struct.Struct("<H"), "u32": struct.Struct("<I"),
            "u64": struct.Struct("<Q")}
_GID_BYTES = 16
_GID_CODE = f"{_GID_BYTES}s"
_NO_GID = bytes(_GID_BYTES)

Values = dict[str, Any]
_CODECS: dict[int, Codec] = {}
"""By the identity of their fields, which they keep."""


class Run:
    """Fields that go together: ``packing`` writes and reads all of them, None where it is one field of any
    length.  ``empty`` is what stands for a value that a message does not name.
    """

    def __init__(self, fields: Fields) -> None:
        self.fields = fields
        self.names = [name for name, _ in fields]
        self.gids = [place for place, (_, kind) in enumerate(fields) if kind == "gid"]
        self.empty: list[Any] = [_NO_GID if kind == "gid" else 0 for _, kind in fields]
        codes = [_GID_CODE if kind == "gid" else _NUMBERS[kind].format[1:] if kind in _NUMBERS else ""
                 for _, kind in fields]
        self.packing = struct.Struct("<" + "".join(codes)) if all(codes) else None
        self.size = 0 if self.packing is None else self.packing.size

    def encode(self, values: Values, parts: list[bytes]) -> int:
        """Write the fields; how many of them have a value."""
        numbers: list[Any] = self.empty.copy()
        place: cython.Py_ssize_t
        named: cython.int = 0
        for place, name in enumerate(self.names):
            value = values.get(name)
            if value is not None:
                named += 1
                if value:
                    numbers[place] = value
        if self.packing is not None:
            try:
                for place in self.gids:
                    if len(numbers[place]) != _GID_BYTES:
                        raise ValueError
                parts.append(self.packing.pack(*numbers))
                return named
            except (struct.error, TypeError, ValueError):
                pass  # one by one, to find which it is
        for name, kind in self.fields:
            try:
                parts.append(_encode(kind, values.get(name)))
            except (struct.error, TypeError, ValueError) as error:
                raise OSError(errno.EINVAL, f"field {name}: {error}") from None
        return named

    def decode(self, data: bytes, offset: int, values: Values) -> int:
        """Read the fields at ``offset``; the offset behind them."""
        if self.packing is not None and self.size <= len(data) - offset:
            found: tuple[Any, ...] = self.packing.unpack_from(data, offset)
            for place in range(len(found)):
                values[self.names[place]] = found[place]
            return offset + self.size
        for name, kind in self.fields:
            try:
                values[name], offset = _decode(kind, data, offset)
            except (struct.error, UnicodeDecodeError) as error:
                raise OSError(errno.EINVAL, f"field {name}: {error}") from None
        return offset


class Codec:
    """That of one list of fields."""

    def __init__(self, fields: Fields) -> None:
        self.fields = fields
        groups: list[list[tuple[str, str]]] = []
        follows = False
        for field in fields:
            fixed = field[1] == "gid" or field[1] in _NUMBERS
            if fixed and follows:
                groups[len(groups) - 1].append(field)
            else:
                groups.append([field])
            follows = fixed
        self.runs = [Run(tuple(group)) for group in groups]
        self.known = frozenset([name for name, _ in fields])

    def encode(self, given: Mapping[str, Any]) -> bytes:
        """Values by name, in the order of the fields; OSError EINVAL for a name or a value that does not
        belong there.
        """
        values: dict[str, Any] = given if type(given) is dict else dict(given)
        parts: list[bytes] = []
        named: cython.int = 0
        run: Run
        for run in self.runs:
            named += run.encode(values, parts)
        if named != len(values):
            unknown = values.keys() - self.known
            if unknown:
                raise OSError(errno.EINVAL, f"unknown fields {sorted(unknown)}")
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def decode(self, data: bytes) -> Values:
        """Values by name; OSError EINVAL where ``data`` is shorter or longer than the fields say."""
        values: dict[str, Any] = {}
        offset: cython.Py_ssize_t = 0
        run: Run
        for run in self.runs:
            offset = run.decode(data, offset, values)
        if offset != len(data):
            raise OSError(errno.EINVAL, f"{len(data) - offset} bytes follow the last field")
        return values


def codec_of(fields: Fields) -> Codec:
    """The codec of a list of fields, made when it is asked for first."""
    found: Codec = _CODECS.get(id(fields))
    if found is None or found.fields is not fields:
        found = _CODECS[id(fields)] = Codec(fields)
    return found


def encode_fields(fields: Fields, values: Mapping[str, Any]) -> bytes:
    """`Codec.encode`."""
    return codec_of(fields).encode(values)


def decode_fields(fields: Fields, data: bytes) -> Values:
    """`Codec.decode`."""
    return codec_of(fields).decode(data)


def _encode(kind: str, value: Any) -> bytes:
    """One field; ``None`` is 0 or empty."""
    if kind in _NUMBERS:
        return _NUMBERS[kind].pack(value or 0)
    if kind == "gid":
        gid = bytes(value or _GID_BYTES)
        if len(gid) != _GID_BYTES:
            raise ValueError(f"a GID has {_GID_BYTES} bytes, not {len(gid)}")
        return gid
    if kind == "bytes":
        data = bytes(value or b"")
        return _COUNT.pack(len(data)) + data
    if kind == "runs":
        runs = value or ()
        return _COUNT.pack(len(runs)) + b"".join([_RUN.pack(first, count) for first, count in runs])
    counters = value or ()
    names = [name.encode("ascii") for name, _ in counters]
    return _COUNT.pack(len(names)) + b"".join([
        _NUMBERS["u8"].pack(len(name)) + name + _NUMBERS["u64"].pack(number)
        for name, (_, number) in zip(names, counters, strict=True)])


def _decode(kind: str, data: bytes, offset: int) -> tuple[Any, int]:
    """One field and the offset behind it; struct.error where data end before."""
    if kind in _NUMBERS:
        return _NUMBERS[kind].unpack_from(data, offset)[0], offset + _NUMBERS[kind].size
    if kind == "gid":
        return _slice(data, offset, _GID_BYTES), offset + _GID_BYTES
    (count,) = _COUNT.unpack_from(data, offset)
    offset += _COUNT.size
    if kind == "bytes":
        return _slice(data, offset, count), offset + count
    if kind == "runs":
        runs = list(_RUN.iter_unpack(_slice(data, offset, count * _RUN.size)))
        return runs, offset + count * _RUN.size
    counters = []
    for _ in range(count):
        (length,) = _NUMBERS["u8"].unpack_from(data, offset)
        name = _slice(data, offset + 1, length).decode("ascii")
        (number,) = _NUMBERS["u64"].unpack_from(data, offset + 1 + length)
        counters.append((name, number))
        offset += 1 + length + 8
    return counters, offset


def _slice(data: bytes, offset: int, count: int) -> bytes:
    """Exactly ``count`` bytes; struct.error where there are fewer."""
    if count > len(data) - offset:
        raise struct.error(f"{count} bytes wanted, {len(data) - offset} left")
    return data[offset:offset + count]
