"""RC sends between two devices: sizes, immediates, inline, lists, order, signalling, fences, events."""

import errno
import socket

import pytest
from traffic import BOUND_S, connected, pattern, poll, settle, wait_until

from softhca.testing.verbs import attributes, connect, make_end
from softhca.verbs import enums as e
from softhca.verbs.cq import CQEX, CompChannel, CqInitAttrEx
from softhca.verbs.mr import MR
from softhca.verbs.pyverbs_error import PyverbsRDMAError
from softhca.verbs.qp import QPCap, QPEx, QPInitAttrEx
from softhca.verbs.wr import SGE, RecvWR, SendWR

SIZES = [0, 1, 3, 1023, 1024, 1025, 4099, 65537, 1 << 20]


@pytest.mark.parametrize("size", SIZES)
def test_a_send_arrives_whole_and_touches_nothing_else(verbs_pair, size: int) -> None:
    client, server = connected(verbs_pair, size=max(size, 8) + 16)
    client.mr.write(pattern(size), size)
    server.mr.write(b"\xee" * (size + 16), size + 16)
    server.receive(size + 8, wr_id=7)
    client.send(length=size, wr_id=5)
    sent = poll(client.send_cq, 1, client, server)[0]
    received = poll(server.recv_cq, 1, client, server)[0]
    assert (sent.status, sent.opcode, sent.wr_id, sent.qp_num) == (
        e.IBV_WC_SUCCESS,
        e.IBV_WC_SEND,
        5,
        client.qp.qp_num,
    )
    assert (received.status, received.opcode, received.wr_id) == (e.IBV_WC_SUCCESS, e.IBV_WC_RECV, 7)
    assert (received.byte_len, received.qp_num, received.wc_flags) == (size, server.qp.qp_num, 0)
    assert server.mr.read(size, 0) == pattern(size)
    assert server.mr.read(16, size) == b"\xee" * 16


def test_sends_arrive_in_order_across_the_wrap_of_sequence_numbers(verbs_pair) -> None:
    client, server = connected(verbs_pair)
    for number in range(48):
        server.receive(4, 4 * number, number)
    for number in range(48):
        client.mr.write(number.to_bytes(4, "big"), 4, 4 * number)
        client.send(length=4, offset=4 * number, wr_id=number)
    assert [wc.wr_id for wc in poll(client.send_cq, 48, client, server)] == list(range(48))
    received = poll(server.recv_cq, 48, client, server)
    assert [(wc.wr_id, wc.byte_len) for wc in received] == [(number, 4) for number in range(48)]
    assert server.mr.read(192, 0) == client.mr.read(192, 0)


def test_an_immediate_arrives_in_network_order(verbs_pair) -> None:
    client, server = connected(verbs_pair)
    server.receive(8)
    client.send(e.IBV_WR_SEND_WITH_IMM, 8, imm_data=socket.htonl(0x01020304))
    received = poll(server.recv_cq, 1, client, server)[0]
    assert received.wc_flags & e.IBV_WC_WITH_IMM
    assert socket.ntohl(received.imm_data) == 0x01020304
    assert received.opcode == e.IBV_WC_RECV


def test_inline_data_may_be_overwritten_at_once_and_needs_no_key(verbs_pair) -> None:
    client, server = connected(verbs_pair)
    server.receive(100)
    client.mr.write(b"first" * 20, 100)
    client.qp.post_send(
        SendWR(
            num_sge=1,
            sg=[SGE(client.mr.buf, 100, 0xDEAD)],
            send_flags=e.IBV_SEND_INLINE | e.IBV_SEND_SIGNALED,
        )
    )
    client.mr.write(b"after" * 20, 100)
    assert poll(client.send_cq, 1, client, server)[0].status == e.IBV_WC_SUCCESS
    assert poll(server.recv_cq, 1, client, server)[0].byte_len == 100
    assert server.mr.read(100, 0) == b"first" * 20


def test_more_inline_data_than_the_qp_has_room_for_is_refused(verbs_pair) -> None:
    client, _ = connected(verbs_pair)
    room = client.qp.query(e.IBV_QP_CAP)[0].cap.max_inline_data
    with pytest.raises(PyverbsRDMAError) as caught:
        client.send(length=room + 1, flags=e.IBV_SEND_INLINE)
    assert caught.value.error_code in (errno.EINVAL, errno.ENOMEM)


def test_lists_are_gathered_and_scattered(verbs_pair) -> None:
    client, server = connected(verbs_pair)
    client.mr.write(pattern(9000), 9000)
    pieces = [(0, 1), (5000, 1500), (17, 0), (3000, 999), (8000, 3)]
    server.qp.post_recv(RecvWR(0, 3, [server.sge(700, 10), server.sge(1, 4000), server.sge(5000, 20000)]))
    client.qp.post_send(SendWR(0, num_sge=5, sg=[client.sge(length, offset) for offset, length in pieces]))
    assert poll(server.recv_cq, 1, client, server)[0].byte_len == 2503
    whole = b"".join(pattern(9000)[offset : offset + length] for offset, length in pieces)
    assert server.mr.read(700, 10) == whole[:700]
    assert server.mr.read(1, 4000) == whole[700:701]
    assert server.mr.read(1802, 20000) == whole[701:]
    assert server.mr.read(10, 0) + server.mr.read(1, 710) + server.mr.read(1, 4001) == bytes(12)


def register(end, buffer: bytearray) -> MR | int:
    """A region over the program's own buffer, or the errno of the refusal."""
    try:
        return MR(end.pd, access=e.IBV_ACCESS_LOCAL_WRITE, buffer=buffer)
    except PyverbsRDMAError as error:
        return error.error_code


def test_any_buffer_of_the_program_can_be_sent_and_received(verbs_pair) -> None:
    client, server = connected(verbs_pair)
    source, target = bytearray(pattern(5000)), bytearray(5000)
    out, into = register(client, source), register(server, target)
    if not isinstance(out, MR) or not isinstance(into, MR):
        # an adapter in another process may be kept from this process's memory, and then says so
        assert verbs_pair.mode == "process"
        assert {out, into} <= {errno.EPERM, errno.EACCES}
        return
    server.qp.post_recv(RecvWR(0, 1, [SGE(into.buf, 5000, into.lkey)]))
    client.qp.post_send(SendWR(0, num_sge=1, sg=[SGE(out.buf, 5000, out.lkey)]))
    assert poll(server.recv_cq, 1, client, server)[0].status == e.IBV_WC_SUCCESS
    assert target == source


def test_unsignaled_sends_complete_silently_and_free_the_queue(verbs_pair) -> None:
    client, server = connected(verbs_pair, cap=QPCap(4, 64, 1, 1))
    for number in range(32):
        server.receive(4, wr_id=number)
    for number in range(8):
        for _ in range(3):
            client.send(length=4, flags=0)
        client.send(length=4, wr_id=number)
        assert poll(client.send_cq, 1, client, server)[0].wr_id == number
    assert len(poll(server.recv_cq, 32, client, server)) == 32
    assert settle(client.send_cq, client, server) == []


def test_a_qp_that_signals_all_completes_every_send(verbs_pair) -> None:
    client, server = connected(verbs_pair, signal_all=1)
    for _ in range(3):
        server.receive(4)
        client.send(length=4, flags=0)
    assert len(poll(client.send_cq, 3, client, server)) == 3


def test_a_full_send_queue_is_enomem_and_the_rest_goes_on(verbs_pair) -> None:
    client, server = connected(verbs_pair, cap=QPCap(4, 64, 1, 1), changes={"rnr_retry": 7})
    room = client.qp.query(e.IBV_QP_CAP)[0].cap.max_send_wr
    for number in range(room):
        client.send(length=4, wr_id=number)
    with pytest.raises(PyverbsRDMAError) as caught:
        client.send(length=4, wr_id=99)
    assert caught.value.error_code == errno.ENOMEM
    for _ in range(room):
        server.receive(4)
    assert [wc.wr_id for wc in poll(client.send_cq, room, client, server)] == list(range(room))


def test_a_fenced_send_waits_for_the_read_before_it(verbs_pair) -> None:
    client, server = connected(verbs_pair, size=1 << 20)
    server.mr.write(pattern(500_000), 500_000)
    server.receive(8, 900_000)
    to = (server.mr.rkey, server.mr.buf)
    client.send(e.IBV_WR_RDMA_READ, 500_000, to=to, wr_id=1)
    client.send(e.IBV_WR_SEND, 8, flags=e.IBV_SEND_SIGNALED | e.IBV_SEND_FENCE, wr_id=2)
    done = poll(client.send_cq, 2, client, server)
    assert [(wc.wr_id, wc.status) for wc in done] == [(1, 0), (2, 0)]
    poll(server.recv_cq, 1, client, server)
    assert server.mr.read(8, 900_000) == pattern(8)


def test_a_message_that_is_too_long_fails_both_ends(verbs_pair) -> None:
    client, server = connected(verbs_pair)
    server.receive(10)
    client.send(length=11)
    assert poll(server.recv_cq, 1, client, server)[0].status == e.IBV_WC_LOC_LEN_ERR
    assert poll(client.send_cq, 1, client, server)[0].status == e.IBV_WC_REM_INV_REQ_ERR
    assert server.mr.read(16, 0) == bytes(16)
    assert client.state() == server.state() == e.IBV_QPS_ERR


def test_to_invalidate_a_region_that_may_not_be_is_no_success_and_leaves_the_region(verbs_pair) -> None:
    client, server = connected(verbs_pair)
    server.receive(8)
    client.send(e.IBV_WR_SEND_WITH_INV, 8, imm_data=server.mr.rkey)
    statuses = {
        poll(server.recv_cq, 1, client, server)[0].status,
        poll(client.send_cq, 1, client, server)[0].status,
    }
    assert statuses != {e.IBV_WC_SUCCESS}
    again_client, again = connected(verbs_pair)
    assert again.mr.read(1, 0) == b"\x00"
    assert again_client.state() == e.IBV_QPS_RTS
    server.mr.rereg(e.IBV_REREG_MR_CHANGE_ACCESS, access=e.IBV_ACCESS_LOCAL_WRITE)


def test_an_armed_cq_tells_its_channel_once(verbs_pair) -> None:
    channel = CompChannel(verbs_pair.server)
    client = make_end(verbs_pair.client)
    server = make_end(verbs_pair.server, channel=channel)
    connect(client, server)
    server.recv_cq.req_notify()
    for number in range(2):
        server.receive(8, wr_id=number)
        client.send(length=8)
    channel.get_cq_event(server.recv_cq, timeout_s=BOUND_S)
    assert len(poll(server.recv_cq, 2, client, server)) == 2
    with pytest.raises(PyverbsRDMAError) as caught:
        channel.get_cq_event(server.recv_cq, timeout_s=0)
    assert caught.value.error_code == errno.ETIMEDOUT
    server.recv_cq.ack_events(1)


def test_solicited_only_waits_for_a_solicited_message(verbs_pair) -> None:
    channel = CompChannel(verbs_pair.server)
    client = make_end(verbs_pair.client)
    server = make_end(verbs_pair.server, channel=channel)
    connect(client, server)
    server.recv_cq.req_notify(solicited_only=True)
    server.receive(8)
    server.receive(8)
    client.send(length=8)
    poll(client.send_cq, 1, client, server)
    with pytest.raises(PyverbsRDMAError):
        channel.get_cq_event(server.recv_cq, timeout_s=0)
    client.send(length=8, flags=e.IBV_SEND_SIGNALED | e.IBV_SEND_SOLICITED)
    channel.get_cq_event(server.recv_cq, timeout_s=BOUND_S)
    assert len(poll(server.recv_cq, 2, client, server)) == 2


def test_a_failed_completion_is_told_to_who_waits_for_solicited_ones(verbs_pair) -> None:
    channel = CompChannel(verbs_pair.server)
    client = make_end(verbs_pair.client)
    server = make_end(verbs_pair.server, channel=channel)
    connect(client, server)
    server.recv_cq.req_notify(solicited_only=True)
    server.receive(1)
    client.send(length=8)
    channel.get_cq_event(server.recv_cq, timeout_s=BOUND_S)
    assert poll(server.recv_cq, 1, client, server)[0].status == e.IBV_WC_LOC_LEN_ERR


def test_extended_posting_and_polling_carry_the_same_traffic(verbs_pair) -> None:
    server = make_end(verbs_pair.server)
    client = make_end(verbs_pair.client)
    cq = CQEX(verbs_pair.client, CqInitAttrEx(16, wc_flags=e.IBV_WC_STANDARD_FLAGS))
    mask = e.IBV_QP_INIT_ATTR_PD | e.IBV_QP_INIT_ATTR_SEND_OPS_FLAGS
    ops = e.IBV_QP_EX_WITH_SEND_WITH_IMM | e.IBV_QP_EX_WITH_RDMA_WRITE
    client.qp = QPEx(
        verbs_pair.client,
        QPInitAttrEx(
            e.IBV_QPT_RC,
            scq=cq,
            rcq=cq,
            cap=QPCap(8, 8, 1, 1, 64),
            comp_mask=mask,
            pd=client.pd,
            send_ops_flags=ops,
        ),
    )
    connect(client, server)
    server.receive(64)
    client.mr.write(pattern(64), 64)
    client.qp.wr_start()
    client.qp.wr_flags = e.IBV_SEND_SIGNALED
    client.qp.wr_id = 1
    client.qp.wr_rdma_write(server.mr.rkey, server.mr.buf + 1000)
    client.qp.wr_set_sge(client.sge(64))
    client.qp.wr_id = 2
    client.qp.wr_send_imm(0x01020304)
    client.qp.wr_set_inline_data(client.mr.buf, 5)
    client.qp.wr_complete()
    received = poll(server.recv_cq, 1, client, server)[0]
    assert (received.byte_len, socket.ntohl(received.imm_data)) == (5, 0x01020304)
    wait_until(lambda: cq.start_poll() == 0, client, server)
    assert (cq.wr_id, cq.status, cq.read_opcode()) == (1, 0, e.IBV_WC_RDMA_WRITE)
    wait_until(lambda: cq.poll_next() == 0, client, server)
    assert (cq.wr_id, cq.read_opcode(), cq.read_qp_num()) == (2, e.IBV_WC_SEND, client.qp.qp_num)
    cq.end_poll()
    assert server.mr.read(5, 0) == pattern(5)
    assert server.mr.read(64, 1000) == pattern(64)


def test_two_qps_of_one_device_talk_to_each_other(verbs_pair) -> None:
    one, other = make_end(verbs_pair.client), make_end(verbs_pair.client)
    connect(one, other)
    one.mr.write(pattern(5000), 5000)
    other.receive(5000)
    one.send(length=5000)
    assert poll(other.recv_cq, 1, one)[0].byte_len == 5000
    assert poll(one.send_cq, 1, one)[0].status == e.IBV_WC_SUCCESS
    assert other.mr.read(5000, 0) == pattern(5000)


def test_every_mtu_up_to_the_ports_carries_messages(verbs_pair) -> None:
    largest = verbs_pair.client.query_port(1).active_mtu
    for mtu in range(e.IBV_MTU_256, largest + 1):
        client, server = make_end(verbs_pair.client), make_end(verbs_pair.server)
        client.qp.to_rts(attributes(client, server, 1, 2, path_mtu=mtu))
        server.qp.to_rts(attributes(server, client, 2, 1, path_mtu=mtu))
        client.mr.write(pattern(10_001), 10_001)
        server.receive(10_001)
        client.send(length=10_001)
        assert poll(server.recv_cq, 1, client, server)[0].byte_len == 10_001
        assert server.mr.read(10_001, 0) == pattern(10_001)
