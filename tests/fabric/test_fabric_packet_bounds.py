"""Packets of adapters across a fabric: the first and the last of what there may be, and what is counted."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("scipy", reason="numpy and scipy: pip install 'softhca[fabric]'")

from packet_fabric import PacketFabric, datagram, packet, star

from softhca.fabric import packet_plane
from softhca.fabric.topology import End, LinkSpeed, LinkWidth, Topology
from softhca.management import constants as c
from softhca.management.mad import Mad, MadHeader


@pytest.fixture
def small() -> PacketFabric:
    """Three adapters at one switch."""
    return PacketFabric(star(), ["h0", "h1", "h2"])


@pytest.mark.parametrize("mlid", [0xC000, 0xC001, 0xC3FF])
def test_the_first_group_is_one(small: PacketFabric, mlid: int) -> None:
    guids = [node.port_guid(1) for node in small.mads.topology.nodes[1:]]
    small.manager.set_group(mlid, frozenset(guids), small.managed.now)
    small.managed.settle()
    one, two, three = small.adapters
    small.send(one, packet(one.lid, mlid))
    assert [len(each.got) for each in (one, two, three)] == [0, 1, 1]


@pytest.mark.parametrize("count", [1, 2, 3, 5])
def test_a_burst_counts_what_its_packets_do(small: PacketFabric, count: int) -> None:
    one, two, _ = small.adapters
    sent = packet(one.lid, two.lid, bytes(64))
    for burst in ([sent] * count, [sent]):
        before = one.port.state.words_sent
        small.send(one, *burst)
        assert one.port.state.words_sent - before == len(burst) * ((len(sent) - 2) // 4)
        assert two.port.state.words_received == one.port.state.words_sent


class Late:
    """A link that delivers everything at 500."""

    def send(self, data: bytes, now: int) -> list[Any]:
        return [SimpleNamespace(time_ns=500, data=data)]


def test_what_a_link_holds_back_has_a_bound_and_keeps_its_order(
    small: PacketFabric, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packet_plane, "MOST_HELD", 3)
    one, two, _ = small.adapters
    small.packets.side(End(0, 2)).faults = Late()
    small.packets.changed()
    sent = [packet(one.lid, two.lid, psn=psn) for psn in (9, 1, 5, 7, 8)]
    for each in sent:
        small.send(one, each)
    assert small.count("drops_full") == 2
    small.packets.expire(500)
    assert two.got == sent[:3]


@pytest.mark.parametrize("mlid", [0xC000, 0xC001])
def test_a_group_s_packet_that_a_link_holds_back_goes_on_to_all(small: PacketFabric, mlid: int) -> None:
    guids = [node.port_guid(1) for node in small.mads.topology.nodes[1:]]
    small.manager.set_group(mlid, frozenset(guids), small.managed.now)
    small.managed.settle()
    one, two, three = small.adapters
    small.packets.side(End(1, 1)).faults = Late()
    small.packets.changed()
    small.send(one, packet(one.lid, mlid))
    assert small.packets.next_deadline_ns == 500
    small.packets.expire(499)
    assert (two.got, three.got) == ([], [])
    small.packets.expire(500)
    assert [len(each.got) for each in (one, two, three)] == [0, 1, 1]


def test_the_permissive_lid_is_no_group_of_packets(small: PacketFabric) -> None:
    one = small.adapters[0]
    switch = small.mads.nodes[0]
    switch.multicast[(0xFFFF - 0xC000) // 32] = b"\xff" * 64
    small.send(one, packet(one.lid, 0xFFFF))
    assert (small.count("drops_no_route"), one.port.state.words_sent) == (1, 0)
    assert [each.got for each in small.adapters] == [[], [], []]


def test_paths_that_are_kept_have_a_bound(small: PacketFabric, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packet_plane, "MOST_PATHS", 4)
    one, two, three = small.adapters
    for sl in range(8):
        for peer in (two, three):
            small.send(one, packet(one.lid, peer.lid, sl=sl))
            assert len(small.packets._paths) <= 5
    assert (len(two.got), len(three.got)) == (8, 8)


@pytest.mark.parametrize(("vls", "lanes"), [(1, 1), (2, 2), (3, 4), (4, 8), (5, 15)])
def test_a_port_has_as_many_lanes_as_are_in_operation(small: PacketFabric, vls: int, lanes: int) -> None:
    one, two, _ = small.adapters
    leaving = small.mads.nodes[0].port(2)
    assert leaving is not None
    leaving.sl_to_vl[1] = bytes.fromhex("0123456789abcdef")  # each service level has its own lane
    leaving.change(operational_vls=vls)
    small.mads.epoch += 1
    for sl in range(16):
        small.send(one, packet(one.lid, two.lid, sl=sl))
    assert (len(two.got), small.count("drops_lane")) == (lanes, 16 - lanes)


@pytest.mark.parametrize(
    ("speed", "said"),
    [(LinkSpeed.SDR, 1), (LinkSpeed.DDR, 2), (LinkSpeed.QDR, 4), (LinkSpeed.FDR, 16), (LinkSpeed.EDR, 32),
     (LinkSpeed.HDR, 64), (LinkSpeed.NDR, 128), (LinkSpeed.XDR, 256)],
)  # fmt: skip
def test_an_adapter_is_told_its_link_s_speed_as_verbs_have_it(speed: LinkSpeed, said: int) -> None:
    plain = star()
    links = tuple(replace(link, speed=speed) for link in plain.links)
    fabric = PacketFabric(Topology(plain.nodes, links), ["h0"])
    facts = fabric.adapters[0].port.facts()
    assert (facts["speed"], facts["width"]) == (said, LinkWidth.X4.code)


def test_a_stalled_adapter_gets_no_answers_either(small: PacketFabric) -> None:
    one, two, _ = small.adapters
    two.room = False
    small.send(one, packet(one.lid, two.lid))
    small.packets.expire(packet_plane.LIFETIME_NS)
    assert two.port.stalled
    header = MadHeader(management_class=c.CLASS_PERF, method=1, attribute_id=c.ATTRIBUTE_PORT_COUNTERS)
    asked = datagram(two.lid, small.manager.own_lid, Mad.make(header).encode(), 1)
    small.send(two, asked)
    assert small.mads.counters["drops_full"] == 1
    assert list(two.port.backlog) == []


def test_a_switch_that_is_a_member_is_nowhere_to_send_to(small: PacketFabric) -> None:
    nodes = small.mads.topology.nodes
    guids = frozenset({nodes[0].port_guid(0), nodes[1].port_guid(1), nodes[2].port_guid(1)})
    small.manager.set_group(0xC000, guids, small.managed.now)
    small.managed.settle()
    assert 0 in small.mads.nodes[0].multicast_ports(0xC000)
    one, two, three = small.adapters
    small.send(one, packet(one.lid, 0xC000))
    assert [len(each.got) for each in (one, two, three)] == [0, 1, 0]
    assert small.count("drops_no_route") == 0
