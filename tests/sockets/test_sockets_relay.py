"""What carries bytes between a stream and a descriptor of the program's: ends, resets, and what fails."""

from __future__ import annotations

import errno
import os
import queue
import select
import socket
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from machine_speed import limit_s
from softhca.sockets import relay
from softhca.sockets.hub import HUB
from softhca.sockets.relay import Relay

RESET = ConnectionResetError(errno.ECONNRESET, "reset")


class Stream:
    """A stream: ``come`` is what it receives (an exception: it fails so), ``sent`` what was sent by it."""

    def __init__(self) -> None:
        self.come: queue.Queue[Any] = queue.Queue()
        self.sent = b""
        self.ends: list[dict[str, bool]] = []
        self.refuses: OSError | None = None

    def receive_bytes(self, _: int, blocking: bool = True) -> bytes:
        try:
            found = self.come.get(blocking, limit_s(60))
        except queue.Empty:
            raise BlockingIOError(errno.EAGAIN, "nothing") from None
        if isinstance(found, OSError):
            raise found
        return bytes(found)

    def send(self, views: list[memoryview], deadline_s: float | None, blocking: bool) -> int:
        assert (deadline_s, blocking) == (None, True)
        if self.refuses is not None:
            raise self.refuses
        self.sent += b"".join(views)
        return sum(map(len, views))

    def shutdown(self, reading: bool, writing: bool) -> None:
        self.ends.append({"reading": reading, "writing": writing})


class Bench:
    """A relay of such a stream, and the number that it serves."""

    def __init__(self) -> None:
        self.stream, self.known = Stream(), object()
        self.number = os.open(os.devnull, os.O_RDONLY)
        self.over = threading.Event()
        self.relay: Relay | None = None

    def begin(self) -> Relay:
        self.relay = Relay(self.stream, self.number, self.over.set, self.known)  # type: ignore[arg-type]
        return self.relay

    def read(self) -> bytes:
        """What comes, or the end; it is not waited for without end."""
        poll = select.poll()
        poll.register(self.number, select.POLLIN)
        assert poll.poll(limit_s(5) * 1000)
        return os.read(self.number, 1 << 16)

    def ended(self) -> bool:
        return self.over.wait(limit_s(5))


@pytest.fixture
def bench() -> Iterator[Bench]:
    made = Bench()
    yield made
    made.stream.come.put(b"")
    if made.number >= 0:
        os.close(made.number)
    if made.relay is not None and not made.relay._called_off:
        assert made.ended()


def test_bytes_go_both_ways_and_ends_are_ends(bench: Bench) -> None:
    os.set_blocking(bench.number, True)
    made = bench.begin()
    assert made in HUB.relays
    assert made._known is bench.known
    assert os.fstat(bench.number).st_ino == made.inode
    bench.stream.come.put(b"down")
    assert bench.read() == b"down"
    os.write(bench.number, b"up")
    bench.stream.come.put(b"")
    assert bench.read() == b""  # the peer has ended, and may be written to
    os.write(bench.number, b" and on")
    with socket.socket(fileno=os.dup(bench.number)) as one:
        one.shutdown(socket.SHUT_WR)
    assert bench.ended()
    assert bench.stream.sent == b"up and on"
    assert bench.stream.ends == [{"reading": False, "writing": True}]
    assert made not in HUB.relays
    assert made._own.fileno() == -1


@pytest.mark.parametrize("blocks", [True, False])
def test_a_descriptor_blocks_as_it_did(bench: Bench, blocks: bool) -> None:
    os.set_blocking(bench.number, blocks)
    bench.begin()
    assert os.get_blocking(bench.number) == blocks


@pytest.mark.parametrize("inherited", [True, False])
def test_a_descriptor_is_a_new_program_s_too_where_it_was(bench: Bench, inherited: bool) -> None:
    os.set_inheritable(bench.number, inherited)
    bench.begin()
    assert os.get_inheritable(bench.number) == inherited


def test_who_writes_to_a_peer_that_takes_nothing_is_told(bench: Bench) -> None:
    made = bench.begin()
    bench.stream.refuses = BrokenPipeError(errno.EPIPE, "gone")
    os.write(bench.number, b"x")
    made._upward.join(limit_s(20))
    with pytest.raises(BrokenPipeError):
        os.write(bench.number, b"y")
    assert bench.stream.ends == [{"reading": False, "writing": True}]


def test_a_reset_is_one_for_the_program(bench: Bench) -> None:
    bench.begin()
    bench.stream.come.put(RESET)
    bench.stream.refuses = RESET
    with pytest.raises(ConnectionResetError):
        bench.read()
    assert bench.ended()
    assert bench.stream.ends == []


def test_any_other_failure_is_an_end(bench: Bench) -> None:
    bench.begin()
    bench.stream.come.put(TimeoutError(errno.ETIMEDOUT, "timed out"))
    assert bench.read() == b""


def test_a_reset_behind_a_number_that_is_another_one_s_is_nobody_s(bench: Bench) -> None:
    made = bench.begin()
    with socket.socket(fileno=os.dup(bench.number)) as kept:  # a child of the program has it, too
        other, ours = socket.socketpair()
        os.dup2(other.fileno(), bench.number)
        bench.stream.come.put(RESET)
        kept.settimeout(limit_s(5))
        assert kept.recv(1) == b""
        ours.setblocking(False)
        with pytest.raises(BlockingIOError):
            ours.recv(1)
        for each in (other, ours):
            each.close()
    assert bench.ended()
    assert not made._was_reset


@pytest.mark.parametrize("thread", [1, 2])
def test_a_relay_without_threads_changes_nothing(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, thread: int
) -> None:
    began: list[threading.Thread] = []
    real = threading.Thread.start

    def start(one: threading.Thread) -> None:
        began.append(one)
        if len(began) == thread:
            raise RuntimeError("can't start new thread")
        real(one)

    monkeypatch.setattr(threading.Thread, "start", start)
    before, relays = os.fstat(bench.number).st_ino, set(HUB.relays)
    bench.stream.come.put(b"first")
    with pytest.raises(OSError, match="new thread") as told:
        bench.begin()
    assert told.value.errno == errno.EAGAIN
    for each in began[: thread - 1]:
        each.join(limit_s(20))
        assert not each.is_alive()
    assert os.fstat(bench.number).st_ino == before
    assert set(HUB.relays) == relays
    assert (bench.stream.come.get_nowait(), bench.stream.ends, bench.over.is_set()) == (b"first", [], False)


def test_a_program_that_ends_waits_for_what_it_has_written(bench: Bench) -> None:
    made = bench.begin()
    os.write(bench.number, b"last words")
    made.say_end()
    made.wait(limit_s(5))
    assert bench.stream.sent == b"last words"
    assert not made._upward.is_alive()
    waited: list[float] = []
    made._upward = SimpleNamespace(join=waited.append)  # type: ignore[assignment]
    made.wait(3.0)
    assert waited == [3.0]


def test_in_a_child_the_relay_s_own_end_is_closed(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    made = relay.Relay.__new__(relay.Relay)
    made._own, other = socket.socketpair()
    made.abandon()
    assert other.recv(1) == b""
    other.close()
