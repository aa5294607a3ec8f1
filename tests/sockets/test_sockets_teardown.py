"""Ends of which one step is refused by the adapter: all that does not stand below what could not be ended is
given back all the same, and the next one works.
"""

from __future__ import annotations

import contextlib
import errno
import gc
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from sockets_under_way import settled

from machine_speed import limit_s
from softhca import sockets
from softhca.adapter.resources import Kind, Resource
from softhca.channels import Channel, ChannelError
from softhca.driver import registry
from softhca.driver.errors import DriverError
from softhca.driver.session import Session
from softhca.queues.control_fields import COMMANDS
from softhca.runtime import devices
from softhca.sockets.hub import HUB
from softhca.verbs.base import close_deferred

BY_CM = sockets.Settings(by_cm=True)
LIMIT_S = limit_s(10)
MOST_STEPS = 60
ENDS = ("DEALLOC_", "DESTROY_", "DEREG_", "DETACH_", "CLOSE_", "CM_DESTROY", "CM_DISCONNECT", "CM_REJECT")


class Refusing:
    """Has the adapter refuse the end number ``number`` of anything, whoever asks for it."""

    def __init__(self, plain: Callable[..., Any], number: int) -> None:
        self.plain, self.left = plain, number
        self.refused = ""
        self.lock = threading.Lock()

    def call(self, session: Session, command: int, **fields: Any) -> Any:
        name = COMMANDS[command][0]
        if name.startswith(ENDS):
            with self.lock:
                self.left -= 1
                now = self.left == -1
                if now:
                    self.refused = f"{name} {fields}"
            if now:
                raise DriverError(errno.EIO, f"{name}: the adapter does not want to")
        return self.plain(session, command, **fields)


@contextlib.contextmanager
def refusing(monkeypatch: pytest.MonkeyPatch, number: int) -> Iterator[Refusing]:
    found = Refusing(Session.call, number)
    with monkeypatch.context() as patch:
        patch.setattr(Session, "call", lambda *words, **fields: found.call(*words, **fields))
        yield found


def _made(settings: sockets.Settings | None = None, kind: int = sockets.SOCK_STREAM) -> sockets.socket:
    one = sockets.socket(sockets.AF_INET, kind)
    one.settings = settings or one.settings
    one.settimeout(LIMIT_S)
    return one


def _stream(settings: sockets.Settings | None = None) -> None:
    with _made(settings) as server, _made(settings) as client, ThreadPoolExecutor(1) as threads:
        server.bind(("127.0.0.1", 0))
        server.listen()
        asking = threads.submit(client.connect, server.getsockname())
        asking.result(LIMIT_S)
        with server.accept()[0] as accepted:
            assert accepted.stream is not None
            accepted.settimeout(LIMIT_S)
            client.sendall(b"x")
            assert accepted.recv(1) == b"x"


def _by_cm() -> None:
    _stream(BY_CM)


def _datagrams() -> None:
    with _made(None, sockets.SOCK_DGRAM) as one, _made(None, sockets.SOCK_DGRAM) as other:
        one.bind(("127.0.0.1", 0))
        other.bind(("127.0.0.1", 0))
        one.sendto(b"x", other.getsockname())
        assert other.recv(1) == b"x"


def _channel() -> None:
    with Channel.listen("127.0.0.1:0") as listener, ThreadPoolExecutor(1) as threads:
        accepting = threads.submit(listener.accept, LIMIT_S)
        with Channel.connect(listener.address, timeout=LIMIT_S) as client, accepting.result() as server:
            server.share("box", bytearray(64), "rwa")
            box = client.remote("box", timeout=LIMIT_S)
            box.write(b"x" * 8)
            assert box.read(8) == b"x" * 8
            receiving = threads.submit(server.recv)
            client.send(bytes(1 << 20))
            assert len(receiving.result(LIMIT_S)) == 1 << 20


def _there() -> dict[tuple[Kind, int], Resource]:
    """What the adapter holds."""
    gc.collect()
    close_deferred()
    (name,) = registry.names()
    engine = devices.find(name).engine
    assert engine is not None
    with engine.loop.lock:
        tables = engine.adapter.resources._tables
        return {(kind, each.handle): each for kind in Kind for each in tables[kind].values()}


def _left(before: dict[tuple[Kind, int], Resource]) -> list[Resource]:
    return [each for key, each in _there().items() if before.get(key) is not each]


def _tops(left: list[Resource]) -> list[Resource]:
    """What nothing else of it stands on."""
    below = {used for each in left for used in each.uses}
    return [each for each in left if each not in below]


def _eventually(held: Callable[[], object]) -> bool:
    end_s = time.monotonic() + LIMIT_S
    while not held():
        if time.monotonic() > end_s:
            return False
        time.sleep(0.005)
    return True


@pytest.mark.parametrize("what", [_stream, _by_cm, _datagrams, _channel])
def test_an_end_that_is_refused_once_keeps_nothing(
    monkeypatch: pytest.MonkeyPatch, what: Callable[[], None]
) -> None:
    for _ in range(2):
        what()
    for number in range(MOST_STEPS):
        for _ in range(2):
            settled(HUB)
        before = _there()
        with refusing(monkeypatch, number) as refusal, contextlib.suppress(OSError, ChannelError):
            what()
            _eventually(lambda before=before: len(_tops(_left(before))) < 2)
        assert len(_tops(_left(before))) < 2, (refusal.refused, _left(before))
        what()  # who has kept it asks again
        assert _eventually(lambda before=before: not _left(before)), (refusal.refused, _left(before))
        if not refusal.refused:
            break
    else:
        pytest.fail("it never came to an end")
    assert number
