"""What a receiver takes and what it leaves, and when a peer is asked whether it lives, without a device."""

from __future__ import annotations

import socket as kernel
from collections import deque
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from softhca.machine.primitives import address_of
from softhca.sockets import liveness
from softhca.sockets.liveness import Liveness
from softhca.sockets.memory_management import RecordA
from softhca.sockets.memory_processing import PageBuffer
from softhca.sockets.stream_receiving import Receiver

POOL = 16 << 10


@pytest.fixture
def receiver() -> Receiver:
    """One whose pool is plain memory, in which 5 bytes have arrived."""
    made = Receiver.__new__(Receiver)
    memory = bytearray(b"12345".ljust(POOL, b"."))
    made.pool = SimpleNamespace(address=address_of(memory), length=POOL, memory=memory)  # type: ignore[assignment]
    made.own = RecordA(POOL)
    made.own.arrived(5)
    made.copied_bytes = made.mapped_bytes = made.lent_bytes = 0
    made.given_back = deque()
    made._mapped, made._threshold, made._mapping = {}, 4096, True
    return made


def test_a_look_takes_nothing(receiver: Receiver) -> None:
    into = bytearray(3)
    assert receiver.take_bytes(3, True) == b"123"
    assert receiver.take_into(memoryview(into), True) == 3
    assert (bytes(into), receiver.own.available, receiver.copied_bytes) == (b"123", 5, 0)
    assert receiver.take_bytes(3, False) == b"123"
    assert receiver.take_into(memoryview(into), False) == 2
    assert (bytes(into), receiver.own.available, receiver.copied_bytes) == (b"453", 0, 5)


def test_a_look_maps_nothing(receiver: Receiver) -> None:
    asked: list[tuple[int, ...]] = []

    def refuse(*places: int) -> int:
        asked.append(places)
        return 1  # it cannot be: the bytes are copied

    receiver.pool.map = refuse
    receiver.own = RecordA(POOL)
    receiver.own.arrived(POOL // 2, True)
    buffer = PageBuffer(POOL // 2)
    assert receiver.take_into(memoryview(buffer), True) == POOL // 2
    assert (asked, receiver.own.available) == ([], POOL // 2)
    assert receiver.take_into(memoryview(buffer), False) == POOL // 2
    assert (len(asked), receiver.own.available) == (1, 0)
    buffer.close()


def test_half_of_the_pool_is_mapped_at_most_and_the_rest_is_copied(receiver: Receiver) -> None:
    asked: list[int] = []

    def mapped(offset: int, size: int, address: int) -> int:
        asked.append(size)
        return 0

    receiver.pool.map = mapped
    receiver.pool.returned = lambda release: None
    receiver._release = lambda position: None
    receiver.own = RecordA(POOL)
    receiver.own.arrived(POOL)
    buffer = PageBuffer(POOL)
    assert receiver.take_into(memoryview(buffer), False) == POOL // 2
    assert (receiver.own.held, receiver.mapped_bytes) == (POOL // 2, POOL // 2)
    assert receiver.take_into(memoryview(buffer)[POOL // 2 :], False) == POOL // 2
    assert (asked, receiver.copied_bytes, receiver.own.available) == ([POOL // 2], POOL // 2, 0)
    buffer.close()


def test_what_was_given_back_is_mapped_no_more(receiver: Receiver) -> None:
    position = receiver.own.hold(5)
    mapped: Any = SimpleNamespace(leave="undo")
    receiver._mapped[position] = mapped
    assert receiver.mappings() == ["undo"]
    receiver.given_back.append(position)
    assert receiver.reclaim()
    assert (receiver.mappings(), receiver.own.held) == ([], 0)
    assert not receiver.reclaim()


class Peer:
    """A stream that counts how often it was asked to ask; ``later`` is what the hub is to do."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, alive: int = 0) -> None:
        self.error, self.writable, self.asked = 0, False, 0
        self.settings = SimpleNamespace(keepalive_s=5.0)
        self.later: list[tuple[float, Callable[[], object]]] = []
        self.options = {kernel.SO_KEEPALIVE: alive, kernel.TCP_KEEPIDLE: 9}
        monkeypatch.setattr(liveness.HUB, "after", lambda seconds, what: self.later.append((seconds, what)))
        tcp: Any = SimpleNamespace(getsockopt=lambda level, name: self.options[name])
        stream: Any = self
        self.liveness = Liveness(stream, tcp, False)

    def probe(self) -> None:
        self.asked += 1

    def look(self) -> None:
        """The hub's time has come."""
        self.later.pop(0)[1]()


def test_who_finds_no_room_again_has_the_peer_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    peer = Peer(monkeypatch)
    for _ in range(2):
        peer.liveness.stalled()
    assert [seconds for seconds, _ in peer.later] == [5.0]
    peer.look()
    assert (peer.asked, len(peer.later)) == (1, 1)
    peer.writable = True  # meanwhile there is some
    peer.look()
    assert (peer.asked, len(peer.later)) == (1, 0)
    peer.writable = False
    peer.liveness.stalled()
    peer.look()
    assert peer.asked == 2


def test_a_stream_that_has_ended_asks_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    peer = Peer(monkeypatch)
    peer.liveness.stalled()
    peer.error = 1
    peer.look()
    assert (peer.asked, peer.later) == (0, [])


def test_options_that_change_begin_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    peer = Peer(monkeypatch, alive=1)
    peer.options[kernel.TCP_KEEPIDLE] = 3
    peer.liveness.set_options()
    assert [seconds for seconds, _ in peer.later] == [9.0, 3.0]
    peer.look()
    assert (peer.asked, len(peer.later)) == (0, 1), "of before"
    peer.look()
    assert (peer.asked, [seconds for seconds, _ in peer.later]) == (1, [3.0])
