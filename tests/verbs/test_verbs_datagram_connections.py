"""EE contexts of reliable datagrams that the communication manager has set up, with programs' own verbs."""

import errno

import pytest

from softhca.driver.connections import (
    CM_DISCONNECT_REQUEST,
    CM_DISCONNECTED,
    CM_ESTABLISHED,
    CM_REPLIED,
    CM_REQUEST,
    CmPath,
    CmQueuePair,
)
from softhca.driver.errors import DriverError
from softhca.testing import Network
from softhca.testing.verbs import attributes, completions, make_end
from softhca.verbs import enums as e
from softhca.verbs.eec import EEC
from softhca.verbs.extensions import SOFTHCA_QPT_RD
from softhca.verbs.qp import QP, QPAttr, QPCap, QPInitAttr
from softhca.verbs.rdd import RDDomain
from softhca.verbs.wr import SendWR

SERVICE, QKEY, PSNS = 0x1234, 0x77, (0x111111, 0x222222)


class Side:
    """An end with a domain, an EE context in RESET, a queue pair, and a channel of connections."""

    def __init__(self, network, psn):
        self.network = network
        self.end = make_end(network.add().context())
        domain = RDDomain(self.end.context)
        self.eec = EEC(domain)
        init = QPInitAttr(SOFTHCA_QPT_RD, scq=self.end.send_cq, rcq=self.end.recv_cq, cap=QPCap(8, 8, 1, 1))
        init.rdd = domain
        attr = QPAttr(port_num=1)
        attr.qkey, attr.min_rnr_timer, attr.qp_access_flags = QKEY, 1, e.IBV_ACCESS_REMOTE_WRITE
        self.end.qp = self.qp = QP(self.end.pd, init, attr)
        self.channel = self.end.context.driver.open_connections(1)
        self.psn = psn

    def asking(self):
        return CmQueuePair(qp_num=self.eec.eec_num, starting_psn=self.psn, qp_type=SOFTHCA_QPT_RD)

    def own(self):
        """What a message says of it to its peer's program: the queue pair."""
        return self.qp.qp_num.to_bytes(4, "big")

    def next(self, kind):
        found = []
        self.network.run(lambda: found.append(self.channel.receive(0)) or found[-1])
        assert found[-1].kind == kind
        return found[-1]

    def raise_to(self, peer, event):
        """Bring the EE context to RTS with what an event says."""
        attr = attributes(self.end, peer.end, sq_psn=event.queue_pair.starting_psn, rq_psn=self.psn)
        attr.dest_qp_num = event.queue_pair.qp_num
        self.eec.to_rts(attr)


def connected():
    network = Network()
    left, right = (Side(network, psn) for psn in PSNS)
    right.channel.listen(SERVICE)
    path = CmPath(gid=right.end.context.query_gid(1, 0).raw)
    active = left.channel.connect(SERVICE, path, left.asking(), left.own())
    request = right.next(CM_REQUEST)
    assert request.queue_pair.qp_type == SOFTHCA_QPT_RD
    right.raise_to(left, request)
    right.channel.reply(request.id, right.asking(), right.own())
    replied = left.next(CM_REPLIED)
    assert replied.queue_pair.qp_type == SOFTHCA_QPT_RD
    left.raise_to(right, replied)
    left.channel.ready(active)
    right.next(CM_ESTABLISHED)
    return network, left, right, active, request, replied


def test_messages_go_by_ee_contexts_that_the_communication_manager_has_connected():
    network, left, right, _, request, replied = connected()
    with network:
        for here, there, event in ((left, right, replied), (right, left, request)):
            there.end.receive(16)
            here.end.mr.write(b"by way of the CM", 16)
            work = SendWR(opcode=e.IBV_WR_SEND, num_sge=1, sg=[here.end.sge(16)])
            work.set_wr_rd(here.eec, int.from_bytes(event.private_data[:4], "big"), QKEY)
            here.qp.post_send(work)
            (received,) = completions(network, there.end.recv_cq)
            assert (received.status, received.src_qp) == (e.IBV_WC_SUCCESS, here.qp.qp_num)
            assert there.end.mr.read(16, 0) == b"by way of the CM"


def test_the_connection_ends_with_a_farewell():
    network, left, right, active, request, _ = connected()
    with network:
        left.channel.disconnect(active)
        right.next(CM_DISCONNECT_REQUEST)
        right.channel.disconnect(request.id)
        left.next(CM_DISCONNECTED)


def test_an_ee_context_has_a_number():
    network = Network()
    with network:
        side = Side(network, 0)
        path = CmPath(gid=side.end.context.query_gid(1, 0).raw)
        with pytest.raises(DriverError) as refused:
            side.channel.connect(SERVICE, path, CmQueuePair(0, 0, qp_type=SOFTHCA_QPT_RD))
        assert refused.value.errno == errno.EINVAL
