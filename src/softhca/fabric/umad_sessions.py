"""The simulator protocol of libumad2sim, by which unmodified programs of libibumad meet a fabric: datagrams
of 80 bytes on a control socket, of 288 bytes on a socket for each program (docs/fabric.md).

Nothing here knows a socket: `UmadSessions` takes datagrams and gives some back.  All of them are hostile.
Programs are in the machine's byte order (little endian) where the protocol is not the network's.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Hashable
from typing import NamedTuple

from softhca.fabric.mad_plane import ANSWERED, DELIVERED, Datagram, Endpoint, MadPlane
from softhca.fabric.notices import NEVER_NS
from softhca.fabric.port_state import PortState
from softhca.fabric.topology import End, Topology
from softhca.fabric.umad_names import MOST_SESSIONS
from softhca.fabric.umad_requests import UnansweredRequests
from softhca.management import constants as c
from softhca.management import rmpp
from softhca.management.administration_attributes import AdministrationHeader

MOST_WAITING = 1024
"""Datagrams that wait until a program reads; what comes then is dropped and counted."""

CONTROL = struct.Struct("<IIII64s")
MAGIC = 0xDEADBEEF
ERROR, CONNECT, DISCONNECT, GET_PORT, GET_VENDOR, GET_GID, GET_GUID, GET_NODEINFO, GET_PORTINFO = range(9)
SET_IS_SM, GET_PKEYS = 9, 10
_CONNECT = struct.Struct("<III32s")
_VENDOR = struct.Struct("<III4xQ")
_PORT = struct.Struct("<HB")
NAME_BYTES = 32

PACKET = struct.Struct(">H2xH2xIII4xQ256s")
"""LIDs (each in four bytes), queue pairs, status, length, the MAD."""
TIMED_OUT = 110
"""ETIMEDOUT: the status of a request that comes back because nobody will answer."""

SHOWN_BYTES = 168
"""Of subnet administration's data in a datagram the library gives its program so many bytes intact."""

COUNTERS = ("control", "control_bad", "packets", "packets_bad", "timed_out", "drops_full")


class Control(NamedTuple):
    """A control datagram: who asks, what, and its data."""

    session: int
    kind: int
    length: int
    data: bytes


class Session:
    """A program that is attached to a port.  ``outgoing`` waits to be read by it; ``peer_id`` is what it
    named itself by: its process ID or its UDP port; ``requests`` are those that other programs have."""

    def __init__(self, number: int, origin: Hashable, peer_id: int) -> None:
        self.number = number
        self.origin = origin
        self.peer_id = peer_id
        self.outgoing: deque[bytes] = deque()
        self.requests = UnansweredRequests()
        self.endpoint: Endpoint


class UmadSessions:
    """The programs at ``plane``.  ``ready`` are sessions that have something outgoing, ``opened`` and
    ``closed`` those of which the socket must be made or closed; the caller empties these three."""

    def __init__(self, plane: MadPlane) -> None:
        self.plane = plane
        self.counters = dict.fromkeys(COUNTERS, 0)
        self.sessions: dict[int, Session] = {}
        self.ready: set[Session] = set()
        self.opened: list[Session] = []
        self.closed: list[Session] = []
        self._now = 0
        self._reached: Session | None = None
        self._sender: Session | None = None

    # control

    def control(self, data: bytes, origin: Hashable, now: int) -> bytes | None:
        """A control datagram has come from ``origin``: the reply.  None: it is none."""
        if len(data) != CONTROL.size:
            self.counters["control_bad"] += 1
            return None
        magic, *fields = CONTROL.unpack(data)
        request = Control(*fields)
        if magic != MAGIC:
            self.counters["control_bad"] += 1
            return None
        self.counters["control"] += 1
        if request.kind == CONNECT:
            answer = self._connect(request, origin)
        else:
            session = self.sessions.get(request.session)
            known = session is not None and session.origin == origin
            answer = self._answer(session, request, now) if known and session is not None else None
        if answer is None:
            self.counters["control_bad"] += 1
            return CONTROL.pack(MAGIC, request.session, ERROR, 0, bytes(64))
        return CONTROL.pack(MAGIC, request.session, request.kind, request.length, answer.ljust(64, b"\0"))

    def _connect(self, request: Control, origin: Hashable) -> bytes | None:
        peer_id, _, _, name = _CONNECT.unpack_from(request.data)
        end = attachment(self.plane.topology, name.split(b"\0")[0].decode("ascii", "replace"))
        number = next((each for each in range(MOST_SESSIONS) if each not in self.sessions), None)
        if end is None or number is None:
            return None
        session = Session(number, origin, peer_id)

        session.endpoint = self.plane.attach(end, lambda datagram: self._deliver(session, datagram))
        self.sessions[number] = session
        self.opened.append(session)
        said = self.plane.topology.nodes[end.node].name.encode()[: NAME_BYTES - 1]
        return _CONNECT.pack(number, 0, 0, said)

    def disconnect(self, session: Session, now: int) -> None:
        """A program has gone."""
        if self.sessions.pop(session.number, None) is not None:
            self.plane.detach(session.endpoint, now)
            self.ready.discard(session)
            self.closed.append(session)
            for each in self.sessions.values():
                self._time_out(each, each.requests.left_by(session))

    def _answer(self, session: Session, request: Control, now: int) -> bytes | None:
        port, node = session.endpoint.port, session.endpoint.node
        if request.kind == DISCONNECT:
            self.disconnect(session, now)
            return b""
        if request.kind == GET_PORT:
            return _PORT.pack(port.info.lid, port.state)
        if request.kind == GET_VENDOR:
            return _VENDOR.pack(node.node.vendor_id, node.node.device_id, 0, 0)
        guid = node.node.port_guid(port.number).to_bytes(8, "big")
        if request.kind == GET_GID:
            return port.info.gid_prefix.to_bytes(8, "big") + guid
        if request.kind == GET_GUID:
            return guid
        if request.kind == GET_NODEINFO:
            return node.info(port.number)
        if request.kind == GET_PORTINFO:
            asked = node.port(request.data[0]) if request.data[0] else port
            return None if asked is None else asked.encoded
        if request.kind == SET_IS_SM:
            self.plane.set_manager(session.endpoint, request.data[:4] != bytes(4), now)
            return b""
        if request.kind == GET_PKEYS:
            return port.pkey_block(0)
        return None

    # datagrams

    def receive(self, session: Session, data: bytes, now: int) -> None:
        """A program has sent a datagram.  A request that nobody will answer comes back with `TIMED_OUT`: at
        once where nobody has it, else when the program that has it goes or takes too long."""
        if len(data) != PACKET.size or data[32] != c.BASE_VERSION:
            self.counters["packets_bad"] += 1
            return
        self.counters["packets"] += 1
        self._now = now
        dlid, slid, dqpn, sqpn, _, length, mad = PACKET.unpack(data)
        own = session.endpoint.port.info.lid
        datagram = Datagram(dlid, slid or own, dqpn, sqpn, mad)
        datagram = datagram._replace(length_bytes=min(length, c.MAD_BYTES))
        self._reached, self._sender = None, session
        fate = self.plane.send(session.endpoint, datagram, now)
        self._sender = None
        if fate == ANSWERED or mad[3] & c.RESPONSE or mad[3] in c.UNANSWERED_METHODS:
            return
        if fate != DELIVERED:
            self._time_out(session, [datagram])
            return
        given_up = session.requests.add(datagram, self._reached, now, _place(self._reached))
        if given_up is not None:
            self._time_out(session, [given_up])

    def _deliver(self, session: Session, datagram: Datagram) -> bool:
        """Something has come to a program's port for it; False: it has no room."""
        length = _segment_bytes(datagram.data)
        if length is not None and length > c.MAD_BYTES:
            self._cut_short(session, datagram)
        shown = None if length is None else _shown_bytes(datagram.data, length)
        if not self._put(session, _packet(datagram, 0, shown)):
            return False
        if datagram.data[3] & c.RESPONSE:
            session.requests.answered(datagram.data, _place(self._sender))
        else:
            self._reached = session
        return True

    @property
    def next_deadline_ns(self) -> int:
        """When `expire` has something to do."""
        return min((each.requests.next_deadline_ns for each in self.sessions.values()), default=NEVER_NS)

    def expire(self, now: int) -> None:
        """Give requests back that other programs have had for too long."""
        for session in self.sessions.values():
            self._time_out(session, session.requests.expired(now))

    def _time_out(self, session: Session, requests: list[Datagram]) -> None:
        """Nobody will answer these."""
        for datagram in requests:
            if self._put(session, _packet(datagram, TIMED_OUT)):
                self.counters["timed_out"] += 1

    def _cut_short(self, session: Session, datagram: Datagram) -> None:
        """The library has no RMPP: of a long answer its program gets the first segment, and the sender is
        told to stop."""
        stop = rmpp.stop(datagram.data)
        back = Datagram(datagram.slid, datagram.dlid, datagram.sqpn, datagram.dqpn, stop)
        self.plane.send(session.endpoint, back, self._now)

    def _put(self, session: Session, packet: bytes) -> bool:
        if len(session.outgoing) >= MOST_WAITING:
            self.counters["drops_full"] += 1
            return False
        session.outgoing.append(packet)
        self.ready.add(session)
        return True


def _place(session: Session | None) -> PortState | None:
    """The port of a program: whichever of its LIDs a request names, the answer comes from there."""
    return None if session is None else session.endpoint.port


def _packet(datagram: Datagram, status: int, length: int | None = None) -> bytes:
    """As a program reads it: LIDs and queue pairs are those of the datagram that came."""
    said = datagram.length_bytes if length is None else length
    return PACKET.pack(
        datagram.dlid, datagram.slid, datagram.dqpn, datagram.sqpn, status, said, datagram.data
    )  # fmt: skip


def _segment_bytes(mad: bytes) -> int | None:
    """How many bytes an answer of subnet administration has that begins with this segment, those that its
    program cannot be given too; None: it is no such segment."""
    if not rmpp.is_rmpp(mad) or not mad[3] & c.RESPONSE:
        return None
    said = AdministrationHeader.decode(mad, rmpp.HEADER_AT)
    if (said.rmpp_version, said.rmpp_type, said.segment_number) != (rmpp.VERSION, rmpp.DATA, 1):
        return None
    last = said.rmpp_flags & rmpp.LAST
    return rmpp.DATA_AT - rmpp.HEADER_BYTES + said.payload_length + (0 if last else c.MAD_BYTES)


def _shown_bytes(mad: bytes, length: int) -> int:
    """How many bytes of an answer its program is told of: whole records, as many as the library passes on,
    but one in any case."""
    size = 8 * AdministrationHeader.decode(mad, rmpp.HEADER_AT).attribute_offset
    if length <= rmpp.DATA_AT + SHOWN_BYTES or not size:
        return min(length, c.MAD_BYTES)
    return rmpp.DATA_AT + max(1, SHOWN_BYTES // size) * size


def attachment(topology: Topology, name: str) -> End | None:
    """Where a program attaches that names a node, by its name or description: its first port with a link, a
    switch's port 0.  Without a name: the first node that is no switch.  None: there is no such node."""
    if name:
        found = [each for each, node in enumerate(topology.nodes) if name in (node.name, node.description)]
    else:
        found = list(topology.end_nodes[:1] or topology.switches[:1])
    if not found:
        return None
    node = topology.nodes[found[0]]
    if node.is_switch:
        return End(found[0], 0)
    linked = [port for port in range(1, node.port_count + 1) if topology.peer(found[0], port)]
    return End(found[0], linked[0] if linked else 1)
