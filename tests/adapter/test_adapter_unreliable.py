"""UC and UD through whole adapters, over RoCE v2 and native: SQE and its recovery, losses told, counters."""

import errno

import native_network
import pytest

from softhca.driver import services
from softhca.driver.errors import DriverError
from softhca.queues.control_fields import CREATE_TELLS_LOSSES, EVENT_MESSAGES_LOST
from softhca.testing.ends import ALL_RIGHTS, QKEY, RC, SEND, UC, UD, WRITE, End, post
from softhca.testing.network import Network
from softhca.transport.states import ERR, RESET, RTS, SQE
from softhca.wire import framing

LOC_LEN_ERR, LOC_PROT_ERR, FLUSHED = 1, 4, 5


def world_of(kind):
    return native_network.NativeNetwork() if kind == framing.NATIVE else Network()


def path_to(end, peer, kind):
    mtu = end.node.adapter.config.active_mtu
    if kind == framing.NATIVE:
        return services.Path(None, dlid=peer.node.adapter.port.lid, mtu=mtu)
    return services.Path(peer.node.gid, mtu=mtu)


@pytest.fixture(params=[framing.ROCE_V4, framing.NATIVE], ids=["roce", "native"])
def ends(request):
    """Two ends on two adapters, and how to connect them."""
    world = world_of(request.param)
    left, right = End(world.add(1)), End(world.add(2))

    def join(qp, peer):
        for end, mine, there, theirs in ((left, qp, right, peer), (right, peer, left, qp)):
            services.connect(mine, path_to(end, there, request.param), theirs.number, 70, 70, ALL_RIGHTS)

    def handle():
        return left.device.create_ah(left.pd, path_to(left, right, request.param).vector())

    yield world, left, right, join, handle
    world.close()


def test_a_failed_uc_send_stops_the_send_side_alone_until_it_is_modified_to_rts(ends):
    _world, left, right, join, _ = ends
    qp, peer = left.qp(UC), right.qp(UC)
    join(qp, peer)
    post(qp, SEND, [(0, 8, 0xBAD)], wr_id=1, ring=False)
    post(qp, SEND, [left.sge(0, 8)], wr_id=2)
    assert [(c.wr_id, c.status) for c in left.poll(2)] == [(1, LOC_PROT_ERR), (2, FLUSHED)]
    assert qp.query()["qp_state"] == SQE
    # receives go on, what is posted is flushed
    qp.post_recv(3, [left.sge(100, 50)])
    right.memory[:5] = b"still"
    post(peer, SEND, [right.sge(0, 5)])
    post(qp, SEND, [left.sge(0, 8)], wr_id=4)
    assert sorted((c.wr_id, c.status) for c in left.poll(2)) == [(3, 0), (4, FLUSHED)]
    assert left.memory[100:105] == b"still"
    # recovery: the PSN goes on where it stood
    with pytest.raises(DriverError):
        qp.modify({"qp_state": RTS, "sq_psn": 5})
    qp.modify({"qp_state": RTS, "cur_qp_state": SQE})
    peer.post_recv(6, [right.sge(200, 50)])
    post(qp, SEND, [left.sge(100, 5)], wr_id=5)
    assert [(c.wr_id, c.status) for c in left.poll(1)] == [(5, 0)]
    assert [(c.wr_id, c.status, c.byte_len) for c in right.poll(2) if c.wr_id == 6] == [(6, 0, 5)]
    assert right.device.query_counters(qp=peer.number)["out_of_sequence"] == 0


def test_a_failed_datagram_stops_the_send_side_alone_until_it_is_modified_to_rts(ends):
    _world, left, right, _, handle = ends
    qp, peer = left.qp(UD), right.qp(UD)
    for each in (qp, peer):
        services.start_datagrams(each, QKEY)
    ah = handle()
    post(qp, SEND, [left.sge(0, 1025)], wr_id=1, ah=ah, qpn=peer.number, qkey=QKEY)
    assert [(c.wr_id, c.status) for c in left.poll(1)] == [(1, LOC_LEN_ERR)]
    assert qp.query()["qp_state"] == SQE
    post(qp, SEND, [left.sge(0, 8)], wr_id=2, ah=ah, qpn=peer.number, qkey=QKEY)
    assert [(c.wr_id, c.status) for c in left.poll(1)] == [(2, FLUSHED)]
    qp.modify({"qp_state": RTS, "cur_qp_state": SQE, "qkey": QKEY})
    peer.post_recv(3, [right.sge(0, 100)])
    post(qp, SEND, [left.sge(0, 8)], wr_id=4, ah=ah, qpn=peer.number, qkey=QKEY)
    assert [(c.wr_id, c.status) for c in left.poll(1)] == [(4, 0)]
    assert [(c.wr_id, c.byte_len) for c in right.poll(1)] == [(3, 48)]


def test_from_sqe_the_error_state_and_reset_can_be_reached(ends):
    _, left, right, join, _ = ends
    for target in (ERR, RESET):
        qp, peer = left.qp(UC), right.qp(UC)
        join(qp, peer)
        qp.post_recv(9, [left.sge(0, 8)])
        post(qp, WRITE, [(0, 8, 0xBAD)], wr_id=1)
        assert left.poll(1)[0].status == LOC_PROT_ERR
        qp.modify({"qp_state": target})
        assert [(c.wr_id, c.status) for c in left.poll(1)] == ([(9, FLUSHED)] if target == ERR else [])


def lose(world, end, numbers):
    """Swallow the packets of ``end`` with these numbers, counted from 0."""
    seen = iter(range(1 << 20))

    def tamper(sent):
        return None if next(seen) in numbers else sent.data

    world.tamper = tamper


def test_o9_131_a_uc_queue_pair_made_so_tells_of_messages_lost(ends):
    world, left, right, join, _ = ends
    qp = left.qp(UC)
    told = right.device.create_qp(
        right.pd, UC, right.cq, right.cq, None, 16, 16, 2, 2, 64, True, CREATE_TELLS_LOSSES
    )
    join(qp, told)
    lose(world, left, {1, 4})
    for wr_id in range(6):
        told.post_recv(10 + wr_id, [right.sge(0, 100)])
        post(qp, SEND, [left.sge(0, 1)], wr_id=wr_id)
    assert len(left.poll(6)) == 6
    assert [c.wr_id for c in right.poll(6)] == [10, 11, 12, 13]
    events = []
    while (event := right.device.next_event(0)) is not None:
        events.append(event)
    assert (EVENT_MESSAGES_LOST, told.number) in events
    assert right.device.query_counters(qp=told.number)["out_of_sequence"] == 2
    assert told.query()["qp_state"] == RTS


def test_o9_131_only_uc_can_tell(ends):
    _, left, _right, _join, _ = ends
    for kind in (RC, UD):
        with pytest.raises(DriverError) as caught:
            left.device.create_qp(
                left.pd, kind, left.cq, left.cq, None, 4, 4, 1, 1, 0, True, CREATE_TELLS_LOSSES
            )
        assert caught.value.errno == errno.EINVAL
    with pytest.raises(DriverError) as caught:
        left.device.create_qp(left.pd, UC, left.cq, left.cq, None, 4, 4, 1, 1, 0, True, 1)
    assert caught.value.errno == errno.EOPNOTSUPP


def test_drops_are_counted_by_reason_for_the_queue_pair_and_for_the_port(ends):
    _, left, right, join, _handle = ends
    qp, peer = left.qp(UC), right.qp(UC)
    join(qp, peer)
    post(qp, SEND, [left.sge(0, 8)])
    post(qp, WRITE, [left.sge(0, 8)], va=right.va, rkey=right.key.rkey ^ 1)
    assert [c.status for c in left.poll(2)] == [0, 0]
    left.poll(1)
    figures = right.device.query_counters(qp=peer.number)
    assert (figures["drops_no_receive"], figures["drops_protection"]) == (1, 1)
    port = right.device.query_counters()
    assert (port["transport_drops_no_receive"], port["transport_drops_protection"]) == (1, 1)


def test_qkey_violations_show_at_the_port(ends):
    _, left, right, _, handle = ends
    qp, peer = left.qp(UD), right.qp(UD)
    for each in (qp, peer):
        services.start_datagrams(each, QKEY)
    post(qp, SEND, [left.sge(0, 8)], ah=handle(), qpn=peer.number, qkey=QKEY + 1)
    left.poll(2)
    assert right.device.query_counters(qp=peer.number)["drops_qkey"] == 1
    assert right.device.query_port(1)["qkey_viol_cntr"] == 1
