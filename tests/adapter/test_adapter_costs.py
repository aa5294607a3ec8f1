"""What the queues and agents of a host cost the adapter is bounded, each host's by itself."""

import errno
import tracemalloc

import pytest

from softhca.adapter.host_agents import MAX_PENDING, PENDING_BYTES
from softhca.driver.errors import DriverError
from softhca.management.mad import Address
from softhca.management.pending import Pending, PendingRequests
from softhca.queues.completion import pages_for
from softhca.queues.layout import MAD_BYTES
from softhca.testing.ends import UD
from softhca.testing.network import Network

ENTRIES = 1024
QUEUE_BYTES = 4 * ENTRIES + 8 * pages_for(ENTRIES)


@pytest.fixture
def node():
    return Network().add(1, max_host_bytes=3 * QUEUE_BYTES)


def costs(node):
    return [node.adapter.resources.cost(host) for host in node.hosts]


def test_queues_of_a_host_are_refused_where_they_would_cost_too_much(node):
    one, other = node.open(), node.open()
    queues = [one.create_cq(ENTRIES) for _ in range(3)]
    assert costs(node) == [3 * QUEUE_BYTES, 0]
    with pytest.raises(DriverError) as caught:
        one.create_cq(1)
    assert caught.value.errno == errno.ENOMEM
    assert costs(node) == [3 * QUEUE_BYTES, 0]
    other.create_cq(ENTRIES)
    queues.pop().destroy()
    one.create_cq(ENTRIES)
    assert costs(node) == [3 * QUEUE_BYTES, QUEUE_BYTES]


def test_a_queue_that_changes_its_size_changes_its_cost(node):
    device = node.open()
    first, second = device.create_cq(ENTRIES), device.create_cq(ENTRIES)
    with pytest.raises(DriverError) as caught:
        first.resize(4 * ENTRIES)
    assert caught.value.errno == errno.ENOMEM
    assert costs(node) == [2 * QUEUE_BYTES]
    first.resize(ENTRIES // 2)
    assert QUEUE_BYTES < costs(node)[0] < 2 * QUEUE_BYTES
    first.resize(ENTRIES)
    assert costs(node) == [2 * QUEUE_BYTES]
    second.destroy()
    first.destroy()
    assert costs(node) == [0]


def test_work_queues_cost_too_and_a_host_that_leaves_costs_nothing(node):
    device = node.open()
    pd, cq = device.alloc_pd(), device.create_cq(16)
    before = costs(node)[0]
    srq = device.create_srq(pd, 64, 4)
    after = costs(node)[0]
    assert after > before
    device.create_qp(pd, UD, cq, cq, None, 16, 16, 1, 1, 0, True)
    assert costs(node)[0] > after

    def make_many():
        for _ in range(1000):
            device.create_qp(pd, UD, cq, cq, srq, 16, 0, 1, 0, 0, True)

    with pytest.raises(DriverError) as caught:
        make_many()
    assert caught.value.errno == errno.ENOMEM
    assert costs(node)[0] <= 3 * QUEUE_BYTES
    node.adapter.detach_host(node.hosts[0])
    assert costs(node) == [0]


def register(device, entries=8):
    return device.register_agent(1, 0x32, 1, {1}, entries)


def test_an_agent_costs_its_ring_and_the_requests_that_may_wait():
    node = Network().add(1)
    device = node.open()
    agent = register(device)
    cost_bytes = costs(node)[0] - MAX_PENDING * PENDING_BYTES
    assert cost_bytes > 4 * 8
    agent.unregister()
    assert costs(node) == [0]
    register(device, entries=1024)
    assert costs(node)[0] - MAX_PENDING * PENDING_BYTES >= cost_bytes + 4 * (1024 - 8)


def test_agents_of_a_host_are_refused_where_they_would_cost_too_much():
    node = Network().add(1, max_host_bytes=MAX_PENDING * PENDING_BYTES + QUEUE_BYTES)
    one, other = node.open(), node.open()
    queue = one.create_cq(ENTRIES)
    with pytest.raises(DriverError) as caught:
        register(one)
    assert caught.value.errno == errno.ENOMEM
    assert costs(node) == [QUEUE_BYTES, 0]
    register(other).unregister()  # the refused one has left nothing behind
    queue.destroy()
    register(one)
    node.adapter.detach_host(node.hosts[0])
    assert costs(node) == [0, 0]


def test_a_request_that_waits_costs_no_more_than_is_charged():
    class Asker:
        number = 1

    pending = PendingRequests()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    for i in range(MAX_PENDING):
        destination = Address(qpn=1, qkey=1 << 30 | i, pkey=0xFFFF, lid=0, gid=bytes([i]) * 16)
        data = bytes([i]) * MAD_BYTES
        pending.add(Pending(Asker, (0x32, 1 << 30 | i), data, destination, 10**9, 3, 10**12 + i))
    cost_bytes = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert 2 * cost_bytes <= MAX_PENDING * PENDING_BYTES


def test_queues_of_the_largest_size_stop_at_a_quarter_of_a_gigabyte():
    adapter = Network().add(1).adapter
    largest = adapter.config.max_cqe
    assert 4 * largest * 16 == adapter.config.max_host_bytes
