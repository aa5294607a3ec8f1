"""The tests of wire have samples of packets."""

import gc
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parent.parent / "wire"))


@pytest.fixture(scope="module", autouse=True)
def garbage_is_seldom_looked_for() -> Iterator[None]:
    """Gates that are simulated are hundreds of thousands of objects that stay while a file's tests run; the
    collector, which would go through them again and again, took a quarter of the time."""
    usual = gc.get_threshold()
    gc.set_threshold(10_000, 50, 100)
    yield
    gc.set_threshold(*usual)
