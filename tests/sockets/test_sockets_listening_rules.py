"""Rules of those that are asked for streams: whose word counts, what is given up, and who is told."""

from __future__ import annotations

import contextlib
import errno
import os
import socket as kernel
import threading
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from machine_speed import limit_s
from softhca.driver.rdmacm import events
from softhca.machine.condition import Condition
from softhca.machine.kernel_sockets import KernelSocket
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
    made._looks = True
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


def test_what_nobody_claims_is_given_up_also_where_no_other_comes(
    served: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Peers that were interrupted leave such streams behind, and the memory of each."""
    now_s, later = 1000.0, []
    monkeypatch.setattr(listening, "time", SimpleNamespace(monotonic=lambda: now_s))
    monkeypatch.setattr(listening.HUB, "after", lambda seconds, call: later.append((seconds, call)))
    served._looks = False
    first, second = Waiting(), Waiting()
    served.add((HERE, 1), first, HERE)
    now_s += 1
    served.add((HERE, 2), second, HERE)
    ((seconds, look),) = later
    now_s += seconds
    look()
    assert [each.refused for each in (first, second)] == [1, 0]
    assert len(later) == 2
    now_s += seconds
    later[1][1]()
    assert (second.refused, served._ready, len(later)) == (1, {}, 2)
    served.add((HERE, 3), Waiting(), HERE)
    assert len(later) == 3


def test_whose_peer_was_gone_before_it_used_its_stream_does_not_wait(served: Any) -> None:
    """One that used it may have sent data, which are to be read."""
    unused, used, living = Waiting(), Waiting(), Waiting()
    for number, each in enumerate((unused, used, living)):
        served.add((HERE, number), each, HERE)
    unused.opened = living.opened = False
    unused.error = used.error = errno.ECONNRESET
    served.add((HERE, 3), Waiting(), HERE)
    assert [each.refused for each in (unused, used, living)] == [1, 0, 0]


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


def cm_served(condition: type[Condition]) -> cm_listening.CmServed:
    """One without a port."""
    made = cm_listening.CmServed.__new__(cm_listening.CmServed)
    made.closed, made._backlog, made._news_lock = False, 8, threading.RLock()
    made._news = condition(made._news_lock)
    made._ready, made._advertisements, made._listener = cm_listening.deque(), [], None
    made._readiness = SimpleNamespace(  # type: ignore[assignment]
        inode=0, close=lambda: None, set=lambda *_: None
    )
    made.tcp = SimpleNamespace(  # type: ignore[assignment]
        close=lambda: None, getsockname=lambda: ("", 5), family=kernel.AF_INET
    )
    return made


def test_a_connection_whose_waiter_a_signal_handler_interrupts_is_for_the_next_one() -> None:
    class Interrupted(Exception):
        pass

    class Told(Condition):
        def wait(self, timeout_s: float | None = None) -> bool:
            woken = super().wait(timeout_s)
            if threading.current_thread() is threads[0]:
                raise Interrupted
            return woken

    def take() -> None:
        with contextlib.suppress(Interrupted):
            taken.append(made.take((None, True))[0])

    made = cm_served(Told)
    taken: list[Any] = []
    threads = [threading.Thread(target=take, daemon=True) for _ in range(2)]
    end_s = time.monotonic() + limit_s(20)
    for number, each in enumerate(threads):
        each.start()
        while len(made._news._waiters) == number and time.monotonic() < end_s:
            time.sleep(0.001)
    made.add((HERE, 7), "stream", THERE)  # type: ignore[arg-type]
    for each in threads:
        each.join(limit_s(20))
    assert taken == ["stream"]


def test_who_waits_for_connections_is_woken_by_the_close() -> None:
    waits = threading.Event()

    class Told(Condition):
        def wait(self, timeout_s: float | None = None) -> bool:
            waits.set()
            return super().wait(timeout_s)

    made = cm_served(Told)
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


class Turns:
    """The hub: what is to be called soon, and what later."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.soon_called: list[Any] = []
        self.later: list[Any] = []
        monkeypatch.setattr(listening, "HUB", self)

    def soon(self, callback: Any) -> None:
        self.soon_called.append(callback)

    def after(self, _: float, callback: Any) -> None:
        self.later.append(callback)


@pytest.fixture
def beginning(served: Any) -> Any:
    """One whose kernel does not listen yet."""
    served._begun, served._early = False, []
    return served


def test_who_asks_early_is_answered_once_when_the_kernel_listens(
    beginning: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    turns = Turns(monkeypatch)
    beginning.when_it_listens("one")
    assert (turns.soon_called, len(turns.later)) == ([], 1)
    beginning.begin()
    assert turns.soon_called == ["one"]
    turns.later[0]()  # it had been waited for long enough
    assert turns.soon_called == ["one"]
    beginning.when_it_listens("two")
    assert (turns.soon_called, len(turns.later)) == (["one", "two"], 1)


def test_who_asks_one_that_was_closed_does_not_wait(beginning: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    turns, beginning.closed = Turns(monkeypatch), True
    beginning.when_it_listens("one")
    assert (turns.soon_called, turns.later) == (["one"], [])
    beginning._begun = True
    assert not beginning.listens()


def test_no_more_wait_for_the_kernel_or_to_be_accepted_than_may(
    beginning: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    Turns(monkeypatch)
    monkeypatch.setattr(listening, "MOST", 2)
    for number in range(2):
        beginning.when_it_listens(number)
        beginning.add((HERE, number), Waiting(), HERE)
    with pytest.raises(ProtocolError):
        beginning.when_it_listens(2)
    with pytest.raises(ProtocolError):
        beginning.add((HERE, 2), Waiting(), HERE)


def test_who_listens_at_all_addresses_of_a_family_serves_each(served: Any) -> None:
    served.addresses = [mapped("0.0.0.0")]
    assert served.serves(HERE)
    assert served.serves(THERE)
    assert not served.serves(mapped("::1"))
    served.addresses = [HERE]
    assert [served.serves(each) for each in (HERE, ALSO_HERE)] == [True, False]


def test_who_waits_is_refused_by_the_close_and_who_asked_early_hears_of_it(
    beginning: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    turns, stream = Turns(monkeypatch), Waiting()
    left: list[Any] = []
    beginning._inode, beginning._advertisements = -1, [SimpleNamespace(close=lambda: left.append("sign"))]
    beginning._listener = SimpleNamespace(leave=left.append)
    beginning.when_it_listens("one")
    beginning.add((HERE, 1), stream, HERE)
    for _ in range(2):
        beginning.close()
    assert (stream.refused, left, turns.soon_called) == (1, ["sign", beginning], ["one"])
    assert beginning.claim(HERE, 1) is None


@pytest.fixture
def shared(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Any, KernelSocket, list[str]]]:
    """What serves a socket already, that socket, and what has come of the first."""
    noted: list[str] = []
    made = listening.Served.__new__(listening.Served)
    made._users = 1
    made.close = lambda: noted.append("closed")  # type: ignore[method-assign]
    with KernelSocket() as one:
        one.bind(("127.0.0.1", 0))
        monkeypatch.setattr(listening, "_served", {os.fstat(one.fileno()).st_ino: made})
        yield made, one, noted


def test_each_duplicate_of_a_listening_socket_is_a_user_and_the_last_one_ends_it(
    shared: tuple[Any, KernelSocket, list[str]],
) -> None:
    made, one, noted = shared
    assert listening.serve(one, None) is made  # type: ignore[arg-type]
    assert listening.serving(one) is made
    for left in (2, 1, 0):
        assert noted == []
        made.leave()
        assert made._users == left
    assert noted == ["closed"]


def test_a_socket_that_nothing_serves_is_not_another_ones(
    shared: tuple[Any, KernelSocket, list[str]],
) -> None:
    with KernelSocket() as other:
        other.bind(("127.0.0.1", 0))
        assert listening.serving(other) is None


class Named(KernelSocket):
    """A socket that says that it is bound there; ``v6_only`` of an IPv6 one."""

    def __init__(self, host: str, v6_only: int = 0) -> None:
        super().__init__()
        self.host, self.v6_only = host, v6_only

    def getsockname(self) -> Any:
        return self.host, 7, 0, 0

    def getsockopt(self, *_: Any) -> Any:
        return self.v6_only


def test_who_listens_at_all_addresses_of_both_families_is_found_by_each(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    every4, every6 = mapped("0.0.0.0"), mapped("::")
    told: list[tuple[int, bytes]] = []
    monkeypatch.setattr(listening.port_lookup, "end_elsewhere", lambda *what: told.append(what))
    for host, v6_only, addresses in (
        ("::", 0, [every6, every4]), ("::", 1, [every6]), ("::1", 0, [mapped("::1")]),
        ("0.0.0.0", 0, [every4]),
    ):  # fmt: skip
        told.clear()
        with Named(host, v6_only) as one:
            assert listening._place(one) == (os.fstat(one.fileno()).st_ino, 7, addresses)
            listening.end_elsewhere(one)
        assert told == [(7, each) for each in addresses]


def test_one_that_was_closed_takes_nothing_and_gives_nothing(served: Any) -> None:
    first, second = Waiting(), Waiting()
    served.add((HERE, 1), first, HERE)
    served.closed = True
    assert served.claim(HERE, 1) is None
    with pytest.raises(ProtocolError):
        served.add((HERE, 2), second, HERE)
    assert second.refused == 0  # who made it does that


def test_a_stream_is_claimed_once(served: Any) -> None:
    served.add((HERE, 1), Waiting(), HERE)
    assert served.claim(HERE, 1) is not None
    assert served.claim(HERE, 1) is None


@pytest.mark.parametrize("comes", [True, False])
def test_who_accepts_waits_a_while_for_the_word_that_the_stream_is_used(
    served: Any, monkeypatch: pytest.MonkeyPatch, comes: bool
) -> None:
    monkeypatch.setattr(listening, "time", SimpleNamespace(monotonic=lambda: 1000.0))
    waited: list[float] = []

    class Late(Waiting):
        opened = False

        def wait(self, ready: Callable[[], bool], deadline_s: float) -> None:
            assert not ready()
            waited.append(deadline_s)
            self.opened = comes
            assert ready() == comes

    stream = Late()
    served.add((HERE, 1), stream, HERE)
    assert served.claim(HERE, 1) is (stream if comes else None)
    assert (waited, stream.refused) == ([1000.0 + listening.OPENED_S], 0 if comes else 1)


def test_what_cannot_be_said_to_others_is_not_served(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second address cannot be: what was done for the first one is undone."""
    noted: list[Any] = []

    class Listens:
        gids: tuple[bytes, ...] = ()

        def join(self, one: object) -> None:
            noted.append("joined")

        def leave(self, one: object) -> None:
            noted.append("left")

    class Sign:
        def __init__(self, port: int, address: bytes, *_: object) -> None:
            if address == THERE:
                raise OSError(errno.EMFILE, "no descriptor")
            noted.append("said")

        def close(self) -> None:
            noted.append("unsaid")

    monkeypatch.setattr(listening.requests, "listener_of", lambda *_: Listens())
    monkeypatch.setattr(listening, "PortAdvertisement", Sign)
    with pytest.raises(OSError, match="no descriptor"):
        listening.Served(-1, 5, [HERE, THERE], None)  # type: ignore[arg-type]
    assert noted == ["joined", "said", "unsaid", "left"]
    assert -1 not in listening._served


def asked(served: Any, monkeypatch: pytest.MonkeyPatch, offer: Offer) -> tuple[Any, Any, Any, list[str]]:
    """A listener, a request to it, its identifier, and what becomes of that; no stream can be made."""
    noted: list[str] = []
    monkeypatch.setattr(listening, "_check_host", lambda *_: None)
    monkeypatch.setattr(listening.devices, "keep", lambda _: noted.append("kept"))

    def no_stream(*_: object) -> None:
        raise PyverbsRDMAError("no memory", errno.ENOMEM)

    monkeypatch.setattr(listening, "Stream", no_stream)
    served.settings, served.addresses = None, [HERE]
    listener = listening.Listener.__new__(listening.Listener)
    listener.served = [served]
    cmid = SimpleNamespace(reject=lambda: noted.append("rejected"), close=lambda: noted.append("closed"))
    return listener, SimpleNamespace(private_data=offer.encode(HERE, HERE)), cmid, noted


@pytest.mark.parametrize("alone", [True, False])
def test_who_wants_no_tcp_connection_is_not_served_beside_one(
    served: Any, monkeypatch: pytest.MonkeyPatch, alone: bool
) -> None:
    offer = Offer(0x10000, 1 << 20, 7, 5000, alone=alone)
    listener, event, cmid, noted = asked(served, monkeypatch, offer)
    served._begun = True
    listener.requested(cmid, event)
    assert noted == (["rejected", "closed"] if alone else ["kept", "rejected", "closed"])


def test_whoever_asked_early_and_finds_something_amiss_is_closed(
    served: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    listener, event, cmid, noted = asked(served, monkeypatch, Offer(0x10000, 1 << 20, 7, 5000))
    monkeypatch.setattr(listening, "addresses_of", lambda _: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        listener._again(cmid, event)
    assert noted == ["closed"]


def test_a_forked_child_serves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listening, "_served", {7: object()})
    child = os.fork()
    if not child:
        os._exit(len(listening._served))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert len(listening._served) == 1
