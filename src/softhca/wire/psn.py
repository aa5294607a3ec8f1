"""Arithmetic of packet sequence numbers: 24 bits that wrap (IBTA vol. 1, 9.7.1).

Two PSNs are comparable only while they lie less than 2^23 apart; the transport never has more in flight
(C9-60).
"""

import cython

MASK = 0xFFFFFF


def add(psn, n):
    """The PSN `n` packets after `psn` (before it, where `n` is negative)."""
    return (psn + n) & 0xFFFFFF


def distance(a, b):
    """How many packets `b` lies after `a`: −2^23 … 2^23 − 1, negative where `b` is the earlier one."""
    gap: cython.int = (b - a) & 0xFFFFFF
    return gap - 0x1000000 if gap & 0x800000 else gap
