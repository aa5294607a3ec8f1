"""The three framings of a transport packet, and what its ICRC makes of the headers in front of the BTH.

IBTA vol. 1, 7.8.1 and annex A17.3.3: fields that change on the way count as ones.  A native packet inside a
subnet keeps its LRH but for the virtual lane; one with a GRH may pass routers, so its whole LRH is taken as
ones.  RoCE has no LRH and puts eight bytes of ones in its place.
"""

from __future__ import annotations

NATIVE = 0
ROCE_V4 = 1
ROCE_V6 = 2

DUMMY_LRH = b"\xff" * 8

# (offset, length) of what counts as ones, from the start of the network headers
_IPV4_MASK = ((1, 1), (8, 1), (10, 2), (26, 2))  # ToS; TTL; header checksum; UDP checksum
_IPV6_MASK = ((1, 3), (7, 1), (46, 2))  # low traffic class and flow label; hop limit; UDP checksum
_GRH_MASK = ((0, 8), (9, 3), (15, 1))  # LRH; low traffic class and flow label; hop limit


def masked(framing: int, headers: bytes) -> bytes:
    """What the ICRC covers in front of the BTH.

    ``headers`` are the packet's own: IPv4 (without options) or IPv6 and UDP, or LRH with or without GRH.
    """
    result = bytearray(headers)
    if framing == NATIVE and len(headers) == len(DUMMY_LRH):
        result[0] |= 0xF0  # virtual lane
        return bytes(result)
    ranges = {NATIVE: _GRH_MASK, ROCE_V4: _IPV4_MASK, ROCE_V6: _IPV6_MASK}[framing]
    for offset, length in ranges:
        result[offset : offset + length] = b"\xff" * length
    if framing == ROCE_V4:
        return DUMMY_LRH + bytes(result)
    # the high half of the traffic class shares its byte with the version, which stays
    result[8 if framing == NATIVE else 0] |= 0x0F
    return bytes(result) if framing == NATIVE else DUMMY_LRH + bytes(result)
