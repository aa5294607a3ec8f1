"""The queue pair: identity, attributes, state, the two engines that carry out its service, and its flow.

How an adapter uses it
----------------------
* *Commands*: `modify`, `query`, `close`.  They change everything or, with an errno, nothing.
* *Inputs*: `doorbell` when there are new send work requests (or new receives in the error state); of its
  ``flow`` `receive` for every packet that passed the checks of header, ICRC and P_Key, `expire` when a
  deadline asked by ``environment.arm`` comes, `resume` when memory may be there that it waits for
  (``environment.wait_for_memory``).
* *Outputs*: the flow's `produce` fills an empty burst, or (RC) goes on with one that others along the same
  route have begun; call it when ``environment.schedule`` asked for a turn, and again as long as `has_work`
  says so.  Completions go to the completion queues, events to ``environment.event``.

None of the inputs and outputs raises on anything that comes from the peer or from the rings.
"""

from __future__ import annotations

from errno import EINVAL
from typing import TYPE_CHECKING, Any

import cython

from softhca.queues.control_fields import (
    EVENT_PATH_MIG,
    EVENT_PATH_MIG_ERR,
    EVENT_QP_FATAL,
    EVENT_QP_LAST_WQE_REACHED,
)
from softhca.transport import migration
from softhca.transport.connection import Connection
from softhca.transport.dormant import DormantReceiver, DormantSender
from softhca.transport.observation import (
    COMPLETION_ERROR,
    COMPLETION_LOST,
    DESTROYED,
    MODIFIED,
    PATH_MIGRATED,
    STATE_CHANGED,
)
from softhca.transport.states import (
    BEHAVIOUR,
    ERR,
    NAMES,
    RESET,
    RTR,
    RTS,
    SQD,
    SQE,
    check,
    check_values,
)

if TYPE_CHECKING:
    from softhca.queues.completion import CompletionQueue
    from softhca.queues.ring import RingConsumer
    from softhca.queues.shared_receive import SharedReceiveQueue
    from softhca.transport.engines import ReceiveEngine, SendEngine
    from softhca.transport.environment import Environment
    from softhca.transport.migration import AlternatePath
    from softhca.transport.queue_pair_flow import QueuePairFlow
    from softhca.transport.same_host import SameHostExecutor
    from softhca.transport.services import Service
    from softhca.transport.window import DestinationWindow
    from softhca.transport.xrc import XrcDomain
    from softhca.wire.route import Route

_ERR = cython.declare(cython.int, ERR)
_RESET = cython.declare(cython.int, RESET)
_SQE = cython.declare(cython.int, SQE)
_FLUSH_SEND = cython.declare(tuple, tuple(behaviour.flush_send for behaviour in BEHAVIOUR))
_FLUSH_RECEIVE = cython.declare(tuple, tuple(behaviour.flush_receive for behaviour in BEHAVIOUR))

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
}
# what `query` gives by itself
_DERIVED = frozenset(_NUMBERS) | {"cur_qp_state", "path_mtu", "en_sqd_async_notify", "path_mig_state"}


class QueuePair(Connection):
    """One queue pair of a service, whose row of `services.SERVICES` is ``row``, in RESET.

    ``owner`` is the adapter's own; ``path_mtu_bytes`` of a datagram queue pair is the adapter's to set (its
    port's active MTU).  ``flow`` has its route, its window and its turns.  The adapter's are, of a
    connection, ``source``, what is known of where its packets come from, and ``source_port``, the UDP port
    with which its peer began (0: not yet, or it does not matter).  ``xrc_domain``: of an XRC target, the
    domain whose shared receive queues it serves (`transport.xrc`); an XRC initiator has no ``receive_ring``,
    a target neither ring.  ``alternate``: the path that is not in use (`transport.migration`).  ``executor``:
    None, or who carries requests out without packets
    (`softhca.transport.same_host`).
    """

    source: Any
    source_port: int
    attributes: dict[str, Any]
    flow: QueuePairFlow
    executor: SameHostExecutor | None
    alternate: AlternatePath | None

    def __init__(
        self,
        environment: Environment,
        number: int,
        row: Service,
        pd: int,
        send_ring: RingConsumer | None,
        receive_ring: RingConsumer | None,
        send_cq: CompletionQueue | None,
        receive_cq: CompletionQueue | None,
        shared_receive: SharedReceiveQueue | None = None,
        max_send_wr: int = 0,
        max_recv_wr: int = 0,
        max_send_sge: int = 1,
        max_recv_sge: int = 1,
        max_inline_bytes: int = 0,
        signal_all: bool = False,
        owner: Any = None,
        tells_losses: bool = False,
        xrc_domain: XrcDomain | None = None,
    ) -> None:
        Connection.__init__(self, environment, number, row, pd)
        self.owner = owner
        self.send_ring = send_ring
        self.receive_ring = receive_ring
        self.shared_receive = shared_receive
        self.send_cq = send_cq
        self.receive_cq = receive_cq
        self.max_send_wr = max_send_wr or (0 if send_ring is None else send_ring.layout.entries)
        self.xrc_domain = xrc_domain
        self.max_recv_wr = max_recv_wr
        self.max_send_sge = max_send_sge
        self.max_recv_sge = max_recv_sge
        self.max_inline_bytes = max_inline_bytes
        self.signal_all = signal_all
        self.tells_losses = tells_losses
        self.executor = None
        self.flow = row.flow(self)
        self._defaults()
        self.requester: SendEngine = DormantSender(self)
        self.responder: ReceiveEngine = DormantReceiver(self)

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

    # commands

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
        self.source = None
        self.source_port = 0

    def migrate(self, event: str, now: int) -> bool:
        """Something has happened to the path: take the step of `migration.TABLE`, if there is one."""
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
        self.environment.event(EVENT_PATH_MIG, self.number)
        return True

    def _take_alternate(self, now: int) -> bool:
        """Go along the alternate path from now on; False: its port carries nothing."""
        path = self.alternate
        if path is None:
            return False
        if not self.environment.port_usable(path.port_number):
            self.environment.event(EVENT_PATH_MIG_ERR, self.number)
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
        """The queue pair is destroyed: it leaves the window and forgets everything, without completions."""
        self.requester.reset()
        self.responder.reset()
        self.flow.closed = True
        self.source = None
        self.move(_RESET, DESTROYED)

    # inputs

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

    def doorbell(self, now: int) -> None:
        """There are new work requests in the send ring; in SQE and ERR they are flushed, in ERR receives
        as well."""
        self.environment.last_doorbell = self.number
        if _FLUSH_SEND[self.state]:
            self.flush()
        else:
            self.requester.doorbell(now)

    def move(self, target: int, reason: str) -> None:
        """Take the state ``target``."""
        before: cython.int = self.state
        self.state = target
        if self.environment.same_host is not None:
            self.environment.same_host.publish(self)
        if self.environment.observer is not None and before != target:
            states = f"{NAMES[before]}>{NAMES[target]}"
            self.environment.observer(STATE_CHANGED, self.number, -1, states, reason)

    def fail(self, event: int = -1, reason: str = COMPLETION_ERROR) -> None:
        """To the error state: everything queued completes flushed, in order; ``event`` ≥ 0 is reported."""
        if self.state == _ERR:
            return
        self.move(_ERR, reason)
        self.draining = False
        if event >= 0:
            self.environment.event(event, self.number)
        self.flush()
        if self.shared_receive is not None:
            self.environment.event(EVENT_QP_LAST_WQE_REACHED, self.number)

    def fail_sending(self) -> None:
        """A send request of an unreliable service has failed: SQE, the receive side goes on (IBTA 10.3.1)."""
        if self.state != _ERR:
            self.move(_SQE, COMPLETION_ERROR)
            self.draining = False
            self.flush()

    def flush(self) -> None:
        """Complete as flushed what the state says; what is more than a queue holds has its turn later."""
        if _FLUSH_SEND[self.state]:
            self.requester.flush()
        if _FLUSH_RECEIVE[self.state]:
            self.responder.flush()

    def completion_lost(self) -> None:
        """A completion queue has overflowed: the queue pair cannot report what happened, so it stops
        (C10-100 ff.)."""
        self.fail(EVENT_QP_FATAL, COMPLETION_LOST)
