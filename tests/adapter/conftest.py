"""Fixtures of the adapter's tests."""

import pytest
from rd_trio import Trio


@pytest.fixture
def trio():
    made = []

    def make(*arguments, **options):
        made.append(Trio(*arguments, **options))
        return made[-1]

    yield make
    for each in made:
        each.network.close()
