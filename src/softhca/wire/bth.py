"""Base transport header, BTH (IBTA vol. 1, 9.2): in every InfiniBand transport packet."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from softhca.wire.layout import Field, Header

LENGTH_BYTES = 12

# byte offsets
OPCODE = 0
FLAGS = 1  # solicited event 1 bit, MigReq 1, pad count 2, transport header version 4
PKEY = 2
CONGESTION = 4  # FECN, BECN and 6 reserved bits: the byte that the ICRC takes as ones
DEST_QP = 5
ACK_REQUEST = 8  # 1 bit, and 7 reserved bits that the ICRC does cover: the instance number, or 0
PSN = 9

FECN_BIT = 0x80
BECN_BIT = 0x40
SOLICITED_BIT = 0x80
MIGREQ_BIT = 0x40
ACK_REQUEST_BIT = 0x80


@dataclass(frozen=True, slots=True)
class Bth(Header):
    """``pad`` is the number of bytes (0…3) that fill the payload to whole words; ``tver`` is 0.

    ``migreq`` is 1 in the migrated state, which connections without path migration never leave.
    """

    LENGTH_BYTES: ClassVar[int] = LENGTH_BYTES
    LAYOUT: ClassVar[tuple[Field, ...]] = (
        Field("opcode", 8),
        Field("solicited", 1),
        Field("migreq", 1),
        Field("pad", 2),
        Field("tver", 4),
        Field("pkey", 16),
        Field("fecn", 1),
        Field("becn", 1),
        Field("reserved6", 6),
        Field("dest_qp", 24),
        Field("ack_request", 1),
        Field("reserved7", 7),
        Field("psn", 24),
    )

    opcode: int
    solicited: int = 0
    migreq: int = 1
    pad: int = 0
    tver: int = 0
    pkey: int = 0xFFFF
    fecn: int = 0
    becn: int = 0
    reserved6: int = 0
    dest_qp: int = 0
    ack_request: int = 0
    reserved7: int = 0
    psn: int = 0
