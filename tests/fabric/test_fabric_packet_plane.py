"""Packets of adapters across a fabric in real time: where they come to, and what becomes of the others."""

from __future__ import annotations

from random import Random
from typing import Any, NamedTuple

import pytest

pytest.importorskip("scipy", reason="numpy and scipy: pip install 'softhca[fabric]'")

from mad_tools import Tool
from packet_fabric import ListAdapter, PacketFabric, datagram, packet, read

from softhca.fabric.generators import fat_tree, torus
from softhca.fabric.manager.manager import ManagerConfig
from softhca.fabric.packet_plane import LIFETIME_NS, MOST_BACKLOG, MOST_COPIES, NEVER_NS
from softhca.fabric.port_state import ACTIVE, DOWN, INIT, PortState
from softhca.fabric.topology import End, Link, NodeKind, Topology, make_node
from softhca.management import constants as c
from softhca.management.attributes import PortInfo
from softhca.management.directed_route import DirectedRoute
from softhca.management.mad import Mad, MadHeader
from softhca.management.performance_attributes import PortCounters, PortRcvDataSL, PortXmitDataSL
from softhca.wire import vcrc


def star(hosts: int = 3) -> Topology:
    """One switch."""
    nodes = [make_node("s", NodeKind.SWITCH, hosts, 0x100)]
    nodes += [make_node(f"h{n}", NodeKind.CHANNEL_ADAPTER, 1, 0x1000 + 16 * n) for n in range(hosts)]
    return Topology(tuple(nodes), tuple(Link(End(0, n + 1), End(n + 1, 1)) for n in range(hosts)))


@pytest.fixture
def tree() -> PacketFabric:
    return PacketFabric(fat_tree(4), ["h0", "h1", "h15"])


@pytest.fixture
def small() -> PacketFabric:
    return PacketFabric(star(), ["h0", "h1", "h2"])


def state_of(fabric: PacketFabric, node: str, number: int) -> PortState:
    port = fabric.mads.nodes[fabric.mads.topology.index(node)].port(number)
    assert port is not None
    return port


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


# multicast

GROUP = 0xC005


def group(fabric: PacketFabric, *members: ListAdapter) -> None:
    """Let these be the group's."""
    guids = {each.port.node.node.port_guid(1) for each in members}
    fabric.manager.set_group(GROUP, frozenset(guids), fabric.managed.now)
    fabric.managed.settle()


def test_a_group_s_packets_come_once_to_each_other_member() -> None:
    fabric = PacketFabric(fat_tree(4), ["h0", "h1", "h6", "h15"])
    one, two, outside, far = fabric.adapters
    group(fabric, one, two, far)
    sent = [packet(one.lid, GROUP, bytes(40), grh=True, qp=0xFFFFFF, psn=n) for n in range(3)]
    fabric.send(one, *sent)
    assert (one.got, two.got, outside.got, far.got) == ([], sent, [], sent)
    assert fabric.count("packets_delivered") == 6
    fabric.send(far, packet(far.lid, GROUP))
    assert [len(each.got) for each in fabric.adapters] == [1, 4, 0, 3]
    group(fabric, one)
    fabric.send(one, packet(one.lid, GROUP))  # alone
    assert len(two.got) == 4
    fabric.send(one, packet(one.lid, GROUP + 1))
    assert fabric.count("drops_no_route") == 1


def test_a_group_s_packets_have_lanes_faults_and_limits_as_others(small: PacketFabric) -> None:
    one, two, three = small.adapters
    group(small, one, two, three)
    small.mads.nodes[0].ports[2].sl_to_vl[1] = b"\xf0".ljust(8, b"\0")  # type: ignore[union-attr]
    small.mads.epoch += 1
    small.send(one, packet(one.lid, GROUP))
    assert (len(two.got), len(three.got), small.count("drops_lane")) == (0, 1, 1)
    small.mads.nodes[0].ports[2].sl_to_vl.clear()  # type: ignore[union-attr]
    state_of(small, "s", 3).change(neighbor_mtu=1)
    small.send(one, packet(one.lid, GROUP, bytes(1024)))
    assert (len(two.got), len(three.got), small.count("drops_length")) == (1, 1, 1)
    on_side(small, End(1, 1), Scripted([(500, same)]))
    small.send(one, packet(one.lid, GROUP))
    small.packets.expire(500)
    assert (len(two.got), len(three.got)) == (2, 2)
    small.send(one, packet(three.lid, GROUP))
    assert small.count("drops_source") == 1


def test_a_full_member_keeps_none_of_the_others_waiting(small: PacketFabric) -> None:
    one, two, three = small.adapters
    group(small, one, two, three)
    two.room = False
    small.send(one, packet(one.lid, GROUP), packet(one.lid, GROUP))
    assert not one.port.is_blocked
    assert (len(two.got), len(three.got)) == (0, 2)
    two.room = True
    small.packets.has_room(two.port, 0)
    assert len(two.got) == 2


def test_a_group_s_tables_that_lead_in_a_circle_end(tree: PacketFabric) -> None:
    one = tree.adapters[0]
    for node in tree.mads.nodes:
        if node.is_switch:
            node.multicast[0] = bytes.fromhex("001e") * 32  # by all four ports
    tree.send(one, packet(one.lid, GROUP))
    assert tree.count("drops_loop") > 0
    assert one.got  # the first copies have come to all, as they do where tables are right
    sent = sum(port.data_sent for node in tree.mads.nodes for port in node.ports if port is not None)
    assert sent == MOST_COPIES


@pytest.mark.parametrize("ports", [4, 15, 16, 40])
def test_multicast_tables_name_ports_by_block_and_position(ports: int) -> None:
    node = PacketFabric(star(ports), []).mads.nodes[0]
    node.multicast[1] = (bytes(2 * 3) + b"\x80\x13").ljust(64, b"\0")
    node.multicast[2 << 28 | 1] = (bytes(2 * 3) + b"\0\x81").ljust(64, b"\0")
    positions = [0, 1, 4, 15, *((32, 39) if ports >= 32 else ())]
    assert node.multicast_ports(0xC000 + 32 + 3) == positions
    assert node.multicast_ports(0xC000 + 32 + 4) == []
    assert node.multicast_ports(0xC003) == []


# room


def test_a_burst_without_room_waits_and_its_sender_with_it(small: PacketFabric) -> None:
    one, two, three = small.adapters
    two.room = False
    first, other = packet(one.lid, two.lid, b"1234"), packet(one.lid, three.lid, b"5678")
    small.send(one, first, other)
    assert one.port.is_blocked
    assert (two.got, three.got) == ([], [])
    third = packet(three.lid, two.lid, b"abcd")
    small.send(three, third)
    assert three.port.is_blocked
    two.room = True
    small.packets.has_room(two.port, 5)
    assert two.got == [first, third]  # in their order
    assert three.got == [other]
    assert (one.woken, three.woken, one.port.is_blocked) == (1, 1, False)
    assert small.count("packets_delivered") == 3


def test_nothing_passes_what_waits_though_there_is_room_again(small: PacketFabric) -> None:
    one, two, three = small.adapters
    two.room = False
    first, second = packet(one.lid, two.lid, b"1111"), packet(three.lid, two.lid, b"2222")
    small.send(one, first)
    two.room = True  # nobody has said so yet
    small.send(three, second)
    assert two.got == []
    small.packets.has_room(two.port, 1)
    assert two.got == [first, second]


def test_who_leaves_while_it_waits_does_not_keep_those_behind_it(small: PacketFabric) -> None:
    one, two, three = small.adapters
    two.room = False
    small.send(one, packet(one.lid, two.lid))
    small.send(three, packet(three.lid, two.lid))
    small.packets.leave(one.port, 0)
    two.room = True
    small.packets.has_room(two.port, 0)
    assert (len(two.got), three.port.is_blocked) == (1, False)


def test_what_waits_singly_for_a_stalled_adapter_is_dropped(small: PacketFabric) -> None:
    one, two, _ = small.adapters
    on_side(small, End(0, 2), Scripted())
    two.room = False
    small.send(one, packet(one.lid, two.lid), packet(one.lid, two.lid))
    asked = datagram(two.lid, small.manager.own_lid, mad(c.CLASS_PERF, c.ATTRIBUTE_PORT_COUNTERS), 1)
    small.send(two, asked)
    small.packets.expire(LIFETIME_NS)
    assert small.count("drops_lifetime") == 2  # the answer is another one's to count
    two.room = True
    small.packets.has_room(two.port, LIFETIME_NS)
    assert two.got == []


def test_an_answer_that_finds_no_room_fills_its_adapter(small: PacketFabric) -> None:
    one, two, _ = small.adapters
    two.room = False
    asked = datagram(two.lid, small.manager.own_lid, mad(c.CLASS_PERF, c.ATTRIBUTE_PORT_COUNTERS), 1)
    small.send(two, asked, now=7)
    assert small.packets.next_deadline_ns == 7 + LIFETIME_NS
    two.room = True
    small.send(one, packet(one.lid, two.lid))
    assert one.port.is_blocked
    small.packets.has_room(two.port, 8)
    assert [read(each).transport.bth.dest_qp for each in two.got] == [1, 77]
    assert small.count("packets_delivered") == 1


def test_a_destination_that_fills_again_goes_on_blocking(small: PacketFabric) -> None:
    one, two, three = small.adapters
    two.room = False
    small.send(one, packet(one.lid, two.lid))
    small.send(three, packet(three.lid, two.lid))
    small.packets.has_room(two.port, 5)
    assert one.port.is_blocked
    assert three.port.is_blocked
    assert (one.woken, three.woken) == (0, 0)
    two.room = True
    small.packets.has_room(two.port, 6)
    assert len(two.got) == 2


def test_a_destination_that_stays_full_is_stalled_and_keeps_nobody(small: PacketFabric) -> None:
    one, two, three = small.adapters
    two.room = False
    small.send(one, packet(one.lid, two.lid), packet(one.lid, three.lid), now=100)
    assert small.packets.next_deadline_ns == 100 + LIFETIME_NS
    small.packets.expire(99 + LIFETIME_NS)
    assert one.port.is_blocked
    small.packets.expire(100 + LIFETIME_NS)
    assert not one.port.is_blocked
    assert (one.woken, len(three.got)) == (1, 1)
    small.send(one, packet(one.lid, two.lid))
    assert small.count("drops_lifetime") == 2
    assert small.packets.next_deadline_ns == NEVER_NS
    two.room = True
    small.packets.has_room(two.port, LIFETIME_NS * 2)
    small.send(one, packet(one.lid, two.lid))
    assert len(two.got) == 1


def test_who_leaves_keeps_nobody_waiting_and_may_come_again(small: PacketFabric) -> None:
    one, two, three = small.adapters
    two.room = False
    small.send(one, packet(one.lid, two.lid), packet(one.lid, three.lid))
    small.packets.leave(two.port, 0)
    assert not one.port.is_blocked
    assert len(three.got) == 1
    assert small.count("drops_nobody") == 1
    again = ListAdapter(small.packets, two.port.end)
    small.send(one, packet(one.lid, two.lid))
    assert len(again.got) == 1
    with pytest.raises(ValueError, match="already"):
        ListAdapter(small.packets, two.port.end)
    with pytest.raises(ValueError, match="switch"):
        ListAdapter(small.packets, End(0, 0))
    again.room = False
    small.send(one, packet(one.lid, two.lid))
    small.packets.leave(one.port, 0)  # while its burst waits
    again.room = True
    small.packets.has_room(again.port, 0)
    assert len(again.got) == 1


# faults and taps of links


class Copy(NamedTuple):
    time_ns: int
    data: bytes


class Scripted:
    """A link's faults: what each packet becomes."""

    def __init__(self, *fates: list[tuple[int, Any]]) -> None:
        self.fates = list(fates)

    def send(self, data: bytes, now: int) -> list[Copy]:
        fate = self.fates.pop(0) if self.fates else [(0, lambda data: data)]
        return [Copy(now + late, change(data)) for late, change in fate]


def same(data: bytes) -> bytes:
    return data


def damaged(data: bytes) -> bytes:
    return data[:-3] + bytes([data[-3] ^ 1]) + data[-2:]


def short(data: bytes) -> bytes:
    return data[:9]


def on_side(fabric: PacketFabric, end: End, faults: Any) -> None:
    fabric.packets.side(end).faults = faults
    fabric.packets.changed()


def test_faults_lose_delay_and_double_packets(small: PacketFabric) -> None:
    one, two, _ = small.adapters
    on_side(small, End(1, 1), Scripted([], [(500, same)], [(0, same), (0, same)]))
    sent = [packet(one.lid, two.lid, psn=n) for n in range(4)]
    small.send(one, *sent)
    assert two.got == [sent[2], sent[3]]
    assert small.count("drops_faults") == 1
    assert small.packets.next_deadline_ns == 0
    small.packets.expire(0)
    assert two.got == [sent[2], sent[3], sent[2]]
    assert small.packets.next_deadline_ns == 500
    small.packets.expire(499)
    assert len(two.got) == 3
    small.packets.expire(500)
    assert two.got[3] == sent[1]
    on_side(small, End(1, 1), None)
    small.send(one, *sent)
    assert two.strides[-1] == len(sent[0])  # whole again


def test_a_switch_drops_what_is_damaged_and_an_adapter_gets_it(small: PacketFabric) -> None:
    one, two, _ = small.adapters
    on_side(small, End(1, 1), Scripted([(0, damaged)], [(0, short)]))
    small.send(one, packet(one.lid, two.lid), packet(one.lid, two.lid))
    assert two.got == []
    assert state_of(small, "s", 1).counts["rcv_errors"] == 2
    on_side(small, End(1, 1), None)
    on_side(small, End(0, 2), Scripted([(0, damaged)], [(0, short)]))
    sent = packet(one.lid, two.lid)
    small.send(one, sent, sent)
    assert two.got == [damaged(sent)]
    assert small.count("drops_faults") == 3


def test_a_packet_that_was_held_back_goes_on_by_the_tables_of_then(tree: PacketFabric) -> None:
    one, _, far = tree.adapters
    on_side(tree, one.port.end, Scripted([(500, same)], [(500, same)]))
    tree.send(one, packet(one.lid, far.lid))
    tree.send(one, packet(one.lid, far.lid))
    held = tree.packets._held
    assert len(held) == 2
    held.pop()
    tree.packets.expire(500)
    assert len(far.got) == 1
    tree.send(one, packet(one.lid, far.lid), now=600)
    on_side(tree, one.port.end, Scripted([(500, same)]))
    tree.send(one, packet(one.lid, far.lid), now=600)
    tree.mads.nodes[tree.mads.topology.index("s1-0")].linear[far.lid] = 255
    tree.mads.epoch += 1
    tree.packets.expire(2000)
    assert tree.count("drops_no_route") == 1


def test_what_comes_late_to_a_full_adapter_is_kept_within_bounds(small: PacketFabric) -> None:
    one, two, _ = small.adapters
    on_side(small, End(0, 2), Scripted())
    two.room = False
    sent = [packet(one.lid, two.lid, psn=n) for n in range(MOST_BACKLOG + 3)]
    for each in sent:
        small.send(one, each)
    assert small.count("drops_full") == 3
    two.room = True
    small.packets.has_room(two.port, 1)
    assert two.got == sent[:MOST_BACKLOG]


def test_a_tap_sees_what_is_sent_over_its_side_alone(small: PacketFabric) -> None:
    one, two, _ = small.adapters
    seen: list[tuple[bytes, int]] = []
    side = small.packets.side(End(0, 2))
    side.taps.append(lambda data, now: seen.append((data, now)))
    small.packets.changed()
    there, back = packet(one.lid, two.lid), packet(two.lid, one.lid)
    small.send(one, there, now=9)
    small.send(two, back)
    assert seen == [(there, 9)]
    side.taps.clear()
    small.packets.changed()
    small.send(one, there)
    assert len(seen) == 1


# management


def mad(management_class: int, attribute: int, modifier: int = 0, method: int = 1) -> bytes:
    header = MadHeader(
        management_class=management_class, method=method, attribute_id=attribute,
        attribute_modifier=modifier, transaction_id=0x1234_5678_9ABC,
    )  # fmt: skip
    made = Mad.make(header)
    if management_class == c.CLASS_SUBN_DIRECTED:
        made = Mad(header, DirectedRoute().encode() + made.body[12:])
    return made.encode()


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
