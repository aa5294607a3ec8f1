"""Descriptors of pageable memory on their way to an adapter in a process of its own."""

import errno
import os
import threading

import pytest

from machine_speed import limit_s
from softhca.driver.device import DeviceDriver
from softhca.driver.errors import DriverError
from softhca.driver.paging import PageableMemory
from softhca.queues import control_fields as control
from softhca.runtime.adapter_process import AdapterProcess
from softhca.runtime.assembly import assemble
from softhca.runtime.process import ProcessChannel
from softhca.runtime.server import MAX_PASSED, AdapterServer
from softhca.runtime.specification import parse_one

BOUND_S = limit_s(20)


@pytest.fixture
def server(loopback_address):
    """A served adapter in a thread of this process: descriptors that it holds are seen here."""
    adapter, link = assemble(parse_one(f"here=udp:{loopback_address()}"))
    made = AdapterServer(adapter, (link,), None, f"@softhca-paged-{os.getpid()}", stay=True)
    thread = threading.Thread(target=made.serve)
    thread.start()
    yield made
    made.stop()
    thread.join(BOUND_S)
    assert not thread.is_alive()


@pytest.fixture
def channel(server):
    made = ProcessChannel(AdapterProcess(parse_one(f"s=unix:{server.path}")))
    yield made
    made.close()


@pytest.fixture
def memory():
    made = PageableMemory(8192, 15)
    yield made
    made.close()


def refused(code, call, *arguments, **fields):
    with pytest.raises((DriverError, OSError)) as caught:
        call(*arguments, **fields)
    assert caught.value.errno == code


def descriptors():
    return set(os.listdir("/proc/self/fd"))


def test_a_number_names_its_descriptor_once(channel, memory):
    device = DeviceDriver("here", channel)
    pd = device.alloc_pd()
    number = channel.pass_descriptor(memory.fd)
    fields = {"pd": pd, "access": 15, "va": 0, "descriptor": number}
    key = device.session.call(control.REG_PAGED, **fields)
    refused(errno.EBADF, device.session.call, control.REG_PAGED, **fields)
    device.session.call(control.DEREG_MR, lkey=key["lkey"])
    refused(errno.EBADF, device.session.call, control.REG_PAGED, **{**fields, "descriptor": memory.fd})


def test_a_refused_registration_keeps_no_descriptor(channel, memory):
    device = DeviceDriver("here", channel)
    pd = device.alloc_pd()
    before = descriptors()
    refused(errno.EINVAL, device.reg_paged, pd + 1, memory, 15)
    refused(errno.EINVAL, device.reg_paged, pd, memory, 2)
    assert descriptors() == before


def test_so_many_wait_for_their_commands_and_go_with_their_application(server, memory):
    channel = ProcessChannel(AdapterProcess(parse_one(f"s=unix:{server.path}")))
    channel.resources()  # an answer: what the server, a thread here, passed at first is closed there
    before = descriptors()
    for _ in range(MAX_PASSED):
        channel.pass_descriptor(memory.fd)
    assert len(descriptors()) == len(before) + MAX_PASSED
    refused(errno.EMFILE, channel.pass_descriptor, memory.fd)
    assert len(descriptors()) == len(before) + MAX_PASSED
    channel.close()
    refused(errno.EIO, channel.pass_descriptor, memory.fd)
    assert len(descriptors()) < len(before)
