"""Reliable datagrams by the verbs: domains, EE contexts, work requests that name them, and their errors."""

import errno

import pytest
from traffic import pattern, poll, wait_until

from softhca.testing.verbs import QKEY, VerbsEnd, attributes, make_end
from softhca.verbs import enums as e
from softhca.verbs.eec import EEC
from softhca.verbs.extensions import SOFTHCA_QPT_RD
from softhca.verbs.pyverbs_error import PyverbsError, PyverbsRDMAError, PyverbsUserError
from softhca.verbs.qp import QP, QPAttr, QPCap, QPInitAttr
from softhca.verbs.rdd import RDDomain
from softhca.verbs.wr import SGE, RecvWR, SendWR

OWN_KEY = 1 << 31
REMOTE = e.IBV_ACCESS_REMOTE_WRITE | e.IBV_ACCESS_REMOTE_READ | e.IBV_ACCESS_REMOTE_ATOMIC


class DatagramEnd:
    """A domain of reliable datagrams on a context, with a queue pair in it."""

    def __init__(self, context) -> None:
        self.end: VerbsEnd = make_end(context)
        self.end.qp.close()
        self.rdd = RDDomain(context)
        self.end.qp = self.queue_pair()

    def queue_pair(self, **changes) -> QP:
        init = QPInitAttr(SOFTHCA_QPT_RD, scq=self.end.send_cq, rcq=self.end.recv_cq, cap=QPCap(8, 8, 2, 2))
        init.rdd = self.rdd
        for name, value in changes.items():
            setattr(init, name, value)
        attr = QPAttr(port_num=1)
        attr.qkey, attr.min_rnr_timer = QKEY, 1
        attr.qp_access_flags = REMOTE
        return QP(self.end.pd, init, attr)


class Pair:
    """Two ends whose queue pairs may talk by one pair of EE contexts."""

    def __init__(self, pair) -> None:
        self.client, self.server = DatagramEnd(pair.client), DatagramEnd(pair.server)
        self.there, self.back = EEC(self.client.rdd), EEC(self.server.rdd)
        self.connect(self.there, self.client, self.back, self.server)
        self.connect(self.back, self.server, self.there, self.client)

    def connect(self, ee, own, peer_ee, peer, **changes) -> None:
        attr = attributes(own.end, peer.end, 5, 5, **changes)
        attr.dest_qp_num = peer_ee.eec_num
        ee.to_rts(attr)

    def send(self, opcode=e.IBV_WR_SEND, length=64, *, ee=None, qpn=None, qkey=QKEY, to=(0, 0),
             operands=(0, 0), wr_id=1) -> None:
        end = self.client.end
        wr = SendWR(wr_id, opcode, 1, 7, [end.sge(length)], e.IBV_SEND_SIGNALED)
        wr.set_wr_atomic(*to, *operands)
        wr.set_wr_rd(ee or self.there, self.server.end.qp.qp_num if qpn is None else qpn, qkey)
        end.qp.post_send(wr)

    def status(self) -> int:
        (done,) = poll(self.client.end.send_cq, 1, self.client.end, self.server.end)
        return done.status

    def remote(self, offset=0) -> tuple[int, int]:
        return self.server.end.mr.rkey, self.server.end.mr.buf + offset


@pytest.fixture
def rd(verbs_pair) -> Pair:
    return Pair(verbs_pair)


@pytest.mark.parametrize("length", [0, 1, 4096, 20_000])
def test_a_send_says_from_whom_it_comes_and_by_which_context(rd, length) -> None:
    rd.client.end.mr.write(pattern(length), length)
    rd.server.end.receive(20_000, wr_id=9)
    rd.send(length=length, opcode=e.IBV_WR_SEND_WITH_IMM)
    assert rd.status() == e.IBV_WC_SUCCESS
    (received,) = poll(rd.server.end.recv_cq, 1, rd.client.end, rd.server.end)
    assert (received.wr_id, received.status, received.byte_len) == (9, e.IBV_WC_SUCCESS, length)
    assert received.qp_num == rd.server.end.qp.qp_num
    assert received.src_qp == rd.client.end.qp.qp_num
    assert received.vendor_err == rd.back.eec_num
    assert rd.server.end.mr.read(length, 0) == pattern(length)


def test_memory_is_written_read_and_changed_in_one_step(rd) -> None:
    rd.client.end.mr.write(pattern(9000), 9000)
    rd.send(e.IBV_WR_RDMA_WRITE, 9000, to=rd.remote(16))
    assert rd.status() == e.IBV_WC_SUCCESS
    assert rd.server.end.mr.read(9000, 16) == pattern(9000)
    rd.server.end.mr.write(b"of the server's own", 19)
    rd.send(e.IBV_WR_RDMA_READ, 19, to=rd.remote())
    assert rd.status() == e.IBV_WC_SUCCESS
    assert rd.client.end.mr.read(19, 0) == b"of the server's own"
    rd.server.end.mr.write((40).to_bytes(8, "little"), 8)
    rd.send(e.IBV_WR_ATOMIC_FETCH_AND_ADD, 8, to=rd.remote(), operands=(2, 0))
    assert rd.status() == e.IBV_WC_SUCCESS
    assert rd.client.end.mr.read(8, 0) == (40).to_bytes(8, "little")
    assert rd.server.end.mr.read(8, 0) == (42).to_bytes(8, "little")


def test_one_queue_pair_reaches_several_over_one_context(rd) -> None:
    others = [rd.server.queue_pair() for _ in range(3)]
    for place, other in enumerate(others):
        sge = SGE(rd.server.end.mr.buf + 64 * place, 64, rd.server.end.mr.lkey)
        other.post_recv(RecvWR(place, 1, [sge]))
        rd.send(qpn=other.qp_num, wr_id=place, qkey=OWN_KEY)
    done = poll(rd.client.end.send_cq, 3, rd.client.end, rd.server.end)
    assert [(each.wr_id, each.status) for each in done] == [(place, e.IBV_WC_SUCCESS) for place in range(3)]
    received = poll(rd.server.end.recv_cq, 3, rd.client.end, rd.server.end)
    assert [each.qp_num for each in received] == [other.qp_num for other in others]


@pytest.mark.parametrize(("what", "status"), [
    ("key", e.IBV_WC_REM_INV_RD_REQ_ERR), ("queue pair", e.IBV_WC_REM_INV_RD_REQ_ERR),
    ("region", e.IBV_WC_REM_ACCESS_ERR), ("domain", e.IBV_WC_LOC_RDD_VIOL_ERR),
    ("state", e.IBV_WC_INV_EEC_STATE_ERR),
])  # fmt: skip
def test_what_is_wrong_is_told_by_the_completion_and_the_channel_goes_on(rd, what, status) -> None:
    if what == "key":
        rd.send(qkey=QKEY + 1)
    elif what == "queue pair":
        rd.send(qpn=rd.server.end.qp.qp_num ^ 0x8000)
    elif what == "region":
        rd.send(e.IBV_WR_RDMA_WRITE, to=(rd.remote()[0] ^ 0x100, rd.remote()[1]))
    else:
        domain = RDDomain(rd.client.end.context) if what == "domain" else rd.client.rdd
        fresh = EEC(domain)
        rd.send(ee=fresh)
    assert rd.status() == status
    stopped = what != "state"  # of an EE context's state no queue pair stops
    assert rd.client.end.state() == (e.IBV_QPS_SQE if stopped else e.IBV_QPS_RTS)
    other, rd.client.end.qp = rd.client.end.qp, rd.client.queue_pair()
    rd.server.end.receive(64)
    rd.send()
    assert rd.status() == e.IBV_WC_SUCCESS
    if stopped:
        other.modify(QPAttr(qp_state=e.IBV_QPS_RTS, cur_qp_state=e.IBV_QPS_SQE),
                     e.IBV_QP_STATE | e.IBV_QP_CUR_STATE)  # fmt: skip
        assert other.query(e.IBV_QP_STATE)[0].qp_state == e.IBV_QPS_RTS


def test_a_context_is_queried_counts_and_ends_what_waits_on_it(rd) -> None:
    found = rd.there.query()
    assert (found.qp_state, found.dest_qp_num) == (e.IBV_QPS_RTS, rd.back.eec_num)
    assert (found.retry_cnt, found.path_mtu) == (7, rd.client.end.context.query_port(1).active_mtu)
    rd.send()  # nobody has posted a receive for it
    wait_until(lambda: rd.there.query_counters()["rnr_naks_received"], rd.client.end, rd.server.end)
    rd.there.close()
    assert rd.status() == e.IBV_WC_INV_EEC_STATE_ERR
    with pytest.raises(PyverbsUserError, match="closed"):
        rd.there.query()


def test_what_stands_on_a_domain_or_a_context_is_closed_with_it(rd) -> None:
    rd.client.rdd.close()
    with pytest.raises(PyverbsError):
        rd.there.query()
    with pytest.raises(PyverbsError):
        rd.client.end.qp.query(e.IBV_QP_STATE)
    with pytest.raises(PyverbsUserError, match="closed"):
        EEC(rd.client.rdd)


def test_what_cannot_be_is_refused(rd) -> None:
    with pytest.raises(PyverbsRDMAError) as refused:
        rd.client.queue_pair(rdd=None)
    assert refused.value.error_code == errno.EINVAL
    with pytest.raises(PyverbsUserError, match="another context"):
        rd.client.queue_pair(rdd=rd.server.rdd)
    fresh = EEC(rd.client.rdd)
    with pytest.raises(PyverbsRDMAError) as refused:
        fresh.modify(QPAttr(qp_state=e.IBV_QPS_RTS), e.IBV_QP_STATE)
    assert refused.value.error_code == errno.EINVAL
    for call in (lambda: EEC(rd.client.end.pd), lambda: SendWR().set_wr_rd(rd.client.end.pd, 1, 2)):
        with pytest.raises((TypeError, PyverbsError)):
            call()
