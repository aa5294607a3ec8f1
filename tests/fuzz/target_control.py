"""Commands, replies and events in the control rings: the other side may have written anything.

Input: what it is, then its bytes, or its fields, right but for one byte.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from typing import Any

from fuzz_choices import Choices

from softhca.queues import control
from softhca.queues.control_fields import COMMANDS, Fields

NUMBERS = tuple(COMMANDS)
WIDTHS = {"u8": 1, "u16": 2, "u32": 4, "u64": 8}


def one_input(data: bytes) -> None:
    choices = Choices(data)
    how = choices.below(5)
    if how == 0:
        command(choices.rest())
    elif how == 1:
        reply(choices.rest())
    elif how == 2:
        event(choices.rest())
    else:
        number = choices.pick(NUMBERS)
        tag, at, change = choices.number(4), choices.number(2), choices.byte()
        if how == 3:
            message = bytearray(control.encode_command(number, tag, fields_of(choices, COMMANDS[number][1])))
        else:
            code = choices.byte() & choices.byte()
            values = fields_of(choices, COMMANDS[number][2])
            message = bytearray(control.encode_reply(tag, number, code, values))
        message[at % len(message)] ^= change
        (command if how == 3 else reply)(bytes(message))


def fields_of(choices: Choices, fields: Fields) -> dict[str, Any]:
    """Values that fit ``fields``."""
    values: dict[str, Any] = {}
    for name, kind in fields:
        if kind in WIDTHS:
            values[name] = choices.number(WIDTHS[kind])
        elif kind == "gid":
            values[name] = choices.block(16)
        elif kind == "bytes":
            values[name] = choices.run()
        elif kind == "runs":
            values[name] = [(choices.number(4), choices.number(4)) for _ in range(choices.byte() & 7)]
        else:
            names = [f"n{i}" * (choices.byte() & 3) for i in range(choices.byte() & 7)]
            values[name] = [(name, choices.number(8)) for name in names]
    return values


def command(message: bytes) -> None:
    """Never an exception: a refusal by errno, or fields that make the same message."""
    found = control.decode_command(message)
    if found.errno:
        assert found.errno in (errno.EINVAL, errno.EOPNOTSUPP)
        assert not found.fields
        return
    if len(message) <= control.COMMAND_BYTES:
        assert control.encode_command(found.command, found.tag, found.fields) == message


def reply(message: bytes) -> None:
    """EINVAL, or the same reply; of a refusal's reason only the text."""
    try:
        found = control.decode_reply(message)
    except OSError as error:
        assert error.errno == errno.EINVAL
        return
    again = control.encode_reply(found.tag, found.command, found.errno, found.fields, found.reason)
    if not found.errno:
        assert again[:12] == message[:12]
        assert again[16:] == message[16:]
    assert control.decode_reply(again) == found


def event(message: bytes) -> None:
    """EINVAL, or the same event."""
    try:
        found = control.decode_event(message)
    except OSError as error:
        assert error.errno == errno.EINVAL
        return
    assert control.encode_event(found) == message


def seeds() -> Iterator[bytes]:
    """One of every command and every reply."""
    for number in NUMBERS:
        for fields in COMMANDS[number][1:]:
            values = fields_of(Choices(bytes(range(1, 200))), fields)
            is_command = fields is COMMANDS[number][1]
            encode = (
                control.encode_command(number, 7, values)
                if is_command
                else control.encode_reply(7, number, 0, values)
            )
            yield bytes([0 if is_command else 1]) + encode
        yield bytes([3, NUMBERS.index(number)]) + bytes(7) + bytes(range(100))
        yield bytes([4, NUMBERS.index(number)]) + bytes(7) + bytes(range(100))
    yield b"\x02" + control.encode_event(control.Event(1, 2, 3))
