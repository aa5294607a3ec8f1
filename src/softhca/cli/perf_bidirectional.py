"""``send-bw`` in both directions at once: one loop that sends and receives."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from softhca.cli.errors import CommandError
from softhca.cli.perf_plan import SAME_OPTIONS

if TYPE_CHECKING:
    from softhca.cli.control import ControlConnection
    from softhca.cli.perf_bandwidth import BandwidthClient, Measured, Receiver

_TURNS_A_LOOK = 256
_LOST_S = 1.0
"""How long a message without acknowledgement is waited for when nothing else comes."""


class BothWays:
    """Sends as `BandwidthClient` does and receives as `Receiver` does, until both is done.

    Receiving comes first: without acknowledgements nothing else keeps a fast sender from a receive queue that
    is empty, and what is lost there would be waited for.
    """

    def __init__(self, sender: BandwidthClient, receiver: Receiver, control: ControlConnection) -> None:
        self.sender = sender
        self.receiver = receiver
        self.control = control
        plan = sender.plan
        self.expected = plan.iterations * plan.queue_pairs
        self.silence_s = sender.endpoint.needs.silence_s

    def run(self, advance: Callable[[float], None]) -> Measured:
        """The whole test; the figures are those of what this end sent.

        Raises :class:`CommandError` for a completion in error, and when nothing happens for the end's
        ``silence_s``.
        """
        sender, receiver = self.sender, self.receiver
        begin_ns = time.perf_counter_ns()
        seconds = sender.plan.seconds
        deadline_ns = begin_ns + int(seconds * 1e9)
        idle_since_s, idle = 0.0, 0
        sent_ns = 0
        while True:
            taken = receiver.poll()
            taken += sender.turn(posting=not seconds or time.perf_counter_ns() < deadline_ns)
            advance(sender.measured.operations)
            if not sender.busy:
                sent_ns = sent_ns or time.perf_counter_ns()
                if receiver.received >= self.expected:
                    break
            idle = 0 if taken else idle + 1
            if not idle:
                idle_since_s = 0.0
            elif idle % _TURNS_A_LOOK == 0:
                idle_since_s = idle_since_s or time.monotonic()
                if self._given_up(time.monotonic() - idle_since_s):
                    break
        sender.measured.elapsed_ns = max(sent_ns - begin_ns, 1)
        return sender.measured

    def _given_up(self, idle_s: float) -> bool:
        """Whether what is still to come is lost.  Raises :class:`CommandError` where nothing may be."""
        if not self.sender.busy and self.sender.plan.service != "rc":
            return idle_s > _LOST_S or self.control.readable()
        if idle_s > self.silence_s:
            raise CommandError(
                f"nothing completed for {self.silence_s:g} s, {self.receiver.received} of {self.expected} "
                f"messages of the peer have come: {SAME_OPTIONS}"
            )
        return False
