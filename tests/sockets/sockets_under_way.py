"""What tests of connections have that are made while nobody waits: such ones, and how to hold them up."""

from __future__ import annotations

import errno
import gc
import os
import select
import socket as kernel
import threading
import types
from collections.abc import Callable

import pytest

from machine_speed import limit_s
from softhca import sockets
from softhca.sockets.connecting import Asking
from softhca.sockets.hub import CONNECTING, Hub
from softhca.sockets.in_progress import InProgress

SO_ERROR = kernel.SOL_SOCKET, kernel.SO_ERROR


class Held:
    """`Asking.begin` waits at ``go_on``; it has ``begun``."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.begun, self.go_on = threading.Event(), threading.Event()
        begin = Asking.begin

        def held(asking: Asking, *arguments: object) -> bool:
            self.begun.set()
            assert self.go_on.wait(limit_s(60))
            return begin(asking, *arguments)  # type: ignore[arg-type]

        monkeypatch.setattr(Asking, "begin", held)


def holders(held: object, depth: int = 7) -> str:
    """What refers to an object, and to what does, for the message of a test that finds it alive."""
    lines, seen = [], {id(held)}

    def look(one: object, level: int) -> None:
        for each in gc.get_referrers(one):
            if id(each) in seen or isinstance(each, types.FrameType) or each is lines or len(lines) > 200:
                continue
            seen.add(id(each))
            text = f"{type(each).__name__} {list(each)[:8] if isinstance(each, dict) else each!r}"
            lines.append("  " * level + text[:160].replace("\n", " "))
            if level < depth and not isinstance(each, types.ModuleType):
                look(each, level + 1)

    look(held, 0)
    return "\n".join(lines)


def settled(hub: Hub = CONNECTING) -> None:
    """What was under way at the hub is done."""
    done = threading.Event()
    hub.start()
    hub.soon(done.set)
    assert done.wait(limit_s(60))


def started(name: tuple[str, int]) -> sockets.socket:
    """A socket that connects, and would ask for long."""
    client = sockets.socket()
    client.settings = sockets.Settings(connect_s=limit_s(60))
    client.setblocking(False)
    assert client.connect_ex(name) == errno.EINPROGRESS
    return client


def writable(client: sockets.socket, limit: float = 20.0) -> bool:
    return bool(select.select([], [client], [], limit_s(limit) if limit else 0)[1])


def speak(
    client: sockets.socket, server: sockets.socket | kernel.socket, by_rdma: bool | None = None
) -> None:
    """What is sent arrives on both sides, and goes by RDMA, or not; None: however it goes."""
    with client, server.accept()[0] as accepted:
        if by_rdma is not None:
            assert (client.stream is not None) == by_rdma
            assert (getattr(accepted, "stream", None) is not None) == by_rdma
        accepted.settimeout(limit_s(20))
        client.sendall(b"hello")
        assert accepted.recv(100) == b"hello"
        accepted.sendall(b"and back")
        client.settimeout(limit_s(20))
        assert client.recv(100) == b"and back"


def in_child(work: Callable[[], object]) -> int:
    """What a forked child says of ``work``: 0, or the errno that it ended with; 255: another exception."""
    child = os.fork()
    if not child:
        status = 255
        try:
            work()
            status = 0
        except OSError as error:
            status = error.errno or 255
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def under_way(client: sockets.socket) -> InProgress:
    made = client._upgrade
    assert isinstance(made, InProgress)
    return made


def nobody_answers(made: InProgress) -> None:
    """It is as if the time were over for the word where the port is served: the connection is TCP's."""
    CONNECTING.soon(lambda: made._question is not None and made._question._tell([]))


class Fleeting:
    """An attribute that another thread takes away right behind the first look."""

    def __init__(self, there: object) -> None:
        self._values = [there]

    def __get__(self, one: object, kind: type) -> object:
        return self._values.pop() if self._values else None

    def __set__(self, one: object, value: object) -> None:
        self._values.clear()


class NoDevice:
    """What a completion thread asks of a device's driver; there is no adapter.  ``waits`` is called by
    `wait_for`.
    """

    def __init__(self, waits: Callable[[Callable[[], bool]], object] = lambda ended: None) -> None:
        self.alive = True
        self.wait_for = waits
        self.dispatched = 0
        channel = types.SimpleNamespace(events=types.SimpleNamespace(consumer=None))
        self.session = types.SimpleNamespace(channel=channel)
        self.events = types.SimpleNamespace(dispatch=lambda: None)
