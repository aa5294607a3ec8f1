"""What wakes a thread that polls descriptors: one of this process, and one that another has passed."""

import errno
import os
import select
from types import SimpleNamespace

import pytest

from softhca.runtime import wake_event as wake_event_module
from softhca.runtime.eventfds import check_eventfd
from softhca.runtime.wake_event import WakeEvent


def readable(fd):
    return bool(select.select([fd], [], [], 0)[0])


@pytest.fixture
def wake_event():
    made = WakeEvent()
    yield made
    made.close()


def test_it_stays_readable_from_set_until_drained(wake_event):
    fd = wake_event.fileno()
    assert not readable(fd)
    for _ in range(3):
        wake_event.set()
    assert readable(fd)
    wake_event.drain()
    assert not readable(fd)
    wake_event.drain()  # in vain, and without waiting
    wake_event.set()
    assert readable(fd)


def test_a_closed_one_has_no_descriptor_and_touches_none_that_took_its_number(wake_event):
    fd = wake_event.fileno()
    wake_event.close()
    assert wake_event.fileno() == -1
    with pytest.raises(OSError, match=r".+"):
        os.fstat(fd)
    other = os.eventfd(0, os.EFD_NONBLOCK)  # the lowest free number, and so mostly that one
    wake_event.set()
    wake_event.drain()
    wake_event.close()
    assert not readable(other)
    os.close(other)


def test_descriptor_0_is_one_like_any_other(monkeypatch):
    done = []
    system = SimpleNamespace(
        EFD_CLOEXEC=0, EFD_NONBLOCK=0, eventfd=lambda *_: 0,
        eventfd_write=lambda fd, _: done.append(("write", fd)),
        eventfd_read=lambda fd: done.append(("read", fd)),
        close=lambda fd: done.append(("close", fd)),
    )  # fmt: skip
    monkeypatch.setattr(wake_event_module, "os", system)
    made = WakeEvent()
    made.set()
    made.drain()
    made.close()
    made.set()
    assert done == [("write", 0), ("read", 0), ("close", 0)]


def test_what_another_process_passes_is_an_eventfd_that_never_blocks():
    fd = os.eventfd(0)
    check_eventfd(fd)
    assert not os.get_blocking(fd)
    assert not readable(fd)
    os.close(fd)
    reader, writer = os.pipe()
    for wrong in (reader, writer):
        with pytest.raises(OSError, match="eventfd") as caught:
            check_eventfd(wrong)
        assert caught.value.errno == errno.EPROTO
        assert os.get_blocking(wrong)
        os.close(wrong)
