"""Channels between processes: an exchange, the peer's death, programs that leave; the examples."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
from channel_waits import LIMIT_S, until

from softhca.channels import Channel, ChannelEnded, ChannelLost, ChannelOptions, ChannelTimeout

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
OPTIONS = ChannelOptions(keepalive_s=0.2, ack_timeout=13)
Later = Callable[..., Future[Any]]
Start = Callable[[str], tuple[subprocess.Popen[bytes], Channel]]


@pytest.fixture
def start() -> Iterator[Start]:
    """A function that starts the program: its process, and the channel to it."""
    programs: list[subprocess.Popen[bytes]] = []
    channels: list[Channel] = []

    def begin(what: str) -> tuple[subprocess.Popen[bytes], Channel]:
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
        environment.pop("SOFTHCA_DEVICES", None)
        with Channel.listen("127.0.0.1:0", options=OPTIONS) as listener:
            words = [sys.executable, str(HERE / "channel_program.py"), what, listener.address]
            programs.append(subprocess.Popen(words, env=environment))
            channels.append(listener.accept(LIMIT_S))
        channels[-1].timeout = LIMIT_S
        return programs[-1], channels[-1]

    yield begin
    for channel in channels:
        channel.kill()
    for program in programs:
        program.kill()
        program.wait()


def test_an_exchange_with_another_process(start: Start, later: Later) -> None:
    program, channel = start("echo")
    for size in (0, 10, 8192, 8193, 1_000_000):
        message = os.urandom(size)
        sending = later(channel.send, message)
        assert channel.recv() == message
        sending.result(LIMIT_S)
    channel.close()
    assert program.wait(LIMIT_S) == 0


def test_a_peer_that_is_killed_ends_every_wait(start: Start, later: Later) -> None:
    program, channel = start("stays")
    assert channel.recv() == b"ready"
    remote = channel.remote("box")

    def fill() -> None:
        while True:
            channel.send(b"x")

    def read() -> None:
        while True:
            remote.read()

    waiting = [
        later(call)
        for call in (
            channel.recv,
            lambda: channel.remote("nothing"),
            fill,
            read,
            lambda: channel.send(bytes(100_000)),
            lambda: asyncio.run(channel.aio.recv()),
        )
    ]
    until(lambda: channel._link._sync_waiters >= 4 and channel._link.waiters)
    program.kill()
    for each in waiting:
        with pytest.raises(ChannelLost):
            each.result(LIMIT_S)
    with pytest.raises(ChannelLost):
        channel.send(b"x")


def test_who_only_waits_learns_of_the_peers_death(start: Start, later: Later) -> None:
    program, channel = start("stays")
    assert channel.recv() == b"ready"
    waiting = later(channel.recv)
    until(lambda: channel._link._sync_waiters)
    program.kill()
    with pytest.raises(ChannelLost):
        waiting.result(LIMIT_S)


def test_a_peer_that_is_stopped_for_a_moment_is_not_lost(start: Start) -> None:
    program, channel = start("stays")
    assert channel.recv() == b"ready"
    program.send_signal(signal.SIGSTOP)
    program.send_signal(signal.SIGCONT)
    assert channel.fetch_add("box", 0, 1) == 0


def _fill(channel: Channel) -> None:
    """Send until there is no room, and nothing is under way."""
    while channel._endpoint.outgoing.room > 0:
        channel.send(b"x")
    channel.remote("box").read()  # what comes behind all that was sent


def _in_short(call: Callable[[float], object]) -> None:
    """Wait by time-outs that are shorter than what a link waits until it asks."""
    while True:
        with contextlib.suppress(ChannelTimeout):
            call(OPTIONS.keepalive_s / 4)


WAITS: dict[str, Callable[[Channel], object]] = {
    "for room": lambda channel: channel.send(b"x"),
    "for room, in short": lambda channel: _in_short(lambda timeout: channel.send(b"x", timeout=timeout)),
    "for a message": lambda channel: channel.recv(),
    "for a message, in short": lambda channel: _in_short(lambda timeout: channel.recv(timeout=timeout)),
    "for room, in a loop": lambda channel: asyncio.run(channel.aio.send(b"x")),
    "for a message, in a loop": lambda channel: asyncio.run(channel.aio.recv()),
}


@pytest.mark.parametrize("how", WAITS)
def test_a_peer_that_stands_still_ends_a_wait_with_nothing_under_way(
    start: Start, later: Later, how: str
) -> None:
    program, channel = start("stays")
    assert channel.recv() == b"ready"
    channel.timeout = None
    _fill(channel)
    program.send_signal(signal.SIGSTOP)
    os.waitpid(program.pid, os.WUNTRACED)
    with pytest.raises(ChannelLost):
        later(WAITS[how], channel).result(LIMIT_S)


def test_a_program_that_leaves_without_a_word(start: Start) -> None:
    program, channel = start("leaves")
    assert channel.recv() == b"ready"
    assert program.wait(LIMIT_S) == 0
    with pytest.raises((ChannelLost, ChannelEnded)):
        channel.recv()


def test_a_forked_child_has_no_channel(start: Start) -> None:
    _, channel = start("fork")
    assert list(channel) == [b"ready", b"child ended with 0"]


@pytest.mark.parametrize("example", ["channel_sync.py", "channel_async.py"])
def test_an_example_runs_and_is_short(example: str) -> None:
    path = ROOT / "examples" / example
    lines = [line for line in path.read_text().splitlines() if line.strip()]
    assert len(lines) <= 20
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    words = [sys.executable, "-m", "softhca", "run", "-n", "2", "--", sys.executable, str(path)]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=LIMIT_S)
    assert done.returncode == 0, done.stderr
    assert "hello" in done.stdout
