"""Multicast groups of RoCEv2 links: every member on this machine gets a copy, the sender itself none."""

from __future__ import annotations

import errno
import os
import select
import socket
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from softhca.links import groups
from softhca.links.interfaces import index_of_interface
from softhca.links.roce_udp import SENT, RoceUdpLink
from softhca.links.wrapped import WrappedLink
from softhca.wire.burst import Arrival, Burst
from softhca.wire.route import V4_MAPPED_PREFIX, Route

GROUP = V4_MAPPED_PREFIX + bytes((239, 9, 4, 1))
OTHER = V4_MAPPED_PREFIX + bytes((239, 9, 4, 2))
WAIT_S = 10


@pytest.fixture
def links() -> Iterator[list[RoceUdpLink]]:
    """Three links with one UDP port, which is nobody else's."""
    with ExitStack() as stack:
        first = stack.enter_context(RoceUdpLink("127.9.4.1", 0))
        yield [first, *(stack.enter_context(RoceUdpLink(f"127.9.4.{n}", first.port)) for n in (2, 3))]


def send(link: RoceUdpLink, group: bytes = GROUP, data: bytes = b"to all members.." * 4) -> bytes:
    route = Route(link.framing, link.gid, group, source_port=link.source_port_for(1),
                  destination_port=link.port)
    burst = Burst()
    burst.data[: len(data)] = memoryview(data)
    burst.length = burst.stride = len(data)
    burst.route, burst.packets = route, 1
    assert link.send(burst) == SENT
    return data


def wait(link: RoceUdpLink | WrappedLink) -> bool:
    return bool(select.select([link.group_fileno()], [], [], WAIT_S)[0])


def test_members_get_what_is_sent_to_their_group_and_the_sender_does_not(links: list[RoceUdpLink]) -> None:
    for link in links:
        link.join(GROUP)
    data = send(links[0])
    arrival = Arrival()
    for link in links[1:]:
        assert wait(link)
        assert link.receive(arrival)
        assert bytes(arrival.data[: arrival.length]) == data
        assert arrival.destination == GROUP
        assert (arrival.source, arrival.framing) == (links[0].gid, links[0].framing)
        assert not link.receive(arrival)
    assert wait(links[0])
    assert not links[0].receive(arrival)
    assert links[0].receive_drops == 1


def test_who_has_left_gets_nothing_and_other_groups_are_others(links: list[RoceUdpLink]) -> None:
    left, stays, other = links
    left.join(GROUP)
    stays.join(GROUP)
    other.join(OTHER)
    left.leave(GROUP)
    left.leave(GROUP)
    send(links[0])
    assert wait(stays)
    arrival = Arrival()
    assert stays.receive(arrival)
    assert not select.select([left.group_fileno(), other.group_fileno()], [], [], 0)[0]
    assert not left.receive(arrival)
    assert not other.receive(arrival)


def test_what_comes_to_the_own_address_is_told_from_what_comes_to_a_group(links: list[RoceUdpLink]) -> None:
    sender, member, _ = links
    member.join(GROUP)
    send(sender, member.gid, b"alone....")
    send(sender, GROUP, b"together.")
    assert wait(member)
    assert select.select([member], [], [], WAIT_S)[0]
    arrival = Arrival()
    found = {}
    while member.receive(arrival):
        found[arrival.destination] = bytes(arrival.data[: arrival.length])
    assert found == {member.gid: b"alone....", GROUP: b"together."}


def test_joining_twice_is_once(links: list[RoceUdpLink]) -> None:
    links[1].join(GROUP)
    links[1].join(GROUP)
    send(links[0])
    assert wait(links[1])
    arrival = Arrival()
    assert links[1].receive(arrival)
    assert not links[1].receive(arrival)


@pytest.mark.parametrize("gid", [V4_MAPPED_PREFIX + bytes((10, 0, 0, 1)), bytes.fromhex("ff0e") + bytes(14)])
def test_what_is_no_group_of_the_links_ip_version_is_refused(links: list[RoceUdpLink], gid: bytes) -> None:
    with pytest.raises(OSError, match="no multicast group") as refused:
        links[0].join(gid)
    assert refused.value.errno == errno.EINVAL


def test_a_link_of_ipv6_joins_no_group_of_ipv4() -> None:
    members = groups.GroupSockets(bytes(15) + b"\1", 1, 0, 1 << 16, False)
    with pytest.raises(OSError, match="no multicast group") as refused:
        members.join(GROUP)
    assert refused.value.errno == errno.EINVAL
    members.close()


def test_frames_are_waited_for_beside_groups() -> None:
    members = groups.GroupSockets(bytes((127, 0, 0, 1)), 1, 0, 1 << 16, False)
    endpoint = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    assert len(members) == 0
    members.add_frames(endpoint, OTHER)
    assert (len(members), members.ready()) == (1, [])
    members.close()
    assert (len(members), endpoint.fileno()) == (0, -1)


def test_groups_are_bounded(links: list[RoceUdpLink], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groups, "MOST_GROUPS", 1)
    links[0].join(GROUP)
    with pytest.raises(OSError, match="1 groups at most") as refused:
        links[0].join(OTHER)
    assert refused.value.errno == errno.ENOBUFS
    links[0].leave(GROUP)
    links[0].join(OTHER)


def test_a_closed_link_is_in_no_group(links: list[RoceUdpLink]) -> None:
    links[1].join(GROUP)
    links[1].close()
    assert links[1].group_fileno() == -1
    with pytest.raises(OSError, match="closed") as refused:
        links[1].join(GROUP)
    assert refused.value.errno == errno.EBADF
    links[1].close()


def test_a_wrapped_link_joins_by_the_link_below(links: list[RoceUdpLink]) -> None:
    wrapped = WrappedLink(links[1])
    wrapped.join(GROUP)
    data = send(links[0])
    assert wait(wrapped)
    arrival = Arrival()
    assert wrapped.receive(arrival)
    assert bytes(arrival.data[: arrival.length]) == data
    wrapped.leave(GROUP)
    assert not wrapped.receive(arrival)


def test_a_group_that_cannot_be_waited_for_is_not_joined(monkeypatch: pytest.MonkeyPatch) -> None:
    """The system's bound of what all epolls of a user watch is reached: nothing is left of the socket."""
    joined = groups.GroupSockets(bytes((127, 9, 4, 5)), index_of_interface("lo"), 0, 1 << 16, False)
    refused: list[int] = []

    class Full:
        def register(self, member: socket.socket, _: int) -> None:
            refused.append(member.fileno())
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as scarce:
        scarce.setattr(joined, "_epoll", Full())
        with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)):
            joined.join(GROUP)
    with pytest.raises(OSError, match=os.strerror(errno.EBADF)):
        os.fstat(refused[0])
    assert len(joined) == 0
    joined.join(GROUP)
    assert len(joined) == 1
    joined.close()


@pytest.mark.parametrize("version", [4, 6])
def test_a_group_is_received_on_the_link_s_interface_alone(version: int) -> None:
    """Not what comes to the same group by an interface on which somebody else has joined it."""
    address = bytes((127, 9, 4, 5)) if version == 4 else bytes([0] * 15 + [1])
    group = GROUP if version == 4 else bytes((0xFF, 0x02, *[0] * 12, 9, 4))
    joined = groups.GroupSockets(address, index_of_interface("lo"), 0, 1 << 16, False)
    joined.join(group)
    (member,) = joined._sockets.values()
    level, option = (socket.IPPROTO_IP, 49) if version == 4 else (socket.IPPROTO_IPV6, 29)
    assert member.getsockopt(level, option) == 0  # IP_MULTICAST_ALL, IPV6_MULTICAST_ALL
    joined.close()


def test_who_leaves_one_group_is_a_member_of_the_other(links: list[RoceUdpLink]) -> None:
    for group in (GROUP, OTHER):
        links[1].join(group)
    links[1].leave(GROUP)
    data = send(links[0], OTHER)
    arrival = Arrival()
    assert wait(links[1])
    assert links[1].receive(arrival)
    assert (bytes(arrival.data[: arrival.length]), arrival.destination) == (data, OTHER)


def test_all_groups_for_which_something_has_come_are_told_at_once(links: list[RoceUdpLink]) -> None:
    one = groups.GroupSockets(bytes((127, 9, 4, 1)), index_of_interface("lo"), links[0].port, 1 << 16, False)
    try:
        for group in (GROUP, OTHER):
            one.join(group)
            send(links[1], group)
        assert sorted(gid for _, gid in one.ready()) == [GROUP, OTHER]
        one.leave(OTHER)
        assert [gid for _, gid in one.ready()] == [GROUP]
        assert (len(one), len(one._gids)) == (1, 1)
    finally:
        one.close()
