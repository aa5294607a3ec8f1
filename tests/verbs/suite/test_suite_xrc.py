"""XRC by the verbs: domains of files, shared receive queues of a domain, initiators and targets."""

import errno
import os

import pytest
from traffic import pattern, poll

from softhca.testing.verbs import CLIENT_PSN, SERVER_PSN, attributes, make_end
from softhca.verbs import enums as e
from softhca.verbs.cq import CQ
from softhca.verbs.pyverbs_error import PyverbsRDMAError
from softhca.verbs.qp import QP, QPCap, QPEx, QPInitAttr, QPInitAttrEx
from softhca.verbs.srq import SRQ, SrqInitAttrEx
from softhca.verbs.wr import SGE, RecvWR, SendWR
from softhca.verbs.xrcd import XRCD, XRCDInitAttr

BOTH = e.IBV_XRCD_INIT_ATTR_FD | e.IBV_XRCD_INIT_ATTR_OFLAGS
XRC_SRQ = (
    e.IBV_SRQ_INIT_ATTR_TYPE | e.IBV_SRQ_INIT_ATTR_PD | e.IBV_SRQ_INIT_ATTR_XRCD | e.IBV_SRQ_INIT_ATTR_CQ
)


class Pair:
    """A client with an initiator, a server with a target, a shared receive queue in the target's domain."""

    def __init__(self, pair, path, ops=0):
        self.client, self.server = make_end(pair.client), make_end(pair.server)
        self.file = os.open(path, os.O_RDWR | os.O_CREAT)
        self.xrcd = XRCD(self.server.context, XRCDInitAttr(BOTH, os.O_CREAT, self.file))
        self.cq = CQ(self.server.context, 16)
        init = SrqInitAttrEx(max_wr=8)
        init.srq_type, init.comp_mask = e.IBV_SRQT_XRC, XRC_SRQ
        init.pd, init.xrcd, init.cq = self.server.pd, self.xrcd, self.cq
        self.srq = SRQ(self.server.context, init)
        mask = e.IBV_QP_INIT_ATTR_PD | (e.IBV_QP_INIT_ATTR_SEND_OPS_FLAGS if ops else 0)
        kind = QPEx if ops else QP
        self.initiator = kind(self.client.context, QPInitAttrEx(
            e.IBV_QPT_XRC_SEND, scq=self.client.send_cq, cap=QPCap(8, 0, 1, 0), comp_mask=mask,
            pd=self.client.pd, send_ops_flags=ops,
        ))  # fmt: skip
        self.target = QP(self.server.context, QPInitAttrEx(
            e.IBV_QPT_XRC_RECV, comp_mask=e.IBV_QP_INIT_ATTR_XRCD, xrcd=self.xrcd
        ))  # fmt: skip
        self.client.qp, self.server.qp = self.initiator, self.target
        self.initiator.to_rts(attributes(self.client, self.server, CLIENT_PSN, SERVER_PSN))
        self.target.to_rts(attributes(self.server, self.client, SERVER_PSN, CLIENT_PSN))

    def receive(self, length, wr_id=0):
        sge = SGE(self.server.mr.buf, length, self.server.mr.lkey)
        self.srq.post_recv(RecvWR(wr_id, 1, [sge]))

    def sge(self, length):
        return SGE(self.client.mr.buf, length, self.client.mr.lkey)


@pytest.fixture
def xrc(verbs_pair, tmp_path):
    made = []

    def make(ops=0):
        made.append(Pair(verbs_pair, tmp_path / "domain", ops))
        return made[-1]

    yield make
    for each in made:
        os.close(each.file)


def test_a_send_completes_in_the_queue_that_it_names(xrc) -> None:
    pair = xrc()
    pair.client.mr.write(pattern(4000), 4000)
    pair.receive(4000, wr_id=5)
    request = SendWR(3, num_sge=1, sg=[pair.sge(4000)], opcode=e.IBV_WR_SEND)
    request.set_qp_type_xrc(pair.srq.get_srq_num())
    pair.initiator.post_send(request)
    (received,) = poll(pair.cq, 1, pair.client, pair.server)
    assert (received.wr_id, received.byte_len, received.qp_num) == (5, 4000, pair.target.qp_num)
    (sent,) = poll(pair.client.send_cq, 1, pair.client, pair.server)
    assert (sent.wr_id, sent.status) == (3, e.IBV_WC_SUCCESS)
    assert pair.server.mr.read(4000, 0) == pattern(4000)


def test_batches_name_it_too(xrc) -> None:
    pair = xrc(e.IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM | e.IBV_QP_EX_WITH_SEND)
    pair.client.mr.write(pattern(64), 64)
    pair.receive(64, wr_id=1)
    pair.initiator.wr_start()
    pair.initiator.wr_id, pair.initiator.wr_flags = 9, e.IBV_SEND_SIGNALED
    pair.initiator.wr_rdma_write_imm(pair.server.mr.rkey, pair.server.mr.buf, 0x01020304)
    pair.initiator.wr_set_xrc_srqn(pair.srq.get_srq_num())
    pair.initiator.wr_set_sge(pair.sge(64))
    pair.initiator.wr_complete()
    (received,) = poll(pair.cq, 1, pair.client, pair.server)
    assert received.opcode == e.IBV_WC_RECV_RDMA_WITH_IMM
    assert pair.server.mr.read(64, 0) == pattern(64)
    poll(pair.client.send_cq, 1, pair.client, pair.server)


def test_a_domain_closes_what_is_in_it_first(xrc) -> None:
    pair = xrc()
    pair.xrcd.close()
    for closed in (pair.srq, pair.target):
        with pytest.raises(Exception, match="closed"):
            closed.handle.query()


@pytest.mark.parametrize(
    ("comp_mask", "flags", "number"),
    [
        (e.IBV_XRCD_INIT_ATTR_FD, os.O_CREAT, errno.EINVAL),
        (BOTH, os.O_APPEND, errno.EINVAL),
        (BOTH, 0, errno.EAGAIN),
    ],
)
def test_a_domain_that_cannot_be_opened_is_refused(verbs_pair, tmp_path, comp_mask, flags, number) -> None:
    end = make_end(verbs_pair.client)
    with open(tmp_path / "file", "wb") as file, pytest.raises(PyverbsRDMAError) as caught:
        XRCD(end.context, XRCDInitAttr(comp_mask, flags, file.fileno()))
    assert caught.value.error_code == number


def test_an_initiator_is_made_by_a_pd_too(verbs_pair) -> None:
    end = make_end(verbs_pair.client)
    with QP(end.pd, QPInitAttr(e.IBV_QPT_XRC_SEND, scq=end.send_cq, cap=QPCap(4, 4, 1, 1))) as made:
        assert made.qp_type == e.IBV_QPT_XRC_SEND
