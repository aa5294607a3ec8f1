"""Programs in pyverbs' shape over native ports: what a port and a GID say, and address vectors by LID."""

import sys

import pytest
from native_network import GUID, NativeNetwork, gid, lid, lrh_of

from softhca.verbs import enums as e
from softhca.verbs.addr import AH, GID, AHAttr, GlobalRoute
from softhca.verbs.cq import CQ
from softhca.verbs.mr import MR
from softhca.verbs.pd import PD
from softhca.verbs.qp import QP, QPAttr, QPCap, QPInitAttr
from softhca.verbs.wr import SGE, RecvWR, SendWR

RIGHTS = e.IBV_ACCESS_LOCAL_WRITE | e.IBV_ACCESS_REMOTE_WRITE
QKEY = 0x1234
GRH = 40


@pytest.fixture
def contexts():
    with NativeNetwork() as world:
        yield world, *(world.add(lmc=1).context() for _ in range(2))


class Side:
    def __init__(self, world, context, kind):
        self.network = world
        self.pd, self.cq = PD(context), CQ(context, 16)
        self.mr = MR(self.pd, 4096, RIGHTS)
        self.qp = QP(self.pd, QPInitAttr(kind, scq=self.cq, rcq=self.cq, cap=QPCap()))

    def sge(self, offset, length):
        return [SGE(self.mr.buf + offset, length, self.mr.lkey)]

    def wait(self):
        found = []

        def polled():
            found.extend(self.cq.poll(1)[1])
            return bool(found)

        assert self.network.run(polled)
        return found[0]


def test_a_native_port_says_so(contexts):
    _, context, _ = contexts
    port = context.query_port(1)
    assert port.link_layer == e.IBV_LINK_LAYER_INFINIBAND
    assert (port.lid, port.lmc, port.sm_lid, port.state) == (lid(1, 1), 1, 1, e.IBV_PORT_ACTIVE)
    assert context.query_gid(1, 0).raw == gid(1)
    assert context.query_gid_ex(1, 0).gid_type == e.IBV_GID_TYPE_IB
    assert context.query_device().node_guid.to_bytes(8, sys.byteorder) == (GUID + 1).to_bytes(8, "big")


@pytest.mark.parametrize("route", [False, True])
def test_a_connection_by_lid(contexts, route):
    world, *pair = contexts
    sides = [Side(world, context, e.IBV_QPT_RC) for context in pair]
    for index, side in enumerate(sides):
        peer = sides[1 - index]
        attr = QPAttr(port_num=1, path_mtu=e.IBV_MTU_1024)
        attr.dest_qp_num, attr.qp_access_flags = peer.qp.qp_num, RIGHTS
        attr.timeout, attr.retry_cnt = 14, 7
        dlid = pair[1 - index].query_port(1).lid
        gr = GlobalRoute(GID.from_bytes(gid(2 - index))) if route else None
        attr.ah_attr = AHAttr(dlid=dlid, sl=1, src_path_bits=0, is_global=int(route), gr=gr)
        side.qp.to_rts(attr)
    there = sides[0].qp.query(e.IBV_QP_AV)[0].ah_attr
    assert (there.dlid, there.sl, there.is_global) == (lid(2, 1), 1, int(route))
    sides[0].mr.write(b"by LID", 6)
    wr = SendWR(opcode=e.IBV_WR_RDMA_WRITE, num_sge=1, sg=sides[0].sge(0, 6))
    wr.set_wr_rdma(sides[1].mr.rkey, sides[1].mr.buf)
    sides[0].qp.post_send(wr)
    assert sides[0].wait().status == e.IBV_WC_SUCCESS
    assert sides[1].mr.read(6, 0) == b"by LID"
    assert lrh_of(world.decoded[0]).sl == 1


@pytest.mark.parametrize("route", [False, True])
def test_a_datagram_and_its_answer_to_the_completions_sender(contexts, route):
    world, *pair = contexts
    one, other = (Side(world, context, e.IBV_QPT_UD) for context in pair)
    for side in (one, other):
        attr = QPAttr(port_num=1)
        attr.qkey = QKEY
        side.qp.to_rts(attr)
        side.qp.post_recv(RecvWR(wr_id=9, num_sge=1, sg=side.sge(0, 100)))
    gr = GlobalRoute(GID.from_bytes(gid(2))) if route else None
    vector = AHAttr(dlid=lid(2, 1) + 1, src_path_bits=1, sl=5, is_global=int(route), gr=gr)
    there = AH(one.pd, attr=vector)
    wr = SendWR(opcode=e.IBV_WR_SEND, num_sge=1, sg=one.sge(1000, 8))
    wr.set_wr_ud(there, other.qp.qp_num, QKEY)
    one.mr.write(b"question", 8, 1000)
    one.qp.post_send(wr)
    done = other.wait()
    assert (done.wr_id, done.byte_len, done.src_qp) == (9, GRH + 8, one.qp.qp_num)
    assert (done.slid, done.dlid_path_bits, done.sl) == (lid(1, 1) + 1, 1, 5)
    assert bool(done.wc_flags & e.IBV_WC_GRH) is route
    assert other.mr.read(8, GRH) == b"question"
    back = AH(other.pd, wc=done, grh=other.mr.buf, port_num=1)
    answer = SendWR(opcode=e.IBV_WR_SEND, num_sge=1, sg=other.sge(1000, 6))
    answer.set_wr_ud(back, done.src_qp, QKEY)
    other.mr.write(b"answer", 6, 1000)
    other.qp.post_send(answer)
    received = one.wait()
    while received.wr_id != 9:
        received = one.wait()
    assert one.mr.read(6, GRH) == b"answer"
    assert (received.slid, received.dlid_path_bits, received.sl) == (lid(2, 1) + 1, 1, 5)
    assert [len(packet.network) for packet in world.decoded] == [1 + route] * 2
