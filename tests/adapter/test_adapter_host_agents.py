"""Agents of hosts: registering, sending, receiving, time-outs, and hosts that write what cannot be."""

from __future__ import annotations

import errno
from dataclasses import replace
from types import SimpleNamespace

import pytest

from softhca.adapter import host_agents
from softhca.adapter.management_flow import MOST_AT_ONCE, MOST_CONNECTIONS_AT_ONCE
from softhca.adapter.rings import FULL_RING_RETRY_NS
from softhca.driver.agents import MadAddress
from softhca.driver.errors import DriverError
from softhca.machine.primitives import store64
from softhca.management import constants as c
from softhca.management.attributes import ClassPortInfo, PortInfo
from softhca.management.mad import Mad, MadHeader
from softhca.queues import control_fields as control
from softhca.queues.layout import MAD_ENTRY_BYTES
from softhca.testing.network import Network
from softhca.wire.burst import Burst
from softhca.wire.framing import ROCE_V4

LINKS = ("ipv4", "ipv6", "native")
CLASS = 0x32
"""A vendor's."""
MS = 1_000_000
METHODS = {c.METHOD_GET, c.METHOD_SEND}


def request(method=c.METHOD_GET, tid=0x1122334455667788, management_class=CLASS, attribute=9, data=b"asked"):
    header = MadHeader(
        management_class=management_class, method=method, transaction_id=tid, attribute_id=attribute
    )
    return Mad.make(header, data)


class Hosts:
    """Two adapters with a device each, and what reaches one from the other."""

    def __init__(self, link="ipv4", **config):
        self.network = Network(link=link)
        self.nodes = [self.network.add(**config) for _ in range(2)]
        self.devices = [node.open() for node in self.nodes]

    def agent(self, side=0, methods=(), entries=8, management_class=CLASS, version=1):
        return self.devices[side].register_agent(1, management_class, version, methods, entries)

    def to(self, side=1, **changes):
        node = self.nodes[side]
        if self.network.addressing.framing == 0:
            return MadAddress(dlid=node.lid, **changes)
        return MadAddress(gid=node.gid, **changes)

    def got(self, agent):
        """What has come for an agent by now."""
        self.network.elapse(500_000)
        found = []
        while (arrival := agent.receive(0)) is not None:
            found.append(arrival)
        return found

    def counter(self, name, side=0):
        return self.nodes[side].adapter.port_counters()[f"management1_{name}"]


@pytest.fixture
def hosts():
    made = Hosts()
    yield made
    made.network.close()


@pytest.mark.parametrize("link", LINKS)
def test_a_request_is_answered_by_the_program_that_is_registered_for_it(link):
    hosts = Hosts(link)
    asker, answerer = hosts.agent(), hosts.agent(1, METHODS)
    asked = request()
    asker.send(asked.encode(), hosts.to(), timeout_ms=100)
    (arrival,) = hosts.got(answerer)
    mad = Mad.decode(arrival.mad)
    assert mad.data[:5] == b"asked"
    assert mad.header.transaction_id & 0xFFFFFFFF == asked.header.transaction_id & 0xFFFFFFFF
    assert (arrival.status, arrival.source.qpn, arrival.source.pkey) == (0, 1, 0xFFFF)
    assert (arrival.source.gid, arrival.source.dlid) == (
        (None, hosts.nodes[0].lid) if link == "native" else (hosts.nodes[0].gid, 0)
    )
    answerer.send(mad.response(0, b"told").encode(), arrival.source)
    (answer,) = hosts.got(asker)
    assert answer.status == 0
    assert Mad.decode(answer.mad).data[:4] == b"told"
    assert Mad.decode(answer.mad).header.transaction_id == asked.header.transaction_id
    hosts.network.elapse(1000 * MS)
    assert hosts.got(asker) == []
    hosts.network.close()


def test_agents_of_the_adapter_answer_a_program(hosts):
    asker = hosts.agent(management_class=c.CLASS_PERF)
    asked = request(management_class=c.CLASS_PERF, attribute=c.ATTRIBUTE_CLASS_PORT_INFO, data=b"")
    for side in (1, 0):  # its own port, too
        asker.send(asked.encode(), hosts.to(side), timeout_ms=100)
        (answer,) = hosts.got(asker)
        assert Mad.decode(answer.mad) == asked.response(0, ClassPortInfo())


def test_two_programs_on_one_port_may_use_one_transaction_id(hosts):
    hosts.devices.append(hosts.nodes[0].open())
    first, second = hosts.agent(), hosts.agent(2)
    answerer = hosts.agent(1, METHODS)
    first.send(request(data=b"one").encode(), hosts.to(), timeout_ms=100)
    second.send(request(data=b"two").encode(), hosts.to(), timeout_ms=100)
    arrivals = hosts.got(answerer)
    on_wire = {Mad.decode(each.mad).header.transaction_id for each in arrivals}
    assert len(on_wire) == 2
    for arrival in reversed(arrivals):
        mad = Mad.decode(arrival.mad)
        answerer.send(mad.response(0, b"to " + mad.data[:3]).encode(), arrival.source)
    for agent, told in ((first, b"to one"), (second, b"to two")):
        (answer,) = hosts.got(agent)
        assert Mad.decode(answer.mad).data[:6] == told
        assert Mad.decode(answer.mad).header.transaction_id == 0x1122334455667788


def test_a_request_that_nobody_answers_is_sent_again_and_then_given_up(hosts):
    asker, answerer = hosts.agent(), hosts.agent(1, METHODS)
    asked = request()
    asker.send(asked.encode(), hosts.to(), timeout_ms=10, retries=2)
    seen = []
    for _ in range(3):
        seen += hosts.got(answerer)
        assert hosts.got(asker) == []
        hosts.network.elapse(11 * MS)
    assert [Mad.decode(each.mad) for each in seen] == [Mad.decode(seen[0].mad)] * 3
    (end,) = hosts.got(asker)
    assert (end.status, end.mad, end.source.gid) == (errno.ETIMEDOUT, asked.encode(), hosts.nodes[1].gid)
    # who answers too late answers nobody
    answerer.send(Mad.decode(seen[0].mad).response().encode(), seen[0].source)
    assert hosts.got(asker) == []
    assert hosts.counter("drops_unmatched") == 1


def test_a_response_ends_the_waiting_also_when_it_is_the_last_try(hosts):
    asker, answerer = hosts.agent(), hosts.agent(1, METHODS)
    asker.send(request().encode(), hosts.to(), timeout_ms=10, retries=1)
    hosts.got(answerer)
    hosts.network.elapse(11 * MS)
    (again,) = hosts.got(answerer)
    answerer.send(Mad.decode(again.mad).response().encode(), again.source)
    (answer,) = hosts.got(asker)
    assert answer.status == 0
    hosts.network.elapse(100 * MS)
    assert hosts.got(asker) == []


def test_without_a_time_out_nothing_is_told(hosts):
    asker = hosts.agent()
    hosts.agent(1, METHODS)
    asker.send(request().encode(), hosts.to())
    asker.send(request(c.METHOD_SEND).encode(), hosts.to(), timeout_ms=10)
    hosts.network.elapse(1000 * MS)
    assert hosts.got(asker) == []


def test_a_transaction_id_that_waits_is_not_taken_twice(hosts):
    asker = hosts.agent()
    hosts.agent(1, METHODS)
    asker.send(request().encode(), hosts.to(), timeout_ms=10)
    with pytest.raises(DriverError) as refused:
        asker.send(request(tid=0xFFFFFFFF55667788).encode(), hosts.to(), timeout_ms=10)
    assert refused.value.errno == errno.EINVAL
    hosts.network.elapse(11 * MS)
    assert len(hosts.got(asker)) == 1
    asker.send(request().encode(), hosts.to(), timeout_ms=10)


def test_what_finds_no_room_is_dropped_and_a_time_out_waits_for_room(hosts):
    asker, sender = hosts.agent(0, {c.METHOD_SEND}, entries=2), hosts.agent(1, METHODS)
    asker.send(request(tid=1).encode(), hosts.to(), timeout_ms=10)
    for number in range(3):
        sender.send(request(c.METHOD_SEND, data=bytes([number])).encode(), hosts.to(0))
    hosts.network.elapse(500_000)
    assert hosts.counter("drops_client_full") == 1
    hosts.network.elapse(20 * MS)
    arrivals = hosts.got(asker)
    assert [(each.status, Mad.decode(each.mad).data[0]) for each in arrivals] == [(0, 0), (0, 1)]
    hosts.network.elapse(2 * FULL_RING_RETRY_NS)
    (end,) = hosts.got(asker)
    assert end.status == errno.ETIMEDOUT


def test_as_many_as_are_allowed_wait(hosts, monkeypatch):
    monkeypatch.setattr(host_agents, "MAX_PENDING", 3)
    asker = hosts.agent()
    hosts.agent(1, METHODS)
    for number in range(3):
        asker.send(request(tid=number).encode(), hosts.to(), timeout_ms=10)
    with pytest.raises(DriverError) as refused:
        asker.send(request(tid=3).encode(), hosts.to(), timeout_ms=10)
    assert refused.value.errno == errno.EAGAIN
    hosts.network.elapse(11 * MS)
    assert [each.status for each in hosts.got(asker)] == [errno.ETIMEDOUT] * 3
    asker.send(request(tid=3).encode(), hosts.to(), timeout_ms=10)


def test_a_method_has_one_agent_and_is_free_when_it_goes(hosts):
    first = hosts.agent(0, METHODS)
    with pytest.raises(DriverError) as refused:
        hosts.agent(0, {c.METHOD_SEND})
    assert refused.value.errno == errno.EBUSY
    first.unregister()
    with pytest.raises(DriverError):
        first.send(request().encode(), hosts.to())
    with pytest.raises(DriverError):
        first.receive(0)
    hosts.agent(0, METHODS).unregister()
    assert hosts.nodes[0].adapter.resources.count(host_agents.Kind.AGENT) == 0


def test_a_host_that_dies_is_let_go_with_all_of_it(hosts):
    asker = hosts.agent(0, METHODS)
    asker.send(request().encode(), hosts.to(), timeout_ms=10, retries=200)
    adapter = hosts.nodes[0].adapter
    flow = adapter.port.management[1]
    assert (len(flow.pending), flow.dispatcher.outstanding()) == (1, 1)
    hosts.devices[0].close()
    assert (len(flow.pending), flow.dispatcher.outstanding()) == (0, 0)
    assert adapter.resources.count(host_agents.Kind.AGENT) == 0
    hosts.network.elapse(100 * MS)
    hosts.devices[0] = hosts.nodes[0].open()
    hosts.agent(0, METHODS)


def test_queue_pair_0_is_for_hosts_only_where_the_adapter_lets_them():
    for link, config, code in (
        ("ipv4", {"host_subnet_management": True}, errno.EOPNOTSUPP),
        ("native", {}, errno.EPERM),
    ):
        hosts = Hosts(link, **config)
        with pytest.raises(DriverError) as refused:
            hosts.agent(management_class=c.CLASS_SUBN_LID)
        assert refused.value.errno == code
        hosts.network.close()
    hosts = Hosts("native", host_subnet_management=True)
    manager = hosts.agent(management_class=c.CLASS_SUBN_LID)
    asked = request(management_class=c.CLASS_SUBN_LID, attribute=c.ATTRIBUTE_PORT_INFO, data=b"")
    manager.send(asked.encode(), hosts.to(qpn=0, qkey=0), timeout_ms=100)
    (answer,) = hosts.got(manager)
    assert PortInfo.decode(Mad.decode(answer.mad).data).lid == hosts.nodes[1].lid
    assert (answer.source.qpn, answer.source.pkey) == (0, 0xFFFF)
    hosts.network.close()


HOSTILE = {
    "no such port": ({"port_num": 9}, errno.EINVAL),
    "class 0": ({"mgmt_class": 0}, errno.EINVAL),
    "method 0": ({"methods_low": 1}, errno.EINVAL),
    "a response's method": ({"methods_high": 1 << 63}, 0),
    "no entries": ({"entries": 0}, errno.EINVAL),
    "too many entries": ({"entries": 1 << 20}, errno.EINVAL),
    "bodies too short": ({"body_bytes": 1}, errno.EINVAL),
    "bodies too long": ({"body_bytes": 1 << 20}, errno.EINVAL),
    "no frames": ({"frames": []}, errno.EINVAL),
    "frames of nobody": ({"frames": [(0xFFFFF000, 3)]}, errno.EFAULT),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_registration_that_cannot_be_changes_nothing(hosts, name):
    changes, code = HOSTILE[name]
    session = hosts.devices[0].session
    _, _, ring = session.make_ring(1, MAD_ENTRY_BYTES)
    fields = {"port_num": 1, "mgmt_class": CLASS, "class_version": 1, **ring, **changes}
    if code == 0:
        session.call(control.REGISTER_AGENT, **fields)
        return
    with pytest.raises(DriverError) as refused:
        session.call(control.REGISTER_AGENT, **fields)
    assert refused.value.errno == code
    assert hosts.nodes[0].adapter.resources.count(host_agents.Kind.AGENT) == 0
    hosts.agent(0, METHODS)


SENDS = {
    "another's agent": ({"agent": 77}, errno.EINVAL),
    "shorter": ({"mad": bytes(255)}, errno.EINVAL),
    "longer": ({"mad": bytes(257)}, errno.EINVAL),
    "queue pair 0": ({"qpn": 0}, errno.EINVAL),
    "25 bits of queue pair": ({"qpn": 1 << 24}, errno.EINVAL),
    "service level": ({"sl": 16}, errno.EINVAL),
    "path bits": ({"path_bits": 128}, errno.EINVAL),
    "no such P_Key": ({"pkey_index": 5}, errno.EINVAL),
    "no GID": ({"is_global": 0}, errno.EINVAL),
    "retries": ({"retries": 256}, errno.EINVAL),
    "another class": ({"mad": request(management_class=0x33).encode()}, errno.EINVAL),
}


@pytest.mark.parametrize("name", SENDS)
def test_a_datagram_that_cannot_be_is_refused(hosts, name):
    changes, code = SENDS[name]
    agent = hosts.agent()
    fields = {
        "agent": agent.number,
        "qpn": 1,
        "qkey": c.GENERAL_QKEY,
        "is_global": 1,
        "dgid": hosts.nodes[1].gid,
        "timeout_ms": 10,
        "mad": request().encode(),
    }
    with pytest.raises(DriverError) as refused:
        hosts.devices[0].session.call(control.SEND_MAD, **{**fields, **changes})
    assert refused.value.errno == code
    assert len(hosts.nodes[0].adapter.port.management[1].pending) == 0
    hosts.devices[0].session.call(control.SEND_MAD, **fields)


def test_another_host_cannot_use_an_agent(hosts):
    agent = hosts.agent(0, METHODS)
    hosts.devices.append(hosts.nodes[0].open())
    for command, fields in (
        (control.UNREGISTER_AGENT, {"agent": agent.number}),
        (control.SEND_MAD, {"agent": agent.number, "mad": request().encode()}),
    ):
        with pytest.raises(DriverError) as refused:
            hosts.devices[2].session.call(command, **fields)
        assert refused.value.errno == errno.EINVAL


def test_a_host_that_breaks_its_ring_loses_its_datagrams_and_nothing_else(hosts):
    agent, sender = hosts.agent(0, {c.METHOD_SEND}, entries=1), hosts.agent(1, METHODS)
    agent.send(request().encode(), hosts.to(), timeout_ms=10)
    store64(agent._ring.layout.control + 64, 1 << 40)  # a head that no tail has reached
    for _ in range(3):
        sender.send(request(c.METHOD_SEND).encode(), hosts.to(0))
    hosts.network.elapse(100 * MS)
    assert hosts.counter("drops_client_full") == 2
    assert len(hosts.nodes[0].adapter.port.management[1].pending) == 0
    assert hosts.devices[0].query_device()["max_qp"] > 0
    agent.unregister()


def test_a_program_does_not_believe_what_is_in_its_ring(hosts):
    agent = hosts.agent(0, {c.METHOD_SEND}, entries=4)
    store64(agent._ring.layout.control, 99)  # a tail beyond the ring
    with pytest.raises(DriverError) as broken:
        agent.receive(0)
    assert broken.value.errno == errno.EIO
    other = hosts.agent(1, {c.METHOD_SEND}, entries=4)
    store64(other._ring.layout.reference(0), 8 << 32)  # an entry of 8 bytes
    store64(other._ring.layout.control, 1)
    with pytest.raises(DriverError) as broken:
        other.receive(0)
    assert broken.value.errno == errno.EIO


def test_who_waits_gets_it_and_who_waits_in_vain_nothing(hosts):
    agent, sender = hosts.agent(0, {c.METHOD_SEND}), hosts.agent(1)
    assert agent.receive(0.001) is None
    sender.send(request(c.METHOD_SEND).encode(), hosts.to(0))
    arrival = agent.receive(1.0)
    assert arrival is not None
    assert replace(arrival, source=sender_address(hosts)) == arrival


def sender_address(hosts):
    return MadAddress(gid=hosts.nodes[1].gid, pkey=0xFFFF)


def test_who_is_interrupted_while_waiting_gets_it_the_next_time(hosts, monkeypatch):
    agent, sender = hosts.agent(0, {c.METHOD_SEND}), hosts.agent(1)

    def interrupted(ready, timeout_s):
        for number in (1, 2):
            sender.send(request(c.METHOD_SEND, data=bytes([number])).encode(), hosts.to(0))
        hosts.network.elapse(500_000)
        assert ready()
        raise KeyboardInterrupt

    monkeypatch.setattr(hosts.devices[0].session.channel, "wait", interrupted)
    with pytest.raises(KeyboardInterrupt):
        agent.receive(1.0)
    assert [Mad.decode(each.mad).data[0] for each in hosts.got(agent)] == [1, 2]


def test_a_response_that_found_no_room_is_asked_for_again(hosts):
    asker, other = hosts.agent(0, {c.METHOD_SEND}, entries=2), hosts.agent(1, METHODS)
    for number in range(2):
        other.send(request(c.METHOD_SEND, data=bytes([number])).encode(), hosts.to(0))
    hosts.network.elapse(500_000)
    asker.send(request(tid=1).encode(), hosts.to(), timeout_ms=10, retries=1)
    for room in (False, True):
        (asked,) = hosts.got(other)
        other.send(Mad.decode(asked.mad).response().encode(), hosts.to(0))
        hosts.network.elapse(500_000)
        assert hosts.counter("drops_client_full") == 1
        assert len(hosts.got(asker)) == (1 if room else 2)
        hosts.network.elapse(10 * MS)


def test_an_agent_costs_its_host_what_may_wait_until_it_goes(hosts):
    adapter = hosts.nodes[0].adapter
    (number,) = adapter.hosts
    before = adapter.resources.cost(number)
    agent = hosts.agent()
    waits_bytes = host_agents.MAX_PENDING * host_agents.PENDING_BYTES
    assert adapter.resources.cost(number) - before > waits_bytes
    agent.unregister()
    assert adapter.resources.cost(number) == before


def test_a_native_port_sends_to_no_lid_0():
    hosts = Hosts("native")
    with pytest.raises(DriverError) as refused:
        hosts.agent().send(request().encode(), MadAddress(dlid=0))
    assert refused.value.errno == errno.EINVAL
    hosts.network.close()


# bounds, and what goes with an agent


def fields_of(hosts, agent, **changes):
    return {
        "agent": agent.number, "qpn": 1, "qkey": c.GENERAL_QKEY, "is_global": 1, "dgid": hosts.nodes[1].gid,
        "mad": request().encode(), **changes,
    }  # fmt: skip


@pytest.mark.parametrize(("name", "most"), [
    ("sl", 15), ("path_bits", 127), ("retries", 255), ("qpn", 0xFFFFFF), ("pkey_index", 0),
])  # fmt: skip
def test_a_field_of_a_datagram_may_be_the_greatest_of_its_range_and_no_more(hosts, name, most):
    agent, session = hosts.agent(), hosts.devices[0].session
    session.call(control.SEND_MAD, **fields_of(hosts, agent, **{name: most}))
    with pytest.raises(DriverError, match=name) as refused:
        session.call(control.SEND_MAD, **fields_of(hosts, agent, **{name: most + 1}))
    assert refused.value.errno == errno.EINVAL


@pytest.mark.parametrize("method", [1, 63, 64, 65, 126, 127])
def test_each_bit_of_a_registration_is_one_method(hosts, method):
    session = hosts.devices[0].session
    _, _, ring = session.make_ring(1, MAD_ENTRY_BYTES)
    low, high = 1 << method & (1 << 64) - 1, 1 << method >> 64
    fields = {"port_num": 1, "mgmt_class": CLASS, "class_version": 1, **ring}
    number = session.call(control.REGISTER_AGENT, methods_low=low, methods_high=high, **fields)["agent"]
    resource = hosts.nodes[0].adapter.resources.get(host_agents.Kind.AGENT, number)
    assert resource.element.methods == {method}


def test_with_an_agent_go_its_timer_and_its_events(hosts):
    adapter = hosts.nodes[0].adapter
    agent, flow = hosts.agent(), adapter.port.management[1]
    agent.send(request(management_class=CLASS).encode(), hosts.to(), timeout_ms=1000)
    assert flow.armed_ns > 0
    forgotten = []
    sink = SimpleNamespace(forget=lambda kind, element: forgotten.append((kind, element)))
    adapter.hosts[1].asynchronous = sink
    agent.unregister()
    assert flow.armed_ns == 0
    assert forgotten == [(kind, agent.number) for kind in control.AGENT_EVENTS]


def test_queue_pair_0_sends_without_a_global_header_and_without_the_ports_pkeys():
    hosts = Hosts("native", host_subnet_management=True, pkeys=(0x8001,))
    agent = hosts.agent(management_class=c.CLASS_SUBN_LID)
    asked = request(management_class=c.CLASS_SUBN_LID, attribute=c.ATTRIBUTE_PORT_INFO, data=b"").encode()
    fields = {"agent": agent.number, "dlid": hosts.nodes[1].lid, "mad": asked}
    for wrong in ({"qpn": 1}, {"is_global": 1, "dgid": hosts.nodes[1].gid}):
        with pytest.raises(DriverError, match="queue pair 0 sends to queue pair 0") as refused:
            hosts.devices[0].session.call(control.SEND_MAD, **fields, **wrong)
        assert refused.value.errno == errno.EINVAL
    full = dict.fromkeys(("qpn", "qkey", "is_global", "sl", "path_bits", "pkey_index", "traffic_class"), 0)
    subnet, general = hosts.nodes[0].adapter.port.management
    full["dlid"] = hosts.nodes[1].lid
    assert host_agents.destination_of(subnet, full).pkey == 0xFFFF
    assert host_agents.destination_of(general, {**full, "qpn": 1}).pkey == 0x8001
    hosts.network.close()


def came(management_class, framing, **way):
    """What a flow is given of a datagram of a class."""
    data = request(management_class=management_class).encode()
    view = SimpleNamespace(qkey=c.GENERAL_QKEY, payload=0, payload_bytes=len(data), source_qp=1, pkey=0xFFFF)
    return view, SimpleNamespace(buffer=data, framing=framing, **way)


def test_messages_for_connections_have_a_limit_of_their_own(hosts, monkeypatch):
    flow, taken = hosts.nodes[0].adapter.port.management[1], []
    monkeypatch.setattr(flow.dispatcher, "receive", lambda data, source: taken.append(data[1]))
    way = {"source": hosts.nodes[1].gid, "destination": hosts.nodes[0].gid, "traffic_class": 0}
    for management_class, most in ((CLASS, MOST_AT_ONCE), (c.CLASS_COMM_MGT, MOST_CONNECTIONS_AT_ONCE)):
        for _ in range(most + 5):
            flow.receive(*came(management_class, ROCE_V4, **way), 10**12)
        assert taken.count(management_class) == most
    assert hosts.counter("drops_rate") == 10


def test_the_way_of_a_native_datagram_is_the_way_back(monkeypatch):
    hosts = Hosts("native")
    flow, found = hosts.nodes[0].adapter.port.management[1], []
    monkeypatch.setattr(flow.dispatcher, "receive", lambda data, source: found.append(source))
    gids = {"source": None, "destination": None, "traffic_class": 0}
    for slid, sl, path_bits in ((7, 3, 5), (7, 3, 6), (7, 4, 5), (8, 3, 5)):
        flow.receive(*came(CLASS, 0, slid=slid, sl=sl, path_bits=path_bits, **gids), 10**12)
        assert (found[-1].lid, found[-1].sl, found[-1].path_bits) == (slid, sl, path_bits)
    hosts.network.close()


def test_datagrams_of_a_port_are_numbered_one_after_the_other(hosts):
    agent, flow = hosts.agent(), hosts.nodes[0].adapter.port.management[1]
    found, burst = [], Burst()
    names = ("sl", "path_bits", "pkey_index", "traffic_class", "dlid")
    to = host_agents.destination_of(flow, {**dict.fromkeys(names, 0), **fields_of(hosts, agent)})
    for _ in range(3):
        assert flow.queue(request().encode(), to)
        burst.reset()
        assert flow.produce(burst, 0) == 1
        start = burst.route.prefix_bytes
        found.append(int.from_bytes(burst.buffer[start + 9 : start + 12], "big"))
    assert found == [found[0] + number for number in range(3)]
