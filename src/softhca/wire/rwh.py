"""Raw header, RWH (IBTA vol. 1, 5.2.4): a raw packet that carries an Ethernet type."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from softhca.wire.layout import Field, Header

LENGTH_BYTES = 4

ETHERTYPE = 2  # byte offset


@dataclass(frozen=True, slots=True)
class Rwh(Header):
    """Type of the raw payload that follows.
    """

    LENGTH_BYTES: ClassVar[int] = LENGTH_BYTES
    LAYOUT: ClassVar[tuple[Field, ...]] = (
        Field("reserved16", 16),
        Field("ethertype", 16),
    )

    reserved16: int = 0
    ethertype: int = 0
