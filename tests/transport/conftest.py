"""Fixture `pair`: connected pairs of queue pairs (`softhca.testing.transport_pair`)."""

import pytest

from softhca.testing.transport_pair import Pair


@pytest.fixture
def pair():
    made = []

    def make(**settings):
        made.append(Pair(**settings))
        return made[-1]

    yield make
    for each in made:
        each.close()
