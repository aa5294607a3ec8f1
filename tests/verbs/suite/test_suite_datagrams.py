"""UD and UC between two devices: GRH, Q_Key, address handles, and what unreliable services do with errors."""

import errno
import socket

import pytest
from traffic import connected, pattern, poll, settle, wait_until

from softhca.testing.verbs import QKEY, connect, handle_to, make_end
from softhca.verbs import enums as e
from softhca.verbs.addr import AH, GID, AHAttr, GlobalRoute
from softhca.verbs.pyverbs_error import PyverbsRDMAError
from softhca.verbs.wr import SGE, SendWR

GRH = 40
UD, UC = e.IBV_QPT_UD, e.IBV_QPT_UC


def datagram(
    client, server, length: int, *, ah=None, qpn: int | None = None, qkey: int = QKEY, **arguments
) -> None:
    """Send ``length`` bytes from the client's region as a datagram."""
    wr = client.request(arguments.pop("opcode", e.IBV_WR_SEND), length, **arguments)
    wr.set_wr_ud(ah or handle_to(client, server), server.qp.qp_num if qpn is None else qpn, qkey)
    client.handle = wr.ah
    client.qp.post_send(wr)


def mtu_bytes(end) -> int:
    return 128 << end.context.query_port(1).active_mtu


@pytest.mark.parametrize("size", [0, 1, 2, 3, 1000, None])
def test_a_datagram_arrives_behind_its_route(verbs_pair, size: int | None) -> None:
    client, server = connected(verbs_pair, UD)
    size = mtu_bytes(client) if size is None else size
    client.mr.write(pattern(size), size)
    server.receive(GRH + size)
    datagram(client, server, size, wr_id=4)
    sent = poll(client.send_cq, 1, client, server)[0]
    assert (sent.status, sent.wr_id, sent.opcode) == (e.IBV_WC_SUCCESS, 4, e.IBV_WC_SEND)
    received = poll(server.recv_cq, 1, client, server)[0]
    assert (received.status, received.byte_len, received.src_qp) == (
        e.IBV_WC_SUCCESS,
        GRH + size,
        client.qp.qp_num,
    )
    assert received.wc_flags & e.IBV_WC_GRH
    assert server.mr.read(size, GRH) == pattern(size)
    header = server.mr.read(GRH, 0)
    assert header[32:36] == verbs_pair.client.query_gid(1, 0).raw[12:]
    assert header[36:40] == verbs_pair.server.query_gid(1, 0).raw[12:]


def test_a_completion_and_its_route_lead_back_to_the_sender(verbs_pair) -> None:
    client, server = connected(verbs_pair, UD)
    client.mr.write(b"ping", 4)
    server.receive(GRH + 4)
    client.receive(GRH + 4, 100)
    datagram(client, server, 4, imm_data=socket.htonl(5), opcode=e.IBV_WR_SEND_WITH_IMM)
    received = poll(server.recv_cq, 1, client, server)[0]
    assert socket.ntohl(received.imm_data) == 5
    back = AH(server.pd, wc=received, grh=server.mr.buf, port_num=1)
    server.mr.write(b"pong", 4)
    datagram(server, client, 4, ah=back, qpn=received.src_qp)
    answer = poll(client.recv_cq, 1, client, server)[0]
    assert (answer.status, answer.src_qp) == (e.IBV_WC_SUCCESS, server.qp.qp_num)
    assert client.mr.read(4, 100 + GRH) == b"pong"


@pytest.mark.parametrize("wrong", [{"qkey": QKEY ^ 1}, {"qpn": 0xABCDEF}], ids=["Q_Key", "QP number"])
def test_a_datagram_that_is_not_meant_for_us_is_dropped_silently(verbs_pair, wrong) -> None:
    client, server = connected(verbs_pair, UD)
    client.mr.write(b"wrong", 5)
    server.receive(GRH + 5)
    datagram(client, server, 5, **wrong)
    assert poll(client.send_cq, 1, client, server)[0].status == e.IBV_WC_SUCCESS
    client.mr.write(b"right", 5)
    datagram(client, server, 5)
    assert poll(server.recv_cq, 1, client, server)[0].status == e.IBV_WC_SUCCESS
    assert server.mr.read(5, GRH) == b"right"
    assert settle(server.recv_cq, client, server) == []
    assert client.state() == server.state() == e.IBV_QPS_RTS


def test_a_datagram_without_a_receive_is_dropped_silently(verbs_pair) -> None:
    client, server = connected(verbs_pair, UD)
    witness = make_end(verbs_pair.server, UD)
    connect(make_end(verbs_pair.client, UD), witness)
    datagram(client, server, 4)
    assert poll(client.send_cq, 1, client, server)[0].status == e.IBV_WC_SUCCESS
    witness.receive(GRH + 4)
    datagram(client, witness, 4)
    poll(witness.recv_cq, 1, client, server)  # on one path, what was sent before has arrived too
    server.receive(GRH + 4, wr_id=2)
    client.mr.write(b"next", 4)
    datagram(client, server, 4)
    assert poll(server.recv_cq, 1, client, server)[0].wr_id == 2


def test_a_datagram_longer_than_the_mtu_fails_at_the_sender(verbs_pair) -> None:
    client, server = connected(verbs_pair, UD)
    server.receive(1 << 15)
    datagram(client, server, mtu_bytes(client) + 1)
    assert poll(client.send_cq, 1, client, server)[0].status == e.IBV_WC_LOC_LEN_ERR
    assert settle(server.recv_cq, client, server) == []


def test_after_a_send_error_a_datagram_qp_can_go_on_from_sqe(verbs_pair) -> None:
    client, server = connected(verbs_pair, UD)
    datagram(client, server, mtu_bytes(client) + 1)
    assert poll(client.send_cq, 1, client, server)[0].status == e.IBV_WC_LOC_LEN_ERR
    assert client.state() == e.IBV_QPS_SQE
    attr = client.qp.query(0)[0]
    attr.qp_state = e.IBV_QPS_RTS
    client.qp.modify(attr, e.IBV_QP_STATE)
    server.receive(GRH + 4)
    datagram(client, server, 4)
    assert poll(server.recv_cq, 1, client, server)[0].status == e.IBV_WC_SUCCESS


def test_a_datagram_is_sent_inline(verbs_pair) -> None:
    client, server = connected(verbs_pair, UD)
    client.mr.write(b"inline", 6)
    server.receive(GRH + 6)
    wr = SendWR(0, e.IBV_WR_SEND, 1, 0, [SGE(client.mr.buf, 6, 0)], e.IBV_SEND_INLINE)
    wr.set_wr_ud(handle_to(client, server), server.qp.qp_num, QKEY)
    client.qp.post_send(wr)
    assert poll(server.recv_cq, 1, client, server)[0].byte_len == GRH + 6
    assert server.mr.read(6, GRH) == b"inline"


@pytest.mark.parametrize("opcode", [e.IBV_WR_RDMA_WRITE, e.IBV_WR_RDMA_READ, e.IBV_WR_ATOMIC_FETCH_AND_ADD])
def test_datagrams_know_only_sends(verbs_pair, opcode: int) -> None:
    client, server = connected(verbs_pair, UD)
    datagram(client, server, 8, opcode=opcode)
    assert poll(client.send_cq, 1, client, server)[0].status == e.IBV_WC_LOC_QP_OP_ERR
    assert server.mr.read(64, 0) == bytes(64)


@pytest.mark.parametrize(
    "change", [{"is_global": 0}, {"port_num": 2}, {"sgid_index": 200}, {"dgid": str(GID())}], ids=str
)
def test_an_address_that_leads_nowhere_is_einval(verbs_pair, change) -> None:
    client, _ = connected(verbs_pair, UD)
    attr = AHAttr(is_global=1, gr=GlobalRoute(dgid=verbs_pair.server.query_gid(1, 0)))
    for name, value in change.items():
        setattr(attr, name, value)
    with pytest.raises(PyverbsRDMAError) as caught:
        AH(client.pd, attr=attr)
    assert caught.value.error_code == errno.EINVAL


def mark(client, server) -> None:
    """Write a byte far behind: once it is there, everything that was sent before it has arrived."""
    client.mr.write(b"\x55", 1, 60_000)
    client.send(e.IBV_WR_RDMA_WRITE, 1, 60_000, to=(server.mr.rkey, server.mr.buf + 60_000), flags=0)
    wait_until(lambda: server.mr.read(1, 60_000) == b"\x55", client, server)


@pytest.mark.parametrize("size", [0, 1, 1024, 1025, 50_000])
def test_uc_carries_sends_and_writes(verbs_pair, size: int) -> None:
    client, server = connected(verbs_pair, UC)
    client.mr.write(pattern(size), size)
    server.receive(size)
    client.send(length=size, wr_id=1)
    assert poll(client.send_cq, 1, client, server)[0].status == e.IBV_WC_SUCCESS
    received = poll(server.recv_cq, 1, client, server)[0]
    assert (received.status, received.byte_len) == (e.IBV_WC_SUCCESS, size)
    assert server.mr.read(size, 0) == pattern(size)
    server.mr.write(bytes(size), size)
    server.receive()
    to = (server.mr.rkey, server.mr.buf + 5)
    client.send(e.IBV_WR_RDMA_WRITE, size, to=to)
    client.send(e.IBV_WR_RDMA_WRITE_WITH_IMM, size, to=to, imm_data=socket.htonl(6))
    received = poll(server.recv_cq, 1, client, server)[0]
    assert (received.opcode, received.byte_len, socket.ntohl(received.imm_data)) == (
        e.IBV_WC_RECV_RDMA_WITH_IMM,
        size,
        6,
    )
    assert server.mr.read(size, 5) == pattern(size)


@pytest.mark.parametrize("opcode", [e.IBV_WR_RDMA_READ, e.IBV_WR_ATOMIC_CMP_AND_SWP])
def test_uc_knows_neither_reads_nor_atomics(verbs_pair, opcode: int) -> None:
    client, server = connected(verbs_pair, UC)
    client.send(opcode, 8, to=(server.mr.rkey, server.mr.buf))
    assert poll(client.send_cq, 1, client, server)[0].status == e.IBV_WC_LOC_QP_OP_ERR
    assert server.mr.read(64, 0) == bytes(64)


def test_uc_drops_a_message_without_a_receive_and_delivers_the_next(verbs_pair) -> None:
    client, server = connected(verbs_pair, UC)
    client.mr.write(b"lost", 4)
    client.send(length=4)
    assert poll(client.send_cq, 1, client, server)[0].status == e.IBV_WC_SUCCESS
    mark(client, server)
    client.mr.write(b"next", 4)
    server.receive(4)
    client.send(length=4)
    assert poll(server.recv_cq, 1, client, server)[0].status == e.IBV_WC_SUCCESS
    assert server.mr.read(4, 0) == b"next"


def test_uc_does_not_touch_memory_for_a_bad_key(verbs_pair) -> None:
    client, server = connected(verbs_pair, UC)
    client.mr.write(b"evil", 4)
    client.send(e.IBV_WR_RDMA_WRITE, 4, to=(server.mr.rkey ^ 0x100, server.mr.buf))
    assert poll(client.send_cq, 1, client, server)[0].status == e.IBV_WC_SUCCESS
    mark(client, server)
    assert server.mr.read(4096, 0) == bytes(4096)
