"""A broken peer: packets whose ICRC and PSN are right and whose shape cannot be.

The receiver has to refuse each of them, and nothing of it may be taken for a message.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from softhca.simulation.frames import BTH_BYTES, ICRC_BYTES, Frames
from softhca.wire.opcodes import (
    FIRST,
    LAST,
    MIDDLE,
    ONLY,
    OPCODES,
    RC,
    READ_RESPONSE,
    SEND,
    UC,
    WRITE,
    Opcode,
)

LENGTH_OFFSET = BTH_BYTES + 12
"""Of the RETH's DMA length."""

_BY_SHAPE = {
    (opcode.service, opcode.operation, opcode.position, opcode.headers): code
    for code, opcode in OPCODES.items()
}


class Tamperer:
    """``instead`` makes malformed packets of ``share`` of the requests and READ responses; ``seed`` decides
    all dice.
    """

    def __init__(self, seed: str, share: float, frames: Frames) -> None:
        self._dice = random.Random(seed)
        self._share = share
        self._frames = frames

    def instead(self, route: Any, data: bytes) -> bytes | None:
        """What arrives in place of what an adapter sent, or None."""
        if self._dice.random() >= self._share:
            return None
        packet = self._frames.transport(data)
        opcode = OPCODES[packet[0]]
        if opcode.service not in (RC, UC) or opcode.operation not in (SEND, WRITE, READ_RESPONSE):
            return None
        body = bytearray(packet[:-ICRC_BYTES])
        changes = [change for change in (self._shape, self._length, self._promise) if change(body[:], opcode)]
        if not changes:
            return None
        change: Callable[[bytearray, Opcode], bool] = self._dice.choice(changes)
        change(body, opcode)
        return self._frames.sealed(route, data, bytes(body))[0]

    def _shape(self, body: bytearray, opcode: Opcode) -> bool:
        """A packet that does not belong where it stands in its message."""
        position = {FIRST: MIDDLE, ONLY: LAST, MIDDLE: FIRST, LAST: ONLY}[opcode.position]
        code = _BY_SHAPE.get((opcode.service, opcode.operation, position, opcode.headers))
        if code is None or opcode.operation == READ_RESPONSE:
            return False
        if opcode.service == UC and opcode.position in (MIDDLE, LAST):
            return False  # an unreliable connection takes what begins a message at any time
        body[0] = code
        return True

    def _length(self, body: bytearray, opcode: Opcode) -> bool:
        """A packet in the middle of a message that is not full."""
        if opcode.position not in (FIRST, MIDDLE) or len(body) < BTH_BYTES + opcode.extension_bytes + 8:
            return False
        del body[-4:]
        return True

    def _promise(self, body: bytearray, opcode: Opcode) -> bool:
        """A write that says to be longer or shorter than it is."""
        if "reth" not in opcode.headers:
            return False
        length = int.from_bytes(body[LENGTH_OFFSET : LENGTH_OFFSET + 4], "big")
        if length < 2:
            return False
        wrong = length + self._dice.choice((-1, 1, 4))
        body[LENGTH_OFFSET : LENGTH_OFFSET + 4] = wrong.to_bytes(4, "big")
        return True
