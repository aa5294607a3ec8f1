"""The library and an adapter process, once for the tests of a file."""

import os
import socket

import pytest
from native_world import World, built, sanitized_library


@pytest.fixture(scope="session")
def shared(tmp_path_factory):
    """A folder that all workers of this run have."""
    own = tmp_path_factory.getbasetemp()
    return own.parent if "PYTEST_XDIST_WORKER" in os.environ else own


@pytest.fixture(scope="session")
def libibverbs(shared):
    return built(shared / "libibverbs")


@pytest.fixture(scope="session")
def sanitized(shared):
    """What a program is told that is given the library with sanitizers."""
    return sanitized_library(shared / "sanitized")


@pytest.fixture(scope="module")
def world(libibverbs):
    found = World(libibverbs, "*")
    yield found
    found.close()


@pytest.fixture(scope="module")
def other(libibverbs):
    """A second adapter process, at another address."""
    found = World(libibverbs, "*")
    yield found
    found.close()


@pytest.fixture
def unused_port():
    """A TCP port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
