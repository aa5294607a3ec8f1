"""Interfaces, routes and the decision which paths leave bursts uncut."""

from __future__ import annotations

import ipaddress
import os
import shutil
import socket
import struct
import subprocess
import sys

import pytest

from softhca.links import interfaces, netlink, paths
from softhca.links.netlink import InterfaceAddress, RouteAnswer

LOOPBACK = bytes((127, 0, 0, 1))
FAR = bytes((192, 0, 2, 1))


@pytest.mark.parametrize(("interface_mtu_bytes", "expected"), [
    (352, 256), (607, 256), (608, 512), (1119, 512), (1120, 1024), (1500, 1024), (2144, 2048), (4191, 2048),
    (4192, 4096), (9000, 4096), (65536, 4096)])
def test_active_mtu_leaves_room_for_every_header(interface_mtu_bytes: int, expected: int) -> None:
    assert interfaces.active_mtu(interface_mtu_bytes) == expected


def test_active_mtu_of_a_tiny_interface_is_an_error() -> None:
    with pytest.raises(ValueError, match="351"):
        interfaces.active_mtu(351)


def test_the_loopback_interface_is_known() -> None:
    assert interfaces.mtu_of_interface("lo") >= 1500
    assert interfaces.driver_of_interface("lo") == ""
    assert interfaces.address_of_interface("lo") == "127.0.0.1"
    assert interfaces.interface_of_address("127.0.0.1") == "lo"
    assert interfaces.interface_of_address("127.200.3.4") == "lo"


def test_unknown_interfaces_and_addresses_are_errors() -> None:
    with pytest.raises(OSError, match="no interface"):
        interfaces.interface_of_address("192.0.2.77")
    with pytest.raises(OSError, match="device"):
        interfaces.mtu_of_interface("no-such-if")
    with pytest.raises(ValueError, match="interface name"):
        interfaces.mtu_of_interface("a-name-that-is-too-long")
    with pytest.raises(OSError, match="interface"):
        interfaces.address_of_interface("no-such-if")
    assert interfaces.driver_of_interface("no-such-if") == ""


@pytest.mark.parametrize(("text", "expected"), [
    ("10.1.2.3", (bytes((10, 1, 2, 3)), 0)),
    ("::ffff:10.1.2.3", (bytes((10, 1, 2, 3)), 0)),
    ("fe80::1%7", (b"\xfe\x80" + bytes(13) + b"\x01", 7)),
    ("fe80::1%lo", (b"\xfe\x80" + bytes(13) + b"\x01", socket.if_nametoindex("lo"))),
    ("::1", (bytes(15) + b"\x01", 0))])
def test_addresses_are_parsed_with_their_scope(text: str, expected: tuple[bytes, int]) -> None:
    assert interfaces.parse_address(text) == expected


def test_an_interface_prefers_a_global_address(monkeypatch: pytest.MonkeyPatch) -> None:
    index = socket.if_nametoindex("lo")
    local = ipaddress.ip_address("fe80::5").packed
    wide = ipaddress.ip_address("2001:db8::5").packed
    entries = [InterfaceAddress(index + 1, wide, 64), InterfaceAddress(index, FAR, 24),
               InterfaceAddress(index, local, 64)]
    monkeypatch.setattr(netlink, "addresses", lambda: entries)
    assert interfaces.address_of_interface("lo", socket.AF_INET6) == "fe80::5%lo"
    entries.append(InterfaceAddress(index, wide, 64))
    assert interfaces.address_of_interface("lo", socket.AF_INET6) == "2001:db8::5"
    assert interfaces.address_of_interface("lo") == "192.0.2.1"
    entries.clear()
    with pytest.raises(OSError, match="IPv6"):
        interfaces.address_of_interface("lo", socket.AF_INET6)


def test_the_others_of_an_interface_are_told_once_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """An interface may have one address with several prefixes; a link binds to it once."""
    index = socket.if_nametoindex("lo")
    own, wide = bytes((192, 0, 2, 9)), ipaddress.ip_address("2001:db8::5").packed
    entries = [InterfaceAddress(index, own, 24), InterfaceAddress(index, FAR, 24),
               InterfaceAddress(index, FAR, 16),
               InterfaceAddress(index + 1, bytes((198, 18, 0, 1)), 24), InterfaceAddress(index, wide, 64),
               InterfaceAddress(index, ipaddress.ip_address("fe80::5").packed, 64)]
    monkeypatch.setattr(netlink, "addresses", lambda: entries)
    assert interfaces.addresses_beside("192.0.2.9") == ["192.0.2.1", "2001:db8::5"]


def test_the_kernel_tells_routes_and_addresses() -> None:
    answer = netlink.route(LOOPBACK, bytes((127, 0, 0, 2)))
    assert answer.local
    assert answer.interface_index == socket.if_nametoindex("lo")
    assert any(entry.address == LOOPBACK and entry.prefix_bits == 8 for entry in netlink.addresses())
    with pytest.raises(OSError, match="refused"):
        netlink.route(FAR, LOOPBACK)  # not an address of ours


def test_loopback_and_own_addresses_leave_bursts_uncut() -> None:
    assert paths.leaves_bursts_uncut(LOOPBACK, bytes((127, 3, 2, 1)))
    assert paths.leaves_bursts_uncut(bytes(15) + b"\x01", bytes(15) + b"\x01")
    for entry in netlink.addresses():
        address = ipaddress.ip_address(entry.address)
        if not address.is_link_local:
            assert paths.leaves_bursts_uncut(entry.address, entry.address), address


@pytest.mark.parametrize(("answer", "driver", "takes", "expected"), [
    (RouteAnswer(True, 1, True), "", True, paths.UNCUT),
    (RouteAnswer(True, 1, True), "", False, paths.UNCUT),
    (RouteAnswer(False, 1, True), "veth", True, paths.UNCUT),
    (RouteAnswer(False, 1, True), "veth", False, paths.COUNTING),
    (RouteAnswer(False, 1, False), "veth", True, paths.UNKNOWN),
    (RouteAnswer(False, 1, False), "veth", False, paths.COUNTING),
    (RouteAnswer(False, 1, True), "virtio_net", True, paths.UNKNOWN),
    (RouteAnswer(False, 1, True), "virtio_net", False, paths.COUNTING),
    (RouteAnswer(False, 1, True), "", True, paths.UNKNOWN)])
def test_who_cuts_is_told_by_route_driver_and_what_the_interface_takes(
    answer: RouteAnswer, driver: str, takes: bool, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(netlink, "route", lambda *_: answer)
    monkeypatch.setattr(interfaces, "driver_of_interface", lambda _: driver)
    monkeypatch.setattr(interfaces, "takes_bursts", lambda _: takes)
    assert paths.cutting(FAR, bytes((192, 0, 2, 2))) == expected
    assert paths.leaves_bursts_uncut(FAR, bytes((192, 0, 2, 2))) is (expected == paths.UNCUT)


def test_the_kernel_tells_whether_an_interface_takes_bursts() -> None:
    assert interfaces.takes_bursts("lo")
    with pytest.raises(OSError, match="No such device"):
        interfaces.takes_bursts("nosuchinterface")


def test_an_unknown_path_counts_as_cutting(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> RouteAnswer:
        raise PermissionError("netlink is closed here")

    monkeypatch.setattr(netlink, "route", refuse)
    assert paths.leaves_bursts_uncut(FAR, bytes((192, 0, 2, 2))) is False


def test_malformed_attributes_end_the_reading() -> None:
    good = struct.pack("=HH4s", 8, 1, LOOPBACK)
    assert netlink._attributes(good + struct.pack("=HH", 3, 2) + good) == {1: LOOPBACK}
    assert netlink._attributes(good + struct.pack("=HH", 9, 2) + b"1234") == {1: LOOPBACK}
    assert netlink._attributes(struct.pack("=HHBxxx", 5, 3, 7) + good) == {3: b"\x07", 1: LOOPBACK}


_VETH_SCRIPT = """
set -e
ip link add vt0 type veth peer name vt1
ip addr add 198.18.77.1/30 dev vt0
ip link set vt0 up
ip link set vt1 up
ip route add 198.18.78.0/24 via 198.18.77.2 dev vt0
exec "$0" -c "$1"
"""
_VETH_QUESTIONS = """
from softhca.links import interfaces, paths
source = bytes((198, 18, 77, 1))
print(interfaces.driver_of_interface("vt0"), interfaces.interface_of_address("198.18.77.1"),
      paths.leaves_bursts_uncut(source, bytes((198, 18, 77, 2))),
      paths.leaves_bursts_uncut(source, bytes((198, 18, 78, 2))))
"""


def test_a_real_veth_neighbour_is_uncut_but_not_what_lies_behind_it() -> None:
    """In a network namespace of its own: the machine's interfaces stay as they are."""
    alone = ["unshare", "--map-root-user", "--net"]
    if shutil.which("unshare") is None or shutil.which("ip") is None:
        pytest.skip("needs unshare (util-linux) and ip (iproute2)")
    probe = [*alone, "sh", "-c", 'ip link add vt0 type veth && exec "$0" -c ""', sys.executable]
    if subprocess.run(probe, capture_output=True, check=False).returncode != 0:
        pytest.skip("this user cannot run Python in a network namespace with a veth pair")
    command = [*alone, "sh", "-c", _VETH_SCRIPT, sys.executable, _VETH_QUESTIONS]
    environment = os.environ | {"PYTHONPATH": ":".join(sys.path)}
    answer = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment)
    assert answer.stdout.split() == ["veth", "vt0", "True", "False"]
