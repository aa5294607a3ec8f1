"""Programs of the verbs on networks in virtual time."""

import pytest

from softhca.driver import registry
from softhca.testing import Network, completions, connect, connected, handle_to, make_end
from softhca.testing.verbs import QKEY
from softhca.verbs import enums as e
from softhca.verbs.cq import CQ, CompChannel
from softhca.verbs.device import Context, get_device_list
from softhca.verbs.pyverbs_error import PyverbsError, PyverbsRDMAError

LINKS = ("ipv4", "ipv6", "native")
STORM = "loss=10%,duplicate=5%,reorder=10%,corrupt=3%"


@pytest.mark.parametrize("link", LINKS)
def test_two_ends_exchange_messages_in_a_storm(link):
    with Network(STORM, seed=2, link=link) as network:
        client, server = connected(network)
        for number in range(10):
            server.receive(1000, 1000 * number, wr_id=number)
        for number in range(10):
            client.mr.write(bytes([number]) * 1000, 1000, 1000 * number)
            client.send(length=1000, offset=1000 * number, wr_id=number)
        sent = completions(network, client.send_cq, 10)
        received = completions(network, server.recv_cq, 10)
        assert [(wc.wr_id, wc.status) for wc in sent + received] == [(n, 0) for n in range(10)] * 2
        assert server.mr.read(10_000, 0) == b"".join(bytes([n]) * 1000 for n in range(10))
        assert {client.state(), server.state()} == {e.IBV_QPS_RTS}


@pytest.mark.parametrize("link", LINKS)
def test_datagrams_by_an_address_handle(link):
    with Network(link=link) as network:
        client, server = connected(network, e.IBV_QPT_UD)
        server.receive(200)
        client.mr.write(b"datagram", 8)
        wr = client.request(length=8)
        wr.set_wr_ud(handle_to(client, server), server.qp.qp_num, QKEY)
        client.qp.post_send(wr)
        (done,) = completions(network, server.recv_cq)
        assert (done.byte_len, done.src_qp) == (48, client.qp.qp_num)
        assert server.mr.read(8, 40) == b"datagram"


def test_a_program_that_polls_in_a_loop():
    with Network(STORM, seed=4, polls_pass_time=True) as network:
        client, server = connected(network)
        client.send(e.IBV_WR_RDMA_WRITE, 10_000, to=(server.mr.rkey, server.mr.buf))
        count = 0
        while not count:
            count, done = client.send_cq.poll(1)
        assert done[0].status == e.IBV_WC_SUCCESS


def test_a_poll_does_not_let_time_go_on_unless_it_shall():
    with Network() as network:
        client, server = connected(network)
        client.send(e.IBV_WR_RDMA_WRITE, 8, to=(server.mr.rkey, server.mr.buf))
        now = network.now
        assert [client.send_cq.poll(1)[0] for _ in range(100)] == [0] * 100
        assert network.now == now


def test_a_blocking_call_waits_in_virtual_time():
    with Network("delay=1ms") as network:
        context = network.add().context()
        channel = CompChannel(context)
        client, server = make_end(context, channel=channel), make_end(network.add().context())
        connect(client, server)
        client.recv_cq.req_notify()
        client.receive(8)
        server.send(length=8)
        start = network.now
        channel.get_cq_event(client.recv_cq)
        assert network.now - start == 1_000_000
        assert client.recv_cq.poll(1)[0] == 1


def test_a_silent_peer_costs_retries_and_no_real_time():
    with Network("loss=100%") as network:
        client, server = make_end(network.add().context()), make_end(network.add().context())
        connect(client, server, timeout=20, retry_cnt=2)
        client.send(length=8)
        start = network.now
        (done,) = completions(network, client.send_cq)
        assert done.status == e.IBV_WC_RETRY_EXC_ERR
        assert network.now - start >= 3 * 4096 << 20


def test_programs_find_an_adapter_by_its_name_until_the_network_is_closed():
    with Network() as network:
        node = network.add(name="mlx5_0")
        with pytest.raises(PyverbsRDMAError):
            Context(name="mlx5_0")
        node.offer()
        node.offer()
        assert b"mlx5_0" in [device.name for device in get_device_list()]
        context = Context(name="mlx5_0")
        assert context.query_gid(1, 0).raw == node.gid
        other = network.add(name="mlx5_0")
        with pytest.raises(ValueError, match="there is a device 'mlx5_0' already"):
            other.offer()
    assert "mlx5_0" not in registry.names()
    with pytest.raises(PyverbsError):
        CQ(context, 1)
    network.close()


def test_two_networks_at_once_have_names_of_their_own():
    with Network() as one, Network() as other:
        names = {one.add().context().name, other.add().context().name, one.add().context().name}
        assert len(names) == 3


def test_what_a_program_has_made_is_freed_when_the_network_is_closed():
    with Network() as network:
        ends = connected(network)
        adapters = [node.adapter for node in network.nodes.values()]
        assert all(adapter.queue_pairs for adapter in adapters)
    assert len(ends) == 2
    assert not any(adapter.queue_pairs or adapter.hosts for adapter in adapters)
