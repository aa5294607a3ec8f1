"""The connection over which two ends of a test speak: what it reads, how it ends, and where it listens."""

from __future__ import annotations

import select
import socket
import struct
from collections.abc import Iterator
from typing import Any

import pytest

from softhca.cli import control
from softhca.cli.control import ControlConnection, accept, connect, listen
from softhca.cli.errors import CommandError

Ends = tuple[ControlConnection, socket.socket]


@pytest.fixture
def ends() -> Iterator[Ends]:
    """A control connection, and the plain socket at its other end."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        peer = socket.create_connection(listener.getsockname())
        connection = ControlConnection(listener.accept()[0])
    with peer, connection:
        yield connection, peer


def test_as_much_is_read_as_was_asked_for(ends: Ends) -> None:
    connection, peer = ends
    peer.sendall(b"abcdef")
    assert connection.receive(0) == b""
    assert [connection.receive(length) for length in (2, 1, 3)] == [b"ab", b"c", b"def"]


def test_what_comes_in_parts_is_read_to_its_end_and_no_further() -> None:
    parts = [b"ab", b"cdef"]

    class Parts:
        """A socket that gives what there is, up to what it is asked for."""

        def setsockopt(self, *_: object) -> None:
            pass

        def settimeout(self, _: object) -> None:
            pass

        def recv(self, length: int) -> bytes:
            part = parts[0][:length]
            parts[0] = parts[0][length:]
            if not parts[0]:
                del parts[0]
            return part

    connection = ControlConnection(Parts())  # type: ignore[arg-type]
    assert [connection.receive(length) for length in (3, 2, 1)] == [b"abc", b"de", b"f"]


def test_a_peer_that_goes_is_one_line(ends: Ends) -> None:
    connection, peer = ends
    peer.sendall(b"ab")
    peer.shutdown(socket.SHUT_WR)
    with pytest.raises(CommandError, match="in the middle of the exchange"):
        connection.receive(3)
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    peer.close()
    for step in (lambda: connection.receive(1), lambda: connection.send(bytes(1 << 20))):
        with pytest.raises(CommandError):
            step()


def test_a_silent_peer_is_told_as_one(ends: Ends) -> None:
    connection, _ = ends
    with pytest.raises(CommandError, match=r"silent for 0\.001 s"):
        connection.receive(1, 0.001)


@pytest.mark.parametrize(("timeout_s", "asked_ms"), [(None, None), (0.0, 0), (1.5, 1500)])
def test_a_wait_is_as_long_as_it_says(
    ends: Ends, monkeypatch: pytest.MonkeyPatch, timeout_s: float | None, asked_ms: float | None
) -> None:
    connection, peer = ends
    asked: list[float | None] = []

    class Poll:
        def __init__(self) -> None:
            self.real = plain()

        def register(self, *arguments: Any) -> None:
            self.real.register(*arguments)

        def poll(self, milliseconds: float | None) -> Any:
            asked.append(milliseconds)
            return self.real.poll(0)

    plain = select.poll
    monkeypatch.setattr(control.select, "poll", Poll)
    assert not connection.readable(timeout_s)
    peer.sendall(b"x")
    assert connection.readable(timeout_s)
    assert asked == [asked_ms] * 2


def test_who_parts_says_so_and_waits_for_the_other(ends: Ends, monkeypatch: pytest.MonkeyPatch) -> None:
    connection, peer = ends
    waited: list[float] = []

    def readable(timeout_s: float) -> bool:
        waited.append(timeout_s)
        assert peer.recv(1) == b""  # it has been told
        return True

    monkeypatch.setattr(connection, "readable", readable)
    connection.part(7.0)
    assert waited == [7.0]


@pytest.mark.parametrize("address", ["", "127.0.0.1", "::1"])
def test_one_connection_is_taken_and_the_port_is_free_again(address: str) -> None:
    listener = listen(0, address)
    port = listener.getsockname()[1]
    with pytest.raises(CommandError, match=f"cannot listen on port {port}") as taken:
        listen(port, address)
    assert taken.value.remedy == "take another one at both ends: --port"
    with pytest.raises(CommandError) as strange:  # nobody here has that address
        listen(port, "192.0.2.77")
    assert strange.value.remedy == ""
    with connect(address or "127.0.0.1", port) as one, accept(listener) as other:
        one.send(b"hello")
        assert other.receive(5) == b"hello"
        assert listener.fileno() == -1
        with pytest.raises(CommandError, match=f"cannot connect to .* port {port}"):
            connect(address or "127.0.0.1", port)
