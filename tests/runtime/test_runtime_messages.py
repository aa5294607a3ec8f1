"""The control socket of an adapter process: what crosses, and what is refused without a leak."""

import contextlib
import errno
import os
import resource
import socket
import struct
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from softhca.runtime import messages


@pytest.fixture
def pair():
    here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    yield here, there
    here.close()
    there.close()


def descriptors_open():
    return len(os.listdir("/proc/self/fd"))


def test_a_message_crosses_with_its_descriptors(pair):
    here, there = pair
    pipes = os.pipe()
    messages.send(here, {"request": "attach", "control": [1, 2]}, pipes)
    message, passed = messages.receive(there)
    assert message == {"request": "attach", "control": [1, 2]}
    assert [os.fstat(fd).st_ino for fd in passed] == [os.fstat(fd).st_ino for fd in pipes]
    assert not any(os.get_inheritable(fd) for fd in passed)
    messages.close_all((*pipes, *passed))


def test_as_many_descriptors_as_there_is_use_for_arrive(pair):
    here, there = pair
    pipes = [os.open(os.devnull, os.O_RDONLY) for _ in range(messages.DESCRIPTORS)]
    messages.send(here, {}, pipes)
    message, passed = messages.receive(there)
    assert (message, len(passed)) == ({}, messages.DESCRIPTORS)
    messages.close_all((*pipes, *passed))


def test_a_closed_socket_is_the_end(pair):
    here, there = pair
    here.close()
    assert messages.receive(there) is None


@pytest.mark.parametrize("data", [b"{", b"[]", b"1", b"\xff\xfe", b"[" * 60_000, b'"x"'])
def test_what_is_no_object_is_refused_and_its_descriptors_are_closed(pair, data):
    here, there = pair
    pipes = os.pipe()
    before = descriptors_open()
    socket.send_fds(here, [data], list(pipes))
    with pytest.raises(OSError, match="sent no message") as caught:
        messages.receive(there)
    assert caught.value.errno == errno.EPROTO
    assert descriptors_open() == before
    messages.close_all(pipes)


@pytest.mark.parametrize("count", [messages.DESCRIPTORS + 1, 16])
def test_more_descriptors_than_there_is_use_for_are_refused_and_closed(pair, count):
    here, there = pair
    pipes = [os.open(os.devnull, os.O_RDONLY) for _ in range(count)]
    before = descriptors_open()
    socket.send_fds(here, [b"{}"], pipes)
    with pytest.raises(OSError, match="too long"):
        messages.receive(there)
    assert descriptors_open() == before
    messages.close_all(pipes)


@pytest.mark.parametrize("left", [0, 1])
def test_who_has_no_descriptor_left_is_told_so_and_keeps_none(pair, left):
    """The other side has done nothing wrong."""
    here, there = pair
    pipes = os.pipe()
    messages.send(here, {}, pipes)
    before = descriptors_open()
    free = os.dup(0)
    os.close(free)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free + left, hard))
    try:
        with pytest.raises(OSError, match="no descriptor is left") as caught:
            messages.receive(there)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert caught.value.errno == errno.EMFILE
    assert descriptors_open() == before
    messages.close_all(pipes)


def test_a_message_that_is_too_long_is_not_sent(pair):
    with pytest.raises(OSError, match="a message of") as caught:
        messages.send(pair[0], {"x": "y" * messages.MESSAGE_BYTES})
    assert caught.value.errno == errno.EMSGSIZE


def test_a_message_that_is_cut_is_refused(pair):
    here, there = pair
    here.send(b'{"x": "' + b"y" * messages.MESSAGE_BYTES + b'"}')
    with pytest.raises(OSError, match="too long"):
        messages.receive(there)


@given(st.binary(min_size=1, max_size=200))
def test_any_bytes_are_an_object_or_a_refusal(data):
    here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with here, there:
        here.send(data)
        try:
            received = messages.receive(there)
        except OSError as error:
            refusal = error.errno
        else:
            refusal = 0
            assert isinstance(received[0], dict)
        assert refusal in (0, errno.EPROTO)


def test_the_peer_is_who_the_kernel_says(pair):
    assert messages.peer_of(pair[0]) == (os.getpid(), os.getuid())


def test_closing_what_was_passed_waits_for_nobody():
    """A TCP socket whose last close waits, as long as it may, for a peer that reads nothing."""
    listener = socket.create_server(("127.0.0.1", 0))
    sender = socket.create_connection(listener.getsockname())
    peer, _ = listener.accept()
    listener.close()
    sender.setblocking(False)
    with contextlib.suppress(BlockingIOError):
        while True:
            sender.send(bytes(1 << 20))
    sender.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 3600))
    sender.setblocking(True)
    thread = threading.Thread(target=messages.close_all, args=([sender.detach()],), daemon=True)
    thread.start()
    thread.join(20)
    assert not thread.is_alive()
    peer.close()


def test_what_does_not_wait_says_so_whatever_became_of_the_socket(pair):
    here, there = pair
    here.setblocking(True)
    with pytest.raises(BlockingIOError):
        messages.receive(here, wait=False)
    with contextlib.suppress(BlockingIOError):
        while True:
            messages.send(here, {"x": "y" * 60_000}, wait=False)
    assert messages.receive(there, wait=False)
