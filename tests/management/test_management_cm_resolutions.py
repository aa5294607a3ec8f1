"""Resolutions of datagram services: whose request is whose, where they wait, and that they end."""

import errno

import pytest
from connection_peers import REQUEST, SERVICE, Network, from_other

from softhca.management.cm import elements as e
from softhca.management.cm import messages as m
from softhca.management.cm import tables
from softhca.management.cm.elements import NEVER_NS

HOUR_NS = 3600 * 10**9


@pytest.fixture
def network():
    return Network()


def resolve(network):
    request = m.SidrReq(service_id=SERVICE)
    return network.managers[0].resolve(network.programs[0], network.address(1), request, 10, 3, network.now)


def asked(network, number, source):
    network.managers[1].receive(m.encode(m.SidrReq(number, service_id=SERVICE), 9), source, network.now)


def test_two_peers_that_choose_one_number_are_both_asked_for(network):
    """Each chooses its request's number by itself; each gets the answer that is for it."""
    network.listen()
    sources = [network.address(0), from_other(network.address(0))]
    for source in (*sources, *sources):
        asked(network, 5, source)
    told = network.programs[1].events
    assert [event.source for event in told] == sources  # each once
    answered = []
    network.managers[1]._send = lambda data, to: answered.append((m.decode(data)[1].qpn, to))
    for qpn, event in enumerate(told):
        network.managers[1].answer(network.programs[1], event.number, m.SidrRep(qpn=qpn))
    assert answered == list(enumerate(sources))
    asked(network, 5, sources[1])  # another one, with the number of before
    assert len(told) == 3


def test_a_program_does_not_answer_its_own_question(network):
    number = resolve(network)
    count = len(network.sent)
    with pytest.raises(OSError, match="no request of a peer") as refused:
        network.managers[0].answer(network.programs[0], number, m.SidrRep(qpn=7))
    assert refused.value.errno == errno.EINVAL
    assert len(network.sent) == count
    network.pass_time(HOUR_NS)  # it goes on waiting for the peer
    assert network.programs[0].take().kind == e.SIDR_REPLY


@pytest.mark.parametrize("ended", ["answered", "refused", "given up", "destroyed"])
def test_what_has_ended_is_not_asked_again_and_not_told_twice(network, ended):
    if ended == "answered":
        network.listen()
    number = resolve(network)
    if ended == "given up":
        network.cut = {1}
        network.pass_time(HOUR_NS)
    elif ended == "destroyed":
        network.cut = {1}
        network.managers[0].destroy(network.programs[0], number, network.now)
    else:
        network.arrive()
        if ended == "answered":
            network.managers[1].answer(network.programs[1], network.programs[1].take().number, m.SidrRep())
            network.arrive()
    told, sent = len(network.programs[0].events), len(network.sent)
    assert told == (ended != "destroyed")
    assert network.managers[0].next_deadline() == NEVER_NS
    network.pass_time(HOUR_NS)
    assert (len(network.programs[0].events), len(network.sent)) == (told, sent)


def test_a_port_that_is_full_takes_no_question(network, monkeypatch):
    monkeypatch.setattr(tables, "MAX_CONNECTIONS", 2)
    network.listen()
    for number in range(1, 5):
        asked(network, number, network.address(0))
    assert network.programs[1].kinds == [e.SIDR_REQUEST] * 2
    assert network.managers[1].counters["drops_full"] == 2
    network.managers[1].answer(network.programs[1], network.programs[1].take().number, m.SidrRep())
    asked(network, 4, network.address(0))  # its peer asks again
    assert network.programs[1].kinds == [e.SIDR_REQUEST] * 2
    network.managers[1].receive(m.encode(REQUEST.changed(local_comm_id=3), 1), network.address(0), 0)
    assert network.managers[1].counters["drops_full"] == 3


def test_a_request_that_gives_way_to_later_ones_is_forgotten_and_its_owner_told(network):
    network.listen(backlog=2)
    sources = [network.address(0), from_other(network.address(0))]
    for number in range(1, 6):
        asked(network, number, sources[number % 2])
    manager, events = network.managers[1], network.programs[1].events
    requests = [event.number for event in events if event.kind == e.SIDR_REQUEST]
    ended = [(event.number, event.status) for event in events if event.kind == e.REJECTED]
    assert ended == [(number, m.REJ_NO_RESOURCES) for number in requests[:3]]
    assert [manager.has(number) for number in requests] == [False] * 3 + [True] * 2
    asked(network, 1, sources[1])  # it is as new
    assert network.programs[1].kinds[-2:] == [e.SIDR_REQUEST, e.REJECTED]


def test_a_request_that_its_owner_has_no_room_for_is_nobodys_and_comes_again(network):
    network.listen(backlog=1)
    network.programs[1].room = 0
    for _ in range(3):
        asked(network, 5, network.address(0))
    manager = network.managers[1]
    assert (manager._tables.connections, manager.counters["drops_full"]) == (0, 3)
    network.programs[1].room = 1
    asked(network, 5, network.address(0))
    (told,) = network.programs[1].events
    assert (told.kind, manager.counters["requests"]) == (e.SIDR_REQUEST, 1)
