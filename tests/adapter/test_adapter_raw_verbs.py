"""Programs in pyverbs' shape that send and receive raw datagrams."""

import errno

import pytest
from native_network import lid
from raw_network import RawNetwork, ipv6

from softhca.testing.network import Network
from softhca.verbs import enums as e
from softhca.verbs.addr import AH, AHAttr
from softhca.verbs.cq import CQ
from softhca.verbs.extensions import SOFTHCA_RAW_ALL, SOFTHCA_RAW_IPV6
from softhca.verbs.mr import MR
from softhca.verbs.pd import PD
from softhca.verbs.pyverbs_error import PyverbsRDMAError, PyverbsUserError
from softhca.verbs.qp import QP, QPAttr, QPCap, QPInitAttr
from softhca.verbs.wr import SGE, RecvWR, SendWR

PTP, ETHERTYPE_IPV6 = 0x88F7, 0x86DD


class Side:
    def __init__(self, world, context):
        self.network = world
        self.pd, self.cq = PD(context), CQ(context, 16)
        self.mr = MR(self.pd, 8192, e.IBV_ACCESS_LOCAL_WRITE)

    def qp(self, ready=True):
        init = QPInitAttr(e.IBV_QPT_RAW_PACKET, scq=self.cq, rcq=self.cq, cap=QPCap(max_recv_wr=4))
        return QP(self.pd, init, QPAttr(port_num=1) if ready else None)

    def sge(self, offset, length):
        return [SGE(self.mr.buf + offset, length, self.mr.lkey)]

    def send(self, qp, ah, data, *service):
        self.mr.write(data, len(data))
        wr = SendWR(wr_id=5, opcode=e.IBV_WR_SEND, num_sge=1, sg=self.sge(0, len(data)))
        wr.set_wr_raw(ah, *service)
        qp.post_send(wr)
        return self.wait()

    def wait(self):
        found = []

        def polled():
            found.extend(self.cq.poll(1)[1])
            return bool(found)

        assert self.network.run(polled)
        return found[0]


@pytest.fixture
def sides():
    """Two sides on native links."""
    with RawNetwork() as world:
        yield [Side(world, world.add(number, lmc=1).context()) for number in (1, 2)]


def test_a_program_sends_and_receives_raw_datagrams(sides):
    one, other = sides
    sender, receiver, rest = one.qp(), other.qp(), other.qp()
    assert [qp.qp_state for qp in (sender, receiver, rest)] == [e.IBV_QPS_RTS] * 3
    receiver.attach_raw(ETHERTYPE_IPV6)
    rest.attach_raw(SOFTHCA_RAW_ALL)
    for qp in (receiver, rest):
        for wr_id in (1, 2):
            qp.post_recv(RecvWR(wr_id=wr_id, num_sge=1, sg=other.sge(4096, 1500)))
    ah = AH(one.pd, attr=AHAttr(dlid=lid(2, 1) + 1, sl=3, src_path_bits=1))
    packet = ipv6(900)
    for service, data, owner in (
        (SOFTHCA_RAW_IPV6, packet, receiver),
        (ETHERTYPE_IPV6, packet, receiver),
        (PTP, b"sync" * 11, rest),
    ):
        sent = one.send(sender, ah, data, service)
        assert (sent.wr_id, sent.status, sent.opcode) == (5, e.IBV_WC_SUCCESS, e.IBV_WC_SEND)
        done = other.wait()
        assert (done.status, done.opcode, done.qp_num) == (e.IBV_WC_SUCCESS, e.IBV_WC_RECV, owner.qp_num)
        assert (done.src_qp, done.byte_len, done.wc_flags) == (service, len(data), 0)
        assert (done.slid, done.sl, done.dlid_path_bits) == (lid(1, 1) + 1, 3, 1)
        assert other.mr.read(len(data), 4096) == data
    assert [raw.service for raw in one.network.raws] == [SOFTHCA_RAW_IPV6, ETHERTYPE_IPV6, PTP]


def test_without_a_service_a_request_is_raw_ipv6(sides):
    one, other = sides
    receiver = other.qp()
    receiver.attach_raw(SOFTHCA_RAW_IPV6)
    receiver.post_recv(RecvWR(num_sge=1, sg=other.sge(0, 100)))
    one.send(one.qp(), AH(one.pd, attr=AHAttr(dlid=lid(2, 1))), ipv6(0))
    assert other.wait().src_qp == SOFTHCA_RAW_IPV6


def test_services_are_attached_and_detached(sides):
    one = sides[0]
    first, second = one.qp(), one.qp(ready=False)
    first.attach_raw(PTP)
    for call, service, code in (
        (second.attach_raw, PTP, errno.EBUSY),
        (second.detach_raw, PTP, errno.EINVAL),
        (second.attach_raw, SOFTHCA_RAW_IPV6 + 1, errno.EINVAL),
    ):
        with pytest.raises(PyverbsRDMAError) as caught:
            call(service)
        assert caught.value.error_code == code
    first.detach_raw(PTP)
    second.attach_raw(PTP)
    second.close()
    with pytest.raises(PyverbsUserError):
        second.attach_raw(PTP)
    first.attach_raw(PTP)


def test_only_raw_qps_have_services(sides):
    one = sides[0]
    ud = QP(one.pd, QPInitAttr(e.IBV_QPT_UD, scq=one.cq, rcq=one.cq))
    with pytest.raises(PyverbsRDMAError) as caught:
        ud.attach_raw(PTP)
    assert caught.value.error_code == errno.EINVAL


def test_a_roce_device_has_no_raw_services():
    world = Network()
    side = Side(world, world.add(1).context())
    with pytest.raises(PyverbsRDMAError) as caught:
        side.qp().attach_raw(PTP)
    assert caught.value.error_code == errno.EINVAL
