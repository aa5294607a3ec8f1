"""Null regions on real devices: elements without memory, in what is sent and in what is received."""

import errno

import pytest
from traffic import connected, pattern, poll, wait_until

from softhca.driver.errors import DriverError
from softhca.testing.verbs import VerbsEnd, connect, handle_to, make_end
from softhca.verbs import enums as e
from softhca.verbs.mr import MR, MW, MWBind, MWBindInfo, NullMR
from softhca.verbs.pd import PD
from softhca.verbs.pyverbs_error import PyverbsRDMAError, PyverbsUserError
from softhca.verbs.wr import SGE, RecvWR, SendWR

EDGE = 101
NOTHING = 9001
WHOLE = 2 * EDGE + NOTHING
ANYWHERE = (0, 0x7FFF_DEAD_BEEF, 1 << 63)
"""Addresses at which nobody has anything; which one a request names is the same."""


@pytest.fixture(params=["two adapters", "one adapter"])
def ends(request: pytest.FixtureRequest, verbs_pair) -> tuple[VerbsEnd, VerbsEnd]:
    if request.param == "two adapters":
        return connected(verbs_pair)
    client, server = make_end(verbs_pair.client), make_end(verbs_pair.client)
    connect(client, server)
    return client, server


def around(end: VerbsEnd, null: NullMR, address: int, offset: int = 0) -> list[SGE]:
    """Elements: some bytes of the end's region, a hole, and the bytes behind them."""
    return [end.sge(EDGE, offset), SGE(address, NOTHING, null.lkey), end.sge(EDGE, offset + EDGE)]


def status(end: VerbsEnd, *ends: VerbsEnd) -> int:
    return poll(end.send_cq, 1, *ends)[0].status


def post(end: VerbsEnd, opcode: int, elements: list[SGE], rkey: int = 0, address: int = 0) -> None:
    wr = SendWR(1, opcode, num_sge=len(elements), sg=elements)
    wr.set_wr_rdma(rkey, address)
    end.qp.post_send(wr)


@pytest.mark.parametrize("address", ANYWHERE)
def test_zeros_stand_in_what_is_written(ends, address: int) -> None:
    client, server = ends
    null = NullMR(client.pd)
    client.mr.write(pattern(2 * EDGE), 2 * EDGE)
    server.mr.write(b"\xff" * (WHOLE + 1), WHOLE + 1)
    post(client, e.IBV_WR_RDMA_WRITE, around(client, null, address), server.mr.rkey, server.mr.buf)
    assert status(client, *ends) == e.IBV_WC_SUCCESS
    edges = pattern(2 * EDGE)
    wanted = edges[:EDGE] + bytes(NOTHING) + edges[EDGE:] + b"\xff"
    wait_until(lambda: server.mr.read(WHOLE + 1, 0) == wanted, *ends)


def test_what_nobody_wants_of_a_message_is_received_nowhere(ends) -> None:
    client, server = ends
    null = NullMR(server.pd)
    client.mr.write(pattern(WHOLE), WHOLE)
    server.qp.post_recv(RecvWR(1, 3, around(server, null, 1 << 40)))
    client.send(length=WHOLE)
    assert status(client, *ends) == e.IBV_WC_SUCCESS
    found = poll(server.recv_cq, 1, *ends)[0]
    assert (found.status, found.byte_len) == (e.IBV_WC_SUCCESS, WHOLE)
    assert server.mr.read(2 * EDGE + 1, 0) == pattern(EDGE) + pattern(WHOLE)[-EDGE:] + b"\0"


def test_a_read_skips_what_nobody_wants(ends) -> None:
    client, server = ends
    null = NullMR(client.pd)
    server.mr.write(pattern(WHOLE), WHOLE)
    post(client, e.IBV_WR_RDMA_READ, around(client, null, 0), server.mr.rkey, server.mr.buf)
    assert status(client, *ends) == e.IBV_WC_SUCCESS
    assert client.mr.read(2 * EDGE, 0) == pattern(EDGE) + pattern(WHOLE)[-EDGE:]


def test_an_atomic_s_answer_goes_nowhere(ends) -> None:
    client, server = ends
    null = NullMR(client.pd)
    server.mr.write((40).to_bytes(8, "little"), 8)
    wr = SendWR(1, e.IBV_WR_ATOMIC_FETCH_AND_ADD, 1, 0, [SGE(8, 8, null.lkey)], e.IBV_SEND_SIGNALED)
    wr.set_wr_atomic(server.mr.rkey, server.mr.buf, 2, 0)
    client.qp.post_send(wr)
    assert status(client, *ends) == e.IBV_WC_SUCCESS
    assert server.mr.read(8, 0) == (42).to_bytes(8, "little")


def test_whole_messages_without_memory_on_either_side(ends) -> None:
    client, server = ends
    here, there = NullMR(client.pd), NullMR(server.pd)
    server.qp.post_recv(RecvWR(1, 1, [SGE(0, 1 << 20, there.lkey)]))
    post(client, e.IBV_WR_SEND, [SGE(0, 1 << 20, here.lkey)])
    assert status(client, *ends) == e.IBV_WC_SUCCESS
    assert poll(server.recv_cq, 1, *ends)[0].byte_len == 1 << 20


def test_datagrams(verbs_pair) -> None:
    client, server = connected(verbs_pair, e.IBV_QPT_UD)
    here, there = NullMR(client.pd), NullMR(server.pd)
    client.mr.write(pattern(64), 64)
    server.mr.write(b"\xff" * 64, 64)
    server.qp.post_recv(RecvWR(1, 2, [SGE(0, 40 + 64, there.lkey), server.sge(64)]))
    wr = SendWR(1, num_sge=2, sg=[client.sge(64), SGE(0, 64, here.lkey)])
    wr.set_wr_ud(handle_to(client, server), server.qp.qp_num, 0x11111111)
    client.qp.post_send(wr)
    assert poll(server.recv_cq, 1, client, server)[0].byte_len == 40 + 128
    assert server.mr.read(64, 0) == bytes(64)


@pytest.mark.parametrize("opcode", [e.IBV_WR_RDMA_WRITE, e.IBV_WR_RDMA_READ])
def test_peers_have_no_right_to_one(ends, opcode: int) -> None:
    client, server = ends
    null = NullMR(server.pd)
    assert null.rkey == 0
    client.send(opcode, 8, to=(null.lkey, 0))
    assert status(client, *ends) == e.IBV_WC_REM_ACCESS_ERR


def test_another_domain_has_no_right_to_one(ends) -> None:
    client = ends[0]
    with PD(client.context) as other, NullMR(other) as null:
        post(client, e.IBV_WR_RDMA_WRITE, [SGE(0, 8, null.lkey)], ends[1].mr.rkey, ends[1].mr.buf)
        assert status(client, *ends) == e.IBV_WC_LOC_PROT_ERR


def test_no_window_is_bound_to_one(verbs_pair) -> None:
    client, server = connected(verbs_pair)
    null, window = NullMR(client.pd), MW(client.pd, e.IBV_MW_TYPE_1)
    client.qp.bind_mw(window, MWBind(MWBindInfo(null, 0, 8, e.IBV_ACCESS_REMOTE_READ), 1))
    assert status(client, client, server) == e.IBV_WC_MW_BIND_ERR


def test_what_it_is_and_that_it_stays_so(verbs_pair) -> None:
    with PD(verbs_pair.client) as pd:
        null = NullMR(pd)
        assert (null.buf, null.length, null.rkey) == (0, (1 << 64) - 1, 0)
        null.write(b"gone", 4, 100)
        assert null.read(4, 100) == bytes(4)
        with pytest.raises(PyverbsUserError):
            null.read(-1, 0)
        for flags in (e.IBV_REREG_MR_CHANGE_ACCESS, e.IBV_REREG_MR_CHANGE_TRANSLATION):
            with pytest.raises(PyverbsRDMAError) as refusal:
                null.rereg(flags, access=e.IBV_ACCESS_REMOTE_READ, addr=4096, length=4096)
            assert refusal.value.error_code == errno.EINVAL
        with pytest.raises(DriverError, match="a null region cannot be changed") as refused:
            null._driver.rereg_mr(null.handle, e.IBV_REREG_MR_CHANGE_ACCESS, pd.number, 0, 0, 1)
        assert refused.value.errno == errno.EINVAL
        with MR(pd, handle=null.handle) as other:
            assert (other.lkey, other.rkey, other.length) == (null.lkey, 0, null.length)
        lkey = null.lkey
        null.close()
        with NullMR(pd) as again:
            assert again.lkey != lkey
