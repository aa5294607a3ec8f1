"""Conditions of requests, as data: what must hold before an action is performed.

A condition is a tree.  Its leaves look at numbers and fields, its nodes join them; no code travels.  Encoded,
each node is a byte that names it and what belongs to it, children behind their parent.  A leaf that has held
once has held: the leaves are numbered in the order of the encoding, and what has held is a set of numbers.
"""

from __future__ import annotations

import operator
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

MAX_DEPTH = 8
MAX_NODES = 64
MAX_VALUE_BYTES = 255
ALWAYS, REACHED, OWN, FIELD, ALL, ANY = range(6)
"""Names of nodes on the wire."""
_JOINTS = (ALL, ANY)

OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt,
    ">=": operator.ge,
}  # fmt: skip
FORMATS = {
    "u8": "<B", "i8": "<b", "u16": "<H", "i16": "<h", "u32": "<I", "i32": "<i", "u64": "<Q", "i64": "<q",
    "bytes": "",
}  # fmt: skip
_OPERATORS, _FORMATS = tuple(OPERATORS), tuple(FORMATS)
_FIELD_FORM = struct.Struct("<IBBB")
_REACHED_FORM = struct.Struct("<Q")


class ConditionError(ValueError):
    """A condition that cannot be."""


@dataclass(frozen=True)
class Condition:
    """One node: ``kind`` and what its kind has."""

    kind: int
    sequence: int = 0
    offset: int = 0
    format: str = "u8"
    operator: str = "=="
    value: int | bytes = 0
    children: tuple[Condition, ...] = ()

    def __post_init__(self) -> None:
        if self.kind == REACHED and not 0 <= self.sequence < 1 << 64:
            raise ConditionError(f"sequence number {self.sequence}")
        if self.kind in (OWN, FIELD):
            self._check_field()
        if self.kind in _JOINTS and not self.children:
            raise ConditionError("all or any of nothing")
        if self.depth > MAX_DEPTH or sum(1 for _ in self.nodes()) > MAX_NODES:
            raise ConditionError(f"a condition has at most {MAX_NODES} nodes, {MAX_DEPTH} deep")

    def _check_field(self) -> None:
        if self.format not in FORMATS or self.operator not in OPERATORS:
            raise ConditionError(f"no field {self.format!r} {self.operator!r}")
        if not 0 <= self.offset < 1 << 32:
            raise ConditionError(f"a field at offset {self.offset}")
        if self.format == "bytes":
            if not isinstance(self.value, bytes) or not 0 < len(self.value) <= MAX_VALUE_BYTES:
                raise ConditionError(f"bytes are compared with 1 to {MAX_VALUE_BYTES} bytes")
            if self.operator not in ("==", "!="):
                raise ConditionError("bytes are equal or not")
            return
        try:
            struct.pack(FORMATS[self.format], self.value)
        except struct.error as error:
            raise ConditionError(f"{self.value!r} is no {self.format}: {error}") from None

    @property
    def depth(self) -> int:
        """Levels of the tree."""
        return 1 + max((child.depth for child in self.children), default=0)

    def nodes(self) -> Iterator[Condition]:
        """This node and all below, in the order of the encoding."""
        yield self
        for child in self.children:
            yield from child.nodes()

    def encode(self) -> bytes:
        """The condition as bytes."""
        kind = bytes([self.kind])
        if self.kind == REACHED:
            return kind + _REACHED_FORM.pack(self.sequence)
        if self.kind in _JOINTS:
            return kind + bytes([len(self.children)]) + b"".join(child.encode() for child in self.children)
        if self.kind == ALWAYS:
            return kind
        value = self.value if isinstance(self.value, bytes) else struct.pack(FORMATS[self.format], self.value)
        form, operation = _FORMATS.index(self.format), _OPERATORS.index(self.operator)
        return kind + _FIELD_FORM.pack(self.offset, form, operation, len(value)) + value

    def _field_holds(self, data: bytes) -> bool:
        """Whether the field of ``data`` compares as asked; one that ``data`` does not have does not hold."""
        compare = OPERATORS[self.operator]
        if isinstance(self.value, bytes):
            end = self.offset + len(self.value)
            return end <= len(data) and compare(data[self.offset : end], self.value)
        form = FORMATS[self.format]
        if self.offset + struct.calcsize(form) > len(data):
            return False
        return compare(struct.unpack_from(form, data, self.offset)[0], self.value)

    def new_holds(self, held: set[int], own: bytes, reached: int, message: bytes | None = None) -> set[int]:
        """Numbers of leaves that hold now and had not ``held``.

        ``own``: the request's argument; ``reached``: up to where messages are processed; ``message``: the one
        that was processed just now.
        """
        found = set()
        for number, node in enumerate(self.nodes()):
            if number in held or node.kind in _JOINTS:
                continue
            if (
                node.kind == ALWAYS
                or (node.kind == REACHED and reached >= node.sequence)
                or (node.kind == OWN and node._field_holds(own))
                or (node.kind == FIELD and message is not None and node._field_holds(message))
            ):
                found.add(number)
        return found

    def holds(self, held: set[int]) -> bool:
        """Whether the whole condition holds when the leaves ``held`` have held."""
        return self._holds(iter(range(MAX_NODES)), held)

    def _holds(self, numbers: Iterator[int], held: set[int]) -> bool:
        number = next(numbers)
        if self.kind not in _JOINTS:
            return number in held
        results = [child._holds(numbers, held) for child in self.children]  # every child takes its numbers
        return all(results) if self.kind == ALL else any(results)


def always() -> Condition:
    """Holds at once."""
    return Condition(ALWAYS)


def reached(sequence: int) -> Condition:
    """The receiver's processing has reached the message with that sequence number."""
    return Condition(REACHED, sequence=sequence)


def own(offset: int, form: str, operation: str, value: int | bytes) -> Condition:
    """A field of the request's own argument compares so with ``value``."""
    return Condition(OWN, offset=offset, format=form, operator=operation, value=value)


def field(offset: int, form: str, operation: str, value: int | bytes) -> Condition:
    """A field of a message that is processed after the request compares so with ``value``."""
    return Condition(FIELD, offset=offset, format=form, operator=operation, value=value)


def all_of(*conditions: Condition) -> Condition:
    """Each of them has held."""
    return Condition(ALL, children=conditions)


def any_of(*conditions: Condition) -> Condition:
    """One of them has held."""
    return Condition(ANY, children=conditions)


def decode(data: bytes) -> Condition:
    """The condition that is exactly ``data``; ConditionError when there is none."""
    budget = [MAX_NODES]
    condition, end = _decode(data, 0, 1, budget)
    if end != len(data):
        raise ConditionError("bytes behind the condition")
    return condition


def _decode(data: bytes, at: int, depth: int, budget: list[int]) -> tuple[Condition, int]:
    budget[0] -= 1
    if depth > MAX_DEPTH or budget[0] < 0:
        raise ConditionError(f"a condition has at most {MAX_NODES} nodes, {MAX_DEPTH} deep")
    kind = _take(data, at, 1)[0]
    at += 1
    if kind == ALWAYS:
        return always(), at
    if kind == REACHED:
        (sequence,) = _REACHED_FORM.unpack(_take(data, at, _REACHED_FORM.size))
        return reached(sequence), at + _REACHED_FORM.size
    if kind in (OWN, FIELD):
        return _decode_field(kind, data, at)
    if kind not in _JOINTS:
        raise ConditionError(f"there is no condition {kind}")
    count = _take(data, at, 1)[0]
    at += 1
    children = []
    for _ in range(count):
        child, at = _decode(data, at, depth + 1, budget)
        children.append(child)
    return Condition(kind, children=tuple(children)), at


def _decode_field(kind: int, data: bytes, at: int) -> tuple[Condition, int]:
    offset, form, operation, length = _FIELD_FORM.unpack(_take(data, at, _FIELD_FORM.size))
    at += _FIELD_FORM.size
    raw = _take(data, at, length)
    if form >= len(_FORMATS) or operation >= len(_OPERATORS):
        raise ConditionError(f"no field format {form} with operator {operation}")
    name = _FORMATS[form]
    value: int | bytes = raw
    if name != "bytes":
        if length != struct.calcsize(FORMATS[name]):
            raise ConditionError(f"a value of {length} bytes for {name}")
        value = int(struct.unpack(FORMATS[name], raw)[0])
    condition = Condition(kind, offset=offset, format=name, operator=_OPERATORS[operation], value=value)
    return condition, at + length


def _take(data: bytes, at: int, length: int) -> bytes:
    if at + length > len(data):
        raise ConditionError("the condition ends in the middle")
    return data[at : at + length]
