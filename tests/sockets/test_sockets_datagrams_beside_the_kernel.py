"""Datagrams by RDMA and by the kernel: which way to whom, in which order, and who is believed to be where."""

from __future__ import annotations

import os
import select
import socket as kernel
import struct
import threading
import time

import pytest
from datagram_ends import HERE, LONG_S, Bound, port_of

from machine_speed import limit_s
from softhca import sockets
from softhca.sockets import datagram_state, datagrams, port_lookup
from softhca.sockets.connecting import mapped
from softhca.sockets.datagram_state import Claim
from softhca.sockets.hub import HUB

IP_PKTINFO = 8


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
