"""What wakes a thread that polls descriptors: one of this process, and one that another has passed."""

import errno
import os
import select
from types import SimpleNamespace

import pytest

from softhca.runtime import recall as recall_module
from softhca.runtime.eventfds import check_eventfd
from softhca.runtime.recall import Recall


def readable(fd):
    return bool(select.select([fd], [], [], 0)[0])


@pytest.fixture
def recall():
    made = Recall()
    yield made
    made.close()


def test_who_is_rung_once_or_often_is_woken_until_it_drains(recall):
    fd = recall.fileno()
    assert not readable(fd)
    for _ in range(3):
        recall.ring()
    assert readable(fd)
    recall.drain()
    assert not readable(fd)
    recall.drain()  # in vain, and without waiting
    recall.ring()
    assert readable(fd)


def test_a_closed_one_has_no_descriptor_and_touches_none_that_took_its_number(recall):
    fd = recall.fileno()
    recall.close()
    assert recall.fileno() == -1
    with pytest.raises(OSError, match=r".+"):
        os.fstat(fd)
    other = os.eventfd(0, os.EFD_NONBLOCK)  # the lowest free number, and so mostly that one
    recall.ring()
    recall.drain()
    recall.close()
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
    monkeypatch.setattr(recall_module, "os", system)
    made = Recall()
    made.ring()
    made.drain()
    made.close()
    made.ring()
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
