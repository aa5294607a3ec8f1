"""Registrations as the driver keeps them: what crosses to the adapter, and what a refusal leaves behind."""

import errno
import mmap
import os

import pytest
from scripted_channel import ScriptedDriver

from softhca.driver.errors import DriverError
from softhca.driver.memory import (
    ADVISE_FLUSH,
    PREFETCH,
    PREFETCH_NO_FAULT,
    PREFETCH_WRITE,
    Registrar,
)
from softhca.machine.primitives import address_of
from softhca.memory.bits import PAGE_BYTES
from softhca.memory.regions import LOCAL_WRITE, ON_DEMAND, ZERO_BASED
from softhca.queues import control_fields as control

NAMES = {
    control.REG_MR: "REG", control.REREG_MR: "REREG", control.DEREG_MR: "DEREG",
    control.ATTACH_ARENA: "ATTACH", control.DETACH_ARENA: "DETACH",
}  # fmt: skip


class Adapter(ScriptedDriver):
    """Gives keys by number; ``refuses`` names the commands that it refuses, ``interrupted`` one in which a
    signal comes, ``really``: whether what was attached is."""

    def __init__(self):
        super().__init__()
        self.registrar = Registrar(self.session)
        self.refuses = set()
        self.interrupted = ""
        self.really = True
        self.keys = 100
        self.channel.answer = self.answer

    def answer(self, command):
        name = NAMES[command.command]
        if name in self.refuses:
            raise DriverError(errno.EBUSY, "no")
        if name == self.interrupted:
            self.interrupted = ""
            raise KeyboardInterrupt
        if name == "DETACH" and not self.really:
            raise DriverError(errno.EINVAL, "no attached pages begin there")
        if command.command in (control.REG_MR, control.REREG_MR):
            self.keys += 1
            return {"lkey": self.keys, "rkey": self.keys + 1000}
        return {}

    def said(self):
        """The commands since the last call, by name."""
        names = [NAMES[command.command] for command in self.channel.asked]
        self.last = self.channel.asked[-1].fields if names else {}
        self.channel.asked.clear()
        return names

    def attached(self):
        """How many buffers are attached."""
        return len(self.channel.memory._attached)


@pytest.fixture
def adapter():
    made = Adapter()
    yield made
    made.close()


@pytest.fixture
def buffer():
    return bytearray(3 * PAGE_BYTES)


def register(adapter, buffer, access=LOCAL_WRITE, pd=1, length=0, address=0, iova=None):
    return adapter.registrar.register(pd, address, length or len(buffer), access, iova, buffer)


def code_of(call, *arguments, **options):
    with pytest.raises(DriverError) as caught:
        call(*arguments, **options)
    return caught.value.errno


# places


def test_a_region_begins_and_ends_with_its_attachment(adapter, buffer):
    key = register(adapter, buffer)
    assert (key.lkey, key.rkey, adapter.registrar.key_of(key.handle)) == (101, 1101, 101)
    assert (adapter.said(), adapter.attached()) == (["ATTACH", "REG"], 1)
    adapter.registrar.deregister(key.handle)
    assert (adapter.said(), adapter.attached()) == (["DEREG", "DETACH"], 0)
    assert code_of(adapter.registrar.deregister, key.handle) == errno.EINVAL
    assert code_of(adapter.registrar.key_of, key.handle) == errno.EINVAL


@pytest.mark.parametrize(("refuses", "said"), [("ATTACH", ["ATTACH"]), ("REG", ["ATTACH", "REG", "DETACH"])])
def test_a_refused_registration_attaches_nothing(adapter, buffer, refuses, said):
    adapter.refuses = {refuses}
    assert code_of(register, adapter, buffer) == errno.EBUSY
    assert (adapter.said(), adapter.attached()) == (said, 0)


def test_a_region_that_the_adapter_keeps_keeps_its_buffer(adapter, buffer):
    key = register(adapter, buffer)
    adapter.refuses = {"DEREG"}
    assert code_of(adapter.registrar.deregister, key.handle) == errno.EBUSY
    assert adapter.attached() == 1
    assert adapter.registrar.key_of(key.handle) == key.lkey


def test_a_buffer_that_the_adapter_does_not_let_go_is_asked_for_again(adapter, buffer):
    """The region has ended, so that nobody else knows of it."""
    one, other = register(adapter, buffer), register(adapter, bytearray(1))
    adapter.refuses = {"DETACH"}
    adapter.registrar.deregister(one.handle)
    assert code_of(adapter.registrar.deregister, one.handle) == errno.EINVAL
    assert adapter.attached() == 2
    adapter.refuses = set()
    adapter.said()
    adapter.registrar.deregister(other.handle)
    assert (adapter.said(), adapter.attached()) == (["DEREG", "DETACH", "DETACH"], 0)


@pytest.mark.parametrize("command", ["ATTACH", "REG", "DETACH"])
@pytest.mark.parametrize("really", [False, True])
def test_a_buffer_is_let_go_whatever_a_signal_interrupts(adapter, buffer, command, really):
    """Nobody knows whether the adapter has carried the command out."""
    adapter.interrupted, adapter.really = command, really
    with pytest.raises(KeyboardInterrupt):
        adapter.registrar.deregister(register(adapter, buffer).handle)
    adapter.registrar.deregister(register(adapter, buffer).handle)
    assert adapter.attached() == 0
    buffer.append(0)


def test_a_move_that_a_signal_interrupts_lets_the_new_buffer_go(adapter, buffer):
    key = register(adapter, buffer)
    other = bytearray(PAGE_BYTES)
    adapter.interrupted = "REREG"
    with pytest.raises(KeyboardInterrupt):
        adapter.registrar.reregister(key.handle, control.REREG_TRANSLATION, 0, 0, len(other), 0, other)
    assert adapter.attached() == 1
    other.append(0)


@pytest.mark.parametrize(("start", "length", "allowed"), [
    (0, 3 * PAGE_BYTES, True), (1, 3 * PAGE_BYTES - 1, True), (1, 3 * PAGE_BYTES, False),
    (3 * PAGE_BYTES - 1, 1, True), (3 * PAGE_BYTES, 1, False), (-1, 2, False),
])  # fmt: skip
def test_a_part_of_a_buffer_lies_inside_of_it(adapter, buffer, start, length, allowed):
    address = address_of(buffer) + start
    if allowed:
        register(adapter, buffer, address=address, length=length)
        adapter.said()
        assert adapter.last["length"] == length
        ((_, pages),) = adapter.last["frames"]
        assert pages == (adapter.last["page_offset"] + length - 1) // PAGE_BYTES + 1
    else:
        assert code_of(register, adapter, buffer, address=address, length=length) == errno.EINVAL
        assert adapter.attached() <= 1


@pytest.mark.parametrize("words", [(0, 0, None), (1 << 20, 0, None), (1 << 20, -1, None), (0, 8, None)])
def test_a_range_without_bytes_is_none(adapter, words):
    address, length, buffer = words
    assert code_of(adapter.registrar.register, 1, address, length, 0, None, buffer) == errno.EINVAL
    assert adapter.said() == []


def test_an_empty_part_of_a_buffer_is_none(adapter, buffer):
    assert code_of(adapter.registrar.register, 1, 0, 0, 0, None, buffer) == errno.EINVAL
    assert adapter.said() == []


def test_host_memory_is_named_without_an_attachment_and_in_parts(adapter):
    memory = adapter.registrar.allocate(2 * PAGE_BYTES)
    key = adapter.registrar.register(1, memory.address, 2 * PAGE_BYTES, 0, None, None)
    assert adapter.said() == ["REG"]
    pages_of = adapter.registrar.pages_of
    first = adapter.last["frames"][0][0]
    assert pages_of(key.handle, 0, 2 * PAGE_BYTES) == (first, 2, 0)
    assert pages_of(key.handle, PAGE_BYTES - 1, 1) == (first, 1, PAGE_BYTES - 1)
    assert pages_of(key.handle, PAGE_BYTES - 1, 2) == (first, 2, PAGE_BYTES - 1)
    assert pages_of(key.handle, PAGE_BYTES, 1) == (first + 1, 1, 0)
    for offset, length in ((0, 0), (-1, 1), (PAGE_BYTES, PAGE_BYTES + 1), (2 * PAGE_BYTES, 1), (0, -1)):
        assert code_of(pages_of, key.handle, offset, length) == errno.EINVAL
    free = adapter.free_pages()
    memory.free()
    memory.free()
    assert adapter.free_pages() == free + 2


def test_memory_that_the_adapters_process_may_not_reach_is_refused(adapter, buffer):
    adapter.channel.foreign_errno = errno.EPERM
    assert code_of(register, adapter, buffer) == errno.EPERM
    assert (adapter.said(), adapter.attached()) == ([], 0)


def test_memory_that_is_not_mapped_for_an_access_is_refused(adapter):
    anonymous = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    read_only = mmap.mmap(-1, 2 * PAGE_BYTES, flags=anonymous, prot=mmap.PROT_READ)
    at = address_of(read_only, writable=False)
    file = os.memfd_create("of one page")
    os.truncate(file, 2 * PAGE_BYTES)
    longer = mmap.mmap(file, 2 * PAGE_BYTES)
    os.truncate(file, PAGE_BYTES)
    os.close(file)
    reserve = adapter.registrar.register
    for address, access in ((PAGE_BYTES, 0), (1 << 46, 0), (at, LOCAL_WRITE)):
        assert code_of(reserve, 1, address, PAGE_BYTES, access, None, None) == errno.EFAULT
    assert code_of(reserve, 1, address_of(longer), PAGE_BYTES + 1, 0, None, None) == errno.EFAULT
    assert (adapter.said(), adapter.attached()) == ([], 0)
    key = reserve(1, at, 2 * PAGE_BYTES, 0, None, None)
    rereg = adapter.registrar.reregister
    assert code_of(rereg, key.handle, control.REREG_TRANSLATION, 0, PAGE_BYTES, 64, 0, None) == errno.EFAULT
    adapter.registrar.deregister(key.handle)


# rights


@pytest.mark.parametrize("on_demand", [0, ON_DEMAND])
def test_a_read_only_buffer_is_not_written(adapter, on_demand):
    fixed = bytes(PAGE_BYTES)
    assert code_of(register, adapter, fixed, LOCAL_WRITE | on_demand) == errno.EACCES
    key = register(adapter, fixed, on_demand)
    rereg = adapter.registrar.reregister
    assert code_of(rereg, key.handle, control.REREG_ACCESS, 0, 0, 0, LOCAL_WRITE | on_demand) == errno.EACCES
    assert "REREG" not in adapter.said()


# moving


def test_a_region_that_moves_lets_its_former_buffer_go_and_its_former_key(adapter, buffer):
    key = register(adapter, buffer, ON_DEMAND, pd=7)
    other = bytearray(2 * PAGE_BYTES)
    moved = adapter.registrar.reregister(
        key.handle, control.REREG_TRANSLATION, 0, 0, len(other), 0, other
    )
    assert moved.handle == key.handle
    advise = adapter.registrar.advise
    at = address_of(other)
    assert code_of(advise, 7, PREFETCH_NO_FAULT, 0, [(at, 1, key.lkey)]) == errno.EFAULT
    advise(7, PREFETCH_NO_FAULT, 0, [(at, len(other), moved.lkey)])
    assert code_of(advise, 7, PREFETCH_NO_FAULT, 0, [(at, len(other) + 1, moved.lkey)]) == errno.EFAULT


def test_a_move_attaches_first_and_detaches_last(adapter, buffer):
    key = register(adapter, buffer)
    other = bytearray(PAGE_BYTES)
    adapter.said()
    adapter.registrar.reregister(key.handle, control.REREG_TRANSLATION, 0, 0, len(other), 0, other)
    assert (adapter.said(), adapter.attached()) == (["ATTACH", "REREG", "DETACH"], 1)
    adapter.refuses = {"REREG"}
    call = adapter.registrar.reregister
    assert code_of(call, key.handle, control.REREG_TRANSLATION, 0, 0, len(buffer), 0, buffer) == errno.EBUSY
    assert (adapter.said(), adapter.attached()) == (["ATTACH", "REREG", "DETACH"], 1)
    adapter.refuses = set()
    call(key.handle, control.REREG_ACCESS, 0, 0, 0, 0)
    assert (adapter.said(), adapter.attached()) == (["REREG"], 1)


@pytest.mark.parametrize(("flags", "domain"), [(control.REREG_PD, 9), (control.REREG_ACCESS, 7)])
def test_the_domain_changes_where_that_is_asked(adapter, buffer, flags, domain):
    key = register(adapter, buffer, ON_DEMAND, pd=7)
    moved = adapter.registrar.reregister(key.handle, flags, 9, 0, 0, ON_DEMAND)
    element = [(address_of(buffer), 1, moved.lkey)]
    adapter.registrar.advise(domain, PREFETCH_NO_FAULT, 0, element)
    assert code_of(adapter.registrar.advise, 16 - domain, PREFETCH_NO_FAULT, 0, element) == errno.EFAULT


# advice


def test_addresses_of_zero_based_regions_begin_at_zero(adapter, buffer):
    """Also when the region has moved, or changed only its rights."""
    registrar, length = adapter.registrar, len(buffer)
    key = register(adapter, buffer, ON_DEMAND | ZERO_BASED, iova=1 << 20)
    changes = ((0, 0), (control.REREG_ACCESS, ON_DEMAND | ZERO_BASED), (control.REREG_TRANSLATION, 0))
    for flags, rights in changes:
        if flags:
            key = registrar.reregister(key.handle, flags, 0, 0, length, rights, buffer)
        registrar.advise(1, PREFETCH_NO_FAULT, 0, [(0, length, key.lkey), (length - 1, 1, key.lkey)])
        for va in (1, 1 << 20, address_of(buffer)):
            element = [(va, length, key.lkey)]
            assert code_of(registrar.advise, 1, PREFETCH_NO_FAULT, 0, element) == errno.EFAULT


def test_advice_is_for_what_a_region_on_demand_has_and_allows(adapter, buffer):
    advise, at = adapter.registrar.advise, address_of(buffer)
    fixed = register(adapter, buffer)
    assert code_of(advise, 1, PREFETCH, 0, [(at, 1, fixed.lkey)]) == errno.EINVAL
    readable = register(adapter, buffer, ON_DEMAND)
    writable = register(adapter, buffer, ON_DEMAND | LOCAL_WRITE)
    for advice in (PREFETCH, PREFETCH_NO_FAULT, PREFETCH_WRITE):
        advise(1, advice, ADVISE_FLUSH, [(at, len(buffer), writable.lkey), (at, 0, writable.lkey)])
    for advice in (PREFETCH, PREFETCH_NO_FAULT):
        advise(1, advice, 0, [(at, 1, readable.lkey)])
    assert code_of(advise, 1, PREFETCH_WRITE, 0, [(at, 1, readable.lkey)]) == errno.EFAULT
    assert code_of(advise, 1, 3, 0, [(at, 1, writable.lkey)]) == errno.EOPNOTSUPP
    assert code_of(advise, 1, PREFETCH, 2, [(at, 1, writable.lkey)]) == errno.EINVAL
    assert code_of(advise, 1, PREFETCH, 0, []) == errno.EINVAL
    assert code_of(advise, 1, PREFETCH, 0, [(at - 1, 2, writable.lkey)]) == errno.EFAULT
    assert code_of(advise, 2, PREFETCH, 0, [(at, 1, writable.lkey)]) == errno.EFAULT
