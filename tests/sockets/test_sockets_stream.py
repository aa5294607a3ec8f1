"""Streams between two sockets of this process, over RDMA: what programs see."""

from __future__ import annotations

import contextlib
import errno
import gc
import os
import select
import socket as kernel
import struct
import threading
import time
from collections.abc import Callable

import pytest

from machine_speed import limit_s
from softhca import sockets
from softhca.driver.device import DeviceDriver
from softhca.driver.errors import DriverError
from softhca.machine import primitives
from softhca.sockets import creation
from softhca.sockets.memory_processing import Page
from softhca.sockets.protocol import BEHIND_BYTES, CREDIT, DATA, Notification
from softhca.sockets.stream_sending import MISSES, TRY_EACH

Pair = tuple[sockets.socket, sockets.socket]
Connect = Callable[..., Pair]


def pattern(length: int) -> bytes:
    """Bytes that differ from place to place."""
    return bytes(at * 31 % 253 for at in range(1021)) * (length // 1021 + 1)


def fill(end: sockets.socket, chunk: int) -> int:
    """Send until no more can go; how many bytes."""
    sent = 0
    try:
        while True:
            sent += end.send(bytes(chunk))
    except BlockingIOError:
        return sent


def read(end: sockets.socket, length: int) -> bytes:
    """Exactly so many bytes."""
    found = bytearray()
    while len(found) < length:
        more = end.recv(length - len(found))
        assert more, "the stream has ended"
        found += more
    return bytes(found)


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


def test_an_end_that_fails_tells_the_other(connected: Connect) -> None:
    """A request that this side's adapter refuses: nothing goes over the wire."""
    one, other = connected()
    stream = one.stream
    assert stream is not None
    assert stream._requests is not None
    with stream._guard:
        stream._requests.write(stream.sender.next(), [Page(0, 600, 0)], [(0, 600)], 7)
    with pytest.raises(ConnectionResetError):
        other.recv(1)


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


def test_pages_are_mapped_and_not_copied(connected: Connect) -> None:
    """The adapter writes into the pool, and the buffer shows the pool's own pages."""
    one, other = connected(pool_bytes=1 << 20, chunk_bytes=1 << 20)
    stream, data = other.stream, pattern(1 << 18)[: 1 << 18]
    assert stream is not None
    with sockets.PageBuffer(1 << 18) as buffer:
        one.sendall(data)
        assert other.recv_into(buffer, flags=kernel.MSG_WAITALL) == len(data)
        assert buffer[:] == data
        assert (stream.receiver.copied_bytes, stream.receiver.mapped_bytes) == (0, len(data))
        assert stream.held_bytes == len(data)
        primitives.fill(stream.receiver.pool.address + 5, 0x5A, 1)  # the pool's page is the buffer's
        assert buffer[5] == 0x5A
        buffer.release()
        assert buffer[5] == 0x5A
        assert stream.held_bytes == 0
        primitives.fill(stream.receiver.pool.address + 5, 0xA5, 1)
        assert buffer[5] == 0x5A
        one.sendall(data[:10_000])
        read(other, 10_000)  # below the threshold, and no page buffer: copied
        assert stream.receiver.copied_bytes == 10_000


def test_a_look_maps_nothing_and_half_the_pool_is_never_the_buffer_s(connected: Connect) -> None:
    one, other = connected(pool_bytes=1 << 17)
    stream, data = other.stream, pattern(1 << 17)[: 1 << 17]
    assert stream is not None
    with sockets.PageBuffer(1 << 17) as buffer:
        one.sendall(data)
        assert other.recv_into(buffer, flags=kernel.MSG_PEEK) == len(data)
        assert (buffer[:], stream.receiver.mapped_bytes, stream.held_bytes) == (data, 0, 0)
        assert other.recv_into(buffer) == 1 << 16
        assert (stream.receiver.mapped_bytes, stream.held_bytes) == (1 << 16, 1 << 16)
        assert other.recv_into(memoryview(buffer)[1 << 16 :]) == 1 << 16
        assert buffer[:] == data
        assert stream.receiver.mapped_bytes == 1 << 16


def test_a_buffer_that_is_left_gives_its_pages_back(connected: Connect) -> None:
    """What stayed mapped was looked for at the end of the socket, where nothing was any more."""
    one, other = connected(pool_bytes=1 << 17)
    assert other.stream is not None
    one.sendall(pattern(32768)[:32768])
    with sockets.PageBuffer(32768) as buffer:
        assert other.recv_into(buffer) == 32768
        assert other.stream.held_bytes == 32768
        with memoryview(buffer), pytest.raises(BufferError):
            buffer.__exit__(None, None, None)
        assert (other.stream.held_bytes, buffer.closed) == (0, False)
        one.sendall(pattern(32768)[:32768])
        assert other.recv_into(buffer) == 32768
    assert (other.stream.held_bytes, buffer.closed) == (0, True)


def test_pages_that_cannot_be_given_back_stay_mapped_and_keep_their_room(
    connected: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = connected(pool_bytes=1 << 18)
    data = pattern(65536)[:65536]
    with sockets.PageBuffer(65536) as buffer:
        one.sendall(data)
        assert other.recv_into(buffer, flags=kernel.MSG_WAITALL) == len(data)
        with monkeypatch.context() as scarce:
            scarce.setattr(primitives, "map_pages", lambda *_: -errno.ENOMEM)
            with pytest.raises(OSError, match="own pages again") as caught:
                buffer.release()
        assert caught.value.errno == errno.ENOMEM
        assert (buffer[:], other.stream.held_bytes) == (data, 65536)  # type: ignore[union-attr]
        buffer.release()
        assert (buffer[:], other.stream.held_bytes) == (data, 0)  # type: ignore[union-attr]


def test_a_page_buffer_keeps_its_length(connected: Connect) -> None:
    """One that moved had its pages at other places of its file, and the sender's room stayed taken."""
    one, other = connected(pool_bytes=1 << 18)
    data = pattern(65536)[:65536]
    with sockets.PageBuffer(65536) as buffer:
        with pytest.raises(TypeError, match="keeps its length"):
            buffer.resize(1 << 24)
        assert len(buffer) == 65536
        one.sendall(data)
        assert other.recv_into(buffer, flags=kernel.MSG_WAITALL) == len(data)
        buffer.release()
        assert (buffer[:], other.stream.held_bytes) == (data, 0)  # type: ignore[union-attr]


@pytest.mark.parametrize("how", ["release", "drop"])
def test_pages_that_stay_mapped_at_the_end_are_nobody_else_s_until_they_are_not(
    connected: Connect, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """The system has no memory for the buffer's own pages when the socket is closed."""

    def places() -> set[int]:
        """Of the pools of connections that come later, each of which is written full."""
        found = set()
        pairs = [connected() for _ in range(3)]
        for one, other in pairs:
            for sender, receiver in ((one, other), (other, one)):
                assert receiver.stream is not None
                found.add(receiver.stream.receiver.pool.address)
                sender.setblocking(False)
                with contextlib.suppress(BlockingIOError):
                    while True:
                        sender.send(b"\xee" * 65536)
        for pair in pairs:
            for each in pair:
                each.close()
        return found

    one, other = connected()
    assert other.stream is not None
    place = other.stream.receiver.pool.address
    data = bytes(range(256)) * 256
    buffer = sockets.PageBuffer(65536)
    one.sendall(data)
    assert other.recv_into(buffer, flags=kernel.MSG_WAITALL) == len(data)
    with monkeypatch.context() as scarce:
        scarce.setattr(primitives, "map_pages", lambda *_: -errno.ENOMEM)
        other.close()
    one.close()
    assert place not in places()
    assert buffer[:] == data
    if how == "release":
        buffer.release()
        assert buffer[:] == data
        buffer.close()
    del buffer
    gc.collect()
    assert place in places()


def test_mapped_pages_stay_what_they_are_until_the_next_receive(connected: Connect) -> None:
    one, other = connected(pool_bytes=1 << 17)
    buffers = [sockets.PageBuffer(32768) for _ in range(2)]
    rounds = [bytes([number]) * 32768 for number in range(12)]
    for number, data in enumerate(rounds):
        one.sendall(data)
        buffer = buffers[number % 2]
        assert other.recv_into(buffer, flags=kernel.MSG_WAITALL) == len(data)
        assert buffer[:] == data
        if number:
            assert buffers[(number - 1) % 2][:] == rounds[number - 1]
    other.close()
    assert buffers[1][:] == rounds[11]
    assert buffers[0][:] == rounds[10]
    for buffer in buffers:
        buffer.close()


def test_mapped_pages_do_not_stop_who_receives_elsewhere(connected: Connect) -> None:
    """The buffer keeps what it has, and what the program has written there."""
    one, other = connected(pool_bytes=1 << 18)
    stream = other.stream
    assert stream is not None
    with sockets.PageBuffer(1 << 18) as buffer:
        for at in (0, 65536):
            one.sendall(pattern(65536)[:65536])
            assert other.recv_into(memoryview(buffer)[at:], flags=0) == 65536
        assert (stream.held_bytes, stream.receiver.copied_bytes) == (131_072, 0)
        buffer[5:10] = b"hello"
        for round_ in range(20):
            data = bytes([round_]) * 16384
            one.sendall(data)
            assert read(other, len(data)) == data
        assert buffer[:65536] == pattern(65536)[:5] + b"hello" + pattern(65536)[10:65536]
        assert buffer[65536:131_072] == pattern(65536)[:65536]
        assert stream.receiver.copied_bytes == 131_072 + 20 * 16384
        assert stream.held_bytes == 0
        buffer[5:10] = b"world"  # no memory of the pool any more
        assert buffer[:12] == pattern(65536)[:5] + b"world" + pattern(65536)[10:12]
        one.sendall(data)
        assert read(other, len(data)) == data
        one.sendall(bytes(65536))
        assert other.recv_into(buffer) in range(1, 65537)


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


def test_mapped_pages_whose_copies_are_refused_stay(
    connected: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = connected(pool_bytes=1 << 18)
    data = pattern(65536)[:65536]
    with sockets.PageBuffer(65536) as buffer:
        one.sendall(data)
        assert other.recv_into(buffer, flags=kernel.MSG_WAITALL) == len(data)
        with monkeypatch.context() as scarce:
            scarce.setattr(primitives, "map_private", lambda *_: -errno.ENOMEM)
            for _ in range(6):
                one.sendall(data[:16384])
                read(other, 16384)
            assert (buffer[:], other.stream.held_bytes) == (data, 65536)  # type: ignore[union-attr]
        one.sendall(data[:16384])
        read(other, 16384)
        assert (buffer[:], other.stream.held_bytes) == (data, 0)  # type: ignore[union-attr]


def test_a_buffer_that_is_dropped_gives_its_pages_back(connected: Connect) -> None:
    one, other = connected()
    buffer = sockets.PageBuffer(65536)
    one.sendall(bytes(65536))
    other.recv_into(buffer, flags=kernel.MSG_WAITALL)
    assert other.stream.held_bytes == 65536  # type: ignore[union-attr]
    del buffer
    assert other.stream.held_bytes == 0  # type: ignore[union-attr]


def test_a_lent_view_is_the_pool_and_stops_the_sender(connected: Connect) -> None:
    one, other = connected(pool_bytes=65536)
    data = pattern(65536)[:65536]
    one.sendall(data)
    view = other.recv_view(65536)
    part = view[:10]
    assert view == data
    view.release()
    one.setblocking(False)
    with pytest.raises(BlockingIOError):
        one.send(b"more")
    assert part == data[:10]
    part.release()
    one.settimeout(20)
    one.sendall(b"more")
    assert other.recv(10) == b"more"
    assert other.stream.receiver.lent_bytes == 65536  # type: ignore[union-attr]
    assert other.stream.receiver.copied_bytes == 4  # type: ignore[union-attr]


def test_lent_views_outlive_their_socket(connected: Connect) -> None:
    one, other = connected()
    one.sendall(b"kept")
    view = other.recv_view(100)
    other.close()
    one.close()
    assert view == b"kept"
    view.release()


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


def test_halves_end_one_by_one(connected: Connect) -> None:
    one, other = connected()
    one.sendall(b"last words")
    one.shutdown(kernel.SHUT_WR)
    with pytest.raises(BrokenPipeError):
        one.send(b"more")
    assert other.recv(100) == b"last words"
    assert other.recv(100) == other.recv(100) == b""
    other.sendall(b"answer")
    assert one.recv(100) == b"answer"
    other.shutdown(kernel.SHUT_RD)
    one.close()
    assert other.recv(1) == b""


def test_who_reads_no_more_is_given_nothing_not_even_what_is_there(connected: Connect) -> None:
    one, other = connected()
    one.sendall(b"unread")
    assert other.recv(1, kernel.MSG_PEEK) == b"u"
    other.shutdown(kernel.SHUT_RD)
    assert other.recv(1) == b""
    other.sendall(b"the other half goes on")
    assert one.recv(100) == b"the other half goes on"


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


def test_data_that_nobody_read_reset_the_connection(connected: Connect) -> None:
    one, other = connected()
    one.sendall(b"unread")
    assert other.recv(1, kernel.MSG_PEEK) == b"u"
    other.close()
    with pytest.raises(ConnectionResetError):
        one.recv(1)
    assert one.getsockopt(kernel.SOL_SOCKET, kernel.SO_ERROR) == errno.ECONNRESET


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


def _resets(one: sockets.socket) -> None:
    one.setsockopt(kernel.SOL_SOCKET, kernel.SO_LINGER, struct.pack("ii", 1, 0))
    one.close()


def test_a_close_without_lingering_is_a_reset(connected: Connect) -> None:
    """As TCP's is, whether there are unread data or not."""
    one, other = connected()
    one.sendall(b"x")
    assert other.recv(1) == b"x"
    _resets(one)
    with pytest.raises(ConnectionResetError):
        other.recv(1)


@pytest.mark.parametrize("waits", [True, False])
def test_a_reset_is_one_at_a_descriptor_that_was_detached(connected: Connect, waits: bool) -> None:
    """Whether a thread waits in a read then or reads later; what was sent before is read before."""
    one, other = connected()
    number = other.detach()
    os.set_blocking(number, True)
    one.sendall(b"last words")
    assert os.read(number, 100) == b"last words"
    ended: list[object] = []

    def read() -> None:
        try:
            ended.append(os.read(number, 1))
        except OSError as error:
            ended.append(error.errno)

    if waits:
        reader = threading.Thread(target=read)
        reader.start()
        _resets(one)
        reader.join()
    else:
        _resets(one)
        assert select.select([number], [], [], limit_s(20))[0]
        read()
    os.close(number)
    assert ended == [errno.ECONNRESET]


def test_a_reset_of_a_descriptor_that_has_another_number_is_an_end(connected: Connect) -> None:
    one, other = connected()
    number = other.detach()
    os.set_blocking(number, True)
    moved = os.dup(number)
    with open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), number)
    _resets(one)
    assert os.read(moved, 1) == b""
    os.close(moved)
    os.close(number)


def test_names_are_those_of_the_tcp_connection(connected: Connect) -> None:
    one, other = connected()
    assert one.getpeername() == other.getsockname()
    assert other.getpeername() == one.getsockname()
    one.setsockopt(kernel.IPPROTO_TCP, kernel.TCP_NODELAY, 1)
    assert one.getsockopt(kernel.IPPROTO_TCP, kernel.TCP_NODELAY)


def test_a_wait_ends_when_another_thread_closes_the_socket(connected: Connect) -> None:
    _, other = connected()
    other.settimeout(None)
    ended = []

    def wait() -> None:
        try:
            ended.append(other.recv(1))
        except OSError as error:
            ended.append(error.errno)

    thread = threading.Thread(target=wait)
    thread.start()
    other.shutdown(kernel.SHUT_RDWR)
    thread.join(20)
    assert ended == [b""]


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


@pytest.mark.parametrize(
    "said",
    [
        Notification(DATA, (1 << 28) - 1).encode(),
        Notification(DATA, 0).encode(),
        Notification(CREDIT).encode() | 2,
        0xFFFFFFFF,
    ],
)
def test_a_forged_notification_resets_the_connection(connected: Connect, said: int) -> None:
    one, other = connected()
    stream = one.stream
    assert stream is not None
    assert stream._requests is not None
    with stream._guard:
        stream._requests.notify(stream.sender.next(), said)
    for end in (other, one):
        with pytest.raises(ConnectionResetError):
            end.recv(1)


def test_forged_credit_resets_the_connection(connected: Connect) -> None:
    one, other = connected()
    stream = one.stream
    assert stream is not None
    assert stream._requests is not None
    with stream._guard:
        stream._requests.credit(stream.sender.next(), 1 << 40, 0, Notification(CREDIT).encode())
    for end in (other, one):
        with pytest.raises(ConnectionResetError):
            end.recv(1)


def test_a_peer_cannot_write_outside_its_pool(connected: Connect) -> None:
    """The adapter refuses, and the connection ends; what lies behind the pool is as it was."""
    one, other = connected(pool_bytes=16384)
    stream = one.stream
    assert stream is not None
    assert stream._requests is not None
    data = b"outside"
    outside = 16384 + BEHIND_BYTES
    behind = other.stream.receiver.pool.address + outside  # type: ignore[union-attr]
    before = primitives.bytes_at(behind, 100)
    with stream._guard:
        run = Page(primitives.address_of(memoryview(data), False), len(data), 0)
        stream._requests.write(stream.sender.next(), [run], [(outside, len(data))], 7, inline=True)
    with pytest.raises(ConnectionResetError):
        one.recv(1)
    assert primitives.bytes_at(behind, 100) == before
    with pytest.raises(ConnectionResetError):
        other.recv(1)


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
