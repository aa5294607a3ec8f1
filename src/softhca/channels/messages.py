"""What the two ends of a connection tell each other beside the data: greetings and control messages.

A greeting travels as private data of the connection's request and reply.  Control messages travel on a queue
pair of their own, one in each SEND.  All have the same fields, and of each kind some: the others are 0, and
what is not so is refused.  Numbers are big-endian.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from softhca.channels.errors import ProtocolError
from softhca.channels.options import (
    LEAST_SLOT_BYTES,
    MOST_MESSAGE_BYTES,
    MOST_SLOT_BYTES,
    MOST_SLOTS,
)

READY, CREDIT, SYNC, CLOSE, BROKEN, SHARE, UNSHARE, UNSHARED, OPEN, OPENED, REFUSED, NOTHING = range(1, 13)
"""READY: the sender's queue pair of a channel can receive.  CREDIT: messages before ``number`` were taken.
SYNC: ``number`` were sent, which of them are lost?  CLOSE: no more than these ``number`` are sent.  BROKEN:
the channel has failed.  SHARE, UNSHARE, UNSHARED: a named buffer comes, goes, is not used any more.  OPEN,
OPENED, REFUSED: one more channel.  NOTHING: only what all say, how many control messages were taken."""

ACKNOWLEDGED, UNACKNOWLEDGED = 1, 2
"""Services: RC and UC."""
READ, WRITE, ATOMIC = 1, 2, 4
"""Rights."""
ANSWER = 1
"""Flag of a CREDIT: it answers SYNC."""

NAME_BYTES = 64
CONTROL_BYTES = 128
MOST_CHANNEL = 0xFFFF

_MAGIC, _VERSION = b"shch", 1
_GREETING = struct.Struct("!4sBBHIQIIH")
GREETING_BYTES = _GREETING.size
_CONTROL = struct.Struct("!BBHIQQQIIIIHBB")
_LARGE = struct.Struct("!QIQ")
LARGE_BYTES = _LARGE.size


@dataclass(frozen=True)
class End:
    """One end of a channel: service, queue pair, first PSN; its slots, their size, its longest message."""

    service: int
    qp_num: int
    psn: int
    slots: int
    slot_bytes: int
    largest_bytes: int

    def check(self) -> End:
        """The same; ProtocolError for one that cannot be."""
        if self.service not in (ACKNOWLEDGED, UNACKNOWLEDGED):
            raise ProtocolError(f"there is no service {self.service}")
        if not 0 < self.qp_num < 1 << 24 or self.psn >> 24:
            raise ProtocolError(f"queue pair {self.qp_num:#x}, PSN {self.psn:#x}")
        if not 1 <= self.slots <= MOST_SLOTS or not LEAST_SLOT_BYTES <= self.slot_bytes <= MOST_SLOT_BYTES:
            raise ProtocolError(f"{self.slots} slots of {self.slot_bytes} bytes")
        if not self.slot_bytes <= self.largest_bytes <= MOST_MESSAGE_BYTES:
            raise ProtocolError(f"messages of up to {self.largest_bytes} bytes")
        return self


@dataclass(frozen=True)
class Greeting:
    """What a request and its reply carry: the first channel's end, and the room for control messages."""

    end: End
    control_slots: int

    def encode(self) -> bytes:
        """`GREETING_BYTES` bytes."""
        end = self.end
        return _GREETING.pack(
            _MAGIC, _VERSION, end.service, end.slots, end.slot_bytes, end.largest_bytes, end.qp_num, end.psn,
            self.control_slots,
        )  # fmt: skip

    @classmethod
    def decode(cls, data: bytes) -> Greeting:
        """What stands at the beginning of ``data``.  ProtocolError."""
        if len(data) < GREETING_BYTES:
            raise ProtocolError(f"a greeting of {len(data)} bytes")
        magic, version, *fields, control = _GREETING.unpack_from(data)
        if magic != _MAGIC or version != _VERSION:
            raise ProtocolError("the peer has no channels, or others")
        if not LEAST_CONTROL_SLOTS <= control <= MOST_CONTROL_SLOTS:
            raise ProtocolError(f"room for {control} control messages")
        service, slots, slot_bytes, largest, qp_num, psn = fields
        return cls(End(service, qp_num, psn, slots, slot_bytes, largest).check(), control)


LEAST_CONTROL_SLOTS, MOST_CONTROL_SLOTS = 8, 1024


@dataclass(frozen=True)
class Control:
    """A control message: of its fields those that `FIELDS` names for the kind, the rest as here."""

    kind: int
    channel: int = 0
    number: int = 0
    address: int = 0
    length: int = 0
    key: int = 0
    qp_num: int = 0
    psn: int = 0
    slot_bytes: int = 0
    slots: int = 0
    flags: int = 0
    name: str = ""

    @property
    def end(self) -> End:
        """Of OPEN and OPENED: the end.  ProtocolError."""
        return End(self.flags, self.qp_num, self.psn, self.slots, self.slot_bytes, self.length).check()

    def encode(self, taken: int) -> bytes:
        """At most `CONTROL_BYTES`; ``taken``: control messages that were taken so far."""
        name = self.name.encode()
        return _CONTROL.pack(
            self.kind, 0, self.channel, taken & 0xFFFFFFFF, self.number, self.address, self.length, self.key,
            self.qp_num, self.psn, self.slot_bytes, self.slots, self.flags, len(name),
        ) + name  # fmt: skip

    @classmethod
    def decode(cls, data: bytes | memoryview) -> tuple[Control, int]:
        """The message, and how many its sender has taken (32 bits).  ProtocolError."""
        if len(data) < _CONTROL.size:
            raise ProtocolError(f"a control message of {len(data)} bytes")
        unpacked: tuple[int, ...] = _CONTROL.unpack_from(data)
        kind, zero, channel, taken, *numbers, length = unpacked
        fields = FIELDS.get(kind)
        if fields is None or zero or len(data) != _CONTROL.size + length:
            raise ProtocolError(f"a control message of kind {kind}")
        try:
            name = bytes(data[_CONTROL.size :]).decode()
        except UnicodeDecodeError:
            raise ProtocolError("a name that is no text") from None
        found = cls(kind, channel, **dict(zip(_NUMBERS, numbers, strict=True)), name=name)
        for field, value in vars(found).items():
            if field != "kind" and value and field not in fields:
                raise ProtocolError(f"a control message of kind {kind} has no {field}")
        if "name" in fields:
            check_name(name)
        return found, taken


_NUMBERS = ("number", "address", "length", "key", "qp_num", "psn", "slot_bytes", "slots", "flags")
_END = frozenset(("channel", "qp_num", "psn", "slot_bytes", "slots", "length", "flags"))
FIELDS: dict[int, frozenset[str]] = {
    READY: frozenset(("channel",)),
    CREDIT: frozenset(("channel", "number", "flags")),
    SYNC: frozenset(("channel", "number")),
    CLOSE: frozenset(("channel", "number")),
    BROKEN: frozenset(("channel",)),
    SHARE: frozenset(("number", "address", "length", "key", "flags", "name")),
    UNSHARE: frozenset(("number",)),
    UNSHARED: frozenset(("number",)),
    OPEN: _END | {"name"},
    OPENED: _END,
    REFUSED: frozenset(("channel",)),
    NOTHING: frozenset(),
}


def check_name(name: str) -> str:
    """``name``, of a buffer or a channel; ProtocolError for one that is empty or too long, TypeError for what
    is no text.
    """
    if not isinstance(name, str):
        raise TypeError(f"a name is a str, not {type(name).__name__}")
    if not name or len(name.encode()) > NAME_BYTES:
        raise ProtocolError(f"a name has 1 … {NAME_BYTES} bytes of UTF-8")
    return name


def encode_large(address: int, key: int, length: int) -> bytes:
    """Where a large message is: what stands in its slot instead of it."""
    return _LARGE.pack(address, key, length)


def decode_large(data: bytes | memoryview, least: int, most: int) -> tuple[int, int, int]:
    """Address, R_Key and length, which is ``least`` … ``most``.  ProtocolError."""
    if len(data) != LARGE_BYTES:
        raise ProtocolError(f"{len(data)} bytes say where a message is")
    address, key, length = _LARGE.unpack(data)
    if not least <= length <= most or address + length > 1 << 64:
        raise ProtocolError(f"a message of {length} bytes")
    return address, key, length
