"""Service ID resolution (SIDR; IBTA vol. 1, 12.11): which queue pair a datagram service has.

A request is sent again until its answer comes; the peer's owner answers once, and a request that comes twice
while it thinks is dropped.
"""

from __future__ import annotations

import errno
from collections.abc import Callable

from softhca.management.cm import messages as m
from softhca.management.cm.elements import (
    REJECTED,
    SIDR_REPLY,
    SIDR_REQUEST,
    UNREACHABLE,
    Event,
    Listener,
    Owner,
    Resolution,
    encoded,
    place_of,
    response_ns,
    same_port,
)
from softhca.management.cm.tables import Tables
from softhca.management.cm.timers import Timers
from softhca.management.mad import Address


class Resolutions:
    """Those of one manager, in its ``tables`` and by its ``timers``; ``transmit`` sends a datagram."""

    def __init__(
        self,
        tables: Tables,
        timers: Timers,
        counters: dict[str, int],
        transmit: Callable[[bytes, Address], None],
    ) -> None:
        self._tables = tables
        self._timers = timers
        self._counters = counters
        self._transmit = transmit
        self._asked: dict[tuple[int, bytes | None, int], Resolution] = {}

    def resolve(
        self,
        owner: Owner,
        peer: Address,
        request: m.SidrReq,
        transaction_id: int,
        timeout: int,
        max_retries: int,
        now: int,
    ) -> int:
        """Send ``request``; its number.  OSError ENOMEM, EINVAL."""
        self._tables.require_room()
        number = self._tables.new_number()
        resolution = Resolution(
            number,
            owner,
            peer,
            request.service_id,
            number,
            response_ns=response_ns(timeout),
            max_retries=max_retries,
            transaction_id=transaction_id,
            sent=encoded(request.changed(request_id=number), transaction_id),
        )
        self._tables.add(resolution)
        self._transmit(resolution.sent, peer)
        self._timers.set(resolution, now + resolution.response_ns)
        return number

    def answer(self, owner: Owner, number: int, answer: m.SidrRep) -> None:
        """Answer a peer's request, which is forgotten.  OSError EINVAL."""
        resolution = self._tables.own(owner, number, Resolution)
        if not resolution.listener:
            raise OSError(errno.EINVAL, f"id = {number}: it is no request of a peer")
        answer = answer.changed(request_id=resolution.request_id, service_id=resolution.service_id)
        self._transmit(encoded(answer, resolution.transaction_id), resolution.peer)
        self.forget(resolution)

    def abandon(self, resolution: Resolution) -> None:
        """Its owner lets go of it; a peer that has asked is told."""
        if resolution.listener:
            self.answer(resolution.owner, resolution.number, m.SidrRep(status=m.SIDR_REJECTED))
        else:
            self.forget(resolution)

    def displace(self, resolution: Resolution) -> None:
        """A peer's request gives way to later ones: its owner is told that it is over."""
        self._end(resolution, REJECTED, m.REJ_NO_RESOURCES, None)

    def known(self, request: m.SidrReq, source: Address) -> bool:
        """Whether a request's owner thinks about it already."""
        return (request.request_id, source.gid, source.lid) in self._asked

    def refuse(self, request: m.SidrReq, transaction_id: int, source: Address) -> None:
        """Nobody has the service."""
        answer = m.SidrRep(request.request_id, m.SIDR_UNSUPPORTED, service_id=request.service_id)
        self._transmit(encoded(answer, transaction_id), source)

    def request(self, listener: Listener, request: m.SidrReq, transaction_id: int, source: Address) -> bool:
        """A peer's request comes to ``listener``; False: its owner has no room."""
        number = self._tables.new_number()
        told = Event(
            SIDR_REQUEST, number, source, listener.number, service_id=request.service_id, message=request
        )
        if not listener.owner.deliver(told):
            return False
        resolution = Resolution(
            number,
            listener.owner,
            source,
            request.service_id,
            request.request_id,
            listener.number,
            transaction_id=transaction_id,
        )
        self._tables.add(resolution)
        self._asked[request.request_id, source.gid, source.lid] = resolution
        listener.waiting.add(number, place_of(source))
        return True

    def answered(self, answer: m.SidrRep, source: Address) -> None:
        """A peer's answer: to the own request that it names, if it comes from where that went."""
        resolution = self._tables.find(answer.request_id)
        if (
            isinstance(resolution, Resolution)
            and not resolution.listener
            and same_port(resolution.peer, source)
        ):
            self._end(resolution, SIDR_REPLY, answer.status, answer)
        else:
            self._counters["drops_unmatched"] += 1

    def expire(self, resolution: Resolution, now: int) -> None:
        """No answer has come."""
        if resolution.retries >= resolution.max_retries:
            self._end(resolution, UNREACHABLE, errno.ETIMEDOUT, None)
            return
        resolution.retries += 1
        self._counters["resent"] += 1
        self._transmit(resolution.sent, resolution.peer)
        self._timers.set(resolution, now + resolution.response_ns)

    def _end(self, resolution: Resolution, kind: int, status: int, answer: m.SidrRep | None) -> None:
        self.forget(resolution)
        resolution.owner.deliver(
            Event(
                kind,
                resolution.number,
                resolution.peer,
                status=status,
                service_id=resolution.service_id,
                message=answer,
            )
        )

    def forget(self, resolution: Resolution) -> None:
        """It is over."""
        self._tables.answered(resolution)
        key = resolution.request_id, resolution.peer.gid, resolution.peer.lid
        if self._asked.get(key) is resolution:
            del self._asked[key]
        self._tables.remove(resolution)
        self._timers.stop(resolution)
