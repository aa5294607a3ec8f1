"""Datagrams to who does not read: what is lost, who waits and how long, and who hears that there is room."""

from __future__ import annotations

import select
import threading
import time

import pytest
from datagram_ends import LONG_S, Bound, pattern

from machine_speed import limit_s
from softhca import sockets
from softhca.sockets import datagram_credits
from softhca.sockets.datagram_credits import SendCredit
from softhca.sockets.datagram_port import DatagramPort


def test_who_does_not_read_loses_the_newest_and_counts_them(bound: Bound) -> None:
    one, other = bound(), bound(pool_bytes=64 * 4096)
    one.sendto(b"first", other.getsockname())
    assert other.recv(10) == b"first"
    end = other.datagrams
    assert end is not None
    for number in range(200):
        one.sendto(b"%d" % number, other.getsockname())
        end.poll()
    kept = []
    while any(port.state.queue for port in end.ports):
        kept.append(int(other.recv(10)))
    assert kept == list(range(48))
    assert end.dropped() == {"full": 152}
    one.sendto(b"later", other.getsockname())
    assert other.recv(10) == b"later"


def known(one: sockets.socket, other: sockets.socket) -> SendCredit:
    """Each knows the other; how far the first may send."""
    one.sendto(b"", other.getsockname())
    assert other.recv(1) == b""
    assert one.datagrams is not None
    way = one.datagrams.peer_at(*other.getsockname()).way
    assert way is not None
    return way.credit


@pytest.mark.parametrize("length", [10, 30_000])
def test_a_slow_reader_loses_nothing(bound: Bound, length: int) -> None:
    """Its sender waits for it, though it has ten times the room."""
    one, other = bound(credit_s=LONG_S), bound(pool_bytes=64 * 4096)
    known(one, other)
    count = 10 * 64 * 4096 // max(length, 4096)

    def send() -> None:
        for number in range(count):
            one.sendto(pattern(length, number % 200), other.getsockname())

    thread = threading.Thread(target=send)
    thread.start()
    for number in range(count):
        assert other.recv(70_000) == pattern(length, number % 200)
    thread.join()
    assert other.datagrams.dropped() == {}  # type: ignore[union-attr]


def test_two_senders_share_the_room_of_a_slow_reader(bound: Bound, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datagram_credits, "ACTIVE_NS", 10**15)  # however slow the machine is
    other = bound(pool_bytes=64 * 4096)
    senders = [bound(credit_s=LONG_S) for _ in range(2)]
    for each in senders:
        known(each, other)

    def send(one: sockets.socket) -> None:
        for number in range(60):
            one.sendto(pattern(10_000, number), other.getsockname())

    threads = [threading.Thread(target=send, args=(each,)) for each in senders]
    for each in threads:
        each.start()
    found = [other.recvfrom(70_000) for _ in range(120)]
    for each in threads:
        each.join()
    for one in senders:
        mine = [data for data, name in found if name == one.getsockname()]
        assert mine == [pattern(10_000, number) for number in range(60)]
    assert other.datagrams.dropped() == {}  # type: ignore[union-attr]


def send_until_free(one: sockets.socket, other: sockets.socket, credit: SendCredit, count: int) -> None:
    """So many numbers, and more where what the peer has told of its room at first comes so late."""
    begun_s, number = time.monotonic(), 0
    while number < count or not credit.free:
        assert one.sendto(b"%d" % number, other.getsockname()) > 0
        assert time.monotonic() < begun_s + limit_s(20)
        number += 1


def test_who_is_told_nothing_waits_once_and_then_sends_as_udp_does(bound: Bound) -> None:
    one, other = bound(credit_s=0.05), bound(pool_bytes=64 * 4096)
    credit = known(one, other)
    begun_s = time.monotonic()
    send_until_free(one, other, credit, 100)
    while not other.datagrams.dropped()["full"]:  # type: ignore[union-attr]
        assert time.monotonic() < begun_s + limit_s(20)
    assert [int(other.recv(10)) for _ in range(48)] == list(range(48))
    while credit.free:  # it reads again, and is waited for again
        one.sendto(b"again", other.getsockname())
        assert other.recv(10) == b"again"
    impatient = bound(credit_s=0)
    assert known(impatient, other).free


def test_the_socket_s_time_out_bounds_the_wait(bound: Bound) -> None:
    one, other = bound(credit_s=LONG_S), bound(pool_bytes=64 * 4096)
    credit = known(one, other)
    one.settimeout(0.01)
    send_until_free(one, other, credit, 60)


def send_until_refused(one: sockets.socket, other: sockets.socket) -> int:
    """How many numbers have gone."""
    for number in range(100):
        try:
            one.sendto(b"%d" % number, other.getsockname())
        except BlockingIOError:
            return number
    raise AssertionError("nobody was refused")


def test_who_is_not_to_wait_is_told_and_its_descriptor_is_writable_again(bound: Bound) -> None:
    one, other, third = bound(credit_s=LONG_S), bound(pool_bytes=64 * 4096), bound()
    known(one, other)
    known(one, third)
    one.setblocking(False)
    with select.epoll() as watching:
        watching.register(one.fileno(), select.EPOLLOUT)
        sent = send_until_refused(one, other)
        assert 7 <= sent <= 32
        assert watching.poll(0) == []
        one.sendto(b"others are sent to", third.getsockname())
        assert third.recv(20) == b"others are sent to"
        assert [int(other.recv(10)) for _ in range(sent)] == list(range(sent))
        assert watching.poll(limit_s(20)) != []
        one.sendto(b"on", other.getsockname())
        assert other.recv(10) == b"on"


def test_two_addresses_of_one_peer_have_one_credit(bound: Bound) -> None:
    """It counts what comes from a queue pair, wherever to."""
    one, other = bound(credit_s=LONG_S), bound(("0.0.0.0", 0), pool_bytes=64 * 4096)
    assert one.datagrams is not None
    names = [(host, other.getsockname()[1]) for host in ("127.0.0.1", "127.0.0.5")]
    for number in range(200):
        one.sendto(b"%d" % number, names[number % 2])
        assert other.recv(10) == b"%d" % number
    ways = [one.datagrams.peer_at(*name).way for name in names]
    assert ways[0] is not None
    assert ways[1] is not None
    assert ways[0].credit is ways[1].credit
    assert not ways[0].credit.free


def test_a_descriptor_is_writable_again_though_nobody_reads(bound: Bound) -> None:
    one, other = bound(credit_s=0.02), bound(pool_bytes=64 * 4096)
    credit = known(one, other)
    one.setblocking(False)
    with select.epoll() as watching:
        watching.register(one.fileno(), select.EPOLLOUT)
        send_until_refused(one, other)
        assert watching.poll(limit_s(20)) != []
        one.sendto(b"y", other.getsockname())
        assert credit.free


def test_nobody_waits_for_a_peer_whose_credit_never_comes(
    bound: Bound, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is dead, or says that there is less room than there is."""
    one, other = bound(credit_s=0.02), bound(pool_bytes=64 * 4096)
    credit = known(one, other)
    monkeypatch.setattr(DatagramPort, "send_credit", lambda *_: False)
    for number in range(300):
        one.sendto(b"%d" % number, other.getsockname())
        assert other.recv(10) == b"%d" % number
    assert credit.free
