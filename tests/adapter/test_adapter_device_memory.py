"""Device memory at the adapter: what it takes for some, how much, whose it is, and what it leaves behind."""

import errno
import fcntl
import os

import pytest

from softhca.adapter.device_memory import MAX_PASSED_BYTES, imported
from softhca.adapter.resources import Kind
from softhca.driver.errors import DriverError
from softhca.memory.bits import PAGE_BYTES
from softhca.queues import control_fields as control
from softhca.queues.control_fields import MAX_DM_BYTES
from softhca.testing.network import Network

SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL


@pytest.fixture
def node():
    world = Network()
    yield world.add(1)
    world.close()


@pytest.fixture
def host(node):
    return node.open()


def refusal(call, *arguments, **fields):
    with pytest.raises(DriverError) as caught:
        call(*arguments, **fields)
    return caught.value.errno


@pytest.fixture
def memfd():
    """Makes memfds of so many bytes, sealed or not."""
    made = []

    def make(length, seals=SEALS):
        made.append(os.memfd_create("dm", os.MFD_ALLOW_SEALING))
        os.ftruncate(made[-1], length)
        fcntl.fcntl(made[-1], fcntl.F_ADD_SEALS, seals)
        return made[-1]

    yield make
    for each in made:
        os.close(each)


def test_a_host_has_so_many_bytes_in_all_and_another_one_as_many(node, host):
    first = host.alloc_dm(MAX_DM_BYTES - 4096)
    second = host.alloc_dm(4096)
    assert refusal(host.session.call, control.ALLOC_DM, descriptor=second.fd, length=4096) == errno.ENOMEM
    assert node.open().alloc_dm(MAX_DM_BYTES).length == MAX_DM_BYTES
    second.free()
    second.free()
    assert host.alloc_dm(1).length == 1
    first.free()


def test_there_are_so_many_of_all_hosts(node, host):
    made = [host.alloc_dm(4) for _ in range(node.adapter.config.max_dm)]
    assert refusal(host.alloc_dm, 4) == errno.ENOMEM
    made.pop().free()
    host.alloc_dm(4).free()
    assert node.adapter.resources.count(Kind.DM) == len(made)
    host.close()
    assert node.adapter.resources.count(Kind.DM) == 0
    for each in made:
        each.free()


@pytest.mark.parametrize("length", [0, -1])
def test_no_bytes_are_no_memory(host, length):
    assert refusal(host.alloc_dm, length) == errno.EINVAL


@pytest.mark.parametrize(
    ("size", "seals", "length"),
    [(4096, 0, 4096), (4096, fcntl.F_SEAL_GROW, 4096), (4096, SEALS, 4097), (8192, SEALS, 4096),
     (8192, SEALS, 0), (100, SEALS, 100), (MAX_DM_BYTES + 4096, SEALS, MAX_DM_BYTES + 4096)],
)  # fmt: skip
def test_memory_that_could_go_under_the_adapter_or_has_another_length_is_refused(
    node, host, memfd, size, seals, length
):
    fd, before = memfd(size, seals), len(os.listdir("/proc/self/fd"))
    code = refusal(host.session.call, control.ALLOC_DM, descriptor=fd, length=length)
    assert code == (errno.ENOMEM if length > MAX_DM_BYTES else errno.EINVAL)
    assert node.adapter.resources.count(Kind.DM) == 0
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_descriptor_that_is_no_memfd_is_refused(host):
    reading, writing = os.pipe()
    assert refusal(host.session.call, control.ALLOC_DM, descriptor=reading, length=4) == errno.EINVAL
    os.close(reading)
    os.close(writing)


def test_memory_is_not_another_hosts_to_free(node, host):
    number = host.alloc_dm(64).number
    assert refusal(node.open().session.call, control.FREE_DM, dm=number) == errno.EINVAL
    assert node.adapter.resources.count(Kind.DM) == 1


def test_passed_memory_becomes_an_arena_once_and_of_its_own_length(node, host, memfd):
    fd, slot, before = memfd(8192), 4000, len(os.listdir("/proc/self/fd"))
    fields = {"slot": slot, "address": fd, "memory": control.MEMORY_PASSED}
    assert refusal(host.session.call, control.ATTACH_ARENA, pages=1, **fields) == errno.EINVAL
    assert refusal(host.session.call, control.ATTACH_ARENA, pages=0, **fields) == errno.EINVAL
    host.session.call(control.ATTACH_ARENA, pages=2, **fields)
    assert refusal(host.session.call, control.ATTACH_ARENA, pages=2, **fields) == errno.EBUSY
    taken = {**fields, "slot": 0}
    assert refusal(host.session.call, control.ATTACH_ARENA, pages=2, **taken) == errno.EBUSY
    assert node.adapter.resources.count(Kind.ARENA) == 1
    host.session.call(control.DETACH_ARENA, slot=slot, pages=2)
    host.session.call(control.ATTACH_ARENA, pages=2, **fields)
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_region_over_memory_holds_it_until_it_ends(node, host):
    pd, memory = host.alloc_pd(), host.alloc_dm(100)
    key = host.reg_dm(pd, memory, 4, 96, 32 | 15)
    assert refusal(host.reg_dm, pd, memory, 4, 97, 32) == errno.EINVAL
    assert node.adapter.resources.count(Kind.ARENA) == 1
    memory.free()
    host.dereg_mr(key.handle)
    assert node.adapter.resources.count(Kind.ARENA) == 0


def attach_passed(host, descriptor, pages, slot):
    host.session.call(control.ATTACH_ARENA, slot=slot, pages=pages, address=descriptor,
                      memory=control.MEMORY_PASSED)


def test_what_a_host_has_mapped_beside_its_own_memory_is_bounded_all_together(node, host, memfd):
    """Sparse memory costs no pages, but address space of the adapter's."""
    pages = MAX_PASSED_BYTES // PAGE_BYTES
    attach_passed(host, memfd(MAX_PASSED_BYTES - PAGE_BYTES), pages - 1, 1 << 19)
    for most, code in ((2, errno.EINVAL), (1, 0)):
        fd = memfd(most * PAGE_BYTES)
        if code:
            assert refusal(attach_passed, host, fd, most, 1 << 18) == code
        else:
            attach_passed(host, fd, most, 1 << 18)
    assert refusal(attach_passed, host, memfd(PAGE_BYTES), 1, 1 << 17) == errno.EINVAL
    attach_passed(node.open(), memfd(PAGE_BYTES), 1, 1 << 17)  # another host's are its own
    host.session.call(control.DETACH_ARENA, slot=1 << 18, pages=1)
    attach_passed(host, memfd(PAGE_BYTES), 1, 1 << 17)


def test_slots_that_are_taken_are_refused(host, memfd):
    attach_passed(host, memfd(PAGE_BYTES), 1, 1 << 18)
    assert refusal(attach_passed, host, memfd(PAGE_BYTES), 1, 1 << 18) == errno.EBUSY


def test_device_memory_is_imported_by_who_has_imported_its_context(node, host):
    memory, other = host.alloc_dm(8), node.open()
    owner, stranger = sorted(node.adapter.hosts)
    (resource,) = [each for each in node.adapter.resources.owned(owner) if each.kind is Kind.DM]
    with pytest.raises(OSError, match="no imported context") as caught:
        imported(node.adapter, stranger, resource.number)
    assert caught.value.errno == errno.ENOENT
    other.import_context(host.command_descriptor())
    assert imported(node.adapter, stranger, resource.number) is resource.element
    memory.free()
