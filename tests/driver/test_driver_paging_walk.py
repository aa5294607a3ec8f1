"""Some thousands of steps of the walk over pageable memory; ``make campaign`` takes a million."""

import pytest
from paging_walk import walk

OFTEN = (
    "request 0", "request 10", "held", "migrate 0", "swap_in 0", "quiesce 16", "swap_out 16", "set_rights 0",
    "bind 0", "bind 6", "dereg 16",
)  # fmt: skip


@pytest.mark.parametrize("seed", range(1, 5))
def test_every_call_gives_what_the_model_says_and_no_byte_is_lost(seed):
    seen = walk(seed, 1000)
    assert not [what for what in OFTEN if not seen.get(what)], "the walk misses what it is for"


def test_the_same_seed_walks_the_same_way():
    assert walk(77, 300) == walk(77, 300)
