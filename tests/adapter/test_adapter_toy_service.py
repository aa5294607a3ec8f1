"""A service that only this test knows: reliable connections whose packets carry RDETH and DETH and find their
queue pair by the end-to-end context.  It is one row of `transport.services`; nothing else knows of it."""

import errno

import pytest

from softhca.driver.errors import DriverError
from softhca.queues import wqe
from softhca.queues.layout import WC_RETRY_EXC_ERR, WC_SUCCESS
from softhca.testing import SENT, Network
from softhca.testing.ends import End, connect, post
from softhca.transport import services
from softhca.transport.acknowledgement import Sender
from softhca.transport.sending import SendQueue
from softhca.transport.services import BY_EE_CONTEXT, SERVICES, Service, carried
from softhca.transport.states import RAW, RC, UD
from softhca.wire.opcodes import RD

TOY = 255
"""ibv_qp_type: IBV_QPT_DRIVER."""


def context_of(number):
    """The end-to-end context of a queue pair: not its number, so that nothing finds it by that."""
    return number ^ 0xA5A5A5


def name_peer(engine, queue_pair):
    """Have the packets of whoever has this writer name the peer as this service does."""
    engine.writer.ee_context = context_of(queue_pair.dest_qp)
    engine.writer.source_qp = queue_pair.number
    return engine


def sender(queue_pair):
    return name_peer(Sender(queue_pair, SendQueue(queue_pair)), queue_pair)


def receiver(queue_pair):
    engine = SERVICES[RC].receiver(queue_pair)
    name_peer(engine.replies, queue_pair)
    return engine


ROW = Service(
    RD,
    "TOY",
    qp_types=(TOY,),
    rules=RC,
    connected=True,
    acknowledged=True,
    send_error_state=False,
    operations=carried(RD, connected=True),
    sender=sender,
    receiver=receiver,
    key=BY_EE_CONTEXT,
    key_number=lambda queue_pair: context_of(queue_pair.number),
    shares_bursts=True,
)


@pytest.fixture
def toy(monkeypatch):
    """Two connected queue pairs of the service: (network, left, its queue pair, right, its queue pair)."""
    monkeypatch.setitem(SERVICES, RD, ROW)
    ends = pair_over(Network())
    yield ends
    ends[0].close()


def pair_over(network):
    left, right = End(network.add()), End(network.add())
    qps = left.qp(TOY), right.qp(TOY)
    connect((left, qps[0]), (right, qps[1]))
    return network, left, qps[0], right, qps[1]


def sent(network):
    """Extension headers by name, with the BTH, of the packets that are sent from now on."""
    found = []

    def take(datagram):
        if datagram.event == SENT:
            packet = datagram.packet.transport
            found.append((packet.bth, {type(header).__name__: header for header in packet.extensions}))

    network.observers.append(take)
    return found


def drops(node, reason):
    return node.adapter.port_counters()[f"drops_{reason}"]


def test_what_has_no_row_is_refused():
    network = Network()
    end = End(network.add())
    with pytest.raises(DriverError) as refused:
        end.qp(TOY)
    assert refused.value.errno == errno.EOPNOTSUPP
    network.close()


def test_a_message_of_several_packets_arrives_and_completes_on_both_ends(toy):
    network, left, left_qp, right, right_qp = toy
    packets = sent(network)
    payload = bytes(range(256)) * 12
    left.memory[: len(payload)] = payload
    right_qp.post_recv(7, [right.sge(0, len(payload))])
    post(left_qp, wqe.SEND, [left.sge(0, len(payload))], wr_id=3)
    (received,) = right.poll(1)
    (completed,) = left.poll(1)
    assert (received.wr_id, received.status, received.byte_len) == (7, WC_SUCCESS, len(payload))
    assert (completed.wr_id, completed.status) == (3, WC_SUCCESS)
    assert right.memory[: len(payload)] == payload
    assert {bth.opcode >> 5 for bth, _ in packets} == {RD}
    requests = [headers for bth, headers in packets if bth.dest_qp == right_qp.number]
    assert len(requests) == 3
    for headers in requests:
        assert list(headers) == ["Rdeth", "Deth"]
        assert headers["Rdeth"].ee_context == context_of(right_qp.number)
        assert headers["Deth"].source_qp == left_qp.number
    answers = [headers for bth, headers in packets if bth.dest_qp == left_qp.number]
    assert answers
    assert all(list(headers) == ["Rdeth", "Aeth"] for headers in answers)
    assert {headers["Rdeth"].ee_context for headers in answers} == {context_of(left_qp.number)}


def test_rdma_of_all_kinds_works(toy):
    _, left, left_qp, right, _ = toy
    left.memory[:8] = b"from left"[:8]
    right.memory[64:72] = b"at right"
    there = right.va, right.key.rkey
    post(left_qp, wqe.RDMA_WRITE, [left.sge(0, 8)], va=there[0], rkey=there[1])
    post(left_qp, wqe.RDMA_READ, [left.sge(32, 8)], va=there[0] + 64, rkey=there[1])
    post(left_qp, wqe.ATOMIC_FETCH_AND_ADD, [left.sge(48, 8)], va=there[0] + 128, rkey=there[1], compare=5)
    assert [done.status for done in left.poll(3)] == [WC_SUCCESS] * 3
    assert right.memory[:8] == b"from left"[:8]
    assert left.memory[32:40] == b"at right"
    assert int.from_bytes(right.memory[128:136], "little") == 5


@pytest.mark.parametrize("faults", ["loss=20%", "reorder=20%,duplicate=20%"])
def test_it_is_as_reliable_as_the_engine_it_is_made_of(monkeypatch, faults):
    monkeypatch.setitem(SERVICES, RD, ROW)
    network, left, left_qp, right, right_qp = pair_over(Network(faults, seed=5))
    for number in range(8):
        right_qp.post_recv(number, [right.sge(0, 64)])
        post(left_qp, wqe.SEND, [left.sge(0, 64)], wr_id=number)
    assert [done.wr_id for done in right.poll(8)] == list(range(8))
    assert [done.status for done in left.poll(8)] == [WC_SUCCESS] * 8
    network.close()


def test_only_the_context_finds_the_queue_pair(toy):
    network, left, left_qp, right, right_qp = toy
    left.node.adapter.queue_pairs[left_qp.number].send_engine().writer.ee_context = right_qp.number
    right_qp.post_recv(1, [right.sge(0, 64)])
    post(left_qp, wqe.SEND, [left.sge(0, 64)])
    network.elapse(1_000_000)
    assert right.cq.poll(1) == []
    assert drops(right.node, "unknown_qp") > 0


def test_a_destroyed_queue_pair_is_found_no_more(toy):
    _, left, left_qp, right, right_qp = toy
    right_qp.destroy()
    post(left_qp, wqe.SEND, [left.sge(0, 64)])
    (failed,) = left.poll(1)
    assert failed.status == WC_RETRY_EXC_ERR
    assert drops(right.node, "unknown_qp") > 0


def test_two_queue_pairs_of_one_context_cannot_be(monkeypatch):
    row = ROW._replace(key_number=lambda queue_pair: 5)
    monkeypatch.setitem(SERVICES, RD, row)
    network = Network()
    end = End(network.add())
    first = end.qp(TOY)
    with pytest.raises(DriverError) as refused:
        end.qp(TOY)
    assert refused.value.errno == errno.EBUSY
    first.destroy()
    end.qp(TOY).destroy()
    network.close()


def test_rows_say_what_stands_in_front():
    assert (ROW.request_headers, ROW.response_headers) == (("rdeth", "deth"), ("rdeth",))
    assert SERVICES[RC].request_headers == ()
    assert SERVICES[RAW].request_headers == ()
    assert [SERVICES[UD].request_headers, SERVICES[UD].response_headers] == [("deth",), ("deth",)]


def test_the_rows_of_the_table_are_told_apart():
    types = [each for row in SERVICES.values() for each in row.qp_types]
    assert len(types) == len(set(types))
    assert all(services.of_type(each) is row for row in SERVICES.values() for each in row.qp_types)
    assert all(code in (row.number, row.rules) for code, row in SERVICES.items())
