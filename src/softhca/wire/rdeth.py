"""Reliable datagram extended transport header, RDETH (IBTA vol. 1, 9.3.1)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from softhca.wire.layout import Field, Header

LENGTH_BYTES = 4

EE_CONTEXT = 1  # byte offset


@dataclass(frozen=True, slots=True)
class Rdeth(Header):
    """Number of the end-to-end context at the destination.
    """

    LENGTH_BYTES: ClassVar[int] = LENGTH_BYTES
    LAYOUT: ClassVar[tuple[Field, ...]] = (
        Field("reserved8", 8),
        Field("ee_context", 24),
    )

    reserved8: int = 0
    ee_context: int = 0
