"""Packets of adapters across a fabric: the first and the last of what there may be, and what is counted."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("scipy", reason="numpy and scipy: pip install 'softhca[fabric]'")

from packet_fabric import PacketFabric, datagram, packet, star

from softhca.fabric import packet_plane
from softhca.fabric.topology import End
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
