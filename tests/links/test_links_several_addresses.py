"""One link for several IP addresses of a port."""

from __future__ import annotations

import errno
import select
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from wooden_link import Wooden

from softhca.links import several_addresses
from softhca.links.link import AGAIN, NEVER, SENT
from softhca.links.roce_udp import RoceUdpLink
from softhca.links.several_addresses import SeveralAddresses
from softhca.wire.burst import Arrival, Burst
from softhca.wire.framing import ROCE_V4
from softhca.wire.route import V4_MAPPED_PREFIX, Route

GROUP = V4_MAPPED_PREFIX + bytes((239, 9, 5, 1))
ONE, OTHER = (V4_MAPPED_PREFIX + bytes((10, 0, 0, n)) for n in (1, 2))
SIX = bytes.fromhex("20010db8" + "00" * 11 + "01")
SIX_GROUP = bytes.fromhex("ff0e" + "00" * 13 + "09")
STRANGER = V4_MAPPED_PREFIX + bytes((10, 0, 0, 77))
WAIT_S = 10


@pytest.fixture
def three() -> Iterator[tuple[SeveralAddresses, RoceUdpLink]]:
    """A link of two addresses, and one of another one, with one UDP port, which is nobody else's."""
    with ExitStack() as stack:
        first = stack.enter_context(RoceUdpLink("127.9.5.1", 0))
        second = stack.enter_context(RoceUdpLink("127.9.5.2", first.port))
        peer = stack.enter_context(RoceUdpLink("127.9.5.3", first.port))
        joined = SeveralAddresses([first, second])
        stack.callback(joined.close)
        yield joined, peer


def burst_to(link: Any, source: bytes, destination: bytes, port: int, data: bytes = b"x" * 64) -> Burst:
    burst = Burst()
    burst.data[: len(data)] = memoryview(data)
    burst.length = burst.stride = len(data)
    burst.route = Route(
        ROCE_V4, source, destination, link.source_port_for(1, destination, source), destination_port=port
    )
    burst.packets = 1
    return burst


def test_what_is_sent_leaves_from_the_address_that_its_route_begins_at(
    three: tuple[SeveralAddresses, RoceUdpLink],
) -> None:
    joined, peer = three
    arrival = Arrival()
    for own in joined.gids:
        burst = burst_to(joined, own, peer.gid, peer.port)
        assert joined.send(burst) == SENT
        assert select.select([peer.fileno()], [], [], WAIT_S)[0]
        assert peer.receive(arrival)
        assert burst.route is not None
        assert (arrival.source, arrival.source_port) == (own, burst.route.source_port)
    burst = burst_to(joined, joined.gid, peer.gid, peer.port)
    burst.route = Route(ROCE_V4, ONE, peer.gid, 0xC000, destination_port=peer.port)
    assert joined.send(burst) == -errno.EADDRNOTAVAIL
    assert joined.counters()["bursts_sent"] == 2


def test_what_comes_to_any_address_is_received_in_turns(
    three: tuple[SeveralAddresses, RoceUdpLink],
) -> None:
    joined, peer = three
    arrival = Arrival()
    for to in (joined.gids[0], joined.gids[0], joined.gids[1], joined.gids[1]):
        assert peer.send(burst_to(peer, peer.gid, to, peer.port)) == SENT
    assert select.select([joined.fileno()], [], [], WAIT_S)[0]
    found = []
    while len(found) < 4:
        if joined.receive(arrival):
            found.append(arrival.destination)
    assert found == [*joined.gids, *joined.gids]
    assert not joined.receive(arrival)
    assert not select.select([joined.fileno()], [], [], 0)[0]


def test_a_group_is_joined_once_and_gives_nothing_back_of_what_left_here(
    three: tuple[SeveralAddresses, RoceUdpLink],
) -> None:
    joined, peer = three
    joined.join(GROUP)
    for own in joined.gids:
        assert joined.send(burst_to(joined, own, GROUP, peer.port, b"own" + bytes(61))) == SENT
    assert peer.send(burst_to(peer, peer.gid, GROUP, peer.port)) == SENT
    arrival, found = Arrival(), []
    while not found:
        assert select.select([joined.group_fileno()], [], [], WAIT_S)[0]
        while joined.receive(arrival):
            found.append((arrival.source, arrival.destination))
    assert found == [(peer.gid, GROUP)]
    assert joined.counters()["receive_drops"] == 2
    joined.leave(GROUP)
    assert peer.send(burst_to(peer, peer.gid, GROUP, peer.port)) == SENT
    assert not select.select([joined.group_fileno()], [], [], 0.05)[0]
    with pytest.raises(OSError, match="IP version") as refused:
        joined.join(bytes((0xFF, 0x0E)) + bytes(13) + b"\1")
    assert refused.value.errno == errno.EINVAL
    joined.leave(bytes((0xFF, 0x0E)) + bytes(13) + b"\1")


@pytest.fixture
def wooden() -> Iterator[list[Wooden]]:
    made = [Wooden(ONE), Wooden(SIX, 1024), Wooden(OTHER, 2048, True)]
    yield made
    for each in made:
        if each.pipe[0] >= 0:
            each.close()


def test_each_question_goes_to_the_link_that_it_is_about(wooden: list[Wooden]) -> None:
    joined = SeveralAddresses(wooden)
    one, six, other = wooden
    assert (joined.gids, joined.gid, joined.active_mtu) == ((ONE, SIX, OTHER), ONE, 1024)
    assert joined.sees_packets
    joined.source_port_for(5, None, OTHER)
    joined.source_port_for(6, SIX)
    joined.source_port_for(7)
    joined.preserves_bursts(SIX)
    joined.listen_for_frames()
    assert one.said == [("port", 7, None), "frames"]
    assert six.said == [("port", 6, SIX), ("near", SIX)]
    assert other.said == [("port", 5, None)]
    for source in (None, STRANGER):
        joined.source_port_for(8, ONE, source)
        joined.source_port_for(9, SIX, source)
    assert one.said[2:] == [("port", 8, ONE)] * 2
    assert six.said[2:] == [("port", 9, SIX)] * 2
    joined.close()


def test_a_group_is_joined_at_the_first_address_of_its_version(wooden: list[Wooden]) -> None:
    joined = SeveralAddresses(wooden)
    for group in (GROUP, SIX_GROUP):
        joined.join(group)
        joined.leave(group)
    assert [each.said for each in wooden] == [
        [("join", GROUP), ("leave", GROUP)], [("join", SIX_GROUP), ("leave", SIX_GROUP)], [],
    ]  # fmt: skip
    joined.close()


def test_the_turn_goes_on_behind_the_address_that_had_something(wooden: list[Wooden]) -> None:
    joined, arrival = SeveralAddresses(wooden), Arrival()
    wooden[1].waiting = [(STRANGER, SIX)] * 2
    wooden[2].waiting = [(STRANGER, OTHER)]
    found = []
    while joined.receive(arrival):
        found.append(arrival.destination)
    assert found == [SIX, OTHER, SIX]
    joined.close()


def test_of_its_own_packets_those_to_a_group_alone_are_dropped(wooden: list[Wooden]) -> None:
    joined, arrival = SeveralAddresses(wooden), Arrival()
    wooden[0].waiting = [(OTHER, GROUP), (OTHER, ONE)]
    wooden[2].waiting = [(ONE, OTHER)]
    assert joined.receive(arrival)
    assert (arrival.source, arrival.destination) == (OTHER, ONE)  # behind a copy, in the same turn
    assert joined.receive(arrival)
    assert (arrival.source, arrival.destination) == (ONE, OTHER)
    assert joined.counters()["receive_drops"] == 1
    joined.close()


def test_what_is_held_back_and_counted_is_that_of_all(wooden: list[Wooden]) -> None:
    joined = SeveralAddresses(wooden)
    assert joined.next_deadline() == NEVER
    wooden[1].due = 70
    assert joined.next_deadline() == 70
    assert not joined.expire(69)
    assert joined.expire(70)
    assert [each.said for each in wooden] == [[69, 70]] * 3
    assert joined.counters() == {"sent": 6, "receive_drops": 0}
    assert joined.shown_counters() == {"shown": 9}
    joined.close()


def test_a_burst_is_abandoned_where_it_had_no_room(wooden: list[Wooden]) -> None:
    joined = SeveralAddresses(wooden)
    burst = burst_to(joined, OTHER, ONE, 4791)
    wooden[2].answer = AGAIN
    assert joined.send(burst) == AGAIN
    joined.abandon(burst)
    joined.abandon(burst)
    assert [each.said.count("abandon") for each in wooden] == [0, 0, 1]
    wooden[2].answer = SENT
    assert joined.send(burst) == SENT
    joined.abandon(burst)
    assert wooden[2].said.count("abandon") == 1
    joined.close()
    assert (joined.fileno(), joined.group_fileno()) == (-1, -1)


def test_where_nothing_can_wait_for_all_of_them_they_are_closed(
    wooden: list[Wooden], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse() -> None:
        raise OSError(errno.EMFILE, "too many")

    monkeypatch.setattr(several_addresses.select, "epoll", refuse)
    with pytest.raises(OSError, match="too many"):
        SeveralAddresses(wooden)
    assert [each.pipe for each in wooden] == [(-1, -1)] * 3


@pytest.mark.parametrize("refused", [0, 1])
def test_what_waits_for_them_is_closed_where_one_cannot_be_waited_for(
    wooden: list[Wooden], monkeypatch: pytest.MonkeyPatch, refused: int
) -> None:
    """``refused``: the epoll of packets, or that of groups, refuses its first link."""
    made: list[Any] = []

    class Refusing:
        def __init__(self) -> None:
            self.closed = False
            made.append(self)

        def register(self, descriptor: int, events: int) -> None:
            if len(made) > refused:
                raise OSError(errno.ENOSPC, "too many are watched")

        def close(self) -> None:
            self.closed = True

    for each in wooden:
        monkeypatch.setattr(each, "group_fileno", each.fileno)
    monkeypatch.setattr(several_addresses.select, "epoll", Refusing)
    with pytest.raises(OSError, match="too many are watched"):
        SeveralAddresses(wooden)
    assert [each.closed for each in made] == [True] * (refused + 1)
