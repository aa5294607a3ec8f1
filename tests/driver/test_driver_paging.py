"""Pageable memory between drivers and engines in virtual time: swap, faults, moves, rights."""

import errno
import os
from types import SimpleNamespace

import pytest
from paged_pair import LENGTH, PATTERN, VA, Pair, fails

from softhca.driver import paging, services
from softhca.driver.errors import DriverError
from softhca.driver.paging import AttachedMemory, PageableMemory
from softhca.machine.primitives import load64
from softhca.memory import paged_layout as layout
from softhca.memory.bits import PAGE_BYTES
from softhca.memory.regions import LOCAL_WRITE, ON_DEMAND, REMOTE_READ
from softhca.queues import control_fields as control
from softhca.testing import RECEIVED
from softhca.testing.ends import ALL_RIGHTS, FETCH_ADD, QKEY, READ, SEND, UC, UD, WRITE, connect, post


@pytest.fixture
def pair():
    made = Pair()
    yield made
    made.close()


# Held by the arbitrator


STEPS = {
    "quiesce": (lambda memory: memory.quiesce(), lambda memory: memory.resume()),
    "swap": (lambda memory: memory.swap_out(), lambda memory: memory.swap_in()),
}


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("opcode", [WRITE, READ, SEND, FETCH_ADD])
def test_rc_waits_while_the_memory_is_held_and_loses_nothing(pair, step, opcode):
    stop, go_on = STEPS[step]
    pair.memory.write(0, PATTERN[::-1])
    stop(pair.memory)
    length = 8 if opcode == FETCH_ADD else LENGTH
    if opcode == SEND:
        pair.qps[1].post_recv(1, [(VA, LENGTH, pair.key.lkey)])
    source = 0 if opcode != READ else 1 << 15
    post(pair.qps[0], opcode, [pair.left.sge(source, length)], va=VA, rkey=pair.key.rkey, compare=1)
    pair.some_rounds()
    assert pair.left.cq.poll(1) == []
    go_on(pair.memory)
    assert pair.statuses() == [0]
    if opcode == READ:
        assert pair.left.memory[source : source + LENGTH] == PATTERN[::-1]
    elif opcode == FETCH_ADD:
        total = int.from_bytes(PATTERN[::-1][:8], "little") + 1
        assert pair.memory.read(0, 8) == total.to_bytes(8, "little")
    else:
        assert pair.memory.read(0, LENGTH) == PATTERN


@pytest.mark.parametrize("kind", [UC, UD])
def test_uc_and_ud_drop_what_is_held(kind):
    pair = Pair(kind)
    pair.qps[1].post_recv(1, [(VA, 1000, pair.key.lkey)])
    pair.memory.quiesce()
    vector = services.Path(pair.right.node.gid).vector()
    ah = pair.left.device.create_ah(pair.left.pd, vector) if kind == UD else 0

    def send():
        post(pair.qps[0], SEND, [pair.left.sge(0, 500)], ah=ah, qpn=pair.qps[1].number, qkey=QKEY)
        assert pair.statuses() == [0]
        pair.some_rounds()

    send()
    assert pair.right.cq.poll(1) == []
    pair.memory.resume()
    send()
    assert [c.status for c in pair.right.poll(1)] == [0]
    skipped = 40 if kind == UD else 0
    assert pair.memory.read(skipped, 500) == PATTERN[:500]
    pair.close()


def steps_under_traffic(pair, step, count=12):
    """Writes of changing bytes at every page, with a step at moments that fall into the middle of them."""
    for number in range(count):
        data = bytes((number + i) & 0xFF for i in range(LENGTH))
        pair.left.memory[:LENGTH] = data
        pair.write()
        for _ in range(number):
            if not pair.network.step():
                pair.network.advance(1_000_000)
        step(number)
        assert pair.statuses() == [0]
        assert pair.memory.read(0, LENGTH) == data


def test_swap_and_migration_under_traffic_lose_and_change_nothing(pair):
    frames = set()

    def step(number):
        if number % 3 == 0:
            pair.memory.swap_out()
            pair.some_rounds(400_000)
            pair.memory.swap_in()
        else:
            assert pair.memory.migrate() == 8
        frames.add(tuple(pair.word(layout.TABLE + 8 * page) for page in range(8)))

    steps_under_traffic(pair, step)
    assert len(frames) > 1


def test_the_mode_bit_stops_data_and_nothing_else(pair):
    device = pair.right.device
    assert device.set_data_access(False) is True
    assert device.set_data_access(False) is False
    pair.write(1000)
    pair.some_rounds()
    assert pair.left.cq.poll(1) == []
    assert pair.qps[1].query()["qp_state"] == 3, "commands go on"
    device.create_cq(4).destroy()
    other = pair.right.node.open()
    assert other.set_data_access(True) is True, "another device never stopped it, and cannot allow it either"
    pair.some_rounds(400_000)
    assert pair.left.cq.poll(1) == []
    assert device.set_data_access(True) is False
    assert pair.statuses() == [0]
    assert pair.memory.read(0, 1000) == PATTERN[:1000]


def test_a_device_that_goes_stops_data_access_no_longer(pair):
    other = pair.right.node.open()
    other.set_data_access(False)
    pair.write(1000)
    pair.some_rounds(400_000)
    assert pair.left.cq.poll(1) == []
    other.close()
    assert pair.statuses() == [0]


def test_data_access_is_allowed_or_not(pair):
    with fails(errno.EINVAL):
        pair.right.device.session.call(control.SET_DATA_ACCESS, allowed=2)


def test_a_migration_leaves_a_mode_bit_that_was_off_before(pair):
    pair.right.device.set_data_access(False)
    pair.memory.migrate()
    assert pair.right.device.set_data_access(True) is False


def test_a_migration_that_fails_allows_data_access_again(pair, monkeypatch):
    def refuses(*_):
        raise OSError(errno.ENOMEM, "no memory")

    pair.memory.write(0, b"data")
    monkeypatch.setattr(pair.memory._memory.frames, "reserve", refuses)
    with fails(errno.ENOMEM):
        pair.memory.migrate()
    pair.write(1000)
    assert pair.statuses() == [0]


# Rights


def test_both_adapters_keep_a_change_of_rights_when_it_is_reported(pair):
    other = pair.register(pair.left)
    pair.memory.set_rights(REMOTE_READ | LOCAL_WRITE)
    pair.write(1000)
    assert pair.statuses() == [10]
    qps = pair.right.qp(), pair.left.qp()
    connect((pair.right, qps[0]), (pair.left, qps[1]))
    post(qps[0], WRITE, [pair.right.sge(0, 100)], va=VA, rkey=other.rkey)
    assert [c.status for c in pair.right.poll(1)] == [10]
    assert pair.memory.read(0, 1000) == bytes(1000)


def test_a_message_under_way_ends_with_an_access_error(pair):
    seen = []

    def in_the_middle(datagram):
        if datagram.event == RECEIVED and datagram.target is pair.right.node and len(seen) < 4:
            seen.append(pair.memory.read(0, LENGTH))
            if len(seen) == 4:
                pair.memory.set_rights(LOCAL_WRITE)

    pair.network.observers.append(in_the_middle)
    pair.write()
    assert pair.statuses() == [10]
    assert seen[3] == PATTERN[: 3 * 1024] + bytes(LENGTH - 3 * 1024)
    assert pair.memory.read(0, LENGTH) == seen[3], "no byte changes afterwards"


def test_closing_the_memory_kills_its_keys(pair):
    pair.memory.close()
    pair.write(100)
    assert pair.statuses() == [10]
    pair.right.device.dereg_mr(pair.key.handle)


# On demand


@pytest.fixture
def lazy():
    made = Pair(rights=ALL_RIGHTS | ON_DEMAND)
    yield made
    made.close()


def test_absent_pages_are_told_to_the_host_and_come_with_the_owner_s_service(lazy):
    before = lazy.right.node.notifications
    lazy.write()
    lazy.some_rounds(400_000)
    assert lazy.left.cq.poll(1) == []
    assert lazy.right.node.notifications > before
    assert lazy.right.device.next_event(0) is None, "its own memory's faults are no event for a program"

    def served():
        lazy.memory.service()
        return lazy.left.cq.waiting() > 0

    assert lazy.network.run(served)
    assert lazy.statuses() == [0]
    assert lazy.memory.read(0, LENGTH) == PATTERN


def test_a_program_that_does_not_own_the_memory_is_told_of_faults(lazy):
    attached = AttachedMemory(lazy.memory.fd)
    device = lazy.right.device
    key = device.reg_paged(lazy.right.pd, attached, ALL_RIGHTS)
    post(lazy.qps[0], WRITE, [lazy.left.sge(0, 100)], va=5, rkey=key.rkey)
    assert device.next_event(1) == (control.EVENT_PAGE_FAULT, key.lkey)
    lazy.memory.service()
    assert lazy.statuses() == [0]
    assert attached.read(5, 100) == PATTERN[:100]
    device.dereg_mr(key.handle)
    attached.close()


def test_every_operation_brings_its_pages(lazy):
    qp, left, key = lazy.qps[0], lazy.left, lazy.key.rkey
    lazy.qps[1].post_recv(1, [(VA + 6 * PAGE_BYTES, 100, lazy.key.lkey)])
    post(qp, READ, [left.sge(40_000, 5000)], va=VA, rkey=key)
    post(qp, FETCH_ADD, [left.sge(50_000, 8)], va=VA + 4 * PAGE_BYTES, rkey=key, compare=9)
    post(qp, SEND, [left.sge(0, 100)])
    assert lazy.network.run(lambda: lazy.memory.service() < 0 or left.cq.waiting() >= 3)
    assert [c.status for c in left.poll(3)] == [0, 0, 0]
    assert lazy.memory.read(4 * PAGE_BYTES, 8) == (9).to_bytes(8, "little")
    assert lazy.memory.read(6 * PAGE_BYTES, 100) == PATTERN[:100]


def test_parts_swapped_out_under_traffic_come_back(lazy):
    lazy.memory.fetch()

    def step(number):
        lazy.memory.swap_out((number % 8) * PAGE_BYTES, 1)

    for number in range(8):
        data = bytes((number + i) & 0xFF for i in range(LENGTH))
        lazy.left.memory[:LENGTH] = data
        lazy.write()
        lazy.network.step()
        step(number)
        assert lazy.network.run(lambda: lazy.memory.service() < 0 or lazy.left.cq.waiting() > 0)
        assert lazy.statuses() == [0]
        assert lazy.memory.read(0, LENGTH) == data


def test_the_pager_brings_pages_by_itself():
    pair = Pair(rights=ALL_RIGHTS | ON_DEMAND)
    memory = PageableMemory(LENGTH, ALL_RIGHTS | ON_DEMAND)
    key = pair.right.device.reg_paged(pair.right.pd, memory, ALL_RIGHTS, VA)
    post(pair.qps[0], WRITE, [pair.left.sge(0, LENGTH)], va=VA, rkey=key.rkey)
    # Virtual time goes on as fast as it can, so that the requester's budget may end before the thread's turn:
    # each page is waited for before time goes on.
    done = []
    while not done:
        while load64(memory._memory.mapping.line(0) + layout.WANTED):
            os.sched_yield()
        if not pair.network.step():
            pair.network.advance()
        done = pair.left.cq.poll(1)
    assert done[0].status == 0
    assert memory.read(0, LENGTH) == PATTERN
    memory.close()
    assert memory._pager is not None
    assert not memory._pager.is_alive()
    pair.close()


# Ranges


def code_of(call, *arguments):
    with pytest.raises(DriverError) as refused:
        call(*arguments)
    return refused.value.errno


@pytest.fixture
def three_pages():
    """Memory whose pages are absent until somebody fetches them, and nobody does by itself."""
    memory = PageableMemory(3 * PAGE_BYTES, LOCAL_WRITE | ON_DEMAND, pager=False)
    yield memory
    memory.close()


@pytest.mark.parametrize(
    ("offset", "length", "count"),
    [
        (0, 1, 1), (0, PAGE_BYTES, 1), (PAGE_BYTES - 1, 1, 1), (PAGE_BYTES - 1, 2, 2), (1, PAGE_BYTES, 2),
        (PAGE_BYTES - 1, PAGE_BYTES + 2, 3), (PAGE_BYTES, None, 2), (3 * PAGE_BYTES - 1, None, 1),
        (0, None, 3),
    ],
)  # fmt: skip
def test_a_range_is_of_every_page_that_it_touches(three_pages, offset, length, count):
    assert three_pages.fetch(offset, length) == count
    assert three_pages.fetch(0) == 3 - count


@pytest.mark.parametrize(
    ("offset", "length"),
    [(0, 0), (-1, 1), (0, -1), (0, 3 * PAGE_BYTES + 1), (3 * PAGE_BYTES, 1), (3 * PAGE_BYTES, None)],
)
def test_a_range_that_is_none_or_not_in_the_memory_is_refused(three_pages, offset, length):
    assert code_of(three_pages.fetch, offset, length) == errno.EINVAL
    assert three_pages.fetch(0) == 3


def test_who_has_attached_memory_reaches_its_last_byte_and_no_further():
    memory = PageableMemory(2 * PAGE_BYTES, LOCAL_WRITE)
    attached = AttachedMemory(memory.fd)
    attached.write(2 * PAGE_BYTES - 2, b"xy")
    assert attached.read(2 * PAGE_BYTES - 1, 1) == b"y"
    assert len(attached.read(0, 2 * PAGE_BYTES)) == 2 * PAGE_BYTES
    for offset, length in ((-1, 1), (1, 2 * PAGE_BYTES), (2 * PAGE_BYTES, 1)):
        assert code_of(attached.read, offset, length) == errno.EINVAL
        assert code_of(attached.write, offset, bytes(length)) == errno.EINVAL
    memory.set_rights(REMOTE_READ)
    assert attached.read(2 * PAGE_BYTES - 2, 2) == b"xy"
    assert code_of(attached.write, 0, b"z") == errno.EACCES
    attached.close()
    assert code_of(attached.read, 0, 1) == errno.EINVAL
    memory.close()


def test_who_has_read_attached_memory_is_waited_for_no_more():
    memory = PageableMemory(PAGE_BYTES, LOCAL_WRITE, timeout_s=0.05)
    attached = AttachedMemory(memory.fd)
    attached.write(0, b"x")
    assert attached.read(0, 1) == b"x"
    memory.quiesce()
    assert attached.quiesced
    assert code_of(attached.read, 0, 1) == errno.EAGAIN
    memory.resume()
    assert attached.read(0, 1) == b"x"
    attached.close()
    memory.close()


def test_a_closed_memory_has_not_even_an_empty_range():
    memory = PageableMemory(PAGE_BYTES, LOCAL_WRITE)
    assert memory.read(PAGE_BYTES, 0) == b""
    memory.close()
    assert code_of(memory.read, 0, 0) == errno.EINVAL


def test_steps_are_the_owner_s_alone(monkeypatch):
    memory = PageableMemory(PAGE_BYTES, LOCAL_WRITE)
    own = os.getpid()
    with monkeypatch.context() as child:
        child.setattr(paging, "os", SimpleNamespace(getpid=lambda: own + 1))
        for step in (memory.quiesce, memory.resume, memory.swap_out, memory.swap_in, memory.service):
            assert code_of(step) == errno.EPERM
        memory.close()
    assert memory.state == "running"
    memory.close()


def test_what_is_swapped_out_is_counted_in_bytes():
    memory = PageableMemory(3 * PAGE_BYTES, LOCAL_WRITE)
    memory.write(0, bytes(range(1, 4)) * PAGE_BYTES)
    resident_bytes = memory.resident_bytes
    assert memory.swapped_bytes == 0
    memory.swap_out()
    assert (memory.swapped_bytes, resident_bytes - memory.resident_bytes) == (3 * PAGE_BYTES, 3 * PAGE_BYTES)
    memory.swap_in()
    assert (memory.swapped_bytes, memory.resident_bytes) == (0, resident_bytes)
    memory.close()


def test_what_is_no_pageable_memory_leaves_no_descriptor():
    other = os.memfd_create("other")
    before = os.listdir("/proc/self/fd")
    assert code_of(AttachedMemory, other) == errno.EINVAL
    assert os.listdir("/proc/self/fd") == before
    os.close(other)
