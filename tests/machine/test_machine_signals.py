"""Which exceptions came out of a signal handler."""

import functools
import gc
import signal
import sys
import weakref

import pytest

from softhca.machine.signals import raised_by_handler

SIGNAL = signal.SIGUSR1


class Refuses:
    """A handler that is no function, and asks others to raise."""

    def __call__(self, number, frame):
        int("no number")


def raising(number, frame):
    raise TimeoutError("too late")


def raising_later(*arguments, kind):
    raising(0, None)


@pytest.fixture
def handled():
    """Sets the handler of a signal."""
    before = signal.getsignal(SIGNAL)
    yield functools.partial(signal.signal, SIGNAL)
    signal.signal(SIGNAL, before)


def interrupted():
    """Called when a signal comes."""
    signal.raise_signal(SIGNAL)
    for _ in range(100):
        pass


def caught(call):
    """What it raises."""
    try:
        call()
    except Exception as error:
        return raised_by_handler(error)
    raise AssertionError


@pytest.mark.parametrize(
    "handler",
    [raising, Refuses(), lambda *arguments: raising(0, None), functools.partial(raising_later, kind=1)],
    ids=["function", "object", "arguments", "partial"],
)
def test_what_a_handler_raises_is_its_own_whoever_it_called(handled, handler):
    handled(handler)
    assert caught(interrupted)


@pytest.mark.parametrize("error", [OSError, TimeoutError, ValueError])
def test_what_a_function_raises_is_not(handled, error):
    def fails(number, frame):
        """Not as a handler: by itself."""
        raise error

    assert not caught(lambda: fails(SIGNAL, None))
    assert not caught(lambda: int("no number"))


def test_what_a_function_raises_that_has_looked_for_its_caller_is_not():
    def fails():
        caller = sys._getframe(1)
        int("no number", len(caller.f_code.co_name))

    assert not caught(fails)


def test_what_a_call_of_a_handler_raises_is_not_seen_as_its_own_within_the_handler(handled):
    seen = []
    handled(lambda number, frame: seen.append(caught(lambda: int("no number"))))
    interrupted()
    assert seen == [False]


class Held:
    """What a function that fails has."""


def test_nothing_of_what_has_failed_stays_until_garbage_is_collected():
    """Descriptors are closed by whoever drops them last: a refusal must keep none."""
    held = Held()
    gone = weakref.ref(held)

    def fails(value, other=0):
        mine = value
        int("no number", 10 if mine is value else other)

    gc.disable()
    try:
        assert not caught(functools.partial(fails, held))
        del held
        assert gone() is None
    finally:
        gc.enable()
