"""Datagram extended transport header, DETH (IBTA vol. 1, 9.3.2): UD packets and RD requests."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from softhca.wire.layout import Field, Header

LENGTH_BYTES = 8

# byte offsets
QKEY = 0
SOURCE_QP = 5


@dataclass(frozen=True, slots=True)
class Deth(Header):
    """Q_Key that the destination queue pair checks, and the queue pair that sent the packet.
    """

    LENGTH_BYTES: ClassVar[int] = LENGTH_BYTES
    LAYOUT: ClassVar[tuple[Field, ...]] = (
        Field("qkey", 32),
        Field("reserved8", 8),
        Field("source_qp", 24),
    )

    qkey: int = 0
    reserved8: int = 0
    source_qp: int = 0
