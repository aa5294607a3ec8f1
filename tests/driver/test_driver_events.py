"""Events of an attachment, one by one: whose they are, in which order they are told, what a descriptor says,
and what becomes of them when somebody goes."""

import errno
import select
import signal

import pytest
from scripted_channel import ScriptedDriver

from softhca.driver.errors import DriverError
from softhca.driver.events import ASYNCHRONOUS
from softhca.machine import deferred_signals
from softhca.queues.control_fields import (
    EVENT_CM,
    EVENT_COMM_EST,
    EVENT_COMPLETION,
    EVENT_CQ_ERR,
    EVENT_DEVICE_FATAL,
    EVENT_GID_CHANGE,
    EVENT_MAD,
    EVENT_QP_ACCESS_ERR,
    EVENT_QP_FATAL,
    EVENT_QP_REQ_ERR,
    EVENT_SRQ_LIMIT_REACHED,
)


class Queue:
    """What the router knows of a completion queue."""

    def __init__(self, number, channel="channel", on_event=None):
        self.number, self.channel, self.on_event = number, channel, on_event


class Connections:
    """What it knows of a channel of connections."""

    def __init__(self, number, on_event):
        self.number, self.idle, self.on_event = number, False, on_event


@pytest.fixture
def driver():
    made = ScriptedDriver()
    yield made
    made.close()


@pytest.fixture
def events(driver):
    return driver.events


def tell(driver, *told):
    for kind, element in told:
        driver.channel.events.post(kind, element)


def readable(descriptor):
    return bool(select.select([descriptor], [], [], 0)[0])


@pytest.fixture
def described(driver, monkeypatch):
    """A channel that may have descriptors; the thread that waits for events is the test itself."""
    driver.channel.wakes = True
    monkeypatch.setattr(driver.events, "_watch", lambda: None)
    return driver


# whose an event is


def test_a_queue_fires_once_however_often_and_the_first_comes_first(driver, events):
    first, second, other = Queue(3), Queue(4), Queue(5, "other")
    for queue in (first, second, other):
        events.add(queue)
    tell(driver, *[(EVENT_COMPLETION, number) for number in (4, 3, 5, 4, 9)])
    assert events.next_completion("channel", 0) is second
    assert events.next_completion("channel", 0) is first
    assert events.next_completion("channel", 0) is None
    assert events.next_completion("other", 0) is other
    tell(driver, (EVENT_COMPLETION, 3))
    assert events.next_completion("channel", 0) is first


def test_changes_of_gids_are_counted_whoever_takes_their_events(driver, events):
    assert events.gid_changes() == 0
    tell(driver, (EVENT_GID_CHANGE, 1), (EVENT_GID_CHANGE, 1), (EVENT_QP_FATAL, 7))
    assert events.gid_changes() == 2
    assert events.next_event(0) == (EVENT_GID_CHANGE, 1)
    tell(driver, (EVENT_GID_CHANGE, 2), (EVENT_COMM_EST, 7))
    assert events.gid_changes() == 3
    assert [events.next_event(0)[1] for _ in range(3)] == [7, 2, 7]


def test_who_asked_to_be_called_is_called_with_no_lock_held(driver, events):
    called = []
    queue = Queue(3, None, lambda: called.append(events.remove(queue)))
    events.add(queue)
    tell(driver, (EVENT_COMPLETION, 3), (EVENT_COMPLETION, 3), (EVENT_COMPLETION, 3))
    events.dispatch()
    assert len(called) == 3
    tell(driver, (EVENT_COMPLETION, 3))
    events.dispatch()
    assert len(called) == 3, "and no more when the queue is gone"


def test_an_asynchronous_event_is_told_once_in_the_order_of_coming(driver, events):
    tell(driver, (EVENT_COMM_EST, 1), (EVENT_SRQ_LIMIT_REACHED, 2), (EVENT_COMM_EST, 1), (EVENT_MAD, 4))
    told = [events.next_event(0) for _ in range(3)]
    assert told == [(EVENT_COMM_EST, 1), (EVENT_SRQ_LIMIT_REACHED, 2), None]
    tell(driver, (EVENT_COMM_EST, 1))
    assert events.next_event(0) == (EVENT_COMM_EST, 1)


@pytest.mark.parametrize("kind", [EVENT_QP_FATAL, EVENT_QP_REQ_ERR, EVENT_QP_ACCESS_ERR])
def test_errors_of_queue_pairs_are_told_to_the_driver_before_the_program(driver, events, kind):
    tell(driver, (kind, 77), (EVENT_COMM_EST, 78))
    events.dispatch()
    assert driver.failed == [77]
    assert events.next_event(0) == (kind, 77)


def test_what_the_driver_handles_itself_is_not_told_before_or_behind_it(driver, events):
    tell(driver, (EVENT_QP_FATAL, 7), (EVENT_QP_FATAL, 8))
    events.dispatch()
    events.suppress(EVENT_QP_FATAL, 7)
    tell(driver, (EVENT_QP_FATAL, 7), (EVENT_QP_REQ_ERR, 7))
    assert [events.next_event(0) for _ in range(3)] == [(EVENT_QP_FATAL, 8), (EVENT_QP_REQ_ERR, 7), None]
    assert driver.failed == [7, 8, 7, 7], "the driver itself sees all"
    events.forget(frozenset({EVENT_QP_FATAL}), 7)
    tell(driver, (EVENT_QP_FATAL, 7))
    assert events.next_event(0) == (EVENT_QP_FATAL, 7), "the next one of this number is another's"


def test_events_of_what_is_destroyed_go_with_it_and_others_stay(driver, events):
    tell(driver, (EVENT_CQ_ERR, 3), (EVENT_CQ_ERR, 4), (EVENT_COMM_EST, 3))
    events.dispatch()
    events.forget(frozenset({EVENT_CQ_ERR}), 3)
    assert [events.next_event(0) for _ in range(3)] == [(EVENT_CQ_ERR, 4), (EVENT_COMM_EST, 3), None]


def test_events_of_a_removed_queue_are_nobodys(driver, events):
    gone, stays = Queue(3), Queue(4)
    events.add(gone)
    events.add(stays)
    tell(driver, (EVENT_COMPLETION, 3), (EVENT_COMPLETION, 4))
    events.dispatch()
    events.remove(gone)
    assert events.next_completion("channel", 0) is stays
    assert events.next_completion("channel", 0) is None
    tell(driver, (EVENT_COMPLETION, 3))
    assert events.next_completion("channel", 0) is None


# descriptors


def test_in_virtual_time_no_descriptor_is_readable(driver, events):
    for ask in (lambda: events.descriptor("channel"), events.watch):
        with pytest.raises(DriverError) as caught:
            ask()
        assert caught.value.errno == errno.EOPNOTSUPP
    assert not events.waits


def test_a_descriptor_is_readable_while_a_channel_has_fired(described):
    events = described.events
    first, second = Queue(3), Queue(4)
    events.add(first)
    events.add(second)
    descriptor = events.descriptor("channel")
    assert events.descriptor("channel") is descriptor
    assert not readable(descriptor)
    tell(described, (EVENT_COMPLETION, 3), (EVENT_COMPLETION, 4))
    events.dispatch()
    assert readable(descriptor)
    events.next_completion("channel", 0)
    assert readable(descriptor)
    events.next_completion("channel", 0)
    assert not readable(descriptor)
    tell(described, (EVENT_COMPLETION, 3))
    events.dispatch()
    assert readable(descriptor)
    events.remove(first)
    assert not readable(descriptor)


def test_a_descriptor_that_is_made_late_tells_of_what_has_come_before(described):
    events = described.events
    events.add(Queue(3))
    tell(described, (EVENT_COMPLETION, 3), (EVENT_COMM_EST, 1))
    events.dispatch()
    assert readable(events.descriptor("channel"))
    assert readable(events.descriptor(ASYNCHRONOUS))
    assert not readable(events.descriptor("other"))


def test_the_descriptor_of_asynchronous_events_is_readable_until_the_last_was_taken(described):
    events = described.events
    descriptor = events.descriptor(ASYNCHRONOUS)
    tell(described, (EVENT_COMM_EST, 1), (EVENT_COMM_EST, 2))
    events.dispatch()
    assert events.asynchronous_waiting
    events.next_event(0)
    assert readable(descriptor)
    events.forget(frozenset({EVENT_COMM_EST}), 9)
    assert readable(descriptor), "nobody's event was dropped"
    events.forget(frozenset({EVENT_COMM_EST}), 2)
    assert not readable(descriptor)
    assert not events.asynchronous_waiting


def test_one_event_that_comes_again_is_one_message(described):
    """Who polls edge-triggered is told of each event once."""
    events = described.events
    descriptor = events.descriptor(ASYNCHRONOUS)
    tell(described, (EVENT_COMM_EST, 1), (EVENT_COMM_EST, 1))
    events.dispatch()
    descriptor._program.recv(1)
    assert not readable(descriptor)


def test_the_end_of_the_adapter_stays_readable(described):
    events = described.events
    events.add(Queue(3))
    descriptor, other = events.descriptor("channel"), events.descriptor(ASYNCHRONOUS)
    tell(described, (EVENT_COMPLETION, 3))
    events.dispatch()
    described.channel.living = False
    events._dispatch_on()  # the thread sees it
    assert readable(descriptor)
    assert readable(other)
    assert events.asynchronous_waiting
    assert events.next_completion("channel", 0) is not None
    assert readable(descriptor)
    assert events.next_event(0) == (EVENT_DEVICE_FATAL, 0)
    assert readable(other)


def test_closed_channels_have_no_descriptors(described):
    events = described.events
    descriptors = [events.descriptor(token) for token in ("channel", "other", ASYNCHRONOUS)]
    events.close_descriptor("channel")
    events.close_descriptor("channel")
    assert [each.fileno() < 0 for each in descriptors] == [True, False, False]
    assert events.made_descriptor("channel") is None
    events.clear()
    assert all(each.fileno() < 0 for each in descriptors)


def test_a_channel_of_connections_is_told_and_readable_until_it_says_that_it_is_idle(described):
    events, called = described.events, []
    connections = Connections(6, lambda: called.append(1))
    events.add_connections(connections)
    descriptor = events.descriptor(connections)
    assert readable(descriptor), "there are events in it already"
    events.connections_taken(connections)
    assert readable(descriptor)
    connections.idle = True
    events.connections_taken(connections)
    assert not readable(descriptor)
    events.close_descriptor(connections)
    descriptor = events.descriptor(connections)
    assert not readable(descriptor), "there are none now"
    tell(described, (EVENT_CM, 6), (EVENT_CM, 7))
    events.dispatch()
    assert readable(descriptor)
    assert called == [1]
    assert described.channel.noted == ["wake"]
    events.remove_connections(connections)
    assert descriptor.fileno() < 0
    tell(described, (EVENT_CM, 6))
    events.dispatch()
    assert called == [1]
    assert described.channel.noted == ["wake"], "nobody else is woken"


def test_a_descriptor_of_a_dead_device_is_refused(described):
    described.channel.living = False
    with pytest.raises(DriverError) as caught:
        described.events.descriptor("channel")
    assert caught.value.errno == errno.EIO


# who waits


class Interrupted(BaseException):
    """Ctrl-C, say."""


def interrupt():
    raise Interrupted


def test_a_wait_lasts_as_long_as_was_asked(driver, events):
    assert events.next_event(2.5) is None
    assert events.next_completion("channel", None) is None
    assert driver.channel.noted == ["wait 2.5", "wait None"]
    driver.channel.on_wait = [lambda: tell(driver, (EVENT_COMM_EST, 1))]
    assert events.next_event(None) == (EVENT_COMM_EST, 1)


def test_a_wait_for_a_completion_ends_when_its_channel_does(driver, events):
    over = []
    driver.channel.on_wait = [lambda: over.append(1)]
    assert events.next_completion("channel", None, lambda: bool(over)) is None


@pytest.mark.parametrize("others", [(), ((EVENT_COMM_EST, 2),)])
@pytest.mark.parametrize("with_descriptor", [False, True])
def test_an_event_that_an_interrupted_thread_has_found_is_the_next_ones(described, with_descriptor, others):
    """It is found by whoever drives the engine while this thread waits."""
    events = described.events
    descriptor = events.descriptor(ASYNCHRONOUS) if with_descriptor else None

    def wait(ready, timeout_s):
        tell(described, (EVENT_COMM_EST, 1), *others)
        assert ready()
        interrupt()

    described.channel.wait = wait
    with pytest.raises(Interrupted):
        events.next_event(None)
    if with_descriptor:
        assert readable(descriptor)
    told = [events.next_event(0) for _ in range(1 + len(others))]
    assert told == [(EVENT_COMM_EST, 1), *others]
    if with_descriptor:
        assert not readable(descriptor)


@pytest.mark.parametrize(("fires", "destroyed"), [(True, False), (False, False), (True, True)])
def test_a_completion_event_that_an_interrupted_thread_has_found_is_the_next_ones(
    described, fires, destroyed
):
    events = described.events
    first, second = Queue(3), Queue(4)
    events.add(first)
    events.add(second)
    descriptor = events.descriptor("channel")

    def wait(ready, timeout_s):
        tell(described, (EVENT_COMPLETION, 3))
        assert ready()
        assert not readable(descriptor)
        if fires:
            tell(described, (EVENT_COMPLETION, 4))
            events.dispatch()
        if destroyed:
            events.remove(first)
            events.remove(second)
        interrupt()

    described.channel.wait = wait
    with pytest.raises(Interrupted):
        events.next_completion("channel", None)
    assert readable(descriptor) is not destroyed
    described.channel.wait = lambda ready, timeout_s: None
    left = [events.next_completion("channel", 0) for _ in range(3)]
    expected = [] if destroyed else [first, second] if fires else [first]
    assert left == [*expected, None, None, None][:3]


# the end of the adapter


def test_the_death_of_an_adapter_is_an_event_once_behind_those_before_it(driver, events):
    tell(driver, (EVENT_COMM_EST, 1))
    driver.channel.living = False
    assert events.next_event(0) == (EVENT_COMM_EST, 1)
    assert events.next_event(0) == (EVENT_DEVICE_FATAL, 0)
    for _ in range(2):
        with pytest.raises(DriverError) as caught:
            events.next_event(0)
        assert caught.value.errno == errno.EIO


def test_what_came_while_the_adapter_ended_is_told(driver, events):
    def dies(ready, timeout_s):
        tell(driver, (EVENT_COMM_EST, 1))
        driver.channel.living = False  # nobody asks ready() again

    driver.channel.wait = dies
    assert events.next_event(None) == (EVENT_COMM_EST, 1)


def test_a_device_that_its_program_has_closed_has_not_died(driver, events):
    driver.session.dead = "the device is closed"
    driver.channel.living = False
    with pytest.raises(DriverError):
        events.next_event(0)
    assert not events.death_delivered


def test_a_wait_for_completions_says_that_the_adapter_is_gone(driver, events):
    driver.channel.on_wait = [lambda: setattr(driver.channel, "living", False)]
    with pytest.raises(DriverError, match="gone") as caught:
        events.next_completion("channel", None)
    assert caught.value.errno == errno.EIO


def test_who_waits_until_something_ends_hears_of_the_adapters_end(driver, events):
    over = []
    driver.channel.on_wait = [lambda: over.append(1)]
    events.wait_until(lambda: bool(over), 3)
    assert driver.channel.noted == ["wait 3"]
    driver.channel.on_wait = [lambda: setattr(driver.channel, "living", False)]
    with pytest.raises(DriverError, match="gone"):
        events.wait_until(lambda: False, None)
    events.wait_until(lambda: True, None)


def test_a_thread_that_cannot_be_had_is_an_error_and_is_tried_again(driver, monkeypatch):
    driver.channel.wakes = True
    started = []

    class Thread:
        def __init__(self, **words):
            assert words["daemon"]

        def start(self):
            started.append(1)
            if len(started) == 1:
                raise RuntimeError("can't start new thread")

    monkeypatch.setattr("threading.Thread", Thread)
    with pytest.raises(DriverError) as caught:
        driver.events.watch()
    assert caught.value.errno == errno.EAGAIN
    driver.events.watch()
    driver.events.watch()
    assert len(started) == 2


def test_who_watches_is_told_of_the_end_whenever_it_comes_and_not_once_it_has_left(described):
    events, told = described.events, []
    early, left, late = (lambda name=name: told.append(name) for name in ("early", "left", "late"))
    events.watch(early)
    events.watch(left)
    events.unwatch(left)
    described.channel.living = False
    events._dispatch_on()
    assert told == ["early"]
    events.watch(late)  # the thread has ended, and tells nobody any more
    assert told == ["early", "late"]


@pytest.mark.skipif(deferred_signals.__file__.endswith(".py"), reason="interpreted no signal is deferred")
def test_what_is_taken_is_told_whatever_a_signal_handler_raises(driver, events):
    """Else nobody hears of a completion, and who waits for it waits for ever."""
    told = []

    def late(number, frame):
        raise TimeoutError("late")

    before = signal.signal(signal.SIGUSR1, late)
    deferred_signals.look_for_handlers()
    events.add(Queue(3, on_event=lambda: signal.raise_signal(signal.SIGUSR1)))
    events.add(Queue(4, on_event=lambda: told.append(4)))
    tell(driver, (EVENT_COMPLETION, 3), (EVENT_COMPLETION, 4))
    try:
        with pytest.raises(TimeoutError, match="late"):
            events.dispatch()
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert told == [4]
