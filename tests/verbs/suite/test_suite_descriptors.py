"""Descriptors of channels and asynchronous events: readable while events are queued, whoever drives."""

import errno
import os
import select

import pytest
from traffic import BOUND_S, settle

from softhca.testing.verbs import connect, make_end
from softhca.verbs import enums as e
from softhca.verbs.cq import CompChannel
from softhca.verbs.pyverbs_error import PyverbsRDMAError
from softhca.verbs.qp import QP, QPAttr, QPCap, QPInitAttr
from softhca.verbs.wr import SGE, SendWR


def readable(fd: int, timeout_s: float = 0) -> bool:
    return bool(select.select([fd], [], [], timeout_s)[0])


@pytest.fixture
def waiting(verbs_pair):
    """A client, a server that is told of what it receives, and the server's channel."""
    if verbs_pair.mode == "virtual":
        with CompChannel(verbs_pair.server) as channel, pytest.raises(PyverbsRDMAError) as caught:
            channel.fd  # noqa: B018
        assert caught.value.error_code == errno.EOPNOTSUPP
        pytest.skip("nothing arrives by itself in virtual time")
    channel = CompChannel(verbs_pair.server)
    client, server = make_end(verbs_pair.client), make_end(verbs_pair.server, channel=channel)
    connect(client, server)
    for _ in range(8):
        server.receive(8)
    server.recv_cq.req_notify()
    return client, server, channel


def test_a_channel_is_readable_from_an_event_until_it_is_taken(waiting) -> None:
    client, server, channel = waiting
    fd = channel.fd
    assert channel.fd == fd
    assert not readable(fd)
    client.send(length=8)
    assert readable(fd, BOUND_S), "although nobody polls or waits by the verbs"
    assert readable(fd), "as long as it is queued"
    channel.get_cq_event(server.recv_cq)
    server.recv_cq.ack_events(1)
    assert not readable(fd)
    assert len(server.recv_cq.poll(8)[1]) == 1


def test_an_event_from_before_the_descriptor_makes_it_readable(waiting) -> None:
    client, server, channel = waiting
    client.send(length=8)
    settle(client.send_cq, client, server)
    assert readable(channel.fd, BOUND_S)


def test_each_event_is_an_edge(waiting) -> None:
    client, server, channel = waiting
    with select.epoll() as epoll:
        epoll.register(channel.fd, select.EPOLLIN | select.EPOLLET)
        for _ in range(3):
            client.send(length=8)
            assert epoll.poll(BOUND_S) == [(channel.fd, select.EPOLLIN)]
            assert epoll.poll(0) == []
            channel.get_cq_event(server.recv_cq)
            server.recv_cq.ack_events(1)
            assert len(server.recv_cq.poll(8)[1]) == 1
            server.recv_cq.req_notify()


def test_a_channel_of_several_queues_is_readable_until_all_events_are_taken(waiting) -> None:
    _, server, channel = waiting
    fd = channel.fd
    queues = [make_end(server.context, channel=channel) for _ in range(2)]
    for end in queues:
        end.recv_cq.req_notify()
        end.qp.to_init(QPAttr())
        end.receive(8)
        end.qp.modify(QPAttr(qp_state=e.IBV_QPS_ERR), e.IBV_QP_STATE)  # the receive is flushed
    for left, end in ((1, queues[0]), (0, queues[1])):
        assert readable(fd, BOUND_S)
        channel.get_cq_event(end.recv_cq, timeout_s=BOUND_S)
        assert readable(fd, BOUND_S if left else 0) == bool(left)


def test_the_event_of_a_queue_that_is_closed_is_nobodys(waiting) -> None:
    client, server, channel = waiting
    client.send(length=8)
    assert readable(channel.fd, BOUND_S)
    server.recv_cq.close()
    assert not readable(channel.fd)


def test_a_descriptor_that_does_not_block_makes_the_calls_not_block(waiting) -> None:
    client, server, channel = waiting
    for fd, take in (
        (channel.fd, lambda: channel.get_cq_event(server.recv_cq)),
        (server.context.async_fd, server.context.get_async_event),
    ):
        os.set_blocking(fd, False)
        with pytest.raises(PyverbsRDMAError) as caught:
            take()
        assert caught.value.error_code == errno.EAGAIN
    client.send(length=8)
    assert readable(channel.fd, BOUND_S)
    channel.get_cq_event(server.recv_cq)
    os.set_blocking(channel.fd, True)
    with pytest.raises(PyverbsRDMAError) as caught:
        channel.get_cq_event(server.recv_cq, timeout_s=0)
    assert caught.value.error_code == errno.ETIMEDOUT


def test_asynchronous_events_have_a_descriptor(waiting) -> None:
    client, server, _ = waiting
    fd = server.context.async_fd
    while readable(fd):  # what connecting has told
        server.context.get_async_event(timeout_s=BOUND_S).ack()
    client.send(e.IBV_WR_RDMA_WRITE, 8, to=(1, 1))
    found = []
    while (e.IBV_EVENT_QP_ACCESS_ERR, server.qp.qp_num) not in found:
        assert readable(fd, BOUND_S)
        event = server.context.get_async_event(timeout_s=0)
        event.ack()
        found.append((event.event_type, event.element))
    assert readable(fd) == bool(server.context.driver.events._events)


def test_descriptors_end_with_what_they_are_of(waiting) -> None:
    client, server, channel = waiting
    context = server.context
    descriptors = [context.async_fd, context.cmd_fd]
    assert context.cmd_fd == descriptors[1]
    assert os.fstat(context.cmd_fd).st_ino != os.fstat(client.context.cmd_fd).st_ino
    other = CompChannel(context)
    ended = other.fd
    other.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(ended)
    descriptors.append(channel.fd)
    context.close()
    for each in descriptors:
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(each)


def test_a_device_without_descriptors_left_says_so_and_goes_on(waiting, monkeypatch) -> None:
    client, _, channel = waiting

    def none_left(*arguments: object) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    with monkeypatch.context() as patched:
        patched.setattr("softhca.driver.descriptors.socket.socketpair", none_left)
        with pytest.raises(PyverbsRDMAError) as caught:
            channel.fd  # noqa: B018
    assert caught.value.error_code == errno.EMFILE
    client.send(length=8)
    assert readable(channel.fd, BOUND_S)


def test_a_program_that_only_sends_is_woken_by_its_completions(waiting) -> None:
    client, _, _ = waiting
    own = CompChannel(client.context)
    end = make_end(client.context, channel=own)
    end.recv_cq.req_notify()
    qp = QP(end.pd, QPInitAttr(e.IBV_QPT_RC, scq=end.recv_cq, rcq=end.recv_cq, cap=QPCap()))
    qp.to_init(QPAttr())
    qp.modify(QPAttr(qp_state=e.IBV_QPS_ERR), e.IBV_QP_STATE)
    qp.post_send(SendWR(1, num_sge=1, sg=[SGE(0, 0, 0)]))
    assert readable(own.fd, BOUND_S)
    own.get_cq_event(end.recv_cq)
    assert [each.status for each in end.recv_cq.poll(8)[1]] == [e.IBV_WC_WR_FLUSH_ERR]
