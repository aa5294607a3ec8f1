"""What a scenario and the faults of its world mean for the rules that its programs are judged by."""

from __future__ import annotations

import random
from dataclasses import dataclass

from softhca.links.faults import Faults
from softhca.simulation.kinds import RC, REMOTE_OPERATION, RETRY_EXCEEDED, RNR_EXCEEDED
from softhca.simulation.scenarios import Scenario

RETRIES = 7
TIMEOUT = 8
TIMER_NS = 4_096 << TIMEOUT
GIVE_UP_NS = 4 * (RETRIES + 1) * TIMER_NS
"""After so long without an answer a requester gives up: a timer may take four times its value."""
RNR_FOREVER = 7
RNR_FEW = 3


@dataclass(frozen=True, slots=True)
class Conditions:
    """What holds for all programs of one setting.

    ``armed``: programs sleep until an event tells of a completion.  ``solicited``: and one that waits for its
    peer only until the peer wants to be seen; so it must have posted all its receives.
    """

    scenario: Scenario
    faults: Faults
    armed: bool
    solicited: bool

    @classmethod
    def draw(cls, scenario: Scenario, faults: Faults, dice: random.Random) -> Conditions:
        """Let the dice say how programs wait."""
        armed = not faults.poll_ns and dice.random() < 0.4
        return cls(scenario, faults, armed, armed and dice.random() < 0.5)

    @property
    def orderly(self) -> bool:
        """The network neither repeats nor reorders packets."""
        return not (self.faults.duplication or self.faults.reordering)

    @property
    def lossless(self) -> bool:
        """Every packet arrives as it was sent, and there is room for what it brings."""
        faults = self.faults
        return not (
            faults.loss or faults.burst_loss or faults.partitions or faults.flap_ns
            or faults.corruption or faults.truncation or faults.crashes or self.scenario.tampered
            or faults.receives or faults.cq_entries
            or (self.scenario.holds and self.scenario.service != RC)
        )  # fmt: skip

    @property
    def late(self) -> bool:
        """The network may hold a packet up for longer than a requester's timer."""
        faults = self.faults
        held_ns = faults.delay_ns + faults.jitter_ns + faults.reorder_ns * bool(faults.reordering)
        return bool(faults.bandwidth_bytes_per_s) or held_ns > TIMER_NS

    @property
    def once(self) -> bool:
        """The network repeats no packet."""
        return not self.faults.duplication

    @property
    def all_delivered(self) -> bool:
        """Whatever programs send arrives."""
        return self.lossless and not self.scenario.violation

    @property
    def breaking(self) -> bool:
        """Queue pairs may break with no packet lost and nothing wrong in what programs ask for."""
        scenario, faults = self.scenario, self.faults
        causes = (scenario.quit, scenario.greedy, scenario.revoke, scenario.tampered)
        return any(causes) or bool(faults.crashes or faults.cq_entries)

    @property
    def needs_all_receives(self) -> bool:
        """Whether queues have room for all receives of a program at once."""
        return self.scenario.service != RC or self.solicited or self.scenario.violation

    @property
    def rnr_retry(self) -> int:
        """How often a requester sends again to a receiver that is not ready."""
        return RNR_FEW if self.faults.receives else RNR_FOREVER

    # of one program: whether it ``offends`` its peer by an access violation, or ``suffers`` one

    def legal(self, suffers: bool) -> frozenset[int]:
        """Statuses with which any of its requests may fail."""
        scenario, faults = self.scenario, self.faults
        found = set(scenario.legal)
        vanishing = not self.lossless or faults.stall_ns or self.late
        if vanishing or suffers or scenario.quit or faults.cq_entries or faults.receives:
            found.add(RETRY_EXCEEDED)
        if faults.cq_entries:
            found.add(REMOTE_OPERATION)
        if faults.receives:
            found.add(RNR_EXCEEDED)
        return frozenset(found)

    def flushable(self, suffers: bool) -> bool:
        """Whether its requests may be flushed before it has seen an error."""
        return suffers or self.breaking

    def needs_cause(self, offends: bool, suffers: bool) -> bool:
        """Whether it may give up only after many packets have vanished."""
        return not (self.flushable(suffers) or offends or self.faults.receives)

    # of the wire

    @property
    def strict(self) -> bool:
        """No end of a connection is taken down, stops to answer or looks late while the other talks."""
        return not (self.scenario.violation or self.breaking or self.faults.poll_ns)

    @property
    def quiet(self) -> bool:
        """And receives and memory are there in time: nothing is sent again unless the links are to blame."""
        scenario, faults = self.scenario, self.faults
        waits = scenario.receives_first or scenario.receive_every_ns or scenario.forged or scenario.holds
        return self.strict and not (waits or faults.receives or faults.stall_ns)

    @property
    def steady(self) -> bool:
        """Adapters never stand still."""
        return not self.faults.stall_ns
