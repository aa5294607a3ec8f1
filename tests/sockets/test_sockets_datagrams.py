"""Datagrams between sockets of this process, by RDMA: what programs see."""

from __future__ import annotations

import asyncio
import errno
import select
import socket as kernel
import threading
import time
from collections.abc import Callable

import pytest
from datagram_ends import HERE, LONG_S, Bound, pattern, port_of
from sockets_under_way import settled

from machine_speed import limit_s
from softhca import sockets
from softhca.driver.device import DeviceDriver
from softhca.driver.errors import DriverError
from softhca.machine import primitives
from softhca.sockets import datagrams, resolving
from softhca.sockets.datagram_port import DatagramPort
from softhca.sockets.hub import HUB
from softhca.verbs.cmid import CMID

LENGTHS = [0, 1, 480, 481, 4064, 4065, 8192, 16384, 16385, 40_000, 65_507]


@pytest.mark.parametrize("kind", [bytes, bytearray])
def test_datagrams_arrive_whole_with_their_addresses(bound: Bound, kind: type) -> None:
    one, other = bound(), bound()
    for length in LENGTHS:
        data = pattern(length, length)
        assert one.sendto(kind(data), other.getsockname()) == length
        assert other.recvfrom(70_000) == (data, one.getsockname())
        assert one.datagrams.reaches(other.getsockname())  # type: ignore[union-attr]
    assert other.sendto(b"back", one.getsockname()) == 4
    assert one.recvfrom(10) == (b"back", other.getsockname())
    assert other.datagrams.dropped() == {}  # type: ignore[union-attr]


def test_who_closes_asks_nobody_any_more(bound: Bound, monkeypatch: pytest.MonkeyPatch) -> None:
    """A question that has no answer keeps the device open no longer than its socket lives."""
    unanswered: list[CMID] = []
    monkeypatch.setattr(resolving, "_answer", lambda cmid, *_: unanswered.append(cmid))
    one, other = bound(connect_s=0.01), bound()
    one.sendto(b"", other.getsockname())
    assert one.datagrams is not None
    (resolution,) = one.datagrams._resolutions
    end_s = time.monotonic() + LONG_S
    while not unanswered and time.monotonic() < end_s:
        settled(HUB)
    assert resolution._cmid is not None
    one.close()
    settled(HUB)
    assert resolution._cmid is None
    for each in unanswered:
        each.close()


@pytest.mark.parametrize("length", [65_508, 100_000])
def test_what_udp_cannot_carry_is_refused(bound: Bound, length: int) -> None:
    one, other = bound(), bound()
    with pytest.raises(OSError, match="too long") as found:
        one.sendto(bytes(length), other.getsockname())
    assert found.value.errno == errno.EMSGSIZE


def test_memory_may_be_changed_once_sendto_has_returned(bound: Bound) -> None:
    one, other = bound(), bound()
    data = bytearray(pattern(60_000))
    before = bytes(data)
    one.sendto(data, other.getsockname())
    data[:] = bytes(len(data))
    assert other.recv(70_000) == before
    assert port_of(one).direct_bytes == len(before)  # type: ignore[attr-defined]
    one.setblocking(False)
    data[:] = before
    one.sendto(data, other.getsockname())
    data[:] = bytes(len(data))
    assert other.recv(70_000) == before
    assert port_of(one).direct_bytes == len(before)  # type: ignore[attr-defined]


def test_who_waits_learns_what_another_thread_has_taken(
    bound: Bound, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other one has the lock when a datagram arrives, and takes it: no event tells of it again."""
    one, other = bound(), bound()
    one.sendto(b"before", other.getsockname())
    assert other.recv(100) == b"before"
    port, end = port_of(other), other.datagrams
    assert end is not None
    received: list[bytes] = []
    woken: list[bool] = []
    waiting = threading.Event()
    wait = end.ports[0].completion_thread.wait

    def waits(ended: Callable[[], bool], deadline_s: float | None) -> bool:
        waiting.set()
        return wait(ended, deadline_s)

    monkeypatch.setattr(end.ports[0].completion_thread, "wait", waits)
    reader = threading.Thread(target=lambda: received.append(other.recv(100)), daemon=True)
    reader.start()
    assert waiting.wait(limit_s(60))
    with end._guard:
        one.sendto(b"taken", other.getsockname())
        while not end._missed:
            port.driver.progress()  # type: ignore[attr-defined]
        end._pump()
        wake = end._wake
        monkeypatch.setattr(end, "_wake", lambda: woken.append(True) or wake())
    assert woken
    reader.join(limit_s(60))
    assert received == [b"taken"]


def test_who_may_change_its_memory_is_waited_for(bound: Bound, monkeypatch: pytest.MonkeyPatch) -> None:
    """No completion is seen before the sender waits for one."""
    one, other = bound(), bound()
    one.sendto(b"", other.getsockname())
    port, end = port_of(one), one.datagrams
    assert isinstance(port, DatagramPort)
    assert end is not None
    held: list[int] = []
    waits: list[bool] = []
    retire, wait = port._retire, end.wait

    def go_on(ready: Callable[[], bool], deadline_s: float | None) -> bool:
        waits.append(ready())
        monkeypatch.setattr(port, "_retire", retire)
        with end._guard:
            for number in held:
                retire(number)
        return wait(ready, deadline_s)

    monkeypatch.setattr(port, "_retire", held.append)
    monkeypatch.setattr(end, "wait", go_on)
    one.sendto(bytes(60_000), other.getsockname())
    assert waits == []
    one.sendto(bytearray(60_000), other.getsockname())
    assert waits[0] is False


def test_long_datagrams_are_mapped_and_lent_and_not_copied(bound: Bound) -> None:
    one, other = bound(), bound()
    port, data = port_of(other), pattern(15 * 4096)
    with sockets.PageBuffer(16 * 4096) as buffer:
        one.sendto(data, other.getsockname())
        assert other.recvfrom_into(buffer) == (len(data), one.getsockname())
        assert buffer[: len(data)] == data
        assert (port.copied_bytes, port.mapped_bytes) == (0, len(data))  # type: ignore[attr-defined]
        for _ in range(3 * port.state.slots // 16):  # type: ignore[attr-defined]
            one.sendto(bytes(len(data)), other.getsockname())
            assert other.recv(70_000) == bytes(len(data))
        assert buffer[: len(data)] == data  # nobody writes where the program looks
        buffer.release()
        assert buffer[: len(data)] == data
    one.sendto(data, other.getsockname())
    with other.recv_view(70_000) as view:
        assert view == data
        assert port.lent_bytes == len(data)  # type: ignore[attr-defined]
        assert port._pool.address <= primitives.address_of(view)  # type: ignore[attr-defined]
    one.sendto(data + b"and more", other.getsockname())
    assert bytes(other.recv_view(70_000)) == data + b"and more"


def test_what_does_not_fit_is_cut_and_peeking_leaves_it(bound: Bound) -> None:
    one, other = bound(), bound()
    one.sendto(pattern(5000), other.getsockname())
    one.sendto(b"next", other.getsockname())
    assert other.recv(10, kernel.MSG_PEEK) == pattern(10)
    state = port_of(other).state  # type: ignore[attr-defined]
    used = state.used
    assert other.recvmsg(10, 0, kernel.MSG_PEEK)[0] == pattern(10)
    assert state.used == used, "its room is still its own"
    small = bytearray(6)
    assert other.recv_into(small, 0, kernel.MSG_PEEK | kernel.MSG_TRUNC) == 5000
    data, ancillary, flags, name = other.recvmsg(10)
    assert (data, ancillary, flags, name) == (pattern(10), [], kernel.MSG_TRUNC, one.getsockname())
    first, second = bytearray(3), bytearray(9)
    assert other.recvmsg_into([first, second])[0] == 4
    assert (first, second[:1]) == (b"nex", b"t")
    one.sendmsg([b"ab", bytearray(b"cd"), memoryview(b"ef")], [], 0, other.getsockname())
    assert other.recvmsg(6)[:3] == (b"abcdef", [], 0), "all of it fits"


def test_waits_end(bound: Bound) -> None:
    _, other = bound(), bound()
    with pytest.raises(BlockingIOError, match="no completion event"):
        other.recv(1, kernel.MSG_DONTWAIT)
    other.settimeout(0.01)
    with pytest.raises(TimeoutError):
        other.recvfrom(1)
    other.settimeout(None)
    ended = []

    def wait() -> None:
        try:
            other.recv(1)
        except OSError as error:
            ended.append(error.errno)

    thread = threading.Thread(target=wait)
    thread.start()
    assert other.datagrams is not None
    other.datagrams.close()
    thread.join(limit_s(20))
    assert ended == [errno.EBADF]


def test_what_was_sent_arrives_though_its_sender_is_closed(bound: Bound) -> None:
    """A sender is known before its first datagram leaves."""
    server = bound()
    for number in range(3):
        with sockets.socket(kernel.AF_INET, kernel.SOCK_DGRAM) as client:
            client.sendto(b"%d" % number, server.getsockname())
            assert client.datagrams.reaches(server.getsockname())  # type: ignore[union-attr]
            name = client.getsockname()
        assert server.recvfrom(10) == (b"%d" % number, ("127.0.0.1", name[1]))


def test_a_descriptor_is_readable_while_there_are_datagrams(bound: Bound) -> None:
    one, other = bound(), bound()
    poll, epoll = select.poll(), select.epoll()
    poll.register(other, select.POLLIN)
    epoll.register(other.fileno(), select.EPOLLIN | select.EPOLLOUT)
    try:
        assert not poll.poll(0)
        assert dict(epoll.poll(0)) == {other.fileno(): select.EPOLLOUT}
        one.sendto(b"x", other.getsockname())
        assert poll.poll(limit_s(20) * 1000) == [(other.fileno(), select.POLLIN)]
        assert poll.poll(0)  # a level: still so
        assert other.recv(1) == b"x"
        assert not poll.poll(0)
        with kernel.socket(kernel.AF_INET, kernel.SOCK_DGRAM) as plain:
            plain.sendto(b"y", other.getsockname())
            assert poll.poll(limit_s(20) * 1000)
            assert other.recv(1) == b"y"
            assert not poll.poll(0)
    finally:
        epoll.close()


def test_asyncio_s_datagrams_go_by_rdma(bound: Bound, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel, "socket", sockets.socket)

    class Echo(asyncio.DatagramProtocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            self.transport = transport

        def datagram_received(self, data: bytes, address: tuple[str, int]) -> None:
            self.transport.sendto(data.upper(), address)  # type: ignore[attr-defined]

    class Client(asyncio.DatagramProtocol):
        def __init__(self) -> None:
            self.answers: asyncio.Queue[bytes] = asyncio.Queue()

        def datagram_received(self, data: bytes, address: tuple[str, int]) -> None:
            self.answers.put_nowait(data)

    async def talk() -> list[bytes]:
        loop = asyncio.get_running_loop()
        server, _ = await loop.create_datagram_endpoint(Echo, local_addr=HERE)
        name = server.get_extra_info("sockname")
        client, protocol = await loop.create_datagram_endpoint(Client, remote_addr=name)
        end = client.get_extra_info("socket")._sock.datagrams
        found = []
        for text in (b"one", b"two" * 1000):
            client.sendto(text)
            found.append(await asyncio.wait_for(protocol.answers.get(), limit_s(20)))
        while not end.reaches(name):
            client.sendto(b"three")
            await asyncio.wait_for(protocol.answers.get(), limit_s(20))
        client.sendto(b"four" * 2000)
        found.append(await asyncio.wait_for(protocol.answers.get(), limit_s(20)))
        client.close()
        server.close()
        return found

    assert asyncio.run(talk()) == [b"ONE", b"TWO" * 1000, b"FOUR" * 2000]


def test_a_datagram_socket_that_is_being_closed_is_no_other_descriptor(
    bound: Bound, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = bound(), bound()
    name = other.getsockname()
    seen: list[int | None] = []
    leave = datagrams.DatagramEnd.leave

    def meanwhile(end: datagrams.DatagramEnd) -> None:
        calls: tuple[Callable[[], object], ...] = (
            one.getsockname, one.fileno, one.close,
            lambda: one.recvfrom(1), lambda: one.sendto(b"x", name), lambda: one.connect(name),
        )  # fmt: skip
        for call in calls:
            try:
                call()
                seen.append(None)
            except OSError as error:
                seen.append(error.errno)
        leave(end)

    monkeypatch.setattr(datagrams.DatagramEnd, "leave", meanwhile)
    one.close()
    monkeypatch.undo()
    assert seen == [errno.EBADF, errno.EBADF, None, errno.EBADF, errno.EBADF, errno.EBADF]
    assert one.datagrams is None


def test_a_socket_that_is_closed_says_so(bound: Bound) -> None:
    """Whoever takes the address then gets the next datagram."""
    one, other = bound(), bound()
    name = other.getsockname()
    one.sendto(b"x", name)
    assert other.recvfrom(1) == (b"x", one.getsockname())
    other.sendto(b"y", one.getsockname())
    assert one.recv(1) == b"y"
    other.close()
    with kernel.socket(kernel.AF_INET, kernel.SOCK_DGRAM) as plain:
        plain.bind(name)
        plain.settimeout(limit_s(20))
        with pytest.raises(BlockingIOError):
            one.recv(1, kernel.MSG_DONTWAIT)
        one.sendto(b"z", name)
        assert plain.recv(1) == b"z"


def test_without_a_pool_there_is_no_socket(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: DeviceDriver, length: int, access: int = 0) -> object:
        raise DriverError(errno.ENOMEM, "no memory")

    monkeypatch.setattr(DeviceDriver, "alloc_host_memory", refuse)
    one = sockets.socket(kernel.AF_INET, kernel.SOCK_DGRAM)
    with pytest.raises(OSError, match="create buffer pool failed") as found:
        one.bind(HERE)
    assert found.value.errno == errno.ENOBUFS
    assert one.fileno() == -1


def test_many_threads_send_and_receive(bound: Bound) -> None:
    one, other = bound(), bound()
    one.sendto(b"", other.getsockname())
    assert other.recv(1) == b""
    found: list[bytes] = []

    def send(first: int) -> None:
        for number in range(first, first + 10):
            one.sendto(pattern(3000 + number), other.getsockname())

    def receive() -> None:
        for _ in range(10):
            found.append(other.recv(9000))

    threads = [threading.Thread(target=send, args=(start,)) for start in (0, 10)]
    threads += [threading.Thread(target=receive) for _ in range(2)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert sorted(found, key=len) == [pattern(3000 + number) for number in range(20)]


def test_a_datagram_to_be_sent_when_the_adapter_goes_is_lost_at_the_worst(
    bound: Bound, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = bound(), bound()
    with one, other:
        one.sendto(b"first", other.getsockname())
        assert other.recv(10) == b"first"
        assert one.datagrams is not None
        assert one.datagrams.reaches(other.getsockname())
        session = one.datagrams.ports[0].driver.session
        monkeypatch.setattr(session, "dead", "the adapter is gone")
        assert one.sendto(b"lost", other.getsockname()) == 4
        assert one.datagrams.ports[0].failed
        assert one.sendto(b"third", other.getsockname()) == 5
        arrived = other.recv(10)
        if arrived == b"lost":  # another thread had found the adapter gone already
            arrived = other.recv(10)
        assert arrived == b"third"
        monkeypatch.undo()
