"""What an adapter process does for an application: who may attach, what is passed, and what an end frees."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from softhca.queues.handshake import (
    ATTACH,
    CHANNEL,
    DESCRIPTOR,
    DETACH,
    MEMORY,
    RESOURCES,
    Request,
    decode_answer,
    encode_request,
)
from softhca.runtime import application as application_module
from softhca.runtime import applications, messages
from softhca.runtime.application import Application, ApplicationSide
from softhca.runtime.applications import ACCEPT_RETRY_NS, MAX_APPLICATIONS, MAX_PASSED, Applications

FIELDS = {"control": (), "doorbells": (), "flag": 8, "probe": 0, "probe_bytes": bytes(16)}


class Adapter:
    """An adapter that notes which hosts it has, and what they may do."""

    def __init__(self) -> None:
        self.sides: dict[int, ApplicationSide] = {}
        self.hosts: dict[int, Any] = {}
        self.noted: list[tuple[str, int]] = []
        self.refusal: Exception | None = None

    def attach_host(self, side: ApplicationSide) -> int:
        if self.refusal is not None:
            raise self.refusal
        number = len(self.noted)
        self.sides[number], self.hosts[number] = side, SimpleNamespace(asynchronous=None)
        self.noted.append(("attached", number))
        return number

    def detach_host(self, number: int) -> None:
        self.noted.append(("detached", number))

    def take_notifications(self) -> list[int]:
        return list(self.hosts)


class Bench:
    """`Applications` of such an adapter, with control sockets of this process as applications."""

    def __init__(self) -> None:
        self.adapter = Adapter()
        self.loop = SimpleNamespace(dead=False)
        self.served = Applications(self.adapter, self.loop)  # type: ignore[arg-type]
        self.ends: list[socket.socket] = []
        self.mapped: list[str] = []

    def application(self, attached: bool = False) -> tuple[Application, socket.socket]:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.ends += [ours, theirs]
        self.served._admit(ours)
        found = self.served._applications[ours.fileno()]
        if attached:
            self.attach(found)
        return found, theirs

    def attach(self, application: Application, **fields: Any) -> Any:
        answer, (theirs,) = self.ask(application, ATTACH, [-1], **{**FIELDS, **fields})
        self.ends.append(theirs._end)  # type: ignore[union-attr]
        return answer

    def ask(
        self, application: Application, message: int, descriptors: list[int] | None = None, **fields: Any
    ) -> Any:
        return self.served._execute(application, Request(message, fields), descriptors or [])

    def refused(self, application: Application, message: int, *what: Any, **fields: Any) -> int | None:
        with pytest.raises(OSError) as told:  # noqa: PT011 - its number is looked at
            self.ask(application, message, *what, **fields)
        return told.value.errno


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    made = Bench()

    def memory(descriptor: int) -> Any:
        number = len(made.mapped)
        made.mapped.append("open")
        return SimpleNamespace(
            close=lambda: made.mapped.__setitem__(number, "closed"),
            address_map=SimpleNamespace(address=lambda frame: 0 if frame == 13 else 0x1000 + frame),
        )

    monkeypatch.setattr(applications, "map_memory", memory)
    monkeypatch.setattr(applications, "frames_of", lambda runs, *_: runs)
    monkeypatch.setattr(applications, "probe", lambda *_: errno.EPERM)
    monkeypatch.setattr(applications, "counts", lambda _: {"pd": 3})
    yield made
    for application in list(made.served._applications.values()):
        made.served._dismiss(application)
    made.served._close_descriptors()
    for each in made.ends:
        each.close()


def memfd() -> int:
    return os.memfd_create("test")


def is_open(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True


def test_an_application_attaches_once_and_is_asked_for_its_memory(bench: Bench) -> None:
    one, _ = bench.application()
    assert [bench.refused(one, ATTACH, given, **FIELDS) for given in ([], [-1, -1])] == [errno.EPROTO] * 2
    answer = bench.attach(one)
    assert answer == {"host": 0, "foreign": errno.EPERM, "path": b"", "pid": os.getpid()}
    assert (bench.adapter.sides[0].foreign, one.flag_address) == (False, 0x1008)
    assert bench.refused(one, ATTACH, [-1], **FIELDS) == errno.EALREADY
    assert bench.mapped == ["open"]


def test_memory_that_can_be_reached_is_foreign(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(applications, "probe", lambda *_: 0)
    bench.application(attached=True)
    assert bench.adapter.sides[0].foreign is True


@pytest.mark.parametrize("flag", [0, 13])
def test_a_sleep_flag_that_is_nowhere_is_refused_and_the_memory_let_go(bench: Bench, flag: int) -> None:
    one, _ = bench.application()
    assert bench.refused(one, ATTACH, [-1], **{**FIELDS, "flag": flag}) == errno.EFAULT
    assert (bench.mapped, bench.adapter.noted) == (["closed"], [])


def test_what_an_adapter_refuses_is_undone(bench: Bench) -> None:
    one, _ = bench.application()
    bench.adapter.refusal = ValueError("bad frames")
    before = set(os.listdir("/proc/self/fd"))
    assert bench.refused(one, ATTACH, [-1], **FIELDS) == errno.EINVAL
    assert (bench.mapped, one.memory, set(os.listdir("/proc/self/fd"))) == (["closed"], None, before)


@pytest.mark.parametrize("message", [DESCRIPTOR, CHANNEL, MEMORY])
def test_who_has_not_attached_may_ask_for_nothing(bench: Bench, message: int) -> None:
    one, _ = bench.application()
    passed = memfd()
    assert bench.refused(one, message, [passed], asynchronous=0, dm=1) == errno.EPROTO
    os.close(passed)


def test_descriptors_wait_for_their_commands_and_go_with_the_application(bench: Bench) -> None:
    one, _ = bench.application(attached=True)
    given = [memfd() for _ in range(MAX_PASSED + 1)]
    numbers = [bench.ask(one, DESCRIPTOR, [each])[0]["number"] for each in given[:MAX_PASSED]]
    assert numbers == list(range(1, MAX_PASSED + 1))
    assert bench.refused(one, DESCRIPTOR, given[MAX_PASSED:]) == errno.EMFILE
    assert bench.refused(one, DESCRIPTOR, given[:2]) == errno.EPROTO
    assert one.take_descriptor(1) == given[0]
    with pytest.raises(OSError, match="descriptor = 1"):
        one.take_descriptor(1)
    assert bench.ask(one, DESCRIPTOR, [given[MAX_PASSED]])[0] == {"number": MAX_PASSED + 1}
    bench.ask(one, DETACH)
    assert [is_open(each) for each in given] == [True] + [False] * MAX_PASSED
    assert one.passed == {}
    os.close(given[0])


def test_asynchronous_events_take_a_channel_of_their_own_where_that_is_asked_for(bench: Bench) -> None:
    one, _ = bench.application(attached=True)
    for asynchronous in (0, 1):
        answer, (end,) = bench.ask(one, CHANNEL, asynchronous=asynchronous)
        bench.ends.append(end._end)
        channel = one.event_channel(answer["channel"])
        assert bench.adapter.hosts[0].asynchronous is (channel if asynchronous else None)


def test_an_end_frees_what_an_application_had_once_and_others_go_on(bench: Bench) -> None:
    one, _ = bench.application(attached=True)
    for _ in range(2):
        bench.application(attached=True)
    assert bench.ask(one, DETACH)[0] == {"others": 2}
    assert bench.ask(one, DETACH)[0] == {"others": 2}  # again does nothing
    assert (bench.mapped, bench.adapter.noted[3:]) == (["closed", "open", "open"], [("detached", 0)])
    assert (one.memory, list(bench.served._hosts)) == (None, [1, 2])
    facts = bench.ask(one, RESOURCES)[0]
    assert facts == {"counts": [("pd", 3)], "hosts": 2, "sleeps": 0, "pid": os.getpid()}
    assert bench.attach(one)["host"] == 4


def test_an_engine_that_has_failed_is_not_called_any_more(bench: Bench) -> None:
    one, _ = bench.application(attached=True)
    bench.loop.dead = True
    bench.ask(one, DETACH)
    assert bench.adapter.noted == [("attached", 0)]
    assert bench.mapped == ["closed"]


def test_one_that_leaves_is_forgotten_with_its_process(bench: Bench) -> None:
    one, theirs = bench.application(attached=True)
    pidfd, control = one.pidfd, one.control.fileno()
    assert pidfd >= 0
    theirs.close()
    bench.served._answer(one)
    assert (is_open(pidfd), is_open(control)) == (False, False)
    assert bench.served._applications == {}
    assert bench.adapter.noted == [("attached", 0), ("detached", 0)]


def test_an_answer_brings_its_descriptor_and_what_came_and_is_not_kept_is_closed(bench: Bench) -> None:
    one, theirs = bench.application(attached=True)
    before = set(os.listdir("/proc/self/fd"))
    extra = memfd()
    messages.send_packet(theirs, encode_request(CHANNEL, {"asynchronous": 0}), [extra])
    os.close(extra)
    bench.served._answer(one)
    data, (end,) = messages.receive_packet(theirs)
    assert decode_answer(CHANNEL, data)["channel"] in one.channels
    os.close(end)
    bench.served._channels.close(one.channels)
    assert set(os.listdir("/proc/self/fd")) == before


def test_what_is_no_message_ends_the_application_with_what_came_along(bench: Bench) -> None:
    one, theirs = bench.application()
    extra = memfd()
    messages.send_packet(theirs, b"nonsense", [extra])
    os.close(extra)
    before = len(os.listdir("/proc/self/fd"))
    bench.served._answer(one)
    assert bench.served._applications == {}
    assert len(os.listdir("/proc/self/fd")) == before - 2  # its control socket and its pidfd


def test_so_many_applications_are_served(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    assert MAX_APPLICATIONS == 256
    monkeypatch.setattr(applications, "MAX_APPLICATIONS", 2)
    for _ in range(2):
        bench.application()
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        bench.served._admit(ours)
        data, _ = messages.receive_packet(theirs)
        with pytest.raises(OSError, match="serves 2 applications") as told:
            decode_answer(ATTACH, data)
    assert told.value.errno == errno.EUSERS
    assert len(bench.served._applications) == 2


def test_one_of_another_pid_namespace_is_refused_whatever_it_asks(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(applications.messages, "peer_of", lambda _: (0, 0))
    one, _ = bench.application()
    assert one.pidfd == -1
    assert bench.refused(one, ATTACH, [-1], **FIELDS) == errno.EPERM
    bench.served._dismiss(one)
    assert bench.served._applications == {}


def test_one_that_cannot_be_watched_leaves_no_descriptor(bench: Bench) -> None:
    def none_left(*_: object) -> None:
        raise OSError(errno.ENOSPC, "max_user_watches")

    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    before = len(os.listdir("/proc/self/fd"))
    real = bench.served._epoll
    bench.served._epoll = SimpleNamespace(register=none_left)  # type: ignore[assignment]
    bench.served._admit(ours)
    bench.served._epoll = real
    assert len(os.listdir("/proc/self/fd")) == before - 1
    data, _ = messages.receive_packet(theirs)
    with pytest.raises(OSError, match="max_user_watches"):
        decode_answer(ATTACH, data)
    assert bench.served._applications == {}
    theirs.close()


def test_without_any_descriptor_connections_wait_a_while(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 5_000
    monkeypatch.setattr(applications, "now_ns", lambda: now)
    reads, writes = os.pipe()
    noted: list[str] = []

    def accept() -> None:
        noted.append("accept")
        raise OSError(errno.EMFILE, "none left")

    bench.served._listener = SimpleNamespace(  # type: ignore[assignment]
        fileno=lambda: reads, accept=accept, close=lambda: None
    )
    bench.served._epoll.register(reads)
    os.write(writes, b"x")
    for moment, tries in ((5_000, 1), (5_000 + ACCEPT_RETRY_NS - 1, 1), (5_000 + ACCEPT_RETRY_NS, 1),
                          (5_000 + ACCEPT_RETRY_NS, 2), (5_001 + 2 * ACCEPT_RETRY_NS, 2)):  # fmt: skip
        now = moment
        bench.served._serve_descriptors(0)
        assert len(noted) == tries
    now += 2 * ACCEPT_RETRY_NS
    bench.served._listener.accept = lambda: None  # type: ignore[union-attr,method-assign]
    for _ in range(3):  # there is one again: nothing is begun anew
        bench.served._serve_descriptors(0)
    bench.served._listener = None
    for each in (reads, writes):
        os.close(each)


def test_where_the_door_cannot_be_watched_again_it_is_tried_later(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 7_000
    monkeypatch.setattr(applications, "now_ns", lambda: now)
    served = bench.served
    noted: list[str] = []

    def register(descriptor: int, events: int) -> None:
        noted.append("register")
        if len(noted) == 1:
            raise OSError(errno.ENOSPC, "max_user_watches")

    served._accept_after_ns = now
    with monkeypatch.context() as for_now:
        for_now.setattr(served, "_listener", SimpleNamespace(fileno=lambda: 99))
        for_now.setattr(served, "_epoll", SimpleNamespace(poll=lambda _: [], register=register))
        for moment, tries in ((now, 1), (now + ACCEPT_RETRY_NS - 1, 1), (now + ACCEPT_RETRY_NS, 2),
                              (now + 3 * ACCEPT_RETRY_NS, 2)):  # fmt: skip
            now = moment
            served._serve_descriptors(0)
            assert len(noted) == tries


def test_a_wake_socket_that_is_closed_ends_its_application(bench: Bench) -> None:
    one, _ = bench.application(attached=True)
    two, _ = bench.application(attached=True)
    bench.ends[2].send(b"\0")  # what the first one's own end of the wake socket says
    bench.served._serve_descriptors(0)
    assert len(bench.served._applications) == 2
    bench.ends[2].close()
    bench.served._serve_descriptors(0)
    assert list(bench.served._applications.values()) == [two]
    assert one.memory is None


def test_an_application_s_memory_is_a_memfd_up_to_a_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(application_module, "MAX_MEMORY_BYTES", 8192)
    monkeypatch.setattr(application_module, "SharedHostMemory", lambda descriptor: descriptor)
    given = memfd()
    os.truncate(given, 8192)
    assert application_module.map_memory(given) == given
    os.truncate(given, 8193)
    with pytest.raises(OSError, match="at most 8192 bytes") as told:
        application_module.map_memory(given)
    assert told.value.errno == errno.EFBIG
    os.close(given)
    reads, writes = os.pipe()
    with pytest.raises(OSError, match="memfd"):
        application_module.map_memory(reads)
    for each in (reads, writes):
        os.close(each)
