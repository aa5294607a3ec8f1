"""What a device takes although it leads nowhere: SoftRoCE of Linux checks none of these when it is told."""

import pytest

from softhca.testing import Network
from softhca.testing.verbs import attributes, completions, make_end
from softhca.verbs import enums as e
from softhca.verbs.addr import AH, AHAttr, GlobalRoute
from softhca.verbs.qp import QP, QPAttr, QPCap, QPInitAttr
from softhca.verbs.wr import RecvWR, SendWR


@pytest.fixture
def network():
    with Network() as made:
        yield made


@pytest.fixture
def end(network):
    return make_end(network.add().context())


def datagrams(end):
    """A UD queue pair in RTS."""
    attr = QPAttr(port_num=1)
    attr.qkey = 1
    init = QPInitAttr(e.IBV_QPT_UD, scq=end.send_cq, rcq=end.recv_cq, cap=QPCap(4, 4, 1, 1))
    return QP(end.pd, init, attr)


def state_of(qp):
    return qp.query(e.IBV_QP_STATE)[0].qp_state


def own_path(end, **changes):
    route = GlobalRoute(dgid=end.context.query_gid(1, 0), sgid_index=0)
    return AHAttr(gr=route, is_global=1, port_num=1, **changes)


@pytest.mark.parametrize("rate", [1, 18, 99, 255])
def test_a_static_rate_is_kept_and_limits_nothing(network, end, rate):
    """No device without rates of its own looks at the number; address handles and connections carry on."""
    handle, qp, peer = AH(end.pd, attr=own_path(end, static_rate=rate)), datagrams(end), datagrams(end)
    peer.post_recv(RecvWR(wr_id=7, num_sge=1, sg=[end.sge(64)]))
    wr = SendWR(num_sge=1, sg=[end.sge(8)])
    wr.set_wr_ud(handle, peer.qp_num, 1)
    qp.post_send(wr)
    assert [each.status for each in completions(network, end.send_cq)] == [e.IBV_WC_SUCCESS]
    assert [each.wr_id for each in completions(network, end.recv_cq)] == [7]
    other = make_end(network.add().context())
    attr = attributes(end, other, sq_psn=0, rq_psn=0)
    vector = attr.ah_attr
    vector.static_rate = rate
    attr.ah_attr = vector
    end.qp.to_rts(attr)
    assert end.qp.query(e.IBV_QP_AV)[0].ah_attr.static_rate == rate


def test_a_connection_to_queue_pair_0_is_made_and_nobody_answers(network, end):
    attr = QPAttr(port_num=1, path_mtu=3)
    attr.dest_qp_num = 0
    attr.ah_attr = own_path(end)
    attr.timeout, attr.retry_cnt, attr.rnr_retry, attr.max_rd_atomic = 1, 1, 1, 1
    end.qp.to_rts(attr)
    end.send(length=8)
    (done,) = completions(network, end.send_cq)
    assert done.status == e.IBV_WC_RETRY_EXC_ERR
    assert state_of(end.qp) == e.IBV_QPS_ERR
    assert end.qp.query(e.IBV_QP_DEST_QPN)[0].dest_qp_num == 0


@pytest.mark.parametrize(
    "opcode",
    [e.IBV_WR_RDMA_READ, e.IBV_WR_RDMA_WRITE, e.IBV_WR_RDMA_WRITE_WITH_IMM, e.IBV_WR_ATOMIC_FETCH_AND_ADD,
     e.IBV_WR_ATOMIC_CMP_AND_SWP],
)  # fmt: skip
def test_an_operation_that_datagrams_have_not_fails_when_it_is_carried_out(network, end, opcode):
    """Post Send takes it, as drivers do; then `IBV_WC_LOC_QP_OP_ERR`, and what follows is flushed."""
    qp = datagrams(end)
    wr = SendWR(wr_id=1, opcode=opcode, num_sge=1, sg=[end.sge(8)])
    if opcode in (e.IBV_WR_ATOMIC_FETCH_AND_ADD, e.IBV_WR_ATOMIC_CMP_AND_SWP):
        wr.set_wr_atomic(end.mr.rkey, end.mr.buf, 1, 2)
    else:
        wr.set_wr_rdma(end.mr.rkey, end.mr.buf)
    before = end.mr.read(64, 0)
    qp.post_send(wr)
    qp.post_send(SendWR(wr_id=2, num_sge=1, sg=[end.sge(8)]))
    found = [(each.wr_id, each.status) for each in completions(network, end.send_cq, 2)]
    assert found == [(1, e.IBV_WC_LOC_QP_OP_ERR), (2, e.IBV_WC_WR_FLUSH_ERR)]
    assert state_of(qp) == e.IBV_QPS_SQE
    assert end.mr.read(64, 0) == before


def test_a_datagram_without_an_address_handle_fails_when_it_is_sent(network, end):
    """A real library ends the program, for it follows the handle's pointer: here the request fails."""
    qp = datagrams(end)
    qp.post_send(SendWR(wr_id=1, num_sge=1, sg=[end.sge(8)]))
    assert [(each.wr_id, each.status) for each in completions(network, end.send_cq)] == [
        (1, e.IBV_WC_LOC_QP_OP_ERR)
    ]
    assert state_of(qp) == e.IBV_QPS_SQE


def test_a_datagram_by_a_closed_handle_is_refused_at_once(network, end):
    qp, handle = datagrams(end), AH(end.pd, attr=own_path(end))
    wr = SendWR(num_sge=1, sg=[end.sge(8)])
    wr.set_wr_ud(handle, qp.qp_num, 1)
    handle.close()
    with pytest.raises(Exception, match="AH"):
        qp.post_send(wr)
    assert state_of(qp) == e.IBV_QPS_RTS
