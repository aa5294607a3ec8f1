"""Turns of an adapter with several ports: each port has its link, and none waits for another's."""

from __future__ import annotations

import collections
import os

import pytest
from fake_engine import FakeEngine, Wire

from softhca.adapter.config import PortConfig
from softhca.adapter.engine import Adapter
from softhca.runtime.delayed_acknowledgement import DelayedAcknowledgement
from softhca.runtime.loop import NEVER, EngineLoop
from softhca.runtime.transmitter import BURSTS, RETRY_NS
from softhca.transport.flow import Flow

NOW = 1_000_000


class PortedEngine(FakeEngine):
    """Notes by which port something came, and has bursts for each."""

    def __init__(self):
        further = tuple(PortConfig(gids=(bytes(15) + bytes([number]),)) for number in (2, 3))
        super().__init__(further_ports=further)
        self.for_port = collections.defaultdict(collections.deque)

    def receive(self, port_number, arrival, now):
        arrival.length = arrival.stride = 64
        self.received.append((port_number, *arrival.source))

    def next_deadline(self, port_number=0):
        return min(self.deadline_ns, Adapter.next_deadline(self, port_number))

    def transmit(self, port_number, burst, now):
        if not self.for_port[port_number]:
            return False
        burst.length = self.for_port[port_number].popleft()
        return True


class HoldingWire(Wire):
    """A link that holds back a packet until ``due_ns``."""

    def __init__(self):
        super().__init__()
        self.due_ns = NEVER

    def next_deadline(self):
        return self.due_ns

    def expire(self, now):
        due = now >= self.due_ns
        if due:
            self.due_ns = NEVER
        return due


class Reply(DelayedAcknowledgement):
    """Has each acknowledgement wait for a reply, and counts them."""

    asked = 0

    def received(self, flow, now):
        self.asked += 1
        return True


class Ported:
    """An engine with three ports."""

    def __init__(self):
        self.engine = PortedEngine()
        self.links = [HoldingWire() for _ in range(3)]
        self.loop = EngineLoop(self.engine, self.links, lambda: None, clock=lambda: NOW)


@pytest.fixture
def ported():
    made = Ported()
    yield made
    for link in made.links:
        os.close(link.fd)


def test_what_comes_to_a_port_is_that_ports(ported):
    for number, word in ((3, 33), (1, 11), (2, 22), (3, 34)):
        ported.links[number - 1].put(bytes([word]))
    assert ported.loop.progress(NOW)
    assert ported.engine.received == [(1, 11), (2, 22), (3, 33), (3, 34)]
    assert not ported.loop.progress(NOW)


def test_a_port_takes_a_bounded_number_of_bursts_a_round(ported):
    for number in range(BURSTS + 1):
        ported.links[1].put(bytes([number]))
    ported.links[2].put(bytes([77]))
    assert ported.loop.progress(NOW)
    assert ported.engine.received == [*((2, number) for number in range(BURSTS)), (3, 77)]
    assert ported.loop.progress(NOW)
    assert ported.engine.received[-1] == (2, BURSTS)


def test_bursts_leave_by_their_ports_link(ported):
    ported.engine.for_port[1].append(100)
    ported.engine.for_port[3].extend((300, 301))
    assert ported.loop.transmit(NOW)
    assert [list(link.sent) for link in ported.links] == [[100], [], [300, 301]]
    assert not ported.loop.transmit(NOW)


def test_a_port_whose_link_has_no_room_keeps_no_other_waiting(ported):
    ported.engine.deadline_ns = NOW + 10 * RETRY_NS
    for number in (1, 2, 3):
        ported.engine.for_port[number].append(number)
    ported.links[1].refusals = 2
    assert ported.loop.transmit(NOW)
    assert [list(link.sent) for link in ported.links] == [[1], [], [3]]
    assert ported.loop.deadline() == NOW + RETRY_NS
    ported.engine.deadline_ns = NOW + 1
    assert ported.loop.deadline() == NOW + 1  # the others may send then


def test_flows_of_a_port_whose_link_has_no_room_do_not_have_the_loop_spin(ported):
    ported.engine.for_port[2].append(2)
    ported.links[1].refusals = 1
    ported.loop.transmit(NOW)
    for number, due in ((2, NOW + RETRY_NS), (1, 0)):
        ported.engine.ports[number - 1].scheduler.put(Flow(ported.engine, number))
        assert ported.loop.deadline() == due


def test_while_no_link_has_room_only_their_next_tries_are_awaited(ported):
    ported.engine.deadline_ns = NOW + 1
    for number, link in enumerate(ported.links, 1):
        link.refusals = 1
        ported.engine.for_port[number].append(number)
        ported.loop.ports[number - 1].transmit(NOW + number)
    assert ported.loop.deadline() == NOW + 1 + RETRY_NS


@pytest.mark.parametrize("number", [1, 2, 3])
def test_what_any_link_holds_back_is_due_in_time(ported, number):
    ported.links[number - 1].due_ns = NOW + 5
    assert ported.loop.deadline() == NOW + 5
    assert ported.loop.soon(NOW)
    assert not ported.loop.progress(NOW + 4)
    assert ported.loop.progress(NOW + 5)
    assert ported.loop.deadline() == NEVER
    assert not ported.loop.soon(NOW)


@pytest.mark.parametrize(("ports", "waits"), [((1,), True), ((3,), True), ((1, 3), False)])
def test_an_acknowledgement_waits_for_a_reply_to_the_only_message_of_all_ports(ported, ports, waits):
    ported.loop.acknowledgement = Reply(1)
    assert not ported.loop.poll()
    for number in ports:
        ported.links[number - 1].put(bytes([number]))
        ported.engine.for_port[number].append(number)
    assert ported.loop.poll()
    assert ported.loop.acknowledgement.asked == waits
    assert any(link.sent for link in ported.links) is not waits
    ported.loop.poll()
    assert [number for link in ported.links for number in link.sent] == list(ports)
