"""Sections of the main thread that handlers of signals do not interrupt; interpreted there are none."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from functools import partial
from pathlib import Path

import pytest

import softhca.machine.deferred_signals as deferred
from machine_speed import limit_s
from softhca.native import build
from softhca.runtime.turn_lock import TurnLock

COMPILED = not (deferred.__file__ or "").endswith(".py")
compiled = pytest.mark.skipif(not COMPILED, reason="interpreted there are no such sections")


class Late(TimeoutError):
    pass


@pytest.fixture
def seen():
    """The numbers that a handler of SIGUSR1 and SIGUSR2 has been called with."""
    numbers = []
    before = {each: signal.signal(each, lambda number, _: numbers.append(number)) for each in
              (signal.SIGUSR1, signal.SIGUSR2)}  # fmt: skip
    deferred.look_for_handlers()
    yield numbers
    for each, handler in before.items():
        signal.signal(each, handler)


def raise_late(*_):
    raise Late


def test_what_comes_within_a_section_is_handled_behind_it(seen):
    assert deferred.begin() == COMPILED
    signal.raise_signal(signal.SIGUSR2)
    signal.raise_signal(signal.SIGUSR1)
    within = list(seen)
    deferred.end()
    assert within == ([] if COMPILED else [signal.SIGUSR2, signal.SIGUSR1])
    assert sorted(seen) == [signal.SIGUSR1, signal.SIGUSR2]


@compiled
def test_a_section_ends_with_the_outermost(seen):
    deferred.begin()
    deferred.begin()
    signal.raise_signal(signal.SIGUSR1)
    deferred.end()
    assert not seen
    deferred.end()
    assert seen == [signal.SIGUSR1]
    deferred.end()  # one too many: nothing
    signal.raise_signal(signal.SIGUSR1)
    assert len(seen) == 2


@compiled
def test_a_section_that_pauses_lets_signals_through_and_goes_on(seen):
    assert not deferred.within()
    with deferred.section(), deferred.section():
        assert deferred.within()
        signal.raise_signal(signal.SIGUSR1)
        with deferred.waiting():
            assert not deferred.within()
            assert seen == [signal.SIGUSR1]
            signal.raise_signal(signal.SIGUSR2)
            assert len(seen) == 2
        assert deferred.within()
        signal.raise_signal(signal.SIGUSR1)
        assert len(seen) == 2
    assert len(seen) == 3
    assert not deferred.within()


@compiled
def test_a_handler_that_raises_where_a_section_pauses_ends_it(seen):
    signal.signal(signal.SIGUSR1, raise_late)
    deferred.look_for_handlers()
    reached = []

    def section():
        with deferred.section():
            signal.raise_signal(signal.SIGUSR1)
            try:
                with deferred.waiting():
                    reached.append("waiting")
            finally:
                reached.append(deferred.within())

    with pytest.raises(Late):
        section()
    assert reached == [False]
    assert deferred.begin()
    deferred.end()


@compiled
def test_what_a_handler_raises_during_a_pause_comes_out_of_a_section_that_goes_on(seen):
    signal.signal(signal.SIGUSR1, raise_late)
    deferred.look_for_handlers()
    reached = []

    def section():
        with deferred.section():
            try:
                with deferred.waiting():
                    signal.raise_signal(signal.SIGUSR1)
                    reached.append("behind")
            finally:
                reached.append(deferred.within())

    with pytest.raises(Late):
        section()
    assert reached == [True]


def test_a_pause_outside_of_a_section_does_nothing(seen):
    assert deferred.pause() == 0
    deferred.go_on(0)
    with deferred.waiting():
        signal.raise_signal(signal.SIGUSR1)
    assert seen == [signal.SIGUSR1]
    assert not deferred.within()


@compiled
def test_a_signal_that_another_thread_gets_is_deferred_as_well(seen):
    deferred.begin()
    thread = threading.Thread(target=lambda: signal.pthread_kill(threading.get_ident(), signal.SIGUSR1))
    thread.start()
    thread.join()
    assert not seen
    deferred.end()
    assert seen == [signal.SIGUSR1]


def test_other_threads_have_no_sections(seen):
    found = []
    thread = threading.Thread(target=lambda: found.append(deferred.begin()))
    thread.start()
    thread.join()
    assert found == [False]
    signal.raise_signal(signal.SIGUSR1)
    assert seen == [signal.SIGUSR1]


@compiled
def test_what_a_handler_raises_comes_out_behind_the_section(seen):
    signal.signal(signal.SIGUSR1, raise_late)
    deferred.look_for_handlers()
    reached = []

    def section():
        deferred.begin()
        signal.raise_signal(signal.SIGUSR1)
        reached.append("within")
        deferred.end()
        reached.append("behind")

    with pytest.raises(Late):
        section()
    assert reached == ["within"]
    assert deferred.begin()
    deferred.end()


@compiled
def test_a_handler_is_found_though_it_was_set_again(seen):
    assert deferred.look_for_handlers() == 0
    signal.signal(signal.SIGUSR1, lambda number, _: seen.append(-number))
    assert deferred.look_for_handlers() == 1
    deferred.begin()
    signal.raise_signal(signal.SIGUSR1)
    assert not seen
    deferred.end()
    assert seen == [-signal.SIGUSR1]


@compiled
def test_signals_that_python_does_not_handle_stay_as_they_are(seen):
    for disposition in (signal.SIG_DFL, signal.SIG_IGN):
        signal.signal(signal.SIGUSR2, disposition)
        deferred.look_for_handlers()
        assert signal.getsignal(signal.SIGUSR2) is disposition
    deferred.begin()
    signal.raise_signal(signal.SIGUSR2)  # ignored
    deferred.end()
    assert not seen


@compiled
def test_a_descriptor_for_wake_ups_is_told_behind_the_section(seen):
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    before = signal.set_wakeup_fd(writer)
    try:
        deferred.begin()
        signal.raise_signal(signal.SIGUSR1)
        os.set_blocking(reader, False)
        with pytest.raises(BlockingIOError):
            os.read(reader, 1)
        deferred.end()
        assert os.read(reader, 8) == bytes([signal.SIGUSR1])
    finally:
        signal.set_wakeup_fd(before)
        os.close(reader)
        os.close(writer)


@compiled
def test_who_has_the_turn_is_not_interrupted(seen):
    signal.signal(signal.SIGUSR1, raise_late)
    deferred.look_for_handlers()
    lock = TurnLock()
    reached = []

    def turn():
        with lock:
            signal.raise_signal(signal.SIGUSR1)
            lock.acquire()
            lock.release()
            reached.append(lock.mine())

    with pytest.raises(Late):
        turn()
    assert reached == [True]
    assert not lock.mine()


@compiled
def test_what_came_before_is_handled_before_the_turn_is_taken(seen):
    """The handler takes the lock itself, and gives it back."""
    lock, found = TurnLock(), []

    def handler(number, frame):
        found.append(lock.mine())
        with lock:
            found.append(lock.mine())

    signal.signal(signal.SIGUSR1, handler)
    deferred.look_for_handlers()
    signal.raise_signal(signal.SIGUSR1)
    with lock:
        assert found == [False, True]
    assert not lock.mine()


@compiled
def test_where_a_handler_raises_for_who_has_waited_for_the_turn_another_thread_gets_it(seen):
    """The signal comes in another thread, which gives the turn back before anybody looks."""
    signal.signal(signal.SIGUSR1, raise_late)
    deferred.look_for_handlers()
    lock, held, had = TurnLock(), threading.Event(), threading.Event()

    def wait_for_it():
        with lock:
            had.set()

    def hold():
        lock.acquire()
        held.set()
        time.sleep(0.1)
        second.start()
        time.sleep(0.1)
        steps = [partial(signal.pthread_kill, threading.get_ident(), signal.SIGUSR1), lock.release]
        deque(map(partial.__call__, map(partial, steps)), maxlen=0)

    first, second = (threading.Thread(target=each, daemon=True) for each in (hold, wait_for_it))
    first.start()
    held.wait()
    with pytest.raises(Late):
        lock.acquire()
    assert had.wait(limit_s(10))
    assert not lock.mine()


CHILD = """
import os, signal, threading
import softhca.machine.deferred_signals as deferred
seen = []
signal.signal(signal.SIGUSR1, lambda number, _: seen.append(number))
def fork():
    child = os.fork()
    if not child:
        found = [deferred.begin()]
        deferred.look_for_handlers()
        signal.raise_signal(signal.SIGUSR1)
        found.append(list(seen))
        deferred.end()
        os._exit(found != [True, []] or seen != [signal.SIGUSR1])
    ended.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
ended = []
deferred.begin()
fork()
deferred.end()
thread = threading.Thread(target=fork)
thread.start()
thread.join()
assert deferred.begin()
deferred.end()
print(ended)
"""


@compiled
def test_the_thread_that_forks_is_the_child_s_main_thread():
    """Also where the parent is within a section: it is the child's, too, which ends one more."""
    source = CHILD.replace("found = [deferred.begin()]", "deferred.end(); found = [deferred.begin()]")
    assert in_a_process(source) == "[0, 0]\n"


def in_a_process(source):
    done = subprocess.run(
        [sys.executable, "-c", source], capture_output=True, text=True, timeout=60,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )  # fmt: skip
    return done.stdout + done.stderr


@compiled
def test_where_the_first_handler_raises_the_others_still_come_before_the_section(seen):
    signal.signal(signal.SIGUSR1, raise_late)
    deferred.look_for_handlers()
    within = []

    def turn():
        deferred.begin()
        within.append(list(seen))
        deferred.end()

    deferred.begin()
    signal.raise_signal(signal.SIGUSR1)
    signal.raise_signal(signal.SIGUSR2)
    steps = [partial(deferred.end), partial(deferred.begin)]
    with pytest.raises(Late):  # Python looks for signals at none of these calls
        deque(map(partial.__call__, steps), maxlen=0)
    turn()
    assert within == [[signal.SIGUSR2]]


CHILD_OF_A_SECTION = """
import os, signal, threading
import softhca.machine.deferred_signals as deferred
seen = []
signal.signal(signal.SIGUSR1, lambda number, _: seen.append(number))
def fork():
    child = os.fork()
    if not child:
        deferred.begin()
        deferred.end()
        os._exit(len(seen))
    ended.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
ended = []
deferred.begin()
signal.raise_signal(signal.SIGUSR1)
thread = threading.Thread(target=fork)
thread.start()
thread.join()
deferred.end()
print(ended, len(seen))
"""


@compiled
def test_what_is_deferred_at_a_fork_is_the_parent_s():
    assert in_a_process(CHILD_OF_A_SECTION) == "[0] 1\n"


LIBRARY = """
import ctypes, signal
libc, seen = ctypes.CDLL(None), []
handler = ctypes.CFUNCTYPE(None, ctypes.c_int)(seen.append)
libc.signal.argtypes = ctypes.c_int, type(handler)
libc.signal(signal.SIGRTMAX, handler)
import softhca.machine.deferred_signals as deferred
deferred.begin()
deferred.end()
signal.signal(signal.SIGUSR1, lambda number, _: None)
found = deferred.look_for_handlers()
signal.raise_signal(signal.SIGRTMAX)
print(seen == [signal.SIGRTMAX], found)
"""


def test_a_handler_of_a_library_s_own_stays_at_whatever_signal():
    """The interpreter's handler is found by a signal that nobody handles."""
    assert in_a_process(LIBRARY) == f"True {int(COMPILED)}\n"


@pytest.mark.skipif(build.compiler() is None, reason="there is no C compiler")
def test_signals_between_two_steps_of_a_beginning(tmp_path):
    """The handler itself, in C: what another thread gets just before, and what comes in between."""
    declarations = Path(deferred.__file__).with_name("deferred_signals.pxd").read_text()
    (tmp_path / "section.h").write_text(declarations.split('"""')[1])
    program = tmp_path / "steps"
    source = Path(__file__).with_name("deferred_signals_steps.c")
    flags = ("-O1", "-pthread", "-Wall", "-Wextra", "-Werror", f"-I{tmp_path}")
    subprocess.run([*build.compiler(), *flags, str(source), "-o", str(program)], check=True)
    done = subprocess.run([str(program)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


INTERRUPTED = """
import errno, os, signal
from softhca.machine import deferred_signals
from softhca.runtime import fork
from softhca.verbs.cq import CQ
from softhca.verbs.device import Context
from softhca.verbs.pyverbs_error import PyverbsRDMAError
class Late(TimeoutError):
    pass
def late(*_):
    raise Late
class Interrupts:
    fork_rank = 0
    def before_fork(self):
        signal.raise_signal(signal.SIGUSR1)
    def after_fork_in_parent(self):
        pass
    after_fork_in_child = after_fork_in_parent
signal.signal(signal.SIGUSR1, late)
deferred_signals.look_for_handlers()
queue, things = CQ(Context(), 16), Interrupts()
fork.watch(things)
parent = os.getpid()
try:
    os.fork()
except Late:
    assert os.getpid() == parent
    print("late", flush=True)
if os.getpid() != parent:
    try:
        queue.poll(1)
    except PyverbsRDMAError as error:
        os._exit(error.error_code)
    os._exit(0)
print(os.waitstatus_to_exitcode(os.wait()[1]) == errno.EIO, queue.poll(1)[0])
"""


@compiled
def test_a_handler_that_raises_while_its_process_forks_is_heard_behind_it(loopback_address):
    """Python drops what comes out of functions that it calls before a fork."""
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED], capture_output=True, text=True, timeout=limit_s(60),
        env={
            **os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
            "SOFTHCA_DEVICES": f"forks=udp:{loopback_address()}", "SOFTHCA_FAULTS": "",
        },
    )  # fmt: skip
    assert (done.stdout, done.stderr) == ("late\nTrue 0\n", "")


# finalizers


class Dropped:
    """``done`` names what its finalizers did; within ``during`` they are called."""

    def __init__(self, done, name, during=lambda: None):
        self.done, self.name, self.during = done, name, during

    def drop(self):
        self.during()
        self.done.append((self.name, deferred.within()))

    __del__ = deferred.finalizer(drop)


def test_what_comes_within_a_finalizer_is_handled_behind_it(seen):
    done = []

    def during():
        signal.raise_signal(signal.SIGUSR1)
        done.append(list(seen))

    Dropped(done, "one", during)
    id(seen)  # behind a call Python looks for signals
    assert done == [[] if COMPILED else [signal.SIGUSR1], ("one", COMPILED)]
    assert seen == [signal.SIGUSR1]


@compiled
def test_within_a_section_or_in_another_thread_a_finalizer_begins_none(seen):
    done = []
    deferred.begin()
    Dropped(done, "within")
    still = deferred.within()
    deferred.end()
    thread = threading.Thread(target=lambda: Dropped(done, "elsewhere"))
    thread.start()
    thread.join()
    assert still
    assert done == [("within", True), ("elsewhere", False)]


@compiled
def test_what_a_handler_has_to_raise_before_a_finalizer_is_told_and_the_thing_is_closed(monkeypatch):
    """As when the signal comes in one finalizer, and another follows before Python looks for signals."""
    told, done = [], []
    monkeypatch.setattr(sys, "unraisablehook", lambda unraisable: told.append(unraisable.exc_type))
    before = signal.signal(signal.SIGUSR1, raise_late)
    deferred.look_for_handlers()
    try:
        one, other = Dropped(done, "one", lambda: signal.raise_signal(signal.SIGUSR1)), Dropped(done, "other")
        one.next = other
        del other, one  # which goes first
        id(done)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert done == [("one", True), ("other", True)]
    assert told == [Late]
    assert not deferred.within()
