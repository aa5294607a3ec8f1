"""Flow control of a link's virtual lanes by credits (IBTA vol. 1, 7.9).

The sender counts the blocks that it has sent since the link came up (FCTBS, total blocks sent), the
receiver those that it has received and, after a loss, should have (ABR, adjusted blocks received).  The
receiver tells up to which count there is room (FCCL, the credit limit).  All are 12-bit numbers that wrap.
A packet may be sent when the limit is not passed, as C7-56 has it: (FCCL − count behind the packet) mod
4096 ≤ 2048.

What a lost packet took is given back when the receiver learns the sender's count, which both sides say in
each flow control packet.
"""

from __future__ import annotations

import cython

from softhca.fabric.switching.packet import DATA_VLS

COUNT_MASK = cython.declare(cython.int, 0xFFF)
FARTHEST = cython.declare(cython.int, 2048)
"""A limit is never so many blocks ahead or more."""


class CreditSender:
    """The sending side: ``sent`` is FCTBS and ``limit`` FCCL of each lane."""

    __slots__ = ("limit", "sent")

    def __init__(self) -> None:
        zeros: list[int] = [0] * DATA_VLS
        self.sent = zeros
        self.limit = list(zeros)

    def allows(self, vl: int, blocks: int) -> bool:
        """Whether a packet of so many blocks may be sent on ``vl`` (C7-56)."""
        limit: cython.int = self.limit[vl]
        sent: cython.int = self.sent[vl]
        return (limit - sent - blocks) & COUNT_MASK <= FARTHEST

    def send(self, vl: int, blocks: int) -> None:
        """It was sent."""
        sent: cython.int = self.sent[vl]
        self.sent[vl] = sent + blocks & COUNT_MASK

    def hear(self, vl: int, limit: int) -> None:
        """The receiver says up to which count there is room."""
        self.limit[vl] = limit


class CreditReceiver:
    """The receiving side, with a buffer of ``capacity_blocks`` for each lane in use.

    ``received`` is ABR; ``advertised`` the last limit that the sender was advertised.
    """

    __slots__ = ("advertised", "capacity_blocks", "received", "used")

    def __init__(self, capacity_blocks: int, lanes: int) -> None:
        zeros: list[int] = [0] * DATA_VLS
        capacity: list[int] = [capacity_blocks if vl < lanes else 0 for vl in range(DATA_VLS)]
        self.capacity_blocks = capacity
        self.received = zeros
        self.advertised = list(zeros)
        self.used = list(zeros)

    def take(self, vl: int, blocks: int) -> bool:
        """A packet has arrived; False where there is no room, which its sender did not heed."""
        used: cython.int = self.used[vl]
        capacity: cython.int = self.capacity_blocks[vl]
        received: cython.int = self.received[vl]
        if used + blocks > capacity:
            return False
        self.used[vl] = used + blocks
        self.received[vl] = received + blocks & COUNT_MASK
        return True

    def free(self, vl: int, blocks: int) -> None:
        """A packet has left the buffer."""
        used: cython.int = self.used[vl]
        self.used[vl] = used - blocks

    def limit(self, vl: int) -> int:
        """FCCL to tell now (C7-57): what was received and what there is room for."""
        capacity: cython.int = self.capacity_blocks[vl]
        used: cython.int = self.used[vl]
        received: cython.int = self.received[vl]
        room: cython.int = min(capacity - used, FARTHEST)
        return received + room & COUNT_MASK

    def advertise(self, vl: int) -> int:
        """The limit now, of which the sender is told."""
        limit: cython.int = self.limit(vl)
        self.advertised[vl] = limit
        return limit

    def unadvertised(self, vl: int) -> int:
        """Blocks of room that the sender does not know of."""
        advertised: cython.int = self.advertised[vl]
        return self.limit(vl) - advertised & COUNT_MASK

    def hear(self, vl: int, sent: int) -> int:
        """The sender says that it has sent so many: blocks that were lost on the way."""
        received: cython.int = self.received[vl]
        lost: cython.int = sent - received & COUNT_MASK
        self.received[vl] = sent & COUNT_MASK
        return lost
