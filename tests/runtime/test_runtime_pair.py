"""End to end: two contexts, two adapters, real UDP sockets; the adapters in this process and in their own."""

import pytest
from runtime_pair import RemoteOperation, connected, take

OPERATIONS = list(RemoteOperation)


@pytest.mark.parametrize("length_bytes", [0, 1, 1024, 4097, 300_000])
def test_a_send_arrives_whole(verbs_pair, length_bytes):
    with connected(verbs_pair, max(length_bytes, 1)) as link:
        link.source[:length_bytes] = bytes(i % 251 for i in range(length_bytes))
        link.post_receive(7, length_bytes)
        link.send(8, length_bytes)
        (received,) = take(link.server_cq, 1)
        (sent,) = take(link.client_cq, 1)
        assert (received.wr_id, received.status, received.byte_len) == (7, 0, length_bytes)
        assert (sent.wr_id, sent.status) == (8, 0)
        assert link.target[:length_bytes] == link.source[:length_bytes]


@pytest.mark.parametrize("operation", OPERATIONS, ids=[operation.name for operation in OPERATIONS])
def test_the_target_of_a_one_sided_operation_takes_no_part(verbs_pair, operation):
    with connected(verbs_pair, 64) as link:
        link.prepare(operation)
        link.one_sided(operation, 5)
        (done,) = take(link.client_cq, 1)
        assert (done.wr_id, done.status) == (5, 0)
        link.check(operation)


def test_many_messages_arrive_in_order(verbs_pair):
    with connected(verbs_pair, 1024) as link:
        for number in range(300):
            link.source[:4] = number.to_bytes(4, "big")
            link.post_receive(number, 1024)
            link.send(number, 1024)
            (received,) = take(link.server_cq, 1)
            (sent,) = take(link.client_cq, 1)
            assert (received.wr_id, sent.wr_id) == (number, number)
            assert link.target[:4] == number.to_bytes(4, "big")
