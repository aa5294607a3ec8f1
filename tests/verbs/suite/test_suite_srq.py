"""Shared receive queues: several QPs, order, the limit event, full and empty queues."""

import errno

import pytest
from traffic import BOUND_S, pattern, poll

from softhca.testing.verbs import CLIENT_PSN, SERVER_PSN, attributes, connect, make_end
from softhca.verbs import enums as e
from softhca.verbs.cq import CQ
from softhca.verbs.pyverbs_error import PyverbsRDMAError, PyverbsUserError
from softhca.verbs.qp import QP, QPCap, QPInitAttr
from softhca.verbs.srq import SRQ, SrqAttr, SrqInitAttr
from softhca.verbs.wr import RecvWR


def shared_pair(pair, max_wr: int = 16):
    """A client and a server that receives through an SRQ, connected."""
    client = make_end(pair.client)
    server = make_end(pair.server, srq=lambda pd: SRQ(pd, SrqInitAttr(SrqAttr(max_wr, 2))))
    connect(client, server)
    return client, server


def test_messages_take_receives_in_order(verbs_pair) -> None:
    client, server = shared_pair(verbs_pair)
    client.mr.write(pattern(4000), 4000)
    for number in range(4):
        server.receive(1000, 1000 * number, wr_id=number)
    for number in range(4):
        client.send(length=1000, offset=1000 * number)
    received = poll(server.recv_cq, 4, client, server)
    assert [(wc.wr_id, wc.byte_len, wc.qp_num) for wc in received] == [
        (number, 1000, server.qp.qp_num) for number in range(4)
    ]
    assert server.mr.read(4000, 0) == pattern(4000)


def test_qps_share_the_receives_and_completions_name_the_qp(verbs_pair) -> None:
    one, server = shared_pair(verbs_pair)
    two = make_end(verbs_pair.client)
    init = QPInitAttr(
        e.IBV_QPT_RC,
        scq=server.send_cq,
        rcq=server.recv_cq,
        srq=server.srq,
        cap=QPCap(8, 0, 1, 0),
        sq_sig_all=0,
    )
    first, second = server.qp, QP(server.pd, init)
    server.qp = second
    two.qp.to_rts(attributes(two, server, CLIENT_PSN, SERVER_PSN))
    second.to_rts(attributes(server, two, SERVER_PSN, CLIENT_PSN))
    for number in range(2):
        server.receive(8, 8 * number, wr_id=number)
    one.send(length=8)
    poll(one.send_cq, 1, one, server)
    two.send(length=8)
    poll(two.send_cq, 1, two, server)
    received = poll(server.recv_cq, 2, one, two, server)
    assert [(wc.wr_id, wc.qp_num) for wc in received] == [(0, first.qp_num), (1, second.qp_num)]


def next_event(context, timeout_s: float):
    """The next asynchronous event that is not an established communication."""
    while True:
        event = context.get_async_event(timeout_s=timeout_s)
        if event.event_type != e.IBV_EVENT_COMM_EST:
            return event


def test_the_limit_event_fires_once_when_it_is_undercut(verbs_pair) -> None:
    client, server = shared_pair(verbs_pair)
    for number in range(4):
        server.receive(8, wr_id=number)
    server.srq.modify(SrqAttr(srq_limit=3), e.IBV_SRQ_LIMIT)
    assert server.srq.query().srq_limit == 3
    for _ in range(3):
        client.send(length=8)
    assert len(poll(server.recv_cq, 3, client, server)) == 3
    event = next_event(verbs_pair.server, BOUND_S)
    assert (event.event_type, event.element) == (e.IBV_EVENT_SRQ_LIMIT_REACHED, server.srq.get_srq_num())
    event.ack()
    assert server.srq.query().srq_limit == 0
    with pytest.raises(PyverbsRDMAError) as caught:
        next_event(verbs_pair.server, 0)
    assert caught.value.error_code == errno.ETIMEDOUT


def test_an_empty_srq_is_rnr_and_goes_on_when_it_is_filled(verbs_pair) -> None:
    client, server = shared_pair(verbs_pair)
    client.send(length=8)
    server.receive(8)
    assert poll(server.recv_cq, 1, client, server)[0].status == e.IBV_WC_SUCCESS
    assert poll(client.send_cq, 1, client, server)[0].status == e.IBV_WC_SUCCESS


def test_a_full_srq_is_enomem_and_tells_the_bad_request(verbs_pair) -> None:
    _, server = shared_pair(verbs_pair, max_wr=4)
    room = server.srq.query().max_wr
    for number in range(room):
        server.receive(8, wr_id=number)
    bad = RecvWR()
    with pytest.raises(PyverbsRDMAError) as caught:
        server.srq.post_recv(RecvWR(9, 1, [server.sge(8)]), bad)
    assert caught.value.error_code == errno.ENOMEM
    assert bad.wr_id == 9


def test_too_many_elements_are_einval(verbs_pair) -> None:
    _, server = shared_pair(verbs_pair)
    count = server.srq.query().max_sge + 1
    with pytest.raises(PyverbsRDMAError) as caught:
        server.srq.post_recv(RecvWR(9, count, [server.sge(8)] * count))
    assert caught.value.error_code == errno.EINVAL


def test_receives_of_a_qp_with_an_srq_go_to_the_srq_only(verbs_pair) -> None:
    _, server = shared_pair(verbs_pair)
    with pytest.raises(PyverbsRDMAError) as caught:
        server.qp.post_recv(RecvWR(1, 1, [server.sge(8)]))
    assert caught.value.error_code == errno.EINVAL


@pytest.mark.parametrize(("requests", "elements"), [(0, 1), (1 << 30, 1), (4, 1 << 20)])
def test_impossible_sizes_are_einval(verbs_pair, requests, elements) -> None:
    end = make_end(verbs_pair.client)
    with pytest.raises(PyverbsRDMAError) as caught:
        SRQ(end.pd, SrqInitAttr(SrqAttr(requests, elements)))
    assert caught.value.error_code in (errno.EINVAL, errno.ENOMEM)


def test_a_limit_above_the_size_is_einval(verbs_pair) -> None:
    _, server = shared_pair(verbs_pair, max_wr=4)
    with pytest.raises(PyverbsRDMAError) as caught:
        server.srq.modify(SrqAttr(srq_limit=server.srq.query().max_wr + 1), e.IBV_SRQ_LIMIT)
    assert caught.value.error_code == errno.EINVAL


def test_closing_an_srq_closes_its_qps(verbs_pair) -> None:
    _, server = shared_pair(verbs_pair)
    server.srq.close()
    with pytest.raises(PyverbsUserError):
        server.state()
    assert CQ(verbs_pair.server, 1).cqe >= 1
