"""What a request costs on the same-host path, counted: entries of the path, bytes copied, calls of Python
functions.

Two devices of this process, both driven by this thread; nothing here is timed.
"""

import pytest
from runtime_costs import COPIES_ARE_CALLS, MIB, End, payload_copied, python_calls

from softhca.machine.primitives import BODY, bytes_at
from softhca.runtime import devices, same_host_limits
from softhca.runtime.clock import now_ns
from softhca.verbs import enums as e
from softhca.verbs.mr import MR
from softhca.verbs.wr import SGE, SendWR

ACCESS_ERROR, FLUSHED = 10, 5

pytestmark = pytest.mark.skipif(bool(same_host_limits.unsupported()), reason="no same-host paths here")


@pytest.fixture
def near(loopback_address):
    """Two ends that reach each other's memory: the initiator, its target, and the initiator's executor."""
    names = ("near0", "near1")
    devices.add(",".join(f"{name}=udp:{loopback_address()}?same_host=1" for name in names))
    left, right = (End(name) for name in names)
    left.join(right)
    right.join(left)
    queue_pair = devices.find("near0").engine.adapter.queue_pairs[left.qp.qp_num]
    for _ in range(1000):
        for end in (left, right):
            engine = devices.find(end.name).engine
            with engine.loop.lock:
                engine.same_host.poll()
        if queue_pair.executor is not None and queue_pair.executor.path.arenas:
            break
    complete(left, right, requests(left, right.mr, [8]))
    yield left, right, queue_pair.executor
    for end in (left, right):
        end.context.close()
        devices.remove(end.name)


def requests(left, target, sizes, signaled=(), opcode=e.IBV_WR_RDMA_WRITE, rkeys=()):
    """A chain of requests of these sizes; the last is signaled, and those whose places ``signaled`` names."""
    chain = None
    for place in range(len(sizes) - 1, -1, -1):
        flags = e.IBV_SEND_SIGNALED if chain is None or place in signaled else 0
        chain = SendWR(place, opcode, 1, 0, [SGE(left.mr.buf, sizes[place], left.mr.lkey)], flags, chain)
        chain.set_wr_rdma(rkeys[place] if rkeys else target.rkey, target.buf)
    return chain


def complete(left, right, chain, count=1):
    """Post a chain; its ``count`` completions as (request, status)."""
    left.qp.post_send(chain)
    found = []
    for _ in range(100_000):
        found += [(done.wr_id, done.status) for done in left.cq.poll(count)[1]]
        if len(found) >= count:
            return found
        right.context.progress()
    raise AssertionError(f"{found} of {count} completions")


def entries(executor, work):
    """How often ``work`` has entered the path, which it must have left."""
    before = executor.path.epoch
    work()
    assert not executor.inside
    assert not executor.path.epoch & 1
    return (executor.path.epoch - before) // 2


@pytest.mark.parametrize(
    ("sizes", "signaled", "expected"),
    [
        ([8] * 64, (), 1),
        ([8] * 64, range(64), 64),  # a completion may end the queue pair, which waits for peers
        ([8, 8, 8, 8], (1,), 2),
        ([MIB // 16] * 16, (), 1),
        ([MIB // 2] * 3, (), 2),
        ([MIB] * 2, (), 2),
        ([8, MIB], (), 2),
        # a short one counts as 4 KiB, that their number is bounded too
        ([8] * 127 + [MIB // 2], (), 1),
        ([8] * 127 + [MIB // 2 + 8192], (), 2),
    ],
)
def test_the_path_is_entered_once_for_many_requests_but_for_no_more_than_a_chunk(
    near, sizes, signaled, expected
):
    left, right, executor = near
    chain = requests(left, right.mr, sizes, signaled)
    assert entries(executor, lambda: complete(left, right, chain, len(signaled) or 1)) == expected


@pytest.mark.parametrize(("size", "expected"), [(MIB // 2, 1), (MIB // 2 + 8192, 2)])
def test_atomics_count_as_short_requests_do(near, size, expected):
    left, right, executor = near
    chain = requests(left, right.mr, [size])
    for place in range(127):
        element = SGE(left.mr.buf, 8, left.mr.lkey)
        chain = SendWR(place, e.IBV_WR_ATOMIC_FETCH_AND_ADD, 1, 0, [element], 0, chain)
        chain.set_wr_atomic(right.mr.rkey, right.mr.buf, 1)
    found: list[tuple[int, int]] = []
    assert entries(executor, lambda: found.extend(complete(left, right, chain))) == expected
    assert found == [(0, 0)]


def test_each_request_s_key_is_checked_also_inside_one_entry_of_the_path(near):
    left, right, _ = near
    other = MR(right.pd, 4096, e.IBV_ACCESS_LOCAL_WRITE | e.IBV_ACCESS_REMOTE_WRITE)
    left.mr.write(b"same key", 8)
    wrong = other.rkey ^ 0xFF00
    rkeys = [right.mr.rkey, wrong, right.mr.rkey]
    found = complete(left, right, requests(left, right.mr, [8] * 3, (0, 1, 2), rkeys=rkeys), 3)
    assert found == [(0, 0), (1, ACCESS_ERROR), (2, FLUSHED)]
    assert bytes_at(right.mr.buf, 8) == b"same key"
    assert bytes_at(other.buf, 8) == bytes(8)


def test_two_regions_in_turn_are_both_reached_in_one_entry_of_the_path(near):
    left, right, executor = near
    other = MR(right.pd, 4096, e.IBV_ACCESS_LOCAL_WRITE | e.IBV_ACCESS_REMOTE_WRITE)
    left.mr.write(b"two keys", 8)
    chain = None
    for place, target in enumerate((other, right.mr) * 2):
        flags = e.IBV_SEND_SIGNALED if chain is None else 0
        element = SGE(left.mr.buf, 8, left.mr.lkey)
        chain = SendWR(place, e.IBV_WR_RDMA_WRITE, 1, 0, [element], flags, chain)
        chain.set_wr_rdma(target.rkey, target.buf + 64 * place)
    assert entries(executor, lambda: complete(left, right, chain)) == 1
    assert [bytes_at(target.buf + 64 * place, 8) for place, target in enumerate((other, right.mr) * 2)] == [
        b"two keys"
    ] * 4


@COPIES_ARE_CALLS
@pytest.mark.parametrize("opcode", [e.IBV_WR_RDMA_WRITE, e.IBV_WR_RDMA_READ])
def test_payload_is_copied_once(near, opcode, monkeypatch):
    left, right, _ = near
    chain = requests(left, right.mr, [1 << 16], opcode=opcode)
    assert payload_copied(lambda: complete(left, right, chain), monkeypatch) == 1 << 16


@pytest.mark.skipif(BODY != "compiled", reason="interpreted, everything is a call")
def test_a_request_is_posted_and_polled_by_few_calls_of_python_functions(near):
    left, right, _ = near
    chain = requests(left, right.mr, [8])
    complete(left, right, chain)
    for end in (left, right):
        loop = devices.find(end.name).engine.loop
        # neither that poll nor a look for other processes belongs to a request
        loop.same_host_ns = loop.clients_ns = now_ns() + 10**12
    done = []
    post_send, poll = left.qp.post_send, left.cq.poll
    # the two, isinstance, len, and what the test itself calls
    assert python_calls(lambda: (post_send(chain), done.append(poll(1)))) <= 7
    assert done[0][0] == 1
