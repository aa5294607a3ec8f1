"""A sample of the programs that end amid calls; ``run_exits.py`` runs as many as one wants."""

import pytest
from run_exits import KINDS, fault


@pytest.mark.parametrize("kind", KINDS)
def test_a_program_whose_threads_are_in_calls_ends_in_silence(kind, loopback_address):
    assert not fault(kind, 11, (loopback_address(), loopback_address()))
