"""What one turn of the engine does and leaves: commands of hosts that fail in between, events that found no
room, ports that are armed."""

import pytest
from native_network import native_pair

from softhca.adapter.port import PORT_ACTIVE, PORT_ARMED, PORT_INIT
from softhca.adapter.resources import Kind
from softhca.machine.primitives import store64
from softhca.queues import control_fields as control
from softhca.queues.layout import EVENT_ENTRIES
from softhca.testing.ends import WRITE, End, post
from softhca.testing.network import Network


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
