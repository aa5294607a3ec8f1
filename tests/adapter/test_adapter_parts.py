"""Parts of the adapter alone: events of a host, raw services, and what commands check and keep."""

import errno
import os
from types import SimpleNamespace

import pytest

from softhca.adapter import device_memory, on_demand_commands, port_info
from softhca.adapter.config import native_gid
from softhca.adapter.hosts import ChannelHook
from softhca.adapter.management_flow import RateLimit
from softhca.adapter.paged_commands import settle_data_access
from softhca.adapter.raw_services import RawServices
from softhca.adapter.resources import Kind
from softhca.adapter.steering import MOST_MASKS
from softhca.driver.errors import DriverError
from softhca.driver.paging import PageableMemory
from softhca.memory.bits import PAGE_BYTES
from softhca.queues import control_fields as control
from softhca.queues.layout import DOORBELL_SLOTS
from softhca.queues.states import ERR, INIT, RTR
from softhca.testing import SENT
from softhca.testing.ends import ALL_RIGHTS, RAW, SEND, UC, End, pair, post
from softhca.testing.network import Network
from softhca.transport import states
from softhca.wire.ip import ETHERTYPE_IPV6
from softhca.wire.raw import ALL_RAW, RAW_IPV6


@pytest.fixture
def end():
    """One end, whose adapter has room for two regions of a quarter of a MiB."""
    with Network() as world:
        yield End(world.add(1, max_mr=2, max_mr_size_bytes=1 << 18))


class Sink:
    """An event channel that keeps what it is given."""

    def __init__(self):
        self.posted, self.forgotten = [], []

    def post(self, kind, element):
        self.posted.append((kind, element))

    def forget(self, kind, element):
        self.forgotten.append((kind, element))


def host_of(end):
    return end.node.adapter.hosts[1]


def refusal(code):
    return pytest.raises(DriverError, check=lambda error: error.errno == code)


# events of a host


@pytest.mark.parametrize("kind", sorted(
    {control.EVENT_COMPLETION} | control.AGENT_EVENTS | control.CM_EVENTS | control.MR_EVENTS
))  # fmt: skip
def test_events_of_single_queues_and_agents_stay_in_the_ring_of_a_host_with_an_event_channel(end, kind):
    host = host_of(end)
    host.asynchronous = Sink()
    while host.events.take() is not None:
        pass
    host.report_event(kind, 7)
    assert host.asynchronous.posted == []
    found = host.events.take()
    assert (found.kind, found.element) == (kind, 7)


def test_asynchronous_events_go_to_the_event_channel_of_a_host_that_has_one(end):
    host = host_of(end)
    host.asynchronous = sink = Sink()
    end.node.adapter.take_notifications()
    host.report_event(control.EVENT_PORT_ACTIVE, 1)
    assert sink.posted == [(control.EVENT_PORT_ACTIVE, 1)]
    assert end.node.adapter.take_notifications() == []
    host.forget((control.EVENT_PORT_ACTIVE, control.EVENT_PORT_ERR), 1)
    assert sink.forgotten == [(control.EVENT_PORT_ACTIVE, 1), (control.EVENT_PORT_ERR, 1)]


def test_a_completion_queue_with_an_event_channel_tells_it_alone_of_completions(end):
    sink, told = Sink(), []
    hook = ChannelHook(SimpleNamespace(overflow=told.append), sink)
    cq = SimpleNamespace(number=5)
    hook.completion_event(cq)
    hook.overflow(cq)
    hook.forget(5)
    assert sink.posted == sink.forgotten == [(control.EVENT_COMPLETION, 5)]
    assert told == [cq]


def test_a_host_is_notified_of_what_stands_in_its_rings(end):
    adapter, told = end.node.adapter, []
    adapter.take_notifications()
    adapter.notify = lambda: told.append(1)
    host_of(end).mark()
    assert told == [1]
    assert adapter.take_notifications() == [1]


def test_a_host_has_so_many_doorbells_and_no_more(end):
    host = host_of(end)
    host.queue_pairs.extend([None] * (DOORBELL_SLOTS - 1 - len(host.queue_pairs)))
    assert host.take_slot(None) == DOORBELL_SLOTS - 1
    with pytest.raises(OSError, match="doorbell") as refused:
        host.take_slot(None)
    assert refused.value.errno == errno.ENOMEM
    host.give_slot(3)
    assert host.take_slot(None) == 3


# raw services


def test_a_queue_pair_that_goes_leaves_the_services_of_others():
    first, second = (SimpleNamespace(service=states.RAW, number=number) for number in (1, 2))
    services = RawServices()
    services.attach(RAW_IPV6, first)
    services.attach(0x0800, first)
    services.attach(ALL_RAW, second)
    assert [services.receiver(each) for each in (RAW_IPV6, ETHERTYPE_IPV6, 0x0800)] == [first] * 3
    assert services.receiver(0x1234) is second
    with pytest.raises(OSError, match="another queue pair"):
        services.attach(ETHERTYPE_IPV6, second)
    services.forget(first)
    assert [services.receiver(each) for each in (RAW_IPV6, ETHERTYPE_IPV6, 0x0800)] == [second] * 3
    services.attach(ETHERTYPE_IPV6, first)
    services.detach(RAW_IPV6, first)
    assert services.receiver(ETHERTYPE_IPV6) is second


# pageable memory


def descriptors():
    return len(os.listdir("/proc/self/fd"))


def test_pageable_memory_has_up_to_the_most_bytes_of_a_region_and_leaves_no_descriptor(end):
    for length, fits in ((1 << 18, True), ((1 << 18) + PAGE_BYTES, False)):
        memory = PageableMemory(length, ALL_RIGHTS, pager=False, timeout_s=0)
        before = descriptors()
        if fits:
            key = end.device.reg_paged(end.pd, memory, ALL_RIGHTS)
            end.device.dereg_mr(key.handle)
        else:
            with refusal(errno.EINVAL):
                end.device.reg_paged(end.pd, memory, ALL_RIGHTS)
        assert descriptors() == before
        memory.close()


def test_pageable_memory_is_a_region_among_those_that_there_may_be(end):
    memory = PageableMemory(PAGE_BYTES, ALL_RIGHTS, pager=False, timeout_s=0)
    key = end.device.reg_paged(end.pd, memory, ALL_RIGHTS)  # beside that of the end
    with refusal(errno.ENOMEM):
        end.device.reg_paged(end.pd, memory, ALL_RIGHTS)
    end.device.dereg_mr(key.handle)
    memory.close()


def test_what_hosts_say_of_data_access_is_carried_out_where_it_changes_something():
    tpt, set_to = SimpleNamespace(stopped=0), []

    def set_data_access(allowed):
        set_to.append(allowed)
        tpt.stopped = not allowed

    hosts = [SimpleNamespace(stops_data_access=False) for _ in range(2)]
    adapter = SimpleNamespace(
        hosts=dict(enumerate(hosts)), regions=SimpleNamespace(tpt=tpt), set_data_access=set_data_access
    )
    for which, stops in ((0, False), (0, True), (1, True), (0, False), (1, False)):
        hosts[which].stops_data_access = stops
        settle_data_access(adapter)
    assert set_to == [False, True]


# rules of flow steering


def test_a_rule_opens_the_segment_of_its_port_and_one_that_is_refused_leaves_nothing(end):
    adapter, opened = end.node.adapter, []
    adapter.port.segment.listen = lambda: opened.append(1)
    number = end.qp(RAW).number
    opened.clear()
    flow = end.device.create_flow(number, 1, control.FLOW_ALL_DEFAULT, 0)
    assert opened == [1]
    end.device.destroy_flow(flow)
    for priority in range(MOST_MASKS):
        end.device.create_flow(number, 1, control.FLOW_NORMAL, priority)
    with refusal(errno.ENOSPC):
        end.device.create_flow(number, 1, control.FLOW_NORMAL, MOST_MASKS)
    assert adapter.resources.count(Kind.FLOW) == MOST_MASKS == len(adapter.port.segment.steering)


def test_a_rule_ends_at_the_port_that_it_is_of():
    with Network() as world:
        end = End(world.add(1, ports=2))
        ports = end.node.adapter.ports
        flow = end.device.create_flow(end.qp(RAW).number, 2, control.FLOW_ALL_DEFAULT, 0)
        assert [len(port.segment.steering) for port in ports] == [0, 1]
        end.device.destroy_flow(flow)
        assert [len(port.segment.steering) for port in ports] == [0, 0]


# regions, windows and device memory


def test_fast_and_null_regions_are_among_those_that_there_may_be(end):
    fast = end.device.session.call(control.ALLOC_FAST_MR, pd=end.pd, max_pages=1)["mr"]  # and the end's own
    for command, fields in (
        (control.ALLOC_NULL_MR, {}), (control.ALLOC_FAST_MR, {"max_pages": 1}),
    ):  # fmt: skip
        with refusal(errno.ENOMEM):
            end.device.session.call(command, pd=end.pd, **fields)
    end.device.session.call(control.DEREG_FAST_MR, mr=fast)
    assert end.device.session.call(control.ALLOC_NULL_MR, pd=end.pd)["lkey"]


def test_a_fast_region_has_pages_up_to_the_most(end):
    most = end.node.adapter.config.max_fast_pages
    for pages in (0, most + 1):
        with refusal(errno.EINVAL) as refused:
            end.device.session.call(control.ALLOC_FAST_MR, pd=end.pd, max_pages=pages)
        assert f"1…{most}" in refused.value.message
    assert end.device.session.call(control.ALLOC_FAST_MR, pd=end.pd, max_pages=most)["key"]


def test_a_domain_is_in_use_while_a_memory_window_is_in_it(end):
    pd = end.device.alloc_pd()
    window = end.device.session.call(control.ALLOC_MW, pd=pd, type=1)["mw"]
    with refusal(errno.EBUSY):
        end.device.dealloc_pd(pd)
    end.device.session.call(control.DEALLOC_MW, mw=window)
    end.device.dealloc_pd(pd)


def test_device_memory_has_ordinary_pages(end, monkeypatch):
    monkeypatch.setattr(device_memory, "has_ordinary_pages", lambda descriptor: False)
    with refusal(errno.EINVAL):
        end.device.alloc_dm(PAGE_BYTES)
    monkeypatch.undo()
    end.device.alloc_dm(PAGE_BYTES).free()


# connections


def test_a_channel_that_its_host_cannot_afford_is_refused():
    with Network() as world:
        node = world.add(1, max_host_bytes=8)
        with refusal(errno.ENOMEM):
            node.open().open_connections(1)
        assert node.adapter.resources.count(Kind.CM) == 0
        assert node.adapter.port.management[1].connections.channels == []


def test_a_packet_for_a_queue_pair_that_is_not_ready_is_that_whatever_its_key():
    world, left, qp, right, peer = pair(UC)
    packets = world.record(SENT)
    post(qp, SEND, [left.sge(0, 4)])
    world.run()
    peer.modify({"qp_state": ERR})
    right.node.adapter.set_pkeys(1, (0x8001,))
    before = right.node.adapter.port_counters()
    world.inject(right.node, packets[0].data, left.node.gid, source_port=packets[0].route.source_port)
    after = right.node.adapter.port_counters()
    assert [after[name] - before[name] for name in ("drops_state", "drops_pkey")] == [1, 0]
    world.close()


# what a subnet manager sets


@pytest.fixture
def ports():
    """A native adapter of two ports with an end on it."""
    with Network(link="native") as world:
        yield End(world.add(1, ports=2))


def events(end):
    """What the host has been told since the last call, which nobody has looked at."""
    return [tuple(found)[:2] for found in iter(host_of(end).events.take, None)]


@pytest.mark.parametrize(("values", "kinds"), [
    ({"lid": 0x110}, [control.EVENT_LID_CHANGE]), ({"lmc": 1, "lid": 0x110}, [control.EVENT_LID_CHANGE]),
    ({"gid_prefix": 0xFEC0 << 48}, [control.EVENT_GID_CHANGE]), ({"sm_lid": 9}, [control.EVENT_SM_CHANGE]),
    ({"sm_sl": 3}, [control.EVENT_SM_CHANGE]), ({"state": 1}, [control.EVENT_PORT_ERR]),
    ({"subnet_timeout": 5}, []), ({}, []),
])  # fmt: skip
def test_hosts_hear_of_what_a_manager_changes_at_a_port(ports, values, kinds):
    events(ports)
    ports.node.adapter.set_port_info(2, **values)
    assert events(ports) == [(kind, 2) for kind in kinds]
    ports.node.adapter.set_port_info(2, **values)
    assert events(ports) == []
    if "state" in values:
        ports.node.adapter.set_port_info(2, state=4)
        assert events(ports) == [(control.EVENT_PORT_ACTIVE, 2)]


def test_the_mask_of_a_lid_is_a_change_of_lids(ports):
    ports.node.adapter.set_port_info(2, lid=0x110)
    events(ports)
    ports.node.adapter.set_port_info(2, lmc=2)
    assert events(ports) == [(control.EVENT_LID_CHANGE, 2)]


@pytest.mark.parametrize("values", [{"lid": 0x110}, {"lmc": 4}, {"gid_prefix": 0xFEC0 << 48}])
def test_ways_of_a_port_are_made_anew_when_its_addresses_change(ports, values):
    adapter = ports.node.adapter
    if "lmc" in values:
        adapter.set_port_info(2, lid=0x110)
    vector = {"dlid": 9, "is_global": True, "dgid": native_gid(9), "sgid_index": 0, "src_path_bits": 3}
    handles = [ports.device.create_ah(ports.pd, {**vector, "port_num": port}) for port in (1, 2)]
    first, second = (adapter.handles[getattr(each, "number", each)] for each in handles)
    before = first.route, second.route
    adapter.set_port_info(2, **values)
    assert first.route is before[0]
    assert second.route is not before[1]
    port = adapter.ports[1]
    assert (second.route.slid, second.route.source) == (port.source_lid(3), port.gid_table[0])


def test_a_connection_goes_from_the_present_address_of_its_port(ports):
    adapter, qp = ports.node.adapter, ports.qp(UC)
    vector = {"dlid": 9, "is_global": False, "src_path_bits": 0, "sl": 0}
    qp.modify({"qp_state": INIT, "port_num": 2, "pkey_index": 0, "qp_access_flags": 0})
    qp.modify({"qp_state": RTR, "ah_attr": vector, "path_mtu": 3, "dest_qp_num": 5, "rq_psn": 0})
    flow = adapter.queue_pairs[qp.number].flow
    assert flow.route.slid == adapter.ports[1].lid
    adapter.set_port_info(2, lid=0x120)
    assert flow.route.slid == 0x120


def test_connections_of_a_port_that_is_down_are_looked_at(ports, monkeypatch):
    adapter, failed = ports.node.adapter, []
    monkeypatch.setattr(port_info, "port_failed", lambda *given: failed.append(given))
    port_info.set_port_info(adapter, 2, sm_lid=7)
    assert failed == []
    port_info.set_port_info(adapter, 2, state=1)
    assert failed == [(adapter, adapter.ports[1], adapter.now)]


def test_a_port_has_other_keys_and_so_have_the_queue_pairs_that_live_on_it(ports):
    adapter = ports.node.adapter
    adapter.set_pkeys(1, (0xFFFF, 0x8001))
    adapter.set_pkeys(2, (0xFFFF, 0x8002))
    qps = [ports.qp(UC) for _ in range(2)]
    for port, qp in enumerate(qps, 1):
        qp.modify({"qp_state": INIT, "port_num": port, "pkey_index": 1, "qp_access_flags": 0})
    keys = [adapter.queue_pairs[qp.number] for qp in qps]
    assert [each.pkey for each in keys] == [0x8001, 0x8002]
    events(ports)
    adapter.set_pkeys(2, (0x8003, 0x8004))
    assert [each.pkey for each in keys] == [0x8001, 0x8004]
    assert events(ports) == [(control.EVENT_PKEY_CHANGE, 2)]
    adapter.set_pkeys(2, (0x8003, 0x8004))
    assert events(ports) == []


def test_a_port_has_up_to_the_most_keys_of_16_bits(ports):
    adapter = ports.node.adapter
    most = adapter.config.pkey_table_length
    adapter.set_pkeys(1, (0xFFFF,) * most)
    for keys in ((0xFFFF,) * (most + 1), (0x10000,), (-1,)):
        with pytest.raises(ValueError, match="P_Keys"):
            adapter.set_pkeys(1, keys)
    with pytest.raises(ValueError, match="port"):
        adapter.set_pkeys(3, (1,))
    assert adapter.ports[0].pkeys == (0xFFFF,) * most


# regions on demand


ON_DEMAND = 64


def on_demand(**changes):
    fields = {"pd": 1, "access": ON_DEMAND, "va": 0x1000, "address": 0x2000, "length": 100, "held": 0,
              "frames": [], "flags": 0}  # fmt: skip
    return {**fields, **changes}


@pytest.mark.parametrize(("access", "frames", "is_one"), [
    (ON_DEMAND, [], True), (ON_DEMAND | 1, [], True), (1, [], False), (ON_DEMAND, [(1, 1)], False),
])  # fmt: skip
def test_a_region_on_demand_has_addresses_and_no_frames(access, frames, is_one):
    assert on_demand_commands.wanted(on_demand(access=access, frames=frames)) == is_one


@pytest.mark.parametrize(("foreign", "pid", "copies", "may"), [
    (True, 5, False, True), (True, 0, True, True), (True, 0, False, False), (False, 5, True, False),
])  # fmt: skip
def test_memory_of_a_host_is_reached_where_who_attached_it_says_so(monkeypatch, foreign, pid, copies, may):
    monkeypatch.setattr(on_demand_commands, "can_copy", lambda: copies)
    assert on_demand_commands.reachable(SimpleNamespace(foreign=foreign, pid=pid)) == may


@pytest.mark.parametrize("held", [0, 1])
def test_registering_says_who_keeps_it_mapped_and_is_bounded(monkeypatch, held):
    made, counted = [], []

    def register(*arguments):
        made.append(arguments)
        return SimpleNamespace(key=7)

    monkeypatch.setattr(on_demand_commands, "register_on_demand", register)
    monkeypatch.setattr(on_demand_commands, "reachable", lambda host: True)
    monkeypatch.setattr(on_demand_commands, "check_room", counted.append)
    resources = SimpleNamespace(
        find=lambda *_: SimpleNamespace(number=3), add=lambda *given: made.append(given[:2])
    )
    config = SimpleNamespace(max_mr_size_bytes=100)
    adapter = SimpleNamespace(resources=resources, config=config, regions="regions")
    host = SimpleNamespace(number=1, pid=9)
    assert on_demand_commands.register(adapter, host, on_demand(held=held)) == {"lkey": 7, "rkey": 7}
    region = ("regions", 9, 3, 0x1000, 0x2000, 100, ON_DEMAND, bool(held))
    assert made == [region, (Kind.MR, 7)]
    assert counted == [adapter]
    implicit = on_demand_commands.IMPLICIT_BYTES
    assert on_demand_commands.register(adapter, host, on_demand(length=implicit, address=0, va=0))
    made.clear()
    for change in ({"length": 101}, {"length": implicit, "va": 0}, {"length": implicit, "address": 0}):
        with pytest.raises(OSError, match="length") as refused:
            on_demand_commands.register(adapter, host, on_demand(**change))
        assert refused.value.errno == errno.EINVAL
    assert made == []


def test_a_region_on_demand_stays_one_and_changes_what_is_named(monkeypatch):
    done = []
    monkeypatch.setattr(on_demand_commands, "reregister_on_demand", lambda *given: done.append(given[2:]))
    adapter = SimpleNamespace(regions=None, config=SimpleNamespace(max_mr_size_bytes=100))
    region = SimpleNamespace(access=ON_DEMAND | 1)
    moves, rights = control.REREG_TRANSLATION, control.REREG_ACCESS

    def change(**fields):
        on_demand_commands.reregister(adapter, region, 4, on_demand(**fields))

    change(access=0, length=1000)
    change(flags=rights, access=ON_DEMAND, length=1000)
    change(flags=moves, access=0)
    place = (0x1000, 0x2000, 100)
    assert done == [(4, ON_DEMAND | 1, None), (4, ON_DEMAND, None), (4, ON_DEMAND | 1, place)]
    for fields, code in (
        ({"flags": rights, "access": 1}, errno.EOPNOTSUPP),
        ({"flags": moves, "frames": [(1, 1)]}, errno.EOPNOTSUPP),
        ({"flags": moves, "length": 101}, errno.EINVAL),
    ):
        with pytest.raises(OSError, match=r"access|length") as refused:
            change(**fields)
        assert refused.value.errno == code
    assert len(done) == 3


# how many datagrams of management pass


def test_so_many_datagrams_pass_at_once_and_then_one_a_period():
    limit = RateLimit(1000, 3)
    start = 50_000
    assert [limit.take(start) for _ in range(5)] == [True, True, True, False, False]
    assert not limit.take(start + 999)
    assert limit.take(start + 1000)
    assert not limit.take(start + 1999)
    assert limit.take(start + 2000)
    assert [limit.take(start + 100_000) for _ in range(4)] == [True, True, True, False]  # no more for waiting
