"""What passes between an identifier and its peer: requests, answers, the end; and the states of queue pairs
on the way (INIT → RTR → RTS → ERR) with the values that both sides have named.

Connected identifiers use the connection protocol, datagram identifiers SIDR.  Requests carry the addresses of
both sides in front of the program's private data (`management.ip_service`).
"""

from __future__ import annotations

import errno
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from softhca.driver.connections import (
    CM_DISCONNECT_REQUEST,
    CM_DISCONNECTED,
    CM_ESTABLISHED,
    CM_REJECTED,
    CM_REPLIED,
    CM_SIDR_REPLY,
    CM_TIMEWAIT_OVER,
    CM_UNREACHABLE,
    CmEvent,
    CmPath,
    CmQueuePair,
)
from softhca.driver.errors import DriverError
from softhca.driver.rdmacm import events, queue_pairs, states
from softhca.driver.rdmacm.events import ConnectionParameters, DatagramParameters, IdentifierEvent
from softhca.driver.rdmacm.groups import UDP_QKEY
from softhca.driver.rdmacm.listening import Listener
from softhca.driver.rdmacm.ports import CmPort, port_of
from softhca.driver.rdmacm.routes import Route, index_of
from softhca.driver.services import Path
from softhca.management.ip_service import HEADER_BYTES, IpHeader, service_id

if TYPE_CHECKING:
    from softhca.driver.qp import QpHandle
    from softhca.driver.rdmacm.identifier import Identifier

REQUEST_BYTES, RESOLUTION_BYTES = 92, 216
"""Private data of a request of either kind, the header of addresses included."""
REPLY_BYTES = 196
REJECTED_BY_CONSUMER = 28
SIDR_REJECTED = 2
ACK_TIMEOUT = 19
"""Where nobody says otherwise: 2.1 s, Linux's."""


class Connection:
    """The part of ``owner`` that deals with its peer.

    ``peer`` is the peer's end of the connection, ``path`` the way there; ``own`` this end, as it was told the
    peer (each None until it is known).  ``active``: this side has asked.
    """

    def __init__(self, owner: Identifier) -> None:
        self._owner = owner
        self._listener: Listener | None = None
        self._port: CmPort | None = None
        self._number = 0
        self._said_goodbye = False
        self.active = True
        self.path: CmPath | None = None
        self.peer: CmQueuePair | None = None
        self.own: CmQueuePair | None = None

    # what the program asks for

    def listen(self, backlog: int) -> None:
        """Take requests; EADDRINUSE."""
        self._listener = Listener(self._owner, backlog)

    def connect(self, parameters: ConnectionParameters | None = None) -> None:
        """Ask for a connection, or for the queue pair of a datagram service.  `events.ESTABLISHED` follows,
        or `events.CONNECT_RESPONSE` where the program has the queue pair, `events.REJECTED`,
        `events.UNREACHABLE`.  EINVAL: too many private data, or more READs than the device can do.
        """
        owner, parameters = self._owner, parameters or ConnectionParameters()
        with owner.lock:
            after = states.after(owner.state, states.CONNECT)
            assert owner.source is not None
            assert owner.destination is not None
            place = owner.place
            most = REQUEST_BYTES if owner.connected else RESOLUTION_BYTES
            _check_room(parameters.private_data, most - HEADER_BYTES)
            header = IpHeader.between(place.address.gid, owner.source.port, owner.destination.gid)
            private = header.encode() + parameters.private_data
            self.path = CmPath(
                owner.peer_gid,
                owner.route.dlid,
                owner.route.sl,
                traffic_class=owner.traffic_class,
                pkey_index=owner.route.pkey_index,
                path_mtu=min(place.mtu, owner.route.mtu),
                ack_timeout=ACK_TIMEOUT if owner.ack_timeout is None else owner.ack_timeout,
                sgid_index=place.gid_index,
            )
            self._port = port_of(place.device, place.port)
            service = service_id(owner.space, owner.destination.port)
            if owner.connected:
                self.own = self._end(parameters, owner.queue_pair)
                self._number = self._port.channel.connect(service, self.path, self.own, private)
            else:
                self._number = self._port.channel.resolve(service, self.path, private)
            owner.state = after
            self._port.register(self._number, self._on_event)

    def accept(self, parameters: ConnectionParameters | None = None) -> None:
        """Accept the request that made this identifier; of a connection `events.ESTABLISHED` follows.  EINVAL
        as `connect`: its queue pair is as before then.
        """
        owner, parameters = self._owner, parameters or ConnectionParameters()
        with owner.lock:
            after = states.after(owner.state, states.ACCEPT)
            assert self._port is not None
            channel = self._port.channel
            if not owner.connected:
                number = _number_of(owner.queue_pair, parameters)
                channel.answer(self._number, 0, number, UDP_QKEY, parameters.private_data)
                owner.state = states.CONNECTED
                return
            _check_room(parameters.private_data, REPLY_BYTES)
            queue_pair = owner.queue_pair  # another thread may destroy it
            own = self.own = self._end(parameters, queue_pair)
            if queue_pair is not None:
                queue_pairs.to_ready(owner, queue_pair)
            channel.reply(self._number, own, parameters.private_data)
            owner.state = after

    def reject(self, private_data: bytes = b"") -> None:
        """Reject the request that made this identifier, or the peer's reply."""
        owner = self._owner
        with owner.lock:
            after = states.after(owner.state, states.REJECT)
            assert self._port is not None
            if owner.connected:
                self._port.channel.reject(self._number, REJECTED_BY_CONSUMER, private_data=private_data)
            else:
                self._port.channel.answer(self._number, SIDR_REJECTED, private_data=private_data)
            owner.state = after

    def establish(self) -> None:
        """The program's queue pair is ready for what the peer has replied."""
        owner = self._owner
        with owner.lock:
            after = states.after(owner.state, states.ESTABLISH)
            assert self._port is not None
            self._port.channel.ready(self._number)
            owner.state = after

    def disconnect(self) -> None:
        """End the connection: the queue pair goes to ERR; `events.DISCONNECTED` follows, where the peer has
        not disconnected before.  Of a datagram identifier nobody is told, as with the kernel.
        """
        owner = self._owner
        with owner.lock:
            after = states.after(owner.state, states.DISCONNECT)
            if self._port is None:
                raise DriverError(errno.EINVAL, "the identifier is closed")
            queue_pairs.to_error(owner)
            if not owner.connected:
                return
            if self._said_goodbye or (after == states.CLOSING and owner.state != states.CLOSING):
                self._said_goodbye = False
                self._port.channel.disconnect(self._number)
            elif owner.state != states.CLOSING and owner.state not in states.ENDED:
                self._port.end(self._number)
            owner.state = after

    def removed(self) -> None:
        """The device has gone: there is nobody who could be told of an end."""
        self._said_goodbye = False

    def close(self) -> None:
        """Let go of it: a peer that is in the middle of something is told."""
        if self._listener is not None:
            self._listener.close()
        port, self._port = self._port, None
        if port is not None:
            port.end(self._number)

    # for requests

    def requested(self, port: CmPort, event: CmEvent) -> ConnectionParameters:
        """This identifier is what ``event`` asks for; what the peer wants."""
        self.active = False
        self._port, self._number = port, event.id
        self.peer, self.path = event.queue_pair, event.path
        if self._owner.place.is_native:
            index = max(index_of(self._owner.place, event.pkey), 0)
            self._owner.route = Route(event.path.lid, event.path.sl, event.path.path_mtu, index)
        port.register(event.id, self._on_event)
        return ConnectionParameters(
            event.private_data[HEADER_BYTES:],
            event.queue_pair.initiator_depth,
            event.queue_pair.responder_resources,
            int(event.queue_pair.flow_control),
            event.queue_pair.retry_cnt,
            event.queue_pair.rnr_retry,
            int(event.queue_pair.srq),
            event.queue_pair.qp_num,
        )

    def _end(self, parameters: ConnectionParameters, queue_pair: QpHandle | None) -> CmQueuePair:
        """This end, with no more READs and atomics at a time than the device, and the peer, can do;
        ``queue_pair`` None: the program has one of its own."""
        owner = self._owner
        resources = _bounded(
            "responder_resources", parameters.responder_resources, owner.place.max_responder_resources
        )
        depth = _bounded("initiator_depth", parameters.initiator_depth, owner.place.max_initiator_depth)
        if self.peer is not None:
            resources = min(resources, self.peer.initiator_depth)
            depth = min(depth, self.peer.responder_resources)
        return CmQueuePair(
            _number_of(queue_pair, parameters),
            owner.psn,
            responder_resources=resources,
            initiator_depth=depth,
            retry_cnt=min(parameters.retry_count, 7),
            rnr_retry=min(parameters.rnr_retry_count, 7),
            srq=bool(parameters.srq),
            flow_control=bool(parameters.flow_control),
        )

    # what comes

    def _on_event(self, event: CmEvent) -> None:
        self._owner.post(partial(self._take, event), here=False)

    def _take(self, event: CmEvent) -> IdentifierEvent | None:
        """What the connection manager says, as an event for the program."""
        owner = self._owner
        message = _MESSAGES.get(event.kind)
        with owner.lock:
            if event.kind == CM_SIDR_REPLY:
                message = states.REFUSAL if event.status else states.RESPONSE
            after = None if message is None else states.on_message(owner.state, message)
            if after is None:
                return None
            closing, owner.state = owner.state == states.CLOSING, after
            if event.kind == CM_SIDR_REPLY:
                return self._resolved(event)
            if event.kind == CM_REPLIED:
                return self._replied(event)
            kind, status = _EVENTS[event.kind]
            if event.kind == CM_DISCONNECT_REQUEST:
                self._said_goodbye = not closing  # else it has been answered
            elif event.kind == CM_TIMEWAIT_OVER:
                self._said_goodbye = False
            elif after in states.ENDED and owner.connected:
                queue_pairs.to_error(owner)
            if event.kind == CM_REJECTED:
                status = event.status
            elif event.kind == CM_DISCONNECTED and event.status == errno.ETIMEDOUT:
                status = -errno.ETIMEDOUT
            return IdentifierEvent(kind, owner, status=status, private_data=event.private_data)

    def _replied(self, event: CmEvent) -> IdentifierEvent:
        owner = self._owner
        assert self._port is not None
        assert self.own is not None
        self.peer = event.queue_pair
        self.own = replace(
            self.own,
            responder_resources=min(self.own.responder_resources, self.peer.initiator_depth),
            initiator_depth=min(self.own.initiator_depth, self.peer.responder_resources),
        )
        kind = events.CONNECT_RESPONSE
        queue_pair = owner.queue_pair  # another thread may destroy it
        if queue_pair is not None:
            try:
                queue_pairs.to_ready(owner, queue_pair)
                self._port.channel.ready(self._number)
            except DriverError as error:
                owner.state = states.CLOSED
                self._port.end(self._number)
                return IdentifierEvent(events.CONNECT_ERROR, owner, status=-error.errno)
            owner.state = states.CONNECTED
            kind = events.ESTABLISHED
        peer = ConnectionParameters(
            event.private_data, self.own.responder_resources, self.own.initiator_depth,
            qp_num=self.peer.qp_num,
        )  # fmt: skip
        return IdentifierEvent(kind, owner, private_data=event.private_data, connection=peer)

    def _resolved(self, event: CmEvent) -> IdentifierEvent:
        owner = self._owner
        if event.status:
            return IdentifierEvent(
                events.UNREACHABLE, owner, status=event.status, private_data=event.private_data
            )
        assert owner.destination is not None
        owner.state = states.CONNECTED
        place = owner.place
        vector = Path(
            None if place.is_native else owner.destination.gid, place.gid_index, owner.route.sl,
            owner.traffic_class, dlid=owner.route.dlid, port_num=place.port,
        ).vector()  # fmt: skip
        found = DatagramParameters(vector, event.queue_pair.qp_num, event.qkey)
        return IdentifierEvent(events.ESTABLISHED, owner, private_data=event.private_data, datagram=found)


def _check_room(private_data: bytes, most: int) -> None:
    if len(private_data) > most:
        raise DriverError(errno.EINVAL, f"private_data: {len(private_data)} bytes, where {most} have room")


def _number_of(queue_pair: QpHandle | None, parameters: ConnectionParameters) -> int:
    """The number of the queue pair of ours, or the one that the program says."""
    return parameters.qp_num if queue_pair is None else queue_pair.number


def _bounded(name: str, wanted: int, most: int) -> int:
    """A number of READs and atomics; EINVAL where it is more than the device can do."""
    if wanted == events.MOST:
        return most
    if wanted > most:
        raise DriverError(
            errno.EINVAL, f"{name} = {wanted}: the device can do {most} READs and atomics at a time"
        )
    return wanted


_MESSAGES = {
    CM_REPLIED: states.RESPONSE,
    CM_ESTABLISHED: states.READY,
    CM_REJECTED: states.REFUSAL,
    CM_UNREACHABLE: states.UNREACHABLE,
    CM_DISCONNECT_REQUEST: states.GOODBYE,
    CM_DISCONNECTED: states.GONE,
    CM_TIMEWAIT_OVER: states.OVER,
}
_EVENTS = {
    CM_ESTABLISHED: (events.ESTABLISHED, 0),
    CM_REJECTED: (events.REJECTED, 0),
    CM_UNREACHABLE: (events.UNREACHABLE, -errno.ETIMEDOUT),
    CM_DISCONNECT_REQUEST: (events.DISCONNECTED, 0),
    CM_DISCONNECTED: (events.DISCONNECTED, 0),
    CM_TIMEWAIT_OVER: (events.TIMEWAIT_EXIT, 0),
}
