"""A device that cannot be opened, whatever is missing: a clear refusal, nothing left behind, and next time it
works.
"""

import errno
import gc
import mmap
import os
import resource
import threading
from collections import Counter

import pytest

from softhca.driver import registry
from softhca.driver.errors import DriverError
from softhca.runtime import devices
from softhca.runtime.process import ProcessChannel
from softhca.runtime.progress_thread import Progress
from softhca.verbs.device import Context
from softhca.verbs.pyverbs_error import PyverbsRDMAError

MOST_STEPS = 60


def descriptors():
    """What each descriptor of this process is."""
    gc.collect()
    found = {}
    for name in os.listdir("/proc/self/fd"):
        try:
            found[int(name)] = os.readlink(f"/proc/self/fd/{name}")
        except FileNotFoundError:
            continue  # the listing's own
    return found


def mappings():
    """Mapped files of this process, each with how often."""
    with open("/proc/self/maps") as lines:
        names = [line.split(maxsplit=5)[5].strip() for line in lines if "softhca" in line or "/memfd" in line]
    return sorted(name for name in names if name.startswith("/memfd"))


@pytest.fixture(params=["embedded", "same_host", "process"])
def device(request, loopback_address, monkeypatch):
    """A device that is not open; what a failed opening must leave as it was."""
    monkeypatch.setenv("SOFTHCA_FAULTS", "")
    option = {"embedded": "?same_host=0", "same_host": "?same_host=1", "process": ""}[request.param]
    mode = "process" if request.param == "process" else "embedded"
    registry.names()
    devices.add(f"failing=udp:{loopback_address()}{option}", mode)
    registry.open_device("failing").close()  # what is loaded and made once is there now
    yield devices.find("failing")
    devices.remove("failing")


def what_there_is():
    return descriptors(), mappings(), threading.active_count()


def is_left(before):
    """What is there that was not before.  A thread of what was closed then may have gone only meanwhile."""
    (held, mapped, threads), now = before, what_there_is()
    return (
        dict(now[0].items() - held.items()),
        Counter(now[1]) - Counter(mapped),
        max(now[2] - threads, 0),
    )


NOTHING = ({}, Counter(), 0)


def check_open():
    """It can be opened as ever."""
    driver = registry.open_device("failing")
    assert driver.alloc_pd() > 0
    driver.close()
    driver = None  # and what it has mapped goes


def test_without_enough_descriptors(device):
    before = what_there_is()
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    refused = []
    for spare in range(MOST_STEPS):
        free = [os.dup(0) for _ in range(spare + 1)]
        for descriptor in free:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, (free[-1], limits[1]))
        try:
            driver = registry.open_device("failing")
        except DriverError as error:
            refused.append(error.errno)
        else:
            driver.close()
            driver = None  # and what it has mapped goes
            break
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        assert is_left(before) == NOTHING, spare
    else:
        pytest.fail("it was never opened")
    assert len(refused) > 3
    # An adapter process that has none has no words for it: it has ended.
    assert set(refused) <= {errno.EMFILE, errno.ECONNRESET}
    check_open()
    assert is_left(before) == NOTHING


class Failing:
    """A function that fails at its call number ``number``, as the system would say it; else the plain one."""

    def __init__(self, plain, number, error):
        self.plain = plain
        self.left = number
        self.error = error
        self.failed = False

    def __call__(self, *arguments, **options):
        self.left -= 1
        if self.left < 0 and not self.failed:
            self.failed = True
            raise type(self.error)(*self.error.args)  # one of its own, which keeps no call's variables
        return self.plain(*arguments, **options)


STEPS = {
    "mapping memory": (mmap, "mmap", OSError(errno.ENOMEM, "Cannot allocate memory")),
    "starting a thread": (threading.Thread, "start", RuntimeError("can't start new thread")),
    "making an eventfd": (os, "eventfd", OSError(errno.EMFILE, "Too many open files")),
    "watching for others": (Progress, "watch", OSError(errno.ENOSPC, "No space left on device")),
    "making the driver": (devices, "DeviceDriver", DriverError(errno.ENOMEM, "Cannot allocate memory")),
    "attaching to a process": (ProcessChannel, "_attach", OSError(errno.EPERM, "Operation not permitted")),
}


@pytest.mark.parametrize("step", STEPS)
def test_when_a_step_fails(device, monkeypatch, step):
    owner, name, error = STEPS[step]
    before = what_there_is()
    refused = []
    for number in range(MOST_STEPS):
        plain = getattr(owner, name)
        failing = Failing(plain, number, error)
        with monkeypatch.context() as patch:
            patch.setattr(owner, name, lambda *words, call=failing, **options: call(*words, **options))
            try:
                driver = registry.open_device("failing")
            except DriverError as refusal:
                refused.append(refusal.errno)
            else:
                driver.close()
                driver = None  # and what it has mapped goes
        assert is_left(before) == NOTHING, number
        check_open()
        if not failing.failed:
            break
    else:
        pytest.fail("it never came to an end")
    assert is_left(before) == NOTHING
    assert set(refused) <= {getattr(error, "errno", errno.EAGAIN)}


@pytest.mark.parametrize("device", ["embedded", "same_host"], indirect=True)
def test_a_thread_that_is_refused_is_an_error_of_the_verbs(device, monkeypatch):
    def refused(thread):
        raise RuntimeError("can't start new thread")

    for _ in range(3):
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", refused)
            with pytest.raises(PyverbsRDMAError, match="thread") as caught:
                Context(name="failing")
            assert caught.value.error_code == errno.EAGAIN
    check_open()
