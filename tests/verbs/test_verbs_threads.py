"""Threads that use what another one closes: they get an error or what was there before, and never the next
one's bytes."""

from __future__ import annotations

import contextlib
import errno
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from interleaving import LIMIT_S, Second, WatchedLock, at_every_line, outcome
from softhca.driver.turns import Turn
from softhca.machine.condition import Condition
from softhca.runtime import devices
from softhca.verbs import enums as e
from softhca.verbs.cq import CQ, CQEX, CompChannel, CqInitAttrEx
from softhca.verbs.device import Context
from softhca.verbs.mr import MR
from softhca.verbs.pd import PD
from softhca.verbs.pyverbs_error import PyverbsRDMAError, PyverbsUserError
from softhca.verbs.qp import QP, QPCap, QPInitAttr

ACCESS = e.IBV_ACCESS_LOCAL_WRITE
LENGTH = 8192
ALL = 0xFFFFFFFF


@pytest.fixture(params=["embedded", "process"])
def device(request: pytest.FixtureRequest, loopback_address: Callable[[], str]) -> Iterator[str]:
    """A device that is open in another context too, so that it goes on when one is closed."""
    devices.add(f"own=udp:{loopback_address()}?same_host=0", request.param)
    with Context(name="own"):
        yield "own"
    devices.remove("own")


@pytest.fixture
def pd(loopback_address: Callable[[], str]) -> Iterator[PD]:
    devices.add(f"own=udp:{loopback_address()}?same_host=0")
    with Context(name="own") as context, PD(context) as pd:
        yield pd
    devices.remove("own")


def watched(mr: MR) -> list[WatchedLock]:
    lock = WatchedLock(mr._stretch._lock)
    mr._stretch._lock = lock
    return [lock]


def filled(pd: PD, byte: bytes) -> MR:
    mr = MR(pd, LENGTH, ACCESS)
    mr.write(byte * LENGTH, LENGTH)
    return mr


COPIES = ("verbs/mr.py", "verbs/memory_access.py")


def next_region(pd: PD, end: Callable[[], object]) -> MR:
    """What stands in a region's pages once it has ended."""
    end()
    return filled(pd, b"B")


@pytest.mark.parametrize("way", ["close", "rereg"])
def test_a_read_beside_the_end_of_a_region_sees_its_own_bytes_or_none(pd: PD, way: str) -> None:
    elsewhere = filled(pd, b"C")
    regions: list[MR] = []

    def make() -> tuple[Callable[[], Any], Callable[[], Any], list[WatchedLock]]:
        mr = filled(pd, b"A")
        regions.append(mr)
        rereg = lambda: mr.rereg(e.IBV_REREG_MR_CHANGE_TRANSLATION, addr=elsewhere.buf, length=LENGTH)  # noqa: E731
        end = mr.close if way == "close" else rereg
        return lambda: mr.read(LENGTH, 0), lambda: next_region(pd, end), watched(mr)

    for found, other in at_every_line(COPIES, make):
        if way == "close" and isinstance(found, Exception):
            assert isinstance(found, PyverbsUserError), found
        else:
            assert found in ((b"A" * LENGTH), (b"C" * LENGTH)[: LENGTH if way == "rereg" else 0])
        other.close()
        regions[-1].close()
    assert len(regions) > 5


@pytest.mark.parametrize("way", ["close", "rereg"])
def test_a_write_beside_the_end_of_a_region_never_lands_in_the_next(pd: PD, way: str) -> None:
    elsewhere = filled(pd, b"C")
    regions: list[MR] = []

    def make() -> tuple[Callable[[], Any], Callable[[], Any], list[WatchedLock]]:
        mr = filled(pd, b"A")
        regions.append(mr)
        rereg = lambda: mr.rereg(e.IBV_REREG_MR_CHANGE_TRANSLATION, addr=elsewhere.buf, length=LENGTH)  # noqa: E731
        end = mr.close if way == "close" else rereg
        return lambda: mr.write(b"W" * LENGTH, LENGTH), lambda: next_region(pd, end), watched(mr)

    for found, other in at_every_line(COPIES, make):
        assert found is None or (way == "close" and isinstance(found, PyverbsUserError)), found
        assert other.read(LENGTH, 0) == b"B" * LENGTH
        other.close()
        regions[-1].close()
    assert len(regions) > 5


def test_a_signal_handler_may_close_the_region_that_is_being_read(pd: PD) -> None:
    """At whatever line it comes, nothing waits for itself, and the bytes are the region's own."""
    for line in range(1, 100):
        mr = filled(pd, b"A")
        count, others = 0, []

        def handler(mr: MR = mr, others: list[MR] = others) -> None:
            others.append(next_region(pd, mr.close))

        def trace(frame: Any, event: str, _: Any, line: int = line, handler: Any = handler) -> Any:
            nonlocal count
            if event == "line" and frame.f_code.co_filename.endswith(COPIES):
                count += 1
                if count == line:  # the handler runs here, in this thread
                    handler()
            return trace

        sys.settrace(trace)
        found = outcome(lambda mr=mr: mr.read(LENGTH, 0))
        sys.settrace(None)
        assert found == b"A" * LENGTH or isinstance(found, PyverbsUserError)
        if count < line:
            break
        others[0].close()
        assert pd._driver.session.memory.free_pages
    assert line > 5


def waiters(count: int, call: Callable[[], object]) -> list[Second]:
    """So many threads inside a call that waits."""
    seconds = [Second(call) for _ in range(count)]
    for each in seconds:
        each.thread.start()
    return seconds


def ends_of(seconds: list[Second]) -> list[Any]:
    for each in seconds:
        assert each.stands.wait(LIMIT_S), "a thread still waits"
    return [each.result for each in seconds]


def test_closing_a_context_sends_home_who_waits_for_its_events(device: str) -> None:
    context = Context(name=device)
    channel = CompChannel(context)
    cq = CQ(context, 10, channel=channel)
    seconds = waiters(3, lambda: channel.get_cq_event(cq)) + waiters(2, context.get_async_event)
    context._driver.query_device()  # the threads go on whatever happens: they wait, or come late
    context._driver.close()
    for found in ends_of(seconds):
        assert isinstance(found, PyverbsRDMAError), found
        assert found.error_code == errno.EIO
    context.close()


def test_closing_a_channel_sends_home_who_waits_at_it(device: str) -> None:
    with Context(name=device) as context:
        channel, other = CompChannel(context), CompChannel(context)
        cq, kept = CQ(context, 10, channel=channel), CQ(context, 10, channel=other)
        seconds = waiters(3, lambda: channel.get_cq_event(cq))
        stays = waiters(1, lambda: other.get_cq_event(kept, 3600))
        cq.close()
        channel.close()
        for found in ends_of(seconds):
            assert isinstance(found, PyverbsRDMAError | PyverbsUserError), found
            assert getattr(found, "error_code", errno.EBADF) == errno.EBADF
        assert not stays[0].stands.is_set(), "who waits elsewhere goes on waiting"
        other.close()
        ends_of(stays)


def test_a_handler_that_closes_the_context_ends_the_wait_that_it_interrupts(device: str) -> None:
    """The thread that closes is the one that waits, and drives the engine: nobody waits for itself."""
    context = Context(name=device)
    channel = CompChannel(context)
    cq = CQ(context, 10, channel=channel)
    former = signal.signal(signal.SIGUSR1, lambda *_: context.close())
    asked = []
    wait = context._driver.events._take_fired

    def take(token: object, found: list[Any]) -> None:
        asked.append(1)
        if len(asked) == 3:
            signal.raise_signal(signal.SIGUSR1)
        if len(asked) == 2:
            context._driver.wake_waiters()  # or it sleeps for ever
        wait(token, found)

    context._driver.events._take_fired = take
    try:
        with pytest.raises(PyverbsRDMAError):
            channel.get_cq_event(cq)
    finally:
        signal.signal(signal.SIGUSR1, former)
    assert len(asked) >= 3
    context.close()


def test_an_event_that_a_key_was_pressed_at_is_told_to_the_next(device: str) -> None:
    with Context(name=device) as context:
        channel = CompChannel(context)
        cq = CQ(context, 10, channel=channel)
        events = context._driver.events
        events._fired[channel.token] = {cq.handle: None}
        take = events._take_fired

        def press(token: object, found: list[Any]) -> None:
            take(token, found)
            assert found == [cq.handle]
            signal.raise_signal(signal.SIGINT)

        events._take_fired = press
        with pytest.raises(KeyboardInterrupt):
            context._driver.wait_completion(channel.token, 0)
        events._take_fired = take
        assert context._driver.wait_completion(channel.token, 0) is cq.handle


def test_of_many_threads_that_close_one_object_one_does_and_all_see_it_closed(device: str) -> None:
    with Context(name=device) as context:
        for _ in range(10):
            pd = PD(context)
            cq = CQ(context, 10)
            attr = QPInitAttr(e.IBV_QPT_RC, scq=cq, rcq=cq, cap=QPCap(max_send_wr=4))
            qps = [QP(pd, attr) for _ in range(3)]
            start = threading.Barrier(8)
            calls = [pd.close, cq.close, qps[0].close, qps[1].close] * 2

            def run(call: Callable[[], None], start: threading.Barrier = start) -> None:
                start.wait()
                call()

            seconds = [Second(lambda call=call: run(call)) for call in calls]
            for each in seconds:
                each.thread.start()
            assert ends_of(seconds) == [None] * 8
            assert not any(each._open for each in (pd, cq, *qps))
            assert not pd._driver.events._queues
    assert devices.find(device).resources()["QP"] == 0


def test_children_that_are_made_while_their_parent_is_closed_do_not_disturb_it(pd: PD) -> None:
    """The set of children changes while it is walked."""
    context = pd.ctx
    made = []

    class Youngest(MR):
        """Makes another one while it is closed."""

        def _close(self) -> None:
            made.append(MR(pd, 4096, ACCESS))
            super()._close()

    regions = [*(MR(pd, 4096, ACCESS) for _ in range(3)), Youngest(pd, 4096, ACCESS)]
    assert all(each._open for each in regions)
    with contextlib.suppress(PyverbsRDMAError):  # busy: the new one came too late to be closed with it
        pd.close()
    assert made[0]._open
    made[0].close()
    pd.close()
    assert not pd._open
    assert context._open


def test_a_queue_that_is_destroyed_is_neither_polled_nor_armed(device: str) -> None:
    with Context(name=device) as context:
        cq, pd = CQ(context, 10), PD(context)
        qp = QP(pd, QPInitAttr(e.IBV_QPT_RC, scq=cq, rcq=cq, cap=QPCap(max_send_wr=4, max_recv_wr=4)))
        handle, queue = cq.handle, qp.handle
        qp.close()
        cq.close()
        for call in (lambda: handle.poll(1), handle.arm, lambda: queue.post_recv(1, [])):
            found = outcome(call)
            assert getattr(found, "errno", 0) == errno.EINVAL, found
        assert handle.waiting() == 0


def test_who_waits_for_a_round_that_a_signal_handler_interrupts_as_it_ends_begins_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Interrupted(Exception):
        pass

    def interrupted(condition: Condition) -> None:
        monkeypatch.undo()
        raise Interrupted

    turn, log = Turn(), []
    assert turn.begin()
    seconds = waiters(1, lambda: log.append(turn.begin()))
    monkeypatch.setattr(Condition, "notify", interrupted)
    with pytest.raises(Interrupted):
        turn.end()
    assert seconds[0].stands.wait(LIMIT_S / 4), "a thread still waits"
    assert log == [True]


def test_a_round_of_polling_is_one_threads(device: str) -> None:
    turn, log = Turn(), []
    assert not turn.mine()
    assert turn.begin()
    assert turn.mine()

    def other() -> None:
        turn.end()  # another one's: nothing ends
        log.append((turn.begin(), turn.mine()))
        turn.end()

    seconds = waiters(2, other)
    assert not log
    turn.end()
    ends_of(seconds)
    assert log == [(True, True), (True, True)]
    turn.call_off()
    assert not turn.begin(), "nobody begins what is closed"
    with Context(name=device) as context:
        cq = CQEX(context, CqInitAttrEx(cqe=4))
        assert cq.start_poll() == errno.ENOENT
        assert cq.start_poll() == errno.ENOENT, "an empty round has not begun"
        cq._round.begin()
        seconds = waiters(1, cq.start_poll)
        cq.close()
        assert isinstance(ends_of(seconds)[0], PyverbsUserError)
