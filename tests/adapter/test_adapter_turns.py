"""What one turn of the engine does and leaves: commands of hosts that fail in between, events that found no
room, ports that are armed."""

import dataclasses
import errno
from types import SimpleNamespace

import pytest
from native_network import native_pair

from softhca.adapter.port import PORT_ACTIVE, PORT_ARMED, PORT_DOWN, PORT_INIT
from softhca.adapter.resources import Kind
from softhca.driver import services
from softhca.machine.primitives import store64
from softhca.management.mad import Address
from softhca.queues import control_fields as control
from softhca.queues.layout import EVENT_ENTRIES
from softhca.testing.ends import QKEY, RC, SEND, UC, UD, WRITE, End, connect, pair, post
from softhca.testing.network import Network
from softhca.transport.congestion import DcqcnSettings
from softhca.wire.burst import Burst


@pytest.fixture
def end():
    world = Network()
    yield End(world.add(1))
    world.close()


def test_the_commands_of_a_host_that_fails_in_the_same_turn_are_not_carried_out(end):
    """They were counted before its doorbells were looked at."""
    adapter, channel = end.node.adapter, end.device.session.channel
    domains = adapter.resources.count(Kind.PD)
    channel.commands.send(control.ALLOC_PD, 1, {})
    store64(channel.doorbells.control, 1 << 40)
    adapter.kick(end.network.now)
    assert adapter.hosts[1].failed
    assert channel.replies.take() is None
    assert adapter.resources.count(Kind.PD) == domains


@pytest.mark.parametrize("serve", ["kick", "expire"])
def test_an_event_that_found_no_room_is_told_with_the_next_turn_that_finds_some(end, serve):
    """A loop that polls does not kick."""
    adapter, events = end.node.adapter, end.device.session.channel.events
    host = adapter.hosts[1]
    for number in range(EVENT_ENTRIES + 2):
        host.report_event(control.EVENT_QP_FATAL, number)
    assert host.events.waiting() == 2
    getattr(adapter, serve)(end.network.now)
    assert host.events.waiting() == 2
    assert [events.take().element for _ in range(2)] == [0, 1]
    getattr(adapter, serve)(end.network.now)
    assert host.events.waiting() == 0
    assert [events.take().element for _ in range(EVENT_ENTRIES)] == list(range(2, EVENT_ENTRIES + 2))
    assert events.take() is None


@pytest.mark.parametrize("state", [PORT_INIT, PORT_ARMED, PORT_ACTIVE])
def test_an_armed_port_carries_data_and_one_that_is_only_initialized_none(state):
    world, left, sender, right, _ = native_pair()
    adapter = left.node.adapter
    adapter.set_port_info(1, state=state)
    assert adapter.port_usable(1) is (state != PORT_INIT)
    left.memory[:4] = b"data"
    post(sender, WRITE, [left.sge(0, 4)], va=right.va + 100, rkey=right.key.rkey)
    world.poll()
    world.elapse(1_000_000)
    assert bytes(right.memory[100:104]) == (bytes(4) if state == PORT_INIT else b"data")
    assert bool(adapter.port.counters.packets_discarded) is (state == PORT_INIT)
    world.close()


def test_an_adapter_has_as_many_hosts_as_its_configuration_says():
    with Network() as world:
        node = world.add(1, max_host=2)
        hosts = [node.open() for _ in range(2)]
        assert node.hosts == [1, 2]
        with pytest.raises(OSError, match="2 hosts") as refused:
            node.open()
        assert refused.value.errno == errno.ENOMEM
        hosts[0].close()
        node.open()
        assert sorted(node.adapter.hosts) == [2, 3]


def test_a_host_that_has_left_is_asked_for_nothing_more(end):
    adapter, other = end.node.adapter, end.node.open()
    other.session.channel.commands.send(control.ALLOC_PD, 1, {})
    assert (adapter.ring(0), adapter.commanded) == (False, 1)
    adapter.detach_host(end.node.hosts[1])
    end.node.devices.remove(other)  # it has nothing to close any more
    assert (adapter.ring(0), adapter.commanded) == (False, 0)
    assert not adapter.command(0)


def test_whoever_kicks_learns_of_commands_and_of_doorbells(end):
    adapter, channel = end.node.adapter, end.device.session.channel
    assert not adapter.kick(0)
    channel.commands.send(control.ALLOC_PD, 1, {})
    assert adapter.kick(0)
    assert not adapter.kick(0)
    channel.doorbells.ring(0)
    assert adapter.kick(0)
    assert not adapter.kick(0)


def test_commands_are_carried_out_once_they_are_counted_and_once_each_time(end):
    adapter, channel = end.node.adapter, end.device.session.channel
    channel.commands.send(control.ALLOC_PD, 1, {})
    adapter.ring(0)
    assert adapter.command(0)
    channel.commands.send(control.ALLOC_PD, 2, {})
    assert not adapter.command(0)
    assert channel.replies.take().tag == 1
    assert channel.replies.take() is None


def test_executors_of_this_host_learn_of_data_access(end):
    told = []
    end.node.adapter.same_host = SimpleNamespace(allow=told.append)
    for allowed in (False, True, False):
        end.node.adapter.set_data_access(allowed)
    end.node.adapter.same_host = None
    assert told == [False, True, False]


def test_packets_are_counted_that_leave_and_that_a_port_which_is_not_configured_throws_away():
    world, left, sender, right, _ = native_pair(UC, mtu=1)
    adapter = left.node.adapter
    counters = adapter.port.counters
    for state, discarded, sent, bursts in ((PORT_INIT, 2, 0, 0), (PORT_ACTIVE, 2, 2, 1)):
        adapter.set_port_info(1, state=state)
        post(sender, WRITE, [left.sge(0, 512)], va=right.va, rkey=right.key.rkey)
        world.poll()
        assert (counters.packets_discarded, counters.packets_sent, counters.bursts_sent) == (
            discarded, sent, bursts
        )  # fmt: skip
    world.close()


@pytest.mark.parametrize(("state", "leaves"), [(PORT_DOWN, False), (PORT_INIT, True), (PORT_ARMED, True)])
def test_a_port_without_a_link_sends_not_even_its_managers_packets(state, leaves):
    with Network(link="native") as world:
        adapter = world.add(1).adapter
        adapter.set_port_info(1, state=state)
        flow = adapter.port.management[0]
        flow.dispatcher.send_own(bytes([1, 0x81, 1, 1]).ljust(256, b"\0"), Address(0, lid=0xFFFF))
        assert flow.has_work()
        assert adapter.transmit(1, Burst(), 0) is leaves
        assert adapter.port.counters.packets_discarded == (not leaves)


def test_an_event_of_a_queue_that_there_is_not_is_nobody_elses():
    """A work queue has its number from the range of queue pairs, and other kinds have the same numbers."""
    with Network() as world:
        end = End(world.add(1))
        wq = end.device.create_wq(end.pd, end.cq, 4, 1)
        adapter, events = end.node.adapter, end.device.session.channel.events
        for kind in (control.EVENT_CQ_ERR, control.EVENT_COMM_EST, control.EVENT_PATH_MIG):
            adapter.event(kind, wq.number)
        assert events.take() is None
        for kind, number, expected in (
            (control.EVENT_QP_FATAL, wq.number, control.EVENT_WQ_FATAL),
            (control.EVENT_CQ_ERR, end.cq.number, control.EVENT_CQ_ERR),
        ):
            adapter.event(kind, number)
            told = events.take()
            assert (told.kind, told.element) == (expected, number)


@pytest.mark.parametrize(
    ("link", "kind", "controlled"),
    [("ipv4", RC, True), ("ipv4", UC, True), ("ipv4", UD, False), ("native", RC, False)],
)
def test_connections_of_roce_are_controlled_for_congestion(link, kind, controlled):
    with Network(link=link) as world:
        left, right = (End(world.add(number)) for number in (1, 2))
        peers = left.qp(), right.qp()
        connect((left, peers[0]), (right, peers[1]))
        adapter = left.node.adapter
        route = adapter.queue_pairs[peers[0].number].flow.route
        adapter.config = dataclasses.replace(adapter.config, congestion=DcqcnSettings())
        asked = adapter.queue_pairs[left.qp(kind).number]
        assert (adapter.control_for(asked, route) is not None) is controlled


def test_a_host_whose_commands_were_answered_is_notified(end):
    adapter, channel = end.node.adapter, end.device.session.channel
    adapter.take_notifications()
    for tag in range(3):
        channel.commands.send(control.QUERY_GID, tag, {"port_num": 1})
    assert adapter.kick(0)
    assert adapter.take_notifications() == [1]
    assert [reply.tag for reply in iter(channel.replies.take, None)] == [0, 1, 2]
    assert not adapter.kick(0)
    assert adapter.take_notifications() == []


def test_what_waits_for_memory_goes_on_as_soon_as_it_may():
    world, left, qp, right, _ = pair()
    adapter = left.node.adapter
    adapter.set_data_access(False)
    post(qp, WRITE, [left.sge(0, 8)], va=right.va, rkey=right.key.rkey)
    assert not adapter.transmit(1, Burst(), world.now)
    assert adapter.next_deadline() > 0
    adapter.set_data_access(True)
    assert adapter.next_deadline() == 0
    assert [done.status for done in left.poll(1)] == [0]
    world.close()


@pytest.mark.parametrize("traffic_class", [0x20, 0x40])
def test_what_comes_back_without_a_link_has_its_traffic_class(end, traffic_class):
    sender, receiver = (end.qp(UD) for _ in range(2))
    for qp in (sender, receiver):
        services.start_datagrams(qp, QKEY)
    vector = {"dgid": end.node.gid, "is_global": 1, "port_num": 1, "hop_limit": 1}
    ah = end.device.create_ah(end.pd, {**vector, "traffic_class": traffic_class})
    receiver.post_recv(7, [end.sge(0, 100)])
    post(sender, SEND, [end.sge(200, 8)], ah=ah, qpn=receiver.number, qkey=QKEY)
    assert len(end.poll(2)) == 2
    assert end.memory[21] == traffic_class, "type of service of the IPv4 header in front"
