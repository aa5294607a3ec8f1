"""Bells: what is rung is heard, a side that listens to nothing holds nobody up, and an end is told."""

import socket

from runtime_served import readable

from softhca.runtime import bells


def rung(bell):
    return readable(bell.fileno())


def test_what_is_rung_is_heard_until_it_is_drained():
    one, other = bells.pair()
    assert not rung(other)
    one.ring()
    one.ring()
    assert rung(other)
    assert other.drain() is True
    assert not rung(other)
    assert other.drain() is True  # nothing was rung, and the other side is there
    assert not rung(one)
    one.close()
    other.close()


def test_who_rings_one_that_never_listens_does_not_wait():
    one, other = bells.pair()
    one._end.setblocking(True)
    one._end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    for _ in range(5000):  # each takes more than a byte of the buffer
        one.ring()
    assert rung(other)
    one.close()
    other.close()


def test_an_end_that_is_closed_or_shut_is_told_and_rings_nobody():
    one, other = bells.pair()
    one.shut()
    assert rung(one)  # whoever of this process polls it wakes
    assert rung(other)
    assert one.drain() is False
    assert other.drain() is False
    other.close()
    one.ring()
    one.close()
    one.close()
    assert one.drain() is False
