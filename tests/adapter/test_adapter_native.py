"""Native ports: RC and UC over LRH … VCRC, with and without GRH; loop-back; LMC; what the wire shows."""

import warnings

import pytest
from native_network import (
    GUID,
    NativeNetwork,
    gid,
    grh_of,
    lid,
    lrh_of,
    native_pair,
)

from softhca.adapter.counters import PortCounters
from softhca.testing.ends import (
    COMPARE_SWAP,
    FETCH_ADD,
    RC,
    READ,
    SEND,
    SEND_IMM,
    UC,
    WRITE,
    WRITE_IMM,
    End,
    connect,
    post,
)
from softhca.wire.drops import COUNT, DROP_RAW
from softhca.wire.opcodes import OPCODES

GRH = pytest.mark.parametrize("grh", [False, True], ids=["local", "global"])
PAYLOAD = bytes((7 * i + (i >> 8)) & 0xFF for i in range(20_000))
LENGTHS = [0, 1, 2, 3, 4, 5, 255, 256, 257, 511, 1023, 1024, 1025, 4095, 4096, 4097, 16_385]


@GRH
@pytest.mark.parametrize("kind", [RC, UC])
@pytest.mark.parametrize("mtu", [1, 5])
def test_writes_of_every_length_arrive_and_every_packet_is_sound(kind, grh, mtu):
    world, left, qp, right, _ = native_pair(kind, grh, mtu=mtu)
    left.memory[: len(PAYLOAD)] = PAYLOAD
    for length in LENGTHS:
        world.decoded.clear()
        right.memory[:] = bytes(len(right.memory))
        post(qp, WRITE, [left.sge(1, length)], va=right.va + 3, rkey=right.key.rkey)
        (completion,) = left.poll(1)
        world.run()
        assert completion.status == 0
        assert right.memory[3 : 3 + length] == PAYLOAD[1 : 1 + length]
        assert not any(right.memory[3 + length :])
        there = [packet for packet in world.decoded if lrh_of(packet).dlid == lid(2)]
        assert len(there) == max(1, -(-length // (128 << mtu)))
        for packet in world.decoded:
            assert (grh_of(packet) is not None) is grh
    world.close()


@GRH
def test_every_operation_of_a_reliable_connection(grh):
    world, left, qp, right, right_qp = native_pair(RC, grh)
    left.memory[:5000] = PAYLOAD[:5000]
    right.memory[0x8000:0x8008] = (41).to_bytes(8, "little")
    right_qp.post_recv(1, [right.sge(0, 4096)])
    right_qp.post_recv(2, [right.sge(4096, 4096)])
    right_qp.post_recv(3, [])
    remote = {"rkey": right.key.rkey}
    post(qp, SEND, [left.sge(0, 2049)], wr_id=10)
    post(qp, SEND_IMM, [left.sge(1, 7)], wr_id=11, imm=0x01020304)
    post(qp, WRITE_IMM, [left.sge(0, 1025)], wr_id=12, imm=5, va=right.va + 0x9000, **remote)
    post(qp, READ, [left.sge(0xA000, 3001)], wr_id=13, va=right.va, **remote)
    post(qp, FETCH_ADD, [left.sge(0xB000, 8)], wr_id=14, compare=1, va=right.va + 0x8000, **remote)
    post(
        qp, COMPARE_SWAP, [left.sge(0xB008, 8)], wr_id=15, compare=42, swap=7, va=right.va + 0x8000, **remote
    )
    done = left.poll(6)
    assert [(c.wr_id, c.status) for c in done] == [(n, 0) for n in range(10, 16)]
    received = right.poll(3)
    assert [(c.wr_id, c.status, c.byte_len, c.imm_data) for c in received] == [
        (1, 0, 2049, 0),
        (2, 0, 7, 0x01020304),
        (3, 0, 1025, 5),
    ]
    assert right.memory[:2049] == PAYLOAD[:2049]
    assert left.memory[0xA000 : 0xA000 + 2049] == PAYLOAD[:2049]
    assert right.memory[0x9000 : 0x9000 + 1025] == PAYLOAD[:1025]
    assert int.from_bytes(left.memory[0xB000:0xB008], "little") == 41
    assert int.from_bytes(left.memory[0xB008:0xB010], "little") == 42
    assert int.from_bytes(right.memory[0x8000:0x8008], "little") == 7
    names = {OPCODES[packet.transport.bth.opcode].operation for packet in world.decoded}
    assert len(names) >= 7
    world.close()


@GRH
def test_losses_are_made_good(grh):
    world, left, qp, right, _ = native_pair(RC, grh, timeout=8)
    left.memory[: len(PAYLOAD)] = PAYLOAD
    count = 0

    def lossy(sent):
        nonlocal count
        count += 1
        return None if count % 5 == 0 else sent.data

    world.tamper = lossy
    post(qp, WRITE, [left.sge(0, 20_000)], va=right.va, rkey=right.key.rkey)
    post(qp, READ, [left.sge(0x8000, 20_000)], va=right.va, rkey=right.key.rkey)
    assert [c.status for c in left.poll(2)] == [0, 0]
    assert right.memory[:20_000] == left.memory[0x8000 : 0x8000 + 20_000] == PAYLOAD
    world.close()


def test_the_headers_are_literally_these():
    world, left, qp, right, right_qp = native_pair(
        RC, True, there={"sl": 3, "flow_label": 0x12345, "traffic_class": 0xAB, "hop_limit": 9}
    )
    left.memory[:5] = b"words"
    post(qp, WRITE, [left.sge(0, 5)], va=right.va, rkey=right.key.rkey)
    left.poll(1)
    packet = world.packets[0]
    # LRH: VL 3, version 0; SL 3, LNH 3; DLID 0x12; 8 + 40 + 12 + 16 + 8 + 4 bytes are 22 words; SLID 0x11
    assert packet[:8].hex() == "30330012" + "0016" + "0011"
    # GRH: version 6, TClass 0xab, flow label; 40 bytes behind it; next header 0x1b, hop limit 9
    assert packet[8:16].hex() == "6ab12345" + "0028" + "1b" + "09"
    assert packet[16:32] == gid(1)
    assert packet[32:48] == gid(2)
    assert packet[48:60].hex() == "0a70ffff" + "00" + right_qp.number.to_bytes(3, "big").hex() + "80000064"
    assert packet[76:84] == b"words\0\0\0"
    assert len(packet) == 90
    world.close()


@GRH
def test_path_bits_choose_the_lids_of_a_connection(grh):
    world, left, qp, right, _ = native_pair(
        RC,
        grh,
        lmc=2,
        there={"dlid": lid(2, 2) + 3, "src_path_bits": 1},
        back={"dlid": lid(1, 2) + 1, "src_path_bits": 3},
    )
    left.memory[:4] = b"bits"
    post(qp, WRITE, [left.sge(0, 4)], va=right.va, rkey=right.key.rkey)
    assert left.poll(1)[0].status == 0
    there, back = (lrh_of(packet) for packet in world.decoded)
    assert (there.slid, there.dlid) == (lid(1, 2) + 1, lid(2, 2) + 3)
    assert (back.slid, back.dlid) == (lid(2, 2) + 3, lid(1, 2) + 1)
    world.close()


def test_path_bits_beyond_the_lmc_are_ignored():
    world, left, qp, right, _ = native_pair(RC, there={"src_path_bits": 0x7F})
    post(qp, WRITE, [left.sge(0, 4)], va=right.va, rkey=right.key.rkey)
    assert left.poll(1)[0].status == 0
    assert lrh_of(world.decoded[0]).slid == lid(1)
    world.close()


@GRH
@pytest.mark.parametrize("bits", [0, 1])
def test_traffic_to_an_own_lid_needs_no_link(grh, bits):
    world = NativeNetwork()
    end = End(world.add(1, lmc=1))
    one, other = end.qp(), end.qp()
    details = {"dlid": lid(1, 1) + bits, "src_path_bits": bits}
    details = {"grh": grh, **details}
    connect((end, one), (end, other), RC, there=details, back=details)
    end.memory[:4] = b"here"
    post(one, WRITE, [end.sge(0, 4)], va=end.va + 100, rkey=end.key.rkey)
    assert end.poll(1)[0].status == 0
    assert end.memory[100:104] == b"here"
    assert world.packets == []
    assert end.device.query_counters()["loopback_packets"] == 2
    world.close()


def test_an_own_gid_stands_for_the_own_lid():
    world = NativeNetwork()
    end = End(world.add(1))
    one, other = end.qp(), end.qp()
    details = {"grh": True, "dlid": 0}
    connect((end, one), (end, other), RC, there=details, back=details)
    post(one, WRITE, [end.sge(0, 4)], va=end.va + 100, rkey=end.key.rkey)
    assert end.poll(1)[0].status == 0
    assert one.query()["ah_attr"]["dlid"] == 0
    world.close()


def test_windows_are_one_a_peer_by_gid_or_lid():
    world = NativeNetwork()
    left, right = End(world.add(1)), End(world.add(2))
    for grh in (False, False, True, True):
        qps = left.qp(), right.qp()
        connect((left, qps[0]), (right, qps[1]), RC, there={"grh": grh}, back={"grh": grh})
    windows = left.node.adapter.port.windows
    assert set(windows) == {lid(2).to_bytes(2, "big"), gid(2)}
    assert {qp.flow.window for qp in left.node.adapter.queue_pairs.values()} == set(windows.values())
    world.close()


def test_a_native_port_says_what_it_is():
    world = NativeNetwork()
    end = End(world.add(1, lmc=3, active_mtu=4))
    port = end.device.query_port(1)
    assert {name: port[name] for name in ("link_layer", "lid", "lmc", "sm_lid", "state", "active_mtu")} == {
        "link_layer": 1,
        "lid": lid(1, 3),
        "lmc": 3,
        "sm_lid": 1,
        "state": 4,
        "active_mtu": 4,
    }
    assert port["max_vl_num"] == 5
    assert not port["port_cap_flags"] & 1 << 26  # no GIDs made of IP addresses
    assert end.device.query_gid(1, 0) == gid(1)
    assert end.device.query_device()["node_guid"] == GUID + 1
    world.close()


def test_a_reason_that_nobody_knows_counts_as_resources():
    counters = PortCounters()
    for reason in (COUNT, 10_000, 0, -1, DROP_RAW):
        counters.drop(reason)
    assert (counters.as_dict()["drops_resources"], counters.as_dict()["drops_raw"]) == (4, 1)


@GRH
def test_scapy_reads_the_same_headers(grh):
    roce = _scapy()
    world, left, qp, right, right_qp = native_pair(RC, grh)
    post(qp, WRITE, [left.sge(0, 5)], va=right.va, rkey=right.key.rkey)
    left.poll(1)
    packet = world.packets[0]
    offset = 8
    if grh:
        header = roce.GRH(packet[8:48])
        assert (header.ipver, header.nexthdr, header.paylen) == (6, 0x1B, len(packet) - 50)
        assert (header.sgid, header.dgid) == tuple(int.from_bytes(gid(n), "big") for n in (1, 2))
        offset = 48
    bth = roce.BTH(packet[offset : offset + 12] + bytes(4))  # it ends in an ICRC
    assert (bth.opcode, bth.padcount, bth.pkey, bth.dqpn) == (0x0A, 3, 0xFFFF, right_qp.number)
    assert (bth.ackreq, bth.psn, bth.version, bth.migreq) == (1, 100, 0, 1)
    world.close()


def _scapy():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of its own imports
        from scapy.contrib import roce
    return roce
