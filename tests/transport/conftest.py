"""Fixture `pair`: makes connected pairs of queue pairs (see transport_pair.py) and takes them down."""

import pytest
from transport_pair import Pair


@pytest.fixture
def pair():
    made = []

    def make(**settings):
        made.append(Pair(**settings))
        return made[-1]

    yield make
    for each in made:
        each.close()
