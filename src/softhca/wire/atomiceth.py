"""Atomic extended transport header, AtomicETH (IBTA vol. 1, 9.3.4)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from softhca.wire.layout import Field, Header

LENGTH_BYTES = 28

# byte offsets
VA = 0
RKEY = 8
SWAP_ADD = 12
COMPARE = 20


@dataclass(frozen=True, slots=True)
class AtomicEth(Header):
    """Operands of CmpSwap (``swap_add`` and ``compare``) or FetchAdd (``swap_add`` only).
    """

    LENGTH_BYTES: ClassVar[int] = LENGTH_BYTES
    LAYOUT: ClassVar[tuple[Field, ...]] = (
        Field("va", 64),
        Field("rkey", 32),
        Field("swap_add", 64),
        Field("compare", 64),
    )

    va: int = 0
    rkey: int = 0
    swap_add: int = 0
    compare: int = 0
