"""IP port spaces as service IDs, and the private data header of requests (IBTA annex A11)."""

import ipaddress
from pathlib import Path

import pytest

from softhca.management import ip_service
from softhca.management.ip_service import TCP, UDP, IpHeader, port_of, service_id
from softhca.wire.captures import read_capture
from softhca.wire.route import V4_MAPPED_PREFIX

CAPTURES = Path(__file__).parents[1] / "data" / "captures"
REQ = 0x0010
SERVICE_ID_OFFSET, PRIVATE_DATA_OFFSET = 24 + 8, 24 + 140


def requests(name):
    """Connection requests of a capture: frames' IPv4 addresses and the management datagram."""
    with (CAPTURES / f"{name}.pcap").open("rb") as stream:
        for captured in read_capture(stream):
            udp = captured.data[34:]
            if udp[8 + 5 : 8 + 8] != b"\0\0\x01":
                continue
            mad = udp[8 + 12 + 8 : 8 + 12 + 8 + 256]
            if int.from_bytes(mad[16:18], "big") == REQ:
                yield captured.data[26:30], captured.data[30:34], mad


@pytest.mark.parametrize(("name", "port", "count"), [("rping", 7174, 1), ("ucmatose", 7471, 2)])
def test_requests_of_the_kernel_are_read_and_made_byte_for_byte(name, port, count):
    found = list(requests(name))
    assert len(found) == count
    for source, destination, mad in found:
        service = int.from_bytes(mad[SERVICE_ID_OFFSET:][:8], "big")
        assert port_of(service) == (TCP, port)
        assert service_id(TCP, port) == service
        header = IpHeader.decode(mad[PRIVATE_DATA_OFFSET:])
        assert header.known
        assert header.source_gid == V4_MAPPED_PREFIX + source
        assert header.destination_gid == V4_MAPPED_PREFIX + destination
        made = IpHeader.between(header.source_gid, header.source_port, header.destination_gid)
        assert made.encode() == mad[PRIVATE_DATA_OFFSET:][: ip_service.HEADER_BYTES]


def test_ipv6_addresses_stand_whole():
    source, destination = (ipaddress.ip_address(each).packed for each in ("fe80::1", "2001:db8::7"))
    header = IpHeader.between(source, 40000, destination)
    assert header.encode() == bytes([0, 0x60]) + (40000).to_bytes(2, "big") + source + destination
    again = IpHeader.decode(header.encode())
    assert (again.source_gid, again.destination_gid, again.source_port) == (source, destination, 40000)


def test_port_spaces_do_not_meet():
    assert service_id(UDP, 7174) == 0x01111C06
    assert service_id(TCP, 7174) == 0x01061C06
    assert port_of(0x01111C06) == (UDP, 7174)


@pytest.mark.parametrize("service", [0, 0x01060000, 0x01070001, 0x1000000001061C06, 0x02061C06])
def test_other_service_ids_are_of_no_port_space(service):
    assert port_of(service) is None


@pytest.mark.parametrize(("space", "port"), [(TCP, 0), (TCP, 0x10000), (TCP, -1), (0x013F, 7), (0, 7)])
def test_there_are_no_other_ports(space, port):
    with pytest.raises(ValueError, match="no port"):
        service_id(space, port)


@pytest.mark.parametrize("first", [b"\x10\x40", b"\x00\x50", b"\x00\x00"])
def test_other_versions_are_not_known(first):
    assert not IpHeader.decode(first + bytes(34)).known


def test_a_header_that_is_cut_short_is_none():
    with pytest.raises(ValueError, match="36 bytes, not 35"):
        IpHeader.decode(bytes(35))


def test_a_minor_version_is_no_matter():
    assert IpHeader.decode(b"\x01\x40" + bytes(34)).known
