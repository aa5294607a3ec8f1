"""``mailbox-lat`` and ``mailbox-bw``: messages through a pair of mailboxes, each proved by its hash.

The ends swap offers over the control connection.  In ``mailbox-lat`` the client begins, and half of a round
trip is a sample.  In ``mailbox-bw`` the client sends batches, and the time until the server has given a
batch's slots back is one.
"""

from __future__ import annotations

import argparse
import os
import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from softhca.cli import output
from softhca.cli.device_names import device_name
from softhca.cli.errors import CommandError
from softhca.cli.perf_bandwidth import Measured
from softhca.cli.perf_plan import Plan
from softhca.mailbox import Mailbox, Terms
from softhca.mailbox.hashes import find_algorithm
from softhca.mailbox.offer import OFFER_BYTES
from softhca.mailbox.terms import MIN_SLOT_BYTES
from softhca.verbs.device import Context

if TYPE_CHECKING:
    from softhca.cli.control import ControlConnection

KEY = b"softhca perf mailbox tests"
"""Of keyed hashes: no secret, it has to cost what a secret costs."""
BATCH = 256
READY = b"ready"
_RING_BYTES = 1 << 22
_MIN_SLOTS, _MAX_SLOTS = 4, 8192
_LOOKS_A_CLOCK = 256
_EMPTY_LOOKS = 16
"""So many looks in vain, and others may run."""
_SLOT_OVERHEAD_BYTES = 16


def terms_of(plan: Plan) -> Terms:
    """A ring whose slots fit the message, of about 4 MiB, 4 to 8192 slots."""
    block_bytes = _SLOT_OVERHEAD_BYTES + plan.size_bytes + find_algorithm(plan.algorithm).digest_bytes
    slot_bytes = max(MIN_SLOT_BYTES, -(-block_bytes // 8) * 8)
    slots = max(_MIN_SLOTS, min(_MAX_SLOTS, _RING_BYTES // slot_bytes))
    return Terms(slots, slot_bytes, plan.algorithm, fixed_bytes=plan.size_bytes)


def run_end(args: argparse.Namespace, plan: Plan, control: ControlConnection) -> Measured | None:
    """One end of the test; the client returns what it measured."""
    client = not args.listen
    key = KEY if find_algorithm(plan.algorithm).keyed else b""
    with Context(name=device_name(args.ib_dev)) as context:
        place = {"port": args.ib_port, "gid_index": args.gid_idx, "service_level": args.sl}
        box = Mailbox(context, terms_of(plan), key, **place)
        control.send(box.offer)
        box.join(control.receive(OFFER_BYTES))
        control.send(READY)
        if control.receive(len(READY)) != READY:
            raise CommandError("the peer is no mailbox test")
        end = MailboxEnd(box, plan, control, client, args.silence)
        with output.progress(plan.test, plan.iterations or None, client) as advance:
            measured = end.run(advance)
        control.part()
        return measured if client else None


class MailboxEnd:
    """One end of a mailbox test, on a mailbox that has joined."""

    def __init__(
        self, box: Mailbox, plan: Plan, control: ControlConnection, client: bool, silence_s: float
    ) -> None:
        self.box = box
        self.plan = plan
        self.control = control
        self.client = client
        self.silence_s = silence_s
        self.message = bytes(index & 0xFF for index in range(plan.size_bytes))

    def run(self, advance: Callable[[float], None]) -> Measured:
        """The whole test."""
        if self.plan.kind == "lat":
            return self._to_and_fro(advance)
        if self.client:
            return self._pour(advance)
        self._drain()
        return Measured(0, 1)

    def _to_and_fro(self, advance: Callable[[float], None]) -> Measured:
        samples_ns: list[int] = []
        begin_ns = before_ns = time.perf_counter_ns()
        deadline_ns = begin_ns + int(self.plan.seconds * 1e9)
        while self._going_on(len(samples_ns), deadline_ns):
            if self.client:
                self.box.send(self.message)
            if not self._await():
                break
            if not self.client:
                self.box.send(self.message)
            now_ns = time.perf_counter_ns()
            samples_ns.append((now_ns - before_ns) // 2)
            before_ns = now_ns
            if not len(samples_ns) & 0xFF:
                advance(len(samples_ns))
        if not self.client:
            self._linger()
        return Measured(len(samples_ns), max(before_ns - begin_ns, 1), samples_ns)

    def _going_on(self, done: int, deadline_ns: int) -> bool:
        if not self.plan.seconds:
            return done < self.plan.iterations
        return not self.client or time.perf_counter_ns() < deadline_ns

    def _await(self) -> bool:
        """Wait for the next message; False: the client has ended the test."""
        silent_s = time.monotonic() + self.silence_s
        receive = self.box.try_receive
        while True:
            for _ in range(_LOOKS_A_CLOCK):
                if receive() is not None:
                    return True
            if self.control.readable() and receive() is None:
                if self.client:
                    raise CommandError("the server ended the test")
                return False
            os.sched_yield()
            if time.monotonic() > silent_s:
                raise CommandError(f"no message for {self.silence_s:g} s")

    def _linger(self) -> None:
        """Serve the adapter until the client has all that it waits for."""
        while not self.control.readable():
            for _ in range(_LOOKS_A_CLOCK):
                self.box.try_receive()

    def _pour(self, advance: Callable[[float], None]) -> Measured:
        """The client of ``mailbox-bw``."""
        box, plan = self.box, self.plan
        batch = [self.message] * BATCH
        posted: deque[tuple[int, int]] = deque()
        samples_ns: list[int] = []
        sent = 0
        begin_ns = time.perf_counter_ns()
        deadline_ns = begin_ns + int(plan.seconds * 1e9)
        silent_s = time.monotonic() + self.silence_s
        while True:
            now_ns = time.perf_counter_ns()
            left = BATCH if plan.seconds else min(BATCH, plan.iterations - sent)
            if plan.seconds and now_ns >= deadline_ns:
                left = 0
            if not left and not posted:
                break
            count = box.try_send_many(batch if left == BATCH else batch[:left])
            if count:
                sent += count
                posted.append((sent, now_ns))
                advance(sent)
            else:
                box.poll()
            confirmed = box.confirmed
            while posted and posted[0][0] <= confirmed:
                samples_ns.append(time.perf_counter_ns() - posted.popleft()[1])
                silent_s = time.monotonic() + self.silence_s
            if count:
                continue
            os.sched_yield()
            if time.monotonic() > silent_s:
                raise CommandError(f"no credit for {self.silence_s:g} s")
        return Measured(sent, max(time.perf_counter_ns() - begin_ns, 1), samples_ns)

    def _drain(self) -> None:
        """The server of ``mailbox-bw``."""
        while not self.control.readable():
            empty = 0
            for _ in range(_LOOKS_A_CLOCK):
                if not self.box.receive_many(BATCH):
                    empty += 1
                    if empty % _EMPTY_LOOKS == 0:
                        os.sched_yield()
