"""Atomic acknowledge extended transport header, AtomicAckETH (IBTA vol. 1, 9.3.5.3)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from softhca.wire.layout import Field, Header

LENGTH_BYTES = 8

ORIGINAL = 0  # byte offset


@dataclass(frozen=True, slots=True)
class AtomicAckEth(Header):
    """Contents of the remote memory before the atomic operation.
    """

    LENGTH_BYTES: ClassVar[int] = LENGTH_BYTES
    LAYOUT: ClassVar[tuple[Field, ...]] = (
        Field("original", 64),
    )

    original: int = 0
