"""Packets of adapters across a fabric: copies for groups, who waits for room, and what links do to them."""

from __future__ import annotations

import pytest

pytest.importorskip("scipy", reason="numpy and scipy: pip install 'softhca[fabric]'")

from packet_fabric import (
    ListAdapter,
    PacketFabric,
    Scripted,
    datagram,
    mad,
    on_side,
    packet,
    read,
    same,
    star,
    state_of,
)

from softhca.fabric.generators import fat_tree
from softhca.fabric.packet_plane import LIFETIME_NS, MOST_BACKLOG, MOST_COPIES, NEVER_NS
from softhca.fabric.topology import End
from softhca.management import constants as c


@pytest.fixture
def tree() -> PacketFabric:
    return PacketFabric(fat_tree(4), ["h0", "h1", "h15"])


@pytest.fixture
def small() -> PacketFabric:
    return PacketFabric(star(), ["h0", "h1", "h2"])


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


def damaged(data: bytes) -> bytes:
    return data[:-3] + bytes([data[-3] ^ 1]) + data[-2:]


def short(data: bytes) -> bytes:
    return data[:9]


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
