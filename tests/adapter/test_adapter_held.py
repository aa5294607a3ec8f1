"""The data-access mode bit of an adapter, and its list of queue pairs that wait for memory."""

import native_network
import pytest
from raw_network import RawNetwork, handle, raw_end, send_raw

from softhca.adapter.engine import NEVER
from softhca.adapter.memory_waiters import MemoryWaiters
from softhca.driver import services
from softhca.driver.device import DriverError
from softhca.queues.cqe import WC_RETRY_EXC_ERR
from softhca.testing.ends import FETCH_ADD, READ, SEND, UC, UD, WRITE, End, connect, pair, post
from softhca.testing.network import Network
from softhca.transport.environment import MEMORY_RETRY_NS
from softhca.transport.states import ERR, RESET, RTS, SQD

ETHERTYPE = 0x88B5


class Waiter:
    def __init__(self, number):
        self.number = number


def test_queue_pairs_are_due_in_their_order_and_each_at_its_time():
    held = MemoryWaiters()
    first, second, third = (Waiter(number) for number in (7, 3, 5))
    assert held.next_ns == NEVER
    held.put(first, 100)
    held.put(second, 150)
    held.put(first, 170)  # it waits already
    held.put(third, 180)
    assert (len(held), held.next_ns) == (3, 100 + MEMORY_RETRY_NS)
    assert held.due(99 + MEMORY_RETRY_NS) == []
    assert held.due(150 + MEMORY_RETRY_NS) == [first, second]
    assert held.next_ns == 180 + MEMORY_RETRY_NS
    held.put(first, 200)
    held.remove(third)
    held.remove(third)
    assert held.next_ns == 200 + MEMORY_RETRY_NS
    held.put(second, 210)
    assert held.all() == [first, second]
    assert (len(held), held.next_ns, held.all()) == (0, NEVER, [])
    held.put(second, 300)
    held.remove(second)
    assert (len(held), held.next_ns) == (0, NEVER)


@pytest.fixture
def two():
    world, left, left_qp, right, right_qp = pair()
    yield world, left, left_qp, right, right_qp
    world.close()


def test_the_engine_wants_to_be_called_when_memory_is_tried_again(two):
    world, left, qp, right, _ = two
    adapter = left.node.adapter
    seen = world.record()
    adapter.set_data_access(False)
    post(qp, WRITE, [left.sge(0, 100)], va=right.va, rkey=right.key.rkey)
    world.step()
    assert len(adapter.memory_waiters) == 1
    assert adapter.next_deadline() == world.now + MEMORY_RETRY_NS
    adapter.expire(world.now + MEMORY_RETRY_NS - 1)
    assert len(adapter.memory_waiters) == 1
    adapter.expire(world.now + MEMORY_RETRY_NS)
    assert len(adapter.memory_waiters) == 0
    assert adapter.next_deadline() == 0
    world.now += MEMORY_RETRY_NS
    world.step()
    assert len(adapter.memory_waiters) == 1  # tried, and held again
    assert seen == []


def test_what_an_arriving_packet_waits_for_is_tried_again_counted_from_its_arrival(two):
    """Nobody else has told the adapter the time since its last turn."""
    world, left, qp, right, _ = two
    adapter = left.node.adapter
    carried = []
    world.carrier = lambda sent, target, port_number, data: carried.append((sent, target, port_number, data))
    post(qp, READ, [left.sge(0, 100)], va=right.va, rkey=right.key.rkey)
    world.step()
    world.deliver(*carried.pop())
    world.step()
    adapter.set_data_access(False)
    world.now += MEMORY_RETRY_NS // 2
    world.deliver(*carried.pop())
    assert len(adapter.memory_waiters) == 1
    assert adapter.memory_waiters.next_ns == world.now + MEMORY_RETRY_NS


@pytest.mark.parametrize("opcode", [WRITE, SEND, READ, FETCH_ADD])
@pytest.mark.parametrize("stopped", ["left", "right", "both"])
def test_every_operation_goes_on_when_the_mode_bit_is_cleared(two, opcode, stopped):
    world, left, qp, right, peer = two
    left.memory[:2000] = b"l" * 2000
    right.memory[:2000] = b"r" * 2000
    right.memory[:8] = bytes(8)
    peer.post_recv(5, [right.sge(0, 2000)])
    adapters = [
        end.node.adapter for end, side in ((left, "left"), (right, "right")) if stopped in (side, "both")
    ]
    for adapter in adapters:
        adapter.set_data_access(False)
    length = 8 if opcode == FETCH_ADD else 2000
    post(qp, opcode, [left.sge(0, length)], va=right.va, rkey=right.key.rkey, compare=1, wr_id=3)
    before = bytes(left.memory), bytes(right.memory)
    world.run(limit_ns=5 * MEMORY_RETRY_NS)
    assert left.cq.poll(1) == []
    assert (bytes(left.memory), bytes(right.memory)) == (
        before if opcode != FETCH_ADD or stopped != "left" else (before[0], b"\1" + before[1][1:])
    )
    for adapter in adapters:
        adapter.set_data_access(True)
    assert [(c.wr_id, c.status) for c in left.poll(1)] == [(3, 0)]
    if opcode in (WRITE, SEND):
        assert right.memory[:2000] == b"l" * 2000
    elif opcode == READ:
        assert left.memory[8:2000] == b"r" * 1992
    else:
        assert (left.memory[:8], right.memory[:8]) == (bytes(8), b"\1" + bytes(7))
    for end in (left, right):
        counters = end.node.adapter.counters
        assert counters.naks_sent == counters.retransmissions == counters.timeouts == 0
        assert len(end.node.adapter.memory_waiters) == 0


def test_everything_but_data_goes_on_while_data_access_is_stopped(two):
    """Queues, commands, contexts, completions, events, inline data."""
    world, left, qp, right, peer = two
    for end in (left, right):
        end.node.adapter.set_data_access(False)
    peer.post_recv(8, [])
    post(qp, SEND, [], wr_id=4)  # a message without bytes
    assert [(c.wr_id, c.status) for c in left.poll(1)] == [(4, 0)]
    assert [(c.wr_id, c.status) for c in right.poll(1)] == [(8, 0)]
    peer.post_recv(9, [right.sge(0, 8)])
    key = left.device.reg_mr(left.pd, 0, 4096, 7, buffer=bytearray(4096))
    other = left.qp(UD)
    other.modify({"qp_state": 1, "pkey_index": 0, "port_num": 1, "qkey": 5})
    other.destroy()
    left.device.dereg_mr(key.handle)
    qp.modify({"qp_state": SQD})
    assert qp.query()["qp_state"] == SQD
    qp.modify({"qp_state": RTS})
    peer.modify({"qp_state": ERR})
    assert [c.wr_id for c in right.poll(1)] == [9]
    with pytest.raises(DriverError):
        left.device.dealloc_pd(left.pd)
    assert world.run(limit_ns=MEMORY_RETRY_NS) is False


@pytest.mark.parametrize("how", ["destroy", "close", "reset"])
def test_a_queue_pair_that_goes_leaves_nothing_on_the_list(two, how):
    world, left, qp, right, _ = two
    adapter = left.node.adapter
    seen = world.record()
    adapter.set_data_access(False)
    post(qp, WRITE, [left.sge(0, 100)], va=right.va, rkey=right.key.rkey)
    world.step()
    assert len(adapter.memory_waiters) == 1
    if how == "destroy":
        qp.destroy()
        assert len(adapter.memory_waiters) == 0
    elif how == "close":
        left.device.close()
        assert len(adapter.memory_waiters) == 0
    else:
        qp.modify({"qp_state": RESET})
    adapter.set_data_access(True)
    world.run(limit_ns=10 * MEMORY_RETRY_NS)
    assert len(adapter.memory_waiters) == 0
    assert adapter.next_deadline() == NEVER
    assert seen == []
    assert not any(right.memory)


def test_many_held_queue_pairs_stand_on_the_list_once_each_and_all_go_on(two):
    world, left, _, right, _ = two
    pairs = []
    for _ in range(20):
        mine, theirs = left.qp(), right.qp()
        connect((left, mine), (right, theirs))
        pairs.append(mine)
    adapter = left.node.adapter
    adapter.set_data_access(False)
    for turn in range(2):
        for number, mine in enumerate(pairs):
            post(
                mine,
                WRITE,
                [left.sge(64 * turn, 64)],
                va=right.va + 128 * number + 64 * turn,
                rkey=right.key.rkey,
            )
        world.run(limit_ns=3 * MEMORY_RETRY_NS)
        assert len(adapter.memory_waiters) == 20
    left.memory[:128] = bytes(range(128))
    adapter.set_data_access(True)
    assert [c.status for c in left.poll(40)] == [0] * 40
    assert right.memory[: 128 * 20] == bytes(range(128)) * 20


def test_a_read_answered_too_late_for_the_requester_fails_there_alone(two):
    world, left, qp, right, peer = two
    right.node.adapter.set_data_access(False)
    post(qp, READ, [left.sge(0, 100)], va=right.va, rkey=right.key.rkey)
    assert [c.status for c in left.poll(1)] == [WC_RETRY_EXC_ERR]
    right.node.adapter.set_data_access(True)
    world.run(limit_ns=10 * MEMORY_RETRY_NS)
    assert peer.query()["qp_state"] == RTS
    assert len(right.node.adapter.memory_waiters) == 0


def test_unreliable_services_wait_to_send_and_drop_what_they_receive():
    world = Network()
    left, right = End(world.add(1)), End(world.add(2))
    qp, peer = left.qp(UC), right.qp(UC)
    connect((left, qp), (right, peer), UC)
    for wr_id in range(2):
        peer.post_recv(wr_id, [right.sge(0, 100)])
    right.node.adapter.set_data_access(False)
    post(qp, SEND, [left.sge(0, 10)])
    assert [c.status for c in left.poll(1)] == [0]
    world.run(limit_ns=MEMORY_RETRY_NS)
    figures = right.device.query_counters(qp=peer.number)
    assert figures["drops_held"] == 1
    assert right.device.query_counters(1)["transport_drops_held"] == 1
    right.node.adapter.set_data_access(True)
    left.node.adapter.set_data_access(False)
    left.memory[:4] = b"late"
    post(qp, SEND, [left.sge(0, 4)])
    world.run(limit_ns=3 * MEMORY_RETRY_NS)
    assert left.cq.poll(1) == []
    left.node.adapter.set_data_access(True)
    assert [(c.wr_id, c.status, c.byte_len) for c in right.poll(1)] == [(0, 0, 4)]
    world.close()


def test_a_raw_datagram_waits_to_be_sent_and_is_dropped_where_it_meets_held_memory():
    world = RawNetwork()
    left, qp = raw_end(world, 1, ETHERTYPE)
    right, peer = raw_end(world, 2, ETHERTYPE)
    ah = handle(left)
    peer.post_recv(1, [right.sge(0, 200)])
    left.node.adapter.set_data_access(False)
    send_raw(left, qp, ah, b"first" * 20, ETHERTYPE)
    world.run(limit_ns=3 * MEMORY_RETRY_NS)
    assert world.raws == []
    right.node.adapter.set_data_access(False)
    left.node.adapter.set_data_access(True)
    assert [c.status for c in left.poll(1)] == [0]
    world.run(limit_ns=MEMORY_RETRY_NS)
    assert right.device.query_counters(qp=peer.number)["drops_held"] == 1
    right.node.adapter.set_data_access(True)
    send_raw(left, qp, ah, b"second" * 20, ETHERTYPE)
    (received,) = right.poll(1)
    assert (received.wr_id, received.status) == (1, 0)
    assert right.memory[:120] == b"second" * 20
    world.close()


def test_a_native_packet_in_front_of_held_memory_asks_for_an_answer_with_right_crcs():
    world = native_network.NativeNetwork()
    left, right = End(world.add(1)), End(world.add(2))
    qp, peer = left.qp(), right.qp()
    for mine, there, theirs in ((qp, right, peer), (peer, left, qp)):
        path = services.Path(None, dlid=there.node.adapter.port.lid, mtu=3)
        services.connect(mine, path, theirs.number, 70, 70, 15, services.Reliability())
    other = bytearray(b"h" * 4096)
    key = left.device.reg_mr(left.pd, 0, 4096, 7, iova=0x900000, buffer=other)
    adapter = left.node.adapter
    region = adapter.regions.find(key.lkey, left.pd, 0x900000, 4096, 1)
    mine, region.tpt = region.tpt, type(region.tpt)(1)
    region.tpt.stopped = True
    left.memory[:4096] = b"t" * 4096
    post(qp, WRITE, [left.sge(0, 4096), (0x900000, 4096, key.lkey)], va=right.va, rkey=right.key.rkey)
    world.run(limit_ns=2 * MEMORY_RETRY_NS)
    assert right.memory[:4096] == b"t" * 4096
    assert left.device.query_counters(qp=qp.number)["acks_received"] == 1
    assert not any(right.node.adapter.port.counters.drops)
    region.tpt = mine
    assert [c.status for c in left.poll(1)] == [0]
    assert right.memory[4096:8192] == b"h" * 4096
    assert left.node.adapter.counters.timeouts == 0
    world.close()
