"""Channels where memory is used up: the one who asks is told, who listens goes on, nothing is left of what
has not come about, and many channels one after the other take no more than one.
"""

from __future__ import annotations

import contextlib
import errno
import mmap
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any

import pytest
from channel_waits import LIMIT_S, SMALL

from softhca.channels import Channel, ChannelError
from softhca.channels.endpoint import Endpoint
from softhca.driver.errors import DriverError
from softhca.driver.session import Session
from softhca.queues import control_fields
from softhca.verbs.cq import CQ

Later = Callable[..., Future[Any]]
Pair = tuple[Channel, Channel]
MOST_STEPS = 60
_MAKING = frozenset((
    control_fields.ALLOC_PD, control_fields.REG_MR, control_fields.CREATE_CQ, control_fields.RESIZE_CQ,
    control_fields.CREATE_QP, control_fields.MODIFY_QP,
))  # fmt: skip
STEPS: dict[str, tuple[Any, str, Exception]] = {
    "memory": (mmap, "mmap", OSError(errno.ENOMEM, "Cannot allocate memory")),
    "command": (Session, "call", DriverError(errno.ENOMEM, "Cannot allocate memory")),
}


class Failing:
    """Fails at its call number ``number`` of one thread; of commands those count that make something."""

    def __init__(self, plain: Callable[..., Any], number: int, error: Exception, thread: int) -> None:
        self.plain, self.left, self.error, self.thread = plain, number, error, thread
        self.failed = False

    def __call__(self, *arguments: Any, **words: Any) -> Any:
        counts = not (arguments and isinstance(arguments[0], Session)) or arguments[1] in _MAKING
        if counts and threading.get_ident() == self.thread and not self.failed:
            self.left -= 1
            if self.left < 0:
                self.failed = True
                raise type(self.error)(*self.error.args)
        return self.plain(*arguments, **words)


@contextlib.contextmanager
def failing_here(monkeypatch: pytest.MonkeyPatch, step: str, number: int) -> Iterator[Failing]:
    """In this thread call ``number`` of a step fails."""
    owner, name, error = STEPS[step]
    failing = Failing(getattr(owner, name), number, error, threading.get_ident())
    with monkeypatch.context() as patch:
        patch.setattr(owner, name, lambda *words, **options: failing(*words, **options))
        yield failing


def sweep(device: Any, one: Callable[[int], bool], end: Callable[[], object] = bool) -> None:
    """``one`` with each step failing in turn leaves what there was."""
    one(1_000_000)
    end()
    before = device.resources()
    for number in range(MOST_STEPS):
        failed = one(number)
        end()
        before = until_as_before(device, before, end)
        if not failed:
            assert number
            return
    pytest.fail("it never came to an end")


def until_as_before(
    device: Any, before: dict[str, int], end: Callable[[], object] = bool
) -> dict[str, int]:
    """What there is as soon as it is no more than ``before``; it may be less, if what the first try left was
    still going when that was counted."""
    end_s = time.monotonic() + LIMIT_S
    while any(count > before[kind] for kind, count in device.resources().items()):
        end()  # one may have been accepted since
        assert time.monotonic() < end_s, (before, device.resources())
        time.sleep(0.005)
    found: dict[str, int] = device.resources()
    return found


@pytest.mark.parametrize("step", STEPS)
def test_nothing_is_left_of_who_asks_whatever_step_fails(
    monkeypatch: pytest.MonkeyPatch, later: Later, device: Any, step: str
) -> None:
    with Channel.listen("127.0.0.1:0", options=SMALL) as listener:
        accepted: list[Channel] = []

        def serve() -> None:
            accepted.extend(listener)

        def one(number: int) -> bool:
            with failing_here(monkeypatch, step, number) as failing, contextlib.suppress(ChannelError):
                Channel.connect(listener.address, options=SMALL, timeout=LIMIT_S).kill()
            return failing.failed

        serving = later(serve)
        sweep(device, one, lambda: [each.kill() for each in accepted])
    serving.result(LIMIT_S)


@pytest.mark.parametrize("step", STEPS)
def test_nothing_is_left_of_who_is_asked_whatever_step_fails(
    monkeypatch: pytest.MonkeyPatch, later: Later, device: Any, step: str
) -> None:
    """Who accepts takes the next one."""
    with Channel.listen("127.0.0.1:0", options=SMALL) as listener:

        def one(number: int) -> bool:
            asking = [
                later(Channel.connect, listener.address, options=SMALL, timeout=LIMIT_S) for _ in range(2)
            ]
            with failing_here(monkeypatch, step, number) as failing, contextlib.suppress(ChannelError):
                listener.accept(LIMIT_S).kill()
            if not failing.failed:
                listener.accept(LIMIT_S).kill()
            for each in asking:
                with contextlib.suppress(ChannelError):
                    each.result(LIMIT_S).kill()
            return failing.failed

        sweep(device, one)


@pytest.mark.parametrize("step", STEPS)
def test_nothing_is_left_of_one_more_channel_whatever_step_fails(
    monkeypatch: pytest.MonkeyPatch, pair: Pair, later: Later, device: Any, step: str
) -> None:
    client, server = pair
    accepted: list[Channel] = []

    def serve() -> None:
        with contextlib.suppress(ChannelError):
            while True:
                accepted.append(server.accept())

    def one(number: int) -> bool:
        with failing_here(monkeypatch, step, number) as failing, contextlib.suppress(ChannelError):
            client.open("more", timeout=LIMIT_S).kill()
        return failing.failed

    def end() -> None:
        for each in accepted:
            each.close()

    serving = later(serve)
    sweep(device, one, end)
    assert client._link._reserved == server._link._reserved
    client.send(b"goes on")
    assert server.recv() == b"goes on"
    client.close()
    serving.result(LIMIT_S)


def test_an_interrupted_accept_leaves_no_connection(
    monkeypatch: pytest.MonkeyPatch, later: Later, device: Any
) -> None:
    before = device.resources()

    def interrupted(*arguments: object) -> None:
        raise KeyboardInterrupt

    with Channel.listen("127.0.0.1:0", options=SMALL) as listener:
        asking = later(Channel.connect, listener.address, options=SMALL, timeout=LIMIT_S)
        while not listener._requests.channel.channel._notices:
            time.sleep(0.001)
        with monkeypatch.context() as patch:
            patch.setattr(Endpoint, "connect", interrupted)
            with pytest.raises(KeyboardInterrupt):
                listener.accept(LIMIT_S)
        with pytest.raises(ChannelError):
            asking.result(LIMIT_S)
    until_as_before(device, before)


def test_channels_one_after_the_other_take_the_room_of_one(
    monkeypatch: pytest.MonkeyPatch, pair: Pair, later: Later
) -> None:
    client, server = pair
    sizes: list[int] = []
    plain = CQ.resize

    def resize(self: CQ, entries: int) -> None:
        sizes.append(entries)
        plain(self, entries)

    monkeypatch.setattr(CQ, "resize", resize)
    for number in range(5):
        accepting = later(server.accept)
        made = client.open(f"{number}")
        accepted = accepting.result(LIMIT_S)
        made.send(b"x")
        assert accepted.recv() == b"x"
        accepted.close()
        made.close()
    assert len(sizes) == 2, "each side has made room once"
    assert client._link._reserved == server._link._reserved < client._link._entries
