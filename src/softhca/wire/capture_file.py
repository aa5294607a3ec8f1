"""What both kinds of capture file share: link types, the packet read from one, and the reader's bounds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from softhca.wire.errors import CaptureError

LINKTYPE_ETHERNET = 1
LINKTYPE_RAW = 101  # IPv4 or IPv6
LINKTYPE_LINUX_SLL = 113
LINKTYPE_IPV4 = 228
LINKTYPE_IPV6 = 229
LINKTYPE_INFINIBAND = 247  # LRH … VCRC
LINKTYPE_LINUX_SLL2 = 276

MAX_PACKET_BYTES = 262_144


@dataclass(frozen=True, slots=True)
class CapturedPacket:
    """One packet: ``number`` from 1, ``time_ns`` since 1970 (0: unknown), ``original_bytes`` on the wire."""

    number: int
    time_ns: int
    link_type: int
    data: bytes
    original_bytes: int


class Readable(Protocol):
    """What a capture is read from."""

    def read(self, length: int, /) -> bytes:
        """The next ``length`` bytes, fewer at the end."""


def read_exactly(stream: Readable, length: int, what: str) -> bytes:
    """``length`` bytes, or b"" at the end of the file; CaptureError when the file ends in between."""
    data = stream.read(length)
    if data and len(data) != length:
        raise CaptureError(f"the file ends inside {what}")
    return data
