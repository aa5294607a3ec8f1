"""CRCs of many bits a clock: each bit of the next state is an exclusive or of state and data bits.

Both CRCs of a packet work on bytes in the order of the wire, each byte's least significant bit first
(IBTA vol. 1, 7.8).  Which bits go into which is found by running the shift register once for every bit.
"""

from __future__ import annotations

from amaranth.hdl import Cat, Value

ICRC_POLYNOMIAL = 0xEDB88320
ICRC_BITS = 32
ICRC_RESIDUE = 0xDEBB20E3
"""The register behind a packet with a right ICRC, before the inversion."""
VCRC_POLYNOMIAL = 0xD008
VCRC_BITS = 16


def shifted(state: int, data: int, data_bits: int, polynomial: int) -> int:
    """The shift register after ``data``, whose most significant byte comes first on the wire."""
    for byte in data.to_bytes(data_bits // 8, "big"):
        state ^= byte
        for _ in range(8):
            state = state >> 1 ^ polynomial if state & 1 else state >> 1
    return state


def next_state(state: Value, data: Value, polynomial: int) -> Value:
    """The register after ``data`` (whole bytes, the first one on top), one clock later."""
    columns: list[tuple[Value, int]] = []
    for i in range(len(state)):
        columns.append((state[i], shifted(1 << i, 0, len(data), polynomial)))
    for i in range(len(data)):
        columns.append((data[i], shifted(0, 1 << i, len(data), polynomial)))
    return Cat(Cat(*(bit for bit, effect in columns if effect >> row & 1)).xor() for row in range(len(state)))


def swapped(value: Value) -> Value:
    """``value`` with its bytes in the other order."""
    return Cat(value.word_select(i, 8) for i in reversed(range(len(value) // 8)))
