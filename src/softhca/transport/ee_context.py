"""The end-to-end context (EE context, EEC) of reliable datagrams: one end of a reliable channel between two
adapters, which queue pairs of one reliable datagram domain share (IBTA vol. 1, 9.7.8, 10.2.6, 10.2.7).

It has what a reliable connection has (peer, path, PSNs, retries, states but SQE) and no queue.  What it sends
comes from the queue pairs that name it in their work requests (`rd_sending`), what it receives goes to those
that the packets name (`rd_receiving`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import cython

from softhca.transport.connection import Connection
from softhca.transport.dormant import DormantSender
from softhca.transport.observation import COMPLETION_ERROR
from softhca.transport.states import BEHAVIOUR, ERR

if TYPE_CHECKING:
    from softhca.transport.environment import Environment
    from softhca.transport.migration import AlternatePath
    from softhca.transport.rd_sending import EeSender, RdMessage
    from softhca.transport.services import Service
    from softhca.transport.window import DestinationWindow
    from softhca.wire.route import Route

_ERR = cython.declare(cython.int, ERR)
_FLUSH_SEND = cython.declare(tuple, tuple([behaviour.flush_send for behaviour in BEHAVIOUR]))
_START_SEND = cython.declare(tuple, tuple([behaviour.transmit for behaviour in BEHAVIOUR]))


class RdDomain:
    """A reliable datagram domain: its queue pairs and its EE contexts are for each other, and for no others
    (IBTA vol. 1, 10.2.7)."""

    __slots__ = ("number",)

    def __init__(self, number: int) -> None:
        self.number = number


class EndToEndContext(Connection):
    """One EE context, in RESET.

    ``ee_number`` is its own number, by which packets name it, ``remote_ee`` its peer's.  ``number``, ``pd``,
    ``access``, ``min_rnr_timer`` and ``dest_qp`` change with every message: they are those of the queue pairs
    that it serves.  ``stalled``: what it has sent is waited for unusually long
    (`rd_sending.SLOW_PART`), or its receiver is not ready.
    """

    stalled: bool

    def __init__(self, environment: Environment, number: int, row: Service, domain: RdDomain) -> None:
        Connection.__init__(self, environment, number, row, 0)
        self.ee_number = number
        self.remote_ee = 0
        self.domain = domain
        self.stalled = False
        self.open()

    def modify(
        self, attributes: dict[str, Any], now: int = 0, route: Route | None = None,
        window: DestinationWindow | None = None, pkey: int | None = None,
        alternate: AlternatePath | None = None,
    ) -> int:
        """As `Connection.modify`; ``dest_qp_num`` is the number of the peer's EE context."""
        code: cython.int = Connection.modify(self, attributes, now, route, window, pkey, alternate)
        if code == 0 and "dest_qp_num" in attributes:
            self.remote_ee = attributes["dest_qp_num"]
        return code

    def query(self) -> dict[str, Any]:
        found = Connection.query(self)
        found["dest_qp_num"] = self.remote_ee
        return found

    def known_by(self) -> int:
        return self.ee_number

    def raise_event(self, event: int) -> None:
        """An EE context reports no events: what becomes of it completions say, and a query."""

    def takes_messages(self) -> bool:
        """Whether a message may be given to it: in RTS, and in SQD, where it waits."""
        return bool(_START_SEND[self.state])

    def put(self, message: RdMessage, now: int) -> None:
        """Send a message of a queue pair, behind those that were put before."""
        sender = cast("EeSender", self.send_engine())
        sender.waiting(message)
        sender.doorbell(now)

    def abort(self, message: RdMessage) -> None:
        """Forget a message that was put: its queue pair is no longer there for it."""
        if not isinstance(self.requester, DormantSender):
            cast("EeSender", self.requester).abort(message)

    def fail(self, event: int = -1, reason: str = COMPLETION_ERROR) -> None:
        """To the error state: the messages that are put end with an error, in order."""
        if self.state == _ERR:
            return
        self.move(_ERR, reason)
        self.draining = False
        self.flush()

    def flush(self) -> None:
        if _FLUSH_SEND[self.state]:
            self.requester.flush()
            self.responder.flush()
