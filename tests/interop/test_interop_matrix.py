"""The core of the matrix against the kernel's SoftRoCE, in one guest; the whole of it is `make interop`."""

from __future__ import annotations

from collections.abc import Iterator

import interop_cells  # noqa: F401    (registers the cells)
import pytest
from interop_image import images
from interop_matrix import CELLS, SHORT_SETTINGS, run
from interop_network import unavailable
from interop_packages import Unavailable
from interop_world import World

from machine_speed import limit_s

SERIES = "6.1"
pytestmark = pytest.mark.timeout(limit_s(1800))  # the first run of all builds the guest


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    """A guest and our programs next to it; skipped, with the reason, where there can be none."""
    reason = unavailable()
    if reason:
        pytest.skip(f"no guest with SoftRoCE: {reason}")
    try:
        found = images(print)
        started = World(found, found.kernels[SERIES])
    except Unavailable as error:
        pytest.skip(f"no guest with SoftRoCE: {error}")
    with started:
        yield started


@pytest.mark.parametrize("name", [each.name for each in CELLS.values() if each.core])
def test_both_sides_agree(world: World, name: str) -> None:
    outcomes = list(run(world.sides, [CELLS[name]], settings=SHORT_SETTINGS))
    assert outcomes
    assert not [f"{outcome.title}: {outcome.reason}" for outcome in outcomes if outcome.failed]
