"""Packets of adapters across a fabric: who leaves, who is full, what may pass, and where it ends."""

from __future__ import annotations

import pytest

pytest.importorskip("scipy", reason="numpy and scipy: pip install 'softhca[fabric]'")

from packet_fabric import PacketFabric, datagram, packet, read, star

from softhca.fabric.host_datagrams import as_datagram, as_packet
from softhca.fabric.mad_plane import Datagram
from softhca.fabric.native_bursts import VCRC_BYTES
from softhca.fabric.packet_plane import LIFETIME_NS, NEVER_NS
from softhca.management import constants as c
from softhca.management.constants import GENERAL_QKEY, MAD_BYTES
from softhca.management.mad import Mad, MadHeader
from softhca.wire.bth import Bth
from softhca.wire.deth import Deth
from softhca.wire.framing import NATIVE
from softhca.wire.lrh import Lrh
from softhca.wire.opcodes import UD_SEND_ONLY
from softhca.wire.packet import assemble
from softhca.wire.route import Route
from softhca.wire.vcrc import compute


@pytest.fixture
def small() -> PacketFabric:
    """Three adapters at one switch."""
    return PacketFabric(star(), ["h0", "h1", "h2"])


def test_an_adapter_that_has_left_is_told_nothing(small: PacketFabric) -> None:
    one, two, _ = small.adapters
    told = len(one.infos)
    for sl, leaver, count in ((1, two, told + 1), (2, one, told + 1)):
        small.packets.leave(leaver.port, 0)
        one.port.state.change(sm_sl=sl)
        assert len(one.infos) == count


def test_who_was_full_and_has_left_or_has_room_is_waited_for_no_more(small: PacketFabric) -> None:
    one, two, three = small.adapters
    two.room = False
    small.send(one, packet(one.lid, two.lid), now=5)
    assert small.packets.next_deadline_ns == 5 + LIFETIME_NS
    two.room = True
    small.packets.has_room(two.port, 6)
    assert (len(two.got), small.packets.next_deadline_ns) == (1, NEVER_NS)
    three.room = False
    small.send(one, packet(one.lid, three.lid), now=7)
    assert small.packets.next_deadline_ns == 7 + LIFETIME_NS
    three.room = True
    small.packets.has_room(three.port, 7)
    two.room = False
    small.send(one, packet(one.lid, two.lid), now=7)
    assert small.packets.next_deadline_ns == 7 + LIFETIME_NS
    small.packets.leave(two.port, 8)
    assert small.packets.next_deadline_ns == NEVER_NS
    assert not one.port.is_blocked


def test_answers_of_management_that_wait_are_no_lost_packets(small: PacketFabric) -> None:
    one, two, _ = small.adapters
    one.room = False
    small.send(two, packet(two.lid, one.lid))
    header = MadHeader(
        management_class=c.CLASS_PERF, method=c.METHOD_GET, attribute_id=c.ATTRIBUTE_CLASS_PORT_INFO
    )
    small.send(one, datagram(one.lid, two.lid, Mad.make(header).encode(), 1))
    assert [counted for _, counted in one.port.backlog] == [False]
    small.packets.leave(one.port, 0)
    assert small.count("drops_nobody") == 1  # what the other one sent, and sends again now


def test_a_packet_that_comes_to_a_port_with_another_lid_is_dropped(small: PacketFabric) -> None:
    one, two, _ = small.adapters
    lid = two.lid
    two.port.state.change(lid=0x40)
    small.send(one, packet(one.lid, lid))
    assert (small.count("drops_wrong_lid"), two.got) == (1, [])


def enforce(small: PacketFabric, keys: bytes) -> None:
    """The switch's port to the second adapter lets only packets with these P_Keys out."""
    port = small.mads.nodes[0].port(2)
    assert port is not None
    port.change(partition_enforcement_outbound=1)
    port.set_pkeys(0, keys.ljust(64, b"\0"))
    small.packets.changed()


def test_an_empty_place_in_a_table_of_keys_lets_nothing_pass(small: PacketFabric) -> None:
    one, two, _ = small.adapters
    enforce(small, b"\xff\xff\0\0\x80\x12")
    for pkey, count in ((0x8000, 0), (0, 0), (0x12, 1), (0x7FFF, 2), (0x13, 2)):
        small.send(one, packet(one.lid, two.lid, pkey=pkey))
        assert len(two.got) == count
    assert small.count("drops_pkey") == 3


def test_partitions_are_not_of_raw_packets(small: PacketFabric) -> None:
    one, two, _ = small.adapters
    enforce(small, b"\x80\x12")
    raw = bytearray(24)
    raw[2:4], raw[6:8] = two.lid.to_bytes(2, "big"), one.lid.to_bytes(2, "big")
    raw[5] = len(raw) >> 2
    small.send(one, bytes(raw) + compute(raw).to_bytes(VCRC_BYTES, "little"))
    assert len(two.got) == 1
    assert small.count("drops_pkey") == 0


def test_a_packet_for_a_group_is_no_longer_than_a_link_s_mtu_allows(small: PacketFabric) -> None:
    guids = [node.port_guid(1) for node in small.mads.topology.nodes[1:]]
    small.manager.set_group(0xC000, frozenset(guids), small.managed.now)
    small.managed.settle()
    one, two, three = small.adapters
    narrow = small.mads.nodes[0].port(2)
    assert narrow is not None
    narrow.change(neighbor_mtu=1)
    small.packets.changed()
    small.send(one, packet(one.lid, 0xC000, bytes(512)))
    assert [len(each.got) for each in (two, three)] == [0, 1]
    assert small.count("drops_length") == 1


def test_a_datagram_of_another_length_is_no_management() -> None:
    route = Route(NATIVE, bytes(16), bytes(16), slid=3, dlid=4)
    for length, is_one in ((MAD_BYTES - 4, False), (MAD_BYTES, True), (MAD_BYTES + 4, False)):
        made = assemble(route, Bth(UD_SEND_ONLY, dest_qp=0), (Deth(source_qp=0),), bytes(length), 15)
        assert (as_datagram(made.encode()) is not None) == is_one


def test_a_datagram_of_which_a_crc_is_wrong_is_no_management() -> None:
    whole = as_packet(Datagram(5, 6, 1, 1, bytes(MAD_BYTES)))
    assert as_datagram(whole) is not None
    damaged = bytearray(whole)
    damaged[-1] ^= 1
    assert as_datagram(bytes(damaged)) is None
    damaged = bytearray(whole[:-VCRC_BYTES])
    damaged[-1] ^= 1
    assert as_datagram(bytes(damaged) + compute(damaged).to_bytes(VCRC_BYTES, "little")) is None


@pytest.mark.parametrize(("qp", "lane", "qkey"), [(0, 15, 0), (1, 0, GENERAL_QKEY)])
def test_a_datagram_has_the_lane_and_the_q_key_of_its_queue_pair(qp: int, lane: int, qkey: int) -> None:
    sent = Datagram(5, 6, qp, qp, bytes(MAD_BYTES))
    packet = read(as_packet(sent))
    link, deth = packet.network[0], packet.transport.extensions[0]
    assert isinstance(link, Lrh)
    assert isinstance(deth, Deth)
    assert (link.vl, deth.qkey) == (lane, qkey)
    assert as_datagram(as_packet(sent)) == sent
