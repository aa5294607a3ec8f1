"""One end of a connection, or of a datagram service: its attributes, its state, its flow and its counters.

What sends and receives knows this of its owner, and nothing of queues: these are behind a source of requests
(`sending`) and a sink of messages (`receiving`).  A queue pair is one (`context`), an
end-to-end context of reliable datagrams another (`ee_context`).
"""

from __future__ import annotations

from errno import EINVAL
from typing import TYPE_CHECKING, Any

import cython

from softhca.queues.control_fields import (
    EVENT_COMM_EST,
    EVENT_PATH_MIG,
    EVENT_PATH_MIG_ERR,
    EVENT_SQ_DRAINED,
)
from softhca.transport import migration
from softhca.transport.counters import TransportCounters
from softhca.transport.dormant import DormantReceiver, DormantSender
from softhca.transport.observation import (
    DESTROYED,
    MESSAGE_DROPPED,
    MODIFIED,
    PACKET_DROPPED,
    PATH_MIGRATED,
    STATE_CHANGED,
)
from softhca.transport.pacing import FramePacing, PacketPacing
from softhca.transport.states import ERR, FRAMES, NAMES, RESET, RTR, RTS, SQD, check, check_values

if TYPE_CHECKING:
    from softhca.transport.engines import ReceiveEngine, SendEngine
    from softhca.transport.environment import Environment
    from softhca.transport.migration import AlternatePath
    from softhca.transport.queue_pair_flow import QueuePairFlow
    from softhca.transport.services import Service
    from softhca.transport.window import DestinationWindow
    from softhca.wire.route import Route

_RESET = cython.declare(cython.int, RESET)

# ibv_qp_attr's numbers and the attributes here that bear them
_NUMBERS: dict[str, str] = {
    "pkey_index": "pkey_index",
    "port_num": "port_number",
    "qkey": "qkey",
    "qp_access_flags": "access",
    "dest_qp_num": "dest_qp",
    "rq_psn": "rq_psn",
    "sq_psn": "sq_psn",
    "max_rd_atomic": "max_rd_atomic",
    "max_dest_rd_atomic": "max_dest_rd_atomic",
    "min_rnr_timer": "min_rnr_timer",
    "timeout": "timeout",
    "retry_cnt": "retry_count",
    "rnr_retry": "rnr_retry",
    "rate_limit": "rate_limit_kbps",
}
# what `query` gives by itself
_DERIVED = frozenset(_NUMBERS) | {
    "cur_qp_state", "path_mtu", "en_sqd_async_notify", "path_mig_state", "max_burst_sz", "typical_pkt_sz",
}  # fmt: skip


class Connection:
    """The attributes are those of ``ibv_qp_attr``; ``number`` names it to packets and to readers.

    ``row``: its service (`services.Service`); ``connected``: that has one peer; ``tells_losses``: a UC
    responder reports EVENT_MESSAGES_LOST (o9-131).  ``instance``: which connection between the two end nodes
    this is, 1 … 127, in every packet, and packets with another one are stale; 0: neither.
    ``migration``: its state of path migration, ``alternate`` the path that is not in use (`migration`).
    ``flow`` has its route, its window and its turns.
    The adapter's are, where it has one peer, ``source``, what is known of where its packets come from, and
    ``source_port``, the UDP port with which its peer began (0: not yet, or it does not matter).
    """

    port_number: int
    pkey: int
    pkey_index: int
    qkey: int
    access: int
    path_mtu_bytes: int
    rq_psn: int
    sq_psn: int
    max_rd_atomic: int
    max_dest_rd_atomic: int
    min_rnr_timer: int
    timeout: int
    retry_count: int
    rnr_retry: int
    rate_limit_kbps: int
    instance: int
    migration: int
    alternate: AlternatePath | None
    flow: QueuePairFlow
    source: Any
    source_port: int
    attributes: dict[str, Any]
    requester: SendEngine
    responder: ReceiveEngine

    dest_qp: int

    def __init__(self, environment: Environment, number: int, row: Service, pd: int) -> None:
        self.environment = environment
        self.number = number
        self.row = row
        self.service = row.number
        self.connected = row.connected
        self.pd = pd
        self.tells_losses = False
        self.state = RESET
        self.instance = 0
        self.counters = TransportCounters()
        self.draining = False
        self.notify_drained = False
        self.established = False

    def open(self) -> None:
        """Make the flow, and places for the engines; at the end of the making."""
        self.flow = self.row.flow(self)
        self._defaults()
        self.requester = DormantSender(self)
        self.responder = DormantReceiver(self)

    def has_requests(self) -> bool:
        """Whether there is a request to send, or what holds them is broken."""
        return False

    def has_receives(self) -> bool:
        """The same of receives."""
        return False

    def flush(self) -> None:
        """Complete as flushed what the state says."""

    def _defaults(self) -> None:
        """Attributes as they are in RESET."""
        self.state = RESET
        for name in _NUMBERS.values():
            setattr(self, name, 0)
        self.port_number = 1
        self.pkey = 0xFFFF
        self.path_mtu_bytes = 4096
        self.source = None
        self.source_port = 0
        self.instance = 0
        self.migration = migration.MIGRATED
        self.alternate = None
        self.attributes = {}
        self.draining = False
        self.notify_drained = False
        self.established = False
        self.flow.clear()

    def send_engine(self) -> SendEngine:
        """The engine that sends for the service; made, with the attributes as they are, if only its place is
        held so far."""
        if isinstance(self.requester, DormantSender):
            self.requester = self.row.sender(self)
            self.requester.begin(self.sq_psn)
            if self.state in (RTS, SQD):
                self.requester.start(0)
        return self.requester

    def receive_engine(self) -> ReceiveEngine:
        """The engine that receives for the service, likewise."""
        if isinstance(self.responder, DormantReceiver):
            self.responder = self.row.receiver(self)
            self.responder.begin(self.rq_psn)
            if self.state in (RTR, RTS, SQD):
                self.responder.start(0)
        return self.responder

    def modify(
        self, attributes: dict[str, Any], now: int = 0, route: Route | None = None,
        window: DestinationWindow | None = None, pkey: int | None = None,
        alternate: AlternatePath | None = None,
    ) -> int:
        """Change attributes and state as ``ibv_modify_qp`` does; 0 or EINVAL, and then nothing has changed.

        ``attributes`` maps ``ibv_qp_attr`` names to values, with ``qp_state`` where the state is to
        change.  What the adapter has resolved comes apart: ``route`` for ``ah_attr`` (with its ``window``,
        or the environment's window for that route), ``pkey`` for ``pkey_index``, ``alternate`` for
        ``alt_ah_attr``.  What of path migration may be asked for is the adapter's to check.
        """
        target = attributes.get("qp_state", self.state)
        given = {name: value for name, value in attributes.items() if name != "qp_state"}
        if (
            not isinstance(target, int)
            or check(self.row.rules, self.state, target, given)
            or check_values(given)
        ):
            return EINVAL
        if "ah_attr" in given and route is None:
            return EINVAL
        if given.get("cur_qp_state", self.state) != self.state:
            return EINVAL
        for name, value in given.items():
            if name in _NUMBERS:
                setattr(self, _NUMBERS[name], value)
        self.attributes.update({name: value for name, value in given.items() if name not in _DERIVED})
        if "path_mtu" in given:
            self.path_mtu_bytes = 128 << given["path_mtu"]
        if pkey is not None:
            self.pkey = pkey
        if "ah_attr" in given:
            self._new_path(route, self.environment.window_for(route) if window is None else window)
            self.flow.service_level = given["ah_attr"].get("sl", 0)
        if "rate_limit" in given:
            self._pace(given.get("max_burst_sz", 0))
        if "sq_psn" in given:
            self.requester.begin(self.sq_psn)
        if "rq_psn" in given:
            self.responder.begin(self.rq_psn)
        if alternate is not None:
            self.alternate = alternate
        self._enter(target, given, now)
        if target != RESET and "path_mig_state" in given:
            wanted = given["path_mig_state"]
            self.migrate(migration.REARM if wanted == migration.REARMED else migration.MOVE, now)
        if self.environment.same_host is not None:
            self.environment.same_host.publish(self)
        return 0

    def _new_path(self, route: Route, window: DestinationWindow) -> None:
        """The connection goes along ``route`` from now on; the old window gets back what is in flight."""
        if self.flow.window is not window:
            self.requester.leave_window()
        self.flow.route = route
        self.flow.window = window
        self.flow.control_by(self.environment.control_for(self, route))
        self.source = None
        self.source_port = 0

    def _pace(self, max_burst_bytes: int) -> None:
        """What is sent keeps to the limit from now on, or to none."""
        kind = FramePacing if self.service == FRAMES else PacketPacing
        self.flow.pace_by(kind(self.rate_limit_kbps, max_burst_bytes) if self.rate_limit_kbps else None)

    def establish(self) -> None:
        """In RTR: the peer has sent something, so the connection is there."""
        self.established = True
        self.raise_event(EVENT_COMM_EST)
        if self.environment.same_host is not None:
            self.environment.same_host.publish(self)

    def migrate(self, event: str, now: int) -> bool:
        """Something has happened to the path (an input of `migration.TABLE`): take the step that the table
        has for it, if there is one; whether the path is another one now."""
        row = migration.TABLE.get((self.migration, event))
        if row is None:
            return False
        if row[1] == migration.MIGRATE and not self._take_alternate(now):
            return False
        self.migration = row[0]
        if row[1] != migration.NOTHING and self.row.acknowledged:
            self.receive_engine().announce()
        if row[1] != migration.MIGRATE:
            return False
        self.requester.path_changed(now)
        if self.environment.same_host is not None:
            self.environment.same_host.publish(self)
        self.observe(PATH_MIGRATED, -1, event)
        self.raise_event(EVENT_PATH_MIG)
        return True

    def _take_alternate(self, now: int) -> bool:
        """Go along the alternate path from now on; False: its port carries nothing."""
        path = self.alternate
        if path is None:
            return False
        if not self.environment.port_usable(path.port_number):
            self.raise_event(EVENT_PATH_MIG_ERR)
            return False
        self._new_path(path.route, self.environment.window_for(path.route))
        self.alternate = None
        self.flow.port_number = self.port_number = path.port_number
        self.flow.service_level = path.vector.get("sl", 0)
        self.pkey, self.pkey_index, self.timeout = path.pkey, path.pkey_index, path.timeout
        self.attributes["ah_attr"] = path.vector
        self.attributes.pop("alt_ah_attr", None)
        return True

    def _enter(self, target: int, given: dict[str, Any], now: int) -> None:
        """The modify is allowed: do what entering ``target`` means."""
        before = self.state
        if target == RESET:
            self.requester.reset()
            self.responder.reset()
            self.move(RESET, MODIFIED)
            self._defaults()
            return
        if target == ERR:
            self.fail(-1, MODIFIED)
            return
        self.move(target, MODIFIED)
        if target == SQD:
            if before == RTS:
                self.draining = True
                self.notify_drained = bool(given.get("en_sqd_async_notify", 0))
                if self.requester.drained():
                    self.drained()
        else:
            self.draining = False
        if target in (RTR, RTS, SQD):
            self.responder.start(now)
        if target in (RTS, SQD):
            self.requester.start(now)

    def query(self) -> dict[str, Any]:
        """Attributes by their ``ibv_qp_attr`` names, as numbers; ``ah_attr`` and the like as they were
        given."""
        result = dict(self.attributes)
        for name, mine in _NUMBERS.items():
            result[name] = getattr(self, mine)
        result["qp_state"] = result["cur_qp_state"] = self.state
        result["path_mig_state"] = self.migration
        if self.alternate is not None:
            result["alt_port_num"] = self.alternate.port_number
            result["alt_pkey_index"] = self.alternate.pkey_index
            result["alt_timeout"] = self.alternate.timeout
        result["path_mtu"] = max(1, (self.path_mtu_bytes // 128).bit_length() - 1)
        result["sq_draining"] = int(self.draining)
        result["en_sqd_async_notify"] = int(self.notify_drained)
        return result

    def close(self) -> None:
        """It is destroyed: it leaves the window and forgets everything, without completions."""
        self.requester.reset()
        self.responder.reset()
        self.flow.closed = True
        self.source = None
        self.move(_RESET, DESTROYED)

    def heard(self) -> tuple[int, int]:
        """How far the peer has brought this connection: the PSN expected next and the first one unanswered.

        It moves with the first packet of the peer that fits.
        """
        expected, unanswered = self.rq_psn, self.sq_psn
        if not isinstance(self.responder, DormantReceiver):
            expected = self.responder.epsn
        if self.row.acknowledged and not isinstance(self.requester, DormantSender):
            unanswered = self.requester.una_psn
        return expected, unanswered

    def move(self, target: int, reason: str) -> None:
        """Take the state ``target``."""
        before: cython.int = self.state
        self.state = target
        if self.environment.same_host is not None:
            self.environment.same_host.publish(self)
        if self.environment.observer is not None and before != target:
            states = f"{NAMES[before]}>{NAMES[target]}"
            self.environment.observer(STATE_CHANGED, self.known_by(), -1, states, reason)

    def count_sent(self, packets: int, length_bytes: int) -> None:
        """A burst is written."""
        self.counters.packets_sent += packets
        self.counters.bytes_sent += length_bytes
        self.environment.counters.packets_sent += packets
        self.environment.counters.bytes_sent += length_bytes

    def count(self, name: str) -> None:
        """One more of the counter ``name``, here and in the adapter's counters."""
        setattr(self.counters, name, getattr(self.counters, name) + 1)
        setattr(self.environment.counters, name, getattr(self.environment.counters, name) + 1)

    def drop(self, name: str, psn: int) -> None:
        """The packet ``psn`` is ignored; ``name`` is the counter's."""
        self.count(name)
        self.observe(PACKET_DROPPED if self.connected else MESSAGE_DROPPED, psn, name[6:])

    def observe(self, event: str, psn: int = -1, reason: str = "", value: int = -1) -> None:
        """Tell the observer, if there is one; ``value`` ≥ 0 is a number behind the reason."""
        if self.environment.observer is not None:
            if value >= 0:
                reason = f"{reason} {value}"
            self.environment.observer(event, self.known_by(), psn, NAMES[self.state], reason)

    def known_by(self) -> int:
        """The number by which an observer knows it."""
        return self.number

    def fail(self, event: int = -1, reason: str = "") -> None:
        """To the error state; ``event`` ≥ 0 is reported."""
        raise NotImplementedError

    def drained(self) -> None:
        """SQD: nothing begun is unfinished any more."""
        self.draining = False
        if self.notify_drained:
            self.notify_drained = False
            self.raise_event(EVENT_SQ_DRAINED)

    def raise_event(self, event: int) -> None:
        """Report an asynchronous event of this element."""
        self.environment.event(event, self.number)
