"""Every operation of a reliable connection, end to end, over a link without faults."""

import pytest
from transport_pair import RC

from softhca.queues import cqe, wqe

PATTERN = bytes(i * 7 % 251 for i in range(1 << 20))


def payload(n):
    return PATTERN[:n]


SIZES = (0, 1, 3, 4, 255, 256, 257, 511, 512, 513, 4095, 4096, 4097, 70_001)


@pytest.mark.parametrize("pmtu", [256, 1024, 4096])
@pytest.mark.parametrize("size", SIZES)
def test_write_places_every_byte_and_nothing_else(pair, pmtu, size):
    p = pair(pmtu=pmtu)
    source = p.left.region(size or 1, fill=payload(size or 1))
    target = p.right.region(size + 16)
    p.left.post(wqe.RDMA_WRITE, [source.sge(0, size)], remote=target, offset=8)
    p.run()
    assert [c.status for c in p.left.sent()] == [cqe.WC_SUCCESS]
    assert target.data == bytes(8) + payload(size) + bytes(8)
    assert p.right.received() == []
    p.at_rest()


@pytest.mark.parametrize("pmtu", [256, 1024, 4096])
@pytest.mark.parametrize("size", SIZES)
def test_send_fills_the_receive_and_completes_on_both_sides(pair, pmtu, size):
    p = pair(pmtu=pmtu)
    source = p.left.region(size or 1, fill=payload(size or 1))
    target = p.right.region(size + 16)
    p.right.post_receive([target.sge()], wr_id=77)
    p.left.post(wqe.SEND, [source.sge(0, size)], wr_id=5)
    p.run()
    (sent,) = p.left.sent()
    (received,) = p.right.received()
    assert (sent.wr_id, sent.status, sent.opcode, sent.qp_num) == (5, 0, cqe.WC_SEND, p.left.number)
    assert (received.wr_id, received.status, received.opcode) == (77, 0, cqe.WC_RECV)
    assert (received.byte_len, received.wc_flags, received.src_qp) == (size, 0, p.left.number)
    assert target.data == payload(size) + bytes(16)
    p.at_rest()


@pytest.mark.parametrize("pmtu", [256, 1024, 4096])
@pytest.mark.parametrize("size", SIZES)
def test_read_brings_every_byte_and_nothing_else(pair, pmtu, size):
    p = pair(pmtu=pmtu, slice_bytes=8192)
    remote = p.right.region(size or 1, fill=payload(size or 1))
    local = p.left.region(size + 16)
    p.left.post(wqe.RDMA_READ, [local.sge(8, size)], remote=remote)
    p.run()
    (sent,) = p.left.sent()
    assert (sent.status, sent.opcode, sent.byte_len) == (0, cqe.WC_RDMA_READ, size)
    assert local.data == bytes(8) + payload(size) + bytes(8)
    p.at_rest()


def test_service_is_rc(pair):
    assert pair().left.qp.service == RC
