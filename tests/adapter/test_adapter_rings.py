"""Rings that a host asks for: the bounds of what is taken, and what they cost the adapter."""

import errno

import pytest

from softhca.adapter.rings import cost_of, layout_of
from softhca.memory.bits import SLOT_BYTES
from softhca.memory.host import HostMemory
from softhca.queues.ring import plan

BOUNDS = {"least_entries": 2, "most_entries": 8, "least_entry_bytes": 16, "most_entry_bytes": 32}


@pytest.fixture
def memory():
    made = HostMemory(SLOT_BYTES)
    yield made
    made.close()


def layout(memory, entries, body_bytes, more_pages=0):
    first = memory.allocate(8, contiguous=True)[0]
    runs = [(first, plan(entries, body_bytes) + more_pages)]
    ring = {"entries": entries, "body_bytes": body_bytes, "frames": runs}
    return layout_of(memory.address_map, ring, **BOUNDS)


@pytest.mark.parametrize(("entries", "body_bytes"), [(2, 32), (2, 64), (8, 32), (8, 8 * 32)])
def test_a_ring_at_the_bounds_is_taken(memory, entries, body_bytes):
    made = layout(memory, entries, body_bytes)
    assert (made.entries, made.body_bytes) == (entries, body_bytes)


@pytest.mark.parametrize(
    ("entries", "body_bytes", "more_pages"),
    [(1, 32, 0), (9, 64, 0), (2, 31, 0), (2, 65, 0), (8, 257, 0), (2, 32, -1), (2, 32, 1)],
)
def test_a_ring_beyond_them_is_refused(memory, entries, body_bytes, more_pages):
    with pytest.raises(OSError, match="entries") as caught:
        layout(memory, entries, body_bytes, more_pages)
    assert caught.value.errno == errno.EINVAL


def test_a_ring_needs_an_entry_whatever_the_limits_are(memory):
    ring = {"entries": 0, "body_bytes": 0, "frames": []}
    with pytest.raises(OSError, match="a ring here has"):
        layout_of(memory.address_map, ring, **{**BOUNDS, "least_entries": 0})


def test_a_ring_costs_an_address_a_page_and_where_it_is_filled_a_length_an_entry(memory):
    made = layout(memory, 8, 64)
    pages = plan(8, 64)
    assert (cost_of(made), cost_of(made, produces=True), cost_of(None, produces=True)) == (
        8 * pages, 8 * pages + 4 * 8, 0
    )  # fmt: skip
