"""VCRC: against long division done bit by bit, and as a guard of the whole link packet."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from softhca.wire import vcrc


def divided(data: bytes) -> int:
    """Remainder by x^16 + x^12 + x^3 + x + 1, bits in the order in which they go onto the wire."""
    register = 0xFFFF
    for byte in data:
        for bit in range(8):
            feedback = (register >> 15) ^ (byte >> bit & 1)
            register = register << 1 & 0xFFFF
            if feedback:
                register ^= 0x100B
    return int(f"{register ^ 0xFFFF:016b}"[::-1], 2)


@given(st.binary(max_size=200))
def test_it_is_the_remainder_of_the_standards_polynomial(data: bytes) -> None:
    assert vcrc.compute(data) == divided(data)


@pytest.mark.parametrize("length", range(50))
def test_every_length_around_the_steps_of_sixteen_bytes(length: int) -> None:
    data = bytes((37 * n + 11) & 0xFF for n in range(length))
    assert vcrc.compute(data) == divided(data)


@given(st.binary(max_size=50), st.binary(max_size=50), st.binary(max_size=50))
def test_a_range_of_a_buffer_counts_alone(before: bytes, data: bytes, behind: bytes) -> None:
    buffer = bytearray(before + data + behind)
    assert vcrc.compute(buffer, len(before), len(data)) == vcrc.compute(data)
    assert vcrc.compute(memoryview(buffer), len(before)) == vcrc.compute(data + behind)


@pytest.mark.parametrize(("offset", "length"), [(-1, 2), (0, 5), (4, 1), (5, -1), (2, 2**40)])
def test_a_range_outside_the_buffer_is_refused(offset: int, length: int) -> None:
    with pytest.raises(IndexError):
        vcrc.compute(bytes(4), offset, length)


@given(st.binary(min_size=1, max_size=60), st.data())
def test_one_wrong_bit_shows(data: bytes, draw: st.DataObject) -> None:
    bit = draw.draw(st.integers(0, 8 * len(data) - 1))
    damaged = bytearray(data)
    damaged[bit // 8] ^= 1 << bit % 8
    assert vcrc.compute(damaged) != vcrc.compute(data)


def test_known_values() -> None:
    assert vcrc.compute(b"") == 0
    assert vcrc.compute(b"123456789") == divided(b"123456789")
    # appending a CRC to its message leaves a remainder that does not depend on the message
    ends = {
        vcrc.compute(m + vcrc.compute(m).to_bytes(2, "little")) for m in (b"", b"a", bytes(99), b"softhca")
    }
    assert len(ends) == 1
