"""The host's end of an adapter process, step by step: kicks, naps, who leads a wait, what it is passed."""

import array
import errno
import os
import select
import signal
import socket
import sys
import threading
from types import SimpleNamespace

import pytest

from softhca.machine import deferred_signals
from softhca.machine.condition import Condition
from softhca.machine.primitives import address_of
from softhca.queues.handshake import DESCRIPTOR, encode_answer
from softhca.runtime import adapter_process, messages, process
from softhca.runtime.leader_lock import LeaderLock
from softhca.runtime.process import ProcessChannel
from softhca.runtime.wake_event import WakeEvent
from softhca.runtime.wake_socket import WakeSocket


class Channel(ProcessChannel):
    """Without an adapter process: ``flag`` is its sleep flag, ``noted`` what it would be told."""

    def __init__(self):
        self.noted = []
        self.flag = array.array("Q", [0])
        self._flag_address = address_of(self.flag)
        self._control, self.theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._wakes, self.wakes = socket.socketpair()
        self._wake_socket = SimpleNamespace(
            fileno=self._wakes.fileno, drain=lambda: self.noted.append("drained"),
            wake=lambda: self.noted.append("woken"), shut=lambda: None, close=self._wakes.close,
        )  # fmt: skip
        self._wake_event = WakeEvent()
        self._back_off = SimpleNamespace(worked=lambda now: self.noted.append("worked"), missed=lambda now: 0)
        self._alive, self._kicked, self._leaving, self._polls, self._changes = True, False, False, 0, 0
        self._leader_lock, self._changes_lock = LeaderLock(), threading.RLock()
        self._changed = Condition(self._changes_lock)
        self._asking, self._unresponsive, self._unread = threading.RLock(), False, [0]
        self._waits_for_answer = False

    def check_alive(self):
        return self._alive

    def end(self):
        for each in (self._control, self.theirs, self._wakes, self.wakes, self._wake_event):
            each.close()


@pytest.fixture
def channel():
    made = Channel()
    yield made
    made.end()


def readable(descriptor):
    return bool(select.select([descriptor], [], [], 0)[0])


def test_a_kick_wakes_an_adapter_that_sleeps_once(channel):
    channel.kick()
    assert (channel.noted, channel.flag[0]) == ([], 0)
    channel.flag[0] = 1
    for _ in range(2):
        channel.kick()
    assert (channel.noted, channel.flag[0]) == (["woken"], 0)


def test_a_kick_is_a_reason_to_look_again_and_no_more_than_one(channel):
    channel.kick()
    for _ in range(3):
        channel.progress()
    assert channel.noted == ["worked"]


def lead(channel, known=None):
    assert channel._leader_lock.acquire()
    channel._wait_leading(channel._changes if known is None else known, 0.0)
    assert not channel._leader_lock.locked()


@pytest.mark.parametrize("call", ["_wait_leading", "_lead_no_more"])
def test_who_is_interrupted_between_two_steps_of_leading_leads_no_more(channel, monkeypatch, call):
    """By a signal handler that raises: else nobody would wait for the adapter any more."""

    def interrupted(*_):
        monkeypatch.undo()
        raise KeyboardInterrupt

    monkeypatch.setattr(channel, call, interrupted)
    with pytest.raises(KeyboardInterrupt):
        channel.wait(lambda: False, 0.0)
    assert not channel._leader_lock.locked()
    assert not channel._leader_lock.mine()
    lead(channel)


@pytest.mark.parametrize("step", ["behind the flag", "at the wake-up"])
def test_who_is_interrupted_in_a_kick_wakes_the_adapter_all_the_same(channel, monkeypatch, step):
    """The flag that says that it sleeps is taken away: nobody else would wake it."""
    cas = process.atomic_cas64
    channel.flag[0] = 1

    def interrupted(*arguments):
        monkeypatch.undo()
        if arguments:
            cas(*arguments)
        raise KeyboardInterrupt

    if step == "behind the flag":
        monkeypatch.setattr(process, "atomic_cas64", interrupted)
    else:
        monkeypatch.setattr(channel._wake_socket, "wake", interrupted)
    with pytest.raises(KeyboardInterrupt):
        channel.kick()
    assert (channel.noted, channel.flag[0]) == (["woken"], 0)


def test_what_a_signal_handler_raises_at_a_wake_up_is_not_lost():
    """TimeoutError is an OSError, as what a socket says whose other end has gone."""

    def late(number, frame):
        raise TimeoutError

    def send(*_):
        late(0, sys._getframe())

    with pytest.raises(TimeoutError):
        WakeSocket(SimpleNamespace(send=send)).wake()
    one, other = WakeSocket.pair()
    other.close()
    one.wake()
    one.close()


def test_who_is_interrupted_when_it_leads_no_more_tells_those_who_wait(channel, monkeypatch):
    """They would follow nobody: it has let the lead go, and nobody has heard of it."""
    told = []

    def interrupted():
        channel._leader_lock.release()
        raise KeyboardInterrupt

    monkeypatch.setattr(channel, "_lead_no_more", interrupted)
    monkeypatch.setattr(channel, "_notify_waiters", lambda: told.append(channel._leader_lock.locked()))
    with pytest.raises(KeyboardInterrupt):
        channel.wait(lambda: False, 0.0)
    assert told == [False]


def test_a_handler_of_the_thread_that_leads_does_not_lead(channel):
    assert channel._leader_lock.acquire()
    assert not channel.wait(lambda: False, 0.0)
    assert channel._leader_lock.mine()
    channel._lead_no_more()
    lead(channel)


def test_who_leads_takes_the_news_away_and_counts_it(channel):
    channel.wake_waiters()
    known = channel._changes
    lead(channel)
    assert not readable(channel._wake_event.fileno())
    assert (channel._changes, channel.noted) == (known + 1, ["drained"])


def test_a_leader_of_a_dead_adapter_takes_its_own_news_away_alone(channel):
    channel.wake_waiters()
    channel._alive = False
    lead(channel)
    assert not readable(channel._wake_event.fileno())
    assert channel.noted == []


def test_the_last_leader_closes_what_it_has_polled(channel):
    channel._leaving = True
    lead(channel)
    assert (channel._wake_event.fileno(), channel._wakes.fileno()) == (-1, -1)


def test_what_comes_with_the_end_of_a_wait_has_come(channel, monkeypatch):
    asked = []

    def ready():
        asked.append(True)
        return len(asked) > 2  # not before the wait, and not as it begins

    monkeypatch.setattr(channel, "_spin", lambda ready: ready())
    assert channel.wait(ready, 0.0)


@pytest.mark.parametrize("passed", [[], [41, 42]])
def test_an_adapter_passes_one_memory_or_none_is_taken(channel, monkeypatch, passed):
    closed = []
    monkeypatch.setattr(messages, "close_all", closed.extend)
    monkeypatch.setattr(channel, "_ask", lambda message, values=None, descriptors=(): ({"length": 8}, passed))
    with pytest.raises(OSError, match="passed no memory") as refused:
        channel.take_memory(1)
    assert (refused.value.errno, closed) == (errno.EPROTO, passed)


def test_who_has_left_is_not_looked_for_at_a_fork(channel, monkeypatch):
    noted = []
    monkeypatch.setattr(process.fork, "unwatch", noted.append)
    monkeypatch.setattr(channel, "_request_detach", lambda control: 0)
    channel._process = SimpleNamespace(release=lambda control, others: noted.append("released"))
    control = channel._control
    for _ in range(2):
        channel.detach()
    assert noted == [channel, "released"]
    channel._control = control


def test_the_answer_to_a_request_whose_wait_was_interrupted_is_nobody_elses(channel, monkeypatch):
    def late(number, frame):
        raise TimeoutError("late")

    def interrupted(control):
        monkeypatch.undo()
        with deferred_signals.waiting():
            signal.raise_signal(signal.SIGUSR1)

    before = signal.signal(signal.SIGUSR1, late)
    monkeypatch.setattr(adapter_process, "_await_answer", interrupted)
    try:
        with pytest.raises(TimeoutError, match="late"):
            channel._ask(DESCRIPTOR, descriptors=(0,))
    finally:
        signal.signal(signal.SIGUSR1, before)
    reading, writing = os.pipe2(os.O_NONBLOCK)
    messages.send_packet(channel.theirs, encode_answer(DESCRIPTOR, {"number": 7}), (writing,))
    os.close(writing)
    for number in (8, 9):
        messages.send_packet(channel.theirs, encode_answer(DESCRIPTOR, {"number": number}))
    assert [channel._ask(DESCRIPTOR, descriptors=(0,))[0]["number"] for _ in range(2)] == [8, 9]
    assert os.read(reading, 1) == b"", "what was passed with it is closed"
    os.close(reading)


def test_a_handler_that_asks_within_the_wait_for_an_answer_is_refused_and_nobody_waits(channel, monkeypatch):
    refused = []

    def asks(control):
        with pytest.raises(OSError, match="has not answered") as caught:
            channel._ask(DESCRIPTOR, descriptors=(0,))
        refused.append(caught.value.errno)

    messages.send_packet(channel.theirs, encode_answer(DESCRIPTOR, {"number": 7}))
    monkeypatch.setattr(adapter_process, "_await_answer", asks)
    assert channel._ask(DESCRIPTOR, descriptors=(0,))[0]["number"] == 7
    monkeypatch.undo()
    assert refused == [errno.EBUSY]
    messages.send_packet(channel.theirs, encode_answer(DESCRIPTOR, {"number": 8}))
    assert channel._ask(DESCRIPTOR, descriptors=(0,))[0]["number"] == 8
