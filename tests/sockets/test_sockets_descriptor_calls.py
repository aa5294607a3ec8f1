"""What `os` does with the descriptor of a connection by RDMA: as it comes, and under
``softhca run --sockets``; and that urgent data are refused by every call.
"""

from __future__ import annotations

import errno
import os
import select
import socket as kernel
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from machine_speed import limit_s
from softhca import sockets
from softhca.sockets import descriptor_calls, upgrade

Connect = Callable[..., tuple[sockets.socket, sockets.socket]]
TEXT = bytes(range(256)) * 1200
KERNEL_SENDFILE = os.sendfile


@pytest.fixture
def replaced() -> Iterator[None]:
    """`os` as in a program that ``softhca run --sockets`` has started."""
    descriptor_calls.install()
    yield
    descriptor_calls.uninstall()
    assert os.sendfile is KERNEL_SENDFILE


@pytest.fixture
def file(tmp_path: Path) -> Iterator[int]:
    (tmp_path / "file").write_bytes(TEXT)
    number = os.open(tmp_path / "file", os.O_RDONLY)
    yield number
    os.close(number)


def whole(one: sockets.socket, length: int) -> bytes:
    """So many bytes; fewer where the stream ends."""
    return one.recv(length, kernel.MSG_WAITALL)


def _is_ready(one: sockets.socket) -> bool:
    waiting = select.poll()
    waiting.register(one.fileno(), select.POLLIN)
    return bool(waiting.poll(limit_s(20) * 1000))


def test_who_reads_the_descriptor_itself_is_given_no_byte_that_nobody_sent(connected: Connect) -> None:
    """The stream's data stay the stream's, and the descriptor is ready again for what comes next."""
    one, other = connected()
    assert one.fileno() >= 0
    other.sendall(b"data")
    assert _is_ready(one)
    assert os.read(one.fileno(), 100) == b""
    assert one.recv(100) == b"data"
    other.sendall(b"more")
    assert _is_ready(one)
    assert one.recv(100) == b"more"
    with pytest.raises(BrokenPipeError):
        os.write(one.fileno(), b"x")


def test_os_reads_and_writes_a_stream(replaced: None, connected: Connect) -> None:
    one, other = connected()
    with pytest.raises(BlockingIOError):  # a socket with a time-out has a descriptor that does not block
        os.read(one.fileno(), 1)
    one.settimeout(None)
    assert os.write(one.fileno(), bytearray(b"first ")) == 6
    assert os.writev(one.fileno(), [b"and ", memoryview(b"second")]) == 10
    other.settimeout(None)
    first, rest = bytearray(4), bytearray(100)
    assert whole(other, 2) == b"fi"
    assert os.readv(other.fileno(), [first, rest]) == 14
    assert bytes(first + rest[:10]) == b"rst and second"
    assert os.read(other.fileno(), 0) == b""
    other.settimeout(0)
    with pytest.raises(BlockingIOError):
        os.read(other.fileno(), 1)
    duplicate = os.dup(one.fileno())
    os.write(duplicate, b"by a duplicate")
    os.close(duplicate)
    one.shutdown(kernel.SHUT_WR)
    other.settimeout(None)
    assert os.read(other.fileno(), 14) == b"by a duplicate"
    assert os.read(other.fileno(), 14) == b""
    with pytest.raises(OSError, match=os.strerror(errno.EINVAL)):
        os.read(other.fileno(), -1)


def test_os_sends_a_file_to_a_stream(replaced: None, connected: Connect, file: int) -> None:
    one, other = connected()
    one.settimeout(None)
    sent: list[int] = []
    sending = threading.Thread(target=lambda: sent.append(os.sendfile(one.fileno(), file, 3, 1 << 30)))
    sending.start()
    assert whole(other, len(TEXT) - 3) == TEXT[3:]
    sending.join()
    assert sent == [len(TEXT) - 3]
    assert os.lseek(file, 0, os.SEEK_CUR) == 0
    assert os.sendfile(one.fileno(), file, None, 5) == 5
    assert os.sendfile(one.fileno(), file, None, count=6) == 6
    assert os.lseek(file, 0, os.SEEK_CUR) == 11
    assert whole(other, 11) == TEXT[:11]
    assert os.sendfile(one.fileno(), file, len(TEXT), 5) == 0


def test_a_file_that_finds_no_room_is_sent_as_far_as_it_goes(
    replaced: None, connected: Connect, file: int
) -> None:
    one, other = connected(pool_bytes=1 << 16, staging_bytes=1 << 16)
    one.settimeout(0)
    place = os.sendfile(one.fileno(), file, 0, len(TEXT))
    with pytest.raises(BlockingIOError):
        os.sendfile(one.fileno(), file, place, len(TEXT) - place)
    assert 0 < place < len(TEXT)
    assert whole(other, place) == TEXT[:place]


def test_what_cannot_be_sent_is_invalid(replaced: None, connected: Connect, file: int) -> None:
    one, _ = connected()
    reader, writer = os.pipe()
    calls: tuple[Callable[[], int], ...] = (
        lambda: os.sendfile(one.fileno(), reader, None, 5),
        lambda: os.sendfile(one.fileno(), file, 0, -1),
        lambda: os.sendfile(one.fileno(), file, -1, 5),
        lambda: os.splice(reader, one.fileno(), 5),
        lambda: os.splice(one.fileno(), writer, 5, flags=os.SPLICE_F_NONBLOCK),
    )
    for call in calls:
        with pytest.raises(OSError, match=os.strerror(errno.EINVAL)):
            call()
    with pytest.raises(OSError, match=os.strerror(errno.EBADF)):
        os.sendfile(one.fileno(), 99_999, 0, 5)
    os.close(reader)
    os.close(writer)


def test_other_descriptors_are_the_kernel_s(replaced: None, connected: Connect, file: int) -> None:
    connected()
    reader, writer = os.pipe()
    assert os.write(writer, b"abc") == 3
    assert os.writev(writer, [b"d", b"e"]) == 2
    into = bytearray(2)
    assert os.readv(reader, [into]) == 2
    assert bytes(into) + os.read(reader, 100) == b"abcde"
    with open(os.devnull, "wb") as nothing:
        assert os.sendfile(nothing.fileno(), file, 0, 10) == 10
    assert os.splice(file, writer, 4, offset_src=0) == 4
    assert os.read(reader, 100) == TEXT[:4]
    os.close(reader)
    with pytest.raises(OSError, match=os.strerror(errno.EBADF)):
        os.read(reader, 1)
    os.close(writer)


def test_a_file_whose_inode_has_a_stream_s_number_is_read_as_a_file(
    replaced: None, connected: Connect, file: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each file system numbers its own inodes; those of sockets and of files are often the same."""
    one, other = connected()
    other.sendall(b"of a stream")
    stream = upgrade.standing_for(one.fileno())
    assert stream is not None
    monkeypatch.setitem(upgrade._upgrades, os.fstat(file).st_ino, stream)
    assert os.read(file, 10) == TEXT[:10]


def test_a_class_that_keeps_one_of_these_functions_has_no_method_of_it(replaced: None, file: int) -> None:
    """So it is with the kernel's, and with `multiprocessing`'s connections."""
    kept = type("Kept", (), {"take": os.read})()
    assert kept.take(file, 3) == TEXT[:3]


def test_nothing_is_taken_for_buffers_that_cannot_be_written_to(
    replaced: None, connected: Connect
) -> None:
    one, other = connected()
    other.sendall(b"abc")
    assert _is_ready(one)
    one.settimeout(None)
    with pytest.raises(TypeError):
        os.readv(one.fileno(), [bytearray(2), b"no"])
    one.settimeout(0)
    assert os.read(one.fileno(), 3) == b"abc"


def test_a_file_that_cannot_be_read_further_is_sent_as_far_as_it_goes(
    replaced: None, connected: Connect, file: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = connected()
    one.settimeout(None)
    whole_file = os.pread

    def pread(number: int, length: int, place: int) -> bytes:
        if place >= 100:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return whole_file(number, min(length, 100), place)

    monkeypatch.setattr(os, "pread", pread)
    assert os.sendfile(one.fileno(), file, 0, 500) == 100
    assert whole(other, 100) == TEXT[:100]
    with pytest.raises(OSError, match=os.strerror(errno.EIO)):
        os.sendfile(one.fileno(), file, 100, 400)


def test_a_socket_sends_a_file_in_either_way(connected: Connect, tmp_path: Path) -> None:
    """`socket.sendfile`, with offset and count, to the end, with a time-out, and of what is no file."""
    (tmp_path / "file").write_bytes(TEXT)
    one, other = connected()
    with open(tmp_path / "file", "rb") as file:
        assert one.sendfile(file, 7, 100) == 100
        assert file.tell() == 107
        assert whole(other, 100) == TEXT[7:107]
        assert one.sendfile(file, len(TEXT) - 10) == 10
        assert whole(other, 10) == TEXT[-10:]
        one.settimeout(0)
        with pytest.raises(ValueError, match="non-blocking"):
            one.sendfile(file)


def test_urgent_data_are_refused_by_every_call(connected: Connect) -> None:
    """Nothing of them is sent as plain data, nothing is taken, and the connection goes on."""
    one, other = connected()
    one.sendall(b"plain")
    urgent, into = kernel.MSG_OOB, bytearray(1)
    for call in (
        lambda: one.send(b"!", urgent),
        lambda: one.sendall(b"!", urgent),
        lambda: one.sendmsg([b"!"], (), urgent),
        lambda: one.sendto(b"!", urgent, ("127.0.0.1", 1)),
        lambda: other.recv(1, urgent),
        lambda: other.recv_into(into, 1, urgent),
        lambda: other.recvfrom(1, urgent),
        lambda: other.recvfrom_into(into, 1, urgent),
        lambda: other.recvmsg(1, 0, urgent),
        lambda: other.recvmsg_into([into], 0, urgent),
    ):
        with pytest.raises(OSError, match="flags 0x1 over RDMA") as refused:
            call()
        assert refused.value.errno == errno.EOPNOTSUPP
    one.setsockopt(kernel.SOL_SOCKET, kernel.SO_OOBINLINE, 1)
    assert one.getsockopt(kernel.SOL_SOCKET, kernel.SO_OOBINLINE) == 1
    assert other.recv(100) == b"plain"
