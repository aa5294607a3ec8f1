"""Queues of a parent domain, in memory that the program's own allocators give."""

import errno
import gc
import mmap
from pathlib import Path

import pytest

from softhca.driver import lent_rings
from softhca.machine.primitives import address_of
from softhca.testing import Network
from softhca.testing.verbs import ALL_ACCESS
from softhca.verbs import enums as e
from softhca.verbs.addr import AHAttr, GlobalRoute
from softhca.verbs.cq import CQ, CQEX, CqInitAttrEx
from softhca.verbs.mr import MR
from softhca.verbs.pd import PD, ParentDomain, ParentDomainContext, ParentDomainInitAttr, _Allocator
from softhca.verbs.pyverbs_error import PyverbsRDMAError
from softhca.verbs.qp import QP, QPAttr, QPCap, QPInitAttr
from softhca.verbs.srq import SRQ, SrqAttr, SrqInitAttr
from softhca.verbs.wr import SGE, RecvWR, SendWR

USE_DEFAULT = e._IBV_ALLOCATOR_USE_DEFAULT
PAGE = 4096


class Heap:
    """Allocators that keep account: what is out, by address."""

    def __init__(self, answer=None) -> None:
        self.answer = answer
        self.out: dict[int, mmap.mmap] = {}
        self.calls: list[tuple[int, int, int]] = []
        self.freed: list[tuple[int, int]] = []

    def allocate(self, pd, context, size, alignment, resource_type):
        assert (pd, context) == (self.pd, self.context)
        self.calls.append((size, alignment, resource_type))
        if self.answer is not None:
            return self.answer(size) if callable(self.answer) else self.answer
        memory = mmap.mmap(-1, size)
        memory.write(b"\xaa" * size)  # as what was there before
        address = address_of(memory)
        self.out[address] = memory
        return address

    def free(self, pd, context, address, resource_type):
        assert (pd, context) == (self.pd, self.context)
        self.freed.append((address, resource_type))
        self.out.pop(address, None)

    def domain(self, pd):
        self.pd, self.context = pd, ParentDomainContext(pd, self.allocate, self.free, "own")
        return ParentDomain(pd.ctx, ParentDomainInitAttr(pd, self.context))


@pytest.fixture
def ctx(verbs_pair):
    return verbs_pair.client


@pytest.fixture
def pd(ctx):
    with PD(ctx) as made:
        yield made


def mapped_at(memory: mmap.mmap) -> str:
    """The file of which pages are mapped where a mapping of this process begins."""
    address = address_of(memory)
    for line in Path("/proc/self/maps").read_text().splitlines():
        begin, end = (int(word, 16) for word in line.split()[0].split("-"))
        if begin <= address < end:
            return line[73:]
    raise AssertionError(address)


def cq_attributes(parent, cqe=8):
    return CqInitAttrEx(cqe=cqe, parent_domain=parent, comp_mask=e.IBV_CQ_INIT_ATTR_MASK_PD)


def queue_pair(parent, cq, srq=None):
    cap = QPCap(max_send_wr=4, max_recv_wr=4, max_send_sge=1, max_recv_sge=1)
    return QP(parent, QPInitAttr(e.IBV_QPT_RC, scq=cq, rcq=cq, srq=srq, cap=cap))


def test_queues_stand_where_the_allocators_say_and_carry_messages(ctx, pd) -> None:
    heap = Heap()
    parent = heap.domain(pd)
    cq = CQEX(ctx, cq_attributes(parent))
    srq = SRQ(parent, SrqInitAttr(SrqAttr(max_wr=4, max_sge=1)))
    qp = queue_pair(parent, cq, srq)
    kinds = [kind for _, _, kind in heap.calls]
    assert kinds == [5, 4, 1]
    assert all(size % PAGE == 0 and alignment == PAGE for size, alignment, _ in heap.calls)
    attr = QPAttr(port_num=1)
    attr.qp_access_flags, attr.dest_qp_num, attr.path_mtu = ALL_ACCESS, qp.qp_num, 3
    attr.timeout, attr.retry_cnt, attr.rnr_retry, attr.min_rnr_timer = 14, 7, 7, 1
    attr.max_rd_atomic = attr.max_dest_rd_atomic = 1
    attr.ah_attr = AHAttr(is_global=1, port_num=1, gr=GlobalRoute(dgid=ctx.query_gid(1, 0), sgid_index=0))
    qp.to_rts(attr)
    mr = MR(parent, 64, ALL_ACCESS)
    for number in range(10):  # round the rings
        mr.write(b"message %d" % number, 9)
        srq.post_recv(RecvWR(1, 1, [SGE(mr.buf + 32, 9, mr.lkey)]))
        qp.post_send(SendWR(2, num_sge=1, sg=[SGE(mr.buf, 9, mr.lkey)]))
        for _ in range(2):
            while cq.start_poll():
                ctx.progress()
            assert cq.status == e.IBV_WC_SUCCESS
            cq.end_poll()
        assert mr.read(9, 32) == b"message %d" % number
    assert all(any(byte != 0 for byte in memory[:PAGE]) for memory in heap.out.values())  # their counters
    for each in (qp, srq, cq):
        each.close()
    assert not heap.out
    assert sorted(kind for _, kind in heap.freed) == sorted(kinds)


def test_memory_is_the_programs_own_again_when_its_queue_is_closed(ctx, pd) -> None:
    """What the adapter's pages replaced for a while; where the adapter is embedded, nothing did."""
    heap = Heap()
    channel = ctx.driver.session.channel
    free_pages = channel.memory.free_pages
    with heap.domain(pd) as parent, CQEX(ctx, cq_attributes(parent)):
        (memory,) = heap.out.values()
        assert ("softhca" in mapped_at(memory)) is not channel.shares_addresses
        assert (channel.memory.free_pages < free_pages) is not channel.shares_addresses
    assert "memfd:softhca " not in mapped_at(memory)
    assert channel.memory.free_pages == free_pages
    memory[:PAGE] = bytes(range(256)) * 16
    with CQEX(ctx, CqInitAttrEx(cqe=8)):
        assert memory[:PAGE] == bytes(range(256)) * 16


def test_memory_whose_pages_cannot_be_replaced_is_kept_and_not_used(ctx, pd, monkeypatch) -> None:
    """Huge pages: an adapter of this process uses them all the same."""
    monkeypatch.setattr(lent_rings, "map_pages", lambda *words: -errno.EINVAL)
    heap = Heap()
    with heap.domain(pd) as parent, CQEX(ctx, cq_attributes(parent)) as cq:
        assert cq.start_poll() == errno.ENOENT
        (memory,) = heap.out.values()
        used = ctx.driver.session.channel.shares_addresses
        assert (memory[1:PAGE] == b"\xaa" * (PAGE - 1)) is not used  # its first byte was tried
    assert not heap.out


def test_a_queue_that_is_resized_moves_to_another_allocation(ctx, pd) -> None:
    heap = Heap()
    with heap.domain(pd) as parent, CQEX(ctx, cq_attributes(parent)) as cq:
        before = set(heap.out)
        cq.resize(1000)
        assert len(heap.out) == len(before)
        assert not before & set(heap.out)
    assert not heap.out


def test_allocators_may_leave_it_to_the_device(ctx, pd) -> None:
    heap = Heap(USE_DEFAULT)
    with heap.domain(pd) as parent, CQEX(ctx, cq_attributes(parent)) as cq, queue_pair(parent, cq):
        assert len(heap.calls) == 3
    assert not heap.freed  # it has given nothing


@pytest.mark.parametrize(("answer", "code"), [
    (0, errno.ENOMEM), (None, errno.ENOMEM), ("no number", errno.ENOMEM), (-5, errno.ENOMEM),
    (PAGE + 8, errno.EINVAL), (USE_DEFAULT - 1, errno.EINVAL), (PAGE, errno.EINVAL),
], ids=str)  # fmt: skip
def test_what_an_allocator_cannot_give_fails_the_creation_alone(ctx, pd, answer, code) -> None:
    heap = Heap(lambda size: answer)
    with heap.domain(pd) as parent, CQ(ctx, 8) as cq:
        for make in (
            lambda: CQEX(ctx, cq_attributes(parent)),
            lambda: queue_pair(parent, cq),
            lambda: SRQ(parent, SrqInitAttr(SrqAttr(max_wr=4, max_sge=1))),
        ):
            with pytest.raises(PyverbsRDMAError) as caught:
                make()
            assert caught.value.error_code == code
        assert len(heap.freed) == (0 if code == errno.ENOMEM else 3)  # what it gave is given back
        with queue_pair(pd, cq):  # nothing else has changed
            pass


def test_an_allocator_that_raises_has_no_memory_and_is_told_of(ctx, pd, caplog) -> None:

    def fails(size):
        raise KeyError(size)

    with Heap(fails).domain(pd) as parent, pytest.raises(PyverbsRDMAError) as caught:
        CQEX(ctx, cq_attributes(parent))
    assert caught.value.error_code == errno.ENOMEM
    assert "KeyError" in caplog.text


def test_a_refused_creation_gives_its_memory_back(ctx, pd) -> None:
    heap = Heap()
    with heap.domain(pd) as parent, CQ(ctx, 8) as cq, CQ(ctx, 8) as other:
        parents_number, parent._number = parent._number, 4711
        with pytest.raises(PyverbsRDMAError):
            queue_pair(parent, cq)
        parent._number = parents_number
        assert not heap.out
        assert len(heap.freed) == len(heap.calls)
        other.close()


def test_closing_the_domain_closes_its_queues_and_frees_their_memory(ctx, pd) -> None:
    heap = Heap()
    parent = heap.domain(pd)
    cq = CQEX(ctx, cq_attributes(parent))
    queue_pair(parent, CQ(ctx, 8))
    pd.close()
    assert not heap.out
    with pytest.raises(Exception, match="closed"):
        cq.start_poll()


def test_a_queue_keeps_the_parent_domain_that_it_was_made_on(ctx, pd) -> None:
    heap = Heap()
    cq = CQEX(ctx, cq_attributes(heap.domain(pd)))
    gc.collect()
    assert cq.start_poll() == errno.ENOENT
    assert len(heap.out) == 1
    cq.close()
    assert not heap.out


def test_memory_that_a_closed_device_leaves_is_freed_with_its_last_handle() -> None:
    with Network() as network:
        device = network.add().open()
        heap = Heap()
        heap.pd = None
        heap.context = ParentDomainContext(None, heap.allocate, heap.free)
        handle = device.create_cq(8, allocator=_Allocator(heap.context))
        device.close()
        gc.collect()
        assert len(heap.out) == 1  # the handle may still look at it
        del handle, device
    del network
    gc.collect()
    assert not heap.out
