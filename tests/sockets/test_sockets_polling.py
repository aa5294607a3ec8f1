"""What calls cost: how long they poll before they sleep, which completions and events they ask for."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from machine_speed import limit_s
from softhca import sockets
from softhca.driver.poll_back_off import LONGEST_NS
from softhca.sockets.memory_management import NOTIFICATIONS, RecordB
from softhca.sockets.stream import Stream
from softhca.sockets.stream_sending import SIGNAL_EACH

Pair = tuple[sockets.socket, sockets.socket]
Connect = Callable[..., Pair]


def test_a_peer_is_pressed_when_a_quarter_of_the_notifications_is_not_answered() -> None:
    peers = RecordB(0, 1 << 14, 1)
    for number in range(NOTIFICATIONS // 4):
        assert not peers.presses, number
        peers.reserve(1)
    assert peers.presses
    peers.credited(1, 1)
    assert not peers.presses


def test_a_completion_answers_for_the_messages_before_it(connected: Connect) -> None:
    one, other = connected(in_memory=False)
    stream = one.stream
    assert stream is not None
    sender = stream.sender
    stream.probe()  # a message whose completion is asked for
    stream.wait(lambda: stream.drained, None)
    first = sender.number
    for number in range(1, SIGNAL_EACH):
        one.sendall(bytes([number]))
        assert other.recv(1) == bytes([number])
        assert not sender.unanswered
    assert [number for number, _, _ in sender.inflight] == list(range(first + 1, first + SIGNAL_EACH))
    one.sendall(b"!")
    assert other.recv(1) == b"!"
    assert stream.wait(lambda: stream.drained, None)
    assert not sender.inflight
    assert sender.taken == sender.retired == first + SIGNAL_EACH


def test_memory_for_copies_is_not_used_up_without_a_completion(connected: Connect) -> None:
    """A quarter of it at most is waited for by nobody."""
    one, other = connected(staging_bytes=8192)
    stream = one.stream
    assert stream is not None
    sender = stream.sender
    stream.probe()  # a message whose completion is asked for
    stream.wait(lambda: stream.drained, None)
    one.sendall(bytes(1024))
    one.sendall(bytes(1024))
    assert not sender.unanswered
    number = sender.number
    one.sendall(bytes(1024))
    assert sender._signaled == number + 1
    data = bytearray(16_000)
    sending = threading.Thread(target=one.sendall, args=(data,))
    sending.start()
    total = 0
    while total < 3 * 1024 + len(data):
        total += len(other.recv(1 << 16))
    sending.join()


def test_many_small_messages_go_on_while_nobody_reads(connected: Connect) -> None:
    """As many as the pool has room for: the reader's side answers when it is pressed, without its program."""
    one, other = connected()
    one.settimeout(limit_s(20))
    for number in range(5 * NOTIFICATIONS):
        one.sendall(bytes([number & 0xFF]))
    got = bytearray()
    while len(got) < 5 * NOTIFICATIONS:
        got += other.recv(1000)
    assert got == bytes(number & 0xFF for number in range(5 * NOTIFICATIONS))


def test_events_are_asked_for_by_who_sleeps_or_watches(
    connected: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise for solicited completions alone, which small messages are not."""
    one, other = connected()
    stream = other.stream
    assert stream is not None
    asked: list[bool] = []
    arm = stream._handle.arm

    def remember(solicited: bool = False) -> None:
        asked.append(solicited)
        arm(solicited)

    monkeypatch.setattr(stream._handle, "arm", remember)
    with stream._guard:
        stream._arm()
    assert asked == [True]
    slept = threading.Event()
    sleep = Stream._sleep

    def sleeping(self: Stream, ended: Callable[[], bool], deadline_s: float | None) -> bool:
        slept.set()
        return sleep(self, ended, deadline_s)

    monkeypatch.setattr(Stream, "_sleep", sleeping)
    got: list[bytes] = []
    reading = threading.Thread(target=lambda: got.append(other.recv(10)))
    reading.start()
    assert slept.wait(limit_s(20))
    one.sendall(b"wake")
    reading.join()
    assert got == [b"wake"]
    assert asked[1] is False
    asked.clear()
    with stream._guard:
        stream._arm()
    other.fileno()  # a program may watch it from here on
    assert asked[0] is True
    assert not any(asked[1:])
    assert asked[1:]


def test_what_comes_while_a_call_polls_wakes_nobody(
    connected: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = connected()

    def never(self: Stream, ended: Callable[[], bool], deadline_s: float | None) -> bool:
        raise AssertionError("it sleeps")

    polled: list[bool] = []
    poll = Stream._poll

    def sending(self: Stream, ended: Callable[[], bool]) -> bool:
        if not polled:
            one.sendall(b"there")
        polled.append(poll(self, ended))
        return polled[-1]

    monkeypatch.setattr(Stream, "_poll", sending)
    monkeypatch.setattr(Stream, "_sleep", never)
    assert other.recv(10) == b"there"
    assert polled == [True]
    stream = other.stream
    assert stream is not None
    assert stream._budget.limit_ns == LONGEST_NS
