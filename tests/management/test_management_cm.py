"""The communication manager: its table, handshakes, retries, refusals, bounds, and SIDR."""

import errno
from dataclasses import replace
from pathlib import Path

import pytest
from connection_peers import DELAY_NS, GUIDS, REPLY, REQUEST, SERVICE, Network, from_other
from connection_walk import Walk
from hypothesis import given, settings
from hypothesis import strategies as st

from softhca.management.cm import diagram
from softhca.management.cm import elements as e
from softhca.management.cm import messages as m
from softhca.management.cm import states as s
from softhca.management.cm.elements import NEVER_NS, duration_ns
from softhca.management.cm.tables import MAX_BACKLOG, Tables
from softhca.wire.errors import WireError
from suite_plan import random_inputs

SECOND_NS = 1_000_000_000


@pytest.fixture
def network():
    return Network()


def message(network, place=-1):
    return m.decode(network.sent[place][1])[1]


def test_the_table_names_states_inputs_and_actions_that_there_are():
    sends = {s.SEND, s.RESEND, s.ACKNOWLEDGE, s.SEND_DREP, s.REJECT_TIMEOUT, s.REJECT_STALE}
    actions = sends | {s.START, s.STOP, s.EXTEND, s.REPORT}
    for (state, given_input), (following, done) in s.TABLE.items():
        assert state in s.STATES
        assert given_input in s.INPUTS
        assert following in s.STATES
        assert set(done) <= actions
    assert all((state, s.DESTROY) in s.TABLE for state in s.STATES)


@pytest.mark.parametrize("state", s.STATES)
def test_time_matters_in_states_that_wait_and_in_no_other(state):
    timers = {given_input for given_input in s.TIMERS if (state, given_input) in s.TABLE}
    assert timers == (
        {s.OVER} if state == s.TIMEWAIT else {s.RETRY, s.GIVE_UP} if state in s.WAITING else set()
    )


def test_who_comes_to_wait_has_started_and_who_leaves_it_has_stopped():
    for (state, given_input), (following, done) in s.TABLE.items():
        if following in s.WAITING and following != state:
            assert s.START in done, (state, given_input)
        if state in s.WAITING and following not in s.WAITING and given_input not in s.TIMERS:
            assert s.STOP in done, (state, given_input)


# handshake


def test_a_connection_is_made_and_ended(network):
    network.listen()
    active = network.connect()
    assert network.state(0, active) == s.REQ_SENT
    network.arrive()
    asked = network.programs[1].take()
    assert (asked.kind, asked.service_id) == (e.REQUEST, SERVICE)
    assert asked.message == replace(REQUEST, local_comm_id=active, local_ca_guid=GUIDS[0])
    assert network.state(1, asked.number) == s.REQ_RCVD
    network.reply(asked.number)
    assert network.state(1, asked.number) == s.REP_SENT
    network.arrive()
    replied = network.programs[0].take()
    assert (replied.kind, replied.number) == (e.REPLIED, active)
    ids = {"local_comm_id": asked.number, "remote_comm_id": active, "local_ca_guid": GUIDS[1]}
    assert replied.message == replace(REPLY, **ids)
    assert network.state(0, active) == s.REP_RCVD
    network.managers[0].ready(network.programs[0], active, b"ready", network.now)
    network.arrive()
    established = network.programs[1].take()
    assert (established.kind, established.number) == (e.ESTABLISHED, asked.number)
    assert established.message.private_data.startswith(b"ready")
    assert {network.state(0, active), network.state(1, asked.number)} == {s.ESTABLISHED}
    network.managers[1].disconnect(network.programs[1], asked.number, b"bye", network.now)
    assert message(network).remote_qpn_eecn == REQUEST.local_qpn
    network.arrive()
    farewell = network.programs[0].take()
    assert farewell.kind == e.DISCONNECT_REQUEST
    assert farewell.message.private_data.startswith(b"bye")
    network.managers[0].disconnect(network.programs[0], active, b"so long", network.now)
    network.arrive()
    assert network.programs[1].take().kind == e.DISCONNECTED
    assert {network.state(0, active), network.state(1, asked.number)} == {s.TIMEWAIT}
    assert network.names() == ["Req", "Rep", "Rtu", "Dreq", "Drep"]
    network.pass_time(duration_ns(REQUEST.primary_ack_timeout))
    assert {network.state(0, active), network.state(1, asked.number)} == {s.CLOSED}
    for own, number in ((0, active), (1, asked.number)):
        network.managers[own].destroy(network.programs[own], number, network.now)
        assert not network.managers[own].has(number)
        assert network.managers[own]._tables.connections == 0
        assert network.managers[own].next_deadline() == NEVER_NS
        assert [network.programs[own].take().kind, network.programs[own].kinds] == [e.TIMEWAIT_OVER, []]


def test_messages_of_one_exchange_share_a_transaction(network):
    network.listen()
    active, _ = network.establish()
    network.managers[0].disconnect(network.programs[0], active, b"", network.now)
    transactions = [m.decode(data)[0] for _, data in network.sent]
    assert len(set(transactions[:3])) == 1
    assert transactions[3] != transactions[0]


def test_a_request_to_a_service_that_nobody_has_is_rejected(network):
    active = network.connect()
    network.arrive()
    rejected = network.programs[0].take()
    assert (rejected.kind, rejected.number) == (e.REJECTED, active)
    assert rejected.status == m.REJ_INVALID_SERVICE_ID
    assert network.state(0, active) == s.CLOSED
    assert network.managers[1].counters["rejected"] == 1


@pytest.mark.parametrize(
    ("service", "extended", "taken"),
    [(0, 0, True), (1, 0, True), (2, 0, True), (3, 1, True), (3, 0, False), (3, 2, False)],
)
def test_transport_services_that_there_are_not_are_rejected(network, service, extended, taken):
    network.listen()
    network.connect(replace(
        REQUEST, transport_service_type=service, extended_transport_type=extended, local_eecn=3
    ))  # fmt: skip
    network.arrive()
    if taken:
        assert network.programs[1].kinds == [e.REQUEST]
    else:
        assert network.programs[0].take().status == m.REJ_INVALID_TRANSPORT


@pytest.mark.parametrize("own", [0, 1])
def test_either_side_may_reject(network, own):
    network.listen()
    active = network.connect()
    network.arrive()
    passive = network.programs[1].take().number
    if own == 0:
        network.reply(passive)
        network.arrive()
        network.programs[0].take()
    number = (active, passive)[own]
    network.managers[own].reject(network.programs[own], number, 28, b"\1\2", b"no", network.now)
    network.arrive()
    told = network.programs[1 - own].take()
    assert (told.kind, told.status) == (e.REJECTED, 28)
    assert told.message.message_rejected == (m.OF_REP if own == 0 else m.OF_REQ)
    assert told.message.ari[:2] == b"\1\2"
    assert told.message.reject_info_length == 2
    assert told.message.private_data.startswith(b"no")
    assert (network.state(0, active), network.state(1, passive)) == (s.CLOSED, s.CLOSED)


# what is lost, and what comes twice


def test_a_request_is_sent_again_and_given_up(network):
    network.cut = {1}
    active = network.connect(replace(REQUEST, max_cm_retries=3))
    network.pass_time(60 * SECOND_NS)
    assert network.names() == ["Req"] * 4 + ["Rej"]
    assert message(network).reason == m.REJ_TIMEOUT
    told = network.programs[0].take()
    assert (told.kind, told.status) == (e.UNREACHABLE, errno.ETIMEDOUT)
    assert network.state(0, active) == s.CLOSED
    assert network.managers[0].counters["resent"] == 3


def test_each_wait_is_as_long_as_the_request_says(network):
    network.cut = {1}
    network.connect(replace(REQUEST, remote_cm_response_timeout=10, max_cm_retries=2))
    wait = duration_ns(10) + 2 * duration_ns(16)
    for count in (2, 3):
        network.pass_time(wait - 1)
        assert len(network.sent) == count - 1
        network.pass_time(1)
        assert len(network.sent) == count


def test_a_second_request_is_acknowledged_while_the_program_thinks_and_answered_afterwards(network):
    network.listen()
    active = network.connect()
    network.arrive()
    again = network.sent[0][1]
    network.managers[1].receive(again, network.address(0), network.now)
    acknowledged = message(network)
    assert (type(acknowledged), acknowledged.message_mraed) == (m.Mra, m.OF_REQ)
    assert network.programs[1].kinds == [e.REQUEST]
    network.arrive()
    network.pass_time(duration_ns(acknowledged.service_timeout))
    assert network.names() == ["Req", "Mra"]  # nothing was sent again meanwhile
    passive = network.programs[1].take().number
    network.reply(passive)
    network.managers[1].receive(again, network.address(0), network.now)
    assert network.names()[-2:] == ["Rep", "Rep"]
    network.arrive()
    assert network.programs[0].kinds == [e.REPLIED]
    assert network.state(0, active) == s.REP_RCVD


def test_a_second_reply_is_acknowledged_and_then_answered_by_another_rtu(network):
    network.listen()
    active = network.connect()
    network.arrive()
    network.reply(network.programs[1].take().number)
    network.arrive()
    again = network.sent[-1][1]
    network.managers[0].receive(again, network.address(1), network.now)
    assert message(network).message_mraed == m.OF_REP
    network.managers[0].ready(network.programs[0], active, b"", network.now)
    network.managers[0].receive(again, network.address(1), network.now)
    assert network.names()[-2:] == ["Rtu", "Rtu"]


def test_data_before_the_rtu_establish(network):
    network.listen()
    network.connect()
    network.arrive()
    passive = network.programs[1].take().number
    network.reply(passive)
    network.managers[1].establish(network.programs[1], passive, network.now)
    assert network.state(1, passive) == s.ESTABLISHED
    assert network.programs[1].take().kind == e.ESTABLISHED


def test_a_reply_to_nobody_is_rejected_so_that_its_sender_ends(network):
    network.listen()
    network.connect()
    network.arrive()
    passive = network.programs[1].take().number
    network.managers[0] = Network(seed=77).managers[0]
    network.managers[0]._send = lambda data, to: network._sent(0, data, to)
    network.reply(passive)
    network.arrive()
    told = network.programs[1].take()
    assert (told.kind, told.status) == (e.REJECTED, m.REJ_INVALID_COMM_ID)


def test_a_peer_that_has_gone_is_found_by_disconnecting(network):
    network.listen()
    active, _ = network.establish()
    network.cut = {1}
    network.managers[0].disconnect(network.programs[0], active, b"", network.now)
    network.pass_time(3600 * SECOND_NS)
    assert network.programs[0].take().kind == e.DISCONNECTED
    assert network.names().count("Dreq") == 1 + REQUEST.max_cm_retries
    assert network.state(0, active) == s.CLOSED


def test_a_dreq_whose_answer_was_lost_is_answered_again(network):
    network.listen()
    active, passive = network.establish()
    network.managers[0].disconnect(network.programs[0], active, b"", network.now)
    network.arrive()
    network.fate = lambda own, data: []
    network.managers[1].disconnect(network.programs[1], passive, b"", network.now)
    assert network.names()[-1] == "Drep"
    network.fate = lambda own, data: [DELAY_NS]
    again = next(data for _, data in network.sent if type(m.decode(data)[1]) is m.Dreq)
    network.managers[1].receive(again, network.address(0), network.now)
    network.arrive()
    assert network.programs[0].kinds == [e.DISCONNECTED]
    assert (network.state(0, active), network.state(1, passive)) == (s.TIMEWAIT, s.TIMEWAIT)


def test_disconnecting_at_once_needs_one_answer_each(network):
    network.listen()
    active, passive = network.establish()
    network.managers[0].disconnect(network.programs[0], active, b"", network.now)
    network.managers[1].disconnect(network.programs[1], passive, b"", network.now)
    network.arrive()
    assert (network.state(0, active), network.state(1, passive)) == (s.TIMEWAIT, s.TIMEWAIT)
    assert (network.programs[0].kinds, network.programs[1].kinds) == ([e.DISCONNECTED], [e.DISCONNECTED])


def test_a_dreq_for_nobody_is_answered(network):
    dreq = m.encode(m.Dreq(5, 6, 7), 99)
    network.managers[0].receive(dreq, network.address(1), 0)
    assert m.decode(network.sent[0][1]) == (99, m.Drep(6, 5))


def test_a_requester_that_gives_up_ends_the_request_at_the_peer(network):
    network.listen()
    active = network.connect()
    network.arrive()
    network.managers[0].destroy(network.programs[0], active, network.now)
    network.arrive()
    asked, told = network.programs[1].events
    assert (asked.kind, told.kind, told.status) == (e.REQUEST, e.REJECTED, m.REJ_TIMEOUT)
    assert not network.managers[1].has(asked.number)


# forgers, floods


@pytest.mark.parametrize("kind", [m.Rej, m.Rep, m.Rtu, m.Dreq, m.Drep, m.Mra])
def test_messages_from_another_address_change_nothing(network, kind):
    network.listen()
    active, passive = network.establish()
    forged = m.encode(kind(passive, active), 1)
    network.managers[0].receive(forged, from_other(network.address(1)), network.now)
    assert network.state(0, active) == s.ESTABLISHED
    assert network.managers[0].counters["drops_unmatched"] == 1
    assert not network.programs[0].events


def test_a_dreq_for_another_queue_pair_or_with_another_id_changes_nothing(network):
    network.listen()
    active, passive = network.establish()
    for wrong in (
        m.Dreq(passive, active, REQUEST.local_qpn + 1),
        m.Dreq(passive + 1, active, REQUEST.local_qpn),
    ):
        network.managers[0].receive(m.encode(wrong, 1), network.address(1), network.now)
    assert network.state(0, active) == s.ESTABLISHED
    assert not network.programs[0].events


def test_who_replies_gets_no_reply_and_who_repeats_it_makes_no_connection_more(network):
    network.listen()
    active, passive = network.establish()
    assert [manager.counters["established"] for manager in network.managers] == [1, 1]
    (again,) = [data for _, data in network.sent if isinstance(m.decode(data)[1], m.Rep)]
    network.managers[0].receive(again, network.address(1), network.now)
    assert network.names()[-1] == "Rtu"
    network.arrive()
    assert [manager.counters["established"] for manager in network.managers] == [1, 1]
    sent, dropped = len(network.sent), network.managers[1].counters["drops_state"]
    wrong = replace(REPLY, local_comm_id=active, remote_comm_id=passive, local_ca_guid=GUIDS[0])
    network.managers[1].receive(m.encode(wrong, 1), network.address(0), network.now)
    assert network.managers[1].counters["drops_state"] == dropped + 1
    assert len(network.sent) == sent
    assert network.state(1, passive) == s.ESTABLISHED


def test_the_request_that_has_waited_longest_gives_way_in_a_flood(network):
    network.listen(backlog=4)
    numbers = [network.connect(replace(REQUEST, local_qpn=qpn)) for qpn in range(20)]
    network.arrive()
    asked = [event.number for event in network.programs[1].events if event.kind == e.REQUEST]
    gone = [event.number for event in network.programs[1].events if event.kind == e.REJECTED]
    assert len(asked) == 20
    assert gone == asked[:16]
    assert {network.state(1, number) for number in asked[16:]} == {s.REQ_RCVD}
    assert network.managers[1].counters["drops_full"] == 16
    network.reply(asked[-1])
    network.arrive()
    assert network.state(0, numbers[-1]) == s.REP_RCVD


def test_a_request_that_its_owner_has_no_room_for_is_dropped_and_comes_again(network):
    network.listen()
    network.programs[1].room = 0
    active = network.connect()
    network.arrive()
    assert network.managers[1].counters["drops_full"] == 1
    network.programs[1].room = 1
    network.pass_time(SECOND_NS)
    assert network.programs[1].kinds == [e.REQUEST]
    assert network.state(0, active) == s.REQ_SENT


def test_a_queue_pair_that_connects_anew_ends_its_old_connection(network):
    network.listen()
    _, passive = network.establish()
    network.connect()  # the same queue pair, another connection
    network.arrive()
    assert network.programs[0].events[-1].status == m.REJ_STALE_CONNECTION
    assert network.state(1, passive) == s.DREQ_SENT


def test_a_request_from_another_address_ends_no_connection_and_repeats_no_answer(network):
    network.listen()
    active, passive = network.establish()
    names = len(network.sent)
    for number, queue_pair in ((active, 0x90), (active + 1, REQUEST.local_qpn)):  # one of the peer's each
        forged = replace(REQUEST, local_comm_id=number, local_ca_guid=GUIDS[0], local_qpn=queue_pair)
        network.managers[1].receive(m.encode(forged, 1), from_other(network.address(0)), network.now)
    assert network.state(1, passive) == s.ESTABLISHED
    assert network.names()[names:] == []
    assert network.programs[1].kinds == [e.REQUEST] * 2  # both are as anybody's


def test_a_second_request_from_another_address_is_not_acknowledged(network):
    network.listen()
    network.connect()
    network.arrive()
    network.managers[1].receive(network.sent[0][1], from_other(network.address(0)), network.now)
    assert network.names() == ["Req"]
    assert network.programs[1].kinds == [e.REQUEST] * 2  # another port's request, of the same numbers


def test_who_asks_first_with_the_number_of_another_adapter_does_not_keep_it_out(network):
    network.listen()
    generator = network.managers[0]._tables._random
    before = generator.getstate()
    number = network.managers[0]._tables.new_number()
    generator.setstate(before)
    forged = replace(REQUEST, local_comm_id=number, local_ca_guid=GUIDS[0], local_qpn=0x99)
    network.managers[1].receive(m.encode(forged, 9), from_other(network.address(0)), network.now)
    network.programs[1].take()
    assert network.connect() == number
    network.arrive()
    network.reply(network.programs[1].take().number)
    network.arrive()
    assert network.programs[0].kinds == [e.REPLIED]


def test_who_replies_with_the_numbers_of_another_adapter_takes_no_connection_from_it(network):
    network.listen()
    active = network.connect()
    network.arrive()
    passive = network.programs[1].take().number
    other, forger = network.managers[1], from_other(network.address(0))
    asked = other.connect(network.programs[1], forger, replace(REQUEST, local_qpn=0x55), network.now)
    reply = m.Rep(local_comm_id=active, remote_comm_id=asked, local_ca_guid=GUIDS[0], local_qpn=0x77)
    other.receive(m.encode(reply, 1), forger, network.now)
    network.programs[1].take()
    other.receive(network.sent[0][1], network.address(0), network.now)  # the peer asks again
    assert network.names()[-1] == "Mra"
    guid = GUIDS[0].to_bytes(8, "big").ljust(72, b"\0")
    ended = m.Rej(active, 0, m.OF_NONE, 8, reason=m.REJ_TIMEOUT, ari=guid)
    other.receive(m.encode(ended, 3), network.address(0), network.now)
    assert not other.has(passive)


def test_numbers_are_nobodys_yet():
    class Dice:
        def __init__(self):
            self.numbers = [0, 5, 5, 0, 5, 6]

        def getrandbits(self, bits):
            assert bits == 32
            return self.numbers.pop(0)

    tables = Tables(Dice())
    listeners = [tables.listen(None, service, 1) for service in (1, 2)]
    assert [listener.number for listener in listeners] == [5, 6]


@given(data=st.binary(max_size=300))
def test_octets_that_are_no_message_are_counted(data):
    network = Network()
    network.managers[0].receive(data, network.address(1), 0)
    counters = network.managers[0].counters
    assert counters["drops_malformed"] == 1
    assert counters["sent"] == 0


@settings(max_examples=random_inputs(200))
@given(data=st.data(), attribute=st.sampled_from(sorted(m.ATTRIBUTES)))
def test_any_field_of_any_message_changes_no_more_than_its_state_allows(data, attribute):
    network = Network()
    network.listen()
    active, passive = network.establish()
    kind = m.ATTRIBUTES[attribute]
    body = bytearray(kind().encode())
    for place in data.draw(st.lists(st.integers(0, len(body) - 1), max_size=8)):
        body[place] = data.draw(st.integers(0, 255))
    if data.draw(st.booleans()) and len(body) >= 8:
        body[:8] = passive.to_bytes(4, "big") + active.to_bytes(4, "big")
    mad = bytearray(m.encode(kind(), 5))
    mad[24:] = body
    network.managers[0].receive(bytes(mad), network.address(1), network.now)
    network.pass_time(100 * SECOND_NS)
    assert network.state(0, active) in (s.ESTABLISHED, s.DREQ_RCVD, s.CLOSED, s.TIMEWAIT)
    assert network.managers[0]._tables.connections <= 1


# commands


@pytest.mark.parametrize("command", s.COMMANDS)
@pytest.mark.parametrize("state", [s.REQ_SENT, s.ESTABLISHED])
def test_commands_at_the_wrong_moment_are_refused_and_change_nothing(network, state, command):
    network.listen()
    active = network.establish()[0] if state == s.ESTABLISHED else network.connect()
    manager, owner = network.managers[0], network.programs[0]
    calls = {
        s.REPLY: lambda: manager.reply(owner, active, REPLY, network.now),
        s.READY: lambda: manager.ready(owner, active, b"", network.now),
        s.ESTABLISH: lambda: manager.establish(owner, active, network.now),
        s.REJECT: lambda: manager.reject(owner, active, 28, b"", b"", network.now),
        s.DISCONNECT: lambda: manager.disconnect(owner, active, b"", network.now),
        s.DESTROY: lambda: manager.destroy(owner, active, network.now),
    }
    sent = len(network.sent)
    if (state, command) in s.TABLE:
        calls[command]()
        assert len(network.sent) > sent
    else:
        with pytest.raises(OSError, match=f"no {command}") as refused:
            calls[command]()
        assert refused.value.errno == errno.EINVAL
        assert (network.state(0, active), len(network.sent)) == (state, sent)


def test_only_its_owner_commands_a_connection(network):
    network.listen()
    active, _ = network.establish()
    other = network.programs[1]
    for call in (
        lambda: network.managers[0].disconnect(other, active, b"", 0),
        lambda: network.managers[0].destroy(other, active, 0),
        lambda: network.managers[0].destroy(network.programs[0], 1, 0),
    ):
        with pytest.raises(OSError, match="there is no such connection") as refused:
            call()
        assert refused.value.errno == errno.EINVAL


def test_a_service_has_one_listener(network):
    network.listen()
    with pytest.raises(OSError, match="has a listener") as refused:
        network.listen()
    assert refused.value.errno == errno.EADDRINUSE
    for backlog in (0, MAX_BACKLOG + 1):
        with pytest.raises(OSError, match="backlog = ") as refused:
            network.managers[1].listen(network.programs[1], 5, backlog)
        assert refused.value.errno == errno.EINVAL


def test_a_listener_that_is_closed_rejects_and_may_come_again(network):
    listener = network.listen()
    network.managers[1].destroy(network.programs[1], listener, 0)
    network.connect()
    network.arrive()
    assert network.programs[0].take().status == m.REJ_INVALID_SERVICE_ID
    network.listen()


@pytest.mark.parametrize("command", ["ready", "reject", "disconnect"])
def test_private_data_that_are_too_long_change_nothing(network, command):
    network.listen()
    active, _ = network.establish()
    arguments = {"ready": (bytes(225),), "reject": (28, b"", bytes(149)), "disconnect": (bytes(221),)}[
        command
    ]
    with pytest.raises(OSError, match="bytes of private data") as refused:
        getattr(network.managers[0], command)(network.programs[0], active, *arguments, network.now)
    assert refused.value.errno == errno.EINVAL
    assert network.state(0, active) == s.ESTABLISHED


@pytest.mark.parametrize("place", range(4))
def test_an_owner_that_goes_in_any_state_leaves_nothing(network, place):
    network.listen()
    active = network.connect()
    network.arrive()
    passive = network.programs[1].take().number
    if place > 0:
        network.reply(passive)
        network.arrive()
    if place > 1:
        network.managers[0].ready(network.programs[0], active, b"", network.now)
        network.arrive()
    if place > 2:
        network.managers[0].disconnect(network.programs[0], active, b"", network.now)
        network.arrive()
    for own in (1, 0):
        network.managers[own].destroy_all(network.programs[own], network.now)
        network.pass_time(600 * SECOND_NS)
    assert [manager._tables.connections for manager in network.managers] == [0, 0]
    assert [manager.next_deadline() for manager in network.managers] == [NEVER_NS] * 2
    assert not any(manager._by_remote or manager._by_end for manager in network.managers)


# SIDR


def resolve(network, retries=3):
    request = m.SidrReq(service_id=SERVICE, private_data=b"who".ljust(216, b"\0"))
    return network.managers[0].resolve(
        network.programs[0], network.address(1), request, 10, retries, network.now
    )


def test_a_datagram_service_is_resolved(network):
    network.listen()
    number = resolve(network)
    network.arrive()
    asked = network.programs[1].take()
    assert (asked.kind, asked.message.private_data[:3]) == (e.SIDR_REQUEST, b"who")
    network.managers[1].receive(network.sent[0][1], network.address(0), network.now)
    assert not network.programs[1].events  # it thinks about it already
    network.managers[1].answer(network.programs[1], asked.number, m.SidrRep(qpn=7, qkey=8))
    network.arrive()
    told = network.programs[0].take()
    assert (told.kind, told.number, told.status) == (e.SIDR_REPLY, number, m.SIDR_SUCCESS)
    assert (told.message.qpn, told.message.qkey, told.message.service_id) == (7, 8, SERVICE)
    assert not network.managers[0].has(number)
    assert not network.managers[1].has(asked.number)


def test_a_datagram_service_that_nobody_has_is_refused(network):
    resolve(network)
    network.arrive()
    assert network.programs[0].take().status == m.SIDR_UNSUPPORTED


def test_who_lets_go_of_a_request_for_a_service_tells_the_peer(network):
    network.listen()
    number = resolve(network)
    network.arrive()
    asked = network.programs[1].take()
    network.managers[1].destroy(network.programs[1], asked.number, network.now)
    network.arrive()
    told = network.programs[0].take()
    assert (told.kind, told.number, told.status) == (e.SIDR_REPLY, number, m.SIDR_REJECTED)
    assert not network.managers[1].has(asked.number)
    gone = resolve(network)
    count = len(network.sent)
    network.managers[0].destroy(network.programs[0], gone, network.now)
    assert len(network.sent) == count  # the own one is not answered
    assert not network.managers[0].has(gone)


def test_a_resolution_is_sent_again_and_given_up(network):
    network.cut = {1}
    number = resolve(network, retries=2)
    network.pass_time(60 * SECOND_NS)
    assert network.names() == ["SidrReq"] * 3
    told = network.programs[0].take()
    assert (told.kind, told.number, told.status) == (e.UNREACHABLE, number, errno.ETIMEDOUT)


def test_an_answer_from_another_address_is_dropped(network):
    number = resolve(network)
    network.managers[0].receive(m.encode(m.SidrRep(number), 1), from_other(network.address(1)), 0)
    assert not network.programs[0].events
    assert network.managers[0].counters["drops_unmatched"] == 1


def test_an_answer_to_a_peers_question_is_nobodys(network):
    network.listen()
    resolve(network)
    network.arrive()
    asked = network.programs[1].take()
    network.managers[1].receive(m.encode(m.SidrRep(asked.number), 1), network.address(0), 0)
    assert not network.programs[1].events
    assert network.managers[1].counters["drops_unmatched"] == 1
    network.managers[1].answer(network.programs[1], asked.number, m.SidrRep(qpn=5))
    network.arrive()
    assert network.programs[0].take().message.qpn == 5


# loss


@pytest.mark.parametrize("first", range(1, 501, 100))
def test_both_ends_agree_whatever_is_lost_and_whoever_goes(first):
    outcomes = {Walk(seed).run() for seed in range(first, first + 100)}
    assert {"established", "over", "its peer has gone", "over without its peer"} <= outcomes


def test_formats_refuse_what_does_not_fit():
    with pytest.raises(WireError):
        m.encode(m.Req(local_qpn=1 << 24), 0)
    with pytest.raises(ValueError, match="REP has 196 bytes"):
        m.padded(m.Rep, bytes(197))
    assert all(sum(field.bits for field in kind.LAYOUT) == 232 * 8 for kind in m.ATTRIBUTES.values())


def test_the_page_has_the_table_of_today():
    page = (Path(__file__).parents[2] / "docs" / "connections.md").read_text()
    assert diagram.mermaid() in page
    assert diagram.table() in page
    assert diagram.path_table() in page


def test_who_claims_to_be_another_adapter_hides_nothing_of_it(network):
    network.listen()
    active, passive = network.establish()
    forged = replace(REQUEST, local_comm_id=active + 1, local_ca_guid=GUIDS[0])
    network.managers[1].receive(m.encode(forged, 9), from_other(network.address(0)), network.now)
    asked = network.programs[1].take().number
    network.connect()  # the peer itself, with the same queue pair: the connection of before is stale
    network.arrive()
    assert network.programs[0].events[-1].status == m.REJ_STALE_CONNECTION
    assert network.state(1, passive) == s.DREQ_SENT
    assert network.state(1, asked) == s.REQ_RCVD
