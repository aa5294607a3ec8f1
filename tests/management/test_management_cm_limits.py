"""What a communication manager counts, its greatest numbers, and peers by LID."""

import errno
import random
from dataclasses import replace

import pytest
from connection_peers import REQUEST, SERVICE, Network

from softhca.management.cm import elements as e
from softhca.management.cm import messages as m
from softhca.management.cm import states as s
from softhca.management.cm import tables
from softhca.management.cm.by_place import ByPlace
from softhca.management.cm.crowds import Crowd
from softhca.management.cm.timers import Timers
from softhca.management.mad import Address

SECOND_NS = 1_000_000_000


@pytest.fixture
def network():
    return Network()


def changed(network, own):
    """Counters of a side that are not 0."""
    return {name: count for name, count in network.managers[own].counters.items() if count}


def test_counters_of_a_connection(network):
    network.listen()
    network.establish()
    assert changed(network, 0) == {"received": 1, "sent": 2, "established": 1}
    assert changed(network, 1) == {"received": 2, "sent": 1, "requests": 1, "established": 1}


def test_counters_of_a_resolution_that_is_asked_again(network):
    network.listen()
    network.cut = {1}
    request = m.SidrReq(service_id=SERVICE)
    network.managers[0].resolve(network.programs[0], network.address(1), request, 10, 2, network.now)
    network.pass_time(60 * SECOND_NS)
    assert changed(network, 0) == {"sent": 3, "resent": 2}
    network.cut = set()
    network.managers[1].receive(network.sent[0][1], network.address(0), network.now)
    assert changed(network, 1) == {"received": 1, "requests": 1}


def test_a_dreq_for_another_queue_pair_is_counted(network):
    network.listen()
    active, passive = network.establish()
    wrong = m.encode(m.Dreq(passive, active, REQUEST.local_qpn + 1), 1)
    network.managers[0].receive(wrong, network.address(1), network.now)
    assert network.managers[0].counters["drops_unmatched"] == 1


def test_a_port_that_is_full_refuses_its_programs_and_drops_requests(network, monkeypatch):
    monkeypatch.setattr(tables, "MAX_CONNECTIONS", 2)
    network.listen()
    first, _ = network.connect(), network.connect(replace(REQUEST, local_qpn=0x12))
    with pytest.raises(OSError, match="2 connections at most") as refused:
        network.connect()
    assert refused.value.errno == errno.ENOMEM
    network.arrive()
    assert network.programs[1].kinds == [e.REQUEST, e.REQUEST]
    network.managers[0].destroy(network.programs[0], first, network.now)
    network.connect(replace(REQUEST, local_qpn=0x13))
    network.managers[1].receive(network.sent[-1][1], network.address(0), network.now)
    assert network.managers[1].counters["drops_full"] == 1


def test_the_longest_backlog_is_taken(network):
    assert network.listen(tables.MAX_BACKLOG)


@pytest.mark.parametrize(("lid", "state"), [(7, s.CLOSED), (8, s.REQ_SENT)])
def test_peers_without_a_gid_are_known_by_their_lid(network, lid, state):
    manager = network.managers[0]
    number = manager.connect(network.programs[0], Address(qpn=1, lid=7), REQUEST, network.now)
    manager.receive(m.encode(m.Rej(0, number, reason=8), 1), Address(qpn=1, lid=lid), network.now)
    assert network.state(0, number) == state


def test_a_resolution_that_was_answered_waits_no_more(network):
    network.listen(backlog=1)
    for number in (1, 2, 3):
        request = m.SidrReq(request_id=number, service_id=SERVICE)
        network.managers[1].receive(m.encode(request, number), network.address(0), network.now)
        asked = network.programs[1].events[-1]
        assert asked.kind == e.SIDR_REQUEST
        network.managers[1].answer(network.programs[1], asked.number, m.SidrRep())
    assert changed(network, 1) == {"received": 3, "requests": 3, "sent": 3}


def test_retries_begin_anew_in_each_state():
    connection = e.Connection(1, None, Address(qpn=1), s.REQ_SENT, retries=5, put_off=True)
    connection.began(s.REQ_SENT)
    assert (connection.retries, connection.put_off) == (5, True)
    connection.began(s.ESTABLISHED)
    assert (connection.state, connection.retries, connection.put_off) == (s.ESTABLISHED, 0, False)


@pytest.mark.parametrize(
    ("peer", "source", "same"),
    [((3, b"g"), (4, b"g"), True), ((3, b"g"), (3, b"h"), False), ((3, None), (3, b"h"), True),
     ((3, b"g"), (4, None), False), ((3, None), (3, None), True), ((3, None), (4, None), False)],
)  # fmt: skip
def test_ports_are_told_apart_by_gid_or_else_by_lid(peer, source, same):
    addresses = [Address(qpn=1, lid=lid, gid=gid) for lid, gid in (peer, source)]
    assert e.same_port(*addresses) is same


def test_a_deadline_that_stays_is_kept_once():
    timers = Timers()
    connection = e.Connection(1, None, Address(qpn=1), s.REQ_SENT)
    for deadline_ns in (7, 7, 9):
        timers.set(connection, deadline_ns)
    assert len(timers) == 1


def test_a_deadline_that_an_earlier_one_has_replaced_leaves_nothing_behind():
    timers = Timers()
    connection = e.Connection(1, None, Address(qpn=1), s.REQ_SENT)
    for deadline_ns in (10, 5):
        timers.set(connection, deadline_ns)
    assert list(timers.due(5)) == [connection]
    timers.set(connection, 20)
    assert list(timers.due(10)) == []
    assert (len(timers), timers.next_deadline()) == (1, 20)
    assert list(timers.due(20)) == [connection]
    assert len(timers) == 0


def test_what_is_forgotten_twice_makes_room_once():
    found = tables.Tables(random.Random(1))
    one, two = (e.Connection(number, None, Address(qpn=1), s.REQ_SENT) for number in (1, 2))
    for connection in (one, two):
        found.add(connection)
    for _ in range(2):
        found.remove(one)
    assert found.connections == 1


PATIENT = replace(REQUEST, local_cm_response_timeout=31, primary_ack_timeout=31, max_cm_retries=2)
LONGEST_NS = e.response_ns(e.MAX_PEERS_EXPONENT)
"""Of one wait for a peer, whatever it has asked for."""


def test_a_peer_that_asks_for_hours_and_vanishes_is_given_up_in_minutes(network):
    network.listen()
    network.connect(PATIENT)
    network.arrive()
    number = network.programs[1].take().number
    network.fate = lambda own, data: []
    network.reply(number)
    network.pass_time(3 * LONGEST_NS - 1)
    assert network.state(1, number) == s.REP_SENT
    network.pass_time(1)
    assert network.programs[1].kinds == [e.UNREACHABLE]


def test_a_connection_is_remembered_for_a_minute_however_long_its_peers_packets_may_live(network):
    network.listen()
    active = network.connect(PATIENT)
    network.arrive()
    passive = network.programs[1].take().number
    network.reply(passive)
    network.arrive()
    network.managers[0].ready(network.programs[0], active, b"", network.now)
    network.arrive()
    network.managers[1].disconnect(network.programs[1], passive, b"", network.now)
    network.arrive()
    network.managers[0].disconnect(network.programs[0], active, b"", network.now)
    network.arrive()
    assert network.state(1, passive) == s.TIMEWAIT
    network.programs[1].events.clear()
    network.pass_time(e.duration_ns(e.MAX_PEERS_EXPONENT))
    assert network.programs[1].kinds == [e.TIMEWAIT_OVER]


@pytest.mark.parametrize(("asked", "waited"), [(20, 20), (24, 24), (25, 24), (31, 24)])
def test_an_mra_puts_an_answer_off_for_a_minute_at_the_most(network, asked, waited):
    network.listen()
    number = network.connect()
    network.managers[0].receive(
        m.encode(m.Mra(7, number, service_timeout=asked), 1), network.address(1), network.now
    )
    connection = network.managers[0]._tables.find(number)
    assert connection.deadline_ns == network.now + e.response_ns(waited)


def loading_a_path(network):
    """A connection that waits for the answer to a LAP: its numbers, and the asking side's."""
    network.listen()
    active, passive = network.establish()
    lap = m.Lap(
        remote_qpn_eecn=REQUEST.local_qpn, alternate_local_gid=bytes(15) + b"\1",
        alternate_remote_gid=bytes(15) + b"\2",
    )  # fmt: skip
    network.managers[0].load_path(network.programs[0], active, lap, network.now)
    connection = network.managers[0]._tables.find(active)
    return active, passive, connection


def test_one_of_a_path_does_too(network):
    active, passive, connection = loading_a_path(network)
    mra = m.Mra(passive, active, m.OF_LAP, service_timeout=31)
    network.managers[0].receive(
        m.encode(mra, connection.path_transaction_id), network.address(1), network.now
    )
    assert connection.deadline_ns == network.now + LONGEST_NS


def stranger(of):
    """One of many ports, none of which goes on."""
    return Address(qpn=1, gid=bytes(15) + bytes([of]), own_gid=bytes(16))


def asked_by(network, of, number):
    """A request of a stranger, which the program accepts; the connection's number."""
    request = replace(PATIENT, local_comm_id=number, local_qpn=number, local_ca_guid=of)
    network.managers[1].receive(m.encode(request, number), stranger(of), network.now)
    accepted = network.programs[1].take().number
    network.reply(accepted)
    return accepted


def crowds(network, most, most_of_one):
    manager = network.managers[1]
    manager._replied, manager._abandoned = (Crowd(most, most_of_one) for _ in range(2))
    network.fate = lambda own, data: []
    network.listen()
    return manager


def test_who_asks_and_never_goes_on_makes_room_for_himself_alone(network):
    manager = crowds(network, 10, 2)
    first, second = asked_by(network, 1, 1), asked_by(network, 1, 2)
    other = asked_by(network, 2, 3)
    third = asked_by(network, 1, 4)
    given_up = network.programs[1].take()
    assert (given_up.kind, given_up.number, given_up.status) == (e.UNREACHABLE, first, errno.ETIMEDOUT)
    assert [network.state(1, each) for each in (first, second, other, third)] == [s.CLOSED] + 3 * [s.REP_SENT]
    assert manager.counters["drops_full"] == 1
    rejected = m.decode(network.sent[-1][1])[1]
    assert (type(rejected), rejected.reason) == (m.Rej, m.REJ_TIMEOUT)


def test_many_who_never_go_on_make_room_for_each_other(network):
    crowds(network, 3, 2)
    numbers = [asked_by(network, of, of) for of in (1, 2, 3, 4)]
    assert network.programs[1].take().number == numbers[0]


def test_who_goes_on_waits_among_them_no_more(network):
    manager = crowds(network, 10, 1)
    number = asked_by(network, 1, 1)
    manager.receive(m.encode(m.Rtu(1, number), 1), stranger(1), network.now)
    assert network.programs[1].take().kind == e.ESTABLISHED
    asked_by(network, 1, 2)
    assert network.programs[1].events == []
    manager.destroy(network.programs[1], number, network.now)
    assert (len(manager._replied), len(manager._abandoned)) == (1, 1)


def test_who_is_told_again_waits_among_them_still(network):
    manager = crowds(network, 10, 1)
    number = asked_by(network, 1, 1)
    network.pass_time(manager._tables.find(number).deadline_ns - network.now)
    assert (manager.counters["resent"], network.state(1, number)) == (1, s.REP_SENT)
    asked_by(network, 1, 2)
    assert (network.state(1, number), len(manager._replied)) == (s.CLOSED, 1)


def test_a_place_of_which_nobody_waits_any_more_is_forgotten():
    crowd, waiting = Crowd(9, 9), ByPlace()
    one, like = (e.Connection(5, None, Address(qpn=1, lid=3), s.REP_SENT) for _ in range(2))
    assert crowd.add(one) is None
    crowd.remove(like)  # another one of that number
    assert len(crowd) == 1
    crowd.remove(one)
    waiting.add(5, 3)
    waiting.remove(5)
    waiting.remove(5)
    assert (len(crowd), crowd._waiting._places, len(waiting), waiting._places) == (0, {}, 0, {})


def abandoned(network, of, number):
    """A connection of a stranger that the program has let go of; its number."""
    made = asked_by(network, of, number)
    network.managers[1].receive(m.encode(m.Rtu(number, made), number), stranger(of), network.now)
    network.programs[1].take()
    network.managers[1].destroy(network.programs[1], made, network.now)
    return made


def test_who_does_not_answer_a_disconnect_keeps_few_places(network):
    manager = crowds(network, 3, 2)
    numbers = [abandoned(network, 1, number) for number in (1, 2, 3)]
    assert [network.state(1, each) for each in numbers] == ["", s.DREQ_SENT, s.DREQ_SENT]
    numbers += [abandoned(network, of, 9) for of in (2, 3)]
    assert [manager.has(each) for each in numbers] == [False, False, True, True, True]
    assert manager._tables.connections == len(manager._by_remote) == len(manager._by_end) == 3
    assert manager.counters["drops_full"] == 2
    again = abandoned(network, 1, 1)  # who was forgotten may begin anew
    assert manager.has(again)
    manager.receive(m.encode(m.Drep(9, numbers[3]), 1), stranger(2), network.now)
    network.pass_time(LONGEST_NS)
    assert not manager.has(numbers[3])
    assert len(manager._abandoned) == 2


def test_what_waits_no_more_does_not_fill_the_heap():
    timers = Timers()
    kept = e.Connection(0, None, Address(qpn=1), s.REQ_SENT)
    timers.set(kept, 50)
    for number in range(1, 5000):
        connection = e.Connection(number, None, Address(qpn=1), s.REQ_SENT)
        timers.set(connection, 100 + number)
        timers.stop(connection)
    assert len(timers) < 2000
    timers.set(connection, 60)
    assert list(timers.due(70)) == [kept, connection]


def test_what_was_thrown_out_of_the_heap_may_wait_again():
    timers = Timers()
    many = [e.Connection(number, None, Address(qpn=1), s.REQ_SENT) for number in range(1500)]
    for each in many:
        timers.set(each, 100)
        timers.stop(each)
    assert len(timers) < len(many)
    for each in many:
        timers.set(each, 200)
    assert list(timers.due(200)) == many


def test_of_what_was_brought_forward_the_heap_keeps_one_entry():
    timers = Timers()
    for number in range(600):
        each = e.Connection(number, None, Address(qpn=1), s.REQ_SENT)
        timers.set(each, 200)
        timers.set(each, 100)
    assert len(timers) < 900


def test_a_heap_of_what_waits_is_seldom_looked_through(monkeypatch):
    timers, looks = Timers(), []
    tidy = Timers._tidy
    monkeypatch.setattr(Timers, "_tidy", lambda self: (looks.append(len(self)), tidy(self)))
    for number in range(5000):
        timers.set(e.Connection(number, None, Address(qpn=1), s.REQ_SENT), 100 + number)
    assert len(looks) == 2


def test_a_flood_of_requests_from_one_place_displaces_its_own(network):
    manager = network.managers[1]
    network.listen(backlog=4)

    def ask(of, number):
        request = replace(REQUEST, local_comm_id=number, local_qpn=number, local_ca_guid=of)
        manager.receive(m.encode(request, number), stranger(of), network.now)
        return next(each.number for each in reversed(network.programs[1].events) if each.kind == e.REQUEST)

    honest = [ask(1, 1), ask(2, 2)]
    flood = [ask(3, number) for number in range(10, 20)]
    assert [network.state(1, each) for each in honest] == 2 * [s.REQ_RCVD]
    assert [each for each in flood if manager.has(each)] == flood[-2:]
    sidr = m.SidrReq(request_id=7, service_id=SERVICE)
    manager.receive(m.encode(sidr, 7), stranger(4), network.now)
    assert [each for each in flood if manager.has(each)] == flood[-1:]
    for each in (*honest, flood[-1]):
        manager.reject(network.programs[1], each, 28, b"", b"", network.now)
    assert len(manager._tables.listener_of(SERVICE).waiting) == 1


def test_one_mra_puts_an_answer_off_until_it_is_asked_for_again(network):
    network.listen()
    network.cut = {1}
    number = network.connect()
    connection = network.managers[0]._tables.find(number)
    mra = m.encode(m.Mra(7, number, service_timeout=20), 1)
    network.managers[0].receive(mra, network.address(1), network.now)
    until = connection.deadline_ns
    network.pass_time(SECOND_NS)
    network.managers[0].receive(mra, network.address(1), network.now)
    assert connection.deadline_ns == until
    network.pass_time(until - network.now)
    assert connection.retries == 1
    network.managers[0].receive(mra, network.address(1), network.now)
    assert connection.deadline_ns == network.now + e.response_ns(20)


def test_one_mra_puts_the_answer_to_a_path_off(network):
    active, passive, connection = loading_a_path(network)
    mra = m.encode(m.Mra(passive, active, m.OF_LAP, service_timeout=20), connection.path_transaction_id)
    network.managers[0].receive(mra, network.address(1), network.now)
    until = connection.deadline_ns
    network.managers[0].receive(mra, network.address(1), network.now + SECOND_NS)
    assert connection.deadline_ns == until


def test_another_try_and_another_path_may_be_put_off_again(network):
    network.listen()
    active, passive = network.establish()
    network.cut = {1}
    connection = network.managers[0]._tables.find(active)

    def put_off():
        mra = m.Mra(passive, active, m.OF_LAP, service_timeout=20)
        network.managers[0].receive(
            m.encode(mra, connection.path_transaction_id), network.address(1), network.now
        )
        return connection.deadline_ns == network.now + e.response_ns(20)

    lap = m.Lap(
        remote_qpn_eecn=REQUEST.local_qpn, alternate_local_gid=bytes(15) + b"\1",
        alternate_remote_gid=bytes(15) + b"\2",
    )  # fmt: skip
    network.managers[0].load_path(network.programs[0], active, lap, network.now)
    assert put_off()
    network.pass_time(e.response_ns(20))
    assert connection.retries == 1
    assert put_off()
    refused = m.Apr(passive, active, ap_status=m.APR_REJECTED)
    network.managers[0].receive(
        m.encode(refused, connection.path_transaction_id), network.address(1), network.now
    )
    network.managers[0].load_path(network.programs[0], active, lap, network.now)
    assert put_off()


def test_who_resolves_services_has_places_of_his_own(network):
    manager = network.managers[1]
    network.listen(backlog=3)
    for of in (2, 3):
        sidr = m.SidrReq(request_id=of, service_id=SERVICE)
        manager.receive(m.encode(sidr, of), stranger(of), network.now)
    for number in (1, 2):
        request = replace(REQUEST, local_comm_id=number, local_qpn=number, local_ca_guid=1)
        manager.receive(m.encode(request, number), stranger(1), network.now)
    asked = [each.number for each in network.programs[1].events[:4]]
    assert [manager.has(each) for each in asked] == [True, True, False, True]
