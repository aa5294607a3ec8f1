"""Pageable memory of programs: what is registered and refused, who owns and who attached it, and its end."""

import contextlib
import errno
import gc
import os
import socket
import subprocess
import sys

import pytest
from paged_pair import LENGTH, PATTERN, VA, Pair, fails

from machine_speed import limit_s
from softhca.driver import paging
from softhca.driver.errors import DriverError
from softhca.driver.paging import AttachedMemory, PageableMemory
from softhca.machine.primitives import address_of, load64
from softhca.memory import paged_layout as layout
from softhca.memory.bits import PAGE_BYTES
from softhca.memory.regions import LOCAL_WRITE, MW_BIND, ON_DEMAND, REMOTE_READ, REMOTE_WRITE
from softhca.queues import control_fields as control
from softhca.testing.ends import ALL_RIGHTS, COMPARE_SWAP, FETCH_ADD, READ, SEND, WRITE, End, post
from softhca.testing.network import Network


@pytest.fixture
def pair():
    made = Pair()
    yield made
    made.close()


# Registration


def test_peers_write_read_and_change_atomically_what_the_owner_sees(pair):
    pair.write()
    assert pair.statuses() == [0]
    assert pair.memory.read(0, LENGTH) == PATTERN
    pair.memory.write(PAGE_BYTES, (40).to_bytes(8, "little"))
    qp, left = pair.qps[0], pair.left
    post(qp, READ, [left.sge(40_000, 5000)], va=VA + 100, rkey=pair.key.rkey)
    post(qp, FETCH_ADD, [left.sge(50_000, 8)], va=VA + PAGE_BYTES, rkey=pair.key.rkey, compare=2)
    post(qp, COMPARE_SWAP, [left.sge(50_008, 8)], va=VA + PAGE_BYTES, rkey=pair.key.rkey, compare=42, swap=7)
    assert pair.statuses(3) == [0, 0, 0]
    assert left.memory[40_000:43_000] == PATTERN[100:3100]
    assert left.memory[50_000:50_016] == (40).to_bytes(8, "little") + (42).to_bytes(8, "little")
    assert pair.memory.read(PAGE_BYTES, 8) == (7).to_bytes(8, "little")


def test_its_own_device_sends_and_receives_from_it(pair):
    right, qp = pair.right, pair.qps[1]
    pair.memory.write(0, PATTERN)
    post(qp, WRITE, [(VA + 5, 9000, pair.key.lkey)], va=pair.left.va + 20_000, rkey=pair.left.key.rkey)
    assert [c.status for c in right.poll(1)] == [0]
    assert pair.left.memory[20_000:29_000] == PATTERN[5:9005]
    qp.post_recv(1, [(VA + 3 * PAGE_BYTES - 7, 6000, pair.key.lkey)])
    post(pair.qps[0], SEND, [pair.left.sge(0, 6000)])
    assert [c.status for c in right.poll(1)] == [0]
    assert pair.memory.read(3 * PAGE_BYTES - 7, 6000) == PATTERN[:6000]


@pytest.mark.parametrize(("access", "code"), [
    (REMOTE_WRITE, errno.EINVAL), (ALL_RIGHTS | MW_BIND, errno.EOPNOTSUPP), (1 << 9, errno.EINVAL)])
def test_a_registration_that_cannot_be_changes_nothing(pair, access, code):
    with fails(code):
        pair.register(pair.right, access)
    with fails(errno.EINVAL):
        pair.right.device.reg_paged(pair.right.pd + 99, pair.memory, ALL_RIGHTS)
    pair.write(100)
    assert pair.statuses() == [0]


def test_fast_regions_take_the_room_of_pageable_ones():
    world = Network()
    end = End(world.add(1, max_mr=2))
    memory = PageableMemory(LENGTH, ALL_RIGHTS, pager=False)
    fast, _ = end.device.alloc_fast_mr(end.pd, 1)
    with fails(errno.ENOMEM):
        end.device.reg_paged(end.pd, memory, ALL_RIGHTS)
    end.device.dereg_fast_mr(fast)
    end.device.reg_paged(end.pd, memory, ALL_RIGHTS)
    world.close()
    memory.close()


@pytest.mark.parametrize(("most", "code"), [(LENGTH, 0), (LENGTH - 1, errno.EINVAL)])
def test_pageable_memory_is_as_long_as_a_region_may_be(most, code):
    world = Network()
    device = world.add(1, max_mr_size_bytes=most).open()
    memory = PageableMemory(LENGTH, ALL_RIGHTS, pager=False)
    pd = device.alloc_pd()
    if code:
        with fails(code):
            device.reg_paged(pd, memory, ALL_RIGHTS)
        device.dealloc_pd(pd)
    else:
        device.reg_paged(pd, memory, ALL_RIGHTS)
    world.close()
    memory.close()


def test_a_device_that_goes_during_a_migration_leaves_no_other_one_stopped():
    stopped: list[object] = []

    class Device:
        alive = True

        def set_data_access(self, allowed):
            if not allowed:
                stopped.append(self)
            elif self is stopped[0]:
                raise DriverError(errno.EIO, "the adapter process has ended")
            else:
                self.alive = "again"
            return True

        def progress(self):
            """Nothing to do."""

    memory = PageableMemory(LENGTH, ALL_RIGHTS, pager=False)
    devices = [Device(), Device(), Device()]
    for device in devices:
        memory.used_by(device, 1)
    assert memory.migrate() == LENGTH // PAGE_BYTES
    assert sorted(map(str, (device.alive for device in devices))) == ["True", "again", "again"]
    memory.close()


def test_the_pager_tells_of_trouble_once_until_it_is_over(monkeypatch, caplog):
    class Memory:
        """The owner's memory and the shared one in one; ``True``: pages cannot be brought."""

        state, closing = "running", False

        def __init__(self):
            self.trouble = [True, True, True, False, True, True]

        def service(self):
            if not self.trouble:
                self.closing = True
            elif self.trouble.pop(0):
                raise DriverError(errno.ENOMEM, "no frames")

        def requests(self):
            return 0

        def wait_request(self, requests, timeout_ns):
            """Asked for at once."""

    monkeypatch.setattr(paging, "FAILED_WAIT_S", 0)
    memory = Memory()
    paging._serve(lambda: memory, memory)
    assert memory.trouble == []
    assert [record.getMessage() for record in caplog.records] == ["pages could not be fetched: no frames"] * 2


def test_memory_whose_close_was_interrupted_is_closed_by_the_next_one(monkeypatch):
    """By a signal handler that raises while the pager is waited for."""
    memory = PageableMemory(PAGE_BYTES, LOCAL_WRITE | ON_DEMAND)

    def interrupted(thread):
        monkeypatch.undo()
        raise KeyboardInterrupt

    monkeypatch.setattr(paging.threading.Thread, "join", interrupted)
    with pytest.raises(KeyboardInterrupt):
        memory.close()
    memory.close()
    assert memory.state == paging.CLOSED
    assert not memory._pager.is_alive()


def test_memory_for_which_no_pager_can_be_had_is_given_back(monkeypatch):
    before = os.listdir("/proc/self/fd")

    def refused(thread):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(paging.threading.Thread, "start", refused)
    with pytest.raises(DriverError, match="a thread that brings pages") as caught:
        PageableMemory(PAGE_BYTES, LOCAL_WRITE | ON_DEMAND)
    assert caught.value.errno == errno.EAGAIN
    assert os.listdir("/proc/self/fd") == before


def test_a_descriptor_that_is_no_pageable_memory_is_refused(pair):
    session = pair.right.device.session
    read, write = os.pipe()
    for number, code in ((read, errno.EINVAL), (write, errno.EINVAL), (0x7FFFFFFF, errno.EBADF),
                         (0xFFFFFFFF, errno.EBADF), (pair.right.device._channel.memory.fd, errno.EINVAL)):
        with fails(code):
            session.call(control.REG_PAGED, pd=pair.right.pd, access=1, descriptor=number, va=0)
    os.close(read)
    os.close(write)


def test_registering_takes_no_descriptor_for_good(pair):
    before = sorted(os.listdir("/proc/self/fd"))
    for _ in range(3):
        with fails(errno.EINVAL):
            pair.register(pair.right, REMOTE_WRITE)
    assert sorted(os.listdir("/proc/self/fd")) == before


def test_deregistering_frees_the_attachment_and_kills_the_key(pair):
    for _ in range(100):
        handle = pair.register(pair.right).handle
        pair.right.device.dereg_mr(handle)
    pair.right.device.dereg_mr(pair.key.handle)
    pair.write(100)
    assert pair.statuses() == [10]


def test_registering_again_otherwise_is_refused_and_changes_nothing(pair):
    device = pair.right.device
    for flags in (control.REREG_ACCESS, control.REREG_PD, control.REREG_TRANSLATION):
        with fails(errno.EINVAL):
            device.rereg_mr(pair.key.handle, flags, pair.right.pd, address_of(pair.right.memory), 64,
                            REMOTE_READ, pair.right.memory)
    pair.write()
    assert pair.statuses() == [0]


def test_a_host_that_goes_leaves_its_attachments(pair):
    device = pair.right.node.open()
    pd = device.alloc_pd()
    device.reg_paged(pd, pair.memory, ALL_RIGHTS, VA)
    device.close()
    assert [bool(pair.word(at) & layout.ATTACHED) for at in (64, 128)] == [True, False]


# By programs


def test_the_owner_s_reads_and_writes_bring_pages_or_are_refused():
    memory = PageableMemory(3 * PAGE_BYTES, ALL_RIGHTS | ON_DEMAND, pager=False)
    memory.write(PAGE_BYTES - 2, b"four")
    assert memory.read(PAGE_BYTES - 3, 6) == b"\0four\0"
    assert memory.fetch() == 1
    memory.quiesce()
    assert memory.read(PAGE_BYTES - 2, 4) == b"four"
    with fails(errno.EBUSY):
        memory.fetch()
    memory.close()
    memory = PageableMemory(PAGE_BYTES, ALL_RIGHTS)
    memory.swap_out()
    for step in (lambda: memory.read(0, 1), lambda: memory.write(0, b"x")):
        with fails(errno.EBUSY):
            step()
    for step in (lambda: memory.read(PAGE_BYTES, 1), lambda: memory.read(-1, 1), lambda: memory.read(0, -1),
                 lambda: memory.write(PAGE_BYTES - 1, b"xx"), lambda: memory.swap_out(1, PAGE_BYTES)):
        with fails(errno.EINVAL):
            step()
    assert memory.read(PAGE_BYTES, 0) == b""
    memory.close()


def test_who_attached_reads_and_writes_by_the_table_and_owns_nothing():
    memory = PageableMemory(2 * PAGE_BYTES, ALL_RIGHTS)
    attached = AttachedMemory(memory.fd)
    attached.write(PAGE_BYTES - 2, b"four")
    assert memory.read(PAGE_BYTES - 2, 4) == b"four"
    assert (attached.rights, attached.length, attached.quiesced) == (ALL_RIGHTS, 2 * PAGE_BYTES, False)
    memory.swap_out()
    assert attached.quiesced
    with fails(errno.EAGAIN):
        attached.read(0, 1)
    memory.swap_in()
    memory.set_rights(REMOTE_READ)
    assert attached.read(PAGE_BYTES - 2, 4) == b"four"
    with fails(errno.EACCES):
        attached.write(0, b"x")
    with fails(errno.EINVAL):
        attached.read(2 * PAGE_BYTES - 1, 2)
    memory.close()
    with fails(errno.EACCES):
        attached.read(0, 1)
    attached.close()
    with socket.socket(socket.AF_UNIX) as other, fails(errno.EINVAL):
        AttachedMemory(other.fileno())


ENDS = """
from softhca.driver.paging import AttachedMemory, PageableMemory
memory = PageableMemory(8192, 15 | 64)
attached = AttachedMemory(memory.fd)
memory.write(0, b"left behind")
attached.read(0, 11)
print(memory._pager.is_alive(), flush=True)
"""


def test_a_program_that_ends_with_its_memory_open_ends_and_leaves_it_to_others():
    left, right = socket.socketpair(socket.AF_UNIX)
    program = ENDS + f"""
import socket
with socket.socket(fileno={right.fileno()}) as channel:
    socket.send_fds(channel, [b"x"], [memory.fd])
"""
    done = subprocess.run([sys.executable, "-c", program], pass_fds=[right.fileno()],
                          capture_output=True, text=True, timeout=limit_s(60), check=False)
    assert (done.returncode, done.stdout) == (0, "True\n"), done.stderr
    _, (fd,), _, _ = socket.recv_fds(left, 1, 1)
    attached = AttachedMemory(fd)
    assert attached.read(0, 11) == b"left behind"
    with fails(errno.EAGAIN):
        attached.read(4096, 1)
    attached.close()
    os.close(fd)
    left.close()
    right.close()


def test_a_forked_child_neither_ends_the_memory_nor_leaves_it_for_its_parent():
    memory = PageableMemory(PAGE_BYTES, ALL_RIGHTS)
    attached = AttachedMemory(memory.fd)
    attached.write(0, b"shared")
    pid = os.fork()
    if pid == 0:
        code = 1
        with contextlib.suppress(BaseException):
            attached.close()
            memory.close()
            try:
                memory.quiesce()
            except DriverError as error:
                code = 0 if error.errno == errno.EPERM else 2
        os._exit(code)
    assert os.waitpid(pid, 0)[1] == 0
    assert load64(memory._memory.mapping.line(0)) & layout.ATTACHED
    assert attached.read(0, 6) == b"shared"
    attached.close()
    assert not load64(memory._memory.mapping.line(0)) & layout.ATTACHED
    memory.close()


def test_memory_that_is_dropped_is_closed_and_its_pager_ends():
    memory = PageableMemory(PAGE_BYTES, ALL_RIGHTS | ON_DEMAND)
    attached, pager = AttachedMemory(memory.fd), memory._pager
    memory.write(0, b"x")
    del memory
    gc.collect()
    pager.join(60)  # the last reference may have been its own for a moment
    assert not pager.is_alive()
    with fails(errno.EACCES):
        attached.read(0, 1)
    attached.close()


def test_a_closed_memory_refuses_everything(pair):
    memory = PageableMemory(PAGE_BYTES, ALL_RIGHTS | ON_DEMAND)
    attached = AttachedMemory(memory.fd)
    memory.close()
    attached.close()
    device, pd = pair.right.device, pair.right.pd
    for call in (memory.quiesce, memory.resume, memory.swap_out, memory.swap_in, memory.migrate, memory.fetch,
                 memory.service, lambda: memory.set_rights(1), lambda: memory.read(0, 1),
                 lambda: memory.read(0, 0), lambda: memory.write(0, b"x"),
                 lambda: memory.rights, lambda: memory.resident_bytes, lambda: memory.fd,
                 lambda: attached.fd, lambda: attached.read(0, 1),
                 lambda: attached.write(0, b"x"), lambda: device.reg_paged(pd, memory, 15),
                 lambda: device.reg_paged(pd, attached, 15)):
        with fails(errno.EINVAL):
            call()
    assert (memory.state, memory.swapped_bytes) == ("closed", 0)
    memory.close()
    attached.close()
    memory.stop()
