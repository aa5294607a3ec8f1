"""Local route header, LRH (IBTA vol. 1, 7.7): the link layer's addresses of a native packet."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from softhca.wire.layout import Field, Header

LENGTH_BYTES = 8

# byte offsets
VL_LVER = 0
SL_LNH = 1
DLID = 2
PACKET_LENGTH = 4
SLID = 6

# link next header: what follows the LRH
LNH_RAW = 0  # RWH
LNH_IPV6 = 1  # a raw IPv6 packet
LNH_LOCAL = 2  # BTH
LNH_GLOBAL = 3  # GRH, then BTH

MAX_PACKET_LENGTH_WORDS = 0x7FF
# the longest packet without its VCRC is the MTU and this (7.7.8)
LONGEST_HEADERS_BYTES = 124


@dataclass(frozen=True, slots=True)
class Lrh(Header):
    """Virtual lane, link version, service level, link next header, destination LID, length, source LID.

    ``packet_length_words`` counts 4-byte words from the LRH's first byte to the ICRC's last (the VCRC is not
    counted).
    """

    LENGTH_BYTES: ClassVar[int] = LENGTH_BYTES
    LAYOUT: ClassVar[tuple[Field, ...]] = (
        Field("vl", 4),
        Field("lver", 4),
        Field("sl", 4),
        Field("reserved2", 2),
        Field("lnh", 2),
        Field("dlid", 16),
        Field("reserved5", 5),
        Field("packet_length_words", 11),
        Field("slid", 16),
    )

    vl: int = 0
    lver: int = 0
    sl: int = 0
    reserved2: int = 0
    lnh: int = 2
    dlid: int = 0
    reserved5: int = 0
    packet_length_words: int = 0
    slid: int = 0
