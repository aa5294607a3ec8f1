"""What the tests take their addresses from: nothing that another process has."""

import os
import socket
import subprocess
import sys
import tempfile
from itertools import islice
from pathlib import Path

import pytest

from loopback_addresses import ROCE_PORT, claimed_addresses

TAKE_THREE = """
import itertools
from loopback_addresses import claimed_addresses
print(*itertools.islice(claimed_addresses(59_998), 3))
"""


@pytest.fixture(autouse=True)
def own_claims(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No other run's."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


def taken_by_another() -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", TAKE_THREE], cwd=Path(__file__).parent, capture_output=True, check=True,
        text=True, env={**os.environ, "TMPDIR": tempfile.gettempdir()},
    )
    return done.stdout.split()


def test_no_two_processes_have_one_address() -> None:
    mine = list(islice(claimed_addresses(59_998), 4))
    assert len({*mine, *taken_by_another()}) == 7


def test_addresses_are_free_again_when_their_process_has_ended() -> None:
    assert taken_by_another() == taken_by_another()


def test_one_whose_port_is_taken_is_not_given() -> None:
    first = taken_by_another()[0]
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
        other.bind((first, ROCE_PORT))
        assert first not in taken_by_another()
