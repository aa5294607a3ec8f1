"""Attaching, leaving and dying, many times: nothing is left, and who stays is served as before."""

import gc
import os
import tempfile
import threading

import pytest
from runtime_pair import End
from runtime_served import serving, until

from softhca.driver import registry
from softhca.driver.device import DeviceDriver
from softhca.runtime import devices
from softhca.runtime.adapter_process import AdapterProcess
from softhca.runtime.assembly import counts
from softhca.runtime.process import ProcessChannel
from softhca.runtime.specification import parse_one

CYCLES = 60


def things():
    """Descriptors, mapped memfds, threads and temporary files of this process.

    What a device has used stays mapped for as long as somebody holds an object of it, or a circle of them.
    """
    gc.collect()
    with open("/proc/self/maps") as lines:
        mapped = sum("/memfd:softhca" in line for line in lines)
    files = {name for name in os.listdir(tempfile.gettempdir()) if name.startswith("softhca")}
    return len(os.listdir("/proc/self/fd")), mapped, threading.active_count(), files


def nothing_more_than(before):
    """Whether of none of the `things` there are more now, and no file is new; what others had begun may have
    ended meanwhile."""
    return all(now <= then for now, then in zip(things(), before, strict=True))


@pytest.fixture
def server(loopback_address):
    with serving(loopback_address()) as made:
        yield made


def attached(server):
    return ProcessChannel(AdapterProcess(parse_one(f"s=unix:{server.path}")))


def leave(driver, channel):
    driver.close()


def die(driver, channel):
    """What the kernel does for a process that is killed: its descriptors are closed, and nobody is told."""
    channel.abandon()
    channel.memory.address_map.detach(0, channel.memory.capacity_pages)
    channel.memory._mapping.retire(0)


@pytest.mark.parametrize("goes", [leave, die])
def test_an_adapter_process_keeps_nothing_of_applications_that_have_gone(server, goes):
    survivor = DeviceDriver("survivor", attached(server))
    held = counts(server.adapter)
    before = things()
    for _ in range(CYCLES):
        channel = attached(server)
        driver = DeviceDriver("one", channel)
        End(driver, 4096)
        goes(driver, channel)
        assert survivor.query_port(1)
    until(lambda: len(server._applications) == 1)
    del driver, channel
    until(lambda: nothing_more_than(before))
    assert counts(server.adapter) == held
    assert server.adapter.resources._costs == {}
    survivor.close()


@pytest.mark.parametrize("same_host", [False, True])
def test_a_server_that_has_ended_holds_no_descriptor_even_while_somebody_holds_the_server(
    loopback_address, same_host
):
    with serving(loopback_address(), same_host=same_host):
        pass  # what is made once for all devices is there now
    gc.collect()
    before = set(os.listdir("/proc/self/fd"))
    with serving(loopback_address(), same_host=same_host) as held:
        DeviceDriver("one", attached(held)).close()
    assert set(os.listdir("/proc/self/fd")) == before
    assert held.path


@pytest.mark.parametrize("same_host", [0, 1])
def test_a_device_that_is_opened_and_closed_leaves_nothing(loopback_address, same_host):
    registry.names()
    devices.add(f"again=udp:{loopback_address()}?same_host={same_host}")
    registry.open_device("again").close()
    before = things()
    for _ in range(CYCLES // 3):
        driver = registry.open_device("again")
        end = End(driver, 4096)
        driver.close()
        del end, driver
    until(lambda: nothing_more_than(before))
    devices.remove("again")
