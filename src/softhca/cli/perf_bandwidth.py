"""The bandwidth tests: the client keeps its send queues full; the server receives, or only serves."""

from __future__ import annotations

import time
from array import array
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from softhca.cli.errors import CommandError
from softhca.cli.perf_plan import BATCH, MOST_POSTED, SAME_OPTIONS, Plan

if TYPE_CHECKING:
    from softhca.cli.control import ControlConnection
    from softhca.cli.endpoint import Endpoint
    from softhca.cli.perftest_exchange import Keys

_COUNT_BITS = 16
_COUNT = (1 << _COUNT_BITS) - 1
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


class Chain:
    """Work requests in a row; ``last`` is signaled, and says in its ``wr_id`` whose they are."""

    def __init__(self, make: Callable[..., Any], count: int) -> None:
        self.count = count
        self.last = self.first = make(signaled=True, following=None)
        for _ in range(count - 1):
            self.first = make(signaled=False, following=self.first)


class BandwidthClient:
    """Posts chains of ``plan.batch`` work requests of which the last is signaled.

    A round looks only at queue pairs that have something to post, and those with the same target share a
    chain: what a round costs does not depend on how many queue pairs there are.  ``samples_ns`` are the times
    from the posting of a chain to its completion; when the chains under way were posted stands in one array,
    so many ``places`` for each queue pair, of which ``oldest`` is the first.
    """

    def __init__(self, endpoint: Endpoint, plan: Plan, keys: list[Keys]) -> None:
        self.endpoint = endpoint
        self.plan = plan
        self.keys = keys
        self.batch, self.depth = plan.batch, plan.depth
        self.outstanding = [0] * plan.queue_pairs
        self.under_way = 0
        self.left = [plan.iterations] * plan.queue_pairs
        self.places = max(1, self.depth // self.batch)
        self.oldest = [0] * plan.queue_pairs
        self.posted_ns = array("q", bytes(8 * self.places * plan.queue_pairs))
        self.posts = [link.qp.post_send for link in endpoint.links]
        shared: dict[tuple[int, int, int], Chain] = {}
        self.chains = []
        for index, target in enumerate(keys):
            place = endpoint.send_area(index), target.vaddr, target.rkey
            if plan.service == "ud" or place not in shared:
                shared[place] = self._chain(index, self.batch)
            self.chains.append(shared[place])
        self.turns = deque(range(plan.queue_pairs))
        self.has_turn = [True] * plan.queue_pairs
        self.measured = Measured(0, 0)

    @property
    def busy(self) -> bool:
        """Whether something is still to be posted or to complete."""
        return bool(self.turns or self.under_way)

    def _chain(self, index: int, count: int) -> Chain:
        return Chain(
            lambda signaled, following: operation(
                self.endpoint,
                self.plan,
                index,
                self.keys[index],
                wr_id=0,
                signaled=signaled,
                following=following,
            ),
            count,
        )

    def run(self, advance: Callable[[float], None]) -> Measured:
        """The whole test.  One that runs for so many seconds first sends a chain through each queue pair."""
        plan = self.plan
        if plan.seconds:
            self._warm_up()
        if self.depth == 1 and plan.queue_pairs == 1:
            return self._one_at_a_time(advance)
        measured = self.measured
        start_ns = time.perf_counter_ns()
        deadline_ns = start_ns + int(plan.seconds * 1e9)
        while self.turns or self.under_way:
            if plan.seconds and time.perf_counter_ns() >= deadline_ns:
                self.turns.clear()
            self._take_turns()
            if self.under_way:
                self._take(measured)
            advance(measured.operations)
        measured.elapsed_ns = time.perf_counter_ns() - start_ns
        return measured

    def turn(self, posting: bool) -> int:
        """One round that waits for nothing; how many completions it took.  Not ``posting``: it posts nothing
        any more.  Raises :class:`CommandError` for a completion in error.
        """
        if not posting:
            self.turns.clear()
        self._take_turns()
        completions = self.endpoint.poll(self.endpoint.send_cq, BATCH) if self.under_way else []
        self._note(completions, self.measured)
        return len(completions)

    def _take_turns(self) -> None:
        """Fill the send queues of some that have something to post."""
        for _ in range(min(len(self.turns), BATCH)):
            index = self.turns.popleft()
            self.has_turn[index] = False
            self._fill(index)

    def _one_at_a_time(self, advance: Callable[[float], None]) -> Measured:
        """Between the two looks at the clock there is nothing but one request, posted and waited for."""
        endpoint, plan = self.endpoint, self.plan
        clock, wait, cq = time.perf_counter_ns, endpoint.wait, endpoint.send_cq
        post, request = endpoint.links[0].qp.post_send, self.chains[0].first
        samples_ns: list[int] = []
        start_ns = now_ns = clock()
        deadline_ns = start_ns + int(plan.seconds * 1e9)
        while now_ns < deadline_ns if plan.seconds else len(samples_ns) < plan.iterations:
            before_ns = clock()
            post(request)
            wait(cq)
            now_ns = clock()
            samples_ns.append(now_ns - before_ns)
            if len(samples_ns) % _POLLS_A_LOOK == 0:
                advance(len(samples_ns))
        return Measured(len(samples_ns), max(now_ns - start_ns, 1), samples_ns)

    def _warm_up(self) -> None:
        """What a queue pair's first message costs more than the next ones is not measured."""
        turns, self.turns = self.turns, deque()
        for index in turns:
            self._post(index, self.batch)
            if self.under_way > MOST_POSTED // 4:
                self._take(Measured(0, 0))
        while self.under_way:
            self._take(Measured(0, 0))
        self.turns = turns

    def _take(self, measured: Measured) -> None:
        """Wait for completions, and note whose queue has room again."""
        self._note(self.endpoint.wait(self.endpoint.send_cq, BATCH), measured)

    def _note(self, completions: list[Any], measured: Measured) -> None:
        """Account for ``completions``, and give their queue pairs a turn."""
        forever = self.plan.seconds
        for completion in completions:
            now_ns, number = time.perf_counter_ns(), completion.wr_id
            index, count = number >> _COUNT_BITS, number & _COUNT
            self.outstanding[index] -= count
            self.under_way -= count
            measured.operations += count
            oldest = self.oldest[index]
            measured.samples_ns.append(now_ns - self.posted_ns[index * self.places + oldest])
            self.oldest[index] = (oldest + 1) % self.places
            if not self.has_turn[index] and (forever or self.left[index]):
                self.has_turn[index] = True
                self.turns.append(index)

    def _fill(self, index: int) -> None:
        """Fill the send queue of queue pair ``index``."""
        forever, batch = self.plan.seconds, self.batch
        while self.outstanding[index] + batch <= self.depth and (forever or self.left[index]):
            count = batch if forever else min(batch, self.left[index])
            self._post(index, count)
            self.left[index] -= count

    def _post(self, index: int, count: int) -> None:
        """One chain of ``count`` work requests."""
        chain = self.chains[index] if count == self.batch else self._chain(index, count)
        chain.last.wr_id = index << _COUNT_BITS | count
        outstanding = self.outstanding[index]
        place = (self.oldest[index] + outstanding // self.batch) % self.places
        self.posted_ns[index * self.places + place] = time.perf_counter_ns()
        self.posts[index](chain.first)
        self.outstanding[index] = outstanding + count
        self.under_way += count


class Receiver:
    """The receiving end of ``send-bw``: receives until all has come or the peer says that it is finished.

    ``received`` counts since `begin`; receives that are posted stay so over several sizes.
    """

    def __init__(self, endpoint: Endpoint, plan: Plan) -> None:
        self.endpoint = endpoint
        self.plan = plan
        self.received = 0
        self.begin_ns = self.last_ns = 0
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
            for _ in range(self.plan.receive_depth // BATCH):
                link.qp.post_recv(self.chains[index])

    def begin(self) -> None:
        """Count anew."""
        self.received = self.begin_ns = self.last_ns = 0

    @property
    def measured(self) -> Measured:
        """How many have come, and the time between the first and the last that was seen."""
        return Measured(self.received, self.last_ns - self.begin_ns)

    def run(self, control: ControlConnection) -> None:
        """Receive and post anew.

        Raises :class:`CommandError` when for the end's ``silence_s`` nothing comes and the peer says nothing.
        """
        expected = self.plan.iterations * self.plan.queue_pairs
        empty, silent_s = 0, 0.0
        while not expected or self.received < expected:
            if self.poll():
                silent_s = 0.0
                continue
            empty += 1
            if empty % _POLLS_A_LOOK == 0:
                if control.readable():
                    self.poll()
                    return
                silent_s = silent_s or time.monotonic() + self.endpoint.needs.silence_s
                if time.monotonic() > silent_s:
                    raise CommandError(
                        f"{self.received} of {expected or 'the'} messages have come, and then none for "
                        f"{self.endpoint.needs.silence_s:g} s: {SAME_OPTIONS}"
                    )

    def poll(self) -> int:
        """Take what has come; how many that was.  Raises :class:`CommandError` for one in error."""
        count, completions = self.endpoint.receive_cq.poll(BATCH)
        if count:
            self.last_ns = time.perf_counter_ns()
            self.begin_ns = self.begin_ns or self.last_ns
            for completion in completions:
                self._take(completion)
            self.received += count
        return int(count)

    def _take(self, completion: Any) -> None:
        if completion.status:
            raise CommandError(f"a receive completed with status {completion.status}")
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
