"""Streams that end: by halves, by a failure, by a reset, and by what no honest peer says."""

from __future__ import annotations

import errno
import os
import select
import socket as kernel
import struct
import threading

import pytest
from streamed_bytes import Connect

from machine_speed import limit_s
from softhca import sockets
from softhca.machine import primitives
from softhca.sockets.memory_processing import Page
from softhca.sockets.protocol import BEHIND_BYTES, CREDIT, DATA, Notification


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


def test_data_that_nobody_read_reset_the_connection(connected: Connect) -> None:
    one, other = connected()
    one.sendall(b"unread")
    assert other.recv(1, kernel.MSG_PEEK) == b"u"
    other.close()
    with pytest.raises(ConnectionResetError):
        one.recv(1)
    assert one.getsockopt(kernel.SOL_SOCKET, kernel.SO_ERROR) == errno.ECONNRESET


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
