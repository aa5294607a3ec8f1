"""RDMA CM in pyverbs' shape, over real adapters on the loopback: synchronous, by events, datagrams;
with the adapter in this process and in one of its own.
"""

import contextlib
import errno
import gc
import threading

import pytest
from cm_identifiers import (
    GRH,
    PORT,
    SIZE,
    TCP,
    UDP,
    code_of,
    connected,
    devices_at,
    expect,
    init_attr,
    listening,
    routed,
)

from machine_speed import limit_s
from softhca.driver.rdmacm import queue_pairs
from softhca.driver.rdmacm.identifier import DEVICES
from softhca.transport.retry import RNR_TIMER_NS
from softhca.verbs import cm_contexts
from softhca.verbs import cm_enums as ce
from softhca.verbs import enums as e
from softhca.verbs.addr import AH
from softhca.verbs.cmid import CMID, AddrInfo, CMEventChannel, ConnParam, JoinMCAttrEx, UDParam
from softhca.verbs.cq import CQ
from softhca.verbs.mr import MR
from softhca.verbs.pd import PD
from softhca.verbs.pyverbs_error import PyverbsRDMAError, PyverbsUserError
from softhca.verbs.qp import ECE, QP, QPAttr
from softhca.verbs.wr import SGE, RecvWR, SendWR


@pytest.fixture(params=["embedded", "process"])
def here(request, loopback_address, monkeypatch):
    """The address of the one device of this process."""
    monkeypatch.setenv("SOFTHCA_FAULTS", "")
    with devices_at([loopback_address()], request.param) as (address,):
        yield address


@pytest.fixture
def pair(loopback_address):
    """Addresses of two devices of this process, which speak by packets."""
    with devices_at([loopback_address(), loopback_address()], "embedded", "?same_host=0") as found:
        yield found


def test_synchronous_identifiers_connect_and_talk(here, closing):
    listener = closing(
        CMID(
            creator=AddrInfo(src=here, src_service=PORT, port_space=TCP, flags=ce.RAI_PASSIVE),
            qp_init_attr=init_attr(),
        )
    )
    listener.listen()
    said = []

    def serve():
        with contextlib.closing(listener.get_request()) as passive:
            mr = passive.reg_msgs(SIZE)
            passive.post_recv(mr)
            passive.accept()
            passive.get_recv_comp()
            said.append(mr.read(5, 0))
            mr.write("again", 5)
            passive.post_send(mr, length=5)
            passive.get_send_comp()
            passive.disconnect()

    server = threading.Thread(target=serve)
    server.start()
    active = closing(
        CMID(creator=AddrInfo(src=here, dst=here, dst_service=PORT, port_space=TCP), qp_init_attr=init_attr())
    )
    assert active.dev_name == "cmid0"
    assert active.port_num == 1
    assert active.event_channel is None
    active.connect()
    mr = active.reg_msgs(SIZE)
    other = active.reg_msgs(SIZE)
    active.post_recv(other)
    mr.write("hello", 5)
    active.post_send(mr)
    assert active.get_send_comp().status == e.IBV_WC_SUCCESS
    assert active.get_recv_comp().byte_len == 5
    assert other.read(5, 0) == b"again"
    active.disconnect()
    server.join(limit_s(60))
    assert said == [b"hello"]


def test_events_of_a_connection_and_its_end(here, closing):
    active, passive, _ = connected(here, here, closing)
    for each in (active, passive):
        assert each.query_qp(e.IBV_QP_STATE)[0].qp_state == e.IBV_QPS_RTS
    passive.disconnect()
    assert passive.query_qp(e.IBV_QP_STATE)[0].qp_state == e.IBV_QPS_ERR
    expect(active.event_channel, ce.RDMA_CM_EVENT_DISCONNECTED)
    active.disconnect()
    assert active.query_qp(e.IBV_QP_STATE)[0].qp_state == e.IBV_QPS_ERR
    expect(passive.event_channel, ce.RDMA_CM_EVENT_DISCONNECTED)
    active.disconnect()


@pytest.mark.parametrize("operation", ["read", "write"])
def test_remote_operations(here, closing, operation):
    active, passive, _ = connected(here, here, closing)
    theirs = passive.reg_read(SIZE) if operation == "read" else passive.reg_write(SIZE)
    theirs.write("theirs", 6)
    ours = active.reg_msgs(SIZE)
    ours.write("ours..", 6)
    post = active.post_read if operation == "read" else active.post_write
    post(ours, 6, theirs.buf, theirs.rkey, flags=e.IBV_SEND_SIGNALED)
    assert active.get_send_comp().status == e.IBV_WC_SUCCESS
    assert (ours if operation == "read" else theirs).read(6, 0) == (
        b"theirs" if operation == "read" else b"ours.."
    )


def test_private_data_reach_the_other_side(pair, closing):
    passive_channel, active_channel = closing(CMEventChannel()), closing(CMEventChannel())
    listener = listening(passive_channel, pair[1], closing)
    active = routed(active_channel, pair[0], pair[1], closing)
    active.create_qp(init_attr())
    asking = ConnParam(data_len=56)
    asking.set_private_data(b"asked for")
    active.connect(asking)
    asked = expect(passive_channel, ce.RDMA_CM_EVENT_CONNECT_REQUEST)
    assert asked.private_data == b"asked for".ljust(56, b"\0")
    passive = closing(CMID(creator=asked, listen_id=listener))
    passive.create_qp(init_attr())
    for length in (200, 197):  # refused, and the queue pair is as before
        too_long = ConnParam(data_len=length)
        too_long.set_private_data(bytes(length))
        assert code_of(passive.accept, too_long) == errno.EINVAL
    answering = ConnParam(data_len=196)
    answering.set_private_data(b"answered")
    passive.accept(answering)
    found = expect(active_channel, ce.RDMA_CM_EVENT_ESTABLISHED)
    assert found.private_data == b"answered".ljust(196, b"\0")


def test_a_request_with_too_many_private_data_is_refused(here, closing):
    active = routed(closing(CMEventChannel()), here, here, closing)
    active.create_qp(init_attr())
    param = ConnParam(data_len=57)
    param.set_private_data(bytes(57))
    assert code_of(active.connect, param) == errno.EINVAL


def test_a_rejected_request_says_why(here, closing):
    passive_channel, active_channel = closing(CMEventChannel()), closing(CMEventChannel())
    listener = listening(passive_channel, here, closing)
    active = routed(active_channel, here, here, closing)
    active.create_qp(init_attr())
    active.connect(ConnParam())
    asked = expect(passive_channel, ce.RDMA_CM_EVENT_CONNECT_REQUEST)
    passive = closing(CMID(creator=asked, listen_id=listener))
    passive.reject(b"not today")
    refused = expect(active_channel, ce.RDMA_CM_EVENT_REJECTED)
    assert refused.status == 28
    assert refused.private_data.rstrip(b"\0") == b"not today"


def test_nobody_listens(here, closing):
    info = AddrInfo(src=here, dst=here, dst_service=PORT, port_space=TCP)
    active = closing(CMID(creator=info, qp_init_attr=init_attr()))
    assert code_of(active.connect) == errno.ECONNREFUSED


def test_a_queue_pair_of_the_programs_own(here, closing):
    passive_channel, active_channel = closing(CMEventChannel()), closing(CMEventChannel())
    listener = listening(passive_channel, here, closing)
    active = routed(active_channel, here, here, closing)
    queue_pairs, regions = [], []

    def make(cmid):
        cq = closing(CQ(cmid.context, 10))
        queue_pairs.append(closing(QP(cmid.pd, init_attr(scq=cq, rcq=cq), QPAttr())))
        regions.append(cmid.reg_msgs(SIZE))
        return queue_pairs[-1], cq

    def to_rts(cmid, qp):
        for state in (e.IBV_QPS_INIT, e.IBV_QPS_RTR, e.IBV_QPS_RTS):
            qp.modify(*cmid.init_qp_attr(state))

    ours, _ = make(active)
    assert code_of(active.init_qp_attr, e.IBV_QPS_RTR) == errno.EINVAL
    active.connect(ConnParam(qp_num=ours.qp_num))
    asked = expect(passive_channel, ce.RDMA_CM_EVENT_CONNECT_REQUEST)
    passive = closing(CMID(creator=asked, listen_id=listener))
    theirs, their_cq = make(passive)
    to_rts(passive, theirs)
    passive.set_local_ece(ECE())
    passive.accept(ConnParam(qp_num=theirs.qp_num))
    expect(active_channel, ce.RDMA_CM_EVENT_CONNECT_RESPONSE)
    assert active.get_remote_ece().vendor_id == 0
    to_rts(active, ours)
    active.establish()
    timers = [qp.query(e.IBV_QP_MIN_RNR_TIMER | e.IBV_QP_RNR_RETRY)[0] for qp in queue_pairs]
    # so late may a receive be posted, also where others want the processors
    assert all(RNR_TIMER_NS[attr.min_rnr_timer] * attr.rnr_retry > 100_000_000 for attr in timers)
    expect(passive_channel, ce.RDMA_CM_EVENT_ESTABLISHED)
    mine, others = regions
    theirs.post_recv(RecvWR(1, 1, [SGE(others.buf, SIZE, others.lkey)]))
    mine.write("external", 8)
    ours.post_send(SendWR(2, e.IBV_WR_SEND, 1, 0, [SGE(mine.buf, 8, mine.lkey)], e.IBV_SEND_SIGNALED))
    while not their_cq.poll()[0]:
        pass
    assert others.read(8, 0) == b"external"
    assert active.qpn is None
    assert code_of(active.post_send, mine) == errno.EINVAL
    assert code_of(active.get_send_comp) == errno.EINVAL


def test_datagram_services(here, closing):
    active, passive, established = connected(here, here, closing, UDP)
    found = UDParam(established)
    assert found.qp_num == passive.qpn
    assert found.qkey == 0x01234567
    theirs, ours = passive.reg_msgs(SIZE + GRH), active.reg_msgs(SIZE + GRH)
    passive.post_recv(theirs)
    ours.write("datagram", 8)
    there = AH(active.pd, attr=found.ah_attr)
    active.post_ud_send(ours, there, rqpn=found.qp_num, length=8)
    active.get_send_comp()
    wc = passive.get_recv_comp()
    assert theirs.read(8, GRH) == b"datagram"
    back = AH(passive.pd, wc=wc, port_num=1, grh=theirs.buf)
    active.post_recv(ours)
    passive.post_ud_send(theirs, back, rqpn=active.qpn, length=8)
    assert active.get_recv_comp().byte_len == 8 + GRH
    passive.post_recv(theirs)
    for each in (active, passive, active):
        each.disconnect()  # as with a kernel nobody is told; the queue pair goes to ERR, as librdmacm's does
    assert passive.get_recv_comp().status == e.IBV_WC_WR_FLUSH_ERR


def test_a_datagram_service_may_refuse(here, closing):
    passive_channel, active_channel = closing(CMEventChannel()), closing(CMEventChannel())
    listener = listening(passive_channel, here, closing, UDP)
    active = routed(active_channel, here, here, closing, UDP)
    active.create_qp(init_attr(UDP))
    active.connect()
    asked = expect(passive_channel, ce.RDMA_CM_EVENT_CONNECT_REQUEST)
    closing(CMID(creator=asked, listen_id=listener)).reject(b"no")
    refused = expect(active_channel, ce.RDMA_CM_EVENT_UNREACHABLE)
    assert (refused.status, refused.private_data[:3]) == (2, b"no\0")
    assert active.query_qp(e.IBV_QP_STATE)[0].qp_state == e.IBV_QPS_RTS  # it may ask others


# the end


def test_the_device_is_closed_with_the_last_identifier(here):
    channel = CMEventChannel()
    one, other = CMID(creator=channel), CMID(creator=channel)
    for each in (one, other):
        each.bind_addr(AddrInfo(src=here, flags=ce.RAI_PASSIVE))
    assert one.context is other.context
    assert one.pd is other.pd
    driver = one.context.driver
    mr = one.reg_msgs(SIZE)
    one.close()
    one.close()
    assert driver.alive
    with pytest.raises(PyverbsUserError):
        mr.read(1, 0)
    other.close()
    assert not driver.alive


def test_a_peer_that_closes_is_gone(here, closing):
    active, passive, _ = connected(here, here, closing)
    passive.close()
    expect(active.event_channel, ce.RDMA_CM_EVENT_DISCONNECTED)


def test_a_listener_that_closes_refuses_who_waits(here, closing):
    passive_channel, active_channel = closing(CMEventChannel()), closing(CMEventChannel())
    listener = listening(passive_channel, here, closing)
    active = routed(active_channel, here, here, closing)
    active.create_qp(init_attr())
    active.connect()
    expect(passive_channel, ce.RDMA_CM_EVENT_CONNECT_REQUEST).event.identifier.close()
    expect(active_channel, ce.RDMA_CM_EVENT_REJECTED)
    listener.close()


@pytest.mark.parametrize("begun", ["bound", "queue pair"])
def test_what_is_made_while_another_thread_closes_goes_with_it(here, closing, monkeypatch, begun):
    """The close finds all that there is: it waits for the call that makes something, or that is refused."""
    channel = closing(CMEventChannel())
    cmid = CMID(creator=channel)
    closer = threading.Thread(target=cmid.close)
    where, name = (cm_contexts, "join") if begun == "bound" else (queue_pairs, "begin")
    make = getattr(where, name)

    def meanwhile(*arguments):
        closer.start()
        closer.join(0.1)  # as far as it gets
        return make(*arguments)

    if begun == "bound":
        monkeypatch.setattr(where, name, meanwhile)
        with contextlib.suppress(PyverbsUserError):
            cmid.bind_addr(AddrInfo(src=here, src_service=PORT, flags=ce.RAI_PASSIVE))
    else:
        cmid.bind_addr(AddrInfo(src=here, src_service=PORT, flags=ce.RAI_PASSIVE))
        monkeypatch.setattr(where, name, meanwhile)
        with contextlib.suppress(PyverbsUserError):
            cmid.create_qp(init_attr())
    closer.join()
    assert cmid.qpn is None
    assert not cm_contexts._shared


# what cannot be


def test_identifiers_that_nothing_can_be_done_with():
    cmid = CMID()
    assert (cmid.context, cmid.pd, cmid.event_channel, cmid.qpn) == (None, None, None, None)
    cmid.close()
    for call in (cmid.listen, cmid.connect, cmid.accept, cmid.disconnect, cmid.get_recv_comp):
        with pytest.raises((PyverbsUserError, PyverbsRDMAError)):
            call()
    with pytest.raises(PyverbsRDMAError):
        CMID(5)
    with pytest.raises(TypeError):
        cmid.bind_addr(None)
    with pytest.raises(TypeError):
        JoinMCAttrEx(None)
    with pytest.raises(TypeError):
        UDParam(None)
    with pytest.raises(TypeError):
        cmid.create_qp(None)


def test_there_are_other_port_spaces_but_not_here(closing):
    assert code_of(CMID, closing(CMEventChannel()), port_space=ce.RDMA_PS_IPOIB) == errno.EPROTONOSUPPORT
    assert code_of(AddrInfo, src="::1", port_space=ce.RDMA_PS_IB) == errno.EOPNOTSUPP


def test_connection_parameters_are_a_structure():
    param = ConnParam(qp_num=17, srq=1.5)
    assert param.qpn == 17
    param.qpn = 18
    assert "qp number" in str(param)
    assert param.private_data == b""
    param.set_private_data(b"no room")
    assert param.private_data == b""
    room = ConnParam(data_len=4)
    room.set_private_data(b"longer")
    assert room.private_data == b"long"
    with pytest.raises(OverflowError):
        ConnParam(resources=300)
    with pytest.raises(OverflowError):
        ConnParam(qp_num=-1)


@pytest.mark.parametrize("argument", ["src", "src_service"])
def test_names_are_text(argument):
    with pytest.raises(TypeError, match="expected bytes, int found"):
        AddrInfo(**{argument: 5})


def test_a_domain_that_is_made_of_an_identifier_is_that_ones(here):
    cmid = CMID(creator=AddrInfo(src=here, src_service=PORT, port_space=TCP, flags=ce.RAI_PASSIVE))
    domain = PD(cmid)
    assert (domain.handle, domain.ctx) == (cmid.pd.handle, cmid.context)
    MR(domain, 64, e.IBV_ACCESS_LOCAL_WRITE).close()
    domain.close()
    MR(cmid.pd, 64, e.IBV_ACCESS_LOCAL_WRITE).close()  # it stands
    cmid.close()


def test_an_identifier_without_a_device_has_no_domain():
    with pytest.raises(PyverbsUserError, match="bound to no device"):
        PD(CMID())


@pytest.mark.parametrize("how", ["acknowledged", "dropped", "collected"])
def test_a_request_that_nobody_takes_is_rejected(here, closing, how):
    passive_channel, active_channel = closing(CMEventChannel()), closing(CMEventChannel())
    listening(passive_channel, here, closing)
    active = routed(active_channel, here, here, closing)
    active.create_qp(init_attr())
    active.connect(ConnParam())
    asked = expect(passive_channel, ce.RDMA_CM_EVENT_CONNECT_REQUEST)
    if how == "acknowledged":
        asked.ack_cm_event()
    elif how == "collected":
        ring = [asked]
        ring.append(ring)
        del ring
    del asked
    gc.collect()
    expect(active_channel, ce.RDMA_CM_EVENT_REJECTED)
    assert DEVICES.adapters.users(active._id.local.device) == 2
