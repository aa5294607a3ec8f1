"""Bounds and ends of what a host has: doorbells beyond the last queue, buffers attached twice, events of what
is gone, and limits that may be reached."""

import errno

import pytest

from softhca.adapter.commands import execute
from softhca.adapter.config import AdapterConfig
from softhca.adapter.multicast import MulticastGroups
from softhca.adapter.path_migration import set_link
from softhca.adapter.resources import Kind
from softhca.adapter.rings import cost_of
from softhca.driver.errors import DriverError
from softhca.memory.bits import SLOT_PAGES
from softhca.queues import control_fields as control
from softhca.queues.layout import CQE_BYTES, EVENT_ENTRIES
from softhca.queues.states import INIT, RTR
from softhca.testing.addressing import gid
from softhca.testing.ends import ALL_RIGHTS, RC, End
from softhca.testing.network import Network


@pytest.fixture
def end():
    world = Network()
    yield End(world.add(1, max_qp_rd_atom=16))
    world.close()


def do(end, command, **fields):
    """The errno of a command of host 1, and its reply."""
    adapter = end.node.adapter
    return execute(adapter, adapter.hosts[1], command, fields, 0)[:2]


@pytest.mark.parametrize("queues", [0, 1, 3])
def test_a_doorbell_of_no_queue_rings_nobody(end, queues):
    made = [end.qp() for _ in range(queues)]
    doorbells, adapter = end.device.session.channel.doorbells, end.node.adapter
    for slot in (queues, queues + 1, doorbells.slots - 1):
        assert doorbells.ring(slot)
    assert adapter.kick(end.network.now)
    assert not adapter.hosts[1].failed
    assert adapter.hosts[1].doorbells.empty()
    for each in made:
        each.destroy()
    assert doorbells.ring(0)
    adapter.kick(end.network.now)


def test_a_buffer_is_attached_once_and_detached_as_it_was(end):
    host = end.node.adapter.hosts[1]
    ((slot, arena),) = host.arenas.items()
    _, pages, _ = arena.element
    _, count, address = end.device.session.memory.attached(slot * 4096)
    assert count == pages
    fields = {"slot": slot, "pages": pages, "memory": control.MEMORY_FOREIGN, "address": address}
    assert do(end, control.ATTACH_ARENA, **fields)[0] == errno.EBUSY
    assert end.node.adapter.resources.count(Kind.ARENA) == 1
    for wrong in ({"slot": slot, "pages": pages + 1}, {"slot": slot + 1, "pages": pages}):
        assert do(end, control.DETACH_ARENA, **wrong)[0] == errno.EINVAL
    assert do(end, control.DETACH_ARENA, slot=slot, pages=pages)[0] == errno.EBUSY, "a region lies in it"
    assert host.arenas == {slot: arena}


def attach(end, slot, pages):
    """A buffer that the host, which is embedded, has put into its map; nobody touches its bytes."""
    end.node.adapter.hosts[1].address_map.attach(slot, pages, 1 << 40 | slot << 24)
    fields = {"memory": control.MEMORY_FOREIGN, "address": 1 << 40 | slot << 24}
    assert do(end, control.ATTACH_ARENA, slot=slot, pages=pages, **fields)[0] == 0


@pytest.mark.parametrize("pages", [1, SLOT_PAGES, SLOT_PAGES + 1, 2 * SLOT_PAGES, 2 * SLOT_PAGES + 1])
def test_a_buffer_that_is_detached_leaves_none_of_its_slots_taken(end, pages):
    host = end.node.adapter.hosts[1]
    before = dict(host.arenas)
    attach(end, 900, pages)
    assert len(host.arenas) == len(before) + -(-pages // SLOT_PAGES)
    assert do(end, control.DETACH_ARENA, slot=900, pages=pages)[0] == 0
    assert host.arenas == before


def test_a_region_that_is_moved_stands_on_its_new_buffer_alone(end):
    attach(end, 900, 1)
    attach(end, 950, 1)
    given = {"pd": end.pd, "va": 4096, "length": 4096, "access": 0, "page_offset": 0, "zero_based": 0}
    code, keys = do(end, control.REG_MR, **given, frames=[(900 * SLOT_PAGES, 1)])
    assert code == 0
    assert do(end, control.DETACH_ARENA, slot=900, pages=1)[0] == errno.EBUSY
    moved = {"lkey": keys["lkey"], "flags": control.REREG_TRANSLATION, "frames": [(950 * SLOT_PAGES, 1)]}
    assert do(end, control.REREG_MR, **given, **moved)[0] == 0
    assert do(end, control.DETACH_ARENA, slot=900, pages=1)[0] == 0
    assert do(end, control.DETACH_ARENA, slot=950, pages=1)[0] == errno.EBUSY


def test_an_event_of_a_region_goes_with_it(end):
    host = end.node.adapter.hosts[1]
    for number in range(EVENT_ENTRIES):
        host.report_event(control.EVENT_QP_FATAL, number)
    for kind in sorted(control.MR_EVENTS):
        host.report_event(kind, end.key.lkey)
        host.report_event(kind, 7)
    waiting = host.events.waiting()
    end.device.dereg_mr(end.key.handle)
    assert host.events.waiting() == waiting - len(control.MR_EVENTS)


class Sink:
    """An event channel of which nobody has read."""

    def __init__(self):
        self.waiting = []

    def post(self, kind, element):
        self.waiting.append((kind, element))

    def forget(self, kind, element):
        self.waiting = [each for each in self.waiting if each != (kind, element)]


def test_events_in_channels_go_with_their_elements(end):
    host, sink = end.node.adapter.hosts[1], Sink()
    host.event_channel = lambda number: sink
    ring = end.device.session.make_ring(4, 4 * CQE_BYTES)[2]
    code, reply = do(end, control.CREATE_CQ, **ring, comp_vector=0, flags=0, channel=1)
    assert code == 0
    cq = end.node.adapter.resources.find(Kind.CQ, reply["cq"], 1).element
    cq.notify_hook.completion_event(cq)
    assert sink.waiting == [(control.EVENT_COMPLETION, cq.number)]
    host.asynchronous = other = Sink()
    cq.notify_hook.overflow(cq)
    assert other.waiting == [(control.EVENT_CQ_ERR, cq.number)]
    assert do(end, control.DESTROY_CQ, cq=cq.number)[0] == 0
    assert sink.waiting == other.waiting == []
    host.asynchronous = None


def test_nobody_looks_after_a_queue_whose_host_is_gone(end):
    """Its ring is no more."""
    adapter = end.node.adapter
    adapter.hosts[1].event_channel = lambda number: Sink()
    ring = end.device.session.make_ring(4, 4 * CQE_BYTES)[2]
    code, reply = do(end, control.CREATE_CQ, **ring, comp_vector=0, flags=0, channel=1)
    assert code == 0
    cq = adapter.resources.get(Kind.CQ, reply["cq"]).element
    assert cq.post(1, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0, 0, end.network.now)
    late = cq.notify_hook.late
    assert late.armed_ns
    end.device.close()
    assert not adapter.hosts
    assert late.armed_ns == 0


def test_a_limit_of_receives_may_be_all_that_there_are(end):
    srq = end.device.create_srq(end.pd, 4, 1)
    srq.modify(limit=4)
    assert srq.query()["srq_limit"] == 0, "there are fewer, so it has fired"
    with pytest.raises(DriverError) as caught:
        srq.modify(limit=5)
    assert caught.value.errno == errno.EINVAL


def test_a_queue_pair_may_have_all_reads_that_the_adapter_has(end):
    qp = end.qp()
    qp.modify({"qp_state": INIT, "pkey_index": 0, "port_num": 1, "qp_access_flags": ALL_RIGHTS})
    vector = {"dgid": gid(2), "is_global": 1, "port_num": 1, "hop_limit": 1}
    attributes = {"path_mtu": 3, "dest_qp_num": 5, "rq_psn": 0, "min_rnr_timer": 1}
    qp.modify({"qp_state": RTR, "ah_attr": vector, "max_dest_rd_atomic": 16, **attributes})


@pytest.mark.parametrize(
    ("name", "limit"),
    [
        ("max_send_wr", "max_qp_wr"),
        ("max_recv_wr", "max_qp_wr"),
        ("max_send_sge", "max_sge"),
        ("max_recv_sge", "max_sge"),
        ("max_inline_data", "max_inline_bytes"),
    ],
)
def test_a_queue_pair_may_have_what_the_adapter_has_at_most_and_no_more(end, name, limit):
    adapter = end.node.adapter
    most = getattr(adapter.config, limit)
    names = ("max_send_wr", "max_recv_wr", "max_send_sge", "max_recv_sge", "max_inline_data", "create_flags")
    for value, refused in ((most, False), (most + 1, True)):
        fields = {**dict.fromkeys(names, 0), "qp_type": RC, name: value}
        code, _, reason = execute(adapter, adapter.hosts[1], control.CREATE_QP, fields, 0)
        assert code == errno.EINVAL, "the rest is missing"
        assert reason.startswith(f"{name} = {value} is beyond") is refused


def test_a_queue_pair_costs_what_both_its_rings_cost(end):
    resources = end.node.adapter.resources
    before = resources.cost(1)
    qp = end.qp(send=64, receive=32)
    element = resources.find(Kind.QP, qp.number, 1).element
    rings = [cost_of(ring.layout) for ring in (element.send_ring, element.receive_ring)]
    assert min(rings) > 0
    assert resources.cost(1) - before == sum(rings)
    qp.destroy()
    assert resources.cost(1) == before


def test_a_link_that_is_told_to_be_as_it_is_tells_nobody(end):
    adapter, device = end.node.adapter, end.device
    for up in (True, False, False, True, True):
        set_link(adapter, 1, up)
    told = []
    while (event := device.next_event(0)) is not None:
        told.append(event)
    assert told == [(control.EVENT_PORT_ERR, 1), (control.EVENT_PORT_ACTIVE, 1)]


def test_a_port_leaves_a_group_with_its_last_queue_pair_whatever_other_ports_do():
    class Member:
        def __init__(self, number, port):
            self.number = number
            self.flow = type("Flow", (), {"multicasts": True, "port_number": port})

    groups, said = MulticastGroups(AdapterConfig(gids=(gid(1),))), []
    groups.join = lambda port, group: said.append(("join", port))
    groups.leave = lambda port, group: said.append(("leave", port))
    one, two, three = Member(5, 1), Member(6, 2), Member(7, 1)
    for each in (one, two, three):
        groups.attach(b"g" * 16, each)
    assert said == [("join", 1), ("join", 2)]
    groups.detach(b"g" * 16, one)
    assert len(said) == 2
    groups.detach(b"g" * 16, three)
    assert said[2:] == [("leave", 1)]
    groups.forget(two)
    assert said[3:] == [("leave", 2)]
    assert not groups.heard(b"g" * 16)
