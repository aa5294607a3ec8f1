"""Instance numbers of a host's connections: agreed upon in what its channel sends and receives, and given to
the queue pairs that they are of, before these take a packet.

The active side's queue pair gets its number when REP comes, before the program brings it to RTR.  The passive
side's gets it when it is brought to RTR towards the queue pair of which a request with an offer waits, and
keeps it if the program's reply has room for the answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from softhca.adapter.resources import Kind
from softhca.management.cm import messages as m
from softhca.management.cm.elements import REPLIED, REQUEST, Event, place_of
from softhca.management.cm.instances import (
    Instances,
    answer_of,
    offer_of,
    with_answer,
    with_offer,
    without,
)
from softhca.management.mad import Address
from softhca.transport.context import QueuePair

if TYPE_CHECKING:
    from softhca.adapter.engine import Adapter

SERVICES = (m.SERVICE_RC, m.SERVICE_UC)
Peer = tuple[bytes | int, int]
"""Where a peer is, and its queue pair."""


class HostInstances:
    """Those of the connections of one channel of the host ``host``; ``numbers`` are the port's."""

    def __init__(self, adapter: Adapter, host: int, numbers: Instances) -> None:
        self.numbers = numbers
        self._adapter = adapter
        self.host = host
        self._enabled = adapter.config.connection_instances
        self._asked: dict[int, int] = {}
        self._waiting: dict[int, tuple[Peer, int]] = {}
        self._by_peer: dict[Peer, int] = {}

    # the active side

    def request(self, request: m.Req, peer: Address) -> m.Req:
        """The request with an offer, where it can have one."""
        if not self._enabled or request.transport_service_type not in SERVICES:
            return request
        if self._is_foreign(request.local_qpn):
            return request
        private_data = with_offer(request.private_data, self.numbers.next(place_of(peer)))
        return request if private_data is None else request.changed(private_data=private_data)

    def sent(self, number: int, request: m.Req) -> None:
        """It has been sent for the connection ``number``."""
        if offer_of(request.private_data):
            self._asked[number] = request.local_qpn

    # events

    def read(self, event: Event) -> Event:
        """Take notice of an event for the host; the event as it concerns the host."""
        message = event.message
        if event.kind == REQUEST and isinstance(message, m.Req):
            offered = offer_of(message.private_data)
            if not offered or not self._enabled or message.transport_service_type not in SERVICES:
                return event
            place = place_of(event.source)
            peer = place, message.local_qpn
            self._waiting[event.number] = peer, self.numbers.agree(place, offered)
            self._by_peer[peer] = event.number
        elif event.kind == REPLIED and isinstance(message, m.Rep):
            instance = answer_of(message.private_data)
            own = self._asked.pop(event.number, 0)
            if not instance or not own:
                return event
            self.numbers.agreed(place_of(event.source), instance)
            self._give(own, instance)
        else:
            self.forget(event.number)
            return event
        told = message.changed(private_data=without(message.private_data))
        return Event(
            event.kind, event.number, event.source, event.listener, event.status, event.service_id, told
        )

    # the passive side

    def expected(self, vector: Mapping[str, Any], peer: int) -> int:
        """The number of a queue pair that is brought to RTR along an address vector, to the queue pair
        ``peer``: 0, unless a request of that one waits.
        """
        if not self._by_peer:
            return 0
        for place in (vector.get("dgid"), vector.get("dlid")):
            number = self._by_peer.get((place, peer)) if place else None
            if number is not None:
                return self._waiting[number][1]
        return 0

    def reply(self, number: int, reply: m.Rep) -> m.Rep:
        """The reply to the request ``number`` with what holds, where it can have that; its queue pair's
        number is settled.
        """
        if number not in self._waiting:
            return reply
        if self._is_foreign(reply.local_qpn):
            return reply
        instance = self._waiting[number][1]
        private_data = with_answer(reply.private_data, instance)
        self._give(reply.local_qpn, 0 if private_data is None else instance)
        return reply if private_data is None else reply.changed(private_data=private_data)

    def forget(self, number: int) -> None:
        """A connection is answered, or over."""
        self._asked.pop(number, None)
        peer, _ = self._waiting.pop(number, (None, 0))
        if peer is not None and self._by_peer.get(peer) == number:
            del self._by_peer[peer]

    def is_of_program(self, host: int) -> bool:
        """Whether a host is this one, or another one of the same process: there what manages connections may
        be attached beside what has the queue pairs.
        """
        if host == self.host:
            return True
        hosts = self._adapter.hosts
        own, other = hosts.get(self.host), hosts.get(host)
        return own is not None and other is not None and own.pid == other.pid != 0

    def may_be_of_program(self, host: int) -> bool:
        """As `is_of_program`; also where the system does not say which processes both are of."""
        hosts = self._adapter.hosts
        own, other = hosts.get(self.host), hosts.get(host)
        return host == self.host or (own is not None and other is not None and own.pid == other.pid)

    def _is_foreign(self, number: int) -> bool:
        """Whether a queue pair is another program's: it gets no number, so that none is agreed upon."""
        resource = self._adapter.resources.get(Kind.QP, number)
        return resource is not None and not self.is_of_program(resource.host)

    def _give(self, number: int, instance: int) -> None:
        """A queue pair of the program gets its number."""
        resource = self._adapter.resources.get(Kind.QP, number)
        if resource is not None and self.is_of_program(resource.host):
            queue_pair: QueuePair = resource.element
            queue_pair.instance = instance
