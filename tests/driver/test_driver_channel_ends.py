"""How channels to an adapter begin and end: once, in order, and with nothing left behind."""

import errno
import os
import select

import pytest
from scripted_channel import ScriptedDriver

from softhca.driver.channels import EmbeddedChannel
from softhca.driver.connections import CM_DISCONNECTED, CmChannel, CmEntry
from softhca.driver.descriptors import EventDescriptor
from softhca.driver.errors import DriverError
from softhca.memory.host import HostMemory
from softhca.queues import control_fields as control
from softhca.queues.layout import CM_ENTRY_BYTES, CM_HEADER, MAX_CM_ENTRIES


class Embedded(EmbeddedChannel):
    """Says in ``noted`` what was asked of the runtime."""

    def __init__(self):
        self.noted = []
        super().__init__(HostMemory(1 << 26), lambda: None, lambda: False, lambda ready, limit: ready(),
                         self.leave)  # fmt: skip
        self.on_closed = lambda channel: self.noted.append("closed")

    def leave(self):
        self.noted.append(("left", self.memory.fd >= 0))
        self.detach()  # a signal handler closes the device meanwhile


def test_a_channel_leaves_its_adapter_once_while_its_memory_is_there():
    channel = Embedded()
    for _ in range(2):
        channel.close()
    assert channel.noted == [("left", True), "closed"]
    assert channel.memory.fd < 0


def test_a_descriptor_that_cannot_be_taken_says_why(monkeypatch):
    channel = Embedded()

    def scarce(number):
        raise OSError(errno.EMFILE, "many")

    def found(number):
        with pytest.raises(OSError, match=f"descriptor = {number}") as caught:
            channel.take_descriptor(number)
        assert caught.value.strerror.endswith(os.strerror(caught.value.errno))
        return caught.value.errno

    assert [found(1 << 40), found(-1)] == [errno.EBADF, errno.EBADF]
    monkeypatch.setattr(os, "dup", scarce)
    assert found(3) == errno.EMFILE
    monkeypatch.undo()
    channel.close()


@pytest.fixture
def driver():
    made = ScriptedDriver()
    made.channel.answer = lambda command: {"cm": 5} if command.command == control.OPEN_CM else {}
    yield made
    made.close()


def refuse(driver, which):
    """The adapter refuses a command from now on."""

    def answer(command):
        if command.command == which:
            raise DriverError(errno.ENOMEM, "full")
        return {"cm": 5}

    driver.channel.answer = answer


def test_a_channel_of_connections_that_is_refused_or_ended_leaves_no_memory(driver):
    before = driver.free_pages()
    CmChannel(driver, 1, MAX_CM_ENTRIES).close()
    assert driver.free_pages() == before
    refuse(driver, control.OPEN_CM)
    with pytest.raises(DriverError):
        CmChannel(driver, 1, 8)
    assert driver.free_pages() == before
    for entries in (0, MAX_CM_ENTRIES + 1):
        with pytest.raises(DriverError, match="has room for"):
            CmChannel(driver, 1, entries)


def test_a_channel_of_connections_whose_end_is_refused_goes_on(driver):
    channel = CmChannel(driver, 1, 8)
    refuse(driver, control.CLOSE_CM)
    with pytest.raises(DriverError):
        channel.close()
    assert channel.receive(timeout_s=0) is None
    assert driver.events._connections == {5: channel}
    driver.channel.answer = lambda command: {}
    channel.close()
    assert driver.events._connections == {}


def entry(**fields):
    """An entry of a channel's ring, whose other bytes are of no message."""
    values = {**dict.fromkeys(CM_HEADER.names, 0), **fields}
    packed = CM_HEADER.packing().pack(*values.values())
    return CmEntry(packed.ljust(CM_ENTRY_BYTES, b"\xee"))


def test_private_data_are_what_the_message_has():
    found = entry(kind=CM_DISCONNECTED, id=7, private_bytes=3)
    assert (found.kind, found.id, found.private_data) == (CM_DISCONNECTED, 7, b"\xee" * 3)
    assert entry().private_data == b""


def test_an_alternate_path_of_a_native_link_may_have_a_lid_alone():
    assert entry(alternate_own_lid=4).alternate is None
    assert entry(alternate_lid=3).alternate.lid == 3
    assert entry(alternate_gid_interface=9).alternate.gid == bytes(15) + b"\x09"


def test_a_descriptor_takes_any_number_of_events_and_waits_for_nobody():
    descriptor = EventDescriptor()
    for _ in range(100_000):
        descriptor.queued()
    assert select.select([descriptor.fileno()], [], [], 0)[0]
    descriptor.empty()
    assert not select.select([descriptor.fileno()], [], [], 0)[0]
    assert descriptor.blocking
    os.set_blocking(descriptor.fileno(), False)
    assert not descriptor.blocking
    descriptor.close()
    assert descriptor.blocking, "who waits is told of the end otherwise"
