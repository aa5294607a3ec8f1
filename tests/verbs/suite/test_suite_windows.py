"""Memory windows, SEND with Invalidate and fast registration through the verbs, embedded and in a process."""

import pytest
from traffic import connected, pattern, poll

from softhca.testing.verbs import ALL_ACCESS
from softhca.verbs import enums as e
from softhca.verbs.extensions import SOFTHCA_WC_REG_MR, SOFTHCA_WR_REG_MR
from softhca.verbs.fast_registration import FastMR
from softhca.verbs.mr import MR, MW, MWBind, MWBindInfo
from softhca.verbs.pyverbs_error import PyverbsRDMAError
from softhca.verbs.wr import SGE, SendWR

OPEN = ALL_ACCESS | e.IBV_ACCESS_MW_BIND
GRANT = e.IBV_ACCESS_REMOTE_WRITE | e.IBV_ACCESS_REMOTE_READ


def done(end, *others) -> int:
    """Status of the next send completion of ``end``."""
    return poll(end.send_cq, 1, end, *others)[0].status


def bind_2(end, window: MW, info: MWBindInfo) -> tuple[int, int]:
    """Bind a window of type 2; status and key."""
    wr = SendWR(opcode=e.IBV_WR_BIND_MW)
    wr.set_bind_wr(window, info)
    end.qp.post_send(wr)
    return done(end), wr.rkey


def invalidate(end, key: int) -> int:
    end.qp.post_send(SendWR(opcode=e.IBV_WR_LOCAL_INV, imm_data=key))
    return done(end)


def write(client, server, key: int, va: int, n: int = 16) -> int:
    client.send(e.IBV_WR_RDMA_WRITE, n, to=(key, va))
    return done(client, server)


@pytest.fixture
def pair(verbs_pair):
    client, server = connected(verbs_pair, size=1 << 14, access=OPEN)
    client.mr.write(pattern(256), 256)
    return client, server


def test_a_window_of_type_1_is_bound_moved_and_unbound(pair) -> None:
    client, server = pair
    with MW(server.pd, e.IBV_MW_TYPE_1) as window:
        first = window.rkey
        server.qp.bind_mw(window, MWBind(MWBindInfo(server.mr, server.mr.buf + 100, 16, GRANT), wr_id=5))
        bound = window.rkey
        assert bound != first
        assert bound >> 8 == first >> 8
        completion = poll(server.send_cq, 1, server)[0]
        assert (completion.wr_id, completion.status, completion.opcode) == (5, 0, e.IBV_WC_BIND_MW)
        assert write(client, server, bound, server.mr.buf + 100) == e.IBV_WC_SUCCESS
        assert server.mr.read(132, 0) == bytes(100) + pattern(16) + bytes(16)
        server.qp.bind_mw(window, MWBind(MWBindInfo(server.mr, server.mr.buf + 5000, 32, GRANT)))
        assert done(server) == 0
        assert window.rkey != bound
        assert write(client, server, window.rkey, server.mr.buf + 5000, 32) == e.IBV_WC_SUCCESS
        with pytest.raises(PyverbsRDMAError) as refused:
            server.mr.close()
        assert refused.value.error_code == 16
        server.qp.bind_mw(window, MWBind(MWBindInfo(server.mr, 0, 0, 0)))
        assert done(server) == 0
        assert write(client, server, window.rkey, server.mr.buf + 5000) == e.IBV_WC_REM_ACCESS_ERR
        server.mr.close()


def test_a_window_of_type_2_lives_from_bind_to_invalidation(pair) -> None:
    client, server = pair
    window = MW(server.pd, e.IBV_MW_TYPE_2)
    info = MWBindInfo(server.mr, server.mr.buf + 64, 64, GRANT | e.IBV_ACCESS_ZERO_BASED)
    status, key = bind_2(server, window, info)
    assert status == 0
    assert write(client, server, key, 48) == e.IBV_WC_SUCCESS
    assert server.mr.read(16, 112) == pattern(16)
    assert invalidate(server, key) == 0
    server.mr.close()
    assert write(client, server, key, 48) == e.IBV_WC_REM_ACCESS_ERR


def test_a_send_with_invalidate_tells_the_key_and_kills_it_first(pair) -> None:
    client, server = pair
    window = MW(server.pd, e.IBV_MW_TYPE_2)
    _, key = bind_2(server, window, MWBindInfo(server.mr, server.mr.buf, 64, GRANT))
    server.receive(100, 1000, wr_id=8)
    client.send(e.IBV_WR_SEND_WITH_INV, 20, imm_data=key)
    assert done(client, server) == 0
    received = poll(server.recv_cq, 1, client, server)[0]
    assert (received.wr_id, received.status, received.byte_len) == (8, 0, 20)
    assert received.wc_flags & e.IBV_WC_WITH_INV
    assert received.imm_data == key
    server.mr.close()


def test_a_region_that_was_made_after_a_bound_window_closes_with_their_domain(pair) -> None:
    _, server = pair
    window = MW(server.pd, e.IBV_MW_TYPE_2)
    late = MR(server.pd, 4096, OPEN)
    assert bind_2(server, window, MWBindInfo(late, late.buf, 64, GRANT))[0] == 0
    with pytest.raises(PyverbsRDMAError):
        late.close()
    server.pd.close()


def test_the_bind_verb_refuses_type_2(pair) -> None:
    _, server = pair
    window = MW(server.pd, e.IBV_MW_TYPE_2)
    with pytest.raises(PyverbsRDMAError, match="type 1"):
        server.qp.bind_mw(window, MWBind(MWBindInfo(server.mr, server.mr.buf, 64, GRANT)))
    with pytest.raises(PyverbsRDMAError):
        MW(server.pd, 3)


def test_a_fast_region_serves_both_sides_between_registration_and_invalidation(pair) -> None:
    client, server = pair
    fast = FastMR(server.pd, 4)
    wr = SendWR(opcode=SOFTHCA_WR_REG_MR)
    wr.set_reg_wr(fast, [(server.mr, 100, 3996), (server.mr, 8192, 50)], ALL_ACCESS, iova=0x7000)
    server.qp.post_send(wr)
    completion = poll(server.send_cq, 1, server)[0]
    assert (completion.status, completion.opcode) == (0, SOFTHCA_WC_REG_MR)
    assert write(client, server, wr.rkey, 0x7000 + 3990) == e.IBV_WC_SUCCESS
    assert server.mr.read(6, 100 + 3990) + server.mr.read(10, 8192) == pattern(16)
    reply = SendWR(opcode=e.IBV_WR_RDMA_WRITE, num_sge=1, sg=[SGE(0x7000 + 3990, 16, wr.rkey)])
    reply.set_wr_rdma(client.mr.rkey, client.mr.buf + 300)
    server.qp.post_send(reply)
    assert done(server, client) == 0
    assert client.mr.read(16, 300) == pattern(16)
    assert invalidate(server, wr.rkey) == 0
    assert write(client, server, wr.rkey, 0x7000) == e.IBV_WC_REM_ACCESS_ERR
    fast.close()


def test_a_key_of_a_fast_region_that_was_withdrawn_stays_dead_when_it_is_registered_again(pair) -> None:
    client, server = pair
    fast = FastMR(server.pd, 1)
    keys = []
    for offset in (0, 4096):
        wr = SendWR(opcode=SOFTHCA_WR_REG_MR)
        wr.set_reg_wr(fast, [(server.mr, offset, 4096)], ALL_ACCESS, iova=0x7000)
        server.qp.post_send(wr)
        assert done(server) == 0
        assert write(client, server, wr.rkey, 0x7000) == e.IBV_WC_SUCCESS
        keys.append(wr.rkey)
        if not offset:
            assert invalidate(server, wr.rkey) == 0
    assert len({key >> 8 for key in keys}) == 1
    server.mr.write(bytes(16), 16, 4096)
    assert write(client, server, keys[0], 0x7000) == e.IBV_WC_REM_ACCESS_ERR
    assert server.mr.read(16, 4096) == bytes(16)
    fast.close()
