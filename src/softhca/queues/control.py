"""All control between host and adapter: a command ring, its replies, and the event ring.

A command is a COMMAND_HEADER and its fields (``control_fields``); a reply is a REPLY_HEADER and the reply's
fields where errno is 0, else the reason: text (UTF-8) of at most REASON_BYTES, maybe none; an event is an
EVENT (``layout``).  Numbers are little-endian and not padded.

Bounds: a command of more than COMMAND_BYTES is refused with E2BIG before it is sent; the host has at most
as many commands open as the reply ring has entries, so a reply always finds room.  An event that finds the
ring full waits in the adapter, each (kind, element) once, hence never more of them than there are elements:
events come together, but none is lost.
"""

from __future__ import annotations

import errno
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import cython

from softhca.machine.primitives import address_of
from softhca.memory.arenas import AddressMap
from softhca.queues.codec import Values, codec_of
from softhca.queues.control_fields import COMMANDS, REASON_BYTES
from softhca.queues.layout import (
    COMMAND_BODY_BYTES,
    COMMAND_BYTES,
    COMMAND_ENTRIES,
    COMMAND_HEADER,
    EVENT,
    EVENT_BODY_BYTES,
    EVENT_BYTES,
    EVENT_ENTRIES,
    REPLY_BODY_BYTES,
    REPLY_BYTES,
    REPLY_HEADER,
)
from softhca.queues.ring import RingConsumer, RingLayout, RingProducer, plan

_COMMAND = COMMAND_HEADER.packing()
_REPLY = REPLY_HEADER.packing()
_EVENT = EVENT.packing()


class Command(NamedTuple):
    """A command as the adapter takes it.  ``errno`` ≠ 0: it is malformed, has no fields, and wants just
    this reply, with this ``reason``."""

    command: int
    tag: int
    fields: Values
    errno: int = 0
    reason: str = ""


class Reply(NamedTuple):
    """A reply as the host takes it; ``fields`` is empty where ``errno`` is not 0, and ``reason`` says why."""

    tag: int
    command: int
    errno: int
    fields: Values
    reason: str = ""


class Event(NamedTuple):
    """Something happened to ``element`` (a QP, CQ, SRQ or port number); ``extra`` depends on ``kind``."""

    kind: int
    element: int
    extra: int = 0


def encode_command(command: int, tag: int, values: Mapping[str, Any]) -> bytes:
    """A command; OSError EOPNOTSUPP for an unknown one, EINVAL for fields that it does not have, E2BIG if
    too long."""
    if command not in COMMANDS:
        raise OSError(errno.EOPNOTSUPP, f"there is no command {command}")
    body = codec_of(COMMANDS[command][1]).encode(values)
    if _COMMAND.size + len(body) > COMMAND_BYTES:
        raise OSError(errno.E2BIG, f"{COMMANDS[command][0]}: {len(body)} bytes do not fit the command ring")
    return _COMMAND.pack(command, 0, tag, len(body), 0) + body


def decode_command(data: bytes) -> Command:
    """A command from the other side, which may have written anything: never raises, see ``Command.errno``."""
    if len(data) < _COMMAND.size:
        return Command(0, 0, {}, errno.EINVAL, "a command is cut short")
    command, zero, tag, length, reserved = _COMMAND.unpack_from(data)
    if command not in COMMANDS:
        return Command(command, tag, {}, errno.EOPNOTSUPP, f"there is no command {command}")
    if zero or reserved or length != len(data) - _COMMAND.size:
        return Command(command, tag, {}, errno.EINVAL, "the header is malformed")
    try:
        return Command(command, tag, codec_of(COMMANDS[command][1]).decode(data[_COMMAND.size:]))
    except OSError as error:
        return Command(command, tag, {}, error.errno or errno.EINVAL, error.strerror or "")


def encode_reply(
    tag: int, command: int, code: int = 0, values: Mapping[str, Any] | None = None, reason: str = ""
) -> bytes:
    """A reply; ``code`` is 0 or an errno, and then ``reason`` follows instead of fields, cut to REASON_BYTES.
    OSError EINVAL, E2BIG as ``encode_command``."""
    body = reason.encode("utf-8", "replace")[:REASON_BYTES]
    if code == 0:
        body = codec_of(COMMANDS[command][2]).encode(values or {})
    if _REPLY.size + len(body) > REPLY_BYTES:
        raise OSError(errno.E2BIG, f"a reply of {len(body)} bytes does not fit the reply ring")
    return _REPLY.pack(tag, command & 0xFFFF, code, len(body), 0) + body


def decode_reply(data: bytes) -> Reply:
    """A reply; OSError EINVAL for a malformed one."""
    if len(data) < _REPLY.size:
        raise OSError(errno.EINVAL, "a reply is cut short")
    tag, command, code, length, _ = _REPLY.unpack_from(data)
    if length != len(data) - _REPLY.size or (code == 0 and command not in COMMANDS) or (
            code and length > REASON_BYTES):
        raise OSError(errno.EINVAL, "a reply is malformed")
    if code:
        return Reply(tag, command, code, {}, data[_REPLY.size:].decode("utf-8", "ignore"))
    return Reply(tag, command, 0, codec_of(COMMANDS[command][2]).decode(data[_REPLY.size:]))


def encode_event(event: Event) -> bytes:
    """An event; struct.error is a bug of the caller."""
    return _EVENT.pack(*event)


def decode_event(data: bytes) -> Event:
    """An event; OSError EINVAL for a malformed one."""
    if len(data) != EVENT_BYTES:
        raise OSError(errno.EINVAL, "an event has 16 bytes")
    return Event(*_EVENT.unpack(data))


class MessageRing:
    """Messages over one ring; a process uses one direction of it only.  ``consumer`` is the own end."""

    def __init__(self, layout: RingLayout, longest_bytes: int) -> None:
        self.producer = RingProducer(layout)
        self.consumer = RingConsumer(layout)
        self._scratch = bytearray(longest_bytes)
        self._address = address_of(self._scratch)
        self._longest_bytes = longest_bytes

    @property
    def broken(self) -> bool:
        """Whether the other side wrote what cannot be; nothing goes through the ring any more."""
        return self.producer.broken or self.consumer.broken

    def _push(self, message: bytes) -> bool:
        """Send; False where there is no room."""
        return bool(self.producer.push(address_of(message, writable=False), len(message)))

    def _pull(self) -> bytes | None:
        """Receive; None where there is nothing (or the ring is broken)."""
        n: cython.longlong = self.consumer.take(self._address, self._longest_bytes)
        if n <= 0:
            return None
        self.consumer.release(1)
        return bytes(self._scratch[:n])

    def count(self) -> int:
        """Messages that can be received; 0 for a broken ring."""
        return int(max(0, self.consumer.count()))


class CommandRing(MessageRing):
    """Host → adapter.  At most COMMAND_ENTRIES commands may be without a reply."""

    def __init__(self, layout: RingLayout) -> None:
        super().__init__(layout, COMMAND_BYTES)

    def send(self, command: int, tag: int, values: Mapping[str, Any]) -> None:
        """The host's side; OSError as ``encode_command``, and EAGAIN where the ring is full."""
        if not self._push(encode_command(command, tag, values)):
            raise OSError(errno.EAGAIN, "the command ring is full")

    def take(self) -> Command | None:
        """The adapter's side: the next command (maybe malformed), None for none."""
        message = self._pull()
        return None if message is None else decode_command(message)


class ReplyRing(MessageRing):
    """Adapter → host."""

    def __init__(self, layout: RingLayout) -> None:
        super().__init__(layout, REPLY_BYTES)

    def room(self) -> bool:
        """Whether any reply fits; the adapter takes a command only then."""
        return bool(self.producer.space()) and not self.producer.broken  # to look may find it broken

    def send(
        self, tag: int, command: int, code: int = 0, values: Mapping[str, Any] | None = None,
        reason: str = "",
    ) -> bool:
        """The adapter's side; a reply that is too long is replaced by E2BIG.  False where there is no
        room."""
        try:
            message = encode_reply(tag, command, code, values, reason)
        except OSError as error:
            if error.errno != errno.E2BIG:
                raise
            message = encode_reply(tag, command, errno.E2BIG, reason=str(error.strerror))
        return self._push(message)

    def take(self) -> Reply | None:
        """The host's side: the next reply, None for none; OSError EINVAL for a malformed one."""
        message = self._pull()
        return None if message is None else decode_reply(message)


class EventRing(MessageRing):
    """Adapter → host.  What finds no room is ``pending``, each (kind, element) once, until ``flush``."""

    def __init__(self, layout: RingLayout) -> None:
        super().__init__(layout, EVENT_BYTES)
        self.pending: dict[tuple[int, int], int] = {}

    def post(self, kind: int, element: int, extra: int = 0) -> None:
        """The adapter's side: report to the host, now or when there is room."""
        if self.pending or not self._push(encode_event(Event(kind, element, extra))):
            self.pending[kind, element] = extra
            self.flush()

    def flush(self) -> bool:
        """Send what waits, in the order in which it first happened; whether nothing waits any more."""
        while self.pending and self.producer.space():  # asked in every round
            (kind, element), extra = next(iter(self.pending.items()))
            if not self._push(encode_event(Event(kind, element, extra))):
                break
            del self.pending[kind, element]
        if self.producer.broken:
            self.pending.clear()
        return not self.pending

    def waiting(self) -> int:
        """Events that found no room yet."""
        return len(self.pending)

    def forget(self, kind: int, element: int) -> None:
        """The element is destroyed: drop what still waits for it."""
        self.pending.pop((kind, element), None)

    def take(self) -> Event | None:
        """The host's side: the next event, None for none; OSError EINVAL for a malformed one."""
        message = self._pull()
        return None if message is None else decode_event(message)


class ControlRings:
    """The three rings of one host, over ``ControlRings.PAGES`` frames of shared, zero-filled memory."""

    SIZES = ((COMMAND_ENTRIES, COMMAND_BODY_BYTES), (COMMAND_ENTRIES, REPLY_BODY_BYTES),
             (EVENT_ENTRIES, EVENT_BODY_BYTES))
    PAGES = sum([plan(entries, body_bytes) for entries, body_bytes in SIZES])

    def __init__(self, frames: Sequence[int], address_map: AddressMap) -> None:
        if len(frames) != self.PAGES:
            raise OSError(errno.EINVAL, f"control rings take {self.PAGES} frames, not {len(frames)}")
        layouts = []
        start = 0
        for entries, body_bytes in self.SIZES:
            pages = plan(entries, body_bytes)
            part = list(frames[start:start + pages])
            layouts.append(RingLayout.over(part, address_map, entries, body_bytes))
            start += pages
        self.commands = CommandRing(layouts[0])
        self.replies = ReplyRing(layouts[1])
        self.events = EventRing(layouts[2])
