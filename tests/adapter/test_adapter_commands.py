"""Control commands: what they refuse, and that a refusal changes nothing; what a dead host leaves behind."""

import errno
import os
import sys
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from softhca.adapter.commands import HANDLERS, execute
from softhca.adapter.resources import Kind
from softhca.driver.errors import DriverError
from softhca.driver.session import prefixed
from softhca.machine.primitives import address_of, store64
from softhca.memory.bits import SLOT_PAGES
from softhca.memory.host import HostMemory, SharedHostMemory
from softhca.memory.regions import REFUSED_KEY
from softhca.queues import control_fields as control
from softhca.queues.control_fields import COMMANDS
from softhca.queues.handshake import HostFrames
from softhca.queues.layout import EVENT_ENTRIES, RING_HEAD_AT
from softhca.queues.qp_attributes import MASK
from softhca.queues.ring import plan
from softhca.testing.addressing import gid
from softhca.testing.ends import ALL_RIGHTS, RC, UD, WRITE, End, pair, post
from softhca.testing.network import Network
from softhca.testing.node import HOST_MEMORY_BYTES
from suite_plan import random_inputs


@pytest.fixture
def end():
    """One end on a small adapter."""
    world = Network()
    yield End(
        world.add(
            1,
            max_qp=4,
            max_cq=4,
            max_srq=2,
            max_mr=4,
            max_pd=4,
            max_ah=2,
            max_qp_wr=64,
            max_sge=4,
            max_cqe=1000,
            max_qp_rd_atom=16,
            max_mr_size_bytes=1 << 20,
            max_mcast_grp=1,
            max_mcast_qp_attach=2,
            max_inline_bytes=128,
            max_srq_wr=16,
            max_srq_sge=4,
        )
    )
    world.close()


def census(end):
    """How many of everything the adapter has."""
    return {kind: end.node.adapter.resources.count(kind) for kind in Kind}


def refused(end, code, call, *arguments, **options):
    """``call`` is refused with ``code`` and nothing is made or lost, neither there nor here."""
    before, free = census(end), end.device.session.memory.free_pages
    with pytest.raises(DriverError) as error:
        call(*arguments, **options)
    assert error.value.errno == code
    assert "was refused" not in error.value.message, "a refusal has a reason"
    assert census(end) == before
    assert end.device.session.memory.free_pages == free


def call(end, command, **fields):
    return end.device.session.call(command, **fields)


def late(number, frame):
    """A signal handler, which is called with the frame that it has interrupted."""
    raise {"time": TimeoutError, "value": ValueError}[number]


@pytest.mark.parametrize("kind", ["time", "value"])
def test_what_a_signal_handler_raises_in_a_command_is_no_refusal(end, monkeypatch, kind):
    monkeypatch.setitem(
        HANDLERS, control.ALLOC_PD, lambda adapter, host, fields, now: late(kind, sys._getframe())
    )
    with pytest.raises((TimeoutError, ValueError)):
        execute(end.node.adapter, None, control.ALLOC_PD, {}, 0)


def test_queries_answer_for_port_one_only(end):
    for query in (
        end.device.query_port,
        lambda port: end.device.query_gid(port, 0),
        lambda port: end.device.query_pkey(port, 0),
    ):
        query(1)
        for port in (0, 2, 255, 256, -1):
            refused(end, errno.EINVAL, query, port)


def test_tables_end_where_the_port_says(end):
    port = end.device.query_port(1)
    assert end.device.query_gid(1, 0) == gid(1)
    assert end.device.query_gid(1, port["gid_tbl_len"] - 1) == bytes(16)
    assert end.device.query_pkey(1, 0) == 0xFFFF
    assert end.device.query_pkey(1, port["pkey_tbl_len"] - 1) == 0
    refused(end, errno.EINVAL, end.device.query_gid, 1, port["gid_tbl_len"])
    refused(end, errno.EINVAL, end.device.query_pkey, 1, port["pkey_tbl_len"])


def test_what_is_in_use_cannot_go(end):
    srq = end.device.create_srq(end.pd, 8, 1)
    qp = end.qp(srq=srq)
    refused(end, errno.EBUSY, end.device.dealloc_pd, end.pd)
    refused(end, errno.EBUSY, end.cq.destroy)
    refused(end, errno.EBUSY, srq.destroy)
    qp.destroy()
    end.cq.destroy()
    refused(end, errno.EBUSY, end.device.dealloc_pd, end.pd)
    srq.destroy()
    end.device.dereg_mr(end.key.handle)
    end.device.dealloc_pd(end.pd)
    assert set(census(end).values()) == {0}


def test_an_address_handle_holds_its_domain(end):
    pd = end.device.alloc_pd()
    ah = end.device.create_ah(pd, {"dgid": gid(2), "is_global": 1, "port_num": 1})
    assert end.node.adapter.address_handle(ah).pd == pd
    refused(end, errno.EBUSY, end.device.dealloc_pd, pd)
    end.device.destroy_ah(ah)
    assert end.node.adapter.address_handle(ah) is None
    end.device.dealloc_pd(pd)


@pytest.mark.parametrize(
    ("kind", "make"),
    [
        (Kind.PD, lambda end: end.device.alloc_pd()),
        (Kind.CQ, lambda end: end.device.create_cq(1)),
        (Kind.QP, lambda end: end.qp()),
        (Kind.SRQ, lambda end: end.device.create_srq(end.pd, 1, 1)),
        (Kind.AH, lambda end: end.device.create_ah(end.pd, {"dgid": gid(2), "is_global": 1, "port_num": 1})),
        (Kind.MR, lambda end: end.device.reg_mr(end.pd, 0, 10, 1, buffer=bytearray(10))),
    ],
)
def test_the_limits_of_the_adapter_are_kept(end, kind, make):
    limit = {Kind.SRQ: 2, Kind.AH: 2}.get(kind, 4)
    while census(end)[kind] < limit:
        make(end)
    refused(end, errno.ENOMEM, make, end)


def test_a_number_that_does_not_exist_is_refused(end):
    device = end.device
    refused(end, errno.EINVAL, device.dealloc_pd, 99)
    for command, field in (
        (control.DESTROY_CQ, "cq"),
        (control.DESTROY_QP, "qp_num"),
        (control.DESTROY_SRQ, "srq"),
        (control.DESTROY_AH, "ah"),
        (control.DEREG_MR, "lkey"),
        (control.QUERY_QP, "qp_num"),
        (control.QUERY_SRQ, "srq"),
    ):
        refused(end, errno.EINVAL, call, end, command, **{field: 0xABCDE})
    refused(end, errno.EINVAL, device.query_counters, qp=0xABCDE)
    refused(end, errno.EINVAL, device.dereg_mr, 0xABCDE)
    refused(end, errno.EINVAL, device.create_qp, 99, RC, end.cq, end.cq, None, 1, 1, 1, 1, 0, False)


def test_another_hosts_numbers_mean_nothing(end):
    other_host = end.node.open()
    for command, fields in (
        (control.DESTROY_CQ, {"cq": end.cq.number}),
        (control.DEALLOC_PD, {"pd": end.pd}),
        (control.DEREG_MR, {"lkey": end.key.lkey}),
    ):
        with pytest.raises(DriverError) as error:
            other_host.session.call(command, **fields)
        assert error.value.errno == errno.EINVAL
    assert end.memory is not None
    end.device.dereg_mr(end.key.handle)


@pytest.mark.parametrize(
    ("capability", "value"),
    [
        ("send", 65),
        ("receive", 65),
        ("sge", 5),
        ("inline", 129),
        ("send", -1),
    ],
)
def test_capabilities_beyond_the_limits_are_refused(end, capability, value):
    refused(end, errno.EINVAL, end.qp, **{capability: value})


def test_the_adapter_checks_capabilities_itself(end):
    fields = {
        "qp_type": RC,
        "pd": end.pd,
        "send_cq": end.cq.number,
        "recv_cq": end.cq.number,
        "max_send_wr": 65,
    }
    refused(end, errno.EINVAL, call, end, control.CREATE_QP, **fields)
    fields["max_send_wr"] = 1
    refused(end, errno.EINVAL, call, end, control.CREATE_QP, **fields)  # there are no rings
    refused(end, errno.EINVAL, call, end, control.CREATE_CQ, entries=1001)
    refused(end, errno.EINVAL, call, end, control.CREATE_CQ, entries=4, body_bytes=4 * 48, frames=[(1, 2)])
    refused(
        end, errno.EFAULT, call, end, control.CREATE_CQ, entries=4, body_bytes=4 * 48, frames=[(0xFFFFFF0, 3)]
    )
    refused(end, errno.EINVAL, call, end, control.CREATE_SRQ, pd=end.pd, max_wr=17, max_sge=1)


@pytest.mark.parametrize("kind", [0, 1, 7, 255])
def test_other_queue_pair_types_are_not_supported(end, kind):
    refused(end, errno.EOPNOTSUPP, end.qp, kind)


@pytest.mark.parametrize("entries", [0, -1, 1001])
def test_a_completion_queue_has_a_sensible_size(end, entries):
    refused(end, errno.EINVAL, end.device.create_cq, entries)


@pytest.mark.parametrize(
    ("max_wr", "max_sge", "limit"), [(0, 1, 0), (17, 1, 0), (1, 0, 0), (1, 5, 0), (4, 1, 5)]
)
def test_a_shared_receive_queue_has_a_sensible_size(end, max_wr, max_sge, limit):
    refused(end, errno.EINVAL, end.device.create_srq, end.pd, max_wr, max_sge, limit)


# queue pair attributes

INIT = {"qp_state": 1, "pkey_index": 0, "port_num": 1, "qp_access_flags": ALL_RIGHTS}
VECTOR = {"dgid": gid(2), "sgid_index": 0, "is_global": 1, "port_num": 1}
RTR = {
    "qp_state": 2,
    "ah_attr": VECTOR,
    "path_mtu": 3,
    "dest_qp_num": 5,
    "rq_psn": 1,
    "max_dest_rd_atomic": 1,
    "min_rnr_timer": 1,
}
RTS = {"qp_state": 3, "sq_psn": 9, "timeout": 14, "retry_cnt": 7, "rnr_retry": 7, "max_rd_atomic": 1}


@pytest.mark.parametrize(
    "change",
    [
        {"port_num": 2},
        {"port_num": 0},
        {"pkey_index": 1},
        {"qkey": 1},
        {"nonsense": 1},
        {"qp_state": 7},
        {"qp_state": 3},
        {"cur_qp_state": 3},
    ],
)
def test_wrong_attributes_for_init_change_nothing(end, change):
    qp = end.qp()
    refused(end, errno.EINVAL, qp.modify, {**INIT, **change})
    assert qp.query()["qp_state"] == qp.state == 0
    qp.modify(INIT)


@pytest.mark.parametrize(
    "change",
    [
        {"path_mtu": 4},
        {"path_mtu": 0},
        {"max_dest_rd_atomic": 17},
        {"min_rnr_timer": 32},
        {"rq_psn": 1 << 24},
        {"ah_attr": {**VECTOR, "sgid_index": 4}},
        {"ah_attr": {**VECTOR, "dgid": bytes(16)}},
        {"ah_attr": {**VECTOR, "port_num": 3}},
        {"ah_attr": {**VECTOR, "sl": 16}},
        {"sq_psn": 1},
    ],
)
def test_wrong_attributes_for_rtr_change_nothing(end, change):
    qp = end.qp()
    qp.modify(INIT)
    refused(end, errno.EINVAL, qp.modify, {**RTR, **change})
    assert qp.query()["qp_state"] == 1
    qp.modify(RTR)
    qp.modify(RTS)
    attributes = qp.query()
    assert {name: attributes[name] for name in RTS} == RTS
    assert attributes["ah_attr"]["dgid"] == gid(2)
    assert attributes["max_send_wr"] == 16


def test_an_alternate_path_is_loaded_and_goes_with_a_reset(end):
    qp = end.qp()
    qp.modify(INIT)
    qp.modify({**RTR, "alt_ah_attr": VECTOR, "alt_port_num": 1, "alt_timeout": 7})
    assert (qp.query()["alt_port_num"], qp.query()["alt_timeout"]) == (1, 7)
    qp.modify({"qp_state": 0})
    assert (qp.query()["alt_port_num"], qp.query()["alt_timeout"]) == (0, 0)


def test_a_datagram_queue_pair_has_the_ports_mtu(end):
    qp = end.qp(UD)
    qp.modify({"qp_state": 1, "pkey_index": 0, "port_num": 1, "qkey": 3})
    assert end.node.adapter.queue_pairs[qp.number].path_mtu_bytes == 1024


# multicast


def test_groups_are_of_datagram_queue_pairs_and_bounded(end):
    group = b"\xff\x0e" + bytes(13) + b"\1"
    connected, first = end.qp(), end.qp(UD)
    refused(end, errno.EINVAL, end.device.attach_mcast, connected.number, group)
    refused(end, errno.EINVAL, end.device.attach_mcast, first.number, gid(5))
    end.device.attach_mcast(first.number, group)
    end.device.attach_mcast(first.number, group)
    refused(end, errno.ENOMEM, end.device.attach_mcast, first.number, group[:-1] + b"\2")
    end.device.attach_mcast(end.qp(UD).number, group)
    refused(end, errno.ENOMEM, end.device.attach_mcast, end.qp(UD).number, group)
    refused(end, errno.EINVAL, end.device.detach_mcast, connected.number, group)
    first.destroy()
    assert [qp.number for qp in end.node.adapter.groups.members(group)] != [first.number]
    assert len(end.node.adapter.groups.members(group)) == 1


# memory


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


# a host that goes


def test_a_host_that_leaves_takes_all_that_it_owned():
    world, left, left_qp, right, _right_qp = pair()
    other = End(left.node)
    other.qp()
    srq = left.device.create_srq(left.pd, 4, 1)
    left.qp(srq=srq)
    group = b"\xff\x0e" + bytes(13) + b"\1"
    listener = left.qp(UD)
    left.device.attach_mcast(listener.number, group)
    left.device.create_ah(left.pd, VECTOR)
    left.device.register_agent(1, 0x32, 1, {1}, 4)
    left.device.create_srq(left.pd, 4, 1, 0, left.cq, left.device.open_xrcd())
    left.device.create_ee(left.device.alloc_rdd())
    post(left_qp, WRITE, [left.sge(0, 5000)], va=right.va, rkey=right.key.rkey)
    key = left.key.lkey
    left.device.close()
    adapter = left.node.adapter
    assert {kind: adapter.resources.count(kind) for kind in Kind} == {
        Kind.FLOW: 0,
        Kind.QP: 1,
        Kind.RWQ_IND_TABLE: 0,
        Kind.WQ: 0,
        Kind.AH: 0,
        Kind.SRQ: 0,
        Kind.XRCD: 0,
        Kind.CM: 0,
        Kind.EEC: 0,
        Kind.RDD: 0,
        Kind.CQ: 1,
        Kind.MW: 0,
        Kind.DM: 0,
        Kind.FAST_MR: 0,
        Kind.MR: 1,
        Kind.ARENA: 1,
        Kind.PD: 1,
        Kind.AGENT: 0,
    }
    assert adapter.regions.find(key, left.pd, left.va, 1, 0) is None
    assert adapter.regions.refusal == REFUSED_KEY
    assert adapter.groups.members(group) == []
    assert list(adapter.hosts) == [2]
    world.run(limit_ns=10**9)
    assert other.device.query_device()["max_qp"] == 16_384
    world.close()
    assert {adapter.resources.count(kind) for kind in Kind} == {0}
    assert adapter.queue_pairs == adapter.handles == {}


def test_what_a_host_had_means_nothing_once_it_has_left(end):
    adapter, before = end.node.adapter, len(os.listdir("/proc/self/fd"))
    other = End(end.node)
    file = {"device": 1, "inode": 2}
    call(other, control.OPEN_XRCD, **file, flags=control.XRCD_FILE | control.XRCD_CREATE)
    call(end, control.OPEN_XRCD, **file, flags=control.XRCD_FILE)
    other.device.alloc_dm(4096)
    lkey = other.key.lkey
    assert adapter.regions.live_key(lkey)
    other.device.close()
    assert adapter.regions.live_key(lkey) is None
    assert len(os.listdir("/proc/self/fd")) == before
    assert census(end)[Kind.XRCD] == 1


def test_the_domain_of_a_file_goes_with_the_last_host_that_has_it(end):
    other = End(end.node)
    file = {"device": 1, "inode": 2}
    call(other, control.OPEN_XRCD, **file, flags=control.XRCD_FILE | control.XRCD_CREATE)
    other.device.close()
    refused(end, errno.EAGAIN, call, end, control.OPEN_XRCD, **file, flags=control.XRCD_FILE)


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


def test_a_peer_that_left_is_noticed_and_everything_flushed():
    world, left, left_qp, right, _ = pair(timeout=8, retry_cnt=2)
    right.device.close()
    for wr_id in range(3):
        post(left_qp, WRITE, [left.sge(0, 10)], wr_id=wr_id, va=right.va, rkey=right.key.rkey)
    assert [(c.wr_id, c.status) for c in left.poll(3)] == [(0, 12), (1, 5), (2, 5)]
    assert left_qp.query()["qp_state"] == 6
    world.close()


# commands that no driver would send


def test_a_ring_is_no_longer_than_the_adapters_limit(end):
    """The limits are 64 work requests, 16 shared receives and 1,000 completions."""
    pages = end.device.session.memory.allocate(64, contiguous=True)

    def ring(entries, entry_bytes, body_bytes=0):
        body_bytes = body_bytes or entries * entry_bytes
        frames = [(pages[0], plan(entries, body_bytes))]
        return {"entries": entries, "body_bytes": body_bytes, "frames": frames}

    numbers = {"qp_type": RC, "pd": end.pd, "send_cq": end.cq.number, "recv_cq": end.cq.number}
    numbers.update(max_send_wr=2, max_recv_wr=2, max_send_sge=1, max_recv_sge=1)
    for side, other, size in (("send_", "recv_", 80), ("recv_", "send_", 32)):
        fits = prefixed(other, ring(2, 112 - size))
        for wrong in (ring(65, size), ring(1, size), ring(2, size, 4 * size), ring(2, size, size)):
            refused(
                end, errno.EINVAL, call, end, control.CREATE_QP, **numbers, **fits, **prefixed(side, wrong)
            )
        call(end, control.CREATE_QP, **numbers, **fits, **prefixed(side, ring(64, size)))
    for wrong in (ring(17, 32), ring(3, 32), ring(4, 32, 4 * 32 + 1), ring(4, 16, 4 * 32 - 1)):
        fields = {"pd": end.pd, "max_wr": 4, "max_sge": 1, **wrong}
        refused(end, errno.EINVAL, call, end, control.CREATE_SRQ, **fields)
    call(end, control.CREATE_SRQ, pd=end.pd, max_wr=4, max_sge=1, **ring(16, 32))
    for wrong in (ring(1001, 48), ring(4, 48, 4 * 48 + 1), ring(4, 48, 4 * 48 - 1)):
        refused(end, errno.EINVAL, call, end, control.CREATE_CQ, **wrong)
        refused(end, errno.EINVAL, call, end, control.RESIZE_CQ, cq=end.cq.number, **wrong)
    call(end, control.CREATE_CQ, **ring(1000, 48))


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ValueError, errno.EINVAL),
        (OverflowError, errno.EINVAL),
        (TypeError, errno.EINVAL),
        (KeyError, errno.EINVAL),
        (IndexError, errno.EINVAL),
        (MemoryError, errno.ENOMEM),
        (OSError(errno.EBUSY, "busy"), errno.EBUSY),
        (OSError, errno.EIO),
    ],
)
def test_whatever_a_command_fails_with_is_a_refusal(end, monkeypatch, error, code):
    def fail(*_):
        raise error

    monkeypatch.setitem(HANDLERS, control.ALLOC_PD, fail)
    refused(end, code, end.device.alloc_pd)


def test_what_waits_to_be_told_goes_with_its_element(end):
    srq, qp, cq = end.device.create_srq(end.pd, 4, 1), end.qp(), end.device.create_cq(4)
    host = end.node.adapter.hosts[1]
    for _ in range(EVENT_ENTRIES):
        host.report_event(control.EVENT_PORT_ACTIVE, 1)
    told = [(kind, cq.number) for kind in sorted(control.CQ_EVENTS)]
    told += [(kind, srq.number) for kind in sorted(control.SRQ_EVENTS)]
    told += [(kind, qp.number) for kind in sorted(control.QP_EVENTS)]
    assert len(told) == 11
    for kind, number in told:
        host.report_event(kind, number)
    host.report_event(control.EVENT_CQ_ERR, end.cq.number)
    call(end, control.DESTROY_CQ, cq=cq.number)
    assert host.events.waiting() == 10
    call(end, control.DESTROY_SRQ, srq=srq.number)
    assert host.events.waiting() == 8
    call(end, control.DESTROY_QP, qp_num=qp.number)
    assert host.events.waiting() == 1


WORDS = {"u8": 8, "u16": 16, "u32": 32, "u64": 64}


@st.composite
def commands_of(draw, numbers, frames):
    """A command whose fields are often right and sometimes anything."""
    command = draw(st.sampled_from(sorted(COMMANDS)))
    values = {}
    for name, kind in COMMANDS[command][1]:
        if kind in WORDS:
            top = (1 << WORDS[kind]) - 1
            likely = [value for value in numbers.get(name, (0, 1, 2, 3, 4096)) if value <= top]
            values[name] = draw(
                st.one_of(st.sampled_from(likely), st.sampled_from(likely), st.integers(0, 8),
                          st.integers(0, top), st.sampled_from([top, top >> 1, top ^ 0xFF]))
            )
        elif kind == "gid":
            values[name] = draw(st.sampled_from([gid(1), gid(2), bytes(16), b"\xff\x0e" + bytes(14)]))
        elif kind == "runs":
            word = st.integers(0, 0xFFFFFFFF)
            run = st.one_of(st.sampled_from(frames), st.tuples(word, word))
            values[name] = draw(st.lists(run, max_size=3))
    return command, values


@settings(max_examples=random_inputs(60), deadline=None)
@given(st.data())
def test_every_command_with_any_fields_has_one_reply(data):
    world = Network()
    end = End(world.add(1, max_qp=4, max_cq=4, max_qp_wr=8, max_cqe=64, max_mr=4, max_ah=4))
    qp = end.qp(send=4, receive=4)
    qp.modify(INIT)
    if data.draw(st.booleans()):
        qp.modify(RTR)
    srq = end.device.create_srq(end.pd, 4, 1)
    channel = end.device.session.channel
    first = end.device.session.memory.allocate(16, contiguous=True)[0]
    (slot,) = end.node.adapter.hosts[1].arenas
    pages = end.node.adapter.hosts[1].arenas[slot].element[1]
    numbers = {
        "pd": [end.pd], "lkey": [end.key.lkey], "qp_num": [qp.number], "element": [qp.number, 1],
        "cq": [end.cq.number], "send_cq": [end.cq.number], "recv_cq": [end.cq.number],
        "srq": [srq.number, 0], "slot": [slot, 500], "pages": [pages, 5000],
        "address": [end.device.session.memory.attached(slot * 4096)[2]],
        "entries": [4], "send_entries": [4], "recv_entries": [4], "body_bytes": [4 * 48, 4 * 32],
        "send_body_bytes": [4 * 80], "recv_body_bytes": [4 * 32],
        "max_send_wr": [4], "max_recv_wr": [4], "max_send_sge": [1], "max_recv_sge": [1],
        "max_inline_data": [0], "create_flags": [0], "xrcd": [0], "comp_vector": [0], "flags": [0, 1, 7],
        "channel": [0, 1],
        "qp_type": [RC, UD], "qp_state": range(7), "attr_mask": [*MASK.values(), 0x1FFFFF, 0xBFFF],
        "length": [4096, 8192], "access": [0, 15], "page_offset": [0], "va": [0, (1 << 64) - 4096],
        "is_global": [1], "sgid_index": [0], "port_num": [1], "ah_port_num": [1], "ah_is_global": [1],
        "ah_sgid_index": [0],
    }
    frames = [(first, 3), (first, 1), (first + 4, 2), (first, 12)]
    for tag in range(data.draw(st.integers(1, 12))):
        command, values = data.draw(commands_of(numbers, frames))
        before = census(end)
        channel.commands.send(command, tag, values)
        end.node.adapter.kick(world.now)
        reply = channel.replies.take()
        assert (reply.tag, reply.command) == (tag, command)
        assert channel.replies.take() is None
        if reply.errno:
            assert census(end) == before
    world.close()
    assert set(census(end).values()) == {0}


@settings(max_examples=random_inputs(200), deadline=None)
@given(st.data())
def test_no_command_whatever_raises_in_the_engine(data):
    end, replies = COMMAND_END, COMMAND_END.device.session.channel.replies
    channel = end.device.session.channel
    raw = data.draw(st.binary(min_size=1, max_size=200))
    if data.draw(st.booleans()):
        number = data.draw(st.sampled_from(sorted(set(COMMANDS) - {control.DETACH_ARENA})))
        values = {}
        for name, kind in COMMANDS[number][1]:
            if kind in ("u8", "u16", "u32", "u64"):
                bits = int(kind[1:])
                values[name] = data.draw(st.one_of(st.integers(0, 5), st.integers(0, (1 << bits) - 1)))
            elif kind == "runs":
                word = st.integers(0, 0xFFFFFFFF)
                values[name] = data.draw(st.lists(st.tuples(word, word), max_size=3))
            elif kind == "gid":
                values[name] = data.draw(st.sampled_from([gid(1), gid(2), bytes(16), b"\xff" * 16]))
        channel.commands.send(number, 1, values)
    else:
        channel.commands._push(raw)
    end.node.adapter.kick(end.network.now)
    assert replies.take() is not None
    assert replies.take() is None


@pytest.fixture(autouse=True, scope="module")
def _command_world():
    global COMMAND_END
    world = Network()
    COMMAND_END = End(world.add(1))
    yield
    world.close()


def test_a_host_that_breaks_its_command_ring_is_served_no_more_and_others_are(end):
    other = End(end.node)
    layout = end.device.session.channel.commands.producer.layout
    store64(layout.control, 1 << 40)
    qp = other.qp()
    end.node.adapter.kick(end.network.now)
    host = end.node.adapter.hosts[1]
    assert host.commands.broken
    assert_is_out(end, host)
    assert other.device.query_device()["max_qp"] == 4
    assert not end.node.adapter.hosts[2].failed
    qp.destroy()
    store64(layout.control, 0)


def test_a_host_that_breaks_its_reply_ring_has_no_command_carried_out_without_a_reply(end):
    channel, adapter, host = end.device.session.channel, end.node.adapter, end.node.adapter.hosts[1]
    domains = adapter.resources.count(Kind.PD)
    store64(channel.replies.consumer.layout.control + RING_HEAD_AT, 0xC1C1C1C1C1C1C1C1)
    channel.commands.send(control.ALLOC_PD, 1, {})
    assert not adapter.kick(end.network.now)
    assert host.replies.broken
    assert adapter.resources.count(Kind.PD) == domains
    assert_is_out(end, host)
    store64(channel.replies.consumer.layout.control + RING_HEAD_AT, 0)


def assert_is_out(end, host):
    """The host is told once, and neither its commands nor its doorbells are looked at any more."""
    channel, adapter, rung = end.device.session.channel, end.node.adapter, []
    assert host.failed
    adapter.take_notifications()
    adapter.kick(end.network.now)
    assert adapter.take_notifications() == []
    assert [channel.events.take(), channel.events.take()] == [(control.EVENT_DEVICE_FATAL, 0, 0), None]
    host.queue_pairs.append(SimpleNamespace(doorbell=rung.append))
    channel.doorbells.ring(len(host.queue_pairs) - 1)
    channel.commands.send(control.ALLOC_PD, 1, {})
    adapter.kick(end.network.now)
    adapter.expire(end.network.now)
    assert channel.replies.take() is None
    assert rung == []


@pytest.mark.parametrize("serve", ["kick", "expire"])
def test_a_host_that_breaks_its_doorbells_is_served_no_more(end, serve):
    adapter, host = end.node.adapter, end.node.adapter.hosts[1]
    store64(end.device.session.channel.doorbells.control, 1 << 40)
    assert not host.failed
    getattr(adapter, serve)(end.network.now)
    assert_is_out(end, host)


def test_a_host_that_breaks_its_event_ring_is_served_no_more(end):
    adapter, host = end.node.adapter, end.node.adapter.hosts[1]
    store64(host.events.producer.layout.control + 64, 1 << 40)
    for _ in range(EVENT_ENTRIES + 1):
        host.report_event(control.EVENT_PORT_ACTIVE, 1)
    adapter.kick(end.network.now)
    assert host.failed
    assert host.events.waiting() == 0


def run(end, command, **fields):
    """The errno and the reply of a command that host 1 gives in no ring."""
    adapter = end.node.adapter
    return execute(adapter, adapter.hosts[1], command, fields, 0)[:2]


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


def test_a_doorbell_of_a_queue_pair_that_went_is_the_next_ones(end):
    host = end.node.adapter.hosts[1]
    first, second = end.qp(), end.qp()
    slots = list(host.queue_pairs)
    assert [queue_pair.number for queue_pair in slots] == [first.number, second.number]
    first.destroy()
    assert host.queue_pairs == [None, slots[1]]
    third = end.qp()
    assert [queue_pair.number for queue_pair in host.queue_pairs] == [third.number, second.number]


def test_what_elements_of_a_host_tell_stands_in_its_ring_and_it_is_notified(end):
    srq, cq = end.device.create_srq(end.pd, 4, 1), end.device.create_cq(4)
    adapter = end.node.adapter
    host = adapter.hosts[1]
    queue = adapter.resources.find(Kind.CQ, cq.number, 1).element
    shared = adapter.resources.find(Kind.SRQ, srq.number, 1).element
    for _ in range(EVENT_ENTRIES):
        host.report_event(control.EVENT_PORT_ACTIVE, 1)
    tell = (
        (host.completion_event, queue), (host.overflow, queue),
        (host.limit_reached, shared), (host.srq_error, shared),
    )  # fmt: skip
    adapter.take_notifications()
    for number, (say, element) in enumerate(tell, 1):
        say(element)
        assert host.events.waiting() == number
        assert adapter.take_notifications() == [1]
        assert adapter.take_notifications() == []


def test_a_command_that_waits_is_known_until_it_is_served(end):
    adapter = end.node.adapter
    assert (adapter.ring(0), adapter.commanded) == (False, 0)
    end.device.session.channel.commands.send(control.ALLOC_PD, 77, {})
    assert (adapter.ring(0), adapter.commanded) == (False, 1)
    assert (adapter.ring(0), adapter.commanded) == (False, 1)
    assert (adapter.command(0), adapter.commanded) == (True, 0)
    assert (adapter.ring(0), adapter.command(0), adapter.commanded) == (False, False, 0)


def test_a_command_that_is_written_behind_the_look_at_the_doorbells_waits_for_the_next_one(end):
    adapter, commands = end.node.adapter, end.device.session.channel.commands
    commands.send(control.ALLOC_PD, 77, {})
    adapter.ring(0)
    commands.send(control.ALLOC_PD, 78, {})
    assert adapter.command(0)
    assert end.device.session.channel.replies.take().tag == 77
    assert end.device.session.channel.replies.take() is None
    assert adapter.kick(0)
    assert end.device.session.channel.replies.take().tag == 78


def test_data_access_is_allowed_or_not_and_nothing_else(end):
    assert [run(end, control.SET_DATA_ACCESS, allowed=word)[0] for word in (2, 255)] == [errno.EINVAL] * 2
    tpt = end.node.adapter.regions.tpt
    for allowed, was in ((0, 1), (0, 0), (1, 0), (1, 1)):
        assert run(end, control.SET_DATA_ACCESS, allowed=allowed) == (0, {"was_allowed": was})
        assert bool(tpt.stopped) == (not allowed)


def test_a_host_that_goes_stops_data_access_no_longer(end):
    other_host = end.node.open()
    tpt = end.node.adapter.regions.tpt
    assert other_host.set_data_access(False)
    assert run(end, control.SET_DATA_ACCESS, allowed=1) == (0, {"was_allowed": 1})
    assert tpt.stopped
    other_host.close()
    assert not tpt.stopped
