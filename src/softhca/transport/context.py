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

from typing import TYPE_CHECKING, Any

import cython

from softhca.queues.control_fields import EVENT_QP_FATAL, EVENT_QP_LAST_WQE_REACHED
from softhca.transport.connection import Connection
from softhca.transport.observation import COMPLETION_ERROR, COMPLETION_LOST
from softhca.transport.states import BEHAVIOUR, ERR, SQE

if TYPE_CHECKING:
    from softhca.queues.completion import CompletionQueue
    from softhca.queues.ring import RingConsumer
    from softhca.queues.shared_receive import SharedReceiveQueue
    from softhca.transport.environment import Environment
    from softhca.transport.executor import Executor
    from softhca.transport.services import Service

_ERR = cython.declare(cython.int, ERR)
_SQE = cython.declare(cython.int, SQE)
_FLUSH_SEND = cython.declare(tuple, tuple([behaviour.flush_send for behaviour in BEHAVIOUR]))
_FLUSH_RECEIVE = cython.declare(tuple, tuple([behaviour.flush_receive for behaviour in BEHAVIOUR]))


class QueuePair(Connection):
    """One queue pair of a service, whose row of `services.SERVICES` is ``row``, in RESET.

    ``owner`` is the adapter's own; ``path_mtu_bytes`` of a datagram queue pair is the adapter's to set (its
    port's active MTU).  ``domain``: of an XRC target, the domain whose shared receive queues it serves
    (`transport.xrc`), of a reliable datagram queue pair its reliable datagram domain; an XRC initiator has no
    ``receive_ring``, a target neither ring.  ``executor``: None, or who carries requests out without packets
    (`softhca.transport.executor`).
    """

    executor: Executor | None

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
        domain: Any = None,
    ) -> None:
        Connection.__init__(self, environment, number, row, pd)
        self.owner = owner
        self.send_ring = send_ring
        self.receive_ring = receive_ring
        self.shared_receive = shared_receive
        self.send_cq = send_cq
        self.receive_cq = receive_cq
        self.max_send_wr = max_send_wr or (0 if send_ring is None else send_ring.layout.entries)
        self.domain = domain
        self.max_recv_wr = max_recv_wr
        self.max_send_sge = max_send_sge
        self.max_recv_sge = max_recv_sge
        self.max_inline_bytes = max_inline_bytes
        self.signal_all = signal_all
        self.tells_losses = tells_losses
        self.executor = None
        self.open()

    def has_requests(self) -> bool:
        return self.send_ring is not None and self.send_ring.count() != 0

    def has_receives(self) -> bool:
        return self.receive_ring is not None and self.receive_ring.count() != 0

    def doorbell(self, now: int) -> None:
        """There are new work requests in the send ring; in SQE and ERR they are flushed, in ERR receives
        as well."""
        self.environment.last_doorbell = self.number
        if _FLUSH_SEND[self.state]:
            self.flush()
        else:
            self.requester.doorbell(now)

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
