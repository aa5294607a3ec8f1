"""When a stream asks its peer's adapter whether it lives, by a clock of the test's own."""

from __future__ import annotations

import gc
import socket as kernel
import weakref
from collections.abc import Callable

import pytest

from softhca import sockets
from softhca.sockets import liveness
from softhca.verbs.enums import IBV_QP_TIMEOUT

Pair = tuple[sockets.socket, sockets.socket]


class Clock:
    """In the hub's place: what it was asked to call, and when; `strike` calls it."""

    def __init__(self) -> None:
        self.due: list[tuple[float, Callable[[], object]]] = []

    def after(self, seconds: float, callback: Callable[[], object]) -> None:
        self.due.append((seconds, callback))

    def strike(self) -> None:
        due, self.due = self.due, []
        for _, callback in due:
            callback()

    @property
    def times(self) -> list[float]:
        return [seconds for seconds, _ in self.due]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(liveness, "HUB", made)
    return made


def _fill(client: sockets.socket) -> None:
    """Send until the peer has no room, which a send has found, and nothing is under way."""
    stream = client.stream
    assert stream is not None
    client.setblocking(False)
    while stream.writable or not stream.drained:
        try:
            client.send(bytes(1 << 16))
        except BlockingIOError:
            stream.refresh()
    with pytest.raises(BlockingIOError):
        client.send(b"!")


def _asked(client: sockets.socket) -> int:
    assert client.stream is not None
    return client.stream.sender.number


def test_nobody_is_asked_who_has_room_and_no_keep_alive(connected: Callable[..., Pair], clock: Clock) -> None:
    client, peer = connected()
    client.sendall(b"hello")
    assert peer.recv(5) == b"hello"
    assert clock.times == []


def test_a_sender_without_room_asks_every_now_and_then_until_it_has(
    connected: Callable[..., Pair], clock: Clock
) -> None:
    client, peer = connected(keepalive_s=3.0)
    _fill(client)
    assert clock.times == [3.0], "one clock, however often a send has found no room"
    assert client.stream is not None
    for _ in range(3):
        before = _asked(client)
        clock.strike()
        assert _asked(client) == before + 1
        assert client.stream.wait(lambda: client.stream.drained, None)  # type: ignore[union-attr]
        assert clock.times == [3.0]
    while not client.stream.writable:
        peer.recv(1 << 20)
        client.stream.refresh()
    before = _asked(client)
    clock.strike()
    assert _asked(client) == before
    assert clock.times == []


def test_while_an_answer_is_awaited_nobody_asks_more(connected: Callable[..., Pair], clock: Clock) -> None:
    client, _ = connected(keepalive_s=3.0)
    _fill(client)
    stream = client.stream
    assert stream is not None
    number = stream.sender.next()  # as if under way
    clock.strike()
    assert stream.sender.number == number
    assert clock.times == [3.0]
    stream.sender.retire(number)


def test_keepalive_s_of_0_never_asks(connected: Callable[..., Pair], clock: Clock) -> None:
    client, _ = connected(keepalive_s=0)
    _fill(client)
    assert clock.times == []


def test_keep_alive_beside_tcp_is_what_was_set(connected: Callable[..., Pair], clock: Clock) -> None:
    client, _ = connected()
    client.setsockopt(kernel.IPPROTO_TCP, kernel.TCP_KEEPIDLE, 7)
    assert clock.times == []
    client.setsockopt(kernel.SOL_SOCKET, kernel.SO_KEEPALIVE, 1)
    assert clock.times == [7.0]
    assert client.stream is not None
    assert client.stream.wait(lambda: client.stream.drained, None)  # type: ignore[union-attr]
    for _ in range(2):
        before = _asked(client)
        clock.strike()
        assert _asked(client) == before + 1
        assert client.stream.wait(lambda: client.stream.drained, None)  # type: ignore[union-attr]
        assert clock.times == [7.0]
    client.setsockopt(kernel.IPPROTO_TCP, kernel.TCP_KEEPIDLE, 9)
    assert clock.times == [7.0, 9.0]
    before = _asked(client)
    clock.strike()
    assert (_asked(client), clock.times) == (before + 1, [9.0]), "the former clock asks nobody"
    client.setsockopt(kernel.SOL_SOCKET, kernel.SO_KEEPALIVE, 0)
    before = _asked(client)
    clock.strike()
    assert (_asked(client), clock.times) == (before, [])


def test_a_connection_that_has_ended_is_asked_nothing(connected: Callable[..., Pair], clock: Clock) -> None:
    client, peer = connected()
    client.setsockopt(kernel.SOL_SOCKET, kernel.SO_KEEPALIVE, 1)
    stream = client.stream
    assert stream is not None
    peer.close()
    client.close()
    number = stream.sender.number
    clock.strike()
    assert (stream.sender.number, clock.times) == (number, [])


def test_a_clock_keeps_no_connection(connected: Callable[..., Pair], clock: Clock) -> None:
    client, _ = connected()
    client.setsockopt(kernel.SOL_SOCKET, kernel.SO_KEEPALIVE, 1)
    assert client._upgrade is not None
    gone = weakref.ref(client._upgrade.liveness)
    client.close()
    gc.collect()
    assert gone() is None
    clock.strike()
    assert clock.times == []


@pytest.mark.parametrize("by_cm", [False, True])
@pytest.mark.parametrize("exponent", [14, 18])
def test_both_ends_wait_for_acknowledgements_as_long_as_the_connecting_one_says(
    exponent: int, by_cm: bool
) -> None:
    settings = sockets.Settings(ack_timeout=exponent, by_cm=by_cm)
    with sockets.socket() as server, sockets.socket() as client:
        server.settings = sockets.Settings(by_cm=by_cm)
        server.bind(("127.0.0.1", 0))
        server.listen()
        client.settings = settings
        client.connect(server.getsockname())
        with server.accept()[0] as accepted:
            for each in (client, accepted):
                stream = each.stream
                assert stream is not None
                assert stream._cmid._qp is not None
                assert stream._cmid._qp.query(IBV_QP_TIMEOUT)[0].timeout == exponent


def test_an_acknowledgement_cannot_be_waited_for_for_ever() -> None:
    for wrong in (0, 32, -1):
        with pytest.raises(ValueError, match="ack_timeout"):
            sockets.Settings(ack_timeout=wrong)
    assert sockets.Settings.of_environment({"SOFTHCA_SOCKETS_ACK_TIMEOUT": "31"}).ack_timeout == 31
