"""What the options of a device make of its link."""

import errno
import os
import socket

import pytest

from softhca.links import paths
from softhca.links.identification_check import CheckedLink
from softhca.links.link import NEVER
from softhca.runtime import assembly
from softhca.runtime.assembly import assemble_ports, open_link
from softhca.runtime.specification import DeviceSpecificationError, parse_one
from softhca.transport.uniform import UniformBursts
from softhca.wire.route import ROCE_V4, V4_MAPPED_PREFIX, Route

SECOND_NS = 1_000_000_000
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="a raw socket takes root")


def has_ipv6():
    try:
        with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as probe:
            probe.bind(("::1", 4791))
    except OSError:
        return False
    return True


needs_ipv6 = pytest.mark.skipif(not has_ipv6(), reason="this machine has no free IPv6 loopback address")


def gid(address):
    return V4_MAPPED_PREFIX + socket.inet_aton(address)


def test_bursts_go_whole_to_the_peers_that_are_named(loopback_address, monkeypatch):
    monkeypatch.setattr(paths, "cutting", lambda *_: paths.UNKNOWN)
    link = open_link(parse_one(f"a=udp:{loopback_address()}?segmenting=127.9.9.1+127.9.9.2"))
    port = link.source_port_for(1)
    peers = ("127.9.9.1", "127.9.9.2", "127.9.9.3")
    routes = [Route(ROCE_V4, link.gid, gid(peer), source_port=port) for peer in peers]
    assert [link.is_segmenting(route) for route in routes] == [True, True, False]
    link.close()


@needs_root
def test_a_checked_link_merges_nothing_and_counts_what_it_checks(loopback_address):
    link = open_link(parse_one(f"a=udp:{loopback_address()}?check_identification=1"))
    assert isinstance(link, CheckedLink)
    assert not link.merges
    assert link.counters()["identification_mismatches"] == 0
    link.close()
    assert link.fileno() == -1


def test_without_the_privilege_for_the_check_the_device_is_named(loopback_address, monkeypatch):
    plain = socket.socket

    def refuse(family=-1, kind=-1, *others, **more):
        if family == socket.AF_INET and kind & 0xF == socket.SOCK_RAW:
            raise PermissionError(errno.EPERM, "Operation not permitted")
        return plain(family, kind, *others, **more)

    monkeypatch.setattr("softhca.links.identification_check.socket.socket", refuse)
    with pytest.raises(OSError, match="a: checking IPv4 identifications takes CAP_NET_RAW") as caught:
        open_link(parse_one(f"a=udp:{loopback_address()}?check_identification=1"))
    assert caught.value.errno == errno.EPERM


@needs_ipv6
def test_ipv6_has_no_identification_to_check():
    with pytest.raises(DeviceSpecificationError, match="only IPv4 headers have an identification"):
        open_link(parse_one("a=udp:[::1]?check_identification=1"))


@pytest.mark.parametrize(("option", "rules"), [("", UniformBursts()), ("?uniform=0", None)])
def test_adapters_send_packets_of_one_length_unless_they_are_told_not_to(option, rules, loopback_address):
    adapter, links = assemble_ports(parse_one(f"a=udp:{loopback_address()}{option}"))
    assert adapter.config.uniform_bursts == adapter.uniform_bursts == rules
    for link in links:
        link.close()


class Interface:
    """A watch that tells of ``present`` addresses, all of the time that it is asked."""

    interface = "eth9"

    def __init__(self, present):
        self.present = present
        self.channel = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)

    def fileno(self):
        return self.channel.fileno()

    def changed(self):
        return True

    def addresses(self):
        return list(self.present)

    def close(self):
        self.channel.close()


@pytest.fixture
def with_all(loopback_address, monkeypatch):
    """A function that assembles a device with two addresses of an interface, which a watch follows that is
    made of these; what was assembled, and the addresses.
    """
    links = []

    def assembled(watch, options=""):
        own, further = loopback_address(), loopback_address()
        present = [own, further]
        monkeypatch.setattr(assembly, "further_addresses", lambda *_: [further])
        monkeypatch.setattr(assembly, "AddressWatch", lambda address: watch(present))
        adapter, links[:] = assemble_ports(parse_one(f"a=udp:{own}?addresses=all{options}"))
        return adapter, links[0], present

    yield assembled
    for link in links:
        link.close()


def test_a_port_with_all_addresses_follows_its_interface(with_all, loopback_address, caplog):
    adapter, link, present = with_all(Interface, "&gids=1")
    new = loopback_address()
    present[:] = [new, present[1]]
    assert link.expire(SECOND_NS)
    assert adapter.port.gid_table == (bytes(16), gid(present[1]), gid(new))
    assert link.gids == (gid(present[1]), gid(new))
    present.clear()
    assert link.expire(2 * SECOND_NS)
    assert adapter.port.gids == frozenset()
    assert not caplog.text


def test_an_address_without_an_entry_is_logged_and_closed(with_all, loopback_address, caplog):
    adapter, link, present = with_all(Interface, "&gids=16")
    new = loopback_address()
    present.append(new)
    assert link.expire(SECOND_NS)
    assert set(link.gids) == adapter.port.gids == {gid(each) for each in present[:2]}
    assert f"{new} has no entry in the GID table of port 1, which is full" in caplog.text


def test_where_nobody_tells_of_addresses_a_port_keeps_those_that_it_has(with_all, caplog):
    def refuse(_):
        raise OSError(errno.EPERM, "Operation not permitted")

    adapter, link, present = with_all(refuse)
    assert not link.expire(SECOND_NS)
    assert link.next_deadline() == NEVER
    assert adapter.port.gids == {gid(each) for each in present}
    assert "a keeps the addresses that it has now: Operation not permitted" in caplog.text
