"""Raw datagrams over native ports: both encodings, lengths, who receives what, what completions tell."""

import errno

import pytest
from native_network import gid, lid
from raw_network import (
    ETHERTYPE,
    IPV6_TYPE,
    LONGEST_ETHERTYPE,
    LONGEST_IPV6,
    RAW,
    UNTOUCHED,
    RawNetwork,
    handle,
    ipv6,
    raw_end,
    raw_qp,
    send_raw,
)

from softhca.adapter.config import LID_LAST_UNICAST
from softhca.driver.errors import DriverError
from softhca.testing.ends import RC, SEND, SEND_IMM, UD, WRITE, End, post
from softhca.testing.network import Network
from softhca.wire.lrh import LNH_IPV6, LNH_RAW
from softhca.wire.raw import ALL_RAW, RAW_IPV6

LOC_LEN_ERR, LOC_QP_OP_ERR, LOC_PROT_ERR, FLUSHED = 1, 2, 4, 5
SQE = 5


@pytest.fixture
def two():
    """Two ends; the second one receives all raw datagrams."""
    world = RawNetwork()
    yield (world, *raw_end(world, 1), *raw_end(world, 2, ALL_RAW))
    world.close()


def code_of(call, *arguments, **options):
    with pytest.raises(DriverError) as refused:
        call(*arguments, **options)
    return refused.value.errno


def counters(end, qp=None):
    figures = end.device.query_counters(qp=0 if qp is None else qp.number)
    return {name.removeprefix("drops_"): n for name, n in figures.items() if name.startswith("drops_") and n}


# lengths and encodings


@pytest.mark.parametrize("length", [0, 1, 3, 4, 5, 7, 8, 9, 1000, LONGEST_ETHERTYPE - 1, LONGEST_ETHERTYPE])
def test_a_payload_of_an_ethertype_is_padded_with_zeros_to_words_o9_145(two, length):
    world, left, qp, right, receiver = two
    data = bytes(range(1, 256)) * 6
    receiver.post_recv(7, [right.sge(0, 2000)])
    send_raw(left, qp, handle(left), data[:length], ETHERTYPE)
    assert [(c.status, c.byte_len) for c in left.poll(1)] == [(0, length)]
    (packet,) = world.raws
    padded = max(8, length + -length % 4)
    assert packet.lrh.lnh == LNH_RAW
    assert packet.rwh.ethertype == ETHERTYPE
    assert packet.rwh.reserved16 == 0
    assert packet.payload == data[:length].ljust(padded, b"\0")
    assert len(world.packets[0]) == 8 + 4 + padded + 2
    (done,) = right.poll(1)
    assert (done.status, done.wr_id, done.byte_len, done.wc_flags) == (0, 7, padded, 0)
    assert done.src_qp == ETHERTYPE
    assert right.memory[:padded] == packet.payload
    assert right.memory[padded:] == UNTOUCHED * (len(right.memory) - padded)


@pytest.mark.parametrize("service", [RAW_IPV6, IPV6_TYPE])
@pytest.mark.parametrize("length", [0, 1, 2, 3, 4, 999, LONGEST_ETHERTYPE - 40])
def test_ipv6_travels_in_either_encoding(two, length, service):
    world, left, qp, right, receiver = two
    data = ipv6(length)
    receiver.post_recv(7, [right.sge(0, 1500)])
    send_raw(left, qp, handle(left), data, service)
    (packet,) = world.raws if left.poll(1) else [None]
    padded = data + bytes(-length % 4)
    assert packet.lrh.lnh == (LNH_IPV6 if service == RAW_IPV6 else LNH_RAW)
    assert packet.payload == padded
    assert packet.ipv6.payload_length_bytes == length
    (done,) = right.poll(1)
    assert (done.status, done.byte_len, done.src_qp) == (0, len(padded), service)
    assert right.memory[: len(padded)] == padded


@pytest.mark.parametrize("mtu", [1, 3, 5])
@pytest.mark.parametrize(("service", "headers"), [(RAW_IPV6, 116), (ETHERTYPE, 112), (IPV6_TYPE, 112)])
def test_a_payload_may_exceed_the_mtu_up_to_the_longest_packet_o9_148(mtu, service, headers):
    world = RawNetwork()
    (left, qp), (right, receiver) = (raw_end(world, n, ALL_RAW, active_mtu=mtu) for n in (1, 2))
    longest = (128 << mtu) + headers
    receiver.post_recv(1, [right.sge(0, 8000)])
    send_raw(left, qp, handle(left), ipv6(longest - 40), service)
    assert left.poll(1)[0].status == 0
    assert [c.byte_len for c in right.poll(1)] == [longest]
    assert len(world.packets[0]) == (128 << mtu) + 124 + 2
    assert right.memory[:longest] == ipv6(longest - 40)
    send_raw(left, qp, handle(left), ipv6(longest - 39), service)
    assert left.poll(1)[0].status == LOC_LEN_ERR
    assert len(world.packets) == 1
    world.close()


def test_a_datagram_waits_for_room_in_its_destinations_window_and_then_goes(two):
    world, left, qp, right, receiver = two
    ah = handle(left)
    (window,) = left.node.adapter.port.windows.values()
    receiver.post_recv(1, [right.sge(0, 1500)])
    window.charge(window.limit_bytes)  # of another queue pair
    send_raw(left, qp, ah, b"wait", ETHERTYPE)
    assert world.run(lambda: len(window.waiters) == 1)
    assert world.packets == []
    window.give_up(window.limit_bytes)
    assert [c.status for c in left.poll(1)] == [0]
    assert [c.status for c in right.poll(1)] == [0]
    assert right.memory[:4] == b"wait"


def test_the_bytes_of_a_packet_are_literally_these(two):
    world, left, qp, _, _ = two
    send_raw(left, qp, handle(left, sl=3), b"words and", ETHERTYPE)
    left.poll(1)
    # LRH: VL 3, version 0; SL 3, LNH 0; DLID; 8 + 4 + 12 bytes are 6 words; SLID.  RWH: reserved, EtherType
    assert world.packets[0][:-2].hex() == "30300012" + "00060011" + "000088b5" + b"words and\0\0\0".hex()
    send_raw(left, qp, handle(left, sl=3), ipv6(0))
    left.poll(1)
    assert world.packets[1][:-2].hex() == "30310012" + "000c0011" + ipv6(0).hex()


# addresses


def test_a_completion_tells_where_a_datagram_came_from():
    world = RawNetwork()
    left, qp = raw_end(world, 1, lmc=2)
    right, receiver = raw_end(world, 2, ALL_RAW, lmc=3)
    for turn in range(4):
        receiver.post_recv(turn, [right.sge(100 * turn, 100)])
    for bits in range(4):
        ah = handle(left, dlid=lid(2, 3) + 2 * bits, src_path_bits=bits, sl=bits + 4)
        send_raw(left, qp, ah, bytes([bits]) * 16, ETHERTYPE, offset=100 * bits)
    assert [(c.wr_id, c.slid, c.sl, c.dlid_path_bits, c.wc_flags, c.pkey_index) for c in right.poll(4)] == [
        (bits, lid(1, 2) + bits, bits + 4, 2 * bits, 0, 0) for bits in range(4)
    ]
    world.close()


def test_a_datagram_to_the_own_lid_needs_no_link():
    world = RawNetwork()
    end, qp = raw_end(world, 1, ETHERTYPE)
    qp.post_recv(3, [end.sge(1000, 100)])
    send_raw(end, qp, handle(end, 1, sl=2), b"to myself", ETHERTYPE, wr_id=1)
    done = {c.wr_id: c for c in end.poll(2)}
    assert (done[1].status, done[3].byte_len, done[3].slid, done[3].sl) == (0, 12, lid(1), 2)
    assert end.memory[1000:1012] == b"to myself\0\0\0"
    assert world.packets == []
    world.close()


def test_the_last_unicast_lid_is_a_destination_like_any_other():
    world = RawNetwork()
    left, qp = raw_end(world, 1)
    right, receiver = raw_end(world, 2, ETHERTYPE)
    right.node.adapter.set_port_info(1, lid=LID_LAST_UNICAST)
    receiver.post_recv(3, [right.sge(0, 100)])
    send_raw(left, qp, handle(left, dlid=LID_LAST_UNICAST), b"far away", ETHERTYPE)
    assert [(done.wr_id, done.slid) for done in right.poll(1)] == [(3, lid(1))]
    world.close()


def test_gathered_and_inline_data(two):
    _, left, qp, right, receiver = two
    for turn in range(2):
        receiver.post_recv(turn, [right.sge(100 * turn, 3), right.sge(100 * turn + 50, 50)])
    left.memory[:20] = b"abcdefghijklmnopqrst"
    ah = handle(left)
    post(qp, SEND, [left.sge(2, 3), left.sge(10, 7)], ah=ah, qpn=ETHERTYPE)
    post(qp, SEND, [], inline=b"inline data!", ah=ah, qpn=ETHERTYPE)
    assert [c.status for c in left.poll(2)] == [0, 0]
    assert [c.byte_len for c in right.poll(2)] == [12, 12]
    assert right.memory[:3] + right.memory[50:59] == b"cdeklmnopq\0\0"
    assert right.memory[100:103] + right.memory[150:159] == b"inline data!"
    assert right.memory[3:50] == UNTOUCHED * 47


# who receives what


def test_each_service_has_its_queue_pair_and_the_rest_another_o9_146_o9_147():
    world = RawNetwork()
    left, qp = raw_end(world, 1)
    right, rest = raw_end(world, 2, ALL_RAW)
    by_service = {
        IPV6_TYPE: raw_qp(right, RAW_IPV6),
        ETHERTYPE: raw_qp(right, ETHERTYPE, 0x0806),
        0: raw_qp(right, 0),
    }
    owners = {RAW_IPV6: by_service[IPV6_TYPE], 0x0806: by_service[ETHERTYPE], **by_service, 0x0800: rest}
    for receiver in {*by_service.values(), rest}:
        for _ in range(len(owners)):
            receiver.post_recv(receiver.number, [right.sge(0, 100)])
    ah = handle(left)
    for service, owner in owners.items():
        send_raw(left, qp, ah, ipv6(4), service)
        (done,) = right.poll(1)
        assert (done.wr_id, done.qp_num, done.src_qp) == (owner.number, owner.number, service)
    world.close()


def test_without_a_receiver_a_raw_datagram_is_dropped_and_counted(two):
    world, left, qp, right, receiver = two
    ah = handle(left)
    right.device.detach_raw(receiver.number, ALL_RAW)
    right.device.attach_raw(receiver.number, 0x0800)
    receiver.post_recv(1, [right.sge(0, 100)])
    for service in (RAW_IPV6, ETHERTYPE, 0):
        send_raw(left, qp, ah, ipv6(0), service)
    assert [c.status for c in left.poll(3)] == [0, 0, 0]
    world.run()
    assert counters(right) == {"raw": 3}
    right.device.attach_raw(receiver.number, IPV6_TYPE)
    send_raw(left, qp, ah, ipv6(0), RAW_IPV6)
    assert [c.src_qp for c in right.poll(1)] == [RAW_IPV6]


def test_a_service_has_one_queue_pair():
    world = RawNetwork()
    end, qp = raw_end(world, 1, ETHERTYPE, RAW_IPV6)
    other = raw_qp(end)
    attach, detach = end.device.attach_raw, end.device.detach_raw
    attach(qp.number, ETHERTYPE)
    for service in (ETHERTYPE, IPV6_TYPE, RAW_IPV6):
        assert code_of(attach, other.number, service) == errno.EBUSY
        assert code_of(detach, other.number, service) == errno.EINVAL
    for service in (RAW_IPV6 + 1, ALL_RAW - 1, ALL_RAW + 1, 0xFFFFFFFF):
        assert code_of(attach, other.number, service) == errno.EINVAL
    assert code_of(attach, end.qp(UD).number, 0x0800) == errno.EINVAL
    assert code_of(attach, 0x123456, 0x0800) == errno.EINVAL
    assert code_of(detach, other.number, 0x0800) == errno.EINVAL
    detach(qp.number, IPV6_TYPE)
    attach(other.number, RAW_IPV6)
    qp.destroy()
    attach(other.number, ETHERTYPE)
    world.close()


def test_a_host_that_goes_takes_its_services_along():
    world = RawNetwork()
    node = world.add(1)
    first, second = End(node), End(node)
    raw_qp(first, ALL_RAW, ETHERTYPE)
    other = raw_qp(second)
    assert code_of(second.device.attach_raw, other.number, ETHERTYPE) == errno.EBUSY
    first.device.close()
    second.device.attach_raw(other.number, ETHERTYPE)
    second.device.attach_raw(other.number, ALL_RAW)
    world.close()


@pytest.mark.parametrize("state", [0, 1, 6])
def test_a_queue_pair_that_is_not_ready_receives_nothing(two, state):
    world, left, qp, right, receiver = two
    receiver.modify({"qp_state": 0} if state < 6 else {"qp_state": 6})
    if state == 1:
        receiver.modify({"qp_state": 1, "port_num": 1})
        receiver.post_recv(1, [right.sge(0, 100)])
    send_raw(left, qp, handle(left), b"x", ETHERTYPE)
    world.run()
    assert counters(right) == {"state": 1}
    assert right.cq.poll(1) == []


# receives


def test_without_a_receive_or_with_one_too_short_the_datagram_is_dropped_and_the_receive_stays(two):
    world, left, qp, right, receiver = two
    ah = handle(left)
    send_raw(left, qp, ah, b"x" * 16, ETHERTYPE)
    world.run()
    assert counters(right, receiver) == {"no_receive": 1}
    receiver.post_recv(1, [right.sge(0, 10), right.sge(50, 5)])
    receiver.post_recv(2, [right.sge(100, 16)])
    send_raw(left, qp, ah, b"y" * 13, ETHERTYPE)  # with its padding one byte too long
    world.run()
    assert counters(right, receiver) == {"no_receive": 1, "receive_length": 1}
    assert right.cq.poll(1) == []
    assert right.memory[:200] == UNTOUCHED * 200
    send_raw(left, qp, ah, b"z" * 12, ETHERTYPE)
    assert [(c.wr_id, c.byte_len) for c in right.poll(1)] == [(1, 12)]
    send_raw(left, qp, ah, b"z" * 16, ETHERTYPE)
    assert [(c.wr_id, c.byte_len) for c in right.poll(1)] == [(2, 16)]


def test_a_receive_with_a_bad_key_ends_the_queue_pair(two):
    _, left, qp, right, receiver = two
    receiver.post_recv(1, [(right.va, 100, right.key.lkey + 1)])
    receiver.post_recv(2, [right.sge(0, 100)])
    send_raw(left, qp, handle(left), b"x", ETHERTYPE)
    assert [(c.wr_id, c.status) for c in right.poll(2)] == [(1, LOC_PROT_ERR), (2, FLUSHED)]


def test_a_shared_receive_queue_serves_raw_datagrams(two):
    _, left, qp, right, _receiver = two
    srq = right.device.create_srq(right.pd, 4, 1)
    shared = raw_qp(right, ETHERTYPE, srq=srq)
    srq.post(9, [right.sge(0, 100)])
    send_raw(left, qp, handle(left), b"x" * 20, ETHERTYPE)
    (done,) = right.poll(1)
    assert (done.wr_id, done.qp_num, done.byte_len) == (9, shared.number, 20)


# sends that cannot be


@pytest.mark.parametrize(
    ("data", "service", "status"),
    [
        (ipv6(4, next_header=0x1B), RAW_IPV6, LOC_QP_OP_ERR),  # C9-208
        (ipv6(4, next_header=0x1B), IPV6_TYPE, LOC_QP_OP_ERR),
        (ipv6(0)[:39], RAW_IPV6, LOC_QP_OP_ERR),
        (ipv6(0)[:39], IPV6_TYPE, LOC_QP_OP_ERR),
        (b"", RAW_IPV6, LOC_QP_OP_ERR),
        (ipv6(4, version=4), RAW_IPV6, LOC_QP_OP_ERR),
        (ipv6(4), RAW_IPV6 + 1, LOC_QP_OP_ERR),
        (ipv6(4), ALL_RAW, LOC_QP_OP_ERR),
        (ipv6(LONGEST_IPV6 - 39), RAW_IPV6, LOC_LEN_ERR),
        (bytes(LONGEST_ETHERTYPE + 1), ETHERTYPE, LOC_LEN_ERR),
        (bytes(30_000), ETHERTYPE, LOC_LEN_ERR),
    ],
)
def test_what_is_no_raw_datagram_is_not_sent_c9_208(two, data, service, status):
    world, left, qp, _, _ = two
    ah = handle(left)
    send_raw(left, qp, ah, data, service, wr_id=1, ring=False)
    send_raw(left, qp, ah, ipv6(0), RAW_IPV6, wr_id=2, offset=0x8000)
    assert [(c.wr_id, c.status) for c in left.poll(2)] == [(1, status), (2, FLUSHED)]
    assert world.packets == []
    assert qp.query()["qp_state"] == SQE
    qp.modify({"qp_state": 3})
    send_raw(left, qp, ah, ipv6(0), RAW_IPV6, wr_id=3)
    assert [(c.wr_id, c.status) for c in left.poll(1)] == [(3, 0)]


def test_iba_transport_is_only_looked_for_in_ipv6(two):
    _, left, qp, right, receiver = two
    receiver.post_recv(1, [right.sge(0, 100)])
    send_raw(left, qp, handle(left), ipv6(4, next_header=0x1B), ETHERTYPE)
    assert [c.status for c in right.poll(1)] == [0]


@pytest.mark.parametrize("opcode", [WRITE, SEND_IMM, 4, 5, 7, 9])
def test_only_sends_are_raw(two, opcode):
    world, left, qp, _, _ = two
    post(qp, opcode, [left.sge(0, 8)], ah=handle(left), qpn=ETHERTYPE)
    assert [c.status for c in left.poll(1)] == [LOC_QP_OP_ERR]
    assert world.packets == []


def test_an_address_handle_leads_to_a_lid_without_a_grh(two):
    world, left, qp, _, _ = two
    elsewhere = left.device.alloc_pd()
    wrong = [
        0,
        77,
        handle(left, is_global=1, dgid=gid(2)),
        left.device.create_ah(elsewhere, {"dlid": lid(2), "is_global": 0}),
    ]
    for ah in wrong:
        send_raw(left, qp, ah, b"x", ETHERTYPE)
        assert [c.status for c in left.poll(1)] == [LOC_QP_OP_ERR]
        qp.modify({"qp_state": 3})
    assert world.packets == []


def test_a_region_that_is_gone_ends_the_request(two):
    world, left, qp, _, _ = two
    post(qp, SEND, [(left.va, 100, left.key.lkey + 1)], ah=handle(left), qpn=ETHERTYPE)
    assert [c.status for c in left.poll(1)] == [LOC_PROT_ERR]
    assert world.packets == []


# ports


def test_a_roce_port_without_frames_has_no_raw_queue_pairs():
    world = Network()
    end = End(world.add(1, ethernet_frames=False))
    with pytest.raises(DriverError, match="raw packets") as refused:
        end.qp(RAW)
    assert refused.value.errno == errno.EOPNOTSUPP
    assert end.device.query_device()["max_raw_ethy_qp"] == end.device.query_device()["max_raw_ipv6_qp"] == 0
    assert code_of(end.device.attach_raw, end.qp(UD).number, ETHERTYPE) == errno.EINVAL
    world.close()


def test_a_native_device_says_that_it_has_raw_queue_pairs(two):
    attributes = two[1].device.query_device()
    assert attributes["max_raw_ipv6_qp"] == attributes["max_raw_ethy_qp"] == attributes["max_qp"]


def test_nothing_is_sent_before_the_port_is_armed_and_routes_follow_its_lid(two):
    world, left, qp, _, _ = two
    ah = handle(left)
    adapter = left.node.adapter
    adapter.set_port_info(1, state=2)
    send_raw(left, qp, ah, b"x", ETHERTYPE)
    assert left.poll(1)[0].status == 0
    assert (world.packets, adapter.port_counters()["packets_discarded"]) == ([], 1)
    adapter.set_port_info(1, state=4, lid=0x77)
    send_raw(left, qp, ah, b"x", ETHERTYPE)
    left.poll(1)
    assert world.raws[0].lrh.slid == 0x77


def test_raw_and_iba_traffic_share_a_port(two):
    _, left, qp, right, receiver = two
    other = End(right.node).qp(RC)
    assert other.number != receiver.number
    for turn in range(8):
        receiver.post_recv(turn, [right.sge(100 * turn, 100)])
    ah = handle(left)
    for turn in range(8):
        send_raw(left, qp, ah, bytes([turn]) * 20, ETHERTYPE, offset=32 * turn, wr_id=turn)
    assert [c.wr_id for c in left.poll(8)] == list(range(8))
    assert [(c.wr_id, right.memory[100 * c.wr_id]) for c in right.poll(8)] == [(n, n) for n in range(8)]
    assert counters(right) == {}
    figures = right.device.query_counters()
    assert (figures["packets_received"], figures["bytes_received"]) == (8, 8 * 34)
