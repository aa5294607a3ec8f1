"""ACK extended transport header, AETH (IBTA vol. 1, 9.3.5): what a responder says of the packets up to its
PSN.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from softhca.wire.layout import Field, Header

LENGTH_BYTES = 4

# byte offsets
SYNDROME = 0
MSN = 1

# bits 6…5 of the syndrome say which kind it is, bits 4…0 hold a value (table 45)
KIND_MASK = 0x60
VALUE_MASK = 0x1F
KIND_ACK = 0x00  # value: encoded credit count
KIND_RNR_NAK = 0x20  # value: encoded RNR timer
KIND_NAK = 0x60  # value: one of the codes below

NAK_PSN_SEQUENCE = 0
NAK_INVALID_REQUEST = 1
NAK_REMOTE_ACCESS = 2
NAK_REMOTE_OPERATIONAL = 3
NAK_INVALID_RD_REQUEST = 4

CREDITS_INVALID = 0x1F  # "no end-to-end credits here"


@dataclass(frozen=True, slots=True)
class Aeth(Header):
    """``syndrome``: ACK with credits, RNR NAK with timer or NAK with code; ``msn``: message sequence number.
    """

    LENGTH_BYTES: ClassVar[int] = LENGTH_BYTES
    LAYOUT: ClassVar[tuple[Field, ...]] = (
        Field("syndrome", 8),
        Field("msn", 24),
    )

    syndrome: int = 0
    msn: int = 0
