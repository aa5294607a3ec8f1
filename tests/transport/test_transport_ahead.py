"""What packets of one burst carry is read in one go where each access is a call of the operating system."""

from __future__ import annotations

import errno
import itertools
import mmap
import os
import random

import pytest

from softhca.machine import primitives
from softhca.memory.on_demand import OnDemandRegion
from softhca.memory.regions import LOCAL_WRITE, ON_DEMAND
from softhca.memory.tpt import TranslationTable
from softhca.queues import cqe, wqe
from softhca.testing.transport_node import PD
from softhca.testing.transport_pair import Faults
from softhca.transport import segmentation
from softhca.transport.uniform import UniformBursts

PMTU = 1024
LENGTH = 300 * PMTU + 5
DATA = random.Random(5).randbytes(LENGTH)
OPCODES = [wqe.RDMA_WRITE, wqe.SEND]
HELD = TranslationTable(1)
HELD.stopped = True


class Counting(OnDemandRegion):
    """``reads``: the lengths of all."""

    reads: list[int]

    def read(self, va, dst_address, n):
        self.reads.append(n)
        return super().read(va, dst_address, n)


def counted(end, address, length):
    """A region of this process's memory at the end's node; its element."""
    table = end.node.regions
    slot, key = table.take_slot()
    region = Counting(table, slot, os.getpid())
    region.reads = []
    region.pd, region.access, region.zero_based = PD, LOCAL_WRITE | ON_DEMAND, False
    region.va = region.address = address
    region.length, region.valid = length, True
    table.enter(region, key)
    return region, (address, length, region.key)


@pytest.fixture
def memory():
    """Pages that can be hidden, with `DATA` in them."""
    with mmap.mmap(-1, -(-LENGTH // mmap.PAGESIZE) * mmap.PAGESIZE) as made:
        made[:LENGTH] = DATA
        yield made


@pytest.mark.parametrize("opcode", OPCODES)
def test_a_burst_reads_once(pair, memory, opcode):
    p = pair(pmtu=PMTU)
    region, element = counted(p.left, primitives.address_of(memory), LENGTH)
    target = p.right.region(LENGTH)
    p.right.post_receive([target.sge()])
    p.left.post(opcode, [element], remote=target)
    p.run()
    assert target.data == DATA
    assert [each.status for each in p.left.sent()] == [0]
    bursts = sum(1 for way, packets, _ in p.bursts if way == "ab" and packets)
    assert len(region.reads) <= bursts + 1
    assert sum(region.reads) < 1.1 * LENGTH  # little is read in vain
    assert max(region.reads) > 32 * PMTU


def test_a_burst_of_packets_of_one_length_reads_once(pair, memory):
    """Its first packet is no longer than the others, and does not end the burst with the second."""
    p = pair(pmtu=PMTU, uniform=UniformBursts(write_bytes=32 * PMTU))
    region, element = counted(p.left, primitives.address_of(memory), LENGTH)
    target = p.right.region(LENGTH)
    p.left.post(wqe.RDMA_WRITE, [element], remote=target)
    p.run()
    region.reads.clear()
    p.left.post(wqe.RDMA_WRITE, [(element[0], 32 * PMTU, element[2])], remote=target)
    p.run()
    assert region.reads == [32 * PMTU]
    assert [each.status for each in p.left.sent()] == [0, 0]


def test_what_is_sent_again_is_read_again(pair, memory):
    p = pair(pmtu=PMTU, faults=Faults(loss=0.05, seed=3))
    _, element = counted(p.left, primitives.address_of(memory), LENGTH)
    target = p.right.region(LENGTH)
    p.left.post(wqe.RDMA_WRITE, [element], remote=target)
    p.run()
    assert target.data == DATA
    assert p.left.qp.counters.retransmissions


@pytest.mark.parametrize("opcode", OPCODES)
@pytest.mark.parametrize("hidden", [0, 1, 7, 40])
def test_packets_before_what_is_not_mapped_are_sent(pair, memory, opcode, hidden):
    p = pair(pmtu=PMTU)
    address = primitives.address_of(memory)
    _, element = counted(p.left, address, LENGTH)
    target = p.right.region(LENGTH)
    p.right.post_receive([target.sge()])
    primitives.hide_pages(address + hidden * mmap.PAGESIZE, mmap.PAGESIZE)
    p.left.post(opcode, [element], remote=target)
    p.run()
    assert [each.status for each in p.left.sent()] == [cqe.WC_LOC_PROT_ERR]
    there = hidden * mmap.PAGESIZE
    assert target.data == DATA[:there] + bytes(LENGTH - there)
    assert primitives.map_private(address + hidden * mmap.PAGESIZE, mmap.PAGESIZE, -1, 0) == -errno.EBADF


def test_what_is_held_is_waited_for(pair, memory):
    p = pair(pmtu=PMTU)
    region, element = counted(p.left, primitives.address_of(memory), LENGTH)
    target = p.right.region(LENGTH)
    mine, region.tpt = region.tpt, HELD

    def lift():
        region.tpt = mine

    p.after(1_000_000, lift)
    p.left.post(wqe.RDMA_WRITE, [element], remote=target)
    p.run()
    assert target.data == DATA
    assert [each.status for each in p.left.sent()] == [0]


def test_elements_are_read_across(pair, memory):
    """The message is scattered; what is read ahead goes over the ends of its elements."""
    p = pair(pmtu=PMTU)
    address = primitives.address_of(memory)
    region, _ = counted(p.left, address, LENGTH)
    cuts = [0, 10_001, 10_002, LENGTH]
    elements = [(address + a, b - a, region.key) for a, b in itertools.pairwise(cuts)]
    target = p.right.region(LENGTH)
    p.left.post(wqe.RDMA_WRITE, elements, remote=target)
    p.run()
    assert target.data == DATA


def test_buffers_are_used_again(pair, memory):
    before = len(segmentation._ahead_buffers)
    p = pair(pmtu=PMTU, qps=2)
    for left, right in zip(p.lefts, p.rights, strict=True):
        _, element = counted(left, primitives.address_of(memory), LENGTH)
        target = right.region(LENGTH)
        left.post(wqe.RDMA_WRITE, [element], remote=target)
    p.run()
    assert 1 <= len(segmentation._ahead_buffers) <= before + 1


def test_what_was_read_for_one_message_is_not_the_next_one_s(pair, memory):
    p = pair(pmtu=PMTU)
    address = primitives.address_of(memory)
    region, _ = counted(p.left, address, LENGTH)
    target = p.right.region(20 * PMTU)
    p.left.post(wqe.RDMA_WRITE, [(address, 2 * PMTU, region.key)], remote=target)
    p.left.post(wqe.RDMA_WRITE, [(address + 9 * PMTU, PMTU, region.key)], remote=target, offset=3 * PMTU)
    p.run()
    assert target.data[: 2 * PMTU] == DATA[: 2 * PMTU]
    assert target.data[3 * PMTU : 4 * PMTU] == DATA[9 * PMTU : 10 * PMTU]
