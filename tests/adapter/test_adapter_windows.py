"""The windows that a region counts, at the adapter: every way in which one is bound and unbound."""

import errno

import pytest

from softhca.adapter.config import AdapterConfig
from softhca.adapter.resources import Kind
from softhca.driver.errors import DriverError
from softhca.memory.regions import MW_BIND
from softhca.queues import wqe
from softhca.queues.cqe import WC_MW_BIND_ERR, WC_REM_ACCESS_ERR, WC_WR_FLUSH_ERR
from softhca.testing.ends import (
    ALL_RIGHTS,
    LOCAL_WRITE,
    REMOTE_READ,
    REMOTE_WRITE,
    WRITE,
    End,
    connect,
    pair,
    post,
)
from softhca.testing.network import Network

RIGHTS = REMOTE_WRITE | REMOTE_READ
VA = 0x70000


class Bound:
    """A window of ``kind`` of the right end, bound to a region of its own kind of rights."""

    def __init__(self, right, qp, kind):
        self.end, self.qp = right, qp
        self.device = right.device
        self.memory = bytearray(1 << 14)
        self.region = self.device.reg_mr(
            right.pd, 0, len(self.memory), LOCAL_WRITE | MW_BIND, iova=VA, buffer=self.memory
        )
        self.number, self.rkey = self.device.alloc_mw(right.pd, kind)
        assert self.bind() == 0

    def bind(self, length=64, qp=None, region=None, va=VA):
        """Post a bind; its status."""
        self.rkey = self.rkey & ~0xFF | (self.rkey + 1) & 0xFF
        lkey = (region or self.region).lkey
        qp = qp or self.qp
        post(
            qp, wqe.BIND_MW, [], va=va, rkey=self.number, imm=self.rkey, compare=length,
            swap=RIGHTS << 32 | lkey,
        )  # fmt: skip
        return self.status()

    def invalidate(self, qp=None):
        post(qp or self.qp, wqe.LOCAL_INV, [], imm=self.rkey)
        return self.status()

    def status(self):
        return self.end.poll(1)[0].status

    def may_go(self):
        """Whether the region can be deregistered, which it then is."""
        try:
            self.device.dereg_mr(self.region.handle)
        except DriverError as refused:
            if refused.errno != errno.EBUSY:
                raise
            return False
        return True


def rebind_elsewhere(bound, left, left_qp):
    other = bytearray(4096)
    region = bound.device.reg_mr(bound.end.pd, 0, 4096, LOCAL_WRITE | MW_BIND, iova=VA, buffer=other)
    assert bound.bind(region=region) == 0


def send_with_invalidate(bound, left, left_qp):
    bound.qp.post_recv(1, [bound.end.sge(0, 8)])
    post(left_qp, wqe.SEND_WITH_INV, [], imm=bound.rkey)
    assert left.poll(1)[0].status == 0
    assert bound.status() == 0


WAYS = {
    "rebind": (1, rebind_elsewhere),
    "zero-length": (1, lambda bound, left, qp: bound.bind(length=0)),
    "dealloc-1": (1, lambda bound, left, qp: bound.device.dealloc_mw(bound.number)),
    "dealloc-2": (2, lambda bound, left, qp: bound.device.dealloc_mw(bound.number)),
    "local-invalidate": (2, lambda bound, left, qp: bound.invalidate()),
    "send-with-invalidate": (2, send_with_invalidate),
    "queue-pair-destroyed": (2, lambda bound, left, qp: bound.qp.destroy()),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_region_is_busy_from_bind_to_the_end_of_the_binding(way):
    kind, unbind = WAYS[way]
    world, left, left_qp, right, right_qp = pair()
    bound = Bound(right, right_qp, kind)
    assert not bound.may_go()
    with pytest.raises(DriverError) as refused:
        bound.device.rereg_mr(bound.region.handle, 4, right.pd, 0, 0, LOCAL_WRITE)
    assert refused.value.errno == errno.EBUSY
    post(left_qp, WRITE, [left.sge(0, 64)], va=VA, rkey=bound.rkey)
    assert left.poll(1)[0].status == 0
    key = bound.rkey
    unbind(bound, left, left_qp)
    assert bound.may_go()
    if way != "queue-pair-destroyed":
        post(left_qp, WRITE, [left.sge(0, 64)], va=VA, rkey=key)
        assert left.poll(1)[0].status == WC_REM_ACCESS_ERR
        assert right.node.adapter.port_counters()["transport_key_refusals"] == 1
    world.close()


def test_a_window_of_type_1_outlives_the_queue_pair_that_bound_it():
    world, left, left_qp, right, _ = pair()
    other_left, other_right = left.qp(), right.qp()
    connect((left, other_left), (right, other_right))
    bound = Bound(right, other_right, 1)
    other_right.destroy()
    assert not bound.may_go()
    post(left_qp, WRITE, [left.sge(0, 64)], va=VA, rkey=bound.rkey)
    assert left.poll(1)[0].status == 0
    world.close()


def test_a_queue_pair_in_error_or_reset_keeps_its_windows_bound():
    world, _, _, right, right_qp = pair()
    bound = Bound(right, right_qp, 2)
    right_qp.modify({"qp_state": 6})
    right_qp.modify({"qp_state": 0})
    assert not bound.may_go()
    right_qp.destroy()
    assert bound.may_go()
    world.close()


def test_a_domain_stays_while_it_has_windows():
    world = Network()
    end = End(world.add(1))
    pd = end.device.alloc_pd()
    window, _ = end.device.alloc_mw(pd, 1)
    fast, _ = end.device.alloc_fast_mr(pd, 1)
    for _ in range(2):
        with pytest.raises(DriverError) as refused:
            end.device.dealloc_pd(pd)
        assert refused.value.errno == errno.EBUSY
        if window:
            end.device.dealloc_mw(window)
            window = 0
    end.device.dereg_fast_mr(fast)
    end.device.dealloc_pd(pd)
    world.close()


def test_a_host_that_goes_leaves_no_window_bound():
    world, _, _, right, right_qp = pair()
    for kind in (1, 2):
        Bound(right, right_qp, kind)
    right.device.alloc_fast_mr(right.pd, 3)
    adapter = right.node.adapter
    regions = [resource.element for resource in adapter.resources.owned(right.node.hosts[0])
               if resource.kind is Kind.MR]
    assert sorted(region.bound_windows for region in regions) == [0, 1, 1]
    right.device.close()
    assert not any(adapter.resources.count(kind) for kind in Kind)
    assert [region.bound_windows for region in regions] == [0, 0, 0]
    assert len(adapter.regions) == 0
    assert not adapter.memory_windows.members
    world.close()


def test_windows_of_another_host_or_another_kind_are_none():
    world, _, _, right, right_qp = pair()
    bound = Bound(right, right_qp, 2)
    fast, _ = right.device.alloc_fast_mr(right.pd, 3)
    other = End(right.node)
    other_qp = other.qp()
    connect((other, other_qp), (other, other.qp()))
    for device, call, number in (
        (other.device, "dealloc_mw", bound.number), (other.device, "dereg_fast_mr", fast),
        (right.device, "dealloc_mw", fast), (right.device, "dereg_fast_mr", bound.number),
        (right.device, "dealloc_mw", 0), (right.device, "dealloc_mw", 0xFFFFFFFF),
    ):  # fmt: skip
        with pytest.raises(DriverError) as refused:
            getattr(device, call)(number)
        assert refused.value.errno == errno.EINVAL
    for pd, code in ((right.pd, errno.EINVAL), (999, errno.EINVAL)):
        with pytest.raises(DriverError) as refused:
            other.device.alloc_mw(pd, 1)
        assert refused.value.errno == code
    # another host's queue pair binds it no more than it may end it (C10-72)
    post(other_qp, wqe.BIND_MW, [], va=VA, rkey=bound.number, imm=3, compare=8, swap=bound.region.lkey)
    assert other.poll(1)[0].status == WC_MW_BIND_ERR
    assert not bound.may_go()
    world.close()


def test_a_second_invalidation_is_refused_and_the_rest_flushed():
    world, _, _, right, right_qp = pair()
    bound = Bound(right, right_qp, 2)
    assert bound.invalidate() == 0
    post(right_qp, wqe.LOCAL_INV, [], imm=bound.rkey, wr_id=1, ring=False)
    post(right_qp, wqe.LOCAL_INV, [], imm=bound.rkey, wr_id=2)
    assert [done.status for done in right.poll(2)] == [WC_MW_BIND_ERR, WC_WR_FLUSH_ERR]
    assert bound.may_go()
    world.close()


def test_limits_and_what_the_device_says():
    world = Network()
    end = End(world.add(1, max_mw=2, max_mr=2, max_fast_pages=4))
    attributes = end.device.query_device()
    assert attributes["max_mw"] == 2
    caps = attributes["device_cap_flags"] & (1 << 17 | 1 << 21 | 1 << 23 | 1 << 24)
    assert caps == 1 << 17 | 1 << 21 | 1 << 24
    windows = [end.device.alloc_mw(end.pd, kind)[0] for kind in (1, 2)]
    for call, code in (
        (lambda: end.device.alloc_mw(end.pd, 1), errno.ENOMEM),
        (lambda: end.device.alloc_fast_mr(end.pd, 5), errno.EINVAL),
        (lambda: end.device.alloc_fast_mr(end.pd, 0), errno.EINVAL),
    ):
        with pytest.raises(DriverError) as refused:
            call()
        assert refused.value.errno == code
    fast, _ = end.device.alloc_fast_mr(end.pd, 4)
    for call in (lambda: end.device.alloc_fast_mr(end.pd, 1),
                 lambda: end.device.reg_mr(end.pd, 0, 64, ALL_RIGHTS, buffer=bytearray(64))):
        with pytest.raises(DriverError) as refused:
            call()
        assert refused.value.errno == errno.ENOMEM
    end.device.dealloc_mw(windows[0])
    with pytest.raises(DriverError) as refused:
        end.device.alloc_mw(end.pd, 3)
    assert refused.value.errno == errno.EINVAL
    end.device.dereg_fast_mr(fast)
    assert len(end.node.adapter.regions) == 2
    other = End(world.add(2, type_2="2A"))
    assert other.device.query_device()["device_cap_flags"] & (1 << 23 | 1 << 24) == 1 << 23
    with pytest.raises(ValueError, match="2C"):
        AdapterConfig((end.node.gid,), type_2="2C")
    world.close()
