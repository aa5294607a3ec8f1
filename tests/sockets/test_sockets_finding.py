"""Who gets which connection: a stream belongs to the TCP connection that was named, or there is none."""

from __future__ import annotations

import socket as kernel
import subprocess
import sys
from collections.abc import Iterator

import pytest

from softhca import sockets
from softhca.sockets import completion_thread, connecting, listening, port_lookup

ACCEPTS_TOO = """
import sys
from softhca import sockets
server = sockets.socket(fileno=int(sys.argv[1]))
server.listen()
print("ready", flush=True)
connection, _ = server.accept()
connection.sendall(str(connection.stream).encode())
"""


@pytest.fixture
def server() -> Iterator[sockets.socket]:
    with sockets.create_server(("127.0.0.1", 0)) as made:
        assert made._listener is not None
        yield made


def speak(client: sockets.socket, accepting: kernel.socket, by_rdma: bool) -> None:
    """What is sent arrives, and goes by RDMA, or not."""
    accepted, _ = accepting.accept()
    with client, accepted:
        accepted.settimeout(20)
        assert (client.stream is not None) == by_rdma
        assert (getattr(accepted, "stream", None) is not None) == by_rdma
        client.sendall(b"hello")
        assert accepted.recv(5, kernel.MSG_WAITALL) == b"hello"


def test_a_port_is_served_only_at_its_address(server: sockets.socket) -> None:
    """Another socket has the same port number at another address, and speaks TCP alone."""
    port = server.getsockname()[1]
    with kernel.create_server(("127.0.0.2", port)) as plain:
        speak(sockets.create_connection(plain.getsockname()), plain, False)
    speak(sockets.create_connection(server.getsockname()), server, True)


def test_two_sockets_of_a_process_share_a_port_number(server: sockets.socket) -> None:
    port = server.getsockname()[1]
    with sockets.create_server(("127.0.0.2", port)) as second:
        for each in (server, second, server):
            speak(sockets.create_connection(each.getsockname()), each, True)
        server.close()
        speak(sockets.create_connection(second.getsockname()), second, True)


@pytest.mark.parametrize(("bound", "asked"), [("0.0.0.0", "127.0.0.1"), ("0.0.0.0", "127.0.0.3")])
def test_a_socket_of_all_addresses_serves_each(bound: str, asked: str) -> None:
    with sockets.create_server((bound, 0)) as everywhere:
        speak(sockets.create_connection((asked, everywhere.getsockname()[1])), everywhere, True)


def test_addresses_stand_for_their_family() -> None:
    four, six = connecting.mapped("192.0.2.1"), connecting.mapped("2001:db8::1")
    assert connecting.any_like(four) == connecting.mapped("0.0.0.0")
    assert connecting.any_like(six) == connecting.mapped("::")


def test_a_duplicate_accepts_the_same_connections(server: sockets.socket) -> None:
    again = server.dup()
    speak(sockets.create_connection(server.getsockname()), again, True)
    server.close()
    speak(sockets.create_connection(again.getsockname()), again, True)
    served = again._listener
    again.close()
    assert served is not None
    assert served.closed


def test_where_others_may_accept_too_the_port_is_served_by_tcp() -> None:
    with sockets.create_server(("127.0.0.1", 0), reuse_port=True) as shared:
        assert shared._listener is None
        speak(sockets.create_connection(shared.getsockname()), shared, False)


def test_another_process_that_accepts_there_ends_it(server: sockets.socket) -> None:
    number = server.fileno()
    command = [sys.executable, "-c", ACCEPTS_TOO, str(number)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, pass_fds=[number]) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        assert server._listener is not None
        assert server._listener.closed
        with sockets.create_connection(server.getsockname()) as client:
            assert client.stream is None
            assert client.recv(10) == b"None"
    assert process.returncode == 0


def test_what_was_promised_before_is_reset(server: sockets.socket) -> None:
    with sockets.create_connection(server.getsockname()) as client:
        assert client.stream is not None
        listening.end_elsewhere(server)  # as another process does
        with pytest.raises(ConnectionResetError):
            client.recv(1)


def test_nobody_gets_another_host_s_connection(
    server: sockets.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A request names a TCP address that is not where it comes from."""
    asking = connecting.ask

    def ask(gid: bytes, port: int, names: tuple[int, bytes, bytes], *rest: object) -> object:
        return asking(gid, port, (names[0], connecting.mapped("192.0.2.1"), names[2]), *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(connecting, "ask", ask)
    with sockets.create_connection(server.getsockname()) as client:
        assert client.stream is None


def test_the_first_stream_of_an_address_is_kept(server: sockets.socket) -> None:
    """Who asks a second time for the same TCP address gets none, and the first one its own."""
    with sockets.socket() as first:
        first.bind(("127.0.0.1", 0))
        first.connect(server.getsockname())
        names = first.getsockname()[1], connecting.mapped("127.0.0.1"), connecting.mapped("127.0.0.1")
        port = server.getsockname()[1]
        (gid,) = port_lookup.gids_of(port, connecting.mapped("127.0.0.1"))
        assert connecting.ask(gid, port, names, sockets.Settings(), 20) is None
        speak(first, server, True)


def test_attendants_of_closed_devices_are_forgotten() -> None:
    class Device:
        alive = True

    closed, other = Device(), Device()
    completion_thread.completion_thread_of(closed)  # type: ignore[arg-type]
    closed.alive = False
    completion_thread.completion_thread_of(other)  # type: ignore[arg-type]
    assert closed not in completion_thread._completion_threads
    assert completion_thread._completion_threads.pop(other)  # type: ignore[call-overload]


def test_nothing_is_served_where_nobody_listens() -> None:
    assert port_lookup.gids_of(1, connecting.mapped("127.0.0.1")) == []
    port_lookup.end_elsewhere(1, connecting.mapped("127.0.0.1"))
