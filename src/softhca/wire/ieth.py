"""Invalidate extended transport header, IETH (IBTA vol. 1, 9.3.7)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from softhca.wire.layout import Field, Header

LENGTH_BYTES = 4

RKEY = 0  # byte offset


@dataclass(frozen=True, slots=True)
class Ieth(Header):
    """R_Key that the receiver of the SEND gives up.
    """

    LENGTH_BYTES: ClassVar[int] = LENGTH_BYTES
    LAYOUT: ClassVar[tuple[Field, ...]] = (
        Field("rkey", 32),
    )

    rkey: int = 0
