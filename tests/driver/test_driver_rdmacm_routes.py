"""Routes on native links: what subnet administration is asked, and what becomes of each answer."""

import errno
import ipaddress
from dataclasses import replace
from types import SimpleNamespace

import pytest
from native_route_port import OWN, PEER, Device, place

from softhca.driver.errors import DriverError
from softhca.driver.rdmacm import identifier
from softhca.driver.rdmacm.addresses import SocketAddress
from softhca.driver.rdmacm.events import EventChannel
from softhca.driver.rdmacm.port_numbers import PortNumbers
from softhca.driver.rdmacm.routes import (
    RETRIES,
    Route,
    address_of,
    find_port,
    find_route,
    index_of,
    join_group,
)
from softhca.management.administration_attributes import (
    AdministrationHeader,
    MCMemberRecord,
    PathRecord,
    ServiceRecord,
)
from softhca.management.administration_tables import component
from softhca.management.group_queries import GroupAnswer
from softhca.management.ip_service import TCP


def test_a_path_record_between_the_two_gids_is_asked_for():
    device = Device()
    assert find_route(place(device), PEER, 2000) == Route(dlid=7, sl=5, mtu=4, pkey_index=2)
    (question, to, timeout_ms, retries) = device.asked[0]
    assert (to.dlid, to.sl, to.qpn) == (9, 2, 1)
    assert timeout_ms * (retries + 1) == 2000
    assert retries == RETRIES
    asked = PathRecord.decode(question.data)
    assert (asked.sgid, asked.dgid, asked.num_path, asked.reversible) == (OWN, PEER, 1, 1)
    front = AdministrationHeader.decode(question.body)
    assert front.component_mask == 1 << 2 | 1 << 3 | 1 << 11 | 1 << 12
    assert device.registered == 0


@pytest.mark.parametrize(
    ("facts", "code"),
    [
        ({"lid": 0}, errno.ENETDOWN),
        ({"sm_lid": 0}, errno.ENETDOWN),
        ({"status": 0x0300}, errno.EHOSTUNREACH),  # no records
        ({"dlid": 0}, errno.EHOSTUNREACH),
        ({"dlid": 0xC001}, errno.EHOSTUNREACH),
        ({"mtu": 6}, errno.EHOSTUNREACH),
        ({"mtu": 0}, errno.EHOSTUNREACH),
        ({"pkey": 0x8055}, errno.EHOSTUNREACH),
        ({"error": errno.ETIMEDOUT}, errno.ETIMEDOUT),
    ],
)
def test_what_is_no_route_is_told(facts, code):
    device = Device(**facts)
    with pytest.raises(DriverError) as told:
        find_route(place(device), PEER, 10)
    assert told.value.errno == code
    assert device.registered == 0


def test_partitions_are_found_whatever_the_membership():
    here = place(Device())
    assert [index_of(here, pkey) for pkey in (0x7FFF, 0x8012, 0x0012, 0x0013)] == [0, 2, 2, -1]


V4, V6 = SocketAddress(bytes((10, 1, 2, 3))).gid, bytes.fromhex("fd00") + bytes(13) + b"\7"
DATA = {V4: bytes(12) + bytes((10, 1, 2, 3)), V6: V6}
ATS = 0x1000_0CE1_0041_5453
"""DAPL's Address Translation Service."""


def record(gid, address):
    return ServiceRecord(service_id=ATS, service_gid=gid, data=DATA[address].ljust(64, b"\0"))


@pytest.mark.parametrize("address", [V4, V6])
def test_the_port_that_has_an_address_is_asked_for(address):
    device = Device(record=record(PEER, address))
    assert find_port(place(device), address, 400) == PEER
    (question, to, timeout_ms, _) = device.asked[0]
    assert (to.dlid, to.sl, to.qpn, timeout_ms) == (9, 2, 1, 100)
    front = AdministrationHeader.decode(question.body)
    assert front.component_mask == 1 | sum(1 << bit for bit in range(7, 23))  # ServiceID, ServiceData8
    asked = ServiceRecord.decode(question.data)
    assert (asked.service_id, asked.service_gid, asked.data[:16]) == (ATS, bytes(16), DATA[address])
    assert device.registered == 0


@pytest.mark.parametrize("address", [V4, V6])
def test_an_own_port_s_address_is_asked_for(address):
    device = Device(record=record(OWN, address))
    assert address_of(device, 1, OWN, 400) == address
    question = device.asked[0][0]
    assert AdministrationHeader.decode(question.body).component_mask == 3  # ServiceID, ServiceGID
    asked = ServiceRecord.decode(question.data)
    assert (asked.service_id, asked.service_gid, asked.data) == (ATS, OWN, bytes(64))


def test_addresses_that_nobody_has():
    for device in (Device(0x0300, record=record(PEER, V4)), Device(record=record(PEER, V6)),
                   Device(record=record(bytes(16), V4))):  # fmt: skip
        with pytest.raises(DriverError) as told:
            find_port(place(device), V4, 10)
        assert told.value.errno == errno.EHOSTUNREACH
    assert address_of(Device(0x0300, record=record(OWN, V4)), 1, OWN, 10) == b""
    assert address_of(Device(record=record(PEER, V4)), 1, OWN, 10) == b""
    with pytest.raises(DriverError) as told:
        address_of(Device(lid=0), 1, OWN, 10)
    assert told.value.errno == errno.ENETDOWN


@pytest.mark.parametrize(
    ("group", "pkey", "mgid"),
    [
        ("::ffff:239.88.77.66", 0xFFFF, "ff12:4001:ffff::f58:4d42"),
        ("::ffff:224.1.2.3", 0x0012, "ff12:4001:8012::1:203"),
        ("ff05::1:2", 0xFFFF, "ff12:6001:ffff::1:2"),
        ("ff18:a01b::7", 0xFFFF, "ff18:a01b::7"),  # one that subnet administration has given
    ],
)
def test_groups_are_joined_by_their_multicast_gids(group, pkey, mgid):
    group, mgid = (ipaddress.ip_address(each).packed for each in (group, mgid))
    record = MCMemberRecord(mgid=mgid, qkey=5, mlid=0xC003, sl=2, flow_label=0x12345, hop_limit=9)
    device = Device(record=record)
    device.query_pkey = lambda port, index: pkey
    assert join_group(place(device), group, 7, 4, 400) == GroupAnswer(0, mgid, 5, 0xC003, 2, 0x12345, 9)
    (question, to, timeout_ms, _) = device.asked[0]
    assert (to.dlid, timeout_ms, question.header.method) == (9, 100, 2)  # Set
    asked = MCMemberRecord.decode(question.data)
    assert (asked.mgid, asked.port_gid, asked.qkey, asked.pkey) == (mgid, OWN, 7, pkey | 0x8000)
    assert asked.join_state == 4
    names = ("mgid", "port_gid", "qkey", "traffic_class", "pkey", "sl", "flow_label", "join_state")
    wanted = sum(component(MCMemberRecord, name) for name in names)
    assert AdministrationHeader.decode(question.body).component_mask == wanted
    assert device.registered == 0


GROUP_GID = bytes(10) + b"\xff\xff" + bytes((239, 88, 77, 66))
MGID = ipaddress.ip_address("ff12:4001:ffff::f58:4d42").packed


@pytest.mark.parametrize(
    ("status", "facts"), [(0x0200, {}), (0, {"mlid": 0xBFFF}), (0, {"mlid": 0xFFFF}), (0, {"mgid": OWN})]
)
def test_a_group_that_cannot_be_joined_is_told(status, facts):
    record = MCMemberRecord(**{"mgid": MGID, "mlid": 0xC000, **facts})
    with pytest.raises(DriverError) as told:
        join_group(place(Device(status, record=record)), GROUP_GID, 7, 1, 400)
    assert told.value.errno == errno.EADDRNOTAVAIL


@pytest.mark.parametrize(
    ("host", "asked"), [("10.1.2.3", True), ("fd00::7", True), ("fe80::2", False), ("239.1.2.3", False)]
)
def test_addresses_that_are_no_gids_of_the_subnet_are_asked_for(monkeypatch, host, asked):
    device = Device()
    local = SimpleNamespace(towards=lambda destination: replace(place(device), ip=V4 if "." in host else V6),
                            share=lambda *_: None, release=lambda _: None)  # fmt: skip
    questions = []
    monkeypatch.setattr(identifier, "find_port", lambda *question: questions.append(question) or PEER)
    monkeypatch.setattr(identifier.Identifier, "attach", lambda *_: None)
    owner = identifier.Identifier(EventChannel(), TCP, local, PortNumbers(seed=1))
    destination = SocketAddress(ipaddress.ip_address(host).packed, 7174)
    owner.resolve_address(destination)
    assert [each[1] for each in questions] == ([destination.gid] if asked else [])
    assert owner.peer_gid == (PEER if asked else destination.gid)
