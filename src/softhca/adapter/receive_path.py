"""The receive path: from packets of a link to the flows that they are for.

Each packet passes the checks that need no state of the transport, in the order of its framing: RoCE packets
are looked up before their ICRC is read, so that a flood of packets for nobody costs little; native packets
take the order of the standard (IBTA vol. 1, 9.6.1).  What fails a check is dropped and counted by reason.
"""

from __future__ import annotations

import cython

from softhca.adapter.admission import admitted, expects, from_peer, receives
from softhca.adapter.config import MULTICAST_QPN
from softhca.adapter.keyed import KeyedConnections
from softhca.adapter.multicast import MulticastGroups
from softhca.adapter.port import Port, pkeys_match
from softhca.adapter.raw_services import RawServices
from softhca.management.constants import GENERAL_QPN
from softhca.transport.connection import Connection
from softhca.transport.context import QueuePair
from softhca.transport.environment import Environment
from softhca.transport.flow import Flow
from softhca.transport.notification import NOTIFICATION_BYTES
from softhca.transport.observation import PACKET_DROPPED, addressed
from softhca.transport.services import BY_QP, dispatch_keys
from softhca.wire import drops
from softhca.wire.bth import DEST_QP
from softhca.wire.burst import Arrival
from softhca.wire.ip import MARKED
from softhca.wire.link_view import LinkView
from softhca.wire.opcodes import CONGESTION
from softhca.wire.packet_view import PacketView
from softhca.wire.raw import RawView

__all__ = ["ReceivePath"]

_UD = cython.declare(cython.int, 3)
_CONGESTION = cython.declare(cython.int, CONGESTION)
_MARKED = cython.declare(cython.uint, MARKED)
_NOTIFICATION_BYTES = cython.declare(cython.uint, NOTIFICATION_BYTES)
_MULTICAST_QPN = cython.declare(cython.uint, MULTICAST_QPN)
_DESTINATION = cython.declare(cython.int, drops.DROP_DESTINATION)
_LENGTH = cython.declare(cython.int, drops.DROP_LENGTH)
_PKEY = cython.declare(cython.int, drops.DROP_PKEY)
_RAW = cython.declare(cython.int, drops.DROP_RAW)
_SERVICE = cython.declare(cython.int, drops.DROP_SERVICE)
_SOURCE = cython.declare(cython.int, drops.DROP_SOURCE)
_STATE = cython.declare(cython.int, drops.DROP_STATE)
_TRUNCATED = cython.declare(cython.int, drops.DROP_TRUNCATED)
_UNKNOWN_QP = cython.declare(cython.int, drops.DROP_UNKNOWN_QP)
_NATIVE = cython.declare(cython.int, 0)
_GENERAL_QPN = cython.declare(cython.uint, GENERAL_QPN)
_LEAST_BYTES = cython.declare(cython.uint, 16)
_DEST_QP = cython.declare(cython.uint, DEST_QP)
_BY_QP = cython.declare(cython.int, BY_QP)


class ReceivePath:
    """Finds whose each packet is, checks it, and hands it to that flow.

    Queue pairs are those of ``environment``; ``keyed`` are found by another header than BTH, ``groups`` and
    ``raw_services`` are the adapter's.  ``strict_source_port``: see `AdapterConfig`.
    """

    def __init__(
        self, environment: Environment, keyed: KeyedConnections, groups: MulticastGroups,
        raw_services: RawServices, strict_source_port: bool,
    ) -> None:  # fmt: skip
        self.environment = environment
        self.queue_pairs = environment.queue_pairs
        self.keyed = keyed
        self.groups = groups
        self.raw_services = raw_services
        self.strict_source_port = strict_source_port
        self._at: Port = None
        self._last: QueuePair = None
        self._marked = False
        self._keys = dispatch_keys()
        self._view = PacketView()
        self._link = LinkView()
        self._raw = RawView()

    def receive(self, port: Port, arrival: Arrival, now: int) -> None:
        """Take a run of packets from the link of a port."""
        counters = port.counters
        offset: cython.uint = 0
        n: cython.uint
        reason: cython.int
        length: cython.uint = arrival.length
        stride: cython.uint = arrival.stride
        native: cython.bint = arrival.framing == _NATIVE
        known: cython.bint = False
        local: cython.bint = True
        self._at = port
        self._marked = not native and arrival.traffic_class & _MARKED == _MARKED
        if length > arrival.capacity:
            length = arrival.capacity
        if stride == 0 or stride > length:
            stride = length
        if not native and not port.native:
            known = port.sources.aim(arrival)
            local = arrival.destination in port.gids
        counters.bursts_received += 1
        while offset < length:
            n = length - offset if length - offset < stride else stride
            if known:
                reason = self._packet(arrival, offset, n, local, now)
            elif native and port.native:
                reason = self._native_packet(arrival, offset, n, now)
            else:
                reason = _SOURCE
            if reason == 0:
                counters.packets_received += 1
                counters.bytes_received += n
            else:
                counters.drop(reason)
                if self.environment.observer is not None:
                    self._dropped(reason, arrival, offset, n)
            offset += n

    def _packet(self, arrival: Arrival, offset: int, n: int, local: bool, now: int) -> int:
        """One RoCE packet: every check that does not need the transport's state, then the transport; 0 or a
        drop reason.

        For whom it is and from where comes first, and takes two look-ups; only what a queue pair here may
        take is worth its ICRC.
        """
        view: PacketView = self._view
        queue_pair: Connection
        number: cython.uint
        o: cython.Py_ssize_t
        reason: cython.int
        if n < _LEAST_BYTES:
            return _TRUNCATED
        if n & 3:
            return _LENGTH
        o = offset + _DEST_QP
        number = arrival.data[o]
        number = number << 16 | arrival.data[o + 1] << 8 | arrival.data[o + 2]
        queue_pair = self._at_port(number)
        if self._keys[arrival.data[offset] >> 5] != _BY_QP and view.decode(arrival.data, offset, n) == 0:
            queue_pair = self._named(view)
        if queue_pair is None:
            if number == _GENERAL_QPN and local:
                return self._manage_roce(arrival, offset, n, now)
            if number != _MULTICAST_QPN or not self.groups.heard(arrival.destination):
                return self._refused(None, arrival, offset, n, local)
        elif (
            not local
            or not receives(queue_pair)
            or not from_peer(queue_pair, arrival, self._link, self._at.number)
        ):
            return self._refused(queue_pair, arrival, offset, n, local)
        reason = 0
        if arrival.has_icrc:
            reason = self._at.sources.check(
                queue_pair if queue_pair is not None and queue_pair.connected else None,
                arrival.address + offset,
                n,
                now,
            )
        if reason == 0:
            reason = view.decode(arrival.data, offset, n)
        if reason:
            return reason
        if queue_pair is None:
            return self._multicast(arrival, now)
        if view.service == _CONGESTION:
            return self._notified(queue_pair, n, now)
        if queue_pair.service != view.service:
            return _SERVICE
        if not pkeys_match(queue_pair.pkey, view.pkey):
            return _PKEY
        if self.strict_source_port and queue_pair.source_port == 0 and queue_pair.connected:
            return self._begin(queue_pair, arrival, now)
        queue_pair.flow.receive(view, arrival, now)
        if self._marked and queue_pair.flow.control is not None:
            self._marked = False  # once for a run of packets, which have all the same mark
            queue_pair.flow.marked(now)
        return 0

    def _notified(self, queue_pair: Connection, n: int, now: int) -> int:
        """A sound CNP from the peer of a queue pair (IBTA A17.9.3); 0 or a drop reason."""
        if queue_pair.flow.control is None:
            return _SERVICE
        if n != _NOTIFICATION_BYTES:
            return _LENGTH
        if not pkeys_match(queue_pair.pkey, self._view.pkey):
            return _PKEY
        queue_pair.flow.receive_notification(now)
        return 0

    def _at_port(self, number: int) -> Connection:
        """The queue pair with this number, if it lives on the port whose packets are looked at; else None.

        Many packets in a row are for one: it is looked for again when it is another one's turn, or it is
        closed, since its number may be another one's then.
        """
        queue_pair: QueuePair = self._last
        if queue_pair is None or queue_pair.number != number or queue_pair.flow.closed:
            queue_pair = self._last = self.queue_pairs.get(number)
        if (
            queue_pair is not None
            and queue_pair.flow.port_number != self._at.number
            and not expects(queue_pair, self._at.number)
        ):
            return None
        return queue_pair

    def _named(self, view: PacketView) -> Connection:
        """The queue pair for which a decoded packet is, by the dispatch key of its service; else None."""
        key: cython.int = self._keys[view.service]
        if key == _BY_QP:
            return self._at_port(view.dest_qp)
        return self.keyed.named(view, key, self._at.number)

    def _refused(self, queue_pair: Connection, arrival: Arrival, offset: int, n: int, local: bool) -> int:
        """Why a RoCE packet that nobody here may take is dropped, were it sound: its ICRC is not read."""
        view: PacketView = self._view
        reason: cython.int = view.decode(arrival.data, offset, n)
        if reason:
            return reason
        if view.dest_qp == _MULTICAST_QPN:
            return _UNKNOWN_QP if view.service == _UD else _SERVICE
        if not local:
            return _DESTINATION
        return admitted(queue_pair, arrival, self._view, self._link, self._at.number)

    def _begin(self, queue_pair: Connection, arrival: Arrival, now: int) -> int:
        """A packet for a connection whose peer has not yet shown from which port it sends: 0.  The peer is
        who sends a packet that fits; anybody else would have to know the PSN too."""
        before = queue_pair.heard()
        queue_pair.flow.receive(self._view, arrival, now)
        if queue_pair.heard() != before:
            queue_pair.source_port = arrival.source_port
        return 0

    def _manage_roce(self, arrival: Arrival, offset: int, n: int, now: int) -> int:
        """A RoCE packet for queue pair 1; 0 or a drop reason."""
        reason: cython.int = 0
        if arrival.has_icrc:
            reason = self._at.sources.check(None, arrival.address + offset, n, now)
        if reason == 0:
            reason = self._view.decode(arrival.data, offset, n)
        return reason if reason else self._manage(arrival, now)

    def _manage(self, arrival: Arrival, now: int) -> int:
        """A sound packet for queue pair 0 or 1 of the port; 0 or a drop reason.  Queue pair 1 takes every
        P_Key of the port's table (C10-123), queue pair 0 has none."""
        view: PacketView = self._view
        flow: Flow = self._at.management[view.dest_qp]
        if flow is None:
            return _UNKNOWN_QP
        if view.service != _UD:
            return _SERVICE
        if view.dest_qp and not any([pkeys_match(pkey, view.pkey) for pkey in self._at.pkeys]):
            return _PKEY
        flow.receive(view, arrival, now)
        return 0

    def _native_packet(self, arrival: Arrival, offset: int, n: int, now: int) -> int:
        """One native packet, LRH … VCRC: the same, in the standard's order (IBTA vol. 1, 9.6.1)."""
        link: LinkView = self._link
        reason: cython.int = link.decode(arrival.data, offset, n)
        if reason == 0:
            reason = self._at.admit(link)
        if reason == 0:
            reason = link.check_global(arrival.data)
        if reason == 0:
            reason = self._at.admit_global(link)
        if reason == 0:
            reason = link.check_icrc(arrival.data, arrival.address)
        if reason == 0:
            reason = self._view.decode(arrival.data, link.transport, link.transport_bytes)
        if reason:
            return self._raw_packet(arrival, offset, now) if reason == _RAW else reason
        arrival.source = link.source
        arrival.destination = link.destination
        arrival.grh = link.grh
        arrival.slid = link.slid
        arrival.sl = link.sl
        arrival.path_bits = self._at.path_bits(link.dlid)
        return self._dispatch(arrival, now)

    def _raw_packet(self, arrival: Arrival, offset: int, now: int) -> int:
        """A raw packet (9.8.4), whose LRH and VCRC are sound: to the queue pair of its service; 0 or a drop
        reason."""
        view: RawView = self._raw
        queue_pair: QueuePair
        reason: cython.int = self._at.admit_raw(self._link)
        if reason == 0:
            reason = view.decode(arrival.data, offset, self._link.packet_bytes)
        if reason:
            return reason
        queue_pair = self.raw_services.receiver(view.service)
        if queue_pair is None or queue_pair.flow.port_number != self._at.number:
            return _RAW
        if not receives(queue_pair):
            return _STATE
        arrival.slid = self._link.slid
        arrival.sl = self._link.sl
        arrival.path_bits = self._at.path_bits(self._link.dlid)
        queue_pair.flow.receive_raw(view, arrival, now)
        return 0

    def _dispatch(self, arrival: Arrival, now: int) -> int:
        """A sound native packet of this port: to its queue pairs; 0 or why it is dropped."""
        view: PacketView = self._view
        queue_pair: Connection
        reason: cython.int
        if view.dest_qp == _MULTICAST_QPN:
            return self._multicast(arrival, now)
        if view.dest_qp <= _GENERAL_QPN:
            return self._manage(arrival, now)
        queue_pair = self._named(view)
        reason = admitted(queue_pair, arrival, self._view, self._link, self._at.number)
        if reason == 0:
            queue_pair.flow.receive(view, arrival, now)
        return reason

    def _dropped(self, reason: int, arrival: Arrival, offset: int, n: int) -> None:
        """Tell the observer of a packet dropped here; queue pair and PSN as they stand in it, if they do."""
        packet = bytes(arrival.buffer[offset : offset + n])
        observer = self.environment.observer
        observer(PACKET_DROPPED, *addressed(packet, arrival.framing), "", drops.NAMES[reason])

    def _multicast(self, arrival: Arrival, now: int) -> int:
        """Copies of a datagram for the queue pairs of its group, but not for the one that sent it
        (C10-58); 0 when one of them got its copy, or nobody else is in the group.
        """
        view: PacketView = self._view
        queue_pair: QueuePair
        reason: cython.int = _UNKNOWN_QP
        taken: cython.bint = False
        own: cython.bint = arrival.source in self._at.gids
        if view.service != _UD:
            return _SERVICE
        for queue_pair in self.groups.members(arrival.destination):
            if queue_pair.flow.port_number != self._at.number:
                continue
            if own and queue_pair.number == view.source_qp:
                taken = True
                continue
            if not receives(queue_pair):
                reason = _STATE
            elif not pkeys_match(queue_pair.pkey, view.pkey):
                reason = _PKEY
            else:
                self._at.counters.multicast_copies += 1
                queue_pair.flow.receive(view, arrival, now)
                taken = True
        return 0 if taken else reason
