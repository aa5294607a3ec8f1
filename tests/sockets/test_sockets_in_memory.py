"""Streams whose adapter writes in place: told in memory, and who sleeps is woken."""

from __future__ import annotations

import hashlib
import random
import select
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from machine_speed import limit_s
from softhca import sockets
from softhca.sockets import memory_processing

Pair = tuple[sockets.socket, sockets.socket]
Connect = Callable[..., Pair]

MESSAGES = 40


def exchange(one: sockets.socket, other: sockets.socket, length: int = 100) -> None:
    """Enough messages that the adapter is asked whether it writes in place."""
    for number in range(MESSAGES):
        data = bytes([number]) * length
        for sender, receiver in ((one, other), (other, one)):
            sender.sendall(data)
            found = b""
            while len(found) < length:
                found += receiver.recv(length - len(found))
            assert found == data


def tells(end: sockets.socket) -> tuple[bool, bool]:
    """Whether it tells in memory, and its peer does, as it has said."""
    stream = end.stream
    assert stream is not None
    return stream.sender.in_memory, stream._state.peer_in_memory


def exchange_until_told(one: sockets.socket, other: sockets.socket) -> None:
    """Both tell in memory, as soon as their adapters share it; on a busy machine that takes a while."""
    end_s = time.monotonic() + limit_s(60)
    while True:
        exchange(one, other)
        if tells(one) == tells(other) == (True, True):
            return
        assert time.monotonic() < end_s, (tells(one), tells(other))


def test_on_one_host_messages_are_told_in_memory(connected: Connect) -> None:
    one, other = connected()
    exchange_until_told(one, other)
    assert tells(one) == tells(other) == (True, True)


def test_it_can_be_left_out(connected: Connect) -> None:
    one, other = connected(in_memory=False)
    exchange(one, other)
    assert tells(one) == tells(other) == (False, False)


@pytest.mark.parametrize("length", [100, 5000, 100_000])
def test_a_reader_that_sleeps_is_woken_each_time(connected: Connect, length: int) -> None:
    """Each end sleeps whenever it waits: it does not poll."""
    one, other = connected()
    exchange_until_told(one, other)
    for end in (one, other):
        end.stream._polls = False  # type: ignore[union-attr]
    ended = threading.Event()

    def echo() -> None:
        while data := other.recv(1 << 20):
            other.sendall(data)
        ended.set()

    thread = threading.Thread(target=echo, daemon=True)
    thread.start()
    for number in range(50):
        data = bytes([number]) * length
        one.sendall(data)
        found = b""
        while len(found) < length:
            found += one.recv(1 << 20)
        assert found == data
    one.shutdown(1)
    assert ended.wait(limit_s(60))
    thread.join()


def test_who_waits_by_descriptor_is_told_each_time(connected: Connect) -> None:
    one, other = connected()
    exchange_until_told(one, other)
    for number in range(60):
        one.sendall(bytes([number]))
        assert select.select([other], [], [], limit_s(30))[0], number
        assert other.recv(10) == bytes([number])
        other.sendall(bytes([number]))
        assert one.recv(10) == bytes([number])


def test_a_sender_that_waits_for_room_is_woken(connected: Connect) -> None:
    """By what the reader writes behind the sender's own pool."""
    one, other = connected(pool_bytes=1 << 16)
    exchange_until_told(one, other)
    for end in (one, other):
        end.stream._polls = False  # type: ignore[union-attr]
    data = random.Random(1).randbytes(3 << 20)
    thread = threading.Thread(target=one.sendall, args=(data,), daemon=True)
    thread.start()
    found = bytearray()
    while len(found) < len(data):
        found += other.recv(10_000)
    assert hashlib.sha256(found).digest() == hashlib.sha256(data).digest()
    thread.join(limit_s(60))
    assert not thread.is_alive()


def test_more_small_messages_than_notifications_wait_for_a_program_that_does_nothing(
    connected: Connect,
) -> None:
    """The peer's library takes them meanwhile, as the kernel would."""
    one, other = connected()
    exchange_until_told(one, other)
    done = threading.Event()

    def send() -> None:
        for number in range(1000):
            one.sendall(b"%4d" % number)
        done.set()

    threading.Thread(target=send, daemon=True).start()
    assert done.wait(limit_s(60))
    found = b""
    while len(found) < 4000:
        found += other.recv(4000)
    assert found == b"".join(b"%4d" % number for number in range(1000))


def test_both_directions_at_once_by_two_threads_each(connected: Connect) -> None:
    one, other = connected(pool_bytes=1 << 17)
    exchange_until_told(one, other)
    sums: dict[str, bytes] = {}
    data = {name: random.Random(name).randbytes(4 << 20) for name in ("one", "other")}

    def send(name: str, end: sockets.socket) -> None:
        dice, at = random.Random(name), 0
        while at < len(data[name]):
            part = dice.choice((1, 300, 600, 5000, 70_000))
            made: bytes | bytearray = data[name][at : at + part]
            end.sendall(made if dice.random() < 0.5 else bytearray(made))
            at += part

    def receive(name: str, end: sockets.socket) -> None:
        dice, found = random.Random(name), bytearray()
        while len(found) < len(data[name]):
            found += end.recv(dice.choice((100, 9000, 200_000)))
        sums[name] = hashlib.sha256(found).digest()

    threads = [
        threading.Thread(target=what, args=(name, end), daemon=True)
        for what, name, end in (
            (send, "one", one), (receive, "one", other), (send, "other", other), (receive, "other", one),
        )
    ]  # fmt: skip
    for each in threads:
        each.start()
    for each in threads:
        each.join(limit_s(120))
    assert sums == {name: hashlib.sha256(each).digest() for name, each in data.items()}


@pytest.mark.parametrize("here", [True, False])
def test_memory_is_read_as_it_stands_by_an_adapter_in_this_process_alone(
    monkeypatch: pytest.MonkeyPatch, here: bool
) -> None:
    """One in a process of its own asks the operating system for it, as far as that lets it."""
    made: list[bool] = []

    def region(pd: object, length: int, access: int, implicit: bool, held: bool) -> SimpleNamespace:
        assert implicit
        made.append(held)
        return SimpleNamespace(lkey=7)

    monkeypatch.setattr(memory_processing, "MR", region)
    channel = SimpleNamespace(shares_addresses=here)
    driver = SimpleNamespace(session=SimpleNamespace(channel=channel))
    pd: Any = SimpleNamespace(ctx=SimpleNamespace(driver=driver))
    assert memory_processing.AddressSpace(pd).lkey == 7
    assert made == [here]


CHILD = """
import sys
from softhca import sockets
made = sockets.create_connection(("127.0.0.1", int(sys.argv[1])))
def told():
    return f"{made.stream.sender.in_memory} {made.stream._state.peer_in_memory}"
while data := made.recv(100):
    made.sendall(data + told().encode())
print(told())
"""


@pytest.mark.parametrize(
    ("options", "adapter", "told"),
    [("same_host=1", "", "True True"), ("same_host=0", "", "False False"),
     ("same_host=1", "process", "False False")],
)  # fmt: skip
def test_between_two_programs(
    monkeypatch: pytest.MonkeyPatch, options: str, adapter: str, told: str
) -> None:
    """In memory where both have an adapter in their process, and it writes in place."""
    server_code = """
import os, sys, subprocess
from softhca import sockets
server = sockets.create_server(("127.0.0.1", 0))
child = subprocess.Popen([sys.executable, "-c", sys.argv[1], str(server.getsockname()[1])],
    env=dict(os.environ, SOFTHCA_DEVICES=os.environ["CHILD_DEVICES"]))
made, _ = server.accept()
number, told = 0, ""
while number < 40 or told != sys.argv[2]:  # adapters on a busy machine share memory later
    made.sendall(b"%9d" % number)
    answer = made.recv(100)
    assert answer[:9] == b"%9d" % number
    number, told = number + 1, answer[9:].decode()
made.shutdown(1)
assert child.wait() == 0
"""
    base = f"127.{sys.version_info.minor}.{random.Random(options + adapter).randrange(1, 250)}"
    monkeypatch.setenv("SOFTHCA_DEVICES", f"softhca0=udp:{base}.1?{options}")
    monkeypatch.setenv("CHILD_DEVICES", f"softhca0=udp:{base}.2?{options}")
    monkeypatch.setenv("SOFTHCA_ADAPTER", adapter or "embedded")
    done = subprocess.run(
        [sys.executable, "-c", server_code, CHILD, told], capture_output=True, text=True, timeout=limit_s(60)
    )
    assert (done.returncode, done.stdout.strip()) == (0, told), done.stderr
