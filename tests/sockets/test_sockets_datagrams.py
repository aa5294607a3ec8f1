"""Datagrams between sockets of this process, by RDMA: what programs see."""

from __future__ import annotations

import asyncio
import errno
import os
import select
import socket as kernel
import struct
import threading
import time
from collections.abc import Callable

import pytest
from sockets_under_way import settled

from machine_speed import limit_s
from softhca import sockets
from softhca.driver.device import DeviceDriver
from softhca.driver.errors import DriverError
from softhca.machine import primitives
from softhca.sockets import datagram_credits, datagram_state, datagrams, port_lookup, resolving
from softhca.sockets.connecting import mapped
from softhca.sockets.datagram_credits import SendCredit
from softhca.sockets.datagram_port import DatagramPort
from softhca.sockets.datagram_state import Claim
from softhca.sockets.hub import HUB
from softhca.verbs.cmid import CMID

IP_PKTINFO = 8
Bound = Callable[..., sockets.socket]
HERE = ("127.0.0.1", 0)
LENGTHS = [0, 1, 480, 481, 4064, 4065, 8192, 16384, 16385, 40_000, 65_507]
LONG_S = limit_s(60)


def pattern(length: int, start: int = 0) -> bytes:
    """Bytes that differ from place to place."""
    return (bytes(at * 31 % 253 for at in range(start, start + 1021)) * (length // 1021 + 1))[:length]


def port_of(one: sockets.socket) -> object:
    assert one.datagrams is not None
    return one.datagrams.ports[0]


@pytest.mark.parametrize("kind", [bytes, bytearray])
def test_datagrams_arrive_whole_with_their_addresses(bound: Bound, kind: type) -> None:
    one, other = bound(), bound()
    for length in LENGTHS:
        data = pattern(length, length)
        assert one.sendto(kind(data), other.getsockname()) == length
        assert other.recvfrom(70_000) == (data, one.getsockname())
        assert one.datagrams.reaches(other.getsockname())  # type: ignore[union-attr]
    assert other.sendto(b"back", one.getsockname()) == 4
    assert one.recvfrom(10) == (b"back", other.getsockname())
    assert other.datagrams.dropped() == {}  # type: ignore[union-attr]


def test_who_closes_asks_nobody_any_more(bound: Bound, monkeypatch: pytest.MonkeyPatch) -> None:
    """A question that has no answer keeps the device open no longer than its socket lives."""
    unanswered: list[CMID] = []
    monkeypatch.setattr(resolving, "_answer", lambda cmid, *_: unanswered.append(cmid))
    one, other = bound(connect_s=0.01), bound()
    one.sendto(b"", other.getsockname())
    assert one.datagrams is not None
    (resolution,) = one.datagrams._resolutions
    end_s = time.monotonic() + LONG_S
    while not unanswered and time.monotonic() < end_s:
        settled(HUB)
    assert resolution._cmid is not None
    one.close()
    settled(HUB)
    assert resolution._cmid is None
    for each in unanswered:
        each.close()


@pytest.mark.parametrize("length", [65_508, 100_000])
def test_what_udp_cannot_carry_is_refused(bound: Bound, length: int) -> None:
    one, other = bound(), bound()
    with pytest.raises(OSError, match="too long") as found:
        one.sendto(bytes(length), other.getsockname())
    assert found.value.errno == errno.EMSGSIZE


def test_memory_may_be_changed_once_sendto_has_returned(bound: Bound) -> None:
    one, other = bound(), bound()
    data = bytearray(pattern(60_000))
    before = bytes(data)
    one.sendto(data, other.getsockname())
    data[:] = bytes(len(data))
    assert other.recv(70_000) == before
    assert port_of(one).direct_bytes == len(before)  # type: ignore[attr-defined]
    one.setblocking(False)
    data[:] = before
    one.sendto(data, other.getsockname())
    data[:] = bytes(len(data))
    assert other.recv(70_000) == before
    assert port_of(one).direct_bytes == len(before)  # type: ignore[attr-defined]


def test_who_waits_learns_what_another_thread_has_taken(
    bound: Bound, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other one has the lock when a datagram arrives, and takes it: no event tells of it again."""
    one, other = bound(), bound()
    one.sendto(b"before", other.getsockname())
    assert other.recv(100) == b"before"
    port, end = port_of(other), other.datagrams
    assert end is not None
    received: list[bytes] = []
    woken: list[bool] = []
    waiting = threading.Event()
    wait = end.ports[0].completion_thread.wait

    def waits(ended: Callable[[], bool], deadline_s: float | None) -> bool:
        waiting.set()
        return wait(ended, deadline_s)

    monkeypatch.setattr(end.ports[0].completion_thread, "wait", waits)
    reader = threading.Thread(target=lambda: received.append(other.recv(100)), daemon=True)
    reader.start()
    assert waiting.wait(limit_s(60))
    with end._guard:
        one.sendto(b"taken", other.getsockname())
        while not end._missed:
            port.driver.progress()  # type: ignore[attr-defined]
        end._pump()
        wake = end._wake
        monkeypatch.setattr(end, "_wake", lambda: woken.append(True) or wake())
    assert woken
    reader.join(limit_s(60))
    assert received == [b"taken"]


def test_who_may_change_its_memory_is_waited_for(bound: Bound, monkeypatch: pytest.MonkeyPatch) -> None:
    """No completion is seen before the sender waits for one."""
    one, other = bound(), bound()
    one.sendto(b"", other.getsockname())
    port, end = port_of(one), one.datagrams
    assert isinstance(port, DatagramPort)
    assert end is not None
    held: list[int] = []
    waits: list[bool] = []
    retire, wait = port._retire, end.wait

    def go_on(ready: Callable[[], bool], deadline_s: float | None) -> bool:
        waits.append(ready())
        monkeypatch.setattr(port, "_retire", retire)
        with end._guard:
            for number in held:
                retire(number)
        return wait(ready, deadline_s)

    monkeypatch.setattr(port, "_retire", held.append)
    monkeypatch.setattr(end, "wait", go_on)
    one.sendto(bytes(60_000), other.getsockname())
    assert waits == []
    one.sendto(bytearray(60_000), other.getsockname())
    assert waits[0] is False


def test_long_datagrams_are_mapped_and_lent_and_not_copied(bound: Bound) -> None:
    one, other = bound(), bound()
    port, data = port_of(other), pattern(15 * 4096)
    with sockets.PageBuffer(16 * 4096) as buffer:
        one.sendto(data, other.getsockname())
        assert other.recvfrom_into(buffer) == (len(data), one.getsockname())
        assert buffer[: len(data)] == data
        assert (port.copied_bytes, port.mapped_bytes) == (0, len(data))  # type: ignore[attr-defined]
        for _ in range(3 * port.state.slots // 16):  # type: ignore[attr-defined]
            one.sendto(bytes(len(data)), other.getsockname())
            assert other.recv(70_000) == bytes(len(data))
        assert buffer[: len(data)] == data  # nobody writes where the program looks
        buffer.release()
        assert buffer[: len(data)] == data
    one.sendto(data, other.getsockname())
    with other.recv_view(70_000) as view:
        assert view == data
        assert port.lent_bytes == len(data)  # type: ignore[attr-defined]
        assert port._pool.address <= primitives.address_of(view)  # type: ignore[attr-defined]
    one.sendto(data + b"and more", other.getsockname())
    assert bytes(other.recv_view(70_000)) == data + b"and more"


def test_what_does_not_fit_is_cut_and_peeking_leaves_it(bound: Bound) -> None:
    one, other = bound(), bound()
    one.sendto(pattern(5000), other.getsockname())
    one.sendto(b"next", other.getsockname())
    assert other.recv(10, kernel.MSG_PEEK) == pattern(10)
    state = port_of(other).state  # type: ignore[attr-defined]
    used = state.used
    assert other.recvmsg(10, 0, kernel.MSG_PEEK)[0] == pattern(10)
    assert state.used == used, "its room is still its own"
    small = bytearray(6)
    assert other.recv_into(small, 0, kernel.MSG_PEEK | kernel.MSG_TRUNC) == 5000
    data, ancillary, flags, name = other.recvmsg(10)
    assert (data, ancillary, flags, name) == (pattern(10), [], kernel.MSG_TRUNC, one.getsockname())
    first, second = bytearray(3), bytearray(9)
    assert other.recvmsg_into([first, second])[0] == 4
    assert (first, second[:1]) == (b"nex", b"t")
    one.sendmsg([b"ab", bytearray(b"cd"), memoryview(b"ef")], [], 0, other.getsockname())
    assert other.recvmsg(6)[:3] == (b"abcdef", [], 0), "all of it fits"


def test_waits_end(bound: Bound) -> None:
    _, other = bound(), bound()
    with pytest.raises(BlockingIOError, match="no completion event"):
        other.recv(1, kernel.MSG_DONTWAIT)
    other.settimeout(0.01)
    with pytest.raises(TimeoutError):
        other.recvfrom(1)
    other.settimeout(None)
    ended = []

    def wait() -> None:
        try:
            other.recv(1)
        except OSError as error:
            ended.append(error.errno)

    thread = threading.Thread(target=wait)
    thread.start()
    assert other.datagrams is not None
    other.datagrams.close()
    thread.join(limit_s(20))
    assert ended == [errno.EBADF]


def test_a_connected_socket_takes_its_peer_s_datagrams_alone(bound: Bound) -> None:
    one, other, third = bound(), bound(), bound()
    third.sendto(b"before", one.getsockname())
    assert one.recv(10, kernel.MSG_PEEK) == b"before"
    one.connect(other.getsockname())
    assert one.getpeername() == other.getsockname()
    third.sendto(b"not for you", one.getsockname())
    other.sendto(b"for you", one.getsockname())
    assert one.recv(20) == b"for you"
    one.send(b"answer")
    assert other.recvfrom(10) == (b"answer", one.getsockname())
    assert one.datagrams.dropped() == {"unconnected": 2}  # type: ignore[union-attr]


def test_a_socket_that_is_not_bound_gets_an_end_when_it_may_need_one(bound: Bound) -> None:
    server = bound()
    with sockets.socket(kernel.AF_INET, kernel.SOCK_DGRAM) as client:
        client.settimeout(limit_s(20))
        client.sendto(b"hello", server.getsockname())
        assert client.datagrams is not None
        data, name = server.recvfrom(10)
        assert data == b"hello"
        assert name[1] == client.getsockname()[1]
        server.sendto(b"hello", name)
        assert client.recv(10) == b"hello"
    with sockets.socket(kernel.AF_INET, kernel.SOCK_DGRAM) as client:
        client.connect(server.getsockname())
        client.send(b"again")
        assert client.datagrams.reaches(server.getsockname())  # type: ignore[union-attr]
        assert server.recvfrom(10) == (b"again", client.getsockname())


def test_what_was_sent_arrives_though_its_sender_is_closed(bound: Bound) -> None:
    """A sender is known before its first datagram leaves."""
    server = bound()
    for number in range(3):
        with sockets.socket(kernel.AF_INET, kernel.SOCK_DGRAM) as client:
            client.sendto(b"%d" % number, server.getsockname())
            assert client.datagrams.reaches(server.getsockname())  # type: ignore[union-attr]
            name = client.getsockname()
        assert server.recvfrom(10) == (b"%d" % number, ("127.0.0.1", name[1]))


def test_peers_without_softhca_are_spoken_to_by_the_kernel(bound: Bound) -> None:
    one = bound()
    with kernel.socket(kernel.AF_INET, kernel.SOCK_DGRAM) as plain:
        plain.bind(HERE)
        plain.settimeout(limit_s(20))
        one.sendto(b"to you", plain.getsockname())
        assert plain.recvfrom(10) == (b"to you", one.getsockname())
        assert not one.datagrams.reaches(plain.getsockname())  # type: ignore[union-attr]
        for number in range(3):
            plain.sendto(b"back %d" % number, one.getsockname())
            assert one.recvfrom(10) == (b"back %d" % number, plain.getsockname())
        with sockets.socket(kernel.AF_INET, kernel.SOCK_DGRAM) as free:
            free.sendto(b"alone", plain.getsockname())
            assert free.datagrams is None
            assert plain.recv(10) == b"alone"


def test_the_kernel_s_datagrams_and_ours_take_turns(bound: Bound) -> None:
    one, other = bound(), bound()
    one.sendto(b"who I am", other.getsockname())
    assert other.recv(10) == b"who I am"
    with kernel.socket(kernel.AF_INET, kernel.SOCK_DGRAM) as plain:
        plain.bind(HERE)
        for _ in range(4):
            plain.sendto(b"kernel", other.getsockname())
            one.sendto(b"rdma", other.getsockname())
        end = other.datagrams
        assert end is not None
        assert end.wait(lambda: end._kernel_ready, time.monotonic() + LONG_S)
        found = [other.recv(10) for _ in range(8)]
    assert sorted(found[:4]) == [b"kernel", b"kernel", b"rdma", b"rdma"]
    assert sorted(found) == [b"kernel"] * 4 + [b"rdma"] * 4


def test_a_descriptor_is_readable_while_there_are_datagrams(bound: Bound) -> None:
    one, other = bound(), bound()
    poll, epoll = select.poll(), select.epoll()
    poll.register(other, select.POLLIN)
    epoll.register(other.fileno(), select.EPOLLIN | select.EPOLLOUT)
    try:
        assert not poll.poll(0)
        assert dict(epoll.poll(0)) == {other.fileno(): select.EPOLLOUT}
        one.sendto(b"x", other.getsockname())
        assert poll.poll(limit_s(20) * 1000) == [(other.fileno(), select.POLLIN)]
        assert poll.poll(0)  # a level: still so
        assert other.recv(1) == b"x"
        assert not poll.poll(0)
        with kernel.socket(kernel.AF_INET, kernel.SOCK_DGRAM) as plain:
            plain.sendto(b"y", other.getsockname())
            assert poll.poll(limit_s(20) * 1000)
            assert other.recv(1) == b"y"
            assert not poll.poll(0)
    finally:
        epoll.close()


def test_asyncio_s_datagrams_go_by_rdma(bound: Bound, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel, "socket", sockets.socket)

    class Echo(asyncio.DatagramProtocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            self.transport = transport

        def datagram_received(self, data: bytes, address: tuple[str, int]) -> None:
            self.transport.sendto(data.upper(), address)  # type: ignore[attr-defined]

    class Client(asyncio.DatagramProtocol):
        def __init__(self) -> None:
            self.answers: asyncio.Queue[bytes] = asyncio.Queue()

        def datagram_received(self, data: bytes, address: tuple[str, int]) -> None:
            self.answers.put_nowait(data)

    async def talk() -> list[bytes]:
        loop = asyncio.get_running_loop()
        server, _ = await loop.create_datagram_endpoint(Echo, local_addr=HERE)
        name = server.get_extra_info("sockname")
        client, protocol = await loop.create_datagram_endpoint(Client, remote_addr=name)
        end = client.get_extra_info("socket")._sock.datagrams
        found = []
        for text in (b"one", b"two" * 1000):
            client.sendto(text)
            found.append(await asyncio.wait_for(protocol.answers.get(), limit_s(20)))
        while not end.reaches(name):
            client.sendto(b"three")
            await asyncio.wait_for(protocol.answers.get(), limit_s(20))
        client.sendto(b"four" * 2000)
        found.append(await asyncio.wait_for(protocol.answers.get(), limit_s(20)))
        client.close()
        server.close()
        return found

    assert asyncio.run(talk()) == [b"ONE", b"TWO" * 1000, b"FOUR" * 2000]


def test_nobody_s_address_can_be_claimed(bound: Bound) -> None:
    """A sender that names an address at which another queue pair is found is not believed."""
    liar, victim, other = bound(), bound(), bound()
    liar.sendto(b"in my name", other.getsockname())
    assert other.recvfrom(20) == (b"in my name", liar.getsockname())
    assert liar.datagrams is not None
    way = liar.datagrams.peer_at(*other.getsockname()).way
    assert way is not None
    way.own_port = victim.getsockname()[1]
    liar.sendto(b"in yours", other.getsockname())
    way.host = mapped("192.0.2.1")
    liar.sendto(b"in a stranger's", other.getsockname())
    victim.sendto(b"truly", other.getsockname())
    assert other.recvfrom(20) == (b"truly", victim.getsockname())
    end = other.datagrams
    assert end is not None
    while end.dropped() != {"forged": 2}:
        end.poll()
    assert not any(port.state.queue for port in end.ports)


def test_two_that_ask_for_each_other_at_once_are_both_answered(bound: Bound) -> None:
    """Each is believed when the other was found, which waits for nobody's belief."""
    one, other = bound(), bound()
    one.setblocking(False)
    other.setblocking(False)
    inside, go_on = threading.Event(), threading.Event()
    HUB.soon(lambda: (inside.set(), go_on.wait()))
    assert inside.wait(limit_s(20))
    one.sendto(b"there", other.getsockname())
    other.sendto(b"back", one.getsockname())
    go_on.set()
    end_s = time.monotonic() + limit_s(20)
    for own, peer in ((one, other), (other, one)):
        assert own.datagrams is not None
        while not own.datagrams.reaches(peer.getsockname()):
            assert time.monotonic() < end_s


def test_a_false_claim_leaves_the_way_to_whom_it_names(bound: Bound) -> None:
    """Else a stranger turned datagrams over to the kernel's way by claiming a peer's address."""
    peer_socket, own = bound(), bound()
    name = peer_socket.getsockname()
    own.sendto(b"there", name)
    end = own.datagrams
    assert end is not None
    peer = end.peer_at(*name)
    way = peer.way
    assert way is not None
    peer.since_s = peer.checked_s = 0.0  # it may be asked again
    decided: list[bool] = []
    done = threading.Event()
    lie = Claim((mapped("192.0.2.1"), 5), (mapped(name[0]), name[1]))

    def told(true: bool) -> None:
        decided.append(true)
        done.set()

    HUB.soon(lambda: end._ask_for(end.ports[0], lie, told))
    assert done.wait(limit_s(20))
    assert (decided, peer.way) == ([False], way)


def test_a_datagram_socket_that_is_being_closed_is_no_other_descriptor(
    bound: Bound, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = bound(), bound()
    name = other.getsockname()
    seen: list[int | None] = []
    leave = datagrams.DatagramEnd.leave

    def meanwhile(end: datagrams.DatagramEnd) -> None:
        calls: tuple[Callable[[], object], ...] = (
            one.getsockname, one.fileno, one.close,
            lambda: one.recvfrom(1), lambda: one.sendto(b"x", name), lambda: one.connect(name),
        )  # fmt: skip
        for call in calls:
            try:
                call()
                seen.append(None)
            except OSError as error:
                seen.append(error.errno)
        leave(end)

    monkeypatch.setattr(datagrams.DatagramEnd, "leave", meanwhile)
    one.close()
    monkeypatch.undo()
    assert seen == [errno.EBADF, errno.EBADF, None, errno.EBADF, errno.EBADF, errno.EBADF]
    assert one.datagrams is None


def test_what_is_malformed_is_dropped_and_counted(bound: Bound) -> None:
    one, other = bound(), bound()
    one.sendto(b"right", other.getsockname())
    assert other.recv(10) == b"right"
    port, way = port_of(one), one.datagrams.peer_at(*other.getsockname()).way  # type: ignore[union-attr]
    for text in (b"", b"sD", bytes(40), struct.pack("!2sBBHHIHH16s", b"sD", 2, 3, 5, 1, 0, 99, 0, bytes(16))):
        port._say(way, text, True)  # type: ignore[attr-defined]
    one.sendto(b"right again", other.getsockname())
    assert other.recv(20) == b"right again"
    assert other.datagrams.dropped() == {"malformed": 4}  # type: ignore[union-attr]


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


def test_a_socket_that_is_closed_says_so(bound: Bound) -> None:
    """Whoever takes the address then gets the next datagram."""
    one, other = bound(), bound()
    name = other.getsockname()
    one.sendto(b"x", name)
    assert other.recvfrom(1) == (b"x", one.getsockname())
    other.sendto(b"y", one.getsockname())
    assert one.recv(1) == b"y"
    other.close()
    with kernel.socket(kernel.AF_INET, kernel.SOCK_DGRAM) as plain:
        plain.bind(name)
        plain.settimeout(limit_s(20))
        with pytest.raises(BlockingIOError):
            one.recv(1, kernel.MSG_DONTWAIT)
        one.sendto(b"z", name)
        assert plain.recv(1) == b"z"


def test_a_way_is_asked_for_again(bound: Bound, monkeypatch: pytest.MonkeyPatch) -> None:
    """A peer that went without a word is found out after a while, and one that comes too."""
    one, other = bound(), bound()
    monkeypatch.setattr(datagrams, "RENEW_S", 0.0)
    monkeypatch.setattr(datagrams.DatagramEnd, "_notify_peers", lambda self: None)
    name = other.getsockname()
    one.sendto(b"x", name)
    assert other.recv(1) == b"x"
    other.close()
    with kernel.socket(kernel.AF_INET, kernel.SOCK_DGRAM) as plain:
        plain.bind(name)
        plain.settimeout(0.01)
        while True:
            one.sendto(b"y", name)
            try:
                assert plain.recv(1) == b"y"
                break
            except TimeoutError:
                pass
        assert not one.datagrams.reaches(name)  # type: ignore[union-attr]
    again = bound(name)
    one.sendto(b"z", name)  # once at least: what the last of them has asked may be answered already
    while not one.datagrams.reaches(name):  # type: ignore[union-attr]
        one.sendto(b"z", name)
    assert again.recv(1) == b"z"


def test_duplicates_and_ports_shared_by_addresses(bound: Bound) -> None:
    one = bound()
    port = one.getsockname()[1]
    second, sender = bound(("127.0.0.2", port)), bound()
    sender.sendto(b"first", ("127.0.0.1", port))
    sender.sendto(b"second", ("127.0.0.2", port))
    again = sockets.socket(fileno=os.dup(one.fileno()))
    assert (again.family, again.type) == (kernel.AF_INET, kernel.SOCK_DGRAM)
    one.close()
    with again:
        again.settimeout(limit_s(20))
        assert again.recv(10) == b"first"
        assert second.recv(10) == b"second"
        again.sendto(b"from the duplicate", sender.getsockname())
        assert sender.recvfrom(20) == (b"from the duplicate", ("127.0.0.1", port))


def test_ipv6_and_all_addresses(bound: Bound) -> None:
    everywhere, client = bound(("0.0.0.0", 0)), bound()
    port = everywhere.getsockname()[1]
    for host in ("127.0.0.1", "127.0.0.5"):
        client.sendto(b"x", (host, port))
        assert everywhere.recvfrom(1) == (b"x", client.getsockname())
    six, other = bound(("::1", 0)), bound(("::1", 0))
    six.sendto(b"six" * 3000, other.getsockname())
    assert other.recvfrom(9000) == (b"six" * 3000, six.getsockname())


def test_what_shares_its_port_or_wants_ancillary_data_is_the_kernel_s(bound: Bound) -> None:
    with sockets.socket(kernel.AF_INET, kernel.SOCK_DGRAM) as shared:
        shared.setsockopt(kernel.SOL_SOCKET, kernel.SO_REUSEPORT, 1)
        shared.bind(HERE)
        assert shared.datagrams is None
    one, other = bound(), bound()
    address = [mapped("127.0.0.1")]
    assert port_lookup.takes_datagrams(other.getsockname()[1], address)
    other.setsockopt(kernel.IPPROTO_IP, 8, 1)  # IP_PKTINFO
    assert not port_lookup.takes_datagrams(other.getsockname()[1], address)
    one.sendto(b"told", other.getsockname())
    data, ancillary, _, name = other.recvmsg(10, 100)
    assert (data, name) == (b"told", one.getsockname())
    assert ancillary[0][:2] == (kernel.IPPROTO_IP, 8)


def test_without_a_pool_there_is_no_socket(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: DeviceDriver, length: int, access: int = 0) -> object:
        raise DriverError(errno.ENOMEM, "no memory")

    monkeypatch.setattr(DeviceDriver, "alloc_host_memory", refuse)
    one = sockets.socket(kernel.AF_INET, kernel.SOCK_DGRAM)
    with pytest.raises(OSError, match="create buffer pool failed") as found:
        one.bind(HERE)
    assert found.value.errno == errno.ENOBUFS
    assert one.fileno() == -1


def test_a_descriptor_that_is_taken_away_is_the_kernel_s(bound: Bound) -> None:
    one, other = bound(), bound()
    name = other.getsockname()
    number = other.detach()
    try:
        one.sendto(b"plain", name)
        assert os.read(number, 10) == b"plain"
    finally:
        os.close(number)


def test_after_a_fork_both_are_spoken_to_by_the_kernel(bound: Bound) -> None:
    one, other = bound(), bound()
    one.sendto(b"x", other.getsockname())
    assert other.recv(1) == b"x"
    child = os.fork()
    if not child:
        try:
            assert other.datagrams is None
            other.sendto(b"from the child", one.getsockname())
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
    assert one.recvfrom(20) == (b"from the child", other.getsockname())
    assert not port_lookup.takes_datagrams(other.getsockname()[1], [mapped("127.0.0.1")])
    one.sendto(b"still here", other.getsockname())
    assert other.recv(20) == b"still here"


def _forked() -> None:
    child = os.fork()
    if not child:
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0


@pytest.mark.parametrize("how", ["a fork", "ancillary data"])
def test_who_is_not_found_any_more_is_still_believed(
    bound: Bound, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    one, other = bound(), bound()
    name = other.getsockname()
    one.sendto(b"found", name)
    assert other.recv(10) == b"found"
    assert one.datagrams.reaches(name)  # type: ignore[union-attr]
    if how == "a fork":
        _forked()
    else:
        one.setsockopt(kernel.IPPROTO_IP, IP_PKTINFO, 1)
    assert not one.datagrams.reaches(name)  # type: ignore[union-attr]
    monkeypatch.setattr(datagram_state, "BELIEVED_NS", 0)  # half a minute later
    monkeypatch.setattr(datagrams, "RENEW_S", 0.0)
    monkeypatch.setattr(datagrams, "AGAIN_S", 0.0)
    while other.datagrams.reaches(one.getsockname()):  # type: ignore[union-attr]
        other.sendto(b"back", one.getsockname())
        assert one.recv(10) == b"back"
    for number in range(5):
        one.sendto(b"%d" % number, name)
        while not select.select([other], [], [], 0.01)[0]:
            assert other.datagrams.dropped() == {}  # type: ignore[union-attr]
        assert other.recvfrom(10) == (b"%d" % number, one.getsockname())


def test_many_threads_send_and_receive(bound: Bound) -> None:
    one, other = bound(), bound()
    one.sendto(b"", other.getsockname())
    assert other.recv(1) == b""
    found: list[bytes] = []

    def send(first: int) -> None:
        for number in range(first, first + 10):
            one.sendto(pattern(3000 + number), other.getsockname())

    def receive() -> None:
        for _ in range(10):
            found.append(other.recv(9000))

    threads = [threading.Thread(target=send, args=(start,)) for start in (0, 10)]
    threads += [threading.Thread(target=receive) for _ in range(2)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert sorted(found, key=len) == [pattern(3000 + number) for number in range(20)]


def test_a_datagram_to_be_sent_when_the_adapter_goes_is_lost_at_the_worst(
    bound: Bound, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = bound(), bound()
    with one, other:
        one.sendto(b"first", other.getsockname())
        assert other.recv(10) == b"first"
        assert one.datagrams is not None
        assert one.datagrams.reaches(other.getsockname())
        session = one.datagrams.ports[0].driver.session
        monkeypatch.setattr(session, "dead", "the adapter is gone")
        assert one.sendto(b"lost", other.getsockname()) == 4
        assert one.datagrams.ports[0].failed
        assert one.sendto(b"third", other.getsockname()) == 5
        arrived = other.recv(10)
        if arrived == b"lost":  # another thread had found the adapter gone already
            arrived = other.recv(10)
        assert arrived == b"third"
        monkeypatch.undo()
