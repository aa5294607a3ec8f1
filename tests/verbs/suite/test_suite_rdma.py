"""RDMA write, write with immediate, read and atomics; and their errors: bad keys, ranges and rights."""

import socket

import pytest
from traffic import connected, pattern, poll, settle, wait_until

from softhca.testing.verbs import ALL_ACCESS, connect
from softhca.verbs import enums as e
from softhca.verbs.mr import MR
from softhca.verbs.pd import PD
from softhca.verbs.pyverbs_error import PyverbsUserError
from softhca.verbs.qp import QP, QPCap, QPEx, QPInitAttr, QPInitAttrEx
from softhca.verbs.wr import SGE, SendWR

SIZES = [0, 1, 1023, 1024, 1025, 4099, 65537, 1 << 20]


def number_at(end, offset: int) -> int:
    return int.from_bytes(end.mr.read(8, offset), "little")


def put_number(end, offset: int, value: int) -> None:
    end.mr.write(value.to_bytes(8, "little"), 8, offset)


@pytest.mark.parametrize("size", SIZES)
def test_a_write_places_exactly_its_bytes_and_the_target_learns_nothing(verbs_pair, size: int) -> None:
    client, server = connected(verbs_pair, size=size + 64)
    client.mr.write(pattern(size), size)
    client.send(e.IBV_WR_RDMA_WRITE, size, to=(server.mr.rkey, server.mr.buf + 32), wr_id=3)
    done = poll(client.send_cq, 1, client, server)[0]
    assert (done.status, done.opcode, done.wr_id) == (e.IBV_WC_SUCCESS, e.IBV_WC_RDMA_WRITE, 3)
    assert server.mr.read(size + 64, 0) == bytes(32) + pattern(size) + bytes(32)
    assert settle(server.recv_cq, client, server) == []


def test_a_program_that_watches_memory_sees_a_write(verbs_pair) -> None:
    client, server = connected(verbs_pair)
    client.mr.write(b"\x01", 1)
    client.send(e.IBV_WR_RDMA_WRITE, 1, to=(server.mr.rkey, server.mr.buf + 77))
    wait_until(lambda: server.mr.read(1, 77) == b"\x01")
    assert poll(client.send_cq, 1, client)[0].status == e.IBV_WC_SUCCESS


@pytest.mark.parametrize("size", [0, 5, 5000])
def test_a_write_with_immediate_takes_a_receive_and_tells_length_and_immediate(verbs_pair, size: int) -> None:
    client, server = connected(verbs_pair)
    client.mr.write(pattern(size), size)
    server.receive(wr_id=9)
    to = (server.mr.rkey, server.mr.buf + 100)
    client.send(e.IBV_WR_RDMA_WRITE_WITH_IMM, size, to=to, imm_data=socket.htonl(77))
    received = poll(server.recv_cq, 1, client, server)[0]
    assert (received.status, received.opcode) == (e.IBV_WC_SUCCESS, e.IBV_WC_RECV_RDMA_WITH_IMM)
    assert (received.wr_id, received.byte_len, socket.ntohl(received.imm_data)) == (9, size, 77)
    assert received.wc_flags & e.IBV_WC_WITH_IMM
    assert server.mr.read(size, 100) == pattern(size)


@pytest.mark.parametrize("size", SIZES)
def test_a_read_fetches_exactly_its_bytes(verbs_pair, size: int) -> None:
    client, server = connected(verbs_pair, size=size + 64)
    server.mr.write(pattern(size + 64), size + 64)
    client.send(e.IBV_WR_RDMA_READ, size, 32, to=(server.mr.rkey, server.mr.buf + 7))
    done = poll(client.send_cq, 1, client, server)[0]
    assert (done.status, done.opcode) == (e.IBV_WC_SUCCESS, e.IBV_WC_RDMA_READ)
    if size:
        assert done.byte_len == size
    assert client.mr.read(size + 64, 0) == bytes(32) + pattern(size + 64)[7 : 7 + size] + bytes(32)


def test_a_read_is_scattered(verbs_pair) -> None:
    client, server = connected(verbs_pair)
    server.mr.write(pattern(3000), 3000)
    wr = SendWR(
        0, e.IBV_WR_RDMA_READ, 3, 0, [client.sge(1, 0), client.sge(1500, 100), client.sge(1499, 5000)]
    )
    wr.set_wr_rdma(server.mr.rkey, server.mr.buf)
    client.qp.post_send(wr)
    assert poll(client.send_cq, 1, client, server)[0].status == e.IBV_WC_SUCCESS
    parts = client.mr.read(1, 0) + client.mr.read(1500, 100) + client.mr.read(1499, 5000)
    assert parts == pattern(3000)


def test_more_reads_than_the_peer_has_resources_for_all_succeed_in_order(verbs_pair) -> None:
    client, server = connected(verbs_pair, changes={"max_rd_atomic": 2, "max_dest_rd_atomic": 2})
    server.mr.write(pattern(32_000), 32_000)
    for number in range(16):
        to = (server.mr.rkey, server.mr.buf + 2000 * number)
        client.send(e.IBV_WR_RDMA_READ, 2000, 2000 * number, to=to, wr_id=number)
    done = poll(client.send_cq, 16, client, server)
    assert [(wc.wr_id, wc.status) for wc in done] == [(number, 0) for number in range(16)]
    assert client.mr.read(32_000, 0) == pattern(32_000)


def test_compare_and_swap_swaps_only_what_it_compared(verbs_pair) -> None:
    client, server = connected(verbs_pair)
    put_number(server, 16, 5)
    to = (server.mr.rkey, server.mr.buf + 16)
    for compare, swap, old, new in ((4, 9, 5, 5), (5, (1 << 64) - 2, 5, (1 << 64) - 2)):
        client.send(e.IBV_WR_ATOMIC_CMP_AND_SWP, 8, to=to, operands=(compare, swap))
        done = poll(client.send_cq, 1, client, server)[0]
        assert (done.status, done.opcode) == (e.IBV_WC_SUCCESS, e.IBV_WC_COMP_SWAP)
        assert number_at(client, 0) == old
        assert number_at(server, 16) == new


def test_fetch_and_add_wraps_at_64_bits(verbs_pair) -> None:
    client, server = connected(verbs_pair)
    put_number(server, 0, (1 << 64) - 1)
    for number, old in ((2, (1 << 64) - 1), (40, 1)):
        client.send(
            e.IBV_WR_ATOMIC_FETCH_AND_ADD, 8, 8, to=(server.mr.rkey, server.mr.buf), operands=(number, 0)
        )
        done = poll(client.send_cq, 1, client, server)[0]
        assert (done.status, done.opcode) == (e.IBV_WC_SUCCESS, e.IBV_WC_FETCH_ADD)
        assert number_at(client, 8) == old
    assert number_at(server, 0) == 41


def test_an_unaligned_atomic_is_refused_by_the_peer(verbs_pair) -> None:
    client, server = connected(verbs_pair)
    client.send(e.IBV_WR_ATOMIC_FETCH_AND_ADD, 8, to=(server.mr.rkey, server.mr.buf + 4), operands=(1, 0))
    assert poll(client.send_cq, 1, client, server)[0].status == e.IBV_WC_REM_INV_REQ_ERR
    assert server.mr.read(16, 0) == bytes(16)


OPERATIONS = {
    "write": (e.IBV_WR_RDMA_WRITE, 100),
    "write-imm": (e.IBV_WR_RDMA_WRITE_WITH_IMM, 100),
    "read": (e.IBV_WR_RDMA_READ, 100),
    "cmp-swap": (e.IBV_WR_ATOMIC_CMP_AND_SWP, 8),
    "fetch-add": (e.IBV_WR_ATOMIC_FETCH_AND_ADD, 8),
}
RIGHTS = {
    "write": e.IBV_ACCESS_REMOTE_WRITE,
    "write-imm": e.IBV_ACCESS_REMOTE_WRITE,
    "read": e.IBV_ACCESS_REMOTE_READ,
    "cmp-swap": e.IBV_ACCESS_REMOTE_ATOMIC,
    "fetch-add": e.IBV_ACCESS_REMOTE_ATOMIC,
}


def expect_access_error(client, server, name: str, to: tuple[int, int]) -> None:
    """The operation fails with REM_ACCESS_ERR, both ends stop, no byte of either region has changed."""
    opcode, size = OPERATIONS[name]
    client.mr.write(b"\xaa" * size, size)
    before = (client.mr.read(client.mr.length, 0), server.mr.read(server.mr.length, 0))
    server.receive()
    client.send(opcode, size, to=to, operands=(0, 1))
    assert poll(client.send_cq, 1, client, server)[0].status == e.IBV_WC_REM_ACCESS_ERR
    assert (client.mr.read(client.mr.length, 0), server.mr.read(server.mr.length, 0)) == before
    assert client.state() == e.IBV_QPS_ERR
    wait_until(lambda: server.state() == e.IBV_QPS_ERR, client, server)
    assert poll(server.recv_cq, 1, client, server)[0].status == e.IBV_WC_WR_FLUSH_ERR


@pytest.mark.parametrize("name", OPERATIONS)
def test_a_wrong_key_is_a_remote_access_error(verbs_pair, name: str) -> None:
    client, server = connected(verbs_pair)
    expect_access_error(client, server, name, (server.mr.rkey ^ 0x100, server.mr.buf))


@pytest.mark.parametrize("name", OPERATIONS)
def test_a_stale_key_is_a_remote_access_error(verbs_pair, name: str) -> None:
    client, server = connected(verbs_pair)
    with MR(server.pd, 4096, ALL_ACCESS) as gone:
        to = (gone.rkey, gone.buf)
    expect_access_error(client, server, name, to)


@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.parametrize("where", ["before", "after", "across the end", "far away"])
def test_a_range_outside_the_region_is_a_remote_access_error(verbs_pair, name: str, where: str) -> None:
    client, server = connected(verbs_pair, size=4096)
    address = {
        "before": server.mr.buf - 8,
        "after": server.mr.buf + 4096,
        "across the end": server.mr.buf + 4096 - (96 if OPERATIONS[name][1] == 100 else 0),
        "far away": (1 << 64) - 8,
    }[where]
    expect_access_error(client, server, name, (server.mr.rkey, address))


@pytest.mark.parametrize("name", OPERATIONS)
def test_a_region_without_the_right_is_a_remote_access_error(verbs_pair, name: str) -> None:
    client, server = connected(verbs_pair, size=4096)
    access = ALL_ACCESS & ~RIGHTS[name]
    poor = MR(server.pd, 4096, access)
    expect_access_error(client, server, name, (poor.rkey, poor.buf))
    assert poor.read(4096, 0) == bytes(4096)


@pytest.mark.parametrize("name", OPERATIONS)
def test_a_region_of_another_domain_is_a_remote_access_error(verbs_pair, name: str) -> None:
    client, server = connected(verbs_pair, size=4096)
    other = MR(PD(verbs_pair.server), 4096, ALL_ACCESS)
    expect_access_error(client, server, name, (other.rkey, other.buf))
    assert other.read(4096, 0) == bytes(4096)


@pytest.mark.parametrize("name", OPERATIONS)
def test_a_qp_that_does_not_allow_the_operation_refuses_it(verbs_pair, name: str) -> None:
    access = ALL_ACCESS & ~RIGHTS[name]
    client, server = connected(verbs_pair, size=4096, changes={"qp_access_flags": access})
    opcode, size = OPERATIONS[name]
    server.receive()
    client.send(opcode, size, to=(server.mr.rkey, server.mr.buf), operands=(0, 1))
    status = poll(client.send_cq, 1, client, server)[0].status
    assert status in (e.IBV_WC_REM_INV_REQ_ERR, e.IBV_WC_REM_ACCESS_ERR)
    assert server.mr.read(4096, 0) == bytes(4096)


@pytest.mark.parametrize("problem", ["key", "range", "domain", "right"])
def test_a_bad_local_element_fails_here_and_nothing_is_sent(verbs_pair, problem: str) -> None:
    client, server = connected(verbs_pair, size=4096)
    sge, opcode = client.sge(16), e.IBV_WR_RDMA_WRITE
    if problem == "key":
        sge = SGE(client.mr.buf, 16, client.mr.lkey ^ 0x100)
    elif problem == "range":
        sge = SGE(client.mr.buf + 4090, 16, client.mr.lkey)
    elif problem == "domain":
        other = MR(PD(verbs_pair.client), 4096, ALL_ACCESS)
        sge = SGE(other.buf, 16, other.lkey)
    else:
        constant = MR(client.pd, 4096, 0)
        sge, opcode = SGE(constant.buf, 16, constant.lkey), e.IBV_WR_RDMA_READ
    wr = SendWR(5, opcode, 1, 0, [sge])
    wr.set_wr_rdma(server.mr.rkey, server.mr.buf)
    client.qp.post_send(wr)
    done = poll(client.send_cq, 1, client, server)[0]
    assert (done.status, done.wr_id) == (e.IBV_WC_LOC_PROT_ERR, 5)
    assert client.state() == e.IBV_QPS_ERR
    assert server.state() == e.IBV_QPS_RTS
    assert server.mr.read(4096, 0) == bytes(4096)


def test_zero_based_and_shifted_regions_are_addressed_as_they_ask(verbs_pair) -> None:
    client, server = connected(verbs_pair)
    client.mr.write(pattern(100), 100)
    zero = MR(server.pd, 4096, ALL_ACCESS | e.IBV_ACCESS_ZERO_BASED)
    shifted = MR(server.pd, 4096, ALL_ACCESS, iova=0x5000_0000_1000)
    client.send(e.IBV_WR_RDMA_WRITE, 100, to=(zero.rkey, 50))
    client.send(e.IBV_WR_RDMA_WRITE, 100, to=(shifted.rkey, 0x5000_0000_1000 + 60))
    assert [wc.status for wc in poll(client.send_cq, 2, client, server)] == [0, 0]
    assert zero.read(100, 50) == pattern(100)
    assert shifted.read(100, 60) == pattern(100)


def test_a_reregistered_region_has_its_new_rights_and_not_the_old_ones(verbs_pair) -> None:
    client, server = connected(verbs_pair, size=4096)
    client.send(e.IBV_WR_RDMA_WRITE, 8, to=(server.mr.rkey, server.mr.buf))
    assert poll(client.send_cq, 1, client, server)[0].status == e.IBV_WC_SUCCESS
    server.mr.rereg(e.IBV_REREG_MR_CHANGE_ACCESS, access=e.IBV_ACCESS_LOCAL_WRITE | e.IBV_ACCESS_REMOTE_READ)
    client.send(e.IBV_WR_RDMA_READ, 8, to=(server.mr.rkey, server.mr.buf))
    assert poll(client.send_cq, 1, client, server)[0].status == e.IBV_WC_SUCCESS
    expect_access_error(client, server, "write", (server.mr.rkey, server.mr.buf))


def test_an_atomic_write_puts_eight_bytes_in_one_step(verbs_pair) -> None:
    client, server = connected(verbs_pair)
    domain = client.pd
    init = QPInitAttrEx(
        e.IBV_QPT_RC, scq=client.send_cq, rcq=client.recv_cq, cap=QPCap(8, 8, 1, 1, 0), pd=domain,
        comp_mask=e.IBV_QP_INIT_ATTR_PD | e.IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
        send_ops_flags=e.IBV_QP_EX_WITH_ATOMIC_WRITE,
    )  # fmt: skip
    assert client.context.query_device_ex().device_cap_flags_ex & 1 << 40
    client.qp.close()
    client.qp = QPEx(client.context, init)
    server.qp.close()
    server.qp = QP(
        server.pd,
        QPInitAttr(e.IBV_QPT_RC, scq=server.send_cq, rcq=server.recv_cq, cap=QPCap(8, 8, 1, 1, 0)),
    )
    connect(client, server)
    ex = client.qp
    ex.wr_start()
    with pytest.raises(PyverbsUserError):
        ex.wr_atomic_write(server.mr.rkey, server.mr.buf, b"short")
    ex.wr_id, ex.wr_flags = 5, e.IBV_SEND_SIGNALED
    ex.wr_atomic_write(server.mr.rkey, server.mr.buf + 8, b"in one step, and no more")
    ex.wr_complete()
    (done,) = poll(client.send_cq, 1, client, server)
    assert (done.wr_id, done.status, done.opcode) == (5, e.IBV_WC_SUCCESS, e.IBV_WC_ATOMIC_WRITE)
    assert server.mr.read(24, 0) == bytes(8) + b"in one s" + bytes(8)
    client.mr.write(b"from memory", 11)
    client.send(e.IBV_WR_ATOMIC_WRITE, 8, to=(server.mr.rkey, server.mr.buf))
    assert poll(client.send_cq, 1, client, server)[0].status == e.IBV_WC_SUCCESS
    assert server.mr.read(16, 0) == b"from mem" + b"in one s"
    client.send(e.IBV_WR_ATOMIC_WRITE, 8, to=(server.mr.rkey, server.mr.buf + 4))
    assert poll(client.send_cq, 1, client, server)[0].status == e.IBV_WC_REM_INV_REQ_ERR


FLUSHED = (
    e.IBV_ACCESS_LOCAL_WRITE | e.IBV_ACCESS_REMOTE_WRITE | e.IBV_ACCESS_FLUSH_GLOBAL
    | e.IBV_ACCESS_FLUSH_PERSISTENT  # is taken, and not granted
)  # fmt: skip


def flushing(verbs_pair):
    """Two ends, connected, whose queue pairs may FLUSH."""
    client, server = connected(verbs_pair)
    for end in (client, server):
        end.qp.close()
        init = QPInitAttrEx(
            e.IBV_QPT_RC, scq=end.send_cq, rcq=end.recv_cq, cap=QPCap(8, 8, 1, 1, 0), pd=end.pd,
            comp_mask=e.IBV_QP_INIT_ATTR_PD | e.IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
            send_ops_flags=e.IBV_QP_EX_WITH_FLUSH | e.IBV_QP_EX_WITH_RDMA_WRITE,
        )  # fmt: skip
        end.qp = QPEx(end.context, init)
    connect(client, server, qp_access_flags=int(FLUSHED))
    return client, server


@pytest.mark.parametrize(("length", "placement", "level"), [
    (4096, 0, e.IBV_FLUSH_RANGE), (4096, 4 | e.IBV_FLUSH_GLOBAL, e.IBV_FLUSH_RANGE),
    (4096, 16 | e.IBV_FLUSH_GLOBAL, e.IBV_FLUSH_RANGE), (4096, e.IBV_FLUSH_GLOBAL, 2),
    (4096, e.IBV_FLUSH_GLOBAL, 5), (1 << 32, e.IBV_FLUSH_GLOBAL, e.IBV_FLUSH_RANGE),
])  # fmt: skip
def test_a_flush_of_what_there_is_not_is_refused(verbs_pair, length, placement, level) -> None:
    client, server = flushing(verbs_pair)
    with MR(server.pd, 4096, FLUSHED) as target:
        client.qp.wr_start()
        client.qp.wr_id, client.qp.wr_flags = 1, e.IBV_SEND_SIGNALED
        client.qp.wr_flush(target.rkey, target.buf, length, placement, level)
        client.qp.wr_complete()
        assert poll(client.send_cq, 1, client, server)[0].status == e.IBV_WC_LOC_QP_OP_ERR


def test_a_flush_ends_once_what_was_written_is_visible_and_persistence_is_nobodys(verbs_pair) -> None:
    client, server = flushing(verbs_pair)
    assert client.context.query_device_ex().device_cap_flags_ex & 1 << 38
    with MR(server.pd, 4096, FLUSHED) as target:
        ex = client.qp
        client.mr.write(b"to be seen", 10)
        for number, (placement, level) in enumerate([
            (e.IBV_FLUSH_GLOBAL, e.IBV_FLUSH_RANGE), (e.IBV_FLUSH_GLOBAL, e.IBV_FLUSH_MR),
            (e.IBV_FLUSH_PERSISTENT, e.IBV_FLUSH_RANGE),
        ]):  # fmt: skip
            ex.wr_start()
            ex.wr_id, ex.wr_flags = number, 0
            ex.wr_rdma_write(target.rkey, target.buf + number * 16)
            ex.wr_set_sge(SGE(client.mr.buf, 10, client.mr.lkey))
            ex.wr_flags = e.IBV_SEND_SIGNALED
            ex.wr_flush(target.rkey, target.buf, 4096, placement, level)
            ex.wr_complete()
            (done,) = poll(client.send_cq, 1, client, server)
            assert target.read(10, number * 16) == b"to be seen"
            persistent = placement == e.IBV_FLUSH_PERSISTENT
            assert done.status == (e.IBV_WC_REM_ACCESS_ERR if persistent else e.IBV_WC_SUCCESS)
            assert persistent or (done.wr_id, done.opcode) == (number, e.IBV_WC_FLUSH)
