"""Instance numbers of connections: agreed upon by the communication manager, in every packet, and what is old
is dropped and counted.
"""

import random

import pytest

from softhca.driver import services
from softhca.driver.connections import (
    CM_ESTABLISHED,
    CM_REJECTED,
    CM_REPLIED,
    CM_REQUEST,
    CmPath,
    CmQueuePair,
)
from softhca.management.cm import messages as m
from softhca.management.cm.instances import (
    BLOCK_BYTES,
    INSTANCES,
    MAX_PEERS,
    Instances,
    answer_of,
    offer_of,
    with_answer,
    with_offer,
    without,
)
from softhca.management.mad import Address
from softhca.testing.ends import RC, SEND, UC, End, post
from softhca.testing.network import Network
from softhca.transport.states import RESET

SERVICE = 0x777
PSNS = (100, 200)


class Scene:
    """Two ends with a channel each and a queue pair each, that connect as often as wanted."""

    def __init__(self, *configs, kind=RC, link="ipv4"):
        self.network = Network(link=link)
        configs = configs or ({}, {})
        self.ends = [End(self.network.add(**config)) for config in configs]
        self.channels = [end.device.open_connections(1) for end in self.ends]
        self.channels[1].listen(SERVICE)
        self.qps = [end.qp(kind) for end in self.ends]
        self.kind = kind

    def context(self, side):
        return self.ends[side].node.adapter.queue_pairs[self.qps[side].number]

    @property
    def instances(self):
        return [self.context(side).instance for side in (0, 1)]

    def told(self, side, kind):
        self.network.run(lambda: not self.channels[side].idle)
        event = self.channels[side].receive(0)
        assert event.kind == kind
        return event

    def queue_pair(self, side):
        return CmQueuePair(self.qps[side].number, PSNS[side], qp_type=self.kind)

    def path(self, side):
        node = self.ends[side].node
        return CmPath(node.gid, lid=node.lid, ack_timeout=1)

    def raised(self, side):
        """One queue pair to RTS, towards the other."""
        end, other = self.ends[side], self.ends[1 - side].node
        path = self.network.addressing.path(other, mtu=end.node.adapter.config.active_mtu)
        how = services.Reliability() if self.kind == RC else None
        services.connect(
            self.qps[side], path, self.qps[1 - side].number, PSNS[1 - side], PSNS[side], 0, how
        )

    def connect(self, request=b"", reply=b""):
        active = self.channels[0].connect(SERVICE, self.path(1), self.queue_pair(0), request)
        asked = self.told(1, CM_REQUEST)
        self.raised(1)
        self.expected = self.context(1).instance
        self.channels[1].reply(asked.id, self.queue_pair(1), reply)
        replied = self.told(0, CM_REPLIED)
        self.raised(0)
        self.channels[0].ready(active)
        self.told(1, CM_ESTABLISHED)
        return active, asked, replied

    def send(self, side, data=b"x"):
        """One message; what the other side has got (None: nothing)."""
        end, other = self.ends[side], self.ends[1 - side]
        end.memory[: len(data)] = data
        self.qps[1 - side].post_recv(1, [other.sge(100, 50)])
        post(self.qps[side], SEND, [end.sge(0, len(data))])
        found = other.poll(1)
        return bytes(other.memory[100 : 100 + len(data)]) if found else None


def test_both_ends_have_the_next_number_in_every_packet_and_programs_see_none_of_it():
    scene = Scene()
    sent = scene.network.record("sent")
    active, asked, replied = scene.connect(b"hello", b"welcome")
    first, second = scene.instances
    assert first == second == scene.expected
    assert 1 <= first <= INSTANCES
    assert asked.private_data == b"hello".ljust(92, b"\0")
    assert replied.private_data == b"welcome".ljust(196, b"\0")
    assert scene.send(0) == scene.send(1) == b"x"
    numbers = {each.bth.reserved7 for each in sent if each.bth.dest_qp > 1}
    assert numbers == {first}
    assert {each.bth.reserved7 for each in sent if each.bth.dest_qp == 1} == {0}
    for number, channel in ((active, scene.channels[0]), (asked.id, scene.channels[1])):
        channel.destroy(number)
    scene.network.elapse(10_000_000_000)
    for qp in scene.qps:
        qp.modify({"qp_state": RESET})
    assert scene.instances == [0, 0]
    while scene.channels[1].receive(0):
        pass
    scene.connect()
    assert scene.instances == [first % INSTANCES + 1] * 2


@pytest.mark.parametrize("link", ["ipv4", "ipv6", "native"])
@pytest.mark.parametrize("kind", [RC, UC])
def test_a_packet_of_the_old_connection_is_dropped_and_counted(kind, link):
    scene = Scene(kind=kind, link=link)
    sent = scene.network.record("sent")
    scene.connect()
    assert scene.send(0, b"old") == b"old"
    stale = next(each for each in sent if each.bth.dest_qp == scene.qps[1].number)
    number = scene.instances[1]
    for side in (0, 1):
        scene.qps[side].modify({"qp_state": RESET})
        scene.raised(side)
        scene.context(side).instance = number % INSTANCES + 1  # connected again, with the same PSNs
    port = stale.route.source_port
    scene.qps[1].post_recv(1, [scene.ends[1].sge(100, 50)])
    scene.network.inject(scene.ends[1].node, stale.data, scene.ends[0].node.gid, source_port=port)
    assert scene.ends[1].poll(1) == []
    assert scene.context(1).counters.drops_instance == 1
    counters = scene.ends[1].device.query_counters(1)
    assert counters["transport_drops_instance"] == 1
    scene.context(1).instance = number  # and this is what it would have been taken for
    scene.network.inject(scene.ends[1].node, stale.data, scene.ends[0].node.gid, source_port=port)
    assert len(scene.ends[1].poll(1)) == 1


@pytest.mark.parametrize("configs", [
    ({"connection_instances": False}, {}), ({}, {"connection_instances": False}),
])  # fmt: skip
def test_to_others_every_packet_is_standard(configs):
    scene = Scene(*configs)
    sent = scene.network.record("sent")
    scene.connect()
    assert scene.instances == [0, 0]
    assert scene.send(0) == scene.send(1) == b"x"
    assert {each.bth.reserved7 for each in sent} == {0}


def test_who_has_no_number_ignores_the_reserved_bits():
    scene = Scene({"connection_instances": False}, {})
    scene.connect()
    scene.context(0).instance = 55
    assert scene.send(0) == b"x"


@pytest.mark.parametrize(("request_bytes", "reply_bytes"), [(85, 0), (92, 0), (0, 189), (0, 196)])
def test_a_program_that_needs_the_room_has_it(request_bytes, reply_bytes):
    scene = Scene()
    request, reply = b"\xee" * request_bytes, b"\xee" * reply_bytes
    _, asked, replied = scene.connect(request, reply)
    assert asked.private_data == request.ljust(92, b"\0")
    assert replied.private_data == reply.ljust(196, b"\0")
    assert scene.instances == [0, 0]
    assert scene.send(0) == scene.send(1) == b"x"


def test_what_a_request_has_left_behind_is_nobody_s():
    scene = Scene()
    scene.channels[0].connect(SERVICE, scene.path(1), scene.queue_pair(0))
    asked = scene.told(1, CM_REQUEST)
    scene.channels[1].reject(asked.id, 28)
    scene.told(0, CM_REJECTED)
    scene.raised(0)
    scene.raised(1)  # connected by other means
    assert scene.instances == [0, 0]
    for side, channel in enumerate(scene.ends[0].node.adapter.port.management[1].connections.channels):
        assert not channel.instances._asked, side
    assert not scene.ends[1].node.adapter.port.management[1].connections.channels[0].instances._by_peer


def test_a_request_that_found_no_room_leaves_nothing():
    scene = Scene()
    scene.channels[1].close()
    scene.channels[1] = scene.ends[1].device.open_connections(1, entries=1)
    scene.channels[1].listen(SERVICE)
    scene.channels[0].connect(SERVICE, scene.path(1), CmQueuePair(0x900, 1))
    scene.channels[0].connect(SERVICE, scene.path(1), scene.queue_pair(0))
    scene.network.elapse(1_000_000)
    scene.raised(1)  # connected by other means
    assert scene.context(1).instance == 0
    assert scene.told(1, CM_REQUEST).queue_pair.qp_num == 0x900
    assert scene.channels[1].idle


def test_a_request_that_is_rejected_takes_nothing_from_a_later_one_of_its_queue_pair():
    """Two adapters behind one address, each with a queue pair of that number."""
    scene = Scene()
    connections = scene.ends[1].node.adapter.port.management[1].connections
    source = Address(qpn=1, gid=scene.ends[0].node.gid, own_gid=scene.ends[1].node.gid)
    asked = []
    for guid, number in ((1, 40), (2, 41)):
        private_data = with_offer(bytes(92), number)
        request = m.Req(
            service_id=SERVICE, local_comm_id=guid, local_ca_guid=guid, local_qpn=scene.qps[0].number,
            private_data=private_data,
        )  # fmt: skip
        connections.deliver(m.encode(request, guid), source)
        asked.append(scene.told(1, CM_REQUEST))
    scene.channels[1].reject(asked[0].id, 28)
    scene.raised(1)
    assert scene.context(1).instance == 41


def test_only_queue_pairs_of_the_host_itself_get_a_number():
    scene = Scene()
    stranger = End(scene.ends[0].node)
    other = stranger.qp()
    named = CmQueuePair(other.number, 1)
    scene.channels[0].connect(SERVICE, scene.path(1), named)
    asked = scene.told(1, CM_REQUEST)
    scene.channels[1].reply(asked.id, scene.queue_pair(1))
    scene.told(0, CM_REPLIED)
    assert scene.ends[0].node.adapter.queue_pairs[other.number].instance == 0


@pytest.mark.parametrize(("pids", "numbered"), [((7, 7), True), ((0, 0), False)])
def test_who_manages_connections_may_be_attached_beside_who_has_the_queue_pairs(pids, numbered):
    scene = Scene()
    for side, end in enumerate(scene.ends):
        hosts = end.node.adapter.hosts
        (owner,) = hosts.values()
        manager = end.node.open()
        scene.channels[side].close()
        scene.channels[side] = manager.open_connections(1)
        (beside,) = [host for host in hosts.values() if host is not owner]
        owner.pid, beside.pid = pids
    scene.channels[1].listen(SERVICE)
    scene.connect()
    first, second = scene.instances
    assert first == second
    assert bool(first) == numbered
    assert scene.send(0) == scene.send(1) == b"x"


def test_blocks_are_put_where_there_is_room_and_read_only_whole():
    for put, read, other in ((with_offer, offer_of, answer_of), (with_answer, answer_of, offer_of)):
        data = put(b"abc" + bytes(89), 77)
        assert len(data) == 92
        assert (read(data), other(data)) == (77, 0)
        assert without(data) == b"abc" + bytes(89)
        assert put(bytes(91) + b"x", 1) is None
        for at in range(BLOCK_BYTES - 1):
            broken = bytearray(data)
            broken[92 - BLOCK_BYTES + at] ^= 1
            assert read(bytes(broken)) == 0
        assert read(data[:-1] + bytes([128])) == 0
    assert offer_of(b"") == offer_of(bytes(92)) == 0


def test_numbers_go_on_from_whoever_remembers_more_and_wrap():
    ours, theirs = (Instances(random.Random(seed)) for seed in (1, 2))
    for _ in range(3 * INSTANCES):
        offered = ours.next(b"b")
        held = theirs.agree(b"a", offered)
        ours.agreed(b"b", held)
        assert 1 <= held <= INSTANCES
    assert held == ours._last[b"b"] == theirs._last[b"a"]
    forgotten = Instances(random.Random(3))  # its adapter began anew
    for _ in range(20):
        offered = forgotten.next(b"b")
        again = theirs.agree(b"a", offered)
        forgotten.agreed(b"b", again)
        assert 0 < (again - held) % INSTANCES <= INSTANCES // 2
        held = again
    assert theirs.agree(b"a", held) == held % INSTANCES + 1  # never the last one again


@pytest.mark.parametrize(("ahead", "taken"), [(1, True), (63, True), (64, False), (126, False), (0, False)])
def test_a_number_that_is_not_newer_than_the_last_is_answered_by_the_next(ahead, taken):
    numbers = Instances(random.Random(1))
    last = numbers.next(b"a")
    offered = (last + ahead - 1) % INSTANCES + 1
    assert numbers.agree(b"a", offered) == (offered if taken else last % INSTANCES + 1)


@pytest.mark.parametrize(("ahead", "taken"), [(1, True), (63, True), (64, False), (126, False), (0, False)])
def test_an_answer_of_before_does_not_bring_numbers_back(ahead, taken):
    numbers = Instances(random.Random(1))
    last = numbers.next(b"a")
    answered = (last + ahead - 1) % INSTANCES + 1
    numbers.agreed(b"a", answered)
    assert numbers.next(b"a") == (answered if taken else last) % INSTANCES + 1


def test_the_numbers_of_many_peers_are_bounded():
    numbers = Instances(random.Random(1))
    first = numbers.next(b"first")
    for place in range(MAX_PEERS - 1):
        numbers.next(place)
    assert numbers.next(b"first") == first % INSTANCES + 1
    numbers.next(b"one more")
    assert len(numbers._last) == MAX_PEERS
    assert 0 not in numbers._last


def test_after_the_last_number_comes_the_first():
    """With the same one again a late packet of the old connection would be one of the new."""
    numbers = Instances(random.Random(1))
    numbers.agreed(b"a", INSTANCES)
    assert [numbers.next(b"a") for _ in range(2)] == [1, 2]
    numbers.agreed(b"b", INSTANCES - 1)
    assert numbers.agree(b"b", INSTANCES) == INSTANCES
    assert numbers.agree(b"b", INSTANCES) == 1
