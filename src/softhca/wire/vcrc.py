"""Variant CRC (IBTA vol. 1, 7.8.2): guards a native packet on one link, from the LRH to the ICRC.

CRC-16 with the polynomial x^16 + x^12 + x^3 + x + 1 (0x100B), least significant bit first, begun with ones,
inverted at the end; sent with the CRC's least significant byte first.
"""

from array import array

import cython

LENGTH_BYTES = 2


_SLICE_BYTES = cython.declare(cython.Py_ssize_t, 16)


def _make_tables():
    """``tables[256 k + b]``: what byte ``b`` contributes when ``k`` more bytes of its slice follow it."""
    tables = array("H", [0]) * (256 * 16)
    for index in range(256):
        value: cython.uint = index
        for _ in range(8):
            value = value >> 1 ^ 0xD008 if value & 1 else value >> 1  # 0x100B with its bits reversed
        tables[index] = value
    for index in range(256, 256 * 16):
        value = tables[index - 256]
        tables[index] = value >> 8 ^ tables[value & 0xFF]
    return tables


_TABLES = cython.declare(cython.ushort[::1], _make_tables())


def compute(data, offset=0, length=-1):
    """VCRC of ``length`` bytes at ``offset`` of ``data`` (−1: to its end); IndexError outside ``data``."""
    state: cython.uint = 0xFFFF
    i: cython.Py_ssize_t = offset
    end: cython.Py_ssize_t
    if length < 0:
        length = len(data) - offset
    if offset < 0 or length < 0 or length > len(data) - offset:
        raise IndexError("the range lies outside the packet")
    end = offset + length
    # sixteen bytes a step: each by the table of its distance to the end of the step, so that they are
    # looked up side by side
    while i + _SLICE_BYTES <= end:
        state = (
            _TABLES[3840 + ((state ^ data[i]) & 0xFF)]
            ^ _TABLES[3584 + ((state >> 8 ^ data[i + 1]) & 0xFF)]
            ^ _TABLES[3328 + data[i + 2]]
            ^ _TABLES[3072 + data[i + 3]]
            ^ _TABLES[2816 + data[i + 4]]
            ^ _TABLES[2560 + data[i + 5]]
            ^ _TABLES[2304 + data[i + 6]]
            ^ _TABLES[2048 + data[i + 7]]
            ^ _TABLES[1792 + data[i + 8]]
            ^ _TABLES[1536 + data[i + 9]]
            ^ _TABLES[1280 + data[i + 10]]
            ^ _TABLES[1024 + data[i + 11]]
            ^ _TABLES[768 + data[i + 12]]
            ^ _TABLES[512 + data[i + 13]]
            ^ _TABLES[256 + data[i + 14]]
            ^ _TABLES[data[i + 15]]
        )
        i += _SLICE_BYTES
    while i < end:
        state = state >> 8 ^ _TABLES[(state ^ data[i]) & 0xFF]
        i += 1
    return state ^ 0xFFFF
