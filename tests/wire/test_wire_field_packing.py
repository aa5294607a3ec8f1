"""Fields are packed as one long number would be, whatever shares a byte, a word or more with whom."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from softhca.wire.field_packing import FieldPacking
from softhca.wire.layout import Field

WIDTHS = st.lists(st.one_of(st.integers(1, 40), st.sampled_from([8, 16, 32, 64, 80])), min_size=1, max_size=7)


class Values:
    def __init__(self, values):
        self.__dict__.update(values)


@st.composite
def layouts(draw):
    """Groups of numbers that end with a byte, and byte strings."""
    fields = []
    for _ in range(draw(st.integers(1, 5))):
        if draw(st.booleans()):
            fields.append(("bytes", 8 * draw(st.integers(1, 20)), True))
            continue
        widths = draw(WIDTHS)
        rest = -sum(widths) % 8
        fields += [("number", width, False) for width in [*widths, *([rest] if rest else [])]]
    return tuple(Field(f"{kind}{place}", bits, kept) for place, (kind, bits, kept) in enumerate(fields))


def values_of(layout, number):
    """What the fields are in a number as long as all of them."""
    values, left = {}, sum(field.bits for field in layout)
    for field in layout:
        left -= field.bits
        value = number >> left & (1 << field.bits) - 1
        values[field.name] = value.to_bytes(field.bits // 8, "big") if field.as_bytes else value
    return values


@given(layouts(), st.data())
@settings(deadline=None)
def test_fields_are_the_bits_of_one_number(layout, data):
    length = sum(field.bits for field in layout) // 8
    whole = data.draw(st.binary(min_size=length, max_size=length))
    values = values_of(layout, int.from_bytes(whole, "big"))
    packing = FieldPacking(layout)
    found = packing.decode(b"before" + whole + b"behind", 6)
    assert found == values
    assert list(found) == [field.name for field in layout]
    assert packing.decode(memoryview(bytearray(whole)), 0) == values
    assert packing.encode(Values(values)) == whole


@given(layouts(), st.data())
@settings(deadline=None)
def test_what_does_not_fit_is_packed_by_nobody(layout, data):
    packing = FieldPacking(layout)
    values = values_of(layout, 0)
    assert packing.encode(Values(values)) is not None
    field = data.draw(st.sampled_from(layout))
    wrong = [b"", bytes(field.bits // 8 + 1), 1, None] if field.as_bytes else [1 << field.bits, -1, 0.5, "1"]
    assert packing.encode(Values({**values, field.name: data.draw(st.sampled_from(wrong))})) is None


@pytest.mark.parametrize("kept", [False, True])
def test_a_layout_may_have_one_field(kept):
    packing = FieldPacking((Field("only", 64, kept),))
    value = bytes(range(8)) if kept else 0x0001020304050607
    assert packing.encode(Values({"only": value})) == bytes(range(8))
    assert packing.decode(bytes(range(8)), 0) == {"only": value}
