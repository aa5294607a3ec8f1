"""Which IPv4 identification a packet bore, found from its ICRC.

The ICRC covers the identification, which an ordinary UDP socket does not show.  A CRC is linear: over GF(2)
the difference between the ICRC for a supposed identification and the one received is the 16 differing bits,
as a polynomial, times x^(32 + bits behind them), modulo the generator.  The generator's x has the order 2^32
− 1, so multiplying by the inverse power brings the 16 bits back; the other 16 bits of the product are zero
for a sound packet, and for a damaged one only once in 2^16.
"""

import cython

from softhca.wire.route import ROCE_V4

_POLYNOMIAL = cython.declare(cython.uint, 0xEDB88320)
_ONE = cython.declare(cython.uint, 0x80000000)
_ORDER = cython.declare(cython.ulonglong, 0xFFFFFFFF)
# Behind the identification: 14 bytes of IPv4, 8 of UDP, the transport packet without its ICRC; and the CRC's
# own shift.
_BEHIND_BYTES = cython.declare(cython.uint, 14 + 8 - 4)
_CRC_BITS = cython.declare(cython.uint, 32)

MAX_TRANSPORT_BYTES = 65_507  # the longest UDP payload over IPv4
_LONGEST = cython.declare(cython.uint, 65_507)

_powers: dict[int, int] = {}


def multiply(a, b):
    """Product of two polynomials modulo the generator; bit 31 is x^0, as in the CRC's own register."""
    product: cython.uint = 0
    bit: cython.uint = 0x80000000
    while bit:
        if a & bit:
            product ^= b
        b = (b >> 1) ^ _POLYNOMIAL if b & 1 else b >> 1
        bit >>= 1
    return product


def power_of_x(exponent):
    """x^exponent modulo the generator."""
    result: cython.uint = 0x80000000
    square: cython.uint = 0x40000000
    while exponent:
        if exponent & 1:
            result = multiply(result, square)
        square = multiply(square, square)
        exponent >>= 1
    return result


def recover(route, difference, transport_bytes, hint=-1, window=0x10000):
    """The identification of a packet of ``transport_bytes`` (BTH…ICRC) on ``route``, or −1.

    ``difference`` is :func:`softhca.wire.icrc.syndrome` for ``route.identification``.  −1: no identification
    explains it, or the one that does lies further than ``window`` (either way, modulo 2^16) from ``hint``,
    the sender's last; ``hint`` −1 takes any.  Not for other framings than RoCEv2/IPv4 (−1).
    """
    found: cython.uint
    product: cython.uint
    bits: cython.ulonglong
    distance: cython.uint
    if route.framing != ROCE_V4 or transport_bytes < 16 or transport_bytes > _LONGEST:
        return -1
    inverse = _powers.get(transport_bytes)
    if inverse is None:  # one entry a length, so it stays bounded
        bits = _CRC_BITS + 8 * (_BEHIND_BYTES + transport_bytes)
        inverse = _powers[transport_bytes] = power_of_x(_ORDER - bits)
    product = multiply(difference, inverse)
    if product & 0xFFFF:
        return -1
    # the low byte of what is left is the first on the wire
    found = route.identification ^ ((product >> 16 & 0xFF) << 8 | product >> 24)
    if hint >= 0:
        distance = (found - hint) & 0xFFFF
        if distance > window and 0x10000 - distance > window:
            return -1
    return found
