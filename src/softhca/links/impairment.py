# cython: annotation_typing=False
"""What one direction of a link does to its packets: each arrives so often, then and in what shape, or not."""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import NamedTuple

from softhca.links.decisions import (
    CORRUPTED,
    DELAYED,
    DUPLICATED,
    LOST,
    REORDERED,
    TRUNCATED,
    Decision,
    Script,
)
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

    ``lost_because`` is the reason why the last packet sent vanished, or empty.  ``script``: take down what
    the dice decide, or do what it says in their place; then of ``faults`` only delay and bandwidth count.
    """

    def __init__(
        self, faults: Faults, seed: str, source: int, destination: int, script: Script | None = None
    ) -> None:
        self.faults = faults
        self.source = source
        self.destination = destination
        self.lost_because = ""
        self._dice = random.Random(f"{seed}/{faults.seed}/link/{source}>{destination}")
        self._script = script
        self._repeat = script.of_link(source, destination) if script is not None else None
        self._packet = 0
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
        self._lossy = bool(faults.loss or faults.burst_loss or faults.flap_ns or self._cuts)
        # Where nothing can happen to a packet nothing needs to be asked.
        self._clean = script is None and not (
            self._lossy or faults.bandwidth_bytes_per_s or faults.jitter_ns or faults.reordering
            or faults.duplication or faults.truncation or faults.corruption
        )  # fmt: skip

    def send(self, data: bytes, now: int) -> list[Delivery]:
        """The copies of a packet sent at ``now`` that will arrive, with their times."""
        faults, dice = self.faults, self._dice
        if self._clean:
            self._last_ns = arrives_ns = max(now + faults.delay_ns, self._last_ns)
            return [Delivery(arrives_ns, data, PASSED)]
        self._packet += 1
        leaves_ns = now
        if faults.bandwidth_bytes_per_s:
            leaves_ns = max(now, self._free_ns) + len(data) * 1_000_000_000 // faults.bandwidth_bytes_per_s
            self._free_ns = leaves_ns
        if self._repeat is not None:
            return self._send_again(data, leaves_ns + faults.delay_ns)
        if self._lossy:
            self.lost_because = self._loss(now)
            if self.lost_because:
                self._note(LOST, data)
                return []
        arrives_ns = leaves_ns + faults.delay_ns
        if faults.jitter_ns:
            late_ns = dice.randrange(faults.jitter_ns + 1)
            if late_ns and self._script is not None:
                self._note(DELAYED, data, late_ns)
            arrives_ns += late_ns
        arrives_ns = max(arrives_ns, self._last_ns)
        what = PASSED
        if faults.reordering and dice.random() < faults.reordering:
            what, late_ns = REORDERED, dice.randrange(faults.reorder_ns + 1)
            self._note(REORDERED, data, late_ns)
            late_ns += arrives_ns
        else:
            self._last_ns = late_ns = arrives_ns
        copies = []
        if faults.duplication and dice.random() < faults.duplication:
            copy_ns = dice.randrange(faults.reorder_ns + 1)
            self._note(DUPLICATED, data, copy_ns)
            copies.append(Delivery(arrives_ns + copy_ns, data, DUPLICATED))
        if faults.truncation and dice.random() < faults.truncation:
            left_bytes = dice.randrange(len(data))
            self._note(TRUNCATED, data, left_bytes)
            what, data = TRUNCATED, data[:left_bytes]
        if faults.corruption and data and dice.random() < faults.corruption:
            bits = dice.sample(range(8 * len(data)), dice.randint(1, 3))
            self._note(CORRUPTED, data, *bits)
            what, data = CORRUPTED, _damaged(data, bits)
        return [Delivery(late_ns, data, what), *copies]

    def _note(self, kind: str, data: bytes, *values: int) -> None:
        """Take down that this befell the packet that is being sent."""
        if self._script is not None:
            decision = Decision(self.source, self.destination, self._packet, kind, values)
            self._script.take(decision, data)

    def _send_again(self, data: bytes, arrives_ns: int) -> list[Delivery]:
        """The copies of a packet to which happens what the script says; `send` in the same order."""
        assert self._repeat is not None
        assert self._script is not None
        self._script.pass_packet()
        suffers: dict[str, tuple[int, ...]] = {}
        for decision in self._repeat.get(self._packet, ()):
            suffers[decision.kind] = decision.values
            self._script.take(decision, data)
        self.lost_because = "loss" if LOST in suffers else ""
        if self.lost_because:
            return []
        arrives_ns = max(arrives_ns + sum(suffers.get(DELAYED, ())), self._last_ns)
        late_ns, what = arrives_ns, PASSED
        if REORDERED in suffers:
            what = REORDERED
            late_ns += suffers[REORDERED][0]
        else:
            self._last_ns = arrives_ns
        copies = []
        if DUPLICATED in suffers:
            copies.append(Delivery(arrives_ns + suffers[DUPLICATED][0], data, DUPLICATED))
        if TRUNCATED in suffers:
            what, data = TRUNCATED, data[: suffers[TRUNCATED][0]]
        if CORRUPTED in suffers:
            what, data = CORRUPTED, _damaged(data, suffers[CORRUPTED])
        return [Delivery(late_ns, data, what), *copies]

    def _loss(self, now: int) -> str:
        """Why a packet sent at ``now`` vanishes, or nothing."""
        faults, dice = self.faults, self._dice
        if self._cuts and any([cut.start_ns <= now < cut.end_ns for cut in self._cuts]):
            return "partition"
        if faults.flap_ns and is_off(now + self._flap_phase_ns, faults.flap_period_ns, faults.flap_ns):
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


def _damaged(data: bytes, bits: Iterable[int]) -> bytes:
    """``data`` with these of its bits flipped."""
    changed = bytearray(data)
    for bit in bits:
        if bit >> 3 < len(changed):
            changed[bit >> 3] ^= 1 << (bit & 7)
    return bytes(changed)


def phase_ns(seed: str, period_ns: int) -> int:
    """Where in its period something begins."""
    return random.Random(seed).randrange(period_ns) if period_ns else 0


def is_off(moment_ns: int, period_ns: int, off_ns: int) -> bool:
    """Whether ``moment_ns`` lies in the last ``off_ns`` of its period; never without a period."""
    return period_ns > 0 and moment_ns % period_ns >= period_ns - off_ns
