"""Streams between two sockets of this process, over RDMA: what programs see."""

from __future__ import annotations

import errno
import os
import select
import socket as kernel
import threading
import time
from collections.abc import Callable

import pytest
from streamed_bytes import Connect, pattern, read

from machine_speed import limit_s
from softhca import sockets
from softhca.driver.device import DeviceDriver
from softhca.driver.errors import DriverError
from softhca.sockets import creation
from softhca.sockets.stream_sending import MISSES, TRY_EACH


def fill(end: sockets.socket, chunk: int) -> int:
    """Send until no more can go; how many bytes."""
    sent = 0
    try:
        while True:
            sent += end.send(bytes(chunk))
    except BlockingIOError:
        return sent


def read_bytes(end: sockets.socket, length: int) -> int:
    """As `read`; how many."""
    return len(read(end, length))


@pytest.mark.parametrize("length", [1, 512, 513, 16384, 16385, 65536, 300_001])
@pytest.mark.parametrize("kind", [bytes, bytearray])
def test_bytes_arrive_in_their_order(connected: Connect, length: int, kind: type) -> None:
    one, other = connected(pool_bytes=1 << 17)
    data = pattern(length)[:length]
    for sender, receiver in ((one, other), (other, one)):
        thread = threading.Thread(target=sender.sendall, args=(kind(data),))
        thread.start()
        assert read(receiver, length) == data
        thread.join()


@pytest.mark.parametrize("length", [100, 700, 3000])
def test_small_messages_go_around_the_ring(connected: Connect, length: int) -> None:
    """One that crosses the end of the pool is two pieces there."""
    one, other = connected(pool_bytes=16384)
    for number in range(2 * 16384 // length + 2):
        data = pattern(2000)[number : number + 1] * length
        one.sendall(data)
        assert read(other, length) == data


@pytest.mark.parametrize("length", [600, 2000, 4030])
def test_the_end_of_the_memory_for_copies_cuts_no_message_into_small_ones(
    connected: Connect, length: int
) -> None:
    """Where a rest was left that work requests carry themselves all that followed went in such pieces."""
    one, other = connected(staging_bytes=8192, in_memory=False)
    assert one.stream is not None
    before = one.stream.sender.number
    for number in range(40):
        data = pattern(number + length)[number : number + length]
        one.sendall(bytearray(data))
        assert read(other, length) == data
    assert one.stream.sender.number - before <= 40 + 40 * length // 8192 + 1


def test_memory_may_be_changed_once_send_has_returned(connected: Connect) -> None:
    one, other = connected()
    data = bytearray(pattern(100_000)[:100_000])
    before = bytes(data)
    one.sendall(data)
    data[:] = bytes(len(data))
    assert read(other, len(before)) == before
    assert one.stream.sender.direct_bytes == len(before)  # type: ignore[union-attr]


@pytest.mark.parametrize(("length", "direct"), [(131072, 0), (131073, 131073)])
def test_what_is_copied_sooner_than_waited_for_is_copied(
    connected: Connect, length: int, direct: int
) -> None:
    one, other = connected(in_memory=False)
    sender = one.stream.sender  # type: ignore[union-attr]
    for _ in range(MISSES):
        assert sender.prompt
        sender.judge(False)
    assert not sender.prompt
    data = bytearray(pattern(length)[:length])
    before = bytes(data)
    one.sendall(data)
    data[:] = bytes(length)
    assert read(other, length) == before
    assert one.stream.sender.direct_bytes == direct  # type: ignore[union-attr]
    one.sendall(before)
    assert read(other, length) == before
    assert one.stream.sender.direct_bytes == direct + length  # type: ignore[union-attr]


def test_memory_that_is_taken_at_once_is_not_copied(connected: Connect) -> None:
    """As long as that has not been seen to fail, and after so many copies once more."""
    one, other = connected(in_memory=False)
    sender = one.stream.sender  # type: ignore[union-attr]
    data = bytearray(16385)
    one.sendall(data)
    assert sender.direct_bytes == read_bytes(other, 16385)
    one.sendall(data[:16384])
    assert sender.direct_bytes == read_bytes(other, 16384) + 1
    for _ in range(MISSES):
        sender.judge(False)
    for _ in range(TRY_EACH - 1):
        one.sendall(data)
        read(other, 16385)
    assert sender.direct_bytes == 16385
    one.sendall(data)
    read(other, 16385)
    assert sender.direct_bytes == 2 * 16385
    sender.judge(True)
    assert sender.prompt


def test_a_program_that_does_not_wait_may_change_its_memory_too(connected: Connect) -> None:
    one, other = connected()
    one.setblocking(False)
    data = bytearray(pattern(100_000)[:100_000])
    sent = one.send(data)
    before, data[:] = bytes(data[:sent]), bytes(len(data))
    assert read(other, sent) == before
    assert one.stream.sender.direct_bytes == 0  # type: ignore[union-attr]


def until(condition: Callable[[], object]) -> None:
    """Until it is true, which an event or another thread makes it."""
    end_s = time.monotonic() + limit_s(60)
    while not condition():
        assert time.monotonic() < end_s
        time.sleep(0.001)


@pytest.mark.parametrize("halfway", [False, True])
def test_who_waits_learns_what_another_thread_has_taken(
    connected: Connect, monkeypatch: pytest.MonkeyPatch, halfway: bool
) -> None:
    """The other one has the stream's lock when data arrive, and takes the completion before the reader can:
    no event tells of it again.  ``halfway``: it has taken it, and not yet looked at it."""
    one, other = connected(in_memory=False)
    stream = other.stream
    assert stream is not None
    received: list[bytes] = []
    reader = threading.Thread(target=lambda: received.append(other.recv(100)), daemon=True)
    reader.start()
    until(lambda: stream._sleeping > 0)
    with stream._guard:
        stream._pumping = halfway
        one.sendall(b"taken")
        taken = []
        while halfway and not taken:
            other.stream._driver.progress()  # type: ignore[union-attr]
            taken = stream._handle.poll(8)
        until(lambda: stream._missed)
        if halfway:
            for each in taken:
                stream._arrived(each.imm_data)
            stream._pumping = False
        else:
            stream._pump()
        woken: list[bool] = []
        wake = stream._driver.wake_waiters
        monkeypatch.setattr(stream._driver, "wake_waiters", lambda: woken.append(True) or wake())
    assert woken
    reader.join(limit_s(60))
    assert received == [b"taken"]


def test_a_slow_reader_stops_only_its_sender(connected: Connect) -> None:
    slow, _ = connected(pool_bytes=16384)
    quick, other = connected()
    slow.settimeout(0)
    sent = fill(slow, 4096)
    assert 0 < sent <= 16384
    slow.settimeout(0.01)
    with pytest.raises(TimeoutError):
        slow.sendall(bytes(1 << 20))
    quick.sendall(b"goes on")
    assert other.recv(100) == b"goes on"


def test_a_descriptor_is_readable_and_writable_as_the_socket_is(connected: Connect) -> None:
    one, other = connected(pool_bytes=16384)
    one.setblocking(False)
    poll, epoll = select.poll(), select.epoll()
    for each in (one, other):
        epoll.register(each.fileno(), select.EPOLLIN | select.EPOLLOUT)
    poll.register(other, select.POLLIN)
    try:
        assert not poll.poll(0)
        assert dict(epoll.poll(0)) == {one.fileno(): select.EPOLLOUT, other.fileno(): select.EPOLLOUT}
        sent = fill(one, 4000)
        assert select.select([other], [], [], 20)[0] == [other]
        assert not select.select([], [one], [], 0)[1]
        assert poll.poll(0) == [(other.fileno(), select.POLLIN)]  # a level: still so
        read(other, sent)
        assert not poll.poll(0)
        assert select.select([], [one], [], 20)[1] == [one]
        one.close()
        assert select.select([other], [], [], 20)[0] == [other]
        assert other.recv(10) == b""
    finally:
        epoll.close()


def test_a_scattered_receive_waits_for_the_first_bytes_alone(
    connected: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = connected()
    other.settimeout(20)
    one.sendall(b"abc")
    first, second = bytearray(3), bytearray(3)
    assert other.recvmsg_into([first, second])[0] == 3
    assert first == b"abc"
    asked: list[int] = []
    monkeypatch.setattr(type(other), "recv_into", lambda self, view, *_: asked.append(view.nbytes) or 2)
    assert other.recvmsg_into([first, second])[0] == 2, "the next bytes would leave a gap"
    assert asked == [3]


def test_flags_and_timeouts(connected: Connect) -> None:
    one, other = connected()
    with pytest.raises(BlockingIOError):
        other.recv(1, kernel.MSG_DONTWAIT)
    other.settimeout(0.01)
    with pytest.raises(TimeoutError):
        other.recv(1)
    other.settimeout(20)
    thread = threading.Thread(target=lambda: [one.sendall(bytes([number])) for number in range(100)])
    thread.start()
    assert other.recv(100, kernel.MSG_WAITALL) == bytes(range(100))
    thread.join()
    one.sendmsg([b"ab", bytearray(b"cd"), memoryview(b"ef")])
    first, second = bytearray(3), bytearray(9)
    assert other.recvmsg_into([first, second])[0] == 6
    assert (first, second[:3]) == (b"abc", b"def")
    with pytest.raises(OSError, match="flags"):
        other.recv(1, kernel.MSG_OOB)


def test_files_and_duplicates(connected: Connect, tmp_path: object) -> None:
    one, other = connected()
    again = sockets.socket(fileno=os.dup(one.fileno()))
    assert (again.family, again.type) == (kernel.AF_INET, kernel.SOCK_STREAM)
    one.close()
    with again.makefile("rwb") as lines, other.makefile("rwb") as others:
        lines.write(b"first\nsecond\n")
        lines.flush()
        assert others.readline() + others.readline() == b"first\nsecond\n"
    number = again.detach()
    os.set_blocking(number, True)
    os.write(number, b"by the descriptor alone")
    assert other.recv(100) == b"by the descriptor alone"
    other.sendall(b"and back")
    assert os.read(number, 100) == b"and back"
    os.close(number)
    assert other.recv(1) == b""
    with open(f"{tmp_path}/f", "w+b") as file:
        file.write(pattern(200_000)[:200_000])
        file.flush()
        file.seek(0)
        one, other = connected()
        thread = threading.Thread(target=one.sendfile, args=(file,))
        thread.start()
        assert read(other, 200_000) == pattern(200_000)[:200_000]
        thread.join()


def test_names_are_those_of_the_tcp_connection(connected: Connect) -> None:
    one, other = connected()
    assert one.getpeername() == other.getsockname()
    assert other.getpeername() == one.getsockname()
    one.setsockopt(kernel.IPPROTO_TCP, kernel.TCP_NODELAY, 1)
    assert one.getsockopt(kernel.IPPROTO_TCP, kernel.TCP_NODELAY)


def test_without_a_pool_there_is_no_socket(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: DeviceDriver, length: int, access: int = 0) -> object:
        raise DriverError(errno.ENOMEM, "no memory")

    with sockets.create_server(("127.0.0.1", 0)) as server:
        monkeypatch.setattr(DeviceDriver, "alloc_host_memory", refuse)
        client = sockets.socket()
        with pytest.raises(OSError, match="create buffer pool failed") as found:
            client.connect(server.getsockname())
        assert found.value.errno == errno.ENOBUFS
        assert client.fileno() == -1


def test_peers_without_softhca_are_spoken_to_by_tcp() -> None:
    with kernel.create_server(("127.0.0.1", 0)) as server, sockets.socket() as client:
        client.connect(server.getsockname())
        accepted, _ = server.accept()
        with accepted:
            assert client.stream is None
            client.sendall(b"plain")
            assert accepted.recv(10) == b"plain"
    ours = sockets.create_server(("127.0.0.1", 0))
    with ours, kernel.create_connection(ours.getsockname()) as plain:
        taken, _ = ours.accept()
        with taken:
            assert taken.stream is None
            plain.sendall(b"plain")
            assert taken.recv(10) == b"plain"


def test_what_is_refused_is_refused_as_by_tcp() -> None:
    with kernel.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with sockets.socket() as client, pytest.raises(ConnectionRefusedError):
        client.connect(("127.0.0.1", port))
    assert isinstance(sockets.AF_INET, int)
    assert sockets.gethostbyname("127.0.0.1") == "127.0.0.1"


def test_a_child_of_a_fork_leaves_the_connection_alone(connected: Connect) -> None:
    one, other = connected()
    one.sendall(b"x")
    assert other.recv(1) == b"x"  # else it is the child's, too
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        try:
            other.recv(1)
        except OSError as error:
            os.write(writer, (errno.errorcode[error.errno or 0]).encode())
        other.close()
        one.close()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert os.read(reader, 100) == b"ECONNRESET"
    os.close(reader)
    os.close(writer)
    one.sendall(b"still here")
    assert other.recv(100) == b"still here"


def test_a_server_is_served_by_tcp_alone_in_a_forked_child() -> None:
    with sockets.create_server(("127.0.0.1", 0)) as server:
        assert server._listener is not None
        child = os.fork()
        if not child:
            with creation.create_connection(server.getsockname()) as client:
                os._exit(0 if client.stream is None else 1)
        accepted, _ = server.accept()
        with accepted:
            assert accepted.stream is None
        assert os.waitpid(child, 0)[1] == 0
