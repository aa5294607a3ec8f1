"""Ends and waits of streams: sockets that are dropped, time-outs, threads, forks."""

from __future__ import annotations

import errno
import gc
import os
import socket as kernel
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any

import pytest
from sockets_under_way import NoDevice, holders

from machine_speed import limit_s
from softhca import sockets
from softhca.machine.kernel_sockets import KernelSocket
from softhca.sockets import completion_thread, devices, listening
from softhca.sockets.hub import HUB
from softhca.sockets.readiness import Readiness
from softhca.sockets.stream import Stream
from softhca.sockets.upgrade import Upgrade

Pair = tuple[sockets.socket, sockets.socket]
Connect = Callable[..., Pair]


def test_a_closed_stream_is_gone_without_the_collector(connected: Connect) -> None:
    """Programs that have it off would keep pools, queues and regions of all their connections."""
    gc.disable()
    try:
        one, other = connected()
        one.sendall(b"x" * 1000)
        assert len(other.recv(1000)) == 1000
        left = [weakref.ref(each.stream) for each in (one, other)]
        one.close()
        other.close()
        end_s = time.monotonic() + limit_s(20)
        while [each() for each in left] != [None, None]:  # the hub may be at it
            assert time.monotonic() < end_s
            time.sleep(0.001)
    finally:
        gc.enable()


@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")
def test_a_stream_in_a_ring_of_objects_is_closed_after_its_peer(
    server: sockets.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody but its socket knows of it then, and the collector finalizes what it finds in any order."""
    one = sockets.create_connection(server.getsockname(), timeout=20)
    other, _ = server.accept()
    upgrade = one._upgrade
    assert isinstance(upgrade, Upgrade)
    number, left = upgrade.tcp.fileno(), threading.Event()
    ended: list[int] = []
    leave = Upgrade.leave

    def told(upgrade: Upgrade, abruptly: bool | None) -> None:
        try:
            leave(upgrade, abruptly)
            ended.append(upgrade.stream.error)
        finally:
            left.set()

    other.close()
    assert one.recv(1) == b""
    end_s = time.monotonic() + limit_s(20)
    while number in HUB._callbacks:  # until it has seen the end of TCP
        assert time.monotonic() < end_s
        time.sleep(0.001)
    monkeypatch.setattr(Upgrade, "leave", told)
    ring: list[object] = [one]
    ring.append(ring)
    del one, upgrade, ring
    gc.collect()
    assert left.wait(limit_s(20))
    assert ended == [errno.EBADF]  # closed, and not only told to be


def test_who_may_change_its_memory_is_waited_for(connected: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    """No completion is seen before the sender waits for one."""
    one, _ = connected()
    held: list[int] = []
    waits: list[bool] = []
    assert one.stream is not None
    sender, wait = one.stream.sender, Stream.wait
    retire = sender.retire

    def hold(number: int) -> None:
        if waits:
            retire(number)
        else:
            held.append(number)

    def go_on(self: Stream, ready: Callable[[], bool], deadline_s: float | None) -> bool:
        waits.append(ready())
        with self._guard:
            for number in held:
                retire(number)
        held.clear()
        return wait(self, ready, deadline_s)

    monkeypatch.setattr(sender, "retire", hold)
    monkeypatch.setattr(Stream, "wait", go_on)
    one.sendall(bytes(100_000))
    assert waits == []
    one.sendall(bytearray(100_000))
    assert waits[0] is False


def test_the_hub_goes_on_when_somebody_closes_its_descriptor() -> None:
    """Programs close numbers that are not theirs; without this no connection went by RDMA any more."""
    with sockets.create_server(("127.0.0.1", 0)) as server:
        epoll = HUB._epoll
        assert epoll is not None
        os.close(epoll.fileno())
        with sockets.create_server(("127.0.0.1", 0)) as other:
            for each in (server, other):
                with sockets.create_connection(each.getsockname()) as client, each.accept()[0] as accepted:
                    assert client.stream is not None
                    client.sendall(b"hello")
                    assert accepted.recv(5, kernel.MSG_WAITALL) == b"hello"
        assert HUB._epoll is not epoll


def test_an_attendant_whose_thread_has_ended_is_started_again() -> None:
    device = NoDevice()
    device.alive = False
    made = completion_thread.CompletionThread(device)  # type: ignore[arg-type]
    made.start()
    first = made._thread
    assert first is not None
    first.join(limit_s(20))
    made.start()
    assert made._thread is not first


def test_an_attendant_whose_start_was_interrupted_is_not_a_second_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By an exception of a signal handler: the thread runs, and tells nobody that the device has ended."""
    began, told = threading.Event(), []

    class Follower:
        def device_ended(self) -> None:
            told.append(self)

    device = NoDevice(lambda ended: began.wait())
    made = completion_thread.CompletionThread(device)  # type: ignore[arg-type]
    follower = Follower()
    made._followers.add(follower)
    run = threading.Thread.start

    def interrupted(thread: threading.Thread) -> None:
        monkeypatch.undo()
        run(thread)
        made_threads.append(thread)
        raise KeyboardInterrupt

    made_threads: list[threading.Thread] = []
    monkeypatch.setattr(threading.Thread, "start", interrupted)
    with pytest.raises(KeyboardInterrupt):
        made.start()
    assert made._thread is None
    began.set()
    made_threads[0].join(limit_s(5))
    ended, device.alive = not made_threads[0].is_alive(), False
    assert ended
    assert not told


@pytest.mark.parametrize("step", ["_enter", "wait_for", "_leave"])
def test_a_call_that_is_interrupted_is_no_call_that_waits(monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    """By a signal handler that raises: else the completion thread would stand by for ever."""
    device = NoDevice(lambda ended: None)
    made = completion_thread.CompletionThread(device)  # type: ignore[arg-type]
    made._thread, made._parked = threading.current_thread(), True
    of: Any = device if step == "wait_for" else made
    call = getattr(of, step)

    def interrupted(*arguments: Any) -> None:
        monkeypatch.undo()
        if step == "_enter":
            call(*arguments)
        raise KeyboardInterrupt

    monkeypatch.setattr(of, step, interrupted)
    ends = iter([False])
    with pytest.raises(KeyboardInterrupt):
        made.wait(lambda: next(ends, True), None)
    assert (made._waiting, made._calls) == (0, 1)


def test_calls_that_come_again_and_again_wake_the_completion_thread_once_in_8_ms(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It sleeps until it is woken only while one call stays."""
    device = NoDevice()
    made = completion_thread.CompletionThread(device)  # type: ignore[arg-type]
    made._waiting, pauses = 1, []

    def pause(pause_s: float) -> None:
        pauses.append(round(pause_s * 1000))
        if len(pauses) < 6:
            made._calls += 1
        elif pause_s > completion_thread._LAST_S:
            device.alive = False

    monkeypatch.setattr(made, "_stand_by", pause)
    made._run()
    assert pauses == [1, 2, 4, 8, 8, 8, 16]


def test_the_completion_thread_stands_by_while_calls_poll(monkeypatch: pytest.MonkeyPatch) -> None:
    """It does not wait beside them: each packet would wake both."""
    relieved: list[bool] = []

    def waits(ended: Callable[[], bool]) -> None:
        relieved.append(ended())
        if len(relieved) == 1:
            made.polling.begin()
            relieved.append(ended())
            return
        device.alive = False

    device = NoDevice(waits)
    made = completion_thread.CompletionThread(device)  # type: ignore[arg-type]
    pauses: list[int] = []
    monkeypatch.setattr(made, "_stand_by", lambda pause_s: pauses.append(round(pause_s * 1000)))
    made._attend()
    assert relieved == [False, True, False]
    assert pauses == [1, 1]  # before it knows that none polls, and once behind the call that does


def test_a_socket_that_is_dropped_is_closed() -> None:
    with sockets.create_server(("127.0.0.1", 0)) as server:
        client = sockets.create_connection(server.getsockname())
        accepted, _ = server.accept()
    with accepted:
        accepted.settimeout(limit_s(20))
        client.sendall(b"last words")
        kept = [client]
        del client
        with pytest.warns(ResourceWarning):
            kept.clear()
        assert accepted.recv(100) == b"last words"
        assert accepted.recv(100) == b""


def test_pages_are_given_back_without_waiting_for_the_stream(connected: Connect) -> None:
    """Else two threads that hold a stream each, and receive into the other's buffer, wait for ever."""
    one, other = connected()
    stream = other.stream
    assert stream is not None
    one.sendall(bytes(65536))
    buffer = sockets.PageBuffer(65536)
    assert other.recv_into(buffer, flags=kernel.MSG_WAITALL) == 65536
    holding, enough = threading.Event(), threading.Event()

    def hold() -> None:
        with stream._guard:
            holding.set()
            enough.wait(limit_s(20))

    thread = threading.Thread(target=hold)
    thread.start()
    holding.wait()
    buffer.release()
    assert thread.is_alive()
    enough.set()
    thread.join()
    assert stream.held_bytes == 0


def test_a_buffer_goes_from_stream_to_stream(connected: Connect) -> None:
    pairs = [connected() for _ in range(2)]
    buffer = sockets.PageBuffer(65536)
    for number in range(4):
        one, other = pairs[number % 2]
        one.sendall(bytes([number]) * 65536)
        assert other.recv_into(buffer, flags=kernel.MSG_WAITALL) == 65536
        assert buffer[:] == bytes([number]) * 65536
        assert pairs[1 - number % 2][1].stream.held_bytes == 0  # type: ignore[union-attr]
    buffer.close()


def test_a_send_that_times_out_says_what_has_gone_and_has_done_with_memory(connected: Connect) -> None:
    one, other = connected(pool_bytes=1 << 16)
    one.settimeout(0.01)
    data = bytearray(range(256)) * 1024
    before = bytes(data)
    sent = one.send(data)
    assert 0 < sent <= 1 << 16
    data[:] = bytes(len(data))
    with pytest.raises(TimeoutError):
        one.sendall(data)
    assert other.recv(sent, kernel.MSG_WAITALL) == before[:sent]


def test_a_forked_child_does_not_keep_a_dead_peer_alive(connected: Connect) -> None:
    one, other = connected()
    one.sendall(b"x")
    assert other.recv(1) == b"x"
    reader, writer = os.pipe()
    alive, end = os.pipe()
    child = os.fork()
    if not child:
        os.close(end)
        os.write(writer, b"!")
        os.read(alive, 1)
        os._exit(0)
    try:
        assert os.read(reader, 1) == b"!"
        upgrade = one._upgrade
        assert upgrade is not None
        HUB.forget(upgrade.tcp.fileno())
        upgrade.tcp.close()  # as the kernel does when a process ends
        with pytest.raises(ConnectionResetError):
            other.recv(1)
    finally:
        os.close(end)
        assert os.waitpid(child, 0)[1] == 0
        for each in (reader, writer, alive):
            os.close(each)


def test_what_a_connection_has_is_given_back_where_it_cannot_be_adopted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with (
        sockets.create_server(("127.0.0.1", 0)) as server,
        sockets.create_connection(server.getsockname()) as client,
    ):
        client.settimeout(limit_s(20))

        def refuse(self: sockets.socket, stream: object) -> None:
            raise OSError(24, "no descriptor")

        monkeypatch.setattr(sockets.socket, "_adopt", refuse)
        with pytest.raises(OSError, match="no descriptor"):
            server.accept()
        with pytest.raises(ConnectionResetError):
            client.recv(1)


def test_a_connection_that_cannot_be_watched_over_is_not_watched(
    connected: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the hub would keep its stream until something else has the number of its descriptor."""
    one, _ = connected()
    stream = one.stream
    assert stream is not None

    def refuse(*_: object) -> None:
        raise OSError(errno.EMFILE, "no descriptor")

    monkeypatch.setattr("softhca.sockets.upgrade.Liveness", refuse)
    with kernel.socket() as tcp:
        with pytest.raises(OSError, match="no descriptor"):
            Upgrade(stream, tcp)  # type: ignore[arg-type]
        assert tcp.fileno() not in HUB._callbacks


def test_a_socket_that_is_being_closed_is_no_other_descriptor(
    monkeypatch: pytest.MonkeyPatch, connected: Connect
) -> None:
    """While `close` waits for what was sent, no call of another thread reads what stands for the socket."""
    one, other = connected(linger_s=limit_s(20))
    stream = one.stream
    assert stream is not None
    asked, arrived = threading.Event(), threading.Event()

    def drained(self: Stream) -> bool:
        asked.set()
        return arrived.is_set()

    monkeypatch.setattr(Stream, "drained", property(drained))
    one.sendall(b"last words")
    closing = threading.Thread(target=one.close)
    closing.start()
    assert asked.wait(limit_s(20))
    calls: tuple[Callable[[], object], ...] = (
        lambda: one.recv(1), lambda: one.recv_into(bytearray(1)), lambda: one.recv_view(1),
        lambda: one.send(b"x"), lambda: one.sendall(b"x"), one.getpeername, one.getsockname,
        lambda: one.shutdown(kernel.SHUT_RD),
    )  # fmt: skip
    assert one.stream is None
    assert closing.is_alive()
    for call in calls:
        with pytest.raises(OSError, match="Bad file descriptor"):
            call()
    arrived.set()
    stream._driver.wake_waiters()
    assert other.recv(100) == b"last words"
    closing.join(limit_s(20))
    assert not closing.is_alive()


@pytest.mark.parametrize("behind", [False, True])
def test_a_connection_of_a_socket_that_was_closed_meanwhile_is_given_back(
    monkeypatch: pytest.MonkeyPatch, behind: bool
) -> None:
    """Closed by another thread, just before or behind the moment at which the number changes its meaning."""
    made: list[Upgrade] = []
    replace, begin = Readiness.replace, Upgrade.__init__
    client = sockets.socket()

    def closed(self: Readiness, fd: int) -> None:
        if behind:
            replace(self, fd)
        client.close()
        if not behind:
            replace(self, -1)

    def remember(self: Upgrade, *arguments: Any) -> None:
        made.append(self)
        begin(self, *arguments)

    with sockets.create_server(("127.0.0.1", 0)) as server:
        monkeypatch.setattr(Readiness, "replace", closed)
        monkeypatch.setattr(Upgrade, "__init__", remember)
        error = client.connect_ex(server.getsockname())
        monkeypatch.undo()
    assert error == (0 if behind else errno.EBADF)
    (upgrade,) = made
    assert upgrade.stream.error == errno.EBADF
    assert upgrade.tcp.fileno() < 0
    assert client.stream is None


def test_the_memory_of_devices_that_are_let_go_is_given_back(connected: Connect) -> None:
    """Whatever a stream's thread, a domain's memory or a callback that was called last still knows."""
    one, other = connected()
    one.sendall(b"x")
    assert other.recv(1) == b"x"
    one.close()
    other.close()
    memory = weakref.ref(next(iter(devices._kept)).session.memory)
    assert memory() is not None
    gc.collect()
    devices.let_go()
    end_s = time.monotonic() + limit_s(20)
    while memory() is not None:
        gc.collect()
        assert time.monotonic() < end_s, holders(memory())


def test_an_accept_that_is_overtaken_by_a_close_keeps_nobody_served(
    server: sockets.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    served, other, plain = server._listener, server.dup(), listening.serving
    assert isinstance(served, listening.Served)

    def overtaken(one: Any) -> Any:
        found = plain(one)
        server.close()
        return found

    server._leave_listeners()  # the closing thread has come so far
    monkeypatch.setattr(listening, "serving", overtaken)
    with pytest.raises(OSError, match="Bad file descriptor"):
        server.accept()
    other.close()
    assert served.closed


def test_a_close_that_is_overtaken_by_an_accept_leaves_nobody_served(
    server: sockets.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    served, other, plain = server._listener, server.dup(), sockets.socket._leave
    assert isinstance(served, listening.Served)

    def accepting(one: Any, *words: Any, **options: Any) -> None:
        if one is server and KernelSocket.fileno(one) >= 0:
            one._listener = listening.serving(one)
        plain(one, *words, **options)

    monkeypatch.setattr(sockets.socket, "_leave", accepting)
    server.close()
    other.close()
    assert served.closed


@pytest.mark.parametrize("way", ["accept", "listen"])
def test_two_threads_that_find_who_serves_a_socket_are_one_user(
    server: sockets.socket, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    served, other = server._listener, server.dup()
    assert isinstance(served, listening.Served)
    server._leave_listeners()
    name = "serving" if way == "accept" else "serve"
    plain, inside = getattr(listening, name), []

    def together(*words: Any) -> Any:
        if not inside:
            inside.append(True)
            do()
        return plain(*words)

    def do() -> None:
        if way == "accept":
            with pytest.raises(BlockingIOError):
                server.accept()
        else:
            server.listen()

    server.setblocking(False)
    monkeypatch.setattr(listening, name, together)
    do()
    server.close()
    assert not served.closed, "the duplicate's"
    other.close()
    assert served.closed


def test_an_end_is_said_once(connected: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = connected()
    stream = one.stream
    assert stream is not None
    said: list[bool] = []
    send_fin = stream._send_fin

    def sending(closed: bool) -> None:
        said.append(closed)
        send_fin(closed)

    monkeypatch.setattr(stream, "_send_fin", sending)
    assert stream.say_end()
    assert stream.say_end()
    one.close()
    assert said == [True]
    assert other.recv(10) == b""
    assert not stream.say_end()
