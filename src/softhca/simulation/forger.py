"""A forger on the wire: its packets look like those that pass, with a right ICRC, and must change nothing.

Who knows a connection's addresses, queue pair and PSN can write into it, with InfiniBand as with any protocol
without secrets.  So every forgery is wrong in one thing that the receiver has to check: it comes from another
address, is for another partition, service, version or queue pair, has another Q_Key, or a PSN that lies far
from the expected one.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from softhca.simulation.frames import BTH_BYTES, ICRC_BYTES, Frames
from softhca.wire.opcodes import ACKNOWLEDGE, OPCODES, RC, RC_SEND_ONLY_WITH_INVALIDATE, UD

DELAY_NS = 20_000
NEAR = 1 << 16
"""Forged PSNs are at least so far from the real one: no world has so many packets."""

Forged = tuple[bytes, bytes | None, int]


class Forger:
    """``after`` makes a forgery behind ``share`` of the packets; ``seed`` decides all dice.  With
    ``withdraws`` it also asks that keys which it has seen be invalidated, with a PSN far from the right one.
    """

    def __init__(self, seed: str, share: float, frames: Frames, withdraws: bool = False) -> None:
        self._dice = random.Random(seed)
        self._withdraws = withdraws
        self._share = share
        self._frames = frames

    def after(self, route: Any, data: bytes) -> Forged | None:
        """Behind what an adapter sent: a forgery, the address that it seems to come from, and its delay; or
        None.
        """
        dice = self._dice
        packet = self._frames.transport(data)
        if dice.random() >= self._share:
            return None
        opcode = OPCODES[packet[0]]
        kinds: list[Callable[[bytearray], int | None]] = [
            self._partition, self._version, self._service, self._queue_pair,
        ]  # fmt: skip
        # who knows the Q_Key may send a datagram from anywhere
        kinds.append(self._qkey if opcode.service == UD else self._foreign_source)
        if opcode.service == RC:
            kinds += [self._far, self._far]
        if self._withdraws and "reth" in opcode.headers:
            kinds += [self._withdraw] * 4
        body = bytearray(packet[:-ICRC_BYTES])
        if opcode.operation != ACKNOWLEDGE and len(body) > BTH_BYTES + opcode.extension_bytes:
            body[-1] ^= 0xFF  # not the same bytes: what is taken in by mistake shows
        source = dice.choice(kinds)(body) or 0
        forged, gid = self._frames.sealed(route, data, bytes(body), source)
        return forged, gid, dice.randrange(DELAY_NS)

    def _foreign_source(self, body: bytearray) -> int:
        """From another address."""
        return self._dice.randrange(200, 250)

    def _partition(self, body: bytearray) -> None:
        """Of another partition."""
        body[2:4] = self._dice.randrange(0x8001, 0xFFFE).to_bytes(2, "big")

    def _version(self, body: bytearray) -> None:
        """Of a transport version that does not exist yet."""
        body[1] |= self._dice.randrange(1, 16)

    def _service(self, body: bytearray) -> None:
        """Of another service."""
        other = self._dice.choice([service for service in range(8) if service != body[0] >> 5])
        body[0] = other << 5 | body[0] & 0x1F

    def _queue_pair(self, body: bytearray) -> None:
        """To a queue pair that does not exist (they are few, near each other)."""
        body[5] ^= self._dice.randrange(1, 256)

    def _qkey(self, body: bytearray) -> None:
        """Without the right Q_Key."""
        body[BTH_BYTES + self._dice.randrange(4)] ^= self._dice.randrange(1, 256)

    def _withdraw(self, body: bytearray) -> None:
        """A SEND with Invalidate of the key that the request names, at a wrong PSN."""
        self._far(body)
        key = body[BTH_BYTES + 8 : BTH_BYTES + 12]
        body[0], body[1] = RC_SEND_ONLY_WITH_INVALIDATE, body[1] & 0xC0
        body[BTH_BYTES:] = key

    def _far(self, body: bytearray) -> None:
        """With a PSN far before or behind."""
        step = self._dice.choice((1, -1)) * self._dice.randrange(NEAR, 1 << 22)
        psn = int.from_bytes(body[9:12], "big") + step
        body[9:12] = (psn & 0xFFFFFF).to_bytes(3, "big")
