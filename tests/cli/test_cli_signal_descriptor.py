"""Waiting for a descriptor and for signals at once."""

import os
import select
import signal
import threading
from pathlib import Path

import pytest

from softhca.cli.signal_descriptor import await_readable, read_out, signal_descriptor


class HandledError(Exception):
    """What a handler raises."""


class Handler:
    """What SIGUSR1 does here: it is noted, and ``raises`` where it is to."""

    def __init__(self):
        self.calls = []
        self.raises = False
        self.called = threading.Event()

    def __call__(self, number, frame):
        self.calls.append(number)
        self.called.set()
        if self.raises:
            raise HandledError


@pytest.fixture
def handler():
    made = Handler()
    before = signal.signal(signal.SIGUSR1, made)
    yield made
    signal.signal(signal.SIGUSR1, before)


@pytest.fixture
def pipe():
    ends = os.pipe()
    yield ends
    for each in ends:
        os.close(each)


def readable(descriptor):
    return bool(select.select([descriptor], [], [], 0)[0])


def signalled_elsewhere(then=lambda: None):
    """A thread that gives itself a signal when the main one sleeps, which no call of the main one sees."""
    stat = Path(f"/proc/self/task/{threading.main_thread().native_id}/stat")

    def act():
        while stat.read_text().rpartition(")")[2].split()[0] != "S":
            pass
        signal.pthread_kill(threading.get_ident(), signal.SIGUSR1)
        then()

    thread = threading.Thread(target=act)
    thread.start()
    return thread


def test_a_signal_makes_the_descriptor_readable_until_it_is_read_out(handler):
    with signal_descriptor() as signals:
        read_out(signals)
        assert not readable(signals)
        signal.raise_signal(signal.SIGUSR1)
        assert (handler.calls, readable(signals)) == ([signal.SIGUSR1], True)
        read_out(signals)
        assert not readable(signals)


def test_what_was_told_before_is_told_again_behind_it(handler):
    with signal_descriptor() as outer:
        with signal_descriptor() as inner:
            signal.raise_signal(signal.SIGUSR1)
            assert (readable(outer), readable(inner)) == (False, True)
        signal.raise_signal(signal.SIGUSR1)
        assert readable(outer)


def test_a_signal_that_another_thread_gets_ends_a_wait_by_what_its_handler_raises(handler, pipe):
    handler.raises = True
    with signal_descriptor() as signals:
        thread = signalled_elsewhere()
        with pytest.raises(HandledError):
            await_readable(pipe[0], signals)
    thread.join()


def test_a_signal_whose_handler_returns_ends_no_wait(handler, pipe):
    with signal_descriptor() as signals:
        thread = signalled_elsewhere(lambda: handler.called.wait() and os.write(pipe[1], b"now"))
        await_readable(pipe[0], signals)
        assert (handler.calls, readable(pipe[0])) == ([signal.SIGUSR1], True)
    thread.join()


def test_many_signals_fill_nothing_that_waits(handler):
    with signal_descriptor():
        for _ in range(70_000):
            signal.raise_signal(signal.SIGUSR1)
    assert len(handler.calls) == 70_000
