"""Control commands of memory: what is refused of buffers and regions, and what these hold."""

import errno
import os

import pytest
from command_end import call, refused

from softhca.adapter.commands import execute
from softhca.adapter.resources import Kind
from softhca.driver.errors import DriverError
from softhca.machine.primitives import address_of
from softhca.memory.bits import SLOT_PAGES
from softhca.memory.host import HostMemory, SharedHostMemory
from softhca.queues import control_fields as control
from softhca.queues.handshake import HostFrames
from softhca.testing.ends import ALL_RIGHTS
from softhca.testing.network import Network
from softhca.testing.node import HOST_MEMORY_BYTES


def test_a_range_that_is_no_memory_is_refused(end):
    refused(end, errno.EINVAL, end.device.reg_mr, end.pd, 0, 100, 1)
    refused(end, errno.EINVAL, end.device.reg_mr, end.pd, 4096, 0, 1)
    refused(end, errno.EINVAL, end.device.reg_mr, end.pd, 0, 11, 1, buffer=bytearray(10))
    refused(end, errno.EINVAL, end.device.reg_mr, end.pd, 4096, 5, 1, buffer=bytearray(10))
    refused(end, errno.EACCES, end.device.reg_mr, end.pd, 0, 5, 1, buffer=b"constant!!")
    refused(end, errno.EINVAL, end.device.reg_mr, 99, 0, 10, 1, buffer=bytearray(10))
    refused(end, errno.EINVAL, end.device.reg_mr, end.pd, 0, 10, 2, buffer=bytearray(10))
    refused(end, errno.EINVAL, end.device.reg_mr, end.pd, 0, 2 << 20, 1, buffer=bytearray(2 << 20))


def test_frames_that_are_not_mapped_are_refused(end):
    fields = {"pd": end.pd, "access": 1, "va": 0, "length": 4096, "page_offset": 0}
    refused(end, errno.EFAULT, call, end, control.REG_MR, frames=[(0xFFFFF000, 1)], **fields)
    refused(end, errno.EINVAL, call, end, control.REG_MR, frames=[(1, 0xFFFFFFFF)], **fields)
    # one kind of memory more than there are
    refused(end, errno.EINVAL, call, end, control.ATTACH_ARENA, slot=0, pages=1, memory=2)
    refused(
        end, errno.EINVAL, call, end, control.ATTACH_ARENA, slot=90_000, pages=1, memory=control.MEMORY_SHARED
    )
    refused(end, errno.EINVAL, call, end, control.DETACH_ARENA, slot=77, pages=1)


class Side:
    """A host in a process of its own, as an adapter sees it."""

    def __init__(self, pid, foreign=True):
        self.foreign = foreign
        self.memory = HostMemory(HOST_MEMORY_BYTES)
        self.shared = SharedHostMemory(self.memory.fd)
        self.address_map = self.shared.address_map
        self.pid = pid
        self.frames = HostFrames(
            self.memory.allocate(HostFrames.CONTROL_PAGES), self.memory.allocate(HostFrames.DOORBELL_PAGES)
        )

    def take_descriptor(self, number):
        raise OSError(errno.EBADF, "none was passed")

    def event_channel(self, number):
        raise OSError(errno.EBADF, "there is none")

    def attach(self, adapter, **fields):
        """The errno of ATTACH_ARENA."""
        host = adapter.hosts[adapter.attach_host(self)]
        fields = {"slot": 500, "pages": 1, "memory": control.MEMORY_FOREIGN, "address": 4096, **fields}
        code, _, _ = execute(adapter, host, control.ATTACH_ARENA, fields, 0)
        assert adapter.resources.count(Kind.ARENA) == len(host.arenas) == (0 if code else 1)
        adapter.detach_host(host.number)
        self.shared.close()
        self.memory.close()
        return code


@pytest.mark.parametrize(
    ("code", "slot", "pages"),
    [(0, 500, 1), (errno.EBUSY, 0, 1), (errno.EINVAL, 1 << 20, 1), (errno.EINVAL, 90_000, 0)],
)
def test_a_buffer_of_another_process_takes_free_slots(code, slot, pages):
    adapter = Network().add(1).adapter
    assert Side(pid=1).attach(adapter, slot=slot, pages=pages) == code


@pytest.mark.parametrize("pid", [0, -1])
def test_a_host_never_names_an_address_of_the_adapters_own_process(pid):
    adapter = Network().add(1).adapter
    secret = bytearray(3 * 4096)
    address = address_of(secret) + 4095 & ~4095
    assert Side(pid).attach(adapter, address=address) == errno.EPERM
    assert Side(pid).attach(adapter, address=address, slot=0) == errno.EPERM


def test_a_host_of_another_process_does_not_name_what_is_mapped_here():
    adapter = Network().add(1).adapter
    side = Side(pid=1)
    assert side.attach(adapter, slot=0, address=side.address_map.address(0)) == errno.EBUSY
    side = Side(pid=0)
    assert side.attach(adapter, slot=0, address=side.address_map.address(0), pages=0) == errno.EPERM


@pytest.mark.parametrize("memory", [3, 255])
def test_a_buffer_is_of_a_kind_that_there_is(memory):
    assert Side(pid=1).attach(Network().add(1).adapter, memory=memory) == errno.EINVAL


def test_a_buffer_takes_no_slot_of_another_one():
    adapter = Network().add(1).adapter
    side = Side(pid=1)
    host = adapter.hosts[adapter.attach_host(side)]

    def do(command, slot, pages):
        fields = {"memory": control.MEMORY_FOREIGN, "address": 4096, "slot": slot, "pages": pages}
        return execute(adapter, host, command, fields, 0)[0]

    for slot, pages, code in (
        (501, 1, 0), (501, 1, errno.EBUSY), (500, SLOT_PAGES + 1, errno.EBUSY), (499, 2 * SLOT_PAGES, 0),
        (500, 1, errno.EBUSY),
    ):  # fmt: skip
        assert do(control.ATTACH_ARENA, slot, pages) == code
    assert sorted(host.arenas) == [499, 500, 501]
    for slot, pages in ((499, 2 * SLOT_PAGES), (501, 1)):
        assert do(control.DETACH_ARENA, slot, pages) == 0
    assert host.arenas == {}
    adapter.detach_host(host.number)
    side.shared.close()
    side.memory.close()


def test_a_host_without_foreign_access_has_only_the_shared_memory():
    adapter = Network().add(1).adapter
    assert Side(pid=1, foreign=False).attach(adapter) == errno.EPERM
    side = Side(pid=0, foreign=False)
    assert side.attach(adapter, slot=0, address=side.address_map.address(0)) == errno.EPERM


def test_an_arena_under_a_region_stays(end):
    (slot,) = {slot for slot in end.node.adapter.hosts[1].arenas}
    pages = end.node.adapter.hosts[1].arenas[slot].element[1]
    refused(end, errno.EBUSY, call, end, control.DETACH_ARENA, slot=slot, pages=pages)


def test_a_region_on_demand_changes_its_domain_and_its_number():
    adapter = Network().add(1).adapter
    side = Side(pid=os.getpid())
    host = adapter.hosts[adapter.attach_host(side)]

    def do(command, **fields):
        return execute(adapter, host, command, fields, 0)[:2]

    memory = bytearray(b"memory of the host's process")
    one, two = (do(control.ALLOC_PD)[1]["pd"] for _ in range(2))
    region = {"access": 64, "va": 7, "address": address_of(memory), "length": len(memory), "held": 0}
    region["frames"] = []
    lkey = do(control.REG_MR, pd=one, **region)[1]["lkey"]
    code, keys = do(control.REREG_MR, lkey=lkey, flags=control.REREG_PD, pd=two, **region)
    assert code == 0
    assert [do(control.DEALLOC_PD, pd=pd)[0] for pd in (two, one)] == [errno.EBUSY, 0]
    assert adapter.regions.live_key(keys["lkey"]).pd == two
    if keys["lkey"] != lkey:
        assert do(control.DEREG_MR, lkey=lkey)[0] == errno.EINVAL
    assert do(control.DEREG_MR, lkey=keys["lkey"])[0] == 0
    assert do(control.DEALLOC_PD, pd=two)[0] == 0
    adapter.detach_host(host.number)
    side.shared.close()
    side.memory.close()


@pytest.mark.parametrize("may", [False, True])
def test_a_host_whose_memory_cannot_be_reached_has_no_regions_on_demand(may):
    adapter = Network().add(1).adapter
    side = Side(pid=os.getpid(), foreign=may)
    host = adapter.hosts[adapter.attach_host(side)]

    def do(command, **fields):
        return execute(adapter, host, command, fields, 0)[:2]

    memory = bytearray(b"memory of the host's process")
    pd = do(control.ALLOC_PD)[1]["pd"]
    region = {"pd": pd, "access": 64, "va": 7, "address": address_of(memory), "length": len(memory)}
    region["held"] = 0
    assert do(control.QUERY_DEVICE)[1]["odp_general_caps"] == (3 if may else 0)
    code, keys = do(control.REG_MR, frames=[], **region)
    assert code == (0 if may else errno.EOPNOTSUPP)
    if may:
        room = bytearray(6)
        assert adapter.regions.live_key(keys["lkey"]).read(7, address_of(room), 6) == 0
        assert room == b"memory"
        assert do(control.DEREG_MR, lkey=keys["lkey"])[0] == 0
    assert do(control.DEALLOC_PD, pd=pd)[0] == 0
    adapter.detach_host(host.number)
    side.shared.close()
    side.memory.close()


def test_the_buffers_of_a_host_go_with_it():
    adapter, side = Network().add(1).adapter, Side(pid=1)
    host = adapter.hosts[adapter.attach_host(side)]
    fields = {"slot": 500, "pages": 1, "memory": control.MEMORY_FOREIGN, "address": 4096}
    assert execute(adapter, host, control.ATTACH_ARENA, fields, 0)[0] == 0
    assert list(host.arenas) == [500]
    adapter.detach_host(host.number)
    assert host.arenas == {}
    side.shared.close()
    side.memory.close()


def test_a_region_holds_the_buffers_that_it_lies_in_and_no_others():
    adapter = Network().add(1).adapter
    side = Side(pid=1)
    host = adapter.hosts[adapter.attach_host(side)]

    def do(command, **fields):
        return execute(adapter, host, command, fields, 0)[:2]

    pd = do(control.ALLOC_PD)[1]["pd"]
    arena = {"pages": 1, "memory": control.MEMORY_FOREIGN}
    for slot in (500, 501, 502):
        assert do(control.ATTACH_ARENA, slot=slot, address=slot << 30, **arena)[0] == 0
    fields = {"pd": pd, "access": 1, "va": 0, "page_offset": 0, "zero_based": 0}
    frames = [(slot * SLOT_PAGES, 1) for slot in (500, 501)]
    code, keys = do(control.REG_MR, length=8192, frames=frames, **fields)
    assert code == 0
    assert [do(control.DETACH_ARENA, slot=slot, pages=1)[0] for slot in (499, 500, 501, 502)] == [
        errno.EINVAL, errno.EBUSY, errno.EBUSY, 0
    ]  # fmt: skip
    assert do(control.DEREG_MR, lkey=keys["lkey"])[0] == 0
    assert [do(control.DETACH_ARENA, slot=slot, pages=1)[0] for slot in (500, 501)] == [0, 0]
    adapter.detach_host(host.number)
    side.shared.close()
    side.memory.close()


def test_a_region_has_up_to_the_most_bytes(end):
    most = bytearray((1 << 20) + 1)
    key = end.device.reg_mr(end.pd, address_of(most), 1 << 20, 1, buffer=most)
    refused(end, errno.EINVAL, end.device.reg_mr, end.pd, address_of(most), (1 << 20) + 1, 1, buffer=most)
    change = {"pd": end.pd, "address": address_of(most), "access": 0, "buffer": most}
    end.device.rereg_mr(key.handle, control.REREG_TRANSLATION, length=1 << 20, **change)
    with pytest.raises(DriverError) as caught:
        end.device.rereg_mr(key.handle, control.REREG_TRANSLATION, length=(1 << 20) + 1, **change)
    assert caught.value.errno == errno.EINVAL


def test_a_region_changes_its_domain_when_it_is_told_to_and_not_otherwise(end):
    other = end.device.alloc_pd()
    memory = bytearray(4096)
    key = end.device.reg_mr(end.pd, address_of(memory), 4096, 1, buffer=memory)
    end.device.dereg_mr(end.key.handle)
    none = {"address": 0, "length": 0}
    end.device.rereg_mr(key.handle, control.REREG_ACCESS, other, access=ALL_RIGHTS, **none)
    refused(end, errno.EBUSY, end.device.dealloc_pd, end.pd)
    end.device.rereg_mr(key.handle, control.REREG_PD, other, access=0, **none)
    refused(end, errno.EBUSY, end.device.dealloc_pd, other)
    end.device.dealloc_pd(end.pd)
    end.device.dereg_mr(key.handle)
    end.device.dealloc_pd(other)
