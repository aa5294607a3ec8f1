"""What runs for each datagram: polls and sleeps, turns with the kernel, and completions of sends that few ask
for.
"""

from __future__ import annotations

import errno
import gc
import os
import socket as kernel
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from sockets_under_way import NoDevice

from machine_speed import limit_s
from softhca import sockets
from softhca.driver import registry
from softhca.driver.errors import DriverError
from softhca.driver.poll_back_off import PollBudget
from softhca.machine.processor import Readable
from softhca.queues.ring import RingConsumer
from softhca.runtime import devices as host_devices
from softhca.sockets import datagrams, devices, waiting
from softhca.sockets.datagram_path import POLL_NS
from softhca.sockets.datagram_port import LEAST_STAGING_BYTES, DatagramPort, PeerPath
from softhca.sockets.datagram_port_path import DEPTH, SIGNAL_EACH, SIGNAL_MESSAGES
from softhca.sockets.device_calls import DeviceCalls
from softhca.verbs.pyverbs_error import PyverbsUserError

Bound = Callable[..., sockets.socket]


def end_of(one: sockets.socket) -> datagrams.DatagramEnd:
    assert one.datagrams is not None
    return one.datagrams


def port_of(one: sockets.socket) -> DatagramPort:
    return end_of(one).ports[0]


def met(bound: Bound, **settings: object) -> tuple[sockets.socket, sockets.socket, PeerPath]:
    """Two sockets, and the first one's way to the second."""
    one, other = bound(**settings), bound()
    one.sendto(b"first", other.getsockname())
    assert other.recv(10) == b"first"
    way = end_of(one).peer_at(*other.getsockname()).way
    assert way is not None
    return one, other, way


def test_little_memory_for_copies_is_enough_for_any_datagram(bound: Bound) -> None:
    """Else a datagram would be tried for ever, though nothing is under way."""
    one, other, _ = met(bound, staging_bytes=4096, threshold_bytes=1 << 20)
    port = port_of(one)
    assert port._staging.length == LEAST_STAGING_BYTES
    for length in (3000, 65_507):
        for _ in range(8):
            assert one.sendto(bytearray(length), other.getsockname()) == length
            assert other.recv(70_000) == bytes(length)
    assert port.direct_bytes == 0


def test_one_completion_answers_for_many_sends(bound: Bound) -> None:
    one, other, _ = met(bound)
    port = port_of(one)
    last = port._signaled
    asked = []
    for _ in range(3 * SIGNAL_EACH):
        one.sendto(b"x", other.getsockname())
        assert other.recv(10) == b"x"
        if port._signaled != last:
            asked.append(port._signaled - last)
            last = port._signaled
    assert asked[1:] == [SIGNAL_EACH] * len(asked[1:])
    assert len(asked) == 3
    while port.retired < last:
        port.driver.progress()
        end_of(one).dropped()
    assert [number for number, *_ in port._inflight] == list(range(last + 1, port._number + 1))


@pytest.mark.parametrize("copied", [True, False])
def test_completions_are_asked_for_before_there_is_no_room(bound: Bound, copied: bool) -> None:
    """Long datagrams are many messages, or much memory for copies, of which few are 16."""
    threshold = 1 << 20 if copied else 16384
    one, other, _ = met(bound, threshold_bytes=threshold)
    port = port_of(one)
    data, most = bytes(60_000), 0
    for _ in range(4 * DEPTH // 15):
        one.sendto(data, other.getsockname())
        assert len(other.recv(70_000)) == len(data)
        most = max(most, port._unsignaled)
        assert port._staging.tail - port._signaled_tail <= port._staging.length // 4
    assert most < SIGNAL_MESSAGES
    assert port.copied_bytes == 0
    assert (port.direct_bytes == 0) == copied


def test_a_goodbye_is_answered_for(bound: Bound) -> None:
    """So who closes knows that all that it has sent has left."""
    one, other, way = met(bound)
    port = port_of(one)
    one.sendto(b"last", other.getsockname())
    with end_of(one)._guard:
        port.send_closed(way)
    assert port._signaled == port._number
    while not port.idle:
        port.driver.progress()
        end_of(one).dropped()
    assert other.recv(10) == b"last"


def test_what_was_sent_to_a_peer_that_has_closed_is_answered_for(bound: Bound) -> None:
    """Else a close waited for it as long as it may."""
    one, other, way = met(bound)
    end, port = end_of(one), port_of(one)
    other.sendto(b"answer", one.getsockname())  # who has never sent says no goodbye
    assert one.recv(10) == b"answer"
    one.sendto(b"last", other.getsockname())
    assert not port.idle
    other.close()
    assert end.wait(lambda: way.closed, time.monotonic() + limit_s(60))
    assert port._signaled == port._number
    assert end.wait(lambda: port.idle, time.monotonic() + limit_s(60))


def test_a_way_that_has_ended_meanwhile_carries_nothing(bound: Bound) -> None:
    """Its address handle may be closed: a send by it would be the end of all."""
    one, other, way = met(bound)
    end, port = end_of(one), port_of(one)
    with end._guard:
        end.peer_at(*other.getsockname()).way = None
        way.end()
    number = port._number
    end.send(way, memoryview(b"lost"), None, True)
    assert port._number == number
    one.sendto(b"found again", other.getsockname())
    assert other.recv(20) == b"found again"


def test_a_handle_is_closed_once_what_was_sent_has_left(bound: Bound) -> None:
    one, other, way = met(bound)
    port, end = port_of(one), end_of(one)
    one.sendto(b"under way", other.getsockname())
    with end._guard:
        assert not port.idle  # nobody was asked for a completion
        way.end()
        assert way.closed
        assert way.handle.number == way.number
        end.peer_at(*other.getsockname()).way = PeerPath(port, way.found, way.host, way.own_port)
    for _ in range(2 * SIGNAL_EACH):
        one.sendto(b"x", other.getsockname())
        port.driver.progress()
    end.dropped()
    with pytest.raises(PyverbsUserError, match="closed"):
        way.handle.number  # noqa: B018
    assert other.recv(20) == b"under way"


def test_who_is_answered_at_once_does_not_sleep(bound: Bound, monkeypatch: pytest.MonkeyPatch) -> None:
    one, other, _ = met(bound)
    end = end_of(one)
    slept: list[bool] = []
    monkeypatch.setattr(end, "_sleep", lambda ended, deadline_s: slept.append(True) or ended())
    monkeypatch.setattr(waiting, "monotonic_ns", lambda: 1 << 40)  # a poll has all the time that it needs
    end._budget = PollBudget()
    progress = end._progress
    calls: list[int] = []

    def answers() -> bool:
        calls.append(1)
        if len(calls) == 2:
            other.sendto(b"answer", one.getsockname())
        return progress() or len(calls) < 3

    end._progress = answers
    assert end._polls
    assert one.recv(10) == b"answer"
    assert not slept


def test_polls_last_until_a_peer_that_sleeps_may_have_answered(bound: Bound) -> None:
    """Else two that answer each other both sleep for good."""
    budget = end_of(bound())._budget
    assert (budget.limit_ns, budget.longest_ns) == (POLL_NS, POLL_NS)


def test_nobody_polls_an_adapter_elsewhere(bound: Bound) -> None:
    """To drive it would be a system call for each poll, which gives it nothing."""
    one = bound()
    end = end_of(one)

    class Elsewhere:
        def __init__(self, shares: bool) -> None:
            self.driver = self.session = self.channel = self.completion_thread = self
            self.polling = DeviceCalls(NoDevice())  # type: ignore[arg-type]
            self.shares_addresses = shares
            self.calls = 0

        def look(self) -> bool:
            self.calls += 1
            return False

    for shares in ([False], [True, False], []):
        end._drive([Elsewhere(each) for each in shares])  # type: ignore[misc]
        assert not end._polls
        assert end._several == (len(shares) == 2)
    both = [Elsewhere(True), Elsewhere(True)]
    end._drive(both)  # type: ignore[arg-type]
    assert end._polls
    assert end._progress() is False
    assert [each.calls for each in both] == [1, 1]


def test_a_poll_relieves_the_completion_thread_of_the_device_at_which_the_call_sleeps_alone(
    bound: Bound, loopback_address: Callable[[], str]
) -> None:
    """That of another one is all that takes its events then, and would come up to 8 ms late."""
    gc.collect()
    devices.let_go()
    for name in registry.names():
        host_devices.remove(name)
    for each in range(2):
        host_devices.add(f"softhca{each}=udp:{loopback_address()}")
    end = end_of(bound(("0.0.0.0", 0)))
    polling = [port.completion_thread.polling for port in end.ports]
    before = [each.begun for each in polling]
    assert not end._poll(lambda: False)
    assert [each.begun for each in polling] == [before[0] + 1, before[1]]


@pytest.mark.parametrize("number", [1, 2])
def test_an_event_of_another_device_wakes_who_waits(
    bound: Bound, monkeypatch: pytest.MonkeyPatch, loopback_address: Callable[[], str], number: int
) -> None:
    gc.collect()
    devices.let_go()
    for name in registry.names():
        host_devices.remove(name)
    for each in range(number):
        host_devices.add(f"softhca{each}=udp:{loopback_address()}")
    end = end_of(bound(("0.0.0.0", 0)))
    assert len(end.ports) == number
    woken: list[bool] = []
    monkeypatch.setattr(end, "_wake", lambda: woken.append(True))
    end._on_event()
    assert bool(woken) == (number == 2)


def test_an_event_that_came_during_a_look_is_answered(bound: Bound, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who sleeps without it would miss the next one: the queue asks for none."""
    _, other, _ = met(bound)
    end, port = end_of(other), port_of(other)
    armed: list[bool] = []
    arm = port.arm
    monkeypatch.setattr(port, "arm", lambda: armed.append(True) or arm())
    end._news = True
    assert not end._has_ended(lambda: False)
    assert armed
    assert not end._news


def test_who_does_not_wait_goes_on_without_an_adapter(bound: Bound) -> None:
    one = bound()
    one.setblocking(False)

    def gone() -> bool:
        raise DriverError(errno.EIO, "the adapter is gone")

    end_of(one)._progress = gone
    with pytest.raises(BlockingIOError):
        one.recv(10)
    with kernel.socket(kernel.AF_INET, kernel.SOCK_DGRAM) as plain:
        plain.sendto(b"by the kernel", one.getsockname())
    assert one.recv(100) == b"by the kernel"


def test_both_queues_have_their_turn(bound: Bound, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the kernel has said nothing, it is not asked before ours; else each in turn."""
    one, other, _ = met(bound)
    end = end_of(other)
    for text in (b"1", b"2", b"3", b"4"):
        one.sendto(text, other.getsockname())
    while port_of(other).driver.progress():
        pass
    asked: list[str] = []

    def kernels() -> str:
        asked.append("asked")
        return "kernel"

    def take(port: DatagramPort, found: Any) -> str:
        return port.bytes_of(found, 10).decode()

    def receive() -> str:
        found: str = end.receive(take, kernels, None, False)
        return found

    monkeypatch.setattr(end, "_look_at_kernel", lambda: None)
    end._kernel_ready = end._kernel_first = False
    assert [receive(), receive()] == ["1", "2"]
    assert asked == []
    end._kernel_ready = True
    with open(os.eventfd(1), "rb") as has_some:
        end._kernel_has = Readable(has_some.fileno())
        assert [receive() for _ in range(4)] == ["kernel", "3", "kernel", "4"]


def test_who_sleeps_after_polls_is_woken(bound: Bound) -> None:
    """Nothing was asked for while polls found all: a thread that sleeps then is told of the next one."""
    one, other, _ = met(bound)
    received: list[bytes] = []
    done = threading.Event()

    def read() -> None:
        for _ in range(200):
            received.append(other.recv(10))
        done.set()

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    for at in range(200):
        one.sendto(b"%d" % at, other.getsockname())
    assert done.wait(limit_s(60))
    assert received == [b"%d" % at for at in range(200)]


def test_a_call_that_polls_is_counted_and_takes_the_events_of_all_sockets(bound: Bound) -> None:
    """For the completion thread stands by meanwhile."""
    end = end_of(bound())
    ring = RingConsumer(end.ports[0].driver.session.channel.events.consumer.layout)
    looks: list[bool] = []
    taken: list[bool] = []
    device = NoDevice()
    device.session.channel.events.consumer = ring
    device.events.dispatch = lambda: taken.append(True)
    end._calls = [DeviceCalls(device)]  # type: ignore[arg-type]

    def looked() -> bool:
        looks.append(True)
        return len(looks) >= 3

    ring.seen = ring.taken = ring.seen + max(ring.count(), 0)
    assert ring.idle()
    calls = 1
    while not end._poll(looked):  # beside others one may give up after one look
        calls += 1
    assert not taken
    ring.taken -= 1  # an event waits
    assert not ring.idle()
    assert end._poll(lambda: bool(taken))
    assert end._calls[0].begun == calls + 1
    assert taken == [True]


def test_the_kernel_is_asked_for_datagrams_where_it_has_some(bound: Bound) -> None:
    """A call that finds none lets the interpreter's lock go, which other threads are woken for."""
    one = bound()
    end, asked = end_of(one), []

    def ask() -> bytes:
        asked.append(True)
        return end.udp.recv(100, kernel.MSG_DONTWAIT)

    def take(port: object, found: object) -> bytes:
        raise AssertionError

    with pytest.raises(BlockingIOError):
        end.receive(take, ask, None, False)
    assert not asked
    with kernel.socket(kernel.AF_INET, kernel.SOCK_DGRAM) as plain:
        plain.sendto(b"plain", one.getsockname())
        assert end.receive(take, ask, None, True) == b"plain"
    assert asked == [True]


def test_what_another_thread_has_taken_from_the_kernel_is_waited_for_no_more(bound: Bound) -> None:
    end = end_of(bound())
    end._kernel_ready = True  # the hub has said so

    def never(*_: object) -> bytes:
        raise AssertionError

    with pytest.raises(BlockingIOError):
        end.receive(never, never, None, False)
    assert not end._kernel_ready
    with pytest.raises(TimeoutError):
        end.receive(never, never, time.monotonic(), True)


def test_errors_that_nobody_reads_are_not_waited_for_as_datagrams(bound: Bound) -> None:
    """A receive went round with them for ever, and had no time limit."""
    one = bound()
    one.setsockopt(kernel.IPPROTO_IP, 11, 1)  # IP_RECVERR
    with kernel.socket(kernel.AF_INET, kernel.SOCK_DGRAM) as gone:
        gone.bind(("127.0.0.1", 0))
        nobody = gone.getsockname()
    one.sendto(b"x", nobody)
    with pytest.raises(ConnectionRefusedError):
        one.recv(10)
    one.settimeout(0.05)
    for _ in range(2):
        with pytest.raises(TimeoutError):
            one.recv(10)
    one.settimeout(limit_s(20))
    with kernel.socket(kernel.AF_INET, kernel.SOCK_DGRAM) as plain:
        for _ in range(3):
            plain.sendto(b"plain", one.getsockname())
            assert one.recv(10) == b"plain"
        one.settimeout(0.05)
        with pytest.raises(TimeoutError):
            one.recv(10)
