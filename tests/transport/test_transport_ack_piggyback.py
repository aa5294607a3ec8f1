"""An acknowledgement and the request that its own side has to send: in one burst, the request first."""

from softhca.testing.transport_pair import Pair
from softhca.wire import opcodes as op

SEND, ACK = op.RC_SEND_ONLY, op.RC_ACKNOWLEDGE


def crossing(size=8, requests=1):
    """Left has a message to acknowledge, and so many of its own to send."""
    pair = Pair()
    pair.left.qp.send_engine()
    for end in (pair.left, pair.right):
        for _ in range(8):
            end.post_receive([end.region(64).sge()])
    pair.forge(SEND, 0, b"question", way="ba")
    for _ in range(requests):
        pair.left.post(2, inline=bytes(size))
    return pair


def sent(pair):
    """The bursts that left sends until it has nothing more to send: opcodes of each."""
    bursts = []
    while True:
        before = len(pair.log)
        if not pair.transmit(pair.a):
            return bursts
        rows = [packet[0] for _, packet in pair.log[before:]]
        if rows:
            bursts.append(rows)


def test_it_goes_behind_the_request_in_one_burst():
    pair = crossing()
    assert sent(pair) == [[SEND, ACK]]
    assert pair.left.qp.counters.packets_sent == 2
    assert pair.left.qp.counters.bytes_sent == 24 + 20
    assert pair.left.qp.counters.acks_sent == 1
    assert not pair.left.qp.flow.has_work()
    pair.close()


def test_it_goes_behind_a_run_of_requests():
    pair = crossing(requests=3)
    assert sent(pair) == [[SEND, SEND, SEND, ACK]]
    pair.close()


def test_one_that_does_not_fit_comes_next():
    pair = crossing(size=0)  # 16 bytes: nothing longer may follow
    assert sent(pair) == [[SEND], [ACK]]
    pair.close()


def test_requests_without_end_do_not_keep_it_back():
    pair = crossing(size=0)
    qp, order = pair.left.qp, []
    for _ in range(4):
        pair.left.post(2, inline=b"")
        pair.transmit(pair.a)
        order.append(pair.log[-1][1][0])
        pair.left.post(2, inline=b"")
        qp.doorbell(pair.now)
    assert ACK in order[:2]
    pair.close()


def test_one_that_is_asked_for_again_goes_first():
    pair = crossing(requests=0)
    assert sent(pair) == [[ACK]]
    pair.forge(SEND, 0, b"question", way="ba")  # as if it had been lost
    pair.left.post(2, inline=bytes(8))
    assert not pair.left.qp.flow.may_delay_ack()
    assert sent(pair) == [[ACK], [SEND]]
    pair.forge(SEND, 1, b"question", way="ba")
    assert pair.left.qp.flow.may_delay_ack(), "the next one may be delayed again"
    pair.close()


def test_a_negative_one_answers_what_was_asked_for_again():
    pair = crossing(requests=0)
    for psn in range(1, 8):
        pair.forge(SEND, psn, b"question", way="ba")
    sent(pair)
    pair.forge(SEND, 7, b"question", way="ba")  # as if it had been lost
    pair.forge(SEND, 8, b"question", way="ba")
    sent(pair)
    assert pair.left.qp.counters.rnr_naks_sent == 1
    pair.left.post_receive([pair.left.region(64).sge()])
    pair.forge(SEND, 8, b"question", way="ba")
    assert pair.left.qp.flow.may_delay_ack(), "nothing is asked for again any more"
    pair.close()


def test_an_answer_to_a_read_is_not_delayed():
    pair = crossing(requests=0)
    assert sent(pair) == [[ACK]]
    target = pair.left.region(64)
    pair.forge(op.RC_RDMA_READ_REQUEST, 1, way="ba", va=target.va, rkey=target.key, length=8)
    assert not pair.left.qp.flow.may_delay_ack()
    pair.left.post(2, inline=bytes(8))
    assert sent(pair) == [[op.RC_RDMA_READ_RESPONSE_ONLY], [SEND]]
    pair.close()


def test_a_negative_acknowledgement_is_not_delayed():
    pair = crossing(requests=0)
    assert sent(pair) == [[ACK]]
    pair.forge(SEND, 5, b"beyond a gap", way="ba")
    assert not pair.left.qp.flow.may_delay_ack()
    pair.left.post(2, inline=bytes(8))
    assert sent(pair) == [[ACK], [SEND]]
    pair.close()


def test_nothing_is_delayed_where_nothing_is_to_be_sent():
    pair = crossing(requests=0)
    sent(pair)
    assert not pair.left.qp.flow.may_delay_ack()
    assert not pair.right.qp.flow.may_delay_ack()
    pair.close()
