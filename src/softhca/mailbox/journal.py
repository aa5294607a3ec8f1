"""What must outlive a polling loop: accepted requests, how far they came, and their outcomes.

Records are appended to a binary file, each with its hash; what a crash has torn at the end is cut off when
the journal is opened.  When the file has grown far beyond what is pending it begins anew with that.
"""

from __future__ import annotations

import hashlib
import io
import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import BinaryIO

from softhca.machine.arguments import whole

ACCEPTED, HELD, BEGUN, ENDED, SENT, ALL = range(1, 7)
"""Kinds of records."""
_FORM = struct.Struct("<BQI")
_HASH_BYTES = 16
MAX_RECORD_BYTES = 1 << 30
"""Of a record's body: a request is shorter than the longest ring by its header and hash."""
MAX_NUMBER = (1 << 64) - 1
REWRITE_BYTES = 1 << 16
REWRITE_FACTOR = 4
"""The file begins anew when it has so many bytes, and so many times what it began with."""


@dataclass
class Entry:
    """One request: its sequence number, its message, when it was accepted; the leaves of its condition that
    have ``held``, whether its action was ``begun``, and its ``outcome`` once it has ended.
    """

    number: int
    message: bytes
    accepted_ns: int
    held: set[int] = field(default_factory=set)
    begun: bool = False
    outcome: bytes | None = None


class Journal:
    """The journal in ``file``, a seekable binary file of its own; ``entries`` are the requests that are not
    over, by number.

    A record is in the file (flushed, and with ``durable`` synchronised) when the method returns.  Numbers,
    times and what a record holds are checked before anything is written: TypeError for what is no whole
    number or no bytes, ValueError for what a record has no room for.
    """

    def __init__(self, file: BinaryIO, durable: bool = False) -> None:
        self._file = file
        self._durable = durable
        self.entries: dict[int, Entry] = {}
        self.last_number = 0
        self._bytes = self._first_bytes = 0
        self._load()

    def _load(self) -> None:
        self._file.seek(0)
        for kind, number, body in _records(self._file):
            self._apply(kind, number, body)
            self._bytes += _FORM.size + len(body) + _HASH_BYTES
        self._file.seek(self._bytes)
        self._file.truncate()

    def _apply(self, kind: int, number: int, body: bytes) -> None:
        if kind == ALL:
            for inner in _records(io.BytesIO(body)):
                self._apply(*inner)
            return
        if kind == ACCEPTED:
            self.entries[number] = Entry(number, body[8:], int.from_bytes(body[:8], "little"))
            self.last_number = max(self.last_number, number)
            return
        if kind == SENT:
            self.entries.pop(number, None)
            self.last_number = max(self.last_number, number)
            return
        entry = self.entries.get(number)
        if entry is None:
            return
        if kind == HELD:
            entry.held |= set(body)
        elif kind == BEGUN:
            entry.begun = True
        elif kind == ENDED:
            entry.outcome = body

    def _note(self, kind: int, number: int, body: bytes = b"") -> None:
        number = whole(number, "a sequence number", 0, MAX_NUMBER)
        if len(body) > MAX_RECORD_BYTES:
            raise ValueError(f"a record of {len(body)} bytes; at most {MAX_RECORD_BYTES}")
        record = _record(kind, number, body)
        self._file.write(record)
        self._sync()
        self._bytes += len(record)
        self._apply(kind, number, body)

    def _sync(self) -> None:
        self._file.flush()
        if self._durable:
            os.fsync(self._file.fileno())

    def accept(self, number: int, message: bytes, now_ns: int) -> bool:
        """Note a request; False: it was accepted before."""
        number = whole(number, "a sequence number", 0, MAX_NUMBER)
        time = whole(now_ns, "a time in nanoseconds", 0, MAX_NUMBER).to_bytes(8, "little")
        content = _bytes(message, "a message")
        if number <= self.last_number:
            return False
        self._note(ACCEPTED, number, time + content)
        return True

    def hold(self, number: int, leaves: set[int]) -> None:
        """Note that these leaves of its condition have held, each 0 to 255."""
        if not isinstance(leaves, set | frozenset):
            raise TypeError(f"the leaves of a condition are a set, not {type(leaves).__name__}")
        self._note(HELD, number, bytes(sorted(whole(leaf, "a leaf", 0, 255) for leaf in leaves)))

    def begin(self, number: int) -> None:
        """Note that its action begins."""
        self._note(BEGUN, number)

    def end(self, number: int, outcome: bytes) -> None:
        """Note its outcome."""
        self._note(ENDED, number, _bytes(outcome, "an outcome"))

    def outcome_sent(self, number: int) -> None:
        """Note that its outcome was sent: the request is over."""
        self._note(SENT, number)
        if self._bytes > max(REWRITE_BYTES, REWRITE_FACTOR * self._first_bytes):
            self._restart()

    def _restart(self) -> None:
        """Begin anew with the last number and what is pending, as one record: all of it counts, or nothing.

        Records of before that a crash leaves behind it end in the same state.
        """
        body = _record(SENT, self.last_number, b"") + b"".join(map(_state, self.entries.values()))
        if len(body) > MAX_RECORD_BYTES:
            self._first_bytes = self._bytes  # not now
            return
        record = _record(ALL, 0, body)
        self._file.seek(0)
        self._file.write(record)
        self._sync()
        self._file.truncate()
        self._bytes = self._first_bytes = len(record)


def _bytes(value: bytes, what: str) -> bytes:
    if not isinstance(value, bytes | bytearray | memoryview):
        raise TypeError(f"{what} is bytes, not {type(value).__name__}")
    return bytes(value)


def _record(kind: int, number: int, body: bytes) -> bytes:
    head = _FORM.pack(kind, number, len(body))
    return head + body + hashlib.blake2b(head + body, digest_size=_HASH_BYTES).digest()


def _state(entry: Entry) -> bytes:
    """The records that lead to an entry's state."""
    records = [_record(ACCEPTED, entry.number, entry.accepted_ns.to_bytes(8, "little") + entry.message)]
    if entry.held:
        records.append(_record(HELD, entry.number, bytes(sorted(entry.held))))
    if entry.begun:
        records.append(_record(BEGUN, entry.number, b""))
    if entry.outcome is not None:
        records.append(_record(ENDED, entry.number, entry.outcome))
    return b"".join(records)


def _records(file: BinaryIO) -> Iterator[tuple[int, int, bytes]]:
    """The records up to the first that is not whole."""
    while len(head := file.read(_FORM.size)) == _FORM.size:
        kind, number, length = _FORM.unpack(head)
        if length > MAX_RECORD_BYTES:
            return
        body = file.read(length)
        proof = file.read(_HASH_BYTES)
        if hashlib.blake2b(head + body, digest_size=_HASH_BYTES).digest() != proof:
            return
        yield kind, number, body
