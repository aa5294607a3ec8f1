"""Pages of streams that programs map or are lent: whose they are, until when, and whom they hold up."""

from __future__ import annotations

import contextlib
import errno
import gc
import socket as kernel

import pytest
from streamed_bytes import Connect, pattern, read

from softhca import sockets
from softhca.machine import primitives


def wait_for(receiver: sockets.socket, length: int) -> bool:
    """Have so many bytes arrived, without receiving them."""
    while len(receiver.recv(length, kernel.MSG_PEEK)) < length:
        pass
    return True


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


def test_pages_take_the_place_of_as_many_others(
    connected: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One change of the page table a receive, not two; what was there before is the sender's room again."""
    one, other = connected(pool_bytes=1 << 18)
    stream, changes, change = other.stream, list[int](), primitives.map_pages
    assert stream is not None

    def counted(address: int, length: int, *rest: int) -> int:
        changes.append(length)
        return change(address, length, *rest)

    monkeypatch.setattr(primitives, "map_pages", counted)
    with sockets.PageBuffer(65536) as buffer:
        for number in range(9):
            data = bytes([number]) * 65536
            one.sendall(data)
            assert wait_for(other, 65536)
            assert other.recv_into(buffer) == 65536
            assert (buffer[:], stream.held_bytes) == (data, 65536)
        assert changes == [65536] * 9
        assert (stream.receiver.copied_bytes, stream.receiver.mapped_bytes) == (0, 9 * 65536)
    assert (stream.held_bytes, len(changes)) == (0, 10)


def test_a_buffer_that_has_half_the_pool_is_given_other_pages(connected: Connect) -> None:
    """More could not be mapped: what is there is given back first."""
    one, other = connected(pool_bytes=1 << 17)
    stream = other.stream
    assert stream is not None
    with sockets.PageBuffer(65536) as buffer:
        for number in range(3):
            data = bytes([number]) * 65536
            one.sendall(data)
            assert wait_for(other, 65536)
            assert other.recv_into(buffer) == 65536
            assert (buffer[:], stream.held_bytes) == (data, 65536)
    assert (stream.receiver.copied_bytes, stream.receiver.mapped_bytes) == (0, 3 * 65536)


@pytest.mark.parametrize("length", [32768, 100])
@pytest.mark.parametrize("flags", [0, kernel.MSG_PEEK])
def test_what_is_shorter_takes_no_pages_place(connected: Connect, length: int, flags: int) -> None:
    """The buffer's own pages are there again, so that nothing is copied into the pool, and none of its pages
    stay behind what came."""
    one, other = connected(pool_bytes=1 << 18)
    stream = other.stream
    assert stream is not None
    with sockets.PageBuffer(65536) as buffer:
        one.sendall(b"a" * 65536)
        assert other.recv_into(buffer, flags=kernel.MSG_WAITALL) == 65536
        one.sendall(b"b" * length)
        assert wait_for(other, length)
        assert other.recv_into(buffer, flags=flags) == length
        mapped = length == 32768 and not flags
        assert (buffer[:length], stream.held_bytes) == (b"b" * length, length if mapped else 0)
        pool = stream.receiver.pool.address
        assert primitives.bytes_at(pool, 65536) == b"a" * 65536
        primitives.fill(pool, 0xEE, 65536)
        assert buffer[:] == b"b" * length + bytes(65536 - length)


def test_pages_of_another_stream_are_given_back_to_it(connected: Connect) -> None:
    pairs = [connected(pool_bytes=1 << 18) for _ in range(2)]
    with sockets.PageBuffer(65536) as buffer:
        for number in range(4):
            (one, other), (_, idle) = pairs[number % 2], pairs[1 - number % 2]
            data = bytes([number]) * 65536
            one.sendall(data)
            assert other.recv_into(buffer, flags=kernel.MSG_WAITALL) == 65536
            assert buffer[:] == data
            assert idle.stream is not None
            assert other.stream is not None
            assert (idle.stream.held_bytes, other.stream.held_bytes) == (0, 65536)


def test_who_waits_has_given_back_what_it_receives_into(connected: Connect) -> None:
    one, other = connected(pool_bytes=1 << 18)
    stream = other.stream
    assert stream is not None
    with sockets.PageBuffer(65536) as buffer:
        one.sendall(bytes(65536))
        assert other.recv_into(buffer, flags=kernel.MSG_WAITALL) == 65536
        with pytest.raises(BlockingIOError):
            other.recv_into(buffer, flags=kernel.MSG_DONTWAIT)
        assert stream.held_bytes == 0


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
