"""RDMA extended transport header, RETH (IBTA vol. 1, 9.3.3): where an RDMA WRITE or READ goes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from softhca.wire.layout import Field, Header

LENGTH_BYTES = 16

# byte offsets
VA = 0
RKEY = 8
DMA_LENGTH = 12


@dataclass(frozen=True, slots=True)
class Reth(Header):
    """Virtual address, R_Key, and length of the whole operation (at most 2^31 bytes, C9-9).
    """

    LENGTH_BYTES: ClassVar[int] = LENGTH_BYTES
    LAYOUT: ClassVar[tuple[Field, ...]] = (
        Field("va", 64),
        Field("rkey", 32),
        Field("dma_length_bytes", 32),
    )

    va: int = 0
    rkey: int = 0
    dma_length_bytes: int = 0
