"""The bandwidth tests: the client keeps its send queues full; the server receives, or only serves."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from softhca.cli.perf_plan import BATCH, RECEIVE_DEPTH, Plan

if TYPE_CHECKING:
    from softhca.cli.control import ControlConnection
    from softhca.cli.endpoint import Endpoint
    from softhca.cli.perftest_exchange import Keys

_COUNT_BITS = 16
_POLLS_A_LOOK = 256
_SPINS_A_LOOK = 200_000
_NAP_S = 0.05


@dataclass
class Measured:
    """What a client saw: operations done, the time they took, and single times (see the tests for which)."""

    operations: int
    elapsed_ns: int
    samples_ns: list[int] = field(default_factory=list)


def operation(
    endpoint: Endpoint,
    plan: Plan,
    index: int,
    keys: Keys,
    *,
    wr_id: int,
    signaled: bool,
    following: Any = None,
) -> Any:
    """One work request of the test on queue pair ``index``, towards the memory that ``keys`` name."""
    from softhca.cli.perf_plan import MAX_INLINE_BYTES
    from softhca.verbs import enums as e

    opcode = {
        "write": e.IBV_WR_RDMA_WRITE,
        "read": e.IBV_WR_RDMA_READ,
        "send": e.IBV_WR_SEND,
        "atomic": e.IBV_WR_ATOMIC_FETCH_AND_ADD,
    }[plan.verb]
    inline = plan.kind == "lat" and plan.verb in ("write", "send") and plan.size_bytes <= MAX_INLINE_BYTES
    request = endpoint.send_request(
        index,
        opcode,
        endpoint.sge(endpoint.send_area(index), plan.size_bytes),
        wr_id=wr_id,
        signaled=signaled,
        inline=inline,
        following=following,
    )
    if plan.verb in ("write", "read"):
        request.set_wr_rdma(keys.rkey, keys.vaddr)
    elif plan.verb == "atomic":
        request.set_wr_atomic(keys.rkey, keys.vaddr, 1)
    return request


class BandwidthClient:
    """Posts chains of ``plan.batch`` work requests of which the last is signaled.

    ``samples_ns`` are the times from the posting of a chain to its completion.
    """

    def __init__(self, endpoint: Endpoint, plan: Plan, keys: list[Keys]) -> None:
        self.endpoint = endpoint
        self.plan = plan
        self.keys = keys
        self.outstanding = [0] * plan.queue_pairs
        self.left = [plan.iterations] * plan.queue_pairs
        self.posted_ns: list[deque[int]] = [deque() for _ in range(plan.queue_pairs)]
        self.chains = [self._chain(index, plan.batch) for index in range(plan.queue_pairs)]

    def _chain(self, index: int, count: int) -> Any:
        chain = None
        for position in range(count, 0, -1):
            chain = operation(
                self.endpoint,
                self.plan,
                index,
                self.keys[index],
                wr_id=index << _COUNT_BITS | count,
                signaled=position == count,
                following=chain,
            )
        return chain

    def run(self, advance: Callable[[float], None]) -> Measured:
        """The whole test."""
        plan, endpoint = self.plan, self.endpoint
        measured = Measured(0, 0)
        start_ns = time.perf_counter_ns()
        deadline_ns = start_ns + int(plan.seconds * 1e9)
        posting = True
        while posting or any(self.outstanding):
            if posting:
                posting = self._post(deadline_ns)
            if not any(self.outstanding):
                continue
            for completion in endpoint.wait(endpoint.send_cq, BATCH):
                now_ns = time.perf_counter_ns()
                index, count = completion.wr_id >> _COUNT_BITS, completion.wr_id & ((1 << _COUNT_BITS) - 1)
                self.outstanding[index] -= count
                measured.operations += count
                measured.samples_ns.append(now_ns - self.posted_ns[index].popleft())
            advance(measured.operations)
        measured.elapsed_ns = time.perf_counter_ns() - start_ns
        return measured

    def _post(self, deadline_ns: int) -> bool:
        """Fill every send queue; False when there is no more to post."""
        plan = self.plan
        now_ns = time.perf_counter_ns()
        if plan.seconds and now_ns >= deadline_ns:
            return False
        for index, link in enumerate(self.endpoint.links):
            while self.outstanding[index] + plan.batch <= plan.depth and (plan.seconds or self.left[index]):
                count = plan.batch if plan.seconds else min(plan.batch, self.left[index])
                link.qp.post_send(self.chains[index] if count == plan.batch else self._chain(index, count))
                self.posted_ns[index].append(time.perf_counter_ns())
                self.outstanding[index] += count
                self.left[index] -= count
        return bool(plan.seconds) or any(self.left)


class Receiver:
    """The server of ``send-bw``: receives until all has come or the client says that it is finished."""

    def __init__(self, endpoint: Endpoint, plan: Plan) -> None:
        self.endpoint = endpoint
        self.plan = plan
        self.received = 0
        self.chains = [
            endpoint.receive_chain(
                index, endpoint.sge(endpoint.receive_area(index), plan.landing_bytes), BATCH
            )
            for index in range(plan.queue_pairs)
        ]
        self.used = [0] * plan.queue_pairs

    def post(self) -> None:
        """Fill every receive queue."""
        for index, link in enumerate(self.endpoint.links):
            for _ in range(RECEIVE_DEPTH // BATCH):
                link.qp.post_recv(self.chains[index])

    def run(self, control: ControlConnection) -> None:
        """Receive and post anew."""
        expected = self.plan.iterations * self.plan.queue_pairs
        empty = 0
        while not expected or self.received < expected:
            count, completions = self.endpoint.receive_cq.poll(BATCH)
            if not count:
                empty += 1
                if empty % _POLLS_A_LOOK == 0 and control.readable():
                    return
                continue
            for completion in completions:
                self._take(completion)
            self.received += count

    def _take(self, completion: Any) -> None:
        index = completion.wr_id
        self.used[index] += 1
        if self.used[index] == BATCH:
            self.used[index] = 0
            self.endpoint.links[index].qp.post_recv(self.chains[index])


def serve(endpoint: Endpoint, control: ControlConnection, target: str) -> None:
    """What a passive target does until the client speaks again.

    ``poll``: drives its adapter; ``idle``: sleeps in a system call; ``busy``: computes in Python; ``asleep``:
    sleeps by the clock.  In the last three the adapter's own thread (or process) serves the peers.
    """
    if target == "idle":
        control.readable(None)
        return
    while not control.readable():
        if target == "poll":
            for _ in range(_POLLS_A_LOOK):
                endpoint.context.progress()
        elif target == "busy":
            compute(_SPINS_A_LOOK)
        else:
            time.sleep(_NAP_S)


def compute(rounds: int) -> int:
    """Keep the interpreter busy, as an application that computes in Python does."""
    total = 0
    for value in range(rounds):
        total += value
    return total
