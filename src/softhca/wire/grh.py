"""Global route header, GRH (IBTA vol. 1, 8.3): between subnets, and in front of a multicast or UD payload."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from softhca.wire.layout import Field, Header

LENGTH_BYTES = 40

# byte offsets
VERSION_TCLASS_FLOW = 0
PAYLOAD_LENGTH = 4
NEXT_HEADER = 6
HOP_LIMIT = 7
SGID = 8
DGID = 24

VERSION = 6
NEXT_HEADER_IBA = 0x1B  # a BTH follows


@dataclass(frozen=True, slots=True)
class Grh(Header):
    """Shaped as an IPv6 header; ``sgid`` and ``dgid`` are 16 bytes each.

    ``payload_length_bytes`` counts from the first byte behind the GRH to the ICRC's last.
    """

    LENGTH_BYTES: ClassVar[int] = LENGTH_BYTES
    LAYOUT: ClassVar[tuple[Field, ...]] = (
        Field("version", 4),
        Field("traffic_class", 8),
        Field("flow_label", 20),
        Field("payload_length_bytes", 16),
        Field("next_header", 8),
        Field("hop_limit", 8),
        Field("sgid", 128, as_bytes=True),
        Field("dgid", 128, as_bytes=True),
    )

    version: int = 6
    traffic_class: int = 0
    flow_label: int = 0
    payload_length_bytes: int = 0
    next_header: int = NEXT_HEADER_IBA
    hop_limit: int = 0
    sgid: bytes = bytes(16)
    dgid: bytes = bytes(16)
