"""Rules of a port's connections and of a host's channel: which paths are taken, whose a connection is, who
gets an instance number, and what a channel costs and leaves."""

import errno
import random
from types import SimpleNamespace

import pytest

from softhca.adapter.connection_instances import HostInstances
from softhca.adapter.connection_manager import CONNECTION_BYTES, port_at
from softhca.driver.connections import CM_REQUEST, CmPath, CmQueuePair
from softhca.driver.errors import DriverError
from softhca.management.cm import messages as m
from softhca.management.cm.elements import REPLIED, REQUEST, Event
from softhca.management.cm.instances import Instances, offer_of, with_answer, with_offer
from softhca.management.mad import Address
from softhca.queues.control_fields import EVENT_CM, EVENT_PORT_ACTIVE
from softhca.queues.layout import EVENT_ENTRIES
from softhca.testing.addressing import gid
from softhca.testing.ends import End
from softhca.testing.network import Network
from softhca.wire.framing import NATIVE
from softhca.wire.route import Route

NO_GID = bytes(16)
SERVICE = 0x123
ANY = {m.SERVICE_RC: True, m.SERVICE_UC: True, m.SERVICE_RD: False, m.SERVICE_EXTENDED: False}
any_service = pytest.mark.parametrize(("service", "numbered"), ANY.items())


@pytest.fixture
def ports(link):
    """The connections of both ports of an adapter."""
    with Network(link=link) as network:
        end = End(network.add(ports=2))
        yield [port.management[1].connections for port in end.node.adapter.ports]


def of_link(*links):
    return pytest.mark.parametrize("link", links)


# paths that a peer proposes


@of_link("ipv4", "ipv6")
def test_a_path_of_roce_has_gids_and_hops_and_is_another_one(ports):
    one, two = (each.port.gid_table[0] for each in ports)
    there, elsewhere = gid(9), gid(10)
    connection = SimpleNamespace(peer=Address(1, gid=there, own_gid=one))

    def answer(own, peer, hops=1):
        lap = m.Lap(alternate_remote_gid=own, alternate_local_gid=peer, alternate_hop_limit=hops)
        return ports[0]._check_path(lap, connection)

    assert answer(two, elsewhere) == m.APR_LOADED
    assert answer(two, there) == m.APR_LOADED, "from another port of its own"
    assert answer(one, elsewhere) == m.APR_LOADED, "to another port of the peer"
    assert answer(one, there) == m.APR_IS_CURRENT
    assert answer(gid(77), there) == m.APR_INVALID_GID
    assert answer(NO_GID, there) == m.APR_INVALID_GID
    assert answer(two, NO_GID) == m.APR_INVALID_GID
    assert answer(two, there, hops=0) == m.APR_INVALID_HOP_LIMIT


@of_link("native")
def test_a_native_path_has_lids_and_needs_no_hops(ports):
    one, two = (each.port.lid for each in ports)
    connection = SimpleNamespace(peer=Address(1, lid=0x99, own_lid=one))

    def answer(own, peer, own_gid=NO_GID):
        lap = m.Lap(alternate_remote_lid=own, alternate_local_lid=peer, alternate_remote_gid=own_gid)
        return ports[0]._check_path(lap, connection)

    assert answer(two, 0x98) == answer(two, 0x99) == answer(one, 0x98) == m.APR_LOADED
    assert answer(one, 0x99) == m.APR_IS_CURRENT
    assert answer(0x97, 0x99) == answer(0, 0x99) == m.APR_INVALID_LID
    assert answer(two, 0) == m.APR_INVALID_LID
    assert answer(two, 0x99, gid(77)) == m.APR_INVALID_GID


def test_a_port_without_a_lid_is_not_the_one_that_nobody_names():
    bare, named = (SimpleNamespace(gids=frozenset(), native=True, lid=lid) for lid in (0, 5))
    adapter = SimpleNamespace(ports=(bare, named))
    assert [port_at(adapter, NO_GID, lid) for lid in (0, 5, 6)] == [None, named, None]


@of_link("native")
@pytest.mark.parametrize("grh", [False, True])
def test_the_manager_learns_of_gids_where_a_path_has_them(ports, monkeypatch, grh):
    told = []
    monkeypatch.setattr(ports[0], "manager", SimpleNamespace(migrated=lambda *given: told.append(given)))
    route = Route(NATIVE, gid(1), gid(2), 0, slid=5, dlid=6, sl=3, has_grh=grh, traffic_class=7)
    ports[0].migrated(77, route)
    assert told == [(77, *((gid(2), gid(1)) if grh else (NO_GID, NO_GID)), 6, 5, 3, 7)]


@of_link("ipv4")
@pytest.mark.parametrize(
    ("has", "home"), [((True, True), 1), ((True, False), 0), ((False, True), 1), ((False, False), 1)]
)
def test_a_message_is_for_the_port_that_has_its_connection_the_own_one_first(ports, monkeypatch, has, home):
    for each, known in zip(ports, has, strict=True):
        monkeypatch.setattr(each, "manager", SimpleNamespace(has=lambda number, known=known: known))
    assert ports[1]._home_of(5) is ports[home]
    assert ports[1]._home_of(0) is ports[1]


# instance numbers


@pytest.fixture
def scene():
    """Two hosts of an adapter, with a queue pair each, and the numbers of the first one's connections."""
    with Network() as network:
        node = network.add()
        ends = [End(node) for _ in range(2)]
        own, foreign = (end.qp().number for end in ends)
        numbers = Instances(random.Random(1))
        yield SimpleNamespace(
            adapter=node.adapter, own=own, foreign=foreign, numbers=numbers,
            instances=HostInstances(node.adapter, 1, numbers),
        )  # fmt: skip


PEER = Address(1, gid=gid(9))


@any_service
def test_connections_of_rc_and_uc_alone_have_numbers(scene, service, numbered):
    request = m.Req(local_qpn=scene.own, transport_service_type=service)
    asked = scene.instances.request(request, PEER)
    assert bool(offer_of(asked.private_data)) is numbered
    offered = request.changed(private_data=with_offer(b"", 5))
    event = Event(REQUEST, 3, PEER, message=offered)
    assert (scene.instances.read(event) is event) is not numbered
    assert bool(scene.instances.expected({"dgid": gid(9)}, scene.own)) is numbered


def test_queue_pairs_of_another_program_have_none(scene):
    for qpn, numbered in ((scene.own, True), (scene.foreign, False), (0xABCDEF, True)):
        asked = scene.instances.request(m.Req(local_qpn=qpn), PEER)
        assert bool(offer_of(asked.private_data)) is numbered
    scene.instances.read(Event(REQUEST, 3, PEER, message=m.Req(local_qpn=5, private_data=with_offer(b"", 5))))
    for qpn, numbered in ((scene.foreign, False), (scene.own, True)):
        reply = m.Rep(local_qpn=qpn)
        assert (scene.instances.reply(3, reply) is not reply) is numbered
        assert bool(scene.adapter.queue_pairs[qpn].instance) is numbered


def test_an_answer_counts_where_an_offer_was_made(scene):
    answer = m.Rep(private_data=with_answer(b"", 40))
    scene.instances.sent(8, m.Req(local_qpn=scene.own))  # without one
    for number in (7, 8):
        event = Event(REPLIED, number, PEER, message=answer)
        assert scene.instances.read(event) is event
    scene.instances.sent(9, m.Req(local_qpn=scene.own, private_data=with_offer(b"", 39)))
    event = Event(REPLIED, 9, PEER, message=answer)
    assert scene.instances.read(event) is not event
    assert scene.adapter.queue_pairs[scene.own].instance == 40
    assert scene.numbers.next(gid(9)) == 41, "the next one is newer than what was agreed upon"


@pytest.mark.parametrize(
    ("source", "vector"),
    [(PEER, {"dgid": gid(9), "dlid": 0}), (Address(1, lid=0x99), {"dgid": NO_GID, "dlid": 0x99})],
)
def test_a_number_waits_for_a_queue_pair_that_goes_where_the_request_came_from(scene, source, vector):
    request = m.Req(local_qpn=5, private_data=with_offer(b"", 6))
    scene.instances.read(Event(REQUEST, 3, source, message=request))
    assert scene.instances.expected(vector, 5) == 6
    assert scene.instances.expected(vector, 4) == 0
    for other in ({"dgid": gid(8)}, {"dlid": 0x98}, {}):
        assert scene.instances.expected(other, 5) == 0
    scene.instances.forget(3)
    assert scene.instances.expected(vector, 5) == 0


# channels


class Channels:
    """Two ends with a channel each; the second one listens, and ``config`` is its adapter's."""

    def __init__(self, **config):
        self.network = Network()
        self.ends = [End(self.network.add(**each)) for each in ({}, config)]
        self.channels = [end.device.open_connections(1) for end in self.ends]
        self.base = [end.node.adapter.resources.cost(1) for end in self.ends]
        self.listener = self.channels[1].listen(SERVICE)
        self.last = 0x100

    def ask(self):
        """A request for the service; the number at the listener, None where it was not told."""
        self.last += 1
        path = CmPath(self.ends[1].node.gid, ack_timeout=1)
        self.channels[0].connect(SERVICE, path, CmQueuePair(self.last, 1))
        self.network.run(lambda: not self.channels[1].idle, limit_ns=10**7)
        event = self.channels[1].receive(0)
        if event is not None:
            assert event.kind == CM_REQUEST
        return event


@pytest.mark.parametrize("less", [0, 1])
def test_a_listener_is_told_of_as_many_requests_as_its_host_can_afford(less):
    room = Channels().base[1] + 3 * CONNECTION_BYTES
    scene = Channels(max_host_bytes=room - less)
    found = [scene.ask() is not None for _ in range(3)]
    assert found == [True, not less, False]
    assert scene.ends[1].node.adapter.resources.cost(1) == room - less * CONNECTION_BYTES
    scene.network.close()


def test_a_number_is_not_waited_for_when_the_program_has_let_go_of_the_request():
    scene = Channels()
    asked = scene.ask()
    connections = scene.ends[1].node.adapter.port.management[1].connections
    where = {"dgid": scene.ends[0].node.gid}
    assert connections.instance_of(1, where, scene.last)
    assert not connections.instance_of(2, where, scene.last), "another host's"
    scene.channels[1].destroy(asked.id)
    assert not connections.instance_of(1, where, scene.last)
    scene.network.close()


def test_an_event_of_a_channel_goes_with_it():
    scene = Channels()
    host = scene.ends[1].node.adapter.hosts[1]
    for _ in range(EVENT_ENTRIES):
        host.report_event(EVENT_PORT_ACTIVE, 1)
    number = scene.channels[1].number
    host.report_event(EVENT_CM, number)
    assert host.events.waiting() == 1
    scene.channels[1].close()
    assert host.events.waiting() == 0
    scene.network.close()


def test_channels_of_a_host_that_goes_end_with_it():
    scene = Channels()
    adapter = scene.ends[1].node.adapter
    connections = adapter.port.management[1].connections
    assert len(connections.channels) == 1
    scene.ends[1].device.close()
    assert connections.channels == []
    scene.network.close()


def test_what_a_channel_has_no_room_for_is_refused_with_nothing_left():
    scene = Channels()
    resources = scene.ends[1].node.adapter.resources
    room = resources.cost(1)
    poor = Channels(max_host_bytes=room)
    with pytest.raises(DriverError) as refused:
        poor.channels[1].listen(SERVICE + 1)
    assert refused.value.errno == errno.ENOMEM
    assert poor.ends[1].node.adapter.resources.cost(1) == room
    for each in (scene, poor):
        each.network.close()
