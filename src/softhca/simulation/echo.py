"""Behind an RNR NAK: what some responders, or the network, let follow it, and what must not count.

A responder that refuses a packet is to be silent about what follows it (IBTA vol. 1, 9.7.5.2.8); there are
some that answer it with a sequence NAK of the same PSN.  And a network may repeat the RNR NAK itself.
"""

from __future__ import annotations

import random
from typing import Any

from softhca.simulation.frames import BTH_BYTES, ICRC_BYTES, Frames
from softhca.simulation.oracle_wire_packets import RNR_NAK, RNR_TIMERS_US
from softhca.wire.opcodes import RC_ACKNOWLEDGE

SEQUENCE_NAK = 0x60
SEQUENCE_SHARE, REPEATED_SHARE = 0.8, 0.4
"""Behind so many RNR NAKs comes the one, or the other."""


class Echo:
    """``seed`` decides all dice."""

    def __init__(self, seed: str, frames: Frames) -> None:
        self._dice = random.Random(seed)
        self._frames = frames

    def after(self, route: Any, data: bytes) -> list[tuple[bytes, int]]:
        """What comes behind a packet that an adapter sent, and how much later: the sequence NAK also when the
        delay is over, the same RNR NAK while it runs."""
        packet = self._frames.transport(data)
        if packet[0] != RC_ACKNOWLEDGE or packet[BTH_BYTES] >> 5 != RNR_NAK:
            return []
        dice, found = self._dice, []
        delay_ns = RNR_TIMERS_US[packet[BTH_BYTES] & 31] * 1_000
        if dice.random() < SEQUENCE_SHARE:
            body = bytearray(packet[:-ICRC_BYTES])
            body[BTH_BYTES] = SEQUENCE_NAK
            found.append((self._frames.sealed(route, data, bytes(body))[0], dice.randrange(3 * delay_ns)))
        if dice.random() < REPEATED_SHARE:
            found.append((data, dice.randrange(9 * delay_ns // 10)))
        return found
