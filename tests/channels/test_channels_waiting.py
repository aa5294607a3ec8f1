"""Tasks that wait for a link, alone: over a link that is a script, in an event loop of their own."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest

from machine_speed import limit_s
from softhca.channels import aio, channel, errors, listener
from softhca.channels.errors import ChannelClosed, ChannelError, ChannelLost, ChannelTimeout
from softhca.channels.options import ChannelOptions
from softhca.verbs.pyverbs_error import PyverbsRDMAError

NEVER_S = 1000.0


class Link:
    """Counts what is asked of it; ``then`` is called by what its key names, with the count."""

    def __init__(self, keepalive_s: float = NEVER_S) -> None:
        self.fd = os.eventfd(0)
        self.completion_channel = SimpleNamespace(fd=self.fd)
        self.options = SimpleNamespace(keepalive_s=keepalive_s)
        self.loops: list[Any] = []
        self.waiters: dict[Any, Any] = {}
        self.counts: Counter[str] = Counter()
        self.then: dict[str, Any] = {}
        self.closed = False

    def _counted(self, what: str) -> None:
        self.counts[what] += 1
        if what in self.then:
            self.then[what](self.counts[what])

    def poll(self) -> None:
        self._counted("poll")

    def look(self, ready: Any) -> bool:
        self._counted("look")
        return bool(ready())

    def keep_alive(self) -> None:
        self._counted("keep_alive")


class Flag:
    """Something to wait for."""

    is_set = False

    def __call__(self) -> bool:
        return self.is_set

    def set(self, *_: Any) -> None:
        self.is_set = True


class Loop:
    """The running loop, which keeps its timers."""

    def __init__(self) -> None:
        self.real = asyncio.get_running_loop()
        self.timers: list[Any] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self.real, name)

    def call_later(self, *arguments: Any) -> Any:
        self.timers.append(self.real.call_later(*arguments))
        return self.timers[-1]


def play(scene: Any, **options: Any) -> Link:
    """Play a coroutine ``scene(link, waiters, loop)`` to its end, which must come."""
    link = Link(**options)

    async def run() -> None:
        loop = Loop()
        waiters = aio.Waiters(link, loop)  # type: ignore[arg-type]
        try:
            await asyncio.wait_for(scene(link, waiters, loop), limit_s(5))
        finally:
            waiters.close()

    asyncio.run(run())
    os.close(link.fd)
    return link


async def asleep(waiters: aio.Waiters, flag: Flag, deadline_s: float | None = None) -> asyncio.Task[bool]:
    """A task that waits for ``flag``, and has gone to sleep."""
    before = len(waiters._entries)
    task = asyncio.create_task(waiters.wait(flag, deadline_s))
    while len(waiters._entries) == before and not task.done():
        await asyncio.sleep(0)
    return task


def test_a_task_polls_before_it_sleeps():
    async def scene(link, waiters, loop):
        flag = Flag()
        link.then["poll"] = lambda count: flag.set() if count == 7 else None
        assert await waiters.wait(flag, None)
        assert link.counts == {"poll": 7}

    play(scene)


def test_a_deadline_that_has_passed_is_one_at_once():
    async def scene(link, waiters, loop):
        assert not await waiters.wait(Flag(), time.monotonic())
        assert link.counts == {"poll": aio.POLLS}

    play(scene)


def test_what_comes_as_a_task_goes_to_sleep_is_seen():
    async def scene(link, waiters, loop):
        flag = Flag()
        link.then["look"] = flag.set
        assert await waiters.wait(flag, None)
        assert (link.counts["look"], waiters._entries) == (1, {})

    play(scene)


def test_a_sleeping_task_wakes_by_the_descriptor():
    async def scene(link, waiters, loop):
        flag = Flag()
        task = await asleep(waiters, flag)

        def taken(count):
            os.eventfd_read(link.fd)
            flag.set()

        link.then["look"] = taken
        os.eventfd_write(link.fd, 1)
        assert await task
        assert waiters._entries == {}

    play(scene)


def test_news_wakes_once_and_again():
    async def scene(link, waiters, loop):
        for _ in range(2):
            flag = Flag()
            task = await asleep(waiters, flag)
            before = link.counts["look"]
            flag.set()
            link.loops[0]()
            link.loops[0]()
            assert await task
            await asyncio.sleep(0)
            assert link.counts["look"] == before + 1
        link.loops[0]()  # nobody waits
        await asyncio.sleep(0)
        assert link.counts["look"] == before + 1

    play(scene)


def test_news_of_another_thread_wakes_a_loop_that_sleeps(monkeypatch):
    async def scene(link, waiters, loop):
        flag, by = Flag(), []
        task = await asleep(waiters, flag)
        loop.call_soon = lambda *given: by.append("unsafely") or loop.real.call_soon(*given)
        flag.set()
        thread = threading.Thread(target=link.loops[0])
        thread.start()
        thread.join()
        assert by == []
        assert await task

    play(scene)


def test_whoever_sleeps_asks_now_and_then_whether_the_peer_lives():
    async def scene(link, waiters, loop):
        for _ in range(2):  # and later once more
            flag, before = Flag(), link.counts["keep_alive"]
            link.then["keep_alive"] = lambda count, flag=flag, before=before: (
                flag.set() if count == before + 3 else None
            )
            assert await (await asleep(waiters, flag))
            assert link.counts["keep_alive"] == before + 3
            while waiters._timer is not None:
                await asyncio.sleep(0)

    play(scene, keepalive_s=0.0)


def test_a_deadline_ends_a_sleep_and_its_timer_goes_with_the_task():
    async def scene(link, waiters, loop):
        assert not await (await asleep(waiters, Flag(), time.monotonic() + limit_s(0.1)))
        flag = Flag()
        task = await asleep(waiters, flag, time.monotonic() + NEVER_S)
        timer = loop.timers[-1]
        flag.set()
        link.loops[0]()
        assert await task
        assert timer.cancelled()

    play(scene)


def test_the_end_of_a_link_wakes_all_and_leaves_nothing():
    async def scene(link, waiters, loop):
        tasks = [await asleep(waiters, Flag()) for _ in range(2)]
        timer = waiters._timer
        waiters.end()
        assert await asyncio.gather(*tasks) == [True, True]
        assert timer.cancelled()
        assert (link.loops, waiters._fd) == ([], -1)
        waiters.close()  # again

    play(scene)


def test_a_loop_that_cannot_watch_leaves_no_descriptor_open():
    link, before = Link(), len(os.listdir("/proc/self/fd"))

    def refuse(*_: Any) -> None:
        raise NotImplementedError

    with pytest.raises(NotImplementedError):
        aio.Waiters(link, SimpleNamespace(add_reader=refuse))  # type: ignore[arg-type]
    assert len(os.listdir("/proc/self/fd")) == before
    os.close(link.fd)


def test_loops_that_have_ended_are_forgotten():
    link = Link()

    async def once() -> Any:
        assert aio.waiters_of(link) is aio.waiters_of(link)  # type: ignore[arg-type]
        return asyncio.get_running_loop()

    first, second = asyncio.run(once()), asyncio.run(once())
    assert first is not second
    assert list(link.waiters) == [second]
    assert len(link.loops) == 1
    link.waiters[second].close()
    os.close(link.fd)


# steps


def steps(*readies: Any, result: Any = None, ended: list[str] | None = None):
    try:
        yield from readies
        return result
    finally:
        if ended is not None:
            ended.append("ended")


def run(link: Any, todo: Any, timeout: float | None = None) -> Any:
    async def scene() -> Any:
        return await asyncio.wait_for(aio.run(link, todo, timeout, "nothing"), limit_s(5))

    return asyncio.run(scene())


def test_steps_that_are_ready_wait_for_nothing():
    link = Link()
    assert run(link, steps(lambda: True, lambda: True, result=5)) == 5
    assert (link.waiters, link.counts) == ({}, {})
    os.close(link.fd)


def test_steps_of_a_closed_link_go_on_to_see_that_themselves():
    link = Link()
    link.closed = True

    def todo():
        yield lambda: False
        raise ChannelClosed("it is closed")

    with pytest.raises(ChannelClosed):
        run(link, todo())
    assert link.counts == {}
    os.close(link.fd)


def test_steps_that_are_late_end():
    link, ended = Link(), []
    with pytest.raises(ChannelTimeout, match="nothing"):
        run(link, todo := steps(lambda: False, ended=ended), 0)
    assert ended == ["ended"]
    assert todo is not None
    os.close(link.fd)


# options and errors


@pytest.mark.parametrize(("name", "good", "bad"), [
    ("slots", 4, 3), ("slots", 4096, 4097), ("slot_bytes", 64, 63), ("slot_bytes", 1 << 20, (1 << 20) + 1),
    ("largest_bytes", 8192, 8191), ("largest_bytes", 1 << 33, (1 << 33) + 1), ("ack_timeout", 1, 0),
    ("ack_timeout", 31, 32), ("keepalive_s", 0.001, 0), ("linger_s", 0, -0.001), ("slots", 5, 5.0),
    ("ack_timeout", 2, True),
])  # fmt: skip
def test_options_have_a_least_and_a_most(name, good, bad):
    assert getattr(ChannelOptions(**{name: good}), name) == good
    with pytest.raises(ValueError, match=name):
        ChannelOptions(**{name: bad})


@pytest.mark.parametrize(("code", "kind"), [
    (104, ChannelLost), (110, ChannelTimeout), (5, ChannelError), (0, ChannelError),
])  # fmt: skip
def test_an_error_of_the_verbs_is_told_as_one_of_channels(code, kind):
    found = errors.failed(PyverbsRDMAError("why", code), "doing")
    assert type(found) is kind
    assert found.errno == (code or ChannelError._ERRNO)


# channels and listeners for coroutines


def play_alone(scene: Any) -> None:
    async def run() -> None:
        await asyncio.wait_for(scene, limit_s(5))

    asyncio.run(run())


class Sync:
    """A channel of which ``done`` is kept."""

    timeout: float | None = NEVER_S

    def __init__(self) -> None:
        self.done: list[Any] = []
        self._link = link = Link()
        link.options.linger_s = 0.0  # type: ignore[attr-defined]
        link.established = True  # type: ignore[attr-defined]
        link.guard = threading.RLock()  # type: ignore[attr-defined]
        link.named = SimpleNamespace(  # type: ignore[attr-defined]
            register=lambda *given: "shared", end=lambda shared: self.done.append(("end", shared))
        )
        self._endpoint: Any = SimpleNamespace(quick=0)


@pytest.fixture
def sync():
    made = Sync()
    yield made
    os.close(made._link.fd)


def never(*_: Any) -> Any:
    return steps(lambda: False)


def test_a_task_waits_as_long_as_its_channel_says(sync):
    sync.timeout = 0.0
    with pytest.raises(ChannelTimeout):
        play_alone(aio.AsyncChannel(sync)._run(never(), None, "late"))


def test_giving_up_a_shared_buffer_waits_as_long_as_a_close(sync, monkeypatch):
    monkeypatch.setattr(aio.steps, "unshare", never)
    play_alone(aio.AsyncChannel(sync).unshare("shared"))  # type: ignore[arg-type]


def test_a_buffer_that_was_not_shared_is_given_up(sync, monkeypatch):
    def refuse(*_: Any) -> Any:
        raise ChannelLost("gone")

    monkeypatch.setattr(aio.steps, "share", refuse)
    with pytest.raises(ChannelLost):
        play_alone(aio.AsyncChannel(sync).share("name", bytearray(4)))
    assert sync.done == [("end", "shared")]


def test_a_message_that_is_too_long_by_now_is_not_sent_at_once(sync, monkeypatch):
    quick = [10, 0]

    class Endpoint:
        quick = property(lambda self: quick.pop(0))

        def send(self, view: Any) -> bool:
            sync.done.append("at once")
            return True

    sync._endpoint = Endpoint()
    monkeypatch.setattr(aio.steps, "send", lambda *_: sync.done.append("by steps") or steps())
    play_alone(aio.AsyncChannel(sync).send(b"hello"))
    assert sync.done == ["by steps"]


def test_a_channel_that_another_one_closes_is_left_to_that(sync, monkeypatch):
    monkeypatch.setattr(aio.steps, "close", lambda *_: sync.done.append("steps") or steps())
    sync._begin_closing = lambda: False
    sync._end_closing = lambda: sync.done.append("end")
    play_alone(aio.AsyncChannel(sync).close())
    assert sync.done == []


class Listening:
    """A listener: what `take_event` gives, one after the other; then it is closed."""

    address = "here"

    def __init__(self, *script: Any) -> None:
        self.script = list(script)
        self.asked = 0
        self.closed = False
        self.on_close: list[Any] = []
        self.fd = os.eventfd(0)

    def take_event(self) -> Any:
        self.asked += 1
        if not self.script:
            raise ChannelClosed("the listener is closed")
        found = self.script.pop(0)
        return found(self) if callable(found) else found

    def fileno(self) -> int:
        return self.fd


NOTHING = (False, None)


@pytest.fixture
def accepted(monkeypatch):
    """Channels are what they are made of."""
    monkeypatch.setattr(channel, "Channel", lambda found: SimpleNamespace(aio=found))
    monkeypatch.setattr(listener, "Channel", lambda found: found)


def test_an_event_that_leads_to_no_channel_is_followed_by_the_next_one(accepted):
    sync = Listening((True, None), (True, "channel"))

    async def scene() -> None:
        assert await aio.AsyncListener(sync).accept() == "channel"  # type: ignore[arg-type]

    play_alone(scene())
    os.close(sync.fd)


def test_who_has_no_time_looks_once(accepted):
    sync = Listening(NOTHING, NOTHING)
    with pytest.raises(ChannelTimeout):
        play_alone(aio.AsyncListener(sync).accept(0))  # type: ignore[arg-type]
    assert sync.asked == 1
    os.close(sync.fd)


@pytest.mark.parametrize("how", ["readable", "closed", "closed before"])
def test_who_waits_for_a_channel_is_woken_and_leaves_nothing(accepted, how):
    def found(sync):
        sync.closed = how == "closed before"
        return NOTHING

    sync = Listening(found, (True, "channel"))

    async def scene() -> None:
        loop, removed = asyncio.get_running_loop(), []
        really = loop.remove_reader
        loop.remove_reader = lambda fd: removed.append(fd) or really(fd)  # type: ignore[method-assign]
        task = asyncio.create_task(aio.AsyncListener(sync).accept())  # type: ignore[arg-type]
        if how != "closed before":
            while not sync.on_close:
                await asyncio.sleep(0)
            for _ in range(3):
                await asyncio.sleep(0)
            assert not task.done()
            if how == "readable":
                os.eventfd_write(sync.fd, 1)
            else:
                sync.on_close[0]()
        assert await task == "channel"
        assert len(removed) == 1
        assert sync.on_close == []

    play_alone(scene())
    os.close(sync.fd)


def test_a_listener_waits_on_after_an_event_that_leads_to_no_channel_and_not_beyond_its_time(accepted):
    left: list[Any] = []
    results: list[Any] = [None, "channel"]

    def take(timeout: Any) -> Any:
        left.append(timeout)
        assert len(left) < 9, "it waits for ever"
        return results.pop(0) if results else None

    waiting: Any = SimpleNamespace(_next=take)
    assert listener.Listener.accept(waiting, NEVER_S) == "channel"
    assert 0 < left[1] <= left[0] <= NEVER_S
    left.clear()
    with pytest.raises(ChannelTimeout):
        listener.Listener.accept(waiting, 0)
    assert left == [0.0]
    results.append("later")
    assert listener.Listener.accept(waiting) == "later"
    assert left[1:] == [None]


def test_a_listener_tells_whether_there_was_an_event_and_who_waits_that_it_is_closed():
    events, told = [SimpleNamespace(), None], []
    inner = SimpleNamespace(next_event=lambda timeout: events.pop(0), closed=False)
    requests = SimpleNamespace(
        channel=SimpleNamespace(channel=inner), accept=lambda event: None, close=lambda: told.append("close")
    )
    waiting: Any = SimpleNamespace(_requests=requests, on_close=[lambda: told.append("told")])
    made = listener.CMEvent
    try:
        listener.CMEvent = SimpleNamespace(of=lambda event: event)  # type: ignore[assignment,misc]
        assert listener.Listener.take_event(waiting) == (True, None)
        assert listener.Listener.take_event(waiting) == (False, None)
    finally:
        listener.CMEvent = made  # type: ignore[misc]
    listener.Listener.close(waiting)
    assert told == ["close", "told"]
