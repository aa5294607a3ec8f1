"""Immediate data extended transport header, ImmDt (IBTA vol. 1, 9.3.6)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from softhca.wire.layout import Field, Header

LENGTH_BYTES = 4

IMMEDIATE = 0  # byte offset


@dataclass(frozen=True, slots=True)
class ImmDt(Header):
    """Four bytes that go into the receiver's completion.
    """

    LENGTH_BYTES: ClassVar[int] = LENGTH_BYTES
    LAYOUT: ClassVar[tuple[Field, ...]] = (
        Field("immediate", 32),
    )

    immediate: int = 0
