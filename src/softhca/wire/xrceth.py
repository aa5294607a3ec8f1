"""XRC extended transport header, XRCETH (IBTA vol. 1, annex A14): requests of the XRC service."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from softhca.wire.layout import Field, Header

LENGTH_BYTES = 4

XRC_SRQ = 1  # byte offset


@dataclass(frozen=True, slots=True)
class Xrceth(Header):
    """Number of the shared receive queue at the destination.
    """

    LENGTH_BYTES: ClassVar[int] = LENGTH_BYTES
    LAYOUT: ClassVar[tuple[Field, ...]] = (
        Field("reserved8", 8),
        Field("xrc_srq", 24),
    )

    reserved8: int = 0
    xrc_srq: int = 0
