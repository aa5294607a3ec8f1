"""Parts of the adapter alone: events of a host, raw services, and what commands check and keep."""

import errno
import os
from types import SimpleNamespace

import pytest

from softhca.adapter import device_memory
from softhca.adapter.hosts import ChannelHook
from softhca.adapter.paged_commands import settle_data_access
from softhca.adapter.raw_services import RawServices
from softhca.adapter.resources import Kind
from softhca.adapter.steering import MOST_MASKS
from softhca.driver.errors import DriverError
from softhca.driver.paging import PageableMemory
from softhca.memory.bits import PAGE_BYTES
from softhca.queues import control_fields as control
from softhca.queues.layout import DOORBELL_SLOTS
from softhca.queues.states import ERR
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
