"""FLUSH extended transport header, FETH (IBTA vol. 1, annex A19): what an RDMA FLUSH makes of which bytes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from softhca.wire.layout import Field, Header

LENGTH_BYTES = 4

# placement types, bits
GLOBAL_VISIBILITY = 1
PERSISTENCE = 2

# selectivity levels
RANGE = 0
REGION = 1


@dataclass(frozen=True, slots=True)
class Feth(Header):
    """Selectivity level (the RETH's range, or the whole region of its key) and placement types.
    """

    LENGTH_BYTES: ClassVar[int] = LENGTH_BYTES
    LAYOUT: ClassVar[tuple[Field, ...]] = (
        Field("reserved26", 26),
        Field("selectivity", 2),
        Field("placement", 4),
    )

    reserved26: int = 0
    selectivity: int = 0
    placement: int = 0
