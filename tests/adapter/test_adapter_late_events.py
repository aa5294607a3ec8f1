"""Events for completions that stood in their queue already when a program armed it."""

from types import SimpleNamespace

import pytest

from softhca.adapter.hosts import ChannelHook
from softhca.adapter.late_events import LOOK_NS, MOST_NS, LateEvents
from softhca.adapter.timers import TICK_NS
from softhca.machine.primitives import store64
from softhca.memory.host import HostMemory
from softhca.queues import cqe
from softhca.queues.completion import CompletionQueue, CompletionReader, pages_for
from softhca.queues.cqe import CQE_BYTES
from softhca.queues.layout import RING_HEAD_AT
from softhca.queues.ring import RingLayout
from softhca.testing.network import Network

HOST = HostMemory(64 << 20)
STEP_NS = LOOK_NS + TICK_NS
"""After so long an adapter has looked, which a timer calls a tick late."""


class Queue:
    """A completion queue with an event channel, on an adapter whose time a test makes."""

    def __init__(self, adapter):
        frames = HOST.allocate(pages_for(8), contiguous=True)
        self.layout = layout = RingLayout.over(frames, HOST.address_map, 8, 8 * CQE_BYTES)
        self.events = []
        self.adapter, self.now = adapter, adapter.now
        hook = ChannelHook(
            SimpleNamespace(),
            SimpleNamespace(post=lambda kind, number: self.events.append(number), forget=lambda *what: None),
        )
        self.queue = CompletionQueue(9, layout, hook)
        hook.late = self.late = LateEvents(adapter, self.queue)
        self.reader = CompletionReader(layout)

    def post(self):
        return self.queue.post(1, 0, cqe.WC_SEND, 0, 5, 0, 0, 0, 0, 0, 0, 0, 0, 1000, False)

    def wait(self, time_ns=STEP_NS):
        self.now += time_ns
        self.adapter.expire(self.now)


@pytest.fixture
def adapter():
    with Network() as network:
        yield network.add(1).adapter


@pytest.fixture
def queue(adapter):
    found = Queue(adapter)
    yield found
    found.late.close()


def test_who_arms_too_late_and_sleeps_gets_an_event(queue):
    queue.post()
    queue.reader.arm()
    assert not queue.events
    queue.wait()
    assert not queue.events  # its program may be about to poll
    queue.wait()
    assert queue.events == [9]
    assert queue.queue.armed == 0
    for _ in range(3):
        queue.wait()
    assert queue.events == [9]


def test_who_arms_much_later_gets_one_too(queue):
    queue.post()
    for _ in range(40):
        queue.wait(MOST_NS)
    queue.reader.arm()
    queue.wait(MOST_NS + STEP_NS)
    queue.wait()
    assert queue.events == [9]


def test_a_completion_that_comes_after_long_idleness_is_looked_at_soon(queue):
    """However long its program has left the ones before in the queue."""
    queue.post()
    for _ in range(12):
        queue.wait(queue.late.armed_ns - queue.now)
    assert queue.late.armed_ns - queue.now > MOST_NS // 2
    assert queue.reader.poll(8)
    queue.post()
    queue.reader.arm()
    queue.wait()
    queue.wait()
    assert queue.events == [9]


def test_completions_that_nobody_takes_do_not_put_off_the_next_look(queue):
    queue.post()
    queue.wait()
    queue.wait()
    queue.post()
    deadline_ns = queue.late.armed_ns
    assert deadline_ns - queue.now <= STEP_NS
    queue.now += TICK_NS
    queue.adapter.now = queue.now
    queue.post()
    assert queue.late.armed_ns == deadline_ns


def test_who_polls_after_arming_gets_the_event_of_the_next_completion_alone(queue):
    queue.post()
    queue.reader.arm()
    assert queue.reader.poll(8)
    for _ in range(4):
        queue.wait()
    assert not queue.events
    assert queue.late.armed_ns == 0  # it rests
    queue.post()
    assert queue.events == [9]
    assert queue.late.armed_ns


def test_who_goes_on_taking_completions_gets_none(queue):
    queue.reader.arm()
    queue.post()
    queue.events.clear()
    for _ in range(6):
        queue.post()
        queue.reader.arm()
        queue.wait()
        queue.reader.poll(1)
        queue.events.clear()
        queue.wait()
        assert not queue.events


def test_a_queue_armed_for_solicited_messages_waits_for_these(queue):
    queue.post()
    queue.reader.arm(True)
    for _ in range(4):
        queue.wait()
    assert not queue.events


def test_looks_are_further_and_further_apart_while_nothing_happens(queue):
    queue.post()
    deadlines = []
    for _ in range(16):
        deadlines.append(queue.late.armed_ns - queue.now)
        queue.wait(deadlines[-1])
        assert queue.late.armed_ns
    assert deadlines[0] <= STEP_NS
    assert deadlines[-1] == pytest.approx(MOST_NS, abs=2 * TICK_NS)
    assert sorted(deadlines[1:]) == deadlines[1:]


def test_an_early_call_gives_none(queue):
    queue.post()
    queue.reader.arm()
    for _ in range(5):
        queue.late.expire(queue.now)
    assert not queue.events


def test_a_queue_that_is_destroyed_is_looked_at_no_more(queue):
    queue.post()
    queue.reader.arm()
    queue.queue.notify_hook.forget(9)
    assert queue.late.armed_ns == 0
    assert queue.queue.watcher is None
    queue.wait(10 * STEP_NS)
    assert not queue.events


def test_a_ring_that_its_program_broke_is_left_alone(queue):
    queue.post()
    queue.reader.arm()
    store64(queue.layout.control + RING_HEAD_AT, 77)
    for _ in range(3):
        queue.wait()
    assert not queue.events


def test_who_arms_again_without_taking_anything_has_two_looks_of_time_again(queue):
    queue.post()
    queue.reader.arm()
    queue.wait()
    queue.wait()
    assert queue.events == [9]
    queue.reader.arm()
    queue.wait()
    assert queue.events == [9]
    for _ in range(3):  # the next look is twice as far away: nothing was armed, and nothing taken
        queue.wait()
    assert queue.events == [9, 9]


def test_completions_that_go_on_coming_do_not_put_the_event_off(queue):
    """In a queue that is looked after already a further one changes nothing."""
    queue.post()
    queue.reader.arm()
    for _ in range(2):
        assert queue.queue.watcher is None
        deadline_ns = queue.late.armed_ns
        queue.now = queue.adapter.now = queue.now + TICK_NS
        queue.post()
        assert queue.late.armed_ns == deadline_ns
        queue.reader.arm()
        queue.events.clear()
    queue.wait(deadline_ns - queue.now)
    queue.wait()
    assert queue.events == [9]


def test_a_queue_that_is_destroyed_before_its_first_completion_is_not_looked_after(queue):
    assert queue.queue.watcher is queue.late
    queue.late.close()
    assert queue.queue.watcher is None
