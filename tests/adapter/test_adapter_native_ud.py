"""Datagrams on native ports: the GRH in front of the payload or not, what completions tell, groups."""

import pytest
from native_network import NativeNetwork, changed, gid, grh_of, lid, lrh_of

from softhca.driver import services
from softhca.testing.ends import QKEY, SEND, SEND_IMM, UD, End, post

WC_GRH = 1
WC_WITH_IMM = 2
GROUP = bytes.fromhex("ff12401bffff000000000000deadbeef")
MLID = 0xC005
UNTOUCHED = b"\xa5"


def datagram_end(world, number, **config):
    end = End(world.add(number, **config))
    end.memory[:] = UNTOUCHED * len(end.memory)
    qp = end.qp(UD)
    services.start_datagrams(qp, QKEY, psn=5)
    return end, qp


@pytest.fixture
def two():
    world = NativeNetwork()
    yield (world, *datagram_end(world, 1, lmc=2), *datagram_end(world, 2, lmc=3))
    world.close()


def vector(grh, **changes):
    plain = {"dlid": lid(2, 3) + 6, "src_path_bits": 2, "sl": 4, "is_global": int(grh), "port_num": 1}
    if grh:
        plain |= {"dgid": gid(2), "hop_limit": 3, "flow_label": 0x54321, "traffic_class": 0x8D}
    return plain | changes


@pytest.mark.parametrize("immediate", [False, True])
@pytest.mark.parametrize("length", [0, 1, 255, 1023, 1024])
@pytest.mark.parametrize("grh", [False, True])
def test_a_datagram_brings_its_grh_and_its_senders_address(two, grh, length, immediate):
    world, left, qp, right, receiver = two
    left.memory[:length] = bytes(n & 0xFF for n in range(length))
    receiver.post_recv(7, [right.sge(0, 20), right.sge(100, 1100)])
    ah = left.device.create_ah(left.pd, vector(grh))
    opcode = SEND_IMM if immediate else SEND
    post(qp, opcode, [left.sge(0, length)], ah=ah, qpn=receiver.number, qkey=QKEY, imm=9 if immediate else 0)
    assert left.poll(1)[0].status == 0
    (done,) = right.poll(1)
    assert (done.status, done.wr_id, done.byte_len) == (0, 7, length + 40)
    assert done.wc_flags == (WC_GRH if grh else 0) | (WC_WITH_IMM if immediate else 0)
    assert (done.slid, done.sl, done.dlid_path_bits) == (lid(1, 2) + 2, 4, 6)
    assert (done.src_qp, done.pkey_index, done.imm_data) == (qp.number, 0, 9 if immediate else 0)
    header = bytes(right.memory[:20] + right.memory[100:120])
    (packet,) = world.packets
    assert header == (packet[8:48] if grh else UNTOUCHED * 40)
    assert right.memory[120 : 120 + length] == left.memory[:length]
    assert right.memory[120 + length : 1200] == UNTOUCHED * (1080 - length)
    (decoded,) = world.decoded
    link = lrh_of(decoded)
    assert (link.vl, link.sl, link.dlid, link.slid) == (4, 4, lid(2, 3) + 6, lid(1, 2) + 2)
    if grh:
        route = grh_of(decoded)
        assert (route.hop_limit, route.flow_label, route.traffic_class) == (3, 0x54321, 0x8D)
        assert (route.sgid, route.dgid) == (gid(1), gid(2))


def test_datagrams_in_a_row_keep_each_its_own_address(two):
    _world, left, qp, right, receiver = two
    handles = [
        left.device.create_ah(left.pd, vector(grh, src_path_bits=bits, sl=0))
        for grh, bits in ((False, 0), (True, 1), (False, 2), (True, 3))
    ]
    for turn in range(8):
        receiver.post_recv(turn, [right.sge(200 * turn, 200)])
    for turn in range(8):
        post(qp, SEND, [left.sge(0, 4)], ah=handles[turn % 4], qpn=receiver.number, qkey=QKEY)
    found = [(c.slid - lid(1, 2), c.wc_flags) for c in right.poll(8)]
    assert found == [(0, 0), (1, WC_GRH), (2, 0), (3, WC_GRH)] * 2


def test_a_row_to_one_address_is_one_burst_of_whole_packets(two):
    _world, left, qp, right, receiver = two
    ah = left.device.create_ah(left.pd, vector(True))
    for turn in range(6):
        receiver.post_recv(turn, [right.sge(1000 * turn, 300)])
    for turn, length in enumerate((100, 100, 100, 99, 9, 100)):
        post(qp, SEND, [left.sge(0, length)], ah=ah, qpn=receiver.number, qkey=QKEY, ring=turn == 5)
    assert [c.byte_len for c in right.poll(6)] == [140, 140, 140, 139, 49, 140]
    assert left.device.query_counters()["bursts_sent"] == 2


def test_a_receive_has_room_for_the_grh_or_takes_nothing(two):
    _world, left, qp, right, receiver = two
    receiver.post_recv(7, [right.sge(0, 43)])
    ah = left.device.create_ah(left.pd, vector(False))
    post(qp, SEND, [left.sge(0, 4)], ah=ah, qpn=receiver.number, qkey=QKEY)
    assert right.poll(1) == []
    assert right.device.query_counters(qp=receiver.number)["drops_receive_length"] == 1


def test_the_reply_to_a_datagram_needs_no_gid(two):
    _world, left, qp, right, receiver = two
    receiver.post_recv(7, [right.sge(0, 100)])
    qp.post_recv(8, [left.sge(0, 100)])
    ah = left.device.create_ah(left.pd, vector(False))
    post(qp, SEND, [left.sge(200, 4)], ah=ah, qpn=receiver.number, qkey=QKEY)
    (done,) = right.poll(1)
    back = right.device.create_ah(
        right.pd, {"dlid": done.slid, "sl": done.sl, "src_path_bits": done.dlid_path_bits, "is_global": 0}
    )
    post(receiver, SEND, [right.sge(200, 4)], ah=back, qpn=done.src_qp, qkey=QKEY)
    (answer,) = [c for c in left.poll(2) if c.wr_id == 8]
    assert (answer.slid, answer.dlid_path_bits, answer.sl) == (lid(2, 3) + 6, 2, 4)


def test_a_group_hears_through_its_multicast_lid():
    world = NativeNetwork()
    left, qp = datagram_end(world, 1)
    right, receiver = datagram_end(world, 2)
    near = left.qp(UD)
    services.start_datagrams(near, QKEY)
    for end, member in ((left, qp), (left, near), (right, receiver)):
        member.post_recv(member.number, [end.sge(1000, 100)])
        end.device.attach_mcast(member.number, GROUP, MLID)
    ah = left.device.create_ah(left.pd, {"dlid": MLID, "dgid": GROUP, "is_global": 1, "hop_limit": 1})
    left.memory[:6] = b"to all"
    post(qp, SEND, [left.sge(0, 6)], wr_id=1, ah=ah, qpn=0xFFFFFF, qkey=QKEY)
    assert sorted(c.wr_id for c in left.poll(2)) == sorted([1, near.number])
    (done,) = right.poll(1)
    assert (done.wr_id, done.slid, done.dlid_path_bits) == (receiver.number, lid(1), 0)
    assert right.memory[1040:1046] == left.memory[1040:1046] == b"to all"
    assert grh_of(world.decoded[0]).dgid == GROUP
    # not for a queue pair by its own number, and not by a unicast LID
    packet = world.packets[0]
    for wrong, reason in (
        ({"bth_dest_qp": receiver.number}, "destination"),
        ({"lrh_dlid": lid(2)}, "destination"),
        ({"grh_dgid": gid(2)}, "link_header"),
        ({"grh_dgid": GROUP[:-1] + b"\0"}, "unknown_qp"),
    ):
        before = right.device.query_counters()[f"drops_{reason}"]
        world.inject(right.node, changed(packet, **wrong))
        assert right.device.query_counters()[f"drops_{reason}"] == before + 1, wrong
    world.close()


@pytest.mark.parametrize("grh", [False, True])
def test_a_datagram_to_the_own_lid_comes_back_with_its_addresses(grh):
    world = NativeNetwork()
    end, qp = datagram_end(world, 1, lmc=1)
    qp.post_recv(3, [end.sge(0, 100)])
    changes = {"dlid": lid(1, 1) + 1, "src_path_bits": 0, "sl": 2} | ({"dgid": gid(1)} if grh else {})
    ah = end.device.create_ah(end.pd, vector(grh, **changes))
    post(qp, SEND, [end.sge(500, 10)], ah=ah, qpn=qp.number, qkey=QKEY, wr_id=1)
    (done,) = [c for c in end.poll(2) if c.wr_id == 3]
    assert (done.slid, done.dlid_path_bits, done.sl, done.wc_flags) == (lid(1, 1), 1, 2, int(grh))
    assert world.packets == []
    world.close()
