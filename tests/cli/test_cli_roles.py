"""What the two ends of a test are told of their adapters."""

import argparse
import contextlib
import os

import pytest

from softhca.cli import roles
from softhca.cli.errors import UsageError


@pytest.fixture
def connection(monkeypatch):
    """A function that makes the control connection of some arguments; what devices there are then."""

    @contextlib.contextmanager
    def nobody(*_):
        yield None

    monkeypatch.setattr(roles, "connect", nobody)
    monkeypatch.setattr(roles, "accept", nobody)
    monkeypatch.setattr(roles, "listen", lambda *_: None)

    def connected(devices, **arguments):
        monkeypatch.setenv("SOFTHCA_DEVICES", devices)
        words = {"host": None, "listen": False, "listen_fd": None, "port": 1, "command": "perf", "faults": ""}
        with roles.control_connection(argparse.Namespace(**words | arguments), []):
            return os.environ["SOFTHCA_DEVICES"]

    return connected


@pytest.mark.parametrize("role", [{"host": "127.0.0.1"}, {"listen": True}])
@pytest.mark.parametrize(("link", "option"), [("udp", 0), ("shm", 1)])
def test_what_is_measured_is_the_link_that_was_named(connection, role, link, option):
    """Also where the peer is on this machine, in a process that somebody else started."""
    assert connection("", link=link, **role) == f"softhca0=udp:*?same_host={option}"
    assert connection("a=udp:lo?mtu=512", link=link, **role) == f"a=udp:lo?mtu=512&same_host={option}"


def test_a_command_without_a_link_leaves_devices_as_they_are(connection):
    assert connection("a=udp:lo", host="127.0.0.1") == "a=udp:lo"


def test_devices_that_cannot_be_are_left_to_who_opens_them(connection):
    assert connection("a=tcp:1", host="127.0.0.1", link="udp") == "a=tcp:1"


@pytest.mark.parametrize(("words", "option"), [({}, None), ({"link": "udp"}, False), ({"link": "shm"}, True)])
def test_the_second_process_shares_memory_as_the_link_says(connection, monkeypatch, words, option):
    asked = []

    @contextlib.contextmanager
    def second(arguments, same_host):
        asked.append(same_host)
        yield None

    monkeypatch.setattr(roles, "second_process", second)
    connection("", **words)
    assert asked == [option]


def test_an_end_is_a_client_or_a_server(connection):
    with pytest.raises(UsageError, match="exclude each other"):
        connection("", host="127.0.0.1", listen=True)


def test_a_host_of_a_fabric_starts_no_second_process(connection):
    with pytest.raises(UsageError, match="a host of a fabric is one end"):
        connection("a=fabric:sim/h1")
    assert connection("a=fabric:sim/h1", listen=True) == "a=fabric:sim/h1"
