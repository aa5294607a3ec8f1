"""Identifiers over a connection manager that a test plays: what requests must say, what answers promise."""

import errno
import select
import threading
from dataclasses import replace
from types import SimpleNamespace

import pytest
from scripted_channel import ScriptedCmChannel

from softhca.driver import connections as cm
from softhca.driver.errors import DriverError
from softhca.driver.rdmacm import connecting, events, listening, ports, queue_pairs, states
from softhca.driver.rdmacm.addresses import SocketAddress, of_gid
from softhca.driver.rdmacm.events import ConnectionParameters, EventChannel
from softhca.driver.rdmacm.identifier import OPTION_ACK_TIMEOUT, OPTION_AFONLY, Identifier
from softhca.driver.rdmacm.local_devices import LocalDevices
from softhca.driver.rdmacm.port_numbers import PortNumbers
from softhca.management.ip_service import TCP, UDP, IpHeader, service_id
from softhca.queues.states import ERR, RTR, RTS

HERE, THERE, ELSEWHERE = (bytes(10) + b"\xff\xff" + bytes((10, 0, 0, n)) for n in (1, 2, 3))
LOCALHOST = bytes(10) + b"\xff\xff" + bytes((127, 0, 0, 1))
PORT = 7471
LIMITS = {"phys_port_cnt": 1, "max_qp_rd_atom": 16, "max_qp_init_rd_atom": 16}


class Device:
    """One port with the address 10.0.0.1."""

    alive = True
    lost = False
    name = "told0"
    events = SimpleNamespace(
        waits=True, gid_changes=lambda: 0, watch=lambda at_end: None, unwatch=lambda at_end: None
    )

    def query_device(self):
        return LIMITS

    def query_port(self, port):
        return {"link_layer": 2, "gid_tbl_len": 2, "active_mtu": 3}

    def query_gid(self, port, index):
        return (HERE, bytes(16))[index]

    def wait_for(self, ended, timeout_s=None):
        pass

    def wake_waiters(self):
        pass

    def close(self):
        self.alive = False


@pytest.fixture
def device(monkeypatch):
    monkeypatch.setattr(ports, "CmChannel", ScriptedCmChannel)
    return Device()


@pytest.fixture
def make(device):
    """Makes identifiers of one process."""

    def opened(name):
        device.alive = True
        return device

    local = LocalDevices(lambda: ["told0"], opened)
    numbers, channel = PortNumbers(seed=1), EventChannel()
    return lambda space=TCP: Identifier(channel, space, local, numbers)


def listener(make, space=TCP, address=HERE):
    found = make(space)
    found.bind(of_gid(address, PORT) if address else SocketAddress(bytes(4), PORT))
    found.listen()
    return found


def request(number=7, header=None, kind=cm.CM_REQUEST, **peer):
    header = IpHeader.between(THERE, 40000, HERE) if header is None else header
    return cm.CmEvent(
        kind, number, 101, 0, service_id(TCP, PORT), 1, HERE, cm.CmPath(THERE, ack_timeout=18),
        cm.CmQueuePair(33, 500, **{"responder_resources": 2, "initiator_depth": 3, **peer}), 0xFFFF, 0,
        (header.encode() if isinstance(header, IpHeader) else header).ljust(92, b"\0"),
    )  # fmt: skip


def answer(kind, number, **changes):
    return replace(request(number), kind=kind, listener=0, **changes)


def test_localhost_is_all_addresses_where_no_device_is_at_one_of_loopback(make, device):
    """As with the kernel; its port number is that of all addresses then."""
    owner = listener(make, address=LOCALHOST)
    assert owner.source == of_gid(LOCALHOST, PORT)
    device.channel.queue_event(request())
    assert owner.channel.next_event(0).identifier.source == of_gid(HERE, PORT)
    beside = make()
    users = beside.devices.adapters.users(device)
    with pytest.raises(DriverError) as refused:
        beside.bind(of_gid(HERE, PORT))
    assert refused.value.errno == errno.EADDRINUSE
    assert beside.devices.adapters.users(device) == users
    beside.bind(of_gid(LOCALHOST))
    beside.resolve_address(of_gid(LOCALHOST, PORT))
    assert beside.source == of_gid(HERE, beside.source.port)
    assert beside.destination == of_gid(HERE, PORT)


def test_a_request_makes_an_identifier(make, device):
    owner = listener(make)
    assert device.channel.sent == [("listen", (service_id(TCP, PORT), listening.BACKLOG), {})]
    device.channel.queue_event(request())
    event = owner.channel.next_event(0)
    child = event.identifier
    assert (event.kind, event.listener) == (events.CONNECT_REQUEST, owner)
    assert event.private_data == bytes(56)
    assert (child.state, child.source, child.destination) == (
        states.REQUESTED, of_gid(HERE, PORT), of_gid(THERE, 40000)
    )  # fmt: skip
    assert (event.connection.responder_resources, event.connection.initiator_depth) == (3, 2)


NATIVE_HERE, NATIVE_THERE = (bytes.fromhex("fe80000000000000") + bytes(7) + bytes([n]) for n in (1, 2))


class NativeDevice(Device):
    """One InfiniBand port, in the default partition alone."""

    def query_port(self, port):
        return {"link_layer": 1, "gid_tbl_len": 1, "active_mtu": 5, "pkey_tbl_len": 2, "lid": 0, "sm_lid": 0}

    def query_gid(self, port, index):
        return NATIVE_HERE

    def query_pkey(self, port, index):
        return (0xFFFF, 0)[index]


def test_a_request_on_a_native_link_says_the_way_back_and_must_be_of_a_partition(monkeypatch):
    monkeypatch.setattr(ports, "CmChannel", ScriptedCmChannel)
    device = NativeDevice()
    local = LocalDevices(lambda: ["told0"], lambda name: device)
    owner = Identifier(EventChannel(), TCP, local, PortNumbers(seed=1))
    owner.bind(of_gid(NATIVE_HERE, PORT))
    owner.listen()
    header = IpHeader.between(NATIVE_THERE, 40000, NATIVE_HERE)
    path = cm.CmPath(NATIVE_THERE, lid=6, sl=3, path_mtu=4)
    sound = replace(request(7, header), own_gid=NATIVE_HERE, path=path)
    device.channel.queue_event(replace(sound, id=8, pkey=0x8077))
    assert owner.channel.next_event(0) is None
    assert device.channel.sent[-1] == ("reject", (8, listening.NOBODY_LISTENS), {})
    device.channel.queue_event(replace(sound, pkey=0x7FFF))
    child = owner.channel.next_event(0).identifier
    assert (child.route.dlid, child.route.sl, child.route.mtu, child.route.pkey_index) == (6, 3, 4, 0)
    child.connection.own = cm.CmQueuePair(1, 2)
    vector = queue_pairs.attributes(child, RTR)["ah_attr"]
    assert (vector["dlid"], vector["sl"], vector["is_global"]) == (6, 3, 0)


@pytest.mark.parametrize(
    "header",
    [
        IpHeader.between(THERE, 40000, ELSEWHERE),
        replace(IpHeader.between(THERE, 40000, HERE), major_version=1),
        replace(IpHeader.between(THERE, 40000, HERE), ip_version=5),
        b"",
    ],
)
@pytest.mark.parametrize("kind", [cm.CM_REQUEST, cm.CM_SIDR_REQUEST])
def test_a_request_that_is_not_for_the_listener_is_refused(make, device, header, kind):
    owner = listener(make)
    device.channel.queue_event(request(header=header, kind=kind))
    assert owner.channel.next_event(0) is None
    last = device.channel.sent[-1]
    if kind == cm.CM_REQUEST:
        assert last == ("reject", (7, listening.NOBODY_LISTENS), {})
    else:
        assert last == ("answer", (7, listening.SIDR_NOT_SUPPORTED), {})


def test_a_listener_at_all_addresses_of_ipv4_takes_no_ipv6(make, device):
    owner = listener(make, address=None)
    six = bytes.fromhex("20010db8000000000000000000000001")
    device.channel.queue_event(request(header=IpHeader.between(six, 40000, six)), request(8))
    assert owner.channel.next_event(0).identifier.destination == of_gid(THERE, 40000)
    assert device.channel.sent[-1][:2] == ("reject", (7, listening.NOBODY_LISTENS))


def listening_at_all(make, version, *, family_only=False, space=TCP):
    found = make(space)
    if family_only:
        found.set_option(OPTION_AFONLY, 1)
    found.bind(SocketAddress(bytes(16 if version == 6 else 4), PORT))
    found.listen()
    return found


SIX = bytes.fromhex("20010db8000000000000000000000001")


@pytest.mark.parametrize("first", [4, 6])
def test_listeners_of_both_ip_versions_share_the_adapters(make, device, first):
    owners = {
        version: listening_at_all(make, version, family_only=version == 6) for version in (first, 10 - first)
    }
    assert [name for name, *_ in device.channel.sent] == ["listen"]
    device.channel.queue_event(request(7, IpHeader.between(SIX, 40000, SIX)), request(8))
    found = [owners[4].channel.next_event(0) for _ in range(2)]
    assert [each.listener for each in found] == [owners[6], owners[4]]
    owners[first].close()
    assert [name for name, *_ in device.channel.sent] == ["listen"]
    device.channel.queue_event(*(request(9 + number, header) for number, header in
                                 enumerate([IpHeader.between(SIX, 40000, SIX), None])))  # fmt: skip
    assert owners[4].channel.next_event(0).listener == owners[10 - first]
    assert owners[4].channel.next_event(0) is None
    refused = 9 if first == 6 else 10
    assert device.channel.sent[-1][:2] == ("reject", (refused, listening.NOBODY_LISTENS))
    owners[10 - first].close()
    assert ("destroy", (101,), {}) in device.channel.sent


def test_listeners_that_requests_do_not_tell_apart_are_the_adapters_affair(make, device):
    listening_at_all(make, 4)
    listening_at_all(make, 6)
    listening_at_all(make, 4, space=UDP)
    assert [name for name, *_ in device.channel.sent] == ["listen"] * 3


def test_who_accepts_does_no_more_at_a_time_than_the_peer(make, device):
    owner = listener(make)
    device.channel.queue_event(request())
    child = owner.channel.next_event(0).identifier
    child.connection.accept(ConnectionParameters(responder_resources=9, initiator_depth=9, qp_num=44))
    name, (number, end, private), _ = device.channel.sent[-1]
    assert (name, number, private) == ("reply", 7, b"")
    assert (end.qp_num, end.responder_resources, end.initiator_depth) == (44, 3, 2)
    assert end.starting_psn == child.psn
    assert queue_pairs.attributes(child, RTR)["rq_psn"] == end.starting_psn  # the peer is to begin there
    assert queue_pairs.attributes(child, RTS)["sq_psn"] == 500  # and this side where the peer has asked it to
    device.channel.queue_event(answer(cm.CM_ESTABLISHED, 7))
    assert owner.channel.next_event(0).kind == events.ESTABLISHED
    assert child.state == states.CONNECTED


def routed(make, space=TCP):
    owner = make(space)
    owner.resolve_address(of_gid(THERE, PORT), of_gid(HERE))
    owner.resolve_route()
    for kind in (events.ADDR_RESOLVED, events.ROUTE_RESOLVED):
        assert owner.channel.next_event(0).kind == kind
    return owner


def test_a_request_carries_both_addresses(make, device):
    owner = routed(make)
    owner.connection.connect(ConnectionParameters(b"private", qp_num=44))
    name, (service, path, end, private), _ = device.channel.sent[-1]
    assert (name, service) == ("connect", service_id(TCP, PORT))
    assert (path.gid, path.ack_timeout, end.qp_num) == (THERE, connecting.ACK_TIMEOUT, 44)
    assert private == IpHeader.between(HERE, owner.source.port, THERE).encode() + b"private"


def test_an_answer_may_come_before_the_call_has_returned(make, device):
    owner = routed(make)
    port = ports.port_of(device, 1)
    port.channel.queue_event(answer(cm.CM_REJECTED, 101, status=8))
    owner.connection.connect()
    event = owner.channel.next_event(0)
    assert (event.kind, event.status) == (events.REJECTED, 8)


@pytest.mark.parametrize("said", [{"responder_resources": 17}, {"initiator_depth": 17}])
def test_more_than_the_device_can_do_is_refused(make, said):
    with pytest.raises(DriverError) as refused:
        routed(make).connection.connect(ConnectionParameters(**said))
    assert refused.value.errno == errno.EINVAL


@pytest.mark.parametrize(("space", "room"), [(TCP, 56), (UDP, 180)])
def test_private_data_have_room(make, space, room):
    with pytest.raises(DriverError) as refused:
        routed(make, space).connection.connect(ConnectionParameters(bytes(room + 1)))
    assert refused.value.errno == errno.EINVAL
    routed(make, space).connection.connect(ConnectionParameters(bytes(room)))


def test_a_reply_has_the_last_word_on_reads(make, device):
    owner = routed(make)
    owner.connection.connect(ConnectionParameters(qp_num=44))
    device.channel.queue_event(answer(cm.CM_REPLIED, 101))
    event = owner.channel.next_event(0)
    assert event.kind == events.CONNECT_RESPONSE
    assert (owner.connection.own.responder_resources, owner.connection.own.initiator_depth) == (3, 2)
    owner.connection.establish()
    assert device.channel.sent[-1] == ("ready", (101,), {})


@pytest.mark.parametrize(
    ("kind", "expected", "status"),
    [
        (cm.CM_REJECTED, events.REJECTED, 28),
        (cm.CM_UNREACHABLE, events.UNREACHABLE, -errno.ETIMEDOUT),
    ],
)
def test_a_request_that_fails_says_why(make, device, kind, expected, status):
    owner = routed(make)
    owner.connection.connect()
    device.channel.queue_event(answer(kind, 101, status=28))
    event = owner.channel.next_event(0)
    assert (event.kind, event.status, owner.state) == (expected, status, states.CLOSED)


class QueuePair:
    """Takes down how it is modified; ``refused`` is the state that it does not go to."""

    number = 44

    def __init__(self, refused=None):
        self.modified = []
        self.refused = refused

    def modify(self, attributes):
        if attributes["qp_state"] == self.refused:
            raise DriverError(errno.ENOMEM, "refused")
        self.modified.append(attributes)


@pytest.mark.parametrize(("tries", "timer"), [(6, 0), (7, 22)])
def test_who_asked_takes_the_peers_reply_over_into_its_queue_pair(make, device, tries, timer):
    owner = routed(make)
    owner.queue_pair = QueuePair()
    owner.connection.connect(ConnectionParameters(retry_count=5, rnr_retry_count=tries))
    replied = replace(request().queue_pair, rnr_retry=2, retry_cnt=1)
    device.channel.queue_event(answer(cm.CM_REPLIED, 101, queue_pair=replied))
    assert (owner.channel.next_event(0).kind, owner.state) == (events.ESTABLISHED, states.CONNECTED)
    assert [each["qp_state"] for each in owner.queue_pair.modified] == [RTR, RTS]
    # How often to try again where there is no receive is for who receives to say, the rest for who asks.
    assert (owner.queue_pair.modified[1]["rnr_retry"], owner.queue_pair.modified[1]["retry_cnt"]) == (2, 5)
    # The peer tries as often as it was asked to: where that has an end, a program may be late as with Linux.
    assert owner.queue_pair.modified[0]["min_rnr_timer"] == timer
    assert device.channel.sent[-1] == ("ready", (101,), {})


@pytest.mark.parametrize("refused", [RTR, RTS, "ready"])
def test_a_reply_whose_queue_pair_does_not_get_ready_ends_the_connection(make, device, refused):
    owner = routed(make)
    owner.queue_pair = QueuePair(refused)
    owner.connection.connect()
    if refused == "ready":
        device.channel.refusal = errno.ENOMEM
    device.channel.queue_event(answer(cm.CM_REPLIED, 101))
    event = owner.channel.next_event(0)
    assert (event.kind, event.status) == (events.CONNECT_ERROR, -errno.ENOMEM)
    assert device.channel.sent[-1] == ("destroy", (101,), {})  # so that the peer is told
    assert owner.state == states.CLOSED
    device.channel.refusal = 0
    with pytest.raises(DriverError, match="CLOSED"):
        owner.connection.establish()
    sent = len(device.channel.sent)
    owner.connection.disconnect()  # of what is over
    assert len(device.channel.sent) == sent


def connected(make, device):
    owner = routed(make)
    owner.connection.connect()
    device.channel.queue_event(answer(cm.CM_REPLIED, 101))
    owner.channel.next_event(0)
    owner.connection.establish()
    return owner


def test_a_goodbye_is_answered_once(make, device):
    owner = connected(make, device)
    device.channel.queue_event(answer(cm.CM_DISCONNECT_REQUEST, 101))
    assert owner.channel.next_event(0).kind == events.DISCONNECTED
    before = len(device.channel.sent)
    owner.connection.disconnect()
    owner.connection.disconnect()
    assert device.channel.sent[before:] == [("disconnect", (101,), {})]


def test_goodbyes_that_cross_are_one_end(make, device):
    owner = connected(make, device)
    owner.connection.disconnect()
    before = len(device.channel.sent)
    device.channel.queue_event(answer(cm.CM_DISCONNECT_REQUEST, 101))
    assert owner.channel.next_event(0).kind == events.DISCONNECTED
    owner.connection.disconnect()
    assert device.channel.sent[before:] == []
    device.channel.queue_event(answer(cm.CM_DISCONNECTED, 101))
    assert owner.channel.next_event(0) is None


def test_the_end_of_a_time_wait_is_told_once_and_after_the_end(make, device):
    owner = connected(make, device)
    over = answer(cm.CM_TIMEWAIT_OVER, 101)
    device.channel.queue_event(over)
    assert owner.channel.next_event(0) is None
    owner.connection.disconnect()
    device.channel.queue_event(answer(cm.CM_DISCONNECTED, 101, status=errno.ETIMEDOUT), over, over)
    told = [owner.channel.next_event(0) for _ in range(3)]
    assert [(each.kind, each.status) for each in told[:2]] == [
        (events.DISCONNECTED, -errno.ETIMEDOUT), (events.TIMEWAIT_EXIT, 0)
    ]  # fmt: skip
    assert told[2] is None
    assert owner.state == states.CLOSED


def test_who_was_asked_and_whose_time_wait_is_over_has_nobody_to_answer(make, device):
    owner = connected(make, device)
    device.channel.queue_event(answer(cm.CM_DISCONNECT_REQUEST, 101), answer(cm.CM_TIMEWAIT_OVER, 101))
    assert [owner.channel.next_event(0).kind for _ in range(2)] == [events.DISCONNECTED, events.TIMEWAIT_EXIT]
    before = len(device.channel.sent)
    owner.connection.disconnect()
    assert (device.channel.sent[before:], owner.state) == ([], states.CLOSED)


def test_a_reason_of_the_peers_is_no_errno(make, device):
    owner = connected(make, device)
    device.channel.queue_event(answer(cm.CM_DISCONNECTED, 101, status=28))
    assert owner.channel.next_event(0).status == 0


def test_what_was_asked_before_a_device_went_is_not_said_after_it(make, device):
    owner = connected(make, device)
    device.channel.queue_event(answer(cm.CM_DISCONNECT_REQUEST, 101))
    assert owner.channel.next_event(0).kind == events.DISCONNECTED
    device.lost = True
    assert owner.channel.next_event(0).kind == events.DEVICE_REMOVAL
    before = len(device.channel.sent)
    owner.connection.disconnect()
    assert (device.channel.sent[before:], owner.state) == ([], states.REMOVED)
    for _ in range(2):
        with pytest.raises(DriverError, match="gone") as refused:
            owner.channel.next_event(0)
        assert refused.value.errno == errno.EIO


def test_who_comes_to_a_device_that_has_gone_is_told(make, device):
    first = listener(make)
    device.lost = True
    assert first.channel.next_event(0).identifier is first
    second = make()
    second.bind(of_gid(HERE))
    event = first.channel.next_event(0)
    assert (event.kind, event.identifier, second.state) == (events.DEVICE_REMOVAL, second, states.REMOVED)
    for each in (first, second):
        each.close()
    assert not first.channel._lost


def test_who_closes_lets_go_of_port_connection_and_device(make, device):
    owner = connected(make, device)
    owner.close()
    owner.close()
    assert device.channel.sent[-1] == ("destroy", (101,), {})
    assert not device.alive
    device.channel.queue_event(answer(cm.CM_DISCONNECTED, 101))
    with pytest.raises(DriverError, match="closed"):  # by a thread that has come late
        owner.connection.disconnect()


@pytest.mark.parametrize("kind", [cm.CM_REQUEST, cm.CM_SIDR_REQUEST])
def test_who_stops_listening_lets_go_of_requests_that_nobody_has_got(make, device, kind):
    """Whether the program could take them, or they are in the ring yet; taken ones are the program's."""
    owner, channel = listener(make), device.channel
    channel.queue_event(request(7, kind=kind), request(8, kind=kind))
    child = owner.channel.next_event(0).identifier
    late = owner.channel._pop()  # another thread is about to make an event of it
    channel.queue_event(request(9, kind=kind))
    channel.come += [request(10, kind=kind), answer(cm.CM_REJECTED, 55)]
    owner.close()
    assert [call[1] for call in channel.sent if call[0] == "destroy"] == [(101,), (10,), (8,), (9,)]
    assert late() is None
    child.close()
    assert channel.sent[-1] == ("destroy", (7,), {})


def ended(number):
    return replace(request(number, kind=cm.CM_REJECTED), listener=0, status=3)


@pytest.mark.parametrize("kind", [cm.CM_REQUEST, cm.CM_SIDR_REQUEST])
def test_requests_that_have_given_way_before_anybody_heard_of_them_are_no_events(make, device, kind):
    """However many come: what waits for the program is as much as waits at the adapter."""
    found = listener(make, UDP if kind == cm.CM_SIDR_REQUEST else TCP)
    channel, port = found.channel, ports.port_of(device, 1)
    descriptor = channel.fileno()
    service = service_id(found.space, PORT)
    for number in range(1_000, 4_000):
        device.channel.queue_event(replace(request(number, kind=kind), service_id=service))
        if number >= 1_002:
            device.channel.queue_event(ended(number - 2))
    assert len(channel._notices) == 2
    assert not port._unclaimed
    assert len(port._receivers) == 1 + 2
    commands = len(device.channel.sent)
    assert [channel.next_event(0).kind for _ in range(2)] == [events.CONNECT_REQUEST] * 2
    assert channel.next_event(0) is None
    assert select.select([descriptor], [], [], 0)[0] == []
    assert len(device.channel.sent) == commands  # nothing is said of what the adapter has forgotten


def test_the_descriptor_is_not_ready_for_a_request_that_was_taken_back(make, device):
    found = listener(make)
    descriptor = found.channel.fileno()
    device.channel.queue_event(request())
    assert select.select([descriptor], [], [], 0)[0] == [descriptor]
    device.channel.queue_event(ended(7))
    assert select.select([descriptor], [], [], 0)[0] == []
    assert found.channel.next_event(0) is None


def test_an_end_that_comes_while_the_identifier_is_being_made_is_its_own(make, device, monkeypatch):
    found = listener(make)
    device.channel.queue_event(request())
    adopt = Identifier.adopt

    def adopted(self, *arguments):
        device.channel.queue_event(ended(7))
        adopt(self, *arguments)

    monkeypatch.setattr(Identifier, "adopt", adopted)
    asked = found.channel.next_event(0)
    assert asked.kind == events.CONNECT_REQUEST
    told = found.channel.next_event(0)
    assert (told.kind, told.identifier, told.status) == (events.REJECTED, asked.identifier, 3)


def test_what_comes_of_those_that_have_ended_is_not_kept(make, device):
    """Else it filled the place of what comes before its owner is known."""
    anchor = listener(make)
    port = ports.port_of(device, 1)
    for number in range(200, 200 + ports._MOST_UNCLAIMED + 1):
        port.register(number, lambda event: None)
        device.channel.come.append(answer(cm.CM_DISCONNECTED, number))
        port.end(number)
    device.channel.queue_event(answer(cm.CM_REJECTED, 4711))
    found = []
    port.register(4711, found.append)
    assert [event.id for event in found] == [4711]
    anchor.close()


def test_a_command_that_is_refused_changes_nothing(make, device):
    owner = routed(make)
    ports.port_of(device, 1).channel.refusal = errno.ENOMEM
    with pytest.raises(DriverError):
        owner.connection.connect()
    assert owner.state == states.ROUTED


def test_who_cannot_resolve_stays_bound_and_may_try_again(make, device):
    owner, source = make(), of_gid(HERE, PORT)
    for wrong in (SocketAddress(bytes(15) + b"\1", 1), SocketAddress(bytes(15) + b"\2", 1)):
        with pytest.raises(DriverError) as refused:
            owner.resolve_address(wrong, source)
        assert (refused.value.errno, owner.state) == (errno.EINVAL, states.BOUND)
    owner.resolve_address(of_gid(THERE, PORT), source)
    assert owner.source == source
    owner.close()
    assert not device.alive
    again = make()
    again.bind(source)
    again.close()


@pytest.mark.parametrize("host", [bytes(4), bytes((127, 0, 0, 1))], ids=["any address", "localhost"])
def test_any_address_as_a_destination_is_this_machine(make, host):
    owner = make()
    owner.resolve_address(SocketAddress(host, PORT))
    assert owner.destination == of_gid(HERE, PORT)
    assert owner.peer_gid == HERE
    owner.close()


def test_who_was_refused_as_a_listener_shares_its_port_and_may_try_again(make, device):
    anchor, owner, other = make(), make(), make()
    anchor.bind(of_gid(HERE, PORT + 1))
    ports.port_of(device, 1).channel.refusal = errno.EADDRINUSE
    for each in (owner, other):
        each.reuse = True
    owner.bind(of_gid(HERE, PORT))
    with pytest.raises(DriverError):
        owner.listen()
    other.bind(of_gid(HERE, PORT))  # nobody listens
    other.close()
    ports.port_of(device, 1).channel.refusal = 0
    owner.listen()
    assert owner.state == states.LISTENING
    owner.close()
    anchor.close()


class Moving(EventChannel):
    """Another channel, which something comes to while an identifier moves there."""

    def attach(self, device, identifier):
        super().attach(device, identifier)
        device.channel.queue_event(answer(cm.CM_DISCONNECT_REQUEST, 101))


def test_events_keep_their_order_while_an_identifier_moves(make, device):
    owner = routed(make)
    owner.connection.connect()
    device.channel.queue_event(answer(cm.CM_REPLIED, 101))
    moving = Moving()
    owner.migrate(moving)
    assert [moving.next_event(0).kind for _ in range(2)] == [events.CONNECT_RESPONSE, events.DISCONNECTED]
    owner.close()


def test_nothing_is_queued_on_a_channel_that_an_identifier_has_left(make, device):
    """Who queues something has the identifier stay where it is until that is done."""
    owner, held = routed(make), []
    queue = owner.channel.post

    def move() -> None:
        held.append(not owner._moving.acquire(blocking=False))

    def post(identifier, notice, here=True):
        thread = threading.Thread(target=move)
        thread.start()
        thread.join()
        queue(identifier, notice, here)

    owner.channel.post = post
    owner.queue_event(events.ADDR_RESOLVED)
    assert held == [True]
    owner.close()


def test_who_moves_to_its_own_channel_stays_there(make, device):
    owner = routed(make)
    owner.migrate(owner.channel)
    assert list(owner.channel._devices) == [device]
    owner.close()


def test_nobody_moves_to_a_closed_channel(make):
    owner, closed = routed(make), EventChannel()
    closed.close()
    with pytest.raises(DriverError) as refused:
        owner.migrate(closed)
    assert refused.value.errno == errno.EBADF
    assert owner.channel is not closed
    owner.close()


@pytest.mark.parametrize(("private", "refusal"), [(bytes(197), 0), (b"", errno.ENOMEM)])
def test_an_acceptance_that_cannot_be_leaves_the_request_open(make, device, private, refusal):
    owner = listener(make)
    owner.set_option(OPTION_ACK_TIMEOUT, 20)
    device.channel.queue_event(request())
    child = owner.channel.next_event(0).identifier
    device.channel.refusal = refusal
    with pytest.raises(DriverError):
        child.connection.accept(ConnectionParameters(private, qp_num=44))
    assert (child.state, child.ack_timeout) == (states.REQUESTED, 20)
    assert ("reply" in [name for name, *_ in device.channel.sent]) is bool(refusal)


def test_all_that_the_device_can_do_may_be_asked_for(make):
    owner = routed(make)
    owner.connection.connect(ConnectionParameters(responder_resources=16, initiator_depth=16))
    assert (owner.connection.own.responder_resources, owner.connection.own.initiator_depth) == (16, 16)


@pytest.mark.parametrize("kind", [cm.CM_REJECTED, cm.CM_UNREACHABLE])
def test_a_connection_that_does_not_come_about_takes_its_queue_pair_along(make, device, kind):
    owner = routed(make)
    owner.queue_pair = pair = QueuePair()
    owner.connection.connect()
    device.channel.queue_event(answer(kind, 101))
    owner.channel.next_event(0)
    assert pair.modified == [{"qp_state": ERR}]


def test_who_was_refused_leaves_nothing_behind(make, device):
    owner, absent = listener(make), make()
    device.channel.queue_event(request(header=b""))
    assert owner.channel.next_event(0) is None
    assert 7 not in ports.port_of(device, 1)._receivers
    for _ in range(2):  # its port is not taken
        with pytest.raises(DriverError) as refused:
            absent.bind(of_gid(ELSEWHERE, PORT + 1))
        assert refused.value.errno == errno.EADDRNOTAVAIL
