"""An adapter process that lives and does not answer: a close ends all the same, in bounded time."""

import errno
import os
import signal
import threading
import time

import pytest
from runtime_programs import Program
from runtime_served import BOUND_S, until

from softhca.driver import registry, session
from softhca.driver.errors import DriverError
from softhca.machine.primitives import address_of
from softhca.runtime import adapter_process, devices, process
from softhca.runtime.adapter_process import close_deferred
from softhca.verbs.cq import CQ
from softhca.verbs.device import Context
from softhca.verbs.mr import MR
from softhca.verbs.pd import PD

EVERYTHING = 1 | 2 | 4


def open_things():
    """What this process has open, and its threads."""
    return set(os.listdir("/proc/self/fd")), threading.active_count()


@pytest.fixture
def soon(monkeypatch):
    """Little patience, so that a test takes little time; what it shows does not depend on how little."""
    monkeypatch.setattr(session, "CLOSING_LIMIT_S", 1.0)
    monkeypatch.setattr(process, "DETACH_LIMIT_S", 0.2)
    monkeypatch.setattr(adapter_process, "ANSWER_LIMIT_S", 1.0)


@pytest.fixture
def own(loopback_address, soon):
    """A device whose adapter process is started here."""
    before = open_things()
    devices.add(f"own=udp:{loopback_address()}", "process")
    yield devices.find("own")
    devices.remove("own")
    assert open_things() == before


@pytest.fixture
def foreign(loopback_address, soon):
    """A device whose adapter process somebody else has started: its program, stopped or not."""
    path = f"@softhca-foreign-{os.getpid()}"
    program = Program("../../src/softhca/runtime/process_main.py", f"s=udp:{loopback_address()}",
                      "--listen", path, "--stay")
    assert program.child.stdout.readline() == "ready\n"
    before = open_things()
    devices.add(f"foreign=unix:{path}")
    yield program
    devices.remove("foreign")
    os.kill(program.pid, signal.SIGCONT)
    until(lambda: close_deferred() or open_things() == before)
    assert program.end() == 0


def stop(pid):
    """Stop a process, and wait until it is."""
    os.kill(pid, signal.SIGSTOP)
    until(lambda: state_of(pid) == "T")


def state_of(pid):
    with open(f"/proc/{pid}/stat") as stream:
        return stream.read().rpartition(")")[2].split()[0]


def returns(call):
    """Whether ``call`` returns within a bound."""
    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    thread.join(BOUND_S)
    return not thread.is_alive()


def in_use(memory):
    """Whether something holds a bytearray, so that its memory stays where it is."""
    try:
        memory.append(0)
    except BufferError:
        return True
    memory.pop()
    return False


def things(name):
    """A context with one of each kind that is destroyed by a command, and foreign memory."""
    context = Context(name=name)
    memory = bytearray(1 << 16)
    pd = PD(context)
    queue = CQ(context, 64, None, None, 0)
    region = MR(pd, len(memory), EVERYTHING, address=address_of(memory))
    return context, memory, (pd, queue, region)


def test_a_context_on_a_stopped_adapter_is_closed_and_the_adapter_of_this_process_killed(own):
    context, _, kept = things("own")
    pid = own.process.pid
    stop(pid)
    assert returns(context.close)
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    assert own.process.pid == 0
    del kept
    with Context(name="own") as again:
        assert again.query_device()


def test_of_two_contexts_the_last_kills_it(own):
    first, second = Context(name="own"), Context(name="own")
    pid = own.process.pid
    stop(pid)
    assert returns(first.close)
    assert state_of(pid) == "T"
    assert returns(second.close)
    assert own.process.pid == 0


def test_what_a_stopped_adapter_may_still_write_to_is_held_until_it_lets_go(foreign):
    driver = registry.open_device("foreign")
    memory = bytearray(1 << 16)
    driver.reg_mr(driver.alloc_pd(), address_of(memory), len(memory), EVERYTHING, None, memory)
    stop(foreign.pid)
    driver.closing()
    assert returns(driver.close)
    del driver
    assert in_use(memory)
    os.kill(foreign.pid, signal.SIGCONT)
    until(lambda: close_deferred() or not in_use(memory))


def test_a_thread_that_waits_for_an_event_is_told_when_the_device_is_closed(foreign):
    driver = registry.open_device("foreign")
    told = []

    def wait():
        try:
            driver.next_event()
        except DriverError as error:
            told.append(error.errno)

    thread = threading.Thread(target=wait)
    thread.start()
    channel = devices.find("foreign")._channels[0]
    until(channel._leader_lock.locked)
    stop(foreign.pid)
    assert returns(driver.close)
    thread.join(BOUND_S)
    # Either that the adapter is gone, as its last event, or that nothing can be asked.
    assert not thread.is_alive()
    assert told in ([], [errno.EIO])


def free(lock):
    """Whether nobody has a lock."""
    if lock.acquire(blocking=False):
        lock.release()
        return True
    return False


def test_a_close_waits_no_longer_than_that_for_a_command_of_another_thread(foreign):
    context = Context(name="foreign")
    stop(foreign.pid)
    refused = []

    def ask():
        try:
            context.driver.alloc_pd()
        except DriverError as error:
            refused.append(error.errno)

    thread = threading.Thread(target=ask)
    thread.start()
    until(lambda: not free(context.driver.session.lock))
    begun_s = time.monotonic()
    assert returns(context.close)
    thread.join(BOUND_S)
    assert refused == [errno.EIO]
    assert time.monotonic() - begun_s < session.REPLY_LIMIT_S


def test_a_stopped_adapter_is_not_waited_for_without_end_when_a_device_is_opened(foreign):
    stop(foreign.pid)
    with pytest.raises(DriverError, match="does not answer") as caught:
        registry.open_device("foreign")
    assert caught.value.errno == errno.ETIMEDOUT


def test_a_descriptor_that_is_not_taken_is_given_up_and_so_is_the_adapter(foreign):
    driver = registry.open_device("foreign")
    channel = devices.find("foreign")._channels[0]
    stop(foreign.pid)
    memfd = os.memfd_create("any", os.MFD_ALLOW_SEALING)
    for number in (errno.ETIMEDOUT, errno.EIO):  # a late answer would be taken for another one's
        with pytest.raises(OSError, match="does not answer") as caught:
            channel.pass_descriptor(memfd)
        assert caught.value.errno == number
    os.close(memfd)
    assert returns(driver.close)


def test_the_adapter_goes_on_for_a_child_when_its_parent_leaves(own):
    driver = registry.open_device("own")
    pid = own.process.pid
    child = Program("application_program.py", f"app=unix:{own.process.path}", "process")
    child.hear()
    driver.close()
    assert own.process.pid == pid
    driver = registry.open_device("own")
    assert own.process.pid == pid
    assert own.resources()["QP"] == 1
    assert child.end() == 0
    driver.close()
    assert own.process.pid == 0
