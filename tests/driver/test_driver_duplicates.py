"""Descriptors that another thread closes while they are about to be passed."""

import errno
import os
from types import SimpleNamespace

import pytest

from softhca.driver import duplicates, memory, paging
from softhca.driver.device_memory import DeviceMemory
from softhca.driver.errors import DriverError
from softhca.memory.regions import LOCAL_WRITE

PAGE = 4096
DUP = os.dup


def made_of(kind):
    """Device memory, pageable memory, or a second owner's of that; and what closes it."""
    if kind == "device":
        fd = os.memfd_create("test")
        os.ftruncate(fd, PAGE)
        found = DeviceMemory(fd, PAGE)
        return found, found.free
    owned = paging.PageableMemory(PAGE, LOCAL_WRITE, pager=False)
    found = owned if kind == "pageable" else paging.AttachedMemory(owned.fd)
    return found, found.close


@pytest.fixture(params=["device", "pageable", "attached"])
def kind(request):
    return request.param


def test_a_duplicate_is_the_memory_s(kind):
    owner, close = made_of(kind)
    copy = duplicates.duplicate(owner)
    assert copy != owner.fd
    assert os.path.sameopenfile(copy, owner.fd)
    close()
    assert os.fstat(copy).st_size >= PAGE
    os.close(copy)


@pytest.mark.parametrize("moment", ["before", "after"])
def test_who_comes_late_gets_no_file_that_has_taken_its_number(kind, moment, monkeypatch):
    owner, close = made_of(kind)
    number, others = owner.fd, []

    def dup(fd):
        if moment == "before":
            close()
            others.append(os.open(os.devnull, os.O_RDONLY))
            if others[0] != number:
                os.dup2(others[0], number)
                others.append(number)
        copy = DUP(fd)
        others.append(copy)
        if moment == "after":
            close()
        return copy

    monkeypatch.setattr(duplicates.os, "dup", dup)
    with pytest.raises((OSError, DriverError)) as refused:
        duplicates.duplicate(owner)
    assert refused.value.errno in (errno.EBADF, errno.EINVAL)
    copy = others.pop()
    with pytest.raises(OSError, match="Bad file"):
        os.fstat(copy)
    for each in others:
        os.close(each)


def test_what_is_passed_is_a_duplicate_which_is_open_until_the_command_is_answered(kind):
    """Whatever the owner's thread does with its own meanwhile."""
    owner, close = made_of(kind)
    size, passed = os.fstat(owner.fd).st_size, []

    def pass_descriptor(fd):
        close()
        passed.append((fd, os.fstat(fd).st_size))
        return 5

    channel = SimpleNamespace(pass_descriptor=pass_descriptor)
    registrar = memory.Registrar(SimpleNamespace(memory=None, channel=channel))
    with registrar._passed(owner) as number:
        assert number == 5
        ((fd, found),) = passed
        assert found == size
        assert os.fstat(fd).st_size == size  # an adapter in this process takes it only now
    with pytest.raises(OSError, match="Bad file"):
        os.fstat(fd)


def test_freed_device_memory_has_none():
    owner, close = made_of("device")
    close()
    with pytest.raises(OSError, match="Bad file") as refused:
        duplicates.duplicate(owner)
    assert refused.value.errno == errno.EBADF
