"""The communication manager of one port (IBTA vol. 1, chapter 12), without a queue pair, clock or thread.

*Inputs*: `receive` takes datagrams of class `CLASS_CM`, `expire` the time; `listen`, `connect`, `reply` … are
commands of owners.  *Outputs*: ``send(data, address)``, and events at `Owner.deliver`.  *Deadline*:
`next_deadline`.

Everything is bounded: connections, listeners, requests that wait at a listener, connections that wait for
RTU, and those that nobody holds any more (the oldest gives way, of the place that has most of them first).
What names no connection, or does not come from where its peer is, is dropped and counted.
"""

from __future__ import annotations

import errno
import random
from collections.abc import Callable

from softhca.management.cm import endings, states
from softhca.management.cm import messages as m
from softhca.management.cm.crowds import Crowd
from softhca.management.cm.elements import (
    DISCONNECT_REQUEST,
    DISCONNECTED,
    ESTABLISHED,
    REJECTED,
    REPLIED,
    REQUEST,
    TIMEWAIT_OVER,
    UNREACHABLE,
    Connection,
    Event,
    Listener,
    Owner,
    Resolution,
    by_alternate,
    duration_ns,
    encoded,
    end_of,
    is_datagrams,
    moved,
    number_of,
    of_peer,
    padded,
    place_of,
    response_ns,
    same_port,
)
from softhca.management.cm.paths import Paths
from softhca.management.cm.resolutions import Resolutions
from softhca.management.cm.tables import MAX_CONNECTIONS, Tables
from softhca.management.cm.timers import Timers
from softhca.management.mad import Address
from softhca.wire.errors import WireError

SERVICE_TIMEOUT = 20
"""What an MRA asks for: 4.3 s."""
MOST_WAITING = MAX_CONNECTIONS // 2
"""Connections whose peer has sent no RTU, and as many that nobody holds and whose peer has not gone on."""
MOST_WAITING_OF_ONE = MAX_CONNECTIONS // 16
"""Those of peers at one place."""
COUNTERS = (
    "received",
    "sent",
    "resent",
    "requests",
    "established",
    "rejected",
    "drops_malformed",
    "drops_unmatched",
    "drops_state",
    "drops_full",
)
"""What a manager counts: messages in and out, messages sent again, requests for listeners, connections
that became established, REJs sent; and what was dropped: malformed, of no connection or another address, not
of the connection's state, for want of room."""

EVENT_OF = {
    # what an input is reported as
    states.REP: REPLIED,
    states.RTU: ESTABLISHED,
    states.ESTABLISH: ESTABLISHED,
    states.REJ: REJECTED,
    states.GIVE_UP: UNREACHABLE,
    states.DREQ: DISCONNECT_REQUEST,
    states.DREP: DISCONNECTED,
    states.OVER: TIMEWAIT_OVER,
}
MESSAGE_NAMES: dict[type[m.Message], str] = {
    m.Mra: states.MRA,
    m.Rej: states.REJ,
    m.Rep: states.REP,
    m.Rtu: states.RTU,
    m.Dreq: states.DREQ,
    m.Drep: states.DREP,
}


def any_path(lap: m.Lap, connection: Connection) -> int:
    """Whatever path a peer proposes can be."""
    return m.APR_LOADED


def any_end(connection: Connection) -> bool:
    """Whatever end an owner names can be its own."""
    return True


class ConnectionManager:
    """``send(data, address) -> bool`` sends a datagram of 256 bytes (False: no room, or no way); ``ca_guid``
    is the adapter's; ``seed`` makes communication IDs that strangers do not guess; ``check_path`` gives the
    APR status of a path that a peer proposes and that cannot be (0: its owner is asked); ``owns`` says
    whether the end that a connection's owner has named is its own: else the connection does not follow it.
    """

    def __init__(
        self,
        send: Callable[[bytes, Address], bool],
        ca_guid: int,
        seed: int,
        check_path: Callable[[m.Lap, Connection], int] = any_path,
        owns: Callable[[Connection], bool] = any_end,
    ) -> None:
        self.counters = dict.fromkeys(COUNTERS, 0)
        self._send = send
        self._ca_guid = ca_guid
        self._owns = owns
        generator = random.Random(seed)
        self._transaction_id = generator.getrandbits(31) << 1
        self._tables = Tables(generator)
        self._timers = Timers()
        self._resolutions = Resolutions(self._tables, self._timers, self.counters, self._transmit)
        self._paths = Paths(self._timers, self.counters, self._transmit, self._report, check_path)
        self._by_remote: dict[tuple[bytes | int, int, int], Connection] = {}
        self._by_end: dict[tuple[bytes | int, int, int], Connection] = {}
        self._by_local: dict[int, Connection] = {}
        self._replied = Crowd(MOST_WAITING, MOST_WAITING_OF_ONE)
        self._abandoned = Crowd(MOST_WAITING, MOST_WAITING_OF_ONE)

    # commands of owners

    def listen(self, owner: Owner, service_id: int, backlog: int) -> int:
        """Requests for ``service_id`` go to ``owner``; the listener's number.

        OSError EADDRINUSE: another listener has it; EINVAL: no such backlog; ENOMEM: too many listeners.
        """
        return self._tables.listen(owner, service_id, backlog).number

    def connect(self, owner: Owner, peer: Address, request: m.Req, now: int) -> int:
        """Send ``request``, with this manager's communication ID and GUID in it; the connection's number.

        OSError ENOMEM: too many connections; EINVAL: a value does not fit its field.
        """
        self._tables.require_room()
        number = self._tables.new_number()
        request = request.changed(local_comm_id=number, local_ca_guid=self._ca_guid)
        connection = Connection(
            number,
            owner,
            peer,
            states.REQ_SENT,
            service_id=request.service_id,
            local_end=end_of(request, endings.asks_for_datagrams(request)),
            response_ns=response_ns(request.remote_cm_response_timeout),
            timewait_ns=duration_ns(request.primary_ack_timeout),
            max_retries=request.max_cm_retries,
            transaction_id=self._next_transaction_id(),
        )
        connection.sent = encoded(request, connection.transaction_id)
        connection.proposed = by_alternate(peer, request, own=True)
        self._tables.add(connection)
        self._transmit(connection.sent, peer)
        self._wait(connection, now)
        return number

    def reply(self, owner: Owner, number: int, reply: m.Rep, now: int) -> None:
        """Accept a request.  OSError EINVAL as all that follow: no such connection, or not now; or an EE
        context in answer to a queue pair, or the other way round.
        """
        connection = self._tables.own(owner, number, Connection)
        datagrams = is_datagrams(connection.remote_end)
        if bool(reply.local_eecn) != datagrams:
            raise OSError(errno.EINVAL, "qp_type: a reply has the request's service")
        reply = reply.changed(
            local_comm_id=number,
            remote_comm_id=connection.remote_comm_id,
            local_ca_guid=self._ca_guid,
        )
        self._require(connection, states.REPLY)
        encoded(reply, connection.transaction_id)  # else nothing has changed
        connection.local_end = end_of(reply, datagrams)
        self._command(connection, states.REPLY, now, reply)
        self._take_alternate(connection, reply)

    def ready(self, owner: Owner, number: int, private_data: bytes, now: int) -> None:
        """The program has taken the reply."""
        connection = self._tables.own(owner, number, Connection)
        rtu = m.Rtu(number, connection.remote_comm_id, padded(m.Rtu, private_data))
        self._command(connection, states.READY, now, rtu)

    def establish(self, owner: Owner, number: int, now: int) -> None:
        """The peer's first packet has come before its RTU."""
        self._command(self._tables.own(owner, number, Connection), states.ESTABLISH, now, None)

    def reject(
        self, owner: Owner, number: int, reason: int, ari: bytes, private_data: bytes, now: int
    ) -> None:
        """Reject the peer's request or reply, or give up the own one."""
        connection = self._tables.own(owner, number, Connection)
        if len(ari) > len(m.Rej().ari):
            raise OSError(errno.EINVAL, f"ari: REJ has 72 bytes of additional information, not {len(ari)}")
        rej = endings.rejection(connection, reason, ari, padded(m.Rej, private_data))
        self._command(connection, states.REJECT, now, rej)

    def disconnect(self, owner: Owner, number: int, private_data: bytes, now: int) -> None:
        """Ask the peer to disconnect, or answer its asking."""
        connection = self._tables.own(owner, number, Connection)
        kind = m.Drep if connection.state == states.DREQ_RCVD else m.Dreq
        message = endings.disconnect(connection, kind, padded(kind, private_data))
        self._command(connection, states.DISCONNECT, now, message)

    def migrated(
        self, qpn: int, gid: bytes, own_gid: bytes, lid: int, own_lid: int, sl: int, traffic_class: int
    ) -> None:
        """The own queue pair ``qpn`` has taken its alternate path: so do the messages of its connection."""
        connection = self._by_local.get(qpn)
        if connection is not None:
            there = moved(connection.peer, gid, own_gid, lid, own_lid, sl, traffic_class)
            if not same_port(connection.peer, there):
                connection.other = connection.peer
            connection.peer = there

    def _take_alternate(self, connection: Connection, reply: m.Rep) -> None:
        """The alternate path of the request is loaded on both sides, if the reply says so."""
        if reply.failover_accepted == m.FAILOVER_ACCEPTED:
            connection.other = connection.proposed
        if self._owns(connection):
            self._by_local[connection.local_end] = connection

    def load_path(self, owner: Owner, number: int, lap: m.Lap, now: int) -> None:
        """Propose the alternate path of ``lap`` to the peer of an established connection.  OSError EINVAL:
        not now, one is proposed already, or a value does not fit its field.
        """
        connection = self._tables.own(owner, number, Connection)
        self._paths.load(connection, lap, self._next_transaction_id(), now)

    def answer_path(self, owner: Owner, number: int, apr: m.Apr, now: int) -> None:
        """Answer the peer's proposal of a path.  OSError EINVAL: there is none."""
        self._paths.answer(self._tables.own(owner, number, Connection), apr, now)

    def resolve(
        self, owner: Owner, peer: Address, request: m.SidrReq, timeout: int, max_retries: int, now: int
    ) -> int:
        """Send ``request`` for the queue pair of a datagram service; the resolution's number.  The peer may
        take 4.096 µs × 2^``timeout``.  OSError as `connect`.
        """
        transaction_id = self._next_transaction_id()
        return self._resolutions.resolve(owner, peer, request, transaction_id, timeout, max_retries, now)

    def answer(self, owner: Owner, number: int, answer: m.SidrRep) -> None:
        """Answer a request for a datagram service; its number is forgotten."""
        self._resolutions.answer(owner, number, answer)

    def destroy(self, owner: Owner, number: int, now: int) -> None:
        """The owner lets go of a listener, connection or resolution: no event of it is delivered any more.
        A peer that is in the middle of it is told.
        """
        element = self._tables.find(number)
        if element is None or element.owner is not owner:
            raise OSError(errno.EINVAL, f"id = {number}: there is no such connection")
        if isinstance(element, Listener):
            self._tables.close_listener(element)
        elif isinstance(element, Resolution):
            self._resolutions.abandon(element)
        else:
            self._abandon(element, now)

    def destroy_all(self, owner: Owner, now: int) -> None:
        """The owner is gone."""
        for element in self._tables:
            if element.owner is owner:
                self.destroy(owner, element.number, now)

    def _abandon(self, connection: Connection, now: int) -> None:
        """A connection that nobody holds any more."""
        message: m.Message | None = None
        if connection.state in (states.REQ_RCVD, states.REP_RCVD, states.REP_SENT):
            message = endings.rejection(connection, m.REJ_CONSUMER_DEFINED)
        elif connection.state == states.ESTABLISHED:
            message = endings.disconnect(connection, m.Dreq, bytes(m.Dreq.PRIVATE_BYTES))
        self._command(connection, states.DESTROY, now, message)
        connection.owner = None
        if connection.state == states.CLOSED:
            self._forget(connection)
            return
        displaced = self._abandoned.add(connection)
        if displaced is not None:
            self.counters["drops_full"] += 1
            displaced.state = states.CLOSED
            self._forget_peer(displaced)
            self._forget(displaced)

    def has(self, number: int) -> bool:
        """Whether there is a listener, connection or resolution of that number."""
        return self._tables.find(number) is not None

    # datagrams of peers

    def receive(self, data: bytes, source: Address, now: int) -> None:
        """Take a datagram of the class that has come to the port."""
        self.counters["received"] += 1
        try:
            transaction_id, message = m.decode(data)
        except WireError:
            self.counters["drops_malformed"] += 1
            return
        if isinstance(message, m.Req):
            self._receive_request(message, transaction_id, source, now)
        elif isinstance(message, m.SidrReq):
            self._receive_resolution(message, transaction_id, source, now)
        elif isinstance(message, m.SidrRep):
            self._resolutions.answered(message, source)
        else:
            self._receive_of_connection(message, transaction_id, source, now)

    def _receive_request(self, request: m.Req, transaction_id: int, source: Address, now: int) -> None:
        known = self._by_remote.get((place_of(source), request.local_ca_guid, request.local_comm_id))
        if known is not None:
            self._step(known, states.REQ, now)
            return
        reason = 0
        listener = self._tables.listener_of(request.service_id)
        end = end_of(request, endings.asks_for_datagrams(request))
        stale = self._by_end.get((place_of(source), request.local_ca_guid, end))
        if stale is not None:
            self._end_stale(stale, now)
            reason = m.REJ_STALE_CONNECTION
        elif listener is None:
            reason = m.REJ_INVALID_SERVICE_ID
        elif not endings.is_supported(request):
            reason = m.REJ_INVALID_TRANSPORT
        if reason or listener is None:
            self._reject_message(m.OF_REQ, request.local_comm_id, reason, transaction_id, source)
            return
        self._new_request(listener, request, transaction_id, source, now)

    def _new_request(
        self, listener: Listener, request: m.Req, transaction_id: int, source: Address, now: int
    ) -> None:
        if self._tables.full:
            self.counters["drops_full"] += 1
            return
        number = self._tables.new_number()
        told = Event(REQUEST, number, source, listener.number, service_id=request.service_id, message=request)
        if not listener.owner.deliver(told):
            self.counters["drops_full"] += 1  # the peer asks again
            return
        connection = Connection(
            number,
            listener.owner,
            source,
            states.REQ_RCVD,
            service_id=request.service_id,
            listener=listener.number,
            active=False,
            remote_comm_id=request.local_comm_id,
            remote_ca_guid=request.local_ca_guid,
            remote_end=end_of(request, endings.asks_for_datagrams(request)),
            response_ns=response_ns(of_peer(request.local_cm_response_timeout)),
            timewait_ns=duration_ns(of_peer(request.primary_ack_timeout)),
            max_retries=request.max_cm_retries,
            transaction_id=transaction_id,
        )
        connection.proposed = by_alternate(source, request, own=False)
        self.counters["requests"] += 1
        self._tables.add(connection)
        listener.waiting.add(number, connection.place)
        self._make_room(listener)
        self._remember_peer(connection)

    def _receive_resolution(self, request: m.SidrReq, transaction_id: int, source: Address, now: int) -> None:
        if self._resolutions.known(request, source):
            return  # its owner thinks
        listener = self._tables.listener_of(request.service_id)
        if listener is None:
            self._resolutions.refuse(request, transaction_id, source)
        elif self._tables.full or not self._resolutions.request(listener, request, transaction_id, source):
            self.counters["drops_full"] += 1
        else:
            self.counters["requests"] += 1
            self._make_room(listener)

    def _make_room(self, listener: Listener) -> None:
        """Where too many requests wait, the one that has waited longest gives way, of the place from which
        most wait: it is forgotten, its owner is told, and the peer asks again.
        """
        while len(listener.waiting) > listener.backlog:
            number = listener.waiting.oldest_of_most()
            oldest = self._tables.find(number)
            self.counters["drops_full"] += 1
            if isinstance(oldest, Resolution):
                self._resolutions.displace(oldest)
            elif isinstance(oldest, Connection):
                self._tables.answered(oldest)
                self._forget_peer(oldest)
                oldest.state = states.CLOSED
                self._forget(oldest)
                self._report(oldest, REJECTED, m.REJ_NO_RESOURCES, None)

    def _end_stale(self, connection: Connection, now: int) -> None:
        """The peer uses the queue pair for another connection: it has forgotten this one (12.9.8.3.1)."""
        if connection.state == states.ESTABLISHED:
            message = endings.disconnect(connection, m.Dreq, bytes(m.Dreq.PRIVATE_BYTES))
            self._command(connection, states.DISCONNECT, now, message)

    def _receive_of_connection(
        self, message: m.Message, transaction_id: int, source: Address, now: int
    ) -> None:
        assert not isinstance(message, (m.Req, m.SidrReq, m.SidrRep))
        connection = self._addressed(message, source)
        if connection is None:
            self.counters["drops_unmatched"] += 1
            self._answer_unknown(message, transaction_id, source)
            return
        of_lap = isinstance(message, m.Mra) and message.message_mraed == m.OF_LAP
        if of_lap or isinstance(message, (m.Lap, m.Apr)):
            self._paths.receive(connection, message, transaction_id, now)
            return
        if isinstance(message, m.Rep):
            if not connection.active:
                self.counters["drops_state"] += 1  # who replies gets no reply
                return
            datagrams = is_datagrams(connection.local_end)
            if datagrams and not message.local_eecn:
                self.counters["drops_malformed"] += 1
                return
            message = message.changed(local_eecn=message.local_eecn if datagrams else 0)
            if connection.state == states.REQ_SENT:
                connection.remote_comm_id = message.local_comm_id
                connection.remote_ca_guid = message.local_ca_guid
                connection.remote_end = end_of(message, datagrams)
                self._remember_peer(connection)
                self._take_alternate(connection, message)
        if isinstance(message, m.Dreq):
            if message.remote_qpn_eecn != number_of(connection.local_end):
                self.counters["drops_unmatched"] += 1
                return
            connection.transaction_id = transaction_id
        self._step(connection, MESSAGE_NAMES[type(message)], now, message)

    def _addressed(self, message: m.Message, source: Address) -> Connection | None:
        """The connection that a message names, if it comes from its peer."""
        assert not isinstance(message, (m.Req, m.SidrReq, m.SidrRep))
        number = message.remote_comm_id
        found = self._tables.find(number)
        if isinstance(message, m.Rej) and not number and message.reason == m.REJ_TIMEOUT:
            guid = int.from_bytes(message.ari[:8], "big")  # its sender has never heard of our number
            found = self._by_remote.get((place_of(source), guid, message.local_comm_id))
        if not isinstance(found, Connection) or found.state == states.CLOSED:
            return None
        elsewhere = not same_port(found.peer, source)
        if elsewhere and (found.other is None or not same_port(found.other, source)):
            return None
        if found.remote_comm_id and message.local_comm_id != found.remote_comm_id:
            # REJ of a peer that has made no connection of its own has 0
            return found if isinstance(message, m.Rej) and not message.local_comm_id else None
        if elsewhere and found.other is not None:  # the peer has taken the alternate path
            found.peer, found.other = found.other, found.peer
        return found

    def _answer_unknown(self, message: m.Message, transaction_id: int, source: Address) -> None:
        """A message of a connection that is not here: its sender is told, so that it ends its own."""
        if isinstance(message, m.Dreq):
            drep = m.Drep(message.remote_comm_id, message.local_comm_id)
            self._send_message(drep, transaction_id, source)
        elif isinstance(message, m.Lap):
            apr = m.Apr(message.remote_comm_id, message.local_comm_id, ap_status=m.APR_INVALID_COMM_ID)
            self._send_message(apr, transaction_id, source)
        elif isinstance(message, (m.Rep, m.Rtu)):
            known = self._tables.find(message.remote_comm_id)
            if isinstance(known, Connection) and known.state != states.CLOSED:
                return  # it is here, and this is somebody else's
            rejected = m.OF_REP if isinstance(message, m.Rep) else m.OF_NONE
            self._reject_message(
                rejected, message.local_comm_id, m.REJ_INVALID_COMM_ID, transaction_id, source,
                message.remote_comm_id,
            )  # fmt: skip

    # time

    def next_deadline(self) -> int:
        """When `expire` is to be called next, or a little earlier; `NEVER_NS`: not by itself."""
        return self._timers.next_deadline()

    def expire(self, now: int) -> None:
        """Send again what has had no answer in time, give up, or end a time-wait."""
        for element in self._timers.due(now):
            if isinstance(element, Resolution):
                self._resolutions.expire(element, now)
            else:
                self._expire_connection(element, now)

    def _expire_connection(self, connection: Connection, now: int) -> None:
        if connection.state == states.ESTABLISHED:
            self._paths.expire(connection, now)
        elif connection.state == states.TIMEWAIT:
            self._step(connection, states.OVER, now)
        elif connection.retries < connection.max_retries:
            connection.retries += 1
            connection.put_off = False
            self._step(connection, states.RETRY, now)
        else:
            self._step(connection, states.GIVE_UP, now)

    def _wait(self, connection: Connection, now: int) -> None:
        timewait = connection.state == states.TIMEWAIT
        self._timers.set(connection, now + (connection.timewait_ns if timewait else connection.response_ns))

    # the table

    @staticmethod
    def _require(connection: Connection, command: str) -> None:
        if (connection.state, command) not in states.TABLE:
            raise OSError(errno.EINVAL, f"id = {connection.number}: it is {connection.state}: no {command}")

    def _command(self, connection: Connection, command: str, now: int, message: m.Message | None) -> None:
        self._require(connection, command)
        self._step(connection, command, now, message)

    def _step(self, connection: Connection, event: str, now: int, message: m.Message | None = None) -> None:
        """Do what `states.TABLE` says of ``event``; ``message`` is the peer's, or what a command sends."""
        row = states.TABLE.get((connection.state, event))
        if row is None:
            self.counters["drops_state"] += 1
            return
        before = connection.state
        connection.began(row[0])
        if before == states.ESTABLISHED != connection.state:
            self._paths.end(connection, now)
        if before == states.REQ_RCVD != connection.state:
            self._tables.answered(connection)
            if event == states.REJ:  # the peer has given up what nobody may have heard of yet
                self._forget(connection)
        for action in row[1]:
            self._act(connection, before, event, action, now, message)
        self._replied_or_not(connection, before, now)
        if connection.state == states.ESTABLISHED != before:
            self.counters["established"] += 1
        if connection.state == states.CLOSED:
            self._forget_peer(connection)
            if connection.owner is None:
                self._forget(connection)

    def _replied_or_not(self, connection: Connection, before: str, now: int) -> None:
        """Where too many wait for their peers' RTU, the oldest is given up as if its time were over."""
        if before == states.REP_SENT != connection.state:
            self._replied.remove(connection)
        elif connection.state == states.REP_SENT != before:
            displaced = self._replied.add(connection)
            if displaced is not None:
                self.counters["drops_full"] += 1
                self._step(displaced, states.GIVE_UP, now)

    def _act(
        self,
        connection: Connection,
        before: str,
        event: str,
        action: str,
        now: int,
        message: m.Message | None,
    ) -> None:
        if action == states.SEND:
            assert message is not None
            if isinstance(message, m.Dreq):
                connection.transaction_id = self._next_transaction_id()
            if isinstance(message, m.Rej):
                self.counters["rejected"] += 1
            connection.sent = encoded(message, connection.transaction_id)
            self._transmit(connection.sent, connection.peer)
        elif action == states.RESEND:
            self.counters["resent"] += 1
            self._transmit(connection.sent, connection.peer)
        elif action == states.ACKNOWLEDGE:
            mraed = m.OF_REP if before == states.REP_RCVD else m.OF_REQ
            mra = m.Mra(connection.number, connection.remote_comm_id, mraed, service_timeout=SERVICE_TIMEOUT)
            self._send_message(mra, connection.transaction_id, connection.peer)
        elif action == states.SEND_DREP:
            if not isinstance(message, m.Drep):
                message = endings.disconnect(connection, m.Drep, bytes(m.Drep.PRIVATE_BYTES))
            self._send_message(message, connection.transaction_id, connection.peer)
        elif action == states.REJECT_TIMEOUT:
            self._send_rejection(connection, m.REJ_TIMEOUT)
        elif action == states.REJECT_STALE:
            self._send_rejection(connection, m.REJ_STALE_CONNECTION)
        elif action == states.START:
            self._wait(connection, now)
        elif action == states.STOP:
            self._timers.stop(connection)
        elif action == states.EXTEND:
            assert isinstance(message, m.Mra)
            if connection.put_off:  # else one that sends MRAs is waited for as long as it likes
                self.counters["drops_state"] += 1
                return
            connection.put_off = True
            self._timers.set(connection, now + response_ns(of_peer(message.service_timeout)))
        elif action == states.REPORT:
            self._report_event(connection, before, event, message)

    def _report_event(
        self, connection: Connection, before: str, event: str, message: m.Message | None
    ) -> None:
        kind, status = EVENT_OF[event], 0
        if before == states.DREQ_SENT:
            kind = DISCONNECTED
        if event == states.GIVE_UP:
            status = errno.ETIMEDOUT
        elif isinstance(message, m.Rej):
            status = message.reason
            if before == states.ESTABLISHED:
                kind = DISCONNECTED
        self._report(connection, kind, status, message)

    def _report(self, connection: Connection, kind: int, status: int, message: m.Message | None) -> None:
        if connection.owner is not None:
            connection.owner.deliver(
                Event(
                    kind,
                    connection.number,
                    connection.peer,
                    connection.listener,
                    status,
                    connection.service_id,
                    message,
                )
            )

    # messages that are made here

    def _send_rejection(self, connection: Connection, reason: int) -> None:
        ari = self._ca_guid.to_bytes(8, "big") if reason == m.REJ_TIMEOUT else b""
        rej = endings.rejection(connection, reason, ari)
        self.counters["rejected"] += 1
        self._send_message(
            rej.changed(message_rejected=m.OF_NONE), connection.transaction_id, connection.peer
        )

    def _reject_message(
        self, rejected: int, remote: int, reason: int, transaction_id: int, to: Address, local: int = 0
    ) -> None:
        self.counters["rejected"] += 1
        self._send_message(m.Rej(local, remote, rejected, reason=reason), transaction_id, to)

    def _send_message(self, message: m.Message, transaction_id: int, to: Address) -> None:
        self._transmit(encoded(message, transaction_id), to)

    def _transmit(self, data: bytes, to: Address) -> None:
        self.counters["sent"] += 1
        self._send(data, to)  # what has no room is lost, as on the way

    def _next_transaction_id(self) -> int:
        self._transaction_id = self._transaction_id + 1 & (1 << 64) - 1
        return self._transaction_id

    # tables

    def _remember_peer(self, connection: Connection) -> None:
        guid = connection.remote_ca_guid
        self._by_remote[connection.place, guid, connection.remote_comm_id] = connection
        self._by_end[connection.place, guid, connection.remote_end] = connection

    def _forget_peer(self, connection: Connection) -> None:
        guid = connection.remote_ca_guid
        by_id = connection.place, guid, connection.remote_comm_id
        by_end = connection.place, guid, connection.remote_end
        if self._by_local.get(connection.local_end) is connection:
            del self._by_local[connection.local_end]
        if self._by_remote.get(by_id) is connection:
            del self._by_remote[by_id]
        if self._by_end.get(by_end) is connection:
            del self._by_end[by_end]

    def _forget(self, connection: Connection) -> None:
        self._abandoned.remove(connection)
        self._tables.remove(connection)
        self._timers.stop(connection)
