"""Wake sockets: a wake-up makes the other end readable, a full one blocks nobody, an end is seen."""

import socket

from runtime_served import readable

from softhca.runtime.wake_socket import WakeSocket


def woken(end):
    return readable(end.fileno())


def test_a_wake_up_is_seen_until_it_is_drained():
    one, other = WakeSocket.pair()
    assert not woken(other)
    one.wake()
    one.wake()
    assert woken(other)
    assert other.drain() is True
    assert not woken(other)
    assert other.drain() is True  # nothing was sent, and the other side is there
    assert not woken(one)
    one.close()
    other.close()


def test_who_wakes_one_that_never_listens_does_not_wait():
    one, other = WakeSocket.pair()
    one._end.setblocking(True)
    one._end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    for _ in range(5000):  # each takes more than a byte of the buffer
        one.wake()
    assert woken(other)
    one.close()
    other.close()


def test_an_end_that_is_closed_or_shut_is_seen_and_wakes_nobody():
    one, other = WakeSocket.pair()
    one.shut()
    assert woken(one)  # whoever of this process polls it wakes
    assert woken(other)
    assert one.drain() is False
    assert other.drain() is False
    other.close()
    one.wake()
    one.close()
    one.close()
    assert one.drain() is False
