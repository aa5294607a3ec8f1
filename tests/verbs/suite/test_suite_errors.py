"""What ends a connection: receivers not ready, peers gone, flushing, full completion queues."""

import errno

import pytest
from traffic import BOUND_S, connected, poll, settle, wait_until

from softhca.testing.verbs import attributes, connect, make_end
from softhca.verbs import enums as e
from softhca.verbs.pyverbs_error import PyverbsRDMAError
from softhca.verbs.qp import QP, QPAttr, QPCap, QPInitAttr
from softhca.verbs.wr import SGE, RecvWR, SendWR


def events_of(context, count: int) -> list[tuple[int, int]]:
    """The next ``count`` asynchronous events, acknowledged."""
    found = []
    for _ in range(count):
        event = context.get_async_event(timeout_s=BOUND_S)
        event.ack()
        found.append((event.event_type, event.element))
    return found


def test_a_receiver_that_is_not_ready_gets_the_message_later(verbs_pair) -> None:
    client, server = connected(verbs_pair)
    client.mr.write(b"late", 4)
    client.send(length=4)
    wait_until(lambda: sum(verbs_pair.server.query_counters(qp=server.qp.qp_num).values()), client, server)
    assert settle(client.send_cq, client, server) == []
    server.receive(4)
    assert poll(server.recv_cq, 1, client, server)[0].status == e.IBV_WC_SUCCESS
    assert poll(client.send_cq, 1, client, server)[0].status == e.IBV_WC_SUCCESS
    assert server.mr.read(4, 0) == b"late"


@pytest.mark.parametrize("retries", [0, 2])
def test_rnr_retries_run_out(verbs_pair, retries: int) -> None:
    client, server = connected(verbs_pair, changes={"rnr_retry": retries})
    client.send(length=4, wr_id=3)
    done = poll(client.send_cq, 1, client, server)[0]
    assert (done.status, done.wr_id) == (e.IBV_WC_RNR_RETRY_EXC_ERR, 3)
    assert client.state() == e.IBV_QPS_ERR


def test_a_peer_that_is_gone_is_retry_exceeded_and_the_rest_is_flushed(verbs_pair) -> None:
    changes = {"timeout": 8, "retry_cnt": 2}
    client, server = connected(verbs_pair, changes=changes)
    server.qp.close()
    client.receive(8, wr_id=50)
    for number in range(3):
        client.send(length=4, wr_id=number)
    done = poll(client.send_cq, 3, client)
    assert [(wc.wr_id, wc.status) for wc in done] == [
        (0, e.IBV_WC_RETRY_EXC_ERR),
        (1, e.IBV_WC_WR_FLUSH_ERR),
        (2, e.IBV_WC_WR_FLUSH_ERR),
    ]
    flushed = poll(client.recv_cq, 1, client)[0]
    assert (flushed.wr_id, flushed.status) == (50, e.IBV_WC_WR_FLUSH_ERR)


def test_in_the_error_state_everything_is_flushed_also_what_is_posted_later(verbs_pair) -> None:
    client, server = connected(verbs_pair)
    for number in range(3):
        client.receive(8, wr_id=number)
    client.qp.modify(QPAttr(qp_state=e.IBV_QPS_ERR), e.IBV_QP_STATE)
    client.send(length=4, wr_id=10, flags=0)
    client.receive(8, wr_id=3)
    received = poll(client.recv_cq, 4, client, server)
    assert [(wc.wr_id, wc.status) for wc in received] == [(n, e.IBV_WC_WR_FLUSH_ERR) for n in range(4)]
    sent = poll(client.send_cq, 1, client, server)[0]
    assert (sent.wr_id, sent.status, sent.qp_num) == (10, e.IBV_WC_WR_FLUSH_ERR, client.qp.qp_num)


def test_an_access_error_is_told_to_the_target_as_an_event(verbs_pair) -> None:
    client, server = connected(verbs_pair)
    client.send(e.IBV_WR_RDMA_WRITE, 8, to=(server.mr.rkey ^ 1 << 20, server.mr.buf))
    assert poll(client.send_cq, 1, client, server)[0].status == e.IBV_WC_REM_ACCESS_ERR
    expected = {(e.IBV_EVENT_QP_ACCESS_ERR, server.qp.qp_num)}
    seen = set()
    while not seen & expected:
        seen.update(events_of(verbs_pair.server, 1))
    assert {number for _, number in seen} == {server.qp.qp_num}


def test_a_connection_can_be_used_again_after_reset(verbs_pair) -> None:
    client, server = connected(verbs_pair)
    client.send(e.IBV_WR_RDMA_WRITE, 8, to=(1, 1))
    assert poll(client.send_cq, 1, client, server)[0].status == e.IBV_WC_REM_ACCESS_ERR
    for end in (client, server):
        end.qp.modify(QPAttr(qp_state=e.IBV_QPS_RESET), e.IBV_QP_STATE)
        assert end.state() == e.IBV_QPS_RESET
    connect(client, server)
    server.receive(8)
    client.send(length=8)
    assert poll(client.send_cq, 1, client, server)[0].status == e.IBV_WC_SUCCESS
    assert poll(server.recv_cq, 1, client, server)[0].status == e.IBV_WC_SUCCESS


def test_reset_drops_what_was_posted_without_completions(verbs_pair) -> None:
    client, server = connected(verbs_pair)
    client.receive(8)
    client.qp.modify(QPAttr(qp_state=e.IBV_QPS_RESET), e.IBV_QP_STATE)
    assert settle(client.recv_cq, client, server) == []


@pytest.mark.parametrize("resized", [False, True])
@pytest.mark.parametrize("ended", ["reset", "closed"])
def test_reset_and_close_take_completions_out_of_the_queue_and_no_others(
    verbs_pair, ended: str, resized: bool
) -> None:
    client, server = connected(verbs_pair)
    cq = client.send_cq
    other = QP(client.pd, QPInitAttr(e.IBV_QPT_RC, scq=cq, rcq=cq, cap=QPCap(max_send_wr=4)))
    state = QPAttr()
    other.to_init(state)
    other.modify(QPAttr(qp_state=e.IBV_QPS_ERR), e.IBV_QP_STATE)
    client.send(e.IBV_WR_RDMA_WRITE, 8, to=(1, 1), wr_id=1)
    wait_until(lambda: client.state() == e.IBV_QPS_ERR, client, server)
    other.post_send(SendWR(2, num_sge=1, sg=[SGE(0, 0, 0)]))
    client.send(length=8, wr_id=3)
    wait_until(lambda: cq.handle.waiting() == 3, client, server)
    if ended == "reset":
        client.qp.modify(QPAttr(qp_state=e.IBV_QPS_RESET), e.IBV_QP_STATE)
    else:
        client.qp.close()
    if resized:
        cq.resize(2 * cq.cqe)
    assert [each.wr_id for each in settle(cq, client, server)] == [2]
    for wr_id in (4, 5):
        other.post_send(SendWR(wr_id, num_sge=1, sg=[SGE(0, 0, 0)]))
    assert [each.wr_id for each in poll(cq, 2, client, server)] == [4, 5]


def test_completions_after_a_reset_are_told(verbs_pair) -> None:
    client, server = connected(verbs_pair)
    client.send(e.IBV_WR_RDMA_WRITE, 8, to=(1, 1), wr_id=1)
    wait_until(lambda: client.state() == e.IBV_QPS_ERR, client, server)
    for end in (client, server):
        end.qp.modify(QPAttr(qp_state=e.IBV_QPS_RESET), e.IBV_QP_STATE)
    connect(client, server)
    server.receive(8)
    client.send(length=8, wr_id=2)
    assert [(each.wr_id, each.status) for each in poll(client.send_cq, 1, client, server)] == [(2, 0)]


def test_a_full_completion_queue_is_an_event_and_never_silent(verbs_pair) -> None:
    client, server = make_end(verbs_pair.client), make_end(verbs_pair.server, entries=1)
    connect(client, server)
    room = server.recv_cq.cqe
    assert room < 60
    for number in range(room + 1):
        server.receive(4, wr_id=number)
    for _ in range(room + 1):
        client.send(length=4)
    found = set()
    while (e.IBV_EVENT_CQ_ERR, server.recv_cq.number) not in found:
        found.update(events_of(verbs_pair.server, 1))


def test_a_resized_completion_queue_keeps_its_completions_and_takes_more(verbs_pair) -> None:
    client, server = connected(verbs_pair, entries=4)
    for number in range(3):
        server.receive(4, wr_id=number)
        client.send(length=4)
    poll(client.send_cq, 3, client, server)
    wait_until(lambda: server.state() == e.IBV_QPS_RTS, client, server)
    server.recv_cq.resize(64)
    assert server.recv_cq.cqe >= 64
    for number in range(3, 40):
        server.receive(4, wr_id=number)
        client.send(length=4)
        poll(client.send_cq, 1, client, server)
    received = poll(server.recv_cq, 40, client, server)
    assert [(wc.wr_id, wc.status) for wc in received] == [(number, 0) for number in range(40)]


def test_a_command_finds_done_what_was_posted_before_it(verbs_pair) -> None:
    client, _ = connected(verbs_pair, e.IBV_QPT_UC, entries=64)
    client.send_cq.resize(1)
    least = client.send_cq.cqe
    for _ in range(20):
        client.send_cq.resize(64)
        for _ in range(least + 1):
            client.send(length=4)
        if verbs_pair.mode == "virtual":
            verbs_pair.client.progress()  # an adapter in virtual time sends in the network's turns only
        with pytest.raises(PyverbsRDMAError, match="completions are not read yet") as error:
            client.send_cq.resize(1)
        assert error.value.error_code == errno.EINVAL
        poll(client.send_cq, least + 1, client)


def test_a_full_receive_queue_is_enomem(verbs_pair) -> None:
    end = make_end(verbs_pair.client)
    end.qp.to_init(attributes(end, end, 0, 0))
    room = end.qp.query(e.IBV_QP_CAP)[0].cap.max_recv_wr
    for number in range(room):
        end.receive(4, wr_id=number)
    bad = RecvWR()
    with pytest.raises(PyverbsRDMAError) as caught:
        end.qp.post_recv(RecvWR(77, 1, [end.sge(4)]), bad)
    assert caught.value.error_code == errno.ENOMEM
    assert bad.wr_id == 77
