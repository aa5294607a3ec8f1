"""Which device has an address, and who has it open: by devices that a test makes."""

import errno
import ipaddress
from dataclasses import replace
from types import SimpleNamespace

import pytest

from softhca.driver.errors import DriverError
from softhca.driver.rdmacm import local_devices
from softhca.driver.rdmacm.addresses import SocketAddress
from softhca.driver.rdmacm.local_devices import LocalDevices

ETHERNET, INFINIBAND = 2, 1


def address(text, port=0):
    return SocketAddress(ipaddress.ip_address(text).packed, port)


class Device:
    """Ports with one address each."""

    def __init__(self, name, *texts, link_layer=ETHERNET):
        self.name, self.link_layer = name, link_layer
        self.gids = [address(each).gid for each in texts]
        self.alive = True
        self.changes = self.asked = 0
        self.events = SimpleNamespace(waits=True, gid_changes=lambda: self.changes)

    def query_device(self):
        return {"phys_port_cnt": len(self.gids), "max_qp_rd_atom": 16, "max_qp_init_rd_atom": 8}

    def query_port(self, port):
        return {"link_layer": self.link_layer, "gid_tbl_len": 2, "active_mtu": 5, "lid": 0, "sm_lid": 0}

    def query_gid(self, port, index):
        self.asked += 1
        if not self.gids:
            raise DriverError(errno.EIO, "it has died")
        return bytes(16) if index == 0 else self.gids[port - 1]

    def close(self):
        self.alive = False


class Host:
    """Devices by name, and how often each was opened."""

    def __init__(self, **devices):
        self.devices, self.opened = devices, []
        self.local = LocalDevices(lambda: list(devices), self.open)

    def open(self, name):
        found = self.devices[name]
        if isinstance(found, int):
            raise DriverError(found, "refused")
        self.opened.append(name)
        return Device(name, *found)

    def opens(self):
        return set(self.local.adapters.open_adapters())


@pytest.fixture
def no_routes(monkeypatch):
    monkeypatch.setattr(local_devices, "_source_towards", lambda destination: None)


def code_of(call, *arguments):
    with pytest.raises(DriverError) as refused:
        call(*arguments)
    return refused.value.errno


def test_an_address_is_a_port_of_a_device():
    host = Host(a=["10.0.0.1"], b=["10.0.1.1", "10.0.1.2"])
    found = host.local.at(address("10.0.1.2"))
    assert (found.device.name, found.port, found.gid_index, found.mtu) == ("b", 2, 1, 5)
    assert (found.max_responder_resources, found.max_initiator_depth) == (16, 8)
    assert host.opens() == {"b"}


def test_a_device_is_opened_once_and_closed_with_its_last_user():
    host = Host(a=["10.0.0.1"])
    first, second = (host.local.at(address("10.0.0.1")) for _ in range(2))
    third = host.local.share(first, first.gid)
    assert first.device is second.device is third.device
    assert host.opened == ["a"]
    for each in (first, second, third):
        assert each.device.alive
        host.local.release(each.device)
    assert not first.device.alive
    host.local.release(first.device)
    assert host.local.at(address("10.0.0.1")).device is not first.device


def test_addresses_that_have_changed_are_known_and_asked_for_once():
    host = Host(a=["10.0.0.1", "10.0.1.1"])
    found = host.local.at(address("10.0.0.1"))
    device, asked = found.device, found.device.asked
    host.local.release(host.local.at(address("10.0.1.1")).device)
    assert device.asked == asked
    device.gids[1] = address("10.0.2.1").gid
    assert code_of(host.local.at, address("10.0.2.1")) == errno.EADDRNOTAVAIL
    device.changes += 1
    late = host.local.at(address("10.0.2.1"))
    assert (late.device, late.port, device.asked) == (device, 2, 2 * asked)
    assert code_of(host.local.at, address("10.0.1.1")) == errno.EADDRNOTAVAIL
    assert host.local.at(address("10.0.0.1")).device is device
    assert device.asked == 2 * asked


def test_a_request_to_an_address_that_has_come_is_one_at_its_port():
    host = Host(a=["10.0.0.1", "10.0.1.1"])
    first = host.local.at(address("10.0.1.1"))
    new = address("10.0.2.1").gid
    first.device.gids[1] = new
    first.device.changes += 1
    assert host.local.share(first, new).gid == new
    first.device.gids.clear()
    first.device.changes += 1
    assert host.local.share(replace(first, gid=new), new).gid == new


def test_a_device_that_does_not_say_its_addresses_again_has_no_user_more():
    host = Host(a=["10.0.0.1"])
    device = host.local.at(address("10.0.0.1")).device
    device.changes += 1
    gids, device.gids = device.gids, []
    device.query_device = lambda: {"phys_port_cnt": 1, "max_qp_rd_atom": 16, "max_qp_init_rd_atom": 8}
    assert code_of(host.local.at, address("10.0.0.1")) == errno.EIO
    assert host.local.adapters.users(device) == 1
    device.gids = gids
    assert host.local.at(address("10.0.0.1")).device is device


def test_a_device_that_has_died_is_opened_again():
    host = Host(a=["10.0.0.1"])
    host.local.at(address("10.0.0.1")).device.alive = False
    assert host.local.at(address("10.0.0.1")).device.alive


def test_an_address_of_nobody():
    host = Host(a=["10.0.0.1"])
    assert code_of(host.local.at, address("10.0.0.2")) == errno.EADDRNOTAVAIL
    assert code_of(host.local.at, address("127.0.0.1")) == errno.EADDRNOTAVAIL
    assert host.opens() == set()
    assert code_of(Host().local.at, address("10.0.0.2")) == errno.ENODEV


@pytest.mark.parametrize(("text", "name"), [("127.0.0.1", "b"), ("::1", "c")])
def test_localhost_is_the_first_device_at_a_loopback_address(text, name):
    host = Host(a=["10.0.0.1"], b=["127.0.0.9"], c=["::1"])
    assert host.local.at(address(text)).device.name == name
    exactly = Host(b=["127.0.0.9"], d=["127.0.0.1"])
    assert exactly.local.at(address("127.0.0.1")).device.name == "d"


@pytest.mark.parametrize(
    ("text", "name"), [("10.0.1.1", "b"), ("192.0.2.1", "a"), ("2001:db8::1", "c"), ("10.0.0.99", "a")]
)
def test_a_destination_is_reached_by_its_own_device_or_one_of_its_version(no_routes, text, name):
    host = Host(a=["10.0.0.1"], b=["10.0.1.1"], c=["2001:db8::7"])
    assert host.local.towards(address(text)).device.name == name
    assert host.opens() == {name}


def test_a_destination_is_reached_by_the_device_that_routes_name(monkeypatch):
    host = Host(a=["10.0.0.1"], b=["10.0.1.1"])
    monkeypatch.setattr(local_devices, "_source_towards", lambda destination: address("10.0.1.1").gid)
    assert host.local.towards(address("192.0.2.1")).device.name == "b"


def test_routes_of_the_kernel():
    assert local_devices._source_towards(address("127.0.0.9")) == address("127.0.0.1").gid


def test_a_destination_that_nobody_reaches(no_routes):
    assert code_of(Host(a=["10.0.0.1"]).local.towards, address("2001:db8::1")) == errno.ENETUNREACH


def test_a_device_that_cannot_be_opened_is_passed_over(no_routes):
    host = Host(a=errno.EADDRINUSE, b=["10.0.1.1"])
    assert host.local.at(address("10.0.1.1")).device.name == "b"
    assert host.local.towards(address("192.0.2.1")).device.name == "b"
    assert code_of(host.local.at, address("10.0.0.1")) == errno.EADDRINUSE


def test_all_ports_of_all_devices():
    host = Host(a=["10.0.0.1", "10.0.0.2"], b=["10.0.1.1"])
    found = host.local.all()
    assert sorted(each.address.host for each in found) == ["10.0.0.1", "10.0.0.2", "10.0.1.1"]
    for device in {each.device for each in found}:
        host.local.release(device)
    assert host.opens() == set()


def test_a_native_port_s_address_is_its_gid_and_reaches_its_subnet_alone(monkeypatch):
    host = Host(a=["fe80::1"])
    native = Device("a", "fe80::1", link_layer=INFINIBAND)
    monkeypatch.setattr(host.local.adapters, "_open_device", lambda name: native)
    found = [host.local.at(address("fe80::1")), host.local.towards(address("fe80::2")), *host.local.all()]
    assert [(each.address.host, each.is_native) for each in found] == [("fe80::1", True)] * 3
    for _ in found:
        host.local.release(native)
    for far in ("fd00::2", "10.0.0.1"):
        assert code_of(host.local.towards, address(far)) == errno.ENETUNREACH
    assert host.opens() == set()


def host_with_addresses(monkeypatch, answers, *texts):
    """A host with a native device, whose ports' addresses are ``answers``; what was asked."""
    host, asked = Host(a=texts), []
    native = Device("a", *texts, link_layer=INFINIBAND)
    monkeypatch.setattr(host.local.adapters, "_open_device", lambda name: native)

    def told(device, port, gid, timeout_ms):
        assert (device, gid) == (native, native.gids[port - 1])
        assert timeout_ms > 0
        asked.append(port)
        if answers.get(port) is None:
            raise DriverError(errno.ENETDOWN, "no manager yet")
        return address(answers[port]).gid if answers[port] else b""

    monkeypatch.setattr(local_devices, "address_of", told)
    return host, asked


def test_a_native_port_is_found_by_the_address_that_subnet_administration_knows(monkeypatch, no_routes):
    host, asked = host_with_addresses(monkeypatch, {1: "10.0.0.1", 2: "10.0.0.2"}, "fe80::1", "fe80::2")
    found = host.local.at(address("10.0.0.2"))
    assert (found.port, found.address.host, found.gid) == (2, "10.0.0.2", address("fe80::2").gid)
    assert host.local.at(address("fe80::2")).address.host == "fe80::2"
    far = host.local.towards(address("192.0.2.7"))
    assert (far.port, far.address.host) == (1, "10.0.0.1")
    assert code_of(host.local.towards, address("fd00::2")) == errno.ENETUNREACH
    assert sorted(each.port for each in host.local.all()) == [1, 2]
    assert asked == [1, 2]
    shared = host.local.share(far, far.gid, address("10.0.0.1").gid)
    assert (shared.port, shared.address.host) == (1, "10.0.0.1")
    assert host.local.share(far, far.gid).address.host == "fe80::1"
    assert host.local.share(far, address("fe80::9").gid) is far


def test_gids_of_a_native_port_s_subnet_and_other_addresses(monkeypatch):
    host, _ = host_with_addresses(monkeypatch, {1: "fd00::1"}, "fe80::1")
    place = host.local.at(address("fd00::1"))
    assert (place.address.host, place.gid) == ("fd00::1", address("fe80::1").gid)
    assert host.local.towards(address("fd00::2")).address.host == "fd00::1"
    assert place.shares_subnet(address("fe80::2").gid)
    assert not place.shares_subnet(address("fd00::2").gid)
    assert not replace(place, is_native=False).shares_subnet(address("fe80::2").gid)


def test_a_port_s_address_is_asked_for_until_it_is_told(monkeypatch, no_routes):
    answers = {1: None, 2: ""}
    host, asked = host_with_addresses(monkeypatch, answers, "fe80::1", "fe80::2")
    assert host.local.at(address("fe80::1")).address.host == "fe80::1"
    assert code_of(host.local.at, address("10.0.0.1")) == errno.EADDRNOTAVAIL
    answers[1] = "10.0.0.1"
    assert host.local.at(address("10.0.0.1")).port == 1
    host.local.at(address("10.0.0.1"))
    assert asked == [1, 2, 1, 1]


def test_devices_in_virtual_time_are_passed_over(monkeypatch):
    host = Host(a=["10.0.0.1"])
    device = Device("a", "10.0.0.1")
    device.events.waits = False
    monkeypatch.setattr(host.local.adapters, "_open_device", lambda name: device)
    assert host.local.all() == []
    assert host.opens() == set()


def test_all_ports_are_those_of_devices_that_can_be_opened():
    host = Host(a=["10.0.0.1"], b=errno.EACCES, c=["10.0.1.1"])
    found = host.local.all()
    assert sorted(each.address.host for each in found) == ["10.0.0.1", "10.0.1.1"]
    for device in {each.device for each in found}:
        host.local.release(device)
    assert host.opens() == set()
    assert code_of(Host(a=errno.EACCES).local.all) == errno.EACCES
