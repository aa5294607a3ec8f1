"""All adapters of a host: opened once for all, closed after the last, asked together, their events routed."""

import errno
import os

import pytest

from softhca.driver import registry
from softhca.driver.adapters import COMMON_LIMITS, AdapterEvent, HostAdapters
from softhca.driver.errors import DriverError
from softhca.queues.control_fields import EVENT_DEVICE_FATAL, EVENT_PORT_ACTIVE, EVENT_PORT_ERR
from softhca.testing import Network


@pytest.fixture
def network():
    with Network() as found:
        yield found


def offered(network, **options):
    node = network.add(**options)
    node.offer()
    return node


def test_an_adapter_is_opened_once_and_closed_after_its_last_user(network):
    node = offered(network)
    adapters = HostAdapters()
    first = adapters.acquire(node.name)
    assert adapters.acquire(node.name) is first
    assert adapters.share(first)
    assert (adapters.users(first), len(node.devices)) == (3, 1)
    for left in (2, 1):
        adapters.release(first)
        assert (adapters.users(first), first.alive) == (left, True)
    adapters.release(first)
    assert not first.alive
    assert not adapters.share(first)
    adapters.release(first)
    assert adapters.acquire(node.name) is not first


def test_an_adapter_that_has_died_is_opened_anew(network):
    node = offered(network)
    adapters = HostAdapters()
    dead = adapters.acquire(node.name)
    dead.close()
    assert adapters.open_adapters() == {}
    alive = adapters.acquire(node.name)
    assert alive.alive
    adapters.release(dead)
    assert adapters.users(alive) == 1


def test_an_adapter_that_there_is_not(network):
    with pytest.raises(DriverError) as refused:
        HostAdapters().acquire("nobody")
    assert refused.value.errno == errno.ENODEV
    assert not HostAdapters().is_active("nobody", 1)


@pytest.mark.parametrize("link", ["ipv4", "native"])
def test_ports_of_every_make_are_asked_in_one_way(link):
    with Network(link=link) as network:
        node = offered(network, ports=2, active_mtu=4)
        adapters = HostAdapters()
        first, second = adapters.ports(node.name)
        assert (first.number, second.number, first.native, first.mtu) == (1, 2, link == "native", 4)
        assert (first.gid, first.lid) == (node.gid, node.lid)
        assert (first.active, second.active) == (True, True)
        node.adapter.set_link(2, False)
        assert [each.active for each in adapters.ports(node.name)] == [True, False]
        assert [adapters.is_active(node.name, port) for port in (1, 2, 3)] == [True, False, False]
        assert not adapters.open_adapters()  # it was open for the question alone


def test_what_all_adapters_can_do_is_the_least_of_each(network):
    one = offered(network, max_inline_bytes=100)
    other = offered(network, max_inline_bytes=200, max_qp_rd_atom=3)
    adapters = HostAdapters()
    with pytest.raises(DriverError) as refused:
        adapters.common_limits()
    assert refused.value.errno == errno.ENODEV
    devices = [adapters.acquire(each.name) for each in (one, other)]
    found = adapters.common_limits()
    assert set(found) == set(COMMON_LIMITS)
    assert (found["max_inline_data"], found["max_qp_rd_atom"]) == (100, 3)
    adapters.release(devices[0])
    assert adapters.common_limits()["max_inline_data"] == 200


def test_events_of_all_adapters_are_routed_to_all_listeners(network):
    one, other = offered(network, ports=2), offered(network)
    adapters = HostAdapters()
    devices = [adapters.acquire(each.name) for each in (one, other)]
    told, also = [], []
    adapters.subscribe(told.append)
    adapters.subscribe(also.append)
    assert not adapters.dispatch()
    one.adapter.set_link(2, False)
    other.adapter.set_link(1, False)
    assert adapters.dispatch()
    assert told == [
        AdapterEvent(one.name, EVENT_PORT_ERR, 2), AdapterEvent(other.name, EVENT_PORT_ERR, 1),
    ]  # fmt: skip
    adapters.unsubscribe(also.append)
    assert also == told
    also.clear()
    adapters.unsubscribe(told.append)
    adapters.subscribe(also.append)
    one.adapter.set_link(2, True)
    assert adapters.dispatch()
    assert also == [AdapterEvent(one.name, EVENT_PORT_ACTIVE, 2)]
    assert len(told) == 2
    devices[1].close()
    one.adapter.set_link(2, False)
    assert adapters.dispatch()
    assert [each.adapter for each in also[1:]] == [one.name]


def test_the_death_of_an_adapter_is_told_once(network):
    node = offered(network)
    adapters = HostAdapters()
    device = adapters.acquire(node.name)
    told = []
    adapters.subscribe(told.append)
    device.session.channel._is_alive = lambda: False
    assert adapters.dispatch()
    assert told == [AdapterEvent(node.name, EVENT_DEVICE_FATAL, 0)]
    assert not adapters.dispatch()
    assert adapters.open_adapters() == {}


def test_a_forked_child_has_adapters_of_its_own(network):
    node = offered(network)
    adapters = HostAdapters(registry.names, registry.open_device)
    parents = adapters.acquire(node.name)
    child = os.fork()
    if not child:  # pragma: no cover
        code = 1
        try:
            code = int(adapters.users(parents) != 0 or adapters.acquire(node.name) is parents)
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert parents.alive
