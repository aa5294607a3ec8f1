"""What one direction of a link does to its packets: each arrives so often, then and in what shape, or not."""

from __future__ import annotations

import random
from typing import NamedTuple

from softhca.links.faults import Faults

PASSED = "passed"
BURST_QUIET_NS = 100_000
"""A run of losses is over when nothing was sent for so long: else an idle link would stay bad for ever."""


class Delivery(NamedTuple):
    """A copy of a packet that arrives at ``time_ns``; ``what`` says how it was treated."""

    time_ns: int
    data: bytes
    what: str


class Impairment:
    """From adapter ``source`` to ``destination``.  ``seed`` decides all dice; nothing else does.

    ``lost_because`` is the reason why the last packet sent vanished, or empty.
    """

    def __init__(self, faults: Faults, seed: str, source: int, destination: int) -> None:
        self.faults = faults
        self.source = source
        self.destination = destination
        self.lost_because = ""
        self._dice = random.Random(f"{seed}/{faults.seed}/link/{source}>{destination}")
        self._free_ns = 0
        self._last_ns = 0
        self._in_burst = False
        self._sent_ns = 0
        # Both directions of one link go down together.
        pair = min(source, destination), max(source, destination)
        self._flap_phase_ns = phase_ns(f"{seed}/{faults.seed}/flap/{pair}", faults.flap_period_ns)
        self._cuts = [
            cut for cut in faults.partitions if (cut.source, cut.destination) == (source, destination)
        ]

    def send(self, data: bytes, now: int) -> list[Delivery]:
        """The copies of a packet sent at ``now`` that will arrive, with their times."""
        faults, dice = self.faults, self._dice
        leaves_ns = now
        if faults.bandwidth_bytes_per_s:
            leaves_ns = max(now, self._free_ns) + len(data) * 1_000_000_000 // faults.bandwidth_bytes_per_s
            self._free_ns = leaves_ns
        self.lost_because = self._loss(now)
        if self.lost_because:
            return []
        arrives_ns = leaves_ns + faults.delay_ns
        if faults.jitter_ns:
            arrives_ns += dice.randrange(faults.jitter_ns + 1)
        arrives_ns = max(arrives_ns, self._last_ns)
        what = PASSED
        if faults.reordering and dice.random() < faults.reordering:
            what = "reordered"
            late_ns = arrives_ns + dice.randrange(faults.reorder_ns + 1)
        else:
            self._last_ns = late_ns = arrives_ns
        copies = []
        if faults.duplication and dice.random() < faults.duplication:
            copies.append(Delivery(arrives_ns + dice.randrange(faults.reorder_ns + 1), data, "duplicated"))
        if faults.truncation and dice.random() < faults.truncation:
            what, data = "truncated", data[: dice.randrange(len(data))]
        if faults.corruption and data and dice.random() < faults.corruption:
            what, data = "corrupted", self._damage(data)
        return [Delivery(late_ns, data, what), *copies]

    def _loss(self, now: int) -> str:
        """Why a packet sent at ``now`` vanishes, or nothing."""
        faults, dice = self.faults, self._dice
        if any(cut.start_ns <= now < cut.end_ns for cut in self._cuts):
            return "partition"
        if is_off(now + self._flap_phase_ns, faults.flap_period_ns, faults.flap_ns):
            return "flap"
        if faults.burst_loss:
            if now - self._sent_ns > BURST_QUIET_NS:
                self._in_burst = False
            self._sent_ns = now
            chance = 1 / faults.burst_length_packets if self._in_burst else faults.burst_loss
            if dice.random() < chance:
                self._in_burst = not self._in_burst
            if self._in_burst:
                return "burst"
        if faults.loss and dice.random() < faults.loss:
            return "loss"
        return ""

    def _damage(self, data: bytes) -> bytes:
        changed = bytearray(data)
        for bit in self._dice.sample(range(8 * len(data)), self._dice.randint(1, 3)):
            changed[bit >> 3] ^= 1 << (bit & 7)
        return bytes(changed)


def phase_ns(seed: str, period_ns: int) -> int:
    """Where in its period something begins."""
    return random.Random(seed).randrange(period_ns) if period_ns else 0


def is_off(moment_ns: int, period_ns: int, off_ns: int) -> bool:
    """Whether ``moment_ns`` lies in the last ``off_ns`` of its period; never without a period."""
    return period_ns > 0 and moment_ns % period_ns >= period_ns - off_ns
