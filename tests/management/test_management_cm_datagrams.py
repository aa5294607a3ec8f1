"""The communication manager and reliable datagrams: connections between EE contexts."""

from dataclasses import replace

import pytest
from connection_peers import REPLY, REQUEST, Network

from softhca.management.cm import elements as e
from softhca.management.cm import messages as m
from softhca.management.cm import states as s

ASKING = replace(REQUEST, transport_service_type=m.SERVICE_RD, local_qpn=0, local_eecn=0x33)
ANSWER = replace(REPLY, local_qpn=0, local_eecn=0x44)


@pytest.fixture
def network():
    made = Network()
    made.listen()
    return made


def establish(network):
    active = network.connect(ASKING)
    network.arrive()
    passive = network.programs[1].take().number
    network.reply(passive, ANSWER)
    network.arrive()
    network.programs[0].take()
    network.managers[0].ready(network.programs[0], active, b"", network.now)
    network.arrive()
    network.programs[1].take()
    return active, passive


def last(network):
    return m.decode(network.sent[-1][1])[1]


def test_ee_contexts_are_named_by_requests_replies_and_farewells(network):
    network.connect(ASKING)
    assert (last(network).local_eecn, last(network).local_qpn) == (0x33, 0)
    network.arrive()
    request = network.programs[1].take()
    network.reply(request.number, ANSWER)
    assert last(network).local_eecn == 0x44
    network.arrive()
    network.managers[0].ready(network.programs[0], network.programs[0].take().number, b"", network.now)
    network.arrive()
    for own, number in ((1, 0x33), (0, 0x44)):
        count = len(network.sent)
        network.managers[own].destroy_all(network.programs[own], network.now)
        assert m.decode(network.sent[count][1])[1].remote_qpn_eecn == number
        assert own == 0 or type(last(network)) is m.Dreq
        if own:
            network.cut = {0}  # so that the other side says its own


def test_a_request_without_an_ee_context_is_rejected(network):
    network.connect(replace(ASKING, local_eecn=0))
    network.arrive()
    assert network.programs[0].take().status == m.REJ_INVALID_TRANSPORT
    assert not network.programs[1].events


@pytest.mark.parametrize(("asked", "replied"), [(ASKING, REPLY), (REQUEST, ANSWER)])
def test_a_reply_is_of_the_service_that_was_asked_for(network, asked, replied):
    network.connect(asked)
    network.arrive()
    passive = network.programs[1].take().number
    with pytest.raises(OSError, match="qp_type"):
        network.reply(passive, replied)
    assert network.state(1, passive) == s.REQ_RCVD
    network.reply(passive, ANSWER if asked is ASKING else REPLY)
    network.arrive()
    assert network.programs[0].kinds == [e.REPLIED]


def test_a_peers_reply_without_an_ee_context_is_malformed(network):
    active = network.connect(ASKING)
    forged = m.encode(m.Rep(7, active, local_qpn=5), 1)
    network.managers[0].receive(forged, network.address(1), network.now)
    assert network.managers[0].counters["drops_malformed"] == 1
    assert not network.programs[0].events
    assert network.state(0, active) == s.REQ_SENT


def test_a_connection_of_queue_pairs_has_no_ee_context_whatever_its_reply_says(network):
    active = network.connect()
    forged = m.encode(m.Rep(7, active, local_qpn=5, local_eecn=9), 1)
    network.managers[0].receive(forged, network.address(1), network.now)
    message = network.programs[0].take().message
    assert (message.local_qpn, message.local_eecn) == (5, 0)


def test_an_ee_context_and_a_queue_pair_of_one_number_are_two_ends(network):
    _, passive = establish(network)
    network.connect(replace(REQUEST, local_qpn=0x33))
    network.arrive()
    assert network.programs[1].kinds == [e.REQUEST]
    assert network.state(1, passive) == s.ESTABLISHED
    network.connect(ASKING)  # the EE context itself: its connection of before is stale
    network.arrive()
    assert network.state(1, passive) != s.ESTABLISHED
    assert e.REJECTED in network.programs[0].kinds


@pytest.mark.parametrize(("number", "taken"), [(0x33, True), (0x34, False), (1 << 23 | 0x33, False)])
def test_a_farewell_names_the_ee_context(network, number, taken):
    active, passive = establish(network)
    farewell = m.encode(m.Dreq(passive, active, number), 1)
    network.managers[0].receive(farewell, network.address(1), network.now)
    assert network.state(0, active) == (s.DREQ_RCVD if taken else s.ESTABLISHED)
