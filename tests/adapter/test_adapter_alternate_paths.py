"""Alternate paths by the connection manager: proposed, loaded and used, between adapters of two ports."""

import errno
from dataclasses import replace
from types import SimpleNamespace

import pytest

from softhca.adapter import path_migration
from softhca.adapter.config import AdapterConfig
from softhca.adapter.port import PORT_INIT, Port
from softhca.driver import services
from softhca.driver.connections import (
    CM_DISCONNECT_REQUEST,
    CM_DISCONNECTED,
    CM_ESTABLISHED,
    CM_PATH_ANSWER,
    CM_PATH_REQUEST,
    CM_REJECTED,
    CM_REPLIED,
    CM_REQUEST,
    CM_TIMEWAIT_OVER,
    CmAlternatePath,
    CmPath,
    CmQueuePair,
)
from softhca.driver.errors import DriverError
from softhca.management.cm import messages as m
from softhca.queues.control_fields import EVENT_PATH_MIG, EVENT_PATH_MIG_ERR, QPT_RD
from softhca.testing.addressing import gid
from softhca.testing.ends import SEND, End, post
from softhca.testing.network import Network
from softhca.transport.migration import ARMED, FAIL, MIGRATED, REARMED
from softhca.transport.states import RC

SERVICE = 0x0106_1C46
TIMEOUT, RETRIES = 8, 2
PSNS = (100, 200)


class Scene:
    """Two ends on two-port adapters that connect by their first ports; the second one listens."""

    def __init__(self, link="ipv4", service=SERVICE):
        self.network = Network(link=link)
        self.network.tamper = self._fate
        self.cut = set()
        self.link = link
        self.ends = [End(self.network.add(ports=2)) for _ in (0, 1)]
        self.qps = [end.qp() for end in self.ends]
        self.channels = [end.device.open_connections(1) for end in self.ends]
        self.channels[1].listen(service)
        self.ids = [0, 0]

    def _fate(self, datagram):
        return None if datagram.route.port_number in self.cut else datagram.data

    def port(self, side, port):
        return self.ends[side].node.adapter.ports[port - 1]

    def way(self, side, port, there=0):
        """From a port of a side to one of the other side's."""
        own, peer = self.port(side, port), self.port(1 - side, there or port)
        if self.link == "native":
            return CmAlternatePath(bytes(16), bytes(16), own.lid, peer.lid, ack_timeout=TIMEOUT)
        return CmAlternatePath(own.gid_table[0], peer.gid_table[0], ack_timeout=TIMEOUT)

    def path(self):
        way = self.way(0, 1)
        return CmPath(way.gid, way.lid, ack_timeout=TIMEOUT, path_mtu=3)

    def own(self, side):
        """This side is to receive from its own PSN on: so it tells the other one."""
        return CmQueuePair(self.qps[side].number, PSNS[side], retry_cnt=RETRIES)

    def next(self, side, kind):
        for _ in range(100):
            event = self.channels[side].receive(0)
            if event is not None:
                assert event.kind == kind
                return event
            self.network.elapse(20_000_000)
        raise AssertionError("no event")

    def connect(self, alternate=None, failover=0):
        """A connection whose queue pairs are in RTS; what the passive side was asked, and the reply."""
        path = self.path()
        self.ids[0] = self.channels[0].connect(SERVICE, path, self.own(0), b"", alternate)
        asked = self.next(1, CM_REQUEST)
        self.ids[1] = asked.id
        services.accept(self.ends[1].device, self.channels[1], asked, self.qps[1], self.own(1), 15)
        self.channels[1].reply(asked.id, self.own(1), failover=failover)
        replied = self.next(0, CM_REPLIED)
        services.complete(self.ends[0].device, self.channels[0], replied, path, self.qps[0], self.own(0), 15)
        self.channels[0].ready(self.ids[0])
        self.next(1, CM_ESTABLISHED)
        return asked, replied

    def load(self, side, way):
        """What a program does with an alternate path: its queue pair is armed with it."""
        device = self.ends[side].device
        services.load_alternate(device, self.qps[side], way)

    def events(self, side):
        return [event[0] for event in iter(lambda: self.ends[side].device.next_event(0), None)]

    @property
    def states(self):
        return [self.qps[side].query()["path_mig_state"] for side in (0, 1)]

    @property
    def ports(self):
        return [self.qps[side].query()["port_num"] for side in (0, 1)]

    def send(self, side):
        end, other = self.ends[side], self.ends[1 - side]
        self.qps[1 - side].post_recv(0, [other.sge(1000, 10)])
        end.memory[:10] = b"0123456789"
        post(self.qps[side], SEND, [end.sge(0, 10)])
        assert [each.status for each in end.poll(1) + other.poll(1)] == [0, 0]
        assert bytes(other.memory[1000:1010]) == b"0123456789"

    def propose(self, side, way, **answer):
        """LAP, APR, and both queue pairs armed where the answer is yes; the proposal, and the answer."""
        self.channels[side].load_path(self.ids[side], way, b"why")
        asked = self.next(1 - side, CM_PATH_REQUEST)
        if not answer.get("status"):
            self.load(1 - side, asked.alternate)
        self.channels[1 - side].answer_path(self.ids[1 - side], **answer)
        told = self.next(side, CM_PATH_ANSWER)
        if not told.status:
            self.load(side, way)
        self.network.run()
        return asked, told


@pytest.mark.parametrize("link", ["ipv4", "ipv6", "native"])
@pytest.mark.parametrize("side", [0, 1])
def test_a_connection_goes_along_the_path_that_was_proposed_and_back_along_another(link, side):
    scene = Scene(link)
    scene.connect()
    scene.send(0)
    way = scene.way(side, 2)
    asked, told = scene.propose(side, way, information=b"so", private_data=b"because")
    assert asked.alternate == CmAlternatePath(way.gid, way.own_gid, way.lid or 0xFFFF, way.own_lid or 0xFFFF,
                                    ack_timeout=TIMEOUT)  # fmt: skip
    assert asked.private_data == b"why".ljust(168, b"\0")
    assert (told.status, told.private_data[:7]) == (0, b"because")
    assert scene.states == [ARMED, ARMED]
    scene.send(0)
    assert scene.ports == [1, 1]
    scene.cut = {1}
    for sender in (0, 1):
        scene.send(sender)
    assert scene.ports == [2, 2]
    assert scene.states == [MIGRATED, MIGRATED]
    assert [scene.events(each).count(EVENT_PATH_MIG) for each in (0, 1)] == [1, 1]
    scene.cut = set()  # the first port is back, and is the alternate path from now on
    for each in (0, 1):
        scene.load(each, scene.way(each, 1))
    scene.network.run()
    assert scene.states == [ARMED, ARMED]
    scene.cut = {2}
    scene.send(1)
    assert scene.ports == [1, 1]
    assert [scene.events(each).count(EVENT_PATH_MIG) for each in (0, 1)] == [1, 1]


def test_a_path_whose_own_port_is_down_is_told_when_it_is_needed():
    scene = Scene()
    scene.connect()
    scene.propose(0, scene.way(0, 2))
    assert scene.states == [ARMED, ARMED]
    scene.ends[0].node.adapter.set_link(2, False)
    scene.ends[0].node.adapter.set_link(1, False)
    scene.network.run()
    assert EVENT_PATH_MIG_ERR in scene.events(0)


@pytest.mark.parametrize("failover", [0, 1, 2])
def test_a_request_with_an_alternate_path_says_so_and_the_reply_what_becomes_of_it(failover):
    scene = Scene()
    way = scene.way(0, 2)
    asked, replied = scene.connect(way, failover)
    assert asked.alternate == CmAlternatePath(way.gid, way.own_gid, 0xFFFF, 0xFFFF, ack_timeout=TIMEOUT)
    assert replied.failover == failover
    if not failover:
        scene.load(0, way)
        scene.load(1, asked.alternate)
        scene.network.run()
        assert scene.states == [ARMED, ARMED]
        scene.cut = {1}
        scene.send(0)
        assert scene.ports == [2, 2]


def test_a_request_without_one_names_none():
    scene = Scene()
    asked, replied = scene.connect()
    assert (asked.alternate, replied.alternate, replied.failover) == (None, None, 0)


@pytest.mark.parametrize("status", [m.APR_UNSUPPORTED, m.APR_REJECTED, m.APR_INVALID_SL])
def test_a_path_that_the_program_refuses_changes_nothing(status):
    scene = Scene()
    scene.connect()
    _, told = scene.propose(0, scene.way(0, 2), status=status, information=b"x" * 72)
    assert told.status == status
    assert scene.states == [MIGRATED, MIGRATED]
    scene.send(0)


@pytest.mark.parametrize(("changes", "status"), [
    ({"gid": bytes(10) + b"\xff\xff\x01\x02\x03\x04"}, m.APR_INVALID_GID),
    ({"hop_limit": 0}, m.APR_INVALID_HOP_LIMIT),
])  # fmt: skip
def test_the_adapter_refuses_what_cannot_be(changes, status):
    scene = Scene()
    scene.connect()
    way = CmAlternatePath(**{**vars(scene.way(0, 2)), **changes})
    scene.channels[0].load_path(scene.ids[0], way)
    assert scene.next(0, CM_PATH_ANSWER).status == status
    assert scene.channels[1].receive(0) is None


def test_the_path_that_the_connection_has_is_refused():
    scene = Scene()
    scene.connect()
    scene.channels[0].load_path(scene.ids[0], scene.way(0, 1))
    assert scene.next(0, CM_PATH_ANSWER).status == m.APR_IS_CURRENT
    scene.propose(0, scene.way(0, 2, there=1))  # another one to the same port
    assert scene.states == [ARMED, ARMED]


def stranger_beside(scene, side):
    """A channel of another program at a side's adapter."""
    node = scene.ends[side].node
    device = node.open()
    for pid, host in enumerate(node.adapter.hosts.values(), 7):
        host.pid = pid
    return device.open_connections(1)


@pytest.mark.parametrize("side", [0, 1])
def test_who_names_the_queue_pair_of_another_program_is_refused_and_ends_nothing(side):
    """To the peer it would be the program that has forgotten its connection."""
    scene = Scene()
    scene.connect()
    stranger = stranger_beside(scene, side)
    way = scene.way(side, 1)
    scene.channels[1 - side].listen(SERVICE + 1)
    with pytest.raises(DriverError, match="qp_num = ") as refused:
        stranger.connect(SERVICE + 1, CmPath(way.gid, way.lid), scene.own(side))
    assert refused.value.errno == errno.EINVAL
    stranger.listen(SERVICE + 2)
    back = CmPath(way.own_gid, way.own_lid)
    asking = scene.channels[1 - side].connect(SERVICE + 2, back, CmQueuePair(0x99, 1))
    scene.network.run(lambda: not stranger.idle)
    asked = stranger.receive(0)
    with pytest.raises(DriverError, match="qp_num = ") as refused:
        stranger.reply(asked.id, scene.own(side))
    assert refused.value.errno == errno.EINVAL
    stranger.reject(asked.id, 28)
    assert scene.next(1 - side, CM_REJECTED).id == asking
    scene.network.elapse(1_000_000_000)
    assert [channel.receive(0) for channel in scene.channels] == [None, None]
    scene.send(0)


def test_ee_contexts_of_another_program_are_not_named_either():
    scene = Scene()
    device = scene.ends[0].device
    context = device.create_ee(device.alloc_rdd())
    stranger = stranger_beside(scene, 0)
    end = CmQueuePair(context.number, 1, qp_type=QPT_RD)
    with pytest.raises(DriverError, match=f"qp_num = {context.number}: "):
        stranger.connect(SERVICE, scene.path(), end)
    scene.channels[0].connect(SERVICE, scene.path(), end)
    assert scene.next(1, CM_REQUEST).queue_pair.qp_num == context.number


def test_who_has_named_a_queue_pair_before_it_was_is_not_told_where_it_goes():
    """The queue pair's own connection follows it to its alternate path."""
    scene = Scene()
    accomplice = scene.network.add(ports=2)
    late = accomplice.open().open_connections(1)
    late.listen(SERVICE)
    stranger = stranger_beside(scene, 0)
    following = scene.qps[0].number + 1  # numbers go up
    stranger.connect(SERVICE, CmPath(accomplice.gid, max_cm_retries=15), CmQueuePair(following, 1))
    scene.network.run(lambda: not late.idle)
    asked = late.receive(0)
    scene.qps[0] = scene.ends[0].qp()
    assert scene.qps[0].number == following
    scene.connect()
    late.reply(asked.id, CmQueuePair(0x99, 1))
    scene.network.run(lambda: not stranger.idle)
    assert stranger.receive(0).kind == CM_REPLIED
    scene.propose(0, scene.way(0, 2))
    scene.cut = {1}
    scene.send(0)
    assert scene.ports == [2, 2]
    scene.channels[0].disconnect(scene.ids[0])
    scene.next(1, CM_DISCONNECT_REQUEST)


@pytest.mark.parametrize("link", ["ipv4", "ipv6", "native"])
@pytest.mark.parametrize("side", [0, 1])
def test_the_path_that_the_queue_pair_has_is_not_loaded(link, side):
    scene = Scene(link)
    scene.connect()
    with pytest.raises(DriverError, match="has this path") as refused:
        scene.load(side, scene.way(side, 1))
    assert refused.value.errno == errno.EINVAL
    assert scene.states == [MIGRATED, MIGRATED]
    scene.load(side, scene.way(side, 1, there=2))  # from the same port, to another one
    assert scene.states[side] == REARMED
    scene.load(side, scene.way(side, 2, there=1))  # and the other way round
    scene.send(0)


@pytest.mark.parametrize("link", ["ipv4", "native"])
def test_the_path_that_was_left_is_another_one(link):
    scene = Scene(link)
    scene.connect()
    scene.propose(0, scene.way(0, 2))
    scene.cut = {1}
    scene.send(0)
    assert scene.ports == [2, 2]
    for side in (0, 1):
        with pytest.raises(DriverError, match="has this path"):
            scene.load(side, scene.way(side, 2))
        scene.load(side, scene.way(side, 1))
    scene.cut = set()
    scene.network.run()
    assert scene.states == [ARMED, ARMED]


def test_a_native_path_to_a_lid_that_is_nobodys():
    scene = Scene("native")
    scene.connect()
    scene.channels[0].load_path(scene.ids[0], CmAlternatePath(**{**vars(scene.way(0, 2)), "lid": 0x1234}))
    assert scene.next(0, CM_PATH_ANSWER).status == m.APR_INVALID_LID


@pytest.mark.parametrize(("ask", "code"), [
    (lambda s: s.channels[0].load_path(s.ids[0] ^ 1, s.way(0, 2)), errno.EINVAL),
    (lambda s: s.channels[0].load_path(s.ids[0], s.way(1, 2)), errno.EINVAL),
    (lambda s: s.channels[0].load_path(s.ids[0], CmAlternatePath(bytes(16), bytes(16))), errno.EINVAL),
    (lambda s: s.channels[0].load_path(s.ids[0], s.way(0, 2), b"x" * 169), errno.EINVAL),
    (lambda s: s.channels[0].load_path(s.ids[0], replace(s.way(0, 2), sl=16)), errno.EINVAL),
    (lambda s: s.channels[1].answer_path(s.ids[1]), errno.EINVAL),
    (lambda s: s.channels[1].answer_path(s.ids[1], information=b"x" * 73), errno.EINVAL),
    (lambda s: s.channels[1].answer_path(s.ids[1], private_data=b"x" * 149), errno.EINVAL),
    (lambda s: s.channels[1].reply(s.ids[1], s.own(1), failover=3), errno.EINVAL),
    (lambda s: s.channels[0].connect(SERVICE, s.path(), s.own(0), b"", s.way(1, 2)), errno.EINVAL),
])  # fmt: skip
def test_what_a_program_may_not_ask_for(ask, code):
    scene = Scene()
    scene.connect()
    with pytest.raises(DriverError) as refused:
        ask(scene)
    assert refused.value.errno == code
    scene.propose(0, scene.way(0, 2))


def test_a_program_is_told_when_the_time_wait_is_over():
    scene = Scene()
    scene.connect()
    scene.channels[0].disconnect(scene.ids[0])
    scene.next(1, CM_DISCONNECT_REQUEST)
    scene.channels[1].disconnect(scene.ids[1])
    scene.next(0, CM_DISCONNECTED)
    before = scene.network.now
    for side in (0, 1):
        assert scene.next(side, CM_TIMEWAIT_OVER).id == scene.ids[side]
    assert scene.network.now - before < 2_000_000_000


def test_who_has_let_go_is_not_told_of_the_time_wait():
    scene = Scene()
    path = CmPath(**{**vars(scene.path()), "ack_timeout": 18})  # a second
    scene.path = lambda: path
    scene.connect()
    scene.channels[0].disconnect(scene.ids[0])
    scene.next(1, CM_DISCONNECT_REQUEST)
    scene.channels[1].disconnect(scene.ids[1])
    scene.next(0, CM_DISCONNECTED)
    for side in (0, 1):
        scene.channels[side].destroy(scene.ids[side])
    scene.network.elapse(5_000_000_000)
    assert [scene.channels[side].receive(0) for side in (0, 1)] == [None, None]


def test_rearm_is_refused_without_a_path():
    scene = Scene()
    scene.connect()
    with pytest.raises(DriverError):
        scene.qps[0].modify({"path_mig_state": REARMED})


def counters(scene, side):
    return scene.port(side, 1).management[1].connections.manager.counters


def part(scene, side):
    """End the connection; both programs hear of it."""
    scene.channels[side].disconnect(scene.ids[side])
    scene.next(1 - side, CM_DISCONNECT_REQUEST)
    scene.channels[1 - side].disconnect(scene.ids[1 - side])
    scene.next(side, CM_DISCONNECTED)


@pytest.mark.parametrize("link", ["ipv4", "ipv6", "native"])
@pytest.mark.parametrize("side", [0, 1])
@pytest.mark.parametrize("asked", ["with the request", "later"])
def test_a_connection_whose_first_path_is_gone_is_ended_along_the_other_one(link, side, asked):
    scene = Scene(link)
    if asked == "later":
        scene.connect()
        scene.propose(0, scene.way(0, 2))
    else:
        way = scene.way(0, 2)
        request, _ = scene.connect(way)
        scene.load(0, way)
        scene.load(1, request.alternate)
        scene.network.run()
    scene.cut = {1}
    scene.send(0)
    assert scene.ports == [2, 2]
    if asked == "later":  # proposals go along it, too: the former path is another one now
        scene.cut = {1}
        _, told = scene.propose(side, scene.way(side, 1))
        assert told.status == m.APR_LOADED
        scene.channels[side].load_path(scene.ids[side], scene.way(side, 2))
        assert scene.next(side, CM_PATH_ANSWER).status == m.APR_IS_CURRENT
    part(scene, side)
    assert [counters(scene, each)["resent"] for each in (0, 1)] == [0, 0]
    for each in (0, 1):
        assert scene.next(each, CM_TIMEWAIT_OVER).id == scene.ids[each]
        assert not scene.port(each, 1).management[1].connections.manager._by_local


@pytest.mark.parametrize("link", ["ipv4", "native"])
@pytest.mark.parametrize("side", [0, 1])
@pytest.mark.parametrize("asked", ["with the request", 0, 1])
def test_a_goodbye_along_the_alternate_path_is_taken_before_the_own_queue_pair_has_moved(link, side, asked):
    scene = Scene(link)
    if asked == "with the request":
        way = scene.way(0, 2)
        request, _ = scene.connect(way)
        scene.load(0, way)
        scene.load(1, request.alternate)
        scene.network.run()
    else:
        scene.connect()
        scene.propose(asked, scene.way(asked, 2))
    scene.cut = {1, 2}  # the packet that tells the peer is lost
    scene.qps[side].modify({"path_mig_state": MIGRATED})
    scene.network.run()
    scene.qps[side].modify({"qp_state": 6})
    scene.cut = {1}
    part(scene, side)
    assert scene.ports == [2 - side, 1 + side]
    assert [counters(scene, each)["resent"] for each in (0, 1)] == [0, 0]


@pytest.mark.parametrize("link", ["ipv4", "native"])
def test_a_goodbye_along_the_first_path_is_taken_after_the_own_queue_pair_has_moved(link):
    scene = Scene(link)
    scene.connect()
    scene.propose(0, scene.way(0, 2))
    scene.cut = {1, 2}  # the peer does not hear of it
    scene.qps[0].modify({"path_mig_state": MIGRATED})
    scene.network.run()
    scene.qps[1].modify({"qp_state": 6})
    scene.cut = set()
    part(scene, 1)
    assert scene.ports == [2, 1]
    assert [counters(scene, each)["resent"] for each in (0, 1)] == [0, 0]


@pytest.mark.parametrize("asked", ["never", "refused", "refused there", "with the request", "of the request"])
def test_a_goodbye_along_a_path_that_was_not_agreed_upon_is_a_strangers(asked):
    scene = Scene()
    if asked.endswith("the request"):
        scene.connect(scene.way(0, 2), failover=1 + (asked == "of the request"))
    else:
        scene.connect()
    if asked.startswith("refused"):
        side = int(asked != "refused")
        scene.propose(side, scene.way(side, 2), status=m.APR_REJECTED)
    manager = scene.port(1, 1).management[1].connections.manager
    sender = scene.port(0, 1).management[1].connections
    connection = sender.manager._tables.find(scene.ids[0])
    farewell = m.Dreq(connection.number, connection.remote_comm_id, scene.qps[1].number)
    for own, there in ((2, 2), (2, 1), (1, 2)):
        way = scene.way(0, own, there)
        before = manager.counters["drops_unmatched"]
        to = replace(connection.peer, gid=way.gid, own_gid=way.own_gid)
        assert sender._send(m.encode(farewell, 77), to)
        scene.network.run()
        if (own, there) != (1, 2):
            assert manager.counters["drops_unmatched"] == before + 1
    # by another port of its own, but from where the peer is: that is the peer
    assert scene.next(1, CM_DISCONNECT_REQUEST).id == scene.ids[1]


# rules alone


def armed_pair(number, port_number, migration=ARMED):
    """What a port that fails sees of a queue pair, and how it was told to migrate."""
    told = []
    flow = SimpleNamespace(port_number=port_number)
    return SimpleNamespace(
        number=number, migration=migration, flow=flow, told=told, migrate=lambda *step: told.append(step)
    )


def test_only_armed_connections_of_the_port_that_fails_leave_it():
    pairs = [armed_pair(1, 1), armed_pair(2, 2), armed_pair(3, 1, MIGRATED), armed_pair(4, 1)]
    adapter = SimpleNamespace(queue_pairs={each.number: each for each in pairs})
    path_migration.port_failed(adapter, SimpleNamespace(number=1), 7)
    assert [each.told for each in pairs] == [[(FAIL, 7)], [], [], [(FAIL, 7)]]


def test_the_managers_of_all_ports_learn_that_a_queue_pair_has_gone_to_another_path():
    told = []

    def manager(number):
        connections = SimpleNamespace(migrated=lambda qpn, route: told.append((number, qpn, route)))
        return SimpleNamespace(has_connections=number != 2, connections=connections)

    ports = [SimpleNamespace(number=number, management=(None, manager(number))) for number in (1, 2, 3)]
    queue_pair = SimpleNamespace(number=9, flow=SimpleNamespace(route="route"))
    path_migration.path_taken(SimpleNamespace(ports=ports), queue_pair)
    assert told == [(1, 9, "route"), (3, 9, "route")]


def alternate(port, **attributes):
    """What `alternate_of` makes of attributes of an RC queue pair with a path MTU of 256 bytes."""
    connection = SimpleNamespace(service=RC, path_mtu_bytes=256, dest_qp=5, number=7)
    vector = {"dgid": gid(9), "is_global": 1}
    return path_migration.alternate_of(
        SimpleNamespace(port_of=lambda number, name: port), connection,
        {"alt_ah_attr": vector, "alt_port_num": 1, **attributes},
    )  # fmt: skip


def test_the_bounds_of_an_alternate_path_are_exact():
    port = Port(AdapterConfig(gids=(gid(1),), pkeys=(0xFFFF, 0x8001), active_mtu=3))
    taken = alternate(port, alt_pkey_index=1, alt_timeout=31, path_mtu=3)
    assert (taken.pkey, taken.pkey_index, taken.timeout) == (0x8001, 1, 31)
    for name, attributes in (
        ("alt_pkey_index = 2", {"alt_pkey_index": 2}),
        ("alt_timeout = 32", {"alt_timeout": 32}),
        ("its active_mtu is less than path_mtu", {"path_mtu": 4}),
    ):
        with pytest.raises(OSError, match=name) as refused:
            alternate(port, **attributes)
        assert refused.value.errno == errno.EINVAL


def test_a_link_that_is_back_makes_no_port_active_that_has_no_lid():
    with Network(link="native") as world:
        node = world.add(1, lid=0)
        assert node.adapter.port.state == PORT_INIT
        node.adapter.set_link(1, True)
        assert node.adapter.port.state == PORT_INIT
