"""Peers that are stopped and killed, wherever they stand: who is left has an error, or goes on, in bounded
time; pages that it holds stay as they are, and nothing else stays.
"""

from __future__ import annotations

import gc
import os
import signal
import socket as kernel
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from machine_speed import limit_s
from softhca import sockets
from softhca.driver import registry
from softhca.runtime import devices

HERE = Path(__file__).parent
LIMIT_S = limit_s(40)
BY_CM = sockets.Settings(by_cm=True, keepalive_s=0.2)
MUCH = 8 << 20
"""More than all that a stopped peer has room for."""
SOURCE_PORTS = 8
"""A link over UDP keeps a socket for each source port that its flows have had."""


class Peer:
    """A process; each line that it says is an event."""

    def __init__(self, *words: str, **variables: str) -> None:
        paths = os.pathsep.join(path for path in sys.path if path)
        environment = {**os.environ, "PYTHONPATH": paths, **variables}
        command = [sys.executable, str(HERE / "faulty_peer.py"), *words]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )

    def says(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def hears(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def stop(self) -> None:
        """It stands still when this returns."""
        self.process.send_signal(signal.SIGSTOP)
        os.waitpid(self.process.pid, os.WUNTRACED)

    def go_on(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def end(self) -> None:
        self.go_on()
        self.kill()
        for each in (self.process.stdin, self.process.stdout):
            assert each is not None
            each.close()


Start = Callable[..., Peer]


def _held() -> tuple[dict[str, int], int]:
    (name,) = registry.names()
    return devices.find(name).resources(), len(os.listdir("/proc/self/fd"))


@pytest.fixture
def start() -> Iterator[Start]:
    """A function that starts a peer; at its end this process holds what it held at the begin."""
    with sockets.create_server(("127.0.0.1", 0)) as server:  # the device and the threads are there
        sockets.create_connection(server.getsockname()).close()
        server.accept()[0].close()
    gc.collect()
    before = _held()
    peers: list[Peer] = []

    def begin(*words: str, **variables: str) -> Peer:
        peers.append(Peer(*words, **variables))
        return peers[-1]

    yield begin
    for each in peers:
        each.end()
    end_s = time.monotonic() + LIMIT_S
    while True:
        gc.collect()
        now = _held()
        more = {kind: count for kind, count in now[0].items() if count > before[0][kind]}
        if not more and now[1] <= before[1] + SOURCE_PORTS:
            return
        assert time.monotonic() < end_s, (before, now)
        time.sleep(0.01)


def connected(port: str, settings: sockets.Settings | None = None) -> sockets.socket:
    client = sockets.socket()
    client.settings = settings or client.settings
    client.settimeout(LIMIT_S)
    client.connect(("127.0.0.1", int(port)))
    assert client.stream is not None
    return client


def in_thread(call: Callable[[], object]) -> tuple[threading.Thread, list[Any]]:
    """The thread, and what has come of the call."""
    results: list[Any] = []

    def run() -> None:
        try:
            results.append(call())
        except OSError as error:
            results.append(type(error))

    thread = threading.Thread(target=run)
    thread.start()
    return thread, results


def until(condition: Callable[[], object]) -> None:
    end_s = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < end_s
        time.sleep(0.001)


def test_a_sender_waits_for_a_stopped_peer_as_with_tcp_and_goes_on(start: Start) -> None:
    peer = start("digests")
    with connected(peer.says()) as client:
        assert peer.says() == "accepted"
        peer.stop()
        client.settimeout(0.2)
        data = bytes(range(251)) * (MUCH // 251)
        sent = client.send(data)
        assert 0 < sent < MUCH
        with pytest.raises(TimeoutError):
            client.send(b"x")
        peer.go_on()
        client.settimeout(LIMIT_S)
        client.sendall(data[sent:])
        client.shutdown(sockets.SHUT_WR)
        assert peer.says() == f"{sum(data)} {len(data)}"


def test_a_sender_is_told_of_a_stopped_peer_where_no_tcp_is(start: Start) -> None:
    peer = start("silent", "0", "1")
    with connected(peer.says(), BY_CM) as client:
        assert peer.says() == "accepted"
        thread, results = in_thread(lambda: client.sendall(bytes(MUCH)))
        peer.stop()
        thread.join(LIMIT_S)
        assert results == [ConnectionResetError]
        with pytest.raises(ConnectionResetError):
            client.recv(1)


@pytest.mark.parametrize("by_cm", [False, True])
@pytest.mark.parametrize("link", ["same_host=0", "same_host=1"])
def test_a_sender_without_room_is_told_that_its_peer_s_adapter_stands_still(
    start: Start, link: str, by_cm: bool
) -> None:
    """Nothing is under way then, and nobody else in the sender's process listens or is watched."""
    devices_of_both = {"SOFTHCA_DEVICES": f"softhca0=udp:*?{link}"}
    peer = start("silent", "0", *["1"] * by_cm, **devices_of_both)
    sender = start("fills", peer.says(), *["1"] * by_cm, **devices_of_both)
    assert [sender.says(), peer.says()] == ["full", "accepted"]
    peer.stop()
    sender.hears()
    assert sender.says() == "ConnectionResetError"


def test_a_stopped_program_whose_adapter_is_a_process_is_a_slow_reader(start: Start, tmp_path: Path) -> None:
    """Its adapter answers for it, so its sender goes on waiting, and goes on when it does."""
    place = tmp_path / "adapter"
    words = [sys.executable, "-P", "-m", "softhca.runtime.process_main", "softhca0=udp:*", "--stay"]
    paths = os.pathsep.join(path for path in sys.path if path)
    with subprocess.Popen(
        [*words, "--listen", str(place)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONPATH": paths},
    ) as adapter:  # fmt: skip
        assert adapter.stdin is not None
        assert adapter.stdout is not None
        assert adapter.stdout.readline().strip() == "ready"
        peer = start("digests", SOFTHCA_DEVICES=f"softhca0=unix:{place}")
        with connected(peer.says(), sockets.Settings(keepalive_s=0.05)) as client:
            assert peer.says() == "accepted"
            stream = client.stream
            assert stream is not None
            peer.stop()
            client.setblocking(False)
            sent = 0
            while stream.writable or not stream.drained:
                try:
                    sent += client.send(bytes(1 << 16))
                except BlockingIOError:
                    stream.refresh()
            asked = stream.sender.number

            def is_answered() -> bool:
                stream.refresh()
                return stream.sender.retired >= asked + 3

            until(is_answered)
            assert not stream.error
            peer.go_on()
            client.settimeout(LIMIT_S)
            client.sendall(bytes(MUCH - sent))
            client.shutdown(sockets.SHUT_WR)
            assert peer.says() == f"0 {MUCH}"
        peer.hears()
        peer.process.wait(LIMIT_S)
        adapter.stdin.close()


def test_keep_alive_tells_who_waits_for_data_that_the_peer_s_adapter_stands_still(start: Start) -> None:
    peer = start("silent")
    reader = start("keeps alive", peer.says())
    assert [reader.says(), peer.says()] == ["connected", "accepted"]
    peer.stop()
    assert reader.says() == "ConnectionResetError"


def test_a_sender_is_told_of_a_peer_that_is_killed_amid_a_message(start: Start) -> None:
    peer = start("silent")
    with connected(peer.says()) as client:
        assert peer.says() == "accepted"
        thread, results = in_thread(lambda: client.sendall(bytes(MUCH)))
        until(lambda: client.stream.sender.number)  # type: ignore[union-attr]
        peer.kill()
        thread.join(LIMIT_S)
        assert results == [ConnectionResetError]


@pytest.mark.parametrize("by_cm", [False, True])
@pytest.mark.parametrize("how", ["stop", "kill"])
def test_what_is_held_of_a_dead_peer_stays_as_it_is(start: Start, how: str, by_cm: bool) -> None:
    peer = start("sends", "0", *["1"] * by_cm)
    client = connected(peer.says(), BY_CM if by_cm else None)
    assert [peer.says(), peer.says()] == ["accepted", "sent"]
    data = bytes(range(256)) * 512
    buffer = sockets.PageBuffer(64 << 10)
    assert client.recv_into(buffer, flags=kernel.MSG_WAITALL) == 64 << 10
    assert client.stream is not None
    assert client.stream.receiver.mapped_bytes == 64 << 10
    view = client.recv_view(1 << 15)
    getattr(peer, how)()
    rest = data[(64 << 10) + len(view) :]
    if how == "stop" and not by_cm:
        assert client.recv(len(rest), kernel.MSG_WAITALL) == rest
    else:
        got = client.recv(1 << 20, kernel.MSG_WAITALL)
        assert rest.startswith(got)
        with pytest.raises(ConnectionResetError):
            client.recv(1)
    client.close()
    assert buffer[:] == data[: 64 << 10]
    assert view == data[64 << 10 :][: len(view)]
    view.release()
    buffer.close()


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_a_close_does_not_wait_for_ever(start: Start, how: str) -> None:
    peer = start("closes")
    client = connected(peer.says())
    assert [peer.says(), peer.says()] == ["accepted", "sent"]
    client.sendall(b"never read")
    getattr(peer, how)()
    closing, results = in_thread(client.close)
    closing.join(LIMIT_S)
    assert results == [None]


@pytest.mark.parametrize("how", ["stop", "kill"])
@pytest.mark.parametrize("by_cm", [False, True])
def test_one_that_stands_still_before_it_is_accepted(start: Start, how: str, by_cm: bool) -> None:
    with sockets.socket() as server:
        server.settings = BY_CM if by_cm else server.settings
        server.settimeout(LIMIT_S)
        server.bind(("127.0.0.1", 0))
        server.listen()
        peer = start("asks", str(server.getsockname()[1]), *["1"] * by_cm)
        assert peer.says() == "connected"
        getattr(peer, how)()
        with server.accept()[0] as accepted:
            assert accepted.stream is not None
            accepted.settimeout(LIMIT_S)
            if how == "kill" or by_cm:
                with pytest.raises(ConnectionResetError):
                    accepted.recv(1)
            else:
                peer.go_on()
                peer.hears()
                assert accepted.recv(1) == b""


def test_a_listener_that_stands_still_is_reached_by_tcp(start: Start) -> None:
    peer = start("late")
    port = int(peer.says())
    peer.stop()
    with sockets.socket() as client:
        client.settimeout(LIMIT_S)
        client.connect(("127.0.0.1", port))
        assert client.stream is None
        client.sendall(b"hello")
        peer.go_on()
        peer.hears()
        assert [peer.says(), peer.says()] == ["accepted", "b'hello'"]


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_datagrams_to_a_dead_peer_wait_for_nobody(start: Start, how: str) -> None:
    peer = start("datagrams")
    there = "127.0.0.1", int(peer.says())
    data = bytes(range(250)) * 200
    with sockets.socket(sockets.AF_INET, sockets.SOCK_DGRAM) as one:
        one.bind(("127.0.0.1", 0))
        one.settimeout(LIMIT_S)
        one.sendto(b"x", there)
        assert one.recv(10) == b"x"
        assert one.datagrams is not None
        assert one.datagrams.reaches(there)
        one.sendto(data, there)
        view = one.recv_view(len(data))
        getattr(peer, how)()
        sending, results = in_thread(
            lambda: [one.sendto(bytearray(data), there) for _ in range(20)].count(len(data))
        )
        sending.join(LIMIT_S)
        assert results == [20]
        with pytest.raises(BlockingIOError):
            one.recv(1, kernel.MSG_DONTWAIT)
    assert view == data
    view.release()
