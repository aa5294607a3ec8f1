"""Messages of the control socket, by which hosts attach to an adapter process: either side may send anything.

Input: which message, and its bytes; or its fields, right but for one byte, or of another version.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator

from fuzz_choices import Choices
from target_control import fields_of

from softhca.queues import handshake
from softhca.queues.handshake import MESSAGES
from softhca.queues.layout import ABI_VERSION, MESSAGE_HEADER

NUMBERS = tuple(MESSAGES)
VERSION_AT = {name: offset for name, _, offset in MESSAGE_HEADER.fields}["version"]


def one_input(data: bytes) -> None:
    choices = Choices(data)
    how = choices.below(4)
    number = choices.pick(NUMBERS)
    if how < 2:
        message = choices.rest()
    else:
        at, change, version = choices.number(2), choices.byte(), choices.number(4)
        name, fields, answer = MESSAGES[number]
        if how == 2:
            message = handshake.encode_request(number, fields_of(choices, fields))
        elif change & 1:
            message = handshake.encode_answer(number, fields_of(choices, answer))
        else:
            message = handshake.encode_refusal(number, choices.byte(), name)
        changed = bytearray(message)
        changed[at % len(changed)] ^= change
        if version & 1:
            changed[VERSION_AT : VERSION_AT + 4] = version.to_bytes(4, "little")
        message = bytes(changed)
    request(message)
    answer_to(number, message)


def request(message: bytes) -> None:
    """EPROTO, or a refusal by errno, or fields that make the same message."""
    try:
        found = handshake.decode_request(message)
    except OSError as error:
        assert error.errno == errno.EPROTO
        return
    version = int.from_bytes(message[VERSION_AT : VERSION_AT + 4], "little")
    if found.refusal is not None:
        assert not found.fields
        assert (found.refusal.errno == errno.EPROTONOSUPPORT) == (version != ABI_VERSION)
        return
    assert handshake.encode_request(found.message, found.fields) == message
    if found.message == handshake.ATTACH:
        try:
            frames = handshake.frames_of(found.fields["control"], 267, "control")
        except OSError as error:
            assert error.errno == errno.EPROTO
        else:
            assert len(frames) == 267


def answer_to(number: int, message: bytes) -> None:
    """An errno, or fields that make the same message."""
    try:
        fields = handshake.decode_answer(number, message)
    except OSError as error:
        assert error.errno
        return
    assert handshake.encode_answer(number, fields) == message


def seeds() -> Iterator[bytes]:
    """Every message and every answer, as it should be."""
    frames = {"control": [(1, 267)], "doorbells": [(268, 65)], "flag": 333, "probe": 1 << 40}
    for place, number in enumerate(NUMBERS):
        values = frames if number == handshake.ATTACH else {}
        yield bytes([0, place]) + handshake.encode_request(number, values)
        yield bytes([1, place]) + handshake.encode_answer(
            number, fields_of(Choices(bytes(range(1, 200))), MESSAGES[number][2])
        )
        yield bytes([1, place]) + handshake.encode_refusal(number, errno.EBUSY, "busy")
        yield bytes([2, place]) + bytes(7) + bytes(range(1, 60))
        yield bytes([3, place, 0, 0, 1, 0, 0, 0, 0]) + bytes(range(1, 60))
        yield bytes([3, place, 0, 0, 2, 0, 0, 0, 3])
