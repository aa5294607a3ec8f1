"""The library and an adapter process, once for the tests of a file."""

import socket

import pytest
from native_world import World, built


@pytest.fixture(scope="session")
def libibverbs(tmp_path_factory):
    return built(tmp_path_factory.mktemp("libibverbs"))


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
