"""A peer that is gone holds up nobody else: what it leaves unanswered does not fill the window for ever."""

from __future__ import annotations

import itertools

import pytest
from adapter_world import QKEY, RC, UC, UD, WRITE, WRITE_IMM, End, World, join, post

from softhca.driver import services
from softhca.transport.window import DEFAULT_MAXIMUM_BYTES, MOST_PATIENCE_NS, PATIENCE_NS

LONG = 1 << 19
NEVER_TIMES_OUT = 0


@pytest.fixture
def world():
    world = World()
    yield world
    world.close()


def fill(world: World, near: End, far: End) -> None:
    """A queue pair without time-out that writes much to one that is gone: the window is full, for ever."""
    lost, gone = near.qp(), far.qp()
    join((near, lost), (far, gone), timeout=NEVER_TIMES_OUT)
    gone.destroy()
    post(lost, WRITE, [near.sge(0, LONG)], va=far.va, rkey=far.key.rkey)
    world.run(limit_ns=PATIENCE_NS // 2)
    assert sum(len(data) for _, data in world.sent) >= DEFAULT_MAXIMUM_BYTES // 2


@pytest.mark.parametrize("kind", [RC, UC])
def test_others_go_on_beside_a_queue_pair_whose_peer_is_gone(world, kind):
    near, far = End(world.add(1), 2 * LONG), End(world.add(2), 2 * LONG)
    fill(world, near, far)
    begin = world.now
    mine, theirs = near.qp(kind), far.qp(kind)
    join((near, mine), (far, theirs), kind, **({"timeout": 20} if kind == RC else {}))
    near.memory[:LONG] = bytes(range(256)) * (LONG // 256)
    theirs.post_recv(9, [])
    post(mine, WRITE_IMM, [near.sge(0, LONG)], wr_id=7, va=far.va + LONG, rkey=far.key.rkey)
    assert [(done.wr_id, done.status) for done in near.poll(1)] == [(7, 0)]
    assert [done.wr_id for done in far.poll(1)] == [9]
    assert far.memory[LONG:] == near.memory[:LONG]
    # one wait in vain, not one for each burst: answers bring patience and room back
    assert PATIENCE_NS // 2 <= world.now - begin <= 2 * PATIENCE_NS


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
    join((near, mine), (far, theirs), timeout=NEVER_TIMES_OUT)
    sent: list[int] = []
    world.tamper = lambda data: sent.append(world.now)
    post(mine, WRITE, [near.sge(0, LONG)], va=far.va, rkey=far.key.rkey)
    world.run(limit_ns=100 * MOST_PATIENCE_NS)
    moments = sorted(set(sent))
    assert len(moments) >= 5
    assert min(after - before for before, after in itertools.pairwise(moments)) >= PATIENCE_NS
    assert moments[-1] - moments[0] >= 5 * MOST_PATIENCE_NS
