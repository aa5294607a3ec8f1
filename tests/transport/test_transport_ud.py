"""Unreliable datagrams: address handles, Q_Keys, the 40 bytes in front (IBTA 9.8.3)."""

import pytest

from softhca.queues import cqe, wqe
from softhca.transport.environment import AddressHandle
from softhca.transport.states import ERR, RTS, SQE, UD
from softhca.wire import opcodes as op
from softhca.wire.ip import Ipv4, Ipv6

QKEY = 0x1234


@pytest.fixture
def ud(pair):
    def make(**settings):
        p = pair(**{"service": UD, "pmtu": 1024, "left_psn": 0xFFFFFF, **settings})
        p.handle(p.left, p.right)
        p.handle(p.right, p.left)
        return p

    return make


def send(p, payload=b"hello", qkey=QKEY, **other):
    p.left.post(other.pop("opcode", wqe.SEND), inline=payload, ah=1, qpn=p.right.number, qkey=qkey, **other)
    p.run()


@pytest.mark.parametrize("is_v6", [False, True])
@pytest.mark.parametrize("size", [0, 1, 5, 256])
def test_datagram_stands_behind_forty_bytes_with_the_senders_address(ud, size, is_v6):
    p = ud(v6=is_v6)
    inbox = p.right.region(400)
    p.right.post_receive([inbox.sge()], wr_id=9)
    send(p, bytes(range(256))[:size])
    (received,) = p.right.received()
    assert (received.wr_id, received.status, received.opcode) == (9, 0, cqe.WC_RECV)
    assert (received.byte_len, received.src_qp, received.wc_flags) == (40 + size, p.left.number, cqe.WC_GRH)
    assert inbox.data[40 : 40 + size] == bytes(range(256))[:size]
    assert not any(inbox.data[40 + size :])
    transport_bytes = 12 + 8 + size + -size % 4 + 4
    route = p.route(p.a.gid, p.b.gid)
    if is_v6:
        header = Ipv6.decode(inbox.data, 0)
        assert (header.source, header.destination) == (route.source, route.destination)
        assert header.payload_length_bytes == 8 + transport_bytes
    else:
        assert not any(inbox.data[:20])
        header = Ipv4.decode(inbox.data, 20)
        assert (header.source, header.destination) == (route.source[12:], route.destination[12:])
        assert header.total_length_bytes == 28 + transport_bytes
        assert header == header.with_checksum()
    assert p.left.sent()[0].status == 0


def test_c9_204_psns_count_up_and_wrap(ud):
    p = ud()
    for _ in range(3):
        send(p)
    assert [row["psn"] for row in p.decoded("ab")] == [0xFFFFFF, 0, 1]


def test_immediate_and_solicited(ud):
    p = ud()
    inbox = p.right.region(400)
    p.right.post_receive([inbox.sge()])
    p.right.receive_reader.arm(True)
    send(p, opcode=wqe.SEND_WITH_IMM, imm=0x01020304, flags=wqe.SOLICITED | wqe.SIGNALED)
    (received,) = p.right.received()
    assert (received.imm_or_key, received.wc_flags) == (0x01020304, cqe.WC_GRH | cqe.WC_WITH_IMM)
    assert p.b.cq_events == 1


@pytest.mark.parametrize("qkey", [QKEY + 1, 0])
def test_wrong_qkey_is_dropped_and_consumes_nothing(ud, qkey):
    p = ud()
    inbox = p.right.region(400)
    p.right.post_receive([inbox.sge()])
    send(p, qkey=qkey)
    assert p.right.received() == []
    assert p.right.qp.counters.drops_qkey == 1
    send(p)
    assert len(p.right.received()) == 1


def test_qkey_with_the_high_bit_means_the_queue_pairs_own(ud):
    p = ud()
    inbox = p.right.region(400)
    p.right.post_receive([inbox.sge()])
    send(p, qkey=0x80000001)
    assert len(p.right.received()) == 1


def test_c9_207_without_receive_the_datagram_is_dropped(ud):
    p = ud()
    send(p)
    assert p.right.qp.counters.drops_no_receive == 1
    assert p.right.qp.state == RTS


@pytest.mark.parametrize(("room", "fits"), [(44, False), (45, True)])
def test_c9_205_receive_must_hold_the_forty_bytes_and_the_payload(ud, room, fits):
    p = ud()
    inbox = p.right.region(400)
    p.right.post_receive([inbox.sge(0, room)], wr_id=1)
    send(p)
    assert [c.wr_id for c in p.right.received()] == ([1] if fits else [])
    if not fits:
        assert not any(inbox.data)
        p.right.post_receive([inbox.sge()], wr_id=2)
        send(p, b"hi")
        assert [c.wr_id for c in p.right.received()] == [1]  # the receive has waited


def test_c9_200_message_beyond_the_pmtu_is_a_length_error_and_stops_the_send_side(ud):
    p = ud()
    source = p.left.region(2000)
    p.left.post(wqe.SEND, [source.sge(0, 1024)], ah=1, qpn=p.right.number, qkey=QKEY, wr_id=1)
    p.left.post(wqe.SEND, [source.sge(0, 1025)], ah=1, qpn=p.right.number, qkey=QKEY, wr_id=2)
    p.left.post(wqe.SEND, [source.sge(0, 1)], ah=1, qpn=p.right.number, qkey=QKEY, wr_id=3)
    p.run()
    assert [(c.wr_id, c.status) for c in p.left.sent()] == [
        (1, 0),
        (2, cqe.WC_LOC_LEN_ERR),
        (3, cqe.WC_WR_FLUSH_ERR),
    ]
    assert p.left.qp.state == SQE


def test_datagram_beyond_the_receivers_pmtu_is_dropped(ud):
    p = ud()
    inbox = p.right.region(4000)
    p.right.post_receive([inbox.sge()])
    p.forge(op.UD_SEND_ONLY, 1, b"x" * 1025)
    assert p.right.received() == []
    p.forge(op.UD_SEND_ONLY, 1, b"x" * 1024)
    assert len(p.right.received()) == 1


@pytest.mark.parametrize("handle", ["unknown", "foreign"])
def test_address_handle_must_exist_in_the_queue_pairs_domain(ud, handle):
    p = ud()
    mine = p.a.handles[1]
    p.a.handles[2] = AddressHandle(2, 8, mine.route, mine.window)
    p.left.post(wqe.SEND, inline=b"x", ah=2 if handle == "foreign" else 3, qpn=p.right.number, qkey=QKEY)
    p.run()
    assert [c.status for c in p.left.sent()] == [cqe.WC_LOC_QP_OP_ERR]
    assert p.log == []


@pytest.mark.parametrize("opcode", [wqe.RDMA_WRITE, wqe.RDMA_READ, wqe.SEND_WITH_INV, wqe.LOCAL_INV])
def test_only_sends_exist(ud, opcode):
    p = ud()
    p.left.post(opcode, ah=1, qpn=p.right.number, qkey=QKEY)
    p.run()
    assert [c.status for c in p.left.sent()] == [cqe.WC_LOC_QP_OP_ERR]


def test_receive_with_a_bad_key_is_a_local_error(ud):
    p = ud()
    p.right.post_receive([(0, 400, 0xBAD)])
    send(p)
    assert [c.status for c in p.right.received()] == [cqe.WC_LOC_PROT_ERR]
    assert p.right.qp.state == ERR


def test_datagrams_to_two_destinations_never_share_a_burst(ud):
    p = ud()
    mine = p.a.handles[1]
    p.a.handles[2] = AddressHandle(2, mine.pd, p.route(p.a.gid, p.b.gid), mine.window)
    inbox = p.right.region(400)
    for i in range(9):
        p.right.post_receive([inbox.sge()], wr_id=i)
    for number in (1, 1, 1, 2, 2, 2, 1, 1, 1):
        p.left.post(wqe.SEND, inline=b"same", ah=number, qpn=p.right.number, qkey=QKEY, ring=False)
    p.left.qp.doorbell(p.now)
    p.run()
    assert [packets for way, packets, _ in p.bursts if way == "ab"] == [3, 3, 3]
    assert len(p.right.received()) == 9


def test_packets_of_other_services_are_dropped(ud):
    p = ud()
    inbox = p.right.region(400)
    p.right.post_receive([inbox.sge()])
    p.forge(op.RC_SEND_ONLY, 1, b"x")
    p.forge(op.RC_ACKNOWLEDGE, 1)
    assert p.right.received() == []
    assert p.right.qp.counters.drops_service == 2
