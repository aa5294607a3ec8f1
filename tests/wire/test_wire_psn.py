"""PSN arithmetic (IBTA vol. 1, 9.7.1)."""

from hypothesis import given
from hypothesis import strategies as st

from softhca.wire import psn

PSNS = st.integers(0, psn.MASK)


@given(PSNS, st.integers(-(2**23), 2**23 - 1))
def test_distance_undoes_addition(start: int, n: int) -> None:
    end = psn.add(start, n)
    assert 0 <= end <= psn.MASK
    assert psn.distance(start, end) == n


@given(PSNS, st.integers(-(2**30), 2**30))
def test_addition_wraps_at_24_bits(start: int, n: int) -> None:
    assert psn.add(start, n) == (start + n) % 2**24


@given(PSNS, PSNS)
def test_distance_is_antisymmetric_but_at_half_the_space(a: int, b: int) -> None:
    if (a - b) % 2**24 == 2**23:
        assert psn.distance(a, b) == psn.distance(b, a) == -(2**23)
    else:
        assert psn.distance(a, b) == -psn.distance(b, a)


def test_the_wrap_is_one_step() -> None:
    assert psn.MASK == 0xFFFFFF
    assert psn.add(0xFFFFFF, 1) == 0
    assert psn.add(0, -1) == 0xFFFFFF
    assert psn.distance(0xFFFFFF, 0) == 1
    assert psn.distance(0, 0xFFFFFF) == -1
    assert psn.distance(0, 2**23 - 1) == 2**23 - 1
