"""The send queue of a connection whose peer may be on this host: what is done here never comes to the sender.

An `Executor` carries a request out in place, without packets, so it has no PSN.  That keeps the order of
a queue pair only where nothing before the request is under way: it is tried while the sender is at rest.
Behind others it goes to the sender, unless it is worth waiting for these.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import cython

from softhca.queues.layout import SIGNALED, WC_WR_FLUSH_ERR
from softhca.queues.operations import LOCAL
from softhca.transport.executor import Executor
from softhca.transport.request import Request
from softhca.transport.sending import SendQueue
from softhca.transport.states import BEHAVIOUR

if TYPE_CHECKING:
    from softhca.transport.context import QueuePair

_FLUSHED = cython.declare(cython.int, WC_WR_FLUSH_ERR)
_SIGNALED = cython.declare(cython.uint, SIGNALED)
_LOCAL = cython.declare(cython.int, LOCAL)
_START_SEND = cython.declare(tuple, tuple([behaviour.start_send for behaviour in BEHAVIOUR]))


class SameHostSource(SendQueue):
    """``pending`` is a request that waits for what the sender has under way."""

    pending: Request

    def __init__(self, qp: QueuePair) -> None:
        SendQueue.__init__(self, qp)
        self.pending = None

    def next(self, at_rest: bool, now: int) -> Request | None:
        executor: Executor = self.qp.executor
        request: Request = self.pending
        if executor is None and request is None:
            return self.take(False)
        self.pending = None
        self.waits = False
        if request is None:
            if executor is not None and at_rest:
                return self.next_here(executor, self.spare.pop() if self.spare else self.blank(), False, now)
            request = self.take(False)
        if request is None or executor is None or request.status or request.kind == _LOCAL:
            return request
        if at_rest:
            return self.next_here(executor, request, True, now)
        if executor.waits_for_earlier(request):
            self.pending = request
            self.waits = True
            return None
        return request

    def next_here(self, executor: Executor, request: Request, drawn: bool, now: int) -> Request:
        """Have the executor carry out what stands in the ring, one after the other, ``request`` first where
        it is ``drawn`` already; the first one that it leaves, or None.
        """
        over: cython.bint = not drawn and executor.turn_over()
        while drawn or (not over and _START_SEND[self.qp.state] and self.draw(request, False)):
            drawn = False
            if request.status or not executor.execute(request):
                executor.leave()
                return request
            self.qp.send_ring.release(1)
            if self.qp.signal_all or request.work.flags & _SIGNALED:
                # a completion may end the queue pair, and so withdraw its grants
                executor.leave()
                self.complete(request, 0, now)
            over = executor.turn_over()
        executor.leave()
        self.spare.append(request)
        if over:
            # others have their turn now
            self.qp.environment.schedule(self.qp.flow)
        return None

    def can_wait(self) -> bool:
        return self.qp.executor is None and (self.pending is not None or SendQueue.can_wait(self))

    def flush(self, now: int) -> None:
        request: Request = self.pending
        self.pending = None
        if request is not None:
            self.retire(request, _FLUSHED, now)
        SendQueue.flush(self, now)

    def reset(self) -> None:
        if self.pending is not None:
            self.drop(self.pending)
            self.pending = None
        SendQueue.reset(self)
