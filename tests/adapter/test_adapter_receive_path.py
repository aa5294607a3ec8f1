"""What a port takes by keys, numbers and where packets come from: forged ones, right but for one thing,
which the state of a queue pair would not stop."""

import pytest
from forged_writes import drops, signed, write_packet
from migration_scene import Scene
from native_network import NativeNetwork, changed

from softhca.adapter.port import pkeys_match
from softhca.testing.ends import QKEY, RAW, SEND, UD, End, pair, post
from softhca.testing.network import Network
from softhca.transport.migration import ARMED

ALL = 0xFFFFFF
V4_GROUP = bytes(10) + bytes.fromhex("ffffe0010203")
NATIVE_GROUP, MLID = bytes.fromhex("ff12401bffff000000000000deadbeef"), 0xC007
KEYS = (0xFFFF, 0x8123)


def datagrams(end, pkey_index=0, state=3):
    """A queue pair of datagrams with a P_Key of the table, so far."""
    qp = end.qp(UD)
    for step in ({"qp_state": 1, "pkey_index": pkey_index, "port_num": 1, "qkey": QKEY}, {"qp_state": 2},
                 {"qp_state": 3, "sq_psn": 5}):  # fmt: skip
        if step["qp_state"] <= state:
            qp.modify(step)
    return qp


@pytest.mark.parametrize("bit", range(15))
def test_keys_are_of_one_partition_when_all_their_bits_are_the_same(bit):
    ours = 0x8000 | 0x5A5A & 0x7FFF
    assert pkeys_match(ours, ours)
    assert not pkeys_match(ours, ours ^ 1 << bit)
    assert not pkeys_match(ours ^ 1 << bit, ours)


def test_one_member_of_two_is_a_full_one():
    found = {(a, b): pkeys_match(a, b) for a in (0x8001, 1) for b in (0x8001, 1)}
    assert found == {(0x8001, 0x8001): True, (0x8001, 1): True, (1, 0x8001): True, (1, 1): False}
    assert not any(pkeys_match(a, b) for a in (0x8000, 0) for b in (0x8000, 0))


@pytest.mark.parametrize("link", ["ipv4", "native"])
@pytest.mark.parametrize(
    ("pkey_index", "state", "reason"), [(0, 3, None), (0, 2, None), (1, 3, "pkey"), (0, 1, "state")]
)
def test_a_group_is_heard_by_its_members_that_are_ready_and_of_the_partition(link, pkey_index, state, reason):
    with Network(link=link) as world:
        left, right = (End(world.add(number, pkeys=KEYS)) for number in (1, 2))
        group, mlid = (NATIVE_GROUP, MLID) if link == "native" else (V4_GROUP, 0)
        sender, member = datagrams(left), datagrams(right, pkey_index, state)
        right.device.attach_mcast(member.number, group, mlid)
        member.post_recv(7, [right.sge(0, 100)])
        vector = {"dgid": group, "is_global": 1, "port_num": 1, "hop_limit": 1, "dlid": mlid}
        ah = left.device.create_ah(left.pd, vector)
        post(sender, SEND, [left.sge(0, 6)], ah=ah, qpn=ALL, qkey=QKEY)
        assert [done.wr_id for done in right.poll(1)] == ([7] if reason is None else [])
        assert drops(right) == ({reason: 1} if reason else {})
        assert right.device.query_counters()["multicast_copies"] == (reason is None)


def test_a_datagram_to_a_group_came_by_no_lid_of_the_port():
    with NativeNetwork() as world:
        left, right = End(world.add(1)), End(world.add(2, lmc=3))
        sender, member = datagrams(left), datagrams(right)
        right.device.attach_mcast(member.number, NATIVE_GROUP, MLID)
        member.post_recv(7, [right.sge(0, 100)])
        vector = {"dgid": NATIVE_GROUP, "is_global": 1, "port_num": 1, "hop_limit": 1, "dlid": MLID}
        ah = left.device.create_ah(left.pd, vector)
        post(sender, SEND, [left.sge(0, 6)], ah=ah, qpn=ALL, qkey=QKEY)
        (done,) = right.poll(1)
        assert (done.wr_id, done.dlid_path_bits) == (7, 0)


@pytest.mark.parametrize("slid", [0, 0xC000, 0xFFFF])
def test_a_datagram_comes_from_a_unicast_lid(slid):
    with NativeNetwork() as world:
        left, right = End(world.add(1)), End(world.add(2))
        sender, receiver = datagrams(left), datagrams(right)
        receiver.post_recv(7, [right.sge(0, 100)])
        taken = []
        world.tamper = lambda sent: taken.append(sent.data)
        ah = left.device.create_ah(left.pd, {"dlid": right.node.lid, "port_num": 1})
        post(sender, SEND, [left.sge(0, 6)], ah=ah, qpn=receiver.number, qkey=QKEY)
        world.run(lambda: bool(taken))
        world.inject(right.node, changed(taken[0], lrh_slid=slid))
        assert drops(right) == {"source": 1}
        world.inject(right.node, taken[0])
        assert [done.wr_id for done in right.poll(1)] == [7]


def test_every_packet_of_a_run_counts_with_its_own_bytes():
    world, left, _, right, qp = pair()
    run = [signed(write_packet(right, qp, psn=100 + n), left.node.gid, right.node.gid) for n in range(3)]
    world.inject(right.node, b"".join(run), left.node.gid, stride=len(run[0]))
    found = right.device.query_counters()
    assert [found[f"{name}_received"] for name in ("packets", "bytes", "bursts")] == [3, 3 * len(run[0]), 1]
    world.close()


@pytest.mark.parametrize(
    ("source_port", "port", "taken"),
    [(1, 1, True), (2, 2, True), (1, 2, False), (2, 1, False), (1, 3, False), (2, 3, False)],
)
def test_an_armed_connection_hears_each_end_of_its_peer_by_the_port_of_that_path(source_port, port, taken):
    scene = Scene(ports=3)
    scene.rearm()
    assert scene.send(0) == scene.send(1) == [1]
    assert scene.states == [ARMED, ARMED]
    left, right = scene.ends
    source = left.node.adapter.ports[source_port - 1].gid_table[0]
    here = right.node.adapter.ports[port - 1].gid_table[0]
    data = signed(write_packet(right, scene.qps[1], psn=101), source, here)
    right.memory[:12] = bytes(12)
    scene.network.inject(right.node, data, source, destination=here, port_number=port)
    assert bytes(right.memory[:12]) == (b"overwritten!" if taken else bytes(12))
    scene.network.close()


def test_a_raw_service_is_that_of_the_port_that_its_queue_pair_lives_on():
    with Network(link="native") as world:
        left, right = End(world.add()), End(world.add(ports=2))
        sender, receivers = left.qp(RAW), [right.qp(RAW) for _ in range(2)]
        for qp, port in ((sender, 1), (receivers[0], 1), (receivers[1], 2)):
            for step in ({"qp_state": 1, "port_num": port}, {"qp_state": 2}, {"qp_state": 3}):
                qp.modify(step)
        ah = left.device.create_ah(left.pd, {"dlid": right.node.lid, "port_num": 1})
        for qp, found, lost in ((receivers[1], [], {"raw": 1}), (receivers[0], [0], {"raw": 1})):
            qp.post_recv(0, [right.sge(0, 100)])
            right.device.attach_raw(qp.number, 0x88B5)
            post(sender, SEND, [left.sge(0, 8)], ah=ah, qpn=0x88B5)
            assert [done.wr_id for done in right.poll(1)] == found
            assert drops(right) == lost
            right.device.detach_raw(qp.number, 0x88B5)
