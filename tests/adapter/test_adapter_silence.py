"""A peer that is gone holds up nobody else: what it leaves unanswered does not fill the window for ever."""

from __future__ import annotations

import itertools

import pytest

from softhca.driver import services
from softhca.testing import SENT
from softhca.testing.ends import FETCH_ADD, QKEY, RC, READ, UC, UD, WRITE, WRITE_IMM, End, connect, post
from softhca.testing.network import Network
from softhca.transport.window import (
    DEFAULT_LIMIT_BYTES,
    DEFAULT_MAXIMUM_BYTES,
    MOST_STALL_NS,
    PROBE_BYTES,
    STALL_NS,
)

LONG = 1 << 19
NEVER_TIMES_OUT = 0


@pytest.fixture
def world():
    world = Network()
    yield world
    world.close()


def fill(world: Network, near: End, far: End) -> None:
    """A queue pair without time-out that writes much to one that is gone: the window is full, for ever."""
    lost, gone = near.qp(), far.qp()
    connect((near, lost), (far, gone), timeout=NEVER_TIMES_OUT)
    gone.destroy()
    post(lost, WRITE, [near.sge(0, LONG)], va=far.va, rkey=far.key.rkey)
    packets = world.record(SENT)
    world.run(limit_ns=STALL_NS // 2)
    assert sum(len(sent.data) for sent in packets) >= DEFAULT_MAXIMUM_BYTES // 2


@pytest.mark.parametrize("kind", [RC, UC])
def test_others_go_on_beside_a_queue_pair_whose_peer_is_gone(world, kind):
    near, far = End(world.add(1), 2 * LONG), End(world.add(2), 2 * LONG)
    fill(world, near, far)
    begin = world.now
    mine, theirs = near.qp(kind), far.qp(kind)
    connect((near, mine), (far, theirs), kind, **({"timeout": 20} if kind == RC else {}))
    near.memory[:LONG] = bytes(range(256)) * (LONG // 256)
    theirs.post_recv(9, [])
    post(mine, WRITE_IMM, [near.sge(0, LONG)], wr_id=7, va=far.va + LONG, rkey=far.key.rkey)
    assert [(done.wr_id, done.status) for done in near.poll(1)] == [(7, 0)]
    assert [done.wr_id for done in far.poll(1)] == [9]
    assert far.memory[LONG:] == near.memory[:LONG]
    # one wait in vain, not one for each burst: answers reset the wait and bring room back
    assert STALL_NS // 2 <= world.now - begin <= 2 * STALL_NS


def test_datagrams_go_on_beside_a_queue_pair_whose_peer_is_gone(world):
    near, far = End(world.add(1), 2 * LONG), End(world.add(2), 2 * LONG)
    fill(world, near, far)
    mine, theirs = near.qp(UD), far.qp(UD)
    for qp in mine, theirs:
        services.start_datagrams(qp, QKEY)
    theirs.post_recv(9, [far.sge(0, 256)])
    ah = near.device.create_ah(near.pd, services.Path(far.node.gid).vector())
    post(mine, 2, [near.sge(0, 100)], wr_id=7, ah=ah, qpn=theirs.number, qkey=QKEY)
    assert [(done.wr_id, done.status) for done in near.poll(1)] == [(7, 0)]
    assert [(done.wr_id, done.byte_len) for done in far.poll(1)] == [(9, 140)]


def test_a_host_that_is_gone_is_not_flooded(world):
    near, far = End(world.add(1), 2 * LONG), End(world.add(2), 2 * LONG)
    fill(world, near, far)
    mine, theirs = near.qp(), far.qp()
    connect((near, mine), (far, theirs), timeout=NEVER_TIMES_OUT)
    sent: list[int] = []
    world.tamper = lambda _: sent.append(world.now)
    post(mine, WRITE, [near.sge(0, LONG)], va=far.va, rkey=far.key.rkey)
    world.run(limit_ns=100 * MOST_STALL_NS)
    moments = sorted(set(sent))
    assert len(moments) >= 5
    assert min(after - before for before, after in itertools.pairwise(moments)) >= STALL_NS
    assert moments[-1] - moments[0] >= 5 * MOST_STALL_NS


def test_a_receiver_that_waits_for_a_processor_gets_single_packets(world):
    near, far = End(world.add(1), 2 * LONG), End(world.add(2), 2 * LONG)
    pairs = [(near.qp(), far.qp()) for _ in range(8)]
    for mine, theirs in pairs:
        connect((near, mine), (far, theirs), timeout=NEVER_TIMES_OUT)
    packets = world.record(SENT)
    world.tamper = lambda _: None
    for mine, _ in pairs:
        post(mine, WRITE, [near.sge(0, LONG)], va=far.va, rkey=far.key.rkey)
    world.run(limit_ns=15 * STALL_NS + STALL_NS // 2)  # four waits in vain: 1, 2, 4 and 8 times as long
    lengths = [len(sent.data) for sent in packets]
    assert sum(lengths[:-4]) > DEFAULT_LIMIT_BYTES // 2
    assert sum(lengths) <= DEFAULT_LIMIT_BYTES + 4 * PROBE_BYTES
    assert all(length <= PROBE_BYTES for length in lengths[-4:])


TOLD_TIMEOUT = 13
INTERVAL_NS = (4096 << TOLD_TIMEOUT) * 2
"""A requester's timer: twice the standard's T."""


def moments_of_ends(world: Network, near: End, pairs: list, limit_ns: int) -> dict[int, int]:
    """When each queue pair of ``pairs`` was told RETRY_EXC_ERR, in ns from now, by number."""
    told: dict[int, int] = {}
    begin = world.now

    def all_told() -> bool:
        for done in near.cq.poll(4096):
            assert done.status in (12, 5)  # flushed behind the first
            told.setdefault(done.qp_num, world.now - begin)
        return len(told) == len(pairs)

    world.run(all_told, limit_ns)
    return told


@pytest.mark.parametrize(
    ("kind", "length"), [(READ, 4096), (READ, 64), (WRITE, 4096), (WRITE, 64), (FETCH_ADD, 8)]
)
@pytest.mark.parametrize("count", [1, 96])
@pytest.mark.parametrize("retries", [0, 7])
def test_the_end_of_a_peer_with_many_connections_is_told_each_in_its_own_time(
    world, kind, length, count, retries
):
    near, far = End(world.add(1), 1 << 17, 1024), End(world.add(2), 1 << 17, 1024)
    pairs = []
    for _ in range(count):
        mine, theirs = near.qp(), far.qp()
        connect((near, mine), (far, theirs), timeout=TOLD_TIMEOUT, retry_cnt=retries)
        pairs.append(mine)
    world.tamper = lambda _: None
    for mine in pairs:
        for _ in range(4):
            post(mine, kind, [near.sge(0, length)], va=far.va, rkey=far.key.rkey)
    # as many intervals as there are tries, and one in which there was no room for the first
    told = moments_of_ends(world, near, pairs, (retries + 8) * INTERVAL_NS)
    assert len(told) == count
    assert min(told.values()) >= (retries + 1) * INTERVAL_NS
    assert max(told.values()) <= (retries + 2) * INTERVAL_NS + INTERVAL_NS // 64
    (window,) = near.node.adapter.port.windows.values()
    assert (window.in_flight_bytes, len(window.waiters), window.turn) == (0, 0, None)


def test_who_waits_behind_many_that_nobody_answers_is_not_ended(world):
    """The adapter lives, the queue pairs of one of its programs do not: others' go on."""
    near, far = End(world.add(1), 1 << 17, 1024), End(world.add(2), 1 << 17, 1024)
    gone = []
    for _ in range(96):
        mine, theirs = near.qp(), far.qp()
        connect((near, mine), (far, theirs), timeout=TOLD_TIMEOUT)
        theirs.destroy()
        gone.append(mine)
    alive, theirs = near.qp(), far.qp()
    connect((near, alive), (far, theirs), timeout=1, retry_cnt=1)  # 16 us, twice
    for mine in gone:
        for _ in range(4):
            post(mine, READ, [near.sge(0, 4096)], va=far.va, rkey=far.key.rkey)
    post(alive, READ, [near.sge(0, 64)], wr_id=7, va=far.va, rkey=far.key.rkey)
    done = near.poll(1)
    assert [(one.qp_num, one.wr_id, one.status) for one in done] == [(alive.number, 7, 0)]
    assert len(moments_of_ends(world, near, gone, 60 * INTERVAL_NS)) == len(gone)
