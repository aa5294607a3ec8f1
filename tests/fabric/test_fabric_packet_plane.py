"""Packets of adapters across a fabric in real time: where they come to, and what becomes of the others."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

pytest.importorskip("scipy", reason="numpy and scipy: pip install 'softhca[fabric]'")

from mad_tools import Tool
from packet_fabric import ListAdapter, PacketFabric, datagram, mad, packet, read, star, state_of

from softhca.fabric.generators import fat_tree, torus
from softhca.fabric.manager.manager import ManagerConfig
from softhca.fabric.packet_plane import MOST_BACKLOG
from softhca.fabric.port_state import ACTIVE, DOWN, INIT
from softhca.fabric.topology import End
from softhca.management import constants as c
from softhca.management.attributes import PortInfo
from softhca.management.mad import Mad
from softhca.management.performance_attributes import PortCounters, PortRcvDataSL, PortXmitDataSL
from softhca.wire import vcrc


@pytest.fixture
def tree() -> PacketFabric:
    return PacketFabric(fat_tree(4), ["h0", "h1", "h15"])


@pytest.fixture
def small() -> PacketFabric:
    return PacketFabric(star(), ["h0", "h1", "h2"])


def test_a_packet_comes_as_it_was_sent_and_is_counted_at_each_port_of_its_way(tree: PacketFabric) -> None:
    one, _, far = tree.adapters
    sent = packet(one.lid, far.lid, bytes(100))
    tree.send(one, sent)
    assert far.got == [sent]
    assert tree.count("packets_delivered") == 1
    ports = [port for node in tree.mads.nodes for port in node.ports if port is not None and port.data_sent]
    assert len(ports) == 6  # host, leaf, spine of the pod, root, and down again
    assert {port.words_sent for port in ports} == {(len(sent) - 2) // 4}
    assert far.port.state.data_received == 1
    assert far.port.state.total("rcv_data") - far.port.state.received * 72 == (len(sent) - 2) // 4


def test_words_are_counted_by_service_level_on_plain_ways_and_on_others(tree: PacketFabric) -> None:
    one, _, far = tree.adapters
    plain, faulty = packet(one.lid, far.lid, bytes(100), sl=3), packet(one.lid, far.lid, bytes(20), sl=15)
    tree.send(one, plain, plain)
    tree.packets.side(one.port.end).taps.append(lambda data, now: None)
    tree.packets.changed()
    tree.send(one, faulty)
    assert len(far.got) == 3
    words = {3: 2 * ((len(plain) - 2) // 4), 15: (len(faulty) - 2) // 4}
    for level in range(16):
        assert one.port.state.total(f"xmit_data_sl{level}") == words.get(level, 0)
        assert far.port.state.total(f"rcv_data_sl{level}") == words.get(level, 0)
        assert one.port.state.total(f"rcv_data_sl{level}") == 0
    tool = Tool(tree.mads, (one.port.end.node, 1))
    for attribute, layout, lid in (
        (c.ATTRIBUTE_PORT_XMIT_DATA_SL, PortXmitDataSL, one.lid),
        (c.ATTRIBUTE_PORT_RCV_DATA_SL, PortRcvDataSL, far.lid),
    ):
        asked = layout(port_select=1, counter_select=1 << 3)
        for method, third in ((c.METHOD_GET, words[3]), (c.METHOD_SET, 0)):
            answer = tool.general(method, attribute, asked, lid)
            assert answer is not None
            assert answer.header.status == 0
            told = layout.decode(answer.data)
            counted = [getattr(told, field.name) for field in layout.LAYOUT[3:]]
            assert counted == [{3: third, 15: words[15]}.get(level, 0) for level in range(16)]


def test_a_burst_of_one_way_crosses_whole_and_others_are_taken_apart_in_order(small: PacketFabric) -> None:
    one, two, three = small.adapters
    same = [packet(one.lid, two.lid, bytes(64), psn=n) for n in range(5)]
    last = packet(one.lid, two.lid, bytes(8), psn=5)
    small.send(one, *same, last)
    assert two.got == [*same, last]
    assert two.strides == [len(same[0])]
    other = packet(one.lid, three.lid, bytes(64))
    small.send(one, same[0], other, same[1])
    assert three.got == [other]
    assert two.got[6:] == same[:2]
    assert small.count("packets_delivered") == 9


def test_global_routes_and_raw_packets_go_by_lid_alike(small: PacketFabric) -> None:
    one, two, _ = small.adapters
    found = packet(one.lid, two.lid, bytes(60), grh=True)
    raw = bytearray(packet(one.lid, two.lid, bytes(60)))
    raw[1] &= ~3
    small.send(one, found)
    small.send(one, bytes(raw))
    assert two.got == [found, bytes(raw)]


@pytest.mark.parametrize(
    ("at", "value"),
    [(0, 0x01), (1, 0x06), (4, 0xFF), (5, 0x00), (5, 0xFF)],
    ids=["version", "reserved", "long", "short", "longer"],
)
def test_what_is_no_packet_is_counted_and_what_is_beside_it_arrives(
    small: PacketFabric, at: int, value: int
) -> None:
    one, two, _ = small.adapters
    good = packet(one.lid, two.lid, bytes(64))
    bad = bytearray(good)
    bad[at] = value
    small.send(one, good, bytes(bad), good)
    assert two.got == [good, good]
    assert small.count("drops_malformed") == 1


def test_lengths_are_whole_words_and_hold_a_transport_header(small: PacketFabric) -> None:
    one, two, _ = small.adapters
    odd = packet(one.lid, two.lid) + b"\0"
    cut = bytearray(packet(one.lid, two.lid, bytes(28)))  # 54 bytes, too few for a GRH and a BTH
    cut[1] |= 1
    for each in (odd, bytes(cut)):
        small.send(one, each)
    assert (two.got, small.count("drops_malformed")) == ([], 2)


@pytest.mark.parametrize("stride", [0, 1, 21, 5000, 1 << 31])
def test_a_burst_with_a_stride_that_cannot_be_is_dropped(small: PacketFabric, stride: int) -> None:
    one, two, _ = small.adapters
    data = bytearray(packet(one.lid, two.lid))
    small.packets.send(one.port, memoryview(data), stride, 0)
    assert two.got == []
    assert small.count("drops_malformed") == 1


def test_hostile_bursts_are_counted_packet_by_packet(small: PacketFabric) -> None:
    one, dice = small.adapters[0], Random(7)
    good = [packet(one.lid, lid, bytes(4 * size)) for lid in (1, 2, 3, 4, 0xC001) for size in (0, 9)]
    good.append(datagram(one.lid, 1, bytes(256), 0))
    for _ in range(1500):
        stride = dice.choice([len(dice.choice(good)), dice.randrange(5000)])
        data = bytearray(b"".join(dice.choice(good) for _ in range(dice.randrange(1, 5))))
        for _ in range(dice.randrange(3)):
            data[dice.randrange(len(data))] = dice.randrange(256)
        small.packets.send(one.port, memoryview(data[: dice.randrange(1, len(data) + 1)]), stride, 0)
    assert min(small.count(fate) for fate in ("drops_malformed", "drops_no_route", "packets_delivered")) > 0
    assert not small.packets._held
    for adapter in small.adapters:
        adapter.port.info()


def test_nobody_sends_in_another_s_name(small: PacketFabric) -> None:
    one, two, three = small.adapters
    for source in (three.lid, 0, 0xFFFF):
        small.send(one, packet(source, two.lid))
    assert two.got == []
    assert small.count("drops_source") == 3


def test_a_port_without_a_lid_has_no_name_to_send_in(small: PacketFabric) -> None:
    one, two, _ = small.adapters
    one.port.state.change(lid=0)
    small.send(one, packet(0, two.lid))
    assert (two.got, small.count("drops_source")) == ([], 1)


def test_a_way_back_by_the_port_that_a_packet_came_by_is_none(small: PacketFabric) -> None:
    one, two, _ = small.adapters
    small.mads.nodes[0].linear[two.lid] = 1
    small.mads.epoch += 1
    small.send(one, packet(one.lid, two.lid))
    assert small.count("drops_no_route") == 1
    assert state_of(small, "s", 1).counts == {"rcv_switch_relay_errors": 1}


@pytest.mark.parametrize("state", [INIT, 3])
def test_data_cross_links_that_are_active_alone(small: PacketFabric, state: int) -> None:
    one, two, _ = small.adapters
    state_of(small, "s", 2).change(state=state)
    small.mads.epoch += 1
    small.send(one, packet(one.lid, two.lid))
    assert (two.got, small.count("drops_link_down")) == ([], 1)


def test_a_burst_of_another_lane_is_put_on_that_of_its_way(small: PacketFabric) -> None:
    one, two, _ = small.adapters
    small.send(one, *(packet(one.lid, two.lid, sl=3, psn=n) for n in range(3)))
    assert two.strides == [len(two.got[0])]
    lanes: list[Any] = [read(each).network[0] for each in two.got]
    assert [(each.sl, each.vl) for each in lanes] == [(3, 0)] * 3


@pytest.mark.parametrize("destination", [0, 0x4000, 0xC000, 0xFFFF])
def test_lids_that_lead_nowhere(small: PacketFabric, destination: int) -> None:
    one = small.adapters[0]
    small.send(one, packet(one.lid, destination))
    assert small.count("drops_no_route") == 1


def test_a_port_without_an_adapter_and_a_switch_take_nothing(tree: PacketFabric) -> None:
    one = tree.adapters[0]
    switch = tree.manager.own_lid
    empty = state_of(tree, "h7", 1).info.lid
    tree.send(one, packet(one.lid, empty))
    tree.send(one, packet(one.lid, switch))
    assert tree.count("drops_nobody") == 1
    assert tree.count("drops_no_route") == 1


def test_tables_that_lead_in_a_circle_end_a_packet(tree: PacketFabric) -> None:
    one, _, far = tree.adapters
    for node in tree.mads.nodes:
        if node.is_switch:  # all go down by their first port or up by their last: leaf and spine, in turns
            node.linear[far.lid] = 3 if node.node.name.startswith("s1") else 1
    tree.mads.epoch += 1
    tree.send(one, packet(one.lid, far.lid))
    assert tree.count("drops_loop") + tree.count("drops_no_route") + tree.count("drops_wrong_lid") == 1
    assert far.got == []


def test_a_failed_link_stops_packets_until_the_manager_leads_past_it(tree: PacketFabric) -> None:
    one, _, far = tree.adapters
    tree.send(one, packet(one.lid, far.lid))
    used = next(port for port in (3, 4) if state_of(tree, "s1-0", port).data_sent)
    link = tree.mads.topology.link_at(tree.mads.topology.index("s1-0"), used)
    assert link is not None
    tree.mads.fail(link, tree.managed.now)
    tree.send(one, packet(one.lid, far.lid))
    assert (len(far.got), tree.count("drops_link_down")) == (1, 1)
    assert state_of(tree, "s1-0", used).counts["xmit_discards"] == 1
    tree.sweep()
    tree.send(one, packet(one.lid, far.lid))
    assert len(far.got) == 2
    assert state_of(tree, "s1-0", 7 - used).data_sent == 1


def test_a_host_hears_that_its_link_has_failed_and_has_come_back(small: PacketFabric) -> None:
    one = small.adapters[0]
    assert one.port.info()["state"] == ACTIVE
    small.mads.fail(0, small.managed.now)
    assert [each["state"] for each in one.infos] == [DOWN]
    small.sweep()
    small.mads.restore(0, small.managed.now)
    assert one.infos[-1]["state"] == INIT
    small.sweep()
    assert one.infos[-1]["state"] == ACTIVE
    assert one.infos[-1]["lid"] == one.lid
    assert one.infos[-1]["pkeys"] == [0xFFFF]


def test_a_port_without_a_lid_is_no_more_than_in_init() -> None:
    fabric = PacketFabric(star(), [])
    fabric.mads.nodes[1].ports[1].change(lid=0)  # type: ignore[union-attr]
    adapter = ListAdapter(fabric.packets, End(1, 1))
    assert adapter.port.info()["state"] == INIT


def test_lanes_are_those_of_the_tables_and_crcs_are_right() -> None:
    fabric = PacketFabric(torus((4,)), ["h0", "h1", "h2", "h3"], ManagerConfig(1, engine="dimension-order"))
    assert fabric.manager.fabric.routes is not None
    assert fabric.manager.fabric.routes.routing.lanes == 2
    between: set[tuple[int, int]] = set()

    def tap(data: bytes, now: int) -> None:
        link: Any = read(data).network[0]
        between.add((link.sl, link.vl))

    for link in fabric.mads.topology.links:
        if fabric.mads.nodes[link.end_a.node].is_switch and fabric.mads.nodes[link.end_b.node].is_switch:
            for end in (link.end_a, link.end_b):
                fabric.packets.side(end).taps.append(tap)
    fabric.packets.changed()
    for one in fabric.adapters:
        for other in fabric.adapters:
            for sl in range(3):
                if one is not other:
                    sent = packet(one.lid, other.lid, bytes(4 * sl), sl=sl)
                    fabric.send(one, sent)
                    got: Any = read(other.got.pop())
                    assert got.network[0].vl == 0  # a host's link has one lane
                    assert got.transport == read(sent).transport
    assert between == {(0, 0), (1, 1), (2, 0)}


def test_a_service_level_without_a_lane_is_dropped(small: PacketFabric) -> None:
    one, two, _ = small.adapters
    leaving = state_of(small, "s", 2)
    leaving.sl_to_vl[1] = bytes.fromhex("0f12000000000000")  # SL 1 is lane 15, SL 2 lane 1, SL 3 lane 2
    small.mads.epoch += 1
    for sl in range(4):
        small.send(one, packet(one.lid, two.lid, sl=sl))
    assert len(two.got) == 1
    assert small.count("drops_lane") == 3
    leaving.change(operational_vls=2)
    small.mads.epoch += 1
    small.send(one, packet(one.lid, two.lid, sl=2))
    assert read(two.got[1]).network[0].vl == 1  # type: ignore[attr-defined]


def test_packets_beyond_a_link_s_mtu_are_dropped(small: PacketFabric) -> None:
    one, two, _ = small.adapters
    state_of(small, "s", 2).change(neighbor_mtu=1)
    small.mads.epoch += 1
    small.send(one, packet(one.lid, two.lid, bytes(256)))
    small.send(one, packet(one.lid, two.lid, bytes(1024)))
    assert len(two.got) == 1
    assert small.count("drops_length") == 1


@pytest.mark.parametrize("side", ["outbound", "inbound"])
def test_a_switch_that_enforces_partitions_lets_only_its_keys_pass(small: PacketFabric, side: str) -> None:
    one, two, _ = small.adapters
    port = state_of(small, "s", 2 if side == "outbound" else 1)
    port.change(**{f"partition_enforcement_{side}": 1})
    port.set_pkeys(0, b"\x80\x05".ljust(64, b"\0"))
    small.mads.epoch += 1
    for pkey in (0x0005, 0x8005, 0xFFFF, 0):
        small.send(one, packet(one.lid, two.lid, pkey=pkey), packet(one.lid, two.lid, pkey=pkey))
    assert [read(each).transport.bth.pkey for each in two.got] == [5, 5, 0x8005, 0x8005]
    assert small.count("drops_pkey") == 4


def test_both_ends_of_a_link_between_switches_enforce(tree: PacketFabric) -> None:
    one, _, far = tree.adapters
    tree.send(one, packet(one.lid, far.lid))
    leaving = next(port for port in (3, 4) if state_of(tree, "s1-0", port).data_sent)
    peer = tree.mads.topology.peer(tree.mads.topology.index("s1-0"), leaving)
    assert peer is not None
    entering = tree.mads.nodes[peer.node].ports[peer.port]
    assert entering is not None
    for port, name, keys in (
        (state_of(tree, "s1-0", leaving), "outbound", b"\x80\5\x80\6"),
        (entering, "inbound", b"\x80\6\x80\7"),
    ):
        port.change(**{f"partition_enforcement_{name}": 1})
        port.set_pkeys(0, keys.ljust(64, b"\0"))
    tree.mads.epoch += 1
    for key in (5, 6, 7):
        tree.send(one, packet(one.lid, far.lid, pkey=key))
    assert [read(each).transport.bth.pkey for each in far.got[1:]] == [6]


# management


def test_the_fabric_s_agents_answer_adapters(small: PacketFabric) -> None:
    one, two, _ = small.adapters
    small.send(one, datagram(0xFFFF, 0xFFFF, mad(c.CLASS_SUBN_DIRECTED, c.ATTRIBUTE_NODE_INFO), 0, 0))
    small.send(one, datagram(one.lid, two.lid, mad(c.CLASS_SUBN_LID, c.ATTRIBUTE_PORT_INFO, 1), 0, 0))
    asked = bytearray(mad(c.CLASS_PERF, c.ATTRIBUTE_PORT_COUNTERS))
    asked[65] = 2
    small.send(one, datagram(one.lid, small.manager.own_lid, bytes(asked), 1))
    answers = [read(each) for each in one.got]
    assert two.got == []
    assert small.count("packets_management") == 3
    mads = [Mad.decode(each.transport.payload).header for each in answers]
    assert [each.method for each in mads] == [0x81] * 3
    assert {each.transaction_id for each in mads} == {0x1234_5678_9ABC}
    assert [each.transport.bth.dest_qp for each in answers] == [0, 0, 1]
    lrh: Any = [each.network[0] for each in answers]
    assert [(each.vl, each.slid) for each in lrh] == [(15, 0xFFFF), (15, two.lid), (0, small.manager.own_lid)]
    assert PortInfo.decode(answers[1].transport.payload, 64).lid == two.lid
    counted = PortCounters.decode(answers[2].transport.payload, 64)
    assert counted.xmit_pkts == state_of(small, "s", 2).total("xmit_pkts")


def test_other_datagrams_go_to_the_adapter_that_they_are_for(small: PacketFabric) -> None:
    one, two, _ = small.adapters
    request = datagram(one.lid, two.lid, mad(c.CLASS_COMM_MGT, 0x10, method=3), 1)
    data = packet(one.lid, two.lid, bytes(256 + 8))
    assert len(request) == len(data)
    small.send(one, data, request, data)
    assert two.got == [data, request, data]
    forged = datagram(one.lid, two.lid, mad(c.CLASS_PERF, c.ATTRIBUTE_PORT_COUNTERS), 1, qkey=5)
    small.send(one, forged)  # its adapter refuses it
    assert two.got[3:] == [forged]


def test_a_datagram_amid_packets_of_its_way_is_taken_out(small: PacketFabric) -> None:
    one, two, _ = small.adapters
    request = datagram(one.lid, two.lid, mad(c.CLASS_PERF, c.ATTRIBUTE_PORT_COUNTERS), 1)
    data = packet(one.lid, two.lid, bytes(256 + 8))
    small.send(one, data, request, data, data)
    small.send(one, request, data)
    assert two.got == [data] * 4
    assert [read(each).transport.bth.dest_qp for each in one.got] == [1, 1]


def test_damaged_datagrams_are_no_datagrams(small: PacketFabric) -> None:
    one = small.adapters[0]
    sound = datagram(one.lid, small.manager.own_lid, mad(c.CLASS_PERF, c.ATTRIBUTE_PORT_COUNTERS), 1)
    for at in (-1, -4, 60):
        data = bytearray(sound)
        data[at] ^= 1
        if at == -4:
            data[-2:] = vcrc.compute(data[:-2]).to_bytes(2, "little")
        small.send(one, bytes(data))
    assert one.got == []
    assert small.count("drops_no_route") == 3


def test_answers_wait_for_an_adapter_without_room_within_bounds(small: PacketFabric) -> None:
    one = small.adapters[0]
    one.room = False
    asked = datagram(one.lid, small.manager.own_lid, mad(c.CLASS_PERF, c.ATTRIBUTE_PORT_COUNTERS), 1)
    for _ in range(MOST_BACKLOG + 5):
        small.send(one, asked)
    assert small.mads.counters["drops_full"] == 5
    one.room = True
    small.packets.has_room(one.port, 0)
    assert len(one.got) == MOST_BACKLOG


def test_requests_that_no_tool_takes_are_the_adapter_s(small: PacketFabric) -> None:
    one, two, _ = small.adapters
    heard: list[Any] = []
    tool = small.mads.attach(two.port.end, lambda datagram: heard.append(datagram) is None)
    from softhca.fabric.mad_plane import Datagram

    asker = small.mads.attach(one.port.end, lambda datagram: True)
    ping = mad(0x32, 1)
    small.mads.send(asker, Datagram(two.lid, one.lid, 1, 1, ping), 0)
    assert len(heard) == 1
    tool.has_asked = True
    small.mads.send(asker, Datagram(two.lid, one.lid, 1, 1, ping), 0)
    assert len(heard) == 1
    assert read(two.got[0]).transport.bth.dest_qp == 1
