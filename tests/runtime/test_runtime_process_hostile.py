"""Nothing that an application has a hand in makes the process that serves it wait, or spin: an adapter
process, or a program in which the adapter is embedded."""

import contextlib
import errno
import fcntl
import os
import resource
import socket
import threading

import pytest
from runtime_served import BOUND_S, embedding, serving, until

from softhca.driver.device import DeviceDriver
from softhca.queues import control_fields
from softhca.queues.handshake import ATTACH
from softhca.runtime import adapter_process, listener, messages
from softhca.runtime.adapter_process import AdapterProcess
from softhca.runtime.listener import Listener
from softhca.runtime.process import ProcessChannel
from softhca.runtime.server import ACCEPT_RETRY_NS, MAX_APPLICATIONS
from softhca.runtime.specification import parse_one
from softhca.runtime.wake_socket import WakeSocket

MOST_BYTES = 10_000
"""So many wake-ups fill any socket: each takes some hundred bytes of a socket's buffer."""


@pytest.fixture(params=[serving, embedding])
def server(request, loopback_address):
    with request.param(loopback_address()) as made:
        yield made


def attach(server):
    return ProcessChannel(AdapterProcess(parse_one(f"s=unix:{server.path}")))


def is_served(server):
    """Whether another application gets its answers: a server that waits for one has none for the other."""
    found = []

    def ask():
        driver = DeviceDriver("other", attach(server))
        found.append(driver.alloc_pd())
        driver.close()

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(BOUND_S)
    return bool(found)


def test_a_wake_socket_that_nobody_hears_and_that_may_block_keeps_nobody(server):
    channel = attach(server)
    end = channel._wake_socket._end
    end.setblocking(True)
    ours = next(iter(server._wake_sockets.values())).wake_socket
    for _ in range(MOST_BYTES):  # its buffer is full long before
        ours.wake()
    with pytest.raises(BlockingIOError):
        ours._end.send(b"\0", socket.MSG_DONTWAIT)
    channel.commands.send(control_fields.ALLOC_PD, 1, {})
    channel.kick()
    until(lambda: channel.replies.count() == 1)
    assert is_served(server)
    channel.close()


def test_who_rings_without_end_is_served_beside_others(server):
    channel = attach(server)
    end = channel._wake_socket._end
    end.setblocking(False)
    with contextlib.suppress(BlockingIOError):
        while True:
            end.send(bytes(1 << 16))
    assert is_served(server)
    channel.close()


def test_who_closes_his_end_of_the_wake_socket_is_let_go(server):
    channel = attach(server)
    channel._wake_socket.close()
    until(lambda: not channel.check_alive())
    assert not server._applications
    assert is_served(server)
    channel.close()


def test_neither_end_of_a_wake_socket_waits_and_both_notice_the_end():
    one, other = WakeSocket.pair()
    assert one.drain()
    other.wake()
    other.wake()
    assert one.drain()
    other.close()
    assert not one.drain()
    one.wake()
    one.close()
    other.close()


def test_an_application_passes_nothing_but_memfds(server):
    channel = attach(server)
    reader, writer = os.pipe()
    with pytest.raises(OSError, match="memfd") as caught:
        channel.pass_descriptor(reader)
    assert caught.value.errno == errno.EPROTO
    memfd = os.memfd_create("any", os.MFD_ALLOW_SEALING)
    assert channel.pass_descriptor(memfd) == 1
    messages.close_all((reader, writer, memfd))
    channel.close()


def test_memory_that_would_take_the_address_space_of_others_is_refused(server):
    control = adapter_process.connect_to(server.path, "large")
    memfd = os.memfd_create("large", os.MFD_ALLOW_SEALING)
    os.ftruncate(memfd, (1 << 38) + (16 << 20))
    fcntl.fcntl(memfd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK)
    with pytest.raises(OSError, match="at most") as caught:
        adapter_process.ask(control, ATTACH, {"flag": 3}, (memfd,))
    assert caught.value.errno == errno.EFBIG
    os.close(memfd)
    control.close()


def test_one_application_more_than_can_be_is_told_so(server):
    controls = [adapter_process.connect_to(server.path, "one") for _ in range(MAX_APPLICATIONS)]
    until(lambda: len(server._applications) == MAX_APPLICATIONS)
    with pytest.raises(OSError, match=f"serves {MAX_APPLICATIONS}") as caught:
        attach(server)
    assert caught.value.errno == errno.EUSERS
    controls.pop().close()
    until(lambda: len(server._applications) < MAX_APPLICATIONS)
    assert is_served(server)
    for control in controls:
        control.close()


def test_who_comes_when_no_descriptor_is_left_is_told_so():
    door = Listener(f"@softhca-door-{os.getpid()}")
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    for _ in range(3):
        control = adapter_process.connect_to(door.path, "late")
        free = os.dup(0)
        os.close(free)
        resource.setrlimit(resource.RLIMIT_NOFILE, (free, limits[1]))
        try:
            assert door.accept() is None
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        with pytest.raises(OSError, match="no descriptor left") as caught:
            adapter_process.ask(control, ATTACH)
        assert caught.value.errno == errno.EMFILE
        control.close()
    assert door.accept() is None
    control = adapter_process.connect_to(door.path, "in time")
    door.accept().close()
    control.close()
    door.close()


def test_a_listener_that_cannot_even_refuse_is_left_alone_for_a_while(server, monkeypatch):
    tries = []

    def full(door):
        tries.append(server.adapter.now)
        raise OSError(errno.ENFILE, "no file left in the system")

    plain = Listener._accept
    monkeypatch.setattr(Listener, "_accept", full)
    control = adapter_process.connect_to(server.path, "early")
    sleeps = server.sleeps
    until(lambda: len(tries) >= 6)  # two a try: with the descriptor in reserve and without it
    assert server.sleeps - sleeps <= len(tries)
    monkeypatch.setattr(Listener, "_accept", plain)
    with pytest.raises(OSError, match="takes the descriptor"):
        adapter_process.ask(control, ATTACH)
    control.close()
    assert is_served(server)
    assert listener.BACKLOG >= MAX_APPLICATIONS
    assert ACCEPT_RETRY_NS < BOUND_S * 10**9
