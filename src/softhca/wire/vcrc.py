"""Variant CRC (IBTA vol. 1, 7.8.2): guards a native packet on one link, from the LRH to the ICRC.

CRC-16 with the polynomial x^16 + x^12 + x^3 + x + 1 (0x100B), least significant bit first, begun with ones,
inverted at the end; sent with the CRC's least significant byte first.
"""

from array import array

import cython

LENGTH_BYTES = 2


def _make_table():
    table = array("H", [0]) * 256
    for index in range(256):
        value: cython.uint = index
        for _ in range(8):
            value = value >> 1 ^ 0xD008 if value & 1 else value >> 1  # 0x100B with its bits reversed
        table[index] = value
    return table


_TABLE = cython.declare(cython.ushort[::1], _make_table())


def compute(data, offset=0, length=-1):
    """VCRC of ``length`` bytes at ``offset`` of ``data`` (−1: to its end); IndexError outside ``data``."""
    state: cython.uint = 0xFFFF
    i: cython.Py_ssize_t
    if length < 0:
        length = len(data) - offset
    if offset < 0 or length < 0 or offset + length > len(data):
        raise IndexError("the range lies outside the packet")
    for i in range(offset, offset + length):
        state = state >> 8 ^ _TABLE[(state ^ data[i]) & 0xFF]
    return state ^ 0xFFFF
