"""Who gets which connection: a stream belongs to the TCP connection that was named, or there is none."""

from __future__ import annotations

import errno
import select
import socket as kernel
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest
from sockets_under_way import NoDevice, settled, speak

from machine_speed import limit_s
from softhca import sockets
from softhca.sockets import completion_thread, connecting, listening, port_lookup
from softhca.sockets.datagram_socket import DatagramSocket

Step = Callable[[], object]

ACCEPTS_TOO = """
import sys
from softhca import sockets
server = sockets.socket(fileno=int(sys.argv[1]))
server.listen()
print("ready", flush=True)
connection, _ = server.accept()
connection.sendall(str(connection.stream).encode())
"""


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
    server.setblocking(True)  # as the other process has it then
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
    closed, other = NoDevice(), NoDevice()
    completion_thread.completion_thread_of(closed)  # type: ignore[arg-type]
    closed.alive = False
    completion_thread.completion_thread_of(other)  # type: ignore[arg-type]
    assert closed not in completion_thread._completion_threads
    assert completion_thread._completion_threads.pop(other)  # type: ignore[call-overload]


def connected(name: Any) -> sockets.socket:
    """A client that would ask for long."""
    made = sockets.socket()
    made.settings = sockets.Settings(connect_s=limit_s(20))
    made.connect(name)
    return made


def bound(name: tuple[str, int] = ("127.0.0.1", 0)) -> sockets.socket:
    made = sockets.socket()
    made.setsockopt(kernel.SOL_SOCKET, kernel.SO_REUSEADDR, 1)
    made.bind(name)
    return made


def in_the_kernel_s_listen(monkeypatch: pytest.MonkeyPatch, before: Step, behind: Step) -> None:
    """Have `socket.listen` do something just before the kernel listens, and just behind."""
    listen = kernel.socket.listen

    def steps(one: sockets.socket, backlog: int) -> None:
        before()
        listen(one, backlog)
        behind()

    monkeypatch.setattr(DatagramSocket, "listen", steps)


@pytest.mark.parametrize("blocking", [True, False])
def test_who_comes_when_the_kernel_begins_to_listen_is_not_too_early(
    monkeypatch: pytest.MonkeyPatch, blocking: bool
) -> None:
    """Before that it is refused; at once behind it, before `listen` has returned, it is served."""
    asks, begin = threading.Event(), connecting.Asking.begin

    def asking(one: connecting.Asking, *arguments: Any) -> bool:
        begun = begin(one, *arguments)
        asks.set()
        return begun

    def connects(client: sockets.socket) -> None:
        if blocking:
            client.connect(server.getsockname())
        else:
            client.setblocking(False)
            assert client.connect_ex(server.getsockname()) == errno.EINPROGRESS
            client.setblocking(True)

    def is_refused() -> None:
        with sockets.socket() as early, pytest.raises(ConnectionRefusedError):
            kernel.socket.connect(early, server.getsockname())

    def comes() -> None:
        monkeypatch.setattr(connecting.Asking, "begin", asking)
        thread.start()
        assert asks.wait(limit_s(20))

    monkeypatch.setattr(listening, "BEGIN_S", limit_s(20))
    with bound() as server, sockets.socket() as client:
        client.settings = sockets.Settings(connect_s=limit_s(20))
        thread = threading.Thread(target=connects, args=(client,))
        in_the_kernel_s_listen(monkeypatch, is_refused, comes)
        server.listen()
        thread.join(limit_s(20))
        speak(client, server, True)


def test_a_listen_that_fails_promises_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """It fails because another socket listens there already, by TCP alone, to which whoever asks comes."""
    clients: list[sockets.socket] = []
    asked, listens = threading.Event(), listening.Served.listens

    def is_asked(one: listening.Served) -> bool:
        asked.set()
        return listens(one)

    def comes() -> None:
        thread.start()
        assert asked.wait(limit_s(20))

    monkeypatch.setattr(listening, "BEGIN_S", limit_s(20))
    monkeypatch.setattr(listening.Served, "listens", is_asked)
    with bound() as late, kernel.socket() as plain:
        plain.setsockopt(kernel.SOL_SOCKET, kernel.SO_REUSEADDR, 1)
        plain.bind(late.getsockname())
        plain.listen()
        name = late.getsockname()
        thread = threading.Thread(target=lambda: clients.append(connected(name)))
        in_the_kernel_s_listen(monkeypatch, comes, lambda: None)
        with pytest.raises(OSError, match="in use"):
            late.listen()
        thread.join(limit_s(20))
        speak(clients[0], plain, False)


def test_a_listen_that_fails_leaves_the_other_one_served() -> None:
    with bound() as first, bound(first.getsockname()) as second:
        first.listen()
        with pytest.raises(OSError, match="in use"):
            second.listen()
        speak(connected(first.getsockname()), first, True)


def test_a_socket_that_is_closed_while_it_begins_to_listen_is_not_served(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server = bound()
    host, port = server.getsockname()
    in_the_kernel_s_listen(monkeypatch, lambda: None, server.close)
    server.listen()
    assert port_lookup.gids_of(port, connecting.mapped(host)) == []


def test_a_socket_that_listens_without_an_address_gets_one() -> None:
    with sockets.socket() as one:
        one.listen()
        host, port = one.getsockname()
        assert host == "0.0.0.0"
        speak(connected(("127.0.0.1", port)), one, True)


@pytest.mark.parametrize("blocking", [True, False])
def test_a_host_that_is_starting_is_asked_again_soon(monkeypatch: pytest.MonkeyPatch, blocking: bool) -> None:
    """It has no adapter yet, and nobody listens there.  Another host's address is this host's here, so that
    it can be connected to.
    """
    gid, name = connecting.mapped("127.0.0.1"), port_of_nobody()
    monkeypatch.setattr(connecting, "UNREACHED_S", limit_s(60))
    monkeypatch.setattr(connecting, "REFUSED_S", limit_s(20))
    monkeypatch.setattr(connecting, "is_here", lambda _: False)
    monkeypatch.setattr(connecting, "_unreached", {})
    monkeypatch.setattr(connecting.Asking, "begin", lambda _, *__: connecting.remember_unreached(gid))
    with sockets.socket() as client:
        client.setblocking(blocking)
        if blocking:
            with pytest.raises(ConnectionRefusedError):
                client.connect(name)
        else:
            assert client.connect_ex(name) == errno.EINPROGRESS
            assert select.select([], [client], [], limit_s(20))[1]
            assert client.getsockopt(kernel.SOL_SOCKET, kernel.SO_ERROR) == errno.ECONNREFUSED
            assert client._left is not None
            while client._left.tcp.fileno() >= 0:
                settled()
    assert connecting.candidates(*name) == []
    monkeypatch.setattr(connecting, "UNREACHED_S", connecting.UNREACHED_S - connecting.REFUSED_S)
    assert connecting.candidates(*name) == [gid]


def port_of_nobody() -> tuple[str, int]:
    with kernel.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()


def test_nothing_is_served_where_nobody_listens() -> None:
    assert port_lookup.gids_of(1, connecting.mapped("127.0.0.1")) == []
    port_lookup.end_elsewhere(1, connecting.mapped("127.0.0.1"))
