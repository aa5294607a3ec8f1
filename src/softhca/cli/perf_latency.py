"""The latency tests: one operation at a time.

Writes and sends go to and fro, and half of a round trip is a sample; reads and atomics are answered by the
peer's adapter, and the whole of their time is one.  As in perftest's programs the server of ``write-lat``
begins, and both ends find a message by its last byte, which counts; in ``send-lat`` the client begins, one
send of 32 is signaled, for the answer says that it has come, and a receive is posted anew behind the answer
to its message.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from softhca.cli.errors import CommandError
from softhca.cli.perf_bandwidth import Measured, operation
from softhca.cli.perf_plan import RECEIVE_DEPTH, SIGNAL_EVERY, Plan

if TYPE_CHECKING:
    from softhca.cli.control import ControlConnection
    from softhca.cli.endpoint import Endpoint
    from softhca.cli.perftest_exchange import Keys

_POLLS_A_LOOK = 256
_ROUNDS_A_REPORT = 64


class Finished(Exception):
    """The client has ended the test."""


class LatencyEnd:
    """One end of a latency test.

    ``room_bytes``: what its receives have room for, where later messages are larger than those of ``plan``.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        plan: Plan,
        keys: Keys,
        control: ControlConnection,
        client: bool,
        room_bytes: int = 0,
    ) -> None:
        self.endpoint = endpoint
        self.plan = plan
        self.control = control
        self.client = client
        self.qp = endpoint.links[0].qp
        self.request = operation(endpoint, plan, 0, keys, wr_id=0, signaled=True)
        self.quiet = operation(endpoint, plan, 0, keys, wr_id=0, signaled=False)
        self.owed = 0
        memory = memoryview(endpoint.memory)
        self.sent = memory[endpoint.send_area() :][: plan.size_bytes]
        self.landing = memory[endpoint.receive_area() :][: plan.size_bytes]
        room = endpoint.sge(endpoint.receive_area(), room_bytes or plan.landing_bytes)
        self.receive = endpoint.receive_chain(0, room, 1)

    def post(self) -> None:
        """Post the receives of ``send-lat``."""
        if self.plan.verb == "send":
            for _ in range(RECEIVE_DEPTH):
                self.qp.post_recv(self.receive)

    def run(self, advance: Callable[[float], None]) -> Measured:
        """The whole test."""
        if self.plan.verb in ("read", "atomic"):
            return self._ask(advance)
        try:
            return self._to_and_fro(advance)
        except Finished:
            return Measured(0, 1)

    def _going_on(self, done: int, deadline_ns: int) -> bool:
        if not self.plan.seconds:
            return done < self.plan.iterations
        return not self.client or time.perf_counter_ns() < deadline_ns

    def _ask(self, advance: Callable[[float], None]) -> Measured:
        """Reads and atomics: the whole time of each."""
        samples_ns: list[int] = []
        begin_ns = before_ns = time.perf_counter_ns()
        deadline_ns = begin_ns + int(self.plan.seconds * 1e9)
        while self._going_on(len(samples_ns), deadline_ns):
            self.qp.post_send(self.request)
            self.endpoint.wait(self.endpoint.send_cq)
            now_ns = time.perf_counter_ns()
            samples_ns.append(now_ns - before_ns)
            before_ns = now_ns
            if len(samples_ns) % _ROUNDS_A_REPORT == 0:
                advance(len(samples_ns))
        return Measured(len(samples_ns), max(before_ns - begin_ns, 1), samples_ns)

    def _to_and_fro(self, advance: Callable[[float], None]) -> Measured:
        """Writes and sends: half of the time between two of our own messages."""
        begins = self.client == (self.plan.verb == "send")
        samples_ns: list[int] = []
        begin_ns = time.perf_counter_ns()
        deadline_ns = begin_ns + int(self.plan.seconds * 1e9)
        before_ns = 0
        done = 0
        sent, post_send = self.sent, self.qp.post_send
        while self._going_on(done, deadline_ns):
            seldom = self.plan.verb == "send" and (done + 1) % SIGNAL_EVERY
            request = self.quiet if seldom else self.request
            if done or not begins:
                self._await_message(done if begins else done + 1)
            # Between the message and the answer stands nothing that could be done before or afterwards.
            done += 1
            sent[-1] = done & 0xFF
            post_send(request)
            now_ns = time.perf_counter_ns()
            if before_ns:
                samples_ns.append((now_ns - before_ns) // 2)
            before_ns = now_ns
            if request is self.request:
                self.endpoint.wait(self.endpoint.send_cq)
            self._post_owed()
            if done % _ROUNDS_A_REPORT == 0:
                advance(done)
        if begins or self.plan.seconds:
            # The last answer: whoever closes now leaves no message of its peer's without an acknowledgement.
            self._await_message(done if begins else done + 1)
            self._post_owed()
        return Measured(done, max(time.perf_counter_ns() - begin_ns, 1), samples_ns)

    def _post_owed(self) -> None:
        """A new receive for each that was used."""
        for _ in range(self.owed):
            self.qp.post_recv(self.receive)
        self.owed = 0

    def _await_message(self, number: int) -> None:
        """Wait for the peer's message ``number``.  Raises :class:`Finished` when the client has ended
        instead.
        """
        silent_s = 0.0
        looks = self._look_for_bytes if self.plan.verb == "write" else self._look_for_completion
        while not looks(number, _POLLS_A_LOOK):
            if self.control.readable():
                if looks(number, 1):
                    return
                if self.client:
                    raise CommandError("the server ended the test")
                raise Finished
            silent_s = silent_s or time.monotonic() + self.endpoint.needs.silence_s
            self.endpoint.check_silence(silent_s)

    def _look_for_bytes(self, number: int, times: int) -> bool:
        landing, wanted, progress = self.landing, number & 0xFF, self.endpoint.context.progress
        for _ in range(times):
            if landing[-1] == wanted:
                return True
            progress()
        return False

    def _look_for_completion(self, number: int, times: int) -> bool:
        poll = self.endpoint.receive_cq.poll
        for _ in range(times):
            count, completions = poll(1)
            if count:
                if completions[0].status:
                    raise CommandError(f"a receive completed with status {completions[0].status}")
                self.owed += 1
                return True
        return False
