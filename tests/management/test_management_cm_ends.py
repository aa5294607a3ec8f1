"""Peers that die, and forgers, in every state of a connection; every field of every message at its ends."""

import errno
import random
from dataclasses import fields, replace

import pytest
from connection_peers import REPLY, REQUEST, SERVICE, Network, from_other

from softhca.management.cm import elements as e
from softhca.management.cm import messages as m
from softhca.management.cm import states as s
from softhca.management.cm.elements import NEVER_NS
from softhca.management.cm.tables import MAX_LISTENERS, Tables

HOUR_NS = 3600 * 10**9
REACHED = {
    s.REQ_SENT: (0,), s.REQ_RCVD: (1,), s.REP_RCVD: (0,), s.REP_SENT: (1,), s.ESTABLISHED: (0, 1),
    s.DREQ_SENT: (0, 1), s.DREQ_RCVD: (0, 1), s.TIMEWAIT: (0, 1),
}  # fmt: skip
SIDES = [(state, own) for state, sides in REACHED.items() for own in sides]
KINDS = tuple(m.ATTRIBUTES.values())


class Met:
    """A connection whose side ``own`` is in ``state``; ``network`` has nothing under way."""

    def __init__(self, state, own):
        self.network = network = Network()
        self.own, self.manager, self.program = own, network.managers[own], network.programs[own]
        self.numbers = [0, 0]
        network.listen()
        self._go_to(state)
        self.number = self.numbers[own]
        assert network.state(own, self.number) == state
        network.arrive = network.arrive_one = lambda: None
        network._arrivals.clear()
        for program in network.programs:
            program.events.clear()
        network.sent.clear()

    def _go_to(self, state):
        network, numbers = self.network, self.numbers
        numbers[0] = network.connect()
        if state == s.REQ_SENT:
            return
        network.arrive()
        numbers[1] = network.programs[1].take().number
        if state == s.REQ_RCVD:
            return
        network.reply(numbers[1])
        if state == s.REP_SENT:
            return
        network.arrive()
        if state == s.REP_RCVD:
            return
        network.managers[0].ready(network.programs[0], numbers[0], b"", network.now)
        network.arrive()
        leaves = {s.DREQ_SENT: [self.own], s.DREQ_RCVD: [1 - self.own], s.TIMEWAIT: [self.own, 1 - self.own]}
        for side in leaves.get(state, []):
            network.managers[side].disconnect(network.programs[side], numbers[side], b"", network.now)
            network.arrive()

    @property
    def connection(self):
        return self.manager._tables.find(self.number)

    def pass_time(self):
        """All that this side does by itself."""
        while (due := self.manager.next_deadline()) < NEVER_NS:
            self.network.now = max(self.network.now, due)
            self.manager.expire(self.network.now)


ALONE = {
    # what a side is told, in the end, when its peer has died: by itself, and when its program goes on
    s.REQ_SENT: ([(e.UNREACHABLE, errno.ETIMEDOUT)], []),
    s.REQ_RCVD: ([], [(e.UNREACHABLE, errno.ETIMEDOUT)]),
    s.REP_RCVD: ([], []),
    s.REP_SENT: ([(e.UNREACHABLE, errno.ETIMEDOUT)], []),
    s.ESTABLISHED: ([], [(e.DISCONNECTED, errno.ETIMEDOUT), (e.TIMEWAIT_OVER, 0)]),
    s.DREQ_SENT: ([(e.DISCONNECTED, errno.ETIMEDOUT), (e.TIMEWAIT_OVER, 0)], []),
    s.DREQ_RCVD: ([], [(e.TIMEWAIT_OVER, 0)]),
    s.TIMEWAIT: ([(e.TIMEWAIT_OVER, 0)], []),
}
GOES_ON = {s.REQ_RCVD: "reply", s.REP_RCVD: "ready", s.ESTABLISHED: "disconnect", s.DREQ_RCVD: "disconnect"}


@pytest.mark.parametrize(("state", "own"), SIDES)
def test_whose_peer_dies_ends_by_itself_or_when_its_program_goes_on(state, own):
    met = Met(state, own)
    alone, going_on = ALONE[state]
    met.pass_time()
    assert [(event.kind, event.status) for event in met.program.events] == alone
    assert met.connection.state == (state if state in GOES_ON else s.CLOSED)
    met.program.events.clear()
    if state in GOES_ON:
        now = met.network.now
        message = m.Rep(local_qpn=5) if state == s.REQ_RCVD else b""
        getattr(met.manager, GOES_ON[state])(met.program, met.number, message, now)
        met.pass_time()
        assert [(event.kind, event.status) for event in met.program.events] == going_on
    sent = met.network.names()
    assert len(sent) <= 2 + REQUEST.max_cm_retries
    met.manager.destroy_all(met.program, met.network.now)
    met.pass_time()
    left = met.manager
    assert (left._tables.connections, left._by_remote, left._by_end, left._by_local) == (0, {}, {}, {})


@pytest.mark.parametrize(("state", "own"), SIDES)
@pytest.mark.parametrize("kind", [each for each in KINDS if each not in (m.Req, m.SidrReq, m.SidrRep)])
@pytest.mark.parametrize("loaded", [False, True])
def test_a_forger_who_knows_all_numbers_changes_nothing_from_another_address(state, own, kind, loaded):
    met = Met(state, own)
    connection, manager = met.connection, met.manager
    before = connection.state, connection.path_state, connection.deadline_ns, connection.peer
    peer = met.network.address(1 - own)
    if loaded:
        connection.other = replace(peer, gid=b"\5" * 16)
    for address in (from_other(peer), replace(peer, gid=peer.own_gid)):
        for theirs in {connection.remote_comm_id, met.numbers[1 - own], 0}:
            forged = kind(theirs, met.number)
            for name in ("remote_qpn_eecn", "local_qpn"):
                if hasattr(forged, name):
                    forged = replace(forged, **{name: connection.local_end})
            if kind is m.Rej:  # as who has never heard of this side's number says it
                guid = connection.remote_ca_guid.to_bytes(8, "big").ljust(72, b"\0")
                timed_out = m.Rej(theirs, 0, m.OF_NONE, 8, reason=m.REJ_TIMEOUT, ari=guid)
                manager.receive(m.encode(timed_out, 3), address, met.network.now)
            manager.receive(m.encode(forged, connection.transaction_id), address, met.network.now)
    assert (connection.state, connection.path_state, connection.deadline_ns, connection.peer) == before
    assert met.program.events == []
    assert manager.counters["drops_unmatched"] >= 2


def _extremes(kind):
    """The message with each of its fields 0, 1 and all ones, its own numbers kept."""
    for field in kind.LAYOUT:
        if field.name in ("local_comm_id", "remote_comm_id"):
            continue
        highest = (1 << field.bits) - 1
        for value in (0, 1, highest):
            yield {field.name: value.to_bytes(field.bits // 8, "big") if field.as_bytes else value}


@pytest.mark.parametrize(("state", "own"), SIDES)
def test_any_field_of_any_message_at_its_ends_leads_to_a_state_that_its_message_leads_to(state, own):
    told = dict(zip((m.Req, m.Mra, m.Rej, m.Rep, m.Rtu, m.Dreq, m.Drep), s.MESSAGES, strict=True))
    for kind in KINDS:
        met = Met(state, own)
        connection, address = met.connection, met.network.address(1 - own)
        theirs = connection.remote_comm_id or met.numbers[1 - own] or 0x77
        names = {each.name for each in fields(kind)}
        ids = {"local_comm_id": theirs, "remote_comm_id": met.number, "request_id": met.number}
        allowed = {state, (s.TABLE.get((state, told.get(kind, ""))) or (state,))[0]}
        for values in _extremes(kind):
            found = {name: value for name, value in ids.items() if name in names and name not in values}
            sent = len(met.network.sent)
            met.manager.receive(m.encode(kind(**{**found, **values}), 9), address, met.network.now)
            assert len(met.network.sent) - sent <= 2
            assert connection.state in allowed
            if connection.state != state:
                met.__init__(state, own)
                connection = met.connection
        assert met.manager.counters["drops_malformed"] == 0


def test_a_flood_of_requests_is_bounded_and_who_asks_on_is_served():
    network = Network()
    manager, program = network.managers[1], network.programs[1]
    network.listen(backlog=4)
    stranger = from_other(network.address(0))
    active = network.connect()
    network.arrive()
    for number in range(1, 1_001):
        flooded = replace(REQUEST, local_comm_id=number, local_ca_guid=66, local_qpn=number)
        manager.receive(m.encode(flooded, number), stranger, network.now)
        program.events = [event for event in program.events if manager.has(event.number)]
        assert manager._tables.connections <= 5
        assert max(len(manager._by_remote), len(manager._by_end)) <= 4
        if number % 500 == 0:  # half a second later the peer asks again, and its request is the youngest
            network.now = network.managers[0]._tables.find(active).deadline_ns
            network.managers[0].expire(network.now)
            network.arrive()
            asked = [event.number for event in program.events if event.source.gid == network.address(0).gid]
            if number == 1_000:
                network.reply(asked[-1])
                network.arrive()
    assert network.state(0, active) == s.REP_RCVD
    assert manager.counters["drops_full"] == manager.counters["requests"] - 4


def test_a_request_that_gave_way_is_as_new_when_its_peer_asks_again():
    network = Network()
    network.listen(backlog=1)
    network.connect()
    network.connect(replace(REQUEST, local_qpn=0x12))
    network.arrive()
    assert network.programs[1].kinds == [e.REQUEST, e.REQUEST, e.REJECTED]
    first = network.programs[1].take().number
    network.managers[1].receive(network.sent[0][1], network.address(0), network.now)
    again = next(event for event in network.programs[1].events[2:] if event.kind == e.REQUEST)
    assert again.number != first
    assert [network.state(1, number) for number in (first, again.number)] == ["", s.REQ_RCVD]


@pytest.mark.parametrize(("state", "own"), [side for side in SIDES if side != (s.REQ_SENT, 0)])
def test_a_queue_pair_that_asks_anew_ends_what_was_established_and_nothing_else(state, own):
    """What was not established ends by itself: its peer says that it knows nothing of it."""
    met = Met(state, own)
    connection = met.connection
    anew = replace(
        REQUEST,
        local_comm_id=connection.remote_comm_id ^ 1,
        local_ca_guid=connection.remote_ca_guid,
        local_qpn=connection.remote_end,
    )
    met.manager.receive(m.encode(anew, 5), met.network.address(1 - own), met.network.now)
    ended = state == s.ESTABLISHED
    assert connection.state == (s.DREQ_SENT if ended else state)
    assert met.network.names() == ["Dreq"] * ended + ["Rej"]
    refusal = m.decode(met.network.sent[-1][1])[1]
    assert (refusal.reason, refusal.remote_comm_id) == (m.REJ_STALE_CONNECTION, anew.local_comm_id)
    assert met.program.events == []


@pytest.mark.parametrize("kind", [m.Rep, m.Rtu])
def test_who_speaks_of_a_connection_that_is_over_is_told_so(kind):
    """Even while its program has not let go of it: else the peer would ask until it gives up."""
    met = Met(s.REQ_SENT, 0)
    met.manager.reject(met.program, met.number, m.REJ_CONSUMER_DEFINED, b"", b"", met.network.now)
    met.network.sent.clear()
    assert met.network.state(0, met.number) == s.CLOSED
    late = m.encode(kind(0x77, met.number), 1)
    met.manager.receive(late, met.network.address(1), met.network.now)
    refusal = m.decode(met.network.sent[-1][1])[1]
    assert met.network.names() == ["Rej"]
    assert (refusal.reason, refusal.remote_comm_id) == (m.REJ_INVALID_COMM_ID, 0x77)
    assert refusal.message_rejected == (m.OF_REP if kind is m.Rep else m.OF_NONE)


@pytest.mark.parametrize("timeout", [0, 14])
def test_nobody_there_and_nobody_listening_are_told_apart(timeout):
    network = Network()
    request = replace(REQUEST, max_cm_retries=2, remote_cm_response_timeout=timeout)
    active = network.connect(request)
    network.arrive()
    refused = network.programs[0].take()
    assert (refused.number, refused.kind, refused.status) == (active, e.REJECTED, m.REJ_INVALID_SERVICE_ID)
    network.cut = {1}
    network.connect(request)
    network.pass_time(HOUR_NS)
    unheard = network.programs[0].take()
    assert (unheard.kind, unheard.status) == (e.UNREACHABLE, errno.ETIMEDOUT)


def test_a_service_that_is_listened_to_is_taken_until_its_listener_goes():
    network = Network()
    first = network.listen()
    with pytest.raises(OSError, match="has a listener") as refused:
        network.managers[1].listen(network.programs[0], SERVICE, 1)
    assert refused.value.errno == errno.EADDRINUSE
    network.managers[1].destroy(network.programs[1], first, 0)
    assert network.listen() != first


def test_a_reply_that_is_refused_changes_nothing():
    """It comes too late, or a value does not fit: the queue pair that the peer knows stays the one."""
    late = Met(s.REP_SENT, 1)
    with pytest.raises(OSError, match="no reply"):
        late.network.reply(late.number, replace(REPLY, local_qpn=99))
    assert late.connection.local_end == REPLY.local_qpn
    asked = Met(s.REQ_RCVD, 1)
    with pytest.raises(OSError, match="local_qpn") as refused:
        asked.network.reply(asked.number, replace(REPLY, local_qpn=1 << 24))
    assert refused.value.errno == errno.EINVAL
    assert (asked.connection.state, asked.connection.local_end, asked.network.sent) == (s.REQ_RCVD, 0, [])
    asked.network.reply(asked.number)
    assert asked.network.names() == ["Rep"]


@pytest.mark.parametrize("kind", KINDS)
def test_which_connection_a_datagram_names(kind):
    message = kind(**{each.name: 0x01020304 for each in fields(kind) if each.name == "remote_comm_id"})
    named = getattr(message, "remote_comm_id", 0)
    full = {each.name: (1 << each.bits) - 1 for each in kind.LAYOUT if not each.as_bytes}
    data = m.encode(kind(**{**full, **({"remote_comm_id": named} if named else {})}), 7)
    assert m.connection_of(data) == named
    assert m.connection_of(data[:-1]) == 0
    assert m.connection_of(data[:16] + b"\0\x0f" + data[18:]) == 0


@pytest.mark.parametrize("answer", ["reply", "reject", "destroy", "gone"])
def test_a_request_that_was_answered_makes_no_room_at_its_listener(answer):
    network = Network()
    listener = network.listen(backlog=1)
    manager, program = network.managers[1], network.programs[1]
    numbers = []
    for qpn in range(4):
        active = network.connect(replace(REQUEST, local_qpn=qpn))
        network.arrive()
        number = program.take().number
        if answer == "reply":
            network.reply(number, replace(REPLY, local_qpn=qpn))
        elif answer == "reject":
            manager.reject(program, number, m.REJ_CONSUMER_DEFINED, b"", b"", network.now)
        elif answer == "destroy":
            manager.destroy(program, number, network.now)
        else:
            network.managers[0].destroy(network.programs[0], active, network.now)
            network.arrive()
            assert program.take().kind == e.REJECTED
        numbers.append(number)
        assert not manager._tables.find(listener).waiting
    assert manager.counters["drops_full"] == 0
    assert program.events == []
    states = {network.state(1, number) for number in numbers}
    assert states == {"reply": {s.REP_SENT}, "reject": {s.CLOSED}}.get(answer, {""})


def test_a_port_has_so_many_listeners_and_no_more():
    tables, program = Tables(random.Random(1)), Network().programs[0]
    listeners = [tables.listen(program, service, 1) for service in range(MAX_LISTENERS)]
    with pytest.raises(OSError, match="listeners at most") as refused:
        tables.listen(program, MAX_LISTENERS, 1)
    assert refused.value.errno == errno.ENOMEM
    tables.close_listener(listeners[0])
    tables.listen(program, MAX_LISTENERS, 1)


@pytest.mark.parametrize(
    ("guid", "reason", "ended"),
    [(0, m.REJ_TIMEOUT, True), (1, m.REJ_TIMEOUT, False), (0, m.REJ_CONSUMER_DEFINED, False)],
)
def test_who_has_never_heard_of_a_number_names_its_own_and_its_adapter(guid, reason, ended):
    """A REJ without the receiver's number counts for a time-out alone, and as its adapter's."""
    met = Met(s.REQ_RCVD, 1)
    connection = met.connection
    ari = (connection.remote_ca_guid + guid).to_bytes(8, "big").ljust(72, b"\0")
    rej = m.Rej(connection.remote_comm_id, 0, m.OF_NONE, 8, reason=reason, ari=ari)
    met.manager.receive(m.encode(rej, 3), met.network.address(0), met.network.now)
    assert bool(met.program.events) is ended
    assert met.manager.counters["drops_unmatched"] == (not ended)


@pytest.mark.parametrize(("theirs", "ended"), [(0, True), (1, True), (2, False)])
def test_a_rejection_names_the_peers_number_or_none(theirs, ended):
    met = Met(s.ESTABLISHED, 0)
    number = (0, met.connection.remote_comm_id, met.connection.remote_comm_id + 1)[theirs]
    rej = m.Rej(number, met.number, m.OF_NONE, reason=m.REJ_CONSUMER_DEFINED)
    met.manager.receive(m.encode(rej, 3), met.network.address(1), met.network.now)
    assert bool(met.program.events) is ended


@pytest.mark.parametrize("kind", [m.Rep, m.Rtu])
def test_a_stranger_is_not_told_what_it_does_not_know_of_a_live_connection(kind):
    met = Met(s.ESTABLISHED, 0)
    said = m.encode(kind(0x77, met.number), 3)
    met.manager.receive(said, from_other(met.network.address(1)), met.network.now)
    assert met.network.sent == []
    met.manager.receive(m.encode(kind(0x77, met.number ^ 1), 3), met.network.address(1), met.network.now)
    assert met.network.names() == ["Rej"]


def test_the_end_of_a_request_takes_nothing_from_the_next_one_of_its_numbers():
    """A program lets go of a request that it had rejected, when the peer has asked again: of the same queue
    pair, by the same numbers."""
    network = Network()
    network.listen()
    manager, program = network.managers[1], network.programs[1]
    network.connect()
    network.arrive()
    first = program.take().number
    network.reply(first)
    manager.reject(program, first, m.REJ_CONSUMER_DEFINED, b"", b"", network.now)
    manager.receive(network.sent[0][1], network.address(0), network.now)
    second = program.take().number
    network.reply(second)
    manager.destroy(program, first, network.now)
    manager.receive(network.sent[0][1], network.address(0), network.now)
    assert (program.events, network.names()[-1]) == ([], "Rep"), "it is known"
    manager.migrated(REPLY.local_qpn, b"\7" * 16, network.address(0).own_gid, 0, 0, 0, 0)
    assert manager._tables.find(second).peer.gid == b"\7" * 16
    manager.establish(program, second, network.now)
    anew = replace(REQUEST, local_comm_id=0x99, local_ca_guid=manager._tables.find(second).remote_ca_guid)
    manager.receive(m.encode(anew, 9), network.address(0), network.now)
    assert network.state(1, second) == s.DREQ_SENT, "its peer has forgotten it"


def test_a_peer_is_heard_at_the_address_that_its_connection_had_before_it_moved():
    met = Met(s.ESTABLISHED, 0)
    before = met.network.address(1)
    met.manager.migrated(REQUEST.local_qpn, b"\7" * 16, before.own_gid, 0, 0, 0, 0)
    dreq = m.Dreq(met.connection.remote_comm_id, met.number, REQUEST.local_qpn)
    met.manager.receive(m.encode(dreq, 3), before, met.network.now)
    assert [event.kind for event in met.program.events] == [e.DISCONNECT_REQUEST]
