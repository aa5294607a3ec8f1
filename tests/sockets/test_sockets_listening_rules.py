"""Rules of those that are asked for streams: whose word counts, what is given up, and who is told."""

from __future__ import annotations

import contextlib
import errno
import os
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from machine_speed import limit_s
from softhca.driver.rdmacm import events
from softhca.sockets import cm_listening, listening, requests
from softhca.sockets.connecting import mapped
from softhca.sockets.hub import before_fork
from softhca.sockets.protocol import Offer, ProtocolError
from softhca.verbs.pyverbs_error import PyverbsRDMAError

HERE, ALSO_HERE, THERE = mapped("127.0.0.1"), mapped("127.0.0.2"), mapped("192.0.2.1")


class Waiting:
    """A stream that waits to be claimed."""

    error: int | None = None
    opened = True

    def __init__(self) -> None:
        self.refused = 0

    def refuse(self) -> None:
        self.refused += 1


@pytest.fixture
def served() -> Any:
    """What a listening socket is, without a device."""
    made = listening.Served.__new__(listening.Served)
    made.closed = False
    made._lock, made._ready = threading.RLock(), {}
    return made


@pytest.mark.parametrize(
    ("place", "named", "right"),
    [(HERE, HERE, True), (HERE, ALSO_HERE, True), (THERE, THERE, True), (THERE, HERE, False),
     (HERE, THERE, False), (THERE, mapped("192.0.2.2"), False)],
)  # fmt: skip
def test_who_asks_names_an_address_of_its_own(place: bytes, named: bytes, right: bool) -> None:
    cmid: Any = SimpleNamespace(
        _identifier=SimpleNamespace(connection=SimpleNamespace(path=SimpleNamespace(gid=place)))
    )
    expected = contextlib.nullcontext() if right else pytest.raises(ProtocolError, match="another host")
    with expected:
        listening._check_host(cmid, named)


def test_what_nobody_claims_in_time_is_given_up_when_the_next_one_comes(
    served: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = 1000.0
    monkeypatch.setattr(listening, "time", SimpleNamespace(monotonic=lambda: now_s))
    first, second, third = Waiting(), Waiting(), Waiting()
    served.add((HERE, 1), first, HERE)
    now_s += listening.UNCLAIMED_S
    served.add((HERE, 2), second, HERE)
    assert (first.refused, len(served._ready)) == (0, 2)  # it is not over yet
    now_s += 1
    served.add((HERE, 3), third, HERE)
    assert [each.refused for each in (first, second, third)] == [1, 0, 0]
    assert served.claim(HERE, 1) is None
    assert served.claim(HERE, 2) is second


def test_one_that_has_failed_meanwhile_makes_way_for_the_next_one_from_there(served: Any) -> None:
    first, second = Waiting(), Waiting()
    served.add((HERE, 1), first, HERE)
    with pytest.raises(ProtocolError, match="from there"):
        served.add((HERE, 1), second, HERE)
    first.error = errno.ECONNRESET
    served.add((HERE, 1), second, HERE)
    assert (first.refused, second.refused) == (1, 0)
    assert served.claim(HERE, 1) is second


def test_what_could_not_be_answered_waits_for_nobody(served: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The adapter refuses the answer, after the stream was put where it would be claimed."""
    noted: list[str] = []

    class Stream(Waiting):
        def __init__(self, *_: object) -> None:
            super().__init__()

        def offer(self) -> Offer:
            return Offer(0x10000, 1 << 20, 7)

        def begin(self, _: Offer) -> None:
            pass

        def follow(self, _: object) -> None:
            noted.append("followed")

        def destroy(self) -> None:
            noted.append("destroyed")

    def refused(_: object) -> None:
        noted.append(f"{len(served._ready)} waits")
        raise PyverbsRDMAError("refused", errno.EINVAL)

    monkeypatch.setattr(listening, "Stream", Stream)
    monkeypatch.setattr(listening, "CMEventChannel", object)
    monkeypatch.setattr(listening.devices, "keep", lambda _: None)
    monkeypatch.setattr(listening, "_check_host", lambda *_: None)
    served.settings, served.addresses, served._begun = None, [HERE], True
    listener = listening.Listener.__new__(listening.Listener)
    listener.served = [served]
    cmid: Any = SimpleNamespace(
        migrate=lambda _: None, accept=refused, reject=lambda: noted.append("rejected")
    )
    hello = Offer(0x10000, 1 << 20, 7, 5000).encode(HERE, HERE)
    event: Any = SimpleNamespace(private_data=hello)
    listener.requested(cmid, event)
    assert noted == ["followed", "1 waits", "rejected", "destroyed"]
    assert served._ready == {}


def test_a_process_that_forks_serves_nobody_any_more(server: Any) -> None:
    """A child has the kernel's socket, too, and could accept a connection whose stream is its parent's."""
    before = server._listener
    assert before.close in before_fork
    child = os.fork()
    if not child:
        os._exit(0)
    os.waitpid(child, 0)
    assert before.closed
    assert before.close not in before_fork
    assert listening.serving(server) is None


def test_who_waits_for_connections_is_woken_by_the_close() -> None:
    waits = threading.Event()

    class Told(threading.Condition):
        def wait(self, timeout: float | None = None) -> bool:
            waits.set()
            return super().wait(timeout)

    made = cm_listening.CmServed.__new__(cm_listening.CmServed)
    made.closed, made._news = False, Told(threading.RLock())
    made._ready, made._advertisements, made._listener = cm_listening.deque(), [], None
    made._readiness = SimpleNamespace(inode=0, close=lambda: None)  # type: ignore[assignment]
    made.tcp = SimpleNamespace(close=lambda: None)  # type: ignore[assignment]
    ended: list[int | None] = []

    def take() -> None:
        try:
            made.take((None, True))
        except OSError as error:
            ended.append(error.errno)

    thread = threading.Thread(target=take, daemon=True)
    thread.start()
    assert waits.wait(limit_s(20))
    made.close()  # the lock is free once the other thread waits
    thread.join(limit_s(20))
    assert ended == [errno.EINVAL]


class Listener(requests.RequestListener):
    """A listener without a device; ``fails`` is raised by the first request."""

    def __init__(self, port: int) -> None:
        self._lock, self._closed, self._port = threading.RLock(), False, port
        self._listener, self._fd, self._completion_threads, self.served = None, -1, [], []
        self.found: list[Any] = []
        self._channel = SimpleNamespace(  # type: ignore[assignment]
            channel=SimpleNamespace(next_event=lambda _: self.found.pop(0) if self.found else None),
            close=lambda: None,
        )

    def requested(self, cmid: object, event: object) -> None:
        raise AssertionError


def test_requests_behind_one_that_fails_are_taken_in_the_next_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    listener, taken = Listener(5), []

    def requested(event: Any) -> None:
        taken.append(event.number)
        if event.number == 1:
            raise MemoryError

    monkeypatch.setattr(listener, "_requested", requested)
    listener.found = [SimpleNamespace(kind=events.CONNECT_REQUEST, number=number) for number in (1, 2)]
    listener._fd = os.eventfd(1, os.EFD_NONBLOCK)
    try:
        with pytest.raises(MemoryError):
            listener._take()
        assert taken == [1]
        assert os.eventfd_read(listener._fd) == 1  # the hub comes again
        listener._take()
        assert taken == [1, 2]
    finally:
        os.close(listener._fd)


def test_one_that_was_replaced_takes_nothing_from_its_successor(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a forked child the port's listener is the child's own."""
    old, new = Listener(5), Listener(5)
    monkeypatch.setattr(requests, "_listeners", {(old.space, 5): new})
    old.close()
    assert requests._listeners == {(old.space, 5): new}
    new.close()
    assert requests._listeners == {}
