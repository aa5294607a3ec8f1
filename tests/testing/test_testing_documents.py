"""docs/testing.md: its example is a test that passes, and its table and limits are what the code has."""

import re
from pathlib import Path

import pytest

from softhca.testing import network

PAGE = (Path(__file__).parents[2] / "docs" / "testing.md").read_text()


EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


def test_there_is_an_example_of_a_network_and_one_of_the_transport():
    assert ["Network" in example for example in EXAMPLES] == [True, False]


@pytest.mark.parametrize("example", EXAMPLES, ids=["network", "transport"])
def test_an_example_is_a_test_of_ten_lines(example):
    body = [line for line in example.splitlines() if line.strip() and not line.startswith(("from", "import"))]
    assert len(body) <= 10
    names = {}
    exec(compile(example, "docs/testing.md", "exec"), names)
    tests = [function for name, function in names.items() if name.startswith("test_")]
    assert len(tests) == 1
    tests[0]()


def test_the_limits_are_those_that_hold():
    assert f"{network.MAX_ROUNDS:,} rounds" in PAGE
    assert f"{network.MAX_PACKETS_UNDER_WAY:,} packets" in PAGE
    assert (network.MAX_IDLE_POLLS, network.MINUTE_NS) == (1_000_000, 60 * 10**9)
