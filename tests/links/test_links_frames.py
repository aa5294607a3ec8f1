"""Ethernet frames of RoCEv2 links: the port of VXLAN is taken when it is asked for, and told apart."""

from __future__ import annotations

import errno
import os
import select
import socket

import pytest

from softhca.links.roce_udp import SENT, RoceUdpLink
from softhca.links.vxlan_neighbours import vxlan_neighbours
from softhca.wire.burst import Arrival, Burst
from softhca.wire.route import V4_MAPPED_PREFIX, Route
from softhca.wire.vxlan import VXLAN_PORT

FIRST, SECOND = "127.9.47.1", "127.9.47.2"
WAIT_S = 10


def gid_of(address: str) -> bytes:
    return V4_MAPPED_PREFIX + socket.inet_aton(address)


@pytest.fixture
def link():
    with RoceUdpLink(FIRST, 0) as link:
        yield link


def take(link: RoceUdpLink, arrival: Arrival) -> None:
    assert select.select([link.fileno(), link.group_fileno()], [], [], WAIT_S)[0]
    assert link.receive(arrival)


def test_frames_are_told_apart_from_packets(link):
    link.listen_for_frames()
    link.listen_for_frames()
    arrival = Arrival()  # one for all, as an adapter has it
    with RoceUdpLink(SECOND, 0) as other:
        for port, frames in ((VXLAN_PORT, True), (link.port, False)):
            route = Route(other.framing, other.gid, link.gid, other.source_port_for(0, link.gid),
                          destination_port=port)  # fmt: skip
            burst = Burst()
            burst.buffer[:200] = bytes(range(200))
            burst.length, burst.stride, burst.packets, burst.route = 200, 100, 2, route
            assert other.send(burst) == SENT
            taken = 0
            while taken < 200:
                take(link, arrival)
                assert (arrival.frames, arrival.source, arrival.destination) == (frames, other.gid, link.gid)
                taken += arrival.length
            assert taken == 200


def test_without_being_asked_nobody_listens(link):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind((FIRST, VXLAN_PORT))
        with pytest.raises(OSError, match=f"{FIRST} port {VXLAN_PORT}") as refused:
            link.listen_for_frames()
        assert refused.value.errno == errno.EADDRINUSE
    link.listen_for_frames()
    link.close()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind((FIRST, VXLAN_PORT))
    with pytest.raises(OSError, match="closed"):
        link.listen_for_frames()


def test_neighbours_are_this_users_sockets_on_the_port(link):
    link.listen_for_frames()
    assert gid_of(FIRST) in vxlan_neighbours(gid_of(SECOND))
    assert gid_of(FIRST) not in vxlan_neighbours(gid_of(FIRST))
    link.close()
    assert gid_of(FIRST) not in vxlan_neighbours(gid_of(SECOND))


def test_what_is_no_neighbour_in_the_kernels_list_is_left_out(tmp_path):
    user = os.getuid()
    line = "  7: {} 00000000:0000 07 00000000:00000000 00:00000000 00000000 {} 0 1 2 0 0\n"
    lines = (("0200007F:12B5", user), ("0300007F:12B6", user), ("0400007F:12B5", user + 1),
             ("00000000:12B5", user), ("nonsense", user), ("zz:zz", user))  # fmt: skip
    text = "header\n" + "".join(line.format(*each) for each in lines) + "short\n"
    (tmp_path / "udp").write_text(text)
    assert vxlan_neighbours(gid_of(FIRST), tmp_path) == (gid_of("127.0.0.2"),)
    six = "000000FD" + "0" * 16 + "01000000:12B5"
    (tmp_path / "udp6").write_text("header\n" + line.format(six, user))
    assert vxlan_neighbours(b"\xfd" + bytes(14) + b"\2", tmp_path) == (b"\xfd" + bytes(14) + b"\1",)
    assert vxlan_neighbours(gid_of(FIRST), tmp_path / "missing") == ()
