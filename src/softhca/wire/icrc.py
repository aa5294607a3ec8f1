"""Invariant CRC (IBTA vol. 1, 7.8.1): what guards a packet from its sender to its receiver.

CRC-32 with the Ethernet polynomial over the masked headers (``framing.py``) and all from the BTH to the last
pad byte; sent with the CRC's least significant byte first.
"""

import zlib

import cython

from softhca.machine.primitives import crc32
from softhca.wire.build import put_icrc
from softhca.wire.framing import masked

LENGTH_BYTES = 4


def compute(route, data_address, n):
    """ICRC of the packet whose BTH…pad, ``n`` bytes at ``data_address``, travels on ``route``.

    ``n`` counts neither the ICRC nor less than a BTH (ValueError).  The packet itself is not touched.
    """
    if n < 12:
        raise ValueError("a packet has at least a BTH of 12 bytes")
    state: cython.uint = crc32(route.seed(n + 4), route.masked_bth(data_address), 12)
    return crc32(state, data_address + 12, n - 12)


def syndrome(route, data_address, n):
    """Right ICRC XOR received ICRC of a packet BTH…ICRC, ``n`` bytes at ``data_address``: 0 when it is good.

    A packet too short to hold a BTH and an ICRC is never good.
    """
    if n < 16:
        return 0xFFFFFFFF
    right: cython.uint = compute(route, data_address, n - 4)
    return right ^ route.word(data_address + n - 4)


def seal(burst):
    """Make the ICRCs of a burst of RoCE packets that was written without them."""
    route = burst.route
    offset: cython.uint = 0
    n: cython.uint
    place: cython.uint = 0
    while offset < burst.length:
        n = min(burst.stride, burst.length - offset)
        if burst.counted:
            route.identification = place
        put_icrc(burst.data, offset + n - 4, compute(route, burst.address + offset, n - 4))
        offset += n
        place += 1
    burst.has_icrc = True


def of_packet(framing, headers, transport):
    """ICRC of a packet given as bytes: its own ``headers`` in front of the BTH, and BTH…pad.  For tools."""
    covered = masked(framing, headers) + transport[:4] + b"\xff" + transport[5:]
    return zlib.crc32(covered)
