"""Connection channels of adapters in virtual time: what they cost their host, and what their packets say."""

import errno

import pytest

from softhca.adapter.connection_manager import CONNECTION_BYTES
from softhca.driver.connections import (
    CM_ESTABLISHED,
    CM_REJECTED,
    CM_REPLIED,
    CM_REQUEST,
    CM_SIDR_REPLY,
    CM_SIDR_REQUEST,
    CM_UNREACHABLE,
    CmPath,
    CmQueuePair,
)
from softhca.driver.errors import DriverError
from softhca.machine.primitives import store64
from softhca.management.cm import messages as m
from softhca.management.mad import MadHeader
from softhca.queues.control_fields import EVENT_CM, OPEN_CM
from softhca.testing import SENT
from softhca.testing.network import Network
from softhca.wire.route import V4_MAPPED_PREFIX

SERVICE = 0x0106_1C46
NOBODYS = SERVICE + 1
MS = 1_000_000


def queue_pair(number=0x12):
    return CmQueuePair(qp_num=number, starting_psn=100)


class Scene:
    """Two adapters with a host and a channel each; the second listens."""

    def __init__(self, link="ipv4", **changes):
        self.network = Network(link=link)
        self.nodes = [self.network.add(**changes) for _ in range(2)]
        self.devices = [node.open() for node in self.nodes]
        self.channels = [device.open_connections(1) for device in self.devices]
        self.base = self.costs()
        self.listener = self.channels[1].listen(SERVICE)
        self._last = 0x100

    def costs(self):
        """What each host costs its adapter."""
        return [node.adapter.resources.cost(host) for node in self.nodes for host in node.hosts]

    def connections(self):
        """For how many connections each host is charged."""
        pairs = zip(self.costs(), self.base, strict=True)
        return [(now - before) / CONNECTION_BYTES for now, before in pairs]

    def path(self, **changes):
        return CmPath(gid=self.nodes[1].gid, **changes)

    def next(self, side, kind):
        """The next event of a side, polled for: nothing else drives its adapter."""
        for _ in range(100):
            event = self.channels[side].receive(0)
            if event is not None:
                assert event.kind == kind
                return event
            self.network.elapse(100_000_000)
        raise AssertionError("no event")

    def connect(self):
        self._last += 1
        active = self.channels[0].connect(SERVICE, self.path(), queue_pair(self._last))
        passive = self.next(1, CM_REQUEST).id
        self.channels[1].reply(passive, queue_pair(self._last))
        self.next(0, CM_REPLIED)
        self.channels[0].ready(active)
        self.next(1, CM_ESTABLISHED)
        return active, passive


def test_a_host_is_charged_for_its_connections_until_it_lets_go_of_them():
    scene = Scene()
    assert scene.connections() == [0, 1]  # the listener
    ends = [scene.connect() for _ in range(3)]
    assert scene.connections() == [3, 4]
    active, passive = ends.pop()
    scene.channels[0].destroy(active)
    assert scene.connections() == [2, 4]
    scene.channels[1].destroy(passive)
    scene.channels[1].destroy(scene.listener)
    assert scene.connections() == [2, 2]


def test_a_resolution_costs_until_it_is_answered_or_given_up():
    scene = Scene()
    scene.channels[0].resolve(SERVICE, scene.path())
    asked = scene.next(1, CM_SIDR_REQUEST).id
    assert scene.connections() == [1, 2]
    scene.channels[1].answer(asked, 0, 0x77, 0x1234)
    assert scene.connections() == [1, 1]
    scene.next(0, CM_SIDR_REPLY)
    assert scene.connections() == [0, 1]
    scene.network.impair("loss=100%")
    scene.channels[0].resolve(SERVICE, scene.path(max_cm_retries=1, cm_response_timeout=10))
    assert scene.connections() == [1, 1]
    scene.next(0, CM_UNREACHABLE)
    assert scene.connections() == [0, 1]


@pytest.mark.parametrize("kind", [CM_REQUEST, CM_SIDR_REQUEST])
def test_requests_that_have_ended_cost_a_host_nothing_that_has_not_heard_of_them(kind):
    """Else strangers that ask and ask would use up what it may have."""
    scene = Scene()
    scene.channels[1].destroy(scene.listener)
    scene.channels[1].listen(SERVICE, backlog=3)
    for number in range(10):
        if kind == CM_REQUEST:
            asked = scene.channels[0].connect(SERVICE, scene.path(), queue_pair(number))
        else:
            asked = scene.channels[0].resolve(SERVICE, scene.path())
        scene.network.elapse(MS)
    assert scene.connections() == [10, 1 + 3]
    if kind == CM_REQUEST:
        scene.channels[0].destroy(asked)
        scene.network.elapse(MS)
        assert scene.connections() == [9, 1 + 2]


def test_a_host_has_as_many_connections_as_it_can_afford():
    scene = Scene()
    room = scene.base[0] + 2 * CONNECTION_BYTES
    poor = Scene(max_host_bytes=room)
    for _ in range(2):
        poor.channels[0].connect(SERVICE, poor.path(), queue_pair())
    with pytest.raises(DriverError) as refused:
        poor.channels[0].connect(SERVICE, poor.path(), queue_pair())
    assert refused.value.errno == errno.ENOMEM
    assert poor.connections()[0] == 2


def requests(scene):
    """The REQs that are sent from now on, and how their packets are addressed."""
    found = []

    def look(datagram):
        if datagram.event == SENT:
            mad = datagram.packet.transport.payload
            if MadHeader.decode(mad).attribute_id == m.ATTRIBUTE_OF[m.Req]:
                found.append((m.Req.decode(mad[24:]), datagram.packet))

    scene.network.observers.append(look)
    return found


@pytest.mark.parametrize("link", ["ipv4", "ipv6"])
def test_a_request_names_both_ports_by_their_gids(link):
    scene = Scene(link)
    sent = requests(scene)
    scene.channels[0].connect(SERVICE, scene.path(), queue_pair())
    event = scene.next(1, CM_REQUEST)
    gids = [node.gid for node in scene.nodes]
    assert [event.path.gid, event.own_gid] == gids
    ((request, _),) = sent
    assert [request.primary_local_gid, request.primary_remote_gid] == gids
    assert (request.primary_local_lid, request.primary_remote_lid) == (0xFFFF, 0xFFFF)


def test_a_request_over_a_native_link_names_lids_and_comes_from_the_port_s_own():
    scene = Scene("native", lmc=1)
    sent = requests(scene)
    lids = [node.adapter.ports[0].lid for node in scene.nodes]
    scene.channels[0].connect(SERVICE, CmPath(gid=bytes(16), lid=lids[1]), queue_pair())
    event = scene.next(1, CM_REQUEST)
    assert event.path.lid == lids[0]
    ((request, packet),) = sent
    assert [request.primary_local_lid, request.primary_remote_lid] == lids
    assert (packet.network[0].slid, packet.network[0].dlid) == tuple(lids)


class Sink:
    """An event channel of a host."""

    def __init__(self):
        self.events = []

    def post(self, kind, element):
        self.events.append((kind, element))

    def forget(self, kind, element):
        self.events = [event for event in self.events if event != (kind, element)]


def test_events_of_a_channel_go_to_the_event_channel_that_it_names(monkeypatch):
    scene = Scene()
    device, sink = scene.devices[1], Sink()
    (host,) = scene.nodes[1].adapter.hosts.values()
    host.event_channel = {7: sink}.__getitem__
    call = device.session.call
    monkeypatch.setattr(
        device.session,
        "call",
        lambda command, **fields: call(command, **fields, **({"channel": 7} if command == OPEN_CM else {})),
    )
    named = device.open_connections(1)
    monkeypatch.undo()
    assert not sink.events
    named.listen(SERVICE + 1)
    scene.channels[0].connect(SERVICE + 1, scene.path(), queue_pair())
    scene.network.run(lambda: sink.events)
    assert sink.events == [(EVENT_CM, named.number)]
    named.close()
    assert sink.events == []


def refused(scene, channel, count, first=0x200):
    """Connections of the first side that nobody wants; the rejections of all have come."""
    numbers = [channel.connect(NOBODYS, scene.path(), queue_pair(first + n)) for n in range(count)]
    scene.network.elapse(MS)
    return numbers


def test_events_that_wait_for_room_are_not_overtaken():
    scene = Scene()
    channel = scene.devices[0].open_connections(1, entries=1)
    numbers = refused(scene, channel, 3)
    told = [channel.receive(0).id]
    numbers += refused(scene, channel, 1, 0x300)  # there is room, of which those that wait do not know yet
    while len(told) < 4:
        event = channel.receive(0)
        if event is None:
            scene.network.elapse(20 * MS)
        else:
            told.append(event.id)
    assert told == numbers


def test_a_request_does_not_overtake_the_end_of_those_before_it():
    scene = Scene()
    channel = scene.devices[1].open_connections(1, entries=1)
    channel.listen(NOBODYS)
    path = scene.path(cm_response_timeout=14)  # 67 ms, and twice the way: the request comes again
    active, passive = [], []
    for number in range(2):
        active.append(scene.channels[0].connect(NOBODYS, path, queue_pair(0x200 + number)))
        scene.network.run(lambda: not channel.idle)
        passive.append(channel.receive(0).id)
    for number in active:
        scene.channels[0].destroy(number)
    scene.network.elapse(MS)
    told = [channel.receive(0)]
    scene.channels[0].connect(NOBODYS, path, queue_pair(0x300))
    scene.network.elapse(MS)
    for _ in range(2):
        scene.network.run(lambda: not channel.idle)
        told.append(channel.receive(0))
    assert [event.kind for event in told] == [CM_REJECTED, CM_REJECTED, CM_REQUEST]
    assert [event.id for event in told[:2]] == passive


def test_events_for_a_ring_that_its_host_has_broken_are_not_kept():
    scene = Scene()
    channel = scene.devices[0].open_connections(1, entries=1)
    host = scene.nodes[0].adapter.port.management[1].connections.channels[-1]
    refused(scene, channel, 3)
    assert len(host.waiting) == 2
    store64(channel._ring.layout.control + 64, 1 << 40)  # a head that no tail has reached
    scene.network.elapse(100 * MS)
    assert not host.waiting
    refused(scene, channel, 3, 0x300)
    scene.network.elapse(100 * MS)
    assert not host.waiting
    scene.connect()  # others' channels go on


MORE = V4_MAPPED_PREFIX + bytes((192, 0, 2, 77))


@pytest.mark.parametrize(("index", "own"), [(0, 0), (1, 1), (2, 0), (3, 1)])
def test_a_request_begins_at_the_entry_that_is_named(index, own):
    """The peer is told of it, and answers there."""
    network = Network(link="ipv4")
    asking = network.add(gids=(V4_MAPPED_PREFIX + bytes((192, 0, 2, 1)), MORE))
    network.add()
    here, there = (node.open().open_connections(1) for node in network.nodes.values())
    there.listen(SERVICE)
    gid = network.nodes[2].gid
    here.connect(SERVICE, CmPath(gid=gid, sgid_index=index), queue_pair())
    here.resolve(SERVICE, CmPath(gid=gid, sgid_index=index))
    found = []
    while len(found) < 2:
        event = there.receive(0)
        if event is None:
            network.elapse(100_000_000)
        else:
            found.append(event.path.gid)
    assert found == [asking.adapter.port.gid_table[own]] * 2


@pytest.mark.parametrize("index", [4, 15, 255])
def test_a_request_begins_at_no_entry_that_is_not_there(index):
    scene = Scene()
    for ask in (
        lambda: scene.channels[0].connect(SERVICE, scene.path(sgid_index=index), queue_pair()),
        lambda: scene.channels[0].resolve(SERVICE, scene.path(sgid_index=index)),
    ):
        with pytest.raises(DriverError, match=f"sgid_index = {index}: the table has 4 GIDs") as refused:
            ask()
        assert refused.value.errno == errno.EINVAL
    assert scene.connections() == [0, 1]


def test_a_request_begins_at_an_entry_of_its_destinations_version_of_ip():
    scene = Scene()
    path = CmPath(gid=bytes.fromhex("20010db8") + bytes(11) + b"\2", sgid_index=1)
    with pytest.raises(DriverError, match="another version of IP"):
        scene.channels[0].connect(SERVICE, path, queue_pair())
