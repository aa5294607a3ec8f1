"""Fixtures of the memory room: pageable memory whose pages are all there, or come when they are asked for."""

import pytest
from paged_world import World
from region_world import ALL

from softhca.memory.regions import ON_DEMAND


@pytest.fixture
def world():
    made = World()
    yield made
    made.memory.close()


@pytest.fixture
def lazy():
    made = World(rights=ALL | ON_DEMAND)
    yield made
    made.memory.close()
