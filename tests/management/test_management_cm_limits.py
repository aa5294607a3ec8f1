"""What a communication manager counts, its greatest numbers, and peers by LID."""

import errno
from dataclasses import replace

import pytest
from connection_peers import REQUEST, SERVICE, Network

from softhca.management.cm import elements as e
from softhca.management.cm import messages as m
from softhca.management.cm import states as s
from softhca.management.cm import tables
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
